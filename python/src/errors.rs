//! Errors as Python has them, in the library's own words.

use krysp::io::matrix_market::{ReadError, WriteError};
use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use std::io;

pyo3::create_exception!(
    _krysp,
    KryspError,
    PyRuntimeError,
    "What failed although it was called rightly: a factorization that meets a pivot of zero, a GPU that is missing or full.\n\n\
     Misuse is a `ValueError` or a `TypeError`, and a file that is not there a `FileNotFoundError`.\n\
     How a solve ended is in its report, and no error."
);

/// Misuse is a `ValueError`, and what the system says of a file an `OSError`. What matrices and hardware make fail is a
/// `KryspError`. An exception that a function of the user raised comes back as it was.
pub(crate) fn raised(error: krysp::Error) -> PyErr {
    use krysp::Error;
    let text = match &error {
        // the library's own advice names what only Rust has
        Error::Memory { what, needed, limit } => format!(
            "{what} takes {needed} bytes at least, {limit} are allowed: use an iterative method, such as `krysp.solve(A, b)`, or \
             `gmres` with `M=krysp.ilut(A)`; factors of a `float32` matrix take half as much"
        ),
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
        | Error::Lost => KryspError::new_err(text),
        #[cfg(feature = "cuda")]
        Error::Cuda(_) => KryspError::new_err(text),
        Error::Read(ReadError::Io { source, .. }) | Error::Write(WriteError::Io { source, .. }) => {
            io::Error::new(source.kind(), text).into()
        }
        _ => PyValueError::new_err(text),
    }
}

/// As [`raised`], of the solver's errors.
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
