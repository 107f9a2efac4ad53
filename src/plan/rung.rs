//! A method with its operator and its preconditioner, behind one type: one call through it is one solve.

use super::names::Method;
use super::pace::Pace;
use crate::{
    BiCgStab, Cg, Fcg, Fgmres, Gmres, Idr, LinearOperator, Minres, Operator, Origin, Real, Refresh, Report,
    Result, Stopping, Vector,
};
use krysp_solvers::{CancelToken, Identity, Progress, Solver};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// A preconditioner that takes new values, in any memory.
pub trait Prepared<T: Real, V: Vector<Elem = T>>: LinearOperator<Vector = V> + Refresh<T> + Any {}
impl<T: Real, V: Vector<Elem = T>, M: LinearOperator<Vector = V> + Refresh<T> + Any> Prepared<T, V> for M {}

/// A preconditioner that was chosen at run time.
pub type AnyPreconditioner<T, V> = Box<dyn Prepared<T, V>>;

/// Nothing to take values for.
impl<T: Real, V: Vector<Elem = T>> Refresh<T> for Identity<V> {
    fn refresh(&mut self, _: &dyn Origin<T>) -> Result<()> {
        Ok(())
    }
}

/// What is told of each iteration, and asked whether to go on. All attempts of a ladder share it.
pub(super) type Watch = Arc<Mutex<Watcher>>;

/// What a user calls for each iteration.
pub(super) type Observer = Box<dyn FnMut(&Progress) + Send>;

/// Who wants to know of iterations.
pub(super) struct Watcher {
    pub(super) pace: Pace,
    pub(super) observers: Vec<Observer>,
}

impl Watcher {
    fn tell(&mut self, progress: &Progress) {
        self.observers.iter_mut().for_each(|observer| observer(progress));
    }
}

/// A solver whose method was chosen at run time. Iterations call nothing through it.
pub(super) trait Runs<T: Real, V: Vector<Elem = T>>: Send {
    /// Where it stops.
    fn stopping(&mut self) -> &mut Stopping;

    /// Solves from the guess `x`.
    fn solve_into(&mut self, b: &V, x: &mut V) -> Result<&Report>;

    /// The operator.
    fn operator(&self) -> &Operator<V>;

    /// The preconditioner.
    fn preconditioner(&self) -> &dyn Prepared<T, V>;

    /// Gives new values to the operator, and then those to the preconditioner.
    fn refresh(&mut self, values: &[T]) -> Result<()>;

    /// The operator, for the next rung.
    fn into_operator(self: Box<Self>) -> Operator<V>;
}

impl<T, V, K> Runs<T, V> for Solver<K, Operator<V>, AnyPreconditioner<T, V>>
where
    T: Real,
    V: Vector<Elem = T>,
    K: krysp_solvers::Method<V> + Send,
    Solver<K, Operator<V>, AnyPreconditioner<T, V>>: Send,
{
    fn stopping(&mut self) -> &mut Stopping {
        self.stopping_mut()
    }

    fn solve_into(&mut self, b: &V, x: &mut V) -> Result<&Report> {
        Ok(Solver::solve_into(self, b, x)?)
    }

    fn operator(&self) -> &Operator<V> {
        Solver::operator(self)
    }

    fn preconditioner(&self) -> &dyn Prepared<T, V> {
        &**self.operators().1
    }

    fn refresh(&mut self, values: &[T]) -> Result<()> {
        let (operator, preconditioner) = self.operators_mut();
        operator.refresh(values)?;
        preconditioner.refresh(operator)
    }

    fn into_operator(self: Box<Self>) -> Operator<V> {
        Solver::into_operators(*self).0
    }
}

/// A rung that runs, and which of the candidates it is.
pub(super) type Running<T, V> = Option<(usize, Box<dyn Runs<T, V>>)>;

/// What a rung is told of the outside.
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
    K: krysp_solvers::Method<V> + Send + 'static,
{
    if let Some(token) = outside.cancel {
        solver = solver.cancel_token(token);
    }
    let watch = outside.watch.clone();
    let decide = move |progress: &Progress| {
        let mut watcher = watch.lock().unwrap_or_else(PoisonError::into_inner);
        watcher.tell(progress);
        watcher.pace.leave(progress)
    };
    Box::new(solver.stop_soon_when(decide))
}
