//! FSAI built and applied in device memory.
//!
//! The device cuts the triangles of `A`; patterns that are not the matrix's own are the host's. A warp or a part of one solves
//! each row, and what it finds goes from the order of rows into the format of the factors: a matrix that is in host memory
//! crosses the bus, and the host is told where rows of `G` begin, and that is all. Columns of the factors are not in host memory
//! before something asks for them, such as [`OnCuda::to_csr`].
//!
//! Budget: building moves `A` over the bus once, refreshing its values, unless an operator has them on the GPU: then 4 bytes a
//! row come back, where its format tells columns (CSR, ELLPACK, SELL-P, Halo of single rows), and columns go there for others. Both
//! read `A` some times a row's length from caches; an application is two products. Building waits some ten times for a few
//! numbers, to know what to ask for next.

use crate::cuda::{Cuda, CudaSpace, CudaVector, OnCuda};
use crate::formats::pattern::Pattern;
use crate::formats::{OnDevice, Source};
use crate::preconditioners::fsai;
use crate::preconditioners::origin::{Origin, check_alike, check_square};
use crate::preconditioners::transposed_on_cuda::transposed;
use crate::{Fsai, Real, Result, Sell, Sparsity};
use krysp_kernels::cuda::preconditioners::fsai::Triangles;
use krysp_kernels::cuda::{Ordered, Transposition};
use krysp_kernels::index::Offsets;
use krysp_solvers::{Composed, LinearOperator};
use std::sync::Arc;

/// FSAI with its factors in device memory, in the format `F`; made by [`Fsai::on`].
///
/// ```no_run
/// use krysp::cuda::CudaFsai;
/// use krysp::formats::OnDevice;
/// use krysp::testing::matrices;
/// use krysp::{Cg, Cuda, Fsai, Halo, Sparsity};
///
/// let a = matrices::stencil7(8).csr::<f64>()?;
/// let (gpu, b) = (Cuda::new(0)?, vec![1.0; a.rows()]);
/// let op = a.to(&gpu)?;
/// // of what is on the GPU already; `&a` would cross the bus
/// assert!(Cg::new(&op).preconditioner(Fsai::on(&gpu, &op)?).solve(&b)?.report.converged());
/// // of another pattern, in another format
/// let square = CudaFsai::<f64, Halo<f64>>::new(&gpu, &a, Sparsity::Power(2))?;
/// assert!(Cg::new(&op).preconditioner(square).solve(&b)?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CudaFsai<T: Real, F: OnDevice<T> = Sell<T>> {
    /// `Gᵀ` after `G`.
    product: Composed<OnCuda<T, F>, OnCuda<T, F>>,
    solver: krysp_kernels::cuda::preconditioners::fsai::Fsai<T>,
    /// `Gᵀ` row by row, and how it follows `G`.
    upper: Ordered<T>,
    transposition: Transposition,
    /// The pattern of `G`.
    lower: Arc<Pattern>,
    /// The pattern of `A`.
    origin: Arc<Pattern>,
}

impl<T: Real> Fsai<T> {
    /// On the lower triangle of the matrix's own pattern, built on a GPU. Both triangles are given, of which the numbers of
    /// the lower are read. A matrix that is on the GPU already need not cross the bus again.
    pub fn on(gpu: &Cuda, a: &impl Origin<T>) -> Result<CudaFsai<T>> {
        CudaFsai::new(gpu, a, Sparsity::Power(1))
    }
}

impl<T: Real, F: OnDevice<T>> CudaFsai<T, F> {
    /// On the lower triangle of a pattern, and the diagonal: a power of the matrix's own, or that of the factor of an
    /// adaptive one, `Sparsity::Of(fsai.lower())`.
    pub fn new(gpu: &Cuda, a: &impl Origin<T>, sparsity: Sparsity<'_, T>) -> Result<Self> {
        check_square(fsai::NAME, a)?;
        let (space, origin) = (a.structure().domain(), a.structure().pattern.clone());
        let matrix = a.ordered(gpu)?;
        let own = if matches!(sparsity, Sparsity::Power(1)) { Triangles::of(&matrix)? } else { None };
        let (lower, factor, upper) = match own {
            Some(Triangles { lower, offsets, upper }) => {
                (Arc::new(origin.part(Arc::new(offsets), |whole, _| whole.start)), lower, upper)
            }
            None => {
                let pattern = Arc::new(fsai::lower_pattern(&*a.in_host_memory()?, sparsity)?);
                let factor = Ordered::zeros_of(gpu.device(), pattern.on_device())?;
                (pattern, factor, None)
            }
        };
        let on = |pattern: &Arc<Pattern>| Source::new(pattern.clone(), space.clone(), space.clone());
        let (matrix, factor) = ((matrix, origin.on_device()), (factor, lower.on_device()));
        let mut solver = krysp_kernels::cuda::preconditioners::fsai::Fsai::new(matrix, factor)?;
        solver.solve()?;
        // found while rows are solved
        let guess = upper.map(|upper| (Arc::new(upper_pattern(&origin, &lower)), upper));
        let (upper, mut values, transposition) = transposed(&lower, solver.factor(), guess)?;
        if let Some(row) = solver.failed()? {
            return Err(fsai::refusal(&*a.in_host_memory()?, &lower, row));
        }
        transposition.refresh(solver.factor(), &mut values)?;
        let inner = OnCuda::from_ordered(gpu, on(&lower), solver.factor(), F::defaults())?;
        let outer = OnCuda::from_ordered(gpu, on(&upper), &values, F::defaults())?;
        let product = Composed::new(outer, inner)?;
        Ok(CudaFsai { product, solver, upper: values, transposition, lower, origin })
    }

    /// `G`
    pub fn lower(&self) -> &OnCuda<T, F> {
        self.product.inner()
    }

    /// `Gᵀ`
    pub fn upper(&self) -> &OnCuda<T, F> {
        self.product.outer()
    }

    /// Takes new values from a matrix of the same pattern and space. After an error the factors are as they were.
    pub fn refresh(&mut self, a: &impl Origin<T>) -> Result<()> {
        check_alike(a, self.domain().host(), &self.origin)?;
        a.give_values(self.product.domain().gpu(), self.solver.matrix_mut())?;
        self.solver.solve()?;
        if let Some(row) = self.solver.failed()? {
            return Err(fsai::refusal(&*a.in_host_memory()?, &self.lower, row));
        }
        self.transposition.refresh(self.solver.factor(), &mut self.upper)?;
        let (outer, inner) = self.product.factors_mut();
        inner.refresh_from(self.solver.factor())?;
        outer.refresh_from(&self.upper)
    }
}

/// The upper triangle of a pattern that has this lower one, and the diagonal in both.
fn upper_pattern(whole: &Arc<Pattern>, lower: &Pattern) -> Pattern {
    let length = |row: usize| whole.offsets.range(row).len() + 1 - lower.offsets.range(row).len();
    let offsets = Offsets::of_rows(whole.rows(), &length);
    whole.part(Arc::new(offsets), |whole, length| whole.end - length)
}

impl<T: Real, F: OnDevice<T>> LinearOperator for CudaFsai<T, F> {
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
