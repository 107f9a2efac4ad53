//! Two-level preconditioners: a local preconditioner and an additive coarse correction.
//!
//! ```text
//! z = M⁻¹ r + Z (Zᵀ A Z)⁻¹ Zᵀ r
//! ```
//!
//! Jacobi, FSAI and SPAI couple an unknown with few neighbours only, so the smooth part of an error takes
//! about as many iterations as the mesh has cells across. [`CoarseSpace`] removes that part at the cost of
//! a small dense product. The preconditioner is symmetric and positive definite where `A` and `M` are, and a
//! fixed linear operator, as conjugate gradients require. The two parts are added; the multiplicative
//! variants of Tang, Nabben, Vuik and Erlangga (2009) need fewer iterations, but one more product with `A` in
//! each.
//!
//! In addition to `M`, an application reads `r`, adds to `z`, and reads two indices per row, two weights per
//! row and mode unless all weights are one, and the `n²` values of the dense inverse for `n` coarse unknowns.
//! Setup takes one pass over `A` and `n³` multiply-adds. Nothing is sequential: everything runs on all
//! threads, and on GPUs in two kernel launches in addition to those of `M`.

#[cfg(feature = "cuda")]
mod on_cuda;

#[cfg(feature = "cuda")]
pub use on_cuda::OnGpu;

use super::{CoarseSpace, MatrixSource, Refresh};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::preconditioners::Jacobi;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::coarse::dense_product;
use krysp_kernels::cpu::preconditioners::inverse::row_stride;
use krysp_solvers::{Error, LinearOperator, MultiVector, check_spaces};

/// A preconditioner plus an additive coarse correction: for symmetric positive definite `A` and `M`.
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
    /// Combines Jacobi with a constant on each of about [512](CoarseSpace::UNKNOWNS) aggregates; fewer for
    /// small systems.
    pub fn new(csr: &Csr<T>) -> Result<TwoLevel<T>> {
        let coarse = CoarseSpace::new(csr, CoarseSpace::<T>::UNKNOWNS)?;
        TwoLevel::with_inner(Jacobi::new(csr)?, coarse, csr)
    }
}

impl<T: Real, M: LinearOperator<Vector = HostVector<T>>> TwoLevel<T, M> {
    /// Combines a preconditioner `M⁻¹`, which must apply to vectors of `csr.domain()`, with a coarse space.
    pub fn with_inner(inner: M, coarse: CoarseSpace<T>, csr: &Csr<T>) -> Result<TwoLevel<T, M>> {
        if inner.domain() != coarse.domain() || inner.range() != coarse.domain() {
            return Err(Error::Space { what: "the preconditioner", than: "the coarse space" }.into());
        }
        let inverse = coarse.inverse(csr)?;
        Ok(TwoLevel { inner, coarse, inverse })
    }

    /// The local preconditioner `M⁻¹`.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// The local preconditioner `M⁻¹`, for refreshing it. Its spaces must not change.
    pub fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }

    /// The coarse space.
    pub fn coarse(&self) -> &CoarseSpace<T> {
        &self.coarse
    }

    /// Updates only the coarse level, from a matrix of the same pattern.
    pub fn refresh_coarse(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        self.inverse = self.coarse.inverse(&*a.in_host_memory()?)?;
        Ok(())
    }
}

/// Updates both levels. If `M` cannot be refreshed, use [`TwoLevel::inner_mut`] and
/// [`TwoLevel::refresh_coarse`].
impl<T: Real, M: LinearOperator<Vector = HostVector<T>> + Refresh<T>> Refresh<T> for TwoLevel<T, M> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
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
        self.correct(r, z);
        Ok(())
    }

    fn apply_many(
        &self,
        r: &MultiVector<HostVector<T>>,
        z: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        MultiVector::open_pairs(r, z)?.try_for_each(|(r, z)| check_spaces(self, r, z))?;
        self.inner.apply_many(r, z)?;
        MultiVector::open_pairs(r, z)?.for_each(|(r, z)| self.correct(r, z));
        Ok(())
    }

    fn bytes(&self) -> usize {
        let aggregates = self.coarse.kernel();
        let weights = 2 * aggregates.weights.map_or(0, size_of_val);
        let indices = size_of_val(aggregates.rows) + size_of_val(aggregates.of_row);
        self.inner.bytes() + size_of_val(&*self.inverse) + weights + indices
    }
}

impl<T: Real, M> TwoLevel<T, M> {
    /// Adds the correction of the coarse level to `z`.
    fn correct(&self, r: &HostVector<T>, z: &mut HostVector<T>) {
        let (aggregates, n) = (self.coarse.kernel(), self.coarse.unknowns());
        // some kilobytes: allocating them is cheaper than locking a shared workspace
        let [mut restricted, mut corrected] = [0; 2].map(|_| vec![T::zero(); row_stride(n)]);
        aggregates.restrict(r.as_slice(), &mut restricted);
        dense_product(&self.inverse, n, &restricted, &mut corrected);
        aggregates.prolong(&corrected, z.as_mut_slice());
    }
}
