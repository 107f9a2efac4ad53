//! What could be chosen, what it costs, and how that reads.

use super::layouts::{self, Values};
use super::model::Model;
use crate::formats::{Strategy, check_symmetric};
use crate::{Csr, Real};
use krysp_kernels::price::Work;
use std::fmt;

/// A format and what was found for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Compressed rows.
    Csr {
        /// How threads share them.
        strategy: Strategy,
    },
    /// The row, the column and the value of every entry.
    Coo,
    /// Coordinates sorted by slabs of columns, whose part of `x` is kept on the chip.
    Slabs {
        /// Sums that are brought to their rows, about.
        sums: usize,
    },
    /// Slices of rows.
    Sell {
        /// Rows are sorted by length.
        sorted: bool,
        /// Columns take 16 bits.
        short_columns: bool,
    },
    /// Rows padded to the longest.
    Ell {
        /// Its length.
        width: usize,
    },
    /// Rows padded to the longest, with their true lengths beside them.
    EllpackR {
        /// The length of the longest row.
        width: usize,
    },
    /// The first entries of every row padded, the others as coordinates.
    Hyb {
        /// How many are the first.
        width: usize,
        /// How many are the others, in all rows.
        overflow: usize,
    },
    /// Dense blocks.
    Bsr {
        /// Rows and columns of a block.
        size: usize,
    },
    /// Blocks of rows with a window of `x`.
    Halo {
        /// Rows of a node.
        size: usize,
        /// Entries of `x` outside of the blocks' own, all blocks together.
        halo: usize,
    },
    /// One triangle.
    SymCsr,
    /// Dense blocks of one triangle.
    SymBsr {
        /// Rows and columns of a block.
        size: usize,
        /// Entries of `x` outside of the blocks of rows that a GPU cuts, all together.
        halo: usize,
    },
    /// Diagonals.
    Dia {
        /// How many.
        diagonals: usize,
    },
}

impl Stored {
    /// The format's name.
    pub fn format(self) -> &'static str {
        match self {
            Stored::Csr { strategy } => match strategy {
                Strategy::Automatic | Strategy::Classical => "CSR",
                Strategy::LoadBalance => "CSR load-balance",
                Strategy::MergePath => "CSR merge-path",
                Strategy::Speculative => "CSR speculative",
            },
            Stored::Coo => "COO",
            Stored::Slabs { .. } => "COO slabs",
            Stored::Sell { .. } => "SELL-P",
            Stored::Ell { .. } => "ELL",
            Stored::EllpackR { .. } => "ELLPACK-R",
            Stored::Hyb { .. } => "HYB",
            Stored::Bsr { .. } => "BSR",
            Stored::Halo { .. } => "Halo",
            Stored::SymCsr => "symmetric CSR",
            Stored::SymBsr { .. } => "symmetric BSR",
            Stored::Dia { .. } => "DIA",
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.format())?;
        match *self {
            Stored::Csr { .. } | Stored::Coo | Stored::SymCsr => Ok(()),
            Stored::Slabs { sums } => write!(f, ", {sums} sums"),
            Stored::Sell { sorted, short_columns } => {
                let bits = if short_columns { 16 } else { 32 };
                write!(f, ", columns of {bits} bits{}", if sorted { ", rows sorted by length" } else { "" })
            }
            Stored::Ell { width } | Stored::EllpackR { width } => write!(f, ", {width} slots a row"),
            Stored::Hyb { width, overflow } => {
                write!(f, ", {width} slots a row and {overflow} entries beyond")
            }
            Stored::Bsr { size } | Stored::SymBsr { size, .. } => write!(f, ", blocks of {size} x {size}"),
            Stored::Halo { size, halo } => write!(f, ", nodes of {size}, {halo} entries of x in halos"),
            Stored::Dia { diagonals } => write!(f, ", {diagonals} diagonals"),
        }
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
#[derive(Clone, Copy, Debug, PartialEq)]
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

/// Which format was chosen, why, and why no other.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    rows: RowStatistics,
    chosen: Estimate,
    rejected: Vec<Candidate>,
}

/// A format with the bytes and the padding it would have.
pub(super) struct Footprint {
    pub(super) stored: Stored,
    pub(super) bytes: usize,
    pub(super) padding: f64,
}

/// What every format would take of a matrix.
pub(super) struct Footprints {
    pub(super) rows: RowStatistics,
    pub(super) csr: Footprint,
    pub(super) others: Vec<Result<Footprint, Candidate>>,
}

impl Choice {
    /// What is likely to be the fastest format of a matrix on a machine, which need not be at hand.
    ///
    /// ```
    /// use krysp::choice::{Choice, Model};
    /// # use krysp::Csr;
    ///
    /// let csr = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, 2.0)])?;
    /// println!("{}", Choice::of(&csr, Model::Host));
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn of<T: Real>(csr: &Csr<T>, machine: Model) -> Choice {
        Choice::new(layouts::of(csr, machine, Values::Any), machine)
    }

    /// The choice among all formats, symmetric ones too, for a matrix whose values are symmetric and remain so; refuses one that
    /// is not symmetric.
    pub fn of_symmetric<T: Real>(csr: &Csr<T>, machine: Model) -> crate::Result<Choice> {
        check_symmetric(csr)?;
        Ok(Choice::new(layouts::of(csr, machine, Values::Symmetric), machine))
    }

    /// The one of the least cost; the first of several.
    fn new(Footprints { rows, csr, others }: Footprints, machine: Model) -> Choice {
        let estimate = |Footprint { stored, bytes, padding }| {
            let work = machine.work(&rows, stored, bytes);
            let cost = machine.price(stored.format()).map_or(f64::INFINITY, |price| price.cost(&work));
            Estimate { stored, bytes, padding, work, cost }
        };
        let mut chosen = estimate(csr);
        let mut rejected = vec![];
        for other in others {
            match other.map(&estimate) {
                // not on this machine
                Ok(other) if other.cost.is_infinite() => {}
                Ok(other) if other.cost < chosen.cost => {
                    rejected.push(Candidate::Costlier(std::mem::replace(&mut chosen, other)));
                }
                Ok(other) => rejected.push(Candidate::Costlier(other)),
                Err(unsuitable) => rejected.push(unsuitable),
            }
        }
        rejected.sort_by(|a, b| a.cost().total_cmp(&b.cost()));
        Choice { rows, chosen, rejected }
    }

    /// Takes the next best instead; false where there is none.
    pub(super) fn next_best(&mut self, format: &'static str, why: String) -> bool {
        let Some(&Candidate::Costlier(next)) = self.rejected.first() else { return false };
        self.rejected.remove(0);
        self.rejected.push(Candidate::Unsuitable { format, why });
        self.chosen = next;
        true
    }

    /// The format chosen.
    pub fn stored(&self) -> Stored {
        self.chosen.stored
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

    fn cost(&self) -> f64 {
        match self {
            Candidate::Costlier(estimate) => estimate.cost,
            Candidate::Unsuitable { .. } => f64::INFINITY,
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
