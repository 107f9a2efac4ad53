//! Rows padded to one length: `y_i ← Σ_k v_{i,k} x_{c_{i,k}}`.
//!
//! Reads 12 B (f64) or 8 B (f32) a slot, and the vectors.

use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::simd::storage::{Storage, widen};
use krysp_kernels::cpu::simd::{Simd, Value};
use krysp_kernels::index::Columns;
use std::ops::Range;

/// The arrays of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Padded<'a, V> {
    /// The number of rows.
    pub rows: usize,
    /// Slots of a row.
    pub width: usize,
    /// The column of each slot; padding repeats the last one of its row.
    pub columns: &'a Columns,
    /// The value of each slot, zero in padding.
    pub values: &'a [V],
}

impl<T: Value, V: Storage<T>> RowProduct<T> for Padded<'_, V> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn fits(&self, x: usize) -> bool {
        let slots = self.rows * self.width;
        self.columns.bound() <= x && self.columns.len() == slots && self.values.len() == slots
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        for (row, y) in rows.zip(y) {
            let slots = row * self.width..(row + 1) * self.width;
            let mut sum = T::zero();
            for (column, value) in self.columns[slots.clone()].iter().zip(&self.values[slots]) {
                sum += widen::<T, V>(*value) * x[*column as usize];
            }
            *y = sum;
        }
    }
}
