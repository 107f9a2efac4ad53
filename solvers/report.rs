//! How a solve ended and what it cost.

use std::fmt;
use std::time::Duration;

/// How a solve ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The recomputed true residual meets the tolerance, within a factor of two.
    Converged,
    /// The iterations allowed are spent; `x` is the last iterate.
    IterationLimit,
    /// The time allowed is spent; `x` is the last iterate.
    TimeLimit,
    /// A [`CancelToken`](crate::CancelToken) was pulled.
    Cancelled,
    /// The user's stopping closure said so.
    Stopped,
    /// A number that the method divides by left its range; `x` is the last sound iterate.
    Breakdown {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: f64,
        /// In which iteration.
        iteration: usize,
    },
    /// The residual grew beyond [`Stopping::divergence`](crate::Stopping::divergence) times its first value.
    Diverged,
    /// The residual no longer falls; `x` is the last iterate.
    Stagnated,
    /// An input or a result is infinite or NaN.
    NotFinite {
        /// What is not finite.
        whence: &'static str,
    },
}

/// The extreme eigenvalues of `M⁻¹A` as conjugate gradients saw them: estimates from inside the spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConditionEstimate {
    /// The smallest eigenvalue.
    pub smallest: f64,
    /// The largest eigenvalue.
    pub largest: f64,
}

impl ConditionEstimate {
    /// The condition number.
    pub fn ratio(&self) -> f64 {
        self.largest / self.smallest
    }
}

/// What a solve did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// Iterations made.
    pub iterations: usize,
    /// `‖r‖` as the method's recurrence gave it, from the initial residual on; a restart adds none.
    pub history: Vec<f64>,
    /// `‖b − A x‖`, computed afresh from the `x` returned.
    pub true_residual: f64,
    /// `‖b‖`
    pub rhs_norm: f64,
    /// The norm of the part of `b` that was taken out, because it lies along the null space that was given; zero without one.
    /// `rhs_norm` and the residuals are those of the rest.
    pub removed: f64,
    /// How often the method was started again from the true residual.
    pub restarts: usize,
    /// The time from the call to the return.
    pub time: Duration,
    /// Bytes that the iterations had to move: the operators' arrays and the vectors, as the method's budget has them.
    pub bytes: u64,
    /// The condition of `M⁻¹A`, where the method learns it.
    pub condition: Option<ConditionEstimate>,
}

impl Default for Report {
    fn default() -> Self {
        Report {
            outcome: Outcome::IterationLimit,
            iterations: 0,
            history: Vec::new(),
            true_residual: f64::NAN,
            rhs_norm: f64::NAN,
            removed: 0.0,
            restarts: 0,
            time: Duration::ZERO,
            bytes: 0,
            condition: None,
        }
    }
}

impl Report {
    /// Whether the solution meets the tolerance.
    pub fn converged(&self) -> bool {
        self.outcome == Outcome::Converged
    }

    /// `‖b − A x‖ / ‖b‖`, zero for a zero right-hand side solved exactly.
    pub fn relative_residual(&self) -> f64 {
        if self.true_residual == 0.0 { 0.0 } else { self.true_residual / self.rhs_norm }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Converged => write!(f, "converged")?,
            Outcome::IterationLimit => write!(f, "stopped at the iteration limit")?,
            Outcome::TimeLimit => write!(f, "stopped at the time limit")?,
            Outcome::Cancelled => write!(f, "cancelled")?,
            Outcome::Stopped => write!(f, "stopped by the caller")?,
            Outcome::Breakdown { what, value, iteration } => {
                write!(f, "broke down in iteration {iteration}: {what} = {value:e}")?;
            }
            Outcome::Diverged => write!(f, "diverged")?,
            Outcome::Stagnated => write!(f, "stagnated")?,
            Outcome::NotFinite { whence } => write!(f, "{whence} is not finite")?,
        }
        write!(
            f,
            " after {} iterations in {:.3} s, relative residual {:.2e}",
            self.iterations,
            self.time.as_secs_f64(),
            self.relative_residual()
        )?;
        if let Some(condition) = &self.condition {
            write!(f, ", condition about {:.1e}", condition.ratio())?;
        }
        Ok(())
    }
}

/// A solution in host memory, in the user's numbering.
#[derive(Clone, Debug)]
pub struct Solution<T> {
    /// The solution.
    pub x: Vec<T>,
    /// How it was found.
    pub report: Report,
}
