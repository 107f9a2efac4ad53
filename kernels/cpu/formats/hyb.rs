//! HYB: the first entries of every row in slices, the overflow of long rows as coordinates.
//!
//! A chunk's values are its slots in slices, then its overflow, so that threads find both together. Moves what
//! [`Sliced`] and [`Coo`] move; `y` of a chunk stays in the first cache between the two.

use crate::cpu::formats::coo::{Coo, EntryRows};
use crate::cpu::formats::sliced::Sliced;
use crate::cpu::run::balanced::balanced;
use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::threads::chunks;
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Simd, Value};
use crate::index::Columns;
use std::ops::Range;

/// The arrays of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Hyb<'a, V> {
    /// The first entries of every row; its values are those of both parts, chunk by chunk.
    pub slices: Sliced<'a, V>,
    /// The row of each entry of the overflow.
    pub rows: &'a EntryRows,
    /// The column of each entry of the overflow.
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
            // each part counts its own values: skip those of the other that stand before this chunk's
            let values = self.slices.values;
            let slices = Sliced { values: &values[self.rows.before(chunk.start)..], ..self.slices };
            let overflow = Coo { values: &values[self.slices.before(chunk.end)..], ..self.overflow() };
            // SAFETY: handed down from the caller; what is left of the values is enough for all slots of either part
            unsafe {
                slices.sums(chunk.clone(), x, y);
                balanced(overflow, chunk, x, y);
            }
        }
    }
}
