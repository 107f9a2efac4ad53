//! Speculative segmented sum (Liu and Vinter 2015): `y_i ← Σ_k v_k x_{c_k}` from unmodified CSR arrays,
//! divided by entries.
//!
//! ```text
//! for each tile of each bunch:
//!     start ← last row that starts at or before the tile's first entry; stop ← the same for the next tile
//!     flag the first entry of every row, and the tile's first entry
//!     sum products from flag to flag, adding the carry of `start` to the first sum
//!     y[start + k] ← the k-th sum, as if no row were empty; carry the sum of an unfinished row to the next tile
//!     if there are fewer sums than rows, some row is empty and sums are misplaced: record start..stop
//!         (a *dirty* tile)
//! then, on one thread:
//!     move the sums of dirty tiles to their rows, and set empty rows to zero
//!     write the rows that cross bunch boundaries
//! ```
//!
//! A *bunch* is a group of tiles (the paper's thread-bunch). The GPU kernel, kernels/cuda/csr/speculative.cu,
//! documents the differences from the paper. In host memory this strategy serves for comparison: products are
//! stored and read again, while [`balanced`](crate::cpu::run::balanced) keeps them in registers. Each call
//! allocates the results of the first stage.

use crate::cpu::formats::csr::Csr;
use crate::cpu::run::rows::RowProduct;
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Lanes, Simd, Task, Value, run};
use crate::index::OffsetsRef;
use std::ops::Range;

/// Division of the entries into tiles and bunches.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    /// Entries per tile, at most [`LARGEST`].
    entries: usize,
    /// Tiles per bunch.
    of_bunch: usize,
}

/// Largest number of entries per tile, so that its products stay in registers and the L1 cache.
const LARGEST: usize = 256;

/// Default sizes. A bunch has enough entries (16,384) to be a task of a thread.
const USUAL: Tiles = Tiles { entries: LARGEST, of_bunch: 64 };

/// Marks the absence of a row.
pub const NONE: u32 = u32::MAX;

/// Results of the first stage that the second stage completes.
#[derive(Debug)]
struct Unfinished<T> {
    /// Row that continues into each bunch from the one before; [`NONE`] if no row does.
    rows: Vec<u32>,
    /// Two partial sums per bunch: that of the row that continues into the bunch, and that of the row that
    /// continues into the next bunch.
    carries: Vec<T>,
    /// Row ranges of the dirty tiles of each bunch.
    dirty: Vec<Vec<Range<usize>>>,
}

/// Last row that starts at or before an entry. If `entry` is the number of entries, returns the number of
/// rows.
pub fn row_at(offsets: OffsetsRef<'_>, entry: usize) -> usize {
    let (mut low, mut high) = (0, offsets.ranges() + 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if offsets.at(middle) <= entry { low = middle } else { high = middle }
    }
    low
}

/// Flags the first entry of every row in a tile, and the tile's first entry.
pub fn describe(offsets: OffsetsRef<'_>, rows: Range<usize>, entries: Range<usize>, flags: &mut [bool]) {
    flags.fill(false);
    for row in rows.start + 1..=rows.end {
        let begins = offsets.at(row);
        if begins < entries.end {
            flags[begins - entries.start] = true;
        }
    }
    if let Some(first) = flags.first_mut() {
        *first = true;
    }
}

/// Moves the sums of a dirty tile, which are stored contiguously from its first row on, to the rows that have
/// entries; sets empty rows to zero. `y` begins with the tile's first row.
pub fn rearrange<T: Value>(offsets: OffsetsRef<'_>, rows: Range<usize>, y: &mut [T]) {
    let has_entries = |row: &usize| offsets.at(*row) < offsets.at(*row + 1);
    let mut slot = rows.clone().filter(has_entries).count();
    for row in rows.clone().rev() {
        let to = row - rows.start;
        if has_entries(&row) {
            slot -= 1;
            y[to] = y[slot];
        } else {
            y[to] = T::zero();
        }
    }
}

/// Writes the sums of the rows that cross bunch boundaries. A bunch has `of_bunch` entries.
pub fn synchronize<T: Value>(
    offsets: OffsetsRef<'_>,
    of_bunch: usize,
    rows: &[u32],
    carries: &[T],
    y: &mut [T],
) {
    for (bunch, &row) in rows.iter().enumerate().filter(|(_, row)| **row != NONE) {
        let row = row as usize;
        // a row is written once, when the loop is at the second of the bunches that the row spans
        if offsets.at(row) / of_bunch != bunch - 1 {
            continue;
        }
        let last = (offsets.at(row + 1) - 1) / of_bunch;
        let goes_on = |bunch: usize| carries[2 * bunch + 1];
        y[row] = (bunch - 1..last).map(goes_on).fold(T::zero(), |sum, part| sum + part) + carries[2 * last];
    }
}

/// `y ← A x`
pub fn product<T: Value, V: Storage<T>>(a: &Csr<'_, V>, x: &[T], y: &mut [T]) {
    let left = speculate(a, USUAL, x, y);
    finish(a.offsets, USUAL, &left, y);
}

/// First stage: computes all sums speculatively.
fn speculate<T: Value, V: Storage<T>>(a: &Csr<'_, V>, tiles: Tiles, x: &[T], y: &mut [T]) -> Unfinished<T> {
    assert!(RowProduct::<T>::fits(a, x.len()), "the arrays of the matrix are consistent and fit `x`");
    assert_eq!(RowProduct::<T>::rows(a), y.len(), "`y` has an entry for each row");
    assert!(
        (1..=LARGEST).contains(&tiles.entries) && tiles.of_bunch > 0,
        "tiles have 1 to 256 entries, bunches at least one tile"
    );
    let bunches = a.offsets.end().div_ceil(tiles.entries * tiles.of_bunch).max(1);
    let mut left = Unfinished {
        rows: vec![NONE; bunches],
        carries: vec![T::zero(); 2 * bunches],
        dirty: vec![vec![]; bunches],
    };
    let Unfinished { rows, carries, dirty } = &mut left;
    Bunches { a, tiles, x, first: 0, y, start: 0, rows, carries, dirty }.speculate();
    left
}

/// Second stage: corrects dirty tiles and completes rows that cross bunches.
fn finish<T: Value>(offsets: OffsetsRef<'_>, tiles: Tiles, left: &Unfinished<T>, y: &mut [T]) {
    for rows in left.dirty.iter().flatten() {
        rearrange(offsets, rows.clone(), &mut y[rows.clone()]);
    }
    synchronize(offsets, tiles.entries * tiles.of_bunch, &left.rows, &left.carries, y);
}

/// Consecutive bunches and their parts of all arrays.
struct Bunches<'b, 'a, T, V> {
    a: &'b Csr<'a, V>,
    tiles: Tiles,
    x: &'b [T],
    first: usize,
    /// First row of the first tile. `y` begins with this row and ends before the first row of the next bunch.
    start: usize,
    y: &'b mut [T],
    rows: &'b mut [u32],
    carries: &'b mut [T],
    dirty: &'b mut [Vec<Range<usize>>],
}

impl<T: Value, V: Storage<T>> Bunches<'_, '_, T, V> {
    fn speculate(self) {
        let count = self.rows.len();
        if count == 1 {
            return run(self);
        }
        let Bunches { a, tiles, x, first, start, y, rows, carries, dirty } = self;
        let half = count / 2;
        let middle = row_at(a.offsets, (first + half) * tiles.of_bunch * tiles.entries);
        let ((y, other_y), (rows, other_rows)) = (y.split_at_mut(middle - start), rows.split_at_mut(half));
        let (carries, other_carries) = carries.split_at_mut(2 * half);
        let (dirty, other_dirty) = dirty.split_at_mut(half);
        let one = Bunches { a, tiles, x, first, start, y, rows, carries, dirty };
        let other = Bunches {
            first: first + half,
            start: middle,
            y: other_y,
            rows: other_rows,
            carries: other_carries,
            dirty: other_dirty,
            ..one
        };
        rayon::join(|| one.speculate(), || other.speculate());
    }
}

/// Computes one bunch.
impl<T: Value, V: Storage<T>> Task for Bunches<'_, '_, T, V> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Bunches { a, tiles: Tiles { entries: size, of_bunch }, x, first, y, .. } = self;
        let (offsets, all) = (a.offsets, a.offsets.end());
        let (first_row, count) = (self.start, all.div_ceil(size).max(1));
        let (mut products, mut flags) = ([T::zero(); LARGEST], [false; LARGEST]);
        let mut start = first_row;
        let mut is_shared = offsets.at(start) < first * of_bunch * size;
        if is_shared {
            self.rows[0] = start as u32;
        }
        let mut transmitted = T::zero();
        for tile in first * of_bunch..count.min((first + 1) * of_bunch) {
            let (from, to) = (tile * size, all.min((tile + 1) * size));
            let stop = start + row_at_from(offsets, start, to);
            let (products, flags) = (&mut products[..to - from], &mut flags[..to - from]);
            // SAFETY: `simd::run` ensures the features; `speculate` checked by `fits` that the last offset is
            // at most the number of columns and of values, and that all column indices are below `x.len()`
            unsafe { multiply::<S, T, V>(a, from..to, x, products) };
            describe(offsets, start..stop, from..to, flags);
            if offsets.at(start) < from {
                products[0] += transmitted;
            }
            let goes_on = offsets.at(stop) < to;
            let (mut slot, mut begin) = (start, 0);
            let mut last = T::zero();
            while begin < flags.len() {
                let length =
                    flags[begin + 1..].iter().position(|&flag| flag).map_or(flags.len() - begin, |at| at + 1);
                last = sum(&products[begin..begin + length]);
                begin += length;
                if begin == flags.len() && goes_on {
                    break;
                }
                if is_shared {
                    self.carries[0] = last;
                    is_shared = false;
                } else {
                    y[slot - first_row] = last;
                }
                slot += 1;
            }
            transmitted = if goes_on { last } else { T::zero() };
            if slot < stop {
                self.dirty[0].push(start..stop);
            }
            start = stop;
        }
        self.carries[1] = transmitted;
    }
}

/// Distance from `start` to the last row that starts at or before an entry. Uses a galloping (exponential)
/// search, because most tiles have few rows.
#[inline(always)]
fn row_at_from(offsets: OffsetsRef<'_>, start: usize, entry: usize) -> usize {
    let mut step = 1;
    while start + step <= offsets.ranges() && offsets.at(start + step) <= entry {
        step *= 2;
    }
    let (mut low, mut high) = (step / 2, step.min(offsets.ranges() - start + 1));
    while high - low > 1 {
        let middle = (low + high) / 2;
        if offsets.at(start + middle) <= entry { low = middle } else { high = middle }
    }
    low
}

/// # Safety
/// The CPU has the features of `S`; the entries are those of the matrix, with columns below the length of
/// `x`.
#[inline(always)]
unsafe fn multiply<S: Simd, T: Value, V: Storage<T>>(
    a: &Csr<'_, V>,
    entries: Range<usize>,
    x: &[T],
    products: &mut [T],
) {
    let lanes = <T::In<S> as Lanes<T>>::COUNT;
    let (columns, values) = (&a.columns[entries.clone()], &a.values[entries]);
    let whole = products.len() / lanes * lanes;
    for at in (0..whole).step_by(lanes) {
        // SAFETY: `at + lanes` is within all three arrays; the caller ensures the columns
        unsafe {
            let x = T::In::<S>::gather(x.as_ptr(), columns.as_ptr().add(at));
            V::load::<S>(values.as_ptr().add(at)).mul(x).store(products.as_mut_ptr().add(at));
        }
    }
    for at in whole..products.len() {
        products[at] = values[at].widen() * x[columns[at] as usize];
    }
}

/// Sums in four independent partial sums.
#[inline(always)]
fn sum<T: Value>(products: &[T]) -> T {
    let (fours, rest) = products.as_chunks::<4>();
    let mut sums = [T::zero(); 4];
    for four in fours {
        sums.iter_mut().zip(four).for_each(|(sum, &product)| *sum += product);
    }
    let rest = rest.iter().fold(T::zero(), |sum, &product| sum + product);
    if fours.is_empty() { rest } else { (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Columns, ColumnsRef, Offsets};

    /// Runs both stages; returns `y` and the row ranges of dirty tiles.
    fn both(
        offsets: &Offsets,
        columns: &Columns,
        values: &[f64],
        tiles: Tiles,
        x: &[f64],
    ) -> (Vec<f64>, Vec<Range<usize>>) {
        let a = Csr { offsets: offsets.into(), columns: ColumnsRef::from(columns), values };
        let mut y = vec![f64::NAN; offsets.ranges()];
        let left = speculate(&a, tiles, x, &mut y);
        finish(a.offsets, tiles, &left, &mut y);
        (y, left.dirty.concat())
    }

    fn flags(offsets: &Offsets, rows: Range<usize>, entries: Range<usize>) -> Vec<usize> {
        let mut flags = vec![true; entries.len()];
        describe(offsets.into(), rows, entries, &mut flags);
        flags.iter().map(|&flag| usize::from(flag)).collect()
    }

    /// The example of section 2 of the paper.
    #[test]
    fn golden_descriptor_and_product() {
        let offsets = Offsets::new(&[0, 3, 6, 8, 8, 9, 12]).unwrap();
        let columns = Columns::new(vec![0, 2, 5, 0, 1, 2, 2, 4, 4, 2, 3, 4], 6).unwrap();
        let [a, b, c, d, e, f, g, h, i, j, k, l] =
            [2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0, 23.0, 29.0, 31.0, 37.0];
        assert_eq!(flags(&offsets, 0..6, 0..12), [1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0]);
        let tiles = Tiles { entries: 12, of_bunch: 1 };
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let values = [a, b, c, d, e, f, g, h, i, j, k, l];
        let (y, dirty) = both(&offsets, &columns, &values, tiles, &x);
        let expected = [
            a + 3.0 * b + 6.0 * c,
            d + 2.0 * e + 3.0 * f,
            3.0 * g + 5.0 * h,
            0.0,
            5.0 * i,
            3.0 * j + 4.0 * k + 5.0 * l,
        ];
        assert_eq!(y, expected);
        assert_eq!(dirty, vec![0..6; 1]);
    }

    /// Fig. 3 of the paper: two tiles of 24 entries in one bunch. Rows 0 to 4 are as in the figure; the
    /// others start at the positions printed there.
    #[test]
    fn golden_tiles_of_figure_3() {
        let offsets = Offsets::new(&[0, 3, 8, 13, 19, 27, 29, 29, 34, 37, 37, 44, 48]).unwrap();
        assert_eq!([0, 24, 48].map(|entry| row_at((&offsets).into(), entry)), [0, 4, 12]);
        let second = flags(&offsets, 4..12, 24..48);
        let kept: Vec<usize> = (1..24).filter(|&at| second[at] == 1).collect();
        assert_eq!((second[0], kept), (1, vec![3, 5, 10, 13, 20]));
        let columns = Columns::new(vec![0; 48], 1).unwrap();
        let tiles = Tiles { entries: 24, of_bunch: 2 };
        let (y, dirty) = both(&offsets, &columns, &[1.0; 48], tiles, &[1.0]);
        assert_eq!(dirty, vec![4..12; 1]);
        assert_eq!(y, [3.0, 5.0, 5.0, 6.0, 8.0, 2.0, 0.0, 5.0, 3.0, 0.0, 7.0, 4.0]);
    }

    /// Cases that the paper's listing gets wrong (a dirty tile whose last row continues, a row that began
    /// before its tile, a bunch that starts with a row), empty rows at every boundary, and rows that span
    /// many tiles and bunches.
    #[test]
    fn every_border_of_tiles_and_bunches() {
        let lengths: [&[usize]; 14] = [
            &[],
            &[0],
            &[0, 0, 0],
            &[5],
            &[0, 0, 7, 0, 0],
            &[1, 0, 6, 3],
            &[4, 4, 4, 4],
            &[8, 0, 8, 0, 0],
            &[0, 4, 0, 0, 4, 0, 1],
            &[3, 0, 100, 0, 0, 1],
            &[2, 2, 0, 2, 2, 3, 0, 0, 0, 9, 1],
            &[1; 40],
            &[0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 33, 0],
            &[16, 16, 16, 1, 0, 15],
        ];
        for lengths in lengths {
            let offsets = Offsets::from_lengths(lengths.iter().copied());
            let columns =
                Columns::new((0..offsets.end() as u32).map(|k| k % 3).collect::<Vec<_>>(), 3).unwrap();
            let values: Vec<f64> = (0..columns.len()).map(|k| (k * k % 13) as f64 - 4.0).collect();
            let x = [1.0, -2.0, 4.0];
            let sums = (0..lengths.len())
                .map(|row| offsets.range(row).map(|k| values[k] * x[columns[k] as usize]).sum::<f64>());
            let expected: Vec<f64> = sums.collect();
            for entries in [1, 2, 3, 4, 8, 256] {
                for of_bunch in [1, 2, 3, 64] {
                    let tiles = Tiles { entries, of_bunch };
                    let (y, dirty) = both(&offsets, &columns, &values, tiles, &x);
                    assert_eq!(y, expected, "{tiles:?} {lengths:?}");
                    let is_clean = lengths.iter().all(|&length| length > 0);
                    assert_eq!(dirty.is_empty(), is_clean, "{tiles:?} {lengths:?}");
                }
            }
        }
    }

    /// Only offsets are stored; columns and values would not fit in memory.
    #[test]
    fn bunches_are_synchronised_beyond_32_bits() {
        let offsets = Offsets::from_lengths([3 << 30, 0, 1 << 31, 1 << 33]);
        let at = [0, (3 << 30) - 1, 3 << 30, (5 << 30) - 1, 5 << 30, 13 << 30];
        assert_eq!(at.map(|entry| row_at((&offsets).into(), entry)), [0, 0, 2, 2, 3, 4]);
        // bunches of 2³¹ entries, every product is 1: rows 0, 2 and 3 cross boundaries
        let rows = [NONE, 0, 2, 3, 3, 3, 3];
        let ones = |numbers: [i64; 14]| numbers.map(|number| (number << 30) as f64);
        let carries = ones([0, 2, 1, 1, 1, 1, 0, 2, 0, 2, 0, 2, 1, 0]);
        let mut y = [f64::NAN; 4];
        synchronize((&offsets).into(), 1 << 31, &rows, &carries, &mut y);
        assert_eq!([y[0], y[2], y[3]], [3, 2, 8].map(|number: i64| (number << 30) as f64));
    }
}
