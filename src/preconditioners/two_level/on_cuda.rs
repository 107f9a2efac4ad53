//! Two-level preconditioners in device memory.

use crate::device::{Cuda, CudaScalar, CudaSpace, CudaVector, ToCuda, failed};
use crate::error::Result;
use crate::formats::MatrixSource;
use crate::numbers::Real;
use crate::preconditioners::refresh::Refresh;
use crate::preconditioners::{CoarseSpace, Jacobi, TwoLevel, jacobi};
use krysp_kernels::cuda::lock;
use krysp_kernels::cuda::preconditioners::coarse::Coarse;
use krysp_solvers::{Error, Form, LinearOperator, check_spaces};
use std::sync::Mutex;

/// A two-level preconditioner on a GPU, from [`TwoLevel::to`](ToCuda::to), [`TwoLevel::on`] or
/// [`TwoLevel::with_inner_on`].
///
/// With Jacobi, an iteration of conjugate gradients takes one kernel launch more than with Jacobi alone, and
/// another for the dense product. Small systems whose vectors stay on the chip take one launch for many
/// iterations, as with Jacobi alone.
///
/// ```no_run
/// use krysp::prelude::*;
/// use krysp::{CoarseSpace, Fsai, gallery};
///
/// let csr = gallery::poisson::<f64>(&[20; 3])?;
/// let (gpu, b) = (Cuda::new(0)?, vec![1.0; csr.rows()]);
/// let a = csr.to(&gpu)?;
/// let solution = Cg::new(&a).preconditioner(TwoLevel::on(&gpu, &csr)?).solve(&b)?;
/// assert!(solution.report.converged());
/// // combined with a preconditioner on the GPU
/// let fsai = Fsai::on(&gpu, &a)?;
/// let mut both = TwoLevel::with_inner_on(fsai, CoarseSpace::new(&csr, 256)?, &csr)?;
/// both.refresh(&a)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OnGpu<T: Real, M = jacobi::OnGpu<T>> {
    inner: M,
    coarse: CoarseSpace<T>,
    arrays: Coarse<T>,
    space: CudaSpace<T>,
    /// Held while an application is enqueued, because its kernels share the coarse vectors.
    queueing: Mutex<()>,
}

impl<T: Real> TwoLevel<T> {
    /// Like [`TwoLevel::new`], on a GPU. The host computes aggregates and the coarse matrix; the GPU inverts
    /// it. The values of an operator that is already on the GPU are copied back for the coarse matrix.
    pub fn on(gpu: &Cuda, a: &impl MatrixSource<T>) -> Result<OnGpu<T>> {
        let csr = &*a.in_host_memory()?;
        let coarse = CoarseSpace::new(csr, CoarseSpace::<T>::UNKNOWNS)?;
        TwoLevel::with_inner_on(Jacobi::on(gpu, a)?, coarse, csr)
    }

    /// Like [`TwoLevel::with_inner`], with a preconditioner on a GPU, which must apply to vectors in the
    /// order of `a`.
    pub fn with_inner_on<M: LinearOperator<Vector = CudaVector<T>>>(
        inner: M,
        coarse: CoarseSpace<T>,
        a: &impl MatrixSource<T>,
    ) -> Result<OnGpu<T, M>> {
        let mut both = OnGpu::without_inverse(inner, coarse)?;
        both.refresh_coarse(a)?;
        Ok(both)
    }
}

impl<T: Real, M: ToCuda<OnCuda: LinearOperator<Vector = CudaVector<T>>>> ToCuda for TwoLevel<T, M> {
    type OnCuda = OnGpu<T, M::OnCuda>;

    fn to(&self, gpu: &Cuda) -> Result<Self::OnCuda> {
        let mut copy = OnGpu::without_inverse(self.inner.to(gpu)?, self.coarse.clone())?;
        copy.arrays.write(&self.inverse)?;
        Ok(copy)
    }
}

impl<T: Real, M: LinearOperator<Vector = CudaVector<T>>> OnGpu<T, M> {
    fn without_inverse(inner: M, coarse: CoarseSpace<T>) -> Result<Self> {
        let space = CudaSpace::like(inner.domain().gpu(), coarse.domain());
        if inner.domain() != &space || inner.range() != &space {
            return Err(Error::Space { what: "the preconditioner", than: "the coarse space" }.into());
        }
        let arrays = Coarse::new(space.gpu().device(), &coarse.kernel())?;
        Ok(OnGpu { inner, coarse, arrays, space, queueing: Mutex::new(()) })
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

    /// The diagonal of `M⁻¹`, if it is diagonal.
    fn diagonal(&self) -> Option<&CudaVector<T>> {
        match self.inner.form() {
            Form::Diagonal(diagonal) => Some(diagonal),
            _ => None,
        }
    }

    /// Updates only the coarse level, from a matrix of the same pattern. After an error it is unchanged.
    pub fn refresh_coarse(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        match self.arrays.invert(&self.coarse.galerkin(&*a.in_host_memory()?)?)? {
            None => Ok(()),
            Some((at, pivot)) => Err(self.coarse.refused(at, pivot)),
        }
    }
}

/// Updates both levels. If `M` cannot be refreshed, use [`OnGpu::inner_mut`] and [`OnGpu::refresh_coarse`].
/// The values of an operator on the GPU are copied back for the coarse matrix.
impl<T: Real, M: LinearOperator<Vector = CudaVector<T>> + Refresh<T>> Refresh<T> for OnGpu<T, M> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        self.inner.refresh(a)?;
        self.refresh_coarse(a)
    }
}

impl<T: Real, M: LinearOperator<Vector = CudaVector<T>>> LinearOperator for OnGpu<T, M> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.space
    }

    fn apply(&self, r: &CudaVector<T>, z: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        let _queueing = lock(&self.queueing);
        let d = self.diagonal().map(|d| &d.entries);
        if d.is_none() {
            self.inner.apply(r, z)?;
        }
        self.arrays.restrict(&r.entries).map_err(failed)?;
        self.arrays.prolong(d, &r.entries, &mut z.entries).map_err(failed)
    }

    fn apply_dot(&self, r: &CudaVector<T>, z: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        check_spaces(self, r, z)?;
        let _queueing = lock(&self.queueing);
        let d = self.diagonal().map(|d| &d.entries);
        if d.is_none() {
            self.inner.apply(r, z)?;
        }
        self.arrays.restrict(&r.entries).map_err(failed)?;
        Ok(CudaScalar(self.arrays.prolong_dot(d, &r.entries, &mut z.entries).map_err(failed)?))
    }

    fn axpy_apply_dot(
        &self,
        a: &CudaScalar<T>,
        q: &CudaVector<T>,
        r: &mut CudaVector<T>,
        z: &mut CudaVector<T>,
    ) -> krysp_solvers::Result<[CudaScalar<T>; 2]> {
        check_spaces(self, q, r)?;
        check_spaces(self, r, z)?;
        let _queueing = lock(&self.queueing);
        let rr = self.arrays.update_restrict(&a.0, &q.entries, &mut r.entries).map_err(failed)?;
        let d = self.diagonal().map(|d| &d.entries);
        if d.is_none() {
            self.inner.apply(r, z)?;
        }
        let rz = self.arrays.prolong_dot(d, &r.entries, &mut z.entries).map_err(failed)?;
        Ok([rr, rz].map(CudaScalar))
    }

    fn form(&self) -> Form<'_, CudaVector<T>> {
        match self.diagonal() {
            Some(diagonal) => Form::DiagonalAnd(diagonal, &self.arrays),
            None => Form::General,
        }
    }

    fn bytes(&self) -> usize {
        self.inner.bytes() + self.arrays.bytes()
    }

    fn replays(&self) -> bool {
        self.inner.replays()
    }
}
