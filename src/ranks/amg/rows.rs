//! Rows of a distributed level, and its columns.

use super::blocks::HostBlocks;
use super::local::LocalSetup;
use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, MatrixSource, node_pattern, node_rows};
use crate::numbers::Real;
use crate::preconditioners::amg::blocks::fill_rows;
use crate::preconditioners::amg::modes::NearNullSpace;
use crate::preconditioners::amg::stored::{expanded, gathered, rounded};
use crate::ranks::Ranks;
use crate::ranks::halo::Routes;
use crate::ranks::local::Local;
use crate::ranks::matrix::RankMatrix;
use krysp_kernels::buffer::{Buffer, Plain};
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::index::Offsets;
use krysp_solvers::{Element, LinearOperator, Space};
use rayon::prelude::*;
use std::sync::Arc;

/// A level's matrix in double precision: the rows of own nodes.
pub(super) struct Rows<L: LocalSetup> {
    /// The first node of each rank, then the total number of nodes.
    pub(super) bounds: Vec<u64>,
    /// Own nodes, then the nodes of other ranks that own rows read.
    pub(super) columns: Columns,
    pub(super) routes: Routes,
    /// Rows per node.
    pub(super) size: usize,
    pub(super) a: L::Blocks,
}

impl<L: LocalSetup> Rows<L> {
    /// Rows with given columns. Collective: all ranks call this.
    pub(super) fn new(
        ranks: &Ranks,
        bounds: Vec<u64>,
        columns: Columns,
        size: usize,
        a: L::Blocks,
    ) -> Result<Rows<L>> {
        let routes = Routes::new(ranks, &bounds, &columns.ghosts)?;
        Ok(Rows { bounds, columns, routes, size, a })
    }

    /// Number of own nodes.
    pub(super) fn nodes(&self) -> usize {
        self.columns.own
    }

    /// Number of rows over all ranks.
    pub(super) fn all(&self) -> u64 {
        self.bounds[self.bounds.len() - 1] * self.size as u64
    }

    /// Replicates the rows of all ranks on each. Collective: all ranks call this.
    pub(super) fn everywhere(
        &self,
        ranks: &Ranks,
        modes: &NearNullSpace,
    ) -> Result<(Csr<f64>, NearNullSpace)> {
        let a = ranks.all(L::read(&self.a))?;
        let pattern = ranks.all(expanded(&a.pattern, a.shape))?;
        let size = self.size as u64;
        let name = |&column: &u32| self.columns.name(column / size as u32) * size + u64::from(column) % size;
        let lengths = replicated(ranks, pattern.offsets.lengths().map(|length| length as u64).collect())?;
        let columns = replicated(ranks, pattern.columns.iter().map(name).collect())?;
        let values = replicated(ranks, rounded::<f64>(a.view(), 1.0).to_vec())?;
        let modes = NearNullSpace { count: modes.count, values: replicated(ranks, modes.values.clone())? };
        let offsets: Vec<usize> = sums(&lengths).into_iter().map(|offset| offset as usize).collect();
        let rows = self.all() as usize;
        Ok((ranks.all(Csr::from_csr(rows, rows, &offsets, &columns, &values))?, modes))
    }
}

/// The numbers of all ranks. Collective: all ranks call this.
fn replicated<X: Plain + Default>(ranks: &Ranks, own: Vec<X>) -> Result<Vec<X>> {
    Ok(ranks.exchange(vec![own; ranks.size()])?.concat())
}

/// Received rows: blocks whose columns are `places`. They are in the order of the local columns of their rank.
pub(super) fn placed(
    lengths: &[u64],
    places: Vec<u32>,
    values: &[f64],
    shape: [usize; 2],
    cols: usize,
) -> Result<HostBlocks> {
    let (offsets, width) =
        (Offsets::from_lengths(lengths.iter().map(|&length| length as usize)), shape[0] * shape[1]);
    let mut order = Buffer::<u32>::zeros(places.len());
    fill_rows(&offsets, 1, &mut order, &|row, to| {
        to.iter_mut().zip(offsets.range(row)).for_each(|(to, at)| *to = at as u32);
        to.sort_unstable_by_key(|&at| places[at as usize]);
    });
    let sorted = map_rows(order.len(), 2, &|at| places[order[at] as usize]);
    let value = |at: usize| values[order[at / width] as usize * width + at % width];
    let values = map_rows(values.len(), 2, &value).into();
    Ok(HostBlocks { pattern: Arc::new(Pattern::sorted(offsets, sorted, cols)?), shape, values })
}

/// The columns used by a rank: its own, followed by those of other ranks in ascending order.
#[derive(Clone)]
pub(super) struct Columns {
    pub(super) first: u64,
    pub(super) own: usize,
    pub(super) ghosts: Vec<u64>,
}

impl Columns {
    /// Takes the columns of other ranks from a list.
    pub(super) fn new(first: u64, own: usize, names: &[u64]) -> Columns {
        let here = first..first + own as u64;
        let mut ghosts: Vec<u64> = names.iter().copied().filter(|name| !here.contains(name)).collect();
        ghosts.par_sort_unstable();
        ghosts.dedup();
        Columns { first, own, ghosts }
    }

    pub(super) fn count(&self) -> usize {
        self.own + self.ghosts.len()
    }

    /// Local positions of global columns.
    pub(super) fn places(&self, names: &[u64]) -> Vec<u32> {
        let (first, end) = (self.first, self.first + self.own as u64);
        map_rows(names.len(), 32, &|at| match names[at] {
            name if (first..end).contains(&name) => (name - first) as u32,
            name => (self.own + self.ghosts.partition_point(|&ghost| ghost < name)) as u32,
        })
    }

    pub(super) fn name(&self, place: u32) -> u64 {
        let place = place as usize;
        if place < self.own { self.first + place as u64 } else { self.ghosts[place - self.own] }
    }
}

/// The own rows of a matrix in blocks of `size` rows, from host memory; `ghosts` are the nodes of other ranks.
pub(super) fn in_blocks<T: Real, L: Local<T>>(
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
pub(super) fn common_size<T: Real, L: Local<T>>(matrix: &RankMatrix<T, L>) -> Result<usize> {
    let (ranks, space) = (matrix.ranks(), matrix.domain());
    let own = node_rows(&matrix.diagonal_block().structure().pattern).0 as u64;
    let whole = space.bounds().iter().all(|bound| bound.is_multiple_of(own));
    // a rank without rows accepts the size of the other ranks
    let own = if space.local_len() == 0 { 0 } else { own };
    let mut sizes = ranks.all_gather(vec![if whole { own } else { own.min(1) }])?;
    sizes.retain(|&size| size > 0);
    sizes.dedup();
    Ok(if let [size] = sizes[..] { size as usize } else { 1 })
}

/// Exclusive prefix sums, followed by the total.
pub(super) fn sums(numbers: &[u64]) -> Vec<u64> {
    let mut sum = 0;
    let sums = numbers.iter().map(|number| {
        sum += number;
        sum
    });
    std::iter::once(0).chain(sums).collect()
}
