//! Tables of the processors' parts.

use super::coprocessor::Coprocessor;
use super::matrix::SplitMatrix;
use crate::numbers::Real;
use crate::partition::{Balance, PartSummary};
use krysp_solvers::{LinearOperator, Space};
use std::fmt;

/// The part of the host, or of a machine beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberReport {
    /// Name of the processor.
    pub name: String,
    /// Sizes of its rows, and the nonzeros that it should have by the powers.
    pub rows: PartSummary,
    /// Number of nonzeros of the whole matrix.
    pub of_all: usize,
    /// Number of nonzeros in columns of other processors.
    pub off_diagonal: usize,
    /// Number of entries of `x` received in a product.
    pub received: usize,
    /// Bytes of matrix arrays that a product reads.
    pub bytes: usize,
    /// Format of the diagonal block, which holds the entries in columns of this processor; empty without rows.
    pub format: String,
    /// Estimated seconds of this part of a product, if powers were measured.
    pub predicted: Option<f64>,
}

/// Writes a table of the parts, with measured times if there are any.
fn table(f: &mut fmt::Formatter<'_>, members: &[MemberReport], measured: Option<&[f64]>) -> fmt::Result {
    let width = members.iter().map(|member| member.name.len()).max().unwrap_or(0).max(9);
    write!(
        f,
        "{:width$} {:>10} {:>11} {:>9} {:>9} {:>11}",
        "processor", "rows", "entries", "asked, %", "got, %", "imbalance, %"
    )?;
    write!(
        f,
        " {:>10} {:>10} {:>10} {:>9} {:>13}",
        "density, %", "outside", "receives", "reads, MB", "predicted, ms"
    )?;
    writeln!(f, "{}  format", if measured.is_some() { "  measured, ms" } else { "" })?;
    for (at, member) in members.iter().enumerate() {
        let MemberReport { name, rows, of_all, off_diagonal, received, bytes, format, predicted } = member;
        let of = |entries: f64| 100.0 * entries / (*of_all).max(1) as f64;
        let [asked, got] = [rows.share, rows.nonzeros as f64].map(of);
        let (imbalance, density) = (100.0 * rows.imbalance(), 100.0 * rows.density());
        let ms = |seconds: Option<f64>| seconds.map_or("-".into(), |seconds| format!("{:.4}", 1e3 * seconds));
        write!(
            f,
            "{name:width$} {:>10} {:>11} {asked:>9.3} {got:>9.3} {imbalance:>11.4}",
            rows.rows, rows.nonzeros
        )?;
        write!(
            f,
            " {density:>10.1} {off_diagonal:>10} {received:>10} {:>9.2} {:>13}",
            *bytes as f64 / 1e6,
            ms(*predicted)
        )?;
        if let Some(measured) = measured {
            write!(f, " {:>13}", ms(measured.get(at).copied()))?;
        }
        writeln!(f, "  {}", if rows.rows == 0 { "-" } else { format })?;
    }
    let imbalance: f64 = members.iter().map(|member| member.rows.imbalance()).sum();
    let [nonzeros, slots] = [|part: &PartSummary| part.nonzeros, PartSummary::slots]
        .map(|of| members.iter().map(|member| of(&member.rows)).sum::<usize>());
    let density = 100.0 * nonzeros as f64 / slots.max(1) as f64;
    write!(f, "imbalance {:.4} %, mean density {density:.1} %", 100.0 * imbalance)
}

/// Table of the parts, and the estimated times of an iteration with and without the host.
impl<T: Real, M: Coprocessor<T>> fmt::Display for SplitMatrix<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.members().first().map_or(0, |member| member.of_all);
        writeln!(f, "{} rows, {entries} entries", self.domain().len())?;
        table(f, self.members(), None)?;
        self.forecast.as_ref().map_or(Ok(()), |forecast| write!(f, "\n{forecast}"))
    }
}

/// Measured times of the parts of a product.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The parts of all processors.
    pub members: Vec<MemberReport>,
    /// Seconds that each processor takes for its part of a product, without waiting for others; zero without
    /// rows.
    pub seconds: Vec<f64>,
    /// Seconds of a whole product.
    pub product: f64,
}

impl Measured {
    /// The measured computing power of each processor, in entries per second, zero without rows. If rows are
    /// split by these powers, all parts take equally long. They do not consider the memory of the machines.
    pub fn powers(&self) -> Vec<f64> {
        let mut powers = self.balance().powers().into_iter();
        let power = |member: &MemberReport| match member.rows.rows {
            0 => 0.0,
            _ => powers.next().unwrap_or(0.0),
        };
        self.members.iter().map(power).collect()
    }

    /// Estimated fraction of the time of a whole product that shares by these powers would save. Waits and
    /// exchanges take as long as before.
    pub fn gain(&self) -> f64 {
        let longest = self.seconds.iter().copied().fold(0.0, f64::max);
        // a product takes at least as long as its longest part, whenever both were measured
        self.balance().gain() * longest / self.product.max(longest)
    }

    /// The times of the processors that have rows.
    fn balance(&self) -> Balance {
        let used = self.members.iter().zip(&self.seconds).filter(|(member, _)| member.rows.rows > 0);
        let (entries, seconds) = used.map(|(member, seconds)| (member.rows.nonzeros, *seconds)).unzip();
        Balance { seconds, entries }
    }
}

/// Table of the parts with measured times, the time of a product, and the estimated gain of other shares.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table(f, &self.members, Some(&self.seconds))?;
        let (product, gain) = (1e3 * self.product, 100.0 * self.gain());
        write!(f, "\na product takes {product:.4} ms; with shares by the measured times, {gain:.1} % less")
    }
}
