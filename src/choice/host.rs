//! What formats cost on a CPU.

use super::machine::{Refresh, Stores};
use super::model::Prices;
use super::{Host, Model, Price, Stored};
use crate::formats::{HybOptions, Threshold};
use crate::simd::{self, Level};
use crate::{
    Bsr, Coo, Csr, Dia, Ell, EllpackR, Format, Halo, HostVector, Hyb, Origin, Real, Result, Sell, SymBsr,
    SymCsr,
};
use krysp_solvers::ElemOf;

/// Ratios of times over ratios of bytes in the records zen3-1t, zen3-2t and avx512-2t; judged by
/// `cargo bench --features cuda --bench judge -- zen3-2t`. Rows of symmetric formats cost much: their sums go to memory and back,
/// and in f32 they take nearly as long as in f64.
const PRICES: Prices = &[
    ("CSR", Price { start: 0.0, byte: 1.0, gather: 0.0, row: 24.0, wait: 0.0 }),
    ("COO", Price { start: 0.0, byte: 1.1, gather: 0.0, row: 0.0, wait: 0.0 }),
    ("SELL-P", Price { start: 0.0, byte: 1.0, gather: 0.0, row: 0.0, wait: 0.0 }),
    ("ELL", Price { start: 0.0, byte: 1.0, gather: 0.0, row: 0.0, wait: 0.0 }),
    ("ELLPACK-R", Price { start: 0.0, byte: 1.05, gather: 0.0, row: 0.0, wait: 0.0 }),
    ("HYB", Price { start: 0.0, byte: 1.2, gather: 0.0, row: 0.0, wait: 0.0 }),
    ("BSR", Price { start: 0.0, byte: 0.9, gather: 0.0, row: 0.0, wait: 0.0 }),
    ("symmetric CSR", Price { start: 0.0, byte: 1.25, gather: 0.0, row: 60.0, wait: 0.0 }),
    ("symmetric BSR", Price { start: 0.0, byte: 0.7, gather: 0.0, row: 165.0, wait: 0.0 }),
    ("DIA", Price { start: 0.0, byte: 1.0, gather: 0.0, row: 0.0, wait: 0.0 }),
];

/// With AVX-512 other formats gather as fast as blocks, and diagonals, which gather nothing, run ahead: elast55 and p7_128 in
/// `benches/record/avx512-2t`, and elast_bracket_p1_59k for symmetric blocks.
const PRICES_AVX512: Prices = &[
    ("BSR", Price { start: 0.0, byte: 1.15, gather: 0.0, row: 0.0, wait: 0.0 }),
    ("symmetric BSR", Price { start: 0.0, byte: 0.9, gather: 0.0, row: 110.0, wait: 0.0 }),
    ("DIA", Price { start: 0.0, byte: 0.8, gather: 0.0, row: 0.0, wait: 0.0 }),
];

/// Those of this program's CPU, the first that has a format.
pub(super) fn prices() -> [Prices; 2] {
    match simd::level() {
        Level::Avx512 => [PRICES_AVX512, PRICES],
        _ => [PRICES, &[]],
    }
}

impl<T: Real> Stores<T> for Host {
    type Vector = HostVector<T>;

    fn model(&self) -> Model {
        Model::Host
    }

    fn store(&self, csr: &Csr<T>, stored: Stored) -> Result<Box<dyn Refresh<HostVector<T>>>> {
        Ok(match stored {
            Stored::Csr { .. } => Box::new(csr.clone()),
            Stored::Coo | Stored::Slabs { .. } => Box::new(Coo::new(csr)?),
            Stored::Sell { .. } => Box::new(Sell::new(csr)?),
            Stored::Ell { .. } => Box::new(Ell::new(csr)?),
            Stored::EllpackR { .. } => Box::new(EllpackR::new(csr)?),
            Stored::Hyb { width, .. } => {
                Box::new(Hyb::with(csr, HybOptions { threshold: Threshold::Columns(width) })?)
            }
            Stored::Bsr { size } => Box::new(Bsr::with_blocks(csr, size)?),
            Stored::Halo { size, .. } => Box::new(Halo::with_nodes(csr, size)?),
            Stored::SymCsr => Box::new(SymCsr::new(csr)?),
            Stored::SymBsr { size, .. } => Box::new(SymBsr::with_blocks(csr, size)?),
            Stored::Dia { .. } => Box::new(Dia::new(csr)?),
        })
    }
}

impl<T: Real, F: Format<T> + Clone + 'static> Refresh<HostVector<T>> for F {
    fn refresh(&mut self, values: &[ElemOf<HostVector<T>>]) -> Result<()> {
        Format::refresh(self, values)
    }

    fn origin(&self) -> &dyn Origin<T> {
        self
    }
}
