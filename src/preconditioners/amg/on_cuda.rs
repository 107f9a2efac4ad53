//! Algebraic multigrid in device memory. Its setup is in `setup_on_cuda.rs`.

use super::aggregates::Aggregates;
use super::coarsening::{Coarsening, POSITIVE};
use super::cycle::{Level, Transfer};
use super::modes::DEPENDENT;
use super::report::{LevelReport, write_table};
use super::stored::Stored;
use super::strength::DOMINANT;
use super::unsmoothed::{OVER, PASSES, Unsmoothed};
use super::{Amg, AmgOptions};
use crate::device::{Cuda, CudaScalar, CudaSpace, CudaVector, ToCuda, failed, open_columns};
use crate::error::Result;
use crate::formats::MatrixSource;
use crate::formats::pattern::Pattern;
use crate::numbers::Real;
use krysp_kernels::cuda::multigrid::coarsening::{self, CoarseningParameters};
use krysp_kernels::cuda::multigrid::cycle::{self, Cycle, Dense, Matrix};
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
/// and four more. In a hierarchy copied from the host that uses unsmoothed aggregation
/// ([`AmgOptions::smooth_finest`]), a cycle visits all levels but the finest three times.
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
    /// A power of two that scales the largest diagonal entry to about one.
    pub(super) scale: f64,
    pub(super) setup: Vec<coarsening::Coarsening>,
    pub(super) cycle: Cycle<T>,
    pub(super) reports: Vec<LevelReport>,
    /// Held while an application is enqueued, because its kernels share the vectors of all levels.
    pub(super) queueing: Mutex<()>,
    /// Keeps freed memory in the pool, for the workspace of a refresh.
    pub(super) _keeps: KeepsMemory,
}

/// The thresholds of coarsening.
pub(super) fn parameters(options: &AmgOptions) -> CoarseningParameters {
    CoarseningParameters {
        strength: options.strength,
        dominant: DOMINANT,
        dependent: DEPENDENT,
        positive: POSITIVE,
    }
}

impl<T: Real> ToCuda for Amg<T> {
    type OnCuda = OnGpu<T>;

    /// Copies all levels, and the data for a refresh on the GPU.
    fn to(&self, gpu: &Cuda) -> Result<OnGpu<T>> {
        let device = gpu.device();
        let levels = self.levels.iter().map(|level| level.to(gpu)).collect::<Result<_>>()?;
        let dense = match &self.dense {
            Some(dense) => Some(Dense { rows: dense.rows, inverse: device.upload(&dense.inverse)? }),
            None => None,
        };
        let nodes = graph(gpu, &self.pattern)?;
        let (mut setup, mut fine) = (vec![], nodes.clone());
        let mut cycle = Cycle::new(device, self.space.len(), levels, dense)?;
        if let Some(unsmoothed) = self.unsmoothed() {
            let t = tentative(gpu, &unsmoothed.aggregates, None, [1, 1])?;
            let copy = coarsening::Coarsening::unsmoothed(&fine, parameters(&self.options), t)?;
            fine = copy.coarse().clone();
            setup.push(copy);
            cycle.passes = PASSES;
        }
        for coarsening in &self.setup {
            let copy = coarsening.to(gpu, &fine, parameters(&self.options))?;
            fine = copy.coarse().clone();
            setup.push(copy);
        }
        Ok(OnGpu {
            space: CudaSpace::like(gpu, &self.space),
            whole: self.whole.clone(),
            size: self.size,
            nodes,
            options: self.options,
            scale: self.scale,
            setup,
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

impl Coarsening {
    fn to(
        &self,
        gpu: &Cuda,
        fine: &Graph,
        parameters: CoarseningParameters,
    ) -> Result<coarsening::Coarsening> {
        let t = tentative(gpu, &self.aggregates, Some(&self.tentative), self.shape)?;
        let strong = match &self.strong {
            Some(strong) if self.shape == [1, 1] => Some(strength::spread(fine, &graph(gpu, strong)?)?),
            _ => None,
        };
        Ok(coarsening::Coarsening::on(fine, parameters, strong, t)?)
    }
}

/// The tentative prolongator `T`. `numbers` are its values, block by block; `None` means ones.
fn tentative(
    gpu: &Cuda,
    Aggregates { count, of_node }: &Aggregates,
    numbers: Option<&[f64]>,
    shape: [usize; 2],
) -> Result<Blocks> {
    let kept: Vec<usize> = (0..of_node.len()).filter(|&node| (of_node[node] as usize) < *count).collect();
    let mut offsets = vec![0u32; of_node.len() + 1];
    kept.iter().for_each(|&node| offsets[node + 1] = 1);
    for node in 1..offsets.len() {
        offsets[node] += offsets[node - 1];
    }
    let columns: Vec<u32> = kept.iter().map(|&node| of_node[node]).collect();
    let block = shape[0] * shape[1];
    let values: Vec<f64> = match numbers {
        Some(numbers) => kept.iter().flat_map(|&node| &numbers[node * block..][..block]).copied().collect(),
        None => vec![1.0; kept.len()],
    };
    let graph = Graph::upload(gpu.device(), &offsets, &columns, *count)?;
    Ok(Blocks { graph, shape, values: gpu.device().upload(&values)? })
}

impl Unsmoothed {
    /// `OVER T` and `Tᵀ`, in the formats of the GPU's cycle. [`OVER`] is the overcorrection factor.
    fn to(&self, gpu: &Cuda) -> Result<[Matrix; 2]> {
        let t = tentative(gpu, &self.aggregates, None, [1, 1])?;
        let values = gpu.device().upload(&vec![1.0; self.members.entries()])?;
        let restriction = Blocks { graph: graph(gpu, &self.members)?, shape: [1, 1], values };
        let over = f64::from(OVER);
        Ok([Matrix::of_blocks(&t, over, &[])?, Matrix::of_blocks(&restriction, 1.0, &[])?])
    }
}

impl Level {
    fn to(&self, gpu: &Cuda) -> Result<cycle::Level> {
        let transfer = match &self.transfer {
            Some(Transfer::Smoothed(transfers)) => {
                let [p, r] = &**transfers;
                Some([p.to(gpu)?, r.to(gpu)?])
            }
            Some(Transfer::Unsmoothed(unsmoothed)) => Some(unsmoothed.to(gpu)?),
            None => None,
        };
        Ok(cycle::Level {
            a: self.a.to(gpu)?,
            inverse: gpu.device().upload(self.inverse.as_slice())?,
            weights: self.weights.clone(),
            gain: self.gain,
            transfer,
        })
    }
}

impl Stored {
    pub(crate) fn to(&self, gpu: &Cuda) -> Result<Matrix> {
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
        self.cycle.apply_many(self.scale, &r, &mut z, dots).map_err(failed)
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
        self.cycle.apply(self.scale, &r.entries, &mut z.entries).map_err(failed)
    }

    fn apply_dot(&self, r: &CudaVector<T>, z: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        check_spaces(self, r, z)?;
        let _queueing = self.queueing();
        Ok(CudaScalar(self.cycle.apply_dot(self.scale, &r.entries, &mut z.entries, None).map_err(failed)?))
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
        let rz = self.cycle.apply_dot(self.scale, r, z, Some(&squared.0)).map_err(failed)?;
        Ok([squared, CudaScalar(rz)])
    }

    fn bytes(&self) -> usize {
        self.cycle.bytes()
    }

    fn replays(&self) -> bool {
        true
    }
}
