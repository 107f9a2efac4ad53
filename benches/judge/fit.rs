//! Fits the coefficients of the formats' cost models to measured SpMV times (`spmv.csv` of a machine). Solves, for each
//! kernel, a non-negative least-squares problem of relative errors:
//!
//! ```text
//! min Σ w² (p · a / t − 1)² + λ² Σⱼ mⱼ² (pⱼ − qⱼ)²,   p ≥ 0
//! ```
//!
//! The first sum is over the SpMVs measured with one half of the matrices; the other half tests the fit. `p`
//! are the coefficients of the kernel; `a` is the work of an SpMV (1, bytes, gathers, rows, waits; see
//! [`ProductWork`]) and `t` its time. Waits are memory latencies that a thread waits for one after the other.
//! The weight `w` is 1, or less for slow options ([`SLOW_OPTIONS`]). `mⱼ` is the mean of `aⱼ / t`, and `q`
//! the solution with λ = 0 for all kernels together. The regularization towards `q` helps kernels with few or
//! similar measurements. The solver is coordinate descent, which is enough for a convex problem with five
//! coefficients.

use super::cases::{Case, is_symmetric};
use krysp::choice::{CostModel, ProductWork};
use std::collections::BTreeMap;

/// Coefficients by format.
pub type CostModels = BTreeMap<String, CostModel>;

/// Quality requirements for choices, as ratios of times to the best.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// The ratio that most choices should not exceed.
    pub near: f64,
    /// Fraction of the choices whose ratio should be at most `near`.
    pub share: f64,
    /// The ratio that no choice may exceed.
    pub far: f64,
}

/// Formats with the same kernel share a cost model.
const ONE_KERNEL: [&str; 3] = ["SELL-P", "ELL", "ELLPACK-R"];

/// Options (a matrix in one format) that take more than 1.5 times the best time for the matrix have the weight 0.15:
/// they are not chosen, so their time need not be predicted well. Symmetric formats keep their full weight: they are
/// faster on large matrices only, and their times on small ones are needed to find where they become faster.
const SLOW_OPTIONS: (f64, f64) = (1.5, 0.15);

/// `λ`: weight of the regularization, equal to that of one measured SpMV.
const REGULARIZATION: f64 = 1.0;

/// Number of sweeps of coordinate descent over the five coefficients, more than enough to converge.
const ROUNDS: usize = 20_000;

/// One row of the least-squares problem, `weight (p · work_per_ms − target) = 0`. For a measured SpMV,
/// `work_per_ms` is its work divided by its time.
#[derive(Clone, Copy)]
struct Sample {
    work_per_ms: [f64; 5],
    weight: f64,
    target: f64,
}

/// Fits the cost models of all formats that were measured in the cases (matrices) used for fitting; other formats keep
/// theirs. Costs are scaled so that a millisecond costs on average as much as with the present `cost_models`.
pub fn fitted(cases: &[Case], cost_models: &CostModels) -> CostModels {
    let cases: Vec<&Case> = cases.iter().filter(|case| case.half() == "fitted").collect();
    let per_ms = bytes_per_ms(&cases, cost_models);
    let mut samples: BTreeMap<&str, Vec<Sample>> = BTreeMap::new();
    for case in &cases {
        for option in &case.options {
            let ProductWork { bytes, gathers, rows, waits } = option.work;
            let work_per_ms = [1.0, bytes, gathers, rows, waits].map(|work| work / option.ms);
            let counts = is_symmetric(&option.format) || case.ratio(option) <= SLOW_OPTIONS.0;
            let weight = if counts { 1.0 } else { SLOW_OPTIONS.1 };
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
    let cost_model = |samples: &[Sample]| {
        let drawn = (0..5).map(|j| {
            let mean = samples.iter().map(|sample| sample.work_per_ms[j]).sum::<f64>() / samples.len() as f64;
            let work_per_ms = std::array::from_fn(|i| if i == j { mean } else { 0.0 });
            Sample { work_per_ms, weight: REGULARIZATION, target: mean * together[j] }
        });
        let all: Vec<Sample> = samples.iter().copied().chain(drawn).collect();
        let [start, byte, gather, row, wait] =
            least_squares(&all).map(|cost_model| rounded(cost_model * per_ms));
        CostModel { start, byte, gather, row, wait }
    };
    let by_kernel: BTreeMap<&str, CostModel> =
        samples.iter().map(|(kernel, samples)| (*kernel, cost_model(samples))).collect();
    let of = |(format, old): (&String, &CostModel)| {
        (format.clone(), *by_kernel.get(kernel(format)).unwrap_or(old))
    };
    cost_models.iter().map(of).collect()
}

fn kernel(format: &str) -> &str {
    if ONE_KERNEL.contains(&format) { ONE_KERNEL[0] } else { format }
}

/// Rounds to three digits; further digits have no meaning.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// Cost of a millisecond according to the present coefficients: the geometric mean of cost over time. Scaling by
/// it keeps the unit of the coefficients.
fn bytes_per_ms(cases: &[&Case], cost_models: &CostModels) -> f64 {
    let known = cases.iter().flat_map(|case| &case.options);
    let logs: Vec<f64> = known
        .filter_map(|option| Some((cost_models.get(&option.format)?.cost(&option.work) / option.ms).ln()))
        .collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

/// Solves `min Σ w² (p · a − b)²` over the samples (`w = weight`, `a = work_per_ms`, `b = target`) with `p ≥ 0` coefficient by
/// coefficient: `pⱼ = max(0, pⱼ − (G p − c)ⱼ / Gⱼⱼ)` with `G = Σ w² a aᵀ`, `c = Σ w² a b`. Each kind of work is scaled by its
/// maximum.
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
    let mut coefficients = [0.0; 5];
    for _ in 0..ROUNDS {
        for j in 0..5 {
            if matrix[j][j] > 0.0 {
                let excess = (0..5).map(|i| matrix[j][i] * coefficients[i]).sum::<f64>() - right[j];
                coefficients[j] = f64::max(0.0, coefficients[j] - excess / matrix[j][j]);
            }
        }
    }
    std::array::from_fn(|j| coefficients[j] / most[j])
}
