//! What a solve owes Python while it runs: signals, callbacks, and the exceptions of both.

use krysp::solvers::Method;
use krysp::solvers::Solver;
use krysp::{CancelToken, LinearOperator, Progress, Space, Vector};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyFloat;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often signals are looked at: soon enough for a person, too rarely to cost anything.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// What a callback is given.
pub(crate) enum Callback {
    /// The iterate.
    Iterate(Py<PyAny>),
    /// `‖r‖ / ‖b‖`, and here `‖b‖`.
    Residual(Py<PyAny>, f64),
}

/// Ends a solve at the first exception, and keeps that.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    raised: Arc<Mutex<Option<PyErr>>>,
    token: CancelToken,
}

impl Watch {
    fn note(&self, outcome: PyResult<()>) {
        if let Err(exception) = outcome {
            self.token.cancel();
            self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(exception);
        }
    }

    /// The exception that ended the solve, if one did.
    pub(crate) fn outcome(&self) -> PyResult<()> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// A solver that looks at signals and calls the callback.
    pub(crate) fn over<K, A, M>(&self, solver: Solver<K, A, M>, callback: Option<Callback>) -> Solver<K, A, M>
    where
        A: LinearOperator<Vector: Vector<Elem: numpy::Element>>,
        K: Method<A::Vector>,
        M: LinearOperator<Vector = A::Vector>,
    {
        let (watch, mut looked) = (self.clone(), Instant::now());
        let signals = move |_: &Progress| {
            if looked.elapsed() >= BETWEEN_LOOKS {
                watch.note(Python::attach(|py| py.check_signals()));
                looked = Instant::now();
            }
        };
        let solver = solver.cancel_token(&self.token).observe(signals);
        let watch = self.clone();
        match callback {
            None => solver,
            Some(Callback::Residual(function, norm)) => solver.observe(move |progress| {
                if !watch.token.is_cancelled() {
                    let residual = progress.residual / norm;
                    watch.note(Python::attach(|py| {
                        function.call1(py, (PyFloat::new(py, residual),)).map(drop)
                    }));
                }
            }),
            Some(Callback::Iterate(function)) => solver.observe_iterates(move |_, x| {
                if !watch.token.is_cancelled() {
                    let mut host = vec![Default::default(); x.space().local_len()];
                    watch.note(match x.space().store(x, &mut host) {
                        Ok(()) => {
                            Python::attach(|py| function.call1(py, (PyArray1::from_vec(py, host),)).map(drop))
                        }
                        Err(error) => Err(crate::errors::raised_by_solver(error)),
                    });
                }
            }),
        }
    }
}
