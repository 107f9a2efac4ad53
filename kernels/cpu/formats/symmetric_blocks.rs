//! Symmetric storage in BSR: as in [`symmetric`](crate::cpu::formats::symmetric), with blocks of `B × B`
//! entries in place of entries.
//!
//! Within a part, a product reads 8 bytes (f64) per two entries and 4 bytes (a column index) per `2 B²`
//! entries, half of what [`bsr`](crate::cpu::formats::bsr) reads.

use crate::cpu::formats::bsr::SLACK;
use crate::cpu::formats::symmetric::Halves;
use crate::cpu::run::threads::{over_parts, sum_over_parts};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Simd, Task, Value, run};
use crate::cpu::tuning::PREFETCH_BYTES;
use crate::cpu::vector::block_dot;
use std::ops::Range;

struct Part<'a, T, V, const B: usize, const P: usize> {
    halves: &'a Halves,
    values: &'a [V],
    /// Block rows.
    rows: Range<usize>,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Value, V: Storage<T>, const B: usize, const P: usize> Task for Part<'_, T, V, B, P> {
    type Output = ();

    /// Loads each column of a block as `P ≥ B` values and uses the first `B`; [`SLACK`] values after the last
    /// block make the last load valid.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Part { halves, values, rows, x, y } = self;
        let first = rows.start * B;
        let (values, columns) = (values.as_ptr(), halves.columns().as_ptr());
        let (x, y) = (x.as_ptr(), y.as_mut_ptr());
        let mut start = halves.offsets().at(rows.start);
        for row in rows {
            let end = halves.offsets().at(row + 1);
            // separate sums for each column of a block keep the additions independent
            let mut sums = [[T::zero(); P]; B];
            // SAFETY: `Halves::new` checked offsets and columns, and that inner columns are in this part and
            // before this row; `check` compared the lengths, including `SLACK` values after the last block
            unsafe {
                let middle = start + *halves.inner().get_unchecked(row) as usize;
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
                // overwrites `y`: only later rows of the part have mirrored blocks in these rows
                for i in 0..B {
                    let sum = sums.iter().fold(T::zero(), |all, column| all + column[i]);
                    *y.add(row * B + i - first) = sum;
                }
            }
            start = end;
        }
    }
}

/// Computes the rows of a part. `size` was checked to be 2, 3, 4 or 6.
fn part<T: Value, V: Storage<T>>(
    size: usize,
    halves: &Halves,
    values: &[V],
    rows: Range<usize>,
    x: &[T],
    y: &mut [T],
) {
    let rows = rows.start / size..rows.end / size;
    match size {
        2 => run(Part::<T, V, 2, 2> { halves, values, rows, x, y }),
        3 => run(Part::<T, V, 3, 4> { halves, values, rows, x, y }),
        4 => run(Part::<T, V, 4, 4> { halves, values, rows, x, y }),
        _ => run(Part::<T, V, 6, 8> { halves, values, rows, x, y }),
    }
}

fn check<T, V>(size: usize, halves: &Halves, values: &[V], x: &[T], y: &[T]) {
    assert!([2, 3, 4, 6].contains(&size), "blocks have 2, 3, 4 or 6 rows");
    halves.check(size, values.len().saturating_sub(SLACK), x, y);
}

/// `y ← A x`. Blocks have 2, 3, 4 or 6 rows and are stored column by column; [`SLACK`] zeros follow the last.
pub fn product<T: Value, V: Storage<T>>(size: usize, halves: &Halves, values: &[V], x: &[T], y: &mut [T]) {
    check(size, halves, values, x, y);
    let bound = |part: usize| halves.parts()[part] * size;
    over_parts(halves.parts().len() - 1, &bound, y, &|rows, y: &mut [T]| {
        part(size, halves, values, rows, x, y)
    });
}

/// `y ← A x; ⟨x, y⟩`
pub fn product_dot<T: Value, V: Storage<T>>(
    size: usize,
    halves: &Halves,
    values: &[V],
    x: &[T],
    y: &mut [T],
) -> T {
    check(size, halves, values, x, y);
    let bound = |part: usize| halves.parts()[part] * size;
    let [xy] = sum_over_parts(halves.parts().len() - 1, &bound, y, &|rows, y: &mut [T], sums| {
        part(size, halves, values, rows.clone(), x, y);
        let first = rows.start;
        sums.fill(rows, |block| [block_dot(&x[block.clone()], &y[block.start - first..block.end - first])]);
    });
    xy
}
