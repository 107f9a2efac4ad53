//! Solves on a GPU.

use crate::matrix::{Number, Placed};
use crate::preconditioner::Ready;
use crate::solve::Given;
use krysp::solvers::Identity;
use krysp::{CudaVector, LinearOperator, Operator};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// The matrix, if it is on a GPU.
pub(crate) fn operator<'a, T: Number>(given: &'a Given<'_, T>) -> Option<&'a Operator<CudaVector<T>>> {
    match given {
        Given::Matrix(matrix) => match T::of_matrix(matrix) {
            Some(Placed::Cuda(operator)) => Some(operator),
            _ => None,
        },
        _ => None,
    }
}

/// The preconditioner of a solve on a GPU: none, or one that was built of the same operator.
pub(crate) fn preconditioner<'a, T: Number>(
    given: &'a Given<'_, T>,
    a: &Operator<CudaVector<T>>,
) -> PyResult<Box<dyn LinearOperator<Vector = CudaVector<T>> + 'a>> {
    match given {
        Given::Nothing => Ok(Box::new(Identity::new(a.domain()))),
        Given::Preconditioner(preconditioner) => match T::of_preconditioner(preconditioner) {
            Some(Ready::Cuda(m)) => Ok(Box::new(&**m)),
            _ => Err(elsewhere()),
        },
        _ => Err(elsewhere()),
    }
}

fn elsewhere() -> PyErr {
    PyTypeError::new_err(
        "an operator on a GPU takes preconditioners that were built of it, `krysp.jacobi(A)` for example",
    )
}
