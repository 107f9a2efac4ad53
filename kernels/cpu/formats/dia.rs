//! DIA (diagonals): `y_i ← Σ_d v_{i,d} x_{i + o_d}`, without column indices.
//!
//! Rows form slices of [`HEIGHT`] rows that store their diagonals one after the other, so that both the
//! values and `x` are read contiguously. Memory traffic of a product: 8 B (f64) or 4 B (f32) per slot (stored
//! value, including padding), and the vectors.

use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::tiles::{self, TILE};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Lanes, Simd, Value};
use std::ops::Range;

/// Rows per slice: divides a chunk, and is a multiple of the lanes of every SIMD level.
pub const HEIGHT: usize = 32;

/// Minimum number of diagonals for products with packed vectors ([`tiles`](crate::cpu::run::tiles)). DIA
/// loads `x` contiguously, so that packing saves only loads of the matrix. Measured with 8 vectors, time per
/// vector divided by the time of a product with one vector: with packing 0.84 for 7 diagonals and 0.31 for
/// 99, without packing 0.48 for 7 (16 threads of a Xeon, f64). The constant, between 7 and 99, is a guess.
const DIAGONALS: usize = 32;

/// Arrays of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Dia<'a, V> {
    /// Number of rows of the matrix; the last slice may extend beyond.
    pub rows: usize,
    /// Number of columns, the length of `x`.
    pub cols: usize,
    /// Offset of each diagonal, ascending: entry `d` of row `i` multiplies `x[i + o_d]`.
    pub diagonals: &'a [i64],
    /// Values slice by slice, `diagonals.len()` times [`HEIGHT`] each; those outside the matrix are zero.
    pub values: &'a [V],
}

impl<T: Value, V: Storage<T>> RowProduct<T> for Dia<'_, V> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn fits(&self, x: usize) -> bool {
        self.cols <= x
            && self.values.len() >= self.rows.div_ceil(HEIGHT) * HEIGHT * self.diagonals.len()
            && self.diagonals.is_sorted()
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        // SAFETY: the caller's contract is the same
        unsafe { self.slices::<S, T, false>(rows, x, y, false) }
    }

    const IN_TURN: bool = true;

    #[inline(always)]
    unsafe fn product_in_turn<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T], stream: bool) {
        // SAFETY: the caller's contract is the same
        unsafe { self.slices::<S, T, true>(rows, x, y, stream) }
    }

    fn has_tiles(&self) -> bool {
        self.diagonals.len() >= DIAGONALS
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        let slice_len = HEIGHT * self.diagonals.len();
        for (row, y) in rows.zip(y.as_chunks_mut::<TILE>().0) {
            let values = self.values.as_ptr().wrapping_add(row / HEIGHT * slice_len + row % HEIGHT);
            for at in (0..TILE).step_by(lanes) {
                let x = x.as_ptr().wrapping_add(at);
                // SAFETY: slices have a value for each row and diagonal; columns are compared with the length
                // of `x`
                unsafe {
                    let mut sum = T::In::<S>::splat(T::zero());
                    for (d, &offset) in self.diagonals.iter().enumerate() {
                        let column = row as i64 + offset;
                        if (0..self.cols as i64).contains(&column) {
                            let value = values.add(d * HEIGHT);
                            let x = tiles::load::<S, T>(x.add(column as usize * TILE));
                            sum = T::In::<S>::splat((*value).widen()).mul_add(x, sum);
                        }
                    }
                    tiles::store::<S, T>(sum, y.as_mut_ptr().add(at));
                }
            }
        }
    }
}

impl<V> Dia<'_, V> {
    /// Computes rows slice by slice; prefetches `x` if `PREFETCH` is true. Measured with 7 diagonals and eight vectors
    /// on two busy threads of a Zen 3, time per vector divided by the time of a product with one vector, medians of
    /// 15 on grids of 128³ and 160³ nodes: 0.53 and 0.56 without prefetching `x`, 0.53 and 0.49 with it, 0.44 and
    /// 0.51 with non-temporal stores between the reads, 0.44 and 0.45 with both.
    ///
    /// # Safety
    /// The requirements are those of [`RowProduct::product_in_turn`].
    #[inline(always)]
    unsafe fn slices<S: Simd, T: Value, const PREFETCH: bool>(
        &self,
        rows: Range<usize>,
        x: &[T],
        y: &mut [T],
        stream: bool,
    ) where
        V: Storage<T>,
    {
        let (least, most) = match self.diagonals {
            [] => return y.fill(T::zero()),
            [least, .., most] => (*least, *most),
            [only] => (*only, *only),
        };
        let slice_len = HEIGHT * self.diagonals.len();
        for (i, y) in y.chunks_mut(HEIGHT).enumerate() {
            let first = (rows.start + i * HEIGHT) as i64;
            let values = &self.values[(rows.start / HEIGHT + i) * slice_len..][..slice_len];
            let inside = first + least >= 0 && first + most + HEIGHT as i64 <= self.cols as i64;
            if inside && y.len() == HEIGHT {
                // SAFETY: `values` has a whole slice, and all of `x` from `first + least` to `first + most +
                // HEIGHT` exists
                unsafe { self.slice::<S, T, PREFETCH>(values.as_ptr(), x.as_ptr(), first, y, stream) }
            } else {
                self.edge::<S, T>(values, x, first, y);
            }
        }
    }

    /// # Safety
    /// The CPU has the features of `S`; all diagonals of these `HEIGHT` rows are within `x`; `y` has `HEIGHT`
    /// entries and, with `stream`, is aligned to cache lines.
    #[inline(always)]
    unsafe fn slice<S: Simd, T: Value, const PREFETCH: bool>(
        &self,
        mut values: *const V,
        x: *const T,
        first: i64,
        y: &mut [T],
        stream: bool,
    ) where
        V: Storage<T>,
    {
        // registers per slice at four lanes; no level has fewer lanes
        const MOST: usize = HEIGHT / 4;
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        let registers = HEIGHT / lanes;
        // SAFETY: the caller's contract is the same
        unsafe {
            let mut sums = [T::In::<S>::splat(T::zero()); MOST];
            for (d, &offset) in self.diagonals.iter().enumerate() {
                let x = x.offset((first + offset) as isize);
                S::prefetch_ahead(values, HEIGHT);
                // adjacent diagonals read the same cache lines of `x`: the last of them prefetches
                let is_last = || self.diagonals.get(d + 1).is_none_or(|next| next - offset >= HEIGHT as i64);
                if PREFETCH && is_last() {
                    S::prefetch_ahead(x, HEIGHT);
                }
                for (m, sum) in sums[..registers].iter_mut().enumerate() {
                    let at = m * lanes;
                    *sum = V::load::<S>(values.add(at)).mul_add(T::In::<S>::load(x.add(at)), *sum);
                }
                values = values.add(HEIGHT);
            }
            for (m, sum) in sums[..registers].iter().enumerate() {
                let y = y.as_mut_ptr().add(m * lanes);
                if stream { sum.stream(y) } else { sum.store(y) }
            }
        }
    }

    /// Computes the rows of a slice of which some diagonals are partly outside the matrix, entry by entry.
    /// Each row is summed in the same order as in whole slices.
    #[inline(always)]
    fn edge<S: Simd, T: Value>(&self, values: &[V], x: &[T], first: i64, y: &mut [T])
    where
        V: Storage<T>,
    {
        for (row, y) in y.iter_mut().enumerate() {
            let mut sum = T::zero();
            for (d, &offset) in self.diagonals.iter().enumerate() {
                let column = first + row as i64 + offset;
                if (0..self.cols as i64).contains(&column) {
                    sum = S::mul_add(values[d * HEIGHT + row].widen(), x[column as usize], sum);
                }
            }
            *y = sum;
        }
    }
}
