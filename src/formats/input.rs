//! Constructors from users' arrays, which are checked once.

use super::pattern::Pattern;
use super::{Csr, Source};
use crate::error::{Error, Result};
use crate::host::HostSpace;
use crate::numbers::Real;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{fill_by_rows, find_row, map_rows};
use krysp_kernels::index::{Columns, Offsets};
use std::sync::Arc;

/// An index type of users' arrays.
pub trait Index: Copy + Send + Sync {
    /// Converts to a type that represents every index. Callers check for negative and too large indices.
    fn to_i128(self) -> i128;

    /// Reinterprets the indices as 32-bit unsigned ones in the same memory, if they have 32 bits and none is
    /// negative; otherwise returns them unchanged as an error.
    fn adopted(indices: Vec<Self>) -> std::result::Result<Vec<u32>, Vec<Self>> {
        Err(indices)
    }
}

macro_rules! index {
    ($($type:ty),*) => {$(
        impl Index for $type {
            fn to_i128(self) -> i128 {
                self as i128
            }
        }
    )*};
}
index!(usize, u16, u64, isize, i16, i64);

impl Index for u32 {
    fn to_i128(self) -> i128 {
        i128::from(self)
    }

    fn adopted(indices: Vec<u32>) -> std::result::Result<Vec<u32>, Vec<u32>> {
        Ok(indices)
    }
}

impl Index for i32 {
    fn to_i128(self) -> i128 {
        i128::from(self)
    }

    fn adopted(indices: Vec<i32>) -> std::result::Result<Vec<u32>, Vec<i32>> {
        if indices.iter().any(|&index| index < 0) {
            return Err(indices);
        }
        // the standard library collects in place here, without a new allocation
        Ok(indices.into_iter().map(|index| index as u32).collect())
    }
}

impl<T: Real> Csr<T> {
    /// Builds a matrix from `(row, column, value)` triplets in any order. Values of duplicate positions are
    /// added in the order given.
    pub fn from_triplets<I: Index>(rows: usize, cols: usize, entries: &[(I, I, T)]) -> Result<Csr<T>> {
        let row = indices("row", rows, entries, |e| e.0)?;
        let column = indices("column", cols, entries, |e| e.1)?;
        let values: Vec<T> = map_rows(entries.len(), 4, &|k| entries[k].2);
        Self::assembled(Pattern::from_coordinates(rows, cols, &row, &column)?, &values)
    }

    /// Builds a matrix from arrays of rows, columns and values in any order. Values of duplicate positions
    /// are added in the order given.
    pub fn from_coordinates<I: Index>(
        rows: usize,
        cols: usize,
        row: &[I],
        column: &[I],
        values: &[T],
    ) -> Result<Csr<T>> {
        same_length("the columns", column.len(), values.len())?;
        same_length("the rows", row.len(), values.len())?;
        let row = indices("row", rows, row, |&i| i)?;
        let column = indices("column", cols, column, |&j| j)?;
        Self::assembled(Pattern::from_coordinates(rows, cols, &row, &column)?, values)
    }

    /// Builds a matrix from CSR arrays. Columns may be in any order within a row; values of duplicate
    /// positions are added.
    pub fn from_csr<I: Index, J: Index>(
        rows: usize,
        cols: usize,
        offsets: &[I],
        columns: &[J],
        values: &[T],
    ) -> Result<Csr<T>> {
        let columns = indices("column", cols, columns, |&j| j)?;
        let offsets = checked_offsets("row", rows, offsets, columns.len())?;
        same_length("the values", values.len(), columns.len())?;
        let pattern = if rows_are_sorted(&offsets, &columns) {
            Pattern::sorted(offsets, columns, cols)?
        } else {
            Pattern::from_unsorted_rows(&offsets, &columns, cols)?
        };
        Self::assembled(pattern, values)
    }

    /// Builds a matrix from CSC arrays. Rows may be in any order within a column; values of duplicate
    /// positions are added.
    pub fn from_csc<I: Index, J: Index>(
        rows: usize,
        cols: usize,
        offsets: &[I],
        row: &[J],
        values: &[T],
    ) -> Result<Csr<T>> {
        let row = indices("row", rows, row, |&i| i)?;
        let offsets = checked_offsets("column", cols, offsets, row.len())?;
        same_length("the values", values.len(), row.len())?;
        let mut column = Buffer::zeros(row.len());
        fill_by_rows(cols, &mut column, &|j| offsets.at(j), &|columns, part, first| {
            for j in columns {
                let range = offsets.range(j);
                part[range.start - first..range.end - first].fill(j as u32);
            }
        });
        Self::assembled(Pattern::from_coordinates(rows, cols, &row, &column)?, values)
    }

    /// Builds a matrix from CSR arrays with ascending columns and takes ownership of them: values are not
    /// copied, nor are 32-bit indices.
    ///
    /// The arrays are lost on error. [`Csr::from_csr`] accepts unsorted rows.
    pub fn from_sorted<I: Index, J: Index>(
        cols: usize,
        offsets: Vec<I>,
        columns: Vec<J>,
        values: Vec<T>,
    ) -> Result<Csr<T>> {
        let (rows, entries) = (offsets.len().saturating_sub(1), columns.len());
        same_length("the values", values.len(), entries)?;
        dimension("row", rows)?;
        let offsets = match I::adopted(offsets) {
            Err(offsets) => checked_offsets("row", rows, &offsets, entries)?,
            Ok(offsets) => {
                let last = offsets.last().copied().unwrap_or(0);
                Offsets::from_short(offsets).ok().filter(|o| o.end() == entries).ok_or(Error::Offsets {
                    position: rows,
                    offset: i128::from(last),
                    entries,
                })?
            }
        };
        dimension("column", cols)?;
        let columns = match J::adopted(columns) {
            Err(columns) => indices("column", cols, &columns, |&j| j)?,
            Ok(columns) => columns,
        };
        if !rows_are_sorted(&offsets, &columns) {
            return Err(Error::Option {
                what: "the columns",
                got: "unsorted or repeated within a row".into(),
                expected: "ascending columns in each row are required; `Csr::from_csr` sorts",
            });
        }
        let pattern = Pattern::sorted(offsets, columns, cols)?;
        Ok(Self::placed(pattern, values.into()))
    }

    fn assembled(pattern: Pattern, values: &[T]) -> Result<Csr<T>> {
        let mut entries = Buffer::zeros(pattern.entries());
        pattern.given.assemble(values, &mut entries)?;
        Ok(Self::placed(pattern, entries))
    }

    fn placed(pattern: Pattern, entries: Buffer<T>) -> Csr<T> {
        let (domain, range) = (HostSpace::new(pattern.cols()), HostSpace::new(pattern.rows()));
        Csr::from_source(Source::new(Arc::new(pattern), domain, range), entries)
    }
}

fn dimension(what: &'static str, got: usize) -> Result<()> {
    if got <= Columns::LIMIT { Ok(()) } else { Err(Error::TooLarge { what, got }) }
}

fn same_length(what: &'static str, got: usize, expected: usize) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::Length { what, got, expected, why: "one for each entry" })
}

/// Converts indices to 32 bits and checks that each is below its bound.
fn indices<E: Sync, I: Index>(
    what: &'static str,
    bound: usize,
    given: &[E],
    index: impl Fn(&E) -> I + Sync,
) -> Result<Vec<u32>> {
    dimension(what, bound)?;
    let index = |e: &E| index(e).to_i128();
    let outside = |position: usize| !(0..bound as i128).contains(&index(&given[position]));
    if let Some(position) = find_row(given.len(), 1, &outside) {
        return Err(Error::Index { position, what, index: index(&given[position]), bound });
    }
    Ok(map_rows(given.len(), 2, &|position| index(&given[position]) as u32))
}

fn checked_offsets<I: Index>(
    what: &'static str,
    ranges: usize,
    given: &[I],
    entries: usize,
) -> Result<Offsets> {
    dimension(what, ranges)?;
    if given.len() != ranges + 1 {
        return Err(Error::Length {
            what: "the offsets",
            got: given.len(),
            expected: ranges + 1,
            why: "one for each row (or column), and the end",
        });
    }
    let mut offsets = Vec::with_capacity(given.len());
    let mut least = 0;
    for (position, offset) in given.iter().enumerate() {
        let offset = offset.to_i128();
        let must_be = if position == 0 {
            0..=0
        } else if position == ranges {
            entries as i128..=entries as i128
        } else {
            least..=entries as i128
        };
        if !must_be.contains(&offset) || offset < least {
            return Err(Error::Offsets { position, offset, entries });
        }
        least = offset;
        offsets.push(offset as u64);
    }
    if ranges == 0 && entries > 0 {
        return Err(Error::Offsets { position: 0, offset: 0, entries });
    }
    Offsets::new(&offsets).map_err(|_| Error::Offsets { position: 0, offset: 0, entries })
}

fn rows_are_sorted(offsets: &Offsets, columns: &[u32]) -> bool {
    let falls = |row: usize| columns[offsets.range(row)].windows(2).any(|w| w[0] >= w[1]);
    find_row(offsets.ranges(), 8, &falls).is_none()
}
