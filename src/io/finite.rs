//! Matrices of files whose entries are infinite or NaN.

use super::file::{load, wrong};
use super::matrix_market;
use crate::{Csr, Real, Result};
use std::path::Path;

/// Refuses a matrix read from this file if an entry is infinite or NaN. For a Matrix Market file the error
/// gives the line, and the row and column written there, counted from 1; for other files the message of
/// [`Csr::check_finite`]. Only in that case the file is read again.
///
/// ```no_run
/// let a = krysp::io::read_matrix::<f64>("heat_sink.mtx")?;
/// krysp::io::check_finite("heat_sink.mtx", &a)?; // heat_sink.mtx, line 24: entry (24, 2) is NaN
/// # Ok::<(), krysp::Error>(())
/// ```
pub fn check_finite<T: Real>(path: impl AsRef<Path>, a: &Csr<T>) -> Result<()> {
    let Err(error) = a.check_finite() else { return Ok(()) };
    let path = path.as_ref();
    let named = load(path).ok().and_then(|bytes| matrix_market::not_finite(&bytes));
    Err(named.map_or_else(|| wrong(path, error.to_string()), |named| named.in_file(path).into()))
}
