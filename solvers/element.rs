//! Number types of matrices and vectors.

use num_traits::{Float, NumAssign};
use std::fmt::{Debug, Display, LowerExp};
use std::ops::Neg;

/// Number type of matrices and vectors: `f32` or `f64`.
///
/// Complex types are not supported: `Vector::dot` (`vector.rs`) does not conjugate; `Steps` (`steps.rs`)
/// records and watches `f64`, also signs; the rotations of `gmres.rs` and `minres.rs` and all square roots
/// are real; symmetric means `A = Aᵀ`, not Hermitian. In the crate `krysp`, `Real` (`src/numbers.rs`)
/// requires `Element<Real = Self>`; kernels (`Value` in `kernels/cpu/simd/mod.rs`, `Real` in
/// `kernels/cuda/device/element.rs`), readers and bindings have `f32` and `f64` alone.
pub trait Element:
    NumAssign + Neg<Output = Self> + Copy + Default + Debug + Display + LowerExp + Send + Sync + 'static
{
    /// Type of norms.
    type Real: Float + Into<f64>;

    /// Name of the type in Rust.
    const NAME: &'static str;

    /// Machine epsilon: the distance from 1 to the next larger number.
    const EPSILON: f64;

    /// Real part.
    fn real(self) -> Self::Real;

    /// Converts from `f64`, rounding to nearest.
    fn from_f64(value: f64) -> Self;

    /// Returns whether the number is neither infinite nor NaN.
    fn is_finite(self) -> bool;

    /// Real part in double precision, for reports.
    fn to_f64(self) -> f64 {
        self.real().into()
    }
}

impl Element for f32 {
    type Real = f32;
    const NAME: &'static str = "f32";
    const EPSILON: f64 = f32::EPSILON as f64;

    fn real(self) -> f32 {
        self
    }

    fn from_f64(value: f64) -> f32 {
        value as f32
    }

    fn is_finite(self) -> bool {
        self.is_finite()
    }
}

impl Element for f64 {
    type Real = f64;
    const NAME: &'static str = "f64";
    const EPSILON: f64 = f64::EPSILON;

    fn real(self) -> f64 {
        self
    }

    fn from_f64(value: f64) -> f64 {
        value
    }

    fn is_finite(self) -> bool {
        self.is_finite()
    }
}
