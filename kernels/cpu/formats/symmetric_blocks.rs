//! Symmetric storage in BSR: as in [`symmetric`](crate::cpu::formats::symmetric), with blocks of `B × B`
//! entries in place of entries.
//!
//! Within a part, a product reads 8 bytes (f64) per two entries and 4 bytes (a column index) per `2 B²`
//! entries, half of what [`bsr`](crate::cpu::formats::bsr) reads.

use crate::cpu::formats::bsr::SLACK;
use crate::cpu::formats::symmetric::Halves;
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Simd, Task, Value, run};
use crate::cpu::tuning::PREFETCH_BYTES;
use std::ops::Range;

struct Part<'a, T, V, const B: usize, const P: usize> {
    halves: &'a Halves,
    values: &'a [V],
    /// Block rows.
    rows: Range<usize>,
    x: &'a [T],
    /// Begins with row `first`.
    y: &'a mut [T],
    first: usize,
}

impl<T: Value, V: Storage<T>, const B: usize, const P: usize> Task for Part<'_, T, V, B, P> {
    type Output = ();

    /// Loads each column of a block as `P ≥ B` values and uses the first `B`; [`SLACK`] values after the last
    /// block make the last load valid.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Part { halves, values, rows, x, y, first } = self;
        let (values, columns) = (values.as_ptr(), halves.columns().as_ptr());
        let (x, y) = (x.as_ptr(), y.as_mut_ptr());
        let mut start = halves.offsets().at(rows.start);
        for row in rows {
            let end = halves.offsets().at(row + 1);
            // separate sums for each column of a block keep the additions independent
            let mut sums = [[T::zero(); P]; B];
            // SAFETY: `Halves::new` checked offsets and columns, and that mirrored columns are before this row, in
            // this part or the one before, whose rows `y` has; `check` compared the lengths, including `SLACK` values
            // after the last block
            unsafe {
                let middle = start + *halves.mirrored().get_unchecked(row) as usize;
                let own: [T; B] = x.add(row * B).cast::<[T; B]>().read_unaligned();
                for k in start..middle {
                    let block = values.add(k * B * B);
                    let at = *columns.add(k) as usize * B;
                    S::prefetch_ahead(block.wrapping_byte_add(PREFETCH_BYTES), B * B);
                    let mirrored = y.add(at - first);
                    for (j, sums) in sums.iter_mut().enumerate() {
                        let column = block.add(j * B).cast::<[V; P]>().read_unaligned().map(V::widen);
                        let x = *x.add(at + j);
                        for (sum, value) in sums.iter_mut().zip(column) {
                            *sum = S::mul_add(value, x, *sum);
                        }
                        let mut back = *mirrored.add(j);
                        for (own, value) in own.into_iter().zip(column) {
                            back = S::mul_add(value, own, back);
                        }
                        *mirrored.add(j) = back;
                    }
                }
                for k in middle..end {
                    let block = values.add(k * B * B);
                    let x = x.add(*columns.add(k) as usize * B);
                    for (j, sums) in sums.iter_mut().enumerate() {
                        let column = block.add(j * B).cast::<[V; P]>().read_unaligned().map(V::widen);
                        let x = *x.add(j);
                        for (sum, value) in sums.iter_mut().zip(column) {
                            *sum = S::mul_add(value, x, *sum);
                        }
                    }
                }
                for i in 0..B {
                    let sum = sums.iter().fold(T::zero(), |all, column| all + column[i]);
                    *y.add(row * B + i - first) += sum;
                }
            }
            start = end;
        }
    }
}

/// `y ← A x`. Blocks have 2, 3, 4 or 6 rows and are stored column by column; [`SLACK`] zeros follow the last.
pub fn product<T: Value, V: Storage<T>>(size: usize, halves: &Halves, values: &[V], x: &[T], y: &mut [T]) {
    assert!([2, 3, 4, 6].contains(&size), "blocks have 2, 3, 4 or 6 rows");
    halves.check(size, values.len().saturating_sub(SLACK), x, y);
    halves.in_two_phases(y, &|rows, first, y| match size {
        2 => run(Part::<T, V, 2, 2> { halves, values, rows, x, y, first }),
        3 => run(Part::<T, V, 3, 4> { halves, values, rows, x, y, first }),
        4 => run(Part::<T, V, 4, 4> { halves, values, rows, x, y, first }),
        _ => run(Part::<T, V, 6, 8> { halves, values, rows, x, y, first }),
    });
}
