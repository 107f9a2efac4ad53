//! Setup of algebraic multigrid on a GPU. All levels are computed there, with the same aggregates as on the
//! host and the same values up to rounding. Only sizes and some ten scalars per level cross the bus.
//!
//! If rows of the finest level read entries of vectors that are far apart, its nodes are reordered by
//! aggregates as soon as these are known, so that the rest of the setup and every cycle find their data in
//! the cache.

use super::on_cuda::{OnGpu, graph, parameters};
use super::report::LevelReport;
use super::spectrum::{largest, weights};
use super::strength::scale_of;
use super::{Amg, AmgOptions, LEVELS, NAME, SHIFT, SINGULAR, check_square, loaded, sampled};
use crate::device::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::formats::pattern::check_pattern;
use crate::formats::{MatrixSource, node_pattern, node_rows};
use crate::numbers::Real;
use crate::preconditioners::refresh::{Refresh, check_space};
use krysp_kernels::cuda::multigrid;
use krysp_kernels::cuda::multigrid::coarsening::{
    Aggregates, CoarseLevel, Coarsening, NearNullSpace, Numbers,
};
use krysp_kernels::cuda::multigrid::cycle::{Cycle, Dense, Level, Matrix};
use krysp_kernels::cuda::multigrid::graph::Blocks;
use krysp_kernels::cuda::multigrid::numbers::{self, Inverse};
use krysp_kernels::cuda::multigrid::permutation::Permutation;
use krysp_kernels::interrupt;
use krysp_solvers::{Diagonal, LinearOperator, Space, check_spaces};
use std::sync::Mutex;
use std::time::Instant;

/// Maximum number of diagonals for storing the finest level by diagonals.
const DIAGONALS: usize = 64;
/// Maximum number of slots (stored values, including padding) per hundred entries for storing the finest
/// level by diagonals.
const SLOTS: usize = 120;

/// Number of rows that are searched for diagonals.
const SAMPLE: usize = 512;
/// Number of groups of rows whose columns are compared in [`is_wide`].
const GROUPS: usize = 32;

impl<T: Real> Amg<T> {
    /// Like [`Amg::new`], on a GPU. If the operator is there already, only sizes and scalars cross the bus.
    pub fn on(gpu: &Cuda, a: &impl MatrixSource<T>) -> Result<OnGpu<T>> {
        Amg::with_on::<[T; 0]>(gpu, a, &[], AmgOptions::default())
    }

    /// Like [`Amg::with_near_null_space`], on a GPU.
    pub fn with_near_null_space_on<V: AsRef<[T]> + Sync>(
        gpu: &Cuda,
        a: &impl MatrixSource<T>,
        modes: &[V],
    ) -> Result<OnGpu<T>> {
        Amg::with_on(gpu, a, modes, AmgOptions::default())
    }

    /// Like [`Amg::with`], on a GPU. Refuses matrices with too many entries in a row of some level: build those
    /// on the host, and copy them by [`Amg::to`](crate::ToCuda::to).
    pub fn with_on<V: AsRef<[T]> + Sync>(
        gpu: &Cuda,
        a: &impl MatrixSource<T>,
        modes: &[V],
        options: AmgOptions,
    ) -> Result<OnGpu<T>> {
        check_square(NAME, a)?;
        options.check()?;
        let started = Instant::now();
        let structure = a.structure();
        let (pattern, device) = (&structure.pattern, gpu.device());
        multigrid::begin::<T>(device);
        let keeps = device.keep_memory()?;
        let (size, equal) = node_rows(pattern);
        let modes = match modes.is_empty() {
            true => {
                NearNullSpace { count: size, values: numbers::constants_of(device, pattern.rows(), size)? }
            }
            false => {
                let modes = loaded(structure.domain(), modes)?;
                NearNullSpace { count: modes.count, values: device.upload(&modes.values)? }
            }
        };
        let ordered = a.borrowed_on(gpu)?;
        let nodes = match equal {
            true => numbers::nodes(&ordered, size)?,
            false => graph(gpu, &node_pattern(pattern, size)?)?,
        };
        let mut amg = OnGpu {
            space: CudaSpace::like(gpu, structure.domain()),
            whole: pattern.clone(),
            size,
            nodes,
            options,
            scale: 1.0,
            setup: vec![],
            cycle: Cycle::new(device, pattern.rows(), vec![], None)?,
            reports: vec![],
            queueing: Mutex::new(()),
            _keeps: keeps,
        };
        let nodes = amg.nodes.clone();
        let (levels, dense, permutation) =
            numbers::with_blocks(&ordered, &nodes, size, |a| amg.build(gpu, a, modes, started))??;
        amg.cycle = Cycle::new(device, pattern.rows(), levels, dense)?;
        amg.cycle.permutation = permutation;
        Ok(amg)
    }
}

impl<T: Real> OnGpu<T> {
    fn build(
        &mut self,
        gpu: &Cuda,
        finest: &Blocks,
        mut modes: NearNullSpace,
        mut started: Instant,
    ) -> Result<(Vec<Level>, Option<Dense>, Option<Permutation>)> {
        let (mut levels, mut permutation) = (vec![], None);
        let mut kept: Blocks;
        let mut a = finest;
        loop {
            interrupt::check("AMG setup")?;
            if a.rows() <= self.options.max_coarse_size {
                let least = least(&Inverse::new(a, None)?, None)?;
                if levels.is_empty() {
                    self.scale = scale_of(least);
                }
                let dense = inverted(a, self.scale)?;
                self.reports.push(LevelReport::dense(dense.rows, started));
                return Ok((levels, Some(dense), permutation));
            }
            let mut aggregates = match levels.len() < LEVELS {
                true => Aggregates::new(a, &modes, parameters(&self.options))?,
                false => None,
            };
            // the host computes this while the kernels enqueued above run
            let diagonals = if levels.is_empty() { diagonals(&self.whole, &self.space) } else { vec![] };
            if levels.is_empty() && diagonals.is_empty() && is_wide(&self.whole) {
                (permutation, aggregates) = aggregates.map(Aggregates::permuted).transpose()?.unzip();
            }
            let in_order = permutation.as_ref().filter(|_| levels.is_empty());
            let inverse = Inverse::new(a, in_order)?;
            let least = least(&inverse, in_order)?;
            if levels.is_empty() {
                self.scale = scale_of(least);
            }
            if let Some(permutation) = in_order {
                kept = permutation.permuted(a)?;
                a = &kept;
            }
            let mut level = Level {
                a: Matrix::of_blocks(a, self.scale, &diagonals)?,
                inverse: numbers::rounded_diagonal(&inverse.values, self.scale)?,
                weights: vec![],
                gain: None,
                transfer: None,
            };
            let omega = set_weights(gpu, &mut level, self.options.sweeps, in_order)?;
            let Some(aggregates) = aggregates else {
                self.reports.push(LevelReport::on_gpu(&level, started));
                levels.push(level);
                return Ok((levels, None, permutation));
            };
            let CoarseLevel { coarsening, numbers, modes: below } =
                CoarseLevel::new(a, &inverse.values, omega, aggregates, parameters(&self.options))?;
            let Numbers { prolongation, restriction, coarse } = numbers;
            level.transfer = Some(transfer([&prolongation, &restriction])?);
            self.reports.push(LevelReport::on_gpu(&level, started));
            started = Instant::now();
            levels.push(level);
            self.setup.push(coarsening);
            (kept, modes) = (coarse, below);
            a = &kept;
        }
    }

    /// The aggregate of each node of each level, `None` for nodes that are only smoothed.
    #[doc(hidden)]
    pub fn aggregates(&self) -> Result<Vec<Vec<Option<u32>>>> {
        let of_level = |coarsening: &Coarsening| {
            let (offsets, columns) = coarsening.aggregates().read()?;
            let of_node = |node: &[u32]| (node[0] < node[1]).then(|| columns[node[0] as usize]);
            Ok(offsets.windows(2).map(of_node).collect())
        };
        let mut all = self.setup.iter().map(of_level).collect::<Result<Vec<Vec<_>>>>()?;
        if let (Some(permutation), Some(first)) = (&self.cycle.permutation, all.first_mut()) {
            let places = permutation.places_of_nodes()?;
            *first = places.iter().map(|&place| first[place as usize]).collect();
        }
        Ok(all)
    }
}

/// The smallest nonzero number of an inverse diagonal; refuses a diagonal that is not positive.
fn least(inverse: &Inverse, permutation: Option<&Permutation>) -> Result<f64> {
    let refused = |(row, pivot)| Error::NotPositive { what: NAME, row, pivot };
    inverse.least(permutation)?.map_err(refused)
}

/// `P` and `Pᵀ`, in the formats of the cycle.
fn transfer(blocks: [&Blocks; 2]) -> Result<[Matrix; 2]> {
    let [p, r] = blocks.map(|blocks| Matrix::of_blocks(blocks, 1.0, &[]));
    Ok([p?, r?])
}

/// The diagonals on which a sample of rows has entries, if few of their slots would be padding. Empty if
/// there are too many, or if the matrix has been reordered, which scatters them.
fn diagonals<T: Real>(pattern: &Pattern, space: &CudaSpace<T>) -> Vec<i64> {
    let rows = pattern.rows();
    if space.permutation().is_some() {
        return vec![];
    }
    let mut found = vec![];
    for row in sampled(rows, SAMPLE) {
        for &column in pattern.row(row) {
            let diagonal = i64::from(column) - row as i64;
            if let Err(at) = found.binary_search(&diagonal) {
                found.insert(at, diagonal);
            }
        }
        if found.len() > DIAGONALS {
            return vec![];
        }
    }
    let few = 100 * rows * found.len() <= SLOTS * pattern.entries();
    if few { found } else { vec![] }
}

/// Returns whether products read entries of `x` that are far apart: in one of the sampled groups of
/// consecutive rows, the `k`-th entries of the rows, for some `k`, are in columns at least 65,535 apart.
fn is_wide(pattern: &Pattern) -> bool {
    const ROWS: usize = 32;
    let groups = pattern.rows() / ROWS;
    let looked_at = GROUPS.min(groups);
    (0..looked_at).map(|k| k * groups / looked_at * ROWS).any(|first| {
        let rows: [&[u32]; ROWS] = std::array::from_fn(|k| pattern.row(first + k));
        let shortest = rows.iter().map(|row| row.len()).min().unwrap_or(0);
        (0..shortest).any(|k| {
            let [least, most] = rows.iter().fold([u32::MAX, 0], |[a, b], row| [a.min(row[k]), b.max(row[k])]);
            most - least >= u32::from(u16::MAX)
        })
    })
}

/// Chooses the weights of a level's smoother; returns the `ω` of the prolongator.
fn set_weights(
    gpu: &Cuda,
    level: &mut Level,
    sweeps: usize,
    permutation: Option<&Permutation>,
) -> Result<f64> {
    let space = gpu.space::<f32>(level.inverse.len());
    let (mut diagonal, mut noise) = (space.zeros()?, space.zeros()?);
    numbers::noise(&mut noise.entries, permutation)?;
    std::mem::swap(&mut diagonal.entries, &mut level.inverse);
    let (products, mut diagonal) = (Products { matrix: &level.a, space }, Diagonal::new(diagonal));
    let largest = largest(&products, &diagonal, noise, &mut level.gain)?;
    std::mem::swap(&mut diagonal.diagonal_mut().entries, &mut level.inverse);
    level.weights = weights(largest, sweeps);
    Ok(4.0 / 3.0 / largest)
}

/// A level's matrix as a linear operator.
struct Products<'a> {
    matrix: &'a Matrix,
    space: CudaSpace<f32>,
}

impl LinearOperator for Products<'_> {
    type Vector = CudaVector<f32>;

    fn domain(&self) -> &CudaSpace<f32> {
        &self.space
    }

    fn apply(&self, x: &CudaVector<f32>, y: &mut CudaVector<f32>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        self.matrix.product().product(&x.entries, &mut y.entries).map_err(failed)
    }

    fn apply_dot(
        &self,
        x: &CudaVector<f32>,
        y: &mut CudaVector<f32>,
    ) -> krysp_solvers::Result<CudaScalar<f32>> {
        check_spaces(self, x, y)?;
        Ok(CudaScalar(self.matrix.product().product_dot(&x.entries, &mut y.entries).map_err(failed)?))
    }
}

/// Inverts the coarsest level; one that is singular up to rounding is regularized by a shift of its diagonal.
fn inverted(a: &Blocks, scale: f64) -> Result<Dense> {
    let refused = |row, pivot: f64| Error::NotPositive { what: NAME, row, pivot: pivot / scale };
    match numbers::inverted(a, scale, 1.0)? {
        Ok(dense) => Ok(dense),
        Err((row, pivot, diagonal)) if pivot < -SINGULAR * diagonal => Err(refused(row, pivot)),
        Err((row, pivot, _)) => numbers::inverted(a, scale, 1.0 + SHIFT)?.map_err(|_| refused(row, pivot)),
    }
}

/// Keeps aggregates, modes and patterns; recomputes the values of all levels, on the GPU alone if the
/// operator is there. After an error the preconditioner must be refreshed again before it is applied.
impl<T: Real> Refresh<T> for OnGpu<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.space.host())?;
        check_pattern(&self.whole, &a.structure().pattern)?;
        let (gpu, nodes) = (self.space.gpu().clone(), self.nodes.clone());
        numbers::with_blocks(&*a.borrowed_on(&gpu)?, &nodes, self.size, |a| self.renew(&gpu, a))?
    }
}

impl<T: Real> OnGpu<T> {
    fn renew(&mut self, gpu: &Cuda, finest: &Blocks) -> Result<()> {
        let mut kept: Blocks;
        let mut a = finest;
        // the diagonals of coarse levels are checked at the end, so that the GPU does not wait for the host
        // at each level
        let mut inverses = vec![];
        for at in 0..=self.cycle.levels.len() {
            let permutation = self.cycle.permutation.as_ref().filter(|_| at == 0);
            let inverse = Inverse::new(a, permutation)?;
            if at == 0 {
                self.scale = scale_of(least(&inverse, permutation)?);
            }
            if let Some(permutation) = permutation {
                kept = permutation.permuted(a)?;
                a = &kept;
            }
            let Some(level) = self.cycle.levels.get_mut(at) else {
                inverses.push(inverse);
                for inverse in inverses.drain(..) {
                    least(&inverse, None)?;
                }
                if self.cycle.dense.is_some() {
                    self.cycle.dense = Some(inverted(a, self.scale)?);
                }
                break;
            };
            level.a.refill(a, self.scale)?;
            level.inverse = numbers::rounded_diagonal(&inverse.values, self.scale)?;
            let omega = set_weights(gpu, level, self.options.sweeps, permutation)?;
            let (Some(coarsening), Some([p, r])) = (self.setup.get(at), &mut level.transfer) else {
                inverses.push(inverse);
                break;
            };
            if coarsening.is_unsmoothed() {
                kept = coarsening.sums(a)?;
            } else {
                let Numbers { prolongation, restriction, coarse } =
                    coarsening.numbers(a, &inverse.values, omega)?;
                p.refill(&prolongation, 1.0)?;
                r.refill(&restriction, 1.0)?;
                kept = coarse;
            }
            a = &kept;
            if at > 0 {
                inverses.push(inverse);
            }
        }
        inverses.iter().try_for_each(|inverse| least(inverse, None).map(drop))
    }
}
