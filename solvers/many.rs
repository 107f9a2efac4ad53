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
//! column on the host (other methods keep only vectors and scalars); for small operators with cheap
//! preconditioners, where that is faster ([`Steps::lockstep_pays`]); with a null space, observers or stop
//! rules; and if the operator or the preconditioner returns an error, for the columns that have not ended.
//!
//! All columns have the same start: a time limit bounds all of them together.
//!
//! Memory: that of one solver, and one more workspace for each column of a group of [`TOGETHER`].

use crate::driver::{Driver, Operators, Problem};
use crate::lockstep::{Lockstep, OnColumns};
use crate::run::{Course, FOLD, Judge, broken, interrupted};
use crate::verdict::norm;
use crate::workspace::{Apart, Workspace};
use crate::{
    Arithmetic, ElemOf, Ending, Error, LinearOperator, Method, MultiSpace, MultiVector, Outcome, Report,
    Result, ScalarOf, Solution, Solver, Space, SpaceOf, Steps, StepsOf, System, Vector,
};
use num_traits::Zero;
use std::ops::ControlFlow;
use std::time::Instant;

/// Maximum number of columns solved in lockstep. More would take more memory and save little, because each
/// column's share of reading the matrix is already small. Guess: between 8 and 32 it hardly matters.
const TOGETHER: usize = 16;

/// A column that has not ended.
struct Column<V> {
    /// Index of the column.
    index: usize,
    report: Report,
    /// Residual norm to reach.
    threshold: f64,
    course: Course,
    apart: Apart<V>,
}

/// A way of solving several columns with joint steps.
pub(crate) struct Joining<K, J, V: Vector> {
    /// Returns the method that advances all columns, given the method of a single solve.
    pub(crate) method: fn(&K) -> &J,
    /// Maximum number of columns per group.
    pub(crate) together: usize,
    /// Whether the columns of a group share one search space.
    pub(crate) shares: bool,
    /// Whether joint steps are faster than separate solves, for an operator, a preconditioner and a number of
    /// columns.
    pub(crate) pays: fn(&dyn LinearOperator<Vector = V>, &dyn LinearOperator<Vector = V>, usize) -> bool,
}

/// Data that all columns share.
struct Run<'s, K, J, V: Vector> {
    on: Operators<'s, V>,
    method: fn(&K) -> &J,
    /// Number of columns that share one search space.
    block: usize,
    b: &'s MultiVector<V>,
    guess: Arithmetic,
    started: Instant,
    /// The space of the vectors of the method, where columns that have ended are closed.
    space: MultiSpace<SpaceOf<V>>,
}

/// The steps of all columns, and the workspace of the method.
struct Joint<J: Method<MultiVector<V>>, V: Vector> {
    steps: Lockstep<V>,
    state: J::State,
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
        self.or_give_up(solutions)
    }

    /// Like [`Solver::solve_many`], on vectors of the operator's space. The columns of `x` hold the initial
    /// guesses and receive the solutions. More than 16 columns are copied in groups.
    ///
    /// Each call allocates the vectors of the method for every column (four for conjugate gradients) and the
    /// reports, and each iteration lists of a number for every column. [`Solver::solve_into`] allocates
    /// nothing in a second solve.
    ///
    /// # Errors
    /// The errors of [`Solver::solve_many`]. The columns of `x` then hold guesses, iterates or solutions.
    pub fn solve_many_into(
        &mut self,
        b: &MultiVector<A::Vector>,
        x: &mut MultiVector<A::Vector>,
    ) -> Result<Vec<Report>> {
        let (got, expected) = (x.columns().len(), b.columns().len());
        if got != expected {
            return Err(Error::Columns { what: "`x`", got, of: "`b`", expected });
        }
        let (driver, on) = self.parts();
        let reports = driver.solve_columns_into(on, b, x, &Self::LOCKSTEP);
        self.or_give_up(reports)
    }

    /// Lockstep: each column has the steps of a separate solve.
    const LOCKSTEP: Joining<K, K, A::Vector> = Joining {
        method: |method| method,
        together: TOGETHER,
        shares: false,
        pays: StepsOf::<A::Vector>::lockstep_pays,
    };

    /// Whether `columns` systems are solved in lockstep. Used by plans.
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
        let mut solutions = Vec::with_capacity(b.len());
        for group in b.chunks(joining.together) {
            let mut rhs = MultiVector::<V>::zeros(&range, group.len())?;
            for (b, rhs) in group.iter().zip(rhs.columns_mut()) {
                range.load(b, rhs)?;
            }
            let mut x = MultiVector::<V>::zeros(&domain, group.len())?;
            let reports = self.solve_group(on, &rhs, &mut x, joining, Arithmetic::Zero, started)?;
            for (x, report) in x.columns().iter().zip(reports) {
                let mut host = vec![V::Elem::zero(); domain.local_len()];
                domain.store(x, &mut host)?;
                solutions.push(Solution { x: host, report });
            }
        }
        Ok(solutions)
    }

    /// Solves from the initial guesses in `x`, in groups.
    pub(crate) fn solve_columns_into<J: Method<MultiVector<V>>>(
        &mut self,
        on: Operators<'_, V>,
        b: &MultiVector<V>,
        x: &mut MultiVector<V>,
        joining: &Joining<K, J, V>,
    ) -> Result<Vec<Report>> {
        let started = Instant::now();
        b.columns().iter().zip(x.columns()).try_for_each(|(b, x)| self.check_spaces(on, b, x))?;
        let together = joining.together;
        if b.columns().len() <= together {
            return self.solve_group(on, b, x, joining, Arithmetic::Plain, started);
        }
        let (domain, range) = (on.a.domain().clone(), on.a.range().clone());
        let mut reports = Vec::with_capacity(b.columns().len());
        for (b, x) in b.columns().chunks(together).zip(x.columns_mut().chunks_mut(together)) {
            let mut rhs = MultiVector::<V>::zeros(&range, b.len())?;
            rhs.columns_mut().iter_mut().zip(b).for_each(|(rhs, b)| rhs.copy_from(b));
            let mut own = MultiVector::<V>::zeros(&domain, b.len())?;
            own.columns_mut().iter_mut().zip(&*x).for_each(|(own, x)| own.copy_from(x));
            reports.extend(self.solve_group(on, &rhs, &mut own, joining, Arithmetic::Plain, started)?);
            x.iter_mut().zip(own.columns()).for_each(|(x, own)| x.copy_from(own));
        }
        Ok(reports)
    }

    /// Solves a group of columns; one iteration of all at a time if [`Driver::joins`], otherwise one after
    /// the other.
    fn solve_group<J: Method<MultiVector<V>>>(
        &mut self,
        on: Operators<'_, V>,
        b: &MultiVector<V>,
        x: &mut MultiVector<V>,
        joining: &Joining<K, J, V>,
        guess: Arithmetic,
        started: Instant,
    ) -> Result<Vec<Report>> {
        b.columns().iter().zip(x.columns()).try_for_each(|(b, x)| self.check_spaces(on, b, x))?;
        let mut reports = vec![None; b.columns().len()];
        if self.joins(on, reports.len(), joining) {
            let space = MultiSpace::new(on.a.range(), reports.len());
            let block = if joining.shares { reports.len() } else { 1 };
            let run = Run { on, method: joining.method, block, b, guess, started, space };
            self.run_together(&run, x, &mut reports)?;
        }
        let mut all = Vec::with_capacity(reports.len());
        for (report, (b, x)) in reports.into_iter().zip(b.columns().iter().zip(x.columns_mut())) {
            if report.is_none() {
                self.solve_at(on, b, x, guess, started)?;
            }
            all.push(report.unwrap_or_else(|| std::mem::take(&mut self.report)));
        }
        Ok(all)
    }

    /// Returns whether `columns` systems are solved with joint steps: if the method has no cycles, no
    /// observer, stop rule or null space is set, and joint steps are faster.
    pub(crate) fn joins<J>(&self, on: Operators<'_, V>, columns: usize, joining: &Joining<K, J, V>) -> bool {
        let watched = self.observers.len()
            + self.iterate_observers.len()
            + self.stop_rules.len()
            + self.late_rules.len();
        let has_cycles = self.method.cycle(on.a.range().len()).is_some();
        columns > 1
            && !has_cycles
            && watched == 0
            && self.null_space.is_none()
            && (joining.pays)(on.a, on.m, columns)
    }

    /// Solves columns with joint steps and stores their reports. Columns left without a report must be solved
    /// separately, from their initial guesses.
    fn run_together<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        x: &mut MultiVector<V>,
        reports: &mut [Option<Report>],
    ) -> Result<()> {
        let guesses: Vec<Option<V>> = match run.guess {
            Arithmetic::Zero => x.columns().iter().map(|_| None).collect(),
            _ => x.columns().iter().map(nonzero_copy).collect::<Result<_>>()?,
        };
        let mut workspace = self.take_workspace(run.on)?;
        let own = x.space().clone();
        x.join(&run.space);
        let ended = self
            .begin_columns(run, x, &mut workspace, reports)
            .and_then(|columns| self.run_columns(run, columns, x, &mut workspace, reports));
        x.join(&own);
        self.keep_workspace(workspace);
        // a product that fails for one column may succeed for the others: restart them from their initial
        // guesses
        if ended.is_err() {
            let zero: ScalarOf<V> = V::Elem::zero().into();
            let columns = x.columns_mut().iter_mut().zip(run.b.columns()).zip(guesses).zip(&*reports);
            for (((x, b), guess), report) in columns {
                match (report, guess) {
                    (Some(_), _) => {}
                    (None, Some(guess)) => x.copy_from(&guess),
                    (None, None) => x.axpby(&zero, b, &zero),
                }
            }
        }
        Ok(())
    }

    /// Computes the first residuals. Returns the columns that need iterations; closes the others.
    fn begin_columns<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        x: &mut MultiVector<V>,
        workspace: &mut Workspace<K, V>,
        reports: &mut [Option<Report>],
    ) -> Result<Vec<Column<V>>> {
        let mut columns = Vec::with_capacity(reports.len());
        for (index, (b, x)) in run.b.columns().iter().zip(x.columns_mut()).enumerate() {
            self.begin_report();
            workspace.begin();
            let threshold = match self.first_residual(Problem { on: run.on, b }, x, workspace, run.guess)? {
                ControlFlow::Continue(threshold) => threshold,
                ControlFlow::Break(outcome) => {
                    self.end_report(run.on, outcome, run.started, workspace);
                    reports[index] = Some(std::mem::take(&mut self.report));
                    run.space.close(index);
                    continue;
                }
            };
            // the first residual was computed in twice the working precision: solve this column separately
            if self.near_rounding() {
                run.space.close(index);
                continue;
            }
            let stagnation_window = self.method.stagnation_window();
            let course = self.judge(run.on).course(stagnation_window, &self.report, threshold);
            let report = std::mem::take(&mut self.report);
            columns.push(Column { index, report, threshold, course, apart: Apart::default() });
        }
        Ok(columns)
    }

    /// Runs steps until all columns have ended.
    fn run_columns<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        mut columns: Vec<Column<V>>,
        x: &mut MultiVector<V>,
        workspace: &mut Workspace<K, V>,
        reports: &mut [Option<Report>],
    ) -> Result<()> {
        let Some(first) = columns.first() else { return Ok(()) };
        // as in solves one after the other, the norm is estimated with the first column
        let b = &run.b.columns()[first.index];
        workspace.operator_norm(&mut self.operator_norm, run.on.a, b)?;
        let mut joint = self.start_columns(run, x)?;
        for column in &columns {
            joint.steps.set_threshold(column.index, column.course.threshold);
        }
        let places = (run.method)(&self.method).places();
        let deadline = self.stopping.time_limit.map(|limit| (run.started, limit));
        let mut queued = 0;
        while !columns.is_empty() {
            let mut all = interrupted(run.on.a.range(), self.cancel.as_ref(), deadline)?;
            if queued >= self.stopping.max_iterations {
                all = Some(Outcome::IterationLimit);
            }
            if all.is_none() {
                self.step_columns(run, x, &mut joint, queued % places)?;
                queued += 1;
            }
            let mut left = Vec::with_capacity(columns.len());
            for mut column in columns {
                let (b, x) = (&run.b.columns()[column.index], &mut x.columns_mut()[column.index]);
                std::mem::swap(&mut self.report, &mut column.report);
                workspace.exchange(&mut column.apart);
                let outcome = match &all {
                    None => self.judge_column(run, &mut column, &mut joint, x, workspace, queued)?,
                    ended => ended.clone(),
                };
                if outcome.is_none() {
                    std::mem::swap(&mut self.report, &mut column.report);
                    workspace.exchange(&mut column.apart);
                    left.push(column);
                    continue;
                }
                run.space.close(column.index);
                let outcome = self.pursue(
                    Problem { on: run.on, b },
                    x,
                    workspace,
                    column.threshold,
                    run.started,
                    outcome,
                )?;
                self.end_report(run.on, outcome, run.started, workspace);
                self.report.block = run.block;
                reports[column.index] = Some(std::mem::take(&mut self.report));
                workspace.begin();
            }
            columns = left;
        }
        Ok(())
    }

    /// Calls `work` with the method and the system of all columns.
    fn on_columns<R, J>(
        &self,
        run: &Run<'_, K, J, V>,
        arithmetic: Arithmetic,
        work: impl FnOnce(&J, &System<'_, MultiVector<V>>) -> Result<R>,
    ) -> Result<R> {
        let count = run.b.columns().len();
        let (a, m) = (OnColumns::new(run.on.a, count), OnColumns::new(run.on.m, count));
        work((run.method)(&self.method), &System { a: &a, m: &m, b: run.b, arithmetic, attempt: 0 })
    }

    /// Starts the method on all columns that are open.
    fn start_columns<J: Method<MultiVector<V>>>(
        &self,
        run: &Run<'_, K, J, V>,
        x: &MultiVector<V>,
    ) -> Result<Joint<J, V>> {
        let len = run.space.len();
        let numbers = (run.method)(&self.method).numbers(len);
        let steps = Lockstep::<V>::new(&run.space, numbers)?;
        let mut state = (run.method)(&self.method).workspace(&run.space)?;
        self.on_columns(run, run.guess, |method, system| {
            method.start(system, x, &mut state)?;
            method.begin(system, &mut state)
        })?;
        Ok(Joint { steps, state })
    }

    /// Runs one step on all columns that are open.
    fn step_columns<J: Method<MultiVector<V>>>(
        &self,
        run: &Run<'_, K, J, V>,
        x: &mut MultiVector<V>,
        joint: &mut Joint<J, V>,
        place: usize,
    ) -> Result<()> {
        let Joint { steps, state } = joint;
        self.on_columns(run, Arithmetic::Plain, |method, system| {
            steps.run(place, false, &mut |steps| method.step(system, x, state, place, steps))
        })
    }

    /// Outcome of a column if its run ends with its `made`-th step. The report of the column must be in
    /// `self.report`.
    fn judge_column<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        column: &mut Column<V>,
        joint: &mut Joint<J, V>,
        x: &mut V,
        workspace: &mut Workspace<K, V>,
        made: usize,
    ) -> Result<Option<Outcome>> {
        let (Joint { steps, state }, b) = (joint, &run.b.columns()[column.index]);
        if made.is_multiple_of(FOLD) {
            workspace.fold(x)?;
        }
        let iteration = self.report.history.len();
        let (residual, last) = match steps.of_column(column.index) {
            (Ending::Failed { what, value }, _) => return Ok(Some(broken(what, value, iteration))),
            (Ending::Completed { last }, numbers) => {
                match (run.method)(&self.method).process_step(state, numbers, &mut workspace.lanczos) {
                    Ok(residual) => (residual, last),
                    Err(Error::Breakdown { what, value }) => return Ok(Some(broken(what, value, iteration))),
                    Err(error) => return Err(error),
                }
            }
        };
        self.report.history.push(residual);
        if !residual.is_finite() {
            return Ok(Some(Outcome::NotFinite { what: "the residual" }));
        }
        if last {
            return Ok(Some(Outcome::Converged));
        }
        let judge = self.judge(run.on);
        let course = &mut column.course;
        if let Some(outcome) = judge.progress(&self.report, workspace, b, x, course)? {
            return Ok(Some(outcome));
        }
        if made < course.check_at {
            return Ok(None);
        }
        course.check_at = 2 * made;
        let mut norm = self.operator_norm;
        let outcome = judge.limit(&mut norm, &self.report, workspace, b, x, course)?;
        self.operator_norm = norm;
        steps.set_threshold(column.index, course.threshold);
        Ok(outcome)
    }

    fn judge<'s>(&'s self, on: Operators<'s, V>) -> Judge<'s, V> {
        Judge { stopping: &self.stopping, on, symmetry: self.method.needs_symmetry(), has_cycles: false }
    }
}

/// A copy of a guess, or `None` for zero.
fn nonzero_copy<V: Vector>(guess: &V) -> Result<Option<V>> {
    if norm::<V>(guess.norm_squared())? == 0.0 {
        return Ok(None);
    }
    let mut copy = guess.space().zeros()?;
    copy.copy_from(guess);
    Ok(Some(copy))
}
