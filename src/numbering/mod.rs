//! Renumbering: which unknown stands where.
//!
//! A numbering belongs to a space: operators and vectors in it live and compute in the new order, and `b` and `x` are
//! permuted once, on their way in and out.

mod aggregate;
mod bisect;
mod clustered;
mod exchange;
mod graph;
#[cfg(feature = "cuda")]
mod on_device;
mod pieces;
mod rcm;

use crate::formats::{Format, block_pattern};
use crate::{Csr, Error, Real, Result};
use graph::Pattern;
use krysp_kernels::cpu::run::threads::{find_row, over_rows};
use rayon::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The connected part of a matrix's graph that each node is in, [`u32::MAX`] where it has no neighbours, and the number of
/// parts: about `most`, of about equal sizes. Nodes are `size` consecutive rows. Much faster in a clustered numbering.
pub(crate) fn aggregates<T: Real>(a: &Csr<T>, size: usize, most: usize) -> Result<(usize, Vec<u32>)> {
    let run = a.source().domain().numbering().and_then(|numbering| numbering.run);
    if size == 1 {
        return Ok(parts(&Pattern::new(&*a.pattern().offsets, a.columns()), run, most));
    }
    let (offsets, columns) = block_pattern(a, size)?;
    Ok(parts(&Pattern::new(&offsets, &columns), run.map(|run| run / size), most))
}

fn parts(graph: &Pattern<'_>, run: Option<usize>, most: usize) -> (usize, Vec<u32>) {
    match run {
        Some(run) => pieces::pieces(graph, run, most),
        None => aggregate::aggregates(graph, most),
    }
}

/// A permutation of unknowns, with its inverse. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbering {
    old_of_new: Arc<Vec<u32>>,
    new_of_old: Arc<Vec<u32>>,
    /// How many consecutive unknowns form a compact piece of the graph, where that is known.
    run: Option<usize>,
}

impl Numbering {
    /// From the old index of each new one.
    pub fn from_old_of_new(old_of_new: Vec<u32>) -> Result<Numbering> {
        let new_of_old = inverse(&old_of_new);
        let is_wrong = |new: usize| new_of_old.get(old_of_new[new] as usize) != Some(&(new as u32));
        if find_row(old_of_new.len(), 2, &is_wrong).is_some() {
            return Err(not_permutation(&old_of_new));
        }
        Ok(Numbering { old_of_new: Arc::new(old_of_new), new_of_old: Arc::new(new_of_old), run: None })
    }

    /// Longest rows first. Slices of rows need no padding then, and in graphs with hubs the entries of `x` that every row
    /// needs share cache lines. For matrices without neighbourhoods; it scatters those of a mesh.
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

/// The new index of each old one. Where an index occurs twice, either of the two; what is out of range is left out.
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

/// Where what should have been a permutation goes wrong first.
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
