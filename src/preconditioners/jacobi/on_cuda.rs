//! Jacobi in device memory.
//!
//! Cost: an application reads the diagonal, or the blocks as they are stored, and two vectors. A refresh from
//! an operator on the GPU copies its values into CSR order once, and then the diagonal or the blocks from
//! there; a refresh from host memory moves the diagonal over the bus, or for blocks all values. Memory: for
//! blocks that were inverted on the GPU, the matrix and the inverses in full precision are kept as well.

use super::blocks_on_cuda::Blocks;
use super::{Inverse as OnHost, check_bounds, even_bounds};
use crate::device::{Cuda, CudaSpace, CudaVector, ToCuda};
use crate::error::{Error, Result};
use crate::formats::matrix_source::{DiagonalPlaces, check_square};
use crate::formats::{Csr, MatrixSource};
use crate::numbers::Real;
use crate::preconditioners::refresh::{Refresh, check_space};
use crate::preconditioners::{Jacobi, StoredRows};
use krysp_kernels::cuda::preconditioners::diagonal::invert;
use krysp_solvers::{Diagonal, LinearOperator, Space, Wrapper};

/// The inverse of a diagonal, or of diagonal blocks, on a GPU; from [`Jacobi::to`](ToCuda::to),
/// [`Jacobi::on`], [`Jacobi::blocks_on`] or [`Jacobi::partitioned_on`].
///
/// ```no_run
/// use krysp::formats::row_blocks;
/// use krysp::gallery;
/// use krysp::prelude::*;
///
/// let (csr, _) = gallery::elasticity::<f64>([8, 7, 7], 0.3)?;
/// let gpu = Cuda::new(0)?;
/// let (a, b) = (csr.to(&gpu)?, vec![1.0; csr.rows()]);
/// // from the operator on the GPU: `&csr` would cross the bus
/// let diagonal = Jacobi::on(&gpu, &a)?;
/// let blocks = Jacobi::blocks_on(&gpu, &a, row_blocks(&csr))?;
/// assert!(Cg::new(&a).preconditioner(diagonal).solve(&b)?.report.converged());
/// assert!(Cg::new(&a).preconditioner(blocks).solve(&b)?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OnGpu<T: Real> {
    inverse: Inverse<T>,
}

#[derive(Debug)]
enum Inverse<T: Real> {
    Diagonal {
        inverse: Box<Diagonal<CudaVector<T>>>,
        /// Positions of the diagonal entries in the values of an operator on the GPU; found when the inverse
        /// is first computed from such an operator.
        places: Option<DiagonalPlaces>,
    },
    Blocks(Box<Blocks<T>>),
}

impl<T: Real> ToCuda for Jacobi<T> {
    type OnCuda = OnGpu<T>;

    fn to(&self, gpu: &Cuda) -> Result<OnGpu<T>> {
        Ok(match &self.inverse {
            OnHost::Diagonal(inverse) => {
                let mut copy = OnGpu::zeros(&CudaSpace::like(gpu, inverse.domain()))?;
                // both are in the order of the space
                copy.diagonal_mut().entries.write(inverse.diagonal().as_slice())?;
                OnGpu { inverse: Inverse::Diagonal { inverse: copy, places: None } }
            }
            OnHost::Blocks(blocks) => {
                OnGpu { inverse: Inverse::Blocks(Box::new(Blocks::copy(gpu, blocks)?)) }
            }
        })
    }
}

impl<T: Real> Jacobi<T> {
    /// Like [`Jacobi::new`], on a GPU. If the operator is already there, nothing crosses the bus.
    pub fn on(gpu: &Cuda, a: &impl MatrixSource<T>) -> Result<OnGpu<T>> {
        check_square("Jacobi", a)?;
        let inverse = OnGpu::zeros(&CudaSpace::like(gpu, a.structure().domain()))?;
        let mut jacobi = OnGpu { inverse: Inverse::Diagonal { inverse, places: None } };
        jacobi.refresh(a)?;
        Ok(jacobi)
    }

    /// Like [`Jacobi::blocks`], inverted on a GPU.
    pub fn blocks_on(gpu: &Cuda, a: &impl MatrixSource<T>, size: usize) -> Result<OnGpu<T>> {
        Jacobi::partitioned_on(gpu, a, &even_bounds(a.structure().pattern.rows(), size))
    }

    /// Like [`Jacobi::partitioned`], inverted on a GPU.
    pub fn partitioned_on(gpu: &Cuda, a: &impl MatrixSource<T>, bounds: &[usize]) -> Result<OnGpu<T>> {
        check_bounds(a, bounds)?;
        Ok(OnGpu { inverse: Inverse::Blocks(Box::new(Blocks::new(gpu, a, bounds)?)) })
    }
}

impl<T: Real> OnGpu<T> {
    fn zeros(space: &CudaSpace<T>) -> Result<Box<Diagonal<CudaVector<T>>>> {
        Ok(Box::new(Diagonal::new(space.zeros()?)))
    }

    /// Like [`Jacobi::rounded`], from inverses in full precision. Blocks that the host has inverted must be
    /// rounded there, or be refreshed on the GPU first.
    pub fn rounded(mut self, accuracy: f64) -> Result<Self> {
        match &mut self.inverse {
            Inverse::Diagonal { .. } => _ = super::limits::<T>(accuracy)?,
            Inverse::Blocks(blocks) => blocks.round(accuracy)?,
        }
        Ok(self)
    }

    /// Number of rows by the type in which they are stored.
    pub fn stored_rows(&self) -> StoredRows {
        match &self.inverse {
            Inverse::Diagonal { inverse, .. } => {
                StoredRows { elements: inverse.domain().len(), ..StoredRows::default() }
            }
            Inverse::Blocks(blocks) => blocks.inverse.stored_rows(),
        }
    }

    /// The inverse as a matrix in host memory.
    pub fn to_csr(&self) -> Result<Csr<T>> {
        match &self.inverse {
            Inverse::Diagonal { inverse, .. } => {
                let n = inverse.domain().len();
                let mut values = vec![T::zero(); n];
                inverse.diagonal().entries.read(&mut values)?;
                let (offsets, columns) = ((0..=n).collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
                let csr = Csr::from_csr(n, n, &offsets, &columns, &values)?;
                Ok(csr.declared_in(inverse.domain().host()))
            }
            Inverse::Blocks(blocks) => blocks.to_csr(),
        }
    }
}

/// Blocks are inverted on the GPU and rounded again. After an error the inverse is unchanged, and blocks can
/// be rounded only after another refresh.
impl<T: Real> Refresh<T> for OnGpu<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.domain().host())?;
        match &mut self.inverse {
            Inverse::Diagonal { inverse, places } => {
                let diagonal = a.diagonal_on(inverse.domain().gpu(), places)?;
                match invert(&diagonal, &mut inverse.diagonal_mut().entries)? {
                    None => Ok(()),
                    Some((row, value)) => Err(Error::diagonal(row, value.to_f64())),
                }
            }
            Inverse::Blocks(blocks) => blocks.refresh(a),
        }
    }
}

impl<T: Real> Wrapper for OnGpu<T> {
    type Inner = dyn LinearOperator<Vector = CudaVector<T>>;

    fn inner(&self) -> &Self::Inner {
        match &self.inverse {
            Inverse::Diagonal { inverse, .. } => &**inverse,
            Inverse::Blocks(blocks) => &**blocks,
        }
    }
}
