//! What the chooser must know of a machine: nothing that asks for the machine itself.

use super::Price;
use crate::formats::{Format, Offered, Variant};

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The CPU that this program runs on, as fast as it may be.
    Host,
    /// An NVIDIA GPU, as fast as it may be.
    #[cfg(feature = "cuda")]
    Gpu {
        /// How many of these it has: 132 an H200.
        multiprocessors: usize,
    },
}

impl Model {
    /// What the chooser may take here: the names that records have, with their prices, measured where somebody did.
    pub fn prices(self) -> Vec<(&'static str, Price)> {
        let priced = variants().into_iter();
        priced.filter_map(|variant| Some((variant.name, variant.price(self).ok()?))).collect()
    }

    /// The prices that hold where nobody measured.
    pub(super) fn built_in(self) -> Vec<(&'static str, Price)> {
        let priced = variants().into_iter();
        priced.filter_map(|variant| Some((variant.name, variant.built_in(self).ok()?))).collect()
    }
}

fn variants() -> Vec<Variant> {
    let mut variants = vec![];
    macro_rules! list {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            $(variants.extend(<crate::$format<f64> as Offered<f64>>::variants());)*
        };
    }
    crate::each_format!(list);
    variants
}

/// Every name that a format has.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = variants().into_iter().map(|variant| variant.name).collect();
    macro_rules! list {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            $(names.push(<crate::$format<f64> as Format<f64>>::NAME);)*
        };
    }
    crate::each_format!(list);
    names
}
