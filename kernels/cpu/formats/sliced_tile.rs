//! Products of sliced formats with [`TILE`] vectors packed row by row ([`tiles`](crate::cpu::run::tiles)).
//! Each row alternates between two running sums, in the same order as in a product with one vector.

use crate::cpu::formats::sliced::{Sliced, SlicedColumns};
use crate::cpu::run::threads::chunks;
use crate::cpu::run::tiles::{self, TILE};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Lanes, Simd, Value};
use std::ops::Range;

/// Look-up of the column of a slot.
trait Find: Copy {
    /// # Safety
    /// Slice and slot exist.
    unsafe fn column(self, slice: usize, slot: usize) -> usize;
}

#[derive(Clone, Copy)]
struct Wide(*const u32);

impl Find for Wide {
    #[inline(always)]
    unsafe fn column(self, _: usize, slot: usize) -> usize {
        // SAFETY: the caller's slot exists
        unsafe { *self.0.add(slot) as usize }
    }
}

#[derive(Clone, Copy)]
struct Short {
    bases: *const u32,
    offsets: *const u16,
}

impl Find for Short {
    #[inline(always)]
    unsafe fn column(self, slice: usize, slot: usize) -> usize {
        // SAFETY: the caller's slice and slot exist
        unsafe { *self.bases.add(slice) as usize + *self.offsets.add(slot) as usize }
    }
}

impl<V> Sliced<'_, V> {
    /// # Safety
    /// The requirements are those of [`RowProduct::tile`](crate::cpu::run::rows::RowProduct::tile).
    #[inline(always)]
    pub(super) unsafe fn tile_rows<S: Simd, T: Value>(&self, rows: Range<usize>, x: &[T], y: &mut [T])
    where
        V: Storage<T>,
    {
        let first = rows.start;
        for chunk in chunks(rows) {
            let y = &mut y[(chunk.start - first) * TILE..(chunk.end - first) * TILE];
            // SAFETY: the caller's contract is the same
            unsafe {
                match self.columns {
                    SlicedColumns::Wide(columns) => {
                        self.tile_chunk::<S, T, _>(chunk, x, y, Wide(columns.as_ptr()));
                    }
                    SlicedColumns::Short(short) => {
                        let (bases, offsets) = (short.bases().as_ptr(), short.offsets().as_ptr());
                        self.tile_chunk::<S, T, _>(chunk, x, y, Short { bases, offsets });
                    }
                }
            }
        }
    }

    /// # Safety
    /// The requirements are those of [`RowProduct::tile`](crate::cpu::run::rows::RowProduct::tile), for rows
    /// of one chunk.
    #[inline(always)]
    unsafe fn tile_chunk<S: Simd, T: Value, C: Find>(
        &self,
        rows: Range<usize>,
        x: &[T],
        y: &mut [T],
        columns: C,
    ) where
        V: Storage<T>,
    {
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        let (values, step) = (self.values.as_ptr(), self.height);
        let order = self.order.map(|order| &order[rows.clone()]);
        for start in (0..rows.len()).step_by(step) {
            let slice = (rows.start + start) / step;
            let slots = self.slots(slice);
            for line in (0..slots.len() * size_of::<V>()).step_by(64) {
                S::prefetch(values.wrapping_add(slots.end).wrapping_byte_add(line));
            }
            for place in start..rows.len().min(start + step) {
                let row = order.map_or(place, |order| order[place] as usize);
                let y = &mut y[row * TILE..][..TILE];
                for at in (0..TILE).step_by(lanes) {
                    let x = x.as_ptr().wrapping_add(at);
                    // SAFETY: the slots of a slice are within the arrays, and their columns are rows of `x`;
                    // a row of `y` has `TILE` entries
                    unsafe {
                        let zero = T::In::<S>::splat(T::zero());
                        let (mut sum, mut other) = (zero, zero);
                        for slot in (slots.start + place - start..slots.end).step_by(step) {
                            let value = T::In::<S>::splat((*values.add(slot)).widen());
                            let x = tiles::load::<S, T>(x.add(columns.column(slice, slot) * TILE));
                            (sum, other) = (other, value.mul_add(x, sum));
                        }
                        tiles::store::<S, T>(sum.add(other), y.as_mut_ptr().add(at));
                    }
                }
            }
        }
    }
}
