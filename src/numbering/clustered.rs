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

use super::Numbering;
use super::aggregate::{clusters, coarse};
use super::bisect::{Cuts, Part};
use super::exchange::exchange;
use super::graph::{Coarse, Graph, Pattern};
use crate::formats::{block_pattern, row_blocks};
use crate::{Csr, Error, Real, Result};

/// Clusters in a run: what is much smaller than a run can be put together to any shape.
const CLUSTERS_IN_RUN: usize = 64;

/// Where a run is cut further, so that shorter ones are compact as well.
const LEAST: f64 = 0.25;

/// Rounds of exchange: later ones find little.
const ROUNDS: u32 = 8;

impl Numbering {
    /// A numbering in which every `rows_per_block` consecutive rows are tied closely to each other and to few others, as the
    /// parts of a graph partitioner are: the first so many, the next, and so on. Other runs of rows are compact too, if less
    /// so. What [`halo`](crate::partition::halo) counts is near the least that is possible.
    ///
    /// Only the pattern counts, taken as symmetric. Unknowns of one node whose rows have one pattern (blocks as in
    /// [`row_blocks`]) stay together, in order. The same matrix is numbered alike on any number of threads.
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
        let (rows, cols) = (a.rows(), a.cols());
        if rows != cols {
            return Err(Error::NotSquare { what: "renumbering", rows, cols });
        }
        let size = row_blocks(a);
        if size == 1 {
            let pattern = Pattern::new(&a.pattern().offsets, a.columns());
            return Numbering::from_old_of_new(clustered(&pattern, rows_per_block));
        }
        let (offsets, columns) = block_pattern(a, size)?;
        let nodes = clustered(&Pattern::new(&offsets, &columns), rows_per_block / size);
        let size = size as u32;
        Numbering::from_old_of_new(
            nodes.into_iter().flat_map(|node| node * size..(node + 1) * size).collect(),
        )
    }
}

/// The vertices in an order whose runs are compact.
fn clustered(graph: &Pattern<'_>, run: usize) -> Vec<u32> {
    let run = run.max(1);
    let clusters = clusters(graph, run / CLUSTERS_IN_RUN);
    let cuts = Cuts { run: run as f64, least: run as f64 * LEAST };
    let mut order = clusters.expand(&line(&coarse(graph, &clusters), cuts));
    let starts: Vec<usize> = (0..order.len()).step_by(run).collect();
    exchange(graph, &mut order, &starts, ROUNDS);
    order
}

/// Clusters in a line.
fn line(graph: &Coarse, cuts: Cuts) -> Vec<u32> {
    let vertices = graph.vertices();
    let (mut order, places) = (vec![0; vertices], Vec::from_iter(0..vertices as u32));
    if vertices > 0 {
        Part::new(graph, &places, 0, &places).lay_out(0.0, cuts, &mut order);
    }
    order
}
