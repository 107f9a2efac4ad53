//! Jacobi in device memory.

use crate::cuda::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::{Jacobi, Real, Result};
use krysp_kernels::cuda::preconditioners::blocks::BlockDiagonal;
use krysp_solvers::{Error, Form, LinearOperator, Space, Vector, check_spaces};

/// The inverse of a diagonal, or of diagonal blocks, in device memory; made by [`Jacobi::to`].
#[derive(Debug)]
pub struct CudaJacobi<T: Real> {
    inverse: Inverse<T>,
    space: CudaSpace<T>,
}

#[derive(Debug)]
enum Inverse<T: Real> {
    Diagonal(CudaVector<T>),
    Blocks(Box<BlockDiagonal<T>>),
}

impl<T: Real> Jacobi<T> {
    /// A copy in the memory of a GPU.
    pub fn to(&self, gpu: &Cuda) -> Result<CudaJacobi<T>> {
        let space = CudaSpace::like(gpu, self.domain());
        let inverse = match self.block_diagonal() {
            None => Inverse::Diagonal(space.zeros()?),
            Some(blocks) => Inverse::Blocks(Box::new(BlockDiagonal::new(gpu.device(), blocks)?)),
        };
        let mut jacobi = CudaJacobi { inverse, space };
        jacobi.refresh(self)?;
        Ok(jacobi)
    }
}

impl<T: Real> CudaJacobi<T> {
    /// Takes new values from one in host memory, of the same blocks.
    pub fn refresh(&mut self, jacobi: &Jacobi<T>) -> Result<()> {
        if jacobi.domain() != self.space.host() {
            return Err(Error::Space { what: "the preconditioner", than: "its copy on the GPU" }.into());
        }
        match (&mut self.inverse, jacobi.diagonal(), jacobi.block_diagonal()) {
            // both are in the numbering of the space
            (Inverse::Diagonal(mine), Some(inverse), _) => Ok(mine.entries.write(inverse.as_slice())?),
            (Inverse::Blocks(mine), _, Some(blocks)) if mine.has_blocks_of(blocks) => Ok(mine.write(blocks)?),
            _ => Err(crate::Error::Option {
                what: "the blocks",
                got: format!("blocks of up to {} rows", jacobi.block_size()),
                expected: "those of the copy on the GPU",
            }),
        }
    }
}

impl<T: Real> LinearOperator for CudaJacobi<T> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.space
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        match &self.inverse {
            Inverse::Diagonal(d) => {
                y.multiply(d, x);
                Ok(())
            }
            Inverse::Blocks(blocks) => blocks.product(&x.entries, &mut y.entries).map_err(failed),
        }
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        check_spaces(self, x, y)?;
        match &self.inverse {
            Inverse::Diagonal(d) => Ok(y.multiply_dot(d, x)),
            Inverse::Blocks(blocks) => {
                Ok(CudaScalar(blocks.product_dot(&x.entries, &mut y.entries).map_err(failed)?))
            }
        }
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
        match &self.inverse {
            Inverse::Diagonal(d) => Ok(r.axpy_multiply_dot(a, q, d, z)),
            Inverse::Blocks(blocks) => {
                let sums = blocks.axpy_product_dot(&a.0, &q.entries, &mut r.entries, &mut z.entries);
                Ok(sums.map_err(failed)?.map(CudaScalar))
            }
        }
    }

    fn form(&self) -> Form<'_, CudaVector<T>> {
        match &self.inverse {
            Inverse::Diagonal(d) => Form::Diagonal(d),
            Inverse::Blocks(_) => Form::General,
        }
    }

    fn bytes(&self) -> usize {
        match &self.inverse {
            Inverse::Diagonal(d) => d.entries.bytes(),
            Inverse::Blocks(blocks) => blocks.bytes(),
        }
    }

    fn replays(&self) -> bool {
        true
    }
}
