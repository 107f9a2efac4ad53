//! Types of numbers: for arithmetic, for stored matrix values, and for arrays.

use crate::buffer::Plain;
use crate::cpu::simd::Value;
use crate::cpu::simd::bf16::Bf16;
use crate::cpu::simd::storage;
use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

/// A type for arithmetic on a device: `f32` or `f64`.
pub trait Real: Value + DeviceRepr + ValidAsZeroBits {
    /// Name of the type in C.
    const C_NAME: &'static str;
}

impl Real for f32 {
    const C_NAME: &'static str = "float";
}

impl Real for f64 {
    const C_NAME: &'static str = "double";
}

/// A type in which a matrix on a device stores values of type `T`.
pub trait Storage<T: Real>: storage::Storage<T> + Element {
    /// Name of the type in C.
    const STORED_AS: &'static str;
}

impl<T: Real> Storage<T> for T {
    const STORED_AS: &'static str = T::C_NAME;
}

impl Storage<f64> for f32 {
    const STORED_AS: &'static str = f32::C_NAME;
}

// SAFETY: has the layout of `bfloat` in prelude.cu
unsafe impl DeviceRepr for Bf16 {}
// SAFETY: zero bits are zero
unsafe impl ValidAsZeroBits for Bf16 {}

impl<T: Real> Storage<T> for Bf16
where
    Bf16: storage::Storage<T>,
{
    const STORED_AS: &'static str = "bfloat";
}

/// Element type of a device array.
pub trait Element: Plain + DeviceRepr + ValidAsZeroBits {}
impl<T: Plain + DeviceRepr + ValidAsZeroBits> Element for T {}
