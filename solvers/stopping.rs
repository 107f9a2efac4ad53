//! Stopping criteria.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The stopping criteria of a solve: `‖b − A x‖ ≤ max(rtol ‖b‖, atol)`, or a limit.
#[derive(Clone, Debug)]
pub struct Stopping {
    /// Tolerance relative to `‖b‖`. The default is 1e-8 in `f64` and 3.5e-4 in `f32`.
    pub rtol: f64,
    /// Absolute tolerance. The default is zero.
    pub atol: f64,
    /// Maximum number of iterations. The default is 10,000.
    pub max_iterations: usize,
    /// Time limit. The default is none.
    pub time_limit: Option<Duration>,
    /// Stagnation window: after this many iterations without a decrease of the residual the solve is checked,
    /// and ends as [`Stagnated`](crate::Outcome::Stagnated) if there is [`Evidence`](crate::Evidence). `None`
    /// is the default of the method; `Some(usize::MAX)` turns the check off.
    pub stagnation_window: Option<usize>,
    /// The solve ends as diverged when the residual has grown by this factor. The default is 10¹⁰.
    pub divergence: f64,
}

impl Stopping {
    /// The defaults for an element type with this epsilon, the same for every solver and every plan.
    ///
    /// ```
    /// use krysp::Stopping;
    ///
    /// assert_eq!(Stopping::new(f64::EPSILON).rtol, 1e-8);
    /// assert_eq!(Stopping::new(f32::EPSILON.into()).rtol, 3.5e-4);
    /// ```
    pub fn new(epsilon: f64) -> Self {
        Stopping {
            // about √ε
            rtol: if epsilon < 1e-12 { 1e-8 } else { 3.5e-4 },
            atol: 0.0,
            max_iterations: 10_000,
            time_limit: None,
            stagnation_window: None,
            divergence: 1e10,
        }
    }

    /// Residual norm to reach.
    pub(crate) fn threshold(&self, rhs_norm: f64) -> f64 {
        (self.rtol * rhs_norm).max(self.atol)
    }
}

/// Ends a solve from another thread: pass the token to [`Solver::cancel_token`](crate::Solver::cancel_token),
/// which keeps a clone, and call [`cancel`](CancelToken::cancel).
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests that the solve end. It ends after the iterations that are already queued: one in host memory,
    /// up to 256 on a GPU, which take a few milliseconds.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Resets the token: solves that start from now on run.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Returns whether the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// State of a solve that an observer receives after each iteration.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Number of iterations so far.
    pub iteration: usize,
    /// `‖r‖` by the method's recurrence.
    pub residual: f64,
    /// Residual norm to reach.
    pub threshold: f64,
}
