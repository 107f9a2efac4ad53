//! Where the entries of a matrix stand, and in which order its values were given.

use crate::{Error, Real, Result};
use krysp_kernels::buffer::{Buffer, Plain};
use krysp_kernels::cpu::threads::{Split, over_rows};
use krysp_kernels::index::{Columns, Offsets};
use rayon::prelude::*;
use std::ops::Range;

/// The pattern of a matrix: sorted rows, and how given values become entries. Shared by every format made from one
/// matrix, and by matrices of equal pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) offsets: Offsets,
    pub(crate) columns: Columns,
    pub(crate) given: Given,
}

/// How given values become the entries of sorted rows.
#[derive(Debug)]
pub(crate) enum Given {
    /// In order already.
    InOrder { len: usize },
    /// Entry `k` is the given value `from[k]`.
    Permuted { len: usize, from: Buffer<u32> },
    /// Entry `k` is the sum of the given values `from[starts.range(k)]`, added in the order given.
    Summed { len: usize, starts: Offsets, from: Buffer<u32> },
}

impl Given {
    pub(crate) fn len(&self) -> usize {
        match self {
            Given::InOrder { len } | Given::Permuted { len, .. } | Given::Summed { len, .. } => *len,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Given::InOrder { .. } => 0,
            Given::Permuted { from, .. } => size_of_val(&**from),
            Given::Summed { starts, from, .. } => starts.bytes() + size_of_val(&**from),
        }
    }

    /// The places of the given values that make up an entry.
    pub(crate) fn sources(&self, entry: usize) -> impl Iterator<Item = u32> + '_ {
        let (one, many) = match self {
            Given::InOrder { .. } => (Some(entry as u32), &[][..]),
            Given::Permuted { from, .. } => (Some(from[entry]), &[][..]),
            Given::Summed { starts, from, .. } => (None, &from[starts.range(entry)]),
        };
        one.into_iter().chain(many.iter().copied())
    }
}

/// Entries as they come: a row, a column, and the value's place in what the user gave.
#[derive(Clone, Copy)]
struct Entry {
    column: u32,
    place: u32,
}

impl Pattern {
    pub(crate) fn rows(&self) -> usize {
        self.offsets.ranges()
    }

    pub(crate) fn cols(&self) -> usize {
        self.columns.bound()
    }

    pub(crate) fn entries(&self) -> usize {
        self.columns.len()
    }

    pub(crate) fn row(&self, row: usize) -> &[u32] {
        &self.columns[self.offsets.range(row)]
    }

    /// Bytes held: offsets, columns and the order of the given values.
    pub(crate) fn bytes(&self) -> usize {
        self.offsets.bytes() + size_of_val(&*self.columns) + self.given.bytes()
    }

    /// A pattern whose rows are sorted and free of duplicates already.
    pub(crate) fn sorted(offsets: Offsets, columns: Vec<u32>, cols: usize) -> Result<Pattern> {
        let len = columns.len();
        let columns = checked(columns, cols)?;
        Ok(Pattern { offsets, columns, given: Given::InOrder { len } })
    }

    /// A pattern from the rows and columns of its entries, in any order; equal places are summed.
    pub(crate) fn from_coordinates(rows: usize, cols: usize, row: &[u32], column: &[u32]) -> Result<Pattern> {
        check_places(row.len())?;
        let mut starts = vec![0u64; rows + 1];
        for &row in row {
            starts[row as usize + 1] += 1;
        }
        for i in 0..rows {
            starts[i + 1] += starts[i];
        }
        let mut entries = vec![Entry { column: 0, place: 0 }; row.len()];
        let mut next = starts.clone();
        for (place, (&row, &column)) in row.iter().zip(column).enumerate() {
            let at = &mut next[row as usize];
            entries[*at as usize] = Entry { column, place: place as u32 };
            *at += 1;
        }
        Self::from_rows(cols, &Offsets::new(&starts).map_err(|_| unreachable_order())?, entries, row.len())
    }

    /// A pattern from rows whose entries may be unsorted and repeated.
    pub(crate) fn from_unsorted_rows(offsets: &Offsets, columns: &[u32], cols: usize) -> Result<Pattern> {
        check_places(columns.len())?;
        let entries =
            columns.iter().enumerate().map(|(place, &column)| Entry { column, place: place as u32 });
        Self::from_rows(cols, offsets, entries.collect(), columns.len())
    }

    fn from_rows(cols: usize, starts: &Offsets, mut entries: Vec<Entry>, given: usize) -> Result<Pattern> {
        let rows = starts.ranges();
        let mut lengths = vec![0usize; rows];
        let start = |row| starts.at(row);
        let by_row = ByRow::new(&mut entries, &start);
        over_rows(rows, 8, (lengths.as_mut_slice(), by_row), &|range,
                                                               (lengths, mut entries): (
            &mut [usize],
            ByRow<'_, _>,
        )| {
            for (row, length) in range.zip(lengths) {
                let entries = entries.row_mut(row, starts.range(row).len());
                // places are distinct, so the order is that of a stable sort
                entries.sort_unstable_by_key(|e| (e.column, e.place));
                *length = entries.chunk_by(|a, b| a.column == b.column).count();
            }
        });
        let offsets = Offsets::from_lengths(lengths.iter().copied());
        if offsets.end() == entries.len() {
            let columns = entries.par_iter().map(|e| e.column).collect();
            let in_order = entries.par_iter().enumerate().all(|(k, e)| e.place as usize == k);
            let given = if in_order {
                Given::InOrder { len: given }
            } else {
                let from: Vec<u32> = entries.par_iter().map(|e| e.place).collect();
                Given::Permuted { len: given, from: from.into() }
            };
            return Ok(Pattern { offsets, columns: checked(columns, cols)?, given });
        }
        let (mut columns, mut sums) = (Vec::with_capacity(offsets.end()), Vec::with_capacity(offsets.end()));
        for row in 0..rows {
            for same in entries[starts.range(row)].chunk_by(|a, b| a.column == b.column) {
                columns.push(same[0].column);
                sums.push(same.len());
            }
        }
        let from: Vec<u32> = entries.iter().map(|e| e.place).collect();
        let given = Given::Summed { len: given, starts: Offsets::from_lengths(sums), from: from.into() };
        Ok(Pattern { offsets, columns: checked(columns, cols)?, given })
    }

    /// The pattern with every entry put elsewhere: `place(row, column)` says where, in a matrix of the same shape.
    /// `mirror` puts a second copy of off-diagonal entries at the transposed place. Comes with the entry of this pattern
    /// that each new entry is.
    pub(crate) fn rearranged(
        &self,
        place: impl Fn(u32, u32) -> (u32, u32),
        mirror: bool,
    ) -> Result<(Pattern, Vec<u32>)> {
        let copies = if mirror { 2 * self.entries() } else { self.entries() };
        let (mut row, mut column) = (Vec::with_capacity(copies), Vec::with_capacity(copies));
        let mut origin = Vec::with_capacity(copies);
        for i in 0..self.rows() {
            for (k, &j) in self.offsets.range(i).zip(self.row(i)) {
                let (to_row, to_column) = place(i as u32, j);
                row.push(to_row);
                column.push(to_column);
                origin.push(k as u32);
                if mirror && i as u32 != j {
                    row.push(to_column);
                    column.push(to_row);
                    origin.push(k as u32);
                }
            }
        }
        let mut pattern = Self::from_coordinates(self.rows(), self.cols(), &row, &column)?;
        // the new pattern's given values are this one's entries: go back to what the user gave
        let len = self.given.len();
        let order: Vec<u32> = (0..pattern.entries())
            .map(|k| pattern.given.sources(k).next().map_or(0, |s| origin[s as usize]))
            .collect();
        pattern.given = match &self.given {
            Given::InOrder { .. } if order.iter().enumerate().all(|(k, &o)| k == o as usize) => {
                Given::InOrder { len }
            }
            Given::InOrder { .. } | Given::Permuted { .. } => {
                let from: Vec<u32> = order.iter().flat_map(|&o| self.given.sources(o as usize)).collect();
                Given::Permuted { len, from: from.into() }
            }
            Given::Summed { starts, .. } => {
                let starts = Offsets::from_lengths(order.iter().map(|&o| starts.range(o as usize).len()));
                let from: Vec<u32> = order.iter().flat_map(|&o| self.given.sources(o as usize)).collect();
                Given::Summed { len, starts, from: from.into() }
            }
        };
        Ok((pattern, order))
    }

    /// The entries' values from the given ones.
    pub(crate) fn assemble<T: Real>(&self, given: &[T], entries: &mut [T]) -> Result<()> {
        if given.len() != self.given.len() {
            return Err(Error::Length {
                what: "`values`",
                got: given.len(),
                expected: self.given.len(),
                why: "as many as the matrix was given with",
            });
        }
        match &self.given {
            Given::InOrder { .. } => entries.copy_from_slice(given),
            Given::Permuted { from, .. } => {
                over_rows(entries.len(), 2, entries, &|range, entries: &mut [T]| {
                    for (entry, &from) in entries.iter_mut().zip(&from[range]) {
                        *entry = given[from as usize];
                    }
                })
            }
            Given::Summed { starts, from, .. } => {
                over_rows(entries.len(), 2, entries, &|range, entries: &mut [T]| {
                    for (k, entry) in range.zip(entries) {
                        let mut parts = from[starts.range(k)].iter().map(|&f| given[f as usize]);
                        let first = parts.next().unwrap_or_default();
                        *entry = parts.fold(first, |sum, value| sum + value);
                    }
                });
            }
        }
        Ok(())
    }
}

fn unreachable_order() -> Error {
    Error::Offsets { position: 0, offset: 0, entries: 0 }
}

fn checked(columns: Vec<u32>, cols: usize) -> Result<Columns> {
    Columns::new(columns, cols).map_err(|invalid| match invalid {
        krysp_kernels::index::Invalid::Bound { position, index, bound } => {
            Error::Index { position, what: "column", index: i128::from(index), bound: bound as usize }
        }
        krysp_kernels::index::Invalid::Order { position } => {
            Error::Offsets { position, offset: 0, entries: 0 }
        }
    })
}

/// Values that must be permuted or summed are found by 32-bit places.
fn check_places(len: usize) -> Result<()> {
    if len as u64 <= u64::from(u32::MAX) {
        return Ok(());
    }
    Err(Error::Unsuitable {
        format: "unsorted input",
        why: format!("{len} values are more than 32-bit places reach: give CSR with sorted rows"),
    })
}

/// An array whose rows have different lengths, handed out to threads by rows.
pub(crate) struct ByRow<'a, X> {
    data: &'a mut [X],
    first: usize,
    offset: &'a (dyn Fn(usize) -> usize + Sync),
}

impl<'a, X> ByRow<'a, X> {
    pub(crate) fn new(data: &'a mut [X], offset: &'a (dyn Fn(usize) -> usize + Sync)) -> Self {
        ByRow { data, first: 0, offset }
    }

    /// The entries of a row that this holds.
    fn row_mut(&mut self, row: usize, len: usize) -> &mut [X] {
        let start = (self.offset)(row) - (self.offset)(self.first);
        &mut self.data[start..start + len]
    }

    /// All entries that this holds, and the place of the first in the whole array.
    pub(crate) fn all(self) -> (&'a mut [X], usize) {
        (self.data, (self.offset)(self.first))
    }
}

impl<X: Send> Split for ByRow<'_, X> {
    fn split(self, rows: usize) -> (Self, Self) {
        let ByRow { data, first, offset } = self;
        let (a, b) = data.split_at_mut(offset(first + rows) - offset(first));
        (ByRow { data: a, first, offset }, ByRow { data: b, first: first + rows, offset })
    }
}

/// Fills an array whose rows (or groups of rows) lie one after the other: `fill(rows, part, place of the part's first)`.
pub(crate) fn fill_by_rows<X: Plain>(
    rows: usize,
    data: &mut [X],
    offset: &(dyn Fn(usize) -> usize + Sync),
    fill: &(impl Fn(Range<usize>, &mut [X], usize) + Sync),
) {
    over_rows(rows, 8, ByRow::new(data, offset), &|rows, part: ByRow<'_, X>| {
        let (part, first) = part.all();
        fill(rows, part, first);
    });
}
