//! Renumbering: which unknown stands where.
//!
//! A numbering belongs to a space: operators and vectors in it live and compute in the new order, and `b` and `x` are
//! permuted once, on their way in and out.

mod aggregate;
mod bisect;
mod clustered;
mod exchange;
mod graph;
mod rcm;

use crate::{Csr, Error, Real, Result};

/// A permutation of unknowns, with its inverse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbering {
    old_of_new: Vec<u32>,
    new_of_old: Vec<u32>,
}

impl Numbering {
    /// From the old index of each new one.
    pub fn from_old_of_new(old_of_new: Vec<u32>) -> Result<Numbering> {
        let len = old_of_new.len();
        let mut new_of_old = vec![u32::MAX; len];
        for (position, &index) in old_of_new.iter().enumerate() {
            match new_of_old.get_mut(index as usize) {
                Some(place) if *place == u32::MAX => *place = position as u32,
                _ => return Err(Error::NotPermutation { len, position, index: index as usize }),
            }
        }
        Ok(Numbering { old_of_new, new_of_old })
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
