//! Symmetric storage in CSR: an entry `a_ij = a_ji` is read once, to update both `y_i ← y_i + a_ij x_j` and
//! `y_j ← y_j + a_ij x_i`.
//!
//! Rows are divided into parts, whose number depends on the matrix only. An entry below the diagonal whose
//! column belongs to the part of its row or to the part before is mirrored: it is stored once, and its mirror
//! image is applied in the same pass. Other entries are stored in both triangles. A product first computes the
//! parts with even numbers, then those with odd numbers. Parts of the same phase do not write to the same rows, so that
//! neither atomics nor private copies of `y` are needed, and results are bitwise the same for every number of
//! threads.
//!
//! Memory traffic of a product: 12 B (f64) per mirrored pair of entries, half of what CSR reads, 12 B per
//! other entry, 8 B per row (an offset and the number of mirrored entries), and the vectors; `y` is written
//! once more than in CSR, in pieces that stay in a cache.

use crate::buffer::Buffer;
use crate::cpu::run::threads::{ByRow, find_row, over_parts};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Simd, Task, Value, run};
use crate::index::{Columns, Invalid, Offsets};
use std::ops::Range;

/// Pattern of the stored entries of a symmetric matrix, checked once at construction.
#[derive(Clone, Debug)]
pub struct Halves {
    size: usize,
    parts: Vec<usize>,
    offsets: Offsets,
    mirrored: Buffer<u32>,
    columns: Columns,
}

impl Halves {
    /// Checks and wraps the pattern. `size` is the number of rows of a dense block of the matrix (1: scalar
    /// entries); the other arguments count block rows and blocks. `parts` holds the first block row of each
    /// part, then the number of block rows. `mirrored` holds for each block row the number of leading blocks
    /// that are below the diagonal and in columns of the row's part or the part before: these are mirrored,
    /// the others are not.
    pub fn new(
        size: usize,
        parts: Vec<usize>,
        offsets: Offsets,
        mirrored: Vec<u32>,
        columns: Columns,
    ) -> Result<Halves, Invalid> {
        let rows = offsets.ranges();
        let covered = parts.first() == Some(&0) && parts.last() == Some(&rows);
        if !covered || !parts.is_sorted() || mirrored.len() != rows || columns.len() < offsets.end() {
            return Err(Invalid::Order { position: 0 });
        }
        let check = |row: usize| {
            let range = offsets.range(row);
            if mirrored[row] as usize > range.len() {
                return Err(Invalid::Order { position: row });
            }
            let below = &columns[range.start..range.start + mirrored[row] as usize];
            let inside = reach(&parts, row).start..row;
            match below.iter().position(|&column| !inside.contains(&(column as usize))) {
                None => Ok(()),
                Some(at) => {
                    let (position, index) = (range.start + at, u64::from(below[at]));
                    Err(Invalid::Bound { position, index, bound: row as u64 })
                }
            }
        };
        let entries_of_row = columns.len() / rows.max(1);
        if let Some(row) = find_row(rows, entries_of_row, &|row| check(row).is_err()) {
            check(row)?;
        }
        Ok(Halves { size, parts, offsets, mirrored: mirrored.into(), columns })
    }

    /// Rows per dense block; 1 for scalar entries.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Offsets of the block rows, counted in blocks.
    pub fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// Number of mirrored blocks of each block row.
    pub fn mirrored(&self) -> &[u32] {
        &self.mirrored
    }

    /// Block column of each stored block.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// First block row of each part, then the number of block rows.
    pub fn parts(&self) -> &[usize] {
        &self.parts
    }

    /// Bytes of the arrays.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.parts)
            + self.offsets.bytes()
            + size_of_val(&*self.mirrored)
            + size_of_val(&*self.columns)
    }

    /// Returns whether the pattern belongs to a square matrix with `rows` rows, and `values` is large enough for all
    /// stored entries.
    pub fn fit(&self, rows: usize, values: usize) -> bool {
        self.offsets.ranges() * self.size == rows
            && self.columns.bound() * self.size <= rows
            && values >= self.offsets.end() * self.size * self.size
    }

    /// Panics if the pattern does not fit a loop over blocks of `size` rows, or the lengths differ.
    pub(crate) fn check<T>(&self, size: usize, values: usize, x: &[T], y: &[T]) {
        assert_eq!(self.size, size, "blocks have the size that the loop expects");
        assert!(values >= self.offsets.end() * size * size, "there are values for each stored block");
        assert!(self.columns.bound() * size <= x.len() && x.len() == y.len(), "`x` and `y` fit the matrix");
        assert_eq!(self.offsets.ranges() * size, y.len(), "`y` has an entry for each row");
    }

    /// Calls `part(block rows of a part, first row of y, y)` for every part, first for those with even numbers,
    /// then for those with odd numbers, so that `part` may add to the rows of its part and of the part before.
    /// The slice passed to `part` holds these rows; the first phase sets it to zero before.
    pub(crate) fn in_two_phases<T: Value>(
        &self,
        y: &mut [T],
        part: &(impl Fn(Range<usize>, usize, &mut [T]) + Sync),
    ) {
        let count = self.parts.len() - 1;
        // Pair `k` has part `2 k + odd` and the part before it, whose rows follow each other.
        let phase = |odd: usize, y: &mut [T]| {
            let first_row =
                |pair: usize| self.parts[(2 * pair + odd).saturating_sub(1).min(count)] * self.size;
            let y = ByRow::new(y, &first_row);
            over_parts((count + 2 - odd) / 2, &|pair| pair, y, &|pair, y: ByRow<'_, T>| {
                let (own, (y, first)) = (2 * pair.start + odd, y.all());
                if odd == 0 {
                    y.fill(T::zero());
                }
                if own < count {
                    part(self.parts[own]..self.parts[own + 1], first, y);
                }
            });
        };
        phase(0, &mut *y);
        phase(1, y);
    }
}

/// Columns within reach of `row`: those of its part, and of the parts before and after. Entries there are mirrored.
pub fn reach(parts: &[usize], row: usize) -> Range<usize> {
    let next = parts.partition_point(|&bound| bound <= row);
    parts[next.saturating_sub(2)]..parts[(next + 1).min(parts.len() - 1)]
}

struct Part<'a, T, V> {
    halves: &'a Halves,
    values: &'a [V],
    rows: Range<usize>,
    x: &'a [T],
    /// Begins with row `first`.
    y: &'a mut [T],
    first: usize,
}

impl<T: Value, V: Storage<T>> Task for Part<'_, T, V> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Part { halves, values, rows, x, y, first } = self;
        let (values, columns) = (values.as_ptr(), halves.columns.as_ptr());
        let (x, y) = (x.as_ptr(), y.as_mut_ptr());
        let mut start = halves.offsets.at(rows.start);
        for row in rows {
            let end = halves.offsets.at(row + 1);
            // SAFETY: `Halves::new` checked offsets and columns, and that mirrored columns are before this row, in
            // this part or the one before, whose rows `y` has; `check` compared the lengths
            unsafe {
                let middle = start + *halves.mirrored.get_unchecked(row) as usize;
                let own = *x.add(row);
                let (mut even, mut odd) = (T::zero(), T::zero());
                let mut k = start;
                while k + 1 < middle {
                    let (a, b) = ((*values.add(k)).widen(), (*values.add(k + 1)).widen());
                    let (i, j) = (*columns.add(k) as usize, *columns.add(k + 1) as usize);
                    even = S::mul_add(a, *x.add(i), even);
                    odd = S::mul_add(b, *x.add(j), odd);
                    let (at_i, at_j) = (y.add(i - first), y.add(j - first));
                    *at_i = S::mul_add(a, own, *at_i);
                    *at_j = S::mul_add(b, own, *at_j);
                    k += 2;
                }
                if k < middle {
                    let (a, i) = ((*values.add(k)).widen(), *columns.add(k) as usize);
                    even = S::mul_add(a, *x.add(i), even);
                    let at_i = y.add(i - first);
                    *at_i = S::mul_add(a, own, *at_i);
                    k += 1;
                }
                while k < end {
                    odd = S::mul_add((*values.add(k)).widen(), *x.add(*columns.add(k) as usize), odd);
                    k += 1;
                }
                *y.add(row - first) += even + odd;
            }
            start = end;
        }
    }
}

/// `y ← A x`
pub fn product<T: Value, V: Storage<T>>(halves: &Halves, values: &[V], x: &[T], y: &mut [T]) {
    halves.check(1, values.len(), x, y);
    halves.in_two_phases(y, &|rows, first, y| run(Part { halves, values, rows, x, y, first }));
}
