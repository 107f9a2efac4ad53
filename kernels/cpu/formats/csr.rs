//! CSR (compressed sparse rows): `y_i ← Σ_k v_k x_{c_k}` over the entries of row `i`.
//!
//! Memory traffic of a product: 12 B (f64) or 8 B (f32) per entry, 4 B of offsets per row, `x` and `y`. A row
//! is processed in SIMD registers with two alternating sums; its last entries are masked. The masked gather
//! may also read column indices of the next rows (with AVX2 it does, which saves a mask); at the end of the
//! array, where no further indices exist, the last ones are copied to a buffer. If a register has at least 8
//! lanes, rows of at most 8 entries are summed with scalar instructions.

use crate::cpu::run::balanced::Divide;
use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::scattered::look;
use crate::cpu::run::tiles::{self, TILE, sum_lanes};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Lanes, MOST_LANES, Simd, Value};
use crate::cpu::tuning::{JUDGED, SHORT};
use crate::index::{ColumnsRef, Offset, OffsetsRef};
use std::ops::Range;

/// Arrays of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Csr<'a, V> {
    /// Row offsets.
    pub offsets: OffsetsRef<'a>,
    /// Column of each entry.
    pub columns: ColumnsRef<'a>,
    /// Value of each entry.
    pub values: &'a [V],
}

impl<T: Value, V: Storage<T>> RowProduct<T> for Csr<'_, V> {
    fn rows(&self) -> usize {
        self.offsets.ranges()
    }

    fn fits(&self, x: usize) -> bool {
        let entries = self.offsets.end();
        self.columns.bound() <= x && self.columns.len() >= entries && self.values.len() >= entries
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        if x.is_empty() {
            return y.fill(T::zero());
        }
        // SAFETY: the caller's contract is the same
        unsafe {
            match self.offsets {
                OffsetsRef::Short(o) => self.each_row::<S, T, u32>(&o[rows.start..=rows.end], x, y),
                OffsetsRef::Long(o) => self.each_row::<S, T, u64>(&o[rows.start..=rows.end], x, y),
            }
        }
    }

    fn has_tiles(&self) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        for (row, y) in rows.zip(y.as_chunks_mut::<TILE>().0) {
            // SAFETY: the caller's contract is the same
            unsafe { self.sum_tile::<S>(self.offsets.range(row), x, y) };
        }
    }
}

impl<T: Value, V: Storage<T>> Divide<T> for Csr<'_, V> {
    #[inline(always)]
    fn first_entry(&self, row: usize) -> usize {
        self.offsets.at(row)
    }

    #[inline(always)]
    unsafe fn walk<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        // SAFETY: the caller's contract is the same
        unsafe { self.product::<S>(rows, x, y) }
    }

    #[inline(always)]
    unsafe fn sum<S: Simd>(&self, entries: Range<usize>, x: &[T]) -> T {
        let mut sum = [T::zero()];
        // SAFETY: the caller's contract is the same
        unsafe { self.each_row::<S, T, u64>(&[entries.start as u64, entries.end as u64], x, &mut sum) };
        sum[0]
    }

    fn put(&self, sum: T, y: &mut T) {
        *y = sum;
    }

    #[inline(always)]
    unsafe fn sum_tile<S: Simd>(&self, entries: Range<usize>, x: &[T], y: &mut [T; TILE]) {
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        let (values, columns) = (self.values.as_ptr(), self.columns.as_ptr());
        let (start, end) = (entries.start, entries.end);
        for at in (0..TILE).step_by(lanes) {
            let x = x.as_ptr().wrapping_add(at);
            // SAFETY: the caller ensures that the values and columns of the entries exist and that the
            // columns are row indices of `x`
            unsafe {
                S::prefetch_ahead(values.add(start), end - start);
                S::prefetch_ahead(columns.add(start), end - start);
                let zero = T::In::<S>::splat(T::zero());
                let total = if lanes >= SHORT && end - start <= SHORT {
                    let (mut sum, mut other) = (zero, zero);
                    for k in start..end {
                        (sum, other) = (other, term::<S, T, V>(values.add(k), columns.add(k), x, sum));
                    }
                    sum.add(other)
                } else {
                    // a product with one vector has two running sums, each a register of `lanes` lanes. Here
                    // each of these lanes is itself a register, with a number for each vector, so that sums
                    // have the same order
                    let (mut sums, mut others) = ([zero; MOST_LANES], [zero; MOST_LANES]);
                    let mut k = start;
                    loop {
                        for (l, sum) in sums.iter_mut().enumerate().take(lanes) {
                            if k + l < end {
                                *sum = term::<S, T, V>(values.add(k + l), columns.add(k + l), x, *sum);
                            }
                        }
                        k += lanes;
                        if k >= end {
                            break;
                        }
                        for (l, sum) in others.iter_mut().enumerate().take(lanes) {
                            if k + l < end {
                                *sum = term::<S, T, V>(values.add(k + l), columns.add(k + l), x, *sum);
                            }
                        }
                        k += lanes;
                        if k >= end {
                            break;
                        }
                    }
                    for (sum, other) in sums.iter_mut().zip(others).take(lanes) {
                        *sum = sum.add(other);
                    }
                    sum_lanes::<S, T>(sums)
                };
                tiles::store::<S, T>(total, y.as_mut_ptr().add(at));
            }
        }
    }
}

/// `sum + v x_c` for those of the [`TILE`] packed vectors that one register holds.
///
/// # Safety
/// The CPU has the features of `S`; the pointers are those of one entry, and its column is a row of `x`.
#[inline(always)]
unsafe fn term<S: Simd, T: Value, V: Storage<T>>(
    value: *const V,
    column: *const u32,
    x: *const T,
    sum: T::In<S>,
) -> T::In<S> {
    // SAFETY: the caller's contract is the same
    unsafe {
        let x = tiles::load::<S, T>(x.add(*column as usize * TILE));
        T::In::<S>::splat((*value).widen()).mul_add(x, sum)
    }
}

impl<V> Csr<'_, V> {
    /// # Safety
    /// The requirements are those of [`RowProduct::product`].
    #[inline(always)]
    unsafe fn each_row<S: Simd, T: Value, O: Offset>(&self, offsets: &[O], x: &[T], y: &mut [T])
    where
        V: Storage<T>,
    {
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        let middle = |row: &[O]| self.columns.get((row[0].get() + row[1].get()) / 2).copied();
        let look = look(x, offsets.windows(2).take(JUDGED).filter_map(middle));
        let ahead = |k: usize, count: usize| match look {
            0 => &[][..],
            _ => self.columns.get(k + look..k + look + count).unwrap_or_default(),
        };
        let (values, columns, x) = (self.values.as_ptr(), self.columns.as_ptr(), x.as_ptr());
        let total = self.values.len().min(self.columns.len());
        let mut last_columns = [0; MOST_LANES];
        for (y, range) in y.iter_mut().zip(offsets.windows(2)) {
            let (mut k, end) = (range[0].get(), range[1].get());
            // SAFETY: offsets ascend to at most the number of values and columns, and columns are below the
            // length of `x`, which is not zero; all of this is checked on construction, by `fits` and by
            // `product`
            unsafe {
                if lanes >= SHORT && end - k <= SHORT {
                    S::prefetch_ahead(values.add(k), SHORT);
                    S::prefetch_ahead(columns.add(k), SHORT);
                    S::prefetch_at(x, ahead(k, end - k));
                    let (mut sum, mut other) = (T::zero(), T::zero());
                    for at in k..end {
                        let term =
                            S::mul_add((*values.add(at)).widen(), *x.add(*columns.add(at) as usize), sum);
                        (sum, other) = (other, term);
                    }
                    *y = sum + other;
                    continue;
                }
                let mut sum = T::In::<S>::splat(T::zero());
                let mut other = sum;
                while k + lanes < end {
                    S::prefetch_ahead(values.add(k), lanes);
                    S::prefetch_ahead(columns.add(k), lanes);
                    S::prefetch_at(x, ahead(k, lanes));
                    let x = T::In::<S>::gather_near(x, columns.add(k));
                    (sum, other) = (other, V::load::<S>(values.add(k)).mul_add(x, sum));
                    k += lanes;
                }
                S::prefetch_ahead(values.add(k), lanes);
                S::prefetch_ahead(columns.add(k), lanes);
                S::prefetch_at(x, ahead(k, end - k));
                let mut columns = columns.add(k);
                if k + lanes > total {
                    std::ptr::copy_nonoverlapping(columns, last_columns.as_mut_ptr(), end - k);
                    columns = last_columns.as_ptr();
                }
                let x = T::In::<S>::gather_first(x, columns, end - k);
                sum = V::load_first::<S>(values.add(k), end - k).mul_add(x, sum);
                *y = sum.add(other).sum();
            }
        }
    }
}
