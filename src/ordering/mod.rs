//! Orderings: algorithms that find a permutation of the unknowns which places entries of vectors that are
//! used together close together in memory. Each is a constructor of [`Permutation`].

mod aggregate;
mod bisect;
mod clustered;
pub(crate) mod dissection;
mod graph;
pub(crate) mod minimum_degree;
#[cfg(feature = "cuda")]
mod on_device;
mod pieces;
mod rcm;
mod trades;

pub(crate) use aggregate::scrambled;

use crate::error::Result;
use crate::formats::{Csr, Format, block_pattern};
use crate::numbers::Real;
use crate::permutation::Permutation;
use graph::Pattern;
use krysp_kernels::interrupt;

/// Partitions the graph of a matrix into about `most` connected parts of about equal sizes. A node is a block
/// of `size` consecutive rows. Returns the number of parts and the part of each node, [`u32::MAX`] for a node
/// without neighbours. Much faster if the matrix is in a clustered order.
pub(crate) fn aggregates<T: Real>(a: &Csr<T>, size: usize, most: usize) -> Result<(usize, Vec<u32>)> {
    let run_length = a.source().domain().permutation().and_then(|permutation| permutation.run_length());
    if size == 1 {
        return Ok(connected_parts(&Pattern::new(&*a.pattern().offsets, a.columns()), run_length, most));
    }
    interrupt::check("aggregation")?;
    let (offsets, columns) = block_pattern(a, size)?;
    Ok(connected_parts(&Pattern::new(&offsets, &columns), run_length.map(|length| length / size), most))
}

fn connected_parts(graph: &Pattern<'_>, run_length: Option<usize>, most: usize) -> (usize, Vec<u32>) {
    match run_length {
        Some(run_length) => pieces::pieces(graph, run_length, most),
        None => aggregate::aggregates(graph, most),
    }
}

impl Permutation {
    /// Sorts rows by length, longest first, so that slices of rows need little padding. In graphs with hubs
    /// (vertices of very large degree), the entries of `x` that most rows read then share cache lines. This
    /// ordering is for matrices without geometry; on a mesh it separates neighbouring rows.
    pub fn by_length<T: Real>(a: &Csr<T>) -> Result<Permutation> {
        let lengths: Vec<usize> = a.row_lengths().collect();
        let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
        order.sort_by_key(|&row| std::cmp::Reverse(lengths[row as usize]));
        Permutation::from_old_of_new(order)
    }
}
