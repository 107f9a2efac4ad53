//! Handling of signals, callbacks and their exceptions while a solve runs.

use crate::threads::Threads;
use krysp::solvers::Method;
use krysp::solvers::Solver;
use krysp::{BasicVector, CancelToken, Interrupt, LinearOperator, Progress, Space, Vector};
use numpy::PyArray1;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyFloat;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Time between two checks for signals: so short that Ctrl-C seems to act at once, and so long that the
/// checks take no noticeable time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs long work on a thread of the pool, with the GIL released. On a thread outside of the pool, each vector operation would
/// have to wake the pool and then the caller. Meanwhile the calling thread checks for signals: an exception cancels the token and
/// is raised when the work has ended. `work` must not call a function of the user: that could wait for another solve, which the
/// same thread would have to run (deadlock).
pub(crate) fn watched<R: Send>(
    py: Python<'_>,
    token: &CancelToken,
    work: impl FnOnce() -> R + Send,
) -> PyResult<R> {
    let threads = Threads::new(py);
    py.detach(|| {
        let interrupt = Interrupt::new(token);
        if !threads.has_others() {
            return Ok(interrupt.run(work));
        }
        threads.scope(|scope| {
            let (done, ended) = channel();
            scope.spawn(move |_| {
                // this cannot fail: the receiver outlives the scope
                let _ = done.send(interrupt.run(work));
            });
            let mut raised = None;
            loop {
                match ended.recv_timeout(POLL_INTERVAL) {
                    Ok(result) => return raised.map_or(Ok(result), Err),
                    Err(RecvTimeoutError::Timeout) => {
                        if let Err(exception) = Python::attach(|py| py.check_signals()) {
                            token.cancel();
                            raised.get_or_insert(exception);
                        }
                    }
                    // the work panicked: the end of the scope resumes the panic
                    Err(RecvTimeoutError::Disconnected) => return Err(PyRuntimeError::new_err("no result")),
                }
            }
        })
    })
}

/// Runs long work, such as a factorization, that an exception from a signal handler interrupts.
pub(crate) fn interruptible<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    watched(py, &CancelToken::new(), work)
}

/// Runs work that cannot be cancelled on a thread of the pool, with the GIL released.
pub(crate) fn computed<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    let threads = Threads::new(py);
    py.detach(|| threads.run(work))
}

/// A callback of the user. The variants differ in the argument with which it is called.
pub(crate) enum Callback {
    /// Called with the iterate.
    Iterate(Py<PyAny>),
    /// Called with `‖r‖ / ‖b‖`; the second field is `‖b‖`.
    Residual(Py<PyAny>, f64),
}

/// Cancels a solve at the first exception, and stores it.
#[derive(Clone)]
pub(crate) struct Watch {
    /// The calling thread, the only one that checks for signals: Python runs signal handlers on its main thread.
    caller: ThreadId,
    raised: Arc<Mutex<Option<PyErr>>>,
    pub(crate) token: CancelToken,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch { caller: thread::current().id(), raised: Arc::default(), token: CancelToken::default() }
    }

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

    /// Adds checks for signals and the callback to a solver.
    pub(crate) fn over<K, A, M>(&self, solver: Solver<K, A, M>, callback: Option<Callback>) -> Solver<K, A, M>
    where
        A: LinearOperator<Vector: Vector<Elem: numpy::Element>>,
        K: Method<A::Vector>,
        M: LinearOperator<Vector = A::Vector>,
    {
        let (watch, mut polled) = (self.clone(), Instant::now());
        let signals = move |_: &Progress| {
            // if the solve runs on another thread, the caller checks for signals in `watched`
            if polled.elapsed() >= POLL_INTERVAL && thread::current().id() == watch.caller {
                watch.note(Python::attach(|py| py.check_signals()));
                polled = Instant::now();
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
