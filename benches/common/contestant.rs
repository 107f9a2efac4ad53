//! Implementations of SpMV that a bench compares ("contestants"), each with its matrix and vectors. Element
//! types are those that every compared crate supports.

use faer::traits::{ComplexField, Conjugate};
use krysp::Real;
use nalgebra_sparse::na::{ClosedAddAssign, ClosedMulAssign};

/// An element type that every peer supports.
pub trait Element:
    Real + sprs::MulAcc + ComplexField + Conjugate<Canonical = Self> + ClosedAddAssign + ClosedMulAssign
{
    /// Converts from `f64`. Its name differs from that of all conversions in the traits above, such as
    /// `from_f64`, so that a call is not ambiguous.
    fn narrow(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Element for f32 {
    fn narrow(value: f64) -> f32 {
        value as f32
    }

    fn wide(self) -> f64 {
        self.into()
    }
}

impl Element for f64 {
    fn narrow(value: f64) -> f64 {
        value
    }

    fn wide(self) -> f64 {
        self
    }
}

/// An SpMV `y ← A x` together with its stored matrix and its vectors.
pub trait Product<T> {
    fn multiply(&mut self);
    fn y(&self) -> &[T];
}

/// The origin of an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A format of this crate.
    Ours,
    /// Another crate.
    Crate,
    /// A plain loop over rows.
    Loop,
    /// A library that is not a crate.
    Library,
}

pub struct Contestant<T> {
    pub name: &'static str,
    pub whose: Whose,
    pub setup_ms: f64,
    /// Bytes of the matrix that an SpMV reads, as reported by
    /// [`LinearOperator::bytes`](krysp::LinearOperator::bytes); 0 for other libraries.
    pub bytes: usize,
    pub product: Box<dyn Product<T>>,
}
