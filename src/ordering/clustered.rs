//! Clustered ordering: divides the rows into *runs*, ranges of equally many consecutive rows, such that a run
//! has entries in few columns outside its range.
//!
//! ```text
//! gather vertices into small clusters, and build the graph of the clusters   (`aggregate`)
//! order the clusters along a line, by recursive bisection                     (`bisect`)
//! list the vertices cluster by cluster in that order, and cut the list into runs
//! swap vertices of different runs, so that more edges lie within runs         (`trades`)
//! ```
//!
//! Partitioning a small graph of clusters and refining the result on the large graph is the multilevel method
//! of Karypis and Kumar (1998). Departures:
//! 1. A cluster is a whole neighbourhood, not a pair, so that one level is enough.
//! 2. A graph is bisected by distances from pseudo-peripheral vertices, not by growing a part from a random
//!    vertex.
//! 3. Runs have exactly equal lengths, because refinement only swaps vertices.

use super::aggregate::{clusters, coarse};
use super::bisect::Part;
use super::graph::{Coarse, Graph, Pattern};
use super::trades::trade_vertices;
use crate::error::{Error, Result};
use crate::formats::pattern::cut;
use crate::formats::{Csr, block_pattern, row_blocks};
use crate::numbers::Real;
use crate::permutation::{Permutation, inverse};
use krysp_kernels::index::{Columns, Offsets};
use krysp_kernels::interrupt::{self, Phase};
use rayon::prelude::*;

/// Number of clusters in a run. Clusters must be much smaller than a run, so that their order determines the shape of
/// the runs. Guess.
pub(super) const CLUSTERS_IN_RUN: usize = 64;

/// Maximum number of clusters that are ordered as one graph. A graph with more is first partitioned into groups. Guess,
/// chosen as 2.5 groups.
const WHOLE: usize = 20 * 1024;
/// Approximate number of clusters in a group, small enough for the cache of a core. Guess.
const GROUP: f64 = 8.0 * 1024.0;

/// Maximum number of rounds of swapping vertices. Further rounds would gain little. Guess.
pub(super) const ROUNDS: u32 = 8;

impl Permutation {
    /// Computes an ordering in runs of `rows_per_block` consecutive rows with many entries among each other
    /// and few to other rows, like the parts of a graph partitioner. The union of several consecutive runs is
    /// compact too, though less so. Within a run, longer rows come first. The number of columns outside of
    /// the runs (see [`halo`](crate::partition::halo)) is close to its minimum.
    ///
    /// Only the pattern of the matrix matters; it is treated as symmetric. Unknowns of one node stay together
    /// and in order, if their rows have the same pattern (blocks as in [`row_blocks`]); `rows_per_block`
    /// should be a multiple of the block size. The ordering does not depend on the number of threads.
    ///
    /// ```
    /// use krysp::{Csr, Permutation, partition::halo};
    ///
    /// // two chains of 50 unknowns, one with even indices and one with odd ones
    /// let entries: Vec<_> = (0..98).flat_map(|i| [(i, i, 2.0), (i, i + 2, -1.0), (i + 2, i, -1.0)]).collect();
    /// let a = Csr::from_triplets(100, 100, &entries)?;
    /// let reordered = a.reordered(&Permutation::clustered(&a, 50)?)?;
    /// assert_eq!(halo(&reordered, 50).largest, 0);
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn clustered<T: Real>(a: &Csr<T>, rows_per_block: usize) -> Result<Permutation> {
        Permutation::in_runs(a, rows_per_block, |offsets, columns, run_length| {
            clustered(&Pattern::new(offsets, columns), run_length)
        })
    }

    /// Orders the unknowns by the order of the nodes that `line(offsets, columns, run_length)` returns for the graph of
    /// the nodes. A node is a block of unknowns whose rows have the same pattern; `run_length` counts nodes.
    pub(super) fn in_runs<T: Real>(
        a: &Csr<T>,
        rows_per_block: usize,
        line: impl Fn(&Offsets, &Columns, usize) -> Result<Vec<u32>>,
    ) -> Result<Permutation> {
        let (rows, cols) = (a.rows(), a.cols());
        if rows != cols {
            return Err(Error::NotSquare { what: "reordering", rows, cols });
        }
        let size = row_blocks(a);
        let order = if size == 1 {
            line(&a.pattern().offsets, &a.pattern().columns, rows_per_block)?
        } else {
            let (offsets, columns) = block_pattern(a, size)?;
            let nodes = line(&offsets, &columns, rows_per_block / size)?;
            let size = size as u32;
            nodes.into_iter().flat_map(|node| node * size..(node + 1) * size).collect()
        };
        Ok(Permutation::from_old_of_new(order)?.in_runs_of(rows_per_block))
    }
}

/// The vertices in a clustered order with runs of `run_length` vertices, longer rows first within each run.
pub(super) fn clustered(graph: &Pattern<'_>, run_length: usize) -> Result<Vec<u32>> {
    let run_length = run_length.max(1);
    let clusters = clusters(graph, run_length / CLUSTERS_IN_RUN);
    interrupt::check("clustered ordering")?;
    let coarse = coarse(graph, &clusters);
    let line = line(&coarse, run_length as f64)?;
    let order = refined(graph, clusters.expand(&line), run_length);
    interrupt::check("clustered ordering")?;
    Ok(order)
}

/// Cuts an order into runs, swaps vertices between runs, and sorts each run by row length, longest first.
pub(super) fn refined(graph: &Pattern<'_>, mut order: Vec<u32>, run_length: usize) -> Vec<u32> {
    let starts: Vec<usize> = (0..order.len()).step_by(run_length).collect();
    trade_vertices(graph, &mut order, &starts, ROUNDS);
    // formats that pad the rows of a slice to one length then need not sort
    let sort_by_length =
        |run: &mut [u32]| run.sort_by_cached_key(|&vertex| std::cmp::Reverse(graph.neighbours(vertex).len()));
    order.par_chunks_mut(run_length).for_each(sort_by_length);
    order
}

/// Orders the clusters by recursive bisection, so that runs of weight `run` are compact.
///
/// A large graph is first partitioned into groups, which are then ordered in parallel. Bisecting the whole graph would
/// be slow, because its first bisections are serial.
pub(super) fn line(graph: &Coarse, run: f64) -> Result<Vec<u32>> {
    let (order, starts) =
        groups(graph, run)?.unwrap_or_else(|| (Vec::from_iter(0..graph.vertices() as u32), vec![0]));
    let places = inverse(&order);
    let ends = starts.iter().skip(1).copied().chain([order.len()]);
    let mut weight = 0.0;
    let groups: Vec<Group<'_>> = starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| {
            let group = Group { start, members: &order[start..end], weight_before: weight };
            weight += group.members.iter().map(|&v| f64::from(graph.weight(v))).sum::<f64>();
            group
        })
        .collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.members.len()).collect();
    let mut line = vec![0; order.len()];
    let targets = cut(&mut line, &lengths).into_par_iter().zip(&groups);
    let phase = Phase::new("clustered ordering", groups.len() as f64);
    targets.try_for_each(|(target, group)| {
        let part = Part::new(graph, group.members, group.start, &places);
        part.lay_out(group.weight_before, run, target);
        phase.advance(1)
    })?;
    Ok(line)
}

/// A group of a large graph's vertices that is ordered separately.
struct Group<'a> {
    /// Position of the group's first vertex in the order.
    start: usize,
    members: &'a [u32],
    /// The weight of all vertices before the group.
    weight_before: f64,
}

/// Partitions a large graph into groups of about [`GROUP`] vertices, whose weights are multiples of `run`.
/// Returns the vertices group by group, and the position of the first vertex of each group. `None` for a
/// graph that is small, or that has more than half as many clusters as vertices.
fn groups(graph: &Coarse, run: f64) -> Result<Option<(Vec<u32>, Vec<usize>)>> {
    let vertices = graph.vertices();
    if vertices <= WHOLE {
        return Ok(None);
    }
    // no limit on the size of a cluster: each is a whole neighbourhood
    let clusters = clusters(graph, vertices);
    let coarser = coarse(graph, &clusters);
    if coarser.vertices() > vertices / 2 {
        return Ok(None);
    }
    let weight: f64 = graph.weights.iter().map(|&weight| f64::from(weight)).sum();
    let group = run * (weight * GROUP / (vertices as f64 * run)).round().max(1.0);
    let mut order = clusters.expand(&line(&coarser, group)?);
    let (mut starts, mut before) = (vec![0], 0.0);
    for (place, &v) in order.iter().enumerate() {
        let weight = f64::from(graph.weight(v));
        if before + 0.5 * weight > group * starts.len() as f64 {
            starts.push(place);
        }
        before += weight;
    }
    trade_vertices(graph, &mut order, &starts, ROUNDS);
    Ok(Some((order, starts)))
}
