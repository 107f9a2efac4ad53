//! Outcome and report of a solve.

use crate::Evidence;
use std::fmt;
use std::time::Duration;

/// Outcome of a solve.
///
/// The `x` of a solve that did not converge has no larger residual than the initial guess: if the last iterate
/// has one, `x` is an earlier iterate or the guess. There are two exceptions. A rule of the caller that ends a solve
/// gets the last iterate, so that the caller can continue from it. Conjugate gradients that a limit or a token has
/// ended return the last iterate if its recomputed residual agrees with that of the recurrence, because the error
/// may have decreased in the energy norm while the residual increased.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The recomputed residual meets the tolerance: `‖b − A x‖ ≤ max(rtol ‖b‖, atol)`.
    Converged,
    /// The iteration limit is reached; `x` is the last iterate, unless an earlier solution has a smaller residual
    /// (see [`Outcome`]).
    IterationLimit,
    /// The time limit is reached; `x` is as for the iteration limit.
    TimeLimit,
    /// A [`CancelToken`](crate::CancelToken) was cancelled.
    Cancelled,
    /// A closure given to [`Solver::stop_when`](crate::Solver::stop_when) returned true.
    Stopped,
    /// A number that the method divides by is zero, negative or not finite where it must not be; `x` is the
    /// last valid iterate, or an earlier solution with a smaller residual.
    Breakdown {
        /// Name of the number.
        what: &'static str,
        /// Value of the number.
        value: f64,
        /// Iteration of the breakdown.
        iteration: usize,
    },
    /// The residual grew to more than [`Stopping::divergence`](crate::Stopping::divergence) times its initial
    /// value.
    Diverged,
    /// The tolerance will not be reached, for the reason given; `x` is the last iterate, or an earlier solution
    /// with a smaller residual.
    Stagnated(Evidence),
    /// The tolerance is smaller than the residual that rounding `x` to its element type leaves, and the
    /// residual has reached that limit. No solution of this element type can be much better.
    PrecisionLimit {
        /// Element type.
        element: &'static str,
        /// Expected residual norm of a solution that is exact except for the rounding of its entries.
        limit: f64,
    },
    /// The matrix is singular and the system inconsistent: the residual of the returned `x` is orthogonal to
    /// the range of the matrix, so no `x` has a much smaller residual. Reported by plans, not by solvers.
    Inconsistent {
        /// Norm of the least-squares residual.
        residual: f64,
    },
    /// An input or a result is infinite or NaN.
    NotFinite {
        /// Name of what is not finite.
        what: &'static str,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Converged => write!(f, "converged"),
            Outcome::IterationLimit => write!(f, "stopped at the iteration limit"),
            Outcome::TimeLimit => write!(f, "stopped at the time limit"),
            Outcome::Cancelled => write!(f, "cancelled"),
            Outcome::Stopped => write!(f, "stopped by the caller"),
            Outcome::Breakdown { what, value, iteration } => {
                write!(f, "broke down in iteration {iteration}: {what} = {value:e}")
            }
            Outcome::Diverged => write!(f, "diverged"),
            Outcome::Stagnated(evidence) => write!(f, "stagnated ({evidence})"),
            Outcome::PrecisionLimit { element, .. } => write!(f, "at the limit of {element}"),
            Outcome::Inconsistent { residual: least } => {
                write!(f, "the system is singular and has no solution: {least:.2e} is the least residual")
            }
            Outcome::NotFinite { what } => write!(f, "{what} is not finite"),
        }
    }
}

/// Estimates of the extreme eigenvalues of `M⁻¹A`, from the coefficients of conjugate gradients. They are
/// inside the spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConditionEstimate {
    /// The smallest eigenvalue.
    pub smallest: f64,
    /// The largest eigenvalue.
    pub largest: f64,
}

impl ConditionEstimate {
    /// The condition number; infinite if rounding has made the smallest eigenvalue zero or negative.
    pub fn ratio(&self) -> f64 {
        if self.smallest > 0.0 { self.largest / self.smallest } else { f64::INFINITY }
    }
}

/// Report of a solve: outcome, iterations, residuals and cost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Outcome of the solve.
    pub outcome: Outcome,
    /// Number of iterations.
    pub iterations: usize,
    /// `‖r‖` by the method's recurrence after each iteration, beginning with the initial residual. A restart
    /// adds no entry.
    pub history: Vec<f64>,
    /// `‖b − A x‖`, computed with a product with the returned `x`.
    pub true_residual: f64,
    /// The normwise backward error, `‖b − A x‖ / (‖A‖ ‖x‖ + ‖b‖)`: `x` solves exactly a system whose matrix
    /// and right-hand side differ from the given ones by at most this relative amount. No solution has a
    /// backward error much below the element type's epsilon. `‖A‖` is estimated from below, by two steps of
    /// the power method, in the first solve and after `operator_mut` or `operators_mut`. On finite-element
    /// matrices it is off by a factor of two or three.
    pub backward_error: f64,
    /// `‖b‖`
    pub rhs_norm: f64,
    /// Norm of the component of `b` along the declared null space, which was removed from `b`; zero without a
    /// null space. `rhs_norm` and the residuals are those of the remaining system.
    pub removed: f64,
    /// Number of restarts from the true residual.
    pub restarts: usize,
    /// Number of right-hand sides whose solves shared one search space ([`Solver::solve_block`](crate::Solver::solve_block)),
    /// this one included; 1 for a separate solve.
    pub block: usize,
    /// Wall-clock time of the solve.
    pub time: Duration,
    /// Memory traffic of the iterations in bytes, according to the method's cost model: arrays of the
    /// operators, and vectors.
    pub bytes: u64,
    /// Estimate of the condition number of `M⁻¹A`, from methods that compute one.
    pub condition: Option<ConditionEstimate>,
}

impl Default for Report {
    fn default() -> Self {
        Report {
            outcome: Outcome::IterationLimit,
            iterations: 0,
            history: Vec::new(),
            true_residual: f64::NAN,
            backward_error: f64::NAN,
            rhs_norm: f64::NAN,
            removed: 0.0,
            restarts: 0,
            block: 1,
            time: Duration::ZERO,
            bytes: 0,
            condition: None,
        }
    }
}

impl Report {
    /// Returns whether the solution meets the tolerance.
    pub fn converged(&self) -> bool {
        self.outcome == Outcome::Converged
    }

    /// `‖b − A x‖ / ‖b‖`; zero if the residual is zero, even with `b = 0`.
    pub fn relative_residual(&self) -> f64 {
        if self.true_residual == 0.0 { 0.0 } else { self.true_residual / self.rhs_norm }
    }
}

/// A solution in host memory, in the user's order of unknowns.
#[derive(Clone, Debug)]
pub struct Solution<T> {
    /// The solution.
    pub x: Vec<T>,
    /// Report of the solve.
    pub report: Report,
}
