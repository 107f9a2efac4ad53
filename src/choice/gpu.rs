//! What formats cost on a GPU.

use super::machine::{Refresh, Stores};
use super::model::Prices;
use super::{Model, Price, RowStatistics, Stored, Work};
use crate::cuda::OnCuda;
use crate::formats::{Crossing, HybOptions, OnDevice, SellOptions, Threshold};
use crate::{
    Bsr, Coo, Csr, Cuda, CudaVector, Dia, Ell, EllpackR, Halo, Hyb, Origin, Real, Result, Sell, SymBsr,
    SymCsr,
};
use krysp_kernels::cuda::csr::Rows;
use krysp_kernels::cuda::tuning::{BLOCKS_IN_FLIGHT, CSR_PRICES, SLOTS_IN_FLIGHT};
use krysp_kernels::cuda::{formats::bsr, formats::sliced, formats::symmetric};
use krysp_solvers::ElemOf;

/// `cargo bench --features cuda --bench judge -- h200 --fit`, from the matrices of that record that it names. Those of CSR stand beside its
/// strategies. Those of COO, and the starts of slabs and DIA, were moved by hand, to the middle of those at which the worst choice of
/// the fitted half is best: the least squares take too little of what is small.
const PRICES: Prices = &[
    ("COO", Price { start: 14.5e6, byte: 0.82, gather: 13.5, row: 14.0, wait: 0.0 }),
    ("COO slabs", Price { start: 20e6, byte: 0.768, gather: 5.0, row: 0.0, wait: 0.0 }),
    ("SELL-P", Price { start: 9.56e6, byte: 0.7, gather: 10.6, row: 0.0, wait: 3.41e6 }),
    ("ELL", Price { start: 9.56e6, byte: 0.7, gather: 10.6, row: 0.0, wait: 3.41e6 }),
    ("ELLPACK-R", Price { start: 9.56e6, byte: 0.7, gather: 10.6, row: 0.0, wait: 3.41e6 }),
    ("HYB", Price { start: 40.1e6, byte: 0.829, gather: 11.4, row: 45.8, wait: 0.0 }),
    ("BSR", Price { start: 15.5e6, byte: 0.888, gather: 3.8, row: 0.0, wait: 0.302e6 }),
    ("Halo", Price { start: 17.7e6, byte: 0.888, gather: 11.6, row: 0.0, wait: 0.696e6 }),
    ("symmetric BSR", Price { start: 59.9e6, byte: 0.608, gather: 20.3, row: 0.0, wait: 1.49e6 }),
    ("DIA", Price { start: 10.5e6, byte: 0.881, gather: 0.0, row: 0.0, wait: 0.128e6 }),
];

/// The price of a format.
pub(super) fn price(format: &str) -> Option<Price> {
    let strategies = CSR_PRICES.iter().map(|&(strategy, price)| (Stored::Csr { strategy }.format(), price));
    let mut priced = strategies.chain(PRICES.iter().copied());
    priced.find(|priced| priced.0 == format).map(|priced| priced.1)
}

/// What a product does on a GPU of so many multiprocessors, apart from what it does on any machine: how often a lane that has
/// most to do waits for what it asks for at once.
pub(super) fn work(rows: &RowStatistics, stored: Stored, any: Work, multiprocessors: usize) -> Work {
    let waits = match stored {
        Stored::Csr { strategy } => {
            let RowStatistics { rows: count, entries, longest, value, scattering, .. } = *rows;
            Rows { count, entries, longest, value, scattering }.work(strategy, multiprocessors).waits
        }
        Stored::Sell { .. } | Stored::Ell { .. } | Stored::EllpackR { .. } => {
            let lanes = sliced::lanes(rows.rows, rows.mean(), multiprocessors);
            rows.longest.div_ceil(SLOTS_IN_FLIGHT * lanes) as f64
        }
        Stored::Halo { .. } => rows.longest.div_ceil(SLOTS_IN_FLIGHT) as f64,
        Stored::Dia { diagonals } => diagonals as f64,
        Stored::Bsr { size } => {
            let lanes = bsr::lanes(rows.rows / size, rows.mean() / size as f64, multiprocessors);
            rows.longest.div_ceil(size).div_ceil(BLOCKS_IN_FLIGHT * lanes) as f64
        }
        // a thread has its nodes one after the other, and owns half of their pairs
        Stored::SymBsr { size, .. } => {
            let pairs = rows.longest.div_ceil(size).div_ceil(2);
            (symmetric::nodes_of_thread(size, rows.value) * pairs) as f64
        }
        Stored::SymCsr | Stored::Coo | Stored::Slabs { .. } | Stored::Hyb { .. } => 0.0,
    };
    Work { waits, ..any }
}

impl<T: Real> Stores<T> for Cuda {
    type Vector = CudaVector<T>;

    fn model(&self) -> Model {
        Model::Gpu { multiprocessors: self.device().multiprocessors() }
    }

    fn store(&self, csr: &Csr<T>, stored: Stored) -> Result<Box<dyn Refresh<CudaVector<T>>>> {
        Ok(match stored {
            Stored::Csr { strategy } => Box::new(Csr::on_with(self, csr, strategy)?),
            Stored::Coo => Box::new(Coo::on(self, csr)?),
            Stored::Slabs { .. } => Box::new(Coo::on_with(self, csr, Crossing::Slabs)?),
            Stored::Sell { .. } => Box::new(Sell::on_with(self, csr, SellOptions::new::<T>())?),
            Stored::Ell { .. } => Box::new(Ell::on(self, csr)?),
            Stored::EllpackR { .. } => Box::new(EllpackR::on(self, csr)?),
            Stored::Hyb { width, .. } => {
                let options = HybOptions { threshold: Threshold::Columns(width) };
                Box::new(Hyb::on_with(self, csr, options)?)
            }
            Stored::Bsr { size } => Box::new(Bsr::on_with(self, csr, Some(size))?),
            Stored::Halo { size, .. } => Box::new(Halo::on_with(self, csr, Some(size))?),
            Stored::SymCsr => Box::new(SymCsr::on(self, csr)?),
            Stored::SymBsr { size, .. } => Box::new(SymBsr::on_with(self, csr, Some(size))?),
            Stored::Dia { .. } => Box::new(Dia::on(self, csr)?),
        })
    }
}

impl<T: Real, F: OnDevice<T>> Refresh<CudaVector<T>> for OnCuda<T, F> {
    fn refresh(&mut self, values: &[ElemOf<CudaVector<T>>]) -> Result<()> {
        OnCuda::refresh(self, values)
    }

    fn origin(&self) -> &dyn Origin<T> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Choice;
    use crate::formats::Strategy;
    use crate::testing::matrices::named;

    const H200: Model = Model::Gpu { multiprocessors: 132 };

    /// What would be chosen on an H200.
    fn choose<T: Real>(name: &str) -> Choice {
        Choice::of(&named(name).unwrap().csr::<T>().unwrap(), H200)
    }

    /// Where values stay symmetric.
    fn choose_symmetric<T: Real>(name: &str) -> Choice {
        Choice::of_symmetric(&named(name).unwrap().csr::<T>().unwrap(), H200).unwrap()
    }

    /// The format that a table of `cargo bench --features cuda --bench judge -- h200` has of a matrix as it is given.
    fn assert_in_table(table: &str, name: &str, element: &str, choice: &Choice) {
        let mut rows = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let row = rows.find(|row| row[..3] == [name, "given", element]);
        assert_eq!(row.map(|row| row[4]), Some(choice.stored().format()), "{name} {element}: {choice}");
    }

    /// The tables say how far from the fastest each is.
    #[test]
    fn choices_are_those_of_the_tables() {
        let table = include_str!("../../benches/record/h200/auto.csv");
        let small = [
            "st7_0.1M_nat",
            "st27_0.1M_nat",
            "p1_0.1M_perm",
            "el3_0.3M_nat",
            "el3_2M_perm",
            "rmat_2M",
            "circuit_1M",
        ];
        for name in small {
            assert_in_table(table, name, "f64", &choose::<f64>(name));
            assert_in_table(table, name, "f32", &choose::<f32>(name));
        }
        let table = include_str!("../../benches/record/h200/symmetric.csv");
        for name in &small[..5] {
            assert_in_table(table, name, "f64", &choose_symmetric::<f64>(name));
            assert_in_table(table, name, "f32", &choose_symmetric::<f32>(name));
        }
    }

    /// Pairs that are stored once gain beyond the L2 cache only: what 10 and 100 million entries take, in clusters.
    #[test]
    fn symmetric_blocks_gain_where_a_matrix_is_large() {
        let table = include_str!("../../benches/record/h200/layouts.csv");
        let cost = |matrix: &str, element: &str, format: &str| {
            let mut found = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
            let is_it = |row: &Vec<&str>| row[..4] == [matrix, "clustered", element, format];
            let row = found.rfind(is_it).unwrap();
            let number = |at: usize| row[at].parse().unwrap();
            let work = Work { bytes: number(5), gathers: number(6), rows: number(7), waits: number(8) };
            price(format).unwrap().cost(&work)
        };
        for element in ["f64", "f32"] {
            let gains = |matrix| cost(matrix, element, "symmetric BSR") < cost(matrix, element, "BSR");
            assert!(gains("el3_100M_perm") && !gains("el3_10M_perm"), "{element}");
        }
    }

    #[test]
    fn a_row_much_longer_than_the_others_is_cut() {
        for (name, is_cut) in
            [("st7_2M_nat", false), ("el3_2M_perm", false), ("rmat_2M", true), ("circuit_1M", true)]
        {
            for rows in [*choose::<f64>(name).rows(), *choose::<f32>(name).rows()] {
                let RowStatistics { rows: count, entries, longest, value, scattering, .. } = rows;
                let rows = Rows { count, entries, longest, value, scattering };
                assert_eq!(rows.strategy(132) != Strategy::Classical, is_cut, "{name}");
            }
        }
    }
}
