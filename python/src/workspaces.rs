//! Workspace that is reused by later solves with the same matrix: allocating it again on a GPU takes longer than some solves.

use krysp::solvers::{Identity, Method, Solver};
use krysp::{LinearOperator, Vector};
use std::any::Any;
use std::sync::{Mutex, PoisonError};

/// Maximum number of objects that are kept for later solves: two solvers, each with its pair of vectors.
const CAPACITY: usize = 4;

/// Solvers and vectors that are not in use, and the estimated norm of the matrix from the last solve.
#[derive(Default)]
pub(crate) struct Workspaces {
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    norm: Mutex<Option<f64>>,
}

#[cfg(feature = "cuda")]
impl Drop for Workspaces {
    /// Leaks GPU memory where [`OnGpu`](crate::device::OnGpu) does, in forked processes. Only solves on a GPU keep objects here.
    fn drop(&mut self) {
        if crate::threads::check_gpu().is_err() {
            let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(kept));
        }
    }
}

/// A kept solver: its operators are replaced by identities.
type Idle<K, V> = Solver<K, Identity<V>, Identity<V>>;

/// A solver that borrows its matrix and its preconditioner.
pub(crate) type Borrowing<'a, K, V> =
    Solver<K, &'a dyn LinearOperator<Vector = V>, &'a dyn LinearOperator<Vector = V>>;

impl Workspaces {
    /// Removes and returns a kept object of this type, if there is one.
    pub(crate) fn take<S: Any>(&self) -> Option<S> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|one| one.is::<S>())?;
        kept.remove(at).downcast().ok().map(|one| *one)
    }

    /// Keeps an object. If there are [`CAPACITY`] objects already, drops the oldest.
    pub(crate) fn keep<S: Any + Send>(&self, one: S) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == CAPACITY {
            kept.remove(0);
        }
        kept.push(Box::new(one));
    }

    /// Discards what depends on the values of the matrix, which have changed.
    pub(crate) fn forget_values(&mut self) {
        *self.norm.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn norm(&self) -> Option<f64> {
        *self.norm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the workspace of a solver, and the solver's estimate of the norm of the matrix.
    pub(crate) fn keep_solver<K, V>(&self, solver: Borrowing<'_, K, V>)
    where
        K: Method<V> + Send + 'static,
        V: Vector + 'static,
    {
        *self.norm.lock().unwrap_or_else(PoisonError::into_inner) = solver.operator_norm();
        let space = solver.operator().domain().clone();
        self.keep::<Idle<K, V>>(solver.with_operators(Identity::new(&space), Identity::new(&space)));
    }
}

/// A solver for a system, with the workspace of a kept solver if there is one.
pub(crate) fn solver<'a, K: Method<V> + Default + 'static, V: Vector + 'static>(
    a: &'a dyn LinearOperator<Vector = V>,
    m: &'a dyn LinearOperator<Vector = V>,
    workspaces: Option<&Workspaces>,
) -> Borrowing<'a, K, V> {
    let solver = match workspaces.and_then(Workspaces::take::<Idle<K, V>>) {
        Some(idle) => idle.with_operators(a, m),
        None => Solver::<K, _, _>::new(a).preconditioner(m),
    };
    solver.with_operator_norm(workspaces.and_then(Workspaces::norm))
}
