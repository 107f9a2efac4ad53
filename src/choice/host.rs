//! What formats cost on a CPU.

use super::machine::{Costs, Refresh};
use super::{Host, RowStatistics, Stored};
use crate::formats::{HybOptions, Threshold, default_height};
use crate::simd::{self, Level};
use crate::{Bsr, Coo, Csr, Dia, Ell, EllpackR, Format, Halo, HostVector, Hyb, Real, Result, Sell};
use krysp_solvers::ElemOf;

/// What bytes do not tell. The numbers are ratios of times in `benches/record/`, of `zen3-1t`, `zen3-2t` and
/// `avx512-2t`, over ratios of bytes.
mod cost {
    /// CSR ends a sum and begins another for every row, as dear as so many bytes: circuit1m against HYB, and the meshes
    /// of 14 entries a row against SELL-P.
    pub(super) const CSR_ROW: f64 = 24.0;
    /// COO adds row by row as well: circuit1m, rmat20 against CSR.
    pub(super) const COO: f64 = 1.1;
    /// HYB goes through the overflow of each chunk a second time: heat_sink and convdiff against SELL-P and CSR.
    pub(super) const HYB: f64 = 1.2;
    /// ELLPACK-R finds where each slice ends: p7_128, p27_80 against ELL.
    pub(super) const ELLPACK_R: f64 = 1.05;
    /// Blocks gather `x` once for several entries: elast55, elast_bracket.
    pub(super) const BSR: f64 = 0.9;
    /// The same with AVX-512, where other formats gather as fast: elast55.
    pub(super) const BSR_AVX512: f64 = 1.15;
    /// Diagonals gather nothing: p7_128 and elast55 with AVX-512; below, memory is the limit for all.
    pub(super) const DIA_AVX512: f64 = 0.8;
}

impl<T: Real> Costs<T> for Host {
    type Vector = HostVector<T>;

    fn slice_height(&self) -> usize {
        default_height::<T>()
    }

    fn has_windows(&self) -> bool {
        // the caches of a CPU hold what a window would
        false
    }

    fn cost(&self, rows: &RowStatistics, stored: Stored, bytes: usize) -> Option<f64> {
        let wide = simd::level() == Level::Avx512;
        let bytes = bytes as f64;
        Some(match stored {
            Stored::BalancedCsr | Stored::Halo { .. } => return None,
            Stored::Csr => bytes + cost::CSR_ROW * rows.rows as f64,
            Stored::Coo => bytes * cost::COO,
            Stored::Hyb { .. } => bytes * cost::HYB,
            Stored::EllpackR { .. } => bytes * cost::ELLPACK_R,
            Stored::Bsr { .. } => bytes * if wide { cost::BSR_AVX512 } else { cost::BSR },
            Stored::Dia { .. } => bytes * if wide { cost::DIA_AVX512 } else { 1.0 },
            Stored::Sell { .. } | Stored::Ell { .. } => bytes,
        })
    }

    fn store(&self, csr: &Csr<T>, stored: Stored) -> Result<Box<dyn Refresh<HostVector<T>>>> {
        Ok(match stored {
            Stored::Csr | Stored::BalancedCsr => Box::new(csr.clone()),
            Stored::Coo => Box::new(Coo::new(csr)?),
            Stored::Sell { .. } => Box::new(Sell::new(csr)?),
            Stored::Ell { .. } => Box::new(Ell::new(csr)?),
            Stored::EllpackR { .. } => Box::new(EllpackR::new(csr)?),
            Stored::Hyb { width, .. } => {
                Box::new(Hyb::with(csr, HybOptions { threshold: Threshold::Columns(width) })?)
            }
            Stored::Bsr { size } => Box::new(Bsr::with_blocks(csr, size)?),
            Stored::Halo { size, .. } => Box::new(Halo::with_nodes(csr, size)?),
            Stored::Dia { .. } => Box::new(Dia::new(csr)?),
        })
    }
}

impl<T: Real, F: Format<T>> Refresh<HostVector<T>> for F {
    fn refresh(&mut self, values: &[ElemOf<HostVector<T>>]) -> Result<()> {
        Format::refresh(self, values)
    }
}
