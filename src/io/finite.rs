//! Checks that a matrix read from a file has no infinite or NaN entries.

use super::file::{load, wrong};
use super::matrix_market;
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use std::path::Path;

/// Returns an error if an entry of `a`, a matrix read from the file `path`, is infinite or NaN. For a Matrix
/// Market file the file is then read again, and the error gives the line, and the row and column written
/// there, counted from 1. For other files it has the message of [`Csr::check_finite`].
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
