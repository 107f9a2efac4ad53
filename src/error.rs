//! Errors in the data that a user passes in.

use crate::io::matrix_market::{ReadError, WriteError};
use std::fmt;
use std::path::PathBuf;

/// The result type of constructors and conversions.
pub type Result<T> = std::result::Result<T, Error>;

/// Invalid input, or a failure of files, GPU or solver. Messages have the numbers and say what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Arrays that belong together differ in length.
    #[error("{what} has {got} entries, {expected} are needed ({why})")]
    Length {
        /// The array.
        what: &'static str,
        /// The length of the array.
        got: usize,
        /// The length that is needed.
        expected: usize,
        /// What determines the length.
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
    /// Offsets fall, do not start at 0, or do not end at the number of entries.
    #[error(
        "offset {position} is {offset}: offsets start at 0, never fall and end at the number of entries, {entries}"
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
    #[error("the matrix has {got} {what}s, at most 2147483648 are possible with 32-bit indices")]
    TooLarge {
        /// "row" or "column".
        what: &'static str,
        /// The number of rows or columns.
        got: usize,
    },
    /// An operation needs a square matrix and got another.
    #[error("{what} needs a square matrix, this one is {rows} x {cols}")]
    NotSquare {
        /// The operation.
        what: &'static str,
        /// The matrix's rows.
        rows: usize,
        /// The matrix's columns.
        cols: usize,
    },
    /// A system has not as many equations as unknowns.
    #[error(
        "the matrix is {rows} x {cols}, a system needs as many equations as unknowns: for least squares solve \
         `Aᵀ A x = Aᵀ b`"
    )]
    Rectangular {
        /// The matrix's rows.
        rows: usize,
        /// The matrix's columns.
        cols: usize,
    },
    /// A matrix has entries on both sides of the diagonal where one triangle is needed.
    #[error(
        "entries ({row}, {col}) and ({other_row}, {other_col}) lie on both sides of the diagonal: give one triangle"
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
    /// A matrix has `aᵢⱼ ≠ aⱼᵢ` where a symmetric one is needed.
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
        /// The value of the mirrored entry, zero if none is stored.
        mirrored: f64,
    },
    /// An entry is infinite or NaN. Rows and columns are those of the user's numbering.
    #[error("entry ({row}, {col}) is {value} (indices start at 0)")]
    NotFinite {
        /// The row of the entry.
        row: usize,
        /// The column of the entry.
        col: usize,
        /// The value of the entry.
        value: f64,
    },
    /// A diagonal entry that is divided by is zero, missing or not finite.
    #[error("row {row} has {value} on the diagonal: Jacobi divides by it, scaling by its root")]
    ZeroDiagonal {
        /// The row.
        row: usize,
        /// The diagonal entry; zero if none is stored.
        value: f64,
    },
    /// A pivot is not positive: the matrix is not positive definite.
    #[error("{what}: the matrix is not positive definite: the pivot of row {row} is {pivot:.3e}")]
    NotPositive {
        /// The factorisation.
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
        /// The factorisation.
        what: &'static str,
        /// The row.
        row: usize,
        /// The pivot of the row; zero if none is stored.
        pivot: f64,
    },
    /// A column depends on those that were eliminated before it: the matrix is singular to rounding.
    #[error("{what}: the matrix is singular: column {column} depends on others, its pivot is {pivot:e}")]
    Singular {
        /// The factorisation.
        what: &'static str,
        /// The column.
        column: usize,
        /// The pivot of the column, as rounding left it.
        pivot: f64,
    },
    /// An array does not fit the memory that is free.
    #[error("{what} takes {bytes} bytes, {free} are free")]
    Allocation {
        /// What the array is for.
        what: &'static str,
        /// The bytes of the array.
        bytes: u128,
        /// The bytes that are free; all that can be addressed where the system does not say.
        free: usize,
    },
    /// The factors of a matrix are larger than what they may take.
    #[error(
        "{what} takes {needed} bytes at least, {limit} are allowed: allow more (`DirectOptions::memory`), factorise in `f32`, or use an iterative method"
    )]
    Memory {
        /// The factorisation.
        what: &'static str,
        /// The bytes that were asked for.
        needed: usize,
        /// The bytes that are allowed.
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
    /// New values come with another pattern than the original matrix.
    #[error(
        "row {row} has another pattern than in the matrix that this was built from: build again instead of refreshing"
    )]
    OtherPattern {
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
    /// A format does not suit the matrix.
    #[error("{format} does not suit this matrix: {why}")]
    Unsuitable {
        /// The format.
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
    Knowledge {
        /// The declaration, by the name of its method in [`Plan`](crate::Plan).
        what: &'static str,
        /// The requirement, the finding and its place.
        why: String,
    },
    /// Nothing has this name.
    #[error("there is no {what} {got:?} here: {known}")]
    Unknown {
        /// "method", "preconditioner" or "format".
        what: &'static str,
        /// The name.
        got: String,
        /// The names that are known.
        known: String,
    },
    /// A cancel token or a time limit interrupted work of an [`Interrupt`](crate::Interrupt).
    #[error(transparent)]
    Interrupted(#[from] krysp_kernels::interrupt::Interrupted),
    /// A solver lost its operator, because an earlier call failed halfway.
    #[error("an earlier call failed halfway and left no operator: build the plan again, or call `refresh`")]
    Lost,
    /// An index occurs twice in a permutation or is out of range.
    #[error(
        "not a permutation of 0..{len}: position {position} has {index}, which is out of range or occurs before"
    )]
    NotPermutation {
        /// The length of the permutation.
        len: usize,
        /// The first wrong position.
        position: usize,
        /// The index at that position.
        index: usize,
    },
    /// A file holds something else than what is needed, or its form cannot hold what is written.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A saved file cannot be used here.
    #[error("{}: {why}", path.display())]
    Saved {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: Unusable,
    },
    /// A Matrix Market file could not be read, or any file opened.
    #[error(transparent)]
    Read(ReadError),
    /// A Matrix Market file could not be written, or any file created.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The GPU is missing, is out of memory, or failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] krysp_kernels::cuda::Error),
    /// Another rank of MPI has failed, so this one cannot go on.
    #[cfg(feature = "mpi")]
    #[error("rank {rank} failed: {message}")]
    Rank {
        /// The rank that failed first.
        rank: usize,
        /// Its error.
        message: String,
    },
    /// MPI is not as it must be.
    #[cfg(feature = "mpi")]
    #[error("MPI: {0}")]
    Mpi(String),
    /// An error of the solver or of its checks of spaces.
    #[error(transparent)]
    Solver(#[from] krysp_solvers::Error),
}

/// An interruption is the same error wherever it happens.
impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        match error {
            ReadError::Interrupted(interrupted) => Error::Interrupted(interrupted),
            error => Error::Read(error),
        }
    }
}

/// The message: a `main` that returns the error prints what `Debug` writes.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// The error for a diagonal entry that cannot be divided by.
    pub(crate) fn diagonal(row: usize, value: f64) -> Error {
        match value.is_finite() {
            true => Error::ZeroDiagonal { row, value },
            false => Error::NotFinite { row, col: row, value },
        }
    }
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

/// Why a file that something was saved in is of no use: build anew, and save again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// Not a file written by this library.
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
    /// The parts are inconsistent, although the checksum is right.
    #[error("its parts are inconsistent: save again")]
    Inconsistent,
    /// Saved by another version of this library.
    #[error("it was saved by version {saved}, this is version {here}: save again")]
    Version {
        /// The version that saved it.
        saved: String,
        /// This version.
        here: String,
    },
    /// Saved on another kind of processor.
    #[error("it was saved on {saved}, this is {here}: save again")]
    Architecture {
        /// Processor and SIMD level where it was saved.
        saved: String,
        /// Processor and SIMD level here.
        here: String,
    },
    /// Saved for another machine or element type.
    #[error("expected {here}, but it holds {saved}: save again")]
    Kind {
        /// What was saved.
        saved: String,
        /// What is loaded.
        here: String,
    },
    /// Saved for a matrix with another pattern.
    #[error("it was saved for a matrix with a different sparsity pattern")]
    OtherMatrix,
}
