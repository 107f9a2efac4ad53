//! Compressed sparse rows on a device, shared among threads by one of the strategies, and which of them suits a matrix.

use super::csr::{AHEAD, Csr, lanes};
use super::device::{Array, Device, Real};
use super::error::Result;
use super::load_balance::LoadBalance;
use super::merge::Merge;
use super::number::Scalar;
use super::ordered::Ordered;
use super::product::{Pattern, Product, Shape};
use super::speculative::Speculative;
use crate::strategy::Strategy;
use rayon::prelude::*;

/// What bytes alone do not tell of a product, in microseconds and bytes a microsecond. From `benches/record/h200/spmv.csv`,
/// f64: circuit_1M (longest row 126,000, two lanes each) and rmat_2M in CSR and in CSR load-balance, el3_0.3M_nat and
/// el3_10M_perm in CSR.
mod cost {
    /// A lane waits so long for each [`AHEAD`](super::AHEAD) entries that it asks for at once.
    pub(super) const WAIT: f64 = 0.6;
    /// A product of few entries, one thread or more a row.
    pub(super) const CLASSICAL: f64 = 2.9;
    /// The bytes that all threads read, one or more a row.
    pub(super) const CLASSICAL_RATE: f64 = 3.2e6;
    /// A product of few entries, cut by entries: rmat_2M, circuit_1M.
    pub(super) const BALANCED: f64 = 8.5;
    /// The bytes that all threads read, cut by entries: el3_100M_perm, p1_100M_perm.
    pub(super) const BALANCED_RATE: f64 = 2.6e6;
}

/// The rows of a matrix, as far as they decide how threads share them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rows {
    /// How many.
    pub count: usize,
    /// Entries of all.
    pub entries: usize,
    /// Entries of the longest.
    pub longest: usize,
    /// Bytes of an entry's value.
    pub value: usize,
}

impl Rows {
    fn of<T>(pattern: Pattern<'_>) -> Rows {
        let (count, entries) = (pattern.rows(), pattern.entries());
        let longest = (0..count).into_par_iter().map(|row| pattern.row(row).len()).max();
        Rows { count, entries, longest: longest.unwrap_or(0), value: size_of::<T>() }
    }

    /// Bytes of offsets, columns and values.
    fn bytes(self) -> f64 {
        (self.count * 4 + self.entries * (4 + self.value)) as f64
    }

    /// Microseconds of a product by [`Strategy::Classical`]: those of all entries, or of the longest row.
    pub fn classical(self, multiprocessors: usize) -> f64 {
        let mean = self.entries as f64 / self.count.max(1) as f64;
        let lanes = lanes(self.count, mean, multiprocessors) as usize;
        let waits = self.longest.div_ceil(lanes * AHEAD) as f64;
        cost::CLASSICAL + f64::max(self.bytes() / cost::CLASSICAL_RATE, waits * cost::WAIT)
    }

    /// Microseconds of a product by [`Strategy::LoadBalance`], whatever the rows.
    pub fn balanced(self) -> f64 {
        cost::BALANCED + self.bytes() / cost::BALANCED_RATE
    }

    /// What [`Strategy::Automatic`] is for these rows: the others are slower than one of these two wherever the record has
    /// them.
    pub fn strategy(self, multiprocessors: usize) -> Strategy {
        match self.classical(multiprocessors) <= self.balanced() {
            true => Strategy::Classical,
            false => Strategy::LoadBalance,
        }
    }
}

/// Compressed sparse rows, shared one way or another.
#[derive(Debug)]
pub struct AnyCsr<T: Real>(Box<dyn Product<T>>);

impl<T: Real> AnyCsr<T> {
    /// A matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], strategy: Strategy) -> Result<Self> {
        let strategy = match strategy {
            Strategy::Automatic => Rows::of::<T>(pattern).strategy(device.multiprocessors()),
            chosen => chosen,
        };
        Ok(AnyCsr(match strategy {
            Strategy::LoadBalance => Box::new(LoadBalance::new(device, pattern, values)?),
            Strategy::MergePath => Box::new(Merge::new(device, pattern, values)?),
            Strategy::Speculative => Box::new(Speculative::new(device, pattern, values)?),
            Strategy::Automatic | Strategy::Classical => Box::new(Csr::new(device, pattern, values)?),
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

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        self.0.fill(pattern, values)
    }

    fn entries(&self, pattern: Pattern<'_>, values: &mut [T]) -> Result<()> {
        self.0.entries(pattern, values)
    }

    fn slots(&mut self) -> Vec<&mut Array<T>> {
        self.0.slots()
    }

    fn take(&mut self, ordered: &Ordered<T>) -> Result<()> {
        self.0.take(ordered)
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn reproducible(&self) -> bool {
        self.0.reproducible()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_row_decides() {
        let strategy = |count, entries, longest| Rows { count, entries, longest, value: 8 }.strategy(132);
        // meshes, however large
        for (rows, mean) in [(0, 0), (1, 1), (20_000, 7), (14_000_000, 7), (4_000, 66), (1_200_000, 79)] {
            assert_eq!(strategy(rows, rows * mean, mean + 20), Strategy::Classical, "{rows}");
        }
        // a dense row among short ones, a vector
        assert_eq!(strategy(200_000, 1_359_203, 126_000), Strategy::LoadBalance);
        assert_eq!(strategy(1, 10_000_000, 10_000_000), Strategy::LoadBalance);
        // the longer all take, the longer a row may be
        let longest = |rows: usize| (1..).find(|&l| strategy(rows, 7 * rows, l) == Strategy::LoadBalance);
        assert!(longest(10_000) < longest(10_000_000));
    }
}
