//! Element types of matrices and vectors, and the types in which matrices may store them.

use crate::saved::Saved;
use krysp_kernels::cpu::simd::{Value, storage};
use krysp_solvers::Element;

/// Requirements of GPU kernels on element types; none without the feature `cuda`.
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

/// An element type of matrices and vectors: `f32` or `f64`.
pub trait Real: Element<Real = Self> + Value + on_device::Real + Saved {}
impl<T: Element<Real = T> + Value + on_device::Real + Saved> Real for T {}

/// A type in which a matrix stores numbers of type `T`: `T` itself, or a shorter type that is converted to
/// `T` when it is loaded.
pub trait Storage<T: Real>: storage::Storage<T> + on_device::Storage<T> {}
impl<T: Real, V: storage::Storage<T> + on_device::Storage<T>> Storage<T> for V {}
