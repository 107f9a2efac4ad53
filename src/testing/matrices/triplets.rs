//! Matrices of any shape as triplets, and the reference product that every format is compared with.

use super::numbers::SplitMix;
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use std::collections::BTreeSet;

/// A matrix as a list of entries in any order. Repeated entries are added up.
#[derive(Clone, Debug, PartialEq)]
pub struct Triplets {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Row, column and value of each entry.
    pub entries: Vec<(u32, u32, f64)>,
}

impl Triplets {
    /// Converts to [`Csr`].
    pub fn csr<T: Real>(&self) -> Result<Csr<T>> {
        let entries: Vec<(u32, u32, T)> =
            self.entries.iter().map(|&(i, j, v)| (i, j, T::from_f64(v))).collect();
        Csr::from_triplets(self.rows, self.cols, &entries)
    }

    /// The sums `Σ a x` and `Σ |a x|` of each row: the product, and the scale of its rounding error. Rounding
    /// errors of products and sums are added up as well (two-product, two-sum), so each sum is as accurate as
    /// if computed in twice the precision and then rounded.
    ///
    /// `x` must have `cols` entries.
    pub fn product_reference(&self, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut products = vec![Compensated::default(); self.rows];
        let mut magnitudes = products.clone();
        for &(row, column, value) in &self.entries {
            let x = x[column as usize];
            products[row as usize].add_product(value, x);
            magnitudes[row as usize].add_product(value.abs(), x.abs());
        }
        let rounded = |sums: Vec<Compensated>| sums.into_iter().map(Compensated::value).collect();
        (rounded(products), rounded(magnitudes))
    }

    /// Swaps rows and columns. The order of the entries is kept.
    pub fn transposed(&self) -> Self {
        let entries = self.entries.iter().map(|&(row, column, value)| (column, row, value)).collect();
        Self { rows: self.cols, cols: self.rows, entries }
    }

    /// Shuffles the entries, in a different order for every seed.
    pub fn shuffled(mut self, seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        for last in (1..self.entries.len()).rev() {
            self.entries.swap(last, random.below(last as u64 + 1) as usize);
        }
        self
    }
}

/// A sum and the sum of its rounding errors.
#[derive(Clone, Copy, Default)]
struct Compensated {
    sum: f64,
    error: f64,
}

impl Compensated {
    fn add_product(&mut self, a: f64, b: f64) {
        let product = a * b;
        let sum = self.sum + product;
        let added = sum - self.sum;
        self.error += a.mul_add(b, -product) + ((self.sum - (sum - added)) + (product - added));
        self.sum = sum;
    }

    /// The sum. Infinities and NaN have no rounding error and are returned unchanged.
    fn value(self) -> f64 {
        if self.sum.is_finite() { self.sum + self.error } else { self.sum }
    }
}

/// A random value in ±[0.5, 1.5), which no algorithm treats specially.
pub(super) fn ordinary(random: &mut SplitMix) -> f64 {
    let magnitude = 0.5 + random.unit();
    if random.bits() & 1 == 0 { magnitude } else { -magnitude }
}

/// A `rows` x `cols` matrix of which about the fraction `density` is nonzero, at random positions, sorted by
/// row and column, with values in ±[0.5, 1.5).
pub fn random(rows: usize, cols: usize, density: f64, seed: u64) -> Triplets {
    let mut draws = SplitMix::new(seed);
    let expected = density.clamp(0.0, 1.0) * cols as f64;
    random_rows(rows, cols, seed, |_| ((expected + draws.unit()) as usize).min(cols))
}

/// A `rows` x `cols` matrix with exactly `length(row)` entries in a row (at most `cols`), at random positions, sorted
/// by row and column.
pub fn random_rows(rows: usize, cols: usize, seed: u64, mut length: impl FnMut(usize) -> usize) -> Triplets {
    let mut entries = Vec::new();
    for row in 0..rows {
        let mut random = SplitMix::new(seed ^ (row as u64) << 20);
        for column in distinct(length(row).min(cols), cols, &mut random) {
            entries.push((row as u32, column, ordinary(&mut random)));
        }
    }
    Triplets { rows, cols, entries }
}

/// `count` distinct random numbers below `bound`, ascending. Floyd's sampling needs no retries, even if
/// `count` is close to `bound`.
fn distinct(count: usize, bound: usize, random: &mut SplitMix) -> BTreeSet<u32> {
    let mut chosen = BTreeSet::new();
    for last in bound - count..bound {
        let draw = random.below(last as u64 + 1) as u32;
        if !chosen.insert(draw) {
            chosen.insert(last as u32);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_survives_cancellation() {
        let row = [1e16, 1.0, -1e16, 1.0, 3.0 * f64::EPSILON];
        let entries = row.iter().enumerate().map(|(column, &value)| (0, column as u32, value)).collect();
        let triplets = Triplets { rows: 2, cols: 5, entries };
        let (products, magnitudes) = triplets.product_reference(&[1.0; 5]);
        // Both results are correctly rounded: 2 + 3ε is a tie, 2e16 + 2 + 3ε lies above one.
        assert_eq!(products, [2.0 + 4.0 * f64::EPSILON, 0.0]);
        assert_eq!(magnitudes, [2e16 + 4.0, 0.0]);

        // (1 + ε)(1 − ε) − 1 = −ε², which rounding the product to f64 would lose.
        let e = f64::EPSILON;
        let triplets = Triplets { rows: 1, cols: 2, entries: vec![(0, 0, 1.0 + e), (0, 1, -1.0)] };
        assert_eq!(triplets.product_reference(&[1.0 - e, 1.0]).0, [-e * e]);
    }

    #[test]
    fn the_reference_returns_infinities_and_nan() {
        let triplets = Triplets { rows: 2, cols: 2, entries: vec![(0, 0, 1.0), (1, 0, 1.0), (1, 1, 1.0)] };
        let (products, magnitudes) = triplets.product_reference(&[f64::NEG_INFINITY, f64::NAN]);
        assert_eq!(products[0], f64::NEG_INFINITY);
        assert_eq!(magnitudes[0], f64::INFINITY);
        assert!(products[1].is_nan() && magnitudes[1].is_nan());
    }

    #[test]
    fn the_reference_sums_repeats() {
        let triplets = Triplets { rows: 1, cols: 1, entries: vec![(0, 0, 2.0), (0, 0, -0.5), (0, 0, 0.0)] };
        assert_eq!(triplets.product_reference(&[2.0]), (vec![3.0], vec![5.0]));
    }

    #[test]
    fn random_has_the_density_asked_for_and_sorted_distinct_entries() {
        for (rows, cols, density) in
            [(0, 5, 0.5), (5, 0, 0.5), (200, 300, 0.01), (300, 40, 0.3), (50, 60, 1.0), (9, 9, 0.0)]
        {
            let triplets = random(rows, cols, density, 7);
            assert!(triplets.entries.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
            assert!(triplets.entries.iter().all(|&(r, c, _)| (r as usize) < rows && (c as usize) < cols));
            let expected = rows as f64 * cols as f64 * density;
            assert!(
                (triplets.entries.len() as f64 - expected).abs() <= 3.0 * (rows as f64).sqrt(),
                "{rows} x {cols}"
            );
            assert_eq!(triplets, random(rows, cols, density, 7));
        }
        assert_ne!(random(20, 20, 0.2, 1), random(20, 20, 0.2, 2));
    }

    #[test]
    fn shuffling_and_transposing_keep_the_matrix() {
        let triplets = random(30, 20, 0.2, 1);
        let shuffled = triplets.clone().shuffled(5);
        assert_ne!(triplets, shuffled);
        let mut sorted = shuffled.entries;
        sorted.sort_by_key(|&(row, column, _)| (row, column));
        assert_eq!(sorted, triplets.entries);
        assert_eq!(triplets.transposed().transposed(), triplets);
        assert_eq!((triplets.transposed().rows, triplets.transposed().cols), (20, 30));
    }
}
