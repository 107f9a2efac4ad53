//! Errors: misuse and failures of hardware. How a solve ended is an [`Outcome`](crate::Outcome), not an
//! error.

use std::fmt;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Misuse, or a failure of an operator or of the hardware.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A vector or a preconditioner has the wrong length.
    #[error("{what} has {got} entries, {of} has {expected}")]
    Size {
        /// Name of what has the wrong length.
        what: &'static str,
        /// Length found.
        got: usize,
        /// Name of what the vector must match, for example "`A`'s rows".
        of: &'static str,
        /// Length required.
        expected: usize,
    },
    /// Two multivectors have different numbers of columns.
    #[error("{what} has {got} columns, {of} has {expected}")]
    Columns {
        /// Name of what has the wrong number of columns.
        what: &'static str,
        /// Number of columns found.
        got: usize,
        /// Name of what the number of columns must match.
        of: &'static str,
        /// Number of columns required.
        expected: usize,
    },
    /// Domain and range of the operator differ.
    #[error(
        "`A` is {rows} x {columns} (or orders rows and columns differently), this method needs a square operator"
    )]
    NotSquare {
        /// Number of rows of the operator.
        rows: usize,
        /// Number of columns of the operator.
        columns: usize,
    },
    /// Two vectors or operators are in different spaces: they differ in memory, length or order of unknowns.
    #[error(
        "{what} is in another space than {than} (another length, memory or ordering): build it in the operator's \
         space, `csr.in_space(op.domain())`, or create it from `op.domain().zeros()`"
    )]
    Space {
        /// Name of what is in the wrong space.
        what: &'static str,
        /// Name of what determines the required space.
        than: &'static str,
    },
    /// Bounds of eigenvalues that are out of order, not positive or not finite.
    #[error("eigenvalues between {low:e} and {high:e}: the bounds must be finite, above zero, and in order")]
    Bounds {
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// A vector of the null space is zero, or a linear combination of earlier ones.
    #[error("vector {vector} of the null space is zero, or a linear combination of those before it")]
    Dependent {
        /// The index of the vector, from 0.
        vector: usize,
    },
    /// A vector of the declared null space is not mapped to zero.
    #[error(
        "vector {vector} is not in the null space of `A`: `A v` has norm {image:e}, where the same entries with other \
         signs give {usual:e}"
    )]
    NotNull {
        /// The index of the vector, from 0.
        vector: usize,
        /// `‖A v‖`
        image: f64,
        /// `‖A v‖` for entries of the same magnitudes with other signs.
        usual: f64,
    },
    /// A watched number violates its condition. The driver converts this to
    /// [`Outcome::Breakdown`](crate::Outcome::Breakdown).
    #[error("breakdown: {what} = {value:e}")]
    Breakdown {
        /// Name of the number.
        what: &'static str,
        /// Value of the number.
        value: f64,
    },
    /// An operator, a preconditioner or the hardware failed.
    #[error(transparent)]
    Backend(#[from] Box<dyn std::error::Error + Send + Sync>),
}

/// Prints the message, because a `main` that returns the error prints its `Debug` output.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
