//! SPAI built and applied in device memory.
//!
//! A warp or a block solves the least-squares problem of each row or column by modified Gram-Schmidt, and the
//! result is converted into the format of the inverse. A matrix in host memory crosses the bus once, and so
//! does the pattern if another one is given. The host chooses a kernel for each problem that takes a block.
//!
//! Cost: building moves `A` over the bus once, and a refresh moves its values. If `A` is an operator on the
//! GPU, building moves nothing for formats that store column indices directly (CSR, ELLPACK, SELL-P, Halo of
//! single rows), and column indices for others. Building and refreshing read a row or column of `A` for each
//! entry of `M`, mostly from caches; an application is one product. Memory: both patterns and their
//! transposes; and for each problem that a warp solves, one byte for each entry of the rows of `A` that it
//! involves: some 15 bytes per entry of `A` if rows have 15 entries.

use super::{NAME, NOTHING, refusal};
use crate::device::{Cuda, ToCuda};
use crate::error::Result;
use crate::formats::derived::Derivation;
use crate::formats::matrix_source::check_square;
use crate::formats::pattern::Pattern;
use crate::formats::{CudaMatrix, MatrixSource, OnDevice, Sell, Source};
use crate::numbers::Real;
use crate::preconditioners::refresh::{Refresh, check_alike, check_space};
use crate::preconditioners::transposed_on_cuda::{mirrored, transposed};
use crate::preconditioners::{Side, Spai, SpaiReport, Sparsity};
use krysp_kernels::cuda::{DeviceCsr, Transposition, preconditioners::spai};
use krysp_solvers::{LinearOperator, Wrapper};
use std::sync::Arc;

/// A sparse approximate inverse on a GPU, in the format `F`; from [`Spai::to`](ToCuda::to), [`Spai::on`] or
/// [`Spai::with_pattern_on`].
///
/// ```no_run
/// use krysp::prelude::*;
/// use krysp::{Halo, Side, Spai, Sparsity, gallery};
///
/// let csr = gallery::poisson::<f64>(&[8; 3])?;
/// let (gpu, b) = (Cuda::new(0)?, vec![1.0; csr.rows()]);
/// let a = csr.to(&gpu)?;
/// // from the operator on the GPU: `&csr` would cross the bus
/// let spai = Spai::on(&gpu, &a)?;
/// println!("‖A M − I‖ = {:.1}", spai.report()?.frobenius);
/// assert!(BiCgStab::new(&a).preconditioner(spai).solve(&b)?.report.converged());
/// // on another pattern, in another format
/// let square = Spai::with_pattern_on::<Halo<f64>>(&gpu, &a, Side::Right, Sparsity::Power(2))?;
/// assert!(BiCgStab::new(&a).preconditioner(square).solve(&b)?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OnGpu<T: Real, F: OnDevice<T> = Sell<T>> {
    matrix: CudaMatrix<T, F>,
    side: Side,
    /// Largest residual norm of a row or column that meets the tolerance.
    epsilon: f64,
    values: Values<T>,
}

/// The device that computed the values.
#[derive(Debug)]
enum Values<T: Real> {
    /// Values computed on the host, which supplied the report.
    Host(SpaiReport),
    /// Values computed on the GPU.
    Gpu(Box<Solver<T>>),
}

/// Computes an inverse row by row, or column by column.
#[derive(Debug)]
struct Solver<T: Real> {
    problems: spai::Spai<T>,
    right: Option<Right<T>>,
    /// The pattern that is computed row by row: that of `M`, or for the right side that of `Mᵀ`.
    rows: Arc<Pattern>,
    /// The pattern of `A`.
    origin: Arc<Pattern>,
}

/// Transposes, for an inverse that is computed by columns.
#[derive(Debug)]
struct Right<T: Real> {
    /// `A`, and the map from its values to those of its transpose.
    a: DeviceCsr<T>,
    follow_a: Arc<Transposition>,
    /// `M`, and the map from the values of its transpose to those of `M`.
    inverse: DeviceCsr<T>,
    followed: Arc<Transposition>,
}

impl<T: Real> Spai<T> {
    /// Like [`Spai::new`], built on a GPU. If the operator is already there, little crosses the bus.
    pub fn on(gpu: &Cuda, a: &impl MatrixSource<T>) -> Result<OnGpu<T>> {
        OnGpu::new(gpu, a, Side::Right, Sparsity::Power(1))
    }

    /// Like [`Spai::with_pattern`], built on a GPU, with the inverse in the format `F`. For the adaptive
    /// pattern of a `spai` on the host, pass `Sparsity::Of(spai.matrix())`.
    pub fn with_pattern_on<F: OnDevice<T>>(
        gpu: &Cuda,
        a: &impl MatrixSource<T>,
        side: Side,
        sparsity: Sparsity<'_, T>,
    ) -> Result<OnGpu<T, F>> {
        OnGpu::new(gpu, a, side, sparsity)
    }
}

impl<T: Real> ToCuda for Spai<T> {
    type OnCuda = OnGpu<T>;

    fn to(&self, gpu: &Cuda) -> Result<OnGpu<T>> {
        let side = if self.right.is_some() { Side::Right } else { Side::Left };
        let (matrix, values) = (Sell::on(gpu, &self.matrix)?, Values::Host(self.report.clone()));
        Ok(OnGpu { matrix, side, epsilon: self.epsilon, values })
    }
}

impl<T: Real, F: OnDevice<T>> OnGpu<T, F> {
    fn new(gpu: &Cuda, from: &dyn MatrixSource<T>, side: Side, sparsity: Sparsity<'_, T>) -> Result<Self> {
        check_square(NAME, from)?;
        let a = from.ordered(gpu)?;
        let (given, own) = match sparsity {
            Sparsity::Power(1) if a.has_diagonal()? => (from.structure().pattern.in_order(), true),
            sparsity => (sparsity.whole(&*from.in_host_memory()?)?, false),
        };
        let mut solver = Solver::new((from, a), side, &given, own)?;
        let space = from.structure().domain();
        let source = Source::new(given, space.clone(), space.clone());
        let matrix = CudaMatrix::from_ordered(gpu, source, solver.inverse()?, F::Options::default())?;
        Ok(OnGpu { matrix, side, epsilon: NOTHING, values: Values::Gpu(Box::new(solver)) })
    }

    /// `M`
    pub fn matrix(&self) -> &CudaMatrix<T, F> {
        &self.matrix
    }

    /// Quality of the inverse; waits until it is computed.
    pub fn report(&self) -> Result<SpaiReport> {
        match &self.values {
            Values::Host(report) => Ok(report.clone()),
            Values::Gpu(solver) => Ok(SpaiReport::of(&solver.problems.residuals()?, self.epsilon)),
        }
    }
}

impl<T: Real> Solver<T> {
    /// Computes an inverse on the pattern `given` from a matrix; `own` is true if that is the pattern of the
    /// matrix.
    fn new(
        (from, a): (&dyn MatrixSource<T>, DeviceCsr<T>),
        side: Side,
        given: &Arc<Pattern>,
        own: bool,
    ) -> Result<Self> {
        let origin = from.structure().pattern.clone();
        let inverse = if own { a.zeros_like()? } else { DeviceCsr::zeros_of(a.device(), given.on_device())? };
        let build = |a: (DeviceCsr<T>, &Pattern), m: (DeviceCsr<T>, &Pattern)| {
            spai::Spai::new((a.0, a.1.on_device()), (m.0, m.1.on_device()))
        };
        let (problems, rows, right) = match side {
            Side::Left => (build((a, &origin), (inverse, given))?, given.clone(), None),
            Side::Right => {
                // patterns are usually symmetric
                let guess = (origin.clone(), a.zeros_like()?);
                let (columns, mut at, follow_a) = transposed(&origin, &a, Some(guess))?;
                follow_a.refresh(&a, &mut at)?;
                let follow_a = Arc::new(follow_a);
                let (rows, mt) = if own {
                    (columns.clone(), at.zeros_like()?)
                } else {
                    let guess = (given.clone(), inverse.zeros_like()?);
                    let (rows, mt, _) = transposed(given, &inverse, Some(guess))?;
                    (rows, mt)
                };
                // if both patterns are the same symmetric one, both maps are equal
                let alike = own && Arc::ptr_eq(&columns, &origin);
                let followed = if alike { follow_a.clone() } else { Arc::new(mirrored(&mt, &inverse)?) };
                let problems = build((at, &columns), (mt, &rows))?;
                (problems, rows, Some(Right { a, follow_a, inverse, followed }))
            }
        };
        let solver = Solver { problems, right, rows, origin };
        solver.check(from)?;
        Ok(solver)
    }

    /// Recomputes the inverse from a matrix of the same pattern.
    fn refresh(&mut self, gpu: &Cuda, from: &dyn MatrixSource<T>) -> Result<()> {
        match &mut self.right {
            None => from.copy_values_to(gpu, self.problems.matrix_mut())?,
            Some(Right { a, follow_a, .. }) => {
                from.copy_values_to(gpu, a)?;
                follow_a.refresh(a, self.problems.matrix_mut())?;
            }
        }
        self.problems.solve()?;
        self.check(from)
    }

    /// `M` in CSR order.
    fn inverse(&mut self) -> Result<&DeviceCsr<T>> {
        match &mut self.right {
            None => Ok(self.problems.inverse()),
            Some(Right { inverse, followed, .. }) => {
                followed.refresh(self.problems.inverse(), inverse)?;
                Ok(inverse)
            }
        }
    }

    /// Refuses local systems with linearly dependent columns.
    fn check(&self, from: &dyn MatrixSource<T>) -> Result<()> {
        let Some(row) = self.problems.refused()? else { return Ok(()) };
        let csr = from.in_host_memory()?;
        Err(match self.right {
            None => refusal(&*csr, self.rows.row(row), row),
            Some(_) => refusal(&Derivation::transposed(&*csr)?.0, self.rows.row(row), row),
        })
    }
}

/// Recomputes the inverse for new values of a matrix of the same pattern. After an error it is unchanged.
impl<T: Real, F: OnDevice<T>> Refresh<T> for OnGpu<T, F> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.domain().host())?;
        let gpu = self.matrix.domain().gpu().clone();
        match &mut self.values {
            Values::Gpu(solver) => {
                check_alike(a, self.matrix.domain().host(), &solver.origin)?;
                solver.refresh(&gpu, a)?;
                self.matrix.fill_from(solver.inverse()?)
            }
            Values::Host(_) => {
                let given = self.matrix.source.pattern.clone();
                let mut solver = Solver::new((a, a.ordered(&gpu)?), self.side, &given, false)?;
                self.matrix.fill_from(solver.inverse()?)?;
                self.values = Values::Gpu(Box::new(solver));
                Ok(())
            }
        }
    }
}

impl<T: Real, F: OnDevice<T>> Wrapper for OnGpu<T, F> {
    type Inner = CudaMatrix<T, F>;

    fn inner(&self) -> &CudaMatrix<T, F> {
        &self.matrix
    }
}
