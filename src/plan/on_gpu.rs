//! Preconditioners of the host for solves on a GPU.

use super::running::{AnyPreconditioner, Prepared};
use crate::device::{CudaSpace, CudaVector, failed};
use crate::error::Result;
use crate::formats::MatrixSource;
use crate::host::HostVector;
use crate::numbers::Real;
use crate::preconditioners::Refresh;
use krysp_solvers::{Error, LinearOperator, Space, check_spaces, with_workspace};
use std::sync::Mutex;

/// A preconditioner that the host applies to vectors of a GPU: a complete factorization, or an incomplete one, for which there
/// are no kernels.
///
/// Each application copies one vector to the host and one back, about `2 n size_of::<T>()` bytes over the bus, during which the GPU is
/// idle. So it suits only factorizations that need few iterations.
pub(super) struct HostPreconditioner<T: Real> {
    inner: AnyPreconditioner<T, HostVector<T>>,
    space: CudaSpace<T>,
    /// The residual and the preconditioned residual, in host memory.
    workspace: Mutex<[HostVector<T>; 2]>,
}

impl<T: Real> HostPreconditioner<T> {
    /// Returns an error if the preconditioner was made from a matrix whose size or order of unknowns is not that of the space.
    pub(super) fn new(inner: AnyPreconditioner<T, HostVector<T>>, space: &CudaSpace<T>) -> Result<Self> {
        if inner.domain() != space.host() {
            return Err(Error::Space { what: "the preconditioner", than: "the matrix" }.into());
        }
        let workspace = Mutex::new([space.host().zeros()?, space.host().zeros()?]);
        Ok(HostPreconditioner { inner, space: space.clone(), workspace })
    }

    pub(super) fn inner(&self) -> &dyn Prepared<T, HostVector<T>> {
        &*self.inner
    }
}

impl<T: Real> LinearOperator for HostPreconditioner<T> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.space
    }

    /// Copies entries in the order of the space, in which both memories store them.
    fn apply(&self, r: &CudaVector<T>, z: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        let zeros = || self.space.host().zeros();
        with_workspace(
            &self.workspace,
            || Ok([zeros()?, zeros()?]),
            |[r_host, z_host]| {
                r.entries.read(r_host.as_mut_slice()).map_err(failed)?;
                self.inner.apply(r_host, z_host)?;
                z.entries.write(z_host.as_slice()).map_err(failed)
            },
        )
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

/// Refreshes the preconditioner on the host. Values that are in device memory are read back.
impl<T: Real> Refresh<T> for HostPreconditioner<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        self.inner.refresh(a)
    }
}
