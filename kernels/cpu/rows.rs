//! Products that compute rows independently, and how they run on threads.

use super::simd::{Simd, Task, Value, run};
use super::threads::{CHUNK, Split, chunks, over_parts, sum_over_parts};
use super::vector::{chunk_dot, chunk_stream, streams};
use std::ops::Range;

/// A matrix that can compute any rows of a product by themselves.
pub trait RowProduct<T: Value>: Sync {
    /// The number of rows.
    fn rows(&self) -> usize;

    /// Whether the arrays fit each other and an `x` of this length. Checked before every product; constant time.
    fn fits(&self, x: usize) -> bool;

    /// `y ← (A x)[rows]`, every entry of `y` written. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// The CPU has the features of `S`; `fits(x.len())` holds; `rows` are rows of the matrix that begin and end at chunks
    /// or with the last row; `y` is as long.
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]);
}

/// How rows are handed to threads: boundaries from 0 to the number of rows, balanced by whoever made them.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'p>(&'p [usize]);

impl<'p> Parts<'p> {
    /// Boundaries that rise from zero, multiples of [`CHUNK`] all but the last.
    pub fn new(bounds: &'p [usize]) -> Parts<'p> {
        assert!(bounds.first().is_none_or(|&first| first == 0), "parts begin at row 0");
        assert!(bounds.is_sorted(), "parts ascend");
        let inner = &bounds[..bounds.len().saturating_sub(1)];
        assert!(inner.iter().all(|bound| bound.is_multiple_of(CHUNK)), "parts begin at chunks");
        Parts(bounds)
    }

    fn count(self) -> usize {
        self.0.len().saturating_sub(1)
    }
}

/// The rows of one task; `stream` writes `y` past the caches.
struct Product<'a, A, T> {
    a: &'a A,
    rows: Range<usize>,
    x: &'a [T],
    y: &'a mut [T],
    stream: bool,
}

impl<T: Value, A: RowProduct<T>> Task for Product<'_, A, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `run` gives the features; `product` checked the rest
        unsafe {
            if self.stream {
                self.by_chunk::<S, false>();
            } else {
                self.a.product::<S>(self.rows, self.x, self.y);
            }
        }
    }
}

/// As [`Product`], with the inner product of `x` and `y`.
struct ProductDot<'a, A, T>(Product<'a, A, T>);

impl<T: Value, A: RowProduct<T>> Task for ProductDot<'_, A, T> {
    type Output = T;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> T {
        // SAFETY: `run` gives the features; `product_dot` checked the rest
        unsafe { self.0.by_chunk::<S, true>() }
    }
}

impl<T: Value, A: RowProduct<T>> Product<'_, A, T> {
    /// Computes chunk by chunk, and `⟨x, y⟩` if `DOT`, while each is in the first cache.
    ///
    /// # Safety
    /// As [`RowProduct::product`].
    #[inline(always)]
    unsafe fn by_chunk<S: Simd, const DOT: bool>(self) -> T {
        let Product { a, rows, x, y, stream } = self;
        let start = rows.start;
        let mut near = [T::zero(); CHUNK];
        let mut sum = T::zero();
        for chunk in chunks(rows) {
            let far = &mut y[chunk.start - start..chunk.end - start];
            // SAFETY: handed down from the caller
            unsafe {
                if stream {
                    let near = &mut near[..chunk.len()];
                    a.product::<S>(chunk.clone(), x, near);
                    if DOT {
                        sum += chunk_dot::<S, T>(&x[chunk], near);
                    }
                    chunk_stream::<S, T>(near, far);
                } else {
                    a.product::<S>(chunk.clone(), x, far);
                    if DOT {
                        sum += chunk_dot::<S, T>(&x[chunk], far);
                    }
                }
            }
        }
        if stream {
            // SAFETY: handed down from the caller
            unsafe { S::fence() };
        }
        sum
    }
}

/// `y ← A x`
pub fn product<T: Value, A: RowProduct<T>>(a: &A, parts: Parts<'_>, x: &[T], y: &mut [T]) {
    check(a, parts, x, y);
    let bound = |part: usize| parts.0[part];
    let stream = streams::<T>(y.len());
    over_parts(parts.count(), &bound, y, &|rows, y: &mut [T]| run(Product { a, rows, x, y, stream }));
}

/// `y ← A x; ⟨x, y⟩`, with parts that begin at block boundaries ([`threads::block_rows`](super::threads::block_rows)).
pub fn product_dot<T: Value, A: RowProduct<T>>(a: &A, parts: Parts<'_>, x: &[T], y: &mut [T]) -> T {
    check(a, parts, x, y);
    assert_eq!(x.len(), y.len(), "an inner product needs equal lengths");
    let bound = |part: usize| parts.0[part];
    let stream = streams::<T>(y.len());
    let [xy] = sum_over_parts(parts.count(), &bound, y, &|rows, mut y: &mut [T], sums| {
        sums.fill(rows, |block| {
            let (here, rest) = std::mem::take(&mut y).split(block.len());
            y = rest;
            [run(ProductDot(Product { a, rows: block, x, y: here, stream }))]
        });
    });
    xy
}

fn check<T: Value, A: RowProduct<T>>(a: &A, parts: Parts<'_>, x: &[T], y: &[T]) {
    assert!(a.fits(x.len()), "the arrays of a matrix fit each other and `x`");
    assert_eq!(a.rows(), y.len(), "`y` has a place for each row");
    assert_eq!(parts.0.last().copied().unwrap_or(0), y.len(), "parts cover all rows");
}
