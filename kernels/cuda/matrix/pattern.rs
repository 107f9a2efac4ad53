//! Sparsity patterns and shapes, as passed from the host.

use crate::index::{Columns, Offsets};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::LazyLock;

/// Size of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// Number of entries.
    pub entries: usize,
}

/// A sparsity pattern: rows of ascending columns.
#[derive(Clone, Copy, Debug)]
pub struct Pattern<'a> {
    offsets: &'a Offsets,
    cols: usize,
    columns: &'a dyn HasColumns,
}

/// Provides the columns of a pattern. They may be computed at first use, because filling a matrix from arrays
/// on a device does not need them.
pub trait HasColumns: Sync + Debug {
    /// The column of each entry.
    fn columns(&self) -> &Columns;
}

impl HasColumns for Columns {
    fn columns(&self) -> &Columns {
        self
    }
}

impl<F: FnOnce() -> Columns + Send> HasColumns for LazyLock<Columns, F> {
    fn columns(&self) -> &Columns {
        self
    }
}

impl<'a> Pattern<'a> {
    /// A pattern with row offsets `offsets` and a column for each entry.
    pub fn new(offsets: &'a Offsets, columns: &'a Columns) -> Self {
        assert_eq!(offsets.end(), columns.len(), "offsets end at the number of entries");
        Pattern { offsets, cols: columns.bound(), columns }
    }

    /// A pattern whose columns are computed at first use, all below `cols`.
    pub fn with_columns_of(offsets: &'a Offsets, cols: usize, columns: &'a dyn HasColumns) -> Self {
        Pattern { offsets, cols, columns }
    }

    /// Number of rows.
    pub fn rows(self) -> usize {
        self.offsets.ranges()
    }

    /// Number of columns.
    pub fn cols(self) -> usize {
        self.cols
    }

    /// Number of entries.
    pub fn entries(self) -> usize {
        self.offsets.end()
    }

    pub(crate) fn shape(self) -> Shape {
        Shape { rows: self.rows(), cols: self.cols(), entries: self.entries() }
    }

    /// Indices of a row's entries.
    pub(crate) fn row(self, row: usize) -> Range<usize> {
        self.offsets.range(row)
    }

    pub(crate) fn offsets(self) -> &'a Offsets {
        self.offsets
    }

    pub(crate) fn columns(self) -> &'a Columns {
        let columns = self.columns.columns();
        assert_eq!((columns.len(), columns.bound()), (self.entries(), self.cols), "a column for each entry");
        columns
    }

    pub(crate) fn mean_length(self) -> f64 {
        self.entries() as f64 / self.rows().max(1) as f64
    }
}
