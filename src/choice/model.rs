//! Models of machines: the properties that the choice of a format needs, also for machines that are not
//! available.

use super::CostModel;
use crate::formats::{Format, Offered, Variant};

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The CPU that this program runs on.
    Host,
    /// An NVIDIA GPU.
    #[cfg(feature = "cuda")]
    Gpu {
        /// Number of streaming multiprocessors; 132 for an H200.
        multiprocessors: usize,
    },
}

impl Model {
    /// The formats that may be chosen on this machine: their names, as in `benches/record`, and their cost
    /// models, which are calibrated if there is a calibration, otherwise built in.
    pub fn cost_models(self) -> Vec<(&'static str, CostModel)> {
        let offered = variants().into_iter();
        offered.filter_map(|variant| Some((variant.name, variant.cost_model(self).ok()?))).collect()
    }

    /// The built-in cost models, which apply without calibration.
    pub(super) fn built_in(self) -> Vec<(&'static str, CostModel)> {
        let offered = variants().into_iter();
        offered.filter_map(|variant| Some((variant.name, variant.built_in(self).ok()?))).collect()
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

/// All names of formats and their variants.
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
