//! Reads matrices and vectors from files, and writes them.

pub mod matrix_market;

use crate::memory::room;
use crate::{Csr, Error, Real, Result};
use matrix_market::{Content, Coordinate, Number, Symmetry};
use std::path::Path;

/// Reads a matrix from a Matrix Market file, plain or gzipped. Of a symmetric or skew-symmetric matrix both triangles
/// are stored.
///
/// ```no_run
/// let a = krysp::io::read_matrix::<f64>("heat_sink.mtx.gz")?;
/// println!("{} rows, {} entries", a.rows(), a.nnz());
/// # Ok::<(), krysp::Error>(())
/// ```
pub fn read_matrix<T: Real + Number>(path: impl AsRef<Path>) -> Result<Csr<T>> {
    match matrix_market::read(path)? {
        Content::Coordinate(matrix) => from_coordinate(matrix),
        Content::Array { rows, cols, values } => {
            let entries: Vec<(usize, usize, T)> =
                values.iter().enumerate().map(|(k, &value)| (k % rows, k / rows, value)).collect();
            Csr::from_triplets(rows, cols, &entries)
        }
    }
}

fn from_coordinate<T: Real>(mut matrix: Coordinate<T>) -> Result<Csr<T>> {
    if matrix.symmetry == Symmetry::Skew {
        for k in 0..matrix.value.len() {
            let (row, col, value) = (matrix.row[k], matrix.col[k], matrix.value[k]);
            if row != col {
                matrix.row.push(col);
                matrix.col.push(row);
                matrix.value.push(-value);
            }
        }
    }
    let csr = Csr::from_coordinates(matrix.rows, matrix.cols, &matrix.row, &matrix.col, &matrix.value)?;
    if matrix.symmetry == Symmetry::Symmetric { csr.mirrored() } else { Ok(csr) }
}

/// The entries of a file and, of a symmetric or skew-symmetric matrix, their mirror images.
#[cfg(feature = "mpi")]
pub(crate) fn both_triangles<T: Real>(part: &Coordinate<T>) -> Vec<(u64, u64, T)> {
    let mut entries = Vec::with_capacity(part.value.len());
    for ((&row, &col), &value) in part.row.iter().zip(&part.col).zip(&part.value) {
        entries.push((row.into(), col.into(), value));
        match part.symmetry {
            Symmetry::Symmetric if row != col => entries.push((col.into(), row.into(), value)),
            Symmetry::Skew if row != col => entries.push((col.into(), row.into(), -value)),
            _ => {}
        }
    }
    entries
}

/// Reads a vector from a Matrix Market file: an array, or a matrix with one column.
pub fn read_vector<T: Real + Number>(path: impl AsRef<Path>) -> Result<Vec<T>> {
    match matrix_market::read::<T>(path)? {
        Content::Array { cols: 1, values, .. } => Ok(values),
        Content::Coordinate(matrix) if matrix.cols == 1 => {
            room("a vector", (matrix.rows * size_of::<T>()) as u128)?;
            let mut values = vec![T::zero(); matrix.rows];
            for (&row, &value) in matrix.row.iter().zip(&matrix.value) {
                values[row as usize] += value;
            }
            Ok(values)
        }
        Content::Array { cols, .. } | Content::Coordinate(Coordinate { cols, .. }) => {
            Err(Error::Length { what: "the file", got: cols, expected: 1, why: "columns of a vector" })
        }
    }
}

/// Writes a matrix as a Matrix Market file, gzipped if the name ends in `.gz`. Of a symmetric matrix only one triangle
/// is written.
pub fn write_matrix<T: Real + Number>(path: impl AsRef<Path>, csr: &Csr<T>) -> Result<()> {
    let shape = (csr.rows(), csr.cols());
    let symmetric = csr.check_symmetric(0.0).is_ok();
    let stored = |&(row, col, _): &(usize, usize, T)| !symmetric || row >= col;
    let entries = || csr.triplets().filter(stored).map(|(row, col, value)| (row as u32, col as u32, value));
    let symmetry = if symmetric { Symmetry::Symmetric } else { Symmetry::General };
    Ok(matrix_market::write_coordinate(path, shape, symmetry, entries().count(), entries())?)
}

/// Writes a vector as a Matrix Market file, gzipped if the name ends in `.gz`.
pub fn write_vector<T: Real + Number>(path: impl AsRef<Path>, values: &[T]) -> Result<()> {
    Ok(matrix_market::write_array(path, (values.len(), 1), values)?)
}
