//! Names of all formats and their variants.

use crate::formats::{Format, Offered, Variant};

/// The variants of all formats.
pub(super) fn variants() -> Vec<Variant> {
    let mut variants = vec![];
    macro_rules! list {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            $(variants.extend(<crate::formats::$format<f64> as Offered<f64>>::variants());)*
        };
    }
    crate::formats::each_format!(list);
    variants
}

/// Returns the names of all formats and their variants.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = variants().into_iter().map(|variant| variant.name).collect();
    macro_rules! list {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            $(names.push(<crate::formats::$format<f64> as Format<f64>>::NAME);)*
        };
    }
    crate::formats::each_format!(list);
    names
}
