//! Tries one configuration after the other until the residual is small enough.

use super::candidates::Candidate;
use super::plan::Options;
use super::rung::{Outside, Runs, solver};
use super::{Builds, Left, Plan, Rung, Solved};
use crate::{Csr, Error, Format, Operator, Outcome, Real, Report, Result};
use krysp_solvers::{CancelToken, LinearOperator, Scalar, Space, SpaceOf, Stopping, Vector};
use std::time::{Duration, Instant};

/// Iterations of a rung, if the user sets no limit: time is what limits it.
const ITERATIONS: usize = 100_000;

/// Steps of GMRES before it starts again: longer than its default, because what is hard needs a longer memory.
const RESTART: usize = 60;

/// A solver that tries one configuration after the other. Made by [`Plan::build`].
pub struct Ladder<T: Real, M: Builds<T>> {
    machine: M,
    matrix: Csr<T>,
    symmetric: bool,
    candidates: Vec<Candidate>,
    options: Options,
    cancel: Option<CancelToken>,
    /// The rung that the next solve begins with.
    at: usize,
    running: Option<(usize, Box<dyn Runs<T, M::Vector>>)>,
    /// Where no rung has it.
    operator: Option<Operator<M::Vector>>,
    report: Report,
    rungs: Vec<Rung>,
}

impl<T: Real, M: Builds<T>> Ladder<T, M>
where
    M::Vector: 'static,
{
    pub(super) fn new(plan: &Plan<'_, T, M>) -> Result<Self> {
        let matrix = plan.a.clone();
        let symmetric = plan.profile.is_symmetric() && !plan.options.new_values;
        let operator = operator(&plan.machine, &matrix, symmetric, plan.options.format.as_deref())?;
        Ok(Ladder {
            machine: plan.machine.clone(),
            matrix,
            symmetric,
            candidates: plan.candidates(),
            options: plan.options.clone(),
            cancel: None,
            at: 0,
            running: None,
            operator: Some(operator),
            report: Report::default(),
            rungs: vec![],
        })
    }

    /// Ends solves when another thread cancels the token.
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// The space of `b` and `x` for [`Ladder::solve_into`].
    pub fn space(&self) -> Result<&SpaceOf<M::Vector>> {
        Ok(self.current()?.domain())
    }

    /// The operator, in the format that was chosen.
    pub fn operator(&self) -> Result<&Operator<M::Vector>> {
        self.current()
    }

    fn current(&self) -> Result<&Operator<M::Vector>> {
        match (&self.running, &self.operator) {
            (Some((_, rung)), _) => Ok(rung.operator()),
            (None, Some(operator)) => Ok(operator),
            (None, None) => Err(Error::Lost),
        }
    }

    /// Solves `A x = b` from `x = 0`; `b` and `x` are in host memory and in the user's numbering.
    pub fn solve(&mut self, b: &[T]) -> Result<Solved<T>> {
        self.solve_host(b, None)
    }

    /// Solves `A x = b` from the guess `x0`.
    pub fn solve_from(&mut self, b: &[T], x0: &[T]) -> Result<Solved<T>> {
        self.solve_host(b, Some(x0))
    }

    fn solve_host(&mut self, b: &[T], x0: Option<&[T]>) -> Result<Solved<T>> {
        let space = self.space()?.clone();
        for (what, vector) in [("`b`", Some(b)), ("`x0`", x0)] {
            if let Some(got) = vector.map(<[T]>::len).filter(|&got| got != space.len()) {
                let expected = space.len();
                return Err(krysp_solvers::Error::Size { what, got, of: "`A`'s rows", expected }.into());
            }
        }
        let (mut rhs, mut x) = (space.zeros()?, space.zeros()?);
        space.load(b, &mut rhs)?;
        if let Some(x0) = x0 {
            space.load(x0, &mut x)?;
        }
        self.solve_into(&rhs, &mut x)?;
        let mut host = vec![T::default(); b.len()];
        space.store(&x, &mut host)?;
        Ok(Solved { x: host, report: self.report.clone(), rungs: self.rungs.clone() })
    }

    /// The rungs of the last solve.
    pub fn rungs(&self) -> &[Rung] {
        &self.rungs
    }

    /// New values for the same pattern, in the order in which the matrix was given.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.matrix.refresh(values)?;
        if let Some((_, rung)) = &mut self.running {
            if rung.refresh(values).is_ok() {
                return Ok(());
            }
            // the preconditioner refuses the new values: the ladder begins anew
            self.operator = self.running.take().map(|(_, rung)| rung.into_operator());
        }
        self.at = 0;
        match &mut self.operator {
            Some(operator) => operator.refresh(values),
            None => {
                let format = self.options.format.as_deref();
                self.operator = Some(operator(&self.machine, &self.matrix, self.symmetric, format)?);
                Ok(())
            }
        }
    }

    /// Solves `A x = b` on vectors of [`Ladder::space`], which are not copied. `x` holds the guess and receives the solution.
    pub fn solve_into(&mut self, b: &M::Vector, x: &mut M::Vector) -> Result<&Report> {
        let started = Instant::now();
        self.rungs.clear();
        let mut best = None;
        let (mut iterations, mut bytes) = (0, 0);
        for index in self.at..self.candidates.len() {
            let Some(setup) = self.climb(index)? else { continue };
            let Some((_, running)) = &mut self.running else { return Err(Error::Lost) };
            *running.stopping() = Stopping {
                rtol: self.options.rtol,
                max_iterations: self
                    .options
                    .max_iterations
                    .unwrap_or(usize::MAX)
                    .min(ITERATIONS + iterations)
                    - iterations,
                time_limit: self.options.time_limit.map(|limit| limit.saturating_sub(started.elapsed())),
                ..Stopping::new(T::EPSILON)
            };
            let mut report = running.solve_into(b, x)?.clone();
            let mut residual = recomputed(running.operator(), b, x, report.rhs_norm)?;
            // a solver is content with twice the tolerance: it goes on from there
            if report.converged() && residual > self.options.rtol {
                let (before, moved, took) = (report.iterations, report.bytes, report.time);
                running.stopping().rtol = 0.5 * self.options.rtol;
                report = running.solve_into(b, x)?.clone();
                report.iterations += before;
                report.bytes += moved;
                report.time += took;
                residual = recomputed(running.operator(), b, x, report.rhs_norm)?;
            }
            iterations += report.iterations;
            bytes += report.bytes;
            let candidate = &self.candidates[index];
            self.rungs.push(Rung {
                method: candidate.method,
                preconditioner: candidate.preconditioner,
                reason: candidate.reason.clone(),
                iterations: report.iterations,
                setup,
                time: report.time,
                residual,
                ending: Left::Ended(report.outcome.clone()),
            });
            let better = best.as_ref().is_none_or(|(_, least)| residual < *least);
            self.report = report;
            self.report.true_residual = residual * self.report.rhs_norm;
            let ends = matches!(
                self.report.outcome,
                Outcome::Cancelled
                    | Outcome::Stopped
                    | Outcome::TimeLimit
                    | Outcome::NotFinite { whence: "`b`" }
            );
            if residual <= self.options.rtol || (self.report.rhs_norm == 0.0 && self.report.converged()) {
                self.report.outcome = Outcome::Converged;
                self.at = index;
                break;
            }
            if better && residual.is_finite() {
                let mut copy = x.space().zeros()?;
                copy.copy_from(x);
                best = Some((copy, residual));
            }
            match &best {
                Some((best, least)) => {
                    x.copy_from(best);
                    self.report.true_residual = least * self.report.rhs_norm;
                }
                None => *x = x.space().zeros()?,
            }
            if self.report.converged() {
                self.report.outcome = Outcome::IterationLimit;
            }
            if ends || self.options.max_iterations.is_some_and(|most| iterations >= most) {
                break;
            }
        }
        self.report.iterations = iterations;
        self.report.bytes = bytes;
        self.report.time = started.elapsed();
        Ok(&self.report)
    }

    /// Makes this rung the running one. `None` if it cannot be built, which is noted.
    fn climb(&mut self, index: usize) -> Result<Option<Duration>> {
        if self.running.as_ref().is_some_and(|(running, _)| *running == index) {
            return Ok(Some(Duration::ZERO));
        }
        let started = Instant::now();
        if let Some((_, rung)) = self.running.take() {
            self.operator = Some(rung.into_operator());
        }
        let Some(operator) = &self.operator else { return Err(Error::Lost) };
        let candidate = &self.candidates[index];
        let m = match self.machine.preconditioner(candidate.preconditioner, &self.matrix, operator) {
            Ok(m) => m,
            Err(error) => {
                self.rungs.push(Rung {
                    method: candidate.method,
                    preconditioner: candidate.preconditioner,
                    reason: candidate.reason.clone(),
                    iterations: 0,
                    setup: started.elapsed(),
                    time: Duration::ZERO,
                    residual: f64::NAN,
                    ending: Left::Refused(error.to_string()),
                });
                return Ok(None);
            }
        };
        let Some(operator) = self.operator.take() else { return Err(Error::Lost) };
        let outside = Outside { cancel: self.cancel.as_ref(), watch: None };
        let rung =
            solver(candidate.method, RESTART.min(operator.domain().len().max(1)), operator, m, &outside);
        self.running = Some((index, rung));
        Ok(Some(started.elapsed()))
    }
}

/// `‖b − A x‖ / ‖b‖`, in twice the precision.
fn recomputed<T: Real, V: Vector<Elem = T>>(a: &Operator<V>, b: &V, x: &V, rhs_norm: f64) -> Result<f64> {
    let mut r = a.range().zeros()?;
    a.residual(b, x, &mut r)?;
    let squared = r.norm_squared().read()?.to_f64();
    Ok(if squared == 0.0 { 0.0 } else { squared.sqrt() / rhs_norm })
}

fn operator<T: Real, M: Builds<T>>(
    machine: &M,
    matrix: &Csr<T>,
    symmetric: bool,
    format: Option<&str>,
) -> Result<Operator<M::Vector>> {
    match (format, symmetric) {
        (Some(format), _) => Operator::in_format(matrix, machine, format),
        (None, true) => Operator::symmetric(matrix, machine).or_else(|_| Operator::auto(matrix, machine)),
        (None, false) => Operator::auto(matrix, machine),
    }
}
