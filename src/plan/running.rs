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
pub(super) type Observer = Box<dyn FnMut(&Progress) + Send>;

/// Computes an elimination ordering, and returns the alternatives with the costs that follow from the ordering.
pub(super) type Analyse = Box<dyn FnOnce() -> Vec<Alternative> + Send>;

/// Observers of a solve and the monitor of the running attempt; `stops` is called after each iteration.
pub(super) struct Watcher {
    pub(super) monitor: Monitor,
    pub(super) analyse: Option<Analyse>,
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
                self.ordering = started.elapsed();
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

/// A solver whose method was chosen at run time. The methods of this trait are called per solve; iterations make no dynamic call through
/// it.
pub(super) trait Runs<T: Real, V: Vector<Elem = T>>: Send {
    /// The stopping criteria.
    fn stopping(&mut self) -> &mut Stopping;

    /// Solves from the initial guess `x`.
    fn solve_into(&mut self, b: &V, x: &mut V) -> Result<&Report>;

    /// Solves several systems from the initial guesses `x`: with `block`, in one search space if the method has blocks; otherwise in lockstep if
    /// that is faster, else one after the other. Observers, stop rules and the monitor are not called.
    fn solve_many_into(
        &mut self,
        b: &MultiVector<V>,
        x: &mut MultiVector<V>,
        block: bool,
    ) -> Result<Vec<Report>>;

    /// Whether `columns` systems are solved in lockstep (each step advances all of them).
    fn is_lockstep(&mut self, columns: usize) -> bool;

    /// Whether several systems can be solved in one search space.
    fn has_blocks(&self) -> bool;

    /// The operator and the preconditioner.
    fn operators(&self) -> (&Operator<V>, &dyn Prepared<T, V>);

    /// The operator and the preconditioner, for new values.
    fn operators_mut(&mut self) -> (&mut Operator<V>, &mut dyn Prepared<T, V>);

    /// The operator and the preconditioner.
    fn into_parts(self: Box<Self>) -> (Operator<V>, AnyPreconditioner<T, V>);
}

/// A solver whose operator and preconditioner were chosen at run time.
type Configured<K, T, V> = Solver<K, Operator<V>, AnyPreconditioner<T, V>>;

/// Solves several systems in one search space.
type SolveBlock<S, V> =
    for<'s> fn(&'s mut S, &MultiVector<V>, &mut MultiVector<V>) -> krysp_solvers::Result<&'s [Report]>;

/// A solver, and its block method if it has one.
struct Chosen<S, V: Vector> {
    solver: S,
    block: Option<SolveBlock<S, V>>,
}

impl<T, V, K> Runs<T, V> for Chosen<Configured<K, T, V>, V>
where
    T: Real,
    V: Vector<Elem = T>,
    K: krysp_solvers::Method<V> + krysp_solvers::Method<MultiVector<V>> + Send,
    Configured<K, T, V>: Send,
{
    fn stopping(&mut self) -> &mut Stopping {
        self.solver.stopping_mut()
    }

    fn solve_into(&mut self, b: &V, x: &mut V) -> Result<&Report> {
        Ok(self.solver.solve_into(b, x)?)
    }

    fn solve_many_into(
        &mut self,
        b: &MultiVector<V>,
        x: &mut MultiVector<V>,
        block: bool,
    ) -> Result<Vec<Report>> {
        let block = self.block.filter(|_| block);
        Ok(self.solver.unwatched(|solver| {
            let reports = match block {
                Some(block) => block(solver, b, x),
                None => solver.solve_many_into(b, x),
            };
            reports.map(<[Report]>::to_vec)
        })?)
    }

    fn is_lockstep(&mut self, columns: usize) -> bool {
        self.solver.unwatched(|solver| solver.runs_in_lockstep(columns))
    }

    fn has_blocks(&self) -> bool {
        // where steps are queued ahead of the host, there are no block methods
        self.block.is_some() && StepsOf::<V>::LAG == 1
    }

    fn operators(&self) -> (&Operator<V>, &dyn Prepared<T, V>) {
        let (operator, m) = self.solver.operators();
        (operator, &**m)
    }

    fn operators_mut(&mut self) -> (&mut Operator<V>, &mut dyn Prepared<T, V>) {
        let (operator, m) = self.solver.operators_mut();
        (operator, &mut **m)
    }

    fn into_parts(self: Box<Self>) -> (Operator<V>, AnyPreconditioner<T, V>) {
        self.solver.into_operators()
    }
}

/// A configured solver, and the index of its candidate.
pub(super) type Running<T, V> = Option<(usize, Box<dyn Runs<T, V>>)>;

/// Restart length of GMRES: longer than its default, because hard systems need it. Not measured; chosen as twice the
/// default.
pub(super) const RESTART: usize = 60;

/// Creates a solver from a method, an operator and a preconditioner, with the cancel token and the watcher that all solvers of a plan
/// share.
pub(super) fn solver<T: Real, V: Vector<Elem = T> + 'static>(
    method: Method,
    operator: Operator<V>,
    m: AnyPreconditioner<T, V>,
    cancel: Option<&CancelToken>,
    watch: &Watch,
) -> Box<dyn Runs<T, V>> {
    let restart = RESTART.min(operator.domain().len().max(1));
    match method {
        Method::Cg => {
            let block: SolveBlock<Cg<Operator<V>, _>, V> = |solver, b, x| solver.solve_block_into(b, x);
            watched(Cg::new(operator).preconditioner(m), Some(block), cancel, watch)
        }
        Method::Fcg => watched(Fcg::new(operator).preconditioner(m), None, cancel, watch),
        Method::Minres => watched(Minres::new(operator).preconditioner(m), None, cancel, watch),
        Method::BiCgStab => watched(BiCgStab::new(operator).preconditioner(m), None, cancel, watch),
        Method::Gmres | Method::LeastSquares => {
            watched(Gmres::new(operator).restart(restart).preconditioner(m), None, cancel, watch)
        }
        Method::Idr => watched(Idr::new(operator).preconditioner(m), None, cancel, watch),
        Method::Fgmres => {
            watched(Fgmres::new(operator).restart(restart).preconditioner(m), None, cancel, watch)
        }
    }
}

fn watched<T, V, K>(
    mut solver: Configured<K, T, V>,
    block: Option<SolveBlock<Configured<K, T, V>, V>>,
    cancel: Option<&CancelToken>,
    watch: &Watch,
) -> Box<dyn Runs<T, V>>
where
    T: Real,
    V: Vector<Elem = T> + 'static,
    K: krysp_solvers::Method<V> + krysp_solvers::Method<MultiVector<V>> + Send + 'static,
{
    if let Some(token) = cancel {
        solver = solver.cancel_token(token);
    }
    let watch = watch.clone();
    let solver = solver.stop_soon_when(move |progress: &Progress| lock(&watch).stops(progress));
    Box::new(Chosen { solver, block })
}
