//! Setup of distributed levels: each rank stores the rows of its nodes, in host memory or on its GPU. Ranks exchange rows
//! at the borders, through host memory.
//!
//! ```text
//! columns of a level:     own nodes, then ghosts in ascending order
//! aggregates, T           of own nodes only
//! P = (I − ω D⁻¹ A_F) T   reads rows of T of ghosts
//! A P                     reads rows of P of ghosts
//! Pᵀ (A P)                rows owned by other ranks are sent there and added
//! ```

use super::Transfer;
use super::blocks::{HostBlocks, copy_rows};
use super::level::LevelMatrix;
use super::local::{LocalSetup, Tentative};
use super::on_host::tentative;
use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, MatrixSource, node_pattern, node_rows};
use crate::host::Host;
use crate::numbers::Real;
use crate::preconditioners::amg::AmgOptions;
use crate::preconditioners::amg::aggregates::Aggregates;
use crate::preconditioners::amg::blocks::{Blocks, transposed_pattern};
use crate::preconditioners::amg::modes::NearNullSpace;
use crate::preconditioners::amg::nodes::Nodes;
use crate::preconditioners::amg::stored::{expanded, gathered};
use crate::preconditioners::amg::unsmoothed::{OVER, is_worthwhile};
use crate::ranks::Ranks;
use crate::ranks::halo::Routes;
use crate::ranks::local::{Local, RankMemory};
use crate::ranks::matrix::RankMatrix;
use crate::ranks::vector::RankSpace;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::index::Offsets;
use krysp_kernels::multigrid::gains;
use krysp_solvers::{Element, LinearOperator, Space};
use rayon::prelude::*;
use std::cell::Cell;
use std::sync::Arc;

/// A level's matrix in double precision: the rows of own nodes.
pub(super) struct Rows<L: LocalSetup> {
    pub(super) ranks: Ranks,
    pub(super) local: L,
    /// The first node of each rank, then the total number of nodes.
    pub(super) bounds: Vec<u64>,
    /// The nodes of other ranks that own rows read, in ascending order.
    ghosts: Vec<u64>,
    routes: Routes,
    /// Rows per node.
    pub(super) size: usize,
    pub(super) a: L::Blocks,
}

/// The aggregates of own nodes and of ghosts, and the tentative prolongator on them.
pub(super) struct RankAggregates<L: LocalSetup> {
    pub(super) local: Tentative<L>,
    /// Rows per node, and number of modes.
    pub(super) shape: [usize; 2],
    /// The first aggregate of each rank, then the total number of aggregates.
    bounds: Vec<u64>,
    /// The aggregates of own nodes, then those of ghosts.
    near: Columns,
}

/// Aggregates, and the near-null space of the next level.
pub(super) type Aggregated<L> = (RankAggregates<L>, NearNullSpace<<L as LocalSetup>::Numbers>);

impl<L: LocalSetup> Rows<L> {
    /// Reads the rows of a matrix. Collective: all ranks call this.
    pub(super) fn of<T: Real>(local: &L, matrix: &RankMatrix<T, L>) -> Result<Rows<L>>
    where
        L: Local<T>,
    {
        let (ranks, space, size) = (matrix.ranks().clone(), matrix.domain(), common_size(matrix)?);
        let mut ghosts: Vec<u64> = matrix.ghosts().iter().map(|ghost| ghost / size as u64).collect();
        ghosts.dedup();
        let made = || match size {
            1 => local.rows(matrix),
            size => local.upload(in_blocks(matrix, &ghosts, size)?),
        };
        let a = ranks.all(made())?;
        let bounds: Vec<u64> = space.bounds().iter().map(|bound| bound / size as u64).collect();
        let routes = Routes::new(&ranks, &bounds, &ghosts)?;
        Ok(Rows { ranks, local: local.clone(), bounds, ghosts, routes, size, a })
    }

    /// Returns whether the finest level of a matrix without given modes uses unsmoothed aggregation. Collective:
    /// all ranks call this.
    pub(super) fn is_worthwhile<T: Real>(
        &self,
        matrix: &RankMatrix<T, L>,
        options: &AmgOptions,
    ) -> Result<bool>
    where
        L: Local<T>,
    {
        if options.smooth_finest != Some(false) {
            return Ok(false);
        }
        let values = |at: &[usize]| self.local.entries_at(matrix, at);
        let pattern = &matrix.diagonal_block().structure().pattern;
        let own = self.ranks.all(is_worthwhile(false, self.size, pattern, values))?;
        Ok(self.ranks.gather(vec![u8::from(own)])?.iter().all(|&own| own == 1))
    }

    /// Aggregates nodes of equal rows with at most `most` unknowns, unless some rank has no such nodes. Collective: all
    /// ranks call this.
    pub(super) fn of_equal_rows(&self, most: usize, options: &AmgOptions) -> Result<Option<Aggregates>> {
        if self.size > 1 {
            return Ok(None);
        }
        let a = self.ranks.all(L::read(&self.a))?;
        let nodes = Nodes::of_equal_rows(&a.pattern, most);
        let there = self.ranks.gather(vec![u8::from(nodes.is_some() || self.nodes() == 0)])?;
        if there.contains(&0) {
            return Ok(None);
        }
        let nodes = nodes.unwrap_or_default();
        let aggregates = a.own_part().and_then(|own| nodes.aggregated(own.view(), options.strength));
        self.ranks.all(aggregates).map(Some)
    }

    /// Number of own nodes.
    pub(super) fn nodes(&self) -> usize {
        let rank = self.ranks.rank();
        (self.bounds[rank + 1] - self.bounds[rank]) as usize
    }

    /// Number of rows over all ranks.
    pub(super) fn all(&self) -> u64 {
        self.bounds[self.ranks.size()] * self.size as u64
    }

    /// Converts to single precision, times `scale`. Collective: all ranks call this.
    pub(super) fn narrow(
        &self,
        link: Option<<L as RankMemory<f32>>::Link>,
        scale: f64,
    ) -> Result<LevelMatrix<L>> {
        let (inside, outside) = self.ranks.all(self.local.level(&self.a, scale))?;
        let own = RankMemory::<f32>::space(&self.local, self.nodes() * self.size);
        let bounds = self.bounds.iter().map(|bound| bound * self.size as u64).collect();
        let space = RankSpace::of(self.ranks.clone(), bounds, own, link);
        let routes = self.routes.widened(self.size);
        LevelMatrix::new(space, &self.local, &routes, inside, (&outside, scale), L::entries(&self.a))
    }

    /// Replicates the rows of all ranks on each. Collective: all ranks call this.
    pub(super) fn everywhere(&self, modes: &NearNullSpace) -> Result<(Csr<f64>, NearNullSpace)> {
        let everywhere = |own: Vec<u64>| -> Result<Vec<u64>> {
            Ok(self.ranks.exchange(vec![own; self.ranks.size()])?.concat())
        };
        let a = self.ranks.all(L::read(&self.a))?;
        let pattern = self.ranks.all(expanded(&a.pattern, a.shape))?;
        let (size, nodes) = (self.size as u64, self.columns());
        let name = |&column: &u32| nodes.name(column / size as u32) * size + u64::from(column) % size;
        let lengths = everywhere(pattern.offsets.lengths().map(|length| length as u64).collect())?;
        let columns = everywhere(pattern.columns.iter().map(name).collect())?;
        let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect();
        let numbers = |bits: Vec<u64>| -> Vec<f64> { bits.into_iter().map(f64::from_bits).collect() };
        let values = numbers(everywhere(bits(&by_rows(a.view())))?);
        let values_of_modes = numbers(everywhere(bits(&modes.values))?);
        let mut offsets = vec![0usize];
        for length in lengths {
            offsets.push(offsets[offsets.len() - 1] + length as usize);
        }
        let rows = self.all() as usize;
        let csr = Csr::from_csr(rows, rows, &offsets, &columns, &values);
        Ok((self.ranks.all(csr)?, NearNullSpace { count: modes.count, values: values_of_modes }))
    }

    fn columns(&self) -> Columns {
        let first = self.bounds[self.ranks.rank()];
        Columns { first, own: self.nodes(), ghosts: self.ghosts.clone() }
    }

    /// Aggregates the own nodes, unless their aggregates are `known`; `None` if coarsening is not worthwhile. Collective:
    /// all ranks call this.
    pub(super) fn aggregates(
        &self,
        modes: &NearNullSpace<L::Numbers>,
        options: &AmgOptions,
        known: Option<Aggregates>,
    ) -> Result<Option<Aggregated<L>>> {
        let (ranks, count, sent) = (&self.ranks, modes.count, self.routes.sent());
        // aggregates have nodes of one rank, so connections to other ranks matter for thresholds only
        let (Tentative { t, strong }, below) = match known {
            Some(known) => ranks.all(self.known(known, modes))?,
            None => self.found(modes, options)?,
        };
        let own = L::columns(&t);
        let bounds: Vec<u64> = sums(&ranks.gather(vec![own as u64])?);
        // one decision of all ranks: a rank whose own nodes coarsen little takes part
        if !gains(bounds[ranks.size()], count, self.all()) {
            return Ok(None);
        }
        // number the aggregates over all ranks; those of ghosts become columns behind the own ones
        let numbered = Columns { first: bounds[ranks.rank()], own, ghosts: vec![] };
        let came = Received::new(&self.routes, false, &ranks.all(L::rows_at(&t, sent))?, &numbered)?;
        let near = Columns::new(numbered.first, own, &came.names);
        let t =
            came.placed(&near).and_then(|rows| L::stacked(&t, self.nodes(), (own, &[]), &rows, near.count()));
        let local = Tentative { t: ranks.all(t)?, strong };
        let below = NearNullSpace { count, values: below };
        Ok(Some((RankAggregates { local, shape: [self.size, count], bounds, near }, below)))
    }

    /// The tentative prolongator on known aggregates of single unknowns, and the modes of the next level.
    fn known(
        &self,
        known: Aggregates,
        modes: &NearNullSpace<L::Numbers>,
    ) -> Result<(Tentative<L>, L::Numbers)> {
        let modes = NearNullSpace { count: modes.count, values: L::read_numbers(&modes.values)? };
        let (Tentative::<Host> { t, .. }, below) = tentative(None, known, 1, &modes)?;
        Ok((Tentative { t: self.local.upload(t)?, strong: None }, self.local.numbers(below)?))
    }

    /// Aggregates the own nodes. Collective: all ranks call this.
    fn found(
        &self,
        modes: &NearNullSpace<L::Numbers>,
        options: &AmgOptions,
    ) -> Result<(Tentative<L>, L::Numbers)> {
        // true while no rank has failed alone: one that has takes part in the next `all` of the others
        let together = Cell::new(false);
        let beyond = |own: Result<Vec<f64>>| {
            together.set(true);
            let came = self.routes.lists(false, &self.ranks.all(own)?, &|at| at)?;
            together.set(false);
            Ok(came)
        };
        let found = L::aggregated(&self.a, modes, options, self.routes.sent(), &beyond);
        if together.get() { found } else { self.ranks.all(found) }
    }

    /// The next level, and the transfer to it. `smoothed` has the inverse diagonal and `ω`; `None` means unsmoothed
    /// aggregation: aggregates have nodes of one rank, so transfers then need no communication. Collective: all ranks
    /// call this.
    pub(super) fn coarser(
        &self,
        aggregates: Arc<RankAggregates<L>>,
        smoothed: Option<(&L::Inverse, f64)>,
        options: &AmgOptions,
    ) -> Result<(Transfer<L>, Rows<L>)> {
        let (ranks, local) = (&self.ranks, &self.local);
        let RankAggregates { bounds, near, .. } = &*aggregates;
        let ghosts = if smoothed.is_some() { near.ghosts.clone() } else { vec![] };
        let near = Columns { first: near.first, own: near.own, ghosts };
        let made = || {
            let (local, nodes) = (&aggregates.local, self.nodes());
            let p = match smoothed {
                Some(smoothed) => L::prolongator(&self.a, local, smoothed, options)?,
                None => {
                    L::stacked(&L::ones(&local.t)?, nodes, (near.own, &[]), &HostBlocks::none()?, near.own)?
                }
            };
            let rows = L::rows_at(&p, self.routes.sent())?;
            Ok((p, rows))
        };
        let (p, rows) = ranks.all(made())?;
        let came = Received::new(&self.routes, false, &rows, &near)?;
        let columns = Columns::new(near.first, near.own, &[&*near.ghosts, &came.names].concat());
        let moved = columns.places(&near.ghosts);
        let factor = if smoothed.is_some() { 1.0 } else { f64::from(OVER) };
        let made = || {
            let below = came.placed(&columns)?;
            let all = L::stacked(&p, self.nodes(), (near.own, &moved), &below, columns.count())?;
            local.galerkin(&self.a, [&p, &all], factor)
        };
        let (partial, stored) = ranks.all(made())?;
        let routes = Routes::new(ranks, bounds, &near.ghosts)?;
        let modes = aggregates.shape[1];
        let coarse = self.summed(partial, &columns, &routes, (bounds, near.own, modes))?;
        let (width, routes) = (near.count() * modes, routes.widened(modes));
        let exchange = local.exchange(routes, width)?;
        Ok((Transfer { stored, exchange, aggregates, unsmoothed: smoothed.is_none() }, coarse))
    }

    /// Adds the rows received from other ranks to the own rows of `partial`, which gives the next level: a product
    /// with a matrix of zeros and ones.
    fn summed(
        &self,
        partial: L::Blocks,
        columns: &Columns,
        routes: &Routes,
        (bounds, own, size): (&[u64], usize, usize),
    ) -> Result<Rows<L>> {
        let (ranks, local) = (&self.ranks, self.local.clone());
        let there: Vec<u32> = (own as u32..(own + routes.ghost_count()) as u32).collect();
        let rows = ranks.all(L::rows_at(&partial, &there))?;
        let came = Received::new(routes, true, &rows, columns)?;
        let made = || {
            if columns.ghosts.is_empty() && routes.sent().is_empty() {
                return Ok((partial, columns.clone()));
            }
            let used = L::used(&partial, own)?;
            let ghosts = columns.ghosts.iter().zip(&used[own..]);
            let here: Vec<u64> = ghosts.filter(|(_, used)| **used).map(|(&ghost, _)| ghost).collect();
            let joined = Columns::new(columns.first, own, &[here, came.names.clone()].concat());
            // columns without entries get a place, too, which is not read
            let moved = joined.places(&columns.ghosts);
            let stacked = L::stacked(&partial, own, (own, &moved), &came.placed(&joined)?, joined.count())?;
            // an own row, and the received rows for it in the order of the ranks
            let rows: Vec<u32> = (0..own as u32).chain(routes.sent().iter().copied()).collect();
            let terms = Pattern::sorted(Offsets::of_rows(rows.len(), &|_| 1), rows, own)?;
            let terms = HostBlocks::identities(Arc::new(transposed_pattern(&terms)?.0), size);
            Ok((L::product(&local.upload(terms)?, &stacked)?, joined))
        };
        let (a, joined) = ranks.all(made())?;
        let routes = Routes::new(ranks, bounds, &joined.ghosts)?;
        Ok(Rows {
            ranks: ranks.clone(),
            local,
            bounds: bounds.to_vec(),
            ghosts: joined.ghosts,
            routes,
            size,
            a,
        })
    }
}

/// Rows that other ranks sent: the length of each, and the global columns and values of their blocks.
struct Received {
    lengths: Vec<u64>,
    names: Vec<u64>,
    values: Vec<f64>,
    shape: [usize; 2],
}

impl Received {
    /// Exchanges once: sends a row for each entry that others read, or, if `back`, a row for each ghost to its owner.
    /// Collective: all ranks call this.
    fn new(routes: &Routes, back: bool, rows: &HostBlocks, columns: &Columns) -> Result<Received> {
        let (pattern, width) = (&rows.pattern, rows.width());
        let lengths: Vec<u64> = pattern.offsets.lengths().map(|length| length as u64).collect();
        let names: Vec<u64> = pattern.columns.iter().map(|&column| columns.name(column)).collect();
        Ok(Received {
            lengths: routes.lists(back, &lengths, &|row| row)?,
            names: routes.lists(back, &names, &|row| pattern.offsets.at(row))?,
            values: routes.lists(back, &rows.values, &|row| pattern.offsets.at(row) * width)?,
            shape: rows.shape,
        })
    }

    /// The rows with local columns.
    fn placed(&self, columns: &Columns) -> Result<HostBlocks> {
        let width = self.shape[0] * self.shape[1];
        let offsets = Offsets::from_lengths(self.lengths.iter().map(|&length| length as usize));
        let places = columns.places(&self.names);
        // received rows are in the order of the local columns of their rank
        let mut order = Buffer::<u32>::zeros(places.len());
        copy_rows(&offsets, 1, &mut order, &|row, to| {
            to.iter_mut().zip(offsets.range(row)).for_each(|(to, at)| *to = at as u32);
            to.sort_unstable_by_key(|&at| places[at as usize]);
        });
        let sorted = map_rows(order.len(), 2, &|at| places[order[at] as usize]);
        let value = |at: usize| self.values[order[at / width] as usize * width + at % width];
        let values = map_rows(self.values.len(), 2, &value).into();
        let pattern = Arc::new(Pattern::sorted(offsets, sorted, columns.count())?);
        Ok(HostBlocks { pattern, shape: self.shape, values })
    }
}

/// The columns used by a rank: its own, followed by those of other ranks in ascending order.
#[derive(Clone)]
struct Columns {
    first: u64,
    own: usize,
    ghosts: Vec<u64>,
}

impl Columns {
    /// Takes the columns of other ranks from a list.
    fn new(first: u64, own: usize, names: &[u64]) -> Columns {
        let here = first..first + own as u64;
        let mut ghosts: Vec<u64> = names.iter().copied().filter(|name| !here.contains(name)).collect();
        ghosts.par_sort_unstable();
        ghosts.dedup();
        Columns { first, own, ghosts }
    }

    fn count(&self) -> usize {
        self.own + self.ghosts.len()
    }

    /// Local positions of global columns.
    fn places(&self, names: &[u64]) -> Vec<u32> {
        let (first, end) = (self.first, self.first + self.own as u64);
        map_rows(names.len(), 32, &|at| match names[at] {
            name if (first..end).contains(&name) => (name - first) as u32,
            name => (self.own + self.ghosts.partition_point(|&ghost| ghost < name)) as u32,
        })
    }

    fn name(&self, place: u32) -> u64 {
        let place = place as usize;
        if place < self.own { self.first + place as u64 } else { self.ghosts[place - self.own] }
    }
}

/// The own rows of a matrix in blocks of `size` rows, from host memory; `ghosts` are the nodes of other ranks.
fn in_blocks<T: Real, L: Local<T>>(
    matrix: &RankMatrix<T, L>,
    ghosts: &[u64],
    size: usize,
) -> Result<HostBlocks> {
    let csr = matrix.whole()?;
    let entries = map_rows(csr.nnz(), 2, &|at| Element::to_f64(csr.entries()[at]));
    // own rows may read only some unknowns of a ghost node: give the node columns for all of them
    let own = csr.rows();
    let place = |ghost: u64| {
        let node = ghosts.partition_point(|&node| node < ghost / size as u64);
        (own + node * size + (ghost % size as u64) as usize) as u32
    };
    let places: Vec<u32> = matrix.ghosts().iter().map(|&ghost| place(ghost)).collect();
    let moved = |&column: &u32| match (column as usize).checked_sub(own) {
        None => column,
        Some(ghost) => places[ghost],
    };
    let columns: Vec<u32> = csr.columns().iter().map(moved).collect();
    let lengths = Offsets::from_lengths(csr.row_lengths());
    let whole = Pattern::sorted(lengths, columns, own + ghosts.len() * size)?;
    let pattern = node_pattern(&whole, size)?;
    let values = gathered(&entries, &whole, &pattern, size);
    Ok(HostBlocks { pattern: Arc::new(pattern), shape: [size; 2], values })
}

/// Number of rows per node, determined from the patterns of the ranks' diagonal blocks; 1 if the ranks do not
/// agree, or if a rank does not have whole nodes.
fn common_size<T: Real, L: Local<T>>(matrix: &RankMatrix<T, L>) -> Result<usize> {
    let (ranks, space) = (matrix.ranks(), matrix.domain());
    let own = node_rows(&matrix.diagonal_block().structure().pattern).0 as u64;
    let whole = space.bounds().iter().all(|bound| bound.is_multiple_of(own));
    // a rank without rows accepts the size of the other ranks
    let own = if space.local_len() == 0 { 0 } else { own };
    let mut sizes = ranks.gather(vec![if whole { own } else { own.min(1) }])?;
    sizes.retain(|&size| size > 0);
    sizes.dedup();
    Ok(if let [size] = sizes[..] { size as usize } else { 1 })
}

/// The values in CSR order of the scalar matrix.
fn by_rows(blocks: Blocks<'_>) -> Vec<f64> {
    let rows = blocks.shape[0];
    let of_node = |node: usize| {
        (0..rows).flat_map(move |row| {
            blocks.pattern.offsets.range(node).flat_map(move |entry| blocks.line(node, entry, row))
        })
    };
    (0..blocks.pattern.rows()).flat_map(of_node).copied().collect()
}

/// Exclusive prefix sums, followed by the total.
fn sums(numbers: &[u64]) -> Vec<u64> {
    let mut sum = 0;
    let sums = numbers.iter().map(|number| {
        sum += number;
        sum
    });
    std::iter::once(0).chain(sums).collect()
}
