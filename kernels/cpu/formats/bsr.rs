//! BSR (block compressed sparse rows): dense blocks of `B × B` entries with one column index each.
//!
//! Blocks are stored column by column. The sums of a block row stay in registers: each column of a block is
//! multiplied by one entry of `x`. Memory traffic of a product: `8 + 4/B²` bytes per entry (f64), 8.44 for
//! nodes with three unknowns, and the vectors.

use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::tiles::{self, TILE};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Lanes, Simd, Value};
use crate::cpu::tuning::PREFETCH_BYTES;
use crate::index::{Columns, Offset, Offsets};
use std::ops::Range;

/// Number of values that must follow the last block, because the number of values loaded for each column of a
/// block is a power of two: 4 for `B = 3`, 8 for `B = 6`.
pub const SLACK: usize = 2;

/// Arrays of a matrix with `B × B` blocks.
#[derive(Clone, Copy, Debug)]
pub struct Bsr<'a, V, const B: usize> {
    /// Block row offsets, counted in blocks.
    pub offsets: &'a Offsets,
    /// Block column of each block.
    pub columns: &'a Columns,
    /// Values block after block, each column by column, followed by [`SLACK`] zeros.
    pub values: &'a [V],
}

impl<T: Value, V: Storage<T>, const B: usize> RowProduct<T> for Bsr<'_, V, B> {
    fn rows(&self) -> usize {
        self.offsets.ranges() * B
    }

    fn fits(&self, x: usize) -> bool {
        let blocks = self.offsets.end();
        self.columns.bound() * B <= x
            && self.columns.len() >= blocks
            && self.values.len() >= blocks * B * B + SLACK
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        // SAFETY: the caller's contract is the same
        unsafe {
            match self.offsets {
                Offsets::Short(o) => self.pieces::<S, T, u32>(&o[rows.start / B..=rows.end / B], x, y),
                Offsets::Long(o) => self.pieces::<S, T, u64>(&o[rows.start / B..=rows.end / B], x, y),
            }
        }
    }

    fn has_tiles(&self) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        let (values, columns) = (self.values.as_ptr(), self.columns.as_ptr());
        for (row, y) in (rows.start / B..rows.end / B).zip(y.chunks_exact_mut(B * TILE)) {
            for at in (0..TILE).step_by(lanes) {
                let x = x.as_ptr().wrapping_add(at);
                // SAFETY: offsets ascend to at most the number of blocks and block columns lie within `x`,
                // checked on construction and by `fits`
                unsafe {
                    let zero = T::In::<S>::splat(T::zero());
                    let mut sums = [[zero; B]; B];
                    for k in self.offsets.range(row) {
                        let block = values.add(k * B * B);
                        let x = x.add(*columns.add(k) as usize * B * TILE);
                        S::prefetch_ahead(block.wrapping_byte_add(PREFETCH_BYTES), B * B);
                        for (j, sums) in sums.iter_mut().enumerate() {
                            let x = tiles::load::<S, T>(x.add(j * TILE));
                            for (i, sum) in sums.iter_mut().enumerate() {
                                let value = T::In::<S>::splat((*block.add(j * B + i)).widen());
                                *sum = value.mul_add(x, *sum);
                            }
                        }
                    }
                    for i in 0..B {
                        let mut all = zero;
                        for column in &sums {
                            all = all.add(column[i]);
                        }
                        tiles::store::<S, T>(all, y.as_mut_ptr().add(i * TILE + at));
                    }
                }
            }
        }
    }
}

impl<V, const B: usize> Bsr<'_, V, B> {
    /// # Safety
    /// The requirements are those of [`RowProduct::product`].
    #[inline(always)]
    unsafe fn pieces<S: Simd, T: Value, O: Offset>(&self, offsets: &[O], x: &[T], y: &mut [T])
    where
        V: Storage<T>,
    {
        // SAFETY: the caller's contract is the same
        unsafe {
            match B {
                1 | 2 => self.walk::<S, T, O, 2>(offsets, x, y),
                3 | 4 => self.walk::<S, T, O, 4>(offsets, x, y),
                _ => self.walk::<S, T, O, 8>(offsets, x, y),
            }
        }
    }

    /// Computes block rows; loads each column of a block as `P ≥ B` values and uses the first `B`.
    ///
    /// # Safety
    /// The requirements are those of [`RowProduct::product`].
    #[inline(always)]
    unsafe fn walk<S: Simd, T: Value, O: Offset, const P: usize>(&self, offsets: &[O], x: &[T], y: &mut [T])
    where
        V: Storage<T>,
    {
        let (values, columns, x) = (self.values.as_ptr(), self.columns.as_ptr(), x.as_ptr());
        for (y, range) in y.chunks_exact_mut(B).zip(offsets.windows(2)) {
            let (start, end) = (range[0].get(), range[1].get());
            // one register of sums for each column of a block keeps the additions independent
            let mut sums = [[T::zero(); P]; B];
            for k in start..end {
                // SAFETY: offsets ascend to at most the number of blocks, block columns are within `x`, and
                // `SLACK` values follow the last block; all of this is checked on construction and by `fits`
                unsafe {
                    let block = values.add(k * B * B);
                    let x = x.add(*columns.add(k) as usize * B);
                    // twice the usual prefetch distance: measured 1.05 to 1.1 times as fast
                    S::prefetch_ahead(block.wrapping_byte_add(PREFETCH_BYTES), B * B);
                    for (j, sums) in sums.iter_mut().enumerate() {
                        let column = block.add(j * B).cast::<[V; P]>().read_unaligned();
                        let x = *x.add(j);
                        for (sum, value) in sums.iter_mut().zip(column) {
                            *sum = S::mul_add(value.widen(), x, *sum);
                        }
                    }
                }
            }
            for (i, y) in y.iter_mut().enumerate() {
                *y = sums.iter().fold(T::zero(), |all, column| all + column[i]);
            }
        }
    }
}

/// A matrix with one of the block sizes that have a kernel.
#[derive(Clone, Copy, Debug)]
pub enum AnyBsr<'a, V> {
    /// 2 × 2.
    Two(Bsr<'a, V, 2>),
    /// 3 × 3.
    Three(Bsr<'a, V, 3>),
    /// 4 × 4.
    Four(Bsr<'a, V, 4>),
    /// 6 × 6.
    Six(Bsr<'a, V, 6>),
}

impl<'a, V> AnyBsr<'a, V> {
    /// Selects the kernel for blocks of `size` rows; any size without a kernel is treated as 6.
    pub fn new(size: usize, offsets: &'a Offsets, columns: &'a Columns, values: &'a [V]) -> Self {
        match size {
            2 => AnyBsr::Two(Bsr { offsets, columns, values }),
            3 => AnyBsr::Three(Bsr { offsets, columns, values }),
            4 => AnyBsr::Four(Bsr { offsets, columns, values }),
            _ => AnyBsr::Six(Bsr { offsets, columns, values }),
        }
    }
}

impl<T: Value, V: Storage<T>> RowProduct<T> for AnyBsr<'_, V> {
    fn rows(&self) -> usize {
        match self {
            AnyBsr::Two(a) => RowProduct::<T>::rows(a),
            AnyBsr::Three(a) => RowProduct::<T>::rows(a),
            AnyBsr::Four(a) => RowProduct::<T>::rows(a),
            AnyBsr::Six(a) => RowProduct::<T>::rows(a),
        }
    }

    fn fits(&self, x: usize) -> bool {
        match self {
            AnyBsr::Two(a) => RowProduct::<T>::fits(a, x),
            AnyBsr::Three(a) => RowProduct::<T>::fits(a, x),
            AnyBsr::Four(a) => RowProduct::<T>::fits(a, x),
            AnyBsr::Six(a) => RowProduct::<T>::fits(a, x),
        }
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        // SAFETY: the caller's contract is the same
        unsafe {
            match self {
                AnyBsr::Two(a) => a.product::<S>(rows, x, y),
                AnyBsr::Three(a) => a.product::<S>(rows, x, y),
                AnyBsr::Four(a) => a.product::<S>(rows, x, y),
                AnyBsr::Six(a) => a.product::<S>(rows, x, y),
            }
        }
    }

    fn has_tiles(&self) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        // SAFETY: the caller's contract is the same
        unsafe {
            match self {
                AnyBsr::Two(a) => a.tile::<S>(rows, x, y),
                AnyBsr::Three(a) => a.tile::<S>(rows, x, y),
                AnyBsr::Four(a) => a.tile::<S>(rows, x, y),
                AnyBsr::Six(a) => a.tile::<S>(rows, x, y),
            }
        }
    }
}
