//! Two levels in device memory.

use crate::cuda::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::preconditioners::{Refresh, jacobi};
use crate::{CoarseSpace, Csr, Jacobi, Real, Result, TwoLevel};
use krysp_kernels::cuda::preconditioners::coarse::Coarse;
use krysp_solvers::{Error, Form, LinearOperator, check_spaces};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A preconditioner and a coarse correction, added, in device memory; made by [`TwoLevel::on`] or [`CudaTwoLevel::over`].
///
/// Over a diagonal, an iteration of conjugate gradients takes one launch more than with the diagonal alone, and another
/// for the dense product; small systems that stay on the chip take a launch for many iterations, as with the diagonal alone.
#[derive(Debug)]
pub struct CudaTwoLevel<T: Real, M = jacobi::OnGpu<T>> {
    inner: M,
    coarse: CoarseSpace<T>,
    arrays: Coarse<T>,
    space: CudaSpace<T>,
    /// Held while an application is queued: its kernels share the coarse numbers.
    queueing: Mutex<()>,
}

impl<T: Real> TwoLevel<T> {
    /// [`TwoLevel::new`] on a GPU: aggregates and the coarse matrix come from the host, its inverse from the GPU.
    pub fn on(gpu: &Cuda, csr: &Csr<T>) -> Result<CudaTwoLevel<T>> {
        let coarse = CoarseSpace::new(csr, CoarseSpace::<T>::UNKNOWNS)?;
        CudaTwoLevel::over(Jacobi::on(gpu, csr)?, coarse, csr)
    }
}

impl<T: Real> CudaTwoLevel<T> {
    /// Takes new values from a matrix of the same pattern, for both levels.
    pub fn refresh(&mut self, csr: &Csr<T>) -> Result<()> {
        self.inner.refresh(csr)?;
        self.refresh_coarse(csr)
    }
}

impl<T: Real, M: LinearOperator<Vector = CudaVector<T>>> CudaTwoLevel<T, M> {
    /// Over a preconditioner on a GPU, of the space of the matrix there.
    pub fn over(inner: M, coarse: CoarseSpace<T>, csr: &Csr<T>) -> Result<CudaTwoLevel<T, M>> {
        let space = CudaSpace::like(inner.domain().gpu(), coarse.domain());
        if inner.domain() != &space || inner.range() != &space {
            return Err(Error::Space { what: "the preconditioner", than: "the coarse space" }.into());
        }
        let arrays = Coarse::new(space.gpu().device(), &coarse.kernel())?;
        let mut both = CudaTwoLevel { inner, coarse, arrays, space, queueing: Mutex::new(()) };
        both.refresh_coarse(csr)?;
        Ok(both)
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

    /// What the coarse space completes, where it is a diagonal.
    fn diagonal(&self) -> Option<&CudaVector<T>> {
        match self.inner.form() {
            Form::Diagonal(diagonal) => Some(diagonal),
            _ => None,
        }
    }

    fn queueing(&self) -> MutexGuard<'_, ()> {
        self.queueing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes new values for the coarse level alone, from a matrix of the same pattern. After an error it is as it was.
    pub fn refresh_coarse(&mut self, csr: &Csr<T>) -> Result<()> {
        match self.arrays.invert(&self.coarse.galerkin(csr)?)? {
            None => Ok(()),
            Some((at, pivot)) => Err(self.coarse.refused(at, pivot)),
        }
    }
}

impl<T: Real, M: LinearOperator<Vector = CudaVector<T>>> LinearOperator for CudaTwoLevel<T, M> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.space
    }

    fn apply(&self, r: &CudaVector<T>, z: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        let _queueing = self.queueing();
        let d = self.diagonal().map(|d| &d.entries);
        if d.is_none() {
            self.inner.apply(r, z)?;
        }
        self.arrays.restrict(&r.entries).map_err(failed)?;
        self.arrays.prolong(d, &r.entries, &mut z.entries).map_err(failed)
    }

    fn apply_dot(&self, r: &CudaVector<T>, z: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        check_spaces(self, r, z)?;
        let _queueing = self.queueing();
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
        let _queueing = self.queueing();
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
