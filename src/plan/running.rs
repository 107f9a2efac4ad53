//! A method with its operator and its preconditioner, behind one type: one call through it is one solve.

use super::monitor::{Alternative, Monitor, Verdict};
use super::names::Method;
use crate::{
    BiCgStab, Cg, Csr, Fcg, Fgmres, Gmres, Idr, LinearOperator, MatrixSource, Minres, Operator, Real,
    Refresh, Report, Result, Stopping, Vector,
};
use krysp_solvers::{CancelToken, Identity, MultiVector, Progress, Solver};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A preconditioner that takes new values, in any memory.
pub trait Prepared<T: Real, V: Vector<Elem = T>>: LinearOperator<Vector = V> + Refresh<T> + Any {}
impl<T: Real, V: Vector<Elem = T>, M: LinearOperator<Vector = V> + Refresh<T> + Any> Prepared<T, V> for M {}

/// A preconditioner that was chosen at run time.
pub type AnyPreconditioner<T, V> = Box<dyn Prepared<T, V>>;

/// The identity depends on no values.
impl<T: Real, V: Vector<Elem = T>> Refresh<T> for Identity<V> {
    fn refresh(&mut self, _: &dyn MatrixSource<T>) -> Result<()> {
        Ok(())
    }
}

/// Observers and the monitor of the running attempt; all attempts of a planned solver share it.
pub(super) type Watch = Arc<Mutex<Watcher>>;

/// What a user calls for each iteration.
pub(super) type Observer = Box<dyn FnMut(&Progress) + Send>;

/// Computes an elimination ordering, and returns the alternatives with the costs that follow from it.
pub(super) type Analyse = Box<dyn FnOnce() -> Vec<Alternative> + Send>;

/// Called after each iteration.
pub(super) struct Watcher {
    pub(super) monitor: Monitor,
    pub(super) analyse: Option<Analyse>,
    pub(super) verdict: Verdict,
    pub(super) observers: Vec<Observer>,
}

impl Watcher {
    pub(super) fn new() -> Watcher {
        Watcher { monitor: Monitor::idle(), analyse: None, verdict: Verdict::Continue, observers: vec![] }
    }

    /// Whether the attempt stops here.
    fn stops(&mut self, progress: &Progress) -> bool {
        self.observers.iter_mut().for_each(|observer| observer(progress));
        self.verdict = match self.monitor.observe(progress) {
            Verdict::Analyse => {
                let alternatives = self.analyse.take().map(|analyse| analyse());
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

/// A solver whose method was chosen at run time. Iterations call nothing through it.
pub(super) trait Runs<T: Real, V: Vector<Elem = T>>: Send {
    /// Where it stops.
    fn stopping(&mut self) -> &mut Stopping;

    /// Solves from the guess `x`.
    fn solve_into(&mut self, b: &V, x: &mut V) -> Result<&Report>;

    /// Solves several systems from the guesses `x`, without observers and rules.
    fn solve_many_into(&mut self, b: &MultiVector<V>, x: &mut MultiVector<V>) -> Result<Vec<Report>>;

    /// Whether so many systems are solved in lockstep.
    fn is_lockstep(&mut self, columns: usize) -> bool;

    /// The operator.
    fn operator(&self) -> &Operator<V>;

    /// The preconditioner.
    fn preconditioner(&self) -> &dyn Prepared<T, V>;

    /// Gives new values to the operator.
    fn refresh(&mut self, values: &[T]) -> Result<()>;

    /// Refreshes the preconditioner from this matrix, or from the operator where it is stored.
    fn renew(&mut self, matrix: Option<&Csr<T>>) -> Result<()>;

    /// The operator and the preconditioner.
    fn into_parts(self: Box<Self>) -> (Operator<V>, AnyPreconditioner<T, V>);
}

impl<T, V, K> Runs<T, V> for Solver<K, Operator<V>, AnyPreconditioner<T, V>>
where
    T: Real,
    V: Vector<Elem = T>,
    K: krysp_solvers::Method<V> + krysp_solvers::Method<MultiVector<V>> + Send,
    Solver<K, Operator<V>, AnyPreconditioner<T, V>>: Send,
{
    fn stopping(&mut self) -> &mut Stopping {
        self.stopping_mut()
    }

    fn solve_into(&mut self, b: &V, x: &mut V) -> Result<&Report> {
        Ok(Solver::solve_into(self, b, x)?)
    }

    fn solve_many_into(&mut self, b: &MultiVector<V>, x: &mut MultiVector<V>) -> Result<Vec<Report>> {
        Ok(self.unwatched(|solver| solver.solve_many_into(b, x))?)
    }

    fn is_lockstep(&mut self, columns: usize) -> bool {
        self.unwatched(|solver| solver.runs_in_lockstep(columns))
    }

    fn operator(&self) -> &Operator<V> {
        Solver::operator(self)
    }

    fn preconditioner(&self) -> &dyn Prepared<T, V> {
        &**self.operators().1
    }

    fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.operators_mut().0.refresh(values)
    }

    fn renew(&mut self, matrix: Option<&Csr<T>>) -> Result<()> {
        let (operator, preconditioner) = self.operators_mut();
        match matrix {
            Some(matrix) => preconditioner.refresh(matrix),
            None => preconditioner.refresh(operator),
        }
    }

    fn into_parts(self: Box<Self>) -> (Operator<V>, AnyPreconditioner<T, V>) {
        Solver::into_operators(*self)
    }
}

/// A configured solver, and which of the candidates it is.
pub(super) type Running<T, V> = Option<(usize, Box<dyn Runs<T, V>>)>;

/// Cancel token and watcher, which all solvers of a plan share.
pub(super) struct Outside<'o> {
    pub(super) cancel: Option<&'o CancelToken>,
    pub(super) watch: &'o Watch,
}

/// A solver of this method.
pub(super) fn solver<T: Real, V: Vector<Elem = T> + 'static>(
    method: Method,
    restart: usize,
    operator: Operator<V>,
    m: AnyPreconditioner<T, V>,
    outside: &Outside<'_>,
) -> Box<dyn Runs<T, V>> {
    match method {
        Method::Cg => watched(Cg::new(operator).preconditioner(m), outside),
        Method::Fcg => watched(Fcg::new(operator).preconditioner(m), outside),
        Method::Minres => watched(Minres::new(operator).preconditioner(m), outside),
        Method::BiCgStab => watched(BiCgStab::new(operator).preconditioner(m), outside),
        Method::Gmres | Method::LeastSquares => {
            watched(Gmres::new(operator).restart(restart).preconditioner(m), outside)
        }
        Method::Idr => watched(Idr::new(operator).preconditioner(m), outside),
        Method::Fgmres => watched(Fgmres::new(operator).restart(restart).preconditioner(m), outside),
    }
}

fn watched<T, V, K>(
    mut solver: Solver<K, Operator<V>, AnyPreconditioner<T, V>>,
    outside: &Outside<'_>,
) -> Box<dyn Runs<T, V>>
where
    T: Real,
    V: Vector<Elem = T> + 'static,
    K: krysp_solvers::Method<V> + krysp_solvers::Method<MultiVector<V>> + Send + 'static,
{
    if let Some(token) = outside.cancel {
        solver = solver.cancel_token(token);
    }
    let watch = outside.watch.clone();
    Box::new(solver.stop_soon_when(move |progress: &Progress| lock(&watch).stops(progress)))
}
