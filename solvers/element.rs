//! The number types of matrices and vectors.

use num_traits::{Float, NumAssign};
use std::fmt::{Debug, Display, LowerExp};
use std::ops::Neg;

/// A number that matrices and vectors are made of: `f32` or `f64`.
///
/// Methods are written so that complex numbers can join: norms are [`Element::Real`], and an inner product conjugates
/// its first argument.
pub trait Element:
    NumAssign + Neg<Output = Self> + Copy + Default + Debug + Display + LowerExp + Send + Sync + 'static
{
    /// The type of norms.
    type Real: Float + Into<f64>;

    /// The name of the type in Rust.
    const NAME: &'static str;

    /// The distance from 1 to the next larger number.
    const EPSILON: f64;

    /// The real part.
    fn real(self) -> Self::Real;

    /// The nearest element to a real number.
    fn from_f64(value: f64) -> Self;

    /// Whether the number is neither infinite nor NaN.
    fn is_finite(self) -> bool;

    /// The real part in double precision, for reports.
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
