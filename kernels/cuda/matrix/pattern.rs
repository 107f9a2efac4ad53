//! Where the entries of a matrix stand, as kernels take it from the host.

use crate::index::{Columns, Offsets};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::LazyLock;

/// How large a matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub cols: usize,
    /// The number of entries.
    pub entries: usize,
}

/// Where the entries of a matrix stand: rows of ascending columns.
#[derive(Clone, Copy, Debug)]
pub struct Pattern<'a> {
    offsets: &'a Offsets,
    cols: usize,
    columns: &'a dyn HasColumns,
}

/// What has the columns of a pattern, or makes them when they are asked for: what fills a matrix from arrays that are on a
/// device need not do so.
pub trait HasColumns: Sync + Debug {
    /// A column for each entry.
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
    /// Rows begin at `offsets`, and `columns` has a column for each entry.
    pub fn new(offsets: &'a Offsets, columns: &'a Columns) -> Self {
        assert_eq!(offsets.end(), columns.len(), "offsets end at the number of entries");
        Pattern { offsets, cols: columns.bound(), columns }
    }

    /// A pattern whose columns need not be there yet, all below `cols`.
    pub fn with_columns_of(offsets: &'a Offsets, cols: usize, columns: &'a dyn HasColumns) -> Self {
        Pattern { offsets, cols, columns }
    }

    /// The number of rows.
    pub fn rows(self) -> usize {
        self.offsets.ranges()
    }

    /// The number of columns.
    pub fn cols(self) -> usize {
        self.cols
    }

    /// The number of entries.
    pub fn entries(self) -> usize {
        self.offsets.end()
    }

    pub(crate) fn shape(self) -> Shape {
        Shape { rows: self.rows(), cols: self.cols(), entries: self.entries() }
    }

    /// The places of a row's entries among all entries.
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
