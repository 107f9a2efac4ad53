//! Solves a system by a given method.

use crate::arrays::{Rows, array, entries};
use crate::borrow::shared;
use crate::converted::{self, CopyDecision};
#[cfg(feature = "cuda")]
use crate::device;
use crate::errors::{raised, raised_by_solver};
use crate::function::Function;
use crate::matrix::{Matrix, Number, Placed};
use crate::ordered::Ordered;
use crate::preconditioner::{Preconditioner, Ready};
use crate::report::Report;
use crate::threads;
use crate::watch::{Callback, Watch, watched};
use crate::workspaces::{Borrowing, Workspaces, solver};
use krysp::solvers::{Diagonal, Identity, Method};
use krysp::{
    BiCgStab, Cg, Fcg, Fgmres, Gmres, HostSpace, HostVector, Idr, LinearOperator, Minres, Outcome, Space,
    Stopping, Vector,
};
use numpy::PyArray1;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// List of methods: name in Python, type, the matrix that it requires, and the option that only it takes.
macro_rules! each_method {
    ($do:ident) => {
        $do! {
            "cg": Cg, symmetric;
            "fcg": Fcg, symmetric;
            "minres": Minres, symmetric;
            "bicgstab": BiCgStab, any;
            "idr": Idr, any;
            "gmres": Gmres, any, restart;
            "fgmres": Fgmres, any, restart;
        }
    };
}

macro_rules! name {
    ($($name:literal: $method:ident, $matrix:ident $(, $option:ident)?;)*) => {
        /// A method of the package.
        #[derive(Clone, Copy)]
        enum Name {
            $($method,)*
        }

        impl Name {
            fn parse(name: &str) -> Option<Name> {
                match name {
                    $($name => Some(Name::$method),)*
                    _ => None,
                }
            }

            fn as_str(self) -> &'static str {
                match self {
                    $(Name::$method => $name,)*
                }
            }

            fn needs_symmetry(self) -> bool {
                let matrix = match self {
                    $(Name::$method => stringify!($matrix),)*
                };
                matrix == "symmetric"
            }
        }
    };
}
each_method!(name);

pub(crate) mod many;

/// Number of rows below which a system is solved on the calling thread: handing it over to the thread pool takes as long as
/// several iterations. Guess.
const SHORT: usize = 2048;

/// The method, its stopping criteria, and the handling of signals.
#[derive(Clone)]
pub(crate) struct Options {
    method: Name,
    rtol: f64,
    atol: f64,
    max_iterations: usize,
    restart: usize,
    watch: Watch,
    /// True if the solve stops when a converted copy of the matrix is expected to save time.
    stop_for_copy: bool,
}

/// A matrix or a preconditioner, in each form that Python may pass.
pub(crate) enum Given<'py, T: Number> {
    Nothing,
    Matrix(PyRef<'py, Matrix>),
    Preconditioner(PyRef<'py, Preconditioner>),
    Rows(Rows<'py, T>),
    Function(Function<T>),
}

impl<'py, T: Number> Given<'py, T> {
    pub(crate) fn new(given: &Bound<'py, PyAny>, n: usize) -> PyResult<Given<'py, T>> {
        if given.is_none() {
            Ok(Given::Nothing)
        } else if let Ok(matrix) = given.cast::<Matrix>() {
            let matrix = shared(matrix)?;
            matrix.enter()?;
            Ok(Given::Matrix(matrix))
        } else if let Ok(preconditioner) = given.cast::<Preconditioner>() {
            let preconditioner = shared(preconditioner)?;
            preconditioner.enter()?;
            Ok(Given::Preconditioner(preconditioner))
        } else if let Ok(arrays) = given.cast::<PyTuple>() {
            Ok(Given::Rows(Rows::new(arrays)?))
        } else {
            Ok(Given::Function(Function::new(given, n)))
        }
    }
}

impl<T: Number> Given<'_, T> {
    /// Returns whether applying the operator calls a function of the user.
    fn is_of_user(&self) -> bool {
        matches!(self, Given::Function(_))
    }

    /// The vector space on which the operator acts. Its ordering may differ from the user's: an `Operator` may have
    /// reordered its matrix.
    fn space(&self, n: usize) -> HostSpace<T> {
        let Given::Matrix(matrix) = self else { return HostSpace::new(n) };
        match T::of_matrix(matrix) {
            Some(Placed::Given(csr)) => csr.domain().clone(),
            Some(Placed::Host(operator)) => operator.domain().clone(),
            _ => HostSpace::new(n),
        }
    }
}

/// An operator in host memory, which may borrow from Python objects.
pub(crate) type OnHost<'a, T> = Box<dyn LinearOperator<Vector = HostVector<T>> + 'a>;

/// The given matrix or preconditioner as an operator on vectors of `space`.
fn on_host<'a, T: Number>(given: &'a Given<'_, T>, space: &HostSpace<T>) -> PyResult<OnHost<'a, T>> {
    let other =
        || PyTypeError::new_err("matrix and preconditioner must have the same element type and device");
    let operator: OnHost<'a, T> = match given {
        Given::Nothing => Box::new(Identity::new(space)),
        Given::Matrix(matrix) => match T::of_matrix(matrix).ok_or_else(other)? {
            Placed::Given(csr) => Box::new(csr),
            Placed::Host(operator) => Box::new(operator),
            #[cfg(feature = "cuda")]
            Placed::Cuda(_) => return Err(other()),
        },
        Given::Preconditioner(preconditioner) => {
            match T::of_preconditioner(preconditioner).ok_or_else(other)? {
                Ready::Host(preconditioner) => Box::new(&**preconditioner),
                #[cfg(feature = "cuda")]
                Ready::Cuda(_) => return Err(other()),
            }
        }
        Given::Rows(rows) => match rows.diagonal()? {
            Some(diagonal) => Box::new(Diagonal::new(space.vector(diagonal).map_err(raised_by_solver)?)),
            None => Box::new(rows.operator()?),
        },
        Given::Function(function) => Box::new(function),
    };
    let own = operator.domain();
    Ok(match own == space || own.len() != space.len() {
        true => operator,
        false => Box::new(Ordered::new(operator, space)),
    })
}

/// Solves `A x = b` by the method called `method` and returns `(x, info, report)`.
///
/// The matrix is a `Matrix`, a tuple of the arrays of a CSR matrix, or a function; the preconditioner may also be a
/// `Preconditioner` or `None`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the package calls it, in one place")]
pub(crate) fn solve<'py>(
    method: &str,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    x0: Option<&Bound<'py, PyAny>>,
    m: &Bound<'py, PyAny>,
    rtol: f64,
    atol: f64,
    max_iterations: usize,
    restart: usize,
    callback: Option<Py<PyAny>>,
    of_iterates: bool,
) -> PyResult<(Bound<'py, PyAny>, isize, Report)> {
    threads::enter();
    let options = Options::new(method, rtol, atol, max_iterations, restart)?;
    let callback = callback.map(|function| (function, of_iterates));
    match b.is_instance_of::<PyArray1<f32>>() {
        true => typed::<f32>(options, a, b, x0, m, callback),
        false => typed::<f64>(options, a, b, x0, m, callback),
    }
}

fn typed<'py, T: Number>(
    options: Options,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    x0: Option<&Bound<'py, PyAny>>,
    m: &Bound<'py, PyAny>,
    callback: Option<(Py<PyAny>, bool)>,
) -> PyResult<(Bound<'py, PyAny>, isize, Report)> {
    let py = b.py();
    let b = array::<T>("b", b)?;
    let b = entries("b", &b)?;
    let x0 = x0.map(|x0| array::<T>("x0", x0)).transpose()?;
    let x0 = x0.as_ref().map(|x0| entries("x0", x0)).transpose()?;
    let norm = b.iter().map(|&b| b.to_f64() * b.to_f64()).sum::<f64>().sqrt();
    let callback = callback.map(|(function, of_iterates)| match of_iterates {
        true => Callback::Iterate(function),
        false => Callback::Residual(function, norm),
    });
    let (a, m) = (Given::<T>::new(a, b.len())?, Given::<T>::new(m, b.len())?);
    #[cfg(feature = "cuda")]
    if let Some((a, workspaces)) = device::operator(&a) {
        let m = device::preconditioner(&m, a)?;
        let mut x = vec![T::default(); b.len()];
        let solved = py.detach(|| device::from_host(&options, a, &*m, (b, x0, &mut x), callback, workspaces));
        let (info, report) = options.ended(solved)?;
        return Ok((PyArray1::from_vec(py, x).into_any(), info, report));
    }
    let mut system = System::Host { b, x: x0.map_or_else(Vec::new, <[T]>::to_vec), guess: x0.is_some() };
    let of_user = callback.is_some() || a.is_of_user() || m.is_of_user();
    let space = a.space(b.len());
    let m = on_host(&m, &space)?;
    let solved = match &a {
        Given::Rows(rows) if !of_user && b.len() >= SHORT && converted::can_convert(&m) => {
            let a = rows.operator()?;
            watched(py, &options.watch.token, || converted::solve(&options, &a, &m, &mut system))?
        }
        _ => {
            let a = on_host(&a, &space)?;
            let solve = || by_name(&options, &*a, &*m, &mut system, callback, None);
            match of_user || b.len() < SHORT {
                true => py.detach(solve),
                false => watched(py, &options.watch.token, solve)?,
            }
        }
    };
    let (info, report) = options.ended(solved.map_err(Into::into))?;
    Ok((PyArray1::from_vec(py, system.into_host()).into_any(), info, report))
}

/// The return value `info` of SciPy's solvers: 0 if the residual meets the tolerance, negative after a breakdown, otherwise the
/// number of iterations.
pub(crate) fn info(report: &krysp::Report) -> isize {
    match report.outcome {
        Outcome::Converged => 0,
        Outcome::Breakdown { .. } | Outcome::NotFinite { .. } => -1,
        _ => report.iterations.max(1) as isize,
    }
}

impl Options {
    pub(crate) fn new(
        method: &str,
        rtol: f64,
        atol: f64,
        max_iterations: usize,
        restart: usize,
    ) -> PyResult<Options> {
        let method = Name::parse(method).ok_or_else(|| PyValueError::new_err("unknown method"))?;
        let watch = Watch::new();
        Ok(Options { method, rtol, atol, max_iterations, restart, watch, stop_for_copy: false })
    }

    /// The same options for a solve that stops as soon as a converted copy of the matrix is expected to save
    /// time.
    pub(crate) fn until_copy_pays(&self) -> Options {
        Options { stop_for_copy: true, ..self.clone() }
    }

    /// The same options, with the iterations of `report` subtracted from the maximum number.
    pub(crate) fn after(&self, report: &krysp::Report) -> Options {
        let max_iterations = self.max_iterations.saturating_sub(report.iterations);
        Options { max_iterations, ..self.clone() }
    }

    pub(crate) fn needs_symmetry(&self) -> bool {
        self.method.needs_symmetry()
    }

    fn tolerance(&self, report: &krysp::Report) -> f64 {
        (self.rtol * report.rhs_norm).max(self.atol)
    }

    /// `info` and the report of a solve, or the exception that ended it.
    pub(crate) fn ended(&self, solved: krysp::Result<krysp::Report>) -> PyResult<(isize, Report)> {
        self.watch.outcome()?;
        let report = solved.map_err(raised)?;
        let tolerance = self.tolerance(&report);
        Ok((info(&report), Report::new(self.method.as_str(), report, tolerance)))
    }
}

/// Right-hand side and solution.
pub(crate) enum System<'d, V: Vector> {
    /// Vectors in host memory and the user's order; `x` holds the initial guess if `guess` is set.
    Host { b: &'d [V::Elem], x: Vec<V::Elem>, guess: bool },
    /// Vectors of the operator's vector space; `x` holds the initial guess if `guess` is set.
    #[cfg(feature = "cuda")]
    There { b: &'d V, x: &'d mut V, guess: bool },
}

impl<'d, V: Vector> System<'d, V> {
    /// The solution, if it is in host memory.
    fn into_host(self) -> Vec<V::Elem> {
        match self {
            System::Host { x, .. } => x,
            #[cfg(feature = "cuda")]
            System::There { .. } => vec![],
        }
    }

    fn solve<K: Method<V>>(
        &mut self,
        solver: &mut Borrowing<'_, K, V>,
    ) -> krysp::solvers::Result<krysp::Report> {
        match self {
            System::Host { b, x, guess } => {
                let solution = if *guess { solver.solve_from(b, x)? } else { solver.solve(b)? };
                (*x, *guess) = (solution.x, true);
                Ok(solution.report)
            }
            #[cfg(feature = "cuda")]
            System::There { b, x, guess } => {
                let report = if *guess { solver.solve_into(b, x)? } else { solver.solve_from_zero(b, x)? };
                *guess = true;
                Ok(report.clone())
            }
        }
    }
}

/// Solves by the method that the options name, with the workspace of an earlier solve if there is one, and keeps the
/// workspace for later ones.
pub(crate) fn by_name<V: Vector<Elem: Number> + 'static>(
    options: &Options,
    a: &dyn LinearOperator<Vector = V>,
    m: &dyn LinearOperator<Vector = V>,
    system: &mut System<'_, V>,
    callback: Option<Callback>,
    workspaces: Option<&Workspaces>,
) -> krysp::solvers::Result<krysp::Report> {
    macro_rules! solved {
        ($($name:literal: $method:ident, $matrix:ident $(, $option:ident)?;)*) => {
            match options.method {
                $(Name::$method => {
                    let make: fn(_, _, _) -> $method<_, _> = solver;
                    let solver = make(a, m, workspaces)$(.$option(options.$option))?;
                    run(options, solver, system, callback, workspaces)
                })*
            }
        };
    }
    each_method!(solved)
}

/// Solves by the method of `solver`.
fn run<K, V>(
    options: &Options,
    solver: Borrowing<'_, K, V>,
    system: &mut System<'_, V>,
    callback: Option<Callback>,
    workspaces: Option<&Workspaces>,
) -> krysp::solvers::Result<krysp::Report>
where
    K: Method<V> + Send + 'static,
    V: Vector<Elem: Number> + 'static,
{
    let mut stopping = Stopping::new(<V::Elem as krysp::Element>::EPSILON);
    (stopping.rtol, stopping.atol, stopping.max_iterations) =
        (options.rtol, options.atol, options.max_iterations);
    let mut solver = options.watch.over(solver.stopping(stopping), callback);
    if options.stop_for_copy {
        let mut decision = CopyDecision::new(solver.cost());
        solver = solver.stop_when(move |progress| decision.copy_pays(progress));
    }
    let report = system.solve(&mut solver)?;
    if let Some(workspaces) = workspaces {
        workspaces.keep_solver(solver);
    }
    Ok(report)
}

/// Combines the reports of two solves, the second of which started from the solution of the first.
pub(crate) fn joined(first: krysp::Report, mut second: krysp::Report) -> krysp::Report {
    let mut history = first.history;
    history.extend(second.history.iter().skip(1));
    second.history = history;
    second.iterations += first.iterations;
    second.restarts += first.restarts + 1;
    second.time += first.time;
    second.bytes += first.bytes;
    second.condition = second.condition.or(first.condition);
    second
}
