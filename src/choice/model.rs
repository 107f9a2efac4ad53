//! What the chooser must know of a machine: nothing that asks for the machine itself.

use super::Price;
use crate::formats::Offered;

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
    /// What the chooser may take here: the names that records have, with their prices.
    pub fn prices(self) -> Vec<(&'static str, Price)> {
        let mut variants = vec![];
        macro_rules! list {
            ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
                $(variants.extend(<crate::$format<f64> as Offered<f64>>::variants());)*
            };
        }
        crate::each_format!(list);
        let priced =
            variants.into_iter().filter_map(|variant| Some((variant.name, variant.price(self).ok()?)));
        priced.collect()
    }
}
