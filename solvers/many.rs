//! Solves with several right-hand sides: as many independent recurrences in lockstep, with one product for
//! all of them.
//!
//! ```text
//! for each column j:  first residual; columns that need no iteration have ended
//! until all columns have ended:
//!     one step of the method on all open columns
//!     for each of them:  the decisions of a separate solve
//!         it ends: close the column; recompute b_j − A x_j; restart it separately where a separate solve would
//! ```
//!
//! A column has the operations and decisions of a single solve, in the same order, so its solution and its
//! report are those of [`Solver::solve`], bitwise where operations are reproducible. Exceptions: `time`
//! counts from the common start, and the estimate of `‖A‖` in `backward_error` starts from the first
//! right-hand side. No column, not even one that breaks down, changes a bit of the others.
//!
//! [`Solver::solve_block`] uses the same driver with the steps of a block method, whose columns share one
//! search space.
//!
//! Columns are solved one after the other for methods with cycles, which keep a least-squares problem per
//! column on the host (other methods keep only vectors and scalars), unless they share a search space; for
//! small operators with cheap preconditioners, where that is faster ([`Steps::lockstep_pays`]); with a null
//! space, observers or stop rules; and if the operator or the preconditioner returns an error, for the columns
//! that have not ended.
//!
//! All columns have the same start: a time limit bounds all of them together.
//!
//! Memory: that of one solver, and one more workspace for each column of a group of [`TOGETHER`]. The solver keeps
//! it, so that a second solve of as many columns allocates nothing.

use crate::driver::{Driver, Operators};
use crate::few::TOGETHER;
use crate::joint::Run;
use crate::{
    Arithmetic, BasicVector, ElemOf, Error, LinearOperator, Method, MultiVector, Report, Result, Solution,
    Solver, Space, Steps, StepsOf, Vector,
};
use num_traits::Zero;
use std::mem::swap;
use std::time::Instant;

/// A way of solving several columns with joint steps.
pub(crate) struct Joining<K, J, V: Vector> {
    /// Returns the method that advances all columns, given the method of a single solve.
    pub(crate) method: fn(&K) -> &J,
    /// True if the columns of a group share one search space.
    pub(crate) shares: bool,
    /// Returns whether joint steps are faster than separate solves, for an operator, a preconditioner and a number of
    /// columns.
    pub(crate) pays: fn(&dyn LinearOperator<Vector = V>, &dyn LinearOperator<Vector = V>, usize) -> bool,
}

impl<K, A, M> Solver<K, A, M>
where
    A: LinearOperator,
    K: Method<A::Vector> + Method<MultiVector<A::Vector>>,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Solves `A x_j = b_j` for several right-hand sides from zero. If the operator and the preconditioner
    /// take at least the memory of eight vectors, each iteration makes one product for all of them. Returns
    /// the solutions of [`Solver::solve`], in order. A column that fails does not affect the others; its
    /// report says why. The time limit holds for all columns together, and `time` of every report counts from
    /// the common start. `bytes` is that of a separate solve, although all columns share the reads of the
    /// matrix.
    ///
    /// # Errors
    /// The errors of [`Solver::solve`]. If a separate solve of one column returns an error, no solution is
    /// returned.
    ///
    /// ```
    /// use krysp::{Cg, Jacobi, gallery};
    ///
    /// let a = gallery::poisson::<f64>(&[20, 20])?;
    /// let loads = [vec![1.0; 400], (0..400).map(f64::from).collect()];
    /// let solutions = Cg::new(&a).preconditioner(Jacobi::new(&a)?).solve_many(&loads)?;
    /// assert!(solutions.iter().all(|solution| solution.report.converged()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "multiple right-hand sides")]
    pub fn solve_many<B>(&mut self, b: &[B]) -> Result<Vec<Solution<ElemOf<A::Vector>>>>
    where
        B: AsRef<[ElemOf<A::Vector>]>,
    {
        let b: Vec<_> = b.iter().map(AsRef::as_ref).collect();
        let (driver, on) = self.parts();
        let solutions = driver.solve_columns(on, &b, &Self::LOCKSTEP);
        self.or_report(solutions)
    }

    /// Like [`Solver::solve_many`], on vectors of the operator's space. The columns of `x` hold the initial
    /// guesses and receive the solutions. More than 16 columns are copied in groups.
    ///
    /// The first call allocates the vectors of the method for every column of a group (four for conjugate
    /// gradients). The solver keeps them, so that later calls with as many columns allocate nothing in host
    /// memory, as [`Solver::solve_into`].
    ///
    /// # Errors
    /// The errors of [`Solver::solve_many`]. The columns of `x` then hold guesses, iterates or solutions.
    pub fn solve_many_into(
        &mut self,
        b: &MultiVector<A::Vector>,
        x: &mut MultiVector<A::Vector>,
    ) -> Result<&[Report]> {
        let (got, expected) = (x.columns().len(), b.columns().len());
        if got != expected {
            return Err(Error::Columns { what: "`x`", got, of: "`b`", expected });
        }
        let (driver, on) = self.parts();
        let solved = driver.solve_columns_into(on, b, x, &Self::LOCKSTEP);
        self.or_report(solved)?;
        Ok(&self.driver.reports[..expected])
    }

    /// Lockstep: each column has the steps of a separate solve.
    const LOCKSTEP: Joining<K, K, A::Vector> =
        Joining { method: |method| method, shares: false, pays: StepsOf::<A::Vector>::lockstep_pays };

    /// Returns whether `columns` systems are solved in lockstep. Used by plans.
    #[doc(hidden)]
    pub fn runs_in_lockstep(&self, columns: usize) -> bool {
        let on = Operators { a: &self.operator, m: &self.preconditioner };
        self.driver.joins(on, columns, &Self::LOCKSTEP)
    }
}

impl<K: Method<V>, V: Vector> Driver<K, V> {
    /// Solves from zero for right-hand sides in host memory.
    pub(crate) fn solve_columns<J: Method<MultiVector<V>>>(
        &mut self,
        on: Operators<'_, V>,
        b: &[&[V::Elem]],
        joining: &Joining<K, J, V>,
    ) -> Result<Vec<Solution<V::Elem>>> {
        let started = Instant::now();
        let (domain, range) = (on.a.domain().clone(), on.a.range().clone());
        for b in b {
            let (got, expected) = (b.len(), range.local_len());
            if got != expected {
                return Err(Error::Size { what: "`b`", got, of: "`A`'s rows", expected });
            }
        }
        self.prepare_reports(b.len());
        let mut solutions = Vec::with_capacity(b.len());
        for group in b.chunks(TOGETHER) {
            let mut rhs = MultiVector::<V>::zeros(&range, group.len())?;
            for (b, rhs) in group.iter().zip(rhs.columns_mut()) {
                range.load(b, rhs)?;
            }
            let mut x = MultiVector::<V>::zeros(&domain, group.len())?;
            let (count, first, guess) = (group.len(), solutions.len(), Arithmetic::Zero);
            self.solve_group(&Run { on, joining, b: &rhs, count, first, guess, started }, &mut x)?;
            for (x, report) in x.columns().iter().zip(&mut self.reports[first..first + count]) {
                let mut host = vec![V::Elem::zero(); domain.local_len()];
                domain.store(x, &mut host)?;
                solutions.push(Solution { x: host, report: std::mem::take(report) });
            }
        }
        Ok(solutions)
    }

    /// Solves from the initial guesses in `x`, in groups. The reports are in `self.reports`.
    pub(crate) fn solve_columns_into<J: Method<MultiVector<V>>>(
        &mut self,
        on: Operators<'_, V>,
        b: &MultiVector<V>,
        x: &mut MultiVector<V>,
        joining: &Joining<K, J, V>,
    ) -> Result<()> {
        let (started, guess) = (Instant::now(), Arithmetic::Plain);
        b.columns().iter().zip(x.columns()).try_for_each(|(b, x)| self.check_spaces(on, b, x))?;
        let all = b.columns().len();
        self.prepare_reports(all);
        if all <= TOGETHER {
            return self.solve_group(&Run { on, joining, b, count: all, first: 0, guess, started }, x);
        }
        let [mut rhs, mut own] = self.take_copies(on, all)?;
        for first in (0..all).step_by(TOGETHER) {
            let count = TOGETHER.min(all - first);
            let (b, x) = (&b.columns()[first..][..count], &mut x.columns_mut()[first..][..count]);
            rhs.columns_mut().iter_mut().zip(b).for_each(|(rhs, b)| rhs.copy_from(b));
            own.columns_mut().iter_mut().zip(&*x).for_each(|(own, x)| own.copy_from(x));
            self.solve_group(&Run { on, joining, b: &rhs, count, first, guess, started }, &mut own)?;
            x.iter_mut().zip(own.columns()).for_each(|(x, own)| x.copy_from(own));
        }
        self.copies = Some([rhs, own]);
        Ok(())
    }

    /// A right-hand side and a solution for each column of a group, with any content.
    fn take_copies(&mut self, on: Operators<'_, V>, columns: usize) -> Result<[MultiVector<V>; 2]> {
        let count = columns.min(TOGETHER);
        let fits = |copies: &[MultiVector<V>; 2]| {
            let spaces = copies.each_ref().map(|copy| copy.space().of_column());
            spaces == [on.a.range(), on.a.domain()] && copies[0].columns().len() == count
        };
        match self.copies.take().filter(fits) {
            Some(copies) => Ok(copies),
            None => Ok([MultiVector::zeros(on.a.range(), count)?, MultiVector::zeros(on.a.domain(), count)?]),
        }
    }

    /// Makes space for this many reports.
    fn prepare_reports(&mut self, count: usize) {
        if self.reports.len() < count {
            self.reports.resize_with(count, Report::default);
        }
    }

    /// Solves a group of columns; one iteration of all at a time if [`Driver::joins`], otherwise one after
    /// the other.
    fn solve_group<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        x: &mut MultiVector<V>,
    ) -> Result<()> {
        let Run { on, b, count, .. } = *run;
        b.columns()[..count].iter().zip(x.columns()).try_for_each(|(b, x)| self.check_spaces(on, b, x))?;
        let mut joint = None;
        if self.joins(on, count, run.joining) {
            let mut kept = self.take_joint(run)?;
            self.run_together(run, &mut kept, x)?;
            joint = Some(kept);
        }
        for (index, (b, x)) in b.columns()[..count].iter().zip(x.columns_mut()).enumerate() {
            if !joint.as_ref().is_some_and(|joint| joint.has_ended(index)) {
                swap(&mut self.report, &mut self.reports[run.first + index]);
                self.solve_at(on, b, x, run.guess, run.started)?;
                swap(&mut self.report, &mut self.reports[run.first + index]);
            }
        }
        if let Some(joint) = joint {
            self.joint = Some(joint);
        }
        Ok(())
    }

    /// Returns whether `columns` systems are solved with joint steps: if the method has no cycles or the columns
    /// share a search space, no observer, stop rule or null space is set, and joint steps are faster.
    pub(crate) fn joins<J>(&self, on: Operators<'_, V>, columns: usize, joining: &Joining<K, J, V>) -> bool {
        let has_cycles = self.method.cycle(on.a.range().len()).is_some();
        columns > 1
            && (joining.shares || !has_cycles)
            && self.callbacks.is_empty()
            && self.null_space.is_none()
            && (joining.pays)(on.a, on.m, columns)
    }
}
