//! One run of a method, from a start until a stopping criterion holds: steps, observers, group-wise updates.
//!
//! One iteration changes `x` only a little. If thousands of small changes were added to a large `x`, each
//! addition would round at the size of `x`, and the residual would contain `√n` rounding errors. So every
//! [`FOLD`] iterations the driver adds `x` to a second vector and sets `x` to zero (a *fold*; group-wise
//! updates of Sleijpen and van der Vorst 1996). Updates are then rounded at their own size, and the large
//! vector is rounded once per fold. A restart folds too.

use crate::deflation::Preconditioner;
use crate::driver::{Driver, Operators, Problem};
use crate::stagnation::StagnationDetector;
use crate::workspace::Workspace;
use crate::{
    Arithmetic, CancelToken, Element, Ending, Error, Evidence, Method, Outcome, Progress, Report, Result,
    Space, StagnationWindow, Steps, Stopping, Symmetry, Vector,
};
use std::time::{Duration, Instant};

/// Maximum number of steps in one batch (one launch). The time limit and the cancel token are checked between
/// batches.
const BATCH: usize = 256;
/// Maximum number of steps in a batch while rules of `stop_soon_when` exist, or `1 / LATE_SHARE` of
/// all iterations so far if that is more.
const LATE_BATCH: usize = 64;
const LATE_SHARE: usize = 4;
/// Iterations between two folds. A fold reads or writes five vectors, a few thousandths of those that the
/// iterations read or write.
pub(crate) const FOLD: usize = 256;
/// Iterations before the first check whether rounding makes the tolerance unreachable. The interval doubles
/// after each check.
const FIRST_CHECK: usize = 256;
/// The tolerance is raised to this fraction of the residual left by rounding `x`. That residual is an
/// estimate of the mean, so the residual of a particular `x` can be smaller.
const BELOW_LIMIT: f64 = 1.0 / 16.0;
/// `x` counts as too large if the residual that rounding `x` leaves exceeds this fraction of the larger of
/// the first residual and `‖b‖`.
pub(crate) const OUT_OF_BOUNDS: f64 = 0.01;

impl<K: Method<V>, V: Vector> Driver<K, V> {
    /// Runs steps from the point where the method has started, until a stopping criterion holds.
    ///
    /// When the host decides to stop, steps may still be queued. The host waits for these steps and reports
    /// them, so that `x` is the last reported iterate.
    pub(crate) fn run(
        &mut self,
        of: Problem<'_, V>,
        x: &mut V,
        workspace: &mut Workspace<K, V>,
        started: Instant,
        threshold: f64,
        allowed: usize,
    ) -> Result<Outcome> {
        let m = Preconditioner::new(of.on.m, self.null_space.as_ref());
        let system = of.system(&m, Arithmetic::Plain, 0);
        let deadline = self.stopping.time_limit.map(|limit| (started, limit));
        let method = &self.method;
        let replays = of.on.a.replays() && of.on.m.replays();
        let lag = workspace.steps.lag(self.bytes_per_iteration(of.on));
        let cycle = method.cycle(workspace.space.len());
        let judge = Judge {
            stopping: &self.stopping,
            on: of.on,
            symmetry: method.needs_symmetry(),
            has_cycles: cycle.is_some(),
        };
        let report = &mut self.report;
        let mut course = judge.course(method.stagnation_window(), report, threshold);
        let first = report.history.len() - 1;
        let (mut queued, mut place, mut ending) = (first, 0, None);
        let mut folded_at = first;
        method.begin(&system, &mut workspace.state)?;
        workspace.steps.begin(course.threshold * course.threshold)?;
        // Whether a rule of `stop_soon_when` has returned true: nothing more is queued until the steps in
        // flight have been reported to it.
        let mut held = false;
        // An observer of iterates must see `x` before a later step changes it.
        let mut lag = if self.iterate_observers.is_empty() { lag } else { 1 };
        let long = lag < V::Steps::LAG;
        // An operator that cannot be replayed may run on the host, where speculative steps after the last one
        // are expensive.
        if !replays {
            lag = lag.min(2);
        }
        loop {
            while ending.is_none()
                && !held
                && workspace.steps.in_flight() < lag
                && !(long
                    && nearly_done(&report.history[first..], workspace.steps.in_flight(), course.threshold))
                && cycle != Some(place)
                && (cycle.is_some() || queued < course.check_at)
            {
                if queued >= allowed {
                    ending = Some(Outcome::IterationLimit);
                } else if let Some(interrupted) =
                    interrupted(&workspace.space, self.cancel.as_ref(), deadline)?
                {
                    ending = Some(interrupted);
                } else {
                    // A stop rule of the user may end the solve after any iteration, and an observer needs
                    // every iterate, so iterations must not share a launch.
                    let alone = !self.stop_rules.is_empty() || !self.iterate_observers.is_empty();
                    let batch = match self.late_rules.is_empty() {
                        _ if alone => 0,
                        true => BATCH,
                        false => BATCH.min(LATE_BATCH.max((queued - first) / LATE_SHARE)),
                    };
                    let count = batch.min(allowed - queued);
                    let Workspace { state, steps, .. } = &mut *workspace;
                    let batched = method.run_batch(&system, x, state, steps, count)?;
                    queued += batched;
                    if !self.late_rules.is_empty() {
                        // queue the next batch while this one runs
                        lag = lag.max(batched + 1);
                    }
                    if batched == 0 {
                        steps
                            .run(place, replays, &mut |steps| method.step(&system, x, state, place, steps))?;
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
                if let Some(outcome) = ending.take().or(held.then_some(Outcome::Stopped)) {
                    return Ok(outcome);
                }
                if cycle.is_some() {
                    method.finish(&system, x, &mut workspace.state)?;
                    let progress = latest(report, course.threshold);
                    self.iterate_observers.iter_mut().for_each(|observer| observer(&progress, x));
                } else if queued > folded_at {
                    workspace.fold(x)?;
                    folded_at = queued;
                }
                if queued >= course.check_at {
                    course.check_at = first + 2 * (queued - first);
                    let norm = &mut self.operator_norm;
                    if let Some(outcome) = judge.limit(norm, report, workspace, of.b, x, &mut course)? {
                        return Ok(outcome);
                    }
                }
                if cycle.is_some() {
                    method.start(&system, x, &mut workspace.state)?;
                    method.begin(&system, &mut workspace.state)?;
                    place = 0;
                }
                workspace.steps.begin(course.threshold * course.threshold)?;
                continue;
            }
            let Workspace { state, steps, numbers, lanczos, .. } = &mut *workspace;
            let iteration = report.history.len();
            let broken = |what, value| broken(what, value, iteration);
            let (residual, last) = match steps.next(numbers)? {
                Ending::Failed { what, value } => return Ok(broken(what, value)),
                Ending::Completed { last } => match method.process_step(state, numbers, lanczos) {
                    Ok(residual) => (residual, last || (cycle.is_some() && residual <= course.threshold)),
                    Err(Error::Breakdown { what, value }) => return Ok(broken(what, value)),
                    Err(error) => return Err(error),
                },
            };
            report.history.push(residual);
            let progress = Progress { iteration, residual, threshold: course.threshold };
            for observer in &mut self.observers {
                observer(&progress);
            }
            if cycle.is_none() && !self.iterate_observers.is_empty() {
                let whole = workspace.whole(x)?;
                self.iterate_observers.iter_mut().for_each(|observer| observer(&progress, whole));
            }
            let mut stop = false;
            for rule in &mut self.stop_rules {
                stop |= rule(&progress);
            }
            held = false;
            for rule in &mut self.late_rules {
                held |= rule(&progress);
            }
            if !(self.stop_rules.is_empty() && self.late_rules.is_empty()) {
                let said = workspace.space.agree(if stop { 2 } else { held.into() })?;
                (stop, held) = (said > 1, said > 0);
            }
            if !residual.is_finite() {
                return Ok(Outcome::NotFinite { what: "the residual" });
            }
            if last {
                return Ok(Outcome::Converged);
            }
            if ending.is_some() {
                course.detector.note_residual(iteration, residual);
            } else if stop {
                ending = Some(Outcome::Stopped);
            } else {
                ending = judge.progress(report, workspace, of.b, x, &mut course)?;
            }
        }
    }
}

/// Outcome of a step that broke down: a quantity that must satisfy a condition (for example `⟨p, A p⟩ > 0`)
/// has the value `value`. [`Outcome::NotFinite`] if the value is infinite or NaN.
pub(crate) fn broken(what: &'static str, value: f64, iteration: usize) -> Outcome {
    match value.is_finite() {
        true => Outcome::Breakdown { what, value, iteration },
        false => Outcome::NotFinite { what },
    }
}

/// State of a run between checks of its residuals.
pub(crate) struct Course {
    detector: StagnationDetector,
    /// The residual norm to reach, which a check may raise.
    pub(crate) threshold: f64,
    /// The iteration of the next check whether rounding makes the threshold unreachable.
    pub(crate) check_at: usize,
    /// States whether `x` was too large at the previous check. One such check is not conclusive: a method may
    /// pass through large iterates.
    was_out: bool,
}

/// Decides after each step whether a run ends: by its residuals, and occasionally by tests of `x` and the
/// operators.
pub(crate) struct Judge<'s, V: Vector> {
    pub(crate) stopping: &'s Stopping,
    pub(crate) on: Operators<'s, V>,
    pub(crate) symmetry: Symmetry,
    pub(crate) has_cycles: bool,
}

impl<V: Vector> Judge<'_, V> {
    /// Begins a run from the latest residual of a report.
    pub(crate) fn course(
        &self,
        mut stagnation_window: StagnationWindow,
        report: &Report,
        threshold: f64,
    ) -> Course {
        stagnation_window.iterations =
            self.stopping.stagnation_window.unwrap_or(stagnation_window.iterations);
        let first = report.history.len() - 1;
        Course {
            detector: StagnationDetector::new(stagnation_window, first, report.true_residual),
            threshold,
            // With a tolerance of zero the caller wants all iterations.
            check_at: if threshold == 0.0 { usize::MAX } else { first + FIRST_CHECK },
            was_out: false,
        }
    }

    /// Raises the threshold to the rounding limit. Returns the outcome if `x` has become too large for any
    /// threshold. The whole solution must be either in `x` or folded.
    pub(crate) fn limit<K: Method<V>>(
        &self,
        norm: &mut Option<f64>,
        report: &Report,
        workspace: &mut Workspace<K, V>,
        b: &V,
        x: &V,
        course: &mut Course,
    ) -> Result<Option<Outcome>> {
        let near = workspace.limit_near(norm, self.on.a, b, x, course.threshold)?;
        if let Some([limit, scale]) = near {
            let most = report.rhs_norm.max(report.history[0]);
            let never_stagnates = self.stopping.stagnation_window == Some(usize::MAX);
            let out = limit > OUT_OF_BOUNDS * most && !never_stagnates;
            // The norms of the iterates of conjugate gradients never decrease, so one check is enough.
            if out && (course.was_out || !workspace.lanczos.is_empty()) {
                let evidence = Evidence::Singular { condition: scale / most };
                return Ok(Some(Outcome::Stagnated(evidence)));
            }
            course.was_out = out;
            course.threshold = course.threshold.max(BELOW_LIMIT * limit);
        }
        Ok(None)
    }

    /// Outcome if the latest residuals of a report show divergence or stagnation.
    pub(crate) fn progress<K: Method<V>>(
        &self,
        report: &Report,
        workspace: &mut Workspace<K, V>,
        b: &V,
        x: &V,
        course: &mut Course,
    ) -> Result<Option<Outcome>> {
        let Progress { iteration, residual, threshold } = latest(report, course.threshold);
        let detector = &mut course.detector;
        let check_due = detector.note_residual(iteration, residual);
        if residual > self.stopping.divergence * report.history[0] {
            return Ok(Some(Outcome::Diverged));
        }
        let evidence = if check_due {
            let epsilon = V::Elem::EPSILON;
            let lanczos = &workspace.lanczos;
            let energy = (!lanczos.is_empty()).then(|| detector.energy_evidence(iteration, lanczos, epsilon));
            // `M` is tested, not `P M⁻¹`: if `M` is symmetric, so is `P M⁻¹` on the complement of the null
            // space.
            let unsymmetric = match self.symmetry {
                Symmetry::Nothing => None,
                needed => workspace.unsymmetric(needed, self.on, b, x)?,
            };
            match (unsymmetric, energy) {
                (Some(what), _) => Some(Evidence::Unsymmetric { what }),
                (None, Some(energy)) => energy,
                (None, None) => Some(detector.residual_evidence(iteration)),
            }
        } else if self.has_cycles && self.stopping.stagnation_window.is_none() {
            detector.rate_evidence(&report.history, threshold, self.stopping.max_iterations)
        } else {
            None
        };
        Ok(evidence.map(Outcome::Stagnated))
    }
}

/// Progress after the latest iteration.
pub(crate) fn latest(report: &Report, threshold: f64) -> Progress {
    let iteration = report.history.len() - 1;
    Progress { iteration, residual: report.history[iteration], threshold }
}

/// Whether one of the steps in flight will probably end the solve, assuming that they reduce the residual by
/// the same factor as the same number of steps before them.
fn nearly_done(residuals: &[f64], in_flight: usize, threshold: f64) -> bool {
    let Some(latest) = residuals.last() else { return false };
    let before = residuals.iter().rev().nth(in_flight);
    in_flight > 0 && before.is_some_and(|before| latest * latest <= threshold * before)
}

/// Whether any process that shares the vectors wants to end the solve, because its token was cancelled or its
/// time limit is reached. All processes get the same answer.
pub(crate) fn interrupted<S: Space>(
    space: &S,
    cancel: Option<&CancelToken>,
    deadline: Option<(Instant, Duration)>,
) -> Result<Option<Outcome>> {
    if cancel.is_none() && deadline.is_none() {
        return Ok(space.is_interrupted().then_some(Outcome::Cancelled));
    }
    let cancelled = cancel.is_some_and(CancelToken::is_cancelled) || space.is_interrupted();
    let late = deadline.is_some_and(|(started, limit)| started.elapsed() >= limit);
    Ok(match space.agree(if cancelled { 2 } else { late.into() })? {
        0 => None,
        1 => Some(Outcome::TimeLimit),
        _ => Some(Outcome::Cancelled),
    })
}

#[cfg(test)]
mod tests {
    use super::nearly_done;

    #[test]
    fn a_step_is_the_last_if_residuals_fall_as_before() {
        assert!(nearly_done(&[1.0, 1e-2], 1, 1e-4));
        assert!(!nearly_done(&[1.0, 1e-2], 1, 9e-5));
        assert!(nearly_done(&[1.0, 1e-1, 1e-2], 2, 1e-4));
        // nothing in flight; too few residuals known; residual not small enough
        for (residuals, in_flight, threshold) in [
            (&[1.0, 1e-2][..], 0, 1.0),
            (&[1.0], 1, 1.0),
            (&[], 1, 1.0),
            (&[1.0, f64::NAN], 1, 1.0),
            (&[1.0, 1e-9], 1, 0.0),
        ] {
            assert!(!nearly_done(residuals, in_flight, threshold));
        }
    }
}
