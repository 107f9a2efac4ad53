//! Block Jacobi built in device memory.
//!
//! Budget: building moves the values of `A` over the bus, and its blocks once from memory; an application reads the inverted
//! blocks as they are stored and two vectors. The inverses are kept as they were before rounding, too.

use crate::cuda::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::formats::Format;
use crate::formats::derived::check_same_pattern;
use crate::formats::pattern::Pattern;
use crate::preconditioners::StoredRows;
use crate::preconditioners::jacobi::{check_bounds, even_bounds, limits};
use crate::preconditioners::origin::check_space;
use crate::{Csr, Error, Jacobi, Real, Result};
use krysp_kernels::block_diagonal::Limits;
use krysp_kernels::cuda::preconditioners::blocks::{BlockDiagonal, Blocks};
use krysp_solvers::{LinearOperator, Space, check_spaces};
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
    inverse: BlockDiagonal<T>,
    space: CudaSpace<T>,
    solver: Blocks<T>,
    /// Whether the solver has the inverses that are applied.
    is_whole: bool,
    limits: Limits,
    bounds: Vec<usize>,
    /// The pattern of `A`.
    origin: Arc<Pattern>,
}

impl<T: Real> Jacobi<T> {
    /// [`Jacobi::blocks`], built on a GPU.
    pub fn blocks_on(gpu: &Cuda, csr: &Csr<T>, size: usize) -> Result<CudaBlockJacobi<T>> {
        Jacobi::partitioned_on(gpu, csr, &even_bounds(csr.rows(), size))
    }

    /// [`Jacobi::partitioned`], built on a GPU.
    pub fn partitioned_on(gpu: &Cuda, csr: &Csr<T>, bounds: &[usize]) -> Result<CudaBlockJacobi<T>> {
        check_bounds(csr, bounds)?;
        let origin = csr.source().pattern.clone();
        let mut solver = Blocks::new(gpu.device(), origin.on_device(), bounds)?;
        invert(&mut solver, csr, bounds)?;
        let limits = Limits::of::<T>(0.0);
        let mut inverse = solver.zeros()?;
        solver.round(limits, &mut inverse)?;
        let space = CudaSpace::like(gpu, csr.source().domain());
        Ok(CudaBlockJacobi {
            inverse,
            space,
            solver,
            is_whole: true,
            limits,
            bounds: bounds.to_vec(),
            origin,
        })
    }
}

impl<T: Real> CudaBlockJacobi<T> {
    /// As [`Jacobi::rounded`], from the whole inverses.
    pub fn rounded(mut self, accuracy: f64) -> Result<Self> {
        let limits = limits::<T>(accuracy)?;
        if !self.is_whole {
            let (what, got) = ("rounded blocks", "those of a refresh that failed".into());
            return Err(Error::Option { what, got, expected: "a refresh that inverts them" });
        }
        self.limits = limits;
        self.solver.round(self.limits, &mut self.inverse)?;
        Ok(self)
    }

    /// Rows by what stores them.
    pub fn stored_rows(&self) -> StoredRows {
        self.inverse.stored_rows()
    }

    /// The inverted blocks as a matrix in host memory.
    pub fn to_csr(&self) -> Result<Csr<T>> {
        let (n, blocks) = (self.space.len(), self.inverse.to_host()?);
        let (mut offsets, mut columns, mut values) = (vec![0; n + 1], vec![], vec![]);
        blocks.for_each(&mut |row, column, value| {
            columns.push(column);
            values.push(value);
            offsets[row + 1] = columns.len();
        });
        Ok(Csr::from_csr(n, n, &offsets, &columns, &values)?.declared_in(self.space.host()))
    }

    /// Takes new values from a matrix of the same pattern and space. After an error the inverse is as it was, and is
    /// rounded anew only after another refresh.
    pub fn refresh(&mut self, csr: &Csr<T>) -> Result<()> {
        check_space(csr, self.domain().host())?;
        check_same_pattern(&self.origin, csr)?;
        self.is_whole = false;
        invert(&mut self.solver, csr, &self.bounds)?;
        self.is_whole = true;
        Ok(self.solver.round(self.limits, &mut self.inverse)?)
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
        &self.space
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        self.inverse.product(&x.entries, &mut y.entries).map_err(failed)
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        check_spaces(self, x, y)?;
        Ok(CudaScalar(self.inverse.product_dot(&x.entries, &mut y.entries).map_err(failed)?))
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
        let (r, z) = (&mut r.entries, &mut z.entries);
        let sums = self.inverse.axpy_product_dot(&a.0, &q.entries, r, z);
        Ok(sums.map_err(failed)?.map(CudaScalar))
    }

    fn bytes(&self) -> usize {
        self.inverse.bytes()
    }

    fn replays(&self) -> bool {
        true
    }
}
