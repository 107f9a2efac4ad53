//! NumPy arrays, read without a copy.

use crate::errors::raised;
use crate::matrix::Number;
use krysp::Csr;
use krysp::formats::CsrRef;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Casts a Python object to a one-dimensional array of element type `T`. Error messages call it `what`.
pub(crate) fn array<'py, T: numpy::Element>(
    what: &str,
    given: &Bound<'py, PyAny>,
) -> PyResult<PyReadonlyArray1<'py, T>> {
    let array = given.cast::<PyArray1<T>>().map_err(|_| {
        PyTypeError::new_err(format!("{what} must be one-dimensional and have the element type of the solve"))
    })?;
    Ok(array.try_readonly()?)
}

/// The entries of a contiguous array.
pub(crate) fn entries<'a, T: numpy::Element>(
    what: &str,
    array: &'a PyReadonlyArray1<'_, T>,
) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| PyValueError::new_err(format!("{what} is not contiguous")))
}

/// The arrays of a SciPy CSR matrix, as the tuple `(number of columns, indptr, indices, data)`, with indices of 32 bits. The
/// arrays are not copied; they stay borrowed during the lifetime of this value.
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

    /// The values, if the matrix has exactly the entries of its diagonal.
    pub(crate) fn diagonal(&self) -> PyResult<Option<&[T]>> {
        let (offsets, columns) = (entries("indptr", &self.offsets)?, entries("indices", &self.columns)?);
        let counts = |all: &[u32]| all.iter().zip(0..).all(|(&entry, at)| entry == at);
        let is_diagonal = columns.len() == self.cols && offsets.len() == self.cols + 1;
        let values = entries("data", &self.values)?;
        Ok((is_diagonal && values.len() == self.cols && counts(offsets) && counts(columns)).then_some(values))
    }
}

/// The SciPy format that the arrays of a matrix belong to: CSR, CSC or COO.
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
            other => Err(PyValueError::new_err(format!("unknown layout {other:?}"))),
        }
    }
}

/// A matrix with a copy of the arrays of a SciPy matrix.
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
