//! What a format tells the chooser: its names, its prices, and what it would take of a matrix.

use super::Format;
use crate::choice::{Analysis, Model, Price, calibrated};
use crate::simd::{self, Level};
use crate::{Real, Result};

/// A format as the chooser sees it.
pub(crate) trait Offered<T: Real>: Format<T> {
    /// Whether it stores one of two values that mirror each other, so that they must be equal and remain so.
    const SYMMETRIC: bool = false;

    /// Its names in records, and what each costs. The first is [`Format::NAME`].
    fn variants() -> Vec<Variant>;

    /// What it would take of a matrix, found without converting: one offer for each variant that comes into question. An
    /// error says why the matrix does not suit. Asked only where the first variant has a price.
    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<Self::Options>>>;
}

/// A name under which a format is recorded, and what it costs on each kind of machine.
///
/// On a CPU prices are ratios of times over ratios of bytes in the records zen3-1t, zen3-2t and avx512-2t; judged by
/// `cargo bench --features cuda --bench judge -- zen3-2t`. On a GPU they are what `judge -- h200 --fit` gives, from the
/// matrices of that record that it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    /// As records and the chooser's reasons have it.
    pub(crate) name: &'static str,
    /// On a CPU.
    pub(crate) host: Priced,
    /// On a GPU.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "asked for GPUs only"))]
    pub(crate) gpu: Priced,
}

/// What a variant costs on a kind of machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Priced {
    /// So much.
    At(Price),
    /// So much with AVX-512, and so much with other registers.
    AtLevel {
        /// With AVX-512.
        avx512: Price,
        /// With other registers.
        other: Price,
    },
    /// The chooser does not take it there, for this reason.
    ByHand(&'static str),
}

impl Variant {
    /// What it costs on a machine, measured there if somebody did, or why the chooser does not take it there.
    pub(crate) fn price(self, machine: Model) -> std::result::Result<Price, &'static str> {
        let built_in = self.built_in(machine)?;
        let measured = if machine == Model::Host { calibrated(self.name) } else { None };
        Ok(measured.unwrap_or(built_in))
    }

    /// What it costs where nobody measured.
    pub(crate) fn built_in(self, machine: Model) -> std::result::Result<Price, &'static str> {
        let priced = match machine {
            Model::Host => self.host,
            #[cfg(feature = "cuda")]
            Model::Gpu { .. } => self.gpu,
        };
        match priced {
            Priced::At(price) => Ok(price),
            Priced::AtLevel { avx512, .. } if simd::level() == Level::Avx512 => Ok(avx512),
            Priced::AtLevel { other, .. } => Ok(other),
            Priced::ByHand(why) => Err(why),
        }
    }
}

/// What a variant would take of a matrix. [`Analysis::offer`] makes one as most formats have it.
pub(crate) struct Offer<O> {
    /// Its name and its prices.
    pub(crate) variant: Variant,
    /// What was found for it, in words; may be empty.
    pub(crate) detail: String,
    /// The options to convert with.
    pub(crate) options: O,
    /// Bytes of it that a product reads, vectors apart.
    pub(crate) bytes: usize,
    /// Places for values, padding among them.
    pub(crate) slots: usize,
    /// Entries of `x` that are fetched by themselves.
    pub(crate) gathers: f64,
    /// Rows that are added up one by one; none where rows lie side by side.
    pub(crate) rows: usize,
    /// Times that a lane with most to do waits for memory, one after the other. CPUs have none.
    pub(crate) waits: usize,
}
