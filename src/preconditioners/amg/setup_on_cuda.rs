//! Setup of algebraic multigrid on a GPU. All levels are computed there, with the same aggregates as on the
//! host and the same values up to rounding. Only sizes, some ten scalars per level and a sample of the entries
//! cross the bus, unless nodes differ in their number of unknowns: the host aggregates these.
//!
//! If rows of the finest level read entries of vectors that are far apart, its nodes are reordered by
//! aggregates as soon as these are known, so that the rest of the setup and every cycle find their data in
//! the cache.

use super::hierarchy::{self, Coarser, Memory};
use super::nodes::Nodes;
use super::on_cuda::{OnGpu, graph, transfers};
use super::on_host::{SHIFT, SINGULAR};
use super::report::LevelReport;
use super::spectrum::largest;
use super::unsmoothed::{OVER, is_worthwhile};
use super::{Amg, AmgOptions, NAME, aggregates, blocks, check_square, loaded};
use crate::device::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::formats::pattern::check_pattern;
use crate::formats::{MatrixSource, node_pattern, node_rows, sampled_rows};
use crate::numbers::Real;
use crate::preconditioners::refresh::{Refresh, check_space};
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::cuda::Array;
use krysp_kernels::cuda::multigrid;
use krysp_kernels::cuda::multigrid::coarsening::{Aggregates, Coarsening, NearNullSpace, Numbers, found};
use krysp_kernels::cuda::multigrid::cycle::{self, Cycle, Dense, Level, Transfer};
use krysp_kernels::cuda::multigrid::graph::Blocks;
use krysp_kernels::cuda::multigrid::numbers::{self, Inverse};
use krysp_kernels::cuda::multigrid::permutation::Permutation;
use krysp_kernels::multigrid::gains;
use krysp_solvers::{Diagonal, Element, LinearOperator, Space, check_spaces};
use std::borrow::Borrow;
use std::cell::OnceCell;
use std::ops::Deref;
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
    /// Like [`Amg::new`], on a GPU. If the operator is there already, only sizes, scalars and a sample of its
    /// entries cross the bus.
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
        multigrid::begin::<T>(device, false);
        let keeps = device.keep_memory()?;
        let (size, equal) = node_rows(pattern);
        let ordered = a.borrowed_on(gpu)?;
        let values = |at: &[usize]| Ok(numbers::entries_at(&ordered, at)?);
        let smooth = options.smooth_finest.unwrap_or(true);
        let unsmoothed = modes.is_empty() && is_worthwhile(smooth, size, pattern, values)?;
        let known = match Nodes::detect(pattern, size, modes.len()) {
            Some(nodes) => {
                let csr = a.in_host_memory()?;
                let values = map_rows(csr.nnz(), 2, &|at| Element::to_f64(csr.entries()[at]));
                Some(nodes.aggregated(blocks::Blocks::new(pattern, [1, 1], &values), options.strength)?)
            }
            None => None,
        };
        let modes = match modes.is_empty() {
            true => {
                NearNullSpace { count: size, values: numbers::constants_of(device, pattern.rows(), size)? }
            }
            false => {
                let modes = loaded(structure.domain(), modes)?;
                NearNullSpace { count: modes.count, values: device.upload(&modes.values)? }
            }
        };
        let nodes = match equal {
            true => numbers::nodes(&ordered, size)?,
            false => graph(gpu, &node_pattern(pattern, size)?)?,
        };
        let space = CudaSpace::like(gpu, structure.domain());
        let mut memory = OnDevice::new(gpu, options, pattern, &space);
        memory.known = known;
        let build = |a: &Blocks| hierarchy::build(&mut memory, Matrix::Given(a), modes, unsmoothed, started);
        let (hierarchy, reports) = numbers::with_blocks(&ordered, &nodes, size, build)??;
        let cycle = Cycle::new(device, pattern.rows(), hierarchy, memory.permutation)?;
        let (whole, queueing) = (pattern.clone(), Mutex::new(()));
        Ok(OnGpu { space, whole, size, nodes, options, cycle, reports, queueing, _keeps: keeps })
    }
}

/// The setup on a GPU.
struct OnDevice<'s> {
    gpu: &'s Cuda,
    options: AmgOptions,
    /// The pattern of the matrix.
    whole: &'s Pattern,
    /// True if the matrix has been reordered.
    is_reordered: bool,
    /// The diagonals by which the finest level is stored, see [`diagonals`].
    diagonals: OnceCell<Vec<i64>>,
    /// The aggregates of the finest level if its nodes differ in their number of unknowns.
    known: Option<aggregates::Aggregates>,
    /// Permutation of the finest level.
    permutation: Option<Permutation>,
}

/// The matrix of a level in double precision.
enum Matrix<'a> {
    Given(&'a Blocks),
    Made(Blocks),
}

impl Deref for Matrix<'_> {
    type Target = Blocks;

    fn deref(&self) -> &Blocks {
        match self {
            Matrix::Given(blocks) => blocks,
            Matrix::Made(blocks) => blocks,
        }
    }
}

impl<'s> OnDevice<'s> {
    fn new<T: Real>(gpu: &'s Cuda, options: AmgOptions, whole: &'s Pattern, space: &CudaSpace<T>) -> Self {
        let (is_reordered, diagonals) = (space.permutation().is_some(), OnceCell::new());
        OnDevice { gpu, options, whole, is_reordered, diagonals, known: None, permutation: None }
    }

    fn permutation(&self, level: usize) -> Option<&Permutation> {
        self.permutation.as_ref().filter(|_| level == 0)
    }

    fn diagonals(&self, level: usize) -> &[i64] {
        if level > 0 { &[] } else { self.diagonals.get_or_init(|| diagonals(self.whole, self.is_reordered)) }
    }
}

impl Memory for OnDevice<'_> {
    type Matrix<'a> = Matrix<'a>;
    type Inverse = Inverse;
    type Modes = NearNullSpace;
    type Aggregates = Aggregates;
    type Stored = cycle::Matrix;
    type Diagonal = Array<f32>;
    type Transfer = Transfer;
    type Last = Dense;

    fn options(&self) -> &AmgOptions {
        &self.options
    }

    fn rows(&self, a: &Matrix<'_>) -> u64 {
        Blocks::rows(a) as u64
    }

    fn aggregates(
        &mut self,
        level: usize,
        a: &Matrix<'_>,
        modes: &NearNullSpace,
    ) -> Result<Option<Aggregates>> {
        let (t, strong) = match self.known.take() {
            Some(known) => (graph(self.gpu, &known.tentative(&[], 0)?.0)?, None),
            None => found::<Error>(a, self.options.strength, &mut Ok)?,
        };
        if !gains(t.cols() as u64, modes.count, self.rows(a)) {
            return Ok(None);
        }
        let aggregates = Aggregates::of(t, strong, a.shape[0], modes)?;
        // the host computes this while the kernels enqueued above run
        if level > 0 || !self.diagonals(level).is_empty() || !is_wide(self.whole) {
            return Ok(Some(aggregates));
        }
        let (permutation, aggregates) = aggregates.permuted()?;
        self.permutation = Some(permutation);
        Ok(Some(aggregates))
    }

    /// The inverse diagonal in the order of the level, to which the matrix is then permuted.
    fn inverse(&self, level: usize, a: &mut Matrix<'_>) -> Result<Inverse> {
        let permutation = self.permutation(level);
        let inverse = Inverse::new(a, permutation)?;
        if let Some(permutation) = permutation {
            *a = Matrix::Made(permutation.permuted(a)?);
        }
        Ok(inverse)
    }

    fn least(&self, level: usize, inverse: &Inverse) -> Result<f64> {
        least(inverse, self.permutation(level))
    }

    fn diagonal(&self, inverse: &Inverse, scale: f64) -> Result<Array<f32>> {
        Ok(numbers::rounded_diagonal(&inverse.values, scale)?)
    }

    fn stored(&self, level: usize, a: &Matrix<'_>, scale: f64) -> Result<cycle::Matrix> {
        Ok(cycle::Matrix::of_blocks(a, scale, self.diagonals(level))?)
    }

    fn refill(&self, stored: &mut cycle::Matrix, a: &Matrix<'_>, scale: f64) -> Result<()> {
        Ok(stored.refill(a, scale)?)
    }

    fn largest(&self, at: usize, level: &mut Level) -> Result<f64> {
        let space = self.gpu.space::<f32>(level.inverse.len());
        let (mut diagonal, mut noise) = (space.zeros()?, space.zeros()?);
        numbers::noise(&mut noise.entries, self.permutation(at))?;
        std::mem::swap(&mut diagonal.entries, &mut level.inverse);
        let (products, mut diagonal) =
            (Products { matrix: &level.a, spaces: [space.clone(), space] }, Diagonal::new(diagonal));
        let largest = largest(&products, &diagonal, noise, &mut level.gain);
        std::mem::swap(&mut diagonal.diagonal_mut().entries, &mut level.inverse);
        largest
    }

    fn coarser<'a>(
        &self,
        a: &Matrix<'_>,
        smoothed: Option<(&Inverse, f64)>,
        _: &NearNullSpace,
        aggregates: Aggregates,
    ) -> Result<Coarser<'a, Self>> {
        let of = smoothed.map(|(inverse, omega)| (&inverse.values, omega));
        let (coarsening, numbers, modes) = Coarsening::new(a, of, aggregates)?;
        let Numbers { prolongation, restriction, coarse } = numbers;
        // the overcorrection factor of unsmoothed aggregation
        let factor = if smoothed.is_some() { 1.0 } else { f64::from(OVER) };
        let [p, r] = transfers([&prolongation, &restriction], factor)?;
        Ok((Transfer { p, r, coarsening }, Matrix::Made(coarse), modes))
    }

    fn renew<'a>(
        &self,
        transfer: &mut Transfer,
        a: &Matrix<'_>,
        inverse: &Inverse,
        omega: f64,
    ) -> Result<Matrix<'a>> {
        let Transfer { p, r, coarsening } = transfer;
        let Numbers { prolongation, restriction, coarse } = coarsening.numbers(a, &inverse.values, omega)?;
        if !coarsening.unsmoothed {
            p.refill(&prolongation, 1.0)?;
            r.refill(&restriction, 1.0)?;
        }
        Ok(Matrix::Made(coarse))
    }

    fn last(&self, a: &Matrix<'_>, _: &NearNullSpace, scale: f64) -> Result<Dense> {
        inverted(a, scale)
    }

    fn renew_last(&self, last: &mut Dense, a: &Matrix<'_>, scale: f64) -> Result<()> {
        *last = inverted(a, scale)?;
        Ok(())
    }

    fn report(&self, level: &Level) -> Result<LevelReport> {
        let (a, rows) = (level.a.product(), level.inverse.len());
        let formats = match &level.transfer {
            Some(Transfer { p, r, .. }) => format!("{}, {} and {}", level.a.name(), p.name(), r.name()),
            None => level.a.name().into(),
        };
        let bytes = level.transfer.as_ref().map_or(0, Transfer::bytes) + a.bytes() + 4 * rows;
        Ok(LevelReport::new(rows, a.shape().entries, bytes, formats))
    }
}

/// The smallest nonzero number of an inverse diagonal; refuses a diagonal that is not positive.
pub(crate) fn least(inverse: &Inverse, permutation: Option<&Permutation>) -> Result<f64> {
    inverse.least(permutation)?.map_err(|(row, pivot)| Error::NotPositive { what: NAME, row, pivot })
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

impl<T: Real> OnGpu<T> {
    /// The aggregate of each node of each level, `None` for nodes that are only smoothed.
    #[doc(hidden)]
    pub fn aggregates(&self) -> Result<Vec<Vec<Option<u32>>>> {
        let of_level = |coarsening: &Coarsening| {
            let (offsets, columns) = coarsening.t.graph.read()?;
            let of_node = |node: &[u32]| (node[0] < node[1]).then(|| columns[node[0] as usize]);
            Ok(offsets.windows(2).map(of_node).collect())
        };
        let transfers = self.cycle.hierarchy.levels.iter().filter_map(|level| level.transfer.as_ref());
        let all = transfers.map(|transfer| of_level(&transfer.coarsening));
        let mut all = all.collect::<Result<Vec<Vec<_>>>>()?;
        if let (Some(permutation), Some(first)) = (&self.cycle.permutation, all.first_mut()) {
            let places = permutation.places_of_nodes()?;
            *first = places.iter().map(|&place| first[place as usize]).collect();
        }
        Ok(all)
    }
}

/// The diagonals on which a sample of rows has entries, if few of their slots would be padding. Empty if
/// there are too many, or if the matrix has been reordered, which scatters them.
pub(crate) fn diagonals(pattern: &Pattern, is_reordered: bool) -> Vec<i64> {
    let rows = pattern.rows();
    if is_reordered {
        return vec![];
    }
    let mut found = vec![];
    for row in sampled_rows(rows, SAMPLE) {
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

/// A matrix of a level as a linear operator.
#[derive(Debug)]
// a public trait of ranks has it as an associated type
pub struct Products<M> {
    pub(crate) matrix: M,
    /// The domain and the range.
    pub(crate) spaces: [CudaSpace<f32>; 2],
}

impl<M: Borrow<cycle::Matrix> + Send + Sync> LinearOperator for Products<M> {
    type Vector = CudaVector<f32>;

    fn domain(&self) -> &CudaSpace<f32> {
        &self.spaces[0]
    }

    fn range(&self) -> &CudaSpace<f32> {
        &self.spaces[1]
    }

    fn apply(&self, x: &CudaVector<f32>, y: &mut CudaVector<f32>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        self.matrix.borrow().product().product(&x.entries, &mut y.entries).map_err(failed)
    }

    fn apply_dot(
        &self,
        x: &CudaVector<f32>,
        y: &mut CudaVector<f32>,
    ) -> krysp_solvers::Result<CudaScalar<f32>> {
        check_spaces(self, x, y)?;
        let product = self.matrix.borrow().product();
        Ok(CudaScalar(product.product_dot(&x.entries, &mut y.entries).map_err(failed)?))
    }

    fn bytes(&self) -> usize {
        self.matrix.borrow().product().bytes()
    }
}

/// Keeps aggregates, modes and patterns; recomputes the values of all levels, on the GPU alone if the
/// operator is there. After an error the preconditioner must be refreshed again before it is applied.
impl<T: Real> Refresh<T> for OnGpu<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.space.host())?;
        check_pattern(&self.whole, &a.structure().pattern)?;
        let OnGpu { space, whole, nodes, size, options, cycle, .. } = self;
        let gpu = space.gpu();
        let mut memory = OnDevice::new(gpu, *options, whole, space);
        memory.permutation = cycle.permutation.take();
        let refresh = |a: &Blocks| hierarchy::refresh(&memory, &mut cycle.hierarchy, Matrix::Given(a));
        let refreshed =
            a.borrowed_on(gpu).and_then(|a| Ok(numbers::with_blocks(&*a, nodes, *size, refresh)?));
        cycle.permutation = memory.permutation;
        refreshed?
    }
}
