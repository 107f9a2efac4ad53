//! Strength of connection: which neighbours of a node have errors like its own.
//!
//! ```text
//! s_ij = ‖A_ij‖ / (‖A_ii‖ ‖A_jj‖)^½                       Frobenius norms of blocks
//! strong:    s_ij ≥ θ min(max_k s_ik, max_k s_jk)
//! left out:  Σ_j ‖A_ij‖ ≤ ‖A_ii‖ / 5
//! ```
//!
//! Smoothing alone solves for nodes that are left out: Dirichlet rows, and what hardly knows its neighbours.
//!
//! Departure from Vaněk, Mandel and Brezina (1996), who compare `s_ij` with `θ` alone: dense rows have many small couplings,
//! none of which may be told from the others. A coupling that is strong for one of both nodes is strong.
//!
//! Budget: two passes over `A`, and a third where something is weak.

use super::blocks::Blocks;
use super::power_below;
use crate::formats::pattern::Pattern;
use crate::{Error, Result};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{ByRow, find_row, map_rows, over_rows};
use krysp_kernels::index::Offsets;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A node whose couplings add up to no more than this part of its diagonal is left out: a sweep of Jacobi leaves this part of
/// its error (Napov and Notay 2012 say where one may).
pub(super) const DOMINANT: f64 = 0.2;

/// Which connections are strong.
#[derive(Debug)]
pub(super) struct Strength {
    /// Where they are, nodes with themselves included; none where all of the matrix is strong.
    pub(super) strong: Option<Pattern>,
    /// Nodes that smoothing alone solves for.
    pub(super) left_out: Vec<bool>,
}

impl Strength {
    /// Of a matrix with a positive diagonal, or rows of nothing. Where columns go on beyond the rows, `beyond` adds the numbers
    /// of those nodes to the numbers of these.
    pub(super) fn new(
        a: Blocks<'_>,
        theta: f64,
        beyond: &dyn Fn(Vec<f64>) -> Result<Vec<f64>>,
    ) -> Result<Strength> {
        match a.shape {
            [1, 1] => Strength::with_norm(a, theta, beyond, |_, entry| a.values[entry].abs()),
            _ => {
                let norm = |node: usize, entry: usize| {
                    a.lines(node, entry).flatten().map(|v| v * v).sum::<f64>().sqrt()
                };
                Strength::with_norm(a, theta, beyond, norm)
            }
        }
    }

    #[inline(always)]
    fn with_norm(
        a: Blocks<'_>,
        theta: f64,
        beyond: &dyn Fn(Vec<f64>) -> Result<Vec<f64>>,
        norm: impl Fn(usize, usize) -> f64 + Sync,
    ) -> Result<Strength> {
        let nodes = a.pattern.rows();
        // ‖A_ii‖^−½
        let roots = map_rows(nodes, 8, &|node| {
            let own = a.own(node).map_or(0.0, |entry| norm(node, entry));
            if own > 0.0 { 1.0 / own.sqrt() } else { 0.0 }
        });
        let roots = beyond(roots)?;
        let row = |node: usize| a.pattern.offsets.range(node).zip(a.pattern.row(node));
        let coupling = |root: f64, column: u32, norm: f64| root * roots[column as usize] * norm;
        let (mut most, mut left_out) = (vec![0.0; nodes], vec![false; nodes]);
        let any_weak = AtomicBool::new(false);
        let data = (most.as_mut_slice(), left_out.as_mut_slice());
        over_rows(nodes, 32, data, &|range, (most, left_out): (&mut [f64], &mut [bool])| {
            for ((node, most), left_out) in range.zip(most).zip(left_out) {
                let (mut largest, mut smallest, mut sum) = (0.0_f64, f64::INFINITY, 0.0);
                let root = roots[node];
                for (entry, &column) in row(node).filter(|(_, column)| **column as usize != node) {
                    let norm = norm(node, entry);
                    let s = coupling(root, column, norm);
                    (largest, smallest) = (largest.max(s), smallest.min(s));
                    sum += norm;
                }
                *most = largest;
                *left_out = sum * root * root <= DOMINANT || root == 0.0;
                if smallest < theta * largest {
                    any_weak.store(true, Relaxed);
                }
            }
        });
        let (largest, all) = (beyond(most)?, !any_weak.into_inner());
        if all {
            return Ok(Strength { strong: None, left_out });
        }
        let is_strong = |node: usize, entry: usize, column: u32| {
            let s = coupling(roots[node], column, norm(node, entry));
            // no processor foretells what is strong: all is computed, and nothing jumps
            (s >= theta * largest[node]) | (s >= theta * largest[column as usize]) | (column as usize == node)
        };
        let (mut marks, mut lengths) = (Buffer::<u8>::zeros(a.pattern.entries()), vec![0u32; nodes]);
        let offset = |node: usize| a.pattern.offsets.at(node);
        let data = (ByRow::new(&mut marks, &offset), lengths.as_mut_slice());
        over_rows(nodes, 32, data, &|nodes, (marks, lengths): (ByRow<'_, u8>, &mut [u32])| {
            let (mut marks, _) = marks.all();
            for (node, length) in nodes.zip(lengths) {
                let (own, rest) = marks.split_at_mut(row(node).len());
                for (mark, (entry, &column)) in own.iter_mut().zip(row(node)) {
                    *mark = u8::from(is_strong(node, entry, column));
                    *length += u32::from(*mark);
                }
                marks = rest;
            }
        });
        let offsets = Offsets::of_rows(nodes, &|node| lengths[node] as usize);
        let mut columns = Buffer::zeros(offsets.end());
        let offset = |node: usize| offsets.at(node);
        over_rows(nodes, 32, ByRow::new(&mut columns, &offset), &|nodes, part: ByRow<'_, u32>| {
            let (part, _) = part.all();
            let (mut count, entries) =
                (0, a.pattern.offsets.at(nodes.start)..a.pattern.offsets.at(nodes.end));
            for (mark, &column) in marks[entries.clone()].iter().zip(&a.pattern.columns[entries]) {
                if let Some(to) = part.get_mut(count) {
                    *to = column;
                }
                count += usize::from(*mark);
            }
        });
        Ok(Strength { strong: Some(Pattern::sorted(offsets, columns, a.pattern.cols())?), left_out })
    }
}

/// The inverse of the diagonal, zero for rows of nothing; refuses what is not positive.
pub(super) fn inverse_diagonal(a: Blocks<'_>) -> Result<Vec<f64>> {
    let size = a.shape[0];
    let entry = |row: usize| {
        let node = row / size;
        a.own(node).map_or(0.0, |entry| a.line(node, entry, row % size)[row % size])
    };
    let inverse = map_rows(a.pattern.rows() * size, 8, &|row| {
        let entry = entry(row);
        if entry == 0.0 { 0.0 } else { 1.0 / entry }
    });
    let is_empty = |row: usize| {
        let node = row / size;
        let mut lines = a.pattern.offsets.range(node).map(|entry| a.line(node, entry, row % size));
        lines.all(|line| line.iter().all(|number| *number == 0.0))
    };
    let wrong = |row: usize| {
        let inverse = inverse[row];
        let right = if inverse == 0.0 { is_empty(row) } else { inverse > 0.0 && inverse.is_finite() };
        !right
    };
    match find_row(inverse.len(), 2, &wrong) {
        Some(row) => Err(Error::NotPositive { what: super::NAME, row, pivot: entry(row) }),
        None => Ok(inverse),
    }
}

/// The smallest number of an inverse diagonal that is not zero, infinity if all are.
pub(super) fn least_of(inverse: &[f64]) -> f64 {
    // the bits of positive numbers are in their order
    let least = AtomicU64::new(f64::INFINITY.to_bits());
    over_rows(inverse.len(), 1, (), &|rows, ()| {
        let own = inverse[rows].iter().filter(|v| **v > 0.0).fold(f64::INFINITY, |least, &v| least.min(v));
        least.fetch_min(own.to_bits(), Relaxed);
    });
    f64::from_bits(least.into_inner())
}

/// What brings the largest number on a diagonal near one, whose inverse is the smallest.
pub(super) fn scale_of(least: f64) -> f64 {
    1.0 / power_below(1.0 / least)
}
