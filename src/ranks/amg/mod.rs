//! Algebraic multigrid over ranks.
//!
//! The setup is that of `hierarchy.rs` in `src/preconditioners/amg`, with the [`Memory`](memory::OnRanks) of ranks, and
//! the cycle that of [`krysp_kernels::multigrid`], over [`LocalLevels`]: the memory of one rank's part.
//!
//! Aggregates do not cross rank boundaries. Everything else is as in one process: prolongators are smoothed
//! across ranks, and coarse matrices are those of the whole system. A level that is small enough to be
//! inverted, or that has few rows per rank, is replicated on all ranks, which compute the remaining levels
//! redundantly: communicating so few rows would take longer than computing them.
//!
//! Communication of a cycle: for each distributed level and each neighbour, one message per product with the
//! level's matrix, overlapped with the product of the diagonal block, one message for the product with `P`,
//! and one for that with `Pᵀ`. The right-hand side of the replicated levels takes one gather. Unsmoothed
//! aggregation of the finest level needs no message for its transfers, but a cycle visits all other levels three
//! times: [`AmgOptions::smooth_finest`] saves messages.

mod blocks;
mod level;
mod local;
mod memory;
#[cfg(feature = "cuda")]
mod on_cuda;
mod on_host;
mod rows;

use super::Ranks;
use super::local::RankMemory;
use super::matrix::RankMatrix;
use super::vector::{RankSpace, RankVector};
use crate::error::{Error, Result};
use crate::formats::MatrixSource;
use crate::formats::matrix_source::other_space;
use crate::formats::pattern::{Pattern, check_pattern};
use crate::host::{Host, HostVector};
use crate::numbers::Real;
use crate::preconditioners::amg::hierarchy;
use crate::preconditioners::amg::modes::NearNullSpace;
use crate::preconditioners::amg::report::{LevelReport, write_table};
use crate::preconditioners::amg::{Amg, AmgOptions, power_below};
use blocks::HostBlocks;
use krysp_kernels::multigrid::{self, LevelBytes, Levels, Shape};
use krysp_solvers::{BasicVector, Element, LinearOperator, Space, Vector, check_spaces};
use level::LevelMatrix;
use local::{LocalLevels, LocalSetup, Single};
use memory::{OnRanks, RankAggregates};
use rows::Rows;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A level with at most this many rows per rank, on average, is replicated on all ranks.
const FEW: u64 = 8;

/// The right-hand side may grow or shrink by this factor before `size`, by which it is divided, is changed:
/// the range of single precision is 1e-38 to 1e38.
const REACH: f64 = 1e12;

/// [`Amg`] over ranks: one hierarchy for the whole system, in the memory of the matrix: that of the hosts, or of the
/// GPUs of the ranks. `Display` prints a table of the levels.
///
/// ```no_run
/// use krysp::Cg;
/// use krysp::ranks::{RankAmg, RankMatrix};
///
/// fn solve(a: &RankMatrix<f64>, b: &[f64]) -> krysp::Result<Vec<f64>> {
///     let m = RankAmg::new(a)?;
///     Ok(Cg::new(a).preconditioner(m).rtol(1e-8).solve(b)?.x)
/// }
/// ```
pub struct RankAmg<T: Real, L: LocalLevels<T> = Host> {
    space: RankSpace<T, L>,
    options: AmgOptions,
    pattern: RowPattern,
    cycle: Mutex<Cycle<L>>,
    reports: Vec<LevelReport>,
    _keeps: L::Keeps,
}

/// A level that is distributed over the ranks.
type Level<L> = multigrid::Level<LevelMatrix<L>, Single<L>, Transfer<L>>;

/// The levels.
type Hierarchy<L> = multigrid::Hierarchy<LevelMatrix<L>, Single<L>, Transfer<L>, Last>;

/// Transfer to the next level and back, with what a refresh needs.
struct Transfer<L: LocalSetup> {
    /// `P` and `Pᵀ`.
    stored: [L::Stored; 2],
    exchange: L::Exchange,
    aggregates: Arc<RankAggregates<L>>,
    /// True if the prolongator is unsmoothed.
    unsmoothed: bool,
}

impl<L: LocalSetup> Transfer<L> {
    /// Bytes that both products read.
    fn bytes(&self) -> usize {
        self.stored.iter().map(LinearOperator::bytes).sum()
    }
}

/// The pattern of this rank's rows.
struct RowPattern {
    /// The patterns of entries in own columns, and of those in columns of other ranks.
    parts: [Arc<Pattern>; 2],
    /// The rows and columns of the second part.
    border: (Vec<u32>, Vec<u64>),
}

impl RowPattern {
    fn of<T: Real, L: LocalLevels<T>>(matrix: &RankMatrix<T, L>) -> Result<RowPattern> {
        let (rows, outside, ghosts) = matrix.border()?;
        let parts = [matrix.diagonal_block().structure(), outside.structure()];
        let parts = parts.map(|structure| structure.pattern.clone());
        Ok(RowPattern { parts, border: (rows.to_vec(), ghosts.to_vec()) })
    }

    /// Returns an error if another matrix has another pattern.
    fn check(&self, other: &RowPattern) -> Result<()> {
        self.parts.iter().zip(&other.parts).try_for_each(|(part, other)| check_pattern(part, other))?;
        if self.border == other.border { Ok(()) } else { Err(other_space()) }
    }
}

/// The levels and the workspace of a cycle.
struct Cycle<L: LocalSetup> {
    hierarchy: Hierarchy<L>,
    vectors: Vec<Workspace<L>>,
    /// Right-hand side and solution of the replicated levels.
    ends: [Single<L>; 2],
    /// The power of two by which the last right-hand side was divided.
    size: f64,
    /// Magnitude of this rank's part of the right-hand side, before the division by `size`.
    own: f64,
    /// Maximum of `own` over all ranks, once the messages of the cycle have brought it.
    largest: Option<f64>,
    ranks: Ranks,
}

/// The vectors of a level.
struct Workspace<L: LocalSetup> {
    b: Single<L>,
    x: RankVector<f32, L>,
    t: RankVector<f32, L>,
}

/// The levels that are replicated on all ranks.
#[derive(Clone, Debug)]
pub(super) struct Last {
    amg: Arc<Amg<f64>>,
    /// The near-null space of the replicated matrix's own rows, for a refresh.
    modes: NearNullSpace,
    /// The first row of each rank, then the total number of rows.
    bounds: Vec<usize>,
}

impl<T: Real, L: LocalLevels<T>> RankAmg<T, L> {
    /// Like [`Amg::new`]. Collective: all ranks call this. On GPUs, returns an error if a row of some level has more than 4096 blocks.
    pub fn new(matrix: &RankMatrix<T, L>) -> Result<RankAmg<T, L>> {
        RankAmg::with::<[T; 0]>(matrix, &[], AmgOptions::default())
    }

    /// Like [`Amg::with_near_null_space`], each rank with its part of the modes. Collective: all ranks call this.
    pub fn with_near_null_space<V: AsRef<[T]> + Sync>(
        matrix: &RankMatrix<T, L>,
        modes: &[V],
    ) -> Result<RankAmg<T, L>> {
        RankAmg::with(matrix, modes, AmgOptions::default())
    }

    /// Like [`Amg::with`], each rank with its part of the modes. Collective: all ranks call this.
    pub fn with<V: AsRef<[T]> + Sync>(
        matrix: &RankMatrix<T, L>,
        modes: &[V],
        options: AmgOptions,
    ) -> Result<RankAmg<T, L>> {
        let (started, space, ranks) = (Instant::now(), matrix.domain(), matrix.ranks());
        let check = || {
            options.check()?;
            modes.iter().try_for_each(|mode| space.vector(mode.as_ref()).map(|_| ()))?;
            Ok(())
        };
        ranks.all(check())?;
        let AmgOptions { strength, sweeps, max_coarse_size, smooth_finest } = options;
        let smooth_finest = smooth_finest.map_or(2, u64::from);
        let own =
            [modes.len() as u64, strength.to_bits(), sweeps as u64, max_coarse_size as u64, smooth_finest];
        if ranks.all_gather(own.to_vec())?.chunks(own.len()).any(|other| other != own) {
            let (what, expected) = ("the options, or the number of modes,", "the same on all ranks");
            return Err(Error::Option { what, got: "different ones".into(), expected });
        }
        let local = L::machine(space);
        let keeps = ranks.all(local.begin::<T>())?;
        let link = RankMemory::<f32>::link(&local, ranks)?;
        let mut memory = OnRanks::new(ranks, &local, link, options);
        memory.finest = Some(matrix.diagonal_block().structure().pattern.clone());
        let (rows, own) = (memory.rows_of(matrix)?, space.local_len());
        let (near, unsmoothed) = match modes.len() {
            0 => {
                let near = ranks.all(local.constants(own, rows.size))?;
                (near, memory.is_worthwhile(matrix, rows.size)?)
            }
            count => {
                let entry = |at: usize| Element::to_f64(modes[at % count].as_ref()[at / count]);
                let values = (0..own * count).map(entry).collect();
                memory.known = memory.detected(&rows, count)?;
                (ranks.all(local.modes(NearNullSpace { count, values }))?, false)
            }
        };
        let (hierarchy, reports) = hierarchy::build(&mut memory, rows, near, unsmoothed, started)?;
        let made = || {
            let vectors = hierarchy.levels.iter().map(Workspace::of).collect::<Result<Vec<_>>>()?;
            let last = hierarchy.last.as_ref().map_or(0, |last| last.own(ranks).len());
            let of_last = RankMemory::<f32>::space(&local, last);
            Ok((vectors, [of_last.zeros()?, of_last.zeros()?], RowPattern::of(matrix)?))
        };
        let (vectors, ends, pattern) = ranks.all(made())?;
        let (own, largest, size) = (0.0, None, 1.0);
        let cycle = Mutex::new(Cycle { hierarchy, vectors, ends, size, own, largest, ranks: ranks.clone() });
        Ok(RankAmg { space: space.clone(), options, pattern, cycle, reports, _keeps: keeps })
    }

    /// Recomputes the values of all levels for new values of the matrix; keeps aggregates, modes, and patterns.
    /// Collective: all ranks call this.
    pub fn refresh(&mut self, matrix: &RankMatrix<T, L>) -> Result<()> {
        let ranks = matrix.ranks().clone();
        let same_space = if *matrix.domain() == self.space { Ok(()) } else { Err(other_space()) };
        let same = same_space.and_then(|()| self.pattern.check(&RowPattern::of(matrix)?));
        ranks.all(same)?;
        let memory = OnRanks::new(&ranks, &L::machine(&self.space), None, self.options);
        let cycle = self.cycle.get_mut().unwrap_or_else(PoisonError::into_inner);
        let rows = memory.rows_of(matrix)?;
        hierarchy::refresh(&memory, &mut cycle.hierarchy, rows)
    }

    /// The aggregate of each own node of each level, `None` for nodes that are only smoothed.
    #[doc(hidden)]
    pub fn aggregates(&self) -> Result<Vec<Vec<Option<u32>>>> {
        let cycle = self.cycle.lock().unwrap_or_else(PoisonError::into_inner);
        let of_level = |level: &Level<L>| {
            let aggregates = &level.transfer.as_ref()?.aggregates;
            let nodes = level.a.domain().local_len() / aggregates.shape[0];
            let of_nodes = |t: Cow<'_, HostBlocks>| {
                (0..nodes).map(|node| t.pattern.row(node).first().copied()).collect()
            };
            Some(L::read(&aggregates.local.t).map(of_nodes))
        };
        cycle.hierarchy.levels.iter().filter_map(of_level).collect()
    }
}

impl<L: LocalSetup> Workspace<L> {
    fn of(level: &Level<L>) -> Result<Workspace<L>> {
        let space = level.a.domain();
        Ok(Workspace { b: space.own().zeros()?, x: space.zeros()?, t: space.zeros()? })
    }
}

impl Last {
    /// Replicates a level, with this rank's rows of its near-null space. Collective: all ranks call this.
    fn new<L: LocalSetup>(memory: &OnRanks<L>, rows: &Rows<L>, modes: NearNullSpace) -> Result<Last> {
        let OnRanks { ranks, options, .. } = memory;
        let (csr, whole) = rows.everywhere(ranks, &modes)?;
        let amg = ranks.all(Amg::of_nodes(&csr, rows.size, (whole, None), false, *options))?;
        let bounds = rows.bounds.iter().map(|&bound| bound as usize * rows.size).collect();
        Ok(Last { amg: Arc::new(amg), modes, bounds })
    }

    /// The rows of this rank.
    fn own(&self, ranks: &Ranks) -> std::ops::Range<usize> {
        self.bounds[ranks.rank()]..self.bounds[ranks.rank() + 1]
    }
}

/// Solves with the replicated levels of `last`. Only the distributed levels are scaled by `scale`, so the solution is
/// divided by it. Returns the maximum of `own` over all ranks, which is sent in the same message.
fn solve(ranks: &Ranks, last: Option<&Last>, scale: f64, own: f64, b: &mut [f32]) -> Result<f64> {
    let bounds = last.map_or(&[][..], |last| &last.bounds);
    let lengths = || (0..ranks.size()).map(|rank| bounds.get(rank + 1).map_or(0, |end| end - bounds[rank]));
    let most = lengths().max().unwrap_or(0);
    let mut message = vec![0.0f32; most + 1];
    message[..b.len()].copy_from_slice(b);
    // the base-2 logarithm of any `f64` fits into single precision
    message[most] = own.log2() as f32;
    let parts = ranks.all_gather(message)?;
    let parts = parts.chunks_exact(most + 1);
    if let Some(last) = last {
        let whole = parts.clone().zip(lengths()).flat_map(|(part, length)| &part[..length]);
        let whole: Vec<f64> = whole.map(|&b| f64::from(b)).collect();
        let mut solved = last.amg.domain().zeros()?;
        last.amg.apply(&HostVector::from_slice(&whole), &mut solved)?;
        let own = &solved.as_slice()[last.own(ranks)];
        b.iter_mut().zip(own).for_each(|(x, &own)| *x = (own / scale) as f32);
    }
    Ok(parts.map(|part| f64::from(part[most])).fold(f64::NEG_INFINITY, f64::max).exp2())
}

impl<L: LocalSetup> Levels for Cycle<L> {
    type Error = krysp_solvers::Error;

    fn shape(&self, level: usize) -> Option<Shape> {
        self.hierarchy.levels.get(level).map(Level::<L>::shape)
    }

    fn smooth(&mut self, at: usize, k: usize, from_zero: bool) -> krysp_solvers::Result<()> {
        let Level::<L> { a, inverse, weights, .. } = &self.hierarchy.levels[at];
        let Workspace { b, x, t } = &mut self.vectors[at];
        if from_zero {
            L::first_sweep(weights[k], inverse, b, x.own_mut());
        } else {
            a.apply(x, t)?;
            L::relax(weights[k], inverse, b, t.own(), x.own_mut());
        }
        Ok(())
    }

    fn restrict(&mut self, at: usize) -> krysp_solvers::Result<()> {
        let Level::<L> { a, transfer, .. } = &mut self.hierarchy.levels[at];
        let (vectors, below) = self.vectors.split_at_mut(at + 1);
        let Workspace { b, x, t, .. } = &mut vectors[at];
        a.apply(x, t)?;
        t.own_mut().axpby(&1.0.into(), b, &(-1.0).into());
        let to = below.first_mut().map_or(&mut self.ends[0], |below| &mut below.b);
        transfer.as_mut().map_or(Ok(()), |Transfer { stored: [_, r], exchange, .. }| {
            L::add_ghosts(exchange, |coarse| r.apply(t.own(), coarse), to)
        })
    }

    fn solve(&mut self) -> krysp_solvers::Result<()> {
        let Cycle { hierarchy, ends: [b, x], ranks, own, largest, .. } = self;
        let space = b.space().clone();
        let mut entries = vec![0.0; space.local_len()];
        space.store(b, &mut entries)?;
        *largest = Some(solve(ranks, hierarchy.last.as_ref(), hierarchy.scale, *own, &mut entries)?);
        space.load(&entries, x)
    }

    fn prolong(&mut self, at: usize) -> krysp_solvers::Result<()> {
        let (vectors, below) = self.vectors.split_at_mut(at + 1);
        let Workspace { x, t, .. } = &mut vectors[at];
        let from = below.first().map_or(&self.ends[1], |below| below.x.own());
        if let Some(Transfer { stored: [p, _], exchange, .. }) = &mut self.hierarchy.levels[at].transfer {
            p.apply(L::with_ghosts(exchange, from)?, t.own_mut())?;
            x.own_mut().axpy(&1.0.into(), t.own());
        }
        Ok(())
    }
}

impl<L: LocalSetup> Cycle<L> {
    /// The right-hand side and the solution of the finest level.
    fn ends(&mut self) -> [&mut Single<L>; 2] {
        match self.vectors.first_mut() {
            Some(Workspace { b, x, .. }) => [b, x.own_mut()],
            None => self.ends.each_mut(),
        }
    }

    /// Applies a cycle to `b`; returns the maximum of `own` over all ranks.
    fn run(&mut self, own: f64) -> krysp_solvers::Result<f64> {
        (self.own, self.largest) = (own, None);
        multigrid::cycle(self, 0, true)?;
        match self.largest {
            Some(largest) => Ok(largest),
            // there are no replicated levels
            None => Ok(solve(&self.ranks, None, 1.0, own, &mut [])?),
        }
    }
}

impl<T: Real, L: LocalLevels<T>> LinearOperator for RankAmg<T, L> {
    type Vector = RankVector<T, L>;

    fn domain(&self) -> &RankSpace<T, L> {
        &self.space
    }

    fn apply(&self, r: &RankVector<T, L>, z: &mut RankVector<T, L>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        let cycle = &mut *self.cycle.lock().unwrap_or_else(PoisonError::into_inner);
        let own = L::magnitude(r.own())?;
        loop {
            let down = 1.0 / cycle.size;
            let [b, _] = cycle.ends();
            L::narrow(r.own(), down, b)?;
            // the cycle reports the largest magnitude of `r` over all ranks; if `size` is too far from it, the
            // cycle is repeated with a new `size`
            let largest = cycle.run(own)?;
            let apart = largest / cycle.size;
            if !(largest.is_normal()) || (apart < REACH && apart > 1.0 / REACH) {
                break;
            }
            cycle.size = power_below(largest);
        }
        let up = cycle.hierarchy.scale * cycle.size;
        let [_, x] = cycle.ends();
        L::widen(x, up, z.own_mut())
    }

    fn bytes(&self) -> usize {
        let cycle = self.cycle.lock().unwrap_or_else(PoisonError::into_inner);
        let of_level = |level: &Level<L>| LevelBytes {
            sweep: level.a.bytes() + size_of::<f32>() * level.a.domain().local_len(),
            transfer: level.transfer.as_ref().map_or(0, Transfer::bytes),
        };
        cycle.hierarchy.bytes(of_level, |last| last.amg.bytes())
    }
}

/// Prints one line per level, with sizes over all ranks.
impl<T: Real, L: LocalLevels<T>> fmt::Display for RankAmg<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(&self.reports, f)
    }
}

impl<T: Real, L: LocalLevels<T>> fmt::Debug for RankAmg<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankAmg").field("space", &self.space).finish_non_exhaustive()
    }
}
