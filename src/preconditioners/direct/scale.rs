//! Scaling by powers of two, which causes no rounding errors.

use crate::{Csr, Real};
use krysp_solvers::Element;

/// Returns powers of two that scale the largest entry of each row to near one. `columns` is the transpose.
pub(super) fn row_scale<T: Real>(columns: &Csr<T>) -> Vec<T> {
    let mut largest = vec![0.0f64; columns.cols()];
    for (&row, &value) in columns.columns().iter().zip(columns.entries()) {
        let largest = &mut largest[row as usize];
        *largest = largest.max(Element::to_f64(value).abs());
    }
    largest.into_iter().map(power).collect()
}

/// Returns the power of two that scales a magnitude to near one; 1 for zero and for values that are not
/// finite.
pub(super) fn power<T: Real>(largest: f64) -> T {
    let exponent = if largest > 0.0 && largest.is_finite() { -largest.log2().round() } else { 0.0 };
    T::from_f64(exponent.exp2())
}
