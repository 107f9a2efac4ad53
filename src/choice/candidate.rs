//! Candidates for the format of a matrix, their estimated costs, and the report of the choice.

use crate::formats::analysis::{RowStatistics, megabytes};
use crate::saved::saved;
use krysp_kernels::cost::ProductWork;
use std::fmt;

/// A format and its parameters for a matrix, `DIA, 7 diagonals` for example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFormat {
    pub(super) format: &'static str,
    /// Parameters as text; may be empty.
    pub(super) detail: String,
    /// True if the format stores one triangle of a symmetric matrix.
    pub(super) symmetric: bool,
}

saved!(impl[] StoredFormat { format, detail, symmetric });

impl StoredFormat {
    /// Returns whether the format stores one triangle of a symmetric matrix.
    pub(crate) fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    /// Name in benchmark records: that of the format and, if it has several algorithms, of the algorithm.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// The parameters as text, for example the number of diagonals. May be empty.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for StoredFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.format)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ", {}", self.detail) }
    }
}

/// The estimated cost of a format.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The format.
    pub stored: StoredFormat,
    /// Bytes of the matrix that a matrix-vector product reads.
    pub bytes: usize,
    /// Slots of padding per entry.
    pub padding: f64,
    /// The work of a matrix-vector product.
    pub work: ProductWork,
    /// Estimated cost of a matrix-vector product: the bytes that the machine could stream in the same time.
    pub cost: f64,
}

saved!(impl[] Estimate { stored, bytes, padding, work, cost });

/// Part of the time of a product with one vector that each vector of a joint product takes besides its share
/// of reading the matrix. Formats took 0.18 to 0.60 of a single product for each of eight vectors on a CPU,
/// and 0.25 to 0.74 on a GPU (`benches/record/notes.md`), from which 0.06 to 0.70 follow; 0.25 is near the middle.
const PER_VECTOR: f64 = 0.25;

/// Maximum number of vectors for which a format reads the matrix once.
const JOINT: usize = 8;

impl Estimate {
    /// Estimated cost per vector of a product with several vectors. Symmetric formats multiply one vector
    /// after the other.
    pub(crate) fn cost_of_joint(&self, columns: usize) -> f64 {
        self.cost * if self.stored.is_symmetric() { 1.0 } else { share_of_joint(columns) }
    }
}

/// Estimated cost per vector of a product with several vectors, over that of a product with one.
pub(crate) fn share_of_joint(columns: usize) -> f64 {
    PER_VECTOR + (1.0 - PER_VECTOR) / columns.clamp(1, JOINT) as f64
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate { stored, bytes, padding, cost, .. } = self;
        write!(f, "{stored}: reads {}, {:.1} % padding", megabytes(*bytes), 100.0 * padding)?;
        write!(f, ", cost as for streaming {}", megabytes(*cost as usize))
    }
}

/// A format that was not chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Candidate {
    /// A format whose estimated cost is higher than that of the chosen one.
    HigherCost(Estimate),
    /// A format that cannot store this matrix, or is not suitable for it.
    Unsuitable {
        /// The name of the format.
        format: &'static str,
        /// The reason.
        why: String,
    },
}

// a format without estimate has a reason
saved!(impl[] Candidate as |this| {
    estimate: Option<Estimate> = &match this {
        Candidate::HigherCost(estimate) => Some(estimate.clone()),
        Candidate::Unsuitable { .. } => None,
    },
    format: &'static str = &this.format(),
    why: String = if let Candidate::Unsuitable { why, .. } = this { why.as_str() } else { "" },
} => match estimate {
    Some(estimate) => Ok(Candidate::HigherCost(estimate)),
    None => Ok(Candidate::Unsuitable { format, why }),
});

/// The chosen format, and the reasons against all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    rows: RowStatistics,
    chosen: Estimate,
    rejected: Vec<Candidate>,
}

saved!(impl[] Choice { rows, chosen, rejected });

impl Choice {
    /// Creates a choice. `others` are the estimates of the other formats, sorted by cost; `unsuitable`
    /// formats have no estimate.
    pub(super) fn new(
        rows: RowStatistics,
        chosen: Estimate,
        others: Vec<Estimate>,
        unsuitable: Vec<Candidate>,
    ) -> Choice {
        let rejected = others.into_iter().map(Candidate::HigherCost).chain(unsuitable).collect();
        Choice { rows, chosen, rejected }
    }

    /// The chosen format.
    pub fn stored(&self) -> &StoredFormat {
        &self.chosen.stored
    }

    /// The estimate of the chosen format.
    pub fn chosen(&self) -> &Estimate {
        &self.chosen
    }

    /// All other formats: those with an estimate sorted by cost, then the unsuitable ones.
    pub fn rejected(&self) -> &[Candidate] {
        &self.rejected
    }

    /// Statistics of the matrix on which the choice is based.
    pub fn rows(&self) -> &RowStatistics {
        &self.rows
    }
}

impl Candidate {
    /// The name of the format.
    pub fn format(&self) -> &'static str {
        match self {
            Candidate::HigherCost(estimate) => estimate.stored.format(),
            Candidate::Unsuitable { format, .. } => format,
        }
    }
}

/// Prints the choice, the statistics of the matrix, and a line for each format that was rejected.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, the lowest\n{}", self.chosen, self.rows)?;
        for candidate in &self.rejected {
            match candidate {
                Candidate::HigherCost(estimate) => {
                    let times = estimate.cost / self.chosen.cost.max(1.0);
                    write!(f, "\nnot {estimate}, {times:.2} times the lowest")?;
                }
                Candidate::Unsuitable { format, why } => write!(f, "\nnot {format}: {why}")?,
            }
        }
        Ok(())
    }
}
