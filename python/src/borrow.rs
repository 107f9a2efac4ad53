//! Access to operators and preconditioners that several threads may use.

use pyo3::PyClass;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::False;

/// Borrows an object for reading. Returns an error if a `refresh` in another thread changes it.
pub(crate) fn shared<'py, C: PyClass>(object: &Bound<'py, C>) -> PyResult<PyRef<'py, C>> {
    let why =
        "another thread refreshes this operator or preconditioner: wait until its `refresh` has returned";
    object.try_borrow().map_err(|_| PyRuntimeError::new_err(why))
}

/// Borrows an object for changing it. Returns an error while it is in use.
pub(crate) fn exclusive<'py, C: PyClass<Frozen = False>>(
    object: &Bound<'py, C>,
) -> PyResult<PyRefMut<'py, C>> {
    let why = "this operator or preconditioner is in use, by another thread or by the solve that called this function: refresh \
               it when no solve uses it";
    object.try_borrow_mut().map_err(|_| PyRuntimeError::new_err(why))
}
