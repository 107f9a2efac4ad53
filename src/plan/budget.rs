//! Limits of one solve: time, iterations, and cancellation.

use krysp_solvers::{CancelToken, Outcome, Stopping};
use std::time::{Duration, Instant};

/// Maximum number of iterations of an attempt, if the user sets no limit. Not measured; chosen so that other limits
/// are reached first.
pub(super) const ITERATIONS: usize = 100_000;

/// Limits of one solve, for all its attempts together.
pub(super) struct Budget {
    pub(super) started: Instant,
    time: Option<Duration>,
    iterations: Option<usize>,
    pub(super) spent: usize,
    cancel: CancelToken,
}

impl Budget {
    pub(super) fn new(time: Option<Duration>, iterations: Option<usize>, cancel: CancelToken) -> Budget {
        Budget { started: Instant::now(), time, iterations, spent: 0, cancel }
    }

    /// Number of iterations that are left, but not more than `most`.
    pub(super) fn left(&self, most: usize) -> usize {
        self.iterations.map_or(most, |all| all.saturating_sub(self.spent).min(most))
    }

    pub(super) fn time_left(&self) -> Option<Duration> {
        self.time.map(|limit| limit.saturating_sub(self.started.elapsed()))
    }

    pub(super) fn is_spent(&self) -> bool {
        self.iterations.is_some_and(|all| self.spent >= all)
    }

    pub(super) fn stopping(&self, rtol: f64, epsilon: f64) -> Stopping {
        Stopping {
            rtol,
            max_iterations: self.left(ITERATIONS),
            time_limit: self.time_left(),
            ..Stopping::new(epsilon)
        }
    }

    /// Why the solve was interrupted.
    pub(super) fn interruption(&self) -> Outcome {
        let is_over = |limit| !self.cancel.is_cancelled() && self.started.elapsed() >= limit;
        if self.time.is_some_and(is_over) { Outcome::TimeLimit } else { Outcome::Cancelled }
    }
}
