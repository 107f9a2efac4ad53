//! Scaling by powers of two, which rounds nothing.

use crate::{Csr, Real};
use krysp_solvers::Element;

/// Powers of two that bring the largest entry of each row near one.
pub(super) fn row_scale<T: Real>(columns: &Csr<T>) -> Vec<T> {
    let mut largest = vec![0.0f64; columns.cols()];
    for (&row, &value) in columns.columns().iter().zip(columns.entries()) {
        let largest = &mut largest[row as usize];
        *largest = largest.max(Element::to_f64(value).abs());
    }
    largest.into_iter().map(power).collect()
}

/// The power of two that brings a magnitude near one.
pub(super) fn power<T: Real>(largest: f64) -> T {
    let exponent = if largest > 0.0 && largest.is_finite() { -largest.log2().round() } else { 0.0 };
    T::from_f64(exponent.exp2())
}
