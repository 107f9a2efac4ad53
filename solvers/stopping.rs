//! When a solve ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// When a solve ends: at `‖r‖ ≤ max(rtol ‖b‖, atol)`, or at a limit.
#[derive(Clone, Debug)]
pub struct Stopping {
    /// Relative to `‖b‖`. The default is the square root of the element's epsilon.
    pub rtol: f64,
    /// Absolute. The default is zero.
    pub atol: f64,
    /// Iterations allowed. The default is 10,000.
    pub max_iterations: usize,
    /// Time allowed. The default is no limit.
    pub time_limit: Option<Duration>,
    /// Iterations without a fall of the residual, after which the solve is looked at, and ends as
    /// [`Stagnated`](crate::Outcome::Stagnated) if there is evidence: the method's own patience (`None`), or a number of
    /// iterations; `Some(usize::MAX)` turns the detection off.
    pub patience: Option<usize>,
    /// The growth of the residual that is called divergence. The default is 10¹⁰.
    pub divergence: f64,
}

impl Stopping {
    /// The defaults for elements of this epsilon.
    pub fn new(epsilon: f64) -> Self {
        Stopping {
            rtol: epsilon.sqrt(),
            atol: 0.0,
            max_iterations: 10_000,
            time_limit: None,
            patience: None,
            divergence: 1e10,
        }
    }

    /// The residual norm to reach.
    pub(crate) fn threshold(&self, rhs_norm: f64) -> f64 {
        (self.rtol * rhs_norm).max(self.atol)
    }
}

/// Ends a solve from another thread: clone it, hand one to the solver, pull the other.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that nobody has pulled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the solve to end. It ends after the iterations that are queued: one in host memory, up to 256 on a GPU, which take
    /// it some milliseconds.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has pulled it.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an observer sees after each iteration.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Iterations made.
    pub iteration: usize,
    /// `‖r‖` by the method's recurrence.
    pub residual: f64,
    /// The norm to reach.
    pub threshold: f64,
}
