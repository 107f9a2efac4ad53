//! Compressed sparse rows, cut by entries: the walk of [`Csr`] over ranges of rows with equally many entries, and rows too
//! long for one task in pieces.
//!
//! ```text
//! divide(rows):
//!     few entries: walk the rows
//!     one row: the sum of its pieces, added up in a tree that follows from its length
//!     else: divide both halves, by entries, on any thread that is idle
//! ```
//!
//! Rows of one piece are added up as by [`Csr`], bitwise; how many threads there are shows in no row. Moves what [`Csr`]
//! moves.

use super::csr::Csr;
use super::rows::RowProduct;
use super::simd::{Simd, Task, Value, run};
use crate::index::OffsetsRef;
use std::ops::Range;

/// Entries of a task: a hundred times what handing it over costs, few against those of a thread, and no fewer than any
/// product has that is left to one thread.
const PIECE: usize = 1 << 15;

/// A matrix whose rows may be of any length.
#[derive(Clone, Copy, Debug)]
pub struct Balanced<'a, T>(pub Csr<'a, T>);

impl<T: Value> RowProduct<T> for Balanced<'_, T> {
    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn fits(&self, x: usize) -> bool {
        self.0.fits(x)
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let offsets = self.0.offsets;
        if offsets.at(rows.end) - offsets.at(rows.start) <= PIECE {
            // SAFETY: handed down from the caller
            unsafe { self.0.product::<S>(rows, x, y) }
        } else {
            self.divide(rows, x, y);
        }
    }
}

/// The rows of a task.
struct Walk<'t, 'a, T> {
    a: Csr<'a, T>,
    rows: Range<usize>,
    x: &'t [T],
    y: &'t mut [T],
}

impl<T: Value> Task for Walk<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `run` gives the features; whoever multiplies compared the arrays
        unsafe { self.a.product::<S>(self.rows, self.x, self.y) }
    }
}

/// A piece of a row.
struct Piece<'t, 'a, T> {
    a: Csr<'a, T>,
    entries: Range<usize>,
    x: &'t [T],
}

impl<T: Value> Task for Piece<'_, '_, T> {
    type Output = T;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> T {
        // SAFETY: as for `Walk`
        unsafe { self.a.sum::<S>(self.entries, self.x) }
    }
}

impl<T: Value> Balanced<'_, T> {
    fn divide(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let offsets = self.0.offsets;
        let entries = offsets.at(rows.start)..offsets.at(rows.end);
        if entries.len() <= PIECE {
            return run(Walk { a: self.0, rows, x, y });
        }
        if let [y] = y {
            *y = self.sum(entries, x);
            return;
        }
        let middle = middle(offsets, &rows);
        let (one, other) = y.split_at_mut(middle - rows.start);
        rayon::join(|| self.divide(rows.start..middle, x, one), || self.divide(middle..rows.end, x, other));
    }

    fn sum(&self, entries: Range<usize>, x: &[T]) -> T {
        if entries.len() <= PIECE {
            return run(Piece { a: self.0, entries, x });
        }
        let middle = entries.start + entries.len().div_ceil(PIECE) / 2 * PIECE;
        let (one, other) =
            rayon::join(|| self.sum(entries.start..middle, x), || self.sum(middle..entries.end, x));
        one + other
    }
}

/// The row that parts two or more of them into halves of equally many entries, as nearly as rows allow.
fn middle(offsets: OffsetsRef<'_>, rows: &Range<usize>) -> usize {
    let half = (offsets.at(rows.start) + offsets.at(rows.end)) / 2;
    let (mut low, mut high) = (rows.start + 1, rows.end - 1);
    while low < high {
        let middle = (low + high) / 2;
        if offsets.at(middle) < half { low = middle + 1 } else { high = middle }
    }
    // the border before may be nearer
    let before = low - 1;
    let nearer =
        before > rows.start && half - offsets.at(before).min(half) < offsets.at(low).max(half) - half;
    if nearer { before } else { low }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{Parts, product};
    use super::*;
    use crate::index::{Columns, Offsets};

    #[test]
    fn halves_have_equally_many_entries() {
        let at = |lengths: &[usize]| {
            let offsets = Offsets::from_lengths(lengths.iter().copied());
            middle((&offsets).into(), &(0..lengths.len()))
        };
        assert_eq!([at(&[1, 1]), at(&[9, 1]), at(&[1, 9]), at(&[0, 0])], [1, 1, 1, 1]);
        assert_eq!([at(&[1, 1, 1, 1]), at(&[9, 1, 1, 1]), at(&[1, 1, 1, 9])], [2, 1, 3]);
        assert_eq!([at(&[3, 3, 3]), at(&[0, 5, 100, 0, 0])], [1, 2]);
        // beyond 32 bits
        assert_eq!([at(&[3 << 30, 5 << 30, 1 << 33]), at(&[1 << 33, 1, 1])], [2, 1]);
    }

    #[test]
    fn rows_of_many_pieces_among_others() {
        let lengths = [3, 0, 5 * PIECE + 17, PIECE, PIECE + 1, 0, 0, 7, 70_000, 1];
        let offsets = Offsets::from_lengths(lengths);
        let cols = 1000;
        let columns: Vec<u32> = (0..offsets.end()).map(|k| (k * 7 % cols) as u32).collect();
        let columns = Columns::new(columns, cols).unwrap();
        let values: Vec<f64> = (0..columns.len()).map(|k| (k % 11) as f64 - 4.0).collect();
        let x: Vec<f64> = (0..cols).map(|j| (j % 5) as f64).collect();
        let csr = Csr { offsets: (&offsets).into(), columns: (&columns).into(), values: &values };
        let sums = (0..lengths.len()).map(|row| {
            let terms = offsets.range(row).map(|k| values[k] * x[columns[k] as usize]);
            terms.sum::<f64>()
        });
        // integers: every order of summation is exact
        let expected: Vec<f64> = sums.collect();
        let mut y = vec![f64::NAN; lengths.len()];
        product(&Balanced(csr), Parts::new(&[0, lengths.len()]), &x, &mut y);
        assert_eq!(y, expected);
    }
}
