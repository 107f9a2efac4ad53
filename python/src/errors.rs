//! Conversion of the library's errors to Python exceptions.

use krysp::SavedFileError;
use krysp::io::matrix_market::{ReadError, WriteError};
use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use std::io;

pyo3::create_exception!(
    _krysp,
    KryspError,
    PyRuntimeError,
    "Failure of a valid call: a factorization meets a zero pivot, a GPU is missing or out of memory, for example.\n\n\
     Invalid arguments raise `ValueError` or `TypeError`, a missing file raises `FileNotFoundError`.\n\
     A solve that does not converge raises nothing: its report says how it ended."
);

/// The Python exception for an error: invalid arguments become a `ValueError`, file errors of the operating system an `OSError`,
/// and failures that depend on the matrix or the hardware a `KryspError`. An exception raised in a function of the user is
/// passed on unchanged.
pub(crate) fn raised(error: krysp::Error) -> PyErr {
    use krysp::Error;
    let text = match &error {
        // the library's own message names functions that exist only in Rust
        Error::Memory { what, needed, limit } => format!(
            "{what} needs at least {needed} bytes, more than the limit of {limit}: use an iterative method, such as \
             `krysp.solve(A, b)`, or `gmres` with `M=krysp.ilut(A)`; factors of a `float32` matrix take half as much"
        ),
        Error::Saved { path, why: SavedFileError::Kind { saved, here } } => {
            let is = |what: &str| saved.starts_with(what) && !here.starts_with(what);
            let advice = match (is("a plan"), is("a matrix")) {
                (true, _) => "load it with `krysp.Plan.load(path, A)`",
                (_, true) => "load it with `krysp.Operator.load(path)`",
                _ => "save again",
            };
            format!("{}: expected {here}, but it holds {saved}: {advice}", path.display())
        }
        _ => error.to_string(),
    };
    match error {
        Error::Solver(error) => raised_by_solver(error),
        Error::ZeroDiagonal { .. }
        | Error::NotPositive { .. }
        | Error::CoarseNotPositive { .. }
        | Error::ZeroPivot { .. }
        | Error::Singular { .. }
        | Error::Allocation { .. }
        | Error::SingularLocal { .. }
        | Error::SingularBlock { .. }
        | Error::Unsuitable { .. }
        | Error::Memory { .. }
        | Error::Saved { .. }
        | Error::NoOperator => KryspError::new_err(text),
        #[cfg(feature = "cuda")]
        Error::Cuda(_) => KryspError::new_err(text),
        Error::Read(ReadError::Io { source, .. }) | Error::Write(WriteError::Io { source, .. }) => {
            io::Error::new(source.kind(), text).into()
        }
        _ => PyValueError::new_err(text),
    }
}

/// The Python exception for an error of a solver; see [`raised`].
pub(crate) fn raised_by_solver(error: krysp::solvers::Error) -> PyErr {
    use krysp::solvers::Error;
    match error {
        Error::Backend(inner) => match inner.downcast::<PyErr>() {
            Ok(exception) => *exception,
            Err(inner) => match inner.downcast::<krysp::Error>() {
                Ok(error) => raised(*error),
                Err(inner) => KryspError::new_err(inner.to_string()),
            },
        },
        misuse => PyValueError::new_err(misuse.to_string()),
    }
}
