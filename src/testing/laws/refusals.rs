//! Which matrices a format may refuse: what a conversion says is compared with one of these, found another way.

use crate::{Csr, Real};
use std::collections::HashSet;

/// None.
pub fn nothing<T: Real>(_: &Csr<T>) -> bool {
    false
}

/// Any. A format may refuse what it would gain nothing on.
pub fn anything<T: Real>(_: &Csr<T>) -> bool {
    true
}

/// More than 20 places for each entry, where rows are padded to the longest.
pub fn mostly_padding<T: Real>(a: &Csr<T>) -> bool {
    a.rows() * a.row_lengths().max().unwrap_or(0) > 20 * a.nnz()
}

/// More than 20 places on diagonals for each entry.
pub fn many_diagonals<T: Real>(a: &Csr<T>) -> bool {
    let diagonals: HashSet<_> = a.triplets().map(|(row, column, _)| column as i64 - row as i64).collect();
    a.rows() * diagonals.len() > 20 * a.nnz()
}

/// An entry has none, or another, on the other side of the diagonal.
pub fn unsymmetric<T: Real>(a: &Csr<T>) -> bool {
    a.rows() != a.cols() || a.triplets().any(|(row, column, value)| a.get(column, row) != Some(value))
}
