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

use super::candidates::Direct;
use super::ladder::Foretold;
use super::least_squares::least_squares;
use super::pace::{Next, Weigh, needed};
use super::solved::{Left, Rung};
use super::{Builds, Candidate, Ladder, Method, Preconditioner};
use crate::preconditioners::Symbolic;
use crate::{Csr, DirectOptions, Error, Operator, Outcome, Real, Report, Result};
use krysp_solvers::{Evidence, LinearOperator, Scalar, Space, Stopping, Vector};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Iterations of a rung at most, if the user sets no limit.
const ITERATIONS: usize = 100_000;

/// A known rung is left before it begins if the next one costs this much less: what is known is worth more than a guess.
const CLEARLY: f64 = 1.5;

/// With many solves ahead, so many times what it takes to try another, guesses are tried that may be too high by as much.
const LITTLE: f64 = 30.0;
const PERHAPS: f64 = 0.3;

/// What a rung may cost that has no other after it: those of the least residual.
const LAST: f64 = 20_000.0;

/// `Aᵀ r` counts as zero if it is at most this power of the epsilon beside `r`, scaled by the norms of the columns: an `x` with a
/// much smaller residual would have to be larger than `r` by the inverse, beyond what elements can balance.
const UNKNOWN: f64 = 0.75;

/// As `UNKNOWN`, where the matrix is known to be singular.
const SINGULAR: f64 = 0.375;

/// A rung that has cost this part of `LAST` without an end has failed.
const EXHAUSTED: f64 = 0.5;

/// What it costs, about, to find out whether there is a solution at all: done before something is tried again that costs more.
const DEAR: f64 = 2_000.0;

/// On a GPU nobody looks at iterations: a rung ends when it has cost this many times the next.
const BLIND: f64 = 1.5;

/// Where the rungs of one solve stand.
struct Standing {
    /// What the rest of each costs that has been left: infinite for what has failed, nothing for what is untried.
    rest: Vec<Option<f64>>,
    /// What each has cost.
    made: Vec<f64>,
    /// Whether the matrix has turned out not to be positive definite.
    indefinite: bool,
}

/// What of a setup counts for one solve. If nobody said how many solves there will be, those that are done pay for it.
#[derive(Clone, Copy)]
struct Share {
    left: Option<f64>,
    spent: f64,
}

impl Share {
    fn of(self, setup: f64) -> f64 {
        self.left.map_or_else(|| (setup - self.spent).max(0.0), |left| setup / left)
    }
}

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
        let (mut iterations, mut bytes) = (0, 0);
        if self.known.iter().all(|cost| cost.is_some_and(f64::is_infinite)) {
            // another right-hand side may be easier
            self.known.fill(None);
        }
        let count = self.candidates.len();
        let mut standing = Standing { rest: vec![None; count], made: vec![0.0; count], indefinite: false };
        let mut explained = alone;
        let mut at = self.first();
        while let Some(index) = at {
            let fresh = !self.is_ready(index);
            let setup = match self.build(index) {
                Ok(setup) => setup,
                Err(Error::Lost) => return Err(Error::Lost),
                // factors that took more than was foretold: later, perhaps
                Err(Error::Unsuitable { .. })
                    if self.candidates[index].preconditioner == Preconditioner::Lu =>
                {
                    self.spent += self.candidates[index].setup;
                    self.candidates[index].grow();
                    at = self.next(&standing);
                    continue;
                }
                Err(error) => {
                    standing.indefinite |= matches!(error, Error::NotPositive { .. });
                    refused = Some(error);
                    (self.known[index], standing.rest[index]) = (Some(f64::INFINITY), Some(f64::INFINITY));
                    at = self.next(&standing);
                    continue;
                }
            };
            standing.made[index] += if fresh { self.share().of(self.candidates[index].setup) } else { 0.0 };
            let promised = match self.other(&standing, index) {
                _ if alone => f64::INFINITY,
                Some(next) => self.price(next, &standing).min(LAST),
                None => LAST,
            };
            let next = if alone { vec![] } else { self.nexts(&standing, index) };
            let weigh = self.weigh(next.clone());
            let plain = (index != 0 || !self.candidates[0].needs_definite()).then(|| self.plain(&standing));
            let Candidate { iteration: each, hope, .. } = self.candidates[index];
            // what was left and is gone on with has had its hope
            let hope = if standing.rest[index].is_some() { 0.0 } else { hope };
            self.watch.lock().unwrap_or_else(PoisonError::into_inner).pace.begin(
                (each, hope),
                next,
                weigh,
                plain,
            );
            let allowed = self.options.max_iterations.map_or(ITERATIONS, |most| most - iterations);
            let blind = if M::WATCHED { usize::MAX } else { (BLIND * promised / each).ceil() as usize };
            let stopping = Stopping {
                rtol: self.options.rtol,
                max_iterations: allowed.min(blind),
                time_limit: self.options.time_limit.map(|limit| limit.saturating_sub(started.elapsed())),
                ..Stopping::new(T::EPSILON)
            };
            let (mut report, residual) = self.run(b, x, stopping)?;
            self.reweigh();
            self.clock(index, &report);
            let each = self.candidates[index].iteration;
            iterations += report.iterations;
            bytes += report.bytes;
            self.spent += if fresh { self.candidates[index].setup } else { 0.0 };
            self.spent += report.iterations as f64 * each;
            standing.made[index] += report.iterations as f64 * each;
            let solved = residual <= self.options.rtol;
            let blinded = report.outcome == Outcome::IterationLimit && report.iterations < allowed;
            let threshold = self.options.rtol * report.rhs_norm;
            let ending = match &report.outcome {
                _ if solved => Left::Ended(Outcome::Converged),
                Outcome::Stopped => Left::Overtaken { needed: needed(&report.history, threshold) },
                _ if blinded => Left::Overtaken { needed: needed(&report.history, threshold) },
                outcome => Left::Ended(outcome.clone()),
            };
            let rest = match &ending {
                Left::Ended(Outcome::Converged) => 0.0,
                // it has had what the last of all may cost
                Left::Overtaken { .. } if standing.made[index] >= EXHAUSTED * LAST => f64::INFINITY,
                Left::Overtaken { needed } => needed * each,
                _ => f64::INFINITY,
            };
            standing.rest[index] = Some(rest);
            self.known[index] = Some(standing.made[index] + rest);
            standing.indefinite |= matches!(report.outcome, Outcome::Breakdown { value, .. }
                if value < 0.0 && self.candidates[index].needs_definite());
            let no_better =
                matches!(report.outcome, Outcome::PrecisionLimit { limit, .. } if limit > threshold);
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
                break;
            }
            self.keep_best(&mut best, x, residual)?;
            if over {
                break;
            }
            at = self.next(&standing);
            // before much more is spent: is there a solution at all?
            let goes_on = |next: usize| {
                standing.rest[next].is_none() && self.price(next, &standing) <= LAST
                    || self.price(next, &standing) <= DEAR
            };
            if !explained && (self.has_failed_direct(&standing) || !at.is_some_and(goes_on)) {
                explained = true;
                iterations += self.explain(&standing, b, x, &mut best)?;
                if matches!(self.report.outcome, Outcome::Converged | Outcome::Inconsistent { .. }) {
                    break;
                }
            }
        }
        if let (Some(error), true) = (refused, self.rungs.iter().all(|rung| rung.residual.is_nan())) {
            return Err(error);
        }
        self.solves += 1;
        self.report.iterations = iterations;
        self.report.bytes = bytes;
        self.report.time = started.elapsed();
        Ok(&self.report)
    }

    /// Runs the running rung. A solver is content with twice the tolerance: then it goes on from there.
    fn run(&mut self, b: &M::Vector, x: &mut M::Vector, stopping: Stopping) -> Result<(Report, f64)> {
        let Some((_, running)) = &mut self.running else { return Err(Error::Lost) };
        let r = &mut self.residual;
        let rtol = stopping.rtol;
        *running.stopping() = stopping;
        let mut report = running.solve_into(b, x)?.clone();
        let mut residual = recomputed(running.operator(), b, x, r, report.rhs_norm)?;
        if report.converged() && residual > rtol {
            let (iterations, bytes, time) = (report.iterations, report.bytes, report.time);
            running.stopping().rtol = 0.5 * rtol;
            report = running.solve_into(b, x)?.clone();
            residual = recomputed(running.operator(), b, x, r, report.rhs_norm)?;
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
        standing: &Standing,
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
        let factorised = self.has_failed_direct(standing);
        let Some(least) = least_squares(&self.matrix, b_host, x_host, slope, factorised)? else {
            return Ok(0);
        };
        space.load(&least.x, x)?;
        let residual = recomputed(self.operator()?, b, x, &mut None, self.report.rhs_norm)?;
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
            share: 0.0,
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
    fn first(&mut self) -> Option<usize> {
        let count = self.candidates.len();
        let standing = Standing { rest: vec![None; count], made: vec![0.0; count], indefinite: false };
        let known = self.known.iter().enumerate().filter_map(|(index, cost)| Some((index, (*cost)?)));
        let known = known.filter(|(_, cost)| cost.is_finite());
        let cheapest = known.min_by(|(_, a), (_, b)| a.total_cmp(b));
        loop {
            let unknown = |index: &usize| self.known[*index].is_none();
            let untried =
                self.cheapest(&standing, |index| unknown(&index) && !self.is_second(index, &standing));
            let untried = untried.or_else(|| self.cheapest(&standing, |index| unknown(&index)));
            let first = match (cheapest, untried) {
                (Some((at, cost)), Some(next)) if !self.is_worth_trying(next, cost, &standing) => Some(at),
                (Some((at, _)), None) => Some(at),
                (_, untried) => untried,
            };
            if !first.is_some_and(|first| self.needs_weighing(first)) {
                return first;
            }
            analyse(&self.matrix, &self.symbolic);
            self.reweigh();
        }
    }

    /// Whether to try a rung where another is known to cost this much a solve: it promises to be cheaper, or might be, and what
    /// it takes to find out is little beside all solves that are ahead.
    fn is_worth_trying(&self, index: usize, cost: f64, standing: &Standing) -> bool {
        let ahead = self.options.solves.map_or(1, |solves| solves.saturating_sub(self.solves)) as f64;
        let candidate = &self.candidates[index];
        let little = LITTLE * (candidate.setup + candidate.solve(self.plain(standing))) < ahead * cost;
        (if little { PERHAPS } else { CLEARLY }) * self.price(index, standing) < cost
    }

    /// The next rung: the cheapest that is untried, or was left although it would have ended.
    fn next(&mut self, standing: &Standing) -> Option<usize> {
        loop {
            let next = self.other(standing, usize::MAX);
            if !next.is_some_and(|next| self.needs_weighing(next)) {
                return next;
            }
            analyse(&self.matrix, &self.symbolic);
            self.reweigh();
        }
    }

    /// The cheapest of those that are possible, but for one.
    fn other(&self, standing: &Standing, but: usize) -> Option<usize> {
        let possible = self.possible(standing, but);
        self.cheapest(standing, |index| possible.contains(&index))
    }

    /// All that are possible, but for one. Where conjugate gradients are slow, so are methods for other matrices: these wait until
    /// the matrix is known not to be definite, or for the end.
    fn possible(&self, standing: &Standing, but: usize) -> Vec<usize> {
        let possible = |index: &usize| {
            let failed = [self.known[*index], standing.rest[*index]].contains(&Some(f64::INFINITY));
            let excluded = standing.indefinite && self.candidates[*index].needs_definite();
            *index != but && !failed && !excluded
        };
        let all: Vec<usize> = (0..self.candidates.len()).filter(possible).collect();
        let soon: Vec<usize> =
            all.iter().copied().filter(|&index| !self.is_second(index, standing)).collect();
        if soon.is_empty() { all } else { soon }
    }

    /// What may come after a rung; the last is what anything may cost.
    fn nexts(&self, standing: &Standing, but: usize) -> Vec<Next> {
        let next = |index: usize| {
            let (setup, rest) = self.parts_of_price(index, standing);
            let candidate = rest.is_none().then(|| self.candidates[index].clone());
            Next { fixed: setup + rest.unwrap_or(0.0), candidate, unweighed: self.needs_weighing(index) }
        };
        let last = Next { fixed: LAST, candidate: None, unweighed: false };
        self.possible(standing, but).into_iter().map(next).chain([last]).collect()
    }

    /// What all iterations with Jacobi are likely to cost, as far as they have been tried: zero if the matrix is not symmetric.
    fn plain(&self, standing: &Standing) -> f64 {
        let tried = standing.rest[0].filter(|rest| rest.is_finite() && self.candidates[0].needs_definite());
        tried.map_or(0.0, |rest| rest + standing.made[0])
    }

    /// Whether factors without gaps were no help: then the system is hardly regular.
    fn has_failed_direct(&self, standing: &Standing) -> bool {
        (0..).zip(&self.candidates).any(|(index, candidate): (usize, _)| {
            candidate.preconditioner == Preconditioner::Lu && standing.made[index] > 0.0
        })
    }

    /// Whether it is for a matrix that turns out not to be definite.
    fn is_second(&self, index: usize, standing: &Standing) -> bool {
        let [first, this] = [&self.candidates[0], &self.candidates[index]];
        let definite = !standing.indefinite && standing.rest[0] != Some(f64::INFINITY);
        !this.needs_definite() && first.needs_definite() && definite
    }

    /// The cheapest rung of some; of equal ones the first.
    fn cheapest(&self, standing: &Standing, some: impl Fn(usize) -> bool) -> Option<usize> {
        let some = (0..self.candidates.len()).filter(|&index| some(index));
        some.min_by(|&a, &b| self.price(a, standing).total_cmp(&self.price(b, standing)))
    }

    /// What a solve with this rung, or the rest of it, is likely to cost, with its share of what it takes to build.
    fn price(&self, index: usize, standing: &Standing) -> f64 {
        let (setup, rest) = self.parts_of_price(index, standing);
        setup + rest.unwrap_or_else(|| self.candidates[index].solve(self.plain(standing)))
    }

    /// The share of what it takes to build, and the rest if it is known.
    fn parts_of_price(&self, index: usize, standing: &Standing) -> (f64, Option<f64>) {
        let setup = if self.is_ready(index) { 0.0 } else { self.share().of(self.candidates[index].setup) };
        (setup, standing.rest[index].or(self.known[index].filter(|cost| cost.is_finite())))
    }

    fn share(&self) -> Share {
        let left = self.options.solves.map(|solves| solves.saturating_sub(self.solves).max(1) as f64);
        Share { left, spent: self.spent }
    }

    /// Whether what it costs is not known and can be.
    fn needs_weighing(&self, index: usize) -> bool {
        self.direct.is_none() && self.candidates[index].is_direct(&self.profile)
    }

    /// Takes in what an order of elimination has told.
    fn reweigh(&mut self) {
        let symbolic = self.symbolic.lock().unwrap_or_else(PoisonError::into_inner);
        if let (None, Some(symbolic)) = (self.direct, &*symbolic) {
            self.direct = Some(Direct::of(symbolic));
            for candidate in self.candidates.iter_mut().filter(|one| one.is_direct(&self.profile)) {
                *candidate = candidate.clone().weighed(&self.profile, self.direct);
            }
        }
    }

    /// How to find out what comes after a rung really costs, while that rung waits.
    fn weigh(&self, mut next: Vec<Next>) -> Option<Weigh> {
        if !next.iter().any(|next| next.unweighed) {
            return None;
        }
        let (matrix, symbolic, profile) = (self.matrix.clone(), self.symbolic.clone(), self.profile.clone());
        let share = self.share();
        Some(Box::new(move || {
            let direct = analyse(&matrix, &symbolic);
            for next in next.iter_mut().filter(|next| next.unweighed) {
                next.unweighed = false;
                if let Some(candidate) = next.candidate.take() {
                    let candidate = candidate.weighed(&profile, Some(direct));
                    next.fixed = share.of(candidate.setup);
                    next.candidate = Some(candidate);
                }
            }
            next
        }))
    }
}

/// Finds an order of elimination, if there is none yet, and says what the factor takes.
fn analyse<T: Real>(matrix: &Csr<T>, symbolic: &Foretold) -> Direct {
    let mut symbolic = symbolic.lock().unwrap_or_else(PoisonError::into_inner);
    Direct::of(symbolic.get_or_insert_with(|| Symbolic::new(matrix, DirectOptions::default())))
}

/// `‖b − A x‖ / ‖b‖`, in twice the precision; `r` is memory for it.
fn recomputed<T: Real, V: Vector<Elem = T>>(
    a: &Operator<V>,
    b: &V,
    x: &V,
    r: &mut Option<V>,
    rhs_norm: f64,
) -> Result<f64> {
    let r = match r {
        Some(r) => r,
        None => r.insert(a.range().zeros()?),
    };
    a.residual(b, x, r)?;
    let norm = norm(r)?;
    Ok(if norm == 0.0 { 0.0 } else { norm / rhs_norm })
}

pub(super) fn norm<V: Vector<Elem: Real>>(v: &V) -> Result<f64> {
    Ok(krysp_solvers::Element::to_f64(v.norm_squared().read()?).sqrt())
}
