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

use super::super::rows::find_rows;
use super::product::Blocks;
use crate::formats::pattern::Pattern;
use crate::{Error, Result};
use krysp_kernels::cpu::run::threads::{find_row, map_rows};

/// A node whose couplings add up to no more than this part of its diagonal is left out: a sweep of Jacobi leaves this part of
/// its error (Napov and Notay 2012 say where one may).
const DOMINANT: f64 = 0.2;

/// Which connections are strong.
#[derive(Debug)]
pub(super) struct Strength {
    /// Where they are, nodes with themselves included; none where all of the matrix is strong.
    pub(super) strong: Option<Pattern>,
    /// Nodes that smoothing alone solves for.
    pub(super) left_out: Vec<bool>,
}

impl Strength {
    /// Of a matrix with a positive diagonal, or rows of nothing.
    pub(super) fn new(a: Blocks<'_>, theta: f64) -> Result<Strength> {
        let nodes = a.pattern.rows();
        let diagonal = map_rows(nodes, 4, &|node| {
            let own = a.row(node).find(|(column, _)| *column as usize == node);
            own.map_or(0.0, |(_, block)| norm_squared(block).sqrt())
        });
        // squares of s_ij
        let coupling = |node: usize, column: u32, block: &[f64]| {
            let scale = diagonal[node] * diagonal[column as usize];
            if scale > 0.0 { norm_squared(block) / scale } else { 0.0 }
        };
        // the largest, and whether the smallest is strong beside it
        let rows = map_rows(nodes, 32, &|node| {
            let (mut largest, mut smallest, mut sum) = (0.0_f64, f64::INFINITY, 0.0);
            for (column, block) in a.row(node).filter(|(column, _)| *column as usize != node) {
                let s = coupling(node, column, block);
                (largest, smallest) = (largest.max(s), smallest.min(s));
                sum += norm_squared(block).sqrt();
            }
            (largest as f32, smallest >= theta * theta * largest, sum <= DOMINANT * diagonal[node])
        });
        let left_out = map_rows(nodes, 2, &|node| rows[node].2);
        let strong = match find_row(nodes, 2, &|node| !rows[node].1) {
            None => None,
            Some(_) => {
                let least = |node: u32| f64::from(rows[node as usize].0) * theta * theta;
                Some(find_rows(nodes, nodes, &|| (), &|node, (), columns| {
                    let own = least(node as u32);
                    let strong = |column: u32, block: &[f64]| {
                        column as usize == node || coupling(node, column, block) >= own.min(least(column))
                    };
                    columns.extend(a.row(node).filter(|(c, block)| strong(*c, block)).map(|(c, _)| c));
                    Ok(())
                })?)
            }
        };
        Ok(Strength { strong, left_out })
    }
}

/// The inverse of the diagonal, one for rows of nothing; refuses what is not positive.
pub(super) fn inverse_diagonal(a: Blocks<'_>) -> Result<Vec<f64>> {
    let size = a.shape[0];
    let entry = |row: usize| {
        let own = a.row(row / size).find(|(column, _)| *column as usize == row / size);
        own.map_or(0.0, |(_, block)| block[row % size * (size + 1)])
    };
    let inverse = map_rows(a.pattern.rows() * size, 8, &|row| {
        let entry = entry(row);
        if entry == 0.0 { 1.0 } else { 1.0 / entry }
    });
    let wrong = |row: usize| {
        let numbers = |row: usize| {
            let within = row % size * size;
            a.row(row / size).flat_map(move |(_, block)| &block[within..within + size])
        };
        !(inverse[row] > 0.0 && inverse[row].is_finite())
            || (inverse[row] == 1.0 && entry(row) == 0.0 && numbers(row).any(|number| *number != 0.0))
    };
    match find_row(inverse.len(), 2, &wrong) {
        Some(row) => Err(Error::NotPositive { what: super::NAME, row, pivot: entry(row) }),
        None => Ok(inverse),
    }
}

fn norm_squared(block: &[f64]) -> f64 {
    block.iter().map(|v| v * v).sum()
}
