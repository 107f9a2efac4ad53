//! Reads matrices and vectors from files, and writes them.
//!
//! | form | names | recognised by | remarks |
//! | --- | --- | --- | --- |
//! | Matrix Market | `.mtx` | `%%MatrixMarket` | [`matrix_market`] |
//! | SciPy | `.npz`, vectors `.npy` | `PK`, `\x93NUMPY` | compressed rows, columns, or entry by entry |
//! | PETSc's binary form | `.petsc`, `.bin` | its first number | indices of 32 or 64 bits |
//! | Rutherford-Boeing | `.rb` | the type in its third line | and Harwell-Boeing |
//!
//! Each may be gzipped. What is read is recognised by its content; what is written has the form of its name, gzipped if that
//! ends in `.gz`.

mod file;
pub mod matrix_market;
mod npy;
mod petsc;
mod rutherford_boeing;
mod zip;

use crate::memory::room;
use crate::{Csr, Real, Result};
use file::{Parsed, ends_in, load, save, wrong};
use flate2::{Compression, write::GzEncoder};
use krysp_kernels::interrupt;
use matrix_market::{Content, Coordinate, Number, Symmetry};
use std::io::Write;
use std::path::Path;

/// Reads a matrix from a file of any of the [forms](self), plain or gzipped. Of a symmetric or skew-symmetric matrix both
/// triangles are stored.
///
/// ```no_run
/// let a = krysp::io::read_matrix::<f64>("heat_sink.mtx.gz")?;
/// println!("{} rows, {} entries", a.rows(), a.nnz());
/// # Ok::<(), krysp::Error>(())
/// ```
pub fn read_matrix<T: Real + Number>(path: impl AsRef<Path>) -> Result<Csr<T>> {
    let path = path.as_ref();
    let bytes = load(path)?;
    let in_file = |parsed: Parsed<Csr<T>>| {
        // an interruption is no fault of the file
        interrupt::check("reading")?;
        parsed.map_err(|why| wrong(path, why))
    };
    if zip::is_archive(&bytes) {
        return in_file(npy::matrix(&bytes));
    }
    if petsc::is_matrix(&bytes) {
        return in_file(petsc::matrix(&bytes));
    }
    if rutherford_boeing::is_matrix(&bytes) {
        return in_file(rutherford_boeing::matrix(&bytes));
    }
    if npy::is_array(&bytes) || petsc::is_vector(&bytes) {
        return Err(wrong(path, "it holds a vector, a matrix is needed"));
    }
    match matrix_market::parse(&bytes).map_err(|error| error.in_file(path))? {
        Content::Coordinate(matrix) => from_coordinate(matrix),
        Content::Array { rows, cols, values } => {
            let entries: Vec<(usize, usize, T)> =
                values.iter().enumerate().map(|(k, &value)| (k % rows, k / rows, value)).collect();
            Csr::from_triplets(rows, cols, &entries)
        }
    }
}

fn from_coordinate<T: Real>(matrix: Coordinate<T>) -> Result<Csr<T>> {
    let csr = Csr::from_coordinates(matrix.rows, matrix.cols, &matrix.row, &matrix.col, &matrix.value)?;
    match matrix.symmetry {
        Symmetry::General => Ok(csr),
        Symmetry::Symmetric => csr.mirrored(),
        Symmetry::Skew => skew(&csr),
    }
}

/// The skew-symmetric matrix of which this is one triangle.
fn skew<T: Real>(triangle: &Csr<T>) -> Result<Csr<T>> {
    let mirrored = |(row, column, value): (usize, usize, T)| (row != column).then_some((column, row, -value));
    let entries: Vec<_> = triangle.triplets().chain(triangle.triplets().filter_map(mirrored)).collect();
    Csr::from_triplets(triangle.rows(), triangle.cols(), &entries)
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

/// Reads a vector from a file: an array or a matrix with one column in Matrix Market form, an array of NumPy, or a vector
/// of PETSc.
pub fn read_vector<T: Real + Number>(path: impl AsRef<Path>) -> Result<Vec<T>> {
    let path = path.as_ref();
    let bytes = load(path)?;
    if npy::is_array(&bytes) {
        return npy::vector(&bytes).map_err(|why| wrong(path, why));
    }
    if petsc::is_vector(&bytes) {
        return petsc::vector(&bytes).map_err(|why| wrong(path, why));
    }
    match matrix_market::parse::<T>(&bytes).map_err(|error| error.in_file(path))? {
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
            Err(wrong(path, format!("it has {cols} columns, a vector has one")))
        }
    }
}

/// Writes a matrix in the [form](self) that the name says, Matrix Market if it says none of the others. Of a symmetric
/// matrix only one triangle is written where the form knows that.
pub fn write_matrix<T: Real + Number>(path: impl AsRef<Path>, csr: &Csr<T>) -> Result<()> {
    let path = path.as_ref();
    match Form::of(path) {
        Form::Numpy => binary(path, npy::matrix_bytes(csr)),
        Form::Petsc => binary(path, petsc::matrix_bytes(csr)),
        Form::RutherfordBoeing => binary(path, rutherford_boeing::matrix_text(csr).map(String::into_bytes)),
        Form::MatrixMarket => {
            let shape = (csr.rows(), csr.cols());
            let symmetric = csr.check_symmetric(0.0).is_ok();
            let stored = |&(row, col, _): &(usize, usize, T)| !symmetric || row >= col;
            let entries =
                || csr.triplets().filter(stored).map(|(row, col, value)| (row as u32, col as u32, value));
            let symmetry = if symmetric { Symmetry::Symmetric } else { Symmetry::General };
            Ok(matrix_market::write_coordinate(path, shape, symmetry, entries().count(), entries())?)
        }
    }
}

/// Writes a vector in the [form](self) that the name says, Matrix Market if it says none of the others.
pub fn write_vector<T: Real + Number>(path: impl AsRef<Path>, values: &[T]) -> Result<()> {
    let path = path.as_ref();
    match Form::of(path) {
        Form::Numpy => binary(path, Ok(npy::vector_bytes(values))),
        Form::Petsc => binary(path, petsc::vector_bytes(values)),
        Form::RutherfordBoeing => {
            Err(wrong(path, "Rutherford-Boeing files hold no vectors: name it .mtx, .npy or .petsc"))
        }
        Form::MatrixMarket => Ok(matrix_market::write_array(path, (values.len(), 1), values)?),
    }
}

/// The form of a file by its name.
enum Form {
    MatrixMarket,
    Numpy,
    Petsc,
    RutherfordBoeing,
}

impl Form {
    fn of(path: &Path) -> Form {
        let ends = |ending: &str| ends_in(path, ending) || ends_in(path, &format!("{ending}.gz"));
        let forms = [
            (Form::Numpy, &[".npz", ".npy"][..]),
            (Form::Petsc, &[".petsc", ".bin"]),
            (Form::RutherfordBoeing, &[".rb", ".hb"]),
        ];
        let found = forms.into_iter().find(|(_, endings)| endings.iter().any(|ending| ends(ending)));
        found.map_or(Form::MatrixMarket, |(form, _)| form)
    }
}

/// Writes bytes, gzipped if the name says so.
fn binary(path: &Path, bytes: Parsed<Vec<u8>>) -> Result<()> {
    let bytes = bytes.map_err(|why| wrong(path, why))?;
    if !ends_in(path, ".gz") {
        return save(path, &bytes);
    }
    let mut packed = GzEncoder::new(vec![], Compression::default());
    let packed = packed.write_all(&bytes).and_then(|()| packed.finish());
    save(path, &packed.map_err(|error| wrong(path, error.to_string()))?)
}
