//! The second stage of speculative segmented sums in host memory: it moves the sums of dirty tiles to their rows, and
//! adds the parts of rows that cross bunches. The GPU has its own, in speculative.cu.

use crate::cpu::simd::Value;
use crate::cuda::device::prelude::NONE;
use crate::index::OffsetsRef;
use std::ops::Range;

/// Moves the sums of a dirty tile, which are stored contiguously from its first row on, to the rows that have
/// entries; sets empty rows to zero. `y` begins with the tile's first row.
pub(super) fn rearrange<T: Value>(offsets: OffsetsRef<'_>, rows: Range<usize>, y: &mut [T]) {
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
pub(super) fn synchronize<T: Value>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Offsets;

    /// The example of section 2 of the paper: one tile of 12 entries, whose sums were stored as if no row were empty.
    #[test]
    fn golden_sums_are_moved_to_their_rows() {
        let offsets = Offsets::new(&[0, 3, 6, 8, 8, 9, 12]).unwrap();
        let mut y = [41.0, 68.0, 146.0, 115.0, 396.0, f64::NAN];
        rearrange((&offsets).into(), 0..6, &mut y);
        assert_eq!(y, [41.0, 68.0, 146.0, 0.0, 115.0, 396.0]);
    }

    /// Only offsets are stored; columns and values would not fit in memory.
    #[test]
    fn bunches_are_synchronised_beyond_32_bits() {
        let offsets = Offsets::from_lengths([3 << 30, 0, 1 << 31, 1 << 33]);
        // bunches of 2³¹ entries, every product is 1: rows 0, 2 and 3 cross boundaries
        let rows = [NONE, 0, 2, 3, 3, 3, 3];
        let ones = |numbers: [i64; 14]| numbers.map(|number| (number << 30) as f64);
        let carries = ones([0, 2, 1, 1, 1, 1, 0, 2, 0, 2, 0, 2, 1, 0]);
        let mut y = [f64::NAN; 4];
        synchronize((&offsets).into(), 1 << 31, &rows, &carries, &mut y);
        assert_eq!([y[0], y[2], y[3]], [3, 2, 8].map(|number: i64| (number << 30) as f64));
    }
}
