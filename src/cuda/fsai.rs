//! FSAI built and applied in device memory.
//!
//! The host finds how long rows of `G` are, and the device takes their columns from those of `A`; patterns that are not the
//! matrix's own are the host's. A warp or a part of one solves each row, and what it finds goes from the order of rows into the
//! format of the factors: the matrix crosses the bus, and where rows of its triangles begin, and nothing else does. Columns of
//! the factors are not in host memory before something asks for them, such as [`OnCuda::to_csr`].
//!
//! Budget: building moves `A` over the bus once, refreshing its values, and both read it some times a row's length from caches;
//! an application is two products. Building waits some ten times for a few numbers, to know what to ask for next.

use super::transposed::transposed;
use super::{Cuda, CudaSpace, CudaVector, OnCuda};
use crate::formats::derived::check_same_pattern;
use crate::formats::pattern::Pattern;
use crate::formats::{Format, OnDevice, Source};
use crate::preconditioners::{check_space, check_square, fsai};
use crate::{Csr, Fsai, Real, Result, Sell, Sparsity};
use krysp_kernels::cuda::fsai::{Triangle, triangle};
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
/// assert!(Cg::new(&op).preconditioner(Fsai::on(&gpu, &a)?).solve(&b)?.report.converged());
/// // of another pattern, in another format
/// let square = CudaFsai::<f64, Halo<f64>>::new(&gpu, &a, Sparsity::Power(2))?;
/// assert!(Cg::new(&op).preconditioner(square).solve(&b)?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CudaFsai<T: Real, F: OnDevice<T> = Sell<T>> {
    /// `Gᵀ` after `G`.
    product: Composed<OnCuda<T, F>, OnCuda<T, F>>,
    solver: krysp_kernels::cuda::fsai::Fsai<T>,
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
    /// the lower are read.
    pub fn on(gpu: &Cuda, csr: &Csr<T>) -> Result<CudaFsai<T>> {
        CudaFsai::new(gpu, csr, Sparsity::Power(1))
    }
}

impl<T: Real, F: OnDevice<T>> CudaFsai<T, F> {
    /// On the lower triangle of a pattern, and the diagonal: a power of the matrix's own, or that of the factor of an
    /// adaptive one, `Sparsity::Of(fsai.lower())`.
    pub fn new(gpu: &Cuda, csr: &Csr<T>, sparsity: Sparsity<'_, T>) -> Result<Self> {
        check_square(fsai::NAME, csr)?;
        let (device, space) = (gpu.device(), csr.source().domain());
        let origin = csr.source().pattern.clone();
        let a = Ordered::zeros_of(device, origin.on_device())?;
        let (lower, is_own) = match fsai::own_triangle(csr, sparsity) {
            Some(lower) => (Arc::new(lower), true),
            None => (Arc::new(fsai::lower_triangle(csr, sparsity)?), false),
        };
        let factor = match is_own {
            true => triangle(&a, &lower.offsets, Triangle::Lower)?,
            false => Ordered::zeros_of(device, lower.on_device())?,
        };
        let on = |pattern: &Arc<Pattern>| Source::new(pattern.clone(), space.clone(), space.clone());
        let (a, g) = ((a, origin.on_device()), (factor, lower.on_device()));
        let mut solver = krysp_kernels::cuda::fsai::Fsai::new(a, g)?;
        solver.solve(csr.entries())?;
        // found while rows are solved
        let guess = if is_own { upper_triangle(solver.matrix(), &origin, &lower)? } else { None };
        let (upper, mut values, transposition) = transposed(&lower, solver.factor(), guess)?;
        if let Some(row) = solver.failed()? {
            return Err(fsai::refusal(csr, &lower, row));
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
    pub fn refresh(&mut self, csr: &Csr<T>) -> Result<()> {
        check_space(csr, self.domain().host())?;
        check_same_pattern(&self.origin, csr)?;
        self.solver.solve(csr.entries())?;
        if let Some(row) = self.solver.failed()? {
            return Err(fsai::refusal(csr, &self.lower, row));
        }
        self.transposition.refresh(self.solver.factor(), &mut self.upper)?;
        let (outer, inner) = self.product.factors_mut();
        inner.refresh_from(self.solver.factor())?;
        outer.refresh_from(&self.upper)
    }
}

/// The upper triangle of a matrix with this lower one, and a place for its values: the transpose of the lower one where the
/// pattern is symmetric, found without moving an entry. None where numbers of entries tell that it is not.
fn upper_triangle<T: Real>(
    a: &Ordered<T>,
    whole: &Arc<Pattern>,
    lower: &Pattern,
) -> Result<Option<(Arc<Pattern>, Ordered<T>)>> {
    if 2 * lower.entries() != whole.entries() + whole.rows() {
        return Ok(None);
    }
    // both have the diagonal
    let length = |row: usize| whole.offsets.range(row).len() + 1 - lower.offsets.range(row).len();
    let offsets = Offsets::of_rows(whole.rows(), &length);
    let values = triangle(a, &offsets, Triangle::Upper)?;
    Ok(Some((Arc::new(whole.part(Arc::new(offsets), |whole, length| whole.end - length)), values)))
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

    fn reproducible(&self) -> bool {
        self.product.reproducible()
    }
}
