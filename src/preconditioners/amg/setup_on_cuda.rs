//! Setup of algebraic multigrid on a GPU: all of it, level by level, with the aggregates of the host and its numbers to
//! rounding. What crosses the bus are sizes, and some ten numbers a level.
//!
//! Where rows of the finest level read what lies far apart, its nodes are numbered aggregate by aggregate as soon as these are
//! known: what is made of them, and every cycle, then finds in the cache what it reads.

use super::on_cuda::{OnGpu, graph, rules};
use super::report::LevelReport;
use super::spectrum::{largest, weights};
use super::strength::scale_of;
use super::{Amg, AmgOptions, LEVELS, NAME, SHIFT, SINGULAR, check_square, loaded, sampled};
use crate::cuda::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::formats::derived::check_pattern;
use crate::formats::pattern::Pattern;
use crate::formats::{node_pattern, node_rows};
use crate::preconditioners::origin::{Origin, Refresh, check_space};
use crate::{Error, Real, Result};
use krysp_kernels::cuda::multigrid;
use krysp_kernels::cuda::multigrid::coarsening::{Aggregates, Coarsening, Made, Modes, Numbers};
use krysp_kernels::cuda::multigrid::cycle::{Cycle, Dense, Level, Matrix};
use krysp_kernels::cuda::multigrid::graph::Blocks;
use krysp_kernels::cuda::multigrid::numbering::Numbering;
use krysp_kernels::cuda::multigrid::numbers::{self, Inverse};
use krysp_kernels::interrupt;
use krysp_solvers::{Diagonal, LinearOperator, Space, check_spaces};
use std::sync::Mutex;
use std::time::Instant;

/// Diagonals of the finest level at most, and slots at most for a hundred entries there, for it to be stored by diagonals.
const DIAGONALS: usize = 64;
/// See [`DIAGONALS`].
const SLOTS: usize = 120;

/// Rows that are looked at for diagonals, and groups of rows for columns that lie far apart.
const SAMPLE: usize = 512;
/// See [`SAMPLE`].
const GROUPS: usize = 32;

impl<T: Real> Amg<T> {
    /// [`Amg::new`], on a GPU. Of an operator that is there already, only sizes cross the bus.
    pub fn on(gpu: &Cuda, a: &impl Origin<T>) -> Result<OnGpu<T>> {
        Amg::with_on::<[T; 0]>(gpu, a, &[], AmgOptions::default())
    }

    /// [`Amg::with_modes`], on a GPU.
    pub fn with_modes_on<V: AsRef<[T]> + Sync>(
        gpu: &Cuda,
        a: &impl Origin<T>,
        modes: &[V],
    ) -> Result<OnGpu<T>> {
        Amg::with_on(gpu, a, modes, AmgOptions::default())
    }

    /// [`Amg::with`], on a GPU. Refuses what has too many entries in a row of some level: [`Amg::to`](crate::ToCuda::to) takes it
    /// there from the host.
    pub fn with_on<V: AsRef<[T]> + Sync>(
        gpu: &Cuda,
        a: &impl Origin<T>,
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
            true => Modes { count: size, values: numbers::constants_of(device, pattern.rows(), size)? },
            false => {
                let modes = loaded(structure.domain(), modes)?;
                Modes { count: modes.count, values: device.upload(&modes.values)? }
            }
        };
        let ordered = a.lent(gpu)?;
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
        let (levels, dense, numbering) =
            numbers::with_blocks(&ordered, &nodes, size, |a| amg.build(gpu, a, modes, started))??;
        amg.cycle = Cycle::new(device, pattern.rows(), levels, dense)?;
        amg.cycle.numbering = numbering;
        Ok(amg)
    }
}

impl<T: Real> OnGpu<T> {
    fn build(
        &mut self,
        gpu: &Cuda,
        finest: &Blocks,
        mut modes: Modes,
        mut started: Instant,
    ) -> Result<(Vec<Level>, Option<Dense>, Option<Numbering>)> {
        let (mut levels, mut numbering) = (vec![], None);
        let mut kept: Blocks;
        let mut a = finest;
        loop {
            interrupt::check("AMG setup")?;
            if a.rows() <= self.options.coarsest {
                let least = least(&Inverse::new(a, None)?, None)?;
                if levels.is_empty() {
                    self.scale = scale_of(least);
                }
                let dense = inverted(a, self.scale)?;
                self.reports.push(LevelReport::dense(dense.rows, started));
                return Ok((levels, Some(dense), numbering));
            }
            let mut aggregates = match levels.len() < LEVELS {
                true => Aggregates::new(a, &modes, rules(&self.options))?,
                false => None,
            };
            // while the last kernels run
            let diagonals = if levels.is_empty() { diagonals(&self.whole, &self.space) } else { vec![] };
            if levels.is_empty() && diagonals.is_empty() && is_wide(&self.whole) {
                (numbering, aggregates) = aggregates.map(Aggregates::numbered).transpose()?.unzip();
            }
            let in_order = numbering.as_ref().filter(|_| levels.is_empty());
            let inverse = Inverse::new(a, in_order)?;
            let least = least(&inverse, in_order)?;
            if levels.is_empty() {
                self.scale = scale_of(least);
            }
            if let Some(numbering) = in_order {
                kept = numbering.numbered(a)?;
                a = &kept;
            }
            let mut level = Level {
                a: Matrix::of_blocks(a, self.scale, &diagonals)?,
                inverse: numbers::rounded_diagonal(&inverse.values, self.scale)?,
                weights: vec![],
                gain: None,
                transfer: None,
            };
            let omega = weigh(gpu, &mut level, self.options.sweeps, in_order)?;
            let Some(aggregates) = aggregates else {
                self.reports.push(LevelReport::on_gpu(&level, started));
                levels.push(level);
                return Ok((levels, None, numbering));
            };
            let Made { coarsening, numbers, modes: below } =
                Made::new(a, &inverse.values, omega, aggregates, rules(&self.options))?;
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

    /// The aggregate of each node of each level, none for what is left out.
    #[doc(hidden)]
    pub fn aggregates(&self) -> Result<Vec<Vec<Option<u32>>>> {
        let of_level = |coarsening: &Coarsening| {
            let (offsets, columns) = coarsening.aggregates().read()?;
            let of_node = |node: &[u32]| (node[0] < node[1]).then(|| columns[node[0] as usize]);
            Ok(offsets.windows(2).map(of_node).collect())
        };
        let mut all = self.setup.iter().map(of_level).collect::<Result<Vec<Vec<_>>>>()?;
        if let (Some(numbering), Some(first)) = (&self.cycle.numbering, all.first_mut()) {
            let places = numbering.places_of_nodes()?;
            *first = places.iter().map(|&place| first[place as usize]).collect();
        }
        Ok(all)
    }
}

/// The smallest number of an inverse diagonal that is not zero; refuses what is not positive.
fn least(inverse: &Inverse, numbering: Option<&Numbering>) -> Result<f64> {
    let refused = |(row, pivot)| Error::NotPositive { what: NAME, row, pivot };
    inverse.least(numbering)?.map_err(refused)
}

/// `P` and `Pᵀ` as a cycle reads them.
fn transfer(blocks: [&Blocks; 2]) -> Result<[Matrix; 2]> {
    let [p, r] = blocks.map(|blocks| Matrix::of_blocks(blocks, 1.0, &[]));
    Ok([p?, r?])
}

/// The diagonals that some rows have entries on, if most of their slots would be entries; none where they are many, or
/// where a numbering has scattered them.
fn diagonals<T: Real>(pattern: &Pattern, space: &CudaSpace<T>) -> Vec<i64> {
    let rows = pattern.rows();
    if space.numbering().is_some() {
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

/// Whether products read what lies far apart: in some group of rows that stand together, columns of entries with equal places in
/// their rows take more than 16 bits.
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

/// Chooses weights for a level; `ω` of the prolongation.
fn weigh(gpu: &Cuda, level: &mut Level, sweeps: usize, numbering: Option<&Numbering>) -> Result<f64> {
    let space = gpu.space::<f32>(level.inverse.len());
    let (mut diagonal, mut noise) = (space.zeros()?, space.zeros()?);
    numbers::noise(&mut noise.entries, numbering)?;
    std::mem::swap(&mut diagonal.entries, &mut level.inverse);
    let (products, mut diagonal) = (Products { matrix: &level.a, space }, Diagonal::new(diagonal));
    let largest = largest(&products, &diagonal, noise, &mut level.gain)?;
    std::mem::swap(&mut diagonal.diagonal_mut().entries, &mut level.inverse);
    level.weights = weights(largest, sweeps);
    Ok(4.0 / 3.0 / largest)
}

/// A level's matrix as an operator.
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

/// The inverse of the last level; one that is singular but for rounding is moved away from that.
fn inverted(a: &Blocks, scale: f64) -> Result<Dense> {
    let refused = |row, pivot: f64| Error::NotPositive { what: NAME, row, pivot: pivot / scale };
    match numbers::inverted(a, scale, 1.0)? {
        Ok(dense) => Ok(dense),
        Err((row, pivot, diagonal)) if pivot < -SINGULAR * diagonal => Err(refused(row, pivot)),
        Err((row, pivot, _)) => numbers::inverted(a, scale, 1.0 + SHIFT)?.map_err(|_| refused(row, pivot)),
    }
}

/// Aggregates, modes and patterns stay; the numbers of all levels are computed anew, of an operator on the GPU without the host.
/// After an error there are no numbers to apply: refresh again.
impl<T: Real> Refresh<T> for OnGpu<T> {
    fn refresh(&mut self, a: &dyn Origin<T>) -> Result<()> {
        check_space(a, self.space.host())?;
        check_pattern(&self.whole, &a.structure().pattern)?;
        let (gpu, nodes) = (self.space.gpu().clone(), self.nodes.clone());
        numbers::with_blocks(&*a.lent(&gpu)?, &nodes, self.size, |a| self.renew(&gpu, a))?
    }
}

impl<T: Real> OnGpu<T> {
    fn renew(&mut self, gpu: &Cuda, finest: &Blocks) -> Result<()> {
        let mut kept: Blocks;
        let mut a = finest;
        // of coarse levels: what is not positive is refused at last, and the GPU need not wait for the host at each
        let mut inverses = vec![];
        for at in 0..=self.cycle.levels.len() {
            let numbering = self.cycle.numbering.as_ref().filter(|_| at == 0);
            let inverse = Inverse::new(a, numbering)?;
            if at == 0 {
                self.scale = scale_of(least(&inverse, numbering)?);
            }
            if let Some(numbering) = numbering {
                kept = numbering.numbered(a)?;
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
            let omega = weigh(gpu, level, self.options.sweeps, numbering)?;
            let (Some(coarsening), Some([p, r])) = (self.setup.get(at), &mut level.transfer) else {
                inverses.push(inverse);
                break;
            };
            if coarsening.is_plain() {
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
