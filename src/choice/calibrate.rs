//! Calibration: measures coefficients on this machine.
//!
//! ```text
//! for each of several generated matrices:  for each suitable format:  convert, and time a product
//! for each format:  the coefficients p ≥ 0 with  min Σ w² (p · a / t − 1)² + λ² Σⱼ mⱼ² (pⱼ − qⱼ)²
//! ```
//!
//! `a` is the work of a matrix-vector product (bytes, gathers, rows), `t` the number of bytes that could be
//! streamed in its time, `w` the weight of this measurement, `mⱼ` the mean of `w aⱼ / t`, and `q` the
//! built-in coefficients. The second term is a regularization: it determines coefficients that the
//! measurements do not determine.

use super::calibrated::{CostModels, keep};
use super::ranking::Values;
use super::{CostModel, Formats, Model, ProductWork};
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::permutation::Permutation;
use krysp_solvers::{LinearOperator, Space};
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

/// Number of timed products. The fastest one is used, because other programs may slow some of them.
const PRODUCTS: usize = 9;

/// A ratio and a weight: a format that takes more than 1.5 times as long as the fastest one for a matrix has
/// the weight 0.15, because it is not chosen, so that its prediction may be inaccurate. A guess.
const SLOW: (f64, f64) = (1.5, 0.15);

/// `λ`: weight of the built-in coefficients relative to one measurement. A guess.
const BUILT_IN: f64 = 0.3;

/// Number of sweeps of coordinate descent; more than enough for three coefficients.
const ROUNDS: usize = 2_000;

/// The result of [`calibrate`]. Prints as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    cost_models: CostModels,
    before: CostModels,
    path: Option<PathBuf>,
}

impl Calibration {
    /// The measured coefficients of each format.
    pub fn cost_models(&self) -> &[(&'static str, CostModel)] {
        &self.cost_models
    }

    /// The file in which the coefficients are stored; `None` without a cache folder.
    pub fn path(&self) -> Option<&std::path::Path> {
        self.path.as_deref()
    }
}

/// A measurement of one format with one matrix.
struct Sample {
    format: &'static str,
    work: ProductWork,
    seconds: f64,
    weight: f64,
}

/// Measures the cost of each format on this CPU, with the SIMD level and the number of threads of this
/// program. [`Operator::auto`](crate::Operator::auto) and plans then use these costs. Takes a few seconds and
/// about 200 MB.
///
/// The coefficients are stored in `$KRYSP_CACHE`, or in `krysp` in the user's cache folder, in a file with
/// the name of the machine. They apply immediately, and to later programs. Without calibration, built-in
/// coefficients apply, which were measured on a few machines.
///
/// Coefficients of a debug build apply to debug builds only, because their times differ.
pub fn calibrate() -> Result<Calibration> {
    let before = Model::Host.built_in();
    let mut samples = vec![];
    for (csr, values) in matrices()? {
        measure(&csr, values, &mut samples)?;
    }
    let cost_models = fitted(&samples, &before);
    let path = keep(&cost_models).map_err(|error| {
        let why =
            format!("costs of formats cannot be stored, set `KRYSP_CACHE` to a writable folder: {error}");
        Error::File { path: krysp_kernels::cache::folder().unwrap_or_default(), why }
    })?;
    Ok(Calibration { cost_models, before, path })
}

/// Measures a product in every suitable format for a matrix.
fn measure(csr: &Csr<f64>, values: Values, samples: &mut Vec<Sample>) -> Result<()> {
    let first = samples.len();
    let entries: Vec<f64> = (0..csr.cols()).map(|i| 1.0 + (i % 7) as f64).collect();
    let (x, mut y) = (csr.domain().vector(&entries)?, csr.range().zeros()?);
    for (estimate, recipe) in Formats::standard().ranking(csr, values, None).offered() {
        let matrix = match recipe(csr) {
            Err(Error::Unsuitable { .. }) => continue,
            matrix => matrix?,
        };
        let mut seconds = f64::INFINITY;
        for _ in 0..PRODUCTS {
            let started = Instant::now();
            matrix.apply(&x, &mut y)?;
            seconds = seconds.min(started.elapsed().as_secs_f64());
        }
        samples.push(Sample { format: estimate.stored.format(), work: estimate.work, seconds, weight: 1.0 });
    }
    let here = &mut samples[first..];
    let best = here.iter().fold(f64::INFINITY, |best, sample| best.min(sample.seconds));
    for slow in here.iter_mut().filter(|sample| sample.seconds > SLOW.0 * best) {
        slow.weight = SLOW.1;
    }
    Ok(())
}

/// Coefficients fitted to the samples; formats without samples keep their previous coefficients.
fn fitted(samples: &[Sample], before: &CostModels) -> CostModels {
    let model_before =
        |format| before.iter().find(|(name, _)| *name == format).map(|(_, cost_model)| cost_model);
    // memory bandwidth implied by the previous coefficients: the median over the samples
    let rate = |sample: &Sample| Some(model_before(sample.format)?.cost(&sample.work) / sample.seconds);
    let mut rates: Vec<f64> = samples.iter().filter_map(rate).collect();
    rates.sort_by(f64::total_cmp);
    let Some(&rate) = rates.get(rates.len() / 2) else { return before.clone() };
    let of = |&(format, before): &(&'static str, CostModel)| {
        let own: Vec<&Sample> = samples.iter().filter(|sample| sample.format == format).collect();
        (format, if own.is_empty() { before } else { fit(&own, rate, before) })
    };
    before.iter().map(of).collect()
}

/// Fits the coefficients of a byte, a gather and a row of one format by coordinate descent.
fn fit(samples: &[&Sample], rate: f64, before: CostModel) -> CostModel {
    // each sample is an equation, `w (p · a / t − 1) = 0` with `t = seconds * rate`
    let terms: Vec<([f64; 3], f64)> = samples
        .iter()
        .map(|Sample { work, seconds, weight, .. }| {
            let work = [work.bytes, work.gathers, work.rows];
            (work.map(|work| weight * work / (seconds * rate)), *weight)
        })
        .collect();
    let old = [before.byte, before.gather, before.row];
    let count = samples.len() as f64;
    let means: [f64; 3] = std::array::from_fn(|j| terms.iter().map(|(a, _)| a[j]).sum::<f64>() / count);
    let mut coefficients = old;
    for _ in 0..ROUNDS {
        for j in 0..coefficients.len() {
            let pull = (BUILT_IN * means[j]).powi(2);
            let (mut above, mut below) = (pull * old[j], pull);
            for (a, weight) in &terms {
                let others: f64 = (0..3).filter(|&k| k != j).map(|k| a[k] * coefficients[k]).sum();
                above += a[j] * (weight - others);
                below += a[j] * a[j];
            }
            if below > 0.0 {
                coefficients[j] = (above / below).max(0.0);
            }
        }
    }
    let [byte, gather, row] = coefficients;
    CostModel { byte, gather, row, ..before }
}

/// Matrices for which the formats differ in speed: grids, dense blocks, a random ordering, rows of unequal
/// length, and hubs (a few very long rows). They are too large for most caches.
fn matrices() -> Result<Vec<(Csr<f64>, Values)>> {
    let seven = grid(80, 1, |step| step.iter().map(|d| d.abs()).sum::<isize>() <= 1)?;
    let (mut order, mut state): (Vec<u32>, _) = ((0..seven.rows() as u32).collect(), 1);
    for last in (1..order.len()).rev() {
        order.swap(last, random(&mut state) % (last + 1));
    }
    let shuffled = seven.reordered(&Permutation::from_old_of_new(order)?)?;
    let near = rows_of(150_000, &mut |row, state, columns: &mut Vec<u32>| {
        let length = 5 + random(state) % 30;
        columns
            .extend((0..length).map(|_| (row + random(state) % 400).saturating_sub(200).min(149_999) as u32));
    })?;
    let hubs = rows_of(200_000, &mut |_, state, columns: &mut Vec<u32>| {
        let share = (1 + random(state) % 100_000) as f64 / 1e5;
        let length = (4.0 * share.powf(-0.7)).min(3_000.0) as usize;
        columns.extend((0..length).map(|_| (random(state) % 200_000) as u32));
    })?;
    Ok(vec![
        (grid(48, 1, |_| true)?, Values::Symmetric),
        (grid(22, 3, |_| true)?, Values::Symmetric),
        (seven, Values::Symmetric),
        (shuffled, Values::Symmetric),
        (near, Values::Any),
        (hubs, Values::Any),
    ])
}

/// A grid of `side³` nodes with `size` unknowns each. Two nodes are connected if `joins` is true for the
/// difference of their coordinates.
fn grid(side: usize, size: usize, joins: impl Fn([isize; 3]) -> bool) -> Result<Csr<f64>> {
    let inside = |place: usize, d: isize| place.checked_add_signed(d).filter(|&place| place < side);
    let mut near = vec![];
    for z in -1..=1 {
        for y in -1..=1 {
            near.extend((-1..=1).map(|x| [x, y, z]).filter(|&step| joins(step)));
        }
    }
    let neighbours = |node: usize| {
        let at = [node % side, node / side % side, node / side / side];
        let ends = near.iter().filter_map(move |step| {
            let [x, y, z] = [inside(at[0], step[0])?, inside(at[1], step[1])?, inside(at[2], step[2])?];
            Some((z * side + y) * side + x)
        });
        ends.collect::<Vec<_>>()
    };
    let (mut offsets, mut columns) = (vec![0u32], vec![]);
    for node in 0..side.pow(3) {
        let ends = neighbours(node);
        for _ in 0..size {
            columns.extend(ends.iter().flat_map(|end| (end * size..(end + 1) * size).map(|c| c as u32)));
            offsets.push(columns.len() as u32);
        }
    }
    let values = vec![1.0; columns.len()];
    Csr::from_sorted(side.pow(3) * size, offsets, columns, values)
}

/// A square matrix, row by row; `row` may append columns in any order.
fn rows_of(rows: usize, row: &mut dyn FnMut(usize, &mut u64, &mut Vec<u32>)) -> Result<Csr<f64>> {
    let (mut offsets, mut columns, mut state) = (vec![0u32], vec![], 1);
    let mut own = vec![];
    for at in 0..rows {
        own.clear();
        row(at, &mut state, &mut own);
        own.sort_unstable();
        own.dedup();
        columns.extend_from_slice(&own);
        offsets.push(columns.len() as u32);
    }
    let values = vec![1.0; columns.len()];
    Csr::from_sorted(rows, offsets, columns, values)
}

/// Deterministic pseudo-random numbers.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// Prints a line for each format with its previous and new coefficients of a byte, a gather and a row.
impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:16} {:>16} {:>16} {:>16}", "format", "byte", "gather", "row")?;
        for ((name, now), (_, before)) in self.cost_models.iter().zip(&self.before) {
            let pair = |now: f64, before: f64| format!("{before:.2} -> {now:.2}");
            let [byte, gather, row] =
                [pair(now.byte, before.byte), pair(now.gather, before.gather), pair(now.row, before.row)];
            write!(f, "\n{name:16} {byte:>16} {gather:>16} {row:>16}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fit_recovers_the_cost_model_behind_the_times() {
        let cost_model = CostModel { start: 0.0, byte: 0.7, gather: 4.0, row: 12.0, wait: 0.0 };
        let built_in = CostModel { byte: 1.0, gather: 0.0, row: 0.0, ..cost_model };
        let works = [(1e7, 0.0, 0.0), (2e7, 1e6, 1e5), (1e7, 2e6, 0.0), (3e7, 0.0, 2e6), (1e7, 1e5, 9e5)];
        let samples: Vec<Sample> = works
            .map(|(bytes, gathers, rows)| {
                let work = ProductWork { bytes, gathers, rows, waits: 0.0 };
                Sample { format: "CSR", work, seconds: cost_model.cost(&work) / 2e10, weight: 1.0 }
            })
            .into();
        let found = fit(&samples.iter().collect::<Vec<_>>(), 2e10, built_in);
        for (found, cost_model) in [(found.byte, 0.7), (found.gather, 4.0), (found.row, 12.0)] {
            assert!((found / cost_model - 1.0).abs() < 0.2, "{found} {cost_model}");
        }
        // formats without measurements keep their coefficients
        let others = fitted(&samples, &vec![("CSR", built_in), ("DIA", built_in)]);
        assert_eq!(others[1], ("DIA", built_in));
    }
}
