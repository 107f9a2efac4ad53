//! The numbers that matrices are made of, and what matrices may store in their place.

use crate::saved::Saved;
use krysp_kernels::cpu::simd::{Value, storage};
use krysp_solvers::Element;

/// What kernels for GPUs ask of numbers. Without the feature `cuda` there are none, and they ask nothing.
mod on_device {
    #[cfg(feature = "cuda")]
    pub(super) use krysp_kernels::cuda::{Real, Storage};

    #[cfg(not(feature = "cuda"))]
    pub trait Real {}
    #[cfg(not(feature = "cuda"))]
    impl<T> Real for T {}

    #[cfg(not(feature = "cuda"))]
    pub trait Storage<T> {}
    #[cfg(not(feature = "cuda"))]
    impl<T, V> Storage<T> for V {}
}

/// A number that matrices are made of and kernels compute with: `f32` or `f64`.
pub trait Real: Element<Real = Self> + Value + on_device::Real + Saved {}
impl<T: Element<Real = T> + Value + on_device::Real + Saved> Real for T {}

/// What a matrix stores of a number of type `T`: that number, or one of fewer bits, widened when it is loaded.
pub trait Storage<T: Real>: storage::Storage<T> + on_device::Storage<T> {}
impl<T: Real, V: storage::Storage<T> + on_device::Storage<T>> Storage<T> for V {}
