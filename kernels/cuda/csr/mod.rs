//! Compressed sparse rows (CSR) on a device with one of several strategies of distributing work to threads,
//! and the choice among them.

pub(crate) mod bunches;
mod by_entries;
pub mod classical;
pub mod load_balance;
pub mod merge;
pub(crate) mod scratch;
mod second_stage;
pub mod speculative;
pub(crate) mod speculative_on_host;

use crate::cost::{CostModel, ProductWork, scattering};
use crate::cuda::csr::by_entries::ByEntries;
use crate::cuda::csr::classical::{AHEAD, Csr, lanes};
use crate::cuda::csr::load_balance::LoadBalance;
use crate::cuda::csr::merge::Merge;
use crate::cuda::csr::speculative::Speculative;
use crate::cuda::device::error::Result;
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::matrix::device_csr::DeviceCsr;
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Product, Slots};
use crate::cuda::solve::number::Scalar;
use crate::cuda::tuning::CSR_COST_MODELS;
use crate::strategy::Strategy;
use rayon::prelude::*;

/// Properties of a matrix's rows that determine the best strategy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rows {
    /// Number of rows.
    pub count: usize,
    /// Number of entries.
    pub entries: usize,
    /// Entries of the longest row.
    pub longest: usize,
    /// Bytes per value.
    pub value: usize,
    /// Mean number of memory sectors of `x` read per entry ([`scattering`]).
    pub scattering: f64,
}

impl Rows {
    /// Properties of a pattern, for vectors of `T` and values stored as `V`.
    fn of<T, V>(pattern: Pattern<'_>) -> Rows {
        let (count, entries) = (pattern.rows(), pattern.entries());
        let longest = (0..count).into_par_iter().map(|row| pattern.row(row).len()).max();
        Rows {
            count,
            entries,
            longest: longest.unwrap_or(0),
            value: size_of::<V>(),
            scattering: scattering(pattern.columns(), size_of::<T>()),
        }
    }

    /// Work of a product with a strategy: bytes of offsets, columns and values, uncoalesced reads of `x`, and
    /// dependent loads. With `Classical`, all rows have the same number of lanes, so the longest row
    /// determines the number of dependent loads: one per `AHEAD` entries of a lane.
    pub fn work(self, strategy: Strategy, multiprocessors: usize) -> ProductWork {
        let waits = match strategy {
            Strategy::Classical => {
                let mean = self.entries as f64 / self.count.max(1) as f64;
                let lanes = lanes(self.count, mean, multiprocessors) as usize;
                self.longest.div_ceil(lanes * AHEAD) as f64
            }
            _ => 0.0,
        };
        ProductWork {
            bytes: (self.count * 4 + self.entries * (4 + self.value)) as f64,
            gathers: self.entries as f64 * self.scattering,
            rows: self.count as f64,
            waits,
        }
    }

    /// The strategy that [`Strategy::Automatic`] selects: the cheapest of those in [`CSR_COST_MODELS`]. For
    /// every matrix measured in `benches/record/h200`, the fastest strategy is among these.
    pub fn strategy(self, multiprocessors: usize) -> Strategy {
        let cost = |&(strategy, cost_model): &(Strategy, CostModel)| {
            cost_model.cost(&self.work(strategy, multiprocessors))
        };
        let cheapest = CSR_COST_MODELS.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
        cheapest.map_or(Strategy::Classical, |&(strategy, _)| strategy)
    }
}

/// A CSR matrix with one of the strategies.
#[derive(Debug)]
pub struct AnyCsr<T: Real>(Box<dyn Product<T>>);

impl<T: Real> AnyCsr<T> {
    /// Uploads a matrix with a value for each entry of the pattern, stored as `V`.
    pub fn new<V: Storage<T>>(
        device: &Device,
        pattern: Pattern<'_>,
        values: &[T],
        strategy: Strategy,
    ) -> Result<Self> {
        AnyCsr::of(DeviceCsr::<V>::narrowed(device, pattern, values)?, pattern, strategy)
    }

    /// Changes the strategy of a matrix on the device; `pattern` must be its pattern. The arrays of the
    /// matrix are moved, not copied; only the data of the new strategy is computed.
    pub fn prepared(csr: Csr<T>, pattern: Pattern<'_>, strategy: Strategy) -> Result<Self> {
        assert_eq!(csr.shape(), pattern.shape(), "the pattern it was made from");
        AnyCsr::of(csr.into_ordered(), pattern, strategy)
    }

    fn of<V: Storage<T>>(ordered: DeviceCsr<V>, pattern: Pattern<'_>, strategy: Strategy) -> Result<Self> {
        let strategy = match strategy {
            Strategy::Automatic => Rows::of::<T, V>(pattern).strategy(ordered.device().multiprocessors()),
            chosen => chosen,
        };
        Ok(AnyCsr(match strategy {
            Strategy::LoadBalance => Box::new(ByEntries(LoadBalance::<T, V>::of(ordered, pattern)?)),
            Strategy::MergePath => Box::new(ByEntries(Merge::<T, V>::of(ordered, pattern)?)),
            Strategy::Speculative => Box::new(ByEntries(Speculative::<T, V>::of(ordered, pattern)?)),
            Strategy::Automatic | Strategy::Classical => Box::new(Csr::<T, V>::of(ordered, pattern)?),
        }))
    }
}

impl<T: Real> Product<T> for AnyCsr<T> {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        self.0.product(x, y)
    }

    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        self.0.product_dot(x, y)
    }

    fn products(&self, x: &[&Array<T>], y: &mut [&mut Array<T>]) -> Result<()> {
        self.0.products(x, y)
    }

    fn products_dot(&self, x: &[&Array<T>], y: &mut [&mut Array<T>]) -> Result<Vec<Scalar<T>>> {
        self.0.products_dot(x, y)
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        self.0.fill(pattern, values)
    }

    fn copy_values_to(&self, pattern: Pattern<'_>, ordered: &mut DeviceCsr<T>) -> Result<()> {
        self.0.copy_values_to(pattern, ordered)
    }

    fn entries(&self, pattern: Pattern<'_>) -> Result<DeviceCsr<T>> {
        self.0.entries(pattern)
    }

    fn in_order(&self) -> Option<&DeviceCsr<T>> {
        self.0.in_order()
    }

    fn slots(&self) -> Vec<Slots> {
        self.0.slots()
    }

    fn fill_from(&mut self, pattern: Pattern<'_>, ordered: &DeviceCsr<T>) -> Result<()> {
        self.0.fill_from(pattern, ordered)
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_row_decides() {
        let strategy = |count, entries, longest| {
            Rows { count, entries, longest, value: 8, scattering: 0.5 }.strategy(132)
        };
        // meshes
        for (rows, mean) in [(0, 0), (1, 1), (20_000, 7), (2_000_000, 7), (4_000, 66), (24_000, 73)] {
            assert_eq!(strategy(rows, rows * mean, mean + 8), Strategy::Classical, "{rows}");
        }
        // a dense row among short ones; a matrix with one row
        assert_ne!(strategy(200_000, 1_359_203, 126_000), Strategy::Classical);
        assert_ne!(strategy(1, 10_000_000, 10_000_000), Strategy::Classical);
        // the choice changes once as a row grows
        let is_cut: Vec<bool> =
            (7..5000).map(|longest| strategy(20_000, 140_000, longest) != Strategy::Classical).collect();
        assert!(is_cut.is_sorted() && !is_cut[0] && is_cut[4992]);
    }
}
