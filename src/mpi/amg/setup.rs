//! Setup of distributed levels: each rank has the rows of its own nodes.
//!
//! ```text
//! columns of a level:     own nodes, then ghosts in ascending order
//! aggregates, T           of own nodes only
//! P = (I − ω D⁻¹ A_F) T   reads aggregates and T of ghosts
//! A P                     reads rows of P of ghosts
//! Pᵀ (A P)                rows owned by other ranks are sent there and added
//! ```

use super::Transfer;
use crate::error::Result;
use crate::formats::matrix_source::other_space;
use crate::formats::pattern::{Pattern, check_pattern};
use crate::formats::{Csr, Format, MatrixSource, Source, node_pattern, node_rows};
use crate::host::HostSpace;
use crate::mpi::halo::Routes;
use crate::mpi::local::Local;
use crate::mpi::matrix::RankMatrix;
use crate::mpi::ranks::Ranks;
use crate::numbers::Real;
use crate::preconditioners::amg::AmgOptions;
use crate::preconditioners::amg::aggregates::{Aggregates, NONE};
use crate::preconditioners::amg::blocks::{
    Blocks, LeftFactor, RowAccess as _, Transposed, transposed_pattern,
};
use crate::preconditioners::amg::coarsening::Smoother;
use crate::preconditioners::amg::modes::NearNullSpace;
use crate::preconditioners::amg::nodes::Nodes;
use crate::preconditioners::amg::product::{self, Pieces};
use crate::preconditioners::amg::stored::{Stored, expanded, gathered, rounded};
use crate::preconditioners::amg::strength::Strength;
use crate::preconditioners::amg::unsmoothed::{OVER, Unsmoothed, is_worthwhile};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::index::Offsets;
use krysp_kernels::multigrid::gains;
use krysp_solvers::{Element, LinearOperator, Space};
use std::sync::Arc;

/// Marks a node without an aggregate, in the ordering over all ranks.
const NOWHERE: u64 = u64::MAX;

/// A level's matrix in double precision: the rows of own nodes.
pub(super) struct Rows {
    pub(super) ranks: Ranks,
    /// The first node of each rank, then the total number of nodes.
    pub(super) bounds: Vec<u64>,
    /// The nodes of other ranks that own rows read, in ascending order.
    ghosts: Vec<u64>,
    routes: Routes,
    pattern: Arc<Pattern>,
    /// Rows per node.
    pub(super) size: usize,
    values: Buffer<f64>,
}

/// The nodes that own rows read, and their pattern.
pub(super) struct NodePattern {
    pattern: Arc<Pattern>,
    size: usize,
    ghosts: Vec<u64>,
}

impl NodePattern {
    /// Returns an error if another matrix has other nodes or another pattern.
    pub(super) fn check(&self, other: &NodePattern) -> Result<()> {
        check_pattern(&self.pattern, &other.pattern)?;
        match self.size == other.size && self.ghosts == other.ghosts {
            true => Ok(()),
            false => Err(other_space()),
        }
    }
}

/// The aggregates of own nodes and of ghosts, and the tentative prolongator on them.
pub(super) struct RankAggregates {
    strong: Option<Pattern>,
    /// The column of each node's aggregate, or [`NONE`]: own nodes, then ghosts.
    pub(super) of_node: Vec<u32>,
    tentative: Vec<f64>,
    /// Rows per node, and number of modes.
    pub(super) shape: [usize; 2],
    /// The first aggregate of each rank, then the total number of aggregates.
    bounds: Vec<u64>,
    /// The aggregates of own nodes, then those of ghosts.
    pub(super) near: Columns,
    /// The near-null space of the next level.
    pub(super) below: NearNullSpace,
}

impl Rows {
    /// Reads the rows of a matrix. Collective: all ranks call this.
    pub(super) fn of<T: Real, L: Local<T>>(matrix: &RankMatrix<T, L>) -> Result<Rows> {
        let (ranks, space) = (matrix.ranks().clone(), matrix.domain());
        let whole = matrix.whole();
        let csr = ranks.all(whole)?;
        let size = common_size(matrix)?;
        let entries = map_rows(csr.nnz(), 2, &|at| Element::to_f64(csr.entries()[at]));
        let mut ghosts: Vec<u64> = matrix.ghosts().iter().map(|ghost| ghost / size as u64).collect();
        ghosts.dedup();
        let (pattern, values) = match size {
            1 => (csr.source().pattern.in_order(), entries.into()),
            size => {
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
                let lengths = csr.row_lengths();
                let whole =
                    Pattern::sorted(Offsets::from_lengths(lengths), columns, own + ghosts.len() * size);
                let whole = ranks.all(whole)?;
                let pattern = ranks.all(node_pattern(&whole, size))?;
                let values = gathered(&entries, &whole, &pattern, size);
                (Arc::new(pattern), values)
            }
        };
        let bounds: Vec<u64> = space.bounds().iter().map(|bound| bound / size as u64).collect();
        let routes = Routes::new(&ranks, &bounds, &ghosts)?;
        Ok(Rows { ranks, bounds, ghosts, routes, pattern, size, values })
    }

    /// Returns whether the finest level of a matrix without given modes uses unsmoothed aggregation. Collective:
    /// all ranks call this.
    pub(super) fn is_worthwhile(&self, options: &AmgOptions) -> Result<bool> {
        let values = |at: &[usize]| Ok(at.iter().map(|&at| self.values[at]).collect());
        let smooth = options.smooth_finest.unwrap_or(true);
        let own = self.ranks.all(is_worthwhile(smooth, self.size, &self.pattern, values))?;
        Ok(self.ranks.gather(vec![u8::from(own)])?.iter().all(|&own| own == 1))
    }

    /// The nodes and their pattern.
    pub(super) fn nodes(&self) -> NodePattern {
        NodePattern { pattern: self.pattern.clone(), size: self.size, ghosts: self.ghosts.clone() }
    }

    /// Groups equal rows into nodes of at most `most` unknowns, unless some rank has none. Collective: all ranks
    /// call this.
    pub(super) fn equal_rows(&self, most: usize) -> Result<Option<Nodes>> {
        let nodes = if self.size == 1 { Nodes::of_equal_rows(&self.pattern, most) } else { None };
        let there = self.ranks.gather(vec![u8::from(nodes.is_some() || self.pattern.rows() == 0)])?;
        Ok(if there.contains(&0) { None } else { Some(nodes.unwrap_or_default()) })
    }

    pub(super) fn blocks(&self) -> Blocks<'_> {
        Blocks::new(&self.pattern, [self.size; 2], &self.values)
    }

    fn first(&self) -> u64 {
        self.bounds[self.ranks.rank()]
    }

    /// Number of rows over all ranks.
    pub(super) fn all(&self) -> u64 {
        self.bounds[self.ranks.size()] * self.size as u64
    }

    /// Global index of a column of [`Rows::expanded`].
    fn column(&self, local: u32) -> u64 {
        let (local, size) = (local as usize, self.size);
        let (node, own) = (local / size, self.pattern.rows());
        let node = if node < own { self.first() + node as u64 } else { self.ghosts[node - own] };
        node * size as u64 + (local % size) as u64
    }

    /// Offsets and global columns of the scalar rows.
    fn expanded(&self) -> Result<(Vec<usize>, Vec<u64>)> {
        let pattern = expanded(&self.pattern, [self.size; 2])?;
        let offsets = (0..=pattern.rows()).map(|row| pattern.offsets.at(row)).collect();
        Ok((offsets, map_rows(pattern.entries(), 3, &|at| self.column(pattern.columns[at]))))
    }

    /// Converts to single precision, times `scale`. Collective: all ranks call this.
    pub(super) fn narrow(&self, scale: f64) -> Result<RankMatrix<f32>> {
        let rows = expanded(&self.pattern, [self.size; 2]).map(|pattern| {
            let [domain, range] = [pattern.cols(), pattern.rows()].map(HostSpace::new);
            Csr::from_source(Source::new(pattern, domain, range), rounded(self.blocks(), scale))
        });
        let (rows, size) = (self.ranks.all(rows)?, self.size as u64);
        let ghosts = self.ghosts.iter().flat_map(|ghost| ghost * size..(ghost + 1) * size).collect();
        RankMatrix::from_whole(&rows, ghosts, &self.routes.widened(self.size))
    }

    /// Replicates the rows of all ranks on each. Collective: all ranks call this.
    pub(super) fn everywhere(&self, modes: &NearNullSpace) -> Result<(Csr<f64>, NearNullSpace)> {
        let everywhere = |own: Vec<u64>| -> Result<Vec<u64>> {
            Ok(self.ranks.exchange(vec![own; self.ranks.size()])?.concat())
        };
        let (offsets, columns) = self.ranks.all(self.expanded())?;
        let lengths = everywhere(offsets.windows(2).map(|pair| (pair[1] - pair[0]) as u64).collect())?;
        let columns = everywhere(columns)?;
        let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect();
        let numbers = |bits: Vec<u64>| -> Vec<f64> { bits.into_iter().map(f64::from_bits).collect() };
        let values = numbers(everywhere(bits(&by_rows(self.blocks())))?);
        let values_of_modes = numbers(everywhere(bits(&modes.values))?);
        let mut offsets = vec![0usize];
        for length in lengths {
            offsets.push(offsets[offsets.len() - 1] + length as usize);
        }
        let rows = self.all() as usize;
        let csr = Csr::from_csr(rows, rows, &offsets, &columns, &values);
        Ok((self.ranks.all(csr)?, NearNullSpace { count: modes.count, values: values_of_modes }))
    }

    /// Aggregates the own nodes; `None` if the next level would be empty or have more than 0.9 times as many
    /// rows. Collective: all ranks call this.
    pub(super) fn aggregates(
        &self,
        modes: &NearNullSpace,
        theta: f64,
        nodes: Option<Nodes>,
    ) -> Result<Option<RankAggregates>> {
        let (ranks, a) = (&self.ranks, self.blocks());
        let beyond = |mut own: Vec<f64>| {
            let ghosts = self.routes.ghosts(1, &own)?;
            own.extend(ghosts);
            Ok(own)
        };
        let (strong, own) = match nodes {
            // aggregates have nodes of one rank, so connections to other ranks matter for thresholds only
            Some(nodes) => {
                let known = self.own_part().and_then(|(pattern, values)| {
                    nodes.aggregated(Blocks::new(&pattern, [1, 1], &values), theta)
                });
                (None, ranks.all(known)?)
            }
            None => {
                let Strength { strong, left_out } = ranks.all(Strength::new(a, theta, &beyond))?;
                let graph = ranks.all(own_part(strong.as_ref().unwrap_or(a.pattern)))?;
                (strong, Aggregates::new(&graph, &left_out))
            }
        };
        let bounds: Vec<u64> = sums(&ranks.gather(vec![own.count as u64])?);
        let all = bounds[ranks.size()];
        // one decision of all ranks: a rank whose own nodes coarsen little takes part
        if !gains(all, modes.count, self.all()) {
            return Ok(None);
        }
        let (mut tentative, below) = modes.orthonormal(&own, self.size);
        let strong = strong.filter(|_| modes.count == 1);
        let Aggregates { count, of_node } = own;

        // number the aggregates over all ranks; those of ghosts become columns behind the own ones
        let first = bounds[ranks.rank()];
        let name = |&own: &u32| if own == NONE { NOWHERE } else { first + u64::from(own) };
        let names: Vec<u64> = of_node.iter().map(name).collect();
        let of_ghosts = self.routes.ghosts(1, &names)?;
        let shape = [self.size, modes.count];
        tentative.extend(self.routes.ghosts(shape[0] * shape[1], &tentative)?);
        let near = Columns::new(first, count, of_ghosts.iter().copied().filter(|&of| of != NOWHERE));
        let place = |&of: &u64| if of == NOWHERE { NONE } else { near.place(of) };
        let of_node = of_node.into_iter().chain(of_ghosts.iter().map(place)).collect();
        Ok(Some(RankAggregates { strong, of_node, tentative, shape, bounds, near, below }))
    }

    /// Pattern and values of the entries in columns of own nodes, for nodes of one unknown.
    fn own_part(&self) -> Result<(Pattern, Vec<f64>)> {
        let pattern = own_part(&self.pattern)?;
        let row = |row: usize| &self.values[self.pattern.offsets.at(row)..][..pattern.row(row).len()];
        let values = (0..pattern.rows()).flat_map(row).copied().collect();
        Ok((pattern, values))
    }

    /// The next level by unsmoothed aggregation, and the transfer to it. Aggregates have nodes of one rank, so
    /// transfers need no communication. Collective: all ranks call this.
    pub(super) fn unsmoothed(&self, aggregates: Arc<RankAggregates>) -> Result<(Transfer, Rows)> {
        let RankAggregates { of_node, bounds, near, .. } = &*aggregates;
        let own = Aggregates { count: near.own, of_node: of_node.clone() };
        let made = || {
            let (Unsmoothed { members, coarse, .. }, values) =
                Unsmoothed::new(self.blocks(), own, near.count())?;
            let members = Arc::new(members);
            let joined = Arc::new(transposed_pattern(&members)?.0);
            let over = Buffer::from(vec![OVER; joined.entries()]);
            let ones = Buffer::from(vec![1.0; members.entries()]);
            Ok((Stored::rows(&joined, over), Stored::rows(&members, ones), coarse, values))
        };
        let (p, r, pattern, values) = self.ranks.all(made())?;
        let routes = Routes::new(&self.ranks, bounds, &near.ghosts)?;
        let (ranks, bounds, ghosts) = (self.ranks.clone(), bounds.clone(), near.ghosts.clone());
        let local = Routes::new(&ranks, &bounds, &[])?;
        let coarse = Rows { ranks, bounds, ghosts, routes, pattern, size: 1, values };
        Ok((Transfer::new(p, r, local, near.own, (aggregates, true))?, coarse))
    }

    /// The next level with a smoothed prolongator, and the transfer to it. Collective: all ranks call this.
    pub(super) fn smoothed(
        &self,
        aggregates: Arc<RankAggregates>,
        inverse_diagonal: &[f64],
        omega: f64,
    ) -> Result<(Transfer, Rows)> {
        let (ranks, a, nodes) = (&self.ranks, self.blocks(), self.pattern.rows());
        let RankAggregates { strong, of_node, tentative, shape, bounds, near, .. } = &*aggregates;
        let (shape, modes, strong) = (*shape, shape[1], strong.as_ref());
        let smoother = Smoother { a, strong, of_node, tentative, modes, inverse_diagonal, omega };
        let made = smoother.each_row(|size, row| product::assembled([nodes, near.count()], size, row));
        let (pattern, prolongation) = ranks.all(made)?;
        let pattern = Arc::new(pattern);
        let p = Blocks::new(&pattern, shape, &prolongation);
        let (transposed, from) = ranks.all(transposed_pattern(&pattern))?;
        let transposed = Arc::new(transposed);
        let r = Transposed { pattern: &transposed, of: p, from: &from };

        let routes = Routes::new(ranks, bounds, &near.ghosts)?;
        let (with_ghosts, values, columns) = self.with_ghosts(p, near)?;
        let product = ranks.all(Pieces::product(a, &Blocks::new(&with_ghosts, shape, &values)))?;
        let (partial, values) = ranks.all(product::product(r, &product))?;
        let partial = Blocks::new(&partial, [modes; 2], &values);
        let coarse = self.joined(partial, &columns, &routes, bounds.clone(), near.own)?;
        let stored = || -> Result<_> {
            let r = Stored::rows(&expanded(&transposed, r.shape())?, rounded(r, 1.0));
            Ok([Stored::rows(&expanded(&pattern, shape)?, rounded(p, 1.0)), r])
        };
        let ([p, r], width) = (ranks.all(stored())?, near.count() * modes);
        let routes = routes.widened(modes);
        Ok((Transfer::new(p, r, routes, width, (aggregates, false))?, coarse))
    }

    /// Appends the rows of ghosts to the rows of `P`; returns pattern, values, and the aggregates that are
    /// the columns.
    fn with_ghosts(&self, p: Blocks<'_>, near: &Columns) -> Result<(Pattern, Vec<f64>, Columns)> {
        let width = p.shape[0] * p.shape[1];
        let names = |row: usize| p.pattern.row(row).iter().map(|&column| near.name(column)).collect();
        let lengths = self.routes.rows(|row| vec![p.pattern.row(row).len() as u64])?;
        let of_ghosts: Vec<u64> = self.routes.rows(names)?;
        let bits = |row: usize| p.of(row).1.iter().map(|v| v.to_bits()).collect();
        let values: Vec<u64> = self.routes.rows(bits)?;
        let others = of_ghosts.iter().copied().filter(|&name| !near.is_own(name));
        let columns = Columns::new(near.first, near.own, others.chain(near.ghosts.iter().copied()));
        let own = p.pattern.columns.iter().map(|&column| columns.place(near.name(column)));
        let mut all: Vec<u32> = Vec::with_capacity(own.len() + of_ghosts.len());
        all.extend(own);
        let mut numbers = Vec::with_capacity(p.values.len() + values.len());
        numbers.extend_from_slice(p.values);
        // received rows are sorted by global column, not by local one
        let mut order: Vec<(u32, usize)> = vec![];
        let mut end = 0;
        for &length in &lengths {
            let row = end..end + length as usize;
            end = row.end;
            order.clear();
            order.extend(row.map(|at| (columns.place(of_ghosts[at]), at)));
            order.sort_unstable();
            all.extend(order.iter().map(|&(place, _)| place));
            let blocks = order.iter().flat_map(|&(_, at)| &values[at * width..(at + 1) * width]);
            numbers.extend(blocks.map(|&bits| f64::from_bits(bits)));
        }
        let own = (0..p.pattern.rows()).map(|row| p.pattern.offsets.range(row).len());
        let offsets = Offsets::from_lengths(own.chain(lengths.iter().map(|&length| length as usize)));
        let pattern = Pattern::sorted(offsets, all, columns.count());
        Ok((self.ranks.all(pattern)?, numbers, columns))
    }

    /// Adds the rows received from other ranks to the own rows of `partial`, which gives the next level.
    fn joined(
        &self,
        partial: Blocks<'_>,
        columns: &Columns,
        routes: &Routes,
        bounds: Vec<u64>,
        own: usize,
    ) -> Result<Rows> {
        let (ranks, size, square) = (&self.ranks, partial.shape[0], partial.shape[0].pow(2));
        let row = |ghost: usize| partial.pattern.row(own + ghost);
        let lengths = routes.rows_back(|ghost| vec![row(ghost).len() as u64])?;
        let names: Vec<u64> =
            routes.rows_back(|ghost| row(ghost).iter().map(|&column| columns.name(column)).collect())?;
        let bits = |ghost: usize| partial.of(own + ghost).1.iter().map(|v| v.to_bits()).collect();
        let values: Vec<u64> = routes.rows_back(bits)?;
        let values: Vec<f64> = values.into_iter().map(f64::from_bits).collect();
        // positions of the received rows for each own row, in the order of the ranks
        let starts: Vec<u64> = sums(&lengths);
        let mut came: Vec<Vec<usize>> = vec![vec![]; own];
        routes.sent().iter().enumerate().for_each(|(at, &row)| came[row as usize].push(at));
        let here = &partial.pattern.columns[..partial.pattern.offsets.at(own)];
        let mut used = vec![false; columns.count()];
        here.iter().for_each(|&column| used[column as usize] = true);
        let here = (own..columns.count()).filter(|&at| used[at]).map(|at| columns.name(at as u32));
        let others = names.iter().copied().filter(|&name| !columns.is_own(name));
        let joined = Columns::new(columns.first, own, here.chain(others));
        let moved: Vec<u32> = (0..columns.count() as u32)
            .map(|at| if used[at as usize] { joined.place(columns.name(at)) } else { NONE })
            .collect();
        let made = product::assembled([own, joined.count()], square, &|row, to| {
            let mut add = |place: u32, block: &[f64]| {
                to.block(place).iter_mut().zip(block).for_each(|(to, from)| *to += from);
            };
            let (columns, blocks) = partial.of(row);
            for (&column, block) in columns.iter().zip(blocks.chunks_exact(square)) {
                add(moved[column as usize], block);
            }
            for &at in &came[row] {
                for at in starts[at] as usize..starts[at + 1] as usize {
                    add(joined.place(names[at]), &values[at * square..][..square]);
                }
            }
        });
        let (pattern, values) = ranks.all(made)?;
        let routes = Routes::new(ranks, &bounds, &joined.ghosts)?;
        let (ranks, pattern) = (ranks.clone(), Arc::new(pattern));
        Ok(Rows { ranks, bounds, ghosts: joined.ghosts, routes, pattern, size, values })
    }
}

/// The columns used by a rank: its own, followed by those of other ranks in ascending order.
pub(super) struct Columns {
    first: u64,
    pub(super) own: usize,
    ghosts: Vec<u64>,
}

impl Columns {
    fn new(first: u64, own: usize, others: impl Iterator<Item = u64>) -> Columns {
        let mut ghosts: Vec<u64> = others.collect();
        ghosts.sort_unstable();
        ghosts.dedup();
        Columns { first, own, ghosts }
    }

    fn count(&self) -> usize {
        self.own + self.ghosts.len()
    }

    fn is_own(&self, name: u64) -> bool {
        name >= self.first && name < self.first + self.own as u64
    }

    /// Local position of a global column.
    fn place(&self, name: u64) -> u32 {
        let ghost = || self.own + self.ghosts.partition_point(|&ghost| ghost < name);
        (if self.is_own(name) { (name - self.first) as usize } else { ghost() }) as u32
    }

    fn name(&self, place: u32) -> u64 {
        let place = place as usize;
        if place < self.own { self.first + place as u64 } else { self.ghosts[place - self.own] }
    }
}

/// Number of rows per node, determined from the patterns of the ranks' diagonal blocks; 1 if the ranks do not
/// agree, or if a rank does not have whole nodes.
fn common_size<T: Real, L: Local<T>>(matrix: &RankMatrix<T, L>) -> Result<usize> {
    let (ranks, space) = (matrix.ranks(), matrix.domain());
    let found = matrix.diagonal_block().in_host_memory().map(|block| node_rows(block.pattern()).0 as u64);
    let own = ranks.all(found)?;
    let whole = space.bounds().iter().all(|bound| bound.is_multiple_of(own));
    // a rank without rows accepts the size of the other ranks
    let own = if space.local_len() == 0 { 0 } else { own };
    let mut sizes = ranks.gather(vec![if whole { own } else { own.min(1) }])?;
    sizes.retain(|&size| size > 0);
    sizes.dedup();
    Ok(if let [size] = sizes[..] { size as usize } else { 1 })
}

/// Restricts a pattern to the columns of own nodes.
fn own_part(pattern: &Pattern) -> Result<Pattern> {
    let rows = pattern.rows();
    let own = |row: usize| pattern.row(row).partition_point(|&column| (column as usize) < rows);
    let offsets = Offsets::of_rows(rows, &own);
    let mut columns = Vec::with_capacity(offsets.end());
    (0..rows).for_each(|row| columns.extend_from_slice(&pattern.row(row)[..own(row)]));
    Pattern::sorted(offsets, columns, rows)
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
