//! What can be wrong with the data a user hands in.

use crate::io::matrix_market::{ReadError, WriteError};

/// What constructors and conversions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Misuse, said with numbers and advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Arrays that belong together differ in length.
    #[error("{what} has {got} entries, {expected} are needed ({why})")]
    Length {
        /// Which array.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length it needs.
        expected: usize,
        /// Why.
        why: &'static str,
    },
    /// An index lies outside the matrix.
    #[error("entry {position} has {what} {index}, but the matrix has {bound} {what}s (indices start at 0)")]
    Index {
        /// The entry.
        position: usize,
        /// "row" or "column".
        what: &'static str,
        /// Its index.
        index: i128,
        /// Indices must stay below.
        bound: usize,
    },
    /// Offsets fall, start late or end elsewhere than the entries do.
    #[error(
        "offset {position} is {offset}: offsets start at 0, never fall and end at the number of entries, {entries}"
    )]
    Offsets {
        /// Which offset.
        position: usize,
        /// Its value.
        offset: i128,
        /// The number of entries.
        entries: usize,
    },
    /// A dimension beyond what 32-bit column indices reach.
    #[error("the matrix has {got} {what}s, at most 2147483648 are possible with 32-bit indices")]
    TooLarge {
        /// "row" or "column".
        what: &'static str,
        /// How many.
        got: usize,
    },
    /// An operation on square matrices was asked of another.
    #[error("{what} needs a square matrix, this one is {rows} x {cols}")]
    NotSquare {
        /// The operation.
        what: &'static str,
        /// The matrix's rows.
        rows: usize,
        /// The matrix's columns.
        cols: usize,
    },
    /// Entries on both sides of the diagonal where one triangle was promised.
    #[error(
        "entries ({row}, {col}) and ({other_row}, {other_col}) lie on both sides of the diagonal: give one triangle"
    )]
    NotTriangle {
        /// The row of an entry below the diagonal.
        row: usize,
        /// Its column.
        col: usize,
        /// The row of an entry above the diagonal.
        other_row: usize,
        /// Its column.
        other_col: usize,
    },
    /// `aᵢⱼ ≠ aⱼᵢ` where symmetry was promised.
    #[error(
        "the matrix is not symmetric: entry ({row}, {col}) is {value:e}, entry ({col}, {row}) is {mirrored:e}"
    )]
    NotSymmetric {
        /// The row.
        row: usize,
        /// The column.
        col: usize,
        /// The entry there.
        value: f64,
        /// The entry on the other side, zero where none is stored.
        mirrored: f64,
    },
    /// An entry is infinite or NaN.
    #[error("entry ({row}, {col}) is {value}")]
    NotFinite {
        /// Its row.
        row: usize,
        /// Its column.
        col: usize,
        /// Its value.
        value: f64,
    },
    /// A diagonal entry that is zero, missing or not finite where it is divided by.
    #[error("row {row} has {value} on the diagonal: Jacobi divides by it, scaling by its root")]
    ZeroDiagonal {
        /// The row.
        row: usize,
        /// What stands there; zero where nothing is stored.
        value: f64,
    },
    /// A pivot that is not positive where a positive definite matrix was promised.
    #[error("{what}: the matrix is not positive definite: the pivot of row {row} is {pivot:e}")]
    NotPositive {
        /// What factorises.
        what: &'static str,
        /// The row.
        row: usize,
        /// Its pivot.
        pivot: f64,
    },
    /// A coarse operator that is not positive definite.
    #[error(
        "the matrix is not positive definite as its coarse space sees it: the pivot of aggregate {aggregate} ({rows} rows, row {row} the first) is {pivot:e}"
    )]
    CoarseNotPositive {
        /// The aggregate.
        aggregate: usize,
        /// How many rows it has.
        rows: usize,
        /// Its first row.
        row: usize,
        /// The pivot.
        pivot: f64,
    },
    /// A pivot that cannot be divided by.
    #[error("{what}: the pivot of row {row} is {pivot:e}")]
    ZeroPivot {
        /// What factorises.
        what: &'static str,
        /// The row.
        row: usize,
        /// Its pivot, zero where nothing is stored.
        pivot: f64,
    },
    /// A local system whose columns depend on each other.
    #[error("{what}: the local system of row or column {at} is singular at its unknown {unknown}")]
    SingularLocal {
        /// What is being built.
        what: &'static str,
        /// The row or column of it.
        at: usize,
        /// The unknown that depends on those before it.
        unknown: usize,
    },
    /// New values come with another pattern than the one that was analysed.
    #[error("the matrix has another pattern than the one analysed, in row {row}: build anew")]
    OtherPattern {
        /// The first row that differs.
        row: usize,
    },
    /// A diagonal block without an inverse.
    #[error("the diagonal block of rows {first}..{end} is singular")]
    SingularBlock {
        /// Its first row.
        first: usize,
        /// One past its last row.
        end: usize,
    },
    /// A format that does not suit the matrix.
    #[error("{format} does not suit this matrix: {why}")]
    Unsuitable {
        /// The format.
        format: &'static str,
        /// Why, with numbers and what to use instead.
        why: String,
    },
    /// An option out of its range.
    #[error("{what} is {got}: {expected}")]
    Option {
        /// The option.
        what: &'static str,
        /// Its value.
        got: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A permutation that names an index twice or leaves one out.
    #[error("not a permutation of 0..{len}: place {position} says {index}, which is out of range or taken")]
    NotPermutation {
        /// Its length.
        len: usize,
        /// Where.
        position: usize,
        /// What stands there.
        index: usize,
    },
    /// A matrix file that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A matrix file that cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A GPU that is not there, is full, or failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] krysp_kernels::cuda::Error),
    /// A failure in the solver or in the spaces it checks.
    #[error(transparent)]
    Solver(#[from] krysp_solvers::Error),
}

/// For operators of one's own, whose methods return what solvers return: `?` passes errors of this crate on.
impl From<Error> for krysp_solvers::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Solver(error) => error,
            other => krysp_solvers::Error::Backend(Box::new(other)),
        }
    }
}
