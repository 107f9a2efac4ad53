//! FSAI built and applied in device memory.
//!
//! The device extracts the triangles of `A`; patterns other than the matrix's own are computed by the host. A
//! warp or a part of one solves each row, and the result is converted from CSR order into the format of the
//! factors. A matrix in host memory crosses the bus once; only the row offsets of `G` are copied back. Column
//! indices of the factors are not in host memory until they are needed, for example by
//! [`CudaMatrix::to_csr`].
//!
//! Cost: building moves `A` over the bus once, and a refresh moves its values. If `A` is an operator on the
//! GPU, building copies back 4 bytes per row for formats that store column indices directly (CSR, ELLPACK,
//! SELL-P, Halo of single rows), and uploads column indices for others. Building and refreshing read a row of
//! `A` for each entry of `G`, mostly from caches; an application is two products. While building, the host
//! waits about ten times for sizes that the next step needs.

use super::{NAME, lower_pattern, refusal};
use crate::device::{Cuda, ToCuda};
use crate::error::Result;
use crate::formats::matrix_source::check_square;
use crate::formats::pattern::Pattern;
use crate::formats::{CudaMatrix, Format, MatrixSource, OnDevice, Sell, Source};
use crate::numbers::Real;
use crate::preconditioners::refresh::{Refresh, check_alike, check_space};
use crate::preconditioners::transposed_on_cuda::transposed;
use crate::preconditioners::{Fsai, Sparsity};
use krysp_kernels::cuda::preconditioners::fsai::{self, Triangles};
use krysp_kernels::cuda::{DeviceCsr, Transposition};
use krysp_kernels::index::Offsets;
use krysp_solvers::{Composed, LinearOperator, Wrapper};
use std::sync::Arc;

/// FSAI on a GPU, with its factors in the format `F`; from [`Fsai::to`](ToCuda::to), [`Fsai::on`] or
/// [`Fsai::with_pattern_on`].
///
/// ```no_run
/// use krysp::prelude::*;
/// use krysp::{Fsai, Halo, Sparsity, gallery};
///
/// let csr = gallery::poisson::<f64>(&[8; 3])?;
/// let (gpu, b) = (Cuda::new(0)?, vec![1.0; csr.rows()]);
/// let a = csr.to(&gpu)?;
/// // from the operator on the GPU: `&csr` would cross the bus
/// let fsai = Fsai::on(&gpu, &a)?;
/// assert!(Cg::new(&a).preconditioner(fsai).solve(&b)?.report.converged());
/// // on another pattern, in another format
/// let square = Fsai::with_pattern_on::<Halo<f64>>(&gpu, &a, Sparsity::Power(2))?;
/// assert!(Cg::new(&a).preconditioner(square).solve(&b)?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OnGpu<T: Real, F: OnDevice<T> = Sell<T>> {
    /// `Gᵀ G`
    product: Composed<CudaMatrix<T, F>, CudaMatrix<T, F>>,
    /// The pattern of `G`.
    lower: Arc<Pattern>,
    /// Computes the values; `None` for a copy of the host's factors until its first refresh.
    solver: Option<Solver<T>>,
}

/// Computes the factors row by row.
#[derive(Debug)]
struct Solver<T: Real> {
    rows: fsai::Fsai<T>,
    /// `Gᵀ`, and the map from the values of `G` to its values.
    upper: DeviceCsr<T>,
    transposition: Transposition,
    /// The pattern of `A`.
    origin: Arc<Pattern>,
}

impl<T: Real> Fsai<T> {
    /// Like [`Fsai::new`], built on a GPU. The matrix must have both triangles; only the values of the lower
    /// one are read. If the operator is already on the GPU, little crosses the bus.
    pub fn on(gpu: &Cuda, a: &impl MatrixSource<T>) -> Result<OnGpu<T>> {
        OnGpu::new(gpu, a, Sparsity::Power(1))
    }

    /// Like [`Fsai::with_pattern`], built on a GPU, with the factors in the format `F`. For the adaptive
    /// pattern of an `fsai` on the host, pass `Sparsity::Of(fsai.lower())`.
    pub fn with_pattern_on<F: OnDevice<T>>(
        gpu: &Cuda,
        a: &impl MatrixSource<T>,
        sparsity: Sparsity<'_, T>,
    ) -> Result<OnGpu<T, F>> {
        OnGpu::new(gpu, a, sparsity)
    }
}

impl<T: Real> ToCuda for Fsai<T> {
    type OnCuda = OnGpu<T>;

    fn to(&self, gpu: &Cuda) -> Result<OnGpu<T>> {
        let product = Composed::new(Sell::on(gpu, self.upper())?, Sell::on(gpu, self.lower())?)?;
        Ok(OnGpu { product, lower: self.lower().source().pattern.clone(), solver: None })
    }
}

impl<T: Real, F: OnDevice<T>> OnGpu<T, F> {
    fn new(gpu: &Cuda, a: &dyn MatrixSource<T>, sparsity: Sparsity<'_, T>) -> Result<Self> {
        check_square(NAME, a)?;
        let (space, origin) = (a.structure().domain(), &a.structure().pattern);
        let matrix = a.ordered(gpu)?;
        let own = if matches!(sparsity, Sparsity::Power(1)) { Triangles::of(&matrix)? } else { None };
        let (lower, factor, guess) = match own {
            Some(Triangles { lower, offsets, upper }) => {
                let pattern = Arc::new(origin.part(Arc::new(offsets), |whole, _| whole.start));
                let guess = upper.map(|upper| (Arc::new(upper_pattern(origin, &pattern)), upper));
                (pattern, lower, guess)
            }
            None => {
                let pattern = Arc::new(lower_pattern(&*a.in_host_memory()?, sparsity)?);
                let factor = DeviceCsr::zeros_of(gpu.device(), pattern.on_device())?;
                (pattern, factor, None)
            }
        };
        let (solver, upper) = Solver::new((a, matrix), (&lower, factor), guess)?;
        let on = |pattern: &Arc<Pattern>| Source::new(pattern.clone(), space.clone(), space.clone());
        let inner = CudaMatrix::from_ordered(gpu, on(&lower), solver.rows.factor(), F::Options::default())?;
        let outer = CudaMatrix::from_ordered(gpu, on(&upper), &solver.upper, F::Options::default())?;
        Ok(OnGpu { product: Composed::new(outer, inner)?, lower, solver: Some(solver) })
    }

    /// `G`
    pub fn lower(&self) -> &CudaMatrix<T, F> {
        self.product.inner()
    }

    /// `Gᵀ`
    pub fn upper(&self) -> &CudaMatrix<T, F> {
        self.product.outer()
    }
}

impl<T: Real> Solver<T> {
    /// Computes `factor` on the pattern `lower` from a matrix. Returns also the pattern of the transpose, for
    /// which `guess` is tried first.
    fn new(
        (a, matrix): (&dyn MatrixSource<T>, DeviceCsr<T>),
        (lower, factor): (&Arc<Pattern>, DeviceCsr<T>),
        guess: Option<(Arc<Pattern>, DeviceCsr<T>)>,
    ) -> Result<(Self, Arc<Pattern>)> {
        let origin = a.structure().pattern.clone();
        let mut rows = fsai::Fsai::new((matrix, origin.on_device()), (factor, lower.on_device()))?;
        rows.solve()?;
        // the host computes this while the GPU solves rows
        let (pattern, mut upper, transposition) = transposed(lower, rows.factor(), guess)?;
        if let Some(row) = rows.failed()? {
            return Err(refusal(&*a.in_host_memory()?, lower, row));
        }
        transposition.refresh(rows.factor(), &mut upper)?;
        Ok((Solver { rows, upper, transposition, origin }, pattern))
    }

    /// Recomputes the values from a matrix of the same space.
    fn refresh(&mut self, gpu: &Cuda, a: &dyn MatrixSource<T>, lower: &Pattern) -> Result<()> {
        a.copy_values_to(gpu, self.rows.matrix_mut())?;
        self.rows.solve()?;
        if let Some(row) = self.rows.failed()? {
            return Err(refusal(&*a.in_host_memory()?, lower, row));
        }
        Ok(self.transposition.refresh(self.rows.factor(), &mut self.upper)?)
    }
}

/// Recomputes the factors for new values of a matrix of the same pattern. After an error they are unchanged.
impl<T: Real, F: OnDevice<T>> Refresh<T> for OnGpu<T, F> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.domain().host())?;
        let gpu = self.product.domain().gpu().clone();
        let solver = match &mut self.solver {
            Some(solver) => {
                check_alike(a, self.product.domain().host(), &solver.origin)?;
                solver.refresh(&gpu, a, &self.lower)?;
                solver
            }
            None => {
                let factor = DeviceCsr::zeros_of(gpu.device(), self.lower.on_device())?;
                let upper = self.product.outer().source.pattern.clone();
                let guess = Some((upper.clone(), DeviceCsr::zeros_of(gpu.device(), upper.on_device())?));
                let made = Solver::new((a, a.ordered(&gpu)?), (&self.lower, factor), guess)?;
                self.solver.insert(made.0)
            }
        };
        let (outer, inner) = self.product.factors_mut();
        inner.fill_from(solver.rows.factor())?;
        outer.fill_from(&solver.upper)
    }
}

/// The upper triangle of a pattern whose lower triangle is `lower`; both contain the diagonal.
fn upper_pattern(whole: &Arc<Pattern>, lower: &Pattern) -> Pattern {
    let length = |row: usize| whole.offsets.range(row).len() + 1 - lower.offsets.range(row).len();
    let offsets = Offsets::of_rows(whole.rows(), &length);
    whole.part(Arc::new(offsets), |whole, length| whole.end - length)
}

impl<T: Real, F: OnDevice<T>> Wrapper for OnGpu<T, F> {
    type Inner = Composed<CudaMatrix<T, F>, CudaMatrix<T, F>>;

    fn inner(&self) -> &Self::Inner {
        &self.product
    }
}
