//! The error type of this crate.

mod file;

pub use file::{ReadError, WriteError};

use std::fmt;
use std::path::PathBuf;

/// The result type of constructors and conversions.
pub type Result<T> = std::result::Result<T, Error>;

/// Invalid input, or a failure of files, GPU or solver. Messages contain the numbers and say what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Arrays that belong together differ in length.
    #[error("{what} must have {expected} entries ({why}); got {got}")]
    Length {
        /// The array.
        what: &'static str,
        /// The length of the array.
        got: usize,
        /// The required length.
        expected: usize,
        /// Reason for the required length.
        why: &'static str,
    },
    /// An index lies outside the matrix.
    #[error("entry {position} has {what} {index}, but the matrix has {bound} {what}s (indices start at 0)")]
    Index {
        /// The position of the entry among the entries.
        position: usize,
        /// "row" or "column".
        what: &'static str,
        /// The index of the entry.
        index: i128,
        /// The number of rows or columns.
        bound: usize,
    },
    /// Offsets decrease, do not start at 0, or do not end at the number of entries.
    #[error(
        "offset {position} is {offset}: offsets must start at 0, not decrease, and end at the number of entries, {entries}"
    )]
    Offsets {
        /// The position of the offset.
        position: usize,
        /// The value of the offset.
        offset: i128,
        /// The number of entries.
        entries: usize,
    },
    /// A matrix has too many rows or columns for 32-bit indices.
    #[error("the matrix has {got} {what}s, but 32-bit indices allow at most 2147483648")]
    TooLarge {
        /// "row" or "column".
        what: &'static str,
        /// The number of rows or columns.
        got: usize,
    },
    /// An operation needs a square matrix.
    #[error("{what} needs a square matrix; got {rows} x {cols}")]
    NotSquare {
        /// The operation.
        what: &'static str,
        /// Number of rows.
        rows: usize,
        /// Number of columns.
        cols: usize,
    },
    /// The numbers of equations and unknowns of a system differ.
    #[error(
        "the matrix is {rows} x {cols}, a system needs as many equations as unknowns: for least squares solve \
         `Aᵀ A x = Aᵀ b`"
    )]
    Rectangular {
        /// Number of rows.
        rows: usize,
        /// Number of columns.
        cols: usize,
    },
    /// A matrix that must be triangular has entries on both sides of the diagonal.
    #[error(
        "entries ({row}, {col}) and ({other_row}, {other_col}) are on both sides of the diagonal: pass one triangle only"
    )]
    NotTriangle {
        /// The row of an entry below the diagonal.
        row: usize,
        /// The column of that entry.
        col: usize,
        /// The row of an entry above the diagonal.
        other_row: usize,
        /// The column of that entry.
        other_col: usize,
    },
    /// A matrix that must be symmetric has `aᵢⱼ ≠ aⱼᵢ`.
    #[error(
        "the matrix is not symmetric: entry ({row}, {col}) is {value:e}, entry ({col}, {row}) is {mirrored:e}"
    )]
    NotSymmetric {
        /// The row of an entry.
        row: usize,
        /// The column of the entry.
        col: usize,
        /// The value of the entry.
        value: f64,
        /// The value of entry `(col, row)`, zero if none is stored.
        mirrored: f64,
    },
    /// An entry is infinite or NaN. Row and column refer to the user's order.
    #[error("entry ({row}, {col}) is {value} (indices start at 0)")]
    NotFinite {
        /// The row of the entry.
        row: usize,
        /// The column of the entry.
        col: usize,
        /// The value of the entry.
        value: f64,
    },
    /// A diagonal entry is zero, missing, or negative where its root is needed.
    #[error(
        "row {row} has {value} on the diagonal, but Jacobi divides by it, and scaling by its square root"
    )]
    ZeroDiagonal {
        /// The row.
        row: usize,
        /// The diagonal entry; zero if none is stored.
        value: f64,
    },
    /// A pivot is not positive: the matrix is not positive definite.
    #[error("{what}: the matrix is not positive definite: the pivot of row {row} is {pivot:.3e}")]
    NotPositive {
        /// The factorization.
        what: &'static str,
        /// The row.
        row: usize,
        /// The pivot of the row.
        pivot: f64,
    },
    /// The coarse matrix of a two-level preconditioner is not positive definite.
    #[error(
        "the matrix is not positive definite on the coarse space: the pivot of aggregate {aggregate} ({rows} rows, the first is row {row}) is {pivot:.3e}"
    )]
    CoarseNotPositive {
        /// The aggregate.
        aggregate: usize,
        /// The number of rows in the aggregate.
        rows: usize,
        /// The first row of the aggregate.
        row: usize,
        /// The pivot.
        pivot: f64,
    },
    /// A pivot is zero or not finite.
    #[error("{what}: the pivot of row {row} is {pivot:.3e}")]
    ZeroPivot {
        /// The factorization.
        what: &'static str,
        /// The row.
        row: usize,
        /// The pivot of the row; zero if none is stored.
        pivot: f64,
    },
    /// A column depends linearly on those that were eliminated before it: the matrix is singular to rounding.
    #[error("{what}: the matrix is singular: column {column} is linearly dependent, its pivot is {pivot:e}")]
    Singular {
        /// The factorization.
        what: &'static str,
        /// The column.
        column: usize,
        /// The pivot of the column, not exactly zero because of rounding.
        pivot: f64,
    },
    /// An array does not fit into free memory.
    #[error("{what} needs {bytes} bytes, but only {free} are free")]
    Allocation {
        /// The purpose of the array.
        what: &'static str,
        /// The bytes of the array.
        bytes: u128,
        /// The free bytes; the size of the address space if the system does not report them.
        free: usize,
    },
    /// The factors of a matrix exceed the memory limit.
    #[error(
        "{what} needs at least {needed} bytes, more than the limit of {limit}: raise the limit (`DirectOptions::memory`), factorize in `f32`, or use an iterative method"
    )]
    Memory {
        /// The factorization.
        what: &'static str,
        /// A lower bound of the bytes that the factors need.
        needed: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The local system of a row or column is singular.
    #[error("{what}: the local system of row or column {at} is singular at its unknown {unknown}")]
    SingularLocal {
        /// The preconditioner that is being built.
        what: &'static str,
        /// The row or column of the preconditioner.
        at: usize,
        /// The unknown of the local system whose column depends on earlier columns.
        unknown: usize,
    },
    /// New values have a different sparsity pattern than the original matrix.
    #[error(
        "row {row} has a different sparsity pattern than in the original matrix: build again instead of refreshing"
    )]
    PatternMismatch {
        /// The first row that differs.
        row: usize,
    },
    /// A diagonal block is singular.
    #[error("the diagonal block of rows {first}..{end} is singular")]
    SingularBlock {
        /// The first row of the block.
        first: usize,
        /// One past the last row of the block.
        end: usize,
    },
    /// A format or a preconditioner is not suitable for the matrix.
    #[error("{format} is not suitable for this matrix: {why}")]
    Unsuitable {
        /// The format, the preconditioner or the factorization.
        format: &'static str,
        /// The reason, with numbers, and what to use instead.
        why: String,
    },
    /// An option is out of its range.
    #[error("{what} is {got}: {expected}")]
    Option {
        /// The option.
        what: &'static str,
        /// The value of the option.
        got: String,
        /// The allowed values.
        expected: &'static str,
    },
    /// A declaration about a system, its coordinates for example, does not fit the matrix.
    #[error("{what}: {why}")]
    Declaration {
        /// The name of the declaration's method in [`Plan`](crate::Plan).
        what: &'static str,
        /// Message that says what is required, what was found, and where.
        why: String,
    },
    /// A name is unknown.
    #[error("unknown {what} {got:?}: expected one of {known}")]
    Unknown {
        /// "method", "preconditioner" or "format".
        what: &'static str,
        /// The name.
        got: String,
        /// The known names.
        known: String,
    },
    /// A cancel token or a time limit interrupted work of an [`Interrupt`](crate::Interrupt).
    #[error(transparent)]
    Interrupted(#[from] krysp_kernels::interrupt::Interrupted),
    /// A solver has no operator, because an earlier call failed.
    #[error("an earlier call failed and left no operator: build the plan again, or call `refresh`")]
    NoOperator,
    /// An index occurs twice in a permutation or is out of range.
    #[error(
        "not a permutation of 0..{len}: position {position} has {index}, which is out of range or repeated"
    )]
    NotPermutation {
        /// The length of the permutation.
        len: usize,
        /// The first wrong position.
        position: usize,
        /// The index at that position.
        index: usize,
    },
    /// A file does not have the expected content, or its format cannot store the data.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Message that says what is wrong, and what to do.
        why: String,
    },
    /// A saved file cannot be used here.
    #[error("{}: {why}", path.display())]
    Saved {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: SavedFileError,
    },
    /// A Matrix Market file could not be read, or a file of any format could not be opened.
    #[error(transparent)]
    Read(ReadError),
    /// A Matrix Market file could not be written, or a file of any format could not be created.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The GPU is missing, is out of memory, or failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] krysp_kernels::cuda::Error),
    /// Another rank has failed, so this one cannot continue.
    #[error("rank {rank} failed: {message}")]
    Rank {
        /// The rank that failed first.
        rank: usize,
        /// Its error.
        message: String,
    },
    /// Ranks could not be started, or cannot communicate.
    #[error("ranks: {0}")]
    Communication(String),
    /// An error of the solver, or of its checks of vector spaces.
    #[error(transparent)]
    Solver(#[from] krysp_solvers::Error),
}

/// An interruption becomes [`Error::Interrupted`], during reading as everywhere else.
impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        match error {
            ReadError::Interrupted(interrupted) => Error::Interrupted(interrupted),
            error => Error::Read(error),
        }
    }
}

/// Prints the message, because the runtime prints the `Debug` form of an error that `main` returns.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// The error for a declaration that does not fit the matrix.
    pub(crate) fn declaration<X>(what: &'static str, why: String) -> Result<X> {
        Err(Error::Declaration { what, why })
    }

    /// The error for a diagonal entry that cannot be inverted.
    pub(crate) fn diagonal(row: usize, value: f64) -> Error {
        match value.is_finite() {
            true => Error::ZeroDiagonal { row, value },
            false => Error::NotFinite { row, col: row, value },
        }
    }
}

/// With this conversion, methods of user-defined operators, which return errors of the solver crate, can use
/// `?` on errors of this crate.
impl From<Error> for krysp_solvers::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Solver(error) => error,
            other => krysp_solvers::Error::Backend(Box::new(other)),
        }
    }
}

/// The reason why a saved file cannot be used. The saved object must be built and saved again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SavedFileError {
    /// The file was not written by this library.
    #[error("it was not saved by krysp")]
    NotSaved,
    /// The file was truncated, or something was appended.
    #[error("it has {found} bytes, but {stated} were saved: save again")]
    Length {
        /// Number of bytes that were written.
        stated: u64,
        /// Number of bytes of the file.
        found: u64,
    },
    /// The checksum is wrong.
    #[error("its checksum is wrong, so it is damaged: save again")]
    Damaged,
    /// The content is inconsistent, although the checksum is right.
    #[error("its parts are inconsistent: save again")]
    Inconsistent,
    /// The file was saved by another version of this library.
    #[error("it was saved by version {saved}, this is version {here}: save again")]
    Version {
        /// The version that saved it.
        saved: String,
        /// This version.
        here: String,
    },
    /// The file was saved on another kind of processor.
    #[error("it was saved on {saved}, this is {here}: save again")]
    Architecture {
        /// Processor and SIMD level where it was saved.
        saved: String,
        /// Processor and SIMD level here.
        here: String,
    },
    /// The file holds another type of object, or one for another kind of device or element type.
    #[error("expected {here}, but it holds {saved}: save again")]
    Kind {
        /// Description of the saved object.
        saved: String,
        /// Description of the object to be loaded.
        here: String,
    },
    /// The file names a format that is not among those given.
    #[error(
        "it has the format {name:?}, which is unknown here: load it with the `Formats` that it was saved with"
    )]
    Format {
        /// The name of the format.
        name: String,
    },
    /// The file was saved for a matrix with another pattern.
    #[error("it was saved for a matrix with a different sparsity pattern")]
    PatternMismatch,
    /// The values of the matrix in the file are not those that its keys promise, although the checksum is right.
    #[error("expected the values of the given matrix, but it holds others: save again")]
    OtherValues,
}
