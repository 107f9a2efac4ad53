//! Several right-hand sides: the first solve finds what suits, the others run that in lockstep.

use super::solved::{Attempt, AttemptEnd, Solved};
use super::{Backend, PlannedSolver};
use crate::{Error, Outcome, Real, Result};
use krysp_solvers::{MultiVector, Space, Stopping, Vector};
use std::time::Duration;

/// The most right-hand sides that are solved together: their vectors take memory. Guess, as in the solvers.
const TOGETHER: usize = 16;

/// Iterations of a solve at most, if the user sets no limit.
const ITERATIONS: usize = 100_000;

impl<T: Real, M: Backend<T>> PlannedSolver<T, M>
where
    M::Vector: 'static,
{
    /// Solves `A x_j = b_j` for several right-hand sides from zero. Returns a solution for each, in order.
    ///
    /// The first one is solved as by [`solve`](PlannedSolver::solve), which decides on method and preconditioner. The others are
    /// solved with these in lockstep, with one product for all in each iteration. One that does not converge that way is solved
    /// by itself, as by `solve`. Observers see only what is solved by itself. A time limit counts for each solve, and once for
    /// those that run together.
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
        let expected = self.space()?.len();
        for b in b {
            let got = b.as_ref().len();
            if got != expected {
                let (what, of) = ("`b`", "`A`'s rows");
                return Err(krysp_solvers::Error::Size { what, got, of, expected }.into());
            }
        }
        let Some((first, others)) = b.split_first() else { return Ok(vec![]) };
        let mut all = vec![self.solve(first.as_ref())?];
        for group in others.chunks(TOGETHER) {
            let together = match self.report.converged() {
                true => self.run_together(group)?,
                false => vec![],
            };
            let mut together = together.into_iter();
            for b in group {
                all.push(match together.next().flatten() {
                    Some(solved) => solved,
                    None => self.solve(b.as_ref())?,
                });
            }
        }
        Ok(all)
    }

    /// Solves with what has solved the last system. Those that converge are returned.
    fn run_together<B: AsRef<[T]>>(&mut self, b: &[B]) -> Result<Vec<Option<Solved<T>>>> {
        let space = self.space()?.clone();
        let options = &self.settings.options;
        let mut rhs = MultiVector::<M::Vector>::zeros(&space, b.len())?;
        let mut removed = Vec::with_capacity(b.len());
        for (b, rhs) in b.iter().zip(rhs.columns_mut()) {
            let (b, part) = options.knowledge.without_null_space(b.as_ref());
            space.load(&b, rhs)?;
            removed.push(part);
        }
        let mut x = MultiVector::<M::Vector>::zeros(&space, b.len())?;
        let stopping = Stopping {
            rtol: options.rtol,
            max_iterations: options.max_iterations.unwrap_or(ITERATIONS),
            time_limit: options.time_limit,
            ..Stopping::new(T::EPSILON)
        };
        let Some((index, running)) = &mut self.running else { return Err(Error::Lost) };
        *running.stopping() = stopping;
        let reports = running.solve_many_into(&rhs, &mut x)?;
        let candidate = &self.scheduler.candidates[*index];
        let mut all = Vec::with_capacity(reports.len());
        for ((mut report, x), removed) in reports.into_iter().zip(x.columns()).zip(removed) {
            if !report.converged() {
                all.push(None);
                continue;
            }
            let mut host = vec![T::default(); x.space().local_len()];
            space.store(x, &mut host)?;
            let ending = AttemptEnd::Ended(Outcome::Converged);
            let attempt = Attempt::new(candidate, Duration::ZERO, report.relative_residual(), ending);
            let (iterations, time) = (report.iterations, report.time);
            let preparation = super::Preparation::Ready;
            let attempts = vec![Attempt { iterations, time, preparation, ..attempt }];
            report.removed = removed;
            all.push(Some(Solved { x: host, report, attempts }));
        }
        Ok(all)
    }
}
