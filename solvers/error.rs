//! Misuse and failing hardware. How a solve ended is an [`Outcome`](crate::Outcome), not an error.

/// What solvers return.
pub type Result<T> = std::result::Result<T, Error>;

/// Misuse, or a failure below the solver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A vector does not fit the operator.
    #[error("{what} has {got} entries, {of} has {expected}")]
    Size {
        /// The vector.
        what: &'static str,
        /// Its length.
        got: usize,
        /// What it must fit, "`A`'s rows" for example.
        of: &'static str,
        /// The length that fits.
        expected: usize,
    },
    /// The operator maps between different spaces.
    #[error(
        "`A` is {rows} x {columns} (or numbers rows and columns differently), this method needs a square operator"
    )]
    NotSquare {
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
    },
    /// Two things live in different spaces.
    #[error(
        "{what} lives in another space than {than} (another length, memory or numbering): build it in the operator's \
         space, `csr.in_space(op.domain())`, or create it from `op.domain().zeros()`"
    )]
    Space {
        /// The one.
        what: &'static str,
        /// The other.
        than: &'static str,
    },
    /// Bounds of eigenvalues that none can lie between.
    #[error("eigenvalues between {low:e} and {high:e}: the bounds must be finite, above zero, and in order")]
    Bounds {
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// A vector that is to span a null space with others adds nothing to them.
    #[error("vector {vector} of the null space is zero, or a combination of those before it")]
    Dependent {
        /// Which one, from 0 on.
        vector: usize,
    },
    /// A vector is not mapped to zero.
    #[error(
        "vector {vector} is not in the null space of `A`: `A v` has norm {image:e}, where the same entries with other \
         signs give {usual:e}"
    )]
    NotNull {
        /// Which one, from 0 on.
        vector: usize,
        /// `‖A v‖`
        image: f64,
        /// What is usual for a vector of this size.
        usual: f64,
    },
    /// A watched number left its range. The driver turns this into [`Outcome::Breakdown`](crate::Outcome::Breakdown).
    #[error("breakdown: {what} = {value:e}")]
    Breakdown {
        /// The number's name.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// An operator, a preconditioner or the hardware failed.
    #[error(transparent)]
    Backend(#[from] Box<dyn std::error::Error + Send + Sync>),
}
