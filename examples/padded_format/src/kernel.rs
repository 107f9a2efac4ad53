//! Rows padded to one length: `y_i ← Σ_k v_{i,k} x_{c_{i,k}}`.
//!
//! Reads 12 B (f64) or 8 B (f32) a slot, and the vectors.

use krysp::formats::extend::{Columns, Real, RowSum, Storage};

/// The arrays of a matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Padded<'a, V> {
    /// Number of rows.
    pub(crate) rows: usize,
    /// Number of slots of a row.
    pub(crate) width: usize,
    /// Column of each slot; padding repeats the last one of its row.
    pub(crate) columns: &'a Columns,
    /// Value of each slot, zero in padding.
    pub(crate) values: &'a [V],
}

impl<T: Real, V: Storage<T>> RowSum<T> for Padded<'_, V> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn fits(&self, x: usize) -> bool {
        let slots = Some(self.values.len());
        self.columns.bound() <= x
            && self.rows.checked_mul(self.width) == slots
            && Some(self.columns.len()) == slots
    }

    #[inline(always)]
    fn sum(&self, row: usize, x: &[T]) -> T {
        let slots = row * self.width..(row + 1) * self.width;
        let mut sum = T::zero();
        for (column, value) in self.columns[slots.clone()].iter().zip(&self.values[slots]) {
            sum += value.widen() * x[*column as usize];
        }
        sum
    }
}
