//! Executes the actions of the scheduler: owns vectors, builds preconditioners, iterates, recomputes residuals, and reports.

use super::costs::{Factorization, check_time, multiplications};
use super::least_squares::least_squares;
use super::measured::{fastest, reordered};
use super::monitor::{Estimate, Verdict};
use super::running::lock;
use super::schedule::{Action, End, Ended, Event, MANY};
use super::solved::configuration;
use super::{Attempt, AttemptEnd, Backend, Method, PlannedSolver, Preconditioner, Preparation, WorkUnits};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::numbers::Real;
use krysp_kernels::interrupt;
use krysp_solvers::{
    BasicVector, CancelToken, Evidence, LinearOperator, Outcome, Report, Scalar, Space, Stopping, Vector,
};
use std::mem::{replace, take};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// `Aᵀ r` counts as zero if `‖D⁻¹ Aᵀ r‖ ≤ ε^SLOPE ‖r‖`, where `D` holds the norms of the columns of `A` and `ε` is the machine
/// epsilon. A change `d` of `x` that reduces the residual much then has `‖D d‖ ≥ ε^-SLOPE ‖r‖`, which is too large for `A d` to
/// be accurate. `SLOPE_SINGULAR` is for matrices that are known to be singular. Not measured.
const SLOPE: f64 = 0.75;
const SLOPE_SINGULAR: f64 = 0.375;

/// Maximum number of iterations of an attempt, if the user sets no limit. Not measured; chosen so that other limits are reached first.
pub(super) const ITERATIONS: usize = 100_000;

/// A residual limit of at most this multiple of the tolerance, estimated in an iterative attempt, does not end a solve while a complete
/// factorization may run: complete factorizations ended below such an estimate by a factor of 1.6 (flat tetrahedra).
const UNCERTAIN: f64 = 2.0;

/// State of one solve.
struct Task<'t, V> {
    b: &'t V,
    /// `b` in the order of the reordered matrix.
    reordered: Option<V>,
    x: &'t mut V,
    /// States whether no caller holds the vectors, so that the matrix may be reordered.
    own: bool,
    /// The best solution so far and its relative residual.
    best: Option<(V, f64)>,
    started: Instant,
    /// Iterations of all attempts so far, and the bytes that they moved.
    iterations: usize,
    bytes: u64,
    /// Setup time of the next attempt, and how its preconditioner was prepared.
    setup: Duration,
    preparation: Preparation,
    /// The last error of building a preconditioner.
    refused: Option<Error>,
}

impl<V> Task<'_, V> {
    fn b(&self) -> &V {
        self.reordered.as_ref().unwrap_or(self.b)
    }

    /// Relative residual of the best solution so far, or of `x = 0`.
    fn least(&self) -> f64 {
        self.best.as_ref().map_or(1.0, |(_, least)| *least)
    }
}

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// Solves without scaling. `own` means that no caller holds the vectors: then the matrix may be reordered, and `x` with it.
    pub(super) fn execute(
        &mut self,
        b: &M::Vector,
        rhs_norm: f64,
        x: &mut M::Vector,
        own: bool,
    ) -> Result<&Report> {
        // before the interrupt begins, so that the limit has passed when that is raised
        let started = Instant::now();
        let options = &self.settings.options;
        let cancel = self.cancel.clone().unwrap_or_default();
        let mut interrupt = Interrupt::new(&cancel);
        if let Some(limit) = options.time_limit {
            interrupt = interrupt.time_limit(limit);
        }
        self.attempts.clear();
        self.report = Report::default();
        self.report.rhs_norm = rhs_norm;
        let mut task = Task {
            b,
            reordered: None,
            x,
            own,
            best: None,
            started,
            iterations: 0,
            bytes: 0,
            setup: Duration::ZERO,
            preparation: Preparation::Ready,
            refused: None,
        };
        // measuring formats needs no ownership of the vectors; only reordering waits
        let waits = self.scheduler.found.may_rearrange && !own && !self.measures();
        if waits {
            self.scheduler.found.may_rearrange = false;
        }
        let done = interrupt.run(|| self.actions(&mut task));
        self.scheduler.found.may_rearrange |= waits;
        done?;
        self.scheduler.finish();
        let outcome = &self.report.outcome;
        let ended = matches!(outcome, Outcome::Cancelled | Outcome::TimeLimit | Outcome::NotFinite { .. });
        let nothing_ran = self.attempts.iter().all(|one| one.residual.is_nan());
        if let (Some(error), true) = (task.refused, nothing_ran && !ended) {
            return Err(error);
        }
        self.report.iterations = task.iterations;
        self.report.bytes = task.bytes;
        self.report.time = task.started.elapsed();
        Ok(&self.report)
    }

    /// Number of iterations that are left, but not more than `most`.
    fn iterations_left(&self, task: &Task<'_, M::Vector>, most: usize) -> usize {
        let limit = self.settings.options.max_iterations;
        limit.map_or(most, |all| all.saturating_sub(task.iterations).min(most))
    }

    fn time_left(&self, task: &Task<'_, M::Vector>) -> Option<Duration> {
        self.settings.options.time_limit.map(|limit| limit.saturating_sub(task.started.elapsed()))
    }

    /// Executes actions until the solve ends.
    fn actions(&mut self, task: &mut Task<'_, M::Vector>) -> Result<()> {
        let mut action = self.scheduler.begin();
        loop {
            if action != Action::Finish && self.iterations_left(task, 1) == 0 {
                self.report.outcome = Outcome::IterationLimit;
                return self.return_best(task);
            }
            let (event, index) = match action {
                Action::Analyse => {
                    let started = Instant::now();
                    let factorization = Factorization::analysed(&self.matrix, &self.symbolic);
                    task.setup += started.elapsed();
                    (Event::Analysed(factorization), 0)
                }
                Action::Rearrange { ahead } => (Event::Rearranged(self.rearrange(ahead, task)?), 0),
                Action::Build { index } | Action::Renew { index } if self.lacks_time(index, task) => {
                    (Event::TooLong, index)
                }
                Action::Build { index } => (self.build_within_limit(index, task)?, index),
                Action::Renew { index } => (self.renew(index, task)?, index),
                Action::Run { index } => (self.run(index, task)?, index),
                Action::TestConsistency { factorize } => {
                    (Event::Tested(self.test_consistency(factorize, task)?), 0)
                }
                Action::Finish => return Ok(()),
            };
            let is_over = matches!(self.report.outcome, Outcome::Cancelled | Outcome::TimeLimit);
            if is_over || interrupt::is_raised() && !self.report.converged() {
                let is_cancelled = self.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
                self.report.outcome = match self.time_left(task) {
                    Some(Duration::ZERO) if !is_cancelled => Outcome::TimeLimit,
                    _ => Outcome::Cancelled,
                };
                return self.return_best(task);
            }
            if self.ends_here() {
                return Ok(());
            }
            action = self.scheduler.next(event, index);
        }
    }

    /// Whether no other candidate can help: `b` is not finite, or the tolerance is beyond the precision, which is estimated.
    fn ends_here(&self) -> bool {
        let threshold = self.settings.options.rtol * self.report.rhs_norm;
        match &self.report.outcome {
            Outcome::NotFinite { what: "`b`" } => true,
            Outcome::PrecisionLimit { limit, .. } => {
                // attempts whose preconditioner was refused did not run
                let ran = |one: &&Attempt| !matches!(one.ending, AttemptEnd::NotBuilt(_));
                let last = self.attempts.iter().rev().find(ran);
                let is_direct = last.is_some_and(|one| one.preconditioner.is_complete());
                let may_help = !is_direct && self.scheduler.may_factorize();
                *limit > if may_help { UNCERTAIN * threshold } else { threshold }
            }
            _ => false,
        }
    }

    /// Ends the solve with the best `x` so far; if nothing has run, with the initial guess, which may meet the tolerance.
    fn return_best(&mut self, task: &mut Task<'_, M::Vector>) -> Result<()> {
        if task.best.is_some() {
            return Ok(());
        }
        let residual = self.recomputed(task, self.report.rhs_norm)?;
        if residual <= self.settings.options.rtol {
            self.report.outcome = Outcome::Converged;
            self.report.true_residual = residual * self.report.rhs_norm;
            return Ok(());
        }
        self.keep_best(task, residual)
    }

    /// Whether `CuDss`, whose setup cannot be cancelled, is expected to take longer than is left to build. If so, reports an attempt.
    fn lacks_time(&mut self, index: usize, task: &mut Task<'_, M::Vector>) -> bool {
        let candidate = &self.scheduler.found.candidates[index];
        if candidate.preconditioner != Preconditioner::CuDss {
            return false;
        }
        let checked = check_time(&candidate.costs, &self.settings.profile, self.time_left(task));
        let Err(error) = checked else { return false };
        let end = AttemptEnd::NotBuilt(error.to_string());
        self.attempts.push(Attempt::new(candidate, end));
        task.refused = Some(error);
        true
    }

    fn build_within_limit(&mut self, index: usize, task: &mut Task<'_, M::Vector>) -> Result<Event> {
        let limit = self.scheduler.limit(index);
        let preconditioner = self.scheduler.found.candidates[index].preconditioner;
        let factorization = self.scheduler.found.factorization;
        let (profile, class) = (&self.settings.profile, self.machine.class());
        let most = multiplications(preconditioner, limit, profile, factorization, class);
        match self.build(index, most) {
            Ok(setup) => {
                task.setup += setup;
                task.preparation = Preparation::Built;
                Ok(Event::Built)
            }
            Err(Error::NoOperator) => Err(Error::NoOperator),
            Err(Error::Interrupted(_)) => Ok(Event::NotBuilt { indefinite: false }),
            Err(error) => {
                if let (Error::Unsuitable { .. }, Some(event)) = (&error, self.beyond_limit(index, limit)) {
                    return Ok(event);
                }
                let indefinite = matches!(error, Error::NotPositive { .. });
                task.refused = Some(error);
                Ok(Event::NotBuilt { indefinite })
            }
        }
    }

    /// The event, if a preconditioner was refused because building it would exceed its limit.
    fn beyond_limit(&self, index: usize, limit: WorkUnits) -> Option<Event> {
        let preconditioner = self.scheduler.found.candidates[index].preconditioner;
        let (profile, class) = (&self.settings.profile, self.machine.class());
        let factorization = self.scheduler.found.factorization;
        match preconditioner {
            Preconditioner::Lu => self.begins.is_suspended().then_some(Event::Suspended),
            Preconditioner::Ilut => (limit < WorkUnits::INFINITE).then_some(Event::Suspended),
            Preconditioner::Ldl => {
                let one = multiplications(preconditioner, WorkUnits(1.0), profile, factorization, class);
                self.begins.ldl_needs().map(|needed| Event::Expensive(WorkUnits(needed / one)))
            }
            _ => None,
        }
    }

    fn renew(&mut self, index: usize, task: &mut Task<'_, M::Vector>) -> Result<Event> {
        let started = Instant::now();
        self.mount(index, None)?;
        let Some((_, running)) = &mut self.running else { return Err(Error::NoOperator) };
        // the host renews from its own matrix: reading the values back from a GPU takes as long as hundreds of iterations
        let preconditioner = self.scheduler.found.candidates[index].preconditioner;
        let (operator, m) = running.operators_mut();
        let by_host = preconditioner == Preconditioner::Jacobi || preconditioner.needs_host();
        let renewed = if by_host { m.refresh(&*self.matrix) } else { m.refresh(operator) };
        if renewed.is_ok() {
            self.note_factors(index);
            task.setup += started.elapsed();
            task.preparation = Preparation::Renewed;
            return Ok(Event::Renewed);
        }
        // a failed refresh may have changed a part of the preconditioner: build it from scratch
        self.take_apart();
        self.build_within_limit(index, task)
    }

    /// Runs a candidate from the best solution so far.
    fn run(&mut self, index: usize, task: &mut Task<'_, M::Vector>) -> Result<Event> {
        self.mount(index, None)?;
        if self.scheduler.is_built(index) == Some(true) {
            task.preparation = Preparation::Kept;
        }
        let symbolic = self.symbolic.clone();
        let matrix = self.matrix.clone();
        let alternatives = self.scheduler.analysed_alternatives(index);
        {
            let mut watcher = lock(&self.watch);
            watcher.monitor = self.scheduler.monitor(index);
            watcher.verdict = Verdict::Continue;
            watcher.ordering = Duration::ZERO;
            watcher.analyse =
                Some(Box::new(move || alternatives(Factorization::analysed(&matrix, &symbolic))));
        }
        let rtol = self.settings.options.rtol;
        let stopping = Stopping {
            rtol,
            max_iterations: self.iterations_left(task, ITERATIONS),
            time_limit: self.time_left(task),
            ..Stopping::new(T::EPSILON)
        };
        let before = task.least();
        let Some((_, running)) = &mut self.running else { return Err(Error::NoOperator) };
        let b = task.reordered.as_ref().unwrap_or(task.b);
        let mut report = running.solve_into(stopping, b, task.x)?.clone();
        let residual = match report.converged() {
            // the solver has recomputed the residual
            true => report.relative_residual().min(rtol),
            false => self.recomputed(task, report.rhs_norm)?,
        };
        if let Some(symbolic) = &*self.symbolic.lock().unwrap_or_else(PoisonError::into_inner) {
            self.scheduler.analysed(Factorization::of(symbolic));
        }
        task.iterations = task.iterations.saturating_add(report.iterations);
        task.bytes += report.bytes;
        let (estimate, verdict, ordering) = {
            let mut watcher = lock(&self.watch);
            // drop the closure, which shares the matrix: while it exists, a refresh would copy the matrix
            watcher.analyse = None;
            (watcher.monitor.estimate, watcher.verdict, watcher.ordering)
        };
        let (iterations, time) = (report.iterations, report.time.saturating_sub(ordering));
        let solved = residual <= self.settings.options.rtol;
        let candidate = &self.scheduler.found.candidates[index];
        let (end, ending) = match &report.outcome {
            _ if solved => (End::Converged, AttemptEnd::Ended(Outcome::Converged)),
            Outcome::Stopped => {
                let renew = verdict == Verdict::Renew;
                let each = time.as_secs_f64() / iterations.max(1) as f64;
                let ending = if renew { AttemptEnd::Outdated } else { self.switched(&estimate, each) };
                (End::Stopped { estimate, renew }, ending)
            }
            outcome => {
                let broken = matches!(outcome, Outcome::Breakdown { value, .. } if *value < 0.0);
                let indefinite = broken && candidate.needs_definite();
                (End::Failed { indefinite }, AttemptEnd::Ended(outcome.clone()))
            }
        };
        let setup = take(&mut task.setup) + ordering;
        let preparation = replace(&mut task.preparation, Preparation::Ready);
        let attempt = Attempt::new(candidate, ending);
        self.attempts.push(Attempt { iterations, time, setup, preparation, residual, ..attempt });
        if matches!(report.outcome, Outcome::Stopped | Outcome::Converged) && !solved {
            report.outcome = Outcome::Stagnated(Evidence::Residual { iterations });
        }
        self.report = report;
        if solved {
            self.report.outcome = Outcome::Converged;
            self.report.true_residual = residual * self.report.rhs_norm;
        } else {
            self.keep_best(task, residual)?;
        }
        Ok(Event::Ended(Ended { iterations, residual, improved: residual <= before, end }))
    }

    /// The reason for stopping an attempt, in iterations, of which each took `each` seconds. Seconds are reported only, and decide nothing.
    fn switched(&self, estimate: &Estimate, each: f64) -> AttemptEnd {
        let unit = each * estimate.iterations / estimate.remaining.0;
        let to = estimate.next.and_then(|next| self.scheduler.found.candidates.get(next)).map_or_else(
            || "another candidate".to_owned(),
            |next| configuration(next.method, next.preconditioner),
        );
        AttemptEnd::Switched {
            remaining: estimate.iterations,
            at_least: estimate.at_least,
            seconds: each * estimate.iterations,
            to,
            to_seconds: unit * estimate.next_cost.0,
        }
    }

    /// Whether formats and orderings are compared by measured times of products.
    fn measures(&self) -> bool {
        self.settings.options.solves.is_some_and(|solves| solves >= MANY)
    }

    /// Reorders the matrix and all vectors, or changes the format, if that makes products faster. Returns whether it reordered.
    fn rearrange(&mut self, ahead: WorkUnits, task: &mut Task<'_, M::Vector>) -> Result<bool> {
        let started = Instant::now();
        let (machine, matrix, symmetric) = (&self.machine, &self.matrix, self.settings.symmetric);
        let found = match self.measures() {
            true => fastest(machine, matrix, symmetric, ahead, task.own).map(Some),
            false => reordered(machine, matrix, symmetric),
        };
        // no better ordering, or not enough memory
        let Ok(Some((matrix, operator))) = found else { return Ok(false) };
        let Some(matrix) = matrix else {
            self.unmount();
            self.operator = Some(operator);
            self.note_built();
            task.setup += started.elapsed();
            return Ok(false);
        };
        let moved = |from: &M::Vector| stored(from).and_then(|host| loaded(operator.domain(), &host));
        task.reordered = Some(moved(task.b())?);
        *task.x = moved(task.x)?;
        if let Some((best, _)) = &mut task.best {
            *best = moved(best)?;
        }
        self.adopt(matrix, operator);
        task.setup += started.elapsed();
        Ok(true)
    }

    /// Recomputes `‖b − A x‖ / ‖b‖` in twice the precision.
    fn recomputed(&mut self, task: &Task<'_, M::Vector>, rhs_norm: f64) -> Result<f64> {
        let kept = self.residual.take();
        let a = self.operator()?;
        let mut r = kept.map_or_else(|| a.range().zeros(), Ok)?;
        M::residual(&self.matrix, a, task.b(), task.x, &mut r)?;
        let norm = norm(&r)?;
        self.residual = Some(r);
        Ok(if norm == 0.0 { 0.0 } else { norm / rhs_norm })
    }

    /// Stores `x` if it is the best solution so far; otherwise sets `x` to the best solution, or to zero if there is none.
    fn keep_best(&mut self, task: &mut Task<'_, M::Vector>, residual: f64) -> Result<()> {
        if residual < task.least() {
            let mut copy = task.x.space().zeros()?;
            copy.copy_from(task.x);
            task.best = Some((copy, residual));
        }
        match &task.best {
            Some((best, _)) => task.x.copy_from(best),
            None => *task.x = task.x.space().zeros()?,
        }
        self.report.true_residual = task.least() * self.report.rhs_norm;
        Ok(())
    }

    /// Minimizes the residual, and tests whether the system has a solution. Returns whether that decides the solve.
    fn test_consistency(&mut self, factorize: bool, task: &mut Task<'_, M::Vector>) -> Result<bool> {
        let (b, x) = (stored(task.b())?, stored(&*task.x)?);
        let slope = T::EPSILON.powf(if self.settings.singular { SLOPE_SINGULAR } else { SLOPE });
        let most = self.iterations_left(task, usize::MAX);
        let least = match least_squares(&self.matrix, &b, &x, slope, factorize, most) {
            Err(Error::Interrupted(_)) | Ok(None) => return Ok(false),
            Ok(Some(least)) => least,
            Err(error) => return Err(error),
        };
        self.space()?.load(&least.x, task.x)?;
        task.iterations = task.iterations.saturating_add(least.iterations);
        let residual = self.recomputed(task, self.report.rhs_norm)?;
        self.keep_best(task, residual)?;
        let norm = self.report.true_residual;
        self.report.outcome = match residual <= self.settings.options.rtol {
            true => Outcome::Converged,
            false if least.certain => Outcome::Inconsistent { residual: norm },
            false => self.report.outcome.clone(),
        };
        let decided = matches!(self.report.outcome, Outcome::Converged | Outcome::Inconsistent { .. });
        let outcome = if decided { self.report.outcome.clone() } else { least.outcome };
        let (reason, ending) = ("is the system consistent?", AttemptEnd::Ended(outcome));
        let attempt = Attempt::of(Method::LeastSquares, Preconditioner::Jacobi, reason, ending);
        self.attempts.push(Attempt { iterations: least.iterations, time: least.time, residual, ..attempt });
        Ok(decided)
    }
}

pub(super) fn norm<V: Vector<Elem: Real>>(v: &V) -> Result<f64> {
    Ok(krysp_solvers::Element::to_f64(v.norm_squared().read()?).sqrt())
}

/// A vector with the entries of `host`, in the user's ordering.
pub(super) fn loaded<V: Vector>(space: &V::Space, host: &[V::Elem]) -> krysp_solvers::Result<V> {
    let mut v = space.zeros()?;
    space.load(host, &mut v)?;
    Ok(v)
}

/// The entries of a vector in host memory, in the user's ordering.
pub(super) fn stored<V: Vector<Elem: Real>>(v: &V) -> krysp_solvers::Result<Vec<V::Elem>> {
    let mut host = vec![V::Elem::default(); v.space().local_len()];
    v.space().store(v, &mut host)?;
    Ok(host)
}
