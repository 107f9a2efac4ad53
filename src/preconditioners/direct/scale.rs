//! Scaling by powers of two, which causes no rounding errors.

use crate::formats::{Csr, Rows};
use crate::numbers::Real;
use krysp_solvers::Element;

/// Returns powers of two that scale the largest entry of each row to near one. `columns` is the transpose.
pub(super) fn row_scale<T: Real>(columns: &Csr<T>) -> Vec<T> {
    let mut largest = vec![T::zero(); columns.cols()];
    for (&row, &value) in columns.columns().iter().zip(columns.entries()) {
        let largest = &mut largest[row as usize];
        *largest = larger(*largest, value);
    }
    powers(largest)
}

/// Largest magnitude of each row.
pub(super) fn largest<T: Real>(csr: &Csr<T>) -> Vec<T> {
    let of_row = |values: &[T]| values.iter().copied().fold(T::zero(), larger);
    Rows::of(csr).iter().map(|(_, values)| of_row(values)).collect()
}

/// Larger of `most` and the magnitude of `value`; `most` if `value` is NaN. `T::max` takes several instructions.
#[inline]
pub(super) fn larger<T: Real>(most: T, value: T) -> T {
    let magnitude = value.abs();
    if magnitude > most { magnitude } else { most }
}

/// Replaces magnitudes by the powers of two that scale them to near one.
pub(super) fn powers<T: Real>(mut largest: Vec<T>) -> Vec<T> {
    largest.iter_mut().for_each(|most| *most = power(Element::to_f64(*most)));
    largest
}

/// Returns the power of two that scales a magnitude to near one: to between `√½` and `√2`, unless the power or
/// its reciprocal would underflow. Returns 1 for zero and for values that are not finite.
pub(super) fn power<T: Real>(largest: f64) -> T {
    if largest <= 0.0 || !largest.is_finite() {
        return T::one();
    }
    // adding `2 − √2` to a mantissa carries into the exponent if the mantissa is at least √2
    let exponent = (largest.to_bits() + ROUND_UP) >> MANTISSA;
    // the biased exponents of a power of two and of its reciprocal add up to twice the bias: 2046
    let reciprocal = f64::from_bits(2046_u64.saturating_sub(exponent).max(1) << MANTISSA);
    let least = T::min_positive_value();
    T::from_f64(reciprocal.max(least.to_f64())).min(least.recip())
}

/// Number of stored mantissa bits of an `f64`.
const MANTISSA: u32 = 52;

/// `2 − √2` in units of the last mantissa bit: `(2 − √2) · 2⁵²`.
const ROUND_UP: u64 = 0x0009_5f61_9980_c433;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_scale_to_near_one() {
        for largest in [1.0, 0.7, 0.75, 1.4, 1.5, 3e-7, 6.02e23, 1e300, 3e-308] {
            let factor: f64 = power(largest);
            assert!(factor.log2().fract() == 0.0, "{largest:e}: {factor:e}");
            assert!((0.7..1.4143).contains(&(largest * factor)), "{largest:e}: {factor:e}");
        }
        for largest in [0.0, f64::INFINITY, f64::NAN] {
            assert_eq!(power::<f64>(largest), 1.0);
        }
        // no overflow where the reciprocal of a magnitude is not representable
        assert_eq!(power::<f64>(5e-324), 2f64.powi(1022));
        assert_eq!(power::<f64>(f64::MAX), 2f64.powi(-1022));
        assert_eq!(power::<f32>(1e-44), 2f32.powi(126));
        assert_eq!(power::<f32>(f64::from(f32::MAX)), 2f32.powi(-126));
    }
}
