//! Distributes the rows of a matrix over processors of different speeds, after Yang, Li, Mo and Li (2015).
//!
//! `K` processors have computing powers `CP_k`: relative speeds, of which only the ratios matter. Each gets
//! rows whose fraction of the nonzeros is the processor's fraction of the total power. The rows of a
//! processor are contiguous ([`by_rows`], [`by_nonzeros`]), or have similar lengths ([`by_length_classes`],
//! [`by_least_padding`]), which needs less padding in ELLPACK. [`by_diagonal_blocks`] divides entries instead
//! of rows. [`quality`] returns what the tables of the paper print of the parts. [`RowShares`] is such a cut of
//! a matrix, which `HostAndGpus` multiplies by the host and GPUs together.
//!
//! Departures from the paper:
//! 1. The paper's algorithm 1 distributes `NNZ` rows; this must be `N`.
//! 2. In the paper's algorithm 2 every part exceeds its share by up to a row, in algorithm 3 by less than a
//!    row, and the last part gets the remaining rows, with the sum of these errors. Here a part ends as near
//!    to its share as whole rows allow, and shares are computed from the nonzeros that the preceding parts
//!    have left, so that errors do not accumulate. The worked example gives the results printed in the paper.
//!    [`even_parts`], which threads use, finds each boundary by bisection.
//! 3. The paper's imbalance adds signed differences, which cancel; [`Quality::imbalance`] adds their
//!    magnitudes.
//! 4. The paper's theorem 1 is not true: if rows are assigned in ascending length, the padding depends on the
//!    order of the processors. Algorithm 3 uses the given order; [`by_least_padding`] uses the order with the
//!    least padding.
//! 5. Line 6 of the paper's algorithm 4 has a remainder where a quotient is meant.

mod balance;
mod blocks;
mod cut;
mod halo;
mod padding;
mod quality;
mod shares;

pub use balance::Balance;
pub use blocks::by_diagonal_blocks;
pub(crate) use cut::Cut;
pub use halo::{HaloSize, halo};
pub use krysp_kernels::ranges::{even_parts, ranges};
pub use padding::by_least_padding;
pub use quality::{PartSummary, Quality, quality};
pub use shares::RowShares;

use crate::error::{Error, Result};

/// Divides the rows into contiguous parts whose numbers of rows are proportional to the powers (algorithm 1).
/// Returns `K + 1` boundaries.
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

/// Divides the rows into contiguous parts whose nonzeros are as near to the processors' shares as whole rows
/// allow (algorithm 2). Returns `K + 1` boundaries. The last part gets the remaining rows.
pub fn by_nonzeros(lengths: &[usize], powers: &[f64]) -> Result<Vec<usize>> {
    total_power(powers)?;
    let mut left: usize = lengths.iter().sum();
    let mut bounds = vec![0];
    let mut row = 0;
    for k in 0..powers.len() - 1 {
        let share = share_of(left, powers, k);
        let mut taken = 0;
        // The next row brings the part nearer to its share, unless the part would exceed the share already
        // with half of that row.
        while row < lengths.len() && (2 * taken + lengths[row]) as f64 <= 2.0 * share {
            taken += lengths[row];
            row += 1;
        }
        left -= taken;
        bounds.push(row);
    }
    bounds.push(lengths.len());
    Ok(bounds)
}

/// Distributes the rows in ascending length (algorithm 3). Each processor gets whole classes of rows of equal
/// length as long as these fit in its share, then as many rows of the next class as bring it nearest to its
/// share. Returns the rows of each processor.
pub fn by_length_classes(lengths: &[usize], powers: &[f64]) -> Result<Vec<Vec<usize>>> {
    total_power(powers)?;
    let sorted = ascending(lengths);
    let mut left: usize = lengths.iter().sum();
    let mut at = 0;
    let mut parts = vec![];
    for k in 0..powers.len() - 1 {
        let share = share_of(left, powers, k);
        let (start, mut taken) = (at, 0);
        while let Some(&first) = sorted.get(at) {
            let (length, rest) = (lengths[first], share - taken as f64);
            let class = sorted[at..].partition_point(|&row| lengths[row] == length);
            let whole = (class * length) as f64 <= rest;
            let rows = if whole { class } else { ((rest / length as f64).round() as usize).min(class) };
            at += rows;
            taken += rows * length;
            if !whole {
                break;
            }
        }
        left -= taken;
        parts.push(sorted[start..at].to_vec());
    }
    parts.push(sorted[at..].to_vec());
    Ok(parts)
}

/// Number of nonzeros that processor `k` should get of the `left` nonzeros that the preceding processors have
/// left.
fn share_of(left: usize, powers: &[f64], k: usize) -> f64 {
    left as f64 * (powers[k] / powers[k..].iter().sum::<f64>())
}

/// The rows in ascending length, in a stable order.
fn ascending(lengths: &[usize]) -> Vec<usize> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    // counting sort by length
    let mut next = vec![0; longest + 2];
    for &length in lengths {
        next[length + 1] += 1;
    }
    for length in 0..=longest {
        next[length + 1] += next[length];
    }
    let mut sorted = vec![0; lengths.len()];
    for (row, &length) in lengths.iter().enumerate() {
        sorted[next[length]] = row;
        next[length] += 1;
    }
    sorted
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
        let (nonzeros, places) = q.parts.iter().map(|part| (part.nonzeros, part.slots())).unzip();
        (nonzeros, places, (q.density * 100.0).round() as usize)
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
    fn shares_are_met_as_nearly_as_rows_allow() {
        // powers of the paper's second test, then with small powers at the beginning, the end and between,
        // and equal ones
        let powers = [[75.0, 75.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 75.0, 1.0, 75.0, 1.0], [1.0; 6]];
        let lengths: Vec<usize> = (0..20_000).map(|row| 3 + row * row % 11).collect();
        for powers in powers {
            let (total, nonzeros) = (powers.iter().sum::<f64>(), lengths.iter().sum::<usize>() as f64);
            let contiguous = rows_between(&by_nonzeros(&lengths, &powers).unwrap());
            for parts in [contiguous, by_length_classes(&lengths, &powers).unwrap()] {
                for (part, power) in quality(&lengths, parts, &powers).unwrap().parts.iter().zip(powers) {
                    let share = nonzeros * power / total;
                    assert!((part.nonzeros as f64 - share).abs() <= 2.0 * 13.0, "{part:?} {share}");
                }
            }
        }
    }

    /// The powers are those of the paper's tests: eight cores, and two GPUs with six cores.
    #[test]
    fn generated_matrices_are_shared_evenly_and_padded_least() {
        for name in ["st7_0.1M_nat", "p1_0.1M_perm", "el3_0.3M_nat", "rmat_2M"] {
            let a = crate::testing::matrices::named(name).unwrap().csr::<f64>().unwrap();
            let lengths: Vec<usize> = a.row_lengths().collect();
            let longest = *lengths.iter().max().unwrap() as f64;
            for powers in [[1.0; 8], [75.0, 75.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]] {
                let least = a.nnz() as f64 * powers[7] / powers.iter().sum::<f64>();
                let measured = |parts: Vec<Vec<usize>>| quality(&lengths, parts, &powers).unwrap();
                let [rows, nonzeros, classes, ours] = [
                    measured(rows_between(&by_rows(a.rows(), &powers).unwrap())),
                    measured(rows_between(&by_nonzeros(&lengths, &powers).unwrap())),
                    measured(by_length_classes(&lengths, &powers).unwrap()),
                    measured(by_least_padding(&lengths, &powers).unwrap()),
                ];
                // a part differs from its share by up to half a row at each end
                for even in [&nonzeros, &classes, &ours] {
                    assert!(even.imbalance <= 8.0 * longest / least, "{name}: {} {longest}", even.imbalance);
                    assert!(even.imbalance < rows.imbalance, "{name}");
                }
                assert!(ours.density >= classes.density, "{name}: {} {}", ours.density, classes.density);
            }
        }
    }

    #[test]
    fn every_row_is_in_one_part() {
        let cases: [&[usize]; 5] = [&[], &[0, 0, 0], &[7], &[0, 9, 0, 1, 1], &[1, 2, 3, 4, 100, 0, 5]];
        for lengths in cases {
            for powers in [vec![1.0], vec![1.0, 2.0, 6.0], vec![1.0; 9]] {
                let cuts = [
                    rows_between(&by_rows(lengths.len(), &powers).unwrap()),
                    rows_between(&by_nonzeros(lengths, &powers).unwrap()),
                    by_length_classes(lengths, &powers).unwrap(),
                    by_least_padding(lengths, &powers).unwrap(),
                ];
                for parts in cuts {
                    assert_eq!(parts.len(), powers.len());
                    let mut rows = parts.concat();
                    rows.sort_unstable();
                    assert!(rows.into_iter().eq(0..lengths.len()));
                }
            }
        }
    }

    #[test]
    fn powers_are_checked() {
        assert!(by_rows(5, &[]).is_err());
        assert!(by_rows(5, &[1.0, 0.0]).is_err());
        assert!(by_rows(5, &[1.0, f64::NAN]).is_err());
    }
}
