//! Arrays of NumPy, read where they are.

use crate::errors::raised;
use crate::matrix::Number;
use krysp::Csr;
use krysp::formats::CsrRef;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// An array of one dimension and of this element type.
pub(crate) fn array<'py, T: numpy::Element>(
    what: &str,
    given: &Bound<'py, PyAny>,
) -> PyResult<PyReadonlyArray1<'py, T>> {
    let array = given.cast::<PyArray1<T>>().map_err(|_| {
        PyTypeError::new_err(format!("{what} has another type than the solve, or more than one dimension"))
    })?;
    Ok(array.try_readonly()?)
}

/// Its entries, which lie side by side.
pub(crate) fn entries<'a, T: numpy::Element>(
    what: &str,
    array: &'a PyReadonlyArray1<'_, T>,
) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| PyValueError::new_err(format!("{what} is not contiguous")))
}

/// Compressed rows as SciPy has them, `(columns, offsets, indices, data)`, with indices of 32 bits. They are not copied, and
/// stay borrowed for as long as this is there.
pub(crate) struct Rows<'py, T: numpy::Element> {
    cols: usize,
    offsets: PyReadonlyArray1<'py, u32>,
    columns: PyReadonlyArray1<'py, u32>,
    values: PyReadonlyArray1<'py, T>,
}

impl<'py, T: Number> Rows<'py, T> {
    pub(crate) fn new(given: &Bound<'py, PyTuple>) -> PyResult<Self> {
        Ok(Rows {
            cols: given.get_item(0)?.extract()?,
            offsets: array("indptr", &given.get_item(1)?)?,
            columns: array("indices", &given.get_item(2)?)?,
            values: array("data", &given.get_item(3)?)?,
        })
    }

    pub(crate) fn operator(&self) -> PyResult<CsrRef<'_, T>> {
        let (offsets, columns) = (entries("indptr", &self.offsets)?, entries("indices", &self.columns)?);
        CsrRef::new(self.cols, offsets, columns, entries("data", &self.values)?).map_err(raised)
    }

    /// The values, if each row has one entry, which is on the diagonal.
    pub(crate) fn diagonal(&self) -> PyResult<Option<&[T]>> {
        let (offsets, columns) = (entries("indptr", &self.offsets)?, entries("indices", &self.columns)?);
        let counts = |all: &[u32]| all.iter().zip(0..).all(|(&entry, at)| entry == at);
        let is_diagonal = columns.len() == self.cols && offsets.len() == self.cols + 1;
        let values = entries("data", &self.values)?;
        Ok((is_diagonal && values.len() == self.cols && counts(offsets) && counts(columns)).then_some(values))
    }
}

/// What the arrays of a matrix mean.
#[derive(Clone, Copy)]
pub(crate) enum Layout {
    Rows,
    Columns,
    Coordinates,
}

impl Layout {
    pub(crate) fn named(name: &str) -> PyResult<Layout> {
        match name {
            "csr" => Ok(Layout::Rows),
            "csc" => Ok(Layout::Columns),
            "coo" => Ok(Layout::Coordinates),
            other => Err(PyValueError::new_err(format!("no layout is called {other}"))),
        }
    }
}

/// A matrix from arrays of SciPy, copied.
pub(crate) fn matrix<T: Number>(
    layout: Layout,
    shape: (usize, usize),
    first: &Bound<'_, PyAny>,
    second: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
) -> PyResult<Csr<T>> {
    let values = array::<T>("data", data)?;
    let values = entries("data", &values)?;
    let py = data.py();
    if first.is_instance_of::<PyArray1<i32>>() {
        let (first, second) = (array::<i32>("indptr", first)?, array::<i32>("indices", second)?);
        let (first, second) = (entries("indptr", &first)?, entries("indices", &second)?);
        py.detach(|| assembled(layout, shape, first, second, values))
    } else {
        let (first, second) = (array::<i64>("indptr", first)?, array::<i64>("indices", second)?);
        let (first, second) = (entries("indptr", &first)?, entries("indices", &second)?);
        py.detach(|| assembled(layout, shape, first, second, values))
    }
}

fn assembled<T: Number, I: krysp::formats::Index>(
    layout: Layout,
    (rows, cols): (usize, usize),
    first: &[I],
    second: &[I],
    values: &[T],
) -> PyResult<Csr<T>> {
    match layout {
        Layout::Rows => Csr::from_csr(rows, cols, first, second, values),
        Layout::Columns => Csr::from_csc(rows, cols, first, second, values),
        Layout::Coordinates => Csr::from_coordinates(rows, cols, first, second, values),
    }
    .map_err(raised)
}
