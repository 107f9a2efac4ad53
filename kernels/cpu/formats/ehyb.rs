//! EHYB (Chen 2022): rows are divided into parts. Entries whose column is the index of a row of the same part
//! are stored in slices with 16-bit columns, the other entries in separate slices that contain only rows with
//! such entries.
//!
//! A chunk stores the values of its inner slots (stored positions for entries within the part, with padding)
//! first, then those of its extra lines. A *line* holds the other entries of one row. A part consists of many
//! chunks, which a thread processes in order, so that the part's `x` stays in the L2 cache. A chunk is
//! computed in two steps, inner slots and extra lines; its `y` stays in the L1 cache between them.
//!
//! Memory traffic of a product: 10 B (f64) or 6 B (f32) per inner slot, 12 B or 8 B per slot of an extra
//! line, and the vectors.

use crate::cpu::formats::sliced::Sliced;
use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::threads::{CHUNK, chunks};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Simd, Value};
use crate::index::Offsets;
use std::ops::Range;

/// Arrays of a matrix. The `values` of `inside` and `extra` are the same array, with the values of both.
#[derive(Clone, Copy, Debug)]
pub struct Ehyb<'a, V> {
    /// Entries within the columns of their part.
    pub inside: Sliced<'a, V>,
    /// Lines with the other entries; the lines of a chunk are whole slices, in order.
    pub extra: Sliced<'a, V>,
    /// Range of lines of each chunk.
    pub lines: &'a Offsets,
    /// Row of each line, relative to its chunk. Lines that only pad a slice come last and have no row.
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
            // both matrices address the shared value array by counting only their own slots: skip the values
            // of the other matrix that are stored before those of this chunk
            let inside =
                Sliced { values: &self.inside.values[self.extra.before(lines.start)..], ..self.inside };
            let extra = Sliced { values: &self.extra.values[self.inside.before(chunk.end)..], ..self.extra };
            let sums = &mut sums[..lines.len()];
            assert!(lines.start.is_multiple_of(extra.height), "the lines of a chunk begin with a slice");
            // SAFETY: the caller's contract is the same; the remaining values suffice for all slots of either
            // matrix
            unsafe {
                inside.sums(chunk, x, y);
                extra.sums(lines.clone(), x, sums);
            }
            for (&row, &sum) in self.rows[lines].iter().zip(&*sums) {
                // padding lines have no row
                if let Some(y) = y.get_mut(row as usize) {
                    *y += sum;
                }
            }
        }
    }
}
