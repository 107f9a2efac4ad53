//! Type-erased solvers: a method, its operator and its preconditioner behind one trait object, which is called once per solve.

use super::monitor::{Alternative, Monitor, Start, Verdict};
use super::names::Method;
use crate::choice::Operator;
use crate::error::Result;
use crate::formats::MatrixSource;
use crate::numbers::Real;
use crate::preconditioners::Refresh;
use krysp_solvers::{
    BiCgStab, CancelToken, Cg, Deflated, Fcg, Fgmres, Gmres, Identity, Idr, LinearOperator, Minres,
    MultiVector, NullSpace, Progress, Report, Solver, Space, Steps, StepsOf, Stopping, Vector,
};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A preconditioner, in host or device memory, that can be recomputed for new values of the matrix.
pub trait Prepared<T: Real, V: Vector<Elem = T>>: LinearOperator<Vector = V> + Refresh<T> + Any {}
impl<T: Real, V: Vector<Elem = T>, M: LinearOperator<Vector = V> + Refresh<T> + Any> Prepared<T, V> for M {}

/// A preconditioner that was chosen at run time.
pub type AnyPreconditioner<T, V> = Box<dyn Prepared<T, V>>;

/// A preconditioner for a singular system, without components in the null space.
pub(super) type WithNullSpace<T, V> = Deflated<AnyPreconditioner<T, V>, NullSpace<V>>;

/// Refreshes `M⁻¹`; the new matrix must have the same null space.
impl<T: Real, V: Vector<Elem = T>> Refresh<T> for WithNullSpace<T, V> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        self.inner_mut().refresh(a)
    }
}

/// Does nothing: the identity does not depend on the matrix.
impl<T: Real, V: Vector<Elem = T>> Refresh<T> for Identity<V> {
    fn refresh(&mut self, _: &dyn MatrixSource<T>) -> Result<()> {
        Ok(())
    }
}

/// Access to the [`Watcher`] of a planned solver, which all of its attempts share.
pub(super) type Watch = Arc<Mutex<Watcher>>;

/// Callback of the user, called after each iteration.
type Observer = Box<dyn FnMut(&Progress) + Send>;

/// Observers of a solve and the monitor of the running attempt; `stops` is called after each iteration.
pub(super) struct Watcher {
    pub(super) monitor: Monitor,
    /// Computes an elimination ordering, and returns the alternatives with the costs that follow from the ordering.
    pub(super) analyse: Option<Box<dyn FnOnce() -> Vec<Alternative> + Send>>,
    /// The time of the elimination ordering, if one was computed during the attempt.
    pub(super) ordering: Duration,
    pub(super) verdict: Verdict,
    pub(super) observers: Vec<Observer>,
}

impl Watcher {
    pub(super) fn new() -> Watcher {
        Watcher {
            monitor: Monitor::new(Start::default()),
            analyse: None,
            ordering: Duration::ZERO,
            verdict: Verdict::Continue,
            observers: vec![],
        }
    }

    /// Calls the observers and the monitor. Returns whether the attempt stops after this iteration.
    fn stops(&mut self, progress: &Progress) -> bool {
        self.observers.iter_mut().for_each(|observer| observer(progress));
        self.verdict = match self.monitor.observe(progress) {
            Verdict::Analyse => {
                let started = Instant::now();
                let alternatives = self.analyse.take().map(|analyse| analyse());
                self.ordering += started.elapsed();
                self.monitor.analysed(alternatives, progress)
            }
            verdict => verdict,
        };
        matches!(self.verdict, Verdict::Switch | Verdict::Renew)
    }
}

pub(super) fn lock(watch: &Watch) -> MutexGuard<'_, Watcher> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A configured solver, and the index of its candidate.
pub(super) type Running<T, V> = Option<(usize, AnySolver<T, V>)>;

/// Restart length of GMRES, longer than its default because hard systems need it. Not measured; chosen as twice the default.
pub(super) const RESTART: usize = 60;

/// A solver whose method, operator and preconditioner were chosen at run time. Its methods match once per solve.
pub(super) enum AnySolver<T: Real, V: Vector<Elem = T>> {
    Cg(Cg<Operator<V>, AnyPreconditioner<T, V>>),
    Fcg(Fcg<Operator<V>, AnyPreconditioner<T, V>>),
    Minres(Minres<Operator<V>, AnyPreconditioner<T, V>>),
    BiCgStab(BiCgStab<Operator<V>, AnyPreconditioner<T, V>>),
    Gmres(Gmres<Operator<V>, AnyPreconditioner<T, V>>),
    Fgmres(Fgmres<Operator<V>, AnyPreconditioner<T, V>>),
    Idr(Idr<Operator<V>, AnyPreconditioner<T, V>>),
}

/// Evaluates an expression of the solver of any method.
macro_rules! of_any {
    ($any:expr, $solver:ident => $value:expr) => {
        match $any {
            AnySolver::Cg($solver) => $value,
            AnySolver::Fcg($solver) => $value,
            AnySolver::Minres($solver) => $value,
            AnySolver::BiCgStab($solver) => $value,
            AnySolver::Gmres($solver) => $value,
            AnySolver::Fgmres($solver) => $value,
            AnySolver::Idr($solver) => $value,
        }
    };
}

impl<T: Real, V: Vector<Elem = T> + 'static> AnySolver<T, V> {
    /// Creates a solver with the cancel token and the watcher that all solvers of a plan share.
    pub(super) fn new(
        method: Method,
        operator: Operator<V>,
        m: AnyPreconditioner<T, V>,
        cancel: Option<&CancelToken>,
        watch: &Watch,
    ) -> Self {
        let restart = RESTART.min(operator.domain().len().max(1));
        macro_rules! any {
            ($method:ident, $solver:expr) => {
                AnySolver::$method(watched($solver.preconditioner(m), cancel, watch))
            };
        }
        match method {
            Method::Cg => any!(Cg, Cg::new(operator)),
            Method::Fcg => any!(Fcg, Fcg::new(operator)),
            Method::Minres => any!(Minres, Minres::new(operator)),
            Method::BiCgStab => any!(BiCgStab, BiCgStab::new(operator)),
            Method::Gmres | Method::LeastSquares => any!(Gmres, Gmres::new(operator).restart(restart)),
            Method::Fgmres => any!(Fgmres, Fgmres::new(operator).restart(restart)),
            Method::Idr => any!(Idr, Idr::new(operator)),
        }
    }

    /// Solves from the initial guess `x`.
    pub(super) fn solve_into(&mut self, stopping: Stopping, b: &V, x: &mut V) -> Result<&Report> {
        of_any!(self, solver => {
            *solver.stopping_mut() = stopping;
            Ok(solver.solve_into(b, x)?)
        })
    }

    /// Solves several systems from the initial guesses `x`: with `block`, in one search space if the method has blocks; otherwise in lockstep if
    /// that is faster, else one after the other. Observers, stop rules and the monitor are not called.
    pub(super) fn solve_many_into(
        &mut self,
        stopping: Stopping,
        b: &MultiVector<V>,
        x: &mut MultiVector<V>,
        block: bool,
    ) -> Result<Vec<Report>> {
        of_any!(self, solver => *solver.stopping_mut() = stopping);
        let reports = match self {
            AnySolver::Cg(solver) if block => {
                solver.unwatched(|solver| solver.solve_block_into(b, x).map(<[Report]>::to_vec))
            }
            any => of_any!(any, solver => {
                solver.unwatched(|solver| solver.solve_many_into(b, x).map(<[Report]>::to_vec))
            }),
        };
        Ok(reports?)
    }

    /// Whether `columns` systems are solved in lockstep (each step advances all of them), and whether they can share one search space.
    pub(super) fn joins(&mut self, columns: usize) -> [bool; 2] {
        // where steps are queued ahead of the host, there are no block methods
        let has_blocks = matches!(self, AnySolver::Cg(_)) && StepsOf::<V>::LAG == 1;
        [of_any!(self, solver => solver.unwatched(|solver| solver.runs_in_lockstep(columns))), has_blocks]
    }

    /// The operator and the preconditioner.
    pub(super) fn operators(&self) -> (&Operator<V>, &dyn Prepared<T, V>) {
        let (operator, m) = of_any!(self, solver => solver.operators());
        (operator, &**m)
    }

    /// The operator and the preconditioner, for new values.
    pub(super) fn operators_mut(&mut self) -> (&mut Operator<V>, &mut dyn Prepared<T, V>) {
        let (operator, m) = of_any!(self, solver => solver.operators_mut());
        (operator, &mut **m)
    }

    /// The operator and the preconditioner.
    pub(super) fn into_parts(self) -> (Operator<V>, AnyPreconditioner<T, V>) {
        of_any!(self, solver => solver.into_operators())
    }
}

fn watched<K, A, M>(
    mut solver: Solver<K, A, M>,
    cancel: Option<&CancelToken>,
    watch: &Watch,
) -> Solver<K, A, M>
where
    A: LinearOperator,
    M: LinearOperator<Vector = A::Vector>,
    K: krysp_solvers::Method<A::Vector>,
{
    if let Some(token) = cancel {
        solver = solver.cancel_token(token);
    }
    let watch = watch.clone();
    solver.stop_soon_when(move |progress: &Progress| lock(&watch).stops(progress))
}
