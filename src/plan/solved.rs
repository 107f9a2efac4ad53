//! What a ladder of solvers found, and how it got there.

use super::{Candidate, Method, Preconditioner};
use crate::{Outcome, Report};
use std::fmt;
use std::time::Duration;

/// A solution in host memory, in the user's numbering, and the way to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Solved<T> {
    /// The solution: the best that any rung found.
    pub x: Vec<T>,
    /// How it ended; the iterations, time and bytes of all rungs together; history and condition of the last. The residual
    /// was computed anew from `x`.
    pub report: Report,
    /// What was tried, in order. The last one ended the solve.
    pub rungs: Vec<Rung>,
}

/// One configuration that was tried.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rung {
    /// The method.
    pub method: Method,
    /// The preconditioner.
    pub preconditioner: Preconditioner,
    /// Why it was taken.
    pub reason: String,
    /// Iterations made.
    pub iterations: usize,
    /// The time to build it: zero if an earlier solve has.
    pub setup: Duration,
    /// The time of its iterations.
    pub time: Duration,
    /// `‖b − A x‖ / ‖b‖` of the `x` that it left, computed anew; NaN if it left none.
    pub residual: f64,
    /// How it ended.
    pub ending: Left,
}

/// How a rung ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Left {
    /// Its solver ended by itself.
    Ended(Outcome),
    /// The next one promised to be faster.
    Overtaken {
        /// The iterations that it seemed to need still; infinite if its residual did not fall.
        needed: f64,
    },
    /// It could not be built, for this reason.
    Refused(String),
}

impl<T> Solved<T> {
    /// Whether the residual of `x`, computed anew, meets the tolerance.
    pub fn converged(&self) -> bool {
        self.report.converged()
    }
}

impl Rung {
    /// One that made no iterations.
    pub(super) fn new(candidate: &Candidate, setup: Duration, residual: f64, ending: Left) -> Rung {
        Rung {
            method: candidate.method,
            preconditioner: candidate.preconditioner,
            reason: candidate.reason.clone(),
            iterations: 0,
            setup,
            time: Duration::ZERO,
            residual,
            ending,
        }
    }
}

/// The report, and a line for each rung.
impl<T> fmt::Display for Solved<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        self.rungs.iter().try_for_each(|rung| write!(f, "\n{rung}"))
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", configuration(self.method, self.preconditioner), self.reason)?;
        let seconds = |time: Duration| time.as_secs_f64();
        if let Left::Refused(why) = &self.ending {
            return write!(f, "; not built: {why}");
        }
        write!(f, "; {} after {} iterations", self.ending, self.iterations)?;
        write!(f, ", {:.3} s and {:.3} s before", seconds(self.time), seconds(self.setup))?;
        write!(f, ", relative residual {:.1e}", self.residual)
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Left::Ended(outcome) => write!(f, "{outcome}"),
            Left::Overtaken { needed } if needed.is_finite() => {
                write!(f, "left for the next, with about {needed:.0} iterations to go,")
            }
            Left::Overtaken { .. } => write!(f, "left for the next, as the residual no longer fell,"),
            Left::Refused(why) => write!(f, "not built: {why}"),
        }
    }
}

/// A method and its preconditioner in words.
pub(super) fn configuration(method: Method, preconditioner: Preconditioner) -> String {
    match preconditioner {
        Preconditioner::None => method.to_string(),
        other => format!("{method} with {other}"),
    }
}
