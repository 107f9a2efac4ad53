//! Jacobi in device memory.

use super::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::{Jacobi, Real, Result};
use krysp_kernels::cuda::vector;
use krysp_solvers::{Error, LinearOperator, Space, check_spaces};

/// The inverse of a diagonal in device memory, made by [`Jacobi::to`].
#[derive(Debug)]
pub struct CudaJacobi<T: Real> {
    inverse: CudaVector<T>,
    space: CudaSpace<T>,
}

impl<T: Real> Jacobi<T> {
    /// A copy in the memory of a GPU. Blocks are not there yet.
    pub fn to(&self, gpu: &Cuda) -> Result<CudaJacobi<T>> {
        let space = CudaSpace::like(gpu, self.domain());
        let mut jacobi = CudaJacobi { inverse: space.zeros()?, space };
        jacobi.refresh(self)?;
        Ok(jacobi)
    }
}

impl<T: Real> CudaJacobi<T> {
    /// Takes new values from one in host memory.
    pub fn refresh(&mut self, jacobi: &Jacobi<T>) -> Result<()> {
        let Some(inverse) = jacobi.diagonal() else {
            return Err(crate::Error::Option {
                what: "the block size of a preconditioner on a GPU",
                got: jacobi.block_size().to_string(),
                expected: "1: blocks run in host memory only so far",
            });
        };
        if jacobi.domain() != self.space.host() {
            return Err(Error::Space { what: "the preconditioner", than: "its copy on the GPU" }.into());
        }
        // both are in the numbering of the space
        Ok(self.inverse.entries.write(inverse.as_slice())?)
    }
}

impl<T: Real> LinearOperator for CudaJacobi<T> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.space
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        vector::multiply(&self.inverse.entries, &x.entries, &mut y.entries).map_err(failed)
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        check_spaces(self, x, y)?;
        let dot = vector::multiply_dot(&self.inverse.entries, &x.entries, &mut y.entries);
        Ok(CudaScalar(dot.map_err(failed)?))
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
        let d = &self.inverse.entries;
        let sums = vector::axpy_multiply_dot(&a.0, &q.entries, d, &mut r.entries, &mut z.entries);
        Ok(sums.map_err(failed)?.map(CudaScalar))
    }

    fn diagonal(&self) -> Option<&CudaVector<T>> {
        Some(&self.inverse)
    }

    fn bytes(&self) -> usize {
        self.inverse.entries.bytes()
    }

    fn replays(&self) -> bool {
        true
    }
}
