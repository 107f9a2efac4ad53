//! Two levels: what a preconditioner does near every unknown, and a small system that sees the whole domain.
//!
//! ```text
//! z = M⁻¹ r + Z (Zᵀ A Z)⁻¹ Zᵀ r
//! ```
//!
//! What one application of Jacobi, FSAI or SPAI changes reaches a few neighbours: the parts of the error that stretch over
//! the whole domain take as many iterations as the mesh has cells across. [`CoarseSpace`] removes those, at the price of
//! one small dense product. It is symmetric and positive definite where `A` and `M` are, and a fixed linear operator: for
//! conjugate gradients as for anything else. The two parts are added, not chained (departure from Tang, Nabben, Vuik and Erlangga
//! 2009, whose other variants need fewer iterations): chained they would cost another product with `A` each time.
//!
//! An application costs, beside `M`'s, two passes over `r` and `z`, two indices and `modes` weights a row, and `n²` numbers
//! of the dense inverse for `n` coarse unknowns; setup one pass over `A` and `n³` multiply-adds. Neither needs an order:
//! everything runs on all threads, and on GPUs in two launches more than `M`.

#[cfg(feature = "cuda")]
mod on_cuda;

#[cfg(feature = "cuda")]
pub use on_cuda::OnGpu;

use super::{CoarseSpace, Origin, Refresh};
use crate::{Csr, HostSpace, HostVector, Jacobi, Real, Result};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::coarse::dense_product;
use krysp_kernels::cpu::preconditioners::inverse::row_stride;
use krysp_solvers::{Error, LinearOperator, check_spaces};

/// A preconditioner and a coarse correction, added: for symmetric positive definite `A`, and `M` like it.
///
/// ```
/// use krysp::{Cg, TwoLevel, gallery};
///
/// let (a, b) = (gallery::poisson::<f64>(&[20; 3])?, vec![1.0; 8000]);
/// let solution = Cg::new(&a).preconditioner(TwoLevel::new(&a)?).rtol(1e-8).solve(&b)?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TwoLevel<T: Real, M = Jacobi<T>> {
    inner: M,
    coarse: CoarseSpace<T>,
    inverse: Buffer<T>,
}

impl<T: Real> TwoLevel<T> {
    /// Over Jacobi, with a constant on each of some [512](CoarseSpace::UNKNOWNS) aggregates; fewer in small systems.
    pub fn new(csr: &Csr<T>) -> Result<TwoLevel<T>> {
        let coarse = CoarseSpace::new(csr, CoarseSpace::<T>::UNKNOWNS)?;
        TwoLevel::over(Jacobi::new(csr)?, coarse, csr)
    }
}

impl<T: Real, M: LinearOperator<Vector = HostVector<T>>> TwoLevel<T, M> {
    /// Over a preconditioner `M⁻¹` in the matrix's space.
    pub fn over(inner: M, coarse: CoarseSpace<T>, csr: &Csr<T>) -> Result<TwoLevel<T, M>> {
        if inner.domain() != coarse.domain() || inner.range() != coarse.domain() {
            return Err(Error::Space { what: "the preconditioner", than: "the coarse space" }.into());
        }
        let inverse = coarse.inverse(csr)?;
        Ok(TwoLevel { inner, coarse, inverse })
    }

    /// The preconditioner that the coarse space completes.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// The preconditioner that the coarse space completes, to refresh it. Its spaces must stay.
    pub fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }

    /// The coarse space.
    pub fn coarse(&self) -> &CoarseSpace<T> {
        &self.coarse
    }

    /// Takes new values for the coarse level alone, from a matrix of the same pattern.
    pub fn refresh_coarse(&mut self, a: &dyn Origin<T>) -> Result<()> {
        self.inverse = self.coarse.inverse(&*a.in_host_memory()?)?;
        Ok(())
    }
}

/// Both levels, over what takes new values itself. Over anything else there are [`TwoLevel::inner_mut`] and
/// [`TwoLevel::refresh_coarse`].
impl<T: Real, M: LinearOperator<Vector = HostVector<T>> + Refresh<T>> Refresh<T> for TwoLevel<T, M> {
    fn refresh(&mut self, a: &dyn Origin<T>) -> Result<()> {
        let csr = a.in_host_memory()?;
        self.inner.refresh(&*csr)?;
        self.refresh_coarse(&*csr)
    }
}

impl<T: Real, M: LinearOperator<Vector = HostVector<T>>> LinearOperator for TwoLevel<T, M> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        self.coarse.domain()
    }

    fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        self.inner.apply(r, z)?;
        let (aggregates, n) = (self.coarse.kernel(), self.coarse.unknowns());
        // some kilobytes: a room of their own would have to be waited for
        let [mut restricted, mut corrected] = [0; 2].map(|_| vec![T::zero(); row_stride(n)]);
        aggregates.restrict(r.as_slice(), &mut restricted);
        dense_product(&self.inverse, n, &restricted, &mut corrected);
        aggregates.prolong(&corrected, z.as_mut_slice());
        Ok(())
    }

    fn bytes(&self) -> usize {
        let aggregates = self.coarse.kernel();
        let weights = 2 * aggregates.weights.map_or(0, size_of_val);
        let indices = size_of_val(aggregates.rows) + size_of_val(aggregates.of_row);
        self.inner.bytes() + size_of_val(&*self.inverse) + weights + indices
    }
}
