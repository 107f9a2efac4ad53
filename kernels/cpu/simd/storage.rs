//! Numbers as matrices store them: those that kernels compute with, or others of fewer bits, widened when they are loaded.
//!
//! A kernel reads what is stored and multiplies, adds and rounds in the type of the vectors: what is lost is the rounding
//! of each entry, once, to half a unit in the last place of what stores it (`2⁻²⁴ |a|` for `f32`). So
//! `|(A x)_i − (Â x)_i| ≤ 2⁻²⁴ Σ_j |a_ij x_j|` but for entries below the smallest normal `f32`, `2⁻¹²⁶`, and beyond its
//! largest, which become infinite.

use crate::buffer::Plain;
use crate::cpu::run::threads::over_rows;
use crate::cpu::simd::{Lanes, MOST_LANES, Simd, Value};
use std::borrow::Cow;
use std::fmt::Debug;

/// What a matrix stores of a number of type `T`.
pub trait Storage<T: Value>: Plain + Debug {
    /// Rounded to nearest.
    fn narrow(number: T) -> Self;

    /// Exactly.
    fn widen(self) -> T;

    /// All of them rounded; as they are where nothing is lost.
    fn narrowed(numbers: &[T]) -> Cow<'_, [Self]> {
        let mut narrow = vec![Self::narrow(T::zero()); numbers.len()];
        over_rows(numbers.len(), 2, &mut *narrow, &|range, part: &mut [Self]| {
            part.iter_mut().zip(&numbers[range]).for_each(|(to, &number)| *to = Self::narrow(number));
        });
        Cow::Owned(narrow)
    }

    /// As [`Lanes::load`].
    ///
    /// # Safety
    /// As [`Lanes`].
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const Self) -> T::In<S> {
        // SAFETY: handed down from the caller
        unsafe { Self::load_first::<S>(from, <T::In<S> as Lanes<T>>::COUNT) }
    }

    /// As [`Lanes::load_first`].
    ///
    /// # Safety
    /// As [`Lanes`].
    #[inline(always)]
    unsafe fn load_first<S: Simd>(from: *const Self, count: usize) -> T::In<S> {
        // SAFETY: handed down from the caller
        unsafe { T::In::<S>::load(one_by_one(from, count).as_ptr()) }
    }
}

/// The first `count` numbers, widened, and zeros: as many as any register has lanes.
///
/// # Safety
/// The pointer is valid for `count ≤ MOST_LANES` numbers.
#[inline(always)]
pub(crate) unsafe fn one_by_one<T: Value, V: Storage<T>>(from: *const V, count: usize) -> [T; MOST_LANES] {
    let mut wide = [T::zero(); MOST_LANES];
    for (i, wide) in wide.iter_mut().enumerate().take(count) {
        // SAFETY: as the caller promised
        *wide = unsafe { *from.add(i) }.widen();
    }
    wide
}

/// [`Storage::narrow`], where the trait has no name.
#[inline(always)]
pub fn narrow<T: Value, V: Storage<T>>(number: T) -> V {
    V::narrow(number)
}

/// [`Storage::widen`], where the trait has no name.
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
        // SAFETY: handed down from the caller
        unsafe { T::In::<S>::load(from) }
    }

    #[inline(always)]
    unsafe fn load_first<S: Simd>(from: *const T, count: usize) -> T::In<S> {
        // SAFETY: handed down from the caller
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
        // SAFETY: handed down from the caller
        unsafe { S::widen(from) }
    }

    #[inline(always)]
    unsafe fn load_first<S: Simd>(from: *const f32, count: usize) -> S::F64 {
        // SAFETY: handed down from the caller
        unsafe { S::widen_first(from, count) }
    }
}
