//! The rows of one processor, split into the entries in its own columns and those in columns of other
//! processors.

use crate::error::{Error, Result};
use crate::formats::{Csr, Index};
use crate::numbers::Real;
use std::ops::Range;

/// Consecutive rows of a square matrix whose rows and columns are distributed alike.
pub(crate) struct Cut<T: Real> {
    /// The entries in columns that belong to the same range as the rows. Rows and columns are counted from
    /// the start of the range.
    pub(crate) inside: Csr<T>,
    /// The rows that have entries in columns outside of the range, counted from its start.
    pub(crate) rows: Vec<u32>,
    /// For each of `rows`, the offset of its first entry outside the range; at the end, the number of such
    /// entries.
    pub(crate) offsets: Vec<u32>,
    /// For each entry outside the range, the index of its column in `ghosts`.
    pub(crate) columns: Vec<u32>,
    /// The value of each entry outside the range.
    pub(crate) values: Vec<T>,
    /// The distinct columns of the entries outside the range, in ascending order.
    pub(crate) ghosts: Vec<u64>,
}

impl<T: Real> Cut<T> {
    /// Extracts `rows` of a square matrix.
    #[cfg(any(feature = "cuda", feature = "testing", test))]
    pub(crate) fn of(csr: &Csr<T>, rows: &Range<usize>) -> Result<Cut<T>> {
        let at = &csr.pattern().offsets;
        let entries = at.at(rows.start)..at.at(rows.end);
        let offsets: Vec<usize> = (rows.start..=rows.end).map(|row| at.at(row) - entries.start).collect();
        let (columns, values) = (&csr.columns()[entries.clone()], &csr.entries()[entries]);
        Cut::new(csr.rows() as u64, rows.start as u64..rows.end as u64, &offsets, columns, values)
    }

    /// Extracts `rows` of a matrix with `all` rows. `offsets` are the CSR offsets of these rows into
    /// `columns` and `values`.
    pub(crate) fn new<I: Index>(
        all: u64,
        rows: Range<u64>,
        offsets: &[usize],
        columns: &[I],
        values: &[T],
    ) -> Result<Cut<T>> {
        let n = (rows.end - rows.start) as usize;
        let (mut starts, mut inside, mut kept) = (vec![0usize], vec![], vec![]);
        let (mut boundary, mut bounds, mut outside, mut others) = (vec![], vec![], vec![], vec![]);
        for row in 0..n {
            for at in offsets[row]..offsets[row + 1] {
                let index = columns[at].to_i128();
                let Some(column) = u64::try_from(index).ok().filter(|&column| column < all) else {
                    return Err(Error::Index { position: at, what: "column", index, bound: all as usize });
                };
                if rows.contains(&column) {
                    inside.push((column - rows.start) as u32);
                    kept.push(values[at]);
                    continue;
                }
                if boundary.last() != Some(&(row as u32)) {
                    boundary.push(row as u32);
                    bounds.push(outside.len() as u32);
                }
                outside.push(column);
                others.push(values[at]);
            }
            starts.push(inside.len());
        }
        bounds.push(outside.len() as u32);
        let mut ghosts = outside.clone();
        ghosts.sort_unstable();
        ghosts.dedup();
        let place = |column: &u64| ghosts.partition_point(|ghost| ghost < column) as u32;
        let columns = outside.iter().map(place).collect();
        Ok(Cut {
            inside: Csr::from_csr(n, n, &starts, &inside, &kept)?,
            rows: boundary,
            offsets: bounds,
            columns,
            values: others,
            ghosts,
        })
    }

    /// The range of ghosts that belong to a range of rows.
    #[cfg(any(feature = "cuda", feature = "testing", test))]
    pub(crate) fn ghosts_of(&self, rows: &Range<u64>) -> Range<usize> {
        self.ghosts.partition_point(|&g| g < rows.start)..self.ghosts.partition_point(|&g| g < rows.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows 2 and 3 of a matrix of six rows.
    #[test]
    fn entries_are_inside_or_outside() {
        let columns = [5u64, 2, 0, 3, 3, 2];
        let cut = Cut::new(6, 2..4, &[0, 4, 6], &columns, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!(cut.ghosts, [0, 5]);
        assert_eq!((cut.rows, cut.offsets), (vec![0], vec![0, 2]));
        assert_eq!((cut.columns, cut.values), (vec![1, 0], vec![1.0, 3.0]));
        let inside: Vec<_> = cut.inside.triplets().collect();
        assert_eq!(inside, [(0, 0, 2.0), (0, 1, 4.0), (1, 0, 6.0), (1, 1, 5.0)]);
    }

    #[test]
    fn columns_are_checked() {
        for wrong in [-1, 6] {
            let cut = Cut::new(6, 2..3, &[0, 1], &[wrong], &[1.0]);
            assert!(matches!(cut.err(), Some(Error::Index { bound: 6, .. })));
        }
    }
}
