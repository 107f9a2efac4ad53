//! Shares the rows of a matrix among processors of different power, after Yang, Li, Mo and Li (2015).
//!
//! `K` processors have computing powers `CP_k`. Each gets rows whose share of the nonzeros is the processor's share of
//! the power. The rows of a processor are contiguous ([`by_rows`], [`by_nonzeros`]), or have similar lengths
//! ([`by_length_classes`]), which needs the least padding in ELLPACK.
//!
//! Departures from the paper:
//! 1. The paper's algorithm 1 distributes `NNZ` rows; this must be `N`.
//! 2. The paper's algorithm 2 exceeds every share by a row, but its worked example does not: a row that would exceed
//!    the share opens the next part. [`even_parts`], which threads use, aims at the running total instead, so that
//!    errors do not add up in the last part, and finds each boundary by bisection.
//! 3. The paper's imbalance adds signed differences, which cancel; [`Quality::imbalance`] adds their magnitudes.

#[cfg(any(feature = "cuda", feature = "mpi"))]
mod cut;
mod halo;

#[cfg(any(feature = "cuda", feature = "mpi"))]
pub(crate) use cut::Cut;
pub use halo::{Halo, halo};

use crate::{Error, Result};
use krysp_kernels::index::OffsetsRef;
use std::ops::Range;

/// Cuts the rows into contiguous parts whose numbers of rows are proportional to the powers (algorithm 1). Returns `K +
/// 1` boundaries.
pub fn by_rows(rows: usize, powers: &[f64]) -> Result<Vec<usize>> {
    let total = total_power(powers)?;
    let mut bounds = vec![0];
    let mut power = 0.0;
    bounds.extend(powers.iter().map(|&p| {
        power += p;
        (rows as f64 * power / total) as usize
    }));
    bounds[powers.len()] = rows;
    Ok(bounds)
}

/// Cuts the rows into contiguous parts, each as long as its nonzeros do not exceed the processor's share (algorithm 2).
/// Returns `K + 1` boundaries. The last part takes the remaining rows.
pub fn by_nonzeros(lengths: &[usize], powers: &[f64]) -> Result<Vec<usize>> {
    let total = total_power(powers)?;
    let nonzeros: usize = lengths.iter().sum();
    let mut bounds = vec![0];
    let mut row = 0;
    for power in &powers[..powers.len() - 1] {
        let share = nonzeros as f64 * power / total;
        let mut taken = 0;
        while row < lengths.len() && (taken + lengths[row]) as f64 <= share {
            taken += lengths[row];
            row += 1;
        }
        bounds.push(row);
    }
    bounds.push(lengths.len());
    Ok(bounds)
}

/// Deals out the rows in ascending length (algorithm 3): whole classes of rows of equal length while they fit, then as
/// many rows of the next class as the share still needs. Returns the rows of each processor.
pub fn by_length_classes(lengths: &[usize], powers: &[f64]) -> Result<Vec<Vec<usize>>> {
    let total = total_power(powers)?;
    let nonzeros: usize = lengths.iter().sum();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    // a counting sort by length: class by class, rows in order within a class
    let mut ends = vec![0; longest + 2];
    for &length in lengths {
        ends[length + 1] += 1;
    }
    for length in 0..=longest {
        ends[length + 1] += ends[length];
    }
    let mut sorted = vec![0; lengths.len()];
    let mut next = ends.clone();
    for (row, &length) in lengths.iter().enumerate() {
        sorted[next[length]] = row;
        next[length] += 1;
    }

    let mut at = 0;
    let mut parts = vec![];
    for power in &powers[..powers.len() - 1] {
        let share = nonzeros as f64 * power / total;
        let (start, mut taken) = (at, 0.0);
        while taken < share && at < sorted.len() {
            let length = lengths[sorted[at]];
            let class = ends[length + 1] - at;
            let rows = if (class * length) as f64 <= share - taken {
                class
            } else {
                (((share - taken) / length as f64).ceil() as usize).min(class)
            };
            at += rows;
            taken += (rows * length) as f64;
        }
        parts.push(sorted[start..at].to_vec());
    }
    parts.push(sorted[at..].to_vec());
    Ok(parts)
}

/// Boundaries of at most `count` parts with about equally many entries each. Boundaries are multiples of `grain` rows.
pub fn even_parts<'o>(offsets: impl Into<OffsetsRef<'o>>, count: usize, grain: usize) -> Vec<usize> {
    let offsets = offsets.into();
    let rows = offsets.ranges();
    // apart from its entries, a row costs its `y` and its offset
    let work = |row: usize| offsets.at(row) + 2 * row;
    let mut bounds = vec![0];
    for part in 1..count {
        let target = work(rows) / count * part;
        let (mut low, mut high) = (bounds[bounds.len() - 1] / grain, rows.div_ceil(grain));
        while low < high {
            let middle = (low + high) / 2;
            if work((middle * grain).min(rows)) < target { low = middle + 1 } else { high = middle }
        }
        let bound = (low * grain).min(rows);
        if bound > bounds[bounds.len() - 1] && bound < rows {
            bounds.push(bound);
        }
    }
    if rows > 0 {
        bounds.push(rows);
    }
    bounds
}

/// Measures of how good a partition is.
#[derive(Clone, Debug, PartialEq)]
pub struct Quality {
    /// Nonzeros of each part.
    pub nonzeros: Vec<usize>,
    /// Slots of each part stored as ELLPACK: its rows times its longest row.
    pub places: Vec<usize>,
    /// All nonzeros divided by all slots.
    pub density: f64,
    /// `Σ |nonzeros − share| / share` over the parts.
    pub imbalance: f64,
}

/// Measures a partition given as the rows of each part.
pub fn quality<R: IntoIterator<Item = usize>>(
    lengths: &[usize],
    parts: impl IntoIterator<Item = R>,
    powers: &[f64],
) -> Result<Quality> {
    let total = total_power(powers)?;
    let (mut nonzeros, mut places) = (vec![], vec![]);
    for part in parts {
        let (mut count, mut sum, mut widest) = (0, 0, 0);
        for row in part {
            count += 1;
            sum += lengths[row];
            widest = widest.max(lengths[row]);
        }
        nonzeros.push(sum);
        places.push(count * widest);
    }
    let all: usize = nonzeros.iter().sum();
    let share = |k: usize| all as f64 * powers[k] / total;
    let imbalance = nonzeros.iter().enumerate().map(|(k, &n)| (n as f64 - share(k)).abs() / share(k)).sum();
    let density = all as f64 / places.iter().sum::<usize>().max(1) as f64;
    Ok(Quality { nonzeros, places, density, imbalance })
}

/// The ranges between boundaries.
pub fn ranges(bounds: &[usize]) -> impl Iterator<Item = Range<usize>> + '_ {
    bounds.windows(2).map(|b| b[0]..b[1])
}

fn total_power(powers: &[f64]) -> Result<f64> {
    let total = powers.iter().sum::<f64>();
    if total.is_finite() && powers.iter().all(|&p| p > 0.0) && !powers.is_empty() {
        return Ok(total);
    }
    Err(Error::Option {
        what: "the computing powers",
        got: format!("{powers:?}"),
        expected: "one positive number for each processor",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use krysp_kernels::index::Offsets;

    /// The paper's example: 20 rows, 117 nonzeros (rows counted from 1 there).
    fn lengths() -> Vec<usize> {
        let classes: [(usize, &[usize]); 9] = [
            (1, &[5, 16]),
            (2, &[1, 7, 19]),
            (3, &[3, 13]),
            (5, &[2, 6, 10]),
            (6, &[8, 17]),
            (7, &[4, 11, 15]),
            (9, &[12]),
            (10, &[14, 20]),
            (13, &[9, 18]),
        ];
        let mut lengths = vec![0; 20];
        for (length, rows) in classes {
            rows.iter().for_each(|row| lengths[row - 1] = length);
        }
        lengths
    }

    const POWERS: [f64; 3] = [1.0, 2.0, 6.0];

    fn quality_of(parts: Vec<Vec<usize>>) -> (Vec<usize>, Vec<usize>, usize) {
        let q = quality(&lengths(), parts, &POWERS).unwrap();
        (q.nonzeros, q.places, (q.density * 100.0).round() as usize)
    }

    fn rows_between(bounds: &[usize]) -> Vec<Vec<usize>> {
        ranges(bounds).map(Iterator::collect).collect()
    }

    #[test]
    fn golden_algorithm_1() {
        let bounds = by_rows(20, &POWERS).unwrap();
        assert_eq!(bounds, [0, 2, 6, 20]);
        assert_eq!(quality_of(rows_between(&bounds)), (vec![7, 16, 94], vec![10, 28, 182], 53));
    }

    #[test]
    fn golden_algorithm_2() {
        let bounds = by_nonzeros(&lengths(), &POWERS).unwrap();
        assert_eq!(bounds, [0, 3, 8, 20]);
        assert_eq!(quality_of(rows_between(&bounds)), (vec![10, 21, 86], vec![15, 35, 156], 57));
    }

    #[test]
    fn golden_algorithm_3() {
        let mut parts = by_length_classes(&lengths(), &POWERS).unwrap();
        parts.iter_mut().for_each(|part| part.sort_unstable());
        let counted_from_one: Vec<Vec<usize>> =
            parts.iter().map(|part| part.iter().map(|row| row + 1).collect()).collect();
        assert_eq!(counted_from_one[0], [1, 3, 5, 7, 13, 16, 19]);
        assert_eq!(counted_from_one[1], [2, 6, 8, 10, 17]);
        assert_eq!(counted_from_one[2], [4, 9, 11, 12, 14, 15, 18, 20]);
        assert_eq!(quality_of(parts), (vec![14, 27, 76], vec![21, 30, 104], 75));
    }

    #[test]
    fn imbalance_is_a_magnitude() {
        let q = quality(&[4, 2], [vec![0], vec![1]], &[1.0, 1.0]).unwrap();
        assert!((q.imbalance - 2.0 / 3.0).abs() < 1e-15);
    }

    #[test]
    fn even_parts_cover_all_rows_at_the_grain() {
        let offsets = Offsets::from_lengths((0..10_000).map(|i| if i == 77 { 50_000 } else { i % 9 }));
        for count in [1, 2, 3, 8, 100] {
            let bounds = even_parts(&offsets, count, 64);
            assert_eq!((bounds[0], bounds[bounds.len() - 1]), (0, 10_000));
            assert!(bounds.windows(2).all(|b| b[0] < b[1] && b[0].is_multiple_of(64)), "{bounds:?}");
        }
        let (bounds, halves) = (even_parts(&offsets, 2, 1), offsets.end() / 2);
        assert_eq!(bounds.len(), 3);
        assert!(offsets.at(bounds[1]).abs_diff(halves) < 50_000);
        assert_eq!(even_parts(&Offsets::from_lengths([]), 4, 64), [0]);
    }

    #[test]
    fn powers_are_checked() {
        assert!(by_rows(5, &[]).is_err());
        assert!(by_rows(5, &[1.0, 0.0]).is_err());
        assert!(by_rows(5, &[1.0, f64::NAN]).is_err());
    }
}
