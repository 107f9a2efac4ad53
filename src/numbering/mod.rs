//! Numberings: permutations of the unknowns that bring together in memory what is read together.
//!
//! A numbering belongs to a space. Operators and vectors of the space are stored in the new order; `b` is permuted on
//! its way in, and `x` on its way out.

mod aggregate;
mod bisect;
mod clustered;
mod graph;
pub(crate) mod minimum_degree;
#[cfg(feature = "cuda")]
mod on_device;
mod pieces;
mod rcm;
mod trades;

use crate::formats::{Format, block_pattern};
use crate::saved::saved;
use crate::{Csr, Error, Real, Result};
use graph::Pattern;
use krysp_kernels::cpu::run::threads::{find_row, over_rows};
use krysp_kernels::interrupt;
use rayon::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Cuts the graph of a matrix into about `most` connected parts of about equal sizes. Nodes are `size` consecutive
/// rows. Returns the number of parts and the part of each node, [`u32::MAX`] for a node without neighbours. Much faster
/// in a clustered numbering.
pub(crate) fn aggregates<T: Real>(a: &Csr<T>, size: usize, most: usize) -> Result<(usize, Vec<u32>)> {
    let run_length = a.source().domain().numbering().and_then(|numbering| numbering.run_length);
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

/// A permutation of the unknowns, with its inverse. Clones share the arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbering {
    old_of_new: Arc<Vec<u32>>,
    new_of_old: Arc<Vec<u32>>,
    /// The rows of a run, in a clustered numbering. A run is a range of consecutive rows that are tied closely to each other.
    run_length: Option<usize>,
}

saved!(impl[] Numbering { old_of_new, new_of_old, run_length } where |read| {
    let is_wrong = |new: usize| read.new_of_old.get(read.old_of_new[new] as usize) != Some(&(new as u32));
    read.new_of_old.len() == read.len() && find_row(read.len(), 2, &is_wrong).is_none()
});

impl Numbering {
    /// Makes a numbering from the old index of each new one.
    pub fn from_old_of_new(old_of_new: Vec<u32>) -> Result<Numbering> {
        let new_of_old = inverse(&old_of_new);
        let is_wrong = |new: usize| new_of_old.get(old_of_new[new] as usize) != Some(&(new as u32));
        if find_row(old_of_new.len(), 2, &is_wrong).is_some() {
            return Err(not_permutation(&old_of_new));
        }
        Ok(Numbering { old_of_new: Arc::new(old_of_new), new_of_old: Arc::new(new_of_old), run_length: None })
    }

    /// Sorts rows by length, longest first, so that slices of rows need little padding. In graphs with hubs, the
    /// entries of `x` that most rows read then share cache lines. For matrices without geometry: on a mesh it scatters
    /// neighbouring rows.
    pub fn by_length<T: Real>(a: &Csr<T>) -> Result<Numbering> {
        let lengths: Vec<usize> = a.row_lengths().collect();
        let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
        order.sort_by_key(|&row| std::cmp::Reverse(lengths[row as usize]));
        Numbering::from_old_of_new(order)
    }

    /// The number of unknowns.
    pub fn len(&self) -> usize {
        self.old_of_new.len()
    }

    /// Whether there are no unknowns.
    pub fn is_empty(&self) -> bool {
        self.old_of_new.is_empty()
    }

    /// The old index of each new one.
    pub fn old_of_new(&self) -> &[u32] {
        &self.old_of_new
    }

    /// The new index of each old one.
    pub fn new_of_old(&self) -> &[u32] {
        &self.new_of_old
    }
}

/// The new index of each old one. Invalid input is not detected here: of an index that occurs twice one place is kept,
/// and an index out of range is ignored.
fn inverse(old_of_new: &[u32]) -> Vec<u32> {
    let len = old_of_new.len();
    let places: Vec<AtomicU32> = (0..len).into_par_iter().map(|_| AtomicU32::new(u32::MAX)).collect();
    over_rows(len, 2, (), &|range, ()| {
        for new in range {
            if let Some(place) = places.get(old_of_new[new] as usize) {
                place.store(new as u32, Ordering::Relaxed);
            }
        }
    });
    places.into_iter().map(AtomicU32::into_inner).collect()
}

/// The error that names the first place where `old_of_new` is no permutation.
fn not_permutation(old_of_new: &[u32]) -> Error {
    let len = old_of_new.len();
    let mut seen = vec![false; len];
    let mut is_new =
        |index: u32| seen.get_mut(index as usize).is_some_and(|seen| !std::mem::replace(seen, true));
    let position = old_of_new.iter().take_while(|&&index| is_new(index)).count();
    Error::NotPermutation {
        len,
        position,
        index: old_of_new.get(position).map_or(0, |&index| index as usize),
    }
}
