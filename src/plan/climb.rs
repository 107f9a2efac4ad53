//! One solve: from rung to rung, until the residual is small enough.
//!
//! ```text
//! begin with what cost the least so far, or with what has become worth building
//! loop:
//!     build the rung; if that fails, the next
//!     run it from the best x so far, until it ends or another one promises to be faster
//!     r = b − A x anew; small enough: done
//!     next: the cheapest of what is untried and of what was left
//!     all tried: is r orthogonal to the range of A? then the system has no solution
//! ```

use super::least_squares::least_squares;
use super::rung::{Watch, Watcher};
use super::solved::{Attempt, AttemptEnd};
use super::{Backend, Candidate, Method, PlannedSolver, Preconditioner};
use crate::{CancelToken, Csr, Error, Interrupt, Operator, Outcome, Real, Report, Result};
use krysp_solvers::{Evidence, LinearOperator, Scalar, Space, Stopping, Vector};
use std::ops::RangeInclusive;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Iterations of a rung at most, if the user sets no limit.
const ITERATIONS: usize = 100_000;

/// What a rung may cost that has no other after it: those of the least residual.
pub(super) const LAST: f64 = 20_000.0;

/// `Aᵀ r` counts as zero if it is at most this power of the epsilon beside `r`, scaled by the norms of the columns: an `x` with a
/// much smaller residual would have to be larger than `r` by the inverse, beyond what elements can balance.
const UNKNOWN: f64 = 0.75;

/// As `UNKNOWN`, where the matrix is known to be singular.
const SINGULAR: f64 = 0.375;

/// A rung that has cost this part of `LAST` without an end has failed.
const EXHAUSTED: f64 = 0.5;

/// What it costs, about, to find out whether there is a solution at all: done before something is tried again that costs more.
const DEAR: f64 = 2_000.0;

/// Iterations that are timed where costs are counted by the clock, with so many solves ahead for each: enough that what a solve
/// takes beside them counts for little.
const TIMED: RangeInclusive<usize> = 32..=256;
const AHEAD: usize = 4;

/// Where the attempts of one solve stand.
pub(super) struct Standing {
    /// What the rest of each costs that has been left: infinite for what has failed, nothing for what is untried.
    pub(super) rest: Vec<Option<f64>>,
    /// What the iterations of each have cost.
    pub(super) made: Vec<f64>,
    /// Whether the matrix has turned out not to be positive definite.
    pub(super) indefinite: bool,
}

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// [`PlannedSolver::solve_on`], where squares of `b` neither overflow nor vanish. The cancel token and the time limit act in all of it.
    pub(super) fn climb(&mut self, b: &M::Vector, x: &mut M::Vector, own: bool) -> Result<&Report> {
        let started = Instant::now();
        let mut interrupt = Interrupt::new(&self.cancel.clone().unwrap_or_default());
        if let Some(limit) = self.memory.options.time_limit {
            interrupt = interrupt.time_limit(limit);
        }
        interrupt.run(|| self.try_candidates(b, x, own, started))?;
        Ok(&self.report)
    }

    /// Why the solve was interrupted.
    fn interruption(&self, started: Instant) -> Outcome {
        let cancelled = self.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        match self.memory.options.time_limit {
            Some(limit) if !cancelled && started.elapsed() >= limit => Outcome::TimeLimit,
            _ => Outcome::Cancelled,
        }
    }

    /// Runs one candidate after the other until the residual is small enough.
    fn try_candidates(
        &mut self,
        b: &M::Vector,
        x: &mut M::Vector,
        own: bool,
        started: Instant,
    ) -> Result<()> {
        if self.goes_by_clock() && self.memory.paces[0].is_infinite() {
            self.calibrate(b)?;
        }
        self.attempts.clear();
        self.report = Report::default();
        self.report.rhs_norm = norm(b)?;
        let mut best: Option<(M::Vector, f64)> = None;
        let mut refused = None;
        // what a user asked for by name is not left
        let alone = self.memory.candidates.len() == 1;
        let (mut iterations, mut bytes) = (0, 0);
        if self.memory.known.iter().all(|cost| cost.is_some_and(f64::is_infinite)) {
            // another right-hand side may be easier
            self.memory.known.fill(None);
        }
        let count = self.memory.candidates.len();
        let mut standing = Standing { rest: vec![None; count], made: vec![0.0; count], indefinite: false };
        let mut explained = alone;
        let mut renumbered = None;
        let mut at = self.first();
        while let Some(index) = at {
            if self.memory.options.max_iterations.is_some_and(|most| iterations >= most) {
                self.report.outcome = Outcome::IterationLimit;
                break;
            }
            let begun = Instant::now();
            if own && self.has_earned_numbering(index, &standing) {
                renumbered = self.renumber(b, x, &mut best)?;
            }
            let b = renumbered.as_ref().unwrap_or(b);
            let numbering = begun.elapsed();
            let fresh = !self.is_ready(index);
            let promised = match self.other(&standing, index) {
                _ if alone => f64::INFINITY,
                Some(next) => self.price(next, &standing).min(LAST),
                None => LAST,
            };
            let setup = match self.build(index, promised) {
                Ok(setup) => setup + numbering,
                Err(Error::Lost) => return Err(Error::Lost),
                Err(Error::Interrupted(_)) => {
                    self.report.outcome = self.interruption(started);
                    if best.is_none() {
                        let b = renumbered.as_ref().unwrap_or(b);
                        let (operator, rhs_norm) = (self.operator()?, self.report.rhs_norm);
                        let residual =
                            recomputed::<T, M>(&self.matrix, operator, [b, x], &mut None, rhs_norm)?;
                        self.keep_best(&mut best, x, residual)?;
                    }
                    break;
                }
                // factors that take more than was foretold are halted: they may be gone on with
                Err(Error::Unsuitable { .. })
                    if self.memory.candidates[index].preconditioner == Preconditioner::Lu =>
                {
                    let spent = self.patience(index, promised);
                    self.memory.spent += spent;
                    self.memory.candidates[index].setup = spent;
                    at = self.next(&standing);
                    continue;
                }
                Err(error) => {
                    standing.indefinite |= matches!(error, Error::NotPositive { .. });
                    refused = Some(error);
                    (self.memory.known[index], standing.rest[index]) =
                        (Some(f64::INFINITY), Some(f64::INFINITY));
                    at = self.next(&standing);
                    continue;
                }
            };
            let next = if alone { vec![] } else { self.nexts(&standing, index) };
            let weigh = self.weigh(next.clone());
            let plain =
                (index != 0 || !self.memory.candidates[0].is_measure()).then(|| self.plain(&standing));
            let Candidate { iteration: each, hope, .. } = self.memory.candidates[index];
            let hope = match (standing.rest[index], self.memory.known[index]) {
                // what was left and is gone on with makes as many again: two attempts do not leave each other for ever
                (Some(_), _) => standing.made[index] / each,
                // what it took before, it may take again
                (None, Some(cost)) if cost.is_finite() => hope.max(cost / each),
                (None, _) => hope,
            };
            let hidden = self.memory.candidates[index].needs_definite();
            lock(&self.watch).pace.begin((each, hope), hidden, next, weigh, plain);
            let allowed =
                self.memory.options.max_iterations.map_or(ITERATIONS, |most| most.saturating_sub(iterations));
            let stopping = Stopping {
                rtol: self.memory.options.rtol,
                max_iterations: allowed,
                time_limit: self
                    .memory
                    .options
                    .time_limit
                    .map(|limit| limit.saturating_sub(started.elapsed())),
                ..Stopping::new(T::EPSILON)
            };
            let before = best.as_ref().map_or(1.0, |(_, least)| *least);
            let (mut report, residual) = self.run(b, x, stopping)?;
            if report.outcome == Outcome::Cancelled {
                report.outcome = self.interruption(started);
            }
            self.reweigh();
            self.clock(index, &report);
            let each = self.memory.candidates[index].iteration;
            iterations += report.iterations;
            bytes += report.bytes;
            self.memory.spent += if fresh { self.memory.candidates[index].setup } else { 0.0 };
            self.memory.spent += report.iterations as f64 * each;
            standing.made[index] += report.iterations as f64 * each;
            let solved = residual <= self.memory.options.rtol;
            let threshold = self.memory.options.rtol * report.rhs_norm;
            let ending = match &report.outcome {
                _ if solved => AttemptEnd::Ended(Outcome::Converged),
                Outcome::Stopped => {
                    let watcher = lock(&self.watch);
                    AttemptEnd::Switched { remaining: watcher.pace.needed }
                }
                outcome => AttemptEnd::Ended(outcome.clone()),
            };
            let rest = match &ending {
                _ if solved => 0.0,
                // it has had what the last of all may cost
                AttemptEnd::Switched { .. } if standing.made[index] >= EXHAUSTED * LAST => f64::INFINITY,
                // only conjugate gradients may be near where the residual is larger than before: the others come last
                AttemptEnd::Switched { .. }
                    if residual > before && !self.memory.candidates[index].method.needs_symmetry() =>
                {
                    LAST
                }
                AttemptEnd::Switched { remaining } => remaining * each,
                _ => f64::INFINITY,
            };
            standing.rest[index] = Some(rest);
            self.memory.known[index] = Some(standing.made[index] + rest);
            standing.indefinite |= matches!(report.outcome, Outcome::Breakdown { value, .. }
                if value < 0.0 && self.memory.candidates[index].needs_definite());
            let no_better =
                matches!(report.outcome, Outcome::PrecisionLimit { limit, .. } if limit > threshold);
            let over = matches!(
                report.outcome,
                Outcome::Cancelled | Outcome::TimeLimit | Outcome::NotFinite { whence: "`b`" }
            ) || no_better
                || self.memory.options.max_iterations.is_some_and(|most| iterations >= most);
            let (made, time) = (report.iterations, report.time);
            let rung = Attempt::new(&self.memory.candidates[index], setup, residual, ending);
            self.attempts.push(Attempt { iterations: made, time, ..rung });
            if matches!(report.outcome, Outcome::Stopped | Outcome::Converged) && !solved {
                report.outcome = Outcome::Stagnated(Evidence::Residual { iterations: made });
            }
            self.report = report;
            if solved {
                self.cold = fresh.then_some(index);
                self.report.outcome = Outcome::Converged;
                self.report.true_residual = residual * self.report.rhs_norm;
                break;
            }
            self.keep_best(&mut best, x, residual)?;
            if over {
                break;
            }
            at = self.next(&standing);
            // before much more is spent: is there a solution at all?
            let goes_on = |next: usize| {
                let price = self.price(next, &standing);
                price <= LAST && (standing.rest[next].is_none() || !M::ON_HOST) || price <= DEAR
            };
            let left =
                self.memory.options.max_iterations.map_or(usize::MAX, |most| most.saturating_sub(iterations));
            if !explained && left > 0 && (self.has_failed_direct(&standing) || !at.is_some_and(goes_on)) {
                explained = true;
                iterations += self.explain(&standing, b, x, &mut best, left)?;
                if matches!(self.report.outcome, Outcome::Converged | Outcome::Inconsistent { .. }) {
                    break;
                }
            }
        }
        if standing.indefinite {
            // what needs a definite matrix is not tried for another right-hand side either
            let all = self.memory.known.iter_mut().zip(&self.memory.candidates);
            all.filter(|(_, one)| one.needs_definite()).for_each(|(known, _)| *known = Some(f64::INFINITY));
        }
        if let (Some(error), true) = (refused, self.attempts.iter().all(|rung| rung.residual.is_nan())) {
            return Err(error);
        }
        self.memory.solves += 1;
        self.report.iterations = iterations;
        self.report.bytes = bytes;
        self.report.time = started.elapsed();
        Ok(())
    }

    /// Notes the time of some iterations of the first rung, after as many that are not counted: memory is new to those.
    fn calibrate(&mut self, b: &M::Vector) -> Result<()> {
        // what cannot be built is no measure
        if self.build(0, LAST).is_err() {
            return Ok(());
        }
        let ahead = self.memory.options.solves.unwrap_or(0);
        let watch = self.watch.clone();
        let observers = std::mem::take(&mut lock(&watch).observers);
        let mut times = || -> Result<()> {
            for _ in 0..2 {
                lock(&watch).pace.begin((1.0, 0.0), false, vec![], None, None);
                let mut x = b.space().zeros()?;
                let stopping = Stopping {
                    rtol: self.memory.options.rtol,
                    max_iterations: (ahead / AHEAD).clamp(*TIMED.start(), *TIMED.end()),
                    ..Stopping::new(T::EPSILON)
                };
                let Some((_, running)) = &mut self.running else { return Err(Error::Lost) };
                *running.stopping() = stopping;
                let report = running.solve_into(b, &mut x)?.clone();
                self.clock(0, &report);
            }
            Ok(())
        };
        let timed = times();
        lock(&watch).observers = observers;
        timed
    }

    /// Runs the running rung. A solver is content with twice the tolerance: then it goes on from there.
    fn run(&mut self, b: &M::Vector, x: &mut M::Vector, stopping: Stopping) -> Result<(Report, f64)> {
        let Some((_, running)) = &mut self.running else { return Err(Error::Lost) };
        let r = &mut self.residual;
        let Stopping { rtol, max_iterations, time_limit, .. } = stopping;
        *running.stopping() = stopping;
        let mut report = running.solve_into(b, x)?.clone();
        let mut residual = recomputed::<T, M>(&self.matrix, running.operator(), [b, x], r, report.rhs_norm)?;
        if report.converged() && residual > rtol && report.iterations < max_iterations {
            let (iterations, bytes, time) = (report.iterations, report.bytes, report.time);
            let stopping = running.stopping();
            stopping.rtol = 0.5 * rtol;
            stopping.max_iterations = max_iterations - iterations;
            stopping.time_limit = time_limit.map(|limit| limit.saturating_sub(time));
            report = running.solve_into(b, x)?.clone();
            residual = recomputed::<T, M>(&self.matrix, running.operator(), [b, x], r, report.rhs_norm)?;
            report.iterations += iterations;
            report.bytes += bytes;
            report.time += time;
        }
        Ok((report, residual))
    }

    /// Keeps `x` if it is the best so far; else `x` becomes the best so far again, or zero.
    fn keep_best(
        &mut self,
        best: &mut Option<(M::Vector, f64)>,
        x: &mut M::Vector,
        residual: f64,
    ) -> Result<()> {
        // beyond one, zero is better
        if residual < best.as_ref().map_or(1.0, |(_, least)| *least) {
            let mut copy = x.space().zeros()?;
            copy.copy_from(x);
            *best = Some((copy, residual));
        }
        let least = match best {
            Some((best, least)) => {
                x.copy_from(best);
                *least
            }
            None => {
                *x = x.space().zeros()?;
                1.0
            }
        };
        self.report.true_residual = least * self.report.rhs_norm;
        Ok(())
    }

    /// Nothing is left to try: looks for the least residual, and whether it is the least, in at most so many iterations. Returns
    /// the iterations made.
    fn explain(
        &mut self,
        standing: &Standing,
        b: &M::Vector,
        x: &mut M::Vector,
        best: &mut Option<(M::Vector, f64)>,
        most: usize,
    ) -> Result<usize> {
        let space = self.space()?.clone();
        let mut host = [vec![T::default(); space.len()], vec![T::default(); space.len()]];
        space.store(b, &mut host[0])?;
        space.store(x, &mut host[1])?;
        let [b_host, x_host] = &host;
        let slope = T::EPSILON.powf(if self.memory.singular { SINGULAR } else { UNKNOWN });
        let factorised = self.has_failed_direct(standing);
        let least = match least_squares(&self.matrix, b_host, x_host, slope, factorised, most) {
            // the next candidate is not built either
            Err(Error::Interrupted(_)) | Ok(None) => return Ok(0),
            Ok(Some(least)) => least,
            Err(error) => return Err(error),
        };
        space.load(&least.x, x)?;
        let residual =
            recomputed::<T, M>(&self.matrix, self.operator()?, [b, x], &mut None, self.report.rhs_norm)?;
        self.keep_best(best, x, residual)?;
        let norm = self.report.true_residual;
        self.report.outcome = match residual <= self.memory.options.rtol {
            true => Outcome::Converged,
            false if least.certain => Outcome::Inconsistent { least: norm },
            false => self.report.outcome.clone(),
        };
        let reason = "is the system consistent?";
        let candidate = Candidate {
            method: Method::LeastSquares,
            preconditioner: Preconditioner::Jacobi,
            reason: reason.into(),
            setup: 0.0,
            iteration: 2.0,
            hope: 0.0,
            share: 0.0,
        };
        let ending = match &self.report.outcome {
            outcome @ (Outcome::Converged | Outcome::Inconsistent { .. }) => outcome.clone(),
            _ => least.outcome,
        };
        let rung = Attempt::new(&candidate, Duration::ZERO, residual, AttemptEnd::Ended(ending));
        self.attempts.push(Attempt { iterations: least.iterations, time: least.time, ..rung });
        Ok(least.iterations)
    }
}

fn lock(watch: &Watch) -> MutexGuard<'_, Watcher> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `‖b − A x‖ / ‖b‖`, in twice the precision; `r` is memory for it.
fn recomputed<T: Real, M: Backend<T>>(
    matrix: &Csr<T>,
    a: &Operator<M::Vector>,
    [b, x]: [&M::Vector; 2],
    r: &mut Option<M::Vector>,
    rhs_norm: f64,
) -> Result<f64> {
    let r = match r {
        Some(r) => r,
        None => r.insert(a.range().zeros()?),
    };
    M::residual(matrix, a, b, x, r)?;
    let norm = norm(r)?;
    Ok(if norm == 0.0 { 0.0 } else { norm / rhs_norm })
}

pub(super) fn norm<V: Vector<Elem: Real>>(v: &V) -> Result<f64> {
    Ok(krysp_solvers::Element::to_f64(v.norm_squared().read()?).sqrt())
}
