//! Prices that foretell a record: of each kernel the non-negative ones of the least squares of relative errors, drawn to the
//! prices of all kernels together,
//!
//! ```text
//! min Σ w² (p · a / t − 1)² + λ² Σⱼ mⱼ² (pⱼ − qⱼ)²,   p ≥ 0
//! ```
//!
//! over the products of the fitted half: `a` is what a product does, `t` its time, `mⱼ` the mean of `aⱼ / t`, and `q` the same
//! with λ = 0 of all kernels as if they were one. (Some kernels have few products, and those alike.) By coordinate descent: the
//! problem is convex, and five prices need no more.

use super::cases::{Case, is_symmetric};
use krysp::choice::{Price, Work};
use std::collections::BTreeMap;

/// Prices by format.
pub type Prices = BTreeMap<String, Price>;

/// How good choices should be, as ratios to the best.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// So near,
    pub near: f64,
    /// for so many of the products,
    pub share: f64,
    /// and all within this.
    pub far: f64,
}

/// Formats that one kernel computes have one price.
const ALIKE: [&str; 3] = ["SELL-P", "ELL", "ELLPACK-R"];

/// An option that takes so many times as long as the best need not be foretold well, for it is not chosen: its weight. But
/// for symmetric formats, which gain on large matrices only: from where on, the small ones tell.
const HOPELESS: (f64, f64) = (1.5, 0.15);

/// `λ`: all together weigh as much as one product.
const TOGETHER: f64 = 1.0;

/// Rounds over the prices, more than it takes.
const ROUNDS: usize = 20_000;

/// One equation, `weight (p · work_per_ms − target) = 0`: of a product, what it does for each millisecond that it takes.
#[derive(Clone, Copy)]
struct Sample {
    work_per_ms: [f64; 5],
    weight: f64,
    target: f64,
}

/// Prices of every format that is an option; of those that are, the unit is such that `per_ms` bytes are a millisecond.
pub fn fitted(cases: &[Case], prices: &Prices) -> Prices {
    let cases: Vec<&Case> = cases.iter().filter(|case| case.half() == "fitted").collect();
    let per_ms = bytes_per_ms(&cases, prices);
    let mut samples: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
    for case in &cases {
        for option in &case.options {
            let Work { bytes, gathers, rows, waits } = option.work;
            let work_per_ms = [1.0, bytes, gathers, rows, waits].map(|work| work / option.ms);
            let counts = is_symmetric(&option.format) || case.ratio(option) <= HOPELESS.0;
            let weight = if counts { 1.0 } else { HOPELESS.1 };
            samples.entry(kernel(&option.format)).or_default().push(Sample {
                work_per_ms,
                weight,
                target: 1.0,
            });
        }
    }
    let mut names: Vec<&str> = cases.iter().map(|case| &*case.matrix).collect();
    names.dedup();
    println!("fitted on {}", names.join(", "));
    let together = least_squares(&samples.values().flatten().copied().collect::<Vec<_>>());
    let price = |samples: &[Sample]| {
        let drawn = (0..5).map(|j| {
            let mean = samples.iter().map(|sample| sample.work_per_ms[j]).sum::<f64>() / samples.len() as f64;
            let work_per_ms = std::array::from_fn(|i| if i == j { mean } else { 0.0 });
            Sample { work_per_ms, weight: TOGETHER, target: mean * together[j] }
        });
        let all: Vec<Sample> = samples.iter().copied().chain(drawn).collect();
        let [start, byte, gather, row, wait] = least_squares(&all).map(|price| rounded(price * per_ms));
        Price { start, byte, gather, row, wait }
    };
    let by_kernel: BTreeMap<&str, Price> =
        samples.iter().map(|(kernel, samples)| (*kernel, price(samples))).collect();
    let of =
        |(format, old): (&String, &Price)| (format.clone(), *by_kernel.get(kernel(format)).unwrap_or(old));
    prices.iter().map(of).collect()
}

fn kernel(format: &str) -> &str {
    if ALIKE.contains(&format) { ALIKE[0] } else { format }
}

/// Three digits: more say nothing.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// Costs of the machine's millisecond, by the prices that there are: the unit stays what it was.
fn bytes_per_ms(cases: &[&Case], prices: &Prices) -> f64 {
    let known = cases.iter().flat_map(|case| &case.options);
    let logs: Vec<f64> = known
        .filter_map(|option| Some((prices.get(&option.format)?.cost(&option.work) / option.ms).ln()))
        .collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

/// `min Σ w² (p · a − b)²` with `p ≥ 0`: each price in turn, `pⱼ = max(0, pⱼ − (G p − c)ⱼ / Gⱼⱼ)` with `G = Σ w² a aᵀ`,
/// `c = Σ w² a b`, each kind of work measured in the most there is of it.
fn least_squares(samples: &[Sample]) -> [f64; 5] {
    let most: [f64; 5] = std::array::from_fn(|j| {
        let most = samples.iter().map(|sample| sample.work_per_ms[j]).fold(0.0, f64::max);
        if most > 0.0 { most } else { 1.0 }
    });
    let (mut matrix, mut right) = ([[0.0; 5]; 5], [0.0; 5]);
    for Sample { work_per_ms, weight, target } in samples {
        let scaled: [f64; 5] = std::array::from_fn(|j| weight * work_per_ms[j] / most[j]);
        for i in 0..5 {
            right[i] += weight * scaled[i] * target;
            (0..5).for_each(|j| matrix[i][j] += scaled[i] * scaled[j]);
        }
    }
    let mut prices = [0.0; 5];
    for _ in 0..ROUNDS {
        for j in 0..5 {
            if matrix[j][j] > 0.0 {
                let excess = (0..5).map(|i| matrix[j][i] * prices[i]).sum::<f64>() - right[j];
                prices[j] = f64::max(0.0, prices[j] - excess / matrix[j][j]);
            }
        }
    }
    std::array::from_fn(|j| prices[j] / most[j])
}
