//! Results of planned solves: solution, report, attempts.

use super::{Candidate, Method, Preconditioner, Preparation};
use krysp_solvers::{InterfaceNames, Outcome, Report};
use std::fmt;
use std::time::Duration;

/// A solution in host memory and in the user's ordering, with the report and the attempts of its solve.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Solved<T> {
    /// The solution with the least residual of all attempts.
    pub x: Vec<T>,
    /// Report of the solve: the outcome; iterations, time and bytes of all attempts together; history and condition number of the last
    /// attempt. The residual was recomputed from `x`.
    pub report: Report,
    /// The attempts, in order. The last one ended the solve.
    pub attempts: Vec<Attempt>,
}

/// One attempt: a configuration and its run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// The method.
    pub method: Method,
    /// The preconditioner.
    pub preconditioner: Preconditioner,
    /// Why it was chosen.
    pub reason: String,
    /// Iterations made.
    pub iterations: usize,
    /// Number of right-hand sides that shared one search space in this attempt, this one included; 1 for a separate solve.
    pub block: usize,
    /// The time to build or renew the preconditioner and, if that was done, to reorder the matrix, or to compute an elimination ordering,
    /// which shows during the iterations what a complete factorization would cost.
    pub setup: Duration,
    /// The way in which the preconditioner was prepared.
    pub preparation: Preparation,
    /// The time of its iterations.
    pub time: Duration,
    /// Relative residual `‖b − A x‖ / ‖b‖` after the attempt, recomputed; NaN if the preconditioner was not built.
    pub residual: f64,
    /// How it ended.
    pub ending: AttemptEnd,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AttemptEnd {
    /// The solver returned with this outcome.
    Ended(Outcome),
    /// Another candidate was expected to be faster.
    Switched {
        /// The estimated remaining iterations, at most a multiple of the iterations made.
        remaining: f64,
        /// Whether more iterations than `remaining` are expected, because the residual has hardly fallen.
        at_least: bool,
        /// The estimated time of the remaining iterations, in seconds.
        seconds: f64,
        /// The other candidate.
        to: String,
        /// The estimated time of the other candidate in seconds, setup included.
        to_seconds: f64,
    },
    /// The preconditioner was built for earlier values of the matrix, and its additional iterations had cost as much as a renewal.
    Outdated,
    /// The preconditioner could not be built, for this reason.
    NotBuilt(String),
}

impl<T> Solved<T> {
    /// Whether the recomputed residual of `x` meets the tolerance.
    pub fn converged(&self) -> bool {
        self.report.converged()
    }
}

impl Attempt {
    /// An attempt without setup and iterations.
    pub(super) fn new(candidate: &Candidate, ending: AttemptEnd) -> Attempt {
        Attempt::of(candidate.method, candidate.preconditioner, &candidate.reason, ending)
    }

    pub(super) fn of(
        method: Method,
        preconditioner: Preconditioner,
        reason: &str,
        ending: AttemptEnd,
    ) -> Attempt {
        Attempt {
            method,
            preconditioner,
            reason: reason.into(),
            iterations: 0,
            block: 1,
            setup: Duration::ZERO,
            preparation: Preparation::Built,
            time: Duration::ZERO,
            residual: f64::NAN,
            ending,
        }
    }
}

/// Prints the report, and a line for each attempt.
impl<T> fmt::Display for Solved<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setup = self.attempts.iter().map(|attempt| attempt.setup).sum();
        write!(f, "{}", self.report.display_with_setup(&InterfaceNames::RUST, setup))?;
        self.attempts
            .iter()
            .zip(1..)
            .try_for_each(|(attempt, number): (_, usize)| write!(f, "\n{number}. {attempt}"))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", configuration(self.method, self.preconditioner), self.reason)?;
        let seconds = |time: Duration| time.as_secs_f64();
        if let AttemptEnd::NotBuilt(_) = &self.ending {
            return write!(f, "; {}", self.ending);
        }
        let iterations = if self.iterations == 1 { "iteration" } else { "iterations" };
        write!(f, "; {} {iterations}", self.iterations)?;
        if self.block > 1 {
            write!(f, " in a block of {} right-hand sides", self.block)?;
        }
        match self.preparation {
            Preparation::Built | Preparation::Ready => {}
            Preparation::Kept => write!(f, ", preconditioner of earlier values")?,
            Preparation::Renewed => write!(f, ", preconditioner renewed")?,
        }
        write!(f, ", setup {:.3} s, solve {:.3} s", seconds(self.setup), seconds(self.time))?;
        write!(f, ", relative residual {:.1e}, {}", self.residual, self.ending)
    }
}

impl fmt::Display for AttemptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttemptEnd::Ended(outcome) => write!(f, "{outcome}"),
            AttemptEnd::Switched { remaining, at_least, seconds, to, to_seconds } => write!(
                f,
                "switched to {to}: {} {remaining:.0} more iterations would take {}, {to} about {}",
                if *at_least { "at least" } else { "about" },
                approximate(*seconds),
                approximate(*to_seconds)
            ),
            AttemptEnd::Outdated => {
                write!(f, "stopped: a preconditioner of the new values is expected to be faster")
            }
            AttemptEnd::NotBuilt(why) => write!(f, "not built: {why}"),
        }
    }
}

/// A time in seconds, with about two digits.
fn approximate(seconds: f64) -> String {
    match seconds * 1e3 {
        millis if millis < 0.01 => "less than 0.01 ms".into(),
        millis if millis < 1e3 => {
            let digits = (1.0 - millis.max(1e-3).log10().floor()).max(0.0) as usize;
            format!("{millis:.digits$} ms")
        }
        _ => format!("{seconds:.1} s"),
    }
}

/// Name of a method with its preconditioner: `Cg with Jacobi`.
pub(super) fn configuration(method: Method, preconditioner: Preconditioner) -> String {
    match preconditioner {
        Preconditioner::None => method.to_string(),
        other => format!("{method} with {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_estimate_is_called_a_lower_bound() {
        let switched = |at_least| {
            let (seconds, to_seconds) = (0.21, 0.05);
            let to = "Cg with Amg".to_owned();
            AttemptEnd::Switched { remaining: 4200.0, at_least, seconds, to, to_seconds }.to_string()
        };
        let rest = "4200 more iterations would take 210 ms, Cg with Amg about 50 ms";
        assert_eq!(switched(false), format!("switched to Cg with Amg: about {rest}"));
        assert_eq!(approximate(1.2e-8), "less than 0.01 ms");
        assert_eq!(switched(true), format!("switched to Cg with Amg: at least {rest}"));
    }

    #[test]
    fn setup_and_solve_are_printed_separately() {
        let attempt = |setup| {
            let ending = AttemptEnd::Ended(Outcome::Converged);
            let attempt = Attempt::of(Method::Cg, Preconditioner::Jacobi, "a test", ending);
            Attempt { setup: Duration::from_millis(setup), ..attempt }
        };
        let mut report = Report::default();
        (report.iterations, report.time) = (2, Duration::from_millis(79));
        let mut solved = Solved { x: vec![0.0], report, attempts: vec![attempt(14), attempt(48)] };
        let text = solved.to_string();
        assert!(text.contains(" after 2 iterations, setup 0.062 s, solve 0.017 s, "), "{text}");
        // no setup, one iteration
        (solved.report.iterations, solved.attempts) = (1, vec![attempt(0)]);
        let text = solved.to_string();
        assert!(text.contains(" after 1 iteration, solve 0.079 s, "), "{text}");
    }
}
