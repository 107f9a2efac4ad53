//! Block Jacobi built in device memory.
//!
//! Budget: building moves the values of `A` over the bus, and its blocks once from memory; an application reads the inverted
//! blocks and two vectors.

use super::{Cuda, CudaScalar, CudaSpace, CudaVector, OnCuda};
use crate::formats::derived::check_same_pattern;
use crate::formats::pattern::Pattern;
use crate::formats::{BLOCK_SIZES, Format, OnDevice, Source};
use crate::preconditioners::check_space;
use crate::preconditioners::jacobi::{block_pattern, even_bounds};
use crate::{Bsr, Csr, Error, Jacobi, Real, Result, Sell};
use krysp_kernels::cuda::blocks::Blocks;
use krysp_solvers::LinearOperator;
use std::sync::Arc;

/// Inverted diagonal blocks, built in device memory; made by [`Jacobi::blocks_on`] or [`Jacobi::partitioned_on`].
///
/// ```no_run
/// use krysp::formats::{OnDevice, row_blocks};
/// use krysp::testing::matrices;
/// use krysp::{Cg, Cuda, Jacobi};
///
/// let a = matrices::elasticity(8).csr::<f64>()?;
/// let gpu = Cuda::new(0)?;
/// let blocks = Jacobi::blocks_on(&gpu, &a, row_blocks(&a))?;
/// let solution = Cg::new(a.to(&gpu)?).preconditioner(blocks).solve(&vec![1.0; a.rows()])?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CudaBlockJacobi<T: Real> {
    inverse: Inverse<T>,
    solver: Blocks<T>,
    bounds: Vec<usize>,
    /// The pattern of `A`.
    origin: Arc<Pattern>,
}

#[derive(Debug)]
enum Inverse<T: Real> {
    /// Of a size that there are kernels for.
    Even(Box<OnCuda<T, Bsr<T>>>),
    Any(Box<OnCuda<T, Sell<T>>>),
}

impl<T: Real> Jacobi<T> {
    /// [`Jacobi::blocks`], built on a GPU.
    pub fn blocks_on(gpu: &Cuda, csr: &Csr<T>, size: usize) -> Result<CudaBlockJacobi<T>> {
        let even = BLOCK_SIZES.contains(&size) && csr.rows().is_multiple_of(size);
        CudaBlockJacobi::new(gpu, csr, &even_bounds(csr.rows(), size), even.then_some(size))
    }

    /// [`Jacobi::partitioned`], built on a GPU.
    pub fn partitioned_on(gpu: &Cuda, csr: &Csr<T>, bounds: &[usize]) -> Result<CudaBlockJacobi<T>> {
        CudaBlockJacobi::new(gpu, csr, bounds, None)
    }
}

impl<T: Real> CudaBlockJacobi<T> {
    fn new(gpu: &Cuda, csr: &Csr<T>, bounds: &[usize], even: Option<usize>) -> Result<Self> {
        let (pattern, space) = (Arc::new(block_pattern(csr, bounds)?), csr.source().domain());
        let origin = csr.source().pattern.clone();
        let mut solver = Blocks::new(gpu.device(), origin.on_device(), bounds, pattern.on_device())?;
        invert(&mut solver, csr, bounds)?;
        let source = Source::new(pattern, space.clone(), space.clone());
        let inverse = match even {
            Some(size) => {
                Inverse::Even(Box::new(OnCuda::from_ordered(gpu, source, solver.inverse(), Some(size))?))
            }
            None => {
                let options = <Sell<T> as OnDevice<T>>::defaults();
                Inverse::Any(Box::new(OnCuda::from_ordered(gpu, source, solver.inverse(), options)?))
            }
        };
        Ok(CudaBlockJacobi { inverse, solver, bounds: bounds.to_vec(), origin })
    }

    /// The inverted blocks as a matrix in host memory.
    pub fn to_csr(&self) -> Result<Csr<T>> {
        match &self.inverse {
            Inverse::Even(inverse) => inverse.to_csr(),
            Inverse::Any(inverse) => inverse.to_csr(),
        }
    }

    /// Takes new values from a matrix of the same pattern and space. After an error the inverse is as it was.
    pub fn refresh(&mut self, csr: &Csr<T>) -> Result<()> {
        check_space(csr, self.domain().host())?;
        check_same_pattern(&self.origin, csr)?;
        invert(&mut self.solver, csr, &self.bounds)?;
        match &mut self.inverse {
            Inverse::Even(inverse) => inverse.refresh_from(self.solver.inverse()),
            Inverse::Any(inverse) => inverse.refresh_from(self.solver.inverse()),
        }
    }
}

fn invert<T: Real>(solver: &mut Blocks<T>, csr: &Csr<T>, bounds: &[usize]) -> Result<()> {
    match solver.invert(csr.entries())? {
        None => Ok(()),
        Some(block) => Err(Error::SingularBlock { first: bounds[block], end: bounds[block + 1] }),
    }
}

impl<T: Real> LinearOperator for CudaBlockJacobi<T> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        match &self.inverse {
            Inverse::Even(inverse) => inverse.domain(),
            Inverse::Any(inverse) => inverse.domain(),
        }
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        match &self.inverse {
            Inverse::Even(inverse) => inverse.apply(x, y),
            Inverse::Any(inverse) => inverse.apply(x, y),
        }
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        match &self.inverse {
            Inverse::Even(inverse) => inverse.apply_dot(x, y),
            Inverse::Any(inverse) => inverse.apply_dot(x, y),
        }
    }

    fn bytes(&self) -> usize {
        match &self.inverse {
            Inverse::Even(inverse) => inverse.bytes(),
            Inverse::Any(inverse) => inverse.bytes(),
        }
    }

    fn replays(&self) -> bool {
        true
    }
}
