//! FSAI built and applied in device memory.
//!
//! The device cuts the triangles of `A`; patterns that are not the matrix's own are the host's. A warp or a part of one solves
//! each row, and what it finds goes from the order of rows into the format of the factors: a matrix that is in host memory
//! crosses the bus, and the host is told where rows of `G` begin, and that is all. Columns of the factors are not in host memory
//! before something asks for them, such as [`CudaMatrix::to_csr`].
//!
//! Budget: building moves `A` over the bus once, refreshing its values, unless an operator has them on the GPU: then 4 bytes a
//! row come back, where its format tells columns (CSR, ELLPACK, SELL-P, Halo of single rows), and columns go there for others. Both
//! read `A` some times a row's length from caches; an application is two products. Building waits some ten times for a few
//! numbers, to know what to ask for next.

use super::{NAME, lower_pattern, refusal};
use crate::cuda::{Cuda, CudaMatrix, CudaSpace, CudaVector, ToCuda};
use crate::formats::pattern::Pattern;
use crate::formats::{Format, OnDevice, Source};
use crate::preconditioners::origin::{Origin, Refresh, check_alike, check_space, check_square};
use crate::preconditioners::transposed_on_cuda::transposed;
use crate::{Fsai, Real, Result, Sell, Sparsity};
use krysp_kernels::cuda::preconditioners::fsai::{self, Triangles};
use krysp_kernels::cuda::{Ordered, Transposition};
use krysp_kernels::index::Offsets;
use krysp_solvers::{Composed, LinearOperator};
use std::sync::Arc;

/// FSAI on a GPU, with its factors in the format `F`. Made by [`Fsai::to`](ToCuda::to), [`Fsai::on`] or
/// [`Fsai::with_pattern_on`].
///
/// ```no_run
/// use krysp::prelude::*;
/// use krysp::{Fsai, Halo, Sparsity, gallery};
///
/// let csr = gallery::poisson::<f64>(&[8; 3])?;
/// let (gpu, b) = (Cuda::new(0)?, vec![1.0; csr.rows()]);
/// let a = csr.to(&gpu)?;
/// // of what is on the GPU already; `&csr` would cross the bus
/// let fsai = Fsai::on(&gpu, &a)?;
/// assert!(Cg::new(&a).preconditioner(fsai).solve(&b)?.report.converged());
/// // of another pattern, in another format
/// let square = Fsai::with_pattern_on::<Halo<f64>>(&gpu, &a, Sparsity::Power(2))?;
/// assert!(Cg::new(&a).preconditioner(square).solve(&b)?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OnGpu<T: Real, F: OnDevice<T> = Sell<T>> {
    /// `Gᵀ` after `G`.
    product: Composed<CudaMatrix<T, F>, CudaMatrix<T, F>>,
    /// The pattern of `G`.
    lower: Arc<Pattern>,
    /// What computes values; a copy of what the host computed has none before its first refresh.
    solver: Option<Solver<T>>,
}

/// What computes the factors, row by row.
#[derive(Debug)]
struct Solver<T: Real> {
    rows: fsai::Fsai<T>,
    /// `Gᵀ`, and how it follows `G`.
    upper: Ordered<T>,
    transposition: Transposition,
    /// The pattern of `A`.
    origin: Arc<Pattern>,
}

impl<T: Real> Fsai<T> {
    /// [`Fsai::new`], built on a GPU. Both triangles are given, of which the numbers of the lower are read. Of an operator that
    /// is there already, little crosses the bus.
    pub fn on(gpu: &Cuda, a: &impl Origin<T>) -> Result<OnGpu<T>> {
        OnGpu::new(gpu, a, Sparsity::Power(1))
    }

    /// [`Fsai::with_pattern`], built on a GPU, the factors in the format `F`. What the host grew, `fsai`, has the pattern
    /// `Sparsity::Of(fsai.lower())`.
    pub fn with_pattern_on<F: OnDevice<T>>(
        gpu: &Cuda,
        a: &impl Origin<T>,
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
    fn new(gpu: &Cuda, a: &dyn Origin<T>, sparsity: Sparsity<'_, T>) -> Result<Self> {
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
                let factor = Ordered::zeros_of(gpu.device(), pattern.on_device())?;
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
    /// Computes `factor`, of the pattern `lower`, from a matrix. `guess` is what its transpose may be, whose pattern comes with
    /// the solver.
    fn new(
        (a, matrix): (&dyn Origin<T>, Ordered<T>),
        (lower, factor): (&Arc<Pattern>, Ordered<T>),
        guess: Option<(Arc<Pattern>, Ordered<T>)>,
    ) -> Result<(Self, Arc<Pattern>)> {
        let origin = a.structure().pattern.clone();
        let mut rows = fsai::Fsai::new((matrix, origin.on_device()), (factor, lower.on_device()))?;
        rows.solve()?;
        // found while rows are solved
        let (pattern, mut upper, transposition) = transposed(lower, rows.factor(), guess)?;
        if let Some(row) = rows.failed()? {
            return Err(refusal(&*a.in_host_memory()?, lower, row));
        }
        transposition.refresh(rows.factor(), &mut upper)?;
        Ok((Solver { rows, upper, transposition, origin }, pattern))
    }

    /// Computes anew from a matrix of the same space.
    fn refresh(&mut self, gpu: &Cuda, a: &dyn Origin<T>, lower: &Pattern) -> Result<()> {
        a.give_values(gpu, self.rows.matrix_mut())?;
        self.rows.solve()?;
        if let Some(row) = self.rows.failed()? {
            return Err(refusal(&*a.in_host_memory()?, lower, row));
        }
        Ok(self.transposition.refresh(self.rows.factor(), &mut self.upper)?)
    }
}

/// From a matrix of the same pattern. After an error the factors are as they were.
impl<T: Real, F: OnDevice<T>> Refresh<T> for OnGpu<T, F> {
    fn refresh(&mut self, a: &dyn Origin<T>) -> Result<()> {
        check_space(a, self.domain().host())?;
        let gpu = self.product.domain().gpu().clone();
        let solver = match &mut self.solver {
            Some(solver) => {
                check_alike(a, self.product.domain().host(), &solver.origin)?;
                solver.refresh(&gpu, a, &self.lower)?;
                solver
            }
            None => {
                let factor = Ordered::zeros_of(gpu.device(), self.lower.on_device())?;
                let upper = self.product.outer().source.pattern.clone();
                let guess = Some((upper.clone(), Ordered::zeros_of(gpu.device(), upper.on_device())?));
                let made = Solver::new((a, a.ordered(&gpu)?), (&self.lower, factor), guess)?;
                self.solver.insert(made.0)
            }
        };
        let (outer, inner) = self.product.factors_mut();
        inner.fill_from(solver.rows.factor())?;
        outer.fill_from(&solver.upper)
    }
}

/// The upper triangle of a pattern that has this lower one, and the diagonal in both.
fn upper_pattern(whole: &Arc<Pattern>, lower: &Pattern) -> Pattern {
    let length = |row: usize| whole.offsets.range(row).len() + 1 - lower.offsets.range(row).len();
    let offsets = Offsets::of_rows(whole.rows(), &length);
    whole.part(Arc::new(offsets), |whole, length| whole.end - length)
}

impl<T: Real, F: OnDevice<T>> LinearOperator for OnGpu<T, F> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        self.product.domain()
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        self.product.apply(x, y)
    }

    fn bytes(&self) -> usize {
        self.product.bytes()
    }

    fn replays(&self) -> bool {
        self.product.replays()
    }
}
