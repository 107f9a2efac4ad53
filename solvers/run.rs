//! One run of a method, from a start until a stopping criterion holds: steps, observers, group-wise updates.
//!
//! A run is a state machine. A step is *in flight* from when it is queued until the host has read its numbers.
//! In host memory that is one step, which is complete when it is queued; on a GPU there are up to `lag`.
//!
//! ```text
//!            nothing in flight                 the run ends: its outcome,
//!   +-------------------------------> Pause -- or the rounding limit -------------------> End
//!   |                                   |                                                  ^
//!   |   finish the cycle, or fold x;    |                                                  |
//!   |   begin the next cycle            |                                                  |
//!   |  +--------------------------------+                                                  |
//!   |  v                                                                                   |
//! Queue ------------------------------> Read -- breakdown, NaN or infinity, converged -----+
//!   ^     steps in flight               |
//!   |                                   |
//!   +-----------------------------------+
//!       observers, stop rules, `Judge`
//! ```
//!
//! `Queueing` says whether `Queue` may queue more steps: *held* by a rule of `stop_soon_when`, which may
//! release it again, or *closed*, when the outcome of the run is known. The host then reads the steps in
//! flight, so that `x` is the last reported iterate, and the run ends in `Pause`.
//!
//! One iteration changes `x` only a little. If thousands of small changes were added to a large `x`, each
//! addition would round at the size of `x`, and the residual would contain `√n` rounding errors. So every
//! [`FOLD`] iterations the driver adds `x` to a second vector and sets `x` to zero (a *fold*; group-wise
//! updates of Sleijpen and van der Vorst 1996). Updates are then rounded at their own size, and the large
//! vector is rounded once per fold. A restart folds too.

use crate::callbacks::{Callbacks, Request};
use crate::deflation::Preconditioner;
use crate::driver::{Driver, Problem};
use crate::judge::{Judge, RunChecks, latest};
use crate::workspace::Workspace;
use crate::{
    Arithmetic, CancelToken, Ending, Error, Method, Outcome, Progress, Report, Result, Space, Steps, System,
    Vector,
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

impl<K: Method<V>, V: Vector> Driver<K, V> {
    /// Runs steps from the point where the method has started, until a stopping criterion holds.
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
        let (method, cycle) = (&self.method, self.method.cycle(workspace.space.len()));
        let judge = Judge {
            stopping: &self.stopping,
            on: of.on,
            symmetry: method.needs_symmetry(),
            minimizes_energy: method.minimizes_energy(),
            has_cycles: cycle.is_some(),
        };
        // an observer of iterates must see `x` before a later step changes it
        let observed = !self.callbacks.iterate_observers.is_empty();
        let lag = if observed { 1 } else { workspace.steps.lag(self.bytes_per_iteration(of.on)) };
        let replays = of.on.a.replays() && of.on.m.replays();
        let first = self.report.history.len() - 1;
        let mut run = SingleRun {
            method,
            system: of.system(&m, Arithmetic::Plain, 0),
            checks: judge.begin_checks(method.stagnation_window(), &self.report, threshold),
            judge,
            cancel: self.cancel.as_ref(),
            deadline: self.stopping.time_limit.map(|limit| (started, limit)),
            allowed,
            cycle,
            replays,
            first,
            callbacks: &mut self.callbacks,
            operator_norm: &mut self.operator_norm,
            report: &mut self.report,
            workspace,
            x,
            long: lag < V::Steps::LAG,
            // An operator that cannot be replayed may run on the host, where speculative steps after the last
            // one are expensive.
            lag: if replays { lag } else { lag.min(2) },
            queueing: Queueing::Open,
            queued: first,
            place: 0,
            folded_at: first,
        };
        run.method.begin(&run.system, &mut run.workspace.state)?;
        run.begin_steps()?;
        let mut state = State::Queue;
        loop {
            state = match state {
                State::Queue => run.queue()?,
                State::Read => run.read()?,
                State::Pause => run.pause()?,
                State::End(outcome) => return Ok(outcome),
            };
        }
    }
}

/// State of a run; the head of this file has a drawing.
enum State {
    /// Steps are queued, until `lag` are in flight or no more may be queued.
    Queue,
    /// Steps are in flight: the host waits for the oldest one.
    Read,
    /// No step is in flight: `x` can be folded or completed, and tested.
    Pause,
    End(Outcome),
}

/// The state of the queue of steps: open for further ones, or held back.
enum Queueing {
    Open,
    /// A rule of `stop_soon_when` returned true for the latest iteration. The run ends if the rule still does
    /// for the last step in flight.
    Held,
    /// The run ends with this outcome after the steps in flight.
    Closed(Outcome),
}

/// A run: what it works on, and its state between two steps.
struct SingleRun<'r, K: Method<V>, V: Vector> {
    method: &'r K,
    system: System<'r, V>,
    judge: Judge<'r, V>,
    cancel: Option<&'r CancelToken>,
    /// The start of the solve, and its time limit.
    deadline: Option<(Instant, Duration)>,
    /// Maximum number of iterations of the solve.
    allowed: usize,
    /// Number of steps of a cycle; `None` for methods without cycles.
    cycle: Option<usize>,
    /// True if operator and preconditioner queue the same work in every step.
    replays: bool,
    /// Number of iterations of the solve before this run.
    first: usize,
    callbacks: &'r mut Callbacks<V>,
    operator_norm: &'r mut Option<f64>,
    report: &'r mut Report,
    workspace: &'r mut Workspace<K, V>,
    x: &'r mut V,
    checks: RunChecks,
    /// True if steps are so long that fewer than usual are in flight.
    long: bool,
    /// Maximum number of steps in flight.
    lag: usize,
    queueing: Queueing,
    /// Number of iterations of the solve, including those in flight.
    queued: usize,
    /// Index of the next step in the cycle or period of the method.
    place: usize,
    /// `queued` at the last fold.
    folded_at: usize,
}

impl<K: Method<V>, V: Vector> SingleRun<'_, K, V> {
    /// `State::Queue`: queues steps.
    fn queue(&mut self) -> Result<State> {
        while self.may_queue() {
            match self.limit()? {
                Some(outcome) => self.queueing = Queueing::Closed(outcome),
                None => self.queue_steps()?,
            }
        }
        Ok(if self.workspace.steps.in_flight() == 0 { State::Pause } else { State::Read })
    }

    fn may_queue(&self) -> bool {
        let in_flight = self.workspace.steps.in_flight();
        let residuals = &self.report.history[self.first..];
        matches!(self.queueing, Queueing::Open)
            && in_flight < self.lag
            && !(self.long && nearly_done(residuals, in_flight, self.checks.threshold))
            && match self.cycle {
                Some(steps) => self.place != steps,
                None => self.queued < self.checks.check_at,
            }
    }

    /// Outcome if no further step is allowed: by the limit of iterations or of time, or the cancel token.
    fn limit(&self) -> Result<Option<Outcome>> {
        if self.queued >= self.allowed {
            return Ok(Some(Outcome::IterationLimit));
        }
        interrupted(&self.workspace.space, self.cancel, self.deadline)
    }

    /// Queues a batch of steps, or one step if there is no kernel for batches. Folds `x` if it is time.
    fn queue_steps(&mut self) -> Result<()> {
        let (count, place, replays) = (self.batch(), self.place, self.replays);
        let (method, system, x) = (self.method, &self.system, &mut *self.x);
        let Workspace { state, steps, .. } = &mut *self.workspace;
        let batched = method.run_batch(system, x, state, steps, count)?;
        self.queued += batched;
        if !self.callbacks.late_rules.is_empty() {
            // queue the next batch while this one runs
            self.lag = self.lag.max(batched + 1);
        }
        if batched == 0 {
            steps.run(place, replays, &mut |steps| method.step(system, x, state, place, steps))?;
            self.queued += 1;
            self.place = if self.cycle.is_some() { place + 1 } else { (place + 1) % method.places() };
        }
        if self.cycle.is_none() && self.queued - self.folded_at >= FOLD {
            self.fold()?;
        }
        Ok(())
    }

    /// Maximum number of steps in the next batch.
    fn batch(&self) -> usize {
        let batch = if self.callbacks.need_single_steps() {
            0
        } else if self.callbacks.late_rules.is_empty() {
            BATCH
        } else {
            BATCH.min(LATE_BATCH.max((self.queued - self.first) / LATE_SHARE))
        };
        batch.min(self.allowed - self.queued)
    }

    /// `State::Read`: waits for the oldest step in flight, reports it and decides whether the run goes on.
    fn read(&mut self) -> Result<State> {
        let iteration = self.report.history.len();
        let broken = |what, value| Ok(State::End(broken(what, value, iteration)));
        let Workspace { state, steps, numbers, lanczos, .. } = &mut *self.workspace;
        let last = match steps.next(numbers)? {
            Ending::Failed { what, value } => return broken(what, value),
            Ending::Completed { last } => last,
        };
        let residual = match self.method.process_step(state, numbers, lanczos) {
            Ok(residual) => residual,
            Err(Error::Breakdown { what, value }) => return broken(what, value),
            Err(error) => return Err(error),
        };
        self.report.history.push(residual);
        let request = self.call_back(&Progress { iteration, residual, threshold: self.checks.threshold })?;
        if !residual.is_finite() {
            return Ok(State::End(Outcome::NotFinite { what: "the residual" }));
        }
        if last || (self.cycle.is_some() && residual <= self.checks.threshold) {
            return Ok(State::End(Outcome::Converged));
        }
        self.decide(request)?;
        Ok(State::Queue)
    }

    /// Calls the observers and the rules of the user.
    fn call_back(&mut self, progress: &Progress) -> Result<Request> {
        self.callbacks.observe(progress);
        if self.cycle.is_none() && !self.callbacks.iterate_observers.is_empty() {
            let whole = self.workspace.whole(self.x)?;
            self.callbacks.observe_iterate(progress, whole);
        }
        self.callbacks.request(progress, &self.workspace.space)
    }

    /// Decides after a step whether more may be queued.
    fn decide(&mut self, request: Request) -> Result<()> {
        let Progress { iteration, residual, .. } = latest(self.report, self.checks.threshold);
        let (b, x) = (self.system.b, &*self.x);
        if let Queueing::Closed(_) = self.queueing {
            self.checks.detector.note_residual(iteration, residual);
        } else if request == Request::Stop {
            self.queueing = Queueing::Closed(Outcome::Stopped);
        } else {
            let ended = self.judge.progress(self.report, self.workspace, b, x, &mut self.checks)?;
            self.queueing = match ended {
                Some(outcome) => Queueing::Closed(outcome),
                None if request == Request::StopSoon => Queueing::Held,
                None => Queueing::Open,
            };
        }
        Ok(())
    }

    /// `State::Pause`: ends the run if steps may no longer be queued. Otherwise completes `x`, tests whether
    /// rounding makes the threshold unreachable if that is due, and begins the next cycle.
    fn pause(&mut self) -> Result<State> {
        match std::mem::replace(&mut self.queueing, Queueing::Open) {
            Queueing::Closed(outcome) => return Ok(State::End(outcome)),
            Queueing::Held => return Ok(State::End(Outcome::Stopped)),
            Queueing::Open => {}
        }
        if self.cycle.is_some() {
            self.method.finish(&self.system, self.x, &mut self.workspace.state)?;
            self.callbacks.observe_iterate(&latest(self.report, self.checks.threshold), self.x);
        } else if self.queued > self.folded_at {
            self.fold()?;
        }
        if self.queued >= self.checks.check_at {
            self.checks.check_at = self.first + 2 * (self.queued - self.first);
            let Self { judge, operator_norm, report, workspace, x, checks, .. } = self;
            if let Some(outcome) = judge.limit(operator_norm, report, workspace, self.system.b, x, checks)? {
                return Ok(State::End(outcome));
            }
        }
        if self.cycle.is_some() {
            self.method.start(&self.system, self.x, &mut self.workspace.state)?;
            self.method.begin(&self.system, &mut self.workspace.state)?;
            self.place = 0;
        }
        self.begin_steps()?;
        Ok(State::Queue)
    }

    /// Begins steps that end at the current threshold.
    fn begin_steps(&mut self) -> Result<()> {
        self.workspace.steps.begin(self.checks.threshold * self.checks.threshold)
    }

    fn fold(&mut self) -> Result<()> {
        self.workspace.fold(self.x)?;
        self.folded_at = self.queued;
        Ok(())
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

/// Returns whether one of the steps in flight will probably end the solve, assuming that they reduce the residual by
/// the same factor as the same number of steps before them.
fn nearly_done(residuals: &[f64], in_flight: usize, threshold: f64) -> bool {
    let Some(latest) = residuals.last() else { return false };
    let before = residuals.iter().rev().nth(in_flight);
    in_flight > 0 && before.is_some_and(|before| latest * latest <= threshold * before)
}

/// Returns whether any process that shares the vectors wants to end the solve, because its token was cancelled or its
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
