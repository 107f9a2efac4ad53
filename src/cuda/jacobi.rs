//! Jacobi in device memory.

use super::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::{Jacobi, Real, Result};
use krysp_kernels::cuda::preconditioners::blocks::BlockDiagonal;
use krysp_kernels::cuda::{self, solve::vector};
use krysp_solvers::{CgUpdate, Error, LinearOperator, Space, check_spaces, update_by_parts};

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
            Inverse::Diagonal(d) => vector::multiply(&d.entries, &x.entries, &mut y.entries),
            Inverse::Blocks(blocks) => blocks.product(&x.entries, &mut y.entries),
        }
        .map_err(failed)
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        check_spaces(self, x, y)?;
        let dot = match &self.inverse {
            Inverse::Diagonal(d) => vector::multiply_dot(&d.entries, &x.entries, &mut y.entries),
            Inverse::Blocks(blocks) => blocks.product_dot(&x.entries, &mut y.entries),
        };
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
        let (q, r, z) = (&q.entries, &mut r.entries, &mut z.entries);
        let sums = match &self.inverse {
            Inverse::Diagonal(d) => vector::axpy_multiply_dot(&a.0, q, &d.entries, r, z),
            Inverse::Blocks(blocks) => blocks.axpy_product_dot(&a.0, q, r, z),
        };
        Ok(sums.map_err(failed)?.map(CudaScalar))
    }

    fn cg_update(&self, at: CgUpdate<'_, CudaVector<T>>) -> krysp_solvers::Result<[CudaScalar<T>; 2]> {
        if let Inverse::Diagonal(d) = &self.inverse {
            check_spaces(self, at.q, at.r)?;
            check_spaces(self, at.p, at.x)?;
            let (alpha, rho, q, d) = (&at.alpha.0, &at.rho.0, &at.q.entries, &d.entries);
            let (x, r, p) = (&mut at.x.entries, &mut at.r.entries, &mut at.p.entries);
            let sums = cuda::advance(cuda::Advance { alpha, rho, q, d, x, r, p }).map_err(failed)?;
            if let Some(sums) = sums {
                return Ok(sums.map(CudaScalar));
            }
        }
        update_by_parts(self, at)
    }

    fn diagonal(&self) -> Option<&CudaVector<T>> {
        match &self.inverse {
            Inverse::Diagonal(d) => Some(d),
            Inverse::Blocks(_) => None,
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
