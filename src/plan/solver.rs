//! What a plan builds: a solver that runs one candidate after the other.

use super::backend::{ForFactors, factor_report, operator};
use super::context::Context;
use super::costs::SharedSymbolic;
use super::executor::{loaded, stored};
use super::matched::Begins;
use super::measured::{is_scattered, reordered};
use super::plan::Options;
use super::running::{AnyPreconditioner, AnySolver, Running, Watch, Watcher, lock};
use super::schedule::{Findings, MANY, Scheduler};
use super::{Attempt, AttemptEnd, Backend, Candidate, Plan, Preconditioner, Profile, Solved, WorkUnits};
use crate::choice::Operator;
use crate::error::{Error, Result};
use crate::formats::user_order::UserOrder;
use crate::formats::{Csr, Format, Source};
use crate::numbers::Real;
use crate::preconditioners::FactorReport;
use crate::saved::saved;
use krysp_kernels::cpu::run::threads::find_row;
use krysp_solvers::{CancelToken, LinearOperator, Progress, Report, Space, SpaceOf};
use std::borrow::Cow;
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of announced solves from which on a host reorders a matrix with scattered reads of `x` before the first solve. Not measured.
const SOME: usize = 10;

/// Setup cost from which on a preconditioner is kept while another one runs. Not measured; that of 20 iterations with Jacobi.
const KEPT: WorkUnits = WorkUnits(20.0);

/// A solver that runs one candidate after the other, until the recomputed residual meets the tolerance. Made by [`Plan::build`].
///
/// The next solve begins with the candidate that solved the last one, or with one that has become worth its setup. After
/// [`refresh`](PlannedSolver::refresh) a preconditioner is kept until the additional iterations have cost as much as a new one.
pub struct PlannedSolver<T: Real, M: Backend<T>> {
    pub(super) machine: M,
    pub(super) matrix: Arc<Csr<T>>,
    /// The order of the user's entries, if the matrix has been reordered.
    pub(super) user_order: Option<UserOrder<T>>,
    pub(super) settings: Settings,
    pub(super) scheduler: Scheduler,
    /// The symbolic factorization, until `Cholesky` uses it.
    pub(super) symbolic: SharedSymbolic,
    pub(super) cancel: Option<CancelToken>,
    pub(super) watch: Watch,
    pub(super) running: Running<T, M::Vector>,
    /// The operator, while no running solver owns it.
    pub(super) operator: Option<Operator<M::Vector>>,
    /// A preconditioner that is kept for later, and the index of its candidate.
    pub(super) kept: Option<(usize, AnyPreconditioner<T, M::Vector>)>,
    /// An elimination ordering, a matching and a suspended factorization, which later attempts use.
    pub(super) begins: Begins<T>,
    /// Workspace for `b − A x`.
    pub(super) residual: Option<M::Vector>,
    pub(super) report: Report,
    pub(super) attempts: Vec<Attempt>,
}

/// Profile and options of a plan, which are saved.
pub(super) struct Settings {
    pub(super) profile: Profile,
    pub(super) symmetric: bool,
    pub(super) options: Options,
    /// Whether a complete factorization has met a zero pivot.
    pub(super) singular: bool,
}

saved!(impl[] Settings { profile, symmetric, options, singular });

/// The way in which the preconditioner of an attempt was prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preparation {
    /// It was built.
    Built,
    /// It was built before, for the same values of the matrix.
    Ready,
    /// It was built for earlier values of the matrix, and kept.
    Kept,
    /// It was built for earlier values of the matrix, and renewed for the new ones.
    Renewed,
}

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    pub(super) fn new(plan: &Plan<'_, T, M>) -> Result<Self> {
        let symmetric = plan.profile.is_symmetric() && !plan.options.values_change;
        let Options { solves, format, .. } = &plan.options;
        let least = |least: usize| format.is_none() && solves.is_some_and(|solves| solves >= least);
        let operator = operator(&plan.machine, plan.a, symmetric, format.as_deref())?;
        // where the host iterates, reordering takes no longer than a few iterations
        let is_scattered = !plan.machine.class().is_gpu() && is_scattered(plan.a, operator.choice());
        let reorders = is_scattered && least(SOME);
        let nearer = if reorders { reordered(&plan.machine, plan.a, symmetric)? } else { None };
        let (matrix, operator) = nearer.unwrap_or((None, operator));
        let matrix = matrix.unwrap_or_else(|| plan.a.clone());
        let settings = Settings {
            symmetric,
            options: plan.options.clone(),
            singular: plan.profile.has_empty_lines(),
            profile: plan.profile.clone(),
        };
        let mut found = plan.scheduler().found;
        found.may_rearrange = least(MANY) || is_scattered && format.is_none() && !least(SOME);
        Ok(PlannedSolver::with(plan.machine.clone(), plan.a, matrix, operator, settings, found))
    }

    /// A solver without preconditioners. `matrix` is that of the user, possibly reordered.
    pub(super) fn with(
        machine: M,
        user: &Csr<T>,
        matrix: Csr<T>,
        operator: Operator<M::Vector>,
        settings: Settings,
        found: Findings,
    ) -> Self {
        let Options { solves, values_change, .. } = settings.options;
        let context = Context::here(&settings.profile, machine.class());
        let is_reordered = user.domain() != matrix.domain();
        PlannedSolver {
            machine,
            user_order: is_reordered.then(|| UserOrder::new(user.source(), matrix.source())),
            matrix: Arc::new(matrix),
            settings,
            scheduler: Scheduler::with(context, found, solves, values_change),
            symbolic: Arc::default(),
            cancel: None,
            watch: Arc::new(Mutex::new(Watcher::new())),
            running: None,
            operator: Some(operator),
            kept: None,
            begins: Begins::default(),
            residual: None,
            report: Report::default(),
            attempts: vec![],
        }
    }

    /// Ends a solve when another thread cancels the token, as a rule within 0.2 s, also during a setup. Set it before the first solve.
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Calls `observer` after each iteration of each attempt; iterations of an attempt count from 1. Set it before the first solve.
    pub fn observe(self, observer: impl FnMut(&Progress) + Send + 'static) -> Self {
        lock(&self.watch).observers.push(Box::new(observer));
        self
    }

    /// Sets [`Plan::rtol`] from now on: for a solver that was [loaded](PlannedSolver::load).
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.settings.options.rtol = rtol;
        self
    }

    /// Sets [`Plan::max_iterations`] from now on; `None` is no limit.
    pub fn max_iterations(mut self, iterations: Option<usize>) -> Self {
        self.settings.options.max_iterations = iterations;
        self
    }

    /// Sets [`Plan::time_limit`] from now on; `None` is no limit.
    pub fn time_limit(mut self, limit: Option<Duration>) -> Self {
        self.settings.options.time_limit = limit;
        self
    }

    /// The space of `b` and `x` for [`PlannedSolver::solve_into`]. `solve` and `solve_from`, which may reorder the matrix, may change it.
    pub fn space(&self) -> Result<&SpaceOf<M::Vector>> {
        Ok(self.operator()?.domain())
    }

    /// The operator, in the format that was chosen.
    pub fn operator(&self) -> Result<&Operator<M::Vector>> {
        match (&self.running, &self.operator) {
            (Some((_, running)), _) => Ok(running.operators().0),
            (None, Some(operator)) => Ok(operator),
            (None, None) => Err(Error::NoOperator),
        }
    }

    /// Report of the complete factorization that the last attempt used; `None` if its preconditioner is another one, or is not computed by
    /// the host.
    ///
    /// ```
    /// use krysp::plan::{Plan, Preconditioner};
    /// use krysp::gallery;
    ///
    /// let a = gallery::poisson::<f64>(&[20, 20])?;
    /// let mut solver = Plan::new(&a)?.preconditioner(Preconditioner::Ldl).build()?;
    /// solver.solve(&vec![1.0; 400])?;
    /// assert!(solver.factor_report().is_some_and(|report| report.entries > a.nnz() / 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn factor_report(&self) -> Option<FactorReport> {
        let (_, running) = self.running.as_ref()?;
        factor_report(running.operators().1)
    }

    /// The candidates, with their expected costs. An elimination ordering, and factors that were built, correct the costs.
    pub fn candidates(&self) -> &[Candidate] {
        &self.scheduler.found.candidates
    }

    /// The attempts of the last solve.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Solves `A x = b` from `x = 0`; `b` and `x` are in host memory and in the user's ordering.
    pub fn solve(&mut self, b: &[T]) -> Result<Solved<T>> {
        self.solve_host(b, None)
    }

    /// Solves `A x = b` from the initial guess `x0`.
    pub fn solve_from(&mut self, b: &[T], x0: &[T]) -> Result<Solved<T>> {
        self.solve_host(b, Some(x0))
    }

    fn solve_host(&mut self, b: &[T], x0: Option<&[T]>) -> Result<Solved<T>> {
        self.check_length("`b`", b)?;
        let space = self.space()?;
        let declarations = &self.settings.options.declarations;
        let (b, removed) = declarations.without_null_space(b);
        let rhs = loaded(space, &b)?;
        let mut x = match x0 {
            Some(x0) => {
                self.check_length("`x0`", x0)?;
                loaded(space, &declarations.without_null_space(x0).0)?
            }
            None => space.zeros()?,
        };
        self.solve_on(&rhs, &mut x, true)?;
        self.report.removed = removed;
        Ok(Solved { x: stored(&x)?, report: self.report.clone(), attempts: self.attempts.clone() })
    }

    pub(super) fn check_length(&self, what: &'static str, vector: &[T]) -> Result<()> {
        let (got, expected) = (vector.len(), self.space()?.len());
        let wrong = krysp_solvers::Error::Size { what, got, of: "`A`'s rows", expected };
        if got == expected { Ok(()) } else { Err(wrong.into()) }
    }

    /// The source of the matrix that was given to the plan.
    pub(super) fn user(&self) -> &Source<T> {
        self.user_order.as_ref().map_or(self.matrix.source(), UserOrder::user)
    }

    /// Replaces the values of the matrix, as [`Format::refresh`] does. The pattern stays the same, and `values` are in the order of
    /// [`Csr::entries`] of the matrix that was given to the plan. The next solve renews its preconditioner if that is expected to pay
    /// off; [`Attempt::preparation`] reports it. If the new values are symmetric and the earlier ones were not, or the reverse, the
    /// candidates are those of a plan for the new values, unless [`Plan::symmetric`] declares the symmetry.
    ///
    /// If all values are equal to the current ones, nothing is renewed. A declared null space is checked for the new values; after that
    /// error, which is the one of [`Plan::build`], the old values are in place.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        if self.has_values(values) { Ok(()) } else { self.replace_values(values) }
    }

    /// Replaces the values of the matrix and of the operator.
    pub(super) fn replace_values(&mut self, values: &[T]) -> Result<()> {
        self.check_new_values(values)?;
        let matrix = Arc::make_mut(&mut self.matrix);
        match &self.user_order {
            Some(order) => order.refresh(values, matrix)?,
            None => matrix.source().check_entries(values)?,
        }
        (self.settings.singular, self.begins) = (false, Begins::default());
        let (running, operator) = (&mut self.running, &mut self.operator);
        let refresh = |values: &[T]| match (running, operator) {
            (Some((_, running)), _) => running.operators_mut().0.fill(values),
            (None, Some(operator)) => operator.fill(values),
            (None, None) => Err(Error::NoOperator),
        };
        let operator = match &self.user_order {
            Some(_) => refresh(matrix.entries()),
            // this thread copies the values to a GPU while the others copy them to the matrix
            None => rayon::in_place_scope(|scope| {
                scope.spawn(|_| matrix.fill(values));
                refresh(values)
            }),
        };
        let is_symmetric = self.examine_symmetry();
        let same_kind = is_symmetric || !self.settings.symmetric;
        self.settings.symmetric &= is_symmetric;
        let symmetric = self.settings.symmetric;
        if same_kind && operator.is_ok() {
            self.scheduler.values_changed();
            return Ok(());
        }
        // the format cannot store the new values, or symmetry has changed: rebuild everything
        self.scheduler.forget();
        (self.running, self.operator, self.kept) = (None, None, None);
        let format = self.settings.options.format.as_deref();
        self.operator = Some(self::operator(&self.machine, &self.matrix, symmetric, format)?);
        Ok(())
    }

    /// Whether the matrix has these values, in the user's order, already.
    fn has_values(&self, values: &[T]) -> bool {
        let own = self.matrix.entries();
        let is_same = match &self.user_order {
            Some(order) => order.has(values, &self.matrix),
            None => own.len() == values.len() && find_row(own.len(), 2, &|k| own[k] != values[k]).is_none(),
        };
        // an earlier refresh may have failed after it had replaced the values
        is_same && self.operator().is_ok()
    }

    /// Replaces the values by those of a matrix with the same pattern, as [`Format::refresh_from`] does.
    pub fn refresh_from(&mut self, a: &Csr<T>) -> Result<()> {
        let entries = self.user().entries_of(a)?;
        self.refresh(&entries)
    }

    /// Turns assembled values into entries, as [`Csr::assemble`] of the matrix that was given to the plan does.
    pub fn assemble<'v>(&self, values: &'v [T]) -> Result<Cow<'v, [T]>> {
        self.user().assemble(values)
    }

    /// Makes a candidate the running one, with the preconditioner `built` or, for `None`, the one that is kept.
    pub(super) fn mount(
        &mut self,
        index: usize,
        built: Option<AnyPreconditioner<T, M::Vector>>,
    ) -> Result<()> {
        if built.is_none() && self.running.as_ref().is_some_and(|(running, _)| *running == index) {
            return Ok(());
        }
        let m = match built {
            Some(m) => m,
            None => self.kept.take_if(|(kept, _)| *kept == index).ok_or(Error::NoOperator)?.1,
        };
        self.unmount();
        let Some(operator) = self.operator.take() else { return Err(Error::NoOperator) };
        let method = self.scheduler.found.candidates[index].method;
        let solver = AnySolver::new(method, operator, m, self.cancel.as_ref(), &self.watch);
        self.running = Some((index, solver));
        self.note_built();
        Ok(())
    }

    /// Reports to the scheduler which preconditioners are built.
    pub(super) fn note_built(&mut self) {
        let running = self.running.as_ref().map(|(index, _)| *index);
        let kept = self.kept.as_ref().map(|(index, _)| *index);
        self.scheduler.keep_built(&[running, kept].into_iter().flatten().collect::<Vec<_>>());
    }

    /// Reports the memory of the running preconditioner to the scheduler, which estimates the work of an iteration from it.
    pub(super) fn note_factors(&mut self, index: usize) {
        let Some((_, running)) = &self.running else { return };
        let bytes_per_entry = size_of::<T>() + size_of::<u32>();
        let stored = running.operators().1.bytes() as f64 / bytes_per_entry as f64;
        self.scheduler.note_factors(index, stored);
    }

    /// Takes the running solver apart. Returns its preconditioner, and the index of its candidate.
    pub(super) fn take_apart(&mut self) -> Option<(usize, AnyPreconditioner<T, M::Vector>)> {
        let (index, running) = self.running.take()?;
        let (operator, m) = running.into_parts();
        self.operator = Some(operator);
        Some((index, m))
    }

    /// Takes the running solver apart. Its preconditioner is kept if it was expensive to build; one is kept at a time.
    pub(super) fn unmount(&mut self) {
        let Some((old, m)) = self.take_apart() else { return };
        let one = &self.scheduler.found.candidates[old];
        // on a GPU, the host takes long for `Jacobi`, too, but any other one is more expensive
        let gives_way = one.preconditioner == Preconditioner::Jacobi && self.kept.is_some();
        if one.costs.setup >= KEPT && !gives_way {
            self.kept = Some((old, m));
        }
    }

    /// Builds the preconditioner of a candidate, and mounts the candidate. After `most` multiplications `Lu` is suspended, and `Ilut` refused;
    /// `Ldl` is refused before its factorization if that is expected to take more.
    pub(super) fn build(&mut self, index: usize, most: f64) -> Result<Duration> {
        let started = Instant::now();
        self.unmount();
        let candidate = &self.scheduler.found.candidates[index];
        let mut begins = take(&mut self.begins);
        let mut symbolic = self.symbolic.lock().unwrap_or_else(PoisonError::into_inner);
        // the others compute an ordering of their own
        let takes_order = match candidate.preconditioner {
            Preconditioner::Cholesky => true,
            Preconditioner::Ldl | Preconditioner::Lu => !self.settings.profile.takes_matching(),
            _ => false,
        };
        let mut dissected = Ok(());
        if let (true, Some(Ok(known))) = (takes_order, &mut *symbolic) {
            dissected = known.dissect(&self.matrix);
            begins.order = Some(known.order().to_vec());
        }
        let ordered = symbolic.take_if(|_| candidate.preconditioner == Preconditioner::Cholesky);
        drop(symbolic);
        let known = &self.settings.options.declarations;
        let smooth_finest =
            self.settings.profile.smooths_finest(self.machine.class(), self.scheduler.found.solves);
        let is_alone = self.scheduler.is_alone();
        let factors = ForFactors { ordered, most, is_alone, begins: &mut begins, smooth_finest, known };
        let built = dissected.and_then(|()| self.operator()).and_then(|operator| {
            let m = self.machine.preconditioner(candidate.preconditioner, &self.matrix, operator, factors)?;
            known.deflated(operator, m)
        });
        self.begins = begins;
        let m = built.inspect_err(|error| {
            self.settings.singular |= matches!(error, Error::Singular { .. });
            let end = AttemptEnd::NotBuilt(error.to_string());
            self.attempts.push(Attempt { setup: started.elapsed(), ..Attempt::new(candidate, end) });
        });
        self.note_built();
        let m = m?;
        self.mount(index, Some(m))?;
        self.note_factors(index);
        Ok(started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::matrices;

    #[test]
    fn renewed_factors_correct_the_cost_of_an_iteration() {
        let a = matrices::stencil7(10).csr::<f64>().unwrap();
        let unsymmetric = |i: usize, j: usize, value: f64| if j > i { 0.3 * value } else { value };
        let values: Vec<f64> = a.triplets().map(|(i, j, value)| unsymmetric(i, j, value)).collect();
        let a = a.with_values(&values).unwrap();
        let mut solver = Plan::new(&a).unwrap().preconditioner(Preconditioner::Ilut).build().unwrap();
        solver.build(0, f64::INFINITY).unwrap();
        let before = solver.scheduler.found.candidates[0].costs.iteration;
        // couplings that are small enough to be dropped
        let weak: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j { v } else { 1e-9 * v }).collect();
        solver.refresh(&weak).unwrap();
        let solved = solver.solve(&vec![1.0; a.rows()]).unwrap();
        assert_eq!(solved.attempts[0].preparation, Preparation::Renewed, "{solved}");
        let after = solver.scheduler.found.candidates[0].costs.iteration;
        assert!(after.0 < 0.9 * before.0, "{before:?} {after:?}");
    }

    #[test]
    fn values_that_the_matrix_has_are_no_new_ones() {
        let a = matrices::stencil7(10).csr::<f64>().unwrap();
        let permutation = crate::permutation::Permutation::rcm(&a).unwrap();
        for reordered in [false, true] {
            let mut solver = Plan::new(&a).unwrap().build().unwrap();
            if reordered {
                let matrix = a.reordered(&permutation).unwrap();
                let operator = operator(&solver.machine, &matrix, true, None).unwrap();
                solver.adopt(matrix, operator);
            }
            let b = vec![1.0; a.rows()];
            let first = solver.solve(&b).unwrap();
            solver.refresh(a.entries()).unwrap();
            let again = solver.solve(&b).unwrap();
            assert_eq!(
                (solver.scheduler.found.refreshes, again.attempts[0].preparation),
                (0, Preparation::Ready)
            );
            assert!(solver.refresh(&a.entries()[1..]).is_err());
            let mut one = a.entries().to_vec();
            one[777] *= 1.0 + 1e-9;
            solver.refresh(&one).unwrap();
            assert_eq!(solver.scheduler.found.refreshes, 1);
            assert!(first.converged() && solver.solve(&b).unwrap().converged());
        }
    }

    #[test]
    fn an_interrupted_comparison_of_formats_is_made_again() {
        let a = matrices::stencil7(12).csr::<f64>().unwrap();
        let b = vec![1.0; a.rows()];
        let plan = Plan::new(&a).unwrap().solves(100_000).preconditioner(Preconditioner::Jacobi);
        let mut solver = plan.build().unwrap();
        assert!(solver.solve(&b).unwrap().converged() && solver.scheduler.found.may_rearrange);
        let mut solver = solver.time_limit(Some(Duration::ZERO));
        assert!(!solver.solve(&b).unwrap().converged() && solver.scheduler.found.may_rearrange);
        let mut solver = solver.time_limit(None);
        assert!(solver.solve(&b).unwrap().converged() && !solver.scheduler.found.may_rearrange);
    }
}
