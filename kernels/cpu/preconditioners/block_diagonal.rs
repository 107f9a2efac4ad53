//! Block-diagonal matrices in host memory: inversion, rounding and products.
//! [`block_diagonal`](crate::block_diagonal) describes the layout.
//!
//! Memory traffic of a product: the values in their storage type, 16 bytes per slice, and two vectors.

use crate::block_diagonal::{Limits, Slice, StoredAs, StoredRows, capacity, count, cut, largest_block};
use crate::buffer::{Buffer, stored, stored_mut};
use crate::cpu::preconditioners::dense::invert;
use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::threads::{ByRow, over_parts, tasks};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Lanes, Simd, Value};
use crate::cpu::tuning::PREFETCH_BYTES;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Norms of blocks that may be stored with an 8-bit exponent (`f32`, bfloat16): numbers overflow from about
/// 2¹²⁸ on, and in a block with norm 2⁻¹⁰⁰ entries down to 2⁻²⁶ times the norm are normal numbers.
const IN_RANGE: Range<f64> = 1.0 / (1u128 << 100) as f64..(1u128 << 120) as f64;

/// A block-diagonal matrix.
#[derive(Clone, Debug)]
pub struct BlockDiagonal<T: Value> {
    slices: Vec<Slice>,
    numbers: Buffer<T>,
    /// Largest condition number of the blocks of each slice.
    conditions: Vec<f32>,
}

impl<T: Value> BlockDiagonal<T> {
    /// Creates a zero matrix. `bounds` holds the first row of each block, from 0 on, then the end of the
    /// last.
    pub fn zeros(bounds: &[usize]) -> Self {
        assert!(bounds.first().is_none_or(|&first| first == 0), "blocks begin at row 0");
        let slices = cut(bounds);
        let conditions = vec![f32::INFINITY; slices.len()];
        let numbers = Buffer::zeros(capacity(&slices));
        BlockDiagonal { slices, numbers, conditions }
    }

    /// Wraps slices and their values.
    #[cfg(feature = "cuda")]
    pub(crate) fn from_arrays(slices: Vec<Slice>, numbers: Buffer<T>) -> Self {
        let conditions = vec![f32::INFINITY; slices.len()];
        BlockDiagonal { slices, numbers, conditions }
    }

    /// Slices of whole blocks.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Memory of the values of all slices.
    #[cfg(feature = "cuda")]
    pub(crate) fn numbers(&self) -> &[T] {
        &self.numbers
    }

    /// Number of rows of the largest block.
    pub fn largest_block(&self) -> usize {
        largest_block(&self.slices)
    }

    /// Number of rows stored in each type.
    pub fn stored_rows(&self) -> StoredRows {
        count::<T>(&self.slices).0
    }

    /// Bytes that a product reads in addition to the vectors.
    pub fn bytes(&self) -> usize {
        count::<T>(&self.slices).1
    }

    /// Calls `each` with the row, the column and the value of every entry, row after row.
    pub fn for_each(&self, each: &mut impl FnMut(usize, usize, T)) {
        for slice in &self.slices {
            let numbers = &self.numbers[slice.numbers()];
            let (first, rows) = (slice.rows().start, slice.rows().len());
            for block in slice.blocks() {
                for i in block.clone() {
                    for j in 0..block.len() {
                        let number = number(numbers, slice.stored_as(), j * rows + i);
                        each(first + i, first + block.start + j, number);
                    }
                }
            }
        }
    }

    /// Inverts blocks: `gather` writes the block of the given range of rows, row by row. Each inverse is
    /// stored in the narrowest type that the limits allow. Returns the rows of the first singular block as an
    /// error; the matrix is then invalid until a later call succeeds.
    pub fn invert(
        &mut self,
        limits: Limits,
        gather: &(impl Fn(Range<usize>, &mut [f64]) + Sync),
    ) -> Result<(), Range<usize>> {
        let singular = AtomicUsize::new(usize::MAX);
        self.each_slice(&|slice, numbers, condition| {
            let (mut block, mut inverses) = (vec![], vec![0.0; slice.capacity()]);
            let (first, rows, mut worst) = (slice.rows().start, slice.rows().len(), 0.0_f64);
            for within in slice.blocks() {
                let size = within.len();
                block.clear();
                block.resize(size * size, 0.0);
                gather(first + within.start..first + within.end, &mut block);
                let norm = norm(&block, size);
                if !invert(&mut block, size) {
                    singular.fetch_min(first + within.start, Ordering::Relaxed);
                    return;
                }
                let of_inverse = norm_in_range(&block, size);
                worst = worst.max(norm * of_inverse);
                for (i, row) in within.zip(block.chunks(size)) {
                    row.iter().enumerate().for_each(|(j, &number)| inverses[j * rows + i] = number);
                }
            }
            *condition = worst as f32;
            store(&inverses, limits.stored(*condition), numbers);
        });
        let first = singular.into_inner();
        for (slice, &condition) in self.slices.iter_mut().zip(&self.conditions) {
            slice.stored = limits.stored(condition) as u8;
            let of_slice = slice.rows();
            if of_slice.contains(&first) {
                let found = slice.blocks().find(|block| of_slice.start + block.start == first);
                return Err(
                    found.map_or(of_slice.clone(), |b| of_slice.start + b.start..of_slice.start + b.end)
                );
            }
        }
        Ok(())
    }

    /// Rounds slices to narrower types where the limits allow. A slice that is already narrower stays so.
    pub fn round(&mut self, limits: Limits) {
        let wanted = |slice: &Slice, condition: f32| slice.stored_as().max(limits.stored(condition));
        self.each_slice(&|slice, numbers, condition| {
            let wanted = wanted(slice, *condition);
            if wanted != slice.stored_as() {
                let wide: Vec<f64> =
                    (0..slice.capacity()).map(|k| to_f64(number(numbers, slice.stored_as(), k))).collect();
                store(&wide, wanted, numbers);
            }
        });
        for (slice, &condition) in self.slices.iter_mut().zip(&self.conditions) {
            slice.stored = wanted(slice, condition) as u8;
        }
    }

    /// Runs `work` on every slice with its values and its condition number, on all threads.
    fn each_slice(&mut self, work: &(impl Fn(&Slice, &mut [T], &mut f32) + Sync)) {
        let (slices, all) = (&self.slices, self.numbers.len());
        let place = |slice: usize| slices.get(slice).map_or(all, |slice| slice.numbers().start);
        let (count, tasks) = (slices.len(), tasks(all).min(slices.len()));
        let share = |task: usize| task * count / tasks.max(1);
        let data = (ByRow::new(&mut self.numbers, &place), self.conditions.as_mut_slice());
        over_parts(tasks, &share, data, &|range, (mut numbers, conditions): (ByRow<'_, T>, &mut [f32])| {
            for (k, condition) in range.zip(conditions) {
                work(&slices[k], numbers.row_mut(k, slices[k].capacity()), condition);
            }
        });
    }
}

/// Infinity norm: the largest sum of magnitudes of a row.
fn norm(block: &[f64], size: usize) -> f64 {
    block.chunks(size).map(|row| row.iter().map(|v| v.abs()).sum()).fold(0.0, f64::max)
}

/// Norm of a block; infinite if the norm is not [`IN_RANGE`].
fn norm_in_range(block: &[f64], size: usize) -> f64 {
    let norm = norm(block, size);
    if IN_RANGE.contains(&norm) { norm } else { f64::INFINITY }
}

fn to_f64<T: Value>(number: T) -> f64 {
    number.to_f64().unwrap_or(f64::NAN)
}

/// Value `k` of a slice, converted to the element type.
fn number<T: Value>(numbers: &[T], stored_as: StoredAs, k: usize) -> T {
    match stored_as {
        StoredAs::Element => numbers[k],
        StoredAs::Single => stored::<T, T::Single>(numbers)[k].widen(),
        StoredAs::Half => stored::<T, T::Half>(numbers)[k].widen(),
    }
}

fn store<T: Value>(from: &[f64], stored_as: StoredAs, numbers: &mut [T]) {
    fn rounded<T: Value, V: Storage<T>>(from: &[f64], to: &mut [V]) {
        let element = |number: f64| T::from(number).unwrap_or_else(T::nan);
        to.iter_mut().zip(from).for_each(|(to, &number)| *to = V::narrow(element(number)));
    }
    match stored_as {
        StoredAs::Element => rounded::<T, T>(from, numbers),
        StoredAs::Single => rounded::<T, T::Single>(from, stored_mut(numbers)),
        StoredAs::Half => rounded::<T, T::Half>(from, stored_mut(numbers)),
    }
}

impl<T: Value> RowProduct<T> for BlockDiagonal<T> {
    fn rows(&self) -> usize {
        self.slices.last().map_or(0, |last| last.rows().end)
    }

    fn fits(&self, x: usize) -> bool {
        x == self.rows()
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let before = self.slices.partition_point(|slice| slice.rows().end <= rows.start);
        for slice in &self.slices[before..] {
            let of_slice = slice.rows();
            if of_slice.start >= rows.end {
                break;
            }
            let (from, to) = (of_slice.start.max(rows.start), of_slice.end.min(rows.end));
            let (numbers, y) = (&self.numbers[slice.numbers()], &mut y[from - rows.start..to - rows.start]);
            let (x, here) = (&x[of_slice.clone()], from - of_slice.start..to - of_slice.start);
            // SAFETY: the caller's contract is the same
            unsafe {
                match slice.stored_as() {
                    StoredAs::Element => multiply::<S, T, T>(slice, numbers, here, x, y),
                    StoredAs::Single => multiply::<S, T, T::Single>(slice, stored(numbers), here, x, y),
                    StoredAs::Half => multiply::<S, T, T::Half>(slice, stored(numbers), here, x, y),
                }
            }
        }
    }
}

/// Multiplies the rows `here` of a slice.
///
/// # Safety
/// The requirements are those of [`RowProduct::product`], for the rows `here` of the slice.
#[inline(always)]
unsafe fn multiply<S: Simd, T: Value, V: Storage<T>>(
    slice: &Slice,
    numbers: &[V],
    here: Range<usize>,
    x: &[T],
    y: &mut [T],
) {
    // SAFETY: the caller's contract is the same
    unsafe {
        match slice.even {
            2 => multiply_even::<S, T, V, 2>(slice, numbers, here, x, y),
            3 => multiply_even::<S, T, V, 3>(slice, numbers, here, x, y),
            4 => multiply_even::<S, T, V, 4>(slice, numbers, here, x, y),
            6 => multiply_even::<S, T, V, 6>(slice, numbers, here, x, y),
            _ => multiply_any::<S, T, V>(slice, numbers, here, x, y),
        }
    }
}

/// Multiplies the rows `here` of a slice whose blocks have `B` rows each.
///
/// # Safety
/// The requirements are those of [`RowProduct::product`], for the rows `here` of the slice.
#[inline(always)]
unsafe fn multiply_even<S: Simd, T: Value, V: Storage<T>, const B: usize>(
    slice: &Slice,
    numbers: &[V],
    here: Range<usize>,
    x: &[T],
    y: &mut [T],
) {
    let rows = usize::from(slice.rows);
    if !here.start.is_multiple_of(B) || !here.end.is_multiple_of(B) {
        // SAFETY: the caller's contract is the same
        return unsafe { multiply_any::<S, T, V>(slice, numbers, here, x, y) };
    }
    assert!(here.end <= rows && rows <= x.len() && rows * B <= numbers.len(), "rows are within the slice");
    let (numbers, x) = (numbers.as_ptr(), x.as_ptr());
    for (start, y) in here.step_by(B).zip(y.chunks_exact_mut(B)) {
        let mut sums = [T::zero(); B];
        S::prefetch_ahead(numbers.wrapping_add(start * B), B * B);
        for j in 0..B {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the block ends within `here`, which was compared with all lengths
                let (value, x) = unsafe { (*numbers.add(j * rows + start + i), *x.add(start + j)) };
                *sum = S::mul_add(value.widen(), x, *sum);
            }
        }
        y.copy_from_slice(&sums);
    }
}

/// Multiplies the rows `here` of a slice with blocks of any sizes, one register of rows at a time.
///
/// # Safety
/// The requirements are those of [`RowProduct::product`], for the rows `here` of the slice.
#[inline(always)]
unsafe fn multiply_any<S: Simd, T: Value, V: Storage<T>>(
    slice: &Slice,
    numbers: &[V],
    here: Range<usize>,
    x: &[T],
    y: &mut [T],
) {
    let columns = usize::from(slice.rows);
    for block in slice.blocks() {
        let rows = block.start.max(here.start)..block.end.min(here.end);
        if rows.is_empty() {
            continue;
        }
        let (y, x) = (&mut y[rows.start - here.start..rows.end - here.start], &x[block]);
        assert!((x.len() - 1) * columns + rows.end <= numbers.len(), "values are within the slice");
        for first in (0..y.len()).step_by(<T::In<S> as Lanes<T>>::COUNT) {
            let count = (y.len() - first).min(<T::In<S> as Lanes<T>>::COUNT);
            let whole = count == <T::In<S> as Lanes<T>>::COUNT;
            // SAFETY: each column has `count` rows from `first` on, as compared with the length of `numbers`;
            // so has `y`
            unsafe {
                let (mut column, to) = (numbers.as_ptr().add(rows.start + first), y.as_mut_ptr().add(first));
                let mut sum = T::In::<S>::splat(T::zero());
                for &x in x {
                    S::prefetch(column.wrapping_byte_add(PREFETCH_BYTES));
                    let values = if whole { V::load::<S>(column) } else { V::load_first::<S>(column, count) };
                    sum = values.mul_add(T::In::<S>::splat(x), sum);
                    column = column.wrapping_add(columns);
                }
                if whole {
                    sum.store(to);
                } else {
                    sum.store_first(to, count);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_in_range() {
        let (low, high) = (2f64.powi(-100), 2f64.powi(120));
        assert_eq!(IN_RANGE, low..high);
        assert_eq!(norm_in_range(&[1.0, -2.0, 0.5, 0.0], 2), 3.0);
        assert_eq!(norm_in_range(&[low / 2.0], 1), f64::INFINITY);
        assert_eq!(norm_in_range(&[high], 1), f64::INFINITY);
    }

    /// At an accuracy of 0.1, blocks with condition numbers 1, 10⁴ and 10⁹ are stored in 16, 32 and 64 bits.
    #[test]
    fn what_stores_a_block_follows_from_its_condition() {
        let blocks = [1.0, 1e-4, 1e-9].map(|small| [1.0 / 3.0, 0.0, 0.0, small / 3.0]);
        // one block per slice: a block of two rows does not fit in the slice of one of 31 rows
        let bounds = [0, 31, 33, 64, 66, 97, 99];
        let gather = |rows: Range<usize>, block: &mut [f64]| match rows.len() {
            2 => block.copy_from_slice(&blocks[rows.start / 33]),
            n => (0..n).for_each(|i| block[i * n + i] = 1.0),
        };
        let mut exact = BlockDiagonal::<f64>::zeros(&bounds);
        exact.invert(Limits::of::<f64>(0.0), &gather).unwrap();
        assert_eq!(exact.stored_rows(), StoredRows { elements: 99, singles: 0, halves: 0 });
        let mut found = BlockDiagonal::<f64>::zeros(&bounds);
        found.invert(Limits::of::<f64>(0.1), &gather).unwrap();
        exact.round(Limits::of::<f64>(0.1));
        assert_eq!(exact.stored_rows(), found.stored_rows());
        assert_eq!(found.stored_rows(), StoredRows { elements: 2, singles: 2, halves: 31 * 3 + 2 });
        let mut rounded = vec![];
        found.for_each(&mut |row, column, number| {
            if row == column && [32, 65, 98].contains(&row) {
                rounded.push(number);
            }
        });
        assert_eq!(rounded[0], 3.0);
        assert_eq!(rounded[1], f64::from((3.0 / 1e-4) as f32));
        assert_eq!(rounded[2], 1.0 / (1e-9 / 3.0));
        let bytes = found.bytes();
        assert_eq!(bytes, 16 * 6 + 3 * 31 * 31 * 2 + 4 * (2 + 4 + 8));
        // elements of 32 bits have no type between 32 and 16 bits
        let mut single = BlockDiagonal::<f32>::zeros(&bounds);
        single.invert(Limits::of::<f32>(0.1), &gather).unwrap();
        assert_eq!(single.stored_rows(), StoredRows { elements: 4, singles: 0, halves: 31 * 3 + 2 });
    }

    #[test]
    fn the_first_block_without_an_inverse_is_named() {
        let mut matrix = BlockDiagonal::<f64>::zeros(&[0, 2, 4, 36, 38]);
        let gather = |rows: Range<usize>, block: &mut [f64]| {
            let n = rows.len();
            (0..n).filter(|i| ![3, 37].contains(&(rows.start + i))).for_each(|i| block[i * n + i] = 1.0);
        };
        assert_eq!(matrix.invert(Limits::of::<f64>(0.0), &gather), Err(2..4));
    }
}
