//! The cost models of formats on a kind of machine: built in, or calibrated.

use super::calibrated::calibrated;
use super::{CostModel, Formats, Model};
use crate::formats::{Coefficients, Variant};
use krysp_kernels::cpu::simd::{self, Level};

impl Model {
    /// The formats that may be chosen on this machine: their names, as in `benches/record`, and their cost
    /// models, which are calibrated if there is a calibration, otherwise built in.
    pub fn cost_models(self) -> Vec<(&'static str, CostModel)> {
        let offered = Formats::<f64>::standard().variants().into_iter();
        offered.filter_map(|variant| Some((variant.name, variant.cost_model(self).ok()?))).collect()
    }

    /// The built-in cost models, which apply without calibration.
    pub(super) fn built_in(self) -> Vec<(&'static str, CostModel)> {
        let offered = Formats::<f64>::standard().variants().into_iter();
        offered.filter_map(|variant| Some((variant.name, variant.built_in(self).ok()?))).collect()
    }
}

impl Variant {
    /// Coefficients on a machine, calibrated there if a calibration exists; the error says why the variant is
    /// not offered.
    pub(super) fn cost_model(self, machine: Model) -> Result<CostModel, &'static str> {
        let built_in = self.built_in(machine)?;
        let measured = if machine == Model::Host { calibrated(self.name) } else { None };
        Ok(measured.unwrap_or(built_in))
    }

    /// Built-in coefficients, used if there is no calibration.
    pub(super) fn built_in(self, machine: Model) -> Result<CostModel, &'static str> {
        let offered = match machine {
            Model::Host => self.host,
            #[cfg(feature = "cuda")]
            Model::Gpu { .. } => self.gpu,
        };
        match offered {
            Coefficients::Fixed(cost_model) => Ok(cost_model),
            Coefficients::BySimdLevel { avx512, .. } if simd::level() == Level::Avx512 => Ok(avx512),
            Coefficients::BySimdLevel { other, .. } => Ok(other),
            Coefficients::NotOffered(why) => Err(why),
        }
    }
}
