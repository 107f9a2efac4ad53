//! Input and output files of the command line. `-` is standard input or output. Outputs are checked before
//! any work.

use crate::Failure;
use krysp::io::matrix_market::WriteError;
use krysp::io::{
    check_matrix_name, check_vector_name, read_columns, read_columns_from, read_matrix, read_matrix_from,
    read_vector, read_vector_from, write_columns, write_columns_to, write_matrix, write_matrix_to,
    write_vector, write_vector_to,
};
use krysp::{Csr, Error};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write, stdin, stdout};
use std::path::Path;

/// Content of an output file. The extension must be one for this content.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    Matrix,
    Vector,
    Picture,
    Csv,
    Json,
    /// A plan of `solve --save`, with any extension.
    Plan,
}

/// Returns whether a path is `-`.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// The path of an input for messages; `-` is "standard input".
pub(crate) fn shown(path: &Path) -> String {
    if is_standard(path) { "standard input".into() } else { path.display().to_string() }
}

/// Returns an error for outputs that cannot be written: those with an unknown extension, those in a folder that does not exist or
/// is not writable, and more than one to `-`. Call it before any work. Returns whether one goes to `-`.
pub(crate) fn check_outputs(outputs: &[(&str, Option<&Path>, Content)]) -> Result<bool, Failure> {
    let given = outputs.iter().filter_map(|&(option, path, content)| Some((option, path?, content)));
    let mut standard: Vec<&str> = vec![];
    for (option, path, content) in given {
        if is_standard(path) {
            if let Content::Plan = content {
                return Err(format!("{option} needs the name of a file; got -").into());
            }
            standard.push(option);
            continue;
        }
        let extension = |known: &str| {
            let ends = path.extension().is_some_and(|found| found.eq_ignore_ascii_case(known));
            let message = format!("{option} {}: the name must end in .{known}", path.display());
            if ends || is_pipe(path) { Ok(()) } else { Err(message) }
        };
        match content {
            Content::Matrix => check_matrix_name(path).map_err(|error| hinted(error, path))?,
            Content::Vector => check_vector_name(path)?,
            Content::Picture => extension("png")?,
            Content::Csv => extension("csv")?,
            Content::Json => extension("json")?,
            Content::Plan => {}
        }
        check_writable(path).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    if let [one, other, ..] = standard[..] {
        return Err(format!("{one} and {other} cannot both write to `-`, standard output").into());
    }
    Ok(!standard.is_empty())
}

/// Returns an error if an output would overwrite an input or another output.
pub(crate) fn check_overwritten(inputs: &[&Path], outputs: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    // files that do not exist yet are compared by their names
    let place = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut outputs: Vec<_> = outputs.iter().filter_map(|&(option, path)| Some((option, path?))).collect();
    outputs.retain(|(_, path)| !is_standard(path) && !is_pipe(path));
    for (at, &(option, path)) in outputs.iter().enumerate() {
        if inputs.iter().any(|input| !is_standard(input) && place(input) == place(path)) {
            return Err(format!(
                "{option} {}: the file is an input, which is not overwritten",
                path.display()
            )
            .into());
        }
        if let Some((other, _)) = outputs[..at].iter().find(|(_, earlier)| place(earlier) == place(path)) {
            return Err(format!("{option} {}: {other} writes to the same file", path.display()).into());
        }
    }
    Ok(())
}

/// Adds a hint to the error for a matrix that is to be written to `.npy`.
fn hinted(error: Error, path: &Path) -> Failure {
    let name = path.to_string_lossy().to_ascii_lowercase();
    match name.trim_end_matches(".gz").ends_with(".npy") {
        true => format!("{error}; .npy holds a vector, .npz a sparse matrix").into(),
        false => error.into(),
    }
}

/// Returns whether a path names something that is neither a file nor a folder, `/dev/stdout` for example.
fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Returns an error if a file cannot be written. The content of an existing file is not changed.
fn check_writable(path: &Path) -> Result<(), String> {
    if is_pipe(path) {
        return Ok(());
    }
    if path.is_dir() {
        return Err("expected a file, found a folder".into());
    }
    if path.exists() {
        return OpenOptions::new().append(true).open(path).map(drop).map_err(|error| error.to_string());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(format!("the folder {} does not exist", folder.display()));
    }
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    created.and_then(|_| std::fs::remove_file(path)).map_err(|error| error.to_string())
}

/// Returns an error if standard input would be read twice.
pub(crate) fn check_inputs(inputs: &[&Path]) -> Result<(), Failure> {
    match inputs.iter().filter(|path| is_standard(path)).count() {
        0 | 1 => Ok(()),
        _ => Err("only one input can be `-`, standard input".into()),
    }
}

/// A matrix that was read.
pub(crate) struct Input {
    pub(crate) matrix: Csr<f64>,
    /// True if the file has no values, so that all values are 1.
    pub(crate) is_pattern: bool,
}

/// Reads a matrix.
pub(crate) fn matrix(path: &Path) -> Result<Input, Failure> {
    if is_standard(path) {
        let mut bytes = vec![];
        stdin().read_to_end(&mut bytes)?;
        let matrix = read_matrix_from("standard input", &bytes[..])?;
        return Ok(Input { matrix, is_pattern: is_pattern(&bytes[..]) });
    }
    let matrix = read_matrix(path)?;
    Ok(Input { matrix, is_pattern: File::open(path).is_ok_and(is_pattern) })
}

/// Returns whether the header of a file says that it stores no values: Matrix Market's field `pattern`, or
/// Rutherford-Boeing's type `p`.
fn is_pattern(source: impl Read) -> bool {
    let mut head = vec![];
    let mut read = |source: &mut dyn Read| source.take(400).read_to_end(&mut head);
    let mut source = std::io::BufReader::new(source);
    let gzipped = std::io::BufRead::fill_buf(&mut source).is_ok_and(|bytes| bytes.starts_with(b"\x1f\x8b"));
    // on an error, use the bytes that were read before it
    let _ = if gzipped { read(&mut flate2::bufread::GzDecoder::new(source)) } else { read(&mut source) };
    let text = String::from_utf8_lossy(&head).to_lowercase();
    let mut lines = text.lines();
    let banner = lines.next().unwrap_or("");
    let kind = lines.nth(1).unwrap_or("");
    match banner.trim_start_matches('\u{feff}').starts_with("%%matrixmarket") {
        true => banner.split_whitespace().nth(3) == Some("pattern"),
        false => kind.starts_with('p') && kind.get(2..3).is_some_and(|third| "ae".contains(third)),
    }
}

/// Line of a report about a file without values.
pub(crate) const ONES: &str = "the file has no values (a pattern): ones are used";

/// Reads a vector, of the expected length if one is given.
pub(crate) fn vector(path: &Path, expected: Option<usize>) -> Result<Vec<f64>, Failure> {
    let vector: Vec<f64> =
        if is_standard(path) { read_vector_from("standard input", stdin())? } else { read_vector(path)? };
    match expected {
        Some(expected) if vector.len() != expected => {
            let (file, got) = (shown(path), vector.len());
            Err(format!("{file}: expected {expected} entries to match the matrix, found {got}").into())
        }
        _ => Ok(vector),
    }
}

/// Reads the columns of a dense matrix. Each must have `expected` entries, the number of rows of the sparse
/// matrix.
pub(crate) fn columns(path: &Path, expected: usize) -> Result<Vec<Vec<f64>>, Failure> {
    let columns: Vec<Vec<f64>> =
        if is_standard(path) { read_columns_from("standard input", stdin())? } else { read_columns(path)? };
    let file = shown(path);
    match columns.first().map(Vec::len) {
        None => Err(format!("{file}: expected one column or more, found none").into()),
        Some(got) if got != expected => {
            Err(format!("{file}: expected {expected} entries to match the matrix, found {got}").into())
        }
        Some(_) => Ok(columns),
    }
}

/// Returns an error that names the first entry of the columns of a file that is infinite or NaN.
pub(crate) fn check_finite(path: &Path, columns: &[Vec<f64>]) -> Result<(), Failure> {
    for (column, number) in columns.iter().zip(1..) {
        if let Some(at) = column.iter().position(|value| !value.is_finite()) {
            let place = match columns.len() {
                1 => format!("entry {}", at + 1),
                _ => format!("entry ({}, {number})", at + 1),
            };
            return Err(format!("{}: {place} is {}", shown(path), column[at]).into());
        }
    }
    Ok(())
}

/// Ignores the error of a closed pipe: the program that reads it, such as `head`, needs no more.
fn ignore_closed_pipe(written: Result<(), WriteError>) -> Result<(), Failure> {
    match written {
        Err(WriteError::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Writes a matrix in the file format of the extension; Matrix Market to `-`.
pub(crate) fn save_matrix(path: &Path, matrix: &Csr<f64>) -> Result<(), Failure> {
    match is_standard(path) {
        true => ignore_closed_pipe(write_matrix_to(&mut stdout().lock(), matrix)),
        false => Ok(write_matrix(path, matrix)?),
    }
}

/// Writes a vector in the file format of the extension; Matrix Market to `-`.
pub(crate) fn save_vector(path: &Path, vector: &[f64]) -> Result<(), Failure> {
    match is_standard(path) {
        true => ignore_closed_pipe(write_vector_to(&mut stdout().lock(), vector)),
        false => Ok(write_vector(path, vector)?),
    }
}

/// Writes several vectors as the columns of a dense matrix in Matrix Market form, to a file or to `-`.
pub(crate) fn save_columns(path: &Path, columns: &[Vec<f64>]) -> Result<(), Failure> {
    match is_standard(path) {
        true => ignore_closed_pipe(write_columns_to(&mut stdout().lock(), columns)),
        false => Ok(write_columns(path, columns)?),
    }
}

/// Writes bytes unchanged.
pub(crate) fn save(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let written = if is_standard(path) {
        match stdout().lock().write_all(bytes).and_then(|()| stdout().flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    } else {
        std::fs::write(path, bytes)
    };
    written.map_err(|error| format!("{}: {error}", shown_output(path)))
}

/// The path of an output for messages; `-` is "standard output".
pub(crate) fn shown_output(path: &Path) -> String {
    if is_standard(path) { "standard output".into() } else { path.display().to_string() }
}
