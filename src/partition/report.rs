//! Sizes of the parts of a partition, their padding, and their imbalance.

use super::total_power;
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use std::fmt;

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

/// Sizes of the parts of a matrix partitioned over processors; `Display` prints a table.
///
/// ```
/// use krysp::gallery;
/// use krysp::partition::{Report, by_length_classes};
///
/// let a = gallery::poisson::<f64>(&[64; 3])?;
/// let lengths: Vec<usize> = a.row_lengths().collect();
/// let powers = [75.0, 75.0, 1.0, 1.0]; // two GPUs and two cores
/// let report = Report::new(&a, &by_length_classes(&lengths, &powers)?, &powers)?;
/// assert!(report.quality.imbalance < 2e-3);
/// println!("{report}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Rows, nonzeros and padding of the parts.
    pub quality: Quality,
    /// Number of distinct columns in which each part has entries and whose indices are not among its rows;
    /// all columns if the matrix is not square.
    pub halo: Vec<usize>,
    /// Bytes of each part stored as ELLPACK, including row lengths.
    pub ellpack_bytes: Vec<usize>,
    /// Bytes of each part stored as CSR.
    pub csr_bytes: Vec<usize>,
}

impl Report {
    /// Evaluates a partition of a matrix, given as the rows of each part.
    pub fn new<T: Real>(csr: &Csr<T>, parts: &[Vec<usize>], powers: &[f64]) -> Result<Report> {
        let lengths: Vec<usize> = csr.row_lengths().collect();
        let quality = quality(&lengths, parts.iter().map(|part| part.iter().copied()), powers)?;
        let (entry, index) = (size_of::<T>() + size_of::<u32>(), size_of::<u32>());
        Ok(Report {
            halo: halo_of_parts(csr, parts),
            ellpack_bytes: quality.parts.iter().map(|p| p.slots() * entry + p.rows * index).collect(),
            csr_bytes: quality.parts.iter().map(|p| p.nonzeros * entry + (p.rows + 1) * index).collect(),
            quality,
        })
    }
}

/// Number of distinct columns in which each part has entries and whose indices are not among its rows.
fn halo_of_parts<T: Real>(csr: &Csr<T>, parts: &[Vec<usize>]) -> Vec<usize> {
    // for each column, the last part that owns or has read it; that part does not count the column again
    let mut seen = vec![usize::MAX; csr.cols()];
    let of_part = |(part, rows): (usize, &Vec<usize>)| {
        if csr.rows() == csr.cols() {
            rows.iter().for_each(|&row| seen[row] = part);
        }
        let mut read = 0;
        for &column in rows.iter().flat_map(|&row| csr.row_columns(row)) {
            let last = &mut seen[column as usize];
            read += usize::from(*last != part);
            *last = part;
        }
        read
    };
    parts.iter().enumerate().map(of_part).collect()
}

/// A table with a line for each part, and a last line for the whole partition (sums, density and imbalance).
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        let Quality { parts, density, imbalance } = &self.quality;
        writeln!(
            f,
            "part      rows    nonzeros   imbalance  longest  density    ELL MB    CSR MB      halo"
        )?;
        let slots = self.ellpack_bytes.iter().zip(&self.csr_bytes).zip(&self.halo);
        for (at, (part, ((&ell, &csr), halo))) in parts.iter().zip(slots).enumerate() {
            let PartSummary { rows, nonzeros, longest, .. } = part;
            write!(f, "{at:>4} {rows:>9} {nonzeros:>11} {:>9.4} % {longest:>8}", 100.0 * part.imbalance())?;
            writeln!(f, " {:>6.1} % {:>9.1} {:>9.1} {halo:>9}", 100.0 * part.density(), mb(ell), mb(csr))?;
        }
        let sum = |count: fn(&PartSummary) -> usize| parts.iter().map(count).sum::<usize>();
        write!(f, " all {:>9} {:>11} ", sum(|part| part.rows), sum(|part| part.nonzeros))?;
        let longest = parts.iter().map(|part| part.longest).max().unwrap_or(0);
        write!(f, "{:>9.4} % {longest:>8} {:>6.1} %", 100.0 * imbalance, 100.0 * density)?;
        let [ell, csr, halo] = [&self.ellpack_bytes, &self.csr_bytes, &self.halo].map(|all| all.iter().sum());
        write!(f, " {:>9.1} {:>9.1} {halo:>9}", mb(ell), mb(csr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imbalance_is_a_magnitude() {
        let q = quality(&[4, 2], [vec![0], vec![1]], &[1.0, 1.0]).unwrap();
        assert!((q.imbalance - 2.0 / 3.0).abs() < 1e-15);
    }

    /// Rows `{0, 2}` of a matrix of four rows read column 1 twice and column 3 once, both of the other part;
    /// rows `{1, 3}` read only their own columns.
    #[test]
    fn a_report_counts_what_parts_read_of_each_other() {
        let entries = [(0, 0, 1.0), (0, 1, 1.0), (1, 1, 1.0), (2, 1, 1.0), (2, 3, 1.0), (3, 3, 1.0)];
        let a = Csr::from_triplets(4, 4, &entries).unwrap();
        let report = Report::new(&a, &[vec![0, 2], vec![1, 3]], &[2.0, 1.0]).unwrap();
        assert_eq!(report.halo, [2, 0]);
        assert_eq!(report.ellpack_bytes, [4 * 12 + 8, 2 * 12 + 8]);
        assert_eq!(report.csr_bytes, [4 * 12 + 12, 2 * 12 + 12]);
        assert_eq!((report.quality.imbalance, report.quality.density), (0.0, 1.0));
        let printed = report.to_string();
        let numbers = |line: usize| printed.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(
            numbers(1),
            ["0", "2", "4", "0.0000", "%", "2", "100.0", "%", "0.0", "0.0", "2"],
            "{printed}"
        );
        assert_eq!(numbers(3)[..3], ["all", "4", "6"], "{printed}");
    }
}
