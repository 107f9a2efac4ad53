//! Reads and writes Matrix Market files, plain or gzipped: the usual format for passing sparse matrices between
//! programs.
//!
//! ```text
//! %%MatrixMarket matrix coordinate real general      object, layout, field, symmetry
//! % comments
//! 3 3 4                                              rows, columns, entries
//! 1 1 2.0                                            row, column, value; counted from 1
//! ...
//! ```
//!
//! Where the standard is open, or files in practice differ from it, the reader accepts:
//!
//! 1. Words of the banner in any case; blank lines and `%` lines anywhere below the banner; spaces, tabs and CR between
//!    and after words; a last line without a newline; a byte order mark.
//! 2. One entry or value per line. A second one on the line is an error; otherwise a dense file written row by row
//!    would silently be read transposed.
//! 3. Numbers with a leading `+`, Fortran exponents (`1.0D+03`), `nan` and `inf`. Every number is rounded correctly. A
//!    number that is too large becomes infinite; the caller checks whether values are finite.
//! 4. `double` for `real`, and `unsigned-integer` for `integer`, because some writers use these words; `hermitian` for
//!    `symmetric`, because both mean the same for real values. The entries of a `pattern` have the value 1.
//! 5. Only the lower triangle in symmetric and skew-symmetric files, as the standard says. An entry above the diagonal
//!    is an error, because it is unclear whether the entry also stands for its mirror image. The diagonal of a
//!    skew-symmetric matrix is zero, written or not.
//! 6. Repeated entries. All are kept, in the order of the file.
//!
//! Errors name the first wrong line of the file, whatever the number of threads.

mod finite;
mod header;
mod number;
mod read;
mod write;

pub use crate::error::{ReadError, WriteError};
pub(super) use finite::not_finite;
pub use number::Number;
pub(crate) use read::read_part;
pub use read::{parse, read};
pub use write::{write, write_array, write_coordinate, write_to};

/// The content of a file.
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
        /// All `rows * cols` values, column by column. Of a symmetric or skew-symmetric matrix, both triangles.
        values: Vec<T>,
    },
}

/// The entries of a sparse matrix in the order of the file, repeats included.
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
    /// Which entries also stand for their mirror image.
    pub symmetry: Symmetry,
}

/// Which entries also stand for their mirror image on the other side of the diagonal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// No entry does: all entries are in the file.
    General,
    /// `a[j][i] = a[i][j]`: the file has the entries with `row >= col`.
    Symmetric,
    /// `a[j][i] = -a[i][j]`: the file has the entries with `row >= col`; the diagonal is zero.
    Skew,
}

/// The largest number of rows or columns. Indices have 32 bits, and a device may take them as signed.
const LARGEST_DIMENSION: usize = i32::MAX as usize;
