//! Solves on a GPU.

use crate::borrow::shared;
use crate::matrix::{Matrix, Number, Placed, with_either};
use crate::preconditioner::Ready;
use crate::report::Report;
use crate::solve::{Given, Options, System, by_name};
use crate::threads;
use crate::watch::Callback;
use crate::workspaces::Workspaces;
use krysp::solvers::Identity;
use krysp::{Cuda, CudaVector, LinearOperator, Operator, Outcome, Space};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// The GPU with this ordinal.
pub(crate) fn gpu(ordinal: usize) -> krysp::Result<Cuda> {
    let gpu = Cuda::new(ordinal)?;
    threads::uses_gpu();
    Ok(gpu)
}

/// An object in the memory of a GPU. It is leaked in a process that was forked after its parent had used the GPU, because the
/// driver would crash there.
pub(crate) struct OnGpu<X>(ManuallyDrop<X>);

impl<X> OnGpu<X> {
    pub(crate) fn new(object: X) -> OnGpu<X> {
        OnGpu(ManuallyDrop::new(object))
    }
}

impl<X> Deref for OnGpu<X> {
    type Target = X;

    fn deref(&self) -> &X {
        &self.0
    }
}

impl<X> DerefMut for OnGpu<X> {
    fn deref_mut(&mut self) -> &mut X {
        &mut self.0
    }
}

impl<X> Drop for OnGpu<X> {
    #[expect(unsafe_code, reason = "leaking an object conditionally needs a `ManuallyDrop`")]
    fn drop(&mut self) {
        if threads::check_gpu().is_ok() {
            // SAFETY: this is the only place that drops the object, and nothing uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) }
        }
    }
}

/// Maximum number of rows of systems whose workspace is kept for later solves. The solves of larger systems take so long that the
/// allocation hardly counts. Guess.
const MAX_ROWS_KEPT: usize = 1 << 20;

/// A matrix on a GPU, and the workspace that is kept with it.
type Kept<'a, T> = (&'a Operator<CudaVector<T>>, Option<&'a Workspaces>);

/// The matrix, if it is on a GPU.
pub(crate) fn operator<'a, T: Number>(given: &'a Given<'_, T>) -> Option<Kept<'a, T>> {
    match given {
        Given::Matrix(matrix) => match T::of_matrix(matrix) {
            Some(Placed::Cuda(a)) => {
                Some((&**a, Some(&matrix.workspaces).filter(|_| a.range().len() <= MAX_ROWS_KEPT)))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The preconditioner of a solve on a GPU: the identity, or one in the memory of a GPU.
pub(crate) fn preconditioner<'a, T: Number>(
    given: &'a Given<'_, T>,
    a: &Operator<CudaVector<T>>,
) -> PyResult<Box<dyn LinearOperator<Vector = CudaVector<T>> + 'a>> {
    match given {
        Given::Nothing => Ok(Box::new(Identity::new(a.domain()))),
        Given::Preconditioner(preconditioner) => match T::of_preconditioner(preconditioner) {
            Some(Ready::Cuda(m)) => Ok(Box::new(&***m)),
            _ => Err(needs_preconditioner_on_gpu()),
        },
        _ => Err(needs_preconditioner_on_gpu()),
    }
}

/// Adds a folder to the places where NVRTC, the compiler for kernels, is searched for.
#[pyfunction]
pub(crate) fn look_for_compiler_in(folder: std::path::PathBuf) {
    krysp::cuda::look_for_compiler_in(folder);
}

/// The version of NVRTC, `(major, minor)`; `None` if it was not found.
#[pyfunction]
pub(crate) fn compiler_version() -> Option<(u32, u32)> {
    krysp::cuda::compiler_version()
}

fn needs_preconditioner_on_gpu() -> PyErr {
    PyTypeError::new_err(
        "an operator on a GPU needs a preconditioner that was built from that operator, `krysp.jacobi(A)` for example",
    )
}

/// The CUDA stream of a matrix on a GPU, as a handle for other libraries; `None` in host memory.
#[pyfunction]
pub(crate) fn stream(matrix: &Bound<'_, Matrix>) -> PyResult<Option<usize>> {
    let matrix = shared(matrix)?;
    matrix.enter()?;
    Ok(with_either!(&matrix.inner, placed => match placed {
        Placed::Cuda(operator) => Some(operator.domain().gpu().stream() as usize),
        _ => None,
    }))
}

/// Solves `A x = b` with `b` and `x` at addresses in the memory of the GPU, which must be multiples of 256. Returns `(info,
/// report)`. Kernels that write `b` and `x` must have been queued on the matrix's stream before. `x` holds the initial guess if
/// `guess` is set, and the solution on return.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the package calls it, in one place")]
pub(crate) fn solve_on_device<'py>(
    method: &str,
    a: &Bound<'py, PyAny>,
    b: u64,
    x: u64,
    guess: bool,
    m: &Bound<'py, PyAny>,
    rtol: f64,
    atol: f64,
    max_iterations: usize,
    restart: usize,
) -> PyResult<(isize, Report)> {
    let options = Options::new(method, rtol, atol, max_iterations, restart)?;
    let single = matches!(shared(a.cast::<Matrix>()?)?.inner, crate::matrix::Either::Single(_));
    match single {
        true => at_addresses::<f32>(&options, a, b, x, guess, m),
        false => at_addresses::<f64>(&options, a, b, x, guess, m),
    }
}

/// Solves with vectors at two addresses, in the precision `T`.
fn at_addresses<T: Number>(
    options: &Options,
    a: &Bound<'_, PyAny>,
    b: u64,
    x: u64,
    guess: bool,
    m: &Bound<'_, PyAny>,
) -> PyResult<(isize, Report)> {
    let (a, m, py) = (Given::<T>::new(a, 0)?, Given::<T>::new(m, 0)?, m.py());
    let (a, workspaces) = operator(&a).ok_or_else(|| PyTypeError::new_err("the matrix is not on a GPU"))?;
    let m = preconditioner(&m, a)?;
    let space = a.domain();
    let solve = |b: &CudaVector<T>, x: &mut CudaVector<T>| -> krysp::Result<krysp::Report> {
        let report = by_name(options, a, &*m, &mut System::There { b, x, guess }, None, workspaces)?;
        // a converged solve has already waited for a residual that was computed from the final x
        if report.outcome != Outcome::Converged {
            space.gpu().synchronize()?;
        }
        Ok(report)
    };
    let solved = py.detach(|| space.with_vector_at(b, |b| space.with_vector_at(x, |x| solve(b, x))));
    options.ended(solved.flatten().flatten())
}

/// Solves `A x = b` with vectors in host memory, with or without an initial guess.
pub(crate) fn from_host<T: Number>(
    options: &Options,
    a: &Operator<CudaVector<T>>,
    m: &dyn LinearOperator<Vector = CudaVector<T>>,
    (b, guess, x): (&[T], Option<&[T]>, &mut [T]),
    callback: Option<Callback>,
    workspaces: Option<&Workspaces>,
) -> krysp::Result<krysp::Report> {
    let space = a.domain();
    let [mut rhs, mut solution] = match workspaces.and_then(Workspaces::take) {
        Some(vectors) => vectors,
        None => [space.zeros()?, space.zeros()?],
    };
    space.load(b, &mut rhs)?;
    if let Some(guess) = guess {
        space.load(guess, &mut solution)?;
    }
    let mut system = System::There { b: &rhs, x: &mut solution, guess: guess.is_some() };
    let report = by_name(options, a, m, &mut system, callback, workspaces)?;
    space.store(&solution, x)?;
    if let Some(workspaces) = workspaces {
        workspaces.keep([rhs, solution]);
    }
    Ok(report)
}
