//! Storage types of matrix values: the type that kernels compute in, or a narrower one that is converted on
//! load (mixed precision).
//!
//! A kernel loads stored values and multiplies, adds and rounds in the type of the vectors. The only
//! additional error is one rounding of each entry to the storage type (`2⁻²⁴ |a|` for `f32`). Hence
//! `|(A x)_i − (Â x)_i| ≤ 2⁻²⁴ Σ_j |a_ij x_j|` with the matrix `Â` of the values stored in `f32`, except for
//! entries smaller than `2⁻¹²⁶` (the smallest normal `f32`) and entries beyond the largest `f32`, which
//! become infinite.

use crate::buffer::Plain;
use crate::cpu::run::threads::over_rows;
use crate::cpu::simd::{Lanes, MOST_LANES, Simd, Value};
use std::borrow::Cow;
use std::fmt::Debug;

/// Storage type of a number of type `T`.
pub trait Storage<T: Value>: Plain + Debug {
    /// Rounds to nearest.
    fn narrow(number: T) -> Self;

    /// Converts back, exactly.
    fn widen(self) -> T;

    /// Rounds all numbers; borrows them unchanged if both types are the same.
    fn narrowed(numbers: &[T]) -> Cow<'_, [Self]> {
        let mut narrow = vec![Self::narrow(T::zero()); numbers.len()];
        over_rows(numbers.len(), 2, &mut *narrow, &|range, part: &mut [Self]| {
            part.iter_mut().zip(&numbers[range]).for_each(|(to, &number)| *to = Self::narrow(number));
        });
        Cow::Owned(narrow)
    }

    /// Loads and converts like [`Lanes::load`].
    ///
    /// # Safety
    /// The requirements are those of [`Lanes`].
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const Self) -> T::In<S> {
        // SAFETY: the caller's contract is the same
        unsafe { Self::load_first::<S>(from, <T::In<S> as Lanes<T>>::COUNT) }
    }

    /// Loads and converts like [`Lanes::load_first`].
    ///
    /// # Safety
    /// The requirements are those of [`Lanes`].
    #[inline(always)]
    unsafe fn load_first<S: Simd>(from: *const Self, count: usize) -> T::In<S> {
        // SAFETY: the caller's contract is the same
        unsafe { T::In::<S>::load(one_by_one(from, count).as_ptr()) }
    }
}

/// Converts the first `count` numbers and pads them with zeros to the lanes of the widest register.
///
/// # Safety
/// The pointer is valid for `count ≤ MOST_LANES` numbers.
#[inline(always)]
pub(crate) unsafe fn one_by_one<T: Value, V: Storage<T>>(from: *const V, count: usize) -> [T; MOST_LANES] {
    let mut wide = [T::zero(); MOST_LANES];
    for (i, wide) in wide.iter_mut().enumerate().take(count) {
        // SAFETY: the caller's pointer is valid for `count` numbers
        *wide = unsafe { *from.add(i) }.widen();
    }
    wide
}

/// [`Storage::narrow`] as a function, for generic code in which the method would be ambiguous.
#[inline(always)]
pub fn narrow<T: Value, V: Storage<T>>(number: T) -> V {
    V::narrow(number)
}

/// [`Storage::widen`] as a function, for generic code in which the method would be ambiguous.
#[inline(always)]
pub fn widen<T: Value, V: Storage<T>>(stored: V) -> T {
    stored.widen()
}

impl<T: Value> Storage<T> for T {
    #[inline(always)]
    fn narrow(number: T) -> T {
        number
    }

    #[inline(always)]
    fn widen(self) -> T {
        self
    }

    fn narrowed(numbers: &[T]) -> Cow<'_, [T]> {
        Cow::Borrowed(numbers)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const T) -> T::In<S> {
        // SAFETY: the caller's contract is the same
        unsafe { T::In::<S>::load(from) }
    }

    #[inline(always)]
    unsafe fn load_first<S: Simd>(from: *const T, count: usize) -> T::In<S> {
        // SAFETY: the caller's contract is the same
        unsafe { T::In::<S>::load_first(from, count) }
    }
}

impl Storage<f64> for f32 {
    #[inline(always)]
    fn narrow(number: f64) -> f32 {
        number as f32
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const f32) -> S::F64 {
        // SAFETY: the caller's contract is the same
        unsafe { S::widen(from) }
    }

    #[inline(always)]
    unsafe fn load_first<S: Simd>(from: *const f32, count: usize) -> S::F64 {
        // SAFETY: the caller's contract is the same
        unsafe { S::widen_first(from, count) }
    }
}
