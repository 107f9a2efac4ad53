//! Lanes as plain arrays, for CPUs without a specific SIMD level.

use crate::cpu::simd::{Lanes, Simd, Value};

/// The level that every CPU supports.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Simd for Portable {
    type F32 = Array<f32, 4>;
    type F64 = Array<f64, 4>;
    const FUSED: bool = false;
    const SUMS_HALVES: bool = false;

    #[inline(always)]
    unsafe fn fence() {}

    #[inline(always)]
    fn prefetch<T>(_: *const T) {}
}

/// A register as an array.
#[derive(Clone, Copy)]
pub(crate) struct Array<T, const N: usize>([T; N]);

// Multiply-add rounds twice here: without a hardware instruction, a fused one would be a function call.
impl<T: Value, const N: usize> Lanes<T> for Array<T, N> {
    const COUNT: usize = N;

    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        Array([value; N])
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller's pointer is valid for `N` numbers
        unsafe { Array(from.cast::<[T; N]>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const T, count: usize) -> Self {
        // SAFETY: the caller's pointer is valid for `count` numbers
        Array(std::array::from_fn(|i| if i < count { unsafe { *from.add(i) } } else { T::zero() }))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: the caller's pointer is valid for `N` numbers
        unsafe { to.cast::<[T; N]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut T) {
        // SAFETY: as in `store`
        unsafe { self.store(to) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut T, count: usize) {
        for (i, &value) in self.0.iter().enumerate().take(count) {
            // SAFETY: the caller's pointer is valid for `count` numbers
            unsafe { *to.add(i) = value }
        }
    }

    #[inline(always)]
    unsafe fn gather(base: *const T, index: *const u32) -> Self {
        // SAFETY: the caller ensures `N` indices and that they are valid for `base`
        Array(std::array::from_fn(|i| unsafe { *base.add(*index.add(i) as usize) }))
    }

    #[inline(always)]
    unsafe fn gather_short(base: *const T, index: *const u16) -> Self {
        // SAFETY: as in `gather`
        Array(std::array::from_fn(|i| unsafe { *base.add(*index.add(i) as usize) }))
    }

    #[inline(always)]
    unsafe fn gather_first(base: *const T, index: *const u32, count: usize) -> Self {
        Array(std::array::from_fn(|i| {
            // SAFETY: the caller ensures `count` indices and that they are valid for `base`
            if i < count { unsafe { *base.add(*index.add(i) as usize) } } else { T::zero() }
        }))
    }

    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        Array(std::array::from_fn(|i| self.0[i] * b.0[i] + c.0[i]))
    }

    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        Array(std::array::from_fn(|i| self.0[i] * b.0[i]))
    }

    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        Array(std::array::from_fn(|i| self.0[i] + b.0[i]))
    }

    #[inline(always)]
    unsafe fn sum(self) -> T {
        self.0.iter().fold(T::zero(), |sum, &v| sum + v)
    }
}
