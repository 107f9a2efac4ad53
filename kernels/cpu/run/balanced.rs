//! Load balancing by entries: row ranges with about equally many entries, and long rows split into pieces.
//!
//! ```text
//! balanced(rows):
//!     few entries: process the rows on this thread
//!     one row: sum its pieces in parallel and reduce them in a tree that depends on the row's length only
//!     otherwise: halve the range by entries; any idle thread may take a half
//! ```
//!
//! How a row is split depends on its length only, so results are bitwise the same for every number of
//! threads.

use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::threads::join;
use crate::cpu::run::tiles::TILE;
use crate::cpu::simd::{Simd, Task, Value, run};
use crate::cpu::tuning::ENTRIES_OF_TASK;
use std::ops::Range;

/// A matrix whose entries are stored row by row and can be divided among threads at any entry.
///
/// # Safety
/// Callers of the `unsafe` functions ensure that the CPU has the features of `S`, the arrays fit each other
/// and `x`, rows and entries are those of the matrix, and `y` has an entry for each of the rows.
pub(crate) trait Divide<T: Value>: Copy + Sync {
    /// Index of the first entry of a row; for an empty row, of the next entry. If `row` is the number of
    /// rows, returns the number of entries.
    fn first_entry(&self, row: usize) -> usize;

    /// Computes rows of the product, and overwrites `y` or adds to it, depending on the format (COO adds).
    unsafe fn walk<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]);

    /// Returns `Σ_k v_k x_{c_k}` over entries of one row.
    unsafe fn sum<S: Simd>(&self, entries: Range<usize>, x: &[T]) -> T;

    /// Overwrites an entry of `y` with a row's sum or adds to it, depending on the format.
    fn put(&self, sum: T, y: &mut T);

    /// Writes to `y` the row sum of [`Divide::sum`] for each of the [`TILE`] vectors of `x`, which are packed
    /// row by row. Called only if [`RowProduct::has_tiles`] returns true.
    unsafe fn sum_tile<S: Simd>(&self, _entries: Range<usize>, _x: &[T], _y: &mut [T; TILE]) {
        unreachable!("formats that have tiles implement `sum_tile`");
    }
}

/// A matrix with rows of any length, whose products are divided among threads by entries.
#[derive(Clone, Copy, Debug)]
pub struct Balanced<A>(pub A);

impl<T: Value, A: Divide<T> + RowProduct<T>> RowProduct<T> for Balanced<A> {
    fn rows(&self) -> usize {
        RowProduct::<T>::rows(&self.0)
    }

    fn fits(&self, x: usize) -> bool {
        RowProduct::<T>::fits(&self.0, x)
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        // SAFETY: the caller's contract is the same
        unsafe { balanced(self.0, rows, x, y) }
    }

    fn has_tiles(&self) -> bool {
        RowProduct::<T>::has_tiles(&self.0)
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        // SAFETY: the caller's contract is the same
        unsafe { balanced_tile(self.0, rows, x, y.as_chunks_mut::<TILE>().0) }
    }
}

/// Computes rows of a product with [`TILE`] packed vectors, as [`RowProduct::tile`] does, on several threads
/// if they have many entries.
///
/// # Safety
/// The requirements are those of [`RowProduct::tile`], except that no CPU features are required and `rows`
/// may begin and end anywhere: formats that implement [`Divide`] compute each row independently.
unsafe fn balanced_tile<T: Value, A: Divide<T> + RowProduct<T>>(
    a: A,
    rows: Range<usize>,
    x: &[T],
    y: &mut [[T; TILE]],
) {
    let entries = a.first_entry(rows.start)..a.first_entry(rows.end);
    if entries.len() <= ENTRIES_OF_TASK {
        return run(WalkTile { a, rows, x, y });
    }
    if let [y] = y {
        *y = sum_tile(a, entries, x);
        return;
    }
    let middle = middle(|row| a.first_entry(row), &rows);
    let (one, other) = y.split_at_mut(middle - rows.start);
    join(
        // SAFETY: the caller's contract is the same
        &mut || unsafe { balanced_tile(a, rows.start..middle, x, one) },
        // SAFETY: as above
        &mut || unsafe { balanced_tile(a, middle..rows.end, x, other) },
    );
}

/// Sums a row for each of [`TILE`] packed vectors, adding its pieces in the same order as [`sum`].
fn sum_tile<T: Value, A: Divide<T>>(a: A, entries: Range<usize>, x: &[T]) -> [T; TILE] {
    if entries.len() <= ENTRIES_OF_TASK {
        return run(PieceOfTile { a, entries, x });
    }
    let middle = half_of_pieces(&entries);
    let (mut one, mut other) = ([T::zero(); TILE], [T::zero(); TILE]);
    join(&mut || one = sum_tile(a, entries.start..middle, x), &mut || {
        other = sum_tile(a, middle..entries.end, x)
    });
    for (one, other) in one.iter_mut().zip(other) {
        *one += other;
    }
    one
}

/// Task that computes some rows for [`TILE`] packed vectors.
struct WalkTile<'t, A, T> {
    a: A,
    rows: Range<usize>,
    x: &'t [T],
    y: &'t mut [[T; TILE]],
}

impl<T: Value, A: Divide<T> + RowProduct<T>> Task for WalkTile<'_, A, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: as for `Walk`
        unsafe { self.a.tile::<S>(self.rows, self.x, self.y.as_flattened_mut()) }
    }
}

/// Task that sums a piece of a long row for [`TILE`] packed vectors.
struct PieceOfTile<'t, A, T> {
    a: A,
    entries: Range<usize>,
    x: &'t [T],
}

impl<T: Value, A: Divide<T>> Task for PieceOfTile<'_, A, T> {
    type Output = [T; TILE];

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> [T; TILE] {
        let mut sums = [T::zero(); TILE];
        // SAFETY: as for `Walk`
        unsafe { self.a.sum_tile::<S>(self.entries, self.x, &mut sums) };
        sums
    }
}

/// Task that computes some rows.
struct Walk<'t, A, T> {
    a: A,
    rows: Range<usize>,
    x: &'t [T],
    y: &'t mut [T],
}

impl<T: Value, A: Divide<T>> Task for Walk<'_, A, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `simd::run` ensures the features; the caller of `balanced` ensures the rest
        unsafe { self.a.walk::<S>(self.rows, self.x, self.y) }
    }
}

/// Task that sums a piece of a long row.
struct Piece<'t, A, T> {
    a: A,
    entries: Range<usize>,
    x: &'t [T],
}

impl<T: Value, A: Divide<T>> Task for Piece<'_, A, T> {
    type Output = T;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> T {
        // SAFETY: as for `Walk`
        unsafe { self.a.sum::<S>(self.entries, self.x) }
    }
}

/// Computes rows as [`Divide::walk`] does, on several threads if they have many entries.
///
/// # Safety
/// The requirements are those of [`Divide`].
pub(crate) unsafe fn balanced<T: Value, A: Divide<T>>(a: A, rows: Range<usize>, x: &[T], y: &mut [T]) {
    let entries = a.first_entry(rows.start)..a.first_entry(rows.end);
    if entries.len() <= ENTRIES_OF_TASK {
        return run(Walk { a, rows, x, y });
    }
    if let [y] = y {
        return a.put(sum(a, entries, x), y);
    }
    let middle = middle(|row| a.first_entry(row), &rows);
    let (one, other) = y.split_at_mut(middle - rows.start);
    join(
        // SAFETY: the caller's contract is the same
        &mut || unsafe { balanced(a, rows.start..middle, x, one) },
        // SAFETY: as above
        &mut || unsafe { balanced(a, middle..rows.end, x, other) },
    );
}

fn sum<T: Value, A: Divide<T>>(a: A, entries: Range<usize>, x: &[T]) -> T {
    if entries.len() <= ENTRIES_OF_TASK {
        return run(Piece { a, entries, x });
    }
    let middle = half_of_pieces(&entries);
    let (mut one, mut other) = (T::zero(), T::zero());
    join(&mut || one = sum(a, entries.start..middle, x), &mut || other = sum(a, middle..entries.end, x));
    one + other
}

/// Index of the first entry of the second half of a row's pieces.
fn half_of_pieces(entries: &Range<usize>) -> usize {
    entries.start + entries.len().div_ceil(ENTRIES_OF_TASK) / 2 * ENTRIES_OF_TASK
}

/// Row at which to halve two or more rows so that the halves have as equal numbers of entries as possible.
fn middle(first_entry: impl Fn(usize) -> usize, rows: &Range<usize>) -> usize {
    let half = (first_entry(rows.start) + first_entry(rows.end)) / 2;
    let (mut low, mut high) = (rows.start + 1, rows.end - 1);
    while low < high {
        let middle = (low + high) / 2;
        if first_entry(middle) < half { low = middle + 1 } else { high = middle }
    }
    // halving at the row before may be more even
    let before = low - 1;
    let nearer =
        before > rows.start && half - first_entry(before).min(half) < first_entry(low).max(half) - half;
    if nearer { before } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::formats::coo::{Coo, EntryRows};
    use crate::cpu::formats::csr::Csr;
    use crate::cpu::run::rows::{Parts, product};
    use crate::index::{Columns, Offsets};

    #[test]
    fn halves_have_equally_many_entries() {
        let at = |lengths: &[usize]| {
            let offsets = Offsets::from_lengths(lengths.iter().copied());
            middle(|row| offsets.at(row), &(0..lengths.len()))
        };
        assert_eq!([at(&[1, 1]), at(&[9, 1]), at(&[1, 9]), at(&[0, 0])], [1, 1, 1, 1]);
        assert_eq!([at(&[1, 1, 1, 1]), at(&[9, 1, 1, 1]), at(&[1, 1, 1, 9])], [2, 1, 3]);
        assert_eq!([at(&[3, 3, 3]), at(&[0, 5, 100, 0, 0])], [1, 2]);
        // offsets beyond 32 bits
        assert_eq!([at(&[3 << 30, 5 << 30, 1 << 33]), at(&[1 << 33, 1, 1])], [2, 1]);
    }

    #[test]
    fn rows_of_many_pieces_among_others() {
        let lengths =
            [3, 0, 5 * ENTRIES_OF_TASK + 17, ENTRIES_OF_TASK, ENTRIES_OF_TASK + 1, 0, 0, 7, 70_000, 1];
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
        // integers: the sum is exact in any order
        let expected: Vec<f64> = sums.collect();
        let mut y = vec![f64::NAN; lengths.len()];
        product(&Balanced(csr), Parts::new(&[0, lengths.len()]), &x, &mut y);
        assert_eq!(y, expected);
        let rows: Vec<u32> = (0..lengths.len()).flat_map(|row| vec![row as u32; lengths[row]]).collect();
        let rows = EntryRows::new(rows, lengths.len()).unwrap();
        y.fill(f64::NAN);
        let coo = Coo { rows: &rows, columns: &columns, values: &values };
        product(&coo, Parts::new(&[0, lengths.len()]), &x, &mut y);
        assert_eq!(y, expected);
    }
}
