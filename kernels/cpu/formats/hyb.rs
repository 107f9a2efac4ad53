//! HYB: the first entries of every row in slices (ELL), the overflow of long rows in coordinates (COO).
//!
//! A chunk stores the values of its slots (the ELL part, including padding) first, then its overflow, so that
//! both are close together. The memory traffic of a product is that of one of [`Sliced`] and one of [`Coo`]
//! together; `y` of a chunk stays in the L1 cache between the two steps.

use crate::cpu::formats::coo::{Coo, EntryRows};
use crate::cpu::formats::sliced::Sliced;
use crate::cpu::run::balanced::balanced;
use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::threads::chunks;
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Simd, Value};
use crate::index::Columns;
use std::ops::Range;

/// Arrays of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Hyb<'a, V> {
    /// First entries of every row; its value array holds the values of both parts, chunk by chunk.
    pub slices: Sliced<'a, V>,
    /// Row of each overflow entry.
    pub rows: &'a EntryRows,
    /// Column of each overflow entry.
    pub columns: &'a Columns,
}

impl<V> Hyb<'_, V> {
    fn overflow(&self) -> Coo<'_, V> {
        Coo { rows: self.rows, columns: self.columns, values: self.slices.values }
    }
}

impl<T: Value, V: Storage<T>> RowProduct<T> for Hyb<'_, V> {
    fn rows(&self) -> usize {
        self.slices.rows
    }

    fn fits(&self, x: usize) -> bool {
        RowProduct::<T>::fits(&self.slices, x)
            && RowProduct::<T>::fits(&self.overflow(), x)
            && RowProduct::<T>::rows(&self.overflow()) == self.slices.rows
            && self.slices.values.len() >= self.slices.before(self.slices.rows) + self.rows.len()
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let first = rows.start;
        for chunk in chunks(rows) {
            let y = &mut y[chunk.start - first..chunk.end - first];
            // slots and overflow address the shared value array by counting only their own values: skip the
            // values of the other part that are stored before those of this chunk
            let values = self.slices.values;
            let slices = Sliced { values: &values[self.rows.before(chunk.start)..], ..self.slices };
            let overflow = Coo { values: &values[self.slices.before(chunk.end)..], ..self.overflow() };
            // SAFETY: the caller's contract is the same; the remaining values suffice for all slots of either
            // part
            unsafe {
                slices.sums(chunk.clone(), x, y);
                balanced(overflow, chunk, x, y);
            }
        }
    }
}
