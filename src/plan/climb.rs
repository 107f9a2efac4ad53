//! One solve: from rung to rung, until the residual is small enough.
//!
//! ```text
//! begin with what cost the least so far, or with what has become worth building
//! loop:
//!     build the rung; if that fails, the next
//!     run it from the best x so far, until it ends or the next one promises to be faster
//!     r = b − A x anew; small enough: done
//! nothing left: is r orthogonal to the range of A? then the system has no solution
//! ```

use super::least_squares::least_squares;
use super::solved::{Left, Rung};
use super::{Builds, Candidate, Ladder, Method, Preconditioner};
use crate::{Error, Operator, Outcome, Real, Report, Result};
use krysp_solvers::{Evidence, LinearOperator, Scalar, Space, Stopping, Vector};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Iterations of a rung at most, if the user sets no limit.
const ITERATIONS: usize = 100_000;

/// A known rung is left before it begins if the next one costs this much less: what is known is worth more than a guess.
const CLEARLY: f64 = 1.5;

/// What a rung may cost that has no other after it: those of the least residual.
const LAST: f64 = 20_000.0;

/// `Aᵀ r` counts as zero if it is at most this power of the epsilon beside `r`, scaled by the norms of the columns: an `x` with a
/// much smaller residual would have to be larger than `r` by the inverse, beyond what elements can balance.
const UNKNOWN: f64 = 0.75;

/// As `UNKNOWN`, where the matrix is known to be singular.
const SINGULAR: f64 = 0.375;

/// On a GPU nobody looks at iterations: a rung ends when it has cost this many times the next.
const BLIND: f64 = 1.5;

impl<T: Real, M: Builds<T>> Ladder<T, M> {
    /// [`Ladder::solve_into`], where squares of `b` neither overflow nor vanish.
    pub(super) fn climb(&mut self, b: &M::Vector, x: &mut M::Vector) -> Result<&Report> {
        let started = Instant::now();
        self.rungs.clear();
        self.report = Report::default();
        self.report.rhs_norm = norm(b)?;
        let mut best: Option<(M::Vector, f64)> = None;
        let mut refused = None;
        // what a user asked for by name is not left
        let alone = self.candidates.len() == 1;
        let (mut iterations, mut bytes, mut cost) = (0, 0, 0.0);
        if self.known.iter().all(|cost| cost.is_some_and(f64::is_infinite)) {
            // another right-hand side may be easier
            self.known.fill(None);
        }
        let mut at = self.first();
        let mut tried = vec![false; self.candidates.len()];
        let (mut indefinite, mut ended) = (false, false);
        while let Some(index) = at {
            // what is tried again has nothing beside it
            let again = std::mem::replace(&mut tried[index], true);
            let fresh = self.running.as_ref().is_none_or(|(running, _)| *running != index);
            let setup = match self.build(index) {
                Ok(setup) => setup,
                Err(Error::Lost) => return Err(Error::Lost),
                Err(error) => {
                    refused = Some(error);
                    self.known[index] = Some(f64::INFINITY);
                    at = self.next(&tried, indefinite);
                    continue;
                }
            };
            let next = self.untried(&tried, indefinite);
            let promised = match next.filter(|_| !again) {
                Some(next) => self.price(next),
                None if alone => f64::INFINITY,
                None => LAST,
            };
            let Candidate { iteration: each, hope, .. } = self.candidates[index];
            cost += if fresh { self.candidates[index].setup } else { 0.0 };
            self.watch.lock().unwrap_or_else(PoisonError::into_inner).pace.begin(each, hope, promised);
            let allowed = self.options.max_iterations.map_or(ITERATIONS, |most| most - iterations);
            let blind = if M::WATCHED { usize::MAX } else { (BLIND * promised / each).ceil() as usize };
            let stopping = Stopping {
                rtol: self.options.rtol,
                max_iterations: allowed.min(blind),
                time_limit: self.options.time_limit.map(|limit| limit.saturating_sub(started.elapsed())),
                ..Stopping::new(T::EPSILON)
            };
            let (mut report, residual) = self.run(b, x, stopping)?;
            iterations += report.iterations;
            bytes += report.bytes;
            cost += report.iterations as f64 * each;
            let solved = residual <= self.options.rtol;
            let needed = self.watch.lock().unwrap_or_else(PoisonError::into_inner).pace.needed;
            let blinded = report.outcome == Outcome::IterationLimit && report.iterations < allowed;
            let ending = match &report.outcome {
                _ if solved => Left::Ended(Outcome::Converged),
                Outcome::Stopped => Left::Overtaken { needed: needed.unwrap_or(f64::INFINITY) },
                _ if blinded => Left::Overtaken { needed: f64::INFINITY },
                outcome => Left::Ended(outcome.clone()),
            };
            let per_solve = report.iterations as f64 * each;
            self.known[index] = Some(match &ending {
                Left::Ended(Outcome::Converged) => per_solve,
                Left::Overtaken { needed } if !again => per_solve + needed * each,
                _ => f64::INFINITY,
            });
            indefinite |= matches!(report.outcome, Outcome::Breakdown { value, .. }
                if value < 0.0 && self.candidates[index].needs_definite());
            let no_better = matches!(report.outcome, Outcome::PrecisionLimit { limit, .. }
                if limit > self.options.rtol * report.rhs_norm);
            let over = matches!(
                report.outcome,
                Outcome::Cancelled | Outcome::TimeLimit | Outcome::NotFinite { whence: "`b`" }
            ) || no_better
                || self.options.max_iterations.is_some_and(|most| iterations >= most);
            let (made, time) = (report.iterations, report.time);
            let rung = Rung::new(&self.candidates[index], setup, residual, ending);
            self.rungs.push(Rung { iterations: made, time, ..rung });
            if matches!(report.outcome, Outcome::Stopped | Outcome::Converged) && !solved {
                report.outcome = Outcome::Stagnated(Evidence::Residual { iterations: made });
            }
            self.report = report;
            if solved {
                self.report.outcome = Outcome::Converged;
                self.report.true_residual = residual * self.report.rhs_norm;
                ended = true;
                break;
            }
            self.keep_best(&mut best, x, residual)?;
            ended = over;
            at = if over { None } else { self.next(&tried, indefinite) };
        }
        if let (Some(error), true) = (refused, self.rungs.iter().all(|rung| rung.residual.is_nan())) {
            return Err(error);
        }
        if !ended && !alone {
            iterations += self.explain(b, x, &mut best)?;
        }
        self.solves += 1;
        self.spent += cost;
        self.report.iterations = iterations;
        self.report.bytes = bytes;
        self.report.time = started.elapsed();
        Ok(&self.report)
    }

    /// Runs the running rung. A solver is content with twice the tolerance: then it goes on from there.
    fn run(&mut self, b: &M::Vector, x: &mut M::Vector, stopping: Stopping) -> Result<(Report, f64)> {
        let Some((_, running)) = &mut self.running else { return Err(Error::Lost) };
        let rtol = stopping.rtol;
        *running.stopping() = stopping;
        let mut report = running.solve_into(b, x)?.clone();
        let mut residual = recomputed(running.operator(), b, x, report.rhs_norm)?;
        if report.converged() && residual > rtol {
            let (iterations, bytes, time) = (report.iterations, report.bytes, report.time);
            running.stopping().rtol = 0.5 * rtol;
            report = running.solve_into(b, x)?.clone();
            residual = recomputed(running.operator(), b, x, report.rhs_norm)?;
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

    /// Nothing is left to try: looks for the least residual, and whether it is the least. Returns the iterations made.
    fn explain(
        &mut self,
        b: &M::Vector,
        x: &mut M::Vector,
        best: &mut Option<(M::Vector, f64)>,
    ) -> Result<usize> {
        let space = self.space()?.clone();
        let mut host = [vec![T::default(); space.len()], vec![T::default(); space.len()]];
        space.store(b, &mut host[0])?;
        space.store(x, &mut host[1])?;
        let [b_host, x_host] = &host;
        let slope = T::EPSILON.powf(if self.singular { SINGULAR } else { UNKNOWN });
        let Some(least) = least_squares(&self.matrix, b_host, x_host, slope)? else { return Ok(0) };
        space.load(&least.x, x)?;
        let residual = recomputed(self.operator()?, b, x, self.report.rhs_norm)?;
        self.keep_best(best, x, residual)?;
        let norm = self.report.true_residual;
        self.report.outcome = match residual <= self.options.rtol {
            true => Outcome::Converged,
            false if least.certain => Outcome::Inconsistent { least: norm },
            false => self.report.outcome.clone(),
        };
        let reason = "whether there is a solution at all";
        let candidate = Candidate {
            method: Method::LeastSquares,
            preconditioner: Preconditioner::Jacobi,
            reason: reason.into(),
            setup: 0.0,
            iteration: 2.0,
            hope: 0.0,
        };
        let ending = match &self.report.outcome {
            outcome @ (Outcome::Converged | Outcome::Inconsistent { .. }) => outcome.clone(),
            _ => least.outcome,
        };
        let rung = Rung::new(&candidate, Duration::ZERO, residual, Left::Ended(ending));
        self.rungs.push(Rung { iterations: least.iterations, time: least.time, ..rung });
        Ok(least.iterations)
    }

    /// Where to begin.
    fn first(&self) -> Option<usize> {
        let known = self.known.iter().enumerate().filter_map(|(index, cost)| Some((index, (*cost)?)));
        let known = known.filter(|(_, cost)| cost.is_finite());
        let cheapest = known.min_by(|(_, a), (_, b)| a.total_cmp(b));
        let unknown = |index: usize| self.known[index].is_none();
        let soon = self.cheapest(|index| unknown(index) && !self.is_second(index));
        let untried = soon.or_else(|| self.cheapest(unknown));
        match (cheapest, untried) {
            (Some((at, cost)), Some(next)) => Some(if CLEARLY * self.price(next) < cost { next } else { at }),
            (Some((at, _)), None) => Some(at),
            (None, untried) => untried,
        }
    }

    /// The next rung: the cheapest that is untried, or else the cheapest that was left although it would have ended.
    fn next(&self, tried: &[bool], indefinite: bool) -> Option<usize> {
        let left = |index: usize| self.known[index].is_some() && self.is_possible(index, indefinite);
        self.untried(tried, indefinite).or_else(|| self.cheapest(left))
    }

    /// The cheapest of those that are possible and untried. Where conjugate gradients are slow, so are minimal residuals: these
    /// wait until the matrix is known not to be definite, or for the end.
    fn untried(&self, tried: &[bool], indefinite: bool) -> Option<usize> {
        let untried = |index: usize| !tried[index] && self.is_possible(index, indefinite);
        let soon = |index: usize| untried(index) && (indefinite || !self.is_second(index));
        self.cheapest(soon).or_else(|| self.cheapest(untried))
    }

    fn is_possible(&self, index: usize, indefinite: bool) -> bool {
        let failed = self.known[index].is_some_and(f64::is_infinite);
        !(failed || indefinite && self.candidates[index].needs_definite())
    }

    /// Whether it is for a matrix that turns out not to be definite.
    fn is_second(&self, index: usize) -> bool {
        self.candidates[index].method == Method::Minres && self.candidates[0].needs_definite()
    }

    /// The cheapest rung of some; of equal ones the first.
    fn cheapest(&self, some: impl Fn(usize) -> bool) -> Option<usize> {
        let some = (0..self.candidates.len()).filter(|&index| some(index));
        some.min_by(|&a, &b| self.price(a).total_cmp(&self.price(b)))
    }

    /// What a solve with this rung is likely to cost, with its share of what it takes to build. If nobody said how many solves
    /// there will be, those that are done pay for it.
    fn price(&self, index: usize) -> f64 {
        let candidate = &self.candidates[index];
        let share = match self.options.solves {
            Some(solves) => candidate.setup / solves.saturating_sub(self.solves).max(1) as f64,
            None => (candidate.setup - self.spent).max(0.0),
        };
        share + self.known[index].filter(|cost| cost.is_finite()).unwrap_or_else(|| candidate.solve())
    }
}

/// `‖b − A x‖ / ‖b‖`, in twice the precision.
fn recomputed<T: Real, V: Vector<Elem = T>>(a: &Operator<V>, b: &V, x: &V, rhs_norm: f64) -> Result<f64> {
    let mut r = a.range().zeros()?;
    a.residual(b, x, &mut r)?;
    let norm = norm(&r)?;
    Ok(if norm == 0.0 { 0.0 } else { norm / rhs_norm })
}

pub(super) fn norm<V: Vector<Elem: Real>>(v: &V) -> Result<f64> {
    Ok(krysp_solvers::Element::to_f64(v.norm_squared().read()?).sqrt())
}
