//! Diagonal blocks in device memory.

use crate::device::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, MatrixSource};
use crate::numbers::Real;
use crate::preconditioners::jacobi::limits;
use crate::preconditioners::refresh::check_alike;
use krysp_kernels::block_diagonal::Limits;
use krysp_kernels::cuda::preconditioners::blocks::{self, BlockDiagonal};
use krysp_solvers::{LinearOperator, Space, check_spaces};
use std::sync::Arc;

/// Inverted diagonal blocks.
#[derive(Debug)]
pub(super) struct Blocks<T: Real> {
    pub(super) inverse: BlockDiagonal<T>,
    pub(super) space: CudaSpace<T>,
    limits: Limits,
    bounds: Vec<usize>,
    /// Inverts blocks on the GPU; `None` for a copy of the host's blocks until its first refresh.
    solver: Option<Solver<T>>,
}

#[derive(Debug)]
struct Solver<T: Real> {
    blocks: blocks::Blocks<T>,
    /// True if the inverses in full precision are valid, which they are not after a failed refresh.
    is_whole: bool,
    /// The pattern of `A`.
    origin: Arc<Pattern>,
}

impl<T: Real> Blocks<T> {
    /// Copies blocks that the host has inverted.
    pub(super) fn copy(gpu: &Cuda, host: &super::Blocks<T>) -> Result<Self> {
        Ok(Blocks {
            inverse: BlockDiagonal::new(gpu.device(), &host.matrix)?,
            space: CudaSpace::like(gpu, &host.space),
            limits: host.limits,
            bounds: host.bounds.clone(),
            solver: None,
        })
    }

    /// Inverts the blocks of a matrix on the GPU.
    pub(super) fn new(gpu: &Cuda, a: &dyn MatrixSource<T>, bounds: &[usize]) -> Result<Self> {
        let (solver, limits) = (Solver::new(gpu, a, bounds)?, Limits::of::<T>(0.0));
        let mut inverse = solver.blocks.zeros()?;
        solver.blocks.round(limits, &mut inverse)?;
        let space = CudaSpace::like(gpu, a.structure().domain());
        Ok(Blocks { inverse, space, limits, bounds: bounds.to_vec(), solver: Some(solver) })
    }

    pub(super) fn round(&mut self, accuracy: f64) -> Result<()> {
        let limits = limits::<T>(accuracy)?;
        let refused = |got: &str| {
            let (what, expected) =
                ("the source of rounded blocks", "inverses computed on the GPU: refresh first");
            Err(Error::Option { what, got: got.into(), expected })
        };
        match &self.solver {
            None => refused("a copy of the host's inverses"),
            Some(solver) if !solver.is_whole => refused("those of a failed refresh"),
            Some(solver) => {
                self.limits = limits;
                Ok(solver.blocks.round(limits, &mut self.inverse)?)
            }
        }
    }

    pub(super) fn to_csr(&self) -> Result<Csr<T>> {
        let (n, blocks) = (self.space.len(), self.inverse.to_host()?);
        let (mut offsets, mut columns, mut values) = (vec![0; n + 1], vec![], vec![]);
        blocks.for_each(&mut |row, column, value| {
            columns.push(column);
            values.push(value);
            offsets[row + 1] = columns.len();
        });
        Ok(Csr::from_csr(n, n, &offsets, &columns, &values)?.declared_in(self.space.host()))
    }

    /// Inverts the blocks of a matrix in the same space.
    pub(super) fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        let solver = match &mut self.solver {
            None => self.solver.insert(Solver::new(self.space.gpu(), a, &self.bounds)?),
            Some(solver) => {
                check_alike(a, self.space.host(), &solver.origin)?;
                solver.is_whole = false;
                a.copy_values_to(self.space.gpu(), solver.blocks.matrix_mut())?;
                solver.invert(&self.bounds)?;
                solver
            }
        };
        Ok(solver.blocks.round(self.limits, &mut self.inverse)?)
    }
}

impl<T: Real> LinearOperator for Blocks<T> {
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
        let sums = self.inverse.axpy_product_dot(&a.0, &q.entries, &mut r.entries, &mut z.entries);
        Ok(sums.map_err(failed)?.map(CudaScalar))
    }

    fn bytes(&self) -> usize {
        self.inverse.bytes()
    }

    fn replays(&self) -> bool {
        true
    }
}

impl<T: Real> Solver<T> {
    fn new(gpu: &Cuda, a: &dyn MatrixSource<T>, bounds: &[usize]) -> Result<Self> {
        let origin = a.structure().pattern.clone();
        let blocks = blocks::Blocks::new((a.ordered(gpu)?, origin.on_device()), bounds)?;
        let mut solver = Solver { blocks, is_whole: false, origin };
        solver.invert(bounds)?;
        Ok(solver)
    }

    fn invert(&mut self, bounds: &[usize]) -> Result<()> {
        if let Some(block) = self.blocks.invert()? {
            return Err(Error::SingularBlock { first: bounds[block], end: bounds[block + 1] });
        }
        self.is_whole = true;
        Ok(())
    }
}
