//! bfloat16: the upper half of an IEEE binary32, with the same exponent range and 7 fraction bits.

use crate::buffer::Plain;
use crate::cpu::simd::storage::Storage;

/// A bfloat16 number, used to store values of preconditioners in a quarter of the bytes of an `f64`.
///
/// The relative rounding error is at most `2⁻⁸` (half a unit in the last of eight bits) for numbers of at
/// least `2⁻¹²⁶`; numbers beyond `3.39e38` become infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(u16);

// SAFETY: every pattern of 16 bits is a valid number, and zero bits are zero
unsafe impl Plain for Bf16 {}

impl Bf16 {
    /// Rounds to nearest, ties to even.
    fn nearest(number: f32) -> Bf16 {
        let bits = number.to_bits();
        // truncation may clear all payload bits of a NaN, which would make it infinite: set the quiet bit
        let quiet = u16::from(number.is_nan()) << 6;
        // a carry out of the fraction increments the exponent, as it should
        let rounded = if number.is_nan() { bits } else { bits + 0x7fff + (bits >> 16 & 1) };
        Bf16((rounded >> 16) as u16 | quiet)
    }

    #[inline(always)]
    fn number(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

impl Storage<f32> for Bf16 {
    #[inline(always)]
    fn narrow(number: f32) -> Bf16 {
        Bf16::nearest(number)
    }

    #[inline(always)]
    fn widen(self) -> f32 {
        self.number()
    }
}

/// Rounds to `f32` first: the relative error is at most `2⁻⁸ + 2⁻²⁴`.
impl Storage<f64> for Bf16 {
    #[inline(always)]
    fn narrow(number: f64) -> Bf16 {
        Bf16::nearest(number as f32)
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_to_the_nearest() {
        // every bfloat16 survives the round trip
        for bits in 0..=u16::MAX {
            let number = Bf16(bits).number();
            let back = Bf16::nearest(number);
            assert!(back == Bf16(bits) || number.is_nan() && back.number().is_nan(), "{bits:x}");
        }
        // between two neighbours, and exactly halfway
        let unit = 2f32.powi(-7);
        let near = |number: f32| Bf16::nearest(number).number();
        assert_eq!([1.0 + 0.49 * unit, 1.0 + 0.51 * unit].map(near), [1.0, 1.0 + unit]);
        assert_eq!([1.0 + 0.5 * unit, 1.0 + 1.5 * unit].map(near), [1.0, 1.0 + 2.0 * unit]);
        assert_eq!(
            [2.0 - 0.1 * unit, f32::MAX, -f32::MAX].map(near),
            [2.0, f32::INFINITY, f32::NEG_INFINITY]
        );
        assert!(near(f32::from_bits(0x7f80_0001)).is_nan());
        assert_eq!(near(-0.0).to_bits(), (-0.0f32).to_bits());
    }
}
