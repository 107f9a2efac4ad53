//! Sizes of the parts of a partition, their padding, and their imbalance.

use super::total_power;
use crate::error::Result;

/// A part of a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct PartSummary {
    /// Number of rows.
    pub rows: usize,
    /// Number of nonzeros.
    pub nonzeros: usize,
    /// Number of nonzeros of the longest row.
    pub longest: usize,
    /// Ideal number of nonzeros: `nonzeros of the matrix × power / Σ power`, where `power` is the relative
    /// speed of the part's processor.
    pub share: f64,
}

impl PartSummary {
    /// Number of ELLPACK slots: the number of rows times the length of the longest row.
    pub fn slots(&self) -> usize {
        self.rows * self.longest
    }

    /// Nonzeros divided by slots.
    pub fn density(&self) -> f64 {
        self.nonzeros as f64 / self.slots().max(1) as f64
    }

    /// `|nonzeros − share| / share`.
    pub fn imbalance(&self) -> f64 {
        if self.share > 0.0 { (self.nonzeros as f64 - self.share).abs() / self.share } else { 0.0 }
    }
}

/// Measures of the quality of a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Quality {
    /// Sizes of each part.
    pub parts: Vec<PartSummary>,
    /// Total number of nonzeros divided by the total number of slots.
    pub density: f64,
    /// `Σ |nonzeros − share| / share` over the parts.
    pub imbalance: f64,
}

/// Evaluates a partition given as the rows of each part.
///
/// ```
/// use krysp::gallery;
/// use krysp::partition::{by_length_classes, quality};
///
/// let a = gallery::poisson::<f64>(&[64; 3])?;
/// let lengths: Vec<usize> = a.row_lengths().collect();
/// let powers = [75.0, 75.0, 1.0, 1.0]; // two GPUs and two cores
/// let found = quality(&lengths, by_length_classes(&lengths, &powers)?, &powers)?;
/// assert!(found.imbalance < 2e-3 && found.parts.len() == 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn quality<R: IntoIterator<Item = usize>>(
    lengths: &[usize],
    parts: impl IntoIterator<Item = R>,
    powers: &[f64],
) -> Result<Quality> {
    let total = total_power(powers)?;
    let measured = parts.into_iter().map(|part| {
        let (mut rows, mut nonzeros, mut longest) = (0, 0, 0);
        for row in part {
            rows += 1;
            nonzeros += lengths[row];
            longest = longest.max(lengths[row]);
        }
        PartSummary { rows, nonzeros, longest, share: 0.0 }
    });
    let mut parts: Vec<PartSummary> = measured.collect();
    let nonzeros: usize = parts.iter().map(|part| part.nonzeros).sum();
    let slots: usize = parts.iter().map(PartSummary::slots).sum();
    for (part, power) in parts.iter_mut().zip(powers) {
        part.share = nonzeros as f64 * power / total;
    }
    let imbalance = parts.iter().map(PartSummary::imbalance).sum();
    Ok(Quality { parts, density: nonzeros as f64 / slots.max(1) as f64, imbalance })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imbalance_is_a_magnitude() {
        let q = quality(&[4, 2], [vec![0], vec![1]], &[1.0, 1.0]).unwrap();
        assert!((q.imbalance - 2.0 / 3.0).abs() < 1e-15);
    }
}
