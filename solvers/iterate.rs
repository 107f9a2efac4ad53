//! The driver of all methods: initial residual, final check of a solution, and restarts.
//!
//! A run ends when the residual of the recurrence meets the tolerance. The driver then computes the true
//! residual `b − A x`, and only that decides on convergence. If it is too large, the method restarts from it
//! as long as each run at least halves the distance of the residual to the tolerance. After breakdowns,
//! methods that can recover restart up to 16 times without such progress. Of 399 solves of real systems to
//! 1e-8 or 1e-10 (five methods with Jacobi), 13 missed the tolerance at this check, by a factor of less than
//! two: after restarts 10 of them converged, with 0.3 % more iterations in all, and three ended at the limit
//! of rounding.

use crate::deflation::Preconditioner;
use crate::driver::{Driver, Operators, Problem};
use crate::judge::{OUT_OF_BOUNDS, latest};
use crate::verdict::{converged, finite_or, norm, norms, not_finite, trivial};
use crate::workspace::Workspace;
use crate::{Arithmetic, Element, Evidence, Method, Outcome, Result, Space, Steps, Vector, lanczos};
use std::ops::ControlFlow;
use std::time::Instant;

/// Backward error, in epsilons, up to which the residual is recomputed in twice the working precision. Guess.
const NEAR_ROUNDING: f64 = 1000.0;
/// A residual is considered to be at the rounding limit if it is at most this many times the residual left by
/// rounding `x`, because products round as well. Guess, chosen as a few roundings.
const AT_LIMIT: f64 = 8.0;
/// Like `AT_LIMIT`, after a run that ended without meeting the tolerance, or that did not halve the distance of
/// the residual to it. Guess, chosen as eight times it.
const AT_LIMIT_AT_LAST: f64 = 64.0;
/// Maximum iterations of the last run near the rounding limit. The residual left there by the rounding of
/// products is oscillatory, so it is reduced early or not at all. Guess.
const LAST_RUN: usize = 100;
/// Maximum restarts after consecutive breakdowns without progress between them. Guess, chosen so that a
/// solve ends although each start gains a little.
const ATTEMPTS: usize = 16;

/// State that persists over the restarts of one solve.
struct Restarts<V> {
    /// Number of consecutive breakdowns before the current run, without progress between them.
    attempt: usize,
    /// True residual norm at the last start.
    before: f64,
    /// Maximum iterations of the solve.
    allowed: usize,
    /// Solution before the last run near the rounding limit, and its residual norm.
    best: Option<(V, f64)>,
}

impl<K: Method<V>, V: Vector> Driver<K, V> {
    /// Removes the null space from `b` and `x`, if one was declared, then iterates.
    pub(crate) fn deflate(
        &mut self,
        of: Problem<'_, V>,
        x: &mut V,
        workspace: &mut Workspace<K, V>,
        guess: Arithmetic,
        started: Instant,
    ) -> Result<Outcome> {
        self.report.removed = 0.0;
        let Some(null_space) = &self.null_space else {
            return self.iterate(of, x, workspace, guess, started);
        };
        let mut rhs = match workspace.rhs.take() {
            Some(rhs) => rhs,
            None => workspace.space.zeros()?,
        };
        rhs.copy_from(of.b);
        null_space.remove(&mut rhs);
        self.report.removed = null_space.removed()?;
        null_space.remove(x);
        let outcome = self.iterate(Problem { b: &rhs, ..of }, x, workspace, guess, started);
        workspace.rhs = Some(rhs);
        outcome
    }

    /// Computes the initial residual, and iterates unless the solve ends with it.
    fn iterate(
        &mut self,
        of: Problem<'_, V>,
        x: &mut V,
        workspace: &mut Workspace<K, V>,
        guess: Arithmetic,
        started: Instant,
    ) -> Result<Outcome> {
        let threshold = match self.first_residual(of, x, workspace, guess)? {
            ControlFlow::Break(outcome) => return Ok(outcome),
            ControlFlow::Continue(threshold) => threshold,
        };
        workspace.steps.discard_recordings();
        self.run_with_restarts(of, x, workspace, threshold, started, None)
    }

    /// Runs the method until it stops, and restarts it from the true residual where that may help. `ran` is
    /// the outcome of the first run, if it was made in lockstep with other columns.
    pub(crate) fn run_with_restarts(
        &mut self,
        of: Problem<'_, V>,
        x: &mut V,
        workspace: &mut Workspace<K, V>,
        threshold: f64,
        started: Instant,
        mut ran: Option<Outcome>,
    ) -> Result<Outcome> {
        let mut restarts = Restarts {
            attempt: 0,
            before: self.report.true_residual,
            allowed: self.stopping.max_iterations,
            best: None,
        };
        loop {
            let ended = match ran.take() {
                Some(outcome) => Ok(outcome),
                None => self.run(of, x, workspace, started, threshold, restarts.allowed),
            };
            workspace.unfold(x);
            let outcome = ended?;
            let m = Preconditioner::new(of.on.m, self.null_space.as_ref());
            let attempt = restarts.attempt;
            let system = of.system(&m, Arithmetic::Plain, attempt);
            self.method.finish(&system, x, &mut workspace.state)?;
            if self.method.cycle(workspace.space.len()).is_some() {
                let progress = latest(&self.report, threshold);
                self.callbacks.observe_iterate(&progress, x);
            }
            if let ControlFlow::Break(outcome) =
                self.start_again(of, x, workspace, threshold, outcome, &mut restarts)?
            {
                return self.best_solution(of, x, workspace, outcome);
            }
        }
    }

    /// Computes the initial residual. Returns the residual norm to reach, or the outcome if no iteration is
    /// needed or possible.
    pub(crate) fn first_residual(
        &mut self,
        of: Problem<'_, V>,
        x: &mut V,
        workspace: &mut Workspace<K, V>,
        guess: Arithmetic,
    ) -> Result<ControlFlow<Outcome, f64>> {
        let report = &mut self.report;
        report.true_residual = f64::NAN;
        let guess = if guess == Arithmetic::Zero {
            report.rhs_norm = norm::<V>(of.b.norm_squared())?;
            guess
        } else {
            let [of_b, of_x] = norms::<V>([of.b.norm_squared(), x.norm_squared()])?;
            report.rhs_norm = of_b;
            // with x = 0 no product is needed
            if of_x == 0.0 { Arithmetic::Zero } else { guess }
        };
        if !report.rhs_norm.is_finite() {
            return not_finite(of.b).map(ControlFlow::Break);
        }
        if report.rhs_norm == 0.0 {
            return trivial(of.b, x, report).map(ControlFlow::Break);
        }
        // Removing the null space from `b` leaves rounding errors proportional to the removed component.
        let rounding = 10.0 * V::Elem::EPSILON * report.removed;
        let threshold = self.stopping.threshold(report.rhs_norm).max(rounding);
        let mut first = self.start(of, x, workspace, guess, 0)?;
        if first > threshold && threshold > 0.0 && self.near_rounding() {
            first = self.start(of, x, workspace, Arithmetic::Precise, 0)?;
        }
        self.report.history.push(first);
        if !first.is_finite() {
            return Ok(ControlFlow::Break(Outcome::NotFinite { what: "the initial residual" }));
        }
        if first <= threshold {
            let outcome = converged(first, threshold, &self.report, x, workspace.length)?;
            return Ok(ControlFlow::Break(outcome));
        }
        workspace.fallback.keep_guess(x, first, guess == Arithmetic::Zero)?;
        Ok(ControlFlow::Continue(threshold))
    }

    /// Computes the true residual after a run, and prepares to restart from it. Returns the outcome if the
    /// solve ends.
    fn start_again(
        &mut self,
        of: Problem<'_, V>,
        x: &mut V,
        workspace: &mut Workspace<K, V>,
        threshold: f64,
        outcome: Outcome,
        restarts: &mut Restarts<V>,
    ) -> Result<ControlFlow<Outcome>> {
        let end = |ended, x: &_, length| finite_or(ended, x, length).map(ControlFlow::Break);
        let broken = matches!(outcome, Outcome::Breakdown { .. });
        restarts.attempt = if broken { restarts.attempt + 1 } else { 0 };
        let (before, attempt) = (restarts.before, restarts.attempt);
        let mut truth = self.start(of, x, workspace, Arithmetic::Plain, attempt)?;
        // With a tolerance of zero no residual is small enough, so a more precise residual would be wasted.
        let near = threshold > 0.0 && self.near_rounding();
        if truth > threshold && near {
            truth = self.start(of, x, workspace, Arithmetic::Precise, attempt)?;
        }
        if truth <= threshold {
            return converged(truth, threshold, &self.report, x, workspace.length).map(ControlFlow::Break);
        }
        if let Some((best, residual)) = &restarts.best {
            if truth.is_nan() || truth > *residual {
                x.copy_from(best);
                self.start(of, x, workspace, Arithmetic::Precise, 0)?;
            }
            let limit = workspace.rounding_limit(of.on.a, x)?;
            let ended = match outcome {
                Outcome::Cancelled | Outcome::Stopped | Outcome::TimeLimit => outcome,
                _ => Outcome::PrecisionLimit { element: V::Elem::NAME, limit },
            };
            return end(ended, x, workspace.length);
        }
        if !truth.is_finite() && !matches!(outcome, Outcome::NotFinite { .. }) {
            return Ok(ControlFlow::Break(Outcome::NotFinite { what: "the solution" }));
        }
        let halved = truth - threshold < 0.5 * (before - threshold);
        let claimed = outcome == Outcome::Converged; // by the recurrence
        if near
            && (claimed || matches!(outcome, Outcome::Stagnated(_) | Outcome::Breakdown { .. }))
            && let ControlFlow::Break(outcome) =
                self.end_at_limit(of.on, x, workspace, truth, [claimed, halved], restarts)?
        {
            return end(outcome, x, workspace.length);
        }
        let recovers = self.method.restarts_after_breakdown();
        // If `x` has not changed, only two starts differ: with the true residual as shadow vector, and with
        // its signs flipped.
        let most_attempts = if truth == before { 2 } else { ATTEMPTS };
        match outcome {
            Outcome::Converged if halved => {}
            Outcome::Converged => {
                return end(Outcome::Stagnated(Evidence::Restart), x, workspace.length);
            }
            Outcome::NotFinite { .. } if recovers && halved => {}
            Outcome::Breakdown { .. } if recovers && halved => restarts.attempt = 0,
            Outcome::Breakdown { .. } if recovers && attempt <= most_attempts => {}
            ended => return end(ended, x, workspace.length),
        }
        self.report.restarts += 1;
        restarts.before = truth;
        workspace.fallback.keep_iterate(x, truth)?;
        if self.method.cycle(workspace.space.len()).is_none() {
            workspace.fold(x)?;
        }
        self.report.condition =
            lanczos::widest(self.report.condition, lanczos::condition(&workspace.lanczos));
        workspace.lanczos.clear();
        Ok(ControlFlow::Continue(()))
    }

    /// Decides near the rounding limit, after a run that met the tolerance or made no progress: returns the
    /// outcome if no restart can reduce the residual further. A restart that may reduce it is the last one.
    /// `claimed` says that the residual of the recurrence met the tolerance, `halved` that the run halved the
    /// distance of the true residual to it.
    fn end_at_limit(
        &mut self,
        on: Operators<'_, V>,
        x: &V,
        workspace: &mut Workspace<K, V>,
        truth: f64,
        [claimed, halved]: [bool; 2],
        restarts: &mut Restarts<V>,
    ) -> Result<ControlFlow<Outcome>> {
        let limit = workspace.rounding_limit(on.a, x)?;
        let most = if claimed && halved { AT_LIMIT } else { AT_LIMIT_AT_LAST };
        let bounded = limit <= OUT_OF_BOUNDS * self.report.rhs_norm.max(self.report.history[0]);
        if bounded && truth <= most * limit {
            let iterations = self.report.history.len() - 1;
            if !(claimed && halved && iterations < restarts.allowed) {
                let element = V::Elem::NAME;
                return Ok(ControlFlow::Break(Outcome::PrecisionLimit { element, limit }));
            }
            let mut copy = workspace.space.zeros()?;
            copy.copy_from(x);
            restarts.best = Some((copy, truth));
            restarts.allowed = restarts.allowed.min(iterations + LAST_RUN);
        }
        if !bounded && claimed && !halved {
            let evidence = Evidence::Singular { condition: self.condition_from_below() };
            return Ok(ControlFlow::Break(Outcome::Stagnated(evidence)));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Starts the method at `x`. Stores the true residual and the backward error `‖r‖ / (‖A‖ ‖x‖ + ‖b‖)` in
    /// the report and returns the residual.
    pub(crate) fn start(
        &mut self,
        of: Problem<'_, V>,
        x: &V,
        workspace: &mut Workspace<K, V>,
        arithmetic: Arithmetic,
        attempt: usize,
    ) -> Result<f64> {
        let m = Preconditioner::new(of.on.m, self.null_space.as_ref());
        let system = of.system(&m, arithmetic, attempt);
        let r_squared = self.method.start(&system, x, &mut workspace.state)?;
        let report = &mut self.report;
        if arithmetic == Arithmetic::Zero {
            // r = b, and the host need not wait for the device
            (report.true_residual, report.backward_error, workspace.length) = (report.rhs_norm, 1.0, 0.0);
            return Ok(report.true_residual);
        }
        let x_squared = x.norm_squared();
        let scale = workspace.operator_norm(&mut self.operator_norm, of.on.a, of.b)?;
        [report.true_residual, workspace.length] = norms::<V>([r_squared, x_squared])?;
        report.backward_error = report.true_residual / (scale * workspace.length + report.rhs_norm);
        Ok(report.true_residual)
    }

    /// Lower bound of the condition number of `A`: `‖A‖ ‖x‖` divided by the larger of the initial residual
    /// and `‖b‖`.
    pub(crate) fn condition_from_below(&self) -> f64 {
        let report = &self.report;
        let scale = report.true_residual / report.backward_error - report.rhs_norm;
        scale / report.rhs_norm.max(report.history[0])
    }

    /// Returns whether the latest true residual is so small that rounding errors in its computation matter.
    pub(crate) fn near_rounding(&self) -> bool {
        self.report.backward_error <= NEAR_ROUNDING * V::Elem::EPSILON
    }
}
