//! Vector operations: elementwise updates, inner products and fused combinations of them.
//!
//! A fused operation runs the same loops over chunks (`CHUNK` consecutive entries) as the operations it
//! combines, one after the other while the chunk is in the L1 cache. Its results are bitwise the same, and
//! memory is read once.

use crate::cpu::run::threads::{CHUNK, chunks, over_rows, sum_over_rows};
use crate::cpu::simd::{self, Lanes, Simd, Task, Value};
use crate::cpu::tuning::STREAMED_FROM;

// --- loops over one chunk -------------------------------------------------------------------------------------------

/// `y ← a x + b y`; `b = 0` overwrites `y`, even NaN.
#[inline(always)]
pub(crate) fn chunk_axpby<S: Simd, T: Value>(a: T, x: &[T], b: T, y: &mut [T]) {
    if b == T::zero() {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = a * x;
        }
    } else if b == T::one() {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = S::mul_add(a, x, *y);
        }
    } else {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = S::mul_add(b, *y, a * x);
        }
    }
}

/// `z ← d ∘ x`
#[inline(always)]
fn chunk_mul<T: Value>(d: &[T], x: &[T], z: &mut [T]) {
    for ((z, &d), &x) in z.iter_mut().zip(d).zip(x) {
        *z = d * x;
    }
}

/// Returns whether to write a vector of this length with non-temporal stores.
pub(crate) fn streams<T>(len: usize) -> bool {
    len * size_of::<T>() >= STREAMED_FROM
}

/// `to ← from` with non-temporal stores; the caller issues a fence when the task is done.
#[inline(always)]
pub(crate) fn chunk_stream<S: Simd, T: Value>(from: &[T], to: &mut [T]) {
    let lanes = <T::In<S> as Lanes<T>>::COUNT;
    let len = from.len().min(to.len());
    let whole = if to.as_ptr().cast::<T>().addr().is_multiple_of(lanes * size_of::<T>()) {
        len / lanes * lanes
    } else {
        0
    };
    for at in (0..whole).step_by(lanes) {
        // SAFETY: tasks run on a CPU with the features of `S`; `at + lanes` is within both slices, and `to`
        // is aligned
        unsafe { T::In::<S>::load(from.as_ptr().add(at)).stream(to.as_mut_ptr().add(at)) };
    }
    to[whole..len].copy_from_slice(&from[whole..len]);
}

/// `⟨x, y⟩` of one chunk, in four registers of partial sums.
#[inline(always)]
pub(crate) fn chunk_dot<S: Simd, T: Value>(x: &[T], y: &[T]) -> T {
    let len = x.len().min(y.len());
    let lanes = <T::In<S> as Lanes<T>>::COUNT;
    let (x, y) = (x.as_ptr(), y.as_ptr());
    // SAFETY: tasks run on a CPU with the features of `S`; every index stays below the shorter length
    unsafe {
        let zero = T::In::<S>::splat(T::zero());
        let mut sums = [zero; 4];
        let mut i = 0;
        while i + 4 * lanes <= len {
            for (k, sum) in sums.iter_mut().enumerate() {
                let at = i + k * lanes;
                *sum = T::In::<S>::load(x.add(at)).mul_add(T::In::<S>::load(y.add(at)), *sum);
            }
            i += 4 * lanes;
        }
        while i + lanes <= len {
            sums[0] = T::In::<S>::load(x.add(i)).mul_add(T::In::<S>::load(y.add(i)), sums[0]);
            i += lanes;
        }
        if i < len {
            let (a, b) =
                (T::In::<S>::load_first(x.add(i), len - i), T::In::<S>::load_first(y.add(i), len - i));
            sums[1] = a.mul_add(b, sums[1]);
        }
        sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum()
    }
}

// --- whole vectors --------------------------------------------------------------------------------------------------

/// Defines a task like a closure with named captures: `task!(Name { fields } -> Output, |S| body)`.
macro_rules! task {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? } -> $output:ty, |$simd:ident| $body:expr) => {
        $(#[$doc])*
        struct $name<'v, T> { $($field: $type,)* lifetime: std::marker::PhantomData<&'v T> }

        impl<'v, T: Value> Task for $name<'v, T> {
            type Output = $output;

            #[inline(always)]
            unsafe fn run<$simd: Simd>(self) -> $output {
                let $name { $($field,)* .. } = self;
                $body
            }
        }
    };
}

/// Runs a task defined by `task!`.
macro_rules! run_task {
    ($name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $crate::cpu::simd::run($name { $($field $(: $value)?,)* lifetime: std::marker::PhantomData })
    };
}
pub(crate) use {run_task, task};

task!(Axpby { a: T, x: &'v [T], b: T, y: &'v mut [T] } -> (), |S| chunk_axpby::<S, T>(a, x, b, y));

/// `y ← a x + b y`; `b = 0` overwrites `y`, even NaN.
pub fn axpby<T: Value>(a: T, x: &[T], b: T, y: &mut [T]) {
    same_length(x, y);
    over_rows(y.len(), 3, y, &|rows, y: &mut [T]| run_task!(Axpby { a, x: &x[rows], b, y }));
}

/// `y ← x`
pub fn copy<T: Value>(x: &[T], y: &mut [T]) {
    same_length(x, y);
    over_rows(y.len(), 2, y, &|rows, y: &mut [T]| y.copy_from_slice(&x[rows]));
}

task!(Mul { d: &'v [T], x: &'v [T], z: &'v mut [T] } -> (), |S| chunk_mul(d, x, z));

/// `z ← d ∘ x`
pub fn mul<T: Value>(d: &[T], x: &[T], z: &mut [T]) {
    same_length(d, z);
    same_length(x, z);
    over_rows(z.len(), 3, z, &|rows, z: &mut [T]| run_task!(Mul { d: &d[rows.clone()], x: &x[rows], z }));
}

task!(Dot { x: &'v [T], y: &'v [T] } -> T, |S| {
    let mut sum = T::zero();
    for c in chunks(0..x.len()) {
        sum += chunk_dot::<S, T>(&x[c.clone()], &y[c]);
    }
    sum
});

task!(Stream { from: &'v [T], to: &'v mut [T] } -> (), |S| chunk_stream::<S, T>(from, to));

/// `to ← from` of one chunk with non-temporal stores; call [`end_streams`] after the last chunk.
pub(crate) fn stream_to<T: Value>(from: &[T], to: &mut [T]) {
    run_task!(Stream { from, to });
}

struct Fence;

impl Task for Fence {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `simd::run` instantiates tasks only for features that the CPU has
        unsafe { S::fence() }
    }
}

/// Memory fence that makes non-temporal stores visible to other threads.
pub(crate) fn end_streams() {
    simd::run(Fence);
}

/// `⟨x, y⟩` of one reduction block (several chunks): one term of the sum over the vector.
pub(crate) fn block_dot<T: Value>(x: &[T], y: &[T]) -> T {
    run_task!(Dot { x, y })
}

/// `⟨x, y⟩`
pub fn dot<T: Value>(x: &[T], y: &[T]) -> T {
    same_length(x, y);
    let [xy] = sum_over_rows(x.len(), 2, (), &|rows, (), sums| {
        sums.fill(rows, |b| [block_dot(&x[b.clone()], &y[b])]);
    });
    xy
}

task!(Dot2 { x: &'v [T], y: &'v [T], z: &'v [T] } -> [T; 2], |S| {
    let mut sums = [T::zero(); 2];
    for c in chunks(0..x.len()) {
        let x = &x[c.clone()];
        sums[0] += chunk_dot::<S, T>(x, &y[c.clone()]);
        sums[1] += chunk_dot::<S, T>(x, &z[c]);
    }
    sums
});

/// `[⟨x, y⟩, ⟨x, z⟩]`
pub fn dot_2<T: Value>(x: &[T], y: &[T], z: &[T]) -> [T; 2] {
    same_length(x, y);
    same_length(x, z);
    sum_over_rows(x.len(), 3, (), &|rows, (), sums| {
        sums.fill(rows, |b| run_task!(Dot2 { x: &x[b.clone()], y: &y[b.clone()], z: &z[b] }));
    })
}

task!(Axpbypcz { a: T, x: &'v [T], b: T, y: &'v [T], c: T, z: &'v mut [T] } -> (), |S| {
    for k in chunks(0..z.len()) {
        let z = &mut z[k.clone()];
        chunk_axpby::<S, T>(a, &x[k.clone()], c, z);
        chunk_axpby::<S, T>(b, &y[k], T::one(), z);
    }
});

/// `z ← a x + b y + c z`
pub fn axpbypcz<T: Value>(a: T, x: &[T], b: T, y: &[T], c: T, z: &mut [T]) {
    same_length(x, z);
    same_length(y, z);
    over_rows(z.len(), 4, z, &|rows, z: &mut [T]| {
        run_task!(Axpbypcz { a, x: &x[rows.clone()], b, y: &y[rows], c, z });
    });
}

task!(AxpyDot2 { a: T, x: &'v [T], y: &'v [T], z: &'v mut [T] } -> [T; 2], |S| {
    let mut sums = [T::zero(); 2];
    for c in chunks(0..z.len()) {
        let z = &mut z[c.clone()];
        chunk_axpby::<S, T>(a, &x[c.clone()], T::one(), z);
        sums[0] += chunk_dot::<S, T>(z, z);
        sums[1] += chunk_dot::<S, T>(z, &y[c]);
    }
    sums
});

/// `z ← z + a x; [⟨z, z⟩, ⟨z, y⟩]`
pub fn axpy_dot_2<T: Value>(a: T, x: &[T], y: &[T], z: &mut [T]) -> [T; 2] {
    same_length(x, z);
    same_length(y, z);
    sum_over_rows(z.len(), 4, z, &|rows, z: &mut [T], sums| {
        let start = rows.start;
        sums.fill(rows, |b| {
            let z = &mut z[b.start - start..b.end - start];
            run_task!(AxpyDot2 { a, x: &x[b.clone()], y: &y[b], z })
        });
    })
}

task!(AxpyNorm { a: T, x: &'v [T], z: &'v mut [T] } -> [T; 1], |S| {
    let mut sum = T::zero();
    for c in chunks(0..z.len()) {
        let z = &mut z[c.clone()];
        chunk_axpby::<S, T>(a, &x[c], T::one(), z);
        sum += chunk_dot::<S, T>(z, z);
    }
    [sum]
});

/// `z ← z + a x; ‖z‖²`
pub fn axpy_norm<T: Value>(a: T, x: &[T], z: &mut [T]) -> T {
    same_length(x, z);
    let [norm] = sum_over_rows(z.len(), 3, z, &|rows, z: &mut [T], sums| {
        let start = rows.start;
        sums.fill(rows, |b| {
            let z = &mut z[b.start - start..b.end - start];
            run_task!(AxpyNorm { a, x: &x[b], z })
        });
    });
    norm
}

task!(AxpyXpby { a: T, p: &'v mut [T], z: &'v [T], b: T, x: &'v mut [T] } -> (), |S| {
    for c in chunks(0..x.len()) {
        chunk_axpby::<S, T>(a, &p[c.clone()], T::one(), &mut x[c.clone()]);
        chunk_axpby::<S, T>(T::one(), &z[c.clone()], b, &mut p[c]);
    }
});

/// `x ← x + a p; p ← z + b p`
pub fn axpy_xpby<T: Value>(a: T, p: &mut [T], z: &[T], b: T, x: &mut [T]) {
    same_length(p, x);
    same_length(z, x);
    over_rows(x.len(), 5, (x, p), &|rows, (x, p): (&mut [T], &mut [T])| {
        run_task!(AxpyXpby { a, p, z: &z[rows], b, x });
    });
}

task!(AxpyMulDots { a: T, q: &'v [T], r: &'v mut [T], d: &'v [T], z: &'v mut [T], stream: bool } -> [T; 2], |S| {
    let mut near = [T::zero(); CHUNK];
    let mut sums = [T::zero(); 2];
    for c in chunks(0..r.len()) {
        let (r, far) = (&mut r[c.clone()], &mut z[c.clone()]);
        chunk_axpby::<S, T>(a, &q[c.clone()], T::one(), r);
        sums[0] += chunk_dot::<S, T>(r, r);
        if stream {
            let near = &mut near[..c.len()];
            chunk_mul(&d[c], r, near);
            sums[1] += chunk_dot::<S, T>(r, near);
            chunk_stream::<S, T>(near, far);
        } else {
            chunk_mul(&d[c], r, far);
            sums[1] += chunk_dot::<S, T>(r, far);
        }
    }
    if stream {
        // SAFETY: tasks run on a CPU with the features of `S`
        unsafe { S::fence() };
    }
    sums
});

/// `r ← r + a q; z ← d ∘ r; [⟨r, r⟩, ⟨r, z⟩]`
pub fn axpy_mul_dots<T: Value>(a: T, q: &[T], r: &mut [T], d: &[T], z: &mut [T]) -> [T; 2] {
    same_length(q, r);
    same_length(d, r);
    same_length(z, r);
    let stream = streams::<T>(z.len());
    sum_over_rows(r.len(), 6, (r, z), &|rows, (r, z): (&mut [T], &mut [T]), sums| {
        let start = rows.start;
        sums.fill(rows, |b| {
            let here = b.start - start..b.end - start;
            let (r, z) = (&mut r[here.clone()], &mut z[here]);
            run_task!(AxpyMulDots { a, q: &q[b.clone()], r, d: &d[b], z, stream })
        });
    })
}

fn same_length<T>(x: &[T], y: &[T]) {
    assert_eq!(x.len(), y.len(), "vectors have equal lengths");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::{Level, force};

    fn numbers(n: usize, seed: u64) -> Vec<f64> {
        (0..n as u64).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f64 / 500.0 - 1.0).collect()
    }

    /// Lengths around the boundaries of lanes, chunks and blocks.
    const LENGTHS: [usize; 12] = [0, 1, 3, 4, 17, 63, 767, 768, 769, 1536, 50_000, 200_001];

    #[test]
    fn fusions_equal_their_parts_at_every_level() {
        for level in Level::ALL {
            let Some(_forced) = force(level) else { continue };
            for n in LENGTHS {
                let [x, y, z, d] = [1, 2, 3, 4].map(|seed| numbers(n, seed));
                let (mut a, mut b) = (z.clone(), z.clone());
                axpbypcz(0.5, &x, -0.25, &y, 2.0, &mut a);
                axpby(0.5, &x, 2.0, &mut b);
                axpby(-0.25, &y, 1.0, &mut b);
                assert_eq!(a, b);
                assert_eq!(dot_2(&x, &y, &z), [dot(&x, &y), dot(&x, &z)]);
                let (mut a, mut b) = (z.clone(), z.clone());
                let sums = axpy_dot_2(0.3, &x, &y, &mut a);
                axpby(0.3, &x, 1.0, &mut b);
                assert_eq!((sums, &a), ([dot(&b, &b), dot(&b, &y)], &b));
                let (mut a, mut p) = (x.clone(), y.clone());
                axpy_xpby(0.7, &mut p, &z, 0.9, &mut a);
                let (mut b, mut q) = (x.clone(), y.clone());
                axpby(0.7, &q, 1.0, &mut b);
                axpby(1.0, &z, 0.9, &mut q);
                assert_eq!((a, p), (b, q));
                let (mut r, mut w) = (x.clone(), vec![f64::NAN; n]);
                let sums = axpy_mul_dots(-0.2, &y, &mut r, &d, &mut w);
                let (mut s, mut v) = (x.clone(), vec![f64::NAN; n]);
                axpby(-0.2, &y, 1.0, &mut s);
                mul(&d, &s, &mut v);
                assert_eq!((sums, &r, &w), ([dot(&s, &s), dot(&s, &v)], &s, &v));
            }
        }
    }

    #[test]
    fn dots_are_right_and_the_same_on_any_number_of_threads() {
        // another test may force another SIMD level at any time, and levels differ in rounding
        let _forced = force(Level::best());
        for n in LENGTHS {
            let (x, y) = (numbers(n, 1), numbers(n, 2));
            let exact: f64 = x.iter().zip(&y).map(|(a, b)| a * b).sum();
            let expected = dot(&x, &y);
            assert!((expected - exact).abs() <= 1e-12 * n as f64);
            for threads in [1, 2, 3, 5] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                assert_eq!(pool.install(|| dot(&x, &y)).to_bits(), expected.to_bits());
            }
        }
    }

    #[test]
    fn a_zero_factor_overwrites_nan() {
        let mut y = vec![f32::NAN; 5];
        axpby(2.0, &[1.0; 5], 0.0, &mut y);
        assert_eq!(y, [2.0; 5]);
    }
}
