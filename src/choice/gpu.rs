//! What formats cost on a GPU.

use super::machine::{Costs, Refresh};
use super::{RowStatistics, Stored};
use crate::cuda::OnCuda;
use crate::formats::{HybOptions, OnDevice, SellOptions, Strategy, Threshold};
use crate::{Bsr, Coo, Csr, Cuda, CudaVector, Dia, Ell, EllpackR, Halo, Hyb, Real, Result, Sell};
use krysp_kernels::cuda::sliced::lanes;
use krysp_kernels::cuda::strategy::Rows;
use krysp_kernels::cuda::tuning::SLOTS_IN_FLIGHT;
use krysp_solvers::ElemOf;

/// What bytes do not tell, in microseconds: what a product of few entries takes, and what waits for memory one after the
/// other. The numbers are those of `benches/record/h200/spmv.csv`; CSR's stand beside its strategies.
mod cost {
    /// Bytes that a microsecond streams.
    pub(super) const BYTES: f64 = 4e6;
    /// A product in slices: st7_0.1M_nat, el3_0.3M_nat.
    pub(super) const SLICES: f64 = 3.3;
    /// Slices against the bandwidth: el3_10M_perm.
    pub(super) const SLICES_FACTOR: f64 = 1.1;
    /// A lane waits so long for each 8 entries that it asks for at once: circuit_1M, rmat_2M in SELL-P.
    pub(super) const SLICES_WAIT: f64 = 0.65;
    /// A product of blocks: el3_0.3M_nat, el3_2M_perm.
    pub(super) const BSR: f64 = 4.0;
    /// A product with windows: p1_10M_perm, el3_10M_perm.
    pub(super) const HALO: f64 = 5.0;
    /// What fetching an entry of a halo moves, against its bytes: p1_100M_perm and st7_15M_nat, as given and clustered.
    pub(super) const HALO_SECTORS: f64 = 2.5;
    /// A product of diagonals, and what it waits for each: st7_0.1M_nat, st27_0.1M_nat, el3_0.3M_nat.
    pub(super) const DIA: f64 = 2.0;
    pub(super) const DIAGONAL: f64 = 0.12;
    /// A product of coordinates, borders of chunks in a second launch: rmat_2M, circuit_1M.
    pub(super) const COO: f64 = 5.5;
    /// A product in slices, then one of coordinates: p1_0.1M_perm, circuit_1M.
    pub(super) const HYB: f64 = 9.5;
    /// Both against the bandwidth.
    pub(super) const COO_FACTOR: f64 = 1.1;
}

/// Microseconds of a product on a GPU of so many multiprocessors.
fn microseconds(rows: &RowStatistics, stored: Stored, bytes: usize, multiprocessors: usize) -> f64 {
    let stream = bytes as f64 / cost::BYTES;
    let csr = Rows { count: rows.rows, entries: rows.entries, longest: rows.longest, value: rows.value };
    let slices = || {
        let lanes = lanes(rows.rows, rows.mean(), multiprocessors);
        let waits = rows.longest.div_ceil(SLOTS_IN_FLIGHT * lanes) as f64 * cost::SLICES_WAIT;
        cost::SLICES + f64::max(stream * cost::SLICES_FACTOR, waits)
    };
    match stored {
        Stored::Csr => csr.classical(multiprocessors),
        Stored::BalancedCsr => csr.balanced(),
        Stored::Coo => cost::COO + stream * cost::COO_FACTOR,
        Stored::Hyb { .. } => cost::HYB + stream * cost::COO_FACTOR,
        Stored::Sell { .. } | Stored::Ell { .. } | Stored::EllpackR { .. } => slices(),
        Stored::Bsr { .. } => cost::BSR + stream,
        Stored::Halo { halo, .. } => {
            let halos = (halo * rows.value) as f64 * cost::HALO_SECTORS / cost::BYTES;
            let waits = rows.longest.div_ceil(SLOTS_IN_FLIGHT) as f64 * cost::SLICES_WAIT;
            cost::HALO + f64::max(stream + halos, waits)
        }
        Stored::Dia { diagonals } => cost::DIA + f64::max(stream, diagonals as f64 * cost::DIAGONAL),
    }
}

impl<T: Real> Costs<T> for Cuda {
    type Vector = CudaVector<T>;

    fn slice_height(&self) -> usize {
        32
    }

    fn has_windows(&self) -> bool {
        true
    }

    fn cost(&self, rows: &RowStatistics, stored: Stored, bytes: usize) -> Option<f64> {
        Some(microseconds(rows, stored, bytes, self.device().multiprocessors()) * cost::BYTES)
    }

    fn store(&self, csr: &Csr<T>, stored: Stored) -> Result<Box<dyn Refresh<CudaVector<T>>>> {
        Ok(match stored {
            Stored::Csr => Box::new(Csr::on_with(self, csr, Strategy::Classical)?),
            Stored::BalancedCsr => Box::new(Csr::on_with(self, csr, Strategy::LoadBalance)?),
            Stored::Coo => Box::new(Coo::on(self, csr)?),
            Stored::Sell { .. } => Box::new(Sell::on_with(self, csr, SellOptions::new::<T>())?),
            Stored::Ell { .. } => Box::new(Ell::on(self, csr)?),
            Stored::EllpackR { .. } => Box::new(EllpackR::on(self, csr)?),
            Stored::Hyb { width, .. } => {
                let options = HybOptions { threshold: Threshold::Columns(width) };
                Box::new(Hyb::on_with(self, csr, options)?)
            }
            Stored::Bsr { size } => Box::new(Bsr::on_with(self, csr, Some(size))?),
            Stored::Halo { size, .. } => Box::new(Halo::on_with(self, csr, Some(size))?),
            Stored::Dia { .. } => Box::new(Dia::on(self, csr)?),
        })
    }
}

impl<T: Real, F: OnDevice<T>> Refresh<CudaVector<T>> for OnCuda<T, F> {
    fn refresh(&mut self, values: &[ElemOf<CudaVector<T>>]) -> Result<()> {
        OnCuda::refresh(self, values)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, layouts};
    use super::*;
    use crate::testing::matrices::named;

    /// What would be chosen on a GPU of 132 multiprocessors.
    fn choose<T: Real>(name: &str) -> Choice {
        let csr = named(name).unwrap().csr::<T>().unwrap();
        Choice::new(layouts::of(&csr, 32, true), |rows, stored, bytes| {
            Some(microseconds(rows, stored, bytes, 132) * cost::BYTES)
        })
    }

    /// Within 15 % of the fastest in `benches/record/h200/spmv.csv`.
    #[test]
    fn choices_are_the_fastest_of_the_record() {
        for (name, fastest) in [
            ("st7_0.1M_nat", "DIA"),
            ("st27_0.1M_nat", "CSR"),
            ("p1_0.1M_perm", "CSR"),
            ("el3_0.3M_nat", "CSR"),
            ("el3_2M_perm", "BSR"),
            ("rmat_2M", "COO"),
            ("circuit_1M", "COO"),
        ] {
            for choice in [choose::<f64>(name), choose::<f32>(name)] {
                assert_eq!(choice.stored().format(), fastest, "{name}: {choice}");
            }
        }
    }

    #[test]
    fn a_row_much_longer_than_the_others_is_cut() {
        for (name, strategy) in [
            ("st7_2M_nat", Strategy::Classical),
            ("el3_2M_perm", Strategy::Classical),
            ("rmat_2M", Strategy::LoadBalance),
            ("circuit_1M", Strategy::LoadBalance),
        ] {
            let matrix = named(name).unwrap();
            let longest = (0..matrix.rows).map(|row| matrix.row(row).0.len()).max().unwrap();
            for value in [4, 8] {
                let rows = Rows { count: matrix.rows, entries: matrix.nnz(), longest, value };
                assert_eq!(rows.strategy(132), strategy, "{name}");
            }
        }
    }
}
