//! What a solve leaves for the next ones with the same matrix: on a GPU, to ask for memory anew takes longer than some solves.

use krysp::solvers::{Identity, Method, Solver};
use krysp::{LinearOperator, Vector};
use std::any::Any;
use std::sync::{Mutex, PoisonError};

/// Things at most: two methods, with their vectors.
const MOST: usize = 4;

/// Solvers and vectors that nobody uses now, and what the last solve has found out about the matrix.
#[derive(Default)]
pub(crate) struct Spare {
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    norm: Mutex<Option<f64>>,
}

#[cfg(feature = "cuda")]
impl Drop for Spare {
    /// As [`OnGpu`](crate::device::OnGpu): only solves on a GPU leave something here.
    fn drop(&mut self) {
        if crate::threads::check_gpu().is_err() {
            let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(kept));
        }
    }
}

/// A solver without a system.
type Idle<K, V> = Solver<K, Identity<V>, Identity<V>>;

/// A solver of a system that is borrowed.
pub(crate) type Borrowing<'a, K, V> =
    Solver<K, &'a dyn LinearOperator<Vector = V>, &'a dyn LinearOperator<Vector = V>>;

impl Spare {
    /// One of this type, which no other solve has then.
    pub(crate) fn take<S: Any>(&self) -> Option<S> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|one| one.is::<S>())?;
        kept.remove(at).downcast().ok().map(|one| *one)
    }

    /// Keeps one, in the place of the oldest if there are many.
    pub(crate) fn keep<S: Any + Send>(&self, one: S) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == MOST {
            kept.remove(0);
        }
        kept.push(Box::new(one));
    }

    /// The matrix has new values.
    pub(crate) fn forget_values(&mut self) {
        *self.norm.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn norm(&self) -> Option<f64> {
        *self.norm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the memory of a solver.
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

/// A solver, with the memory of one that is spare.
pub(crate) fn solver<'a, K: Method<V> + Default + 'static, V: Vector + 'static>(
    a: &'a dyn LinearOperator<Vector = V>,
    m: &'a dyn LinearOperator<Vector = V>,
    spare: Option<&Spare>,
) -> Borrowing<'a, K, V> {
    let solver = match spare.and_then(Spare::take::<Idle<K, V>>) {
        Some(idle) => idle.with_operators(a, m),
        None => Solver::<K, _, _>::new(a).preconditioner(m),
    };
    solver.with_operator_norm(spare.and_then(Spare::norm))
}
