//! A numbering whose runs of consecutive rows are compact: few columns outside of a run are touched by its rows.
//!
//! ```text
//! clusters of vertices and those around them, and their graph (`aggregate`)
//! the clusters laid out in a line, by recursive bisection (`bisect`)
//! their vertices in that order, cut into runs; vertices change places between neighbouring runs (`exchange`)
//! ```
//!
//! The idea, to partition a small graph of clusters and refine the result on the large one, is that of Karypis and Kumar
//! (1998). Departures:
//! 1. clusters of a neighbourhood instead of pairs, so that one level is enough;
//! 2. halves are found by distances from far-off vertices instead of growing from random ones;
//! 3. runs have equally many rows, exactly: refinement only exchanges.

use super::aggregate::{clusters, coarse};
use super::bisect::Part;
use super::exchange::exchange;
use super::graph::{Coarse, Graph, Pattern};
use super::{Numbering, inverse};
use crate::formats::pattern::cut;
use crate::formats::{block_pattern, row_blocks};
use crate::{Csr, Error, Real, Result};
use krysp_kernels::index::{Columns, Offsets};
use rayon::prelude::*;

/// Clusters in a run: what is much smaller than a run can be put together to any shape.
pub(super) const CLUSTERS_IN_RUN: usize = 64;

/// Up to so many clusters are laid out as a whole, more of them in groups of about so many, which stay in a cache.
const WHOLE: usize = 20 * 1024;
const GROUP: f64 = 8.0 * 1024.0;

/// Rounds of exchange: later ones find little.
pub(super) const ROUNDS: u32 = 8;

impl Numbering {
    /// A numbering in which every `rows_per_block` consecutive rows are tied closely to each other and to few others, as the
    /// parts of a graph partitioner are: the first so many, the next, and so on. Runs of several blocks are compact
    /// too, if less so. Within a block, longer rows come first. What [`halo`](crate::partition::halo) counts is near the least that is possible.
    ///
    /// Only the pattern counts, taken as symmetric. Unknowns of one node whose rows have one pattern (blocks as in
    /// [`row_blocks`]) stay together, in order: `rows_per_block` should be a multiple of their number. The same matrix is
    /// numbered alike on any number of threads.
    ///
    /// ```
    /// use krysp::{Csr, Numbering, partition::halo};
    ///
    /// // two chains of 50 unknowns, one on even numbers and one on odd ones
    /// let entries: Vec<_> = (0..98).flat_map(|i| [(i, i, 2.0), (i, i + 2, -1.0), (i + 2, i, -1.0)]).collect();
    /// let a = Csr::from_triplets(100, 100, &entries)?;
    /// let renumbered = a.renumbered(&Numbering::clustered(&a, 50)?)?;
    /// assert_eq!(halo(&renumbered, 50).largest, 0);
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn clustered<T: Real>(a: &Csr<T>, rows_per_block: usize) -> Result<Numbering> {
        Numbering::in_runs(a, rows_per_block, |offsets, columns, run| {
            Ok(clustered(&Pattern::new(offsets, columns), run))
        })
    }

    /// The numbering that a line of the nodes makes, nodes of as many unknowns as have rows of one pattern.
    pub(super) fn in_runs<T: Real>(
        a: &Csr<T>,
        rows_per_block: usize,
        line: impl Fn(&Offsets, &Columns, usize) -> Result<Vec<u32>>,
    ) -> Result<Numbering> {
        let (rows, cols) = (a.rows(), a.cols());
        if rows != cols {
            return Err(Error::NotSquare { what: "renumbering", rows, cols });
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
        Ok(Numbering { run: Some(rows_per_block), ..Numbering::from_old_of_new(order)? })
    }
}

/// The vertices in an order whose runs are compact.
pub(super) fn clustered(graph: &Pattern<'_>, run: usize) -> Vec<u32> {
    let run = run.max(1);
    let clusters = clusters(graph, run / CLUSTERS_IN_RUN);
    let coarse = coarse(graph, &clusters);
    let line = line(&coarse, run as f64);
    refined(graph, clusters.expand(&line), run)
}

/// A line cut into runs whose vertices changed places, the longest rows first in each.
pub(super) fn refined(graph: &Pattern<'_>, mut order: Vec<u32>, run: usize) -> Vec<u32> {
    let starts: Vec<usize> = (0..order.len()).step_by(run).collect();
    exchange(graph, &mut order, &starts, ROUNDS);
    // formats that pad rows to one length need not sort them again
    let falling =
        |run: &mut [u32]| run.sort_by_cached_key(|&vertex| std::cmp::Reverse(graph.neighbours(vertex).len()));
    order.par_chunks_mut(run).for_each(falling);
    order
}

/// Clusters in a line.
///
/// A large graph is cut into groups first, along the line of its own clusters: bisections of all of it would be slow, and the
/// first ones serial.
pub(super) fn line(graph: &Coarse, run: f64) -> Vec<u32> {
    let (order, starts) =
        groups(graph, run).unwrap_or_else(|| (Vec::from_iter(0..graph.vertices() as u32), vec![0]));
    let places = inverse(&order);
    let ends = starts.iter().skip(1).copied().chain([order.len()]);
    let mut weight = 0.0;
    let groups: Vec<(usize, &[u32], f64)> = starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| {
            let (members, before) = (&order[start..end], weight);
            weight += members.iter().map(|&v| f64::from(graph.weight(v))).sum::<f64>();
            (start, members, before)
        })
        .collect();
    let lengths: Vec<usize> = groups.iter().map(|(_, members, _)| members.len()).collect();
    let mut line = vec![0; order.len()];
    let targets = cut(&mut line, &lengths).into_par_iter().zip(&groups);
    targets.for_each(|(target, &(start, members, before))| {
        Part::new(graph, members, start, &places).lay_out(before, run, target);
    });
    line
}

/// The vertices of a large graph in an order cut into groups, and where groups begin: whole runs, and few enough vertices.
fn groups(graph: &Coarse, run: f64) -> Option<(Vec<u32>, Vec<usize>)> {
    let vertices = graph.vertices();
    if vertices <= WHOLE {
        return None;
    }
    // as large as neighbourhoods are
    let clusters = clusters(graph, vertices);
    let coarser = coarse(graph, &clusters);
    if coarser.vertices() > vertices / 2 {
        return None;
    }
    let weight: f64 = graph.weights.iter().map(|&weight| f64::from(weight)).sum();
    let group = run * (weight * GROUP / (vertices as f64 * run)).round().max(1.0);
    let mut order = clusters.expand(&line(&coarser, group));
    let (mut starts, mut before) = (vec![0], 0.0);
    for (place, &v) in order.iter().enumerate() {
        let weight = f64::from(graph.weight(v));
        if before + 0.5 * weight > group * starts.len() as f64 {
            starts.push(place);
        }
        before += weight;
    }
    exchange(graph, &mut order, &starts, ROUNDS);
    Some((order, starts))
}
