//! What could be chosen, what it costs, and how that reads.

use super::model::names;
use crate::saved::{Broken, Loaded, Reader, Saved, Writer, saved};
use krysp_kernels::price::Work;
use std::fmt;

/// A format and what was found for it, `DIA, 7 diagonals` for example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub(super) format: &'static str,
    /// May be empty.
    pub(super) detail: String,
}

impl Saved for Stored {
    fn save(&self, to: &mut Writer<'_>) {
        self.format.to_owned().save(to);
        self.detail.save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Stored> {
        Ok(Stored { format: known_name(from)?, detail: from.load()? })
    }
}

/// The name of a format.
fn known_name(from: &mut Reader<'_>) -> Loaded<&'static str> {
    let name: String = from.load()?;
    names().into_iter().find(|known| *known == name).ok_or(Broken)
}

impl Stored {
    /// The name that records have: the format's, and how it is multiplied where there are several ways.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// What was found, in words: how many diagonals, for example. Empty where there is nothing to say.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.format)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ", {}", self.detail) }
    }
}

/// The lengths of a matrix's rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowStatistics {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Entries.
    pub entries: usize,
    /// Entries of the shortest row.
    pub shortest: usize,
    /// Entries of the longest row.
    pub longest: usize,
    /// The `x` at which HYB takes the fewest bytes.
    pub quantile_at: f64,
    /// The quantile `t = Q_R(x)` of the row lengths.
    pub quantile: usize,
    /// `S(t)`: the bytes of HYB with `t` slots a row, by the formula of Anzt et al.
    pub hyb_bytes: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Of the entries of `x` that rows read, the share that lies neither beside nor close after others.
    pub scattering: f64,
}

saved!(impl[] RowStatistics {
    rows, cols, entries, shortest, longest, quantile_at, quantile, hyb_bytes, value, scattering
});

impl RowStatistics {
    /// Entries of a row, in the mean.
    pub fn mean(&self) -> f64 {
        self.entries as f64 / self.rows.max(1) as f64
    }

    /// The longest row over the mean, 1 where all are equal.
    pub fn imbalance(&self) -> f64 {
        if self.entries == 0 { 1.0 } else { self.longest as f64 / self.mean() }
    }
}

impl fmt::Display for RowStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowStatistics {
            rows,
            cols,
            entries,
            shortest,
            longest,
            quantile_at,
            quantile,
            hyb_bytes,
            scattering,
            ..
        } = self;
        write!(
            f,
            "{rows} x {cols}, {entries} entries, {shortest} to {longest} a row, {:.2} in the mean",
            self.mean()
        )?;
        write!(f, " (imbalance {:.1}), Q_R({quantile_at:.2}) = {quantile}", self.imbalance())?;
        write!(f, ", S({quantile}) = {}", megabytes(*hyb_bytes))?;
        write!(f, ", {:.0} % of x scattered", 100.0 * scattering)
    }
}

/// What a format would cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The format.
    pub stored: Stored,
    /// Bytes of it that a product reads, vectors apart.
    pub bytes: usize,
    /// Slots of padding for each entry.
    pub padding: f64,
    /// What a product does.
    pub work: Work,
    /// Bytes that the machine streams while it computes a product: `bytes`, and what they do not tell.
    pub cost: f64,
}

saved!(impl[] Estimate { stored, bytes, padding, work, cost });

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate { stored, bytes, padding, cost, .. } = self;
        write!(f, "{stored}: reads {}, {:.1} % padding", megabytes(*bytes), 100.0 * padding)?;
        write!(f, ", costs as much as to stream {}", megabytes(*cost as usize))
    }
}

fn megabytes(bytes: usize) -> String {
    let (number, unit) =
        if bytes < 1_000_000 { (bytes as f64 / 1e3, "kB") } else { (bytes as f64 / 1e6, "MB") };
    format!("{number:.1} {unit}")
}

/// A format that was not chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Candidate {
    /// It would cost more.
    Costlier(Estimate),
    /// It cannot store this matrix, or should not.
    Unsuitable {
        /// The format's name.
        format: &'static str,
        /// Why not.
        why: String,
    },
}

impl Saved for Candidate {
    fn save(&self, to: &mut Writer<'_>) {
        match self {
            Candidate::Costlier(estimate) => {
                true.save(to);
                estimate.save(to);
            }
            Candidate::Unsuitable { format, why } => {
                false.save(to);
                ((*format).to_owned(), why.clone()).save(to);
            }
        }
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Candidate> {
        match from.load()? {
            true => Ok(Candidate::Costlier(from.load()?)),
            false => Ok(Candidate::Unsuitable { format: known_name(from)?, why: from.load()? }),
        }
    }
}

/// Which format was chosen, why, and why no other.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    rows: RowStatistics,
    chosen: Estimate,
    rejected: Vec<Candidate>,
}

saved!(impl[] Choice { rows, chosen, rejected });

impl Choice {
    /// `others` have their estimates, the least cost first; `unsuitable` have none.
    pub(super) fn new(
        rows: RowStatistics,
        chosen: Estimate,
        others: Vec<Estimate>,
        unsuitable: Vec<Candidate>,
    ) -> Choice {
        let rejected = others.into_iter().map(Candidate::Costlier).chain(unsuitable).collect();
        Choice { rows, chosen, rejected }
    }

    /// The format chosen.
    pub fn stored(&self) -> &Stored {
        &self.chosen.stored
    }

    /// What it costs.
    pub fn chosen(&self) -> &Estimate {
        &self.chosen
    }

    /// All others, the least cost first.
    pub fn rejected(&self) -> &[Candidate] {
        &self.rejected
    }

    /// What the decision was made from.
    pub fn rows(&self) -> &RowStatistics {
        &self.rows
    }
}

impl Candidate {
    /// The format's name.
    pub fn format(&self) -> &'static str {
        match self {
            Candidate::Costlier(estimate) => estimate.stored.format(),
            Candidate::Unsuitable { format, .. } => format,
        }
    }
}

/// The choice, what it was made from, and a line for each format that was rejected.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, the least of all\n{}", self.chosen, self.rows)?;
        for candidate in &self.rejected {
            match candidate {
                Candidate::Costlier(estimate) => {
                    let times = estimate.cost / self.chosen.cost.max(1.0);
                    write!(f, "\nnot {estimate}, {times:.2} times as much")?;
                }
                Candidate::Unsuitable { format, why } => write!(f, "\nnot {format}: {why}")?,
            }
        }
        Ok(())
    }
}
