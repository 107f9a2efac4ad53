//! Operators that are Python functions.

use crate::arrays::{array, entries};
use crate::matrix::Number;
use krysp::solvers::{Error, Result, check_spaces};
use krysp::{HostSpace, HostVector, LinearOperator, Space};
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// `y = f(x)`, where `f` takes an array and returns one of the same length and type. An exception ends the solve.
pub(crate) struct Function<T> {
    function: Py<PyAny>,
    space: HostSpace<T>,
}

impl<T: Number> Function<T> {
    pub(crate) fn new(function: &Bound<'_, PyAny>, n: usize) -> Self {
        Function { function: function.clone().unbind(), space: HostSpace::new(n) }
    }

    fn call(&self, x: &[T], y: &mut [T]) -> PyResult<()> {
        Python::attach(|py| {
            let image = self.function.bind(py).call1((PyArray1::from_slice(py, x),))?;
            let image = array::<T>("the result of a linear operator", &image)?;
            let image = entries("the result of a linear operator", &image)?;
            if image.len() != y.len() {
                let (got, expected) = (image.len(), y.len());
                let why = format!("the linear operator must return {expected} entries; got {got}");
                return Err(PyValueError::new_err(why));
            }
            y.copy_from_slice(image);
            Ok(())
        })
    }
}

impl<T: Number> LinearOperator for Function<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> Result<()> {
        check_spaces(self, x, y)?;
        debug_assert_eq!(self.space.len(), x.as_slice().len());
        self.call(x.as_slice(), y.as_mut_slice()).map_err(|exception| Error::Backend(Box::new(exception)))
    }
}
