//! Reads matrices and vectors from files, and writes them.
//!
//! | format | names | recognized by | remarks |
//! | --- | --- | --- | --- |
//! | Matrix Market | `.mtx` | `%%MatrixMarket` | [`matrix_market`] |
//! | SciPy, NumPy | matrices `.npz`, vectors `.npy` | `PK`, `\x93NUMPY` | CSR, CSC or COO |
//! | PETSc binary | `.petsc`, `.bin` | its first number | indices of 32 or 64 bits |
//! | Rutherford-Boeing | `.rb`, `.hb` | the type in its third line | and Harwell-Boeing |
//!
//! Each may be gzipped. When a file is read, its format is recognized by its content. A file is written in
//! the format of its extension, gzipped if the name ends with `.gz`; an extension that is not in the table is
//! an error.

mod file;
mod finite;
pub mod matrix_market;
mod npy;
mod petsc;
mod rutherford_boeing;
mod zip;

use crate::error::Result;
use crate::formats::Csr;
use crate::memory::check_free_memory;
use crate::numbers::Real;
use file::{Parsed, ends_in, load, load_from, save, wrong};
use flate2::{Compression, write::GzEncoder};
use krysp_kernels::interrupt;
use matrix_market::{Content, Coordinate, Number, Symmetry, WriteError};
use std::io::{Read, Write};
use std::path::Path;

pub use finite::check_finite;

/// Reads a matrix from a file in any of the [formats](self), plain or gzipped. For a symmetric or
/// skew-symmetric matrix both triangles are stored.
///
/// ```no_run
/// let a = krysp::io::read_matrix::<f64>("heat_sink.mtx.gz")?;
/// println!("{} rows, {} entries", a.rows(), a.nnz());
/// # Ok::<(), krysp::Error>(())
/// ```
pub fn read_matrix<T: Real + Number>(path: impl AsRef<Path>) -> Result<Csr<T>> {
    let path = path.as_ref();
    matrix_of(path, &load(path)?)
}

/// Reads a matrix from a pipe or from memory, in any of the [formats](self), plain or gzipped. Error messages
/// call the source `name`.
///
/// ```
/// let text = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 4.0\n2 2 1.0\n";
/// let a = krysp::io::read_matrix_from::<f64>("text", text.as_bytes())?;
/// assert_eq!((a.rows(), a.nnz()), (2, 2));
/// # Ok::<(), krysp::Error>(())
/// ```
pub fn read_matrix_from<T: Real + Number>(name: impl AsRef<Path>, source: impl Read) -> Result<Csr<T>> {
    let name = name.as_ref();
    matrix_of(name, &load_from(name, source)?)
}

/// Parses `bytes`, the decompressed content of the file `path`.
fn matrix_of<T: Real + Number>(path: &Path, bytes: &[u8]) -> Result<Csr<T>> {
    let in_file = |parsed: Parsed<Csr<T>>| {
        // report an interruption instead of an error in the file
        interrupt::check("reading")?;
        parsed.map_err(|why| wrong(path, why))
    };
    if zip::is_archive(bytes) {
        return in_file(npy::matrix(bytes));
    }
    if petsc::is_matrix(bytes) {
        return in_file(petsc::matrix(bytes));
    }
    if rutherford_boeing::is_matrix(bytes) {
        return in_file(rutherford_boeing::matrix(bytes));
    }
    if npy::is_array(bytes) || petsc::is_vector(bytes) {
        return Err(wrong(path, "expected a matrix, found a vector"));
    }
    match matrix_market::parse(bytes).map_err(|error| error.in_file(path))? {
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

/// The skew-symmetric matrix with this triangle.
fn skew<T: Real>(triangle: &Csr<T>) -> Result<Csr<T>> {
    let mirrored = |(row, column, value): (usize, usize, T)| (row != column).then_some((column, row, -value));
    let entries: Vec<_> = triangle.triplets().chain(triangle.triplets().filter_map(mirrored)).collect();
    Csr::from_triplets(triangle.rows(), triangle.cols(), &entries)
}

/// The entries of a file, with their mirror images for a symmetric or skew-symmetric matrix.
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

/// Reads a vector from a file: an array or a one-column matrix in Matrix Market format, a NumPy array, or a
/// PETSc vector.
pub fn read_vector<T: Real + Number>(path: impl AsRef<Path>) -> Result<Vec<T>> {
    let path = path.as_ref();
    vector_of(path, &load(path)?)
}

/// Reads a vector from a pipe or from memory, as [`read_matrix_from`] reads a matrix.
pub fn read_vector_from<T: Real + Number>(name: impl AsRef<Path>, source: impl Read) -> Result<Vec<T>> {
    let name = name.as_ref();
    vector_of(name, &load_from(name, source)?)
}

/// The vector in the bytes of a file.
fn vector_of<T: Real + Number>(path: &Path, bytes: &[u8]) -> Result<Vec<T>> {
    if npy::is_array(bytes) {
        return npy::vector(bytes).map_err(|why| wrong(path, why));
    }
    if petsc::is_vector(bytes) {
        return petsc::vector(bytes).map_err(|why| wrong(path, why));
    }
    match matrix_market::parse::<T>(bytes).map_err(|error| error.in_file(path))? {
        Content::Array { cols: 1, values, .. } => Ok(values),
        Content::Coordinate(matrix) if matrix.cols == 1 => {
            check_free_memory("a vector", (matrix.rows * size_of::<T>()) as u128)?;
            let mut values = vec![T::zero(); matrix.rows];
            for (&row, &value) in matrix.row.iter().zip(&matrix.value) {
                values[row as usize] += value;
            }
            Ok(values)
        }
        Content::Array { cols, .. } | Content::Coordinate(Coordinate { cols, .. }) => {
            Err(wrong(path, format!("expected a vector, found {cols} columns")))
        }
    }
}

/// Reads the columns of a dense matrix, for example several right-hand sides, from a file: an array or a
/// matrix in Matrix Market form, a NumPy array of one or two dimensions, or a PETSc vector.
pub fn read_columns<T: Real + Number>(path: impl AsRef<Path>) -> Result<Vec<Vec<T>>> {
    let path = path.as_ref();
    columns_of(path, &load(path)?)
}

/// Reads columns from a pipe or from memory, as [`read_matrix_from`] reads a matrix.
pub fn read_columns_from<T: Real + Number>(name: impl AsRef<Path>, source: impl Read) -> Result<Vec<Vec<T>>> {
    let name = name.as_ref();
    columns_of(name, &load_from(name, source)?)
}

/// The columns in the bytes of a file.
fn columns_of<T: Real + Number>(path: &Path, bytes: &[u8]) -> Result<Vec<Vec<T>>> {
    if npy::is_array(bytes) {
        return npy::columns(bytes).map_err(|why| wrong(path, why));
    }
    if petsc::is_vector(bytes) {
        return Ok(vec![petsc::vector(bytes).map_err(|why| wrong(path, why))?]);
    }
    match matrix_market::parse::<T>(bytes).map_err(|error| error.in_file(path))? {
        Content::Array { rows: 0, cols, .. } => empty_columns(cols),
        Content::Array { rows, values, .. } => Ok(values.chunks(rows).map(<[T]>::to_vec).collect()),
        Content::Coordinate(matrix) if matrix.rows == 0 => empty_columns(matrix.cols),
        Content::Coordinate(matrix) => {
            let (rows, cols) = (matrix.rows, matrix.cols);
            let column = rows as u128 * size_of::<T>() as u128 + size_of::<Vec<T>>() as u128;
            check_free_memory("a dense matrix", column * cols as u128)?;
            let mut columns = vec![vec![T::zero(); rows]; cols];
            from_coordinate(matrix)?.triplets().for_each(|(row, col, value)| columns[col][row] = value);
            Ok(columns)
        }
    }
}

/// Columns without entries. A header can claim any number of them.
fn empty_columns<T>(count: usize) -> Result<Vec<Vec<T>>> {
    check_free_memory("columns without entries", count as u128 * size_of::<Vec<T>>() as u128)?;
    Ok((0..count).map(|_| vec![]).collect())
}

/// Writes the columns of a dense matrix as Matrix Market text. Returns an error if their lengths differ.
pub fn write_columns<T: Real + Number>(path: impl AsRef<Path>, columns: &[Vec<T>]) -> Result<()> {
    let rows = common_length(columns)?;
    Ok(matrix_market::write_array(path.as_ref(), (rows, columns.len()), &columns.concat())?)
}

/// Writes the columns of a dense matrix as Matrix Market text, to a pipe or into memory.
pub fn write_columns_to<T: Real + Number>(
    out: &mut impl Write,
    columns: &[Vec<T>],
) -> std::result::Result<(), WriteError> {
    let rows = common_length(columns)?;
    let content = Content::Array { rows, cols: columns.len(), values: columns.concat() };
    matrix_market::write_to(out, &content)
}

/// The length that all columns have.
fn common_length<T>(columns: &[Vec<T>]) -> std::result::Result<usize, WriteError> {
    let rows = columns.first().map_or(0, Vec::len);
    match columns.iter().zip(1..).find(|(column, _)| column.len() != rows) {
        None => Ok(rows),
        Some((column, number)) => {
            let number: usize = number;
            let expected = format!("{rows} entries in every column, as in column 1");
            let found = format!("{} in column {number}", column.len());
            Err(WriteError::Content { expected, found })
        }
    }
}

/// Writes a matrix in the [format](self) of the extension. For a symmetric matrix only one triangle is
/// written, if the format supports that.
pub fn write_matrix<T: Real + Number>(path: impl AsRef<Path>, csr: &Csr<T>) -> Result<()> {
    let path = path.as_ref();
    match Form::for_matrix(path)? {
        Form::Numpy => binary(path, npy::matrix_bytes(csr)),
        Form::Petsc => binary(path, petsc::matrix_bytes(csr)),
        Form::RutherfordBoeing => binary(path, rutherford_boeing::matrix_text(csr).map(String::into_bytes)),
        Form::MatrixMarket => {
            let (symmetry, count) = stored(csr);
            Ok(matrix_market::write_coordinate(
                path,
                (csr.rows(), csr.cols()),
                symmetry,
                count,
                entries(csr, symmetry),
            )?)
        }
    }
}

/// Writes a matrix as Matrix Market text, to a pipe or into memory.
pub fn write_matrix_to<T: Real + Number>(
    out: &mut impl Write,
    csr: &Csr<T>,
) -> std::result::Result<(), WriteError> {
    let (symmetry, _) = stored(csr);
    let mut matrix =
        Coordinate { rows: csr.rows(), cols: csr.cols(), row: vec![], col: vec![], value: vec![], symmetry };
    for (row, col, value) in entries(csr, symmetry) {
        matrix.row.push(row);
        matrix.col.push(col);
        matrix.value.push(value);
    }
    matrix_market::write_to(out, &Content::Coordinate(matrix))
}

/// The symmetry that is written to Matrix Market text, and the number of entries written with it.
fn stored<T: Real>(csr: &Csr<T>) -> (Symmetry, usize) {
    let symmetry = if csr.check_symmetric(0.0).is_ok() { Symmetry::Symmetric } else { Symmetry::General };
    (symmetry, entries(csr, symmetry).count())
}

fn entries<T: Real>(csr: &Csr<T>, symmetry: Symmetry) -> impl Iterator<Item = (u32, u32, T)> {
    let stored = move |&(row, col, _): &(usize, usize, T)| symmetry == Symmetry::General || row >= col;
    csr.triplets().filter(stored).map(|(row, col, value)| (row as u32, col as u32, value))
}

/// Writes a vector in the [format](self) of the extension.
pub fn write_vector<T: Real + Number>(path: impl AsRef<Path>, values: &[T]) -> Result<()> {
    let path = path.as_ref();
    match Form::for_vector(path)? {
        Form::Numpy => binary(path, Ok(npy::vector_bytes(values))),
        Form::Petsc => binary(path, petsc::vector_bytes(values)),
        _ => Ok(matrix_market::write_array(path, (values.len(), 1), values)?),
    }
}

/// Writes a vector as Matrix Market text, to a pipe or into memory.
pub fn write_vector_to<T: Real + Number>(
    out: &mut impl Write,
    values: &[T],
) -> std::result::Result<(), WriteError> {
    let content = Content::Array { rows: values.len(), cols: 1, values: values.to_vec() };
    matrix_market::write_to(out, &content)
}

/// Checks that [`write_matrix`] supports the extension of this name; an error lists the supported ones.
pub fn check_matrix_name(path: impl AsRef<Path>) -> Result<()> {
    Form::for_matrix(path.as_ref()).map(|_| ())
}

/// Checks that [`write_vector`] supports the extension of this name; an error lists the supported ones.
pub fn check_vector_name(path: impl AsRef<Path>) -> Result<()> {
    Form::for_vector(path.as_ref()).map(|_| ())
}

/// Format of a file, by its name.
#[derive(Clone, Copy)]
enum Form {
    MatrixMarket,
    Numpy,
    Petsc,
    RutherfordBoeing,
}

impl Form {
    const OF_MATRICES: [(&str, Form); 6] = [
        (".mtx", Form::MatrixMarket),
        (".npz", Form::Numpy),
        (".petsc", Form::Petsc),
        (".bin", Form::Petsc),
        (".rb", Form::RutherfordBoeing),
        (".hb", Form::RutherfordBoeing),
    ];
    const OF_VECTORS: [(&str, Form); 4] =
        [(".mtx", Form::MatrixMarket), (".npy", Form::Numpy), (".petsc", Form::Petsc), (".bin", Form::Petsc)];

    fn for_matrix(path: &Path) -> Result<Form> {
        Form::among(&Form::OF_MATRICES, "a matrix", path)
    }

    fn for_vector(path: &Path) -> Result<Form> {
        Form::among(&Form::OF_VECTORS, "a vector", path)
    }

    fn among(known: &[(&str, Form)], what: &str, path: &Path) -> Result<Form> {
        let ends = |ending: &str| ends_in(path, ending) || ends_in(path, &format!("{ending}.gz"));
        let found = known.iter().find(|(ending, _)| ends(ending));
        found.map(|(_, form)| *form).ok_or_else(|| {
            let list = known.iter().map(|(ending, _)| *ending).collect::<Vec<_>>().join(", ");
            wrong(path, format!("the name of {what} to write must end in {list}, or one of these and .gz"))
        })
    }
}

/// Writes bytes, gzipped if the name ends with `.gz`.
fn binary(path: &Path, bytes: Parsed<Vec<u8>>) -> Result<()> {
    let bytes = bytes.map_err(|why| wrong(path, why))?;
    if !ends_in(path, ".gz") {
        return save(path, &bytes);
    }
    let mut packed = GzEncoder::new(vec![], Compression::default());
    let packed = packed.write_all(&bytes).and_then(|()| packed.finish());
    save(path, &packed.map_err(|error| wrong(path, error.to_string()))?)
}
