//! Finds the order of processors that needs the least padding if rows are assigned in ascending length.

use super::{ascending, by_length_classes, total_power};
use crate::error::Result;

/// Maximum number of sets of processors that are examined. Guess; these are all sets of up to 16 processors.
const SETS: usize = 1 << 16;

/// Distributes the rows in ascending length to the processors, in the order of processors that needs the
/// fewest ELLPACK slots. Returns the rows of each processor.
///
/// Once the processors of a set have their rows, the remaining rows depend only on the total power (relative
/// speed) of the set. So the best order of a set consists of the best order of all of its processors but one,
/// and that one (dynamic programming):
///
/// ```text
/// slots(set) = min over k in set:  slots(set without k) + rows(k) · longest(k)
/// ```
///
/// Processors of equal power are interchangeable, which keeps the number of sets small. With more than 65,536
/// sets (17 different powers) the order is that of [`by_length_classes`].
pub fn by_least_padding(lengths: &[usize], powers: &[f64]) -> Result<Vec<Vec<usize>>> {
    let total = total_power(powers)?;
    let mut kinds = powers.to_vec();
    kinds.sort_by(f64::total_cmp);
    let runs: Vec<&[f64]> = kinds.chunk_by(|a, b| a == b).collect();
    // a set is encoded as a number with one digit for each distinct power: the number of processors of that
    // power in the set
    let mut worth = vec![1_usize];
    for run in &runs {
        worth.push(worth[worth.len() - 1].saturating_mul(run.len() + 1));
    }
    let sets = worth[runs.len()];
    if sets > SETS {
        return by_length_classes(lengths, powers);
    }
    let digit = |set: usize, kind: usize| set / worth[kind] % (runs[kind].len() + 1);

    let sorted = ascending(lengths);
    let mut nonzeros = vec![0];
    nonzeros.extend(sorted.iter().scan(0, |sum, &row| {
        *sum += lengths[row];
        Some(*sum)
    }));
    let all = nonzeros[sorted.len()] as f64;
    let served: Vec<usize> = (0..sets)
        .map(|set| {
            let power: f64 =
                runs.iter().enumerate().map(|(kind, run)| digit(set, kind) as f64 * run[0]).sum();
            let wanted = all * power / total;
            let after = nonzeros.partition_point(|&n| (n as f64) < wanted).min(sorted.len());
            // of the two row boundaries around `wanted`, take the nearer one
            let before = after.saturating_sub(1);
            let over = (nonzeros[before] + nonzeros[after]) as f64 > 2.0 * wanted;
            if over { before } else { after }
        })
        .collect();
    let slots =
        |from: usize, to: usize| (to - from) * to.checked_sub(1).map_or(0, |last| lengths[sorted[last]]);

    // for each set, the number of slots of its best order, and the kind (distinct power) of its last
    // processor
    let mut best = vec![(0, 0)];
    for set in 1..sets {
        let last = (0..runs.len()).filter(|&kind| digit(set, kind) > 0).map(|kind| {
            let before = set - worth[kind];
            (best[before].0 + slots(served[before], served[set]), kind)
        });
        best.push(last.min().unwrap_or_default());
    }
    let mut parts = vec![vec![]; powers.len()];
    let (mut set, mut end) = (sets - 1, sorted.len());
    while set > 0 {
        let kind = best[set].1;
        let nth = digit(set, kind) - 1;
        set -= worth[kind];
        let start = if set == 0 { 0 } else { served[set] };
        let power = runs[kind][0];
        let processor = powers.iter().enumerate().filter(|&(_, &p)| p == power).nth(nth);
        if let Some((processor, _)) = processor {
            parts[processor] = sorted[start..end].to_vec();
        }
        end = start;
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::quality;

    fn places(lengths: &[usize], parts: Vec<Vec<usize>>, powers: &[f64]) -> usize {
        quality(lengths, parts, powers).unwrap().parts.iter().map(|part| part.slots()).sum()
    }

    #[test]
    fn the_counterexample_to_theorem_1_takes_ten_places() {
        let (lengths, powers) = ([1, 2, 3, 3], [2.0, 1.0]);
        assert_eq!(places(&lengths, by_length_classes(&lengths, &powers).unwrap(), &powers), 12);
        assert_eq!(by_least_padding(&lengths, &powers).unwrap(), [vec![2, 3], vec![0, 1]]);
    }

    /// All orders of up to five processors are enumerated.
    #[test]
    fn no_order_pads_less() {
        fn orders(left: Vec<usize>) -> Vec<Vec<usize>> {
            if left.is_empty() {
                return vec![vec![]];
            }
            let with_last = |&last: &usize| {
                let others = left.iter().copied().filter(|&k| k != last).collect();
                orders(others).into_iter().map(move |mut order| {
                    order.push(last);
                    order
                })
            };
            left.iter().flat_map(with_last).collect()
        }
        let lengths: Vec<usize> = (0..3000_usize).map(|row| 1 + 4000 / (1 + row * row % 1009)).collect();
        let total: usize = lengths.iter().sum();
        let sorted = ascending(&lengths);
        for powers in [vec![5.0, 1.0, 1.0, 3.0, 1.0], vec![1.0, 2.0, 4.0, 8.0], vec![1.0; 4]] {
            let slots = |order: &Vec<usize>| {
                let (mut at, mut served, mut taken, mut slots) = (0, 0.0, 0, 0);
                for &k in order {
                    served += powers[k];
                    let wanted = total as f64 * served / powers.iter().sum::<f64>();
                    let from = at;
                    while at < sorted.len() && (2 * taken + lengths[sorted[at]]) as f64 <= 2.0 * wanted {
                        taken += lengths[sorted[at]];
                        at += 1;
                    }
                    slots += (at - from) * at.checked_sub(1).map_or(0, |last| lengths[sorted[last]]);
                }
                slots
            };
            let least = orders((0..powers.len()).collect()).iter().map(slots).min().unwrap();
            let found = by_least_padding(&lengths, &powers).unwrap();
            assert_eq!(places(&lengths, found, &powers), least, "{powers:?}");
        }
    }

    #[test]
    fn many_different_powers_are_served_in_their_order() {
        let powers: Vec<f64> = (1..20).map(f64::from).collect();
        let lengths = [3; 400];
        assert_eq!(
            by_least_padding(&lengths, &powers).unwrap(),
            by_length_classes(&lengths, &powers).unwrap()
        );
    }
}
