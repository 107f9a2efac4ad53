//! Algebraic multigrid in device memory. Its setup is in `setup_on_cuda.rs`.

use super::aggregates::Aggregates;
use super::cycle::{Level, Transfer};
use super::report::{LevelReport, write_table};
use super::stored::Stored;
use super::unsmoothed::OVER;
use super::{Amg, AmgOptions};
use crate::device::{Cuda, CudaScalar, CudaSpace, CudaVector, ToCuda, failed, open_columns};
use crate::error::Result;
use crate::formats::MatrixSource;
use crate::formats::pattern::Pattern;
use crate::numbers::Real;
use krysp_kernels::cuda::multigrid::coarsening::{Coarsening, transposed};
use krysp_kernels::cuda::multigrid::cycle::{self, Cycle, Dense, Hierarchy, Matrix};
use krysp_kernels::cuda::multigrid::graph::{Blocks, Graph};
use krysp_kernels::cuda::multigrid::strength;
use krysp_kernels::cuda::{KeepsMemory, Scalar};
use krysp_solvers::{LinearOperator, MultiVector, Scalars, Space, Vector, check_spaces};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Algebraic multigrid on a GPU, from [`Amg::to`](ToCuda::to), [`Amg::on`], [`Amg::with_near_null_space_on`] or
/// [`Amg::with_on`].
///
/// A cycle with two sweeps, on one vector or on up to eight together, takes six kernel launches per level,
/// and four more. If the finest level uses unsmoothed aggregation ([`AmgOptions::smooth_finest`]), a cycle visits
/// all other levels three times.
/// While the preconditioner exists, memory freed on its GPU stays in the pool, because setup and refresh need
/// workspace of about three times its size.
///
/// ```no_run
/// use krysp::{Amg, gallery};
/// use krysp::prelude::*;
///
/// let csr = gallery::poisson::<f64>(&[100; 3])?;
/// let (gpu, b) = (Cuda::new(0)?, vec![1.0; csr.rows()]);
/// let a = csr.to(&gpu)?;
/// let solution = Cg::new(&a).preconditioner(Amg::on(&gpu, &a)?).solve(&b)?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OnGpu<T: Real> {
    pub(super) space: CudaSpace<T>,
    /// The pattern of the matrix.
    pub(super) whole: Arc<Pattern>,
    /// Rows per node.
    pub(super) size: usize,
    /// The pattern of the nodes.
    pub(super) nodes: Graph,
    pub(super) options: AmgOptions,
    pub(super) cycle: Cycle<T>,
    pub(super) reports: Vec<LevelReport>,
    /// Held while an application is enqueued, because its kernels share the vectors of all levels.
    pub(super) queueing: Mutex<()>,
    /// Keeps freed memory in the pool, for the workspace of a refresh.
    pub(super) _keeps: KeepsMemory,
}

impl<T: Real> ToCuda for Amg<T> {
    type OnCuda = OnGpu<T>;

    /// Copies all levels, and the data for a refresh on the GPU.
    fn to(&self, gpu: &Cuda) -> Result<OnGpu<T>> {
        let device = gpu.device();
        let nodes = graph(gpu, &self.pattern)?;
        let (mut levels, mut fine) = (vec![], nodes.clone());
        for level in &self.hierarchy.levels {
            let level = copied(gpu, level, &fine)?;
            if let Some(transfer) = &level.transfer {
                fine = transfer.coarsening.coarse.clone();
            }
            levels.push(level);
        }
        let last = match &self.hierarchy.last {
            Some(dense) => Some(Dense { rows: dense.rows, inverse: device.upload(&dense.inverse)? }),
            None => None,
        };
        let hierarchy = Hierarchy { scale: self.hierarchy.scale, levels, last };
        let cycle = Cycle::new(device, self.space.len(), hierarchy, None)?;
        Ok(OnGpu {
            space: CudaSpace::like(gpu, &self.space),
            whole: self.whole.clone(),
            size: self.size,
            nodes,
            options: self.options,
            cycle,
            reports: self.reports.clone(),
            queueing: Mutex::new(()),
            _keeps: device.keep_memory()?,
        })
    }
}

pub(super) fn graph(gpu: &Cuda, pattern: &Pattern) -> Result<Graph> {
    let offsets: Vec<u32> = (0..=pattern.rows()).map(|row| pattern.offsets.at(row) as u32).collect();
    Ok(Graph::upload(gpu.device(), &offsets, &pattern.columns, pattern.cols())?)
}

/// Copies a level whose nodes have the pattern `fine`.
fn copied(gpu: &Cuda, level: &Level, fine: &Graph) -> Result<cycle::Level> {
    let transfer = match &level.transfer {
        Some(Transfer::Smoothed(smoothed)) => {
            let t = tentative(gpu, &smoothed.aggregates, &smoothed.tentative, smoothed.shape)?;
            let strong = match &smoothed.strong {
                Some(strong) if smoothed.shape == [1, 1] => {
                    Some(strength::spread(fine, &graph(gpu, strong)?)?)
                }
                _ => None,
            };
            let [p, r] = smoothed.transfers.each_ref().map(|matrix| matrix.to(gpu));
            let coarsening = Coarsening::known(fine, strong, t, false)?;
            Some(cycle::Transfer { p: p?, r: r?, coarsening })
        }
        Some(Transfer::Unsmoothed(unsmoothed)) => {
            let ones = vec![1.0; unsmoothed.aggregates.of_node.len()];
            let t = tentative(gpu, &unsmoothed.aggregates, &ones, [1, 1])?;
            let [p, r] = transfers([&t, &transposed(&t)?.0], f64::from(OVER))?;
            let coarsening = Coarsening::known(fine, None, t, true)?;
            Some(cycle::Transfer { p, r, coarsening })
        }
        None => None,
    };
    Ok(cycle::Level {
        a: level.a.to(gpu)?,
        inverse: gpu.device().upload(level.inverse.as_slice())?,
        weights: level.weights.clone(),
        gain: level.gain,
        transfer,
        visits: level.visits,
    })
}

/// `factor P` and `Pᵀ`, in the formats of the cycle.
pub(crate) fn transfers([p, r]: [&Blocks; 2], factor: f64) -> Result<[Matrix; 2]> {
    Ok([Matrix::of_blocks(p, factor, &[])?, Matrix::of_blocks(r, 1.0, &[])?])
}

/// The tentative prolongator `T`, given a dense block of it for each node.
fn tentative(gpu: &Cuda, aggregates: &Aggregates, dense: &[f64], shape: [usize; 2]) -> Result<Blocks> {
    let (pattern, values) = aggregates.tentative(dense, shape[0] * shape[1])?;
    Ok(Blocks { graph: graph(gpu, &pattern)?, shape, values: gpu.device().upload(&values)? })
}

impl Stored {
    fn to(&self, gpu: &Cuda) -> Result<Matrix> {
        let cols = self.domain().len();
        let ordered = match self {
            Stored::Dia(dia) => {
                let ordered = dia.ordered(gpu)?;
                if let Some(matrix) = Matrix::by_diagonals(&ordered, cols, dia.diagonals())? {
                    return Ok(matrix);
                }
                ordered
            }
            Stored::Csr(matrix) => matrix.ordered(gpu)?,
            Stored::Bsr(matrix) => matrix.ordered(gpu)?,
            Stored::Sell(matrix) => matrix.ordered(gpu)?,
        };
        Ok(Matrix::sliced(&ordered, cols)?)
    }
}

/// Prints one line per level.
impl<T: Real> fmt::Display for OnGpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(&self.reports, f)
    }
}

impl<T: Real> OnGpu<T> {
    fn queueing(&self) -> MutexGuard<'_, ()> {
        self.queueing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a cycle to the columns whose solve has not ended; returns their inner products `⟨r, z⟩` if
    /// `dots` is set.
    fn cycle_on_columns(
        &self,
        r: &MultiVector<CudaVector<T>>,
        z: &mut MultiVector<CudaVector<T>>,
        dots: bool,
    ) -> krysp_solvers::Result<Vec<Scalar<T>>> {
        let (r, mut z) = open_columns(self, r, z)?;
        let _queueing = self.queueing();
        self.cycle.apply_many(&r, &mut z, dots).map_err(failed)
    }
}

impl<T: Real> LinearOperator for OnGpu<T> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.space
    }

    fn apply(&self, r: &CudaVector<T>, z: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        let _queueing = self.queueing();
        self.cycle.apply(&r.entries, &mut z.entries).map_err(failed)
    }

    fn apply_dot(&self, r: &CudaVector<T>, z: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        check_spaces(self, r, z)?;
        let _queueing = self.queueing();
        Ok(CudaScalar(self.cycle.apply_dot(&r.entries, &mut z.entries, None).map_err(failed)?))
    }

    fn apply_many(
        &self,
        r: &MultiVector<CudaVector<T>>,
        z: &mut MultiVector<CudaVector<T>>,
    ) -> krysp_solvers::Result<()> {
        self.cycle_on_columns(r, z, false).map(drop)
    }

    fn apply_dot_many(
        &self,
        r: &MultiVector<CudaVector<T>>,
        z: &mut MultiVector<CudaVector<T>>,
    ) -> krysp_solvers::Result<Scalars<T, CudaScalar<T>>> {
        let dots = self.cycle_on_columns(r, z, true)?;
        Ok(z.scalars_of_open(dots.into_iter().map(CudaScalar)))
    }

    /// Within a queued iteration, the cycle is skipped if `‖r‖²` ends the solve, and `z` stays unchanged.
    /// This saves time, because a cycle takes as long as the rest of an iteration.
    fn axpy_apply_dot(
        &self,
        a: &CudaScalar<T>,
        q: &CudaVector<T>,
        r: &mut CudaVector<T>,
        z: &mut CudaVector<T>,
    ) -> krysp_solvers::Result<[CudaScalar<T>; 2]> {
        check_spaces(self, q, r)?;
        check_spaces(self, r, z)?;
        let squared = r.axpy_norm(a, q);
        let _queueing = self.queueing();
        let (r, z) = (&r.entries, &mut z.entries);
        let rz = self.cycle.apply_dot(r, z, Some(&squared.0)).map_err(failed)?;
        Ok([squared, CudaScalar(rz)])
    }

    fn bytes(&self) -> usize {
        self.cycle.bytes()
    }

    fn replays(&self) -> bool {
        true
    }
}
