//! Matrix-vector products of formats that compute rows independently; distribution of the rows over threads.

use crate::cpu::run::threads::{CHUNK, Split, chunks, over_parts, sum_over_parts};
use crate::cpu::simd::{Simd, Task, Value, run};
use crate::cpu::vector::{block_dot, end_streams, stream_to, streams};
use std::ops::Range;

/// A matrix that can compute any range of rows of a product.
pub trait RowProduct<T: Value>: Sync {
    /// Number of rows.
    fn rows(&self) -> usize;

    /// Returns whether the arrays are consistent with each other and with an `x` of this length. Checked before every
    /// product, in constant time.
    fn fits(&self, x: usize) -> bool;

    /// `y ← (A x)[rows]`; overwrites every entry of `y`. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// The CPU has the features of `S`; `fits(x.len())` holds; `rows` is a range of rows of the matrix that
    /// begins and ends at chunk boundaries or at the last row; `y` has as many entries.
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]);

    /// True if [`RowProduct::product_in_turn`] is implemented. It is called only then.
    const IN_TURN: bool = false;

    /// [`RowProduct::product`] for a chunk of rows that several vectors are multiplied by in turn. It prefetches
    /// `x` by instructions, because the hardware prefetcher does not follow reads that continue in another
    /// vector after every chunk. With `stream`, `y` is written with non-temporal stores
    /// between reads, because a burst of them delays reads. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// The requirements are those of [`RowProduct::product`]. With `stream`, `y` is aligned to cache lines,
    /// and the caller calls `end_streams` on the same thread before `y` is read.
    unsafe fn product_in_turn<S: Simd>(&self, _rows: Range<usize>, _x: &[T], _y: &mut [T], _stream: bool) {
        unreachable!("formats with `IN_TURN` implement `product_in_turn`");
    }

    /// Returns true if [`RowProduct::tile`] is implemented and faster than multiplying by one vector after
    /// the other. `tile` is called only then.
    fn has_tiles(&self) -> bool {
        false
    }

    /// `Y ← (A X)[rows]` for [`TILE`](crate::cpu::run::tiles::TILE) vectors stored row by row. Each column of
    /// `Y` is bitwise equal to the result of [`RowProduct::product`]. Implementations are
    /// `#[inline(always)]`.
    ///
    /// # Safety
    /// The requirements are those of [`RowProduct::product`], with `TILE` numbers for each entry of `x` and
    /// of `y`; `x` is not empty.
    unsafe fn tile<S: Simd>(&self, _rows: Range<usize>, _x: &[T], _y: &mut [T]) {
        unreachable!("formats that have tiles implement `tile`");
    }
}

/// A matrix that computes the entries of a product one at a time, in safe code. [`RowByRow`] makes it a
/// [`RowProduct`].
pub trait RowSum<T: Value>: Sync {
    /// Number of rows.
    fn rows(&self) -> usize;

    /// Returns whether the arrays are consistent with each other and with an `x` of this length. Checked before every
    /// product, in constant time.
    fn fits(&self, x: usize) -> bool;

    /// `(A x)_row`. With `#[inline(always)]` it is compiled for every SIMD level, together with the loop over
    /// rows.
    fn sum(&self, row: usize, x: &[T]) -> T;
}

/// The [`RowProduct`] of a [`RowSum`]: a loop over rows.
#[derive(Clone, Copy, Debug)]
pub struct RowByRow<K>(pub K);

impl<T: Value, K: RowSum<T>> RowProduct<T> for RowByRow<K> {
    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn fits(&self, x: usize) -> bool {
        self.0.fits(x)
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        for (row, y) in rows.zip(y) {
            *y = self.0.sum(row, x);
        }
    }
}

/// Partition of the rows into parts for threads: boundaries from 0 to the number of rows, balanced by the
/// caller.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'p>(&'p [usize]);

impl<'p> Parts<'p> {
    /// Wraps boundaries that ascend from zero and are multiples of [`CHUNK`], except for the last.
    pub fn new(bounds: &'p [usize]) -> Parts<'p> {
        assert!(bounds.first().is_none_or(|&first| first == 0), "parts begin at row 0");
        assert!(bounds.is_sorted(), "parts ascend");
        let inner = &bounds[..bounds.len().saturating_sub(1)];
        assert!(inner.iter().all(|bound| bound.is_multiple_of(CHUNK)), "parts begin at chunk boundaries");
        Parts(bounds)
    }

    pub(crate) fn count(self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// First row of a part; if `part` is the number of parts, the number of rows.
    pub(crate) fn bound(self, part: usize) -> usize {
        self.0[part]
    }
}

/// Arguments of [`multiply`].
struct Rows<'a, A, T> {
    a: &'a A,
    rows: Range<usize>,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Value, A: RowProduct<T>> Task for Rows<'_, A, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `simd::run` ensures the features; the caller of `multiply` ensures the rest
        unsafe { self.a.product::<S>(self.rows, self.x, self.y) }
    }
}

/// `y ← (A x)[rows]` at the SIMD level in use. Compiled once per level, for all callers.
///
/// # Safety
/// The requirements are those of [`RowProduct::product`].
pub(crate) unsafe fn multiply<T: Value, A: RowProduct<T>>(a: &A, rows: Range<usize>, x: &[T], y: &mut [T]) {
    run(Rows { a, rows, x, y });
}

/// Arguments of [`multiply_in_turn`].
struct RowsInTurn<'a, A, T> {
    rows: Rows<'a, A, T>,
    stream: bool,
}

impl<T: Value, A: RowProduct<T>> Task for RowsInTurn<'_, A, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Rows { a, rows, x, y } = self.rows;
        // SAFETY: `simd::run` ensures the features; the caller of `multiply_in_turn` ensures the rest
        unsafe { a.product_in_turn::<S>(rows, x, y, self.stream) }
    }
}

/// [`RowProduct::product_in_turn`] at the SIMD level in use.
///
/// # Safety
/// The requirements are those of [`RowProduct::product_in_turn`], and `A::IN_TURN` is true.
pub(crate) unsafe fn multiply_in_turn<T: Value, A: RowProduct<T>>(
    a: &A,
    rows: Range<usize>,
    x: &[T],
    y: &mut [T],
    stream: bool,
) {
    run(RowsInTurn { rows: Rows { a, rows, x, y }, stream });
}

/// Computes `y ← (A x)[rows]` chunk by chunk and passes each chunk of `y` to `each` while it is in the L1
/// cache. If `stream` is true, `y` is written with non-temporal stores.
///
/// # Safety
/// The requirements are those of [`RowProduct::product`].
unsafe fn by_chunk<T: Value, A: RowProduct<T>>(
    a: &A,
    rows: Range<usize>,
    x: &[T],
    y: &mut [T],
    stream: bool,
    each: &mut dyn FnMut(Range<usize>, &[T]),
) {
    let start = rows.start;
    let mut near = [T::zero(); CHUNK];
    for chunk in chunks(rows) {
        let far = &mut y[chunk.start - start..chunk.end - start];
        let here = if stream { &mut near[..chunk.len()] } else { &mut *far };
        // SAFETY: the caller's contract is the same
        unsafe { multiply(a, chunk.clone(), x, here) };
        each(chunk, here);
        if stream {
            stream_to(&near[..far.len()], far);
        }
    }
    if stream {
        end_streams();
    }
}

/// `y ← A x`
pub fn product<T: Value, A: RowProduct<T>>(a: &A, parts: Parts<'_>, x: &[T], y: &mut [T]) {
    check(a, x, y);
    check_parts(parts, y);
    let bound = |part: usize| parts.0[part];
    let stream = streams::<T>(y.len());
    over_parts(parts.count(), &bound, y, &|rows, y: &mut [T]| {
        // SAFETY: `check` compared the lengths; parts begin at chunk boundaries
        unsafe {
            if stream {
                by_chunk(a, rows, x, y, stream, &mut |_, _| {});
            } else {
                multiply(a, rows, x, y);
            }
        }
    });
}

/// `y ← A x; ⟨x, y⟩`, with parts that begin at block boundaries
/// ([`threads::block_rows`](crate::cpu::run::threads::block_rows)).
pub fn product_dot<T: Value, A: RowProduct<T>>(a: &A, parts: Parts<'_>, x: &[T], y: &mut [T]) -> T {
    check(a, x, y);
    check_parts(parts, y);
    assert_eq!(x.len(), y.len(), "an inner product needs equal lengths");
    let bound = |part: usize| parts.0[part];
    let stream = streams::<T>(y.len());
    let [xy] = sum_over_parts(parts.count(), &bound, y, &|rows, mut y: &mut [T], sums| {
        sums.fill(rows, |block| {
            let (here, rest) = std::mem::take(&mut y).split(block.len());
            y = rest;
            let mut sum = T::zero();
            let mut add = |chunk: Range<usize>, y: &[T]| sum += block_dot(&x[chunk], y);
            // SAFETY: `check` compared the lengths; blocks begin at chunk boundaries
            unsafe { by_chunk(a, block, x, here, stream, &mut add) };
            [sum]
        });
    });
    xy
}

pub(crate) fn check<T: Value, A: RowProduct<T>>(a: &A, x: &[T], y: &[T]) {
    assert!(a.fits(x.len()), "the arrays of the matrix are consistent and fit `x`");
    assert_eq!(a.rows(), y.len(), "`y` has an entry for each row");
}

pub(crate) fn check_parts<T>(parts: Parts<'_>, y: &[T]) {
    assert_eq!(parts.0.last().copied().unwrap_or(0), y.len(), "parts cover all rows");
}
