//! Jacobi in device memory.

use super::{Cuda, CudaScalar, CudaSpace, CudaVector, OnCuda, failed};
use crate::formats::OnDevice;
use crate::{Bsr, Csr, Jacobi, Real, Result};
use krysp_kernels::cuda::{self, vector};
use krysp_solvers::{CgUpdate, Error, LinearOperator, Space, Vector, check_spaces};

/// The inverse of a diagonal, or of diagonal blocks, in device memory; made by [`Jacobi::to`].
#[derive(Debug)]
pub struct CudaJacobi<T: Real> {
    inverse: Inverse<T>,
    space: CudaSpace<T>,
}

#[derive(Debug)]
enum Inverse<T: Real> {
    Diagonal(CudaVector<T>),
    Blocks { size: usize, inverse: Box<OnCuda<T, Bsr<T>>> },
    Partition { size: usize, inverse: Box<OnCuda<T, Csr<T>>> },
}

impl<T: Real> Jacobi<T> {
    /// A copy in the memory of a GPU.
    pub fn to(&self, gpu: &Cuda) -> Result<CudaJacobi<T>> {
        let space = CudaSpace::like(gpu, self.domain());
        let inverse = match self.blocks_as_csr()? {
            None => Inverse::Diagonal(space.zeros()?),
            Some(blocks) => {
                let size = self.block_size();
                if self.is_partition() {
                    Inverse::Partition { size, inverse: Box::new(Csr::on(gpu, &blocks)?) }
                } else {
                    Inverse::Blocks { size, inverse: Box::new(Bsr::on_with(gpu, &blocks, Some(size))?) }
                }
            }
        };
        let mut jacobi = CudaJacobi { inverse, space };
        jacobi.refresh(self)?;
        Ok(jacobi)
    }
}

impl<T: Real> CudaJacobi<T> {
    /// Takes new values from one in host memory, of the same block size.
    pub fn refresh(&mut self, jacobi: &Jacobi<T>) -> Result<()> {
        if jacobi.domain() != self.space.host() {
            return Err(Error::Space { what: "the preconditioner", than: "its copy on the GPU" }.into());
        }
        match (&mut self.inverse, jacobi.diagonal(), jacobi.blocks_as_csr()?) {
            // both are in the numbering of the space
            (Inverse::Diagonal(mine), Some(inverse), _) => Ok(mine.entries.write(inverse.as_slice())?),
            (Inverse::Blocks { size, inverse }, _, Some(blocks)) if *size == jacobi.block_size() => {
                inverse.refresh(blocks.entries())
            }
            (Inverse::Partition { size, inverse }, _, Some(blocks)) if *size == jacobi.block_size() => {
                inverse.refresh(blocks.entries())
            }
            _ => Err(crate::Error::Option {
                what: "the block size",
                got: jacobi.block_size().to_string(),
                expected: "that of the copy on the GPU",
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
        match &self.inverse {
            Inverse::Diagonal(d) => {
                check_spaces(self, x, y)?;
                vector::multiply(&d.entries, &x.entries, &mut y.entries).map_err(failed)
            }
            Inverse::Blocks { inverse: blocks, .. } => blocks.apply(x, y),
            Inverse::Partition { inverse: blocks, .. } => blocks.apply(x, y),
        }
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        match &self.inverse {
            Inverse::Diagonal(d) => {
                check_spaces(self, x, y)?;
                let dot = vector::multiply_dot(&d.entries, &x.entries, &mut y.entries);
                Ok(CudaScalar(dot.map_err(failed)?))
            }
            Inverse::Blocks { inverse: blocks, .. } => blocks.apply_dot(x, y),
            Inverse::Partition { inverse: blocks, .. } => blocks.apply_dot(x, y),
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
            Inverse::Diagonal(d) => {
                let (d, q) = (&d.entries, &q.entries);
                let sums = vector::axpy_multiply_dot(&a.0, q, d, &mut r.entries, &mut z.entries);
                Ok(sums.map_err(failed)?.map(CudaScalar))
            }
            Inverse::Blocks { inverse: blocks, .. } => blocks.axpy_apply_dot(a, q, r, z),
            Inverse::Partition { inverse: blocks, .. } => blocks.axpy_apply_dot(a, q, r, z),
        }
    }

    fn cg_update(&self, at: CgUpdate<'_, CudaVector<T>>) -> krysp_solvers::Result<[CudaScalar<T>; 2]> {
        let CgUpdate { alpha, rho, q, x, r, p, z } = at;
        if let Inverse::Diagonal(d) = &self.inverse {
            for (y, x) in [(&mut *r, q), (&mut *x, &*p)] {
                check_spaces(self, x, y)?;
            }
            let (alpha, rho, q, d) = (&alpha.0, &rho.0, &q.entries, &d.entries);
            let (x, r, p) = (&mut x.entries, &mut r.entries, &mut p.entries);
            let sums = cuda::advance(cuda::Advance { alpha, rho, q, d, x, r, p }).map_err(failed)?;
            if let Some(sums) = sums {
                return Ok(sums.map(CudaScalar));
            }
        }
        let [rr, rho_next] = self.axpy_apply_dot(&-alpha.clone(), q, r, z)?;
        x.axpy_xpby(alpha, p, z, &(rho_next.clone() / rho.clone()));
        Ok([rr, rho_next])
    }

    fn diagonal(&self) -> Option<&CudaVector<T>> {
        match &self.inverse {
            Inverse::Diagonal(d) => Some(d),
            Inverse::Blocks { .. } | Inverse::Partition { .. } => None,
        }
    }

    fn bytes(&self) -> usize {
        match &self.inverse {
            Inverse::Diagonal(d) => d.entries.bytes(),
            Inverse::Blocks { inverse: blocks, .. } => blocks.bytes(),
            Inverse::Partition { inverse: blocks, .. } => blocks.bytes(),
        }
    }

    fn replays(&self) -> bool {
        true
    }
}
