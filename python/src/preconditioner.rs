//! Preconditioners, built for a matrix and refreshed with new values.

use crate::arrays::{array, entries};
use crate::borrow::{exclusive, shared};
#[cfg(feature = "cuda")]
use crate::device::OnGpu;
use crate::errors::{raised, raised_by_solver};
use crate::matrix::{Either, Matrix, Number, Placed, image, with_either};
use crate::threads;
use crate::watch::interruptible;
use krysp::{
    Amg, AmgOptions, Cholesky, Csr, FactorReport, Fsai, HostVector, Ic0, Ilu0, Ilut, IlutOptions, Inertia,
    Jacobi, Ldl, LinearOperator, Lu, MatrixSource, Real, Refresh, SaddlePoint, SaddlePointOptions, Schur,
    Space, Spai, TwoLevel, UnknownOrder, Vector,
};
#[cfg(feature = "cuda")]
use krysp::{CuDss, CudaVector, Operator};
use numpy::PyArray1;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::any::Any;
use std::borrow::Cow;

/// A preconditioner that can be refreshed with new values.
pub(crate) trait Refreshable<T: Real, V: Vector<Elem = T>>:
    LinearOperator<Vector = V> + Refresh<T> + Any
{
}
impl<T: Real, V: Vector<Elem = T>, M: LinearOperator<Vector = V> + Refresh<T> + Any> Refreshable<T, V> for M {}

/// A preconditioner in the memory of the device of its matrix.
pub(crate) enum Ready<T: Real> {
    Host(Box<dyn Refreshable<T, HostVector<T>>>),
    #[cfg(feature = "cuda")]
    Cuda(OnGpu<Box<dyn Refreshable<T, CudaVector<T>>>>),
}

/// The options of all preconditioners; each uses its own.
struct Options<T: Real> {
    /// Number of rows of a diagonal block, for Jacobi.
    block: Option<usize>,
    /// Basis of the near-null space, for multigrid.
    near_null_space: Vec<Vec<T>>,
    amg: AmgOptions,
    ilut: IlutOptions,
    saddle: SaddlePointOptions<T>,
}

impl<T: Number> Ready<T> {
    fn new(name: &str, a: &Placed<T>, options: Options<T>) -> PyResult<(Ready<T>, String)> {
        match a {
            Placed::Given(csr) => on_host(name, csr, options),
            Placed::Host(operator) => {
                let csr: Cow<'_, Csr<T>> = operator.in_host_memory().map_err(raised)?;
                on_host(name, &csr, options)
            }
            #[cfg(feature = "cuda")]
            Placed::Cuda(operator) => on_gpu(name, operator, options),
        }
    }

    fn refresh(&mut self, a: &Placed<T>) -> krysp::Result<()> {
        let origin: &dyn MatrixSource<T> = match a {
            Placed::Given(csr) => csr,
            Placed::Host(operator) => operator,
            #[cfg(feature = "cuda")]
            Placed::Cuda(operator) => &**operator,
        };
        match self {
            Ready::Host(preconditioner) => preconditioner.refresh(origin),
            #[cfg(feature = "cuda")]
            Ready::Cuda(preconditioner) => preconditioner.refresh(origin),
        }
    }

    fn apply(&self, r: &[T]) -> krysp::solvers::Result<Vec<T>> {
        match self {
            Ready::Host(preconditioner) => image(&**preconditioner, r),
            #[cfg(feature = "cuda")]
            Ready::Cuda(preconditioner) => image(&***preconditioner, r),
        }
    }

    /// The preconditioner, if it is in host memory and of type `M`.
    fn host<M: 'static>(&self) -> Option<&M> {
        self.any()?.downcast_ref()
    }

    fn any(&self) -> Option<&dyn Any> {
        match self {
            Ready::Host(preconditioner) => Some(&**preconditioner),
            #[cfg(feature = "cuda")]
            Ready::Cuda(_) => None,
        }
    }

    fn lu(&self) -> Option<&Lu<T>> {
        self.host()
    }

    /// Number of entries of a complete factorization of the host; `None` for other preconditioners.
    fn nnz(&self) -> Option<usize> {
        let cholesky = self.host().map(Cholesky::<T>::nnz);
        let ldl = || self.host().map(Ldl::<T>::nnz);
        let lu = || self.lu().map(Lu::nnz);
        cholesky.or_else(ldl).or_else(lu)
    }

    /// Signs of the eigenvalues by `Ldl` or `Cholesky` of the host.
    fn inertia(&self) -> Option<Inertia> {
        let cholesky = self.host().and_then(|cholesky: &Cholesky<T>| cholesky.report().inertia);
        cholesky.or_else(|| self.host().map(Ldl::<T>::inertia))
    }

    /// An estimate of `‖A‖₁ ‖A⁻¹‖₁` by a complete factorization of the host; `None` for other preconditioners.
    fn condition_estimate(&self) -> Option<krysp::Result<f64>> {
        let cholesky = self.host().map(Cholesky::<T>::condition_estimate);
        let ldl = || self.host().map(Ldl::<T>::condition_estimate);
        let lu = || self.lu().map(Lu::condition_estimate);
        cholesky.or_else(ldl).or_else(lu)
    }
}

fn on_host<T: Number>(name: &str, csr: &Csr<T>, options: Options<T>) -> PyResult<(Ready<T>, String)> {
    let mut text = name.to_string();
    if name == "cudss" {
        let why = "cudss factorizes on a GPU: pass an operator on a GPU, `krysp.cudss(krysp.Operator(A, \"cuda\"))`";
        return Err(PyValueError::new_err(why));
    }
    let made: krysp::Result<Box<dyn Refreshable<T, HostVector<T>>>> = (|| {
        Ok(match name {
            "jacobi" => match options.block {
                None => Box::new(Jacobi::new(csr)?) as _,
                Some(size) => Box::new(Jacobi::blocks(csr, size)?) as _,
            },
            "ilu0" => Box::new(Ilu0::new(csr)?) as _,
            "ic0" => Box::new(Ic0::shifted(csr)?) as _,
            "ilut" => Box::new(Ilut::with(csr, options.ilut)?) as _,
            "direct" => direct(csr)?,
            "lu" => Box::new(Lu::new(csr)?) as _,
            "ldl" => Box::new(Ldl::new(csr)?) as _,
            "cholesky" => Box::new(Cholesky::new(csr)?) as _,
            "fsai" => Box::new(Fsai::new(csr)?) as _,
            "spai" => Box::new(Spai::new(csr)?) as _,
            "two_level" => Box::new(TwoLevel::new(csr)?) as _,
            "saddle_point" => {
                let saddle = SaddlePoint::with(csr, options.saddle)?;
                text = saddle.to_string();
                Box::new(saddle)
            }
            _ => {
                let amg = Amg::with(csr, &options.near_null_space, options.amg)?;
                text = amg.to_string();
                Box::new(amg) as _
            }
        })
    })();
    Ok((Ready::Host(made.map_err(raised)?), text))
}

/// Tolerance of the symmetry test, in machine epsilons: rounding during assembly makes a(i, j) and a(j, i) differ. Guess.
const ROUNDED: f64 = 100.0;

/// A pivot of Cholesky's method of at most this many machine epsilons, relative to its diagonal entry, may be a rounded zero. Singular
/// Neumann problems on grids of up to 400 x 400 and 30 x 30 x 30 points left pivots of up to 1e4 epsilons.
const DOUBTFUL: f64 = 1e5;

/// A matrix is singular to working precision if its condition number, scaled to a diagonal of ones, is at least this, divided by the
/// machine epsilon: then rounding of its entries alone may change every digit of the solution. Guess; the same Neumann problems are found.
const SINGULAR: f64 = 0.25;

/// A direct solver: Cholesky if the matrix is symmetric positive definite, LDLᵀ if it is symmetric, otherwise LU. LU is also tried
/// if LDLᵀ finds the matrix singular, because the pivots of LU are not restricted to blocks on the diagonal.
fn direct<T: Number>(csr: &Csr<T>) -> krysp::Result<Box<dyn Refreshable<T, HostVector<T>>>> {
    use krysp::Error;
    let epsilon = <T as krysp::Element>::EPSILON;
    if csr.check_symmetric(ROUNDED * epsilon).is_err() {
        return Ok(Box::new(Lu::new(csr)?));
    }
    let singular = |what, column, pivot| Err(Error::Singular { what, column, pivot });
    let diagonal = csr.diagonal_entries();
    // a row that may depend on the others, with its pivot
    let mut doubtful = None;
    if diagonal.iter().all(|&entry| entry > T::zero()) {
        match Cholesky::new(csr) {
            Ok(factors) => {
                let smallest = factors.smallest_pivot(csr)?.filter(|&(_, ratio)| ratio <= DOUBTFUL * epsilon);
                if let Some((row, ratio)) = smallest
                    && factors.scaled_condition_estimate(csr)? >= SINGULAR / epsilon
                {
                    return singular("Cholesky", row, ratio * diagonal[row].to_f64());
                }
                return Ok(Box::new(factors));
            }
            Err(Error::NotPositive { row, pivot, .. }) => {
                let limit = DOUBTFUL * epsilon * diagonal[row].to_f64();
                doubtful = (pivot.abs() <= limit).then_some((row, pivot));
            }
            Err(error) => return Err(error),
        }
    }
    match (Ldl::new(csr), doubtful) {
        (Err(Error::Singular { .. }), _) => Ok(Box::new(Lu::new(csr)?)),
        (Ok(factors), Some((row, pivot)))
            if factors.scaled_condition_estimate(csr)? >= SINGULAR / epsilon =>
        {
            singular("LDLᵀ", row, pivot)
        }
        (factors, _) => Ok(Box::new(factors?)),
    }
}

#[cfg(feature = "cuda")]
fn on_gpu<T: Number>(
    name: &str,
    a: &Operator<CudaVector<T>>,
    options: Options<T>,
) -> PyResult<(Ready<T>, String)> {
    let gpu = a.domain().gpu().clone();
    let mut text = name.to_string();
    let made: krysp::Result<Box<dyn Refreshable<T, CudaVector<T>>>> = match (name, options.block) {
        ("jacobi", None) => Jacobi::on(&gpu, a).map(|m| Box::new(m) as _),
        ("jacobi", Some(size)) => Jacobi::blocks_on(&gpu, a, size).map(|m| Box::new(m) as _),
        ("fsai", _) => Fsai::on(&gpu, a).map(|m| Box::new(m) as _),
        ("spai", _) => Spai::on(&gpu, a).map(|m| Box::new(m) as _),
        ("cudss", _) => CuDss::new(&gpu, a).map(|m| {
            text = m.report().to_string();
            Box::new(m) as _
        }),
        ("two_level", _) => TwoLevel::on(&gpu, a).map(|m| Box::new(m) as _),
        ("amg", _) => Amg::with_on(&gpu, a, &options.near_null_space, options.amg).map(|m| {
            text = m.to_string();
            Box::new(m) as _
        }),
        _ => {
            let why =
                format!("{name} is not available on a GPU; jacobi, fsai, spai, two_level, amg and cudss are");
            return Err(PyValueError::new_err(why));
        }
    };
    Ok((Ready::Cuda(OnGpu::new(made.map_err(raised)?)), text))
}

/// A preconditioner, on the device of its matrix.
#[pyclass(module = "krysp")]
pub(crate) struct Preconditioner {
    pub(crate) inner: Either<Ready<f32>, Ready<f64>>,
    text: String,
}

impl<T: Number> Options<T> {
    /// Reads the options from a dictionary; missing ones have the defaults of the library.
    fn from(given: &Bound<'_, PyDict>) -> PyResult<Options<T>> {
        let mut options = Options {
            block: None,
            near_null_space: vec![],
            amg: AmgOptions::default(),
            ilut: IlutOptions::default(),
            saddle: SaddlePointOptions::default(),
        };
        for (name, value) in given {
            match name.extract::<String>()?.as_str() {
                "block" => options.block = value.extract()?,
                "near_null_space" => options.near_null_space = near_null_space(&value)?,
                "strength" => options.amg.strength = value.extract()?,
                "sweeps" => options.amg.sweeps = value.extract()?,
                "max_coarse_size" => options.amg.max_coarse_size = value.extract()?,
                "smooth_finest" => options.amg.smooth_finest = value.extract()?,
                "drop_tolerance" => options.ilut.drop_tolerance = value.extract()?,
                "fill" => options.ilut.fill = value.extract()?,
                "fields" => options.saddle.fields = value.extract()?,
                "block_diagonal" => options.saddle.block_diagonal = value.extract()?,
                "schur" => options.saddle.schur = schur(&value)?,
                other => return Err(PyTypeError::new_err(format!("unknown option {other:?}"))),
            }
        }
        Ok(options)
    }
}

fn near_null_space<T: Number>(given: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<T>>> {
    let mode = |mode| Ok(entries("a mode", &array::<T>("a mode", &mode)?)?.to_vec());
    given.extract::<Vec<Bound<'_, PyAny>>>()?.into_iter().map(mode).collect()
}

/// An approximation of the Schur complement, by its name or as a matrix of the same element type.
fn schur<T: Number>(given: &Bound<'_, PyAny>) -> PyResult<Schur<T>> {
    if let Ok(matrix) = given.cast::<Matrix>() {
        let matrix = shared(matrix)?;
        return match T::of_matrix(&matrix) {
            Some(Placed::Given(csr)) => Ok(Schur::Given(csr.clone())),
            _ => Err(PyTypeError::new_err("schur must have the element type of the matrix")),
        };
    }
    match given.extract::<Option<String>>()?.as_deref() {
        None => Ok(Schur::Automatic),
        Some("diagonal") => Ok(Schur::Diagonal),
        Some("sparse") => Ok(Schur::Sparse),
        Some("lsc") => Ok(Schur::LeastSquares),
        Some(other) => {
            let why = format!(
                "schur must be \"diagonal\", \"sparse\", \"lsc\" or a matrix of the second field; got {other:?}"
            );
            Err(PyValueError::new_err(why))
        }
    }
}

impl Preconditioner {
    /// Prepares the calling thread. Returns an error if the preconditioner is on a GPU that this process cannot use.
    pub(crate) fn enter(&self) -> PyResult<()> {
        threads::enter();
        #[cfg(feature = "cuda")]
        if with_either!(&self.inner, ready => matches!(ready, Ready::Cuda(_))) {
            threads::check_gpu()?;
        }
        Ok(())
    }
}

#[pymethods]
impl Preconditioner {
    /// Builds the preconditioner called `name` for a matrix.
    #[new]
    fn new(name: &str, matrix: &Bound<'_, Matrix>, options: &Bound<'_, PyDict>) -> PyResult<Preconditioner> {
        let (py, matrix) = (matrix.py(), shared(matrix)?);
        matrix.enter()?;
        let (inner, text) = match &matrix.inner {
            Either::Single(a) => {
                let options = Options::from(options)?;
                let (ready, text) = interruptible(py, || Ready::new(name, a, options))??;
                (Either::Single(ready), text)
            }
            Either::Double(a) => {
                let options = Options::from(options)?;
                let (ready, text) = interruptible(py, || Ready::new(name, a, options))??;
                (Either::Double(ready), text)
            }
        };
        Ok(Preconditioner { inner, text })
    }

    /// Rebuilds the preconditioner for a matrix with the same pattern.
    fn refresh(slf: &Bound<'_, Self>, matrix: &Bound<'_, Matrix>) -> PyResult<()> {
        let (py, mut refreshed, matrix) = (slf.py(), exclusive(slf)?, shared(matrix)?);
        refreshed.enter()?;
        match (&mut refreshed.inner, &matrix.inner) {
            (Either::Single(ready), Either::Single(a)) => {
                interruptible(py, || ready.refresh(a))?.map_err(raised)
            }
            (Either::Double(ready), Either::Double(a)) => {
                interruptible(py, || ready.refresh(a))?.map_err(raised)
            }
            _ => Err(PyTypeError::new_err("the matrix must have the element type of the preconditioner")),
        }
    }

    /// `M⁻¹ r`
    fn apply<'py>(slf: &Bound<'py, Self>, r: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, preconditioner) = (slf.py(), shared(slf)?);
        preconditioner.enter()?;
        with_either!(&preconditioner.inner, ready => {
            let r = array("r", r)?;
            let r = entries("r", &r)?;
            let z = py.detach(|| ready.apply(r)).map_err(raised_by_solver)?;
            Ok(PyArray1::from_vec(py, z).into_any())
        })
    }

    /// `A⁻ᵀ r`, for `lu` only.
    fn apply_transposed<'py>(&self, py: Python<'py>, r: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.enter()?;
        with_either!(&self.inner, ready => {
            let Some(lu) = ready.lu() else {
                return Err(PyTypeError::new_err("only lu solves with the transpose"));
            };
            let r = array("r", r)?;
            let r = entries("r", &r)?;
            let image = || {
                let mut z = lu.domain().zeros()?;
                lu.apply_transposed(&lu.domain().vector(r)?, &mut z)?;
                Ok(z.as_slice().to_vec())
            };
            let z = py.detach(image).map_err(raised_by_solver)?;
            Ok(PyArray1::from_vec(py, z).into_any())
        })
    }

    /// Estimates `‖A‖₁ ‖A⁻¹‖₁`; `None` if the preconditioner is not a complete factorization of the CPU.
    fn condition_estimate(slf: &Bound<'_, Self>) -> PyResult<Option<f64>> {
        let (py, preconditioner) = (slf.py(), shared(slf)?);
        preconditioner.enter()?;
        let estimate = with_either!(&preconditioner.inner, ready => py.detach(|| ready.condition_estimate()));
        estimate.transpose().map_err(raised)
    }

    /// Description of a complete factorization of the CPU; `None` for other preconditioners.
    fn factors(slf: &Bound<'_, Self>) -> PyResult<Option<String>> {
        let (py, preconditioner) = (slf.py(), shared(slf)?);
        let report = match &preconditioner.inner {
            Either::Single(ready) => py.detach(|| ready.any().and_then(FactorReport::of::<f32>)),
            Either::Double(ready) => py.detach(|| ready.any().and_then(FactorReport::of::<f64>)),
        };
        Ok(report.map(|report| report.to_string()))
    }

    /// Number of entries of a complete factorization of the CPU; `None` for other preconditioners.
    fn nnz(&self) -> Option<usize> {
        with_either!(&self.inner, ready => ready.nnz())
    }

    /// Numbers of positive and of negative eigenvalues, by `ldl` or `cholesky` of the CPU; `None` for other preconditioners, and after a
    /// failed refresh of `cholesky`.
    fn inertia(&self) -> Option<(usize, usize)> {
        let inertia = with_either!(&self.inner, ready => ready.inertia());
        inertia.map(|inertia| (inertia.positive, inertia.negative))
    }

    /// A description; for multigrid, a table of its levels.
    fn text(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(shared(slf)?.text.clone())
    }
}

/// The rigid body modes, one array each.
#[pyfunction]
pub(crate) fn rigid_body_modes(
    py: Python<'_>,
    points: Vec<Vec<f64>>,
    by_component: bool,
) -> PyResult<Vec<Bound<'_, PyArray1<f64>>>> {
    threads::enter();
    let unknowns = if by_component { UnknownOrder::ByComponent } else { UnknownOrder::ByNode };
    let near_null_space = if points.iter().all(|point| point.len() == 2) {
        let points: Vec<[f64; 2]> = points.iter().map(|point| [point[0], point[1]]).collect();
        krysp::rigid_body_modes(&points, unknowns)
    } else if points.iter().all(|point| point.len() == 3) {
        let points: Vec<[f64; 3]> = points.iter().map(|point| [point[0], point[1], point[2]]).collect();
        krysp::rigid_body_modes(&points, unknowns)
    } else {
        return Err(PyValueError::new_err("points must all have two coordinates, or all three"));
    };
    Ok(near_null_space.into_iter().map(|mode| PyArray1::from_vec(py, mode)).collect())
}
