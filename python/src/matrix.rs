//! Matrices that are converted once, to a format that suits them in the memory of a device, and used for many solves.

use crate::arrays::{Layout, Rows, array, entries, matrix};
use crate::borrow::{exclusive, shared};
#[cfg(feature = "cuda")]
use crate::device::{self, OnGpu};
use crate::errors::{raised, raised_by_solver};
use crate::preconditioner::{Preconditioner, Ready};
use crate::threads;
use crate::watch::{computed, interruptible};
use crate::workspaces::Workspaces;
use krysp::{
    Csr, Format, Host, HostVector, LinearOperator, MultiVector, Operator, Permutation, Real, SavedFileError,
    Space, Vector,
};
#[cfg(feature = "cuda")]
use krysp::{Cuda, CudaVector};
use numpy::PyArray1;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::path::{Path, PathBuf};

/// An element type of NumPy arrays that krysp computes with: `float32` or `float64`.
pub(crate) trait Number: Real + numpy::Element {
    /// The matrix, if it has this element type.
    fn of_matrix(matrix: &Matrix) -> Option<&Placed<Self>>;

    /// The preconditioner, if it has this element type.
    fn of_preconditioner(preconditioner: &Preconditioner) -> Option<&Ready<Self>>;
}

impl Number for f32 {
    fn of_matrix(matrix: &Matrix) -> Option<&Placed<f32>> {
        match &matrix.inner {
            Either::Single(placed) => Some(placed),
            Either::Double(_) => None,
        }
    }

    fn of_preconditioner(preconditioner: &Preconditioner) -> Option<&Ready<f32>> {
        match &preconditioner.inner {
            Either::Single(ready) => Some(ready),
            Either::Double(_) => None,
        }
    }
}

impl Number for f64 {
    fn of_matrix(matrix: &Matrix) -> Option<&Placed<f64>> {
        match &matrix.inner {
            Either::Double(placed) => Some(placed),
            Either::Single(_) => None,
        }
    }

    fn of_preconditioner(preconditioner: &Preconditioner) -> Option<&Ready<f64>> {
        match &preconditioner.inner {
            Either::Double(ready) => Some(ready),
            Either::Single(_) => None,
        }
    }
}

/// An object of element type `float32`, or one of `float64`.
pub(crate) enum Either<S, D> {
    Single(S),
    Double(D),
}

/// Evaluates the same expression for either element type.
macro_rules! with_either {
    ($either:expr, $inner:ident => $then:expr) => {
        match $either {
            $crate::matrix::Either::Single($inner) => $then,
            $crate::matrix::Either::Double($inner) => $then,
        }
    };
}
pub(crate) use with_either;

/// A matrix in the memory of a device.
pub(crate) enum Placed<T: Real> {
    /// Matrix in CSR in host memory, used only to build preconditioners.
    Given(Csr<T>),
    /// Matrix in host memory, in the format chosen for the CPU.
    Host(Operator<HostVector<T>>),
    /// Matrix in the memory of a GPU, in the format chosen for it.
    #[cfg(feature = "cuda")]
    Cuda(OnGpu<Operator<CudaVector<T>>>),
}

impl<T: Number> Placed<T> {
    fn new(csr: Csr<T>, place: &Device, symmetric: bool, reorder: bool) -> krysp::Result<Placed<T>> {
        let csr = match reorder {
            true => csr.reordered(&Permutation::rcm(&csr)?)?,
            false => csr,
        };
        Ok(match place {
            Device::Given => Placed::Given(csr),
            Device::Host if symmetric => Placed::Host(Operator::symmetric(&csr, &Host)?),
            Device::Host | Device::Auto => Placed::Host(Operator::auto(&csr, &Host)?),
            #[cfg(feature = "cuda")]
            Device::Cuda(ordinal) => {
                let gpu = device::gpu(*ordinal)?;
                let stored =
                    if symmetric { Operator::symmetric(&csr, &gpu) } else { Operator::auto(&csr, &gpu) };
                Placed::Cuda(OnGpu::new(stored?))
            }
        })
    }

    /// Replaces the values; they are in the order of the arrays that the matrix was made from.
    fn refresh(&mut self, values: &[T]) -> krysp::Result<()> {
        match self {
            Placed::Given(csr) => csr.refresh(&csr.assemble(values)?),
            Placed::Host(operator) => operator.refresh(&operator.assemble(values)?),
            #[cfg(feature = "cuda")]
            Placed::Cuda(operator) => {
                let values = operator.assemble(values)?;
                operator.refresh(&values)
            }
        }
    }

    fn refresh_from(&mut self, a: &Csr<T>) -> krysp::Result<()> {
        match self {
            Placed::Given(csr) => csr.refresh_from(a),
            Placed::Host(operator) => operator.refresh_from(a),
            #[cfg(feature = "cuda")]
            Placed::Cuda(operator) => operator.refresh_from(a),
        }
    }

    fn apply(&self, x: &[T]) -> krysp::solvers::Result<Vec<T>> {
        match self {
            Placed::Given(csr) => image(csr, x),
            Placed::Host(operator) => image(operator, x),
            #[cfg(feature = "cuda")]
            Placed::Cuda(operator) => image(&**operator, x),
        }
    }

    fn apply_many(&self, x: &[&[T]]) -> krysp::solvers::Result<Vec<T>> {
        match self {
            Placed::Given(csr) => images(csr, x),
            Placed::Host(operator) => images(operator, x),
            #[cfg(feature = "cuda")]
            Placed::Cuda(operator) => images(&**operator, x),
        }
    }

    fn save(&self, path: &Path) -> krysp::Result<()> {
        match self {
            Placed::Given(csr) => Operator::in_format(csr, &Host, Csr::<T>::NAME)?.save(path),
            Placed::Host(operator) => operator.save(path),
            #[cfg(feature = "cuda")]
            Placed::Cuda(operator) => operator.save(path),
        }
    }

    fn load(path: &Path, place: &Device) -> krysp::Result<Placed<T>> {
        Ok(match place {
            #[cfg(feature = "cuda")]
            Device::Cuda(ordinal) => Placed::Cuda(OnGpu::new(Operator::load(path, &device::gpu(*ordinal)?)?)),
            _ => Placed::Host(Operator::load(path, &Host)?),
        })
    }

    fn shape(&self) -> (usize, usize) {
        match self {
            Placed::Given(csr) => (csr.rows(), csr.cols()),
            Placed::Host(operator) => (operator.range().len(), operator.domain().len()),
            #[cfg(feature = "cuda")]
            Placed::Cuda(operator) => (operator.range().len(), operator.domain().len()),
        }
    }

    /// Returns whether the matrix was reordered, which the Python package allows in host memory only.
    fn is_reordered(&self) -> bool {
        matches!(self, Placed::Host(operator) if operator.domain().permutation().is_some())
    }

    fn choice(&self) -> String {
        let text = match self {
            Placed::Given(_) => "CSR, as given".into(),
            Placed::Host(operator) => operator.choice().to_string(),
            #[cfg(feature = "cuda")]
            Placed::Cuda(operator) => operator.choice().to_string(),
        };
        text.replace("`Operator::symmetric`", "`symmetric=True`")
    }

    fn bytes(&self) -> usize {
        match self {
            Placed::Given(csr) => csr.bytes(),
            Placed::Host(operator) => operator.bytes(),
            #[cfg(feature = "cuda")]
            Placed::Cuda(operator) => operator.bytes(),
        }
    }
}

/// `A x`, in the user's order.
pub(crate) fn image<V: Vector>(
    a: &(impl LinearOperator<Vector = V> + ?Sized),
    x: &[V::Elem],
) -> krysp::solvers::Result<Vec<V::Elem>> {
    let (mut from, mut to) = (a.domain().zeros()?, a.range().zeros()?);
    a.domain().load(x, &mut from)?;
    a.apply(&from, &mut to)?;
    let mut host = vec![V::Elem::default(); a.range().local_len()];
    a.range().store(&to, &mut host)?;
    Ok(host)
}

/// Products of `A` with several vectors in the user's order. Returns the products, one after the other.
fn images<V: Vector>(
    a: &(impl LinearOperator<Vector = V> + ?Sized),
    x: &[&[V::Elem]],
) -> krysp::solvers::Result<Vec<V::Elem>> {
    let mut from = MultiVector::<V>::zeros(a.domain(), x.len())?;
    for (x, from) in x.iter().zip(from.columns_mut()) {
        a.domain().load(x, from)?;
    }
    let mut to = MultiVector::<V>::zeros(a.range(), x.len())?;
    a.apply_many(&from, &mut to)?;
    let rows = a.range().local_len();
    let mut host = vec![V::Elem::default(); rows * x.len()];
    for (to, host) in to.columns().iter().zip(host.chunks_mut(rows.max(1))) {
        a.range().store(to, host)?;
    }
    Ok(host)
}

/// The device of a matrix.
pub(crate) enum Device {
    /// Host memory, without conversion: see [`Placed::Given`].
    Given,
    Host,
    /// The device on which a plan expects solves to take the least time.
    Auto,
    #[cfg(feature = "cuda")]
    Cuda(usize),
}

impl Device {
    pub(crate) fn named(name: &str) -> PyResult<Device> {
        match name {
            "given" => Ok(Device::Given),
            "cpu" => Ok(Device::Host),
            "auto" => Ok(Device::Auto),
            #[cfg(feature = "cuda")]
            _ if name.starts_with("cuda:") => {
                threads::check_gpu()?;
                Ok(Device::Cuda(name[5..].parse()?))
            }
            _ => Err(PyTypeError::new_err(format!("unknown device {name:?}"))),
        }
    }

    /// The ordinal of the GPU, or `None` for host memory; `faster` decides for `Auto`.
    #[cfg(feature = "cuda")]
    pub(crate) fn gpu(&self, faster: impl FnOnce() -> krysp::plan::Place) -> Option<usize> {
        match self {
            Device::Cuda(ordinal) => Some(*ordinal),
            Device::Auto => (faster() == krysp::plan::Place::Gpu).then_some(0),
            Device::Given | Device::Host => None,
        }
    }
}

/// A matrix in the memory of a device.
#[pyclass(module = "krysp")]
pub(crate) struct Matrix {
    pub(crate) inner: Either<Placed<f32>, Placed<f64>>,
    pub(crate) workspaces: Workspaces,
}

impl Matrix {
    /// Prepares the calling thread. Returns an error if the matrix is on a GPU that this process cannot use.
    pub(crate) fn enter(&self) -> PyResult<()> {
        threads::enter();
        #[cfg(feature = "cuda")]
        if with_either!(&self.inner, placed => matches!(placed, Placed::Cuda(_))) {
            threads::check_gpu()?;
        }
        Ok(())
    }
}

#[pymethods]
impl Matrix {
    /// Creates a matrix from the arrays of a SciPy matrix, which are copied. `place` is "given", "cpu" or "cuda:0".
    #[new]
    #[expect(clippy::too_many_arguments, reason = "the package calls it, in two places")]
    fn new(
        layout: &str,
        shape: (usize, usize),
        first: &Bound<'_, PyAny>,
        second: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        place: &str,
        symmetric: bool,
        reorder: bool,
    ) -> PyResult<Matrix> {
        threads::enter();
        let (layout, place, py) = (Layout::named(layout)?, Device::named(place)?, data.py());
        let inner = if data.is_instance_of::<PyArray1<f32>>() {
            let csr = matrix::<f32>(layout, shape, first, second, data)?;
            Either::Single(
                interruptible(py, || Placed::new(csr, &place, symmetric, reorder))?.map_err(raised)?,
            )
        } else {
            let csr = matrix::<f64>(layout, shape, first, second, data)?;
            Either::Double(
                interruptible(py, || Placed::new(csr, &place, symmetric, reorder))?.map_err(raised)?,
            )
        };
        Ok(Matrix { inner, workspaces: Workspaces::default() })
    }

    /// The diagonal of a CSR matrix, given as the tuple of its arrays, for Jacobi: other entries are not copied.
    #[staticmethod]
    fn diagonal(rows: &Bound<'_, PyTuple>) -> PyResult<Matrix> {
        threads::enter();
        let inner = if rows.get_item(3)?.is_instance_of::<PyArray1<f32>>() {
            Either::Single(Placed::Given(diagonal_of(rows)?))
        } else {
            Either::Double(Placed::Given(diagonal_of(rows)?))
        };
        Ok(Matrix { inner, workspaces: Workspaces::default() })
    }

    /// Replaces the values; they are in the order of the arrays that the matrix was made from.
    fn refresh(slf: &Bound<'_, Self>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, mut matrix) = (slf.py(), exclusive(slf)?);
        matrix.enter()?;
        matrix.workspaces.forget_values();
        with_either!(&mut matrix.inner, placed => {
            let values = array("the values", values)?;
            let values = entries("the values", &values)?;
            interruptible(py, || placed.refresh(values))?.map_err(refused_values)
        })
    }

    /// Replaces the values by those of a matrix with the same pattern, given as the arrays of a SciPy matrix.
    fn refresh_from(
        slf: &Bound<'_, Self>,
        layout: &str,
        shape: (usize, usize),
        first: &Bound<'_, PyAny>,
        second: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut refreshed = exclusive(slf)?;
        refreshed.enter()?;
        refreshed.workspaces.forget_values();
        let (layout, py) = (Layout::named(layout)?, data.py());
        with_either!(&mut refreshed.inner, placed => {
            let a = matrix(layout, shape, first, second, data)?;
            interruptible(py, || placed.refresh_from(&a))?.map_err(raised)
        })
    }

    /// `A @ x`
    fn apply<'py>(slf: &Bound<'py, Self>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, matrix) = (slf.py(), shared(slf)?);
        matrix.enter()?;
        with_either!(&matrix.inner, placed => {
            let x = array("x", x)?;
            let x = entries("x", &x)?;
            let y = py.detach(|| placed.apply(x)).map_err(raised_by_solver)?;
            Ok(PyArray1::from_vec(py, y).into_any())
        })
    }

    /// Products of `A` with several vectors of `cols` entries, stored one after the other in `x`. Returns the
    /// products, one after the other.
    fn apply_many<'py>(
        slf: &Bound<'py, Self>,
        x: &Bound<'py, PyAny>,
        cols: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, matrix) = (slf.py(), shared(slf)?);
        matrix.enter()?;
        with_either!(&matrix.inner, placed => {
            let x = array("x", x)?;
            let columns: Vec<_> = entries("x", &x)?.chunks(cols.max(1)).collect();
            let y = py.detach(|| placed.apply_many(&columns)).map_err(raised_by_solver)?;
            Ok(PyArray1::from_vec(py, y).into_any())
        })
    }

    /// Saves the matrix in its format.
    fn save(slf: &Bound<'_, Self>, path: PathBuf) -> PyResult<()> {
        let (py, matrix) = (slf.py(), shared(slf)?);
        matrix.enter()?;
        with_either!(&matrix.inner, placed => computed(py, || placed.save(&path)).map_err(raised))
    }

    /// Loads a saved matrix, to "cpu" or "cuda:0".
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, place: &str) -> PyResult<Matrix> {
        let place = Device::named(place)?;
        let is_other_kind = |error: &krysp::Error| {
            matches!(error, krysp::Error::Saved { why: SavedFileError::Kind { .. }, .. })
        };
        let inner = match interruptible(py, || Placed::load(&path, &place))? {
            Ok(double) => Either::Double(double),
            // single precision, unless it is no matrix of this device at all
            Err(error) if is_other_kind(&error) => match interruptible(py, || Placed::load(&path, &place))? {
                Err(of_single) if is_other_kind(&of_single) => return Err(raised(error)),
                single => Either::Single(single.map_err(raised)?),
            },
            Err(error) => return Err(raised(error)),
        };
        Ok(Matrix { inner, workspaces: Workspaces::default() })
    }

    /// Numbers of rows and columns.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        with_either!(&self.inner, placed => placed.shape())
    }

    /// Returns whether the element type is `float32`.
    #[getter]
    fn single(&self) -> bool {
        matches!(self.inner, Either::Single(_))
    }

    /// Returns whether rows and columns are stored in another order than the user's.
    #[getter]
    fn reordered(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Ok(with_either!(&shared(slf)?.inner, placed => placed.is_reordered()))
    }

    /// The chosen format, and why it was chosen.
    fn choice(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(with_either!(&shared(slf)?.inner, placed => placed.choice()))
    }

    /// Bytes of the matrix that one matrix-vector product reads.
    #[getter]
    fn nbytes(slf: &Bound<'_, Self>) -> PyResult<usize> {
        Ok(with_either!(&shared(slf)?.inner, placed => placed.bytes()))
    }
}

/// The exception for new values that are rejected. A wrong number of values is described in terms of the
/// Python interface.
pub(crate) fn refused_values(error: krysp::Error) -> PyErr {
    match error {
        krysp::Error::Length { got, expected, .. } => PyValueError::new_err(format!(
            "values must have {expected} entries, in the order of `A.data` as it was given; got {got}. `refresh(A)` takes a \
             matrix with its indices in any order"
        )),
        other => raised(other),
    }
}

fn diagonal_of<T: Number>(rows: &Bound<'_, PyTuple>) -> PyResult<Csr<T>> {
    let py = rows.py();
    let rows = Rows::new(rows)?;
    let a = rows.operator()?;
    let entries = computed(py, || a.diagonal_entries());
    let offsets: Vec<usize> = (0..=a.rows()).map(|row| row.min(entries.len())).collect();
    let columns: Vec<usize> = (0..entries.len()).collect();
    Csr::from_csr(a.rows(), a.cols(), &offsets, &columns, &entries).map_err(raised)
}

/// Names of the GPUs that this process can use: none in a child that was forked after its parent had used one.
#[pyfunction]
pub(crate) fn devices() -> Vec<String> {
    #[cfg(feature = "cuda")]
    if threads::check_gpu().is_ok() {
        let names: Vec<String> = Cuda::devices().into_iter().map(|info| info.name).collect();
        if !names.is_empty() {
            threads::uses_gpu();
        }
        return names;
    }
    vec![]
}
