//! Executes the actions of the scheduler: owns vectors, builds preconditioners, iterates, recomputes residuals, and reports.

use super::budget::Budget;
use super::costs::{Factorization, check_time, multiplications};
use super::least_squares::least_squares;
use super::matched::Begins;
use super::measured::{fastest, reordered};
use super::monitor::{Estimate, Verdict};
use super::running::lock;
use super::schedule::{Action, End, Ended, Event, MANY};
use super::solved::{Attempt, AttemptEnd, configuration};
use super::solver::Preparation;
use super::{Backend, Method, PlannedSolver, Preconditioner, WorkUnits};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::numbers::Real;
use krysp_kernels::interrupt;
use krysp_solvers::{BasicVector, Evidence, LinearOperator, Outcome, Report, Scalar, Space, Vector};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// `Aᵀ r` counts as zero if `‖D⁻¹ Aᵀ r‖ ≤ ε^SLOPE ‖r‖`, where `D` holds the norms of the columns of `A` and `ε` is the machine
/// epsilon. A change `d` of `x` that reduces the residual much then has `‖D d‖ ≥ ε^-SLOPE ‖r‖`, which is too large for `A d` to
/// be accurate. `SLOPE_SINGULAR` is for matrices that are known to be singular. Not measured.
const SLOPE: f64 = 0.75;
const SLOPE_SINGULAR: f64 = 0.375;

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
    budget: Budget,
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
}

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// Solves a system whose norms neither overflow nor underflow. `own` means that no caller holds the vectors: then the matrix may be
    /// reordered, and `x` with it.
    pub(super) fn execute(
        &mut self,
        b: &M::Vector,
        rhs_norm: f64,
        x: &mut M::Vector,
        own: bool,
    ) -> Result<&Report> {
        let options = &self.settings.options;
        let cancel = self.cancel.clone().unwrap_or_default();
        let budget = Budget::new(options.time_limit, options.max_iterations, cancel.clone());
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
            budget,
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
        self.report.iterations = task.budget.spent;
        self.report.bytes = task.bytes;
        self.report.time = task.budget.started.elapsed();
        Ok(&self.report)
    }

    /// Executes actions until the solve ends.
    fn actions(&mut self, task: &mut Task<'_, M::Vector>) -> Result<()> {
        let mut action = self.scheduler.begin();
        loop {
            if action != Action::Finish && task.budget.is_spent() {
                self.report.outcome = Outcome::IterationLimit;
                return self.return_best(task);
            }
            let (event, index) = match action {
                Action::Analyse => {
                    (Event::Analysed(Factorization::analysed(&self.matrix, &self.symbolic)), 0)
                }
                Action::Rearrange { ahead } => (Event::Rearranged(self.rearrange(ahead, task)?), 0),
                Action::Build { index, .. } | Action::Renew { index } if self.lacks_time(index, task) => {
                    (Event::TooLong, index)
                }
                Action::Build { index, limit } => (self.build_within(index, limit, task)?, index),
                Action::Renew { index } => (self.renew(index, task)?, index),
                Action::Run { index } => (self.run(index, task)?, index),
                Action::TestConsistency { factorize } => {
                    (Event::Tested(self.test_consistency(factorize, task)?), 0)
                }
                Action::Finish => return Ok(()),
            };
            let is_over = matches!(self.report.outcome, Outcome::Cancelled | Outcome::TimeLimit);
            if is_over || interrupt::is_raised() && !self.report.converged() {
                self.report.outcome = task.budget.interruption();
                return self.return_best(task);
            }
            if self.ends_here() {
                return Ok(());
            }
            action = self.scheduler.next(event, index);
        }
    }

    /// Whether no other candidate can help: `b` is not finite, or the tolerance is beyond the precision.
    fn ends_here(&self) -> bool {
        let threshold = self.settings.options.rtol * self.report.rhs_norm;
        match &self.report.outcome {
            Outcome::NotFinite { what: "`b`" } => true,
            Outcome::PrecisionLimit { limit, .. } => *limit > threshold,
            _ => false,
        }
    }

    /// Returns the best `x` after an interruption or at a limit. If nothing has run, the initial guess is the solution if it meets the
    /// tolerance.
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

    /// Whether the candidate is `CuDss`, whose factorization cannot be cancelled, and its setup is expected to take longer than is left. If
    /// so, reports an attempt.
    fn lacks_time(&mut self, index: usize, task: &mut Task<'_, M::Vector>) -> bool {
        let candidate = &self.scheduler.found.candidates[index];
        if candidate.preconditioner != Preconditioner::CuDss {
            return false;
        }
        let checked = check_time(&candidate.costs, &self.settings.profile, task.budget.time_left());
        let Err(error) = checked else { return false };
        let end = AttemptEnd::NotBuilt(error.to_string());
        self.attempts.push(Attempt::new(candidate, Duration::ZERO, f64::NAN, end));
        task.refused = Some(error);
        true
    }

    fn build_within(
        &mut self,
        index: usize,
        limit: WorkUnits,
        task: &mut Task<'_, M::Vector>,
    ) -> Result<Event> {
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
            Err(Error::Unsuitable { .. }) if self.is_beyond_limit(index, limit) => Ok(Event::Suspended),
            Err(error) => {
                let indefinite = matches!(error, Error::NotPositive { .. });
                task.refused = Some(error);
                Ok(Event::NotBuilt { indefinite })
            }
        }
    }

    /// Whether a preconditioner was refused because building it would exceed its limit.
    fn is_beyond_limit(&self, index: usize, limit: WorkUnits) -> bool {
        match self.scheduler.found.candidates[index].preconditioner {
            Preconditioner::Lu => self.begins.as_ref().is_some_and(Begins::is_suspended),
            Preconditioner::Ilut | Preconditioner::Ldl => limit < WorkUnits::INFINITE,
            _ => false,
        }
    }

    fn renew(&mut self, index: usize, task: &mut Task<'_, M::Vector>) -> Result<Event> {
        let started = Instant::now();
        self.mount(index, None)?;
        let Some((_, running)) = &mut self.running else { return Err(Error::NoOperator) };
        // a preconditioner that the host computes is renewed from the matrix in host memory: reading the values back from a GPU takes as
        // long as hundreds of iterations
        let preconditioner = self.scheduler.found.candidates[index].preconditioner;
        let (operator, m) = running.operators_mut();
        let renewed = match preconditioner == Preconditioner::Jacobi || preconditioner.needs_host() {
            true => m.refresh(&*self.matrix),
            false => m.refresh(operator),
        };
        if renewed.is_ok() {
            self.note_factors(index);
            task.setup += started.elapsed();
            task.preparation = Preparation::Renewed;
            return Ok(Event::Renewed);
        }
        // a failed refresh may have changed a part of the preconditioner: build it from scratch
        if let Some((_, running)) = self.running.take() {
            self.operator = Some(running.into_parts().0);
        }
        let limit = self.scheduler.limit(index);
        self.build_within(index, limit, task)
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
        let stopping = task.budget.stopping(rtol, T::EPSILON);
        let before = task.best.as_ref().map_or(1.0, |(_, least)| *least);
        let Some((_, running)) = &mut self.running else { return Err(Error::NoOperator) };
        *running.stopping() = stopping;
        let b = task.reordered.as_ref().unwrap_or(task.b);
        let mut report = running.solve_into(b, task.x)?.clone();
        let residual = match report.converged() {
            // the solver has recomputed the residual
            true => report.relative_residual().min(rtol),
            false => self.recomputed(task, report.rhs_norm)?,
        };
        if let Some(symbolic) = &*self.symbolic.lock().unwrap_or_else(PoisonError::into_inner) {
            self.scheduler.analysed(Factorization::of(symbolic));
        }
        task.budget.spent = task.budget.spent.saturating_add(report.iterations);
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
        let broken = matches!(report.outcome, Outcome::Breakdown { value, .. } if value < 0.0);
        let end = match &report.outcome {
            _ if solved => End::Converged,
            Outcome::Stopped => End::Stopped { estimate, renew: verdict == Verdict::Renew },
            _ => End::Failed { indefinite: broken && candidate.needs_definite() },
        };
        let ending = match &report.outcome {
            _ if solved => AttemptEnd::Ended(Outcome::Converged),
            Outcome::Stopped if verdict == Verdict::Renew => AttemptEnd::Outdated,
            Outcome::Stopped => self.switched(&estimate, time.as_secs_f64() / iterations.max(1) as f64),
            outcome => AttemptEnd::Ended(outcome.clone()),
        };
        let attempt = Attempt::new(candidate, std::mem::take(&mut task.setup) + ordering, residual, ending);
        let preparation = std::mem::replace(&mut task.preparation, Preparation::Ready);
        self.attempts.push(Attempt { iterations, time, preparation, ..attempt });
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

    /// Reorders the matrix, `b`, `x` and the best solution so far, if that makes products faster, or changes the format. Returns whether
    /// the matrix was reordered.
    fn rearrange(&mut self, ahead: WorkUnits, task: &mut Task<'_, M::Vector>) -> Result<bool> {
        let started = Instant::now();
        let (machine, matrix, symmetric) = (&self.machine, &self.matrix, self.settings.symmetric);
        let found = match self.measures() {
            true => fastest(machine, matrix, symmetric, ahead, task.own).map(Some),
            false => reordered(machine, matrix, symmetric)
                .map(|found| found.map(|(matrix, operator)| (Some(matrix), operator))),
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
        let (old, new) = (self.space()?.clone(), operator.domain().clone());
        let mut host = vec![T::default(); old.len()];
        let mut moved = |from: &M::Vector| -> Result<M::Vector> {
            old.store(from, &mut host)?;
            let mut to = new.zeros()?;
            new.load(&host, &mut to)?;
            Ok(to)
        };
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
        let mut r = match kept {
            Some(r) => r,
            None => a.range().zeros()?,
        };
        M::residual(&self.matrix, a, task.b(), task.x, &mut r)?;
        let norm = norm(&r)?;
        self.residual = Some(r);
        Ok(if norm == 0.0 { 0.0 } else { norm / rhs_norm })
    }

    /// Stores `x` if it is the best solution so far; otherwise sets `x` to the best solution, or to zero if there is none.
    fn keep_best(&mut self, task: &mut Task<'_, M::Vector>, residual: f64) -> Result<()> {
        // the relative residual of x = 0 is 1
        if residual < task.best.as_ref().map_or(1.0, |(_, least)| *least) {
            let mut copy = task.x.space().zeros()?;
            copy.copy_from(task.x);
            task.best = Some((copy, residual));
        }
        let least = match &task.best {
            Some((best, least)) => {
                task.x.copy_from(best);
                *least
            }
            None => {
                *task.x = task.x.space().zeros()?;
                1.0
            }
        };
        self.report.true_residual = least * self.report.rhs_norm;
        Ok(())
    }

    /// Minimizes the residual, and tests whether the system has a solution. Returns whether that decides the solve.
    fn test_consistency(&mut self, factorize: bool, task: &mut Task<'_, M::Vector>) -> Result<bool> {
        let space = self.space()?.clone();
        let mut host = [vec![T::default(); space.len()], vec![T::default(); space.len()]];
        space.store(task.b(), &mut host[0])?;
        space.store(task.x, &mut host[1])?;
        let [b, x] = &host;
        let slope = T::EPSILON.powf(if self.settings.singular { SLOPE_SINGULAR } else { SLOPE });
        let most = task.budget.left(usize::MAX);
        let least = match least_squares(&self.matrix, b, x, slope, factorize, most) {
            Err(Error::Interrupted(_)) | Ok(None) => return Ok(false),
            Ok(Some(least)) => least,
            Err(error) => return Err(error),
        };
        space.load(&least.x, task.x)?;
        task.budget.spent = task.budget.spent.saturating_add(least.iterations);
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
        self.attempts.push(Attempt {
            method: Method::LeastSquares,
            preconditioner: Preconditioner::Jacobi,
            reason: "is the system consistent?".into(),
            iterations: least.iterations,
            block: 1,
            setup: Duration::ZERO,
            preparation: Preparation::Built,
            time: least.time,
            residual,
            ending: AttemptEnd::Ended(outcome),
        });
        Ok(decided)
    }
}

pub(super) fn norm<V: Vector<Elem: Real>>(v: &V) -> Result<f64> {
    Ok(krysp_solvers::Element::to_f64(v.norm_squared().read()?).sqrt())
}
