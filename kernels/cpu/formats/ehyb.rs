//! EHYB: the entries of a part's own columns in slices with columns of 16 bits, the others in slices of their own over only
//! the rows that have such.
//!
//! A chunk's values are those of its slots inside, then those of its extra lines. A part is many chunks that threads take
//! in order, so that its `x` stays in the second cache; `y` of a chunk stays in the first between the two.
//!
//! Moves 10 B (f64) or 6 B (f32) a slot inside, and 12 or 8 of an extra line, whose sum is added to a `y` in cache.

use crate::cpu::formats::sliced::Sliced;
use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::threads::{CHUNK, chunks};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Simd, Value};
use crate::index::Offsets;
use std::ops::Range;

/// The arrays of a matrix. `inside` and `extra` both have the values of both.
#[derive(Clone, Copy, Debug)]
pub struct Ehyb<'a, V> {
    /// The entries inside parts.
    pub inside: Sliced<'a, V>,
    /// Lines of the other entries: those of a chunk are whole slices, in order.
    pub extra: Sliced<'a, V>,
    /// The lines of each chunk.
    pub lines: &'a Offsets,
    /// The row of its chunk that each line is of; lines that pad a slice come last, and are of none.
    pub rows: &'a [u16],
}

impl<T: Value, V: Storage<T>> RowProduct<T> for Ehyb<'_, V> {
    fn rows(&self) -> usize {
        self.inside.rows
    }

    fn fits(&self, x: usize) -> bool {
        let slots = self.inside.before(self.inside.rows) + self.extra.before(self.extra.rows);
        RowProduct::<T>::fits(&self.inside, x)
            && RowProduct::<T>::fits(&self.extra, x)
            && self.extra.order.is_none()
            && self.lines.ranges() == self.inside.rows.div_ceil(CHUNK)
            && self.lines.end() == self.extra.rows
            && self.rows.len() == self.extra.rows
            && self.inside.values.len().min(self.extra.values.len()) >= slots
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let first = rows.start;
        let mut sums = [T::zero(); CHUNK];
        for chunk in chunks(rows) {
            let y = &mut y[chunk.start - first..chunk.end - first];
            let lines = self.lines.range(chunk.start / CHUNK);
            // each counts its own values: skip those of the other that stand before this chunk's
            let inside =
                Sliced { values: &self.inside.values[self.extra.before(lines.start)..], ..self.inside };
            let extra = Sliced { values: &self.extra.values[self.inside.before(chunk.end)..], ..self.extra };
            let sums = &mut sums[..lines.len()];
            assert!(lines.start.is_multiple_of(extra.height), "the lines of a chunk begin with a slice");
            // SAFETY: handed down from the caller; what is left of the values is enough for all slots of either
            unsafe {
                inside.sums(chunk, x, y);
                extra.sums(lines.clone(), x, sums);
            }
            for (&row, &sum) in self.rows[lines].iter().zip(&*sums) {
                // a line of padding has no row
                if let Some(y) = y.get_mut(row as usize) {
                    *y += sum;
                }
            }
        }
    }
}
