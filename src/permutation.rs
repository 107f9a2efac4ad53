//! Permutations of the unknowns.
//!
//! A permutation belongs to a space. Operators and vectors of the space are stored in the new order; `b` is
//! permuted when it is loaded into a vector, and `x` is permuted back when it is read. The algorithms that
//! find permutations are in `src/ordering`.

use crate::error::{Error, Result};
use crate::saved::saved;
use krysp_kernels::cpu::run::threads::{find_row, over_rows};
use rayon::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A permutation of the unknowns, with its inverse. Clones share the arrays.
#[doc(alias = "permutation")]
#[doc(alias = "reordering")]
#[doc(alias = "renumbering")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    old_of_new: Arc<Vec<u32>>,
    new_of_old: Arc<Vec<u32>>,
    /// Rows per run, in a clustered order. A run is a range of consecutive rows with many entries among each
    /// other.
    run_length: Option<usize>,
}

saved!(impl[] Permutation { old_of_new, new_of_old, run_length } where |read| {
    let is_wrong = |new: usize| read.new_of_old.get(read.old_of_new[new] as usize) != Some(&(new as u32));
    read.new_of_old.len() == read.len() && find_row(read.len(), 2, &is_wrong).is_none()
});

impl Permutation {
    /// Makes a permutation from the array that holds the old index for each new index.
    pub fn from_old_of_new(old_of_new: Vec<u32>) -> Result<Permutation> {
        let new_of_old = inverse(&old_of_new);
        let is_wrong = |new: usize| new_of_old.get(old_of_new[new] as usize) != Some(&(new as u32));
        if find_row(old_of_new.len(), 2, &is_wrong).is_some() {
            return Err(not_permutation(&old_of_new));
        }
        Ok(Permutation {
            old_of_new: Arc::new(old_of_new),
            new_of_old: Arc::new(new_of_old),
            run_length: None,
        })
    }

    /// The same permutation, marked as one in a clustered order with runs of this many rows.
    pub(crate) fn in_runs_of(self, rows: usize) -> Permutation {
        Permutation { run_length: Some(rows), ..self }
    }

    /// Rows per run, in a clustered order.
    pub(crate) fn run_length(&self) -> Option<usize> {
        self.run_length
    }

    /// Number of unknowns.
    pub fn len(&self) -> usize {
        self.old_of_new.len()
    }

    /// Returns whether there are no unknowns.
    pub fn is_empty(&self) -> bool {
        self.old_of_new.is_empty()
    }

    /// The old index for each new index.
    pub fn old_of_new(&self) -> &[u32] {
        &self.old_of_new
    }

    /// The new index for each old index.
    pub fn new_of_old(&self) -> &[u32] {
        &self.new_of_old
    }
}

/// The new index for each old index. Invalid input is not detected: of an index that occurs twice, one
/// position is kept, and an index out of range is ignored.
pub(crate) fn inverse(old_of_new: &[u32]) -> Vec<u32> {
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

/// The error that reports the first position at which `old_of_new` is not a permutation.
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
