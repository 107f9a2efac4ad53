//! Several right-hand sides: the candidate of the first successful solve runs on the others, in lockstep or in blocks.

use super::blocks::Blocks;
use super::costs::unit;
use super::executor::{ITERATIONS, norm, stored};
use super::scaled::needs_no_scaling;
use super::{Attempt, AttemptEnd, Backend, Method, PlannedSolver, Preparation, Solved};
use crate::choice::Operator;
use crate::error::{Error, Result};
use crate::numbers::Real;
use krysp_solvers::{BasicVector, MultiVector, Outcome, Report, Space, Stopping};
use std::mem::replace;

/// Maximum number of right-hand sides that are solved together, because their vectors take memory. Guess, as in the solvers.
const TOGETHER: usize = 16;

/// No monitor stops a joint run. So a column makes at most `max(LEAST, LONGER * iterations of the lead)` iterations in it, and then
/// continues by itself. Guesses: right-hand sides of one matrix rarely differ by more than a factor of two.
const LEAST: usize = 1000;
const LONGER: usize = 4;

/// Maximum factor by which the iterations of a lead are increased for what earlier attempts did. A guess.
const MOST_BEFORE: f64 = 10.0;

/// Minimum number of products for a conversion to a format with faster joint products. A guess: it takes as long as 10 to 30 products.
const CONVERSION: usize = 100;

/// A candidate that has solved a system, and the iterations that it takes for one, from `x = 0`.
#[derive(Clone, Copy)]
struct Lead {
    index: usize,
    iterations: usize,
}

/// The result of a column in a joint run, and whether the solve of the column has ended; `None` if it needs a separate solve.
type Part<T> = Option<(Solved<T>, bool)>;

impl<T: Real, M: Backend<T>> PlannedSolver<T, M>
where
    M::Vector: 'static,
{
    /// Solves `A x_j = b_j` for several right-hand sides from `x = 0`. Returns a solution for each, in order.
    ///
    /// Columns are solved as by [`solve`](PlannedSolver::solve) until a candidate has solved one of them by iterations. The others run
    /// that candidate in lockstep, with one product for all in each iteration. A column that fails there continues by itself from its
    /// iterate, with what is left of its limits; its joint run is the first of its attempts. Every column is solved by itself by
    /// methods with cycles such as GMRES, and where lockstep is slower: on a CPU if the matrix and the preconditioner take less memory than
    /// eight vectors, on a GPU if fewer than four columns are left or a solve fits on-chip memory. Observers are called only for columns
    /// that are solved by themselves.
    ///
    /// If the candidate runs [`Cg`](crate::Cg) on a CPU, blocks of up to 16 columns share one search space
    /// ([`solve_block`](krysp_solvers::Solver::solve_block)) where that is expected to be faster: they need fewer iterations, each with more
    /// work. [`Attempt::block`] is the number of columns of the block. The bits of a solution then depend on all columns of its block;
    /// otherwise they are those of a solve by itself.
    ///
    /// A symmetric format multiplies one vector after the other. If lockstep runs expect many products, the matrix is therefore converted to
    /// a format that reads it once for several vectors, and remains in that format, unless [`Plan::format`](super::Plan::format) names one.
    ///
    /// The limits of time and iterations hold for each column. The whole time of a lockstep run counts for each of its columns.
    ///
    /// # Errors
    /// Returns the error of [`solve`](PlannedSolver::solve) for one of the columns. The solutions of the others are lost.
    ///
    /// ```
    /// use krysp::{Plan, gallery};
    ///
    /// let a = gallery::poisson::<f64>(&[20, 20])?;
    /// let loads = [vec![1.0; 400], (0..400).map(f64::from).collect()];
    /// let solutions = Plan::new(&a)?.solves(2).build()?.solve_many(&loads)?;
    /// assert!(solutions.iter().all(|solution| solution.converged()));
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn solve_many<B: AsRef<[T]>>(&mut self, b: &[B]) -> Result<Vec<Solved<T>>> {
        b.iter().try_for_each(|b| self.check_length("`b`", b.as_ref()))?;
        let mut all: Vec<Solved<T>> = Vec::with_capacity(b.len());
        let mut lead: Option<Lead> = None;
        let mut unchanged = true;
        let mut correction = 1.0;
        while all.len() < b.len() {
            let rest = &b[all.len()..];
            // Columns that were solved by themselves in the meantime may have replaced the preconditioner of the lead.
            lead = lead.filter(|lead| self.mount(lead.index, None).is_ok());
            let (group, parts) = match lead.map(|lead| (lead, self.joint(rest.len(), lead, correction))) {
                Some((lead, Some((columns, block)))) => {
                    let group = &rest[..columns];
                    // decided once, before the first joint run
                    if replace(&mut unchanged, false) {
                        self.store_for(rest.len(), lead);
                    }
                    // An error is ignored here: the single solves of these columns report it.
                    let parts = self.run_together(group, lead, block).unwrap_or_default();
                    correction = self.corrected(&parts, lead, correction);
                    (group, parts)
                }
                _ => (&rest[..1], vec![]),
            };
            // A lead that solves no column of a group is not used for other groups.
            let solves = parts.iter().flatten().any(|(solved, _)| solved.converged());
            lead = lead.filter(|_| solves || group.len() == 1);
            let mut parts = parts.into_iter();
            for b in group {
                let b = b.as_ref();
                let solved = match parts.next().flatten() {
                    Some((solved, true)) => {
                        all.push(solved);
                        continue;
                    }
                    Some((solved, false)) => self.resume(b, solved)?,
                    None => self.solve(b)?,
                };
                lead = self.lead(&solved).or(lead);
                all.push(solved);
            }
        }
        if let Some(last) = all.last() {
            (self.report, self.attempts) = (last.report.clone(), last.attempts.clone());
        }
        Ok(all)
    }

    /// Converts a matrix in a symmetric format to the one with the fastest products for several vectors, if the run has at least
    /// [`CONVERSION`] products, and joint products are expected to be cheaper. Keeps the format if that fails, as for lack of memory.
    fn store_for(&mut self, columns: usize, lead: Lead) {
        let is_symmetric = self.operator().is_ok_and(|operator| operator.choice().stored().is_symmetric());
        let products = lead.iterations.saturating_mul(columns);
        if !is_symmetric || self.settings.options.format.is_some() || products < CONVERSION {
            return;
        }
        let Ok(joint) = Operator::auto(&*self.matrix, &self.machine) else { return };
        let cost =
            |operator: &Operator<M::Vector>| operator.choice().chosen().cost_of_joint(columns.min(TOGETHER));
        if self.operator().is_ok_and(|operator| cost(&joint) < cost(operator))
            && let Some((index, m)) = self.take_apart()
        {
            self.operator = Some(joint);
            // cannot fail, because the operator and the preconditioner are there
            let _ = self.mount(index, Some(m));
        }
    }

    /// How many of `left` columns are solved next with the lead, and whether they share one search space; `None` if columns are solved by
    /// themselves. `correction` is that of [`Blocks`].
    fn joint(&mut self, left: usize, lead: Lead, correction: f64) -> Option<(usize, bool)> {
        let columns = left.min(TOGETHER);
        let blocks = self.blocks(lead, correction);
        let [lockstep, has_blocks] = self.running.as_mut()?.1.joins(columns);
        // the null space is removed from the preconditioned vectors, which may make the Gram matrix of a block indefinite
        let shares = has_blocks && !self.settings.profile.declared.null_space;
        match blocks.width(left, lockstep).filter(|_| shares) {
            Some(columns) => Some((columns, true)),
            None => lockstep.then_some((columns, false)),
        }
    }

    /// The work of the lead on several columns.
    fn blocks(&self, lead: Lead, correction: f64) -> Blocks {
        let profile = &self.settings.profile;
        let iteration = self.scheduler.found.candidates[lead.index].costs.iteration.0 * unit(profile);
        Blocks { rows: profile.rows as f64, iteration, iterations: lead.iterations, correction }
    }

    /// The correction after a joint run, from the mean iterations of its columns that converged in a block.
    fn corrected(&self, parts: &[Part<T>], lead: Lead, correction: f64) -> f64 {
        let reports = parts.iter().flatten().map(|(solved, _)| &solved.report);
        let of_block: Vec<_> = reports.filter(|report| report.block > 1 && report.converged()).collect();
        let Some(first) = of_block.first() else { return correction };
        let iterations: usize = of_block.iter().map(|report| report.iterations).sum();
        let mut blocks = self.blocks(lead, correction);
        blocks.took(first.block, iterations as f64 / of_block.len() as f64);
        blocks.correction
    }

    /// The running candidate, if it runs in lockstep and its iterations have just solved a system: a zero right-hand side and the
    /// consistency test solve systems without it.
    fn lead(&self, solved: &Solved<T>) -> Option<Lead> {
        let (index, _) = self.running.as_ref()?;
        let candidate = self.scheduler.found.candidates.get(*index)?;
        let last = solved.attempts.last()?;
        let by_it = last.method == candidate.method && last.preconditioner == candidate.preconditioner;
        let has_cycles = matches!(last.method, Method::Gmres | Method::Fgmres | Method::LeastSquares);
        let has_solved = matches!(last.ending, AttemptEnd::Ended(Outcome::Converged)) && last.iterations > 0;
        // earlier attempts may have reduced the residual, which falls by about the same factor in every iteration
        let residuals = solved.attempts.iter().rev().skip(1).map(|attempt| attempt.residual);
        let from = residuals.filter(|residual| residual.is_finite()).fold(1.0, f64::min);
        let rtol = self.settings.options.rtol;
        let whole = rtol.ln() / (rtol / from).ln();
        let whole = if whole > 1.0 { whole.min(MOST_BEFORE) } else { 1.0 };
        let lead = Lead { index: *index, iterations: (whole * last.iterations as f64) as usize };
        (!has_cycles && solved.converged() && by_it && has_solved).then_some(lead)
    }

    /// Runs the lead, which is the running candidate, on several right-hand sides. Returns `None` for those that need a separate solve,
    /// because they are zero, not finite or to be scaled.
    fn run_together<B: AsRef<[T]>>(&mut self, b: &[B], lead: Lead, block: bool) -> Result<Vec<Part<T>>> {
        let space = self.space()?.clone();
        let options = &self.settings.options;
        let mut rhs = MultiVector::<M::Vector>::zeros(&space, b.len())?;
        let mut removed = Vec::with_capacity(b.len());
        for (b, rhs) in b.iter().zip(rhs.columns_mut()) {
            let (b, part) = options.declarations.without_null_space(b.as_ref());
            space.load(&b, rhs)?;
            let runs = needs_no_scaling::<T>(norm(rhs)?);
            if !runs {
                *rhs = space.zeros()?;
            }
            removed.push(runs.then_some(part));
        }
        let mut x = MultiVector::<M::Vector>::zeros(&space, b.len())?;
        let limit = options.max_iterations.unwrap_or(ITERATIONS);
        let most = LEAST.max(lead.iterations.saturating_mul(LONGER));
        let stopping = Stopping {
            rtol: options.rtol,
            max_iterations: limit.min(most),
            time_limit: options.time_limit,
            ..Stopping::new(T::EPSILON)
        };
        let Some((_, running)) = &mut self.running else { return Err(Error::NoOperator) };
        let reports = running.solve_many_into(stopping, &rhs, &mut x, block)?;
        let mut all = Vec::with_capacity(reports.len());
        for ((mut report, x), removed) in reports.into_iter().zip(x.columns()).zip(removed) {
            // If columns were solved one after the other, the report of a later one includes the time of the earlier ones, so that it may
            // have reached the time limit without an iteration. Such a column is solved again.
            let unsolved = matches!(report.outcome, Outcome::TimeLimit) && report.iterations == 0;
            let Some(removed) = removed.filter(|_| !unsolved) else {
                all.push(None);
                continue;
            };
            report.removed = removed;
            let is_final = match &report.outcome {
                Outcome::Converged | Outcome::TimeLimit | Outcome::Cancelled => true,
                Outcome::IterationLimit => limit <= most,
                _ => false,
            };
            all.push(Some((self.ran(lead.index, report, x)?, is_final)));
        }
        for (Solved { report, .. }, _) in all.iter().flatten().filter(|(solved, _)| solved.converged()) {
            // the scheduler expects of later solves what a solve by itself takes
            let iterations = if report.block > 1 { lead.iterations } else { report.iterations };
            self.scheduler.solved(lead.index, iterations);
        }
        Ok(all)
    }

    /// The solution of a column of a joint run, or zero if that has a smaller residual, with the run as its only attempt.
    fn ran(&self, index: usize, mut report: Report, x: &M::Vector) -> Result<Solved<T>> {
        let residual = report.relative_residual();
        let x = if report.converged() || residual < 1.0 {
            stored(x)?
        } else {
            report.true_residual = report.rhs_norm;
            vec![T::default(); x.space().local_len()]
        };
        let candidate = &self.scheduler.found.candidates[index];
        let attempt = Attempt::new(candidate, AttemptEnd::Ended(report.outcome.clone()));
        let preparation = match self.scheduler.is_built(index) {
            Some(true) => Preparation::Kept,
            _ => Preparation::Ready,
        };
        let (iterations, block, time) = (report.iterations, report.block, report.time);
        let attempt = Attempt { iterations, block, time, preparation, residual, ..attempt };
        Ok(Solved { x, report, attempts: vec![attempt] })
    }

    /// Continues the solve of a column from its iterate, with what is left of its limits.
    fn resume(&mut self, b: &[T], part: Solved<T>) -> Result<Solved<T>> {
        let Solved { x, report, mut attempts } = part;
        if report.iterations == 0 {
            return self.solve(b);
        }
        let options = &mut self.settings.options;
        let limits = (options.max_iterations, options.time_limit);
        options.max_iterations = Some(limits.0.unwrap_or(ITERATIONS).saturating_sub(report.iterations));
        options.time_limit = limits.1.map(|most| most.saturating_sub(report.time));
        let resumed = self.solve_from(b, &x);
        let options = &mut self.settings.options;
        (options.max_iterations, options.time_limit) = limits;
        let mut solved = resumed?;
        attempts.append(&mut solved.attempts);
        solved.attempts = attempts;
        solved.report.iterations = solved.report.iterations.saturating_add(report.iterations);
        solved.report.bytes += report.bytes;
        solved.report.time += report.time;
        Ok(solved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::plan::Plan;
    use crate::testing::matrices;

    /// A symmetric format is replaced before a lockstep run that is long enough, unless the user has chosen it.
    #[test]
    fn symmetric_formats_are_not_used_for_several_vectors() {
        let a = matrices::elasticity(10).csr::<f64>().unwrap();
        let b = vec![1.0; a.rows()];
        for (format, iterations, replaced) in
            [(None, 1000, true), (None, 10, false), (Some("symmetric BSR"), 1000, false)]
        {
            let mut plan = Plan::new(&a).unwrap();
            if let Some(format) = format {
                plan = plan.format(format);
            }
            let mut planned = plan.build().unwrap();
            let is_symmetric = |planned: &PlannedSolver<f64, Host>| {
                planned.operator().unwrap().choice().stored().is_symmetric()
            };
            assert!(is_symmetric(&planned));
            let before = planned.solve(&b).unwrap();
            let index = planned.running.as_ref().unwrap().0;
            planned.store_for(8, Lead { index, iterations });
            assert_eq!(is_symmetric(&planned), !replaced, "{format:?}, {iterations} iterations");
            let after = planned.solve(&b).unwrap();
            assert!(before.converged() && after.converged());
        }
    }
}
