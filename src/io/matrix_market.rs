//! Matrix Market files, plain or gzipped: the format in which sparse matrices are exchanged.
//!
//! ```text
//! %%MatrixMarket matrix coordinate real general      object, layout, field, symmetry
//! % comments
//! 3 3 4                                              rows, columns, entries
//! 1 1 2.0                                            row, column, value; counted from 1
//! ...
//! ```
//!
//! What the reader takes, where the standard leaves room or files in the wild differ from it:
//!
//! 1. Words of the banner in any case; blank lines and `%` lines anywhere below it; spaces, tabs and CR
//!    between and after the words of a line; a last line without its newline; a byte order mark.
//! 2. One entry or value a line. A second one is an error, not a second entry: a dense file written row by
//!    row would otherwise be read transposed without a word.
//! 3. Numbers with a leading `+`, Fortran exponents (`1.0D+03`), `nan` and `inf`. Each is rounded correctly.
//!    One that is too large becomes infinite; whether values are finite is for the user of the matrix to
//!    check.
//! 4. `double` for `real`, `unsigned-integer` for `integer` (some writers use them), `hermitian` for
//!    `symmetric` (they mean the same for real values). The entries of a `pattern` have the value 1.
//! 5. Symmetric and skew-symmetric files hold the lower triangle, as the standard says. An entry above the
//!    diagonal is an error: whether its mirror image is meant too cannot be known. The diagonal of a
//!    skew-symmetric matrix is zero, written or not.
//! 6. Entries given twice are both kept, in the order of the file.
//!
//! Errors name the line. The first wrong line is the one reported, however many threads read.

mod error;
mod header;
mod number;
mod read;
mod write;

pub use error::{ReadError, WriteError};
pub use number::Number;
pub use read::{parse, read};
pub use write::{write, write_array, write_coordinate, write_to};

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content<T> {
    /// A sparse matrix, entry by entry.
    Coordinate(Coordinate<T>),
    /// A dense matrix, or vectors side by side.
    Array {
        /// Number of rows.
        rows: usize,
        /// Number of columns.
        cols: usize,
        /// All `rows * cols` values column by column; of a symmetric matrix both triangles.
        values: Vec<T>,
    },
}

/// The entries of a sparse matrix in the order of the file, duplicates kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Coordinate<T> {
    /// Number of rows, at most `i32::MAX`.
    pub rows: usize,
    /// Number of columns, at most `i32::MAX`.
    pub cols: usize,
    /// Row of each entry, counted from 0.
    pub row: Vec<u32>,
    /// Column of each entry, counted from 0.
    pub col: Vec<u32>,
    /// Value of each entry.
    pub value: Vec<T>,
    /// Which entries stand for a second one.
    pub symmetry: Symmetry,
}

/// Which entries stand for a second one, mirrored at the diagonal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// None: every entry is written.
    General,
    /// `a[j][i] = a[i][j]`: the entries are those with `row >= col`.
    Symmetric,
    /// `a[j][i] = -a[i][j]`: the entries are those with `row >= col`, zero where `row == col`.
    Skew,
}

/// Largest number of rows or columns: indices are 32-bit and may be taken as signed on a device.
const LARGEST_DIMENSION: usize = i32::MAX as usize;
