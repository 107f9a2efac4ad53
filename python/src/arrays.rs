//! NumPy arrays of users: values are read without a copy, indices are copied.

use crate::errors::raised;
use crate::matrix::Number;
use krysp::Csr;
use krysp::formats::CsrRef;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rayon::prelude::*;

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

/// A SciPy CSR matrix, given as the tuple `(number of columns, indptr, indices, data)`. The index arrays are copied, because Python
/// code that changes them during a solve would otherwise make it read outside of its vectors. The values stay borrowed during the
/// lifetime of this object: a changed value changes only numbers.
pub(crate) struct Rows<'py, T: numpy::Element> {
    cols: usize,
    offsets: Vec<u32>,
    columns: Vec<u32>,
    values: PyReadonlyArray1<'py, T>,
    /// `indptr` and `indices`, for error messages.
    given: [Bound<'py, PyAny>; 2],
}

impl<'py, T: Number> Rows<'py, T> {
    pub(crate) fn new(given: &Bound<'py, PyTuple>) -> PyResult<Self> {
        let (offsets, columns) = (given.get_item(1)?, given.get_item(2)?);
        if columns.len()? > u32::MAX as usize {
            return Err(PyValueError::new_err(
                "the matrix has more than 2**32 - 1 entries: convert it, `krysp.Operator(A)`, and solve with the operator",
            ));
        }
        Ok(Rows {
            cols: given.get_item(0)?.extract()?,
            offsets: copied("indptr", &offsets)?,
            columns: copied("indices", &columns)?,
            values: array("data", &given.get_item(3)?)?,
            given: [offsets, columns],
        })
    }

    pub(crate) fn operator(&self) -> PyResult<CsrRef<'_, T>> {
        let values = entries("data", &self.values)?;
        CsrRef::new(self.cols, &self.offsets, &self.columns, values).map_err(|error| self.refused(error))
    }

    /// The exception for invalid indices, with the number that Python has at that position: a copy in 32 bits differs.
    fn refused(&self, error: krysp::Error) -> PyErr {
        use krysp::Error;
        let [offsets, columns] = &self.given;
        let number = |array: &Bound<'py, PyAny>, position: usize, copy: i128| {
            array.get_item(position).and_then(|number| number.extract::<i64>()).map_or(copy, i128::from)
        };
        raised(match error {
            Error::Index { position, what, index, bound } => {
                Error::Index { position, what, index: number(columns, position, index), bound }
            }
            Error::Offsets { position, offset, entries } => {
                Error::Offsets { position, offset: number(offsets, position, offset), entries }
            }
            other => other,
        })
    }

    /// The values, if the matrix has exactly the entries of its diagonal.
    pub(crate) fn diagonal(&self) -> PyResult<Option<&[T]>> {
        let (offsets, columns) = (&self.offsets, &self.columns);
        let counts = |all: &[u32]| all.iter().zip(0..).all(|(&entry, at)| entry == at);
        let is_diagonal = columns.len() == self.cols && offsets.len() == self.cols + 1;
        let values = entries("data", &self.values)?;
        Ok((is_diagonal && values.len() == self.cols && counts(offsets) && counts(columns)).then_some(values))
    }
}

/// Copies an array of 32-bit or 64-bit indices. Those that do not fit become `u32::MAX`, which is out of bounds in every matrix.
fn copied(what: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let py = given.py();
    if given.is_instance_of::<PyArray1<i32>>() {
        let given = array::<i32>(what, given)?;
        let given = entries(what, &given)?;
        Ok(py.detach(|| shortened(given)))
    } else {
        let given = array::<i64>(what, given)?;
        let given = entries(what, &given)?;
        Ok(py.detach(|| shortened(given)))
    }
}

/// Number of indices that one task copies, 64 kB of results. Guess.
const TASK: usize = 1 << 14;

fn shortened<I: Copy + Sync>(given: &[I]) -> Vec<u32>
where
    u32: TryFrom<I>,
{
    let shorter = |&index: &I| u32::try_from(index).unwrap_or(u32::MAX);
    // waking the thread pool takes as long as copying a small array
    if given.len() <= TASK {
        return given.iter().map(shorter).collect();
    }
    given.par_iter().with_min_len(TASK).map(shorter).collect()
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
