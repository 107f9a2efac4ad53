//! The driver: stopping, observation, restarts and the last word on a solution, once for all methods.
//!
//! What `x` gains in an iteration is small beside it. Added thousands of times, each time rounded to the last place of `x`,
//! it would leave a residual of `√n` roundings. So what was gained is put aside every [`FOLD`] iterations, where it is
//! rounded once, and the method goes on from zero (group-wise updates: Sleijpen and van der Vorst 1996). A restart does so
//! too: the correction has digits of its own.

use crate::deflation::Deflated;
use crate::stagnation::Watch;
use crate::verdict::{converged, finite_or, norm, not_finite, trivial};
use crate::workspace::Workspace;
use crate::{
    Arithmetic, CancelToken, ElemOf, Element, Ending, Error, Evidence, LinearOperator, Method, Outcome,
    Progress, Result, Solver, Space, Steps, Symmetry, System, Vector, lanczos,
};
use std::time::{Duration, Instant};

/// Steps queued at once, at most: limits and tokens are looked at in between.
const LEAP: usize = 256;
/// Iterations after which the gain is put aside: five vectors moved, a few thousandths of what the iterations moved.
const FOLD: usize = 256;
/// Iterations after which it is first asked whether the tolerance can be met; then after twice as many.
const FIRST_CHECK: usize = 256;
/// Backward errors up to so many roundings are worth a second look in twice the precision.
const NEAR_ROUNDING: f64 = 1000.0;
/// A residual of up to so many times what rounding `x` leaves is at the limit: products round as well.
const AT_LIMIT: f64 = 8.0;
/// Residuals up to so many times what rounding `x` leaves are at the limit where starting again did not help either.
const AT_LIMIT_AT_LAST: f64 = 64.0;
/// The method may stop at this part of what rounding `x` leaves, which is a mean: the residual of one `x` can be below it.
const BELOW_LIMIT: f64 = 1.0 / 16.0;
/// The part of the first residual that rounding `x` may leave before `x` is called out of bounds.
const OUT_OF_BOUNDS: f64 = 0.01;
/// Iterations of the last run near the limit: what roundings of products have left is rough, and falls soon if at all.
const LAST_RUN: usize = 100;
/// How often a method is started again after breakdowns that follow each other without progress.
const ATTEMPTS: usize = 16;

impl<K, A, M> Solver<K, A, M>
where
    A: LinearOperator,
    K: Method<A::Vector>,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Iterates on what is left of the system without the null space, where there is one.
    pub(crate) fn deflate(
        &mut self,
        b: &A::Vector,
        x: &mut A::Vector,
        workspace: &mut Workspace<K, A::Vector>,
        guess: Arithmetic,
        started: Instant,
    ) -> Result<Outcome> {
        self.report.removed = 0.0;
        let Some(null_space) = &self.null_space else {
            return self.iterate(b, x, workspace, guess, started);
        };
        let mut rhs = match workspace.rhs.take() {
            Some(rhs) => rhs,
            None => workspace.space.zeros()?,
        };
        rhs.copy_from(b);
        null_space.remove(&mut rhs);
        self.report.removed = null_space.removed()?;
        null_space.remove(x);
        let outcome = self.iterate(&rhs, x, workspace, guess, started);
        workspace.rhs = Some(rhs);
        outcome
    }

    /// Runs the method until something ends it, and again from the true residual where that may help.
    fn iterate(
        &mut self,
        b: &A::Vector,
        x: &mut A::Vector,
        workspace: &mut Workspace<K, A::Vector>,
        guess: Arithmetic,
        started: Instant,
    ) -> Result<Outcome> {
        let report = &mut self.report;
        report.true_residual = f64::NAN;
        report.rhs_norm = norm::<A::Vector>(b.norm_squared())?;
        if !report.rhs_norm.is_finite() {
            return not_finite(b);
        }
        if report.rhs_norm == 0.0 {
            return trivial(b, x, report);
        }
        // what was taken out leaves its rounding behind
        let rounding = 10.0 * <ElemOf<A::Vector>>::EPSILON * report.removed;
        let threshold = self.stopping.threshold(report.rhs_norm).max(rounding);
        let mut first = self.start(b, x, workspace, guess, 0)?;
        if first > threshold && threshold > 0.0 && self.near_rounding() {
            first = self.start(b, x, workspace, Arithmetic::Precise, 0)?;
        }
        self.report.history.push(first);
        if !first.is_finite() {
            return Ok(Outcome::NotFinite { whence: "the initial residual" });
        }
        if first <= threshold {
            return converged(first, threshold, &self.report, x);
        }
        workspace.steps.forget();
        let mut attempt = 0;
        let mut allowed = self.stopping.max_iterations;
        // the solution before the last run, and its residual
        let mut best: Option<(A::Vector, f64)> = None;
        loop {
            let ended = self.run(b, x, workspace, started, threshold, allowed);
            workspace.unfold(x);
            let outcome = ended?;
            let m = Deflated { m: &self.preconditioner, null_space: self.null_space.as_ref() };
            let system = System { a: &self.operator, m: &m, b, arithmetic: Arithmetic::Plain, attempt };
            self.method.finish(&system, x, &mut workspace.work)?;
            // The recurrence has given its residual; now it is computed, as that of the point to start from again.
            let before = self.report.true_residual;
            let broken = matches!(outcome, Outcome::Breakdown { .. });
            attempt = if broken { attempt + 1 } else { 0 };
            let mut truth = self.start(b, x, workspace, Arithmetic::Plain, attempt)?;
            // who asks for a residual of zero is not waited for with the last digits of one
            let near = threshold > 0.0 && self.near_rounding();
            if truth > threshold && near {
                truth = self.start(b, x, workspace, Arithmetic::Precise, attempt)?;
            }
            if truth <= threshold {
                return converged(truth, threshold, &self.report, x);
            }
            if outcome == Outcome::Converged && truth <= 2.0 * threshold {
                return converged(truth, 2.0 * threshold, &self.report, x);
            }
            if let Some((best, residual)) = &best {
                if truth.is_nan() || truth > *residual {
                    x.copy_from(best);
                    self.start(b, x, workspace, Arithmetic::Precise, 0)?;
                }
                let limit = workspace.rounding_limit(&self.operator, x)?;
                let ended = match outcome {
                    Outcome::Cancelled | Outcome::Stopped | Outcome::TimeLimit => outcome,
                    _ => Outcome::PrecisionLimit { element: <ElemOf<A::Vector>>::NAME, limit },
                };
                return finite_or(ended, x);
            }
            if !truth.is_finite() && !matches!(outcome, Outcome::NotFinite { .. }) {
                return Ok(Outcome::NotFinite { whence: "the solution" });
            }
            let progress = truth < 0.5 * before;
            let claimed = outcome == Outcome::Converged;
            if near && (claimed || matches!(outcome, Outcome::Stagnated(_) | Outcome::Breakdown { .. })) {
                let limit = workspace.rounding_limit(&self.operator, x)?;
                let most = if claimed && progress { AT_LIMIT } else { AT_LIMIT_AT_LAST };
                let bounded = limit <= OUT_OF_BOUNDS * self.report.rhs_norm.max(self.report.history[0]);
                if bounded && truth <= most * limit {
                    let made = self.report.history.len() - 1;
                    if !(claimed && progress && made < allowed) {
                        let element = <ElemOf<A::Vector>>::NAME;
                        return finite_or(Outcome::PrecisionLimit { element, limit }, x);
                    }
                    let mut copy = workspace.space.zeros()?;
                    copy.copy_from(x);
                    best = Some((copy, truth));
                    allowed = allowed.min(made + LAST_RUN);
                }
                if !bounded && claimed && !progress {
                    let evidence = Evidence::Singular { condition: self.growth() };
                    return finite_or(Outcome::Stagnated(evidence), x);
                }
            }
            let recovers = self.method.restarts_after_breakdown();
            // where `x` has not moved there are two ways to go, and no more
            let most_attempts = if truth == before { 2 } else { ATTEMPTS };
            match outcome {
                Outcome::Converged if progress => {}
                Outcome::Converged => return finite_or(Outcome::Stagnated(Evidence::Restart), x),
                Outcome::NotFinite { .. } if recovers && progress => {}
                Outcome::Breakdown { .. } if recovers && progress => attempt = 0,
                Outcome::Breakdown { .. } if recovers && attempt <= most_attempts => {}
                ended => return finite_or(ended, x),
            }
            self.report.restarts += 1;
            if self.method.cycle(workspace.space.len()).is_none() {
                workspace.fold(x)?;
            }
            self.report.condition =
                lanczos::widest(self.report.condition, lanczos::condition(&workspace.lanczos));
            workspace.lanczos.clear();
        }
    }

    /// Starts the method at `x`; reports and returns the residual, and reports the backward error,
    /// `‖r‖ / (‖A‖ ‖x‖ + ‖b‖)`.
    fn start(
        &mut self,
        b: &A::Vector,
        x: &A::Vector,
        workspace: &mut Workspace<K, A::Vector>,
        arithmetic: Arithmetic,
        attempt: usize,
    ) -> Result<f64> {
        let m = Deflated { m: &self.preconditioner, null_space: self.null_space.as_ref() };
        let system = System { a: &self.operator, m: &m, b, arithmetic, attempt };
        let r_squared = self.method.start(&system, x, &mut workspace.work)?;
        let x_squared = x.norm_squared();
        let scale = workspace.operator_norm(&self.operator, b)?;
        let report = &mut self.report;
        report.true_residual = norm::<A::Vector>(r_squared)?;
        let length = norm::<A::Vector>(x_squared)?;
        report.backward_error = report.true_residual / (scale * length + report.rhs_norm);
        Ok(report.true_residual)
    }

    /// `‖A‖ ‖x‖` beside the first residual or `b`, the larger: the condition of the matrix is that at least.
    fn growth(&self) -> f64 {
        let report = &self.report;
        let scale = report.true_residual / report.backward_error - report.rhs_norm;
        scale / report.rhs_norm.max(report.history[0])
    }

    /// Whether the residual that was computed last is so small that its own rounding may decide.
    fn near_rounding(&self) -> bool {
        self.report.backward_error <= NEAR_ROUNDING * <ElemOf<A::Vector>>::EPSILON
    }

    /// Steps from where the method has started, until one of the stopping rules holds.
    ///
    /// Steps may be on their way when the host decides to stop: they are waited for, and reported, so that `x` is the
    /// iterate reported last.
    fn run(
        &mut self,
        b: &A::Vector,
        x: &mut A::Vector,
        workspace: &mut Workspace<K, A::Vector>,
        started: Instant,
        mut threshold: f64,
        allowed: usize,
    ) -> Result<Outcome> {
        let m = Deflated { m: &self.preconditioner, null_space: self.null_space.as_ref() };
        let system = System { a: &self.operator, m: &m, b, arithmetic: Arithmetic::Plain, attempt: 0 };
        let deadline = self.stopping.time_limit.map(|limit| (started, limit));
        let method = &self.method;
        let replays = self.operator.replays() && self.preconditioner.replays();
        let cycle = method.cycle(workspace.space.len());
        let report = &mut self.report;
        let mut patience = method.patience();
        patience.iterations = self.stopping.patience.unwrap_or(patience.iterations);
        let first = report.history.len() - 1;
        let mut watch = Watch::new(patience, first, report.true_residual);
        let (mut queued, mut place, mut ending) = (first, 0, None);
        // whether `x` was out of bounds when it was looked at: a method may pass through large iterates
        let mut was_out = false;
        let (mut folded_at, mut check_at) = (first, first + FIRST_CHECK);
        // who asks for a residual of zero asks for all iterations
        if threshold == 0.0 {
            check_at = usize::MAX;
        }
        workspace.steps.begin(threshold * threshold)?;
        loop {
            while ending.is_none()
                && workspace.steps.in_flight() < <A::Vector as Vector>::Steps::LAG
                && cycle != Some(place)
                && (cycle.is_some() || queued < check_at)
            {
                if queued >= allowed {
                    ending = Some(Outcome::IterationLimit);
                } else if let Some(interrupted) =
                    interrupted(&workspace.space, self.cancel.as_ref(), deadline)?
                {
                    ending = Some(interrupted);
                } else {
                    // a rule may stop the solve after any iteration: then no iterations run in one piece
                    let leap = if self.stop_rules.is_empty() { LEAP } else { 0 };
                    let count = leap.min(allowed - queued);
                    let Workspace { work, steps, .. } = &mut *workspace;
                    let made = method.leap(&system, x, work, steps, count)?;
                    queued += made;
                    if made == 0 {
                        steps
                            .run(place, replays, &mut |steps| method.step(&system, x, work, place, steps))?;
                        queued += 1;
                        place = if cycle.is_some() { place + 1 } else { (place + 1) % method.places() };
                    }
                    if cycle.is_none() && queued - folded_at >= FOLD {
                        workspace.fold(x)?;
                        folded_at = queued;
                    }
                }
            }
            if workspace.steps.in_flight() == 0 {
                if let Some(outcome) = ending {
                    return Ok(outcome);
                }
                if cycle.is_some() {
                    method.finish(&system, x, &mut workspace.work)?;
                } else if queued > folded_at {
                    workspace.fold(x)?;
                    folded_at = queued;
                }
                if queued >= check_at {
                    check_at = first + 2 * (queued - first);
                    let near = workspace.limit_near(&self.operator, b, x, threshold)?;
                    if let Some([limit, scale]) = near {
                        let most = report.rhs_norm.max(report.history[0]);
                        let patient = self.stopping.patience == Some(usize::MAX);
                        let out = limit > OUT_OF_BOUNDS * most && !patient;
                        // the iterates of conjugate gradients only grow
                        if out && (was_out || !workspace.lanczos.is_empty()) {
                            return Ok(Outcome::Stagnated(Evidence::Singular { condition: scale / most }));
                        }
                        was_out = out;
                        threshold = threshold.max(BELOW_LIMIT * limit);
                    }
                }
                if cycle.is_some() {
                    method.start(&system, x, &mut workspace.work)?;
                    place = 0;
                }
                workspace.steps.begin(threshold * threshold)?;
                continue;
            }
            let Workspace { space, work, steps, numbers, lanczos, .. } = &mut *workspace;
            let iteration = report.history.len();
            let broken = |what, value: f64| match value.is_finite() {
                true => Outcome::Breakdown { what, value, iteration },
                false => Outcome::NotFinite { whence: what },
            };
            let (residual, last) = match steps.next(numbers)? {
                Ending::Failed { what, value } => return Ok(broken(what, value)),
                Ending::Known { last } => match method.learn(work, numbers, lanczos) {
                    Ok(residual) => (residual, last || (cycle.is_some() && residual <= threshold)),
                    Err(Error::Breakdown { what, value }) => return Ok(broken(what, value)),
                    Err(error) => return Err(error),
                },
            };
            report.history.push(residual);
            let progress = Progress { iteration, residual, threshold };
            for observer in &mut self.observers {
                observer(&progress);
            }
            let mut stop = false;
            for rule in &mut self.stop_rules {
                stop |= rule(&progress);
            }
            if !self.stop_rules.is_empty() {
                stop = space.agree(stop.into())? != 0;
            }
            if !residual.is_finite() {
                return Ok(Outcome::NotFinite { whence: "the residual" });
            }
            if last {
                return Ok(Outcome::Converged);
            }
            let pauses = watch.pauses(iteration, residual);
            if ending.is_some() {
                continue;
            }
            if stop {
                ending = Some(Outcome::Stopped);
            } else if residual > self.stopping.divergence * report.history[0] {
                ending = Some(Outcome::Diverged);
            } else if pauses {
                let epsilon = <ElemOf<A::Vector>>::EPSILON;
                let energy = (!lanczos.is_empty()).then(|| watch.energy(iteration, lanczos, epsilon));
                // with a null space `P M⁻¹` is symmetric where `M` is, on what is left of the space
                let unsymmetric = match method.needs_symmetry() {
                    Symmetry::Nothing => None,
                    needed => workspace.unsymmetric(needed, &self.operator, &self.preconditioner, b, x)?,
                };
                ending = match (unsymmetric, energy) {
                    (Some(what), _) => Some(Evidence::Unsymmetric { what }),
                    (None, Some(energy)) => energy,
                    (None, None) => Some(watch.residual(iteration)),
                }
                .map(Outcome::Stagnated);
            } else if cycle.is_some() && self.stopping.patience.is_none() {
                ending = watch
                    .pace(&report.history, threshold, self.stopping.max_iterations)
                    .map(Outcome::Stagnated);
            }
        }
    }
}

/// Whether a process that shares the vectors of a space wants to end the solve: because a token was pulled, or because its
/// time is up. All of them get the same answer.
fn interrupted<S: Space>(
    space: &S,
    cancel: Option<&CancelToken>,
    deadline: Option<(Instant, Duration)>,
) -> Result<Option<Outcome>> {
    if cancel.is_none() && deadline.is_none() {
        return Ok(None);
    }
    let cancelled = cancel.is_some_and(CancelToken::is_cancelled);
    let late = deadline.is_some_and(|(started, limit)| started.elapsed() >= limit);
    Ok(match space.agree(if cancelled { 2 } else { late.into() })? {
        0 => None,
        1 => Some(Outcome::TimeLimit),
        _ => Some(Outcome::Cancelled),
    })
}
