//! COO (coordinate format), sorted by row: `y_i ← Σ v_k x_{c_k}` over the entries `k` whose row is `i`.
//!
//! Threads process the entries of their own rows, so that no atomics are needed and sums have a fixed order;
//! rows with many entries are [divided](crate::cpu::run::balanced) among threads. Rows are sorted, so if the
//! last entry of a register has the same row as the first, all have. The remaining entries of a row are added
//! one by one, which is faster here than masks, and faster than storing products in a buffer and adding them
//! up by rows. Memory traffic of a product: 16 B (f64) or 12 B (f32) per entry, and the vectors.

use crate::buffer::Buffer;
use crate::cpu::run::balanced::{Divide, balanced};
use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::threads::{CHUNK, chunks};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Lanes, Simd, Value};
use crate::index::{Columns, Invalid, Offsets, first_fall};
use std::ops::Range;

/// Row index of each entry, ascending, and the first entry of each chunk of rows.
#[derive(Clone, Debug)]
pub struct EntryRows {
    indices: Buffer<u32>,
    chunks: Offsets,
    rows: usize,
}

impl EntryRows {
    /// Checks that row indices ascend and are below `rows`.
    pub fn new(indices: impl Into<Buffer<u32>>, rows: usize) -> Result<EntryRows, Invalid> {
        let indices = indices.into();
        if let Some(position) = first_fall(&indices) {
            return Err(Invalid::Order { position });
        }
        let below = |bound: usize| indices.partition_point(|&row| (row as usize) < bound);
        let position = below(rows);
        if let Some(&index) = indices.get(position) {
            return Err(Invalid::Bound { position, index: u64::from(index), bound: rows as u64 });
        }
        let ends = (1..=rows.div_ceil(CHUNK)).map(|chunk| below(chunk * CHUNK) as u64);
        let chunks = Offsets::new(&std::iter::once(0).chain(ends).collect::<Vec<_>>())?;
        Ok(EntryRows { indices, chunks, rows })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of entries before `row`, which must be the first row of a chunk or the number of rows.
    pub fn before(&self, row: usize) -> usize {
        self.chunks.at(row.div_ceil(CHUNK))
    }

    /// Index of the first entry of a row, or of the next entry if the row is empty.
    pub fn first_of(&self, row: usize) -> usize {
        let entries = self.chunks.range(row / CHUNK);
        entries.start + self.indices[entries].partition_point(|&r| (r as usize) < row)
    }

    /// Bytes of the arrays.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.indices) + self.chunks.bytes()
    }
}

impl std::ops::Deref for EntryRows {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.indices
    }
}

/// Arrays of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Coo<'a, V> {
    /// Row of each entry.
    pub rows: &'a EntryRows,
    /// Column of each entry.
    pub columns: &'a Columns,
    /// Value of each entry.
    pub values: &'a [V],
}

impl<T: Value, V: Storage<T>> RowProduct<T> for Coo<'_, V> {
    fn rows(&self) -> usize {
        self.rows.rows
    }

    fn fits(&self, x: usize) -> bool {
        let entries = self.rows.len();
        self.columns.bound() <= x && self.columns.len() >= entries && self.values.len() >= entries
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let first = rows.start;
        for chunk in chunks(rows) {
            let y = &mut y[chunk.start - first..chunk.end - first];
            y.fill(T::zero());
            // SAFETY: the caller's contract is the same
            unsafe { balanced(*self, chunk, x, y) }
        }
    }
}

/// COO adds each sum to `y`, which the caller has set to zero.
impl<T: Value, V: Storage<T>> Divide<T> for Coo<'_, V> {
    #[inline(always)]
    fn first_entry(&self, row: usize) -> usize {
        if row.is_multiple_of(CHUNK) || row == self.rows.rows {
            self.rows.before(row)
        } else {
            self.rows.first_of(row)
        }
    }

    #[inline(always)]
    unsafe fn walk<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let first_entry = |row| Divide::<T>::first_entry(self, row);
        let entries = first_entry(rows.start)..first_entry(rows.end);
        // SAFETY: the caller's contract is the same
        unsafe { self.add::<S, T>(entries, rows.start, x, y) }
    }

    #[inline(always)]
    unsafe fn sum<S: Simd>(&self, entries: Range<usize>, x: &[T]) -> T {
        let (row, mut sum) = (self.rows.indices[entries.start], [T::zero()]);
        // SAFETY: the caller's contract is the same
        unsafe { self.add::<S, T>(entries, row as usize, x, &mut sum) };
        sum[0]
    }

    fn put(&self, sum: T, y: &mut T) {
        *y += sum;
    }
}

impl<V> Coo<'_, V> {
    /// Adds the product `v_k x_{c_k}` of each entry to its row of `y`, which begins with row `first`.
    ///
    /// # Safety
    /// The requirements are those of [`Divide::walk`].
    #[inline(always)]
    unsafe fn add<S: Simd, T: Value>(&self, entries: Range<usize>, first: usize, x: &[T], y: &mut [T])
    where
        V: Storage<T>,
    {
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        let rows = &self.rows.indices[..entries.end];
        let (values, columns, x) = (self.values.as_ptr(), self.columns.as_ptr(), x.as_ptr());
        let mut k = entries.start;
        while let Some(&row) = rows.get(k) {
            let in_row = |entry: usize| rows.get(entry) == Some(&row);
            let mut sum = T::zero();
            // SAFETY: `fits` compared the arrays; columns are below the length of `x`, checked on
            // construction
            unsafe {
                if in_row(k + lanes - 1) {
                    let mut even = T::In::<S>::splat(T::zero());
                    let mut odd = even;
                    while in_row(k + 2 * lanes - 1) {
                        let x0 = T::In::<S>::gather(x, columns.add(k));
                        even = V::load::<S>(values.add(k)).mul_add(x0, even);
                        let x1 = T::In::<S>::gather(x, columns.add(k + lanes));
                        odd = V::load::<S>(values.add(k + lanes)).mul_add(x1, odd);
                        k += 2 * lanes;
                    }
                    if in_row(k + lanes - 1) {
                        let x0 = T::In::<S>::gather(x, columns.add(k));
                        even = V::load::<S>(values.add(k)).mul_add(x0, even);
                        k += lanes;
                    }
                    sum = even.add(odd).sum();
                }
                while in_row(k) {
                    sum = S::mul_add((*values.add(k)).widen(), *x.add(*columns.add(k) as usize), sum);
                    k += 1;
                }
            }
            y[row as usize - first] += sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_checked() {
        assert_eq!(EntryRows::new(vec![0, 3, 2], 5).unwrap_err(), Invalid::Order { position: 2 });
        let refused = EntryRows::new(vec![0, 5, 7], 5).unwrap_err();
        assert_eq!(refused, Invalid::Bound { position: 1, index: 5, bound: 5 });
        assert!(EntryRows::new(vec![0], 0).is_err());
        assert!(EntryRows::new(vec![], 0).is_ok());
    }

    #[test]
    fn entries_are_found_by_row_and_by_chunk() {
        let last = CHUNK as u32 - 1;
        let rows = EntryRows::new(vec![0, 0, 5, last, last + 1, last + 1], 3 * CHUNK - 1).unwrap();
        let before = [0, CHUNK, 2 * CHUNK, 3 * CHUNK - 1].map(|row| rows.before(row));
        assert_eq!(before, [0, 4, 6, 6]);
        let first = [0, 1, 5, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK].map(|row| rows.first_of(row));
        assert_eq!(first, [0, 2, 2, 3, 4, 6, 6]);
    }
}
