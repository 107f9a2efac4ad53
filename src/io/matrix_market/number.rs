//! Converts text to numbers and numbers to text, correctly rounded in both directions.
//!
//! Most numbers in files are short: `m * 10^e` with `m` and `10^|e|` both exact in `T`. One multiplication or
//! division then rounds once, hence correctly. All other numbers are passed to `str::parse`, which also
//! rounds correctly but first needs the end of the word and a check that it is UTF-8.

use std::fmt::{LowerExp, Write};
use std::ops::Neg;
use std::str::FromStr;

/// A number that a file can hold: `f32` or `f64`.
pub trait Number: sealed::Exact {}

impl Number for f32 {}
impl Number for f64 {}

mod sealed {
    use super::*;

    pub trait Exact:
        Copy + PartialEq + Send + Sync + Neg<Output = Self> + FromStr + LowerExp + std::fmt::Display + 'static
    {
        const ZERO: Self;
        const ONE: Self;

        /// `mantissa * 10^exponent`, if one rounding is enough to compute it.
        fn exact(mantissa: u64, exponent: i32) -> Option<Self>;

        /// The number as `f64`.
        fn widen(self) -> f64;
    }

    const TENS_64: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
        1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    const TENS_32: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];

    impl Exact for f64 {
        const ZERO: Self = 0.0;
        const ONE: Self = 1.0;

        #[inline]
        fn exact(mantissa: u64, exponent: i32) -> Option<Self> {
            let ten = TENS_64.get(exponent.unsigned_abs() as usize)?;
            if mantissa > 1 << f64::MANTISSA_DIGITS {
                return None;
            }
            let mantissa = mantissa as f64;
            Some(if exponent < 0 { mantissa / ten } else { mantissa * ten })
        }

        fn widen(self) -> f64 {
            self
        }
    }

    impl Exact for f32 {
        const ZERO: Self = 0.0;
        const ONE: Self = 1.0;

        #[inline]
        fn exact(mantissa: u64, exponent: i32) -> Option<Self> {
            let ten = TENS_32.get(exponent.unsigned_abs() as usize)?;
            if mantissa > 1 << f32::MANTISSA_DIGITS {
                return None;
            }
            let mantissa = mantissa as f32;
            Some(if exponent < 0 { mantissa / ten } else { mantissa * ten })
        }

        fn widen(self) -> f64 {
            self.into()
        }
    }
}

/// Returns whether a byte separates words of one line.
#[inline]
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

#[inline(always)]
pub(super) fn skip_blanks(mut text: &[u8]) -> &[u8] {
    while let [byte, tail @ ..] = text
        && is_blank(*byte)
    {
        text = tail;
    }
    text
}

/// The word that `text` starts with.
pub(super) fn word(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&b| is_blank(b) || b == b'\n').unwrap_or(text.len());
    &text[..end]
}

#[inline(always)]
fn word_ends(text: &[u8]) -> bool {
    text.first().is_none_or(|&b| is_blank(b) || b == b'\n')
}

/// Returns whether the text starts with a minus, and the text after the sign. There is no branch, because in many
/// files signs are random and a branch would often be mispredicted.
#[inline(always)]
fn sign(text: &[u8]) -> (bool, &[u8]) {
    let first = text.first().copied().unwrap_or_default();
    let signed = (first == b'-') | (first == b'+');
    (first == b'-', text.get(usize::from(signed)..).unwrap_or_default())
}

/// Appends the leading digits of the text to `value`, which wraps after 19 digits; the caller checks their number.
/// Returns the text after the digits.
#[inline(always)]
fn digits<'a>(mut text: &'a [u8], value: &mut u64) -> &'a [u8] {
    while let [byte @ b'0'..=b'9', tail @ ..] = text {
        *value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        text = tail;
    }
    text
}

/// Like [`digits`], up to eight digits at a time. Faster for fractions, which are long and vary in length, so that a
/// loop over single digits ends in a mispredicted branch. Indices do not need this: their length rarely changes.
#[inline(always)]
fn many_digits<'a>(mut text: &'a [u8], value: &mut u64) -> &'a [u8] {
    const TENS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    while let Some((eight, tail)) = text.split_first_chunk::<8>() {
        // Digits become their values, all other bytes 10 or more. The addition sets the high bit of the first other
        // byte; its carry into later bytes does not matter.
        let bytes = u64::from_le_bytes(*eight) ^ 0x3030_3030_3030_3030;
        let others = (bytes.wrapping_add(0x7676_7676_7676_7676) | bytes) & 0x8080_8080_8080_8080;
        let length = others.trailing_zeros() / 8;
        if let Some(ten) = TENS.get(length as usize) {
            // Shift the digits to the end of the word. Two shifts, because a single one by 64 bits would overflow.
            let number = eight_digits(bytes << (8 * (7 - length)) << 8);
            *value = value.wrapping_mul(*ten).wrapping_add(number);
            return &text[length as usize..];
        }
        *value = value.wrapping_mul(100_000_000).wrapping_add(eight_digits(bytes));
        text = tail;
    }
    digits(text, value)
}

/// The number whose eight digits are the bytes of a word, the first digit in the lowest byte.
#[inline]
fn eight_digits(ones: u64) -> u64 {
    let pairs = (ones * 10 + (ones >> 8)) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_FFFF_0000_FFFF;
    (fours * 10_000 + (fours >> 32)) & 0xFFFF_FFFF
}

/// Parses an integer without a minus. Returns the number (`u64::MAX` if it has more than 19 digits after
/// leading zeros) and the text after it, or `None` if the word is not such an integer.
#[inline(always)]
pub(super) fn count(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let mut value = 0;
    let tail = digits(text, &mut value);
    let length = text.len() - tail.len();
    if length == 0 || !word_ends(tail) {
        return None;
    }
    if length > 19 && text[..length].iter().skip_while(|&&b| b == b'0').count() > 19 {
        value = u64::MAX;
    }
    Some((value, tail))
}

/// Parses a decimal number. Returns the number and the text after it, or `None` if the word is no number.
#[inline(always)]
pub(super) fn real<T: Number>(text: &[u8]) -> Option<(T, &[u8])> {
    short(text).or_else(|| long(text))
}

/// Parses an integer with or without a sign. Returns the number and the text after it, or `None`.
#[inline]
pub(super) fn integer<T: Number>(text: &[u8]) -> Option<(T, &[u8])> {
    let (_, unsigned) = sign(text);
    let tail = digits(unsigned, &mut 0);
    if tail.len() == unsigned.len() || !word_ends(tail) {
        return None;
    }
    real(text)
}

/// A number that can be computed with one rounding, and the text after it; otherwise `None`.
#[inline(always)]
fn short<T: Number>(text: &[u8]) -> Option<(T, &[u8])> {
    let (negative, text) = sign(text);
    let mut mantissa = 0;
    let mut tail = digits(text, &mut mantissa);
    let mut length = text.len() - tail.len();
    let mut exponent = 0;
    if let [b'.', fraction @ ..] = tail {
        tail = many_digits(fraction, &mut mantissa);
        let places = fraction.len() - tail.len();
        length += places;
        exponent -= i32::try_from(places).ok()?;
    }
    if length == 0 || length > 19 {
        return None;
    }
    if let [b'e' | b'E' | b'd' | b'D', power @ ..] = tail {
        let (negative, power) = sign(power);
        let mut value = 0;
        tail = digits(power, &mut value);
        if !(1..=4).contains(&(power.len() - tail.len())) {
            return None;
        }
        let value = i32::try_from(value).ok()?;
        exponent += if negative { -value } else { value };
    }
    if !word_ends(tail) {
        return None;
    }
    let value = T::exact(mantissa, exponent)?;
    Some((if negative { -value } else { value }, tail))
}

/// Any number, parsed by the standard library, and the text after it.
#[inline(never)]
fn long<T: Number>(text: &[u8]) -> Option<(T, &[u8])> {
    let word = word(text);
    let tail = &text[word.len()..];
    let word = str::from_utf8(word).ok()?;
    let value = match word.contains(['d', 'D']) {
        false => word.parse(),
        true => word.replacen(['d', 'D'], "e", 1).parse(),
    };
    Some((value.ok()?, tail))
}

/// Appends the shortest decimal text that is read as `value` again.
pub(super) fn print<T: Number>(out: &mut String, value: T) {
    // Very large and very small numbers need an exponent, or they would get hundreds of zeros.
    let size = value.widen().abs();
    let plain = size == 0.0 || (1e-5..1e16).contains(&size) || !size.is_finite();
    // Writing to a string does not fail.
    let _ = if plain { write!(out, "{value}") } else { write!(out, "{value:e}") };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bits of the number that this module reads. Bits are compared, so that NaN and the sign of zero are
    /// checked.
    fn bits_here(text: &str) -> (Option<u64>, Option<u32>) {
        let wide = real::<f64>(text.as_bytes()).map(|(value, rest)| (value.to_bits(), rest.len()));
        let narrow = real::<f32>(text.as_bytes()).map(|(value, rest)| (value.to_bits(), rest.len()));
        assert!(wide.is_none_or(|w| w.1 == 0) && narrow.is_none_or(|n| n.1 == 0), "{text} is one word");
        (wide.map(|w| w.0), narrow.map(|n| n.0))
    }

    /// The bits of the number that the standard library reads.
    fn bits_of_std(text: &str) -> (Option<u64>, Option<u32>) {
        let wide = text.parse::<f64>().ok().map(f64::to_bits);
        let narrow = text.parse::<f32>().ok().map(f32::to_bits);
        (wide, narrow)
    }

    #[test]
    fn edges() {
        let texts = [
            "0",
            "-0",
            "+1",
            "1.",
            ".5",
            "-.5e1",
            "9007199254740992",
            "9007199254740993",
            "16777217",
            "1e22",
            "1e23",
            "9007199254740992e22",
            "1e-22",
            "1e10",
            "1e11",
            "16777216e10",
            "16777216e-10",
            "4.9e-324",
            "2e-324",
            "1.7976931348623157e308",
            "1e309",
            "1e-400",
            "2.2250738585072011e-308",
            "1.00000017881393432617187499",
            "1.00000017881393421514957253748434595763683319091796875001",
            "12345678901234567890",
            "1e0000000000001",
            "0000000000000000000000001",
            "0.00000000000000000000000000001",
            "1e99999",
            "1e-99999",
            "nan",
            "-inf",
            "Infinity",
            "7.0385307e-26",
            "12345678.12345678",
            "1.1234567",
            "1.12345678",
            "1.123456789",
        ];
        for text in texts {
            assert_eq!(bits_here(text), bits_of_std(text), "{text}");
            assert!(bits_here(text).0.is_some(), "{text}");
        }
        for text in
            ["", "-", ".", "e5", "1e", "1e+", "1.2.3", "1_0", "0x10", "1,5", "+-1", "--1", "1f", "1e5.0", "é"]
        {
            assert_eq!(bits_here(text), (None, None), "{text}");
        }
        let wide = |text: &[u8]| real::<f64>(text).map(|(value, rest)| (value, rest.len()));
        assert_eq!(wide(b"1.0D+03"), Some((1000.0, 0)));
        assert_eq!(wide(b"-1.2345678901234567d-3 1"), Some((-1.2345678901234567e-3, 2)));
        assert_eq!(wide(b"1.5\r\n2"), Some((1.5, 3)));
        assert_eq!(wide(b"1D2D3"), None);
    }

    #[test]
    fn counts_saturate() {
        let value = |text: &[u8]| count(text).map(|(value, _)| value);
        assert_eq!(value(b"+12\t"), Some(12));
        assert_eq!(value(b"00000000000000000000000000000012"), Some(12));
        assert_eq!(value(b"9999999999999999999"), Some(9_999_999_999_999_999_999));
        assert_eq!(value(b"18446744073709551617"), Some(u64::MAX));
        assert_eq!((value(b"-1"), value(b"1.0"), value(b""), value(b"+")), (None, None, None, None));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn all_bits_round_trip(bits: u64, narrow: u32) {
            let (value, short) = (f64::from_bits(bits), f32::from_bits(narrow));
            let texts = [format!("{value:e}"), format!("{value}"), format!("{value:.8e}"), format!("{short:e}")];
            for text in texts {
                prop_assert_eq!(bits_here(&text), bits_of_std(&text), "{}", text);
            }
            let mut text = String::new();
            print(&mut text, value);
            let (back, _) = real::<f64>(text.as_bytes()).ok_or(TestCaseError::fail("unreadable"))?;
            prop_assert!(back == value || value.is_nan() && back.is_nan(), "{}", text);
            text.clear();
            print(&mut text, short);
            let (back, _) = real::<f32>(text.as_bytes()).ok_or(TestCaseError::fail("unreadable"))?;
            prop_assert!(back == short || short.is_nan() && back.is_nan(), "{}", text);
        }

        #[test]
        fn decimals(text in "[+-]?[0-9]{0,22}(\\.[0-9]{0,25})?([eE][+-]?[0-9]{1,3})?") {
            prop_assert_eq!(bits_here(&text), bits_of_std(&text), "{}", text);
        }

        #[test]
        fn short_decimals(text in "-?[0-9]{1,4}\\.[0-9]{1,16}(e[+-]?[0-9]{1,2})?") {
            prop_assert_eq!(bits_here(&text), bits_of_std(&text), "{}", text);
            let fortran = text.replace('e', "D");
            prop_assert_eq!(bits_here(&fortran), bits_of_std(&text), "{}", fortran);
        }

        #[test]
        fn near_numbers(text in "[0-9+\\-.eEdDinfa_x]{0,12}") {
            let plain = text.to_ascii_lowercase().replacen('d', "e", 1);
            prop_assert_eq!(bits_here(&text), bits_of_std(&plain), "{}", text);
        }

        #[test]
        fn eights(a in "[0-9]{0,9}", b in any::<[u8; 9]>()) {
            let mut text = a.into_bytes();
            text.extend(b);
            let (mut one, mut many) = (7, 7);
            prop_assert_eq!(digits(&text, &mut one), many_digits(&text, &mut many));
            prop_assert_eq!(one, many);
        }
    }
}
