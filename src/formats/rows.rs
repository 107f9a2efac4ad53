//! Borrowed rows of a matrix, for loops over short rows on one thread.

use super::Csr;
use crate::numbers::Real;
use krysp_kernels::index::OffsetsRef;
use std::ops::Range;

/// Rows of a matrix. Unlike `Csr::row_columns` and `Csr::row_values`, reading a row does not test again whether the lazy
/// columns are known, and finds columns and values by one lookup of the offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a, T> {
    offsets: OffsetsRef<'a>,
    columns: &'a [u32],
    values: &'a [T],
}

impl<'a, T: Real> Rows<'a, T> {
    /// Borrows the rows of a matrix; computes its columns if they are not known yet.
    pub(crate) fn of(csr: &'a Csr<T>) -> Rows<'a, T> {
        Rows { offsets: (&*csr.pattern().offsets).into(), columns: csr.columns(), values: csr.entries() }
    }

    /// Number of rows.
    pub(crate) fn len(self) -> usize {
        self.offsets.ranges()
    }

    /// Range of the entries of a row.
    #[inline]
    pub(crate) fn range(self, row: usize) -> Range<usize> {
        self.offsets.range(row)
    }

    /// Columns of a row's entries, ascending.
    #[inline]
    pub(crate) fn columns(self, row: usize) -> &'a [u32] {
        &self.columns[self.range(row)]
    }

    /// Columns and values of a row's entries.
    #[inline]
    pub(crate) fn row(self, row: usize) -> (&'a [u32], &'a [T]) {
        let range = self.range(row);
        (&self.columns[range.clone()], &self.values[range])
    }

    /// Columns and values of each row, in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = (&'a [u32], &'a [T])> {
        (0..self.len()).map(move |row| self.row(row))
    }
}

/// Returns up to `most` rows from all over a matrix. Each is displaced by a multiple of a prime, because equally
/// spaced rows of a structured grid could all be on the same side of the domain.
pub(crate) fn sampled_rows(rows: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = most.min(rows);
    (0..count).map(move |k| (k * rows / count + 37 * k) % rows)
}
