//! Slices of rows stored side by side: ELLPACK, ELLPACK-R, SELL-P and SELL-C-σ.
//!
//! A slice of `height` rows stores its entries column by column, so that neighbouring SIMD lanes hold
//! neighbouring rows, and neither horizontal sums nor masks are needed. Shorter rows are padded with zeros.
//! Slices follow one another; the formats differ in the width of a slice ([`Widths`]) and in the storage of
//! columns ([`SlicedColumns`]).
//!
//! ```text
//! for each slice s, in registers over its rows:
//!     sum ← 0
//!     for k in 0..width(s):  sum ← sum + value[start(s) + k, :] · x[column[start(s) + k, :]]
//!     y[rows of s] ← sum
//! ```
//!
//! Memory traffic of a product: 12 B (f64) or 8 B (f32) per slot (stored position, including padding), 10 B
//! or 6 B with short columns, and the vectors. A padding slot multiplies zero by an entry of `x` that its row
//! uses anyway or, if the row is empty, that another row of the slice uses: if that entry of `x` is infinite,
//! the sum is NaN.

use crate::buffer::Buffer;
use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::scattered::look;
use crate::cpu::run::threads::{CHUNK, chunks, find_row};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Lanes, MOST_LANES, Simd, Task, Value, run};
use crate::cpu::tuning::JUDGED;
use crate::index::{Columns, Invalid, Offsets};
use std::ops::Range;

/// Start and width of each slice, counted in columns of slots.
#[derive(Clone, Copy, Debug)]
pub enum Widths<'a> {
    /// The slices all have the same width.
    Uniform(usize),
    /// All slices are stored in the same width, but each is processed only up to its longest row.
    Longest {
        /// Stored width.
        width: usize,
        /// Length of each row.
        lengths: &'a [u32],
    },
    /// Every slice has its own width.
    Each(&'a Offsets),
}

/// Column of each slot.
#[derive(Clone, Debug)]
pub enum SlicedColumns {
    /// 32-bit column indices.
    Wide(Columns),
    /// 16-bit offsets from a base column of each slice.
    Short(ShortColumns),
}

/// Columns as 16-bit offsets from the smallest column of their slice; all columns are below a bound.
#[derive(Clone, Debug)]
pub struct ShortColumns {
    bases: Buffer<u32>,
    offsets: Buffer<u16>,
    bound: usize,
}

impl ShortColumns {
    /// Checks that every column is below `bound`. The columns of slice `s` are its base plus the offsets of
    /// `slots(s)`.
    pub fn new(
        bases: Vec<u32>,
        offsets: Buffer<u16>,
        slots: impl Fn(usize) -> Range<usize> + Sync,
        bound: usize,
    ) -> Result<ShortColumns, Invalid> {
        let limit = bound.min(Columns::LIMIT) as u64;
        let mut checked = 0;
        for slots in (0..bases.len()).map(&slots) {
            // slices must be contiguous, so that every slot is checked
            if slots.start != checked || slots.end > offsets.len() {
                return Err(Invalid::Order { position: slots.start });
            }
            checked = slots.end;
        }
        if checked != offsets.len() {
            return Err(Invalid::Order { position: checked });
        }
        let largest = |slice: usize| {
            let offset = offsets[slots(slice)].iter().max()?;
            Some(u64::from(bases[slice]) + u64::from(*offset))
        };
        let beyond = |slice: usize| largest(slice).is_some_and(|index| index >= limit);
        let numbers = offsets.len() / bases.len().max(1);
        if let Some(slice) = find_row(bases.len(), numbers, &beyond) {
            let (position, index) = (slots(slice).start, largest(slice).unwrap_or(limit));
            return Err(Invalid::Bound { position, index, bound: limit });
        }
        Ok(ShortColumns { bases: bases.into(), offsets, bound })
    }

    /// Base column of each slice.
    pub fn bases(&self) -> &[u32] {
        &self.bases
    }

    /// Offset of each slot.
    pub fn offsets(&self) -> &[u16] {
        &self.offsets
    }

    /// Exclusive upper bound of the columns (number of columns).
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// Column of a slot of a slice.
    pub fn at(&self, slice: usize, slot: usize) -> u32 {
        self.bases[slice] + u32::from(self.offsets[slot])
    }
}

impl SlicedColumns {
    /// Bytes of the arrays.
    pub fn bytes(&self) -> usize {
        match self {
            SlicedColumns::Wide(columns) => size_of_val(&**columns),
            SlicedColumns::Short(short) => size_of_val(&*short.bases) + size_of_val(&*short.offsets),
        }
    }

    /// Exclusive upper bound of the columns (number of columns).
    pub fn bound(&self) -> usize {
        match self {
            SlicedColumns::Wide(columns) => columns.bound(),
            SlicedColumns::Short(short) => short.bound,
        }
    }

    fn slots(&self) -> usize {
        match self {
            SlicedColumns::Wide(columns) => columns.len(),
            SlicedColumns::Short(short) => short.offsets.len(),
        }
    }
}

/// For each position in the stored order, the row stored there, relative to its chunk: a permutation within
/// each chunk.
#[derive(Clone, Debug)]
pub struct ChunkOrder(Buffer<u16>);

impl ChunkOrder {
    /// Checks that the row at each position belongs to the chunk of that position.
    pub fn new(order: Vec<u16>) -> Result<ChunkOrder, Invalid> {
        for (chunk, rows) in order.chunks(CHUNK).enumerate() {
            if let Some(at) = rows.iter().position(|&row| row as usize >= rows.len()) {
                let (position, index) = (chunk * CHUNK + at, u64::from(rows[at]));
                return Err(Invalid::Bound { position, index, bound: rows.len() as u64 });
            }
        }
        Ok(ChunkOrder(order.into()))
    }
}

impl std::ops::Deref for ChunkOrder {
    type Target = [u16];

    fn deref(&self) -> &[u16] {
        &self.0
    }
}

/// Arrays of a matrix in slices.
#[derive(Clone, Copy, Debug)]
pub struct Sliced<'a, V> {
    /// Number of rows of the matrix; the last slice may extend beyond.
    pub rows: usize,
    /// Rows per slice: a multiple of the lanes of every SIMD level ([`height_step`]) and a divisor of
    /// [`CHUNK`].
    pub height: usize,
    /// Start and width of each slice.
    pub widths: Widths<'a>,
    /// Column of each slot.
    pub columns: &'a SlicedColumns,
    /// Value of each slot.
    pub values: &'a [V],
    /// Order of the rows, if they were sorted within their chunk.
    pub order: Option<&'a ChunkOrder>,
}

/// Slice heights are multiples of this: the number of lanes of the widest register.
pub const fn height_step<T>() -> usize {
    64 / size_of::<T>()
}

impl<T: Value, V: Storage<T>> RowProduct<T> for Sliced<'_, V> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn fits(&self, x: usize) -> bool {
        let slices = self.rows.div_ceil(self.height);
        let described = match self.widths {
            Widths::Uniform(_) => true,
            Widths::Longest { lengths, .. } => lengths.len() == self.rows,
            Widths::Each(offsets) => offsets.ranges() == slices,
        };
        let based = match self.columns {
            SlicedColumns::Wide(_) => true,
            SlicedColumns::Short(short) => short.bases.len() == slices,
        };
        self.height.is_multiple_of(height_step::<T>())
            && CHUNK.is_multiple_of(self.height)
            && described
            && based
            && self.values.len().min(self.columns.slots()) >= self.before(self.rows)
            && self.columns.bound() <= x
            && self.order.is_none_or(|order| order.len() == self.rows)
    }

    // `S` is not used: `sums` dispatches once more for each chunk, so that its code is shared by all formats
    // made of slices.
    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let first = rows.start;
        for chunk in chunks(rows) {
            let y = &mut y[chunk.start - first..chunk.end - first];
            // SAFETY: the caller's contract is the same
            unsafe { self.sums(chunk, x, y) };
        }
    }

    fn has_tiles(&self) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        // SAFETY: the caller's contract is the same
        unsafe { self.tile_rows::<S, T>(rows, x, y) }
    }
}

/// Arguments of [`Sliced::sums`].
struct Sums<'a, T, V> {
    a: Sliced<'a, V>,
    rows: Range<usize>,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Value, V: Storage<T>> Task for Sums<'_, T, V> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Sums { a, rows, x: all, y } = self;
        let x = all.as_ptr();
        // SAFETY: `simd::run` ensures the features; the caller of `sums` ensures the rest
        unsafe {
            match a.columns {
                SlicedColumns::Wide(columns) => {
                    let here = columns.get(a.before(rows.start)..).unwrap_or_default();
                    let look = look(all, here.iter().take(JUDGED).copied());
                    let (columns, len) = (columns.as_ptr(), columns.len());
                    a.chunk::<S, T, _>(rows, y, WideLookup { x, columns, len, look });
                }
                SlicedColumns::Short(short) => {
                    let (bases, offsets) = (short.bases.as_ptr(), short.offsets.as_ptr());
                    a.chunk::<S, T, _>(rows, y, ShortLookup { x, bases, offsets });
                }
            }
        }
    }
}

/// Loads the entries of `x` for a register of slots.
trait Lookup<T: Value>: Copy {
    /// # Safety
    /// The CPU has the features of `S`; slice and slot exist.
    unsafe fn gather<S: Simd>(self, slice: usize, slot: usize) -> T::In<S>;

    /// Like [`Simd::prefetch_ahead`], for the columns of `count` slots.
    fn prefetch_ahead<S: Simd>(self, slot: usize, count: usize);
}

#[derive(Clone, Copy)]
struct WideLookup<T> {
    x: *const T,
    columns: *const u32,
    len: usize,
    /// Prefetch distance of `x`, in slots; zero for none.
    look: usize,
}

impl<T: Value> Lookup<T> for WideLookup<T> {
    #[inline(always)]
    unsafe fn gather<S: Simd>(self, _: usize, slot: usize) -> T::In<S> {
        // SAFETY: columns were checked on construction, and the caller ensures that the slot exists
        unsafe { T::In::<S>::gather(self.x, self.columns.add(slot)) }
    }

    #[inline(always)]
    fn prefetch_ahead<S: Simd>(self, slot: usize, count: usize) {
        S::prefetch_ahead(self.columns.wrapping_add(slot), count);
        let ahead = slot + self.look;
        if self.look > 0 && ahead + count <= self.len {
            // SAFETY: `ahead + count` is at most the number of columns
            S::prefetch_at(self.x, unsafe { std::slice::from_raw_parts(self.columns.add(ahead), count) });
        }
    }
}

#[derive(Clone, Copy)]
struct ShortLookup<T> {
    x: *const T,
    bases: *const u32,
    offsets: *const u16,
}

impl<T: Value> Lookup<T> for ShortLookup<T> {
    #[inline(always)]
    unsafe fn gather<S: Simd>(self, slice: usize, slot: usize) -> T::In<S> {
        // SAFETY: columns were checked on construction, and the caller ensures that slice and slot exist
        unsafe {
            T::In::<S>::gather_short(self.x.add(*self.bases.add(slice) as usize), self.offsets.add(slot))
        }
    }

    #[inline(always)]
    fn prefetch_ahead<S: Simd>(self, slot: usize, count: usize) {
        S::prefetch_ahead(self.offsets.wrapping_add(slot), count);
    }
}

impl<V> Sliced<'_, V> {
    /// Number of slots before `row`, which must be the first row of a slice or the number of rows.
    pub(crate) fn before(&self, row: usize) -> usize {
        let slice = row.div_ceil(self.height);
        self.height
            * match self.widths {
                Widths::Uniform(width) | Widths::Longest { width, .. } => slice * width,
                Widths::Each(offsets) => offsets.at(slice),
            }
    }

    /// Slots of a slice that a product reads.
    pub(super) fn slots(&self, slice: usize) -> Range<usize> {
        let (start, width) = match self.widths {
            Widths::Uniform(width) => (slice * width, width),
            Widths::Longest { width, lengths } => {
                let row = slice * self.height;
                let lengths = &lengths[row..self.rows.min(row + self.height)];
                (slice * width, lengths.iter().fold(0, |a, &b| a.max(b)).min(width as u32) as usize)
            }
            Widths::Each(offsets) => {
                let range = offsets.range(slice);
                (range.start, range.len())
            }
        };
        start * self.height..(start + width) * self.height
    }

    /// Computes the sums of `rows`: the rows of one chunk or, if rows are not reordered (`order` is `None`),
    /// fewer rows of it that start at a slice boundary. Compiled once for all formats made of slices.
    ///
    /// # Safety
    /// The requirements are those of [`RowProduct::product`], except for the range of `rows`.
    pub(crate) unsafe fn sums<T: Value>(&self, rows: Range<usize>, x: &[T], y: &mut [T])
    where
        V: Storage<T>,
    {
        run(Sums { a: *self, rows, x, y });
    }

    /// # Safety
    /// The requirements are those of [`RowProduct::product`].
    #[inline(always)]
    unsafe fn chunk<S: Simd, T: Value, L: Lookup<T>>(&self, rows: Range<usize>, y: &mut [T], x: L)
    where
        V: Storage<T>,
    {
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        let mut at = 0;
        while at < y.len() {
            let slice = (rows.start + at) / self.height;
            let slots = self.slots(slice);
            let mut group = 0;
            while group < self.height {
                let left = self.height - group;
                let slots = slots.start + group..slots.end;
                // SAFETY: `fits` compared the slots with the arrays, and columns were checked on construction
                unsafe {
                    if left >= 4 * lanes {
                        self.group::<S, T, L, 4>(slice, slots, x, at + group, rows.start, y);
                        group += 4 * lanes;
                    } else if left >= 2 * lanes {
                        self.group::<S, T, L, 2>(slice, slots, x, at + group, rows.start, y);
                        group += 2 * lanes;
                    } else {
                        self.group::<S, T, L, 1>(slice, slots, x, at + group, rows.start, y);
                        group += lanes;
                    }
                }
            }
            at += self.height;
        }
    }

    /// Computes the sums of `M` registers of rows of one slice, from position `at` of a chunk on.
    ///
    /// # Safety
    /// The requirements are those of [`Sliced::chunk`].
    #[inline(always)]
    unsafe fn group<S: Simd, T: Value, L: Lookup<T>, const M: usize>(
        &self,
        slice: usize,
        slots: Range<usize>,
        x: L,
        at: usize,
        first: usize,
        y: &mut [T],
    ) where
        V: Storage<T>,
    {
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        let values = self.values.as_ptr();
        // SAFETY: the caller ensures that the slots are within the arrays
        unsafe {
            let zero = T::In::<S>::splat(T::zero());
            let (mut even, mut odd) = ([zero; M], [zero; M]);
            let step = self.height;
            let mut slot = slots.start;
            while slot + step < slots.end {
                Self::column::<S, T, L, M>(values, x, slice, slot, &mut even);
                Self::column::<S, T, L, M>(values, x, slice, slot + step, &mut odd);
                slot += 2 * step;
            }
            if slot < slots.end {
                Self::column::<S, T, L, M>(values, x, slice, slot, &mut even);
            }
            for (m, (even, odd)) in even.into_iter().zip(odd).enumerate() {
                let sum = even.add(odd);
                let place = at + m * lanes;
                match self.order {
                    None if place + lanes <= y.len() => sum.store(y.as_mut_ptr().add(place)),
                    None if place < y.len() => sum.store_first(y.as_mut_ptr().add(place), y.len() - place),
                    None => {}
                    Some(order) => {
                        let mut sums = [T::zero(); MOST_LANES];
                        sum.store(sums.as_mut_ptr());
                        let order =
                            order[first..].get(place..(place + lanes).min(y.len())).unwrap_or_default();
                        for (&row, &sum) in order.iter().zip(&sums) {
                            y[row as usize] = sum;
                        }
                    }
                }
            }
        }
    }

    /// Adds the products of one column of slots, from `slot` on, to the sums.
    ///
    /// # Safety
    /// The requirements are those of [`Sliced::chunk`].
    #[inline(always)]
    unsafe fn column<S: Simd, T: Value, L: Lookup<T>, const M: usize>(
        values: *const V,
        x: L,
        slice: usize,
        slot: usize,
        sums: &mut [T::In<S>; M],
    ) where
        V: Storage<T>,
    {
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        S::prefetch_ahead(values.wrapping_add(slot), M * lanes);
        x.prefetch_ahead::<S>(slot, M * lanes);
        for (m, sum) in sums.iter_mut().enumerate() {
            let here = slot + m * lanes;
            // SAFETY: the caller ensures that the slots are within the arrays
            unsafe { *sum = V::load::<S>(values.add(here)).mul_add(x.gather::<S>(slice, here), *sum) };
        }
    }
}
