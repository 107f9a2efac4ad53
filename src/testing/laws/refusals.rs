//! Matrices that a format may refuse. The laws compare the result of a conversion with one of these independent tests.

use crate::formats::Csr;
use crate::numbers::Real;
use std::collections::HashSet;

/// No matrix may be refused.
pub fn nothing<T: Real>(_: &Csr<T>) -> bool {
    false
}

/// Any matrix may be refused, if the format would have no advantage.
pub fn anything<T: Real>(_: &Csr<T>) -> bool {
    true
}

/// Matrices with more than 20 slots per entry if rows are padded to the longest.
pub fn mostly_padding<T: Real>(a: &Csr<T>) -> bool {
    a.rows() * a.row_lengths().max().unwrap_or(0) > 20 * a.nnz()
}

/// Matrices with more than 20 slots on stored diagonals per entry.
pub fn many_diagonals<T: Real>(a: &Csr<T>) -> bool {
    let diagonals: HashSet<_> = a.triplets().map(|(row, column, _)| column as i64 - row as i64).collect();
    a.rows() * diagonals.len() > 20 * a.nnz()
}

/// Matrices that are not symmetric or not square.
pub fn unsymmetric<T: Real>(a: &Csr<T>) -> bool {
    a.rows() != a.cols() || a.triplets().any(|(row, column, value)| a.get(column, row) != Some(value))
}
