//! Contestants: products with their matrix and vectors, in element types that every crate supports.

use faer::traits::{ComplexField, Conjugate};
use krysp::Real;
use nalgebra_sparse::na::{ClosedAddAssign, ClosedMulAssign};

/// An element type that every peer supports.
pub trait Element:
    Real + sprs::MulAcc + ComplexField + Conjugate<Canonical = Self> + ClosedAddAssign + ClosedMulAssign
{
    /// Conversion from `f64`, needed because traits of other crates have functions of the same name.
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

/// A product with its matrix and vectors.
pub trait Product<T> {
    fn multiply(&mut self);
    fn y(&self) -> &[T];
}

/// The origin of a product.
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
    /// Bytes that the operator reports; unknown for peers.
    pub bytes: usize,
    pub product: Box<dyn Product<T>>,
}
