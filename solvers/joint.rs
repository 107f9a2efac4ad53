//! Joint solves of several columns: the steps of all of them, and the decisions of each.

use crate::driver::{Driver, Operators, Problem};
use crate::judge::{Judge, RunChecks};
use crate::lockstep::{Lockstep, OnColumns};
use crate::many::Joining;
use crate::run::{FOLD, broken, interrupted};
use crate::verdict::norm;
use crate::workspace::{PerColumn, Workspace};
use crate::{
    Arithmetic, BasicVector, Ending, Error, Method, MultiSpace, MultiVector, Outcome, Result, ScalarOf,
    Space, SpaceOf, Steps, System, Vector,
};
use num_traits::Zero;
use std::mem::swap;
use std::ops::ControlFlow;
use std::time::Instant;

/// State of a column between two steps. The next group reuses its memory for the column with the same index.
struct Column<V> {
    /// Tests of its run until that has ended.
    checks: Option<RunChecks>,
    /// Residual norm to reach.
    threshold: f64,
    per_column: PerColumn<V>,
    /// True if the initial guess is not zero.
    is_guessed: bool,
    /// Outcome of its run, until its solve ends.
    outcome: Option<Outcome>,
    /// True if the solve has ended, with a complete report.
    has_ended: bool,
}

impl<V> Default for Column<V> {
    fn default() -> Self {
        let per_column = PerColumn::default();
        Column {
            checks: None,
            threshold: 0.0,
            per_column,
            is_guessed: false,
            outcome: None,
            has_ended: false,
        }
    }
}

/// Data that all columns of a group share.
pub(crate) struct Run<'s, K, J, V: Vector> {
    pub(crate) on: Operators<'s, V>,
    pub(crate) joining: &'s Joining<K, J, V>,
    pub(crate) b: &'s MultiVector<V>,
    /// Number of columns to solve; further columns of `b` are ignored.
    pub(crate) count: usize,
    /// Index of the report of the first column.
    pub(crate) first: usize,
    pub(crate) guess: Arithmetic,
    pub(crate) started: Instant,
}

/// The steps of all columns, the workspace of the method, and the state of each column. A solver keeps it.
pub(crate) struct Joint<J: Method<MultiVector<V>>, V: Vector> {
    /// The space of the vectors of the method, where columns that have ended are closed.
    space: MultiSpace<SpaceOf<V>>,
    /// The space of the same columns. Columns whose run ends with the latest step are open, all others closed.
    ending: MultiSpace<SpaceOf<V>>,
    steps: Lockstep<V>,
    state: J::State,
    columns: Vec<Column<V>>,
    /// Number of columns that take part in the steps.
    width: usize,
    /// Copies of the initial guesses that are not zero.
    guesses: Option<MultiVector<V>>,
}

impl<J: Method<MultiVector<V>>, V: Vector> Joint<J, V> {
    fn new(method: &J, of_column: &SpaceOf<V>, count: usize) -> Result<Self> {
        let space = MultiSpace::new(of_column, count);
        Ok(Joint {
            steps: Lockstep::<V>::new(&space, method.numbers(space.len()))?,
            state: method.workspace(&space)?,
            columns: (0..count).map(|_| Column::default()).collect(),
            width: 0,
            guesses: None,
            ending: MultiSpace::new(of_column, count),
            space,
        })
    }

    /// Returns whether the solve of a column has ended.
    pub(crate) fn has_ended(&self, column: usize) -> bool {
        self.columns[column].has_ended
    }

    /// Prepares for the first `count` columns of a group; closes the others.
    fn begin<K>(&mut self, run: &Run<'_, K, J, V>, x: &MultiVector<V>) -> Result<()> {
        self.space.open_all();
        (run.count..self.columns.len()).for_each(|column| self.space.close(column));
        for (index, (column, x)) in self.columns.iter_mut().zip(x.columns()).enumerate() {
            (column.checks, column.outcome, column.has_ended) = (None, None, index >= run.count);
            column.per_column.begin();
            column.is_guessed =
                run.guess != Arithmetic::Zero && index < run.count && norm::<V>(x.norm_squared())? != 0.0;
        }
        if self.columns.iter().any(|column| column.is_guessed) {
            let copies = match &mut self.guesses {
                Some(copies) => copies,
                none => none.insert(MultiVector::zeros(self.space.of_column(), self.columns.len())?),
            };
            let columns = self.columns.iter().zip(copies.columns_mut()).zip(x.columns());
            columns.filter(|((column, _), _)| column.is_guessed).for_each(|((_, copy), x)| copy.copy_from(x));
        }
        Ok(())
    }

    /// Sets the columns that have not ended to their initial guesses.
    fn restore(&self, b: &MultiVector<V>, x: &mut MultiVector<V>) {
        let zero: ScalarOf<V> = V::Elem::zero().into();
        let columns = self.columns.iter().zip(x.columns_mut()).enumerate();
        for (index, (_, x)) in columns.filter(|(_, (column, _))| !column.has_ended) {
            match &self.guesses {
                Some(copies) if self.columns[index].is_guessed => x.copy_from(&copies.columns()[index]),
                _ => x.axpby(&zero, &b.columns()[index], &zero),
            }
        }
    }
}

impl<K: Method<V>, V: Vector> Driver<K, V> {
    /// The joint steps of the last group, or new ones.
    pub(crate) fn take_joint<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
    ) -> Result<Box<Joint<J, V>>> {
        let (of_column, count) = (run.on.a.range(), run.b.columns().len());
        let kept = self.joint.take().and_then(|kept| kept.downcast::<Joint<J, V>>().ok());
        let fits = |joint: &Joint<J, V>| joint.columns.len() == count && joint.space.of_column() == of_column;
        match kept.filter(|joint| fits(joint)) {
            Some(joint) => Ok(joint),
            None => Ok(Box::new(Joint::new((run.joining.method)(&self.method), of_column, count)?)),
        }
    }

    /// Solves columns with joint steps. Columns that have not ended afterwards must be solved separately, from
    /// their initial guesses.
    pub(crate) fn run_together<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        joint: &mut Joint<J, V>,
        x: &mut MultiVector<V>,
    ) -> Result<()> {
        joint.begin(run, x)?;
        let mut workspace = self.take_workspace(run.on)?;
        let own = x.space().clone();
        x.join(&joint.space);
        let ended = self
            .begin_columns(run, joint, x, &mut workspace)
            .and_then(|()| self.run_columns(run, joint, x, &mut workspace));
        x.join(&own);
        self.keep_workspace(workspace);
        // a product that fails for one column may succeed for the others: restart them from their initial
        // guesses
        if ended.is_err() {
            joint.restore(run.b, x);
        }
        Ok(())
    }

    /// Computes the first residuals. Closes the columns that need no iterations.
    fn begin_columns<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        joint: &mut Joint<J, V>,
        x: &mut MultiVector<V>,
        workspace: &mut Workspace<K, V>,
    ) -> Result<()> {
        for index in 0..run.count {
            let (b, x) = (&run.b.columns()[index], &mut x.columns_mut()[index]);
            self.with_column(run, index, joint, workspace, |driver, joint, workspace| {
                driver.begin_report();
                let column = &mut joint.columns[index];
                match driver.first_residual(Problem { on: run.on, b }, x, workspace, run.guess)? {
                    ControlFlow::Break(outcome) => {
                        driver.end_report(run.on, outcome, run.started, workspace);
                        column.has_ended = true;
                        joint.space.close(index);
                    }
                    // the first residual was computed in twice the working precision: solve this column separately
                    ControlFlow::Continue(_) if driver.near_rounding() => joint.space.close(index),
                    ControlFlow::Continue(threshold) => {
                        let stagnation_window = driver.method.stagnation_window();
                        let checks =
                            driver.judge(run).begin_checks(stagnation_window, &driver.report, threshold);
                        (column.checks, column.threshold) = (Some(checks), threshold);
                    }
                }
                Ok(())
            })?;
        }
        joint.width = joint.columns.iter().filter(|column| column.checks.is_some()).count();
        Ok(())
    }

    /// Runs steps until all columns have ended.
    fn run_columns<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        joint: &mut Joint<J, V>,
        x: &mut MultiVector<V>,
        workspace: &mut Workspace<K, V>,
    ) -> Result<()> {
        let is_open = |column: &Column<V>| column.checks.is_some();
        let Some(first) = joint.columns.iter().position(is_open) else { return Ok(()) };
        // as in solves one after the other, the norm is estimated with the first column
        workspace.operator_norm(&mut self.operator_norm, run.on.a, &run.b.columns()[first])?;
        self.start_columns(run, joint, x, run.guess)?;
        let (cycle, places) = (self.cycle(run), (run.joining.method)(&self.method).places());
        let deadline = self.stopping.time_limit.map(|limit| (run.started, limit));
        let (mut queued, mut place) = (0, 0);
        while joint.columns.iter().any(is_open) {
            let mut all = interrupted(run.on.a.range(), self.cancel.as_ref(), deadline)?;
            if queued >= self.stopping.max_iterations {
                all = Some(Outcome::IterationLimit);
            }
            if all.is_none() {
                if cycle == Some(place) {
                    self.finish_columns(run, &joint.space, &mut joint.state, x)?;
                    self.start_columns(run, joint, x, Arithmetic::Plain)?;
                    place = 0;
                }
                self.step_columns(run, joint, x, place)?;
                queued += 1;
                place = if cycle.is_some() { place + 1 } else { queued % places };
            }
            for index in 0..run.count {
                let Some(mut checks) = joint.columns[index].checks.take() else { continue };
                let x = &mut x.columns_mut()[index];
                let outcome = match &all {
                    None => self.with_column(run, index, joint, workspace, |driver, joint, workspace| {
                        driver.judge_column(run, (index, &mut checks), joint, x, workspace, queued)
                    })?,
                    ended => ended.clone(),
                };
                let column = &mut joint.columns[index];
                column.checks = outcome.is_none().then_some(checks);
                column.outcome = outcome;
            }
            self.end_columns(run, joint, x, workspace)?;
        }
        Ok(())
    }

    /// Ends the joint runs of the columns that have an outcome.
    fn end_columns<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        joint: &mut Joint<J, V>,
        x: &mut MultiVector<V>,
        workspace: &mut Workspace<K, V>,
    ) -> Result<()> {
        joint.ending.open_all();
        let continues = |&index: &usize| joint.columns[index].outcome.is_none();
        let left = (0..joint.columns.len()).filter(continues);
        if left.map(|index| joint.ending.close(index)).count() == joint.columns.len() {
            return Ok(());
        }
        if self.cycle(run).is_some() {
            x.join(&joint.ending);
            self.finish_columns(run, &joint.ending, &mut joint.state, x)?;
            x.join(&joint.space);
        }
        for index in 0..run.count {
            let Some(outcome) = joint.columns[index].outcome.take() else { continue };
            let x = &mut x.columns_mut()[index];
            self.with_column(run, index, joint, workspace, |driver, joint, workspace| {
                driver.end_column(run, index, joint, x, workspace, outcome)
            })?;
        }
        Ok(())
    }

    /// Calls `work` while the driver has the report of a column, and the workspace the state of its run.
    fn with_column<R, J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        index: usize,
        joint: &mut Joint<J, V>,
        workspace: &mut Workspace<K, V>,
        work: impl FnOnce(&mut Self, &mut Joint<J, V>, &mut Workspace<K, V>) -> Result<R>,
    ) -> Result<R> {
        swap(&mut self.report, &mut self.reports[run.first + index]);
        workspace.exchange(&mut joint.columns[index].per_column);
        let done = work(self, joint, workspace);
        swap(&mut self.report, &mut self.reports[run.first + index]);
        workspace.exchange(&mut joint.columns[index].per_column);
        done
    }

    /// Number of steps per cycle of the method that advances all columns.
    fn cycle<J: Method<MultiVector<V>>>(&self, run: &Run<'_, K, J, V>) -> Option<usize> {
        (run.joining.method)(&self.method).cycle(run.on.a.range().len())
    }

    /// Ends the joint run of a column, whose state is in the workspace, and continues it separately where a
    /// separate solve would restart.
    fn end_column<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        index: usize,
        joint: &mut Joint<J, V>,
        x: &mut V,
        workspace: &mut Workspace<K, V>,
        outcome: Outcome,
    ) -> Result<()> {
        joint.space.close(index);
        let problem = Problem { on: run.on, b: &run.b.columns()[index] };
        let threshold = joint.columns[index].threshold;
        let outcome = self.run_with_restarts(problem, x, workspace, threshold, run.started, Some(outcome))?;
        self.end_report(run.on, outcome, run.started, workspace);
        self.report.block = if run.joining.shares { joint.width } else { 1 };
        joint.columns[index].has_ended = true;
        Ok(())
    }

    /// Calls `work` with the method and the system of all columns.
    fn on_columns<R, J>(
        &self,
        run: &Run<'_, K, J, V>,
        space: &MultiSpace<SpaceOf<V>>,
        arithmetic: Arithmetic,
        work: impl FnOnce(&J, &System<'_, MultiVector<V>>) -> Result<R>,
    ) -> Result<R> {
        let (a, m) = (OnColumns::new(run.on.a, space), OnColumns::new(run.on.m, space));
        let system = System { a: &a, m: &m, b: run.b, arithmetic, attempt: 0 };
        work((run.joining.method)(&self.method), &system)
    }

    /// Starts the method, at first or after a cycle, on all columns that are open.
    fn start_columns<J: Method<MultiVector<V>>>(
        &self,
        run: &Run<'_, K, J, V>,
        joint: &mut Joint<J, V>,
        x: &MultiVector<V>,
        arithmetic: Arithmetic,
    ) -> Result<()> {
        let Joint { space, steps, state, columns, .. } = joint;
        for (index, column) in columns.iter().enumerate() {
            if let Some(checks) = &column.checks {
                steps.set_threshold(index, checks.threshold);
            }
        }
        self.on_columns(run, space, arithmetic, |method, system| {
            method.start(system, x, state)?;
            method.begin(system, state)
        })
    }

    /// Updates the open columns of `x` to the iterates whose residuals were reported last. `space` is the space of
    /// `x`.
    fn finish_columns<J: Method<MultiVector<V>>>(
        &self,
        run: &Run<'_, K, J, V>,
        space: &MultiSpace<SpaceOf<V>>,
        state: &mut J::State,
        x: &mut MultiVector<V>,
    ) -> Result<()> {
        self.on_columns(run, space, Arithmetic::Plain, |method, system| method.finish(system, x, state))
    }

    /// Runs one step on all columns that are open.
    fn step_columns<J: Method<MultiVector<V>>>(
        &self,
        run: &Run<'_, K, J, V>,
        joint: &mut Joint<J, V>,
        x: &mut MultiVector<V>,
        place: usize,
    ) -> Result<()> {
        let Joint { space, steps, state, .. } = joint;
        self.on_columns(run, space, Arithmetic::Plain, |method, system| {
            steps.run(place, false, &mut |steps| method.step(system, x, state, place, steps))
        })
    }

    /// Outcome of a column if its run ends with its `made`-th step. The report of the column must be in
    /// `self.report`.
    fn judge_column<J: Method<MultiVector<V>>>(
        &mut self,
        run: &Run<'_, K, J, V>,
        (index, checks): (usize, &mut RunChecks),
        joint: &mut Joint<J, V>,
        x: &mut V,
        workspace: &mut Workspace<K, V>,
        made: usize,
    ) -> Result<Option<Outcome>> {
        let (Joint { steps, state, .. }, b) = (joint, &run.b.columns()[index]);
        // a method with cycles changes `x` only after them
        if self.cycle(run).is_none() && made.is_multiple_of(FOLD) {
            workspace.fold(x)?;
        }
        let iteration = self.report.history.len();
        let (residual, last) = match steps.of_column(index) {
            (Ending::Failed { what, value }, _) => return Ok(Some(broken(what, value, iteration))),
            (Ending::Completed { last }, numbers) => {
                let method = (run.joining.method)(&self.method);
                match method.process_step(state, numbers, &mut workspace.lanczos) {
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
        let judge = self.judge(run);
        if let Some(outcome) = judge.progress(&self.report, workspace, b, x, checks)? {
            return Ok(Some(outcome));
        }
        if made < checks.check_at {
            return Ok(None);
        }
        // a method with cycles has not updated `x` since the start of the cycle
        checks.check_at = 2 * made;
        let mut norm = self.operator_norm;
        let outcome = judge.limit(&mut norm, &self.report, workspace, b, x, checks)?;
        self.operator_norm = norm;
        steps.set_threshold(index, checks.threshold);
        Ok(outcome)
    }

    fn judge<'s, J: Method<MultiVector<V>>>(&'s self, run: &Run<'s, K, J, V>) -> Judge<'s, V> {
        let has_cycles = self.cycle(run).is_some();
        Judge {
            stopping: &self.stopping,
            on: run.on,
            symmetry: self.method.needs_symmetry(),
            minimizes_energy: self.method.minimizes_energy(),
            has_cycles,
        }
    }
}
