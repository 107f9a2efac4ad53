//! Writes numbers as the shortest decimal text that is read as the same value again.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::number::{Number, print};
use super::{Content, Coordinate, LARGEST_DIMENSION, Symmetry};
use crate::error::WriteError;

/// Bytes of text that are collected before they are written to the file. Guess, chosen as many more bytes than
/// a line has, so that calls of the system are rare.
const BUFFER: usize = 64 << 10;

/// Writes a file, gzipped if its name ends in `.gz`. The field is `real`.
///
/// # Errors
/// If the file cannot be written, or if the content is inconsistent: arrays of different lengths, indices out
/// of range, entries above the diagonal of a symmetric matrix. The file is incomplete then.
pub fn write<T: Number>(path: impl AsRef<Path>, content: &Content<T>) -> Result<(), WriteError> {
    into_file(path.as_ref(), |out| write_to(out, content))
}

/// Like [`write()`], from an iterator over entries (row, column, value; counted from 0), for matrices in
/// other forms.
///
/// `count` is the number of entries of the iterator.
///
/// # Errors
/// Those of [`write()`], or if the iterator does not have `count` entries.
pub fn write_coordinate<T: Number>(
    path: impl AsRef<Path>,
    (rows, cols): (usize, usize),
    symmetry: Symmetry,
    count: usize,
    entries: impl IntoIterator<Item = (u32, u32, T)>,
) -> Result<(), WriteError> {
    into_file(path.as_ref(), |out| coordinate(out, (rows, cols), symmetry, count, entries))
}

/// Like [`write()`], from the values of a dense matrix or vectors, column by column.
///
/// # Errors
/// Those of [`write()`], or if there are not `rows * cols` values.
pub fn write_array<T: Number>(
    path: impl AsRef<Path>,
    (rows, cols): (usize, usize),
    values: &[T],
) -> Result<(), WriteError> {
    into_file(path.as_ref(), |out| array(out, (rows, cols), values))
}

/// Like [`write()`], as plain text to any writer. Writes large blocks, so `out` needs no buffer.
///
/// # Errors
/// Those of [`write()`].
///
/// # Example
/// ```
/// use krysp::io::matrix_market::{Content, write_to};
///
/// let mut text = Vec::new();
/// write_to(&mut text, &Content::Array { rows: 2, cols: 1, values: vec![0.1, -3.0] })?;
/// assert_eq!(text, b"%%MatrixMarket matrix array real general\n2 1\n0.1\n-3\n");
/// # Ok::<(), krysp::io::matrix_market::WriteError>(())
/// ```
pub fn write_to<T: Number>(out: &mut (impl Write + ?Sized), content: &Content<T>) -> Result<(), WriteError> {
    match content {
        Content::Coordinate(Coordinate { rows, cols, row, col, value, symmetry }) => {
            if row.len() != value.len() || col.len() != value.len() {
                let found = format!("{} rows, {} columns, {} values", row.len(), col.len(), value.len());
                return Err(wrong("as many rows as columns and values", found));
            }
            let entries = row.iter().zip(col).zip(value).map(|((&r, &c), &v)| (r, c, v));
            coordinate(out, (*rows, *cols), *symmetry, value.len(), entries)
        }
        Content::Array { rows, cols, values } => array(out, (*rows, *cols), values),
    }
}

fn into_file(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let write = || {
        let mut file = File::create(path)?;
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
            let mut encoder = GzEncoder::new(file, Compression::default());
            content(&mut encoder)?;
            encoder.finish()?;
            Ok(())
        } else {
            content(&mut file)
        }
    };
    write().map_err(|error| match error {
        WriteError::Io { source, .. } => WriteError::Io { path: Some(path.to_owned()), source },
        other => other,
    })
}

impl From<io::Error> for WriteError {
    fn from(source: io::Error) -> Self {
        Self::Io { path: None, source }
    }
}

fn wrong(expected: impl Into<String>, found: impl Into<String>) -> WriteError {
    WriteError::Content { expected: expected.into(), found: found.into() }
}

fn check_shape(rows: usize, cols: usize) -> Result<(), WriteError> {
    match rows.max(cols) > LARGEST_DIMENSION {
        true => {
            Err(wrong(format!("at most {LARGEST_DIMENSION} rows and columns"), format!("{rows} by {cols}")))
        }
        false => Ok(()),
    }
}

fn coordinate<T: Number>(
    out: &mut (impl Write + ?Sized),
    (rows, cols): (usize, usize),
    symmetry: Symmetry,
    count: usize,
    entries: impl IntoIterator<Item = (u32, u32, T)>,
) -> Result<(), WriteError> {
    check_shape(rows, cols)?;
    if symmetry != Symmetry::General && rows != cols {
        return Err(wrong("as many rows as columns in a symmetric matrix", format!("{rows} by {cols}")));
    }
    let name = match symmetry {
        Symmetry::General => "general",
        Symmetry::Symmetric => "symmetric",
        Symmetry::Skew => "skew-symmetric",
    };
    let mut text = format!("%%MatrixMarket matrix coordinate real {name}\n{rows} {cols} {count}\n");
    let mut found = 0;
    for (row, col, value) in entries {
        let (r, c) = (u64::from(row) + 1, u64::from(col) + 1);
        if r > rows as u64 || c > cols as u64 {
            let expected = format!("entries within {rows} rows and {cols} columns");
            return Err(wrong(expected, format!("one in row {row}, column {col} (counted from 0)")));
        }
        let diagonal = symmetry == Symmetry::Skew && value != T::ZERO;
        if symmetry != Symmetry::General && (r < c || r == c && diagonal) {
            let expected = format!("entries of the lower triangle only, as the matrix is {name}");
            return Err(wrong(expected, format!("{value} in row {row}, column {col} (counted from 0)")));
        }
        found += 1;
        // Writing to a string does not fail.
        let _ = write!(text, "{r} {c} ");
        line(out, &mut text, value)?;
    }
    if found != count {
        return Err(wrong(format!("{count} entries"), found.to_string()));
    }
    Ok(out.write_all(text.as_bytes())?)
}

fn array<T: Number>(
    out: &mut (impl Write + ?Sized),
    (rows, cols): (usize, usize),
    values: &[T],
) -> Result<(), WriteError> {
    check_shape(rows, cols)?;
    if rows.checked_mul(cols) != Some(values.len()) {
        return Err(wrong(format!("{rows} * {cols} values"), values.len().to_string()));
    }
    let mut text = format!("%%MatrixMarket matrix array real general\n{rows} {cols}\n");
    for &value in values {
        line(out, &mut text, value)?;
    }
    Ok(out.write_all(text.as_bytes())?)
}

/// Appends a value to `text` and ends the line. Writes the text to `out` when it has [`BUFFER`] bytes or
/// more.
fn line<T: Number>(out: &mut (impl Write + ?Sized), text: &mut String, value: T) -> io::Result<()> {
    print(text, value);
    text.push('\n');
    if text.len() >= BUFFER {
        out.write_all(text.as_bytes())?;
        text.clear();
    }
    Ok(())
}
