//! Strength of connection: along which connections smooth errors vary slowly.
//!
//! ```text
//! s_ij = ‖A_ij‖ / (‖A_ii‖ ‖A_jj‖)^½                       Frobenius norms of blocks
//! strong:    s_ij ≥ θ min(max_k s_ik, max_k s_jk)
//! left out:  Σ_j≠i ‖A_ij‖ ≤ ‖A_ii‖ / 5
//! ```
//!
//! Nodes that are left out are not aggregated, smoothing alone solves for them: Dirichlet rows, and strongly
//! diagonally dominant rows.
//!
//! Departure from Vaněk, Mandel and Brezina (1996), who compare `s_ij` with `θ` itself: dense rows have many
//! couplings, all of which are small, and none would be strong. Here the threshold is relative to the
//! strongest coupling of a node, and a coupling that is strong for one of its two nodes is strong.
//!
//! Cost: one pass over `A` after one over its diagonal blocks; where some connection is weak, a second pass
//! over `A` and one over its pattern.

use super::blocks::Blocks;
use super::power_below;
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{ByRow, find_row, map_rows, over_long_rows, over_rows};
use krysp_kernels::index::Offsets;
use krysp_kernels::multigrid::DOMINANT;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The strong connections of a matrix.
#[derive(Debug)]
pub(crate) struct Strength {
    /// Pattern of the strong connections and the diagonal; `None` if all connections are strong.
    pub(crate) strong: Option<Pattern>,
    /// Nodes that are only smoothed.
    pub(crate) left_out: Vec<bool>,
}

impl Strength {
    /// Computes the strong connections of a matrix whose diagonal is positive except in zero rows. If the
    /// matrix has more columns than rows (ghosts on ranks), `with_ghosts` takes one number for each row and
    /// appends those for the further columns.
    pub(crate) fn new(
        a: Blocks<'_>,
        theta: f64,
        with_ghosts: &dyn Fn(Vec<f64>) -> Result<Vec<f64>>,
    ) -> Result<Strength> {
        match a.shape {
            [1, 1] => Strength::with_norm(a, theta, with_ghosts, |_, entry| a.values[entry].abs()),
            _ => {
                let norm = |node: usize, entry: usize| {
                    a.rows_of_block(node, entry).flatten().map(|v| v * v).sum::<f64>().sqrt()
                };
                Strength::with_norm(a, theta, with_ghosts, norm)
            }
        }
    }

    #[inline(always)]
    fn with_norm(
        a: Blocks<'_>,
        theta: f64,
        with_ghosts: &dyn Fn(Vec<f64>) -> Result<Vec<f64>>,
        norm: impl Fn(usize, usize) -> f64 + Sync,
    ) -> Result<Strength> {
        let nodes = a.pattern.rows();
        // ‖A_ii‖^−½
        let roots = map_rows(nodes, 8, &|node| {
            let own = a.own(node).map_or(0.0, |entry| norm(node, entry));
            if own > 0.0 { 1.0 / own.sqrt() } else { 0.0 }
        });
        let roots = with_ghosts(roots)?;
        let row = |node: usize| a.pattern.offsets.range(node).zip(a.pattern.row(node));
        let coupling = |root: f64, column: u32, norm: f64| root * roots[column as usize] * norm;
        let (mut most, mut left_out) = (vec![0.0; nodes], vec![false; nodes]);
        let any_weak = AtomicBool::new(false);
        let data = (most.as_mut_slice(), left_out.as_mut_slice());
        over_long_rows(nodes, 32, data, &|range, (most, left_out): (&mut [f64], &mut [bool])| {
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
        let (largest, all) = (with_ghosts(most)?, !any_weak.into_inner());
        if all {
            return Ok(Strength { strong: None, left_out });
        }
        let is_strong = |node: usize, entry: usize, column: u32| {
            let s = coupling(roots[node], column, norm(node, entry));
            // without branches, because strength is unpredictable
            (s >= theta * largest[node]) | (s >= theta * largest[column as usize]) | (column as usize == node)
        };
        let (mut marks, mut lengths) = (Buffer::<u8>::zeros(a.pattern.entries()), vec![0u32; nodes]);
        let offset = |node: usize| a.pattern.offsets.at(node);
        let data = (ByRow::new(&mut marks, &offset), lengths.as_mut_slice());
        over_long_rows(nodes, 32, data, &|nodes, (marks, lengths): (ByRow<'_, u8>, &mut [u32])| {
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
        over_long_rows(nodes, 32, ByRow::new(&mut columns, &offset), &|nodes, part: ByRow<'_, u32>| {
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

/// The inverse of the diagonal, zero for zero rows; refuses other entries that are not positive.
pub(crate) fn inverse_diagonal(a: Blocks<'_>) -> Result<Vec<f64>> {
    let size = a.shape[0];
    let entry = |row: usize| {
        let node = row / size;
        a.own(node).map_or(0.0, |entry| a.row_of_block(node, entry, row % size)[row % size])
    };
    let inverse = map_rows(a.pattern.rows() * size, 8, &|row| {
        let entry = entry(row);
        if entry == 0.0 { 0.0 } else { 1.0 / entry }
    });
    let is_empty = |row: usize| {
        let node = row / size;
        let mut rows = a.pattern.offsets.range(node).map(|entry| a.row_of_block(node, entry, row % size));
        rows.all(|row| row.iter().all(|number| *number == 0.0))
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

/// The smallest nonzero number of an inverse diagonal, infinity if all are zero.
pub(crate) fn least_of(inverse: &[f64]) -> f64 {
    // the bit patterns of positive numbers are ordered as the numbers
    let least = AtomicU64::new(f64::INFINITY.to_bits());
    over_rows(inverse.len(), 1, (), &|rows, ()| {
        let own = inverse[rows].iter().filter(|v| **v > 0.0).fold(f64::INFINITY, |least, &v| least.min(v));
        least.fetch_min(own.to_bits(), Relaxed);
    });
    f64::from_bits(least.into_inner())
}

/// The power of two that scales the largest diagonal entry to about one, given its inverse.
pub(crate) fn scale_of(least: f64) -> f64 {
    1.0 / power_below(1.0 / least)
}
