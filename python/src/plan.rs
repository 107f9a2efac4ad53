//! Plans: the library analyses a matrix, and chooses format, method and preconditioner.

use crate::arrays::{Layout, array, entries, matrix};
use crate::declarations::Declarations;
#[cfg(feature = "cuda")]
use crate::device;
use crate::errors::raised;
use crate::matrix::{Device, Either, Number, refused_values, with_either};
use crate::report::Report as Described;
use crate::solve::info;
use crate::solve::many::Columns;
use crate::threads;
use crate::watch::{computed, interruptible, watched};
use krysp::plan::{Backend, PlannedSolver, Solved};
use krysp::{CancelToken, Csr, Host, Plan as Planned, Stopping};
use numpy::PyArray1;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

/// The solver of a plan, on the device that was chosen for it.
enum Built<T: Number> {
    Host(Box<PlannedSolver<T, Host>>),
    #[cfg(feature = "cuda")]
    Cuda(device::OnGpu<Box<PlannedSolver<T, krysp::Cuda>>>),
}

/// The user's options of a plan.
struct Options {
    rtol: f64,
    solves: Option<usize>,
    values_change: bool,
    max_iterations: Option<usize>,
    time_limit: Option<Duration>,
    known: Declarations,
}

impl<T: Number> Built<T> {
    fn of(
        csr: &Csr<T>,
        place: &Device,
        options: &Options,
        token: &CancelToken,
        saved: Option<&Path>,
    ) -> krysp::Result<(Self, String)> {
        match saved {
            Some(path) => Built::load(path, csr, place, options, token),
            None => Built::new(csr, place, options, token),
        }
    }

    fn new(
        csr: &Csr<T>,
        place: &Device,
        options: &Options,
        token: &CancelToken,
    ) -> krysp::Result<(Self, String)> {
        let plan = Planned::new(csr)?.rtol(options.rtol).values_change(options.values_change);
        let mut plan = options.known.declare_to(plan);
        if let Some(solves) = options.solves {
            plan = plan.solves(solves);
        }
        if let Some(most) = options.max_iterations {
            plan = plan.max_iterations(most);
        }
        if let Some(limit) = options.time_limit {
            plan = plan.time_limit(limit);
        }
        #[cfg(feature = "cuda")]
        if let Some(ordinal) = place.gpu(|| plan.place()) {
            let (planned, text) = built(&plan.on(&device::gpu(ordinal)?), token)?;
            return Ok((Built::Cuda(device::OnGpu::new(planned)), text));
        }
        #[cfg(not(feature = "cuda"))]
        let _ = place;
        let (planned, text) = built(&plan, token)?;
        Ok((Built::Host(planned), text))
    }

    /// The name of the device.
    fn device(&self) -> String {
        match self {
            Built::Host(_) => "cpu".into(),
            #[cfg(feature = "cuda")]
            Built::Cuda(planned) => {
                format!("cuda:{}", planned.space().map_or(0, |space| space.gpu().ordinal()))
            }
        }
    }

    /// Loads a saved solver, for a matrix with the same pattern.
    fn load(
        path: &Path,
        csr: &Csr<T>,
        place: &Device,
        options: &Options,
        token: &CancelToken,
    ) -> krysp::Result<(Self, String)> {
        match place {
            #[cfg(feature = "cuda")]
            Device::Cuda(ordinal) => {
                let planned = PlannedSolver::load(path, csr, &device::gpu(*ordinal)?)?;
                let (planned, text) = loaded(planned, path, options, token)?;
                Ok((Built::Cuda(device::OnGpu::new(planned)), text))
            }
            _ => {
                let (planned, text) = loaded(PlannedSolver::load(path, csr, &Host)?, path, options, token)?;
                Ok((Built::Host(planned), text))
            }
        }
    }

    fn save(&self, path: &Path) -> krysp::Result<()> {
        match self {
            Built::Host(planned) => planned.save(path),
            #[cfg(feature = "cuda")]
            Built::Cuda(planned) => planned.save(path),
        }
    }

    fn solve(&mut self, b: &[T], x0: Option<&[T]>) -> krysp::Result<Solved<T>> {
        match (self, x0) {
            (Built::Host(planned), None) => planned.solve(b),
            (Built::Host(planned), Some(x0)) => planned.solve_from(b, x0),
            #[cfg(feature = "cuda")]
            (Built::Cuda(planned), None) => planned.solve(b),
            #[cfg(feature = "cuda")]
            (Built::Cuda(planned), Some(x0)) => planned.solve_from(b, x0),
        }
    }

    fn solve_many(&mut self, b: &[&[T]]) -> krysp::Result<Vec<Solved<T>>> {
        match self {
            Built::Host(planned) => planned.solve_many(b),
            #[cfg(feature = "cuda")]
            Built::Cuda(planned) => planned.solve_many(b),
        }
    }

    /// Replaces the values; they are in the order of the arrays that the matrix was made from.
    fn refresh(&mut self, values: &[T]) -> krysp::Result<()> {
        match self {
            Built::Host(planned) => planned.refresh(&planned.assemble(values)?),
            #[cfg(feature = "cuda")]
            Built::Cuda(planned) => {
                let values = planned.assemble(values)?;
                planned.refresh(&values)
            }
        }
    }

    fn refresh_from(&mut self, a: &Csr<T>) -> krysp::Result<()> {
        match self {
            Built::Host(planned) => planned.refresh_from(a),
            #[cfg(feature = "cuda")]
            Built::Cuda(planned) => planned.refresh_from(a),
        }
    }
}

fn built<T: Number, M: Backend<T>>(
    plan: &Planned<'_, T, M>,
    token: &CancelToken,
) -> krysp::Result<(Box<PlannedSolver<T, M>>, String)> {
    Ok((Box::new(plan.build()?.cancel_token(token)), plan.to_string()))
}

fn loaded<T: Number, M: Backend<T>>(
    planned: PlannedSolver<T, M>,
    path: &Path,
    options: &Options,
    token: &CancelToken,
) -> krysp::Result<(Box<PlannedSolver<T, M>>, String)> {
    let text = format!("loaded from {}\n{}", path.display(), planned.operator()?.choice());
    let planned =
        planned.rtol(options.rtol).max_iterations(options.max_iterations).time_limit(options.time_limit);
    Ok((Box::new(planned.cancel_token(token)), text))
}

/// A solution, what SciPy calls `info`, and a report that counts `planning_seconds` as part of the setup.
fn described<T: Number>(solved: Solved<T>, rtol: f64, planning_seconds: f64) -> (Vec<T>, isize, Described) {
    let Solved { x, mut report, attempts, .. } = solved;
    report.time += Duration::try_from_secs_f64(planning_seconds).unwrap_or_default();
    let setup = planning_seconds + attempts.iter().map(|attempt| attempt.setup.as_secs_f64()).sum::<f64>();
    let tolerance = rtol * report.rhs_norm;
    let info = info(&report);
    let attempts = attempts.iter().map(ToString::to_string).collect();
    (x, info, Described::new("solve", report, tolerance).of_plan(attempts, setup))
}

/// Number of attempts to take a lock, one millisecond apart, after which the lock is assumed to be held since
/// a fork. More than one, because a thread of this process may have taken the lock without having stored the
/// process id in `holder` yet.
const ATTEMPTS: usize = 100;

/// A mutex that detects in a forked process that a thread of the parent held the lock during the fork.
struct ForkSafe<B> {
    inner: Mutex<B>,
    /// Id of the process that last held the lock. A lock that was held during a fork is never released in the child.
    holder: AtomicU32,
}

impl<B> ForkSafe<B> {
    fn new(inner: B) -> ForkSafe<B> {
        ForkSafe { inner: Mutex::new(inner), holder: AtomicU32::new(0) }
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, B>> {
        let id = process::id();
        for _ in 0..ATTEMPTS {
            let guard = match self.inner.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if self.holder.load(Ordering::Relaxed) == id => {
                    self.inner.lock().unwrap_or_else(PoisonError::into_inner)
                }
                Err(TryLockError::WouldBlock) => {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            self.holder.store(id, Ordering::Relaxed);
            return Ok(guard);
        }
        Err(PyRuntimeError::new_err(
            "this process was forked while another thread used the plan: create the plan again in this process",
        ))
    }
}

/// A plan and its solver.
#[pyclass(frozen, module = "krysp")]
pub(crate) struct Plan {
    inner: Either<ForkSafe<Built<f32>>, ForkSafe<Built<f64>>>,
    text: String,
    rtol: f64,
    token: CancelToken,
    device: String,
}

impl Plan {
    /// Prepares the calling thread. Returns an error if the plan is for a GPU that this process cannot use.
    fn enter(&self) -> PyResult<()> {
        threads::enter();
        #[cfg(feature = "cuda")]
        if self.device != "cpu" {
            threads::check_gpu()?;
        }
        Ok(())
    }
}

#[pymethods]
impl Plan {
    /// Plans for a matrix, given as the arrays of a SciPy matrix, which are copied. `place` is "cpu", "cuda:0" or "auto". With
    /// `saved`, loads the plan from that file instead.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "the package calls it, in one place")]
    fn new(
        layout: &str,
        shape: (usize, usize),
        first: &Bound<'_, PyAny>,
        second: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        place: &str,
        rtol: Option<f64>,
        solves: Option<usize>,
        values_change: bool,
        max_iterations: Option<usize>,
        time_limit: Option<f64>,
        known: Declarations,
        saved: Option<PathBuf>,
    ) -> PyResult<Plan> {
        threads::enter();
        let (layout, place, py) = (Layout::named(layout)?, Device::named(place)?, data.py());
        // infinite limits, and those that a duration cannot represent
        let time_limit = time_limit.map(|limit| Duration::try_from_secs_f64(limit).unwrap_or(Duration::MAX));
        let single = data.is_instance_of::<PyArray1<f32>>();
        let epsilon = if single { f32::EPSILON.into() } else { f64::EPSILON };
        let rtol = rtol.unwrap_or(Stopping::new(epsilon).rtol);
        let options = Options { rtol, solves, values_change, max_iterations, time_limit, known };
        let token = CancelToken::new();
        let (inner, text, device) = if single {
            let csr = matrix::<f32>(layout, shape, first, second, data)?;
            let built = watched(py, &token, || Built::of(&csr, &place, &options, &token, saved.as_deref()))?;
            let (built, text) = built.map_err(raised)?;
            let device = built.device();
            (Either::Single(ForkSafe::new(built)), text, device)
        } else {
            let csr = matrix::<f64>(layout, shape, first, second, data)?;
            let built = watched(py, &token, || Built::of(&csr, &place, &options, &token, saved.as_deref()))?;
            let (built, text) = built.map_err(raised)?;
            let device = built.device();
            (Either::Double(ForkSafe::new(built)), text, device)
        };
        Ok(Plan { inner, text, rtol, token, device })
    }

    /// "cpu" or "cuda:0": the device that was given, or that was chosen for "auto".
    #[getter]
    fn device(&self) -> &str {
        &self.device
    }

    /// Returns `(x, info, report)`. The report counts `planning_seconds` as part of the setup.
    fn solve<'py>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        x0: Option<&Bound<'py, PyAny>>,
        planning_seconds: f64,
    ) -> PyResult<(Bound<'py, PyAny>, isize, Described)> {
        self.enter()?;
        let (rtol, token) = (self.rtol, &self.token);
        with_either!(&self.inner, built => {
            let b = array("b", b)?;
            let b = entries("b", &b)?;
            let x0 = x0.map(|x0| array("x0", x0)).transpose()?;
            let x0 = x0.as_ref().map(|x0| entries("x0", x0)).transpose()?;
            let solved = watched(py, token, || {
                let mut built = built.lock()?;
                token.reset();
                built.solve(b, x0).map_err(raised)
            })??;
            let (x, info, report) = described(solved, rtol, planning_seconds);
            Ok((PyArray1::from_vec(py, x).into_any(), info, report))
        })
    }

    /// Like `solve`, for several right-hand sides of `rows` entries, stored one after the other in `b`. Returns
    /// the solutions, one after the other, and `(info, report)` of each.
    fn solve_many<'py>(
        &self,
        py: Python<'py>,
        b: &Bound<'py, PyAny>,
        rows: usize,
        planning_seconds: f64,
    ) -> PyResult<Columns<'py, Described>> {
        self.enter()?;
        let (rtol, token) = (self.rtol, &self.token);
        with_either!(&self.inner, built => {
            let b = array("b", b)?;
            let columns: Vec<_> = entries("b", &b)?.chunks(rows.max(1)).collect();
            let solved = watched(py, token, || {
                let mut built = built.lock()?;
                token.reset();
                built.solve_many(&columns).map_err(raised)
            })??;
            let (mut all, mut ended) = (vec![], vec![]);
            for solved in solved {
                // the plan serves all columns; its time is part of the first report
                let planning_seconds = if ended.is_empty() { planning_seconds } else { 0.0 };
                let (x, info, report) = described(solved, rtol, planning_seconds);
                all.extend(x);
                ended.push((info, report));
            }
            Ok((PyArray1::from_vec(py, all).into_any(), ended))
        })
    }

    /// Saves the plan and its solver.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.enter()?;
        with_either!(&self.inner, built => computed(py, || built.lock()?.save(&path).map_err(raised)))
    }

    /// Replaces the values; they are in the order of the arrays that the matrix was made from.
    fn refresh(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.enter()?;
        with_either!(&self.inner, built => {
            let values = array("the values", values)?;
            let values = entries("the values", &values)?;
            interruptible(py, || built.lock()?.refresh(values).map_err(refused_values))?
        })
    }

    /// Replaces the values by those of a matrix with the same pattern, given as the arrays of a SciPy matrix.
    fn refresh_from(
        &self,
        layout: &str,
        shape: (usize, usize),
        first: &Bound<'_, PyAny>,
        second: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.enter()?;
        let (layout, py) = (Layout::named(layout)?, data.py());
        with_either!(&self.inner, built => {
            let a = matrix(layout, shape, first, second, data)?;
            interruptible(py, || built.lock()?.refresh_from(&a).map_err(raised))?
        })
    }

    /// The plan as text, with the reasons for its choices.
    fn text(&self) -> &str {
        &self.text
    }
}
