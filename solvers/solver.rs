//! Construction, options and entry points of a solver, shared by all methods.

use crate::deflation::NullSpace;
use crate::workspace::Workspace;
use crate::{
    Arithmetic, CancelToken, Cost, ElemOf, Element, Error, Form, Identity, LinearOperator, Method, Outcome,
    Progress, Report, Result, ScalarOf, Solution, Space, Stopping, Vector, lanczos,
};
use num_traits::Zero;
use std::time::{Duration, Instant};

/// A callback that receives the progress of each iteration.
pub(crate) type Observer = Box<dyn FnMut(&Progress) + Send>;
/// A callback that receives the progress of each iteration and returns whether to stop.
pub(crate) type StopRule = Box<dyn FnMut(&Progress) -> bool + Send>;

/// A callback that receives the progress of an iteration or a cycle, and the iterate.
pub(crate) type IterateObserver<V> = Box<dyn FnMut(&Progress, &V) + Send>;

/// A method, an operator and a preconditioner, ready to solve. Created by `Cg::new(op)`, `Gmres::new(op)` and
/// so on.
pub struct Solver<K, A, M>
where
    A: LinearOperator,
    K: Method<A::Vector>,
{
    pub(crate) method: K,
    pub(crate) operator: A,
    pub(crate) preconditioner: M,
    pub(crate) null_space: Option<NullSpace<A::Vector>>,
    pub(crate) stopping: Stopping,
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) observers: Vec<Observer>,
    pub(crate) iterate_observers: Vec<IterateObserver<A::Vector>>,
    pub(crate) stop_rules: Vec<StopRule>,
    pub(crate) late_rules: Vec<StopRule>,
    pub(crate) report: Report,
    /// `‖A‖`, once it is estimated; cleared when the values of `A` may change.
    pub(crate) operator_norm: Option<f64>,
    workspace: Option<Workspace<K, A::Vector>>,
}

impl<K, A> Solver<K, A, Identity<A::Vector>>
where
    A: LinearOperator,
    K: Method<A::Vector> + Default,
{
    /// Creates a solver for `A x = b` without preconditioner. The operator may be owned, borrowed, boxed or
    /// shared.
    pub fn new(operator: A) -> Self {
        let preconditioner = Identity::new(operator.range());
        Solver {
            method: K::default(),
            operator,
            preconditioner,
            null_space: None,
            stopping: Stopping::new(ElemOf::<A::Vector>::EPSILON),
            cancel: None,
            observers: Vec::new(),
            iterate_observers: Vec::new(),
            stop_rules: Vec::new(),
            late_rules: Vec::new(),
            report: Report::default(),
            operator_norm: None,
            workspace: None,
        }
    }
}

impl<K, A, M> Solver<K, A, M>
where
    A: LinearOperator,
    K: Method<A::Vector>,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Sets the preconditioner: an operator that applies `M⁻¹`, in the space of `A`.
    pub fn preconditioner<N>(mut self, preconditioner: N) -> Solver<K, A, N>
    where
        N: LinearOperator<Vector = A::Vector>,
    {
        self.forget_operator_facts();
        Solver {
            method: self.method,
            operator: self.operator,
            preconditioner,
            null_space: self.null_space,
            stopping: self.stopping,
            cancel: self.cancel,
            observers: self.observers,
            iterate_observers: self.iterate_observers,
            stop_rules: self.stop_rules,
            late_rules: self.late_rules,
            report: self.report,
            operator_norm: self.operator_norm,
            workspace: self.workspace,
        }
    }

    /// Sets the relative tolerance: converged when `‖b − A x‖ ≤ rtol ‖b‖`. The default is 1e-8 in `f64` and
    /// 3.5e-4 in `f32`.
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.stopping.rtol = rtol;
        self
    }

    /// Sets the absolute tolerance: also converged when `‖b − A x‖ ≤ atol`. The default is zero.
    pub fn atol(mut self, atol: f64) -> Self {
        self.stopping.atol = atol;
        self
    }

    /// Sets the maximum number of iterations. The default is 10,000.
    pub fn max_iterations(mut self, iterations: usize) -> Self {
        self.stopping.max_iterations = iterations;
        self
    }

    /// Sets a time limit. The default is none.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.stopping.time_limit = Some(limit);
        self
    }

    /// Sets the stagnation window: checks for stagnation when the residual has not decreased for this many
    /// iterations and for half of all iterations so far. The default is 2,000, and ten cycles for GMRES;
    /// `usize::MAX` turns the check off. [`Evidence`](crate::Evidence) lists what ends the solve.
    pub fn stagnation_window(mut self, iterations: usize) -> Self {
        self.stopping.stagnation_window = Some(iterations);
        self
    }

    /// Replaces all stopping criteria: tolerances, limits and stagnation window.
    pub fn stopping(mut self, stopping: Stopping) -> Self {
        self.stopping = stopping;
        self
    }

    /// Sets a token by which another thread can cancel the solve.
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Calls `observer` for each iteration, in order. A GPU reports iterations to the host in batches, some
    /// time after they ran.
    pub fn observe(mut self, observer: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Calls `observer` with the iterate after each iteration; for methods with cycles, such as GMRES, after
    /// each cycle, because they assemble `x` only then. Costs a copy of `x`, and on a GPU the host waits for
    /// every iteration.
    ///
    /// ```
    /// use krysp::{Cg, Csr, HostVector};
    /// use std::sync::{Arc, Mutex};
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, 2.0)])?;
    /// let first = Arc::new(Mutex::new(vec![]));
    /// let seen = first.clone();
    /// let watch = move |_: &_, x: &HostVector<f64>| seen.lock().unwrap().push(x.as_slice()[0]);
    /// let solution = Cg::new(&a).observe_iterates(watch).solve(&[1.0, 1.0])?;
    /// assert_eq!(first.lock().unwrap().len(), 2);
    /// assert_eq!(first.lock().unwrap()[1], solution.x[0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe_iterates(mut self, observer: impl FnMut(&Progress, &A::Vector) + Send + 'static) -> Self {
        self.iterate_observers.push(Box::new(observer));
        self
    }

    /// Ends the solve when `stop` returns true. `stop` is called after each iteration, so iterations cannot
    /// share one kernel launch: a small system that would otherwise stay on the chip of a GPU takes more than
    /// twice as long.
    pub fn stop_when(mut self, stop: impl FnMut(&Progress) -> bool + Send + 'static) -> Self {
        self.stop_rules.push(Box::new(stop));
        self
    }

    /// Like [`Solver::stop_when`], but the solve may overshoot: iterations that are already launched or
    /// queued still run and are reported to `stop`, and the solve ends if it still returns true after the
    /// last of them. Does not slow the solve down.
    pub fn stop_soon_when(mut self, stop: impl FnMut(&Progress) -> bool + Send + 'static) -> Self {
        self.late_rules.push(Box::new(stop));
        self
    }

    /// Mutable access to the stopping criteria, to change them between solves.
    pub fn stopping_mut(&mut self) -> &mut Stopping {
        &mut self.stopping
    }

    /// Turns this solver into one for another system in the same space. It keeps the method, the stopping
    /// criteria and the workspace. The null space, the cancel token, observers and stop rules are dropped.
    ///
    /// ```
    /// use krysp::{Cg, Csr, LinearOperator};
    ///
    /// let first = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, 2.0)])?;
    /// let second = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (1, 1, 5.0)])?;
    /// let mut solver = Cg::new(&first).rtol(1e-10);
    /// assert_eq!(solver.solve(&[1.0, 1.0])?.x, [1.0, 0.5]);
    /// let identity = krysp::solvers::Identity::new(second.domain());
    /// let mut solver = solver.with_operators(&second, identity);
    /// assert_eq!(solver.solve(&[1.0, 1.0])?.x, [0.25, 0.2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_operators<B, N>(mut self, operator: B, preconditioner: N) -> Solver<K, B, N>
    where
        B: LinearOperator<Vector = A::Vector>,
        N: LinearOperator<Vector = A::Vector>,
    {
        self.forget_operator_facts();
        Solver {
            method: self.method,
            operator,
            preconditioner,
            null_space: None,
            stopping: self.stopping,
            cancel: None,
            observers: Vec::new(),
            iterate_observers: Vec::new(),
            stop_rules: Vec::new(),
            late_rules: Vec::new(),
            report: self.report,
            operator_norm: self.operator_norm,
            workspace: self.workspace,
        }
    }

    /// `‖A‖` as estimated from below by earlier solves, at the cost of two products; `None` before the first
    /// solve.
    pub fn operator_norm(&self) -> Option<f64> {
        self.operator_norm
    }

    /// Sets `‖A‖`, as estimated by another solver for the same values.
    pub fn with_operator_norm(mut self, norm: Option<f64>) -> Self {
        self.operator_norm = norm;
        self
    }

    /// Runs `work` with this solver, without its observers and stop rules. Used by plans.
    #[doc(hidden)]
    pub fn unwatched<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let [stop_rules, late_rules] = [&mut self.stop_rules, &mut self.late_rules].map(std::mem::take);
        let observers = std::mem::take(&mut self.observers);
        let iterate_observers = std::mem::take(&mut self.iterate_observers);
        let result = work(self);
        (self.stop_rules, self.late_rules) = (stop_rules, late_rules);
        (self.observers, self.iterate_observers) = (observers, iterate_observers);
        result
    }

    /// Returns the operator and the preconditioner, for example for another solver.
    pub fn into_operators(self) -> (A, M) {
        (self.operator, self.preconditioner)
    }

    /// The operator.
    pub fn operator(&self) -> &A {
        &self.operator
    }

    /// Mutable access to the operator, to refresh its values between solves.
    pub fn operator_mut(&mut self) -> &mut A {
        self.forget_operator_facts();
        &mut self.operator
    }

    /// The operator and the preconditioner.
    pub fn operators(&self) -> (&A, &M) {
        (&self.operator, &self.preconditioner)
    }

    /// Mutable access to the operator and the preconditioner, to refresh both between solves.
    pub fn operators_mut(&mut self) -> (&mut A, &mut M) {
        self.forget_operator_facts();
        (&mut self.operator, &mut self.preconditioner)
    }

    /// Discards measured properties of the operators, because their values may change.
    fn forget_operator_facts(&mut self) {
        self.operator_norm = None;
        if let Some(workspace) = &mut self.workspace {
            workspace.symmetry = None;
        }
    }

    /// Cost of one iteration.
    pub fn cost(&self) -> Cost {
        self.method.cost()
    }

    /// Solves `A x = b` from `x = 0`; `b` and `x` are in host memory and in the user's order of unknowns.
    pub fn solve(&mut self, b: &[ElemOf<A::Vector>]) -> Result<Solution<ElemOf<A::Vector>>> {
        let x = self.operator.domain().zeros();
        let solution = x.and_then(|x| self.solve_host(b, x, Arithmetic::Zero));
        self.or_give_up(solution)
    }

    /// Solves `A x = b` from the initial guess `x0`.
    #[doc(alias = "warm start")]
    #[doc(alias = "initial guess")]
    pub fn solve_from(
        &mut self,
        b: &[ElemOf<A::Vector>],
        x0: &[ElemOf<A::Vector>],
    ) -> Result<Solution<ElemOf<A::Vector>>> {
        let domain = self.operator.domain();
        let guess = fits("`x0`", x0.len(), "`A`'s columns", domain.local_len()).and_then(|()| {
            let mut x = domain.zeros()?;
            domain.load(x0, &mut x)?;
            Ok(x)
        });
        let solution = guess.and_then(|x| self.solve_host(b, x, Arithmetic::Plain));
        self.or_give_up(solution)
    }

    /// Passes a result on, after reporting an error to all processes that share the vectors.
    pub(crate) fn or_give_up<R>(&self, result: Result<R>) -> Result<R> {
        result.inspect_err(|error| self.operator.range().report_failure(error))
    }

    fn solve_host(
        &mut self,
        b: &[ElemOf<A::Vector>],
        mut x: A::Vector,
        guess: Arithmetic,
    ) -> Result<Solution<ElemOf<A::Vector>>> {
        let range = self.operator.range();
        fits("`b`", b.len(), "`A`'s rows", range.local_len())?;
        let mut rhs = range.zeros()?;
        range.load(b, &mut rhs)?;
        self.solve_at(&rhs, &mut x, guess, Instant::now())?;
        let mut host = vec![ElemOf::<A::Vector>::default(); x.space().local_len()];
        x.space().store(&x, &mut host)?;
        Ok(Solution { x: host, report: std::mem::take(&mut self.report) })
    }

    /// Solves `A x = b` on vectors of the operator's space, which are not copied. `x` holds the initial guess
    /// and receives the solution. After the first solve with an operator, later ones allocate nothing, except
    /// if a solution comes so close to the rounding limit that its residual must be computed in twice the
    /// working precision.
    pub fn solve_into(&mut self, b: &A::Vector, x: &mut A::Vector) -> Result<&Report> {
        let outcome = self.solve_at(b, x, Arithmetic::Plain, Instant::now()).map(|_| ());
        self.or_give_up(outcome)?;
        Ok(&self.report)
    }

    /// Like [`Solver::solve_into`] from `x = 0`, whatever `x` holds. Takes one product less than from a
    /// guess.
    pub fn solve_from_zero(&mut self, b: &A::Vector, x: &mut A::Vector) -> Result<&Report> {
        let started = Instant::now();
        let outcome = self.check_spaces(b, x).and_then(|()| {
            let zero: ScalarOf<A::Vector> = ElemOf::<A::Vector>::zero().into();
            x.axpby(&zero, b, &zero);
            self.solve_at(b, x, Arithmetic::Zero, started).map(|_| ())
        });
        self.or_give_up(outcome)?;
        Ok(&self.report)
    }

    /// Solves from the guess in `x`; `guess` defines how its residual is computed.
    pub(crate) fn solve_at(
        &mut self,
        b: &A::Vector,
        x: &mut A::Vector,
        guess: Arithmetic,
        started: Instant,
    ) -> Result<&Report> {
        self.check_spaces(b, x)?;
        let mut workspace = self.take_workspace()?;
        self.begin_report();
        workspace.begin();
        let outcome = self.deflate(b, x, &mut workspace, guess, started);
        let ended = outcome.map(|outcome| self.end_report(outcome, started, &workspace));
        self.keep_workspace(workspace);
        ended?;
        Ok(&self.report)
    }

    /// The workspace of the last solve, or a new one.
    pub(crate) fn take_workspace(&mut self) -> Result<Workspace<K, A::Vector>> {
        let space = self.operator.range();
        match self.workspace.take() {
            Some(workspace) if workspace.space == *space => Ok(workspace),
            _ => Workspace::new(&self.method, space),
        }
    }

    /// Keeps a workspace for the next solve.
    pub(crate) fn keep_workspace(&mut self, workspace: Workspace<K, A::Vector>) {
        self.workspace = Some(workspace);
    }

    /// Clears the report for a new solve.
    pub(crate) fn begin_report(&mut self) {
        self.report.history.clear();
        self.report.restarts = 0;
        self.report.condition = None;
        self.report.backward_error = f64::NAN;
        self.report.removed = 0.0;
    }

    /// Completes the report of a solve.
    pub(crate) fn end_report(
        &mut self,
        outcome: Outcome,
        started: Instant,
        workspace: &Workspace<K, A::Vector>,
    ) {
        let bytes = self.bytes_per_iteration();
        let report = &mut self.report;
        report.condition = lanczos::widest(report.condition, lanczos::condition(&workspace.lanczos));
        report.outcome = outcome;
        report.iterations = report.history.len().saturating_sub(1);
        report.bytes = bytes * report.iterations as u64;
        report.time = started.elapsed();
    }

    /// Drops the workspace, because an option has changed its size. The next solve allocates a new one.
    pub(crate) fn forget_workspace(&mut self) {
        self.workspace = None;
    }

    pub(crate) fn check_spaces(&self, b: &A::Vector, x: &A::Vector) -> Result<()> {
        let (domain, range) = (self.operator.domain(), self.operator.range());
        if domain != range {
            return Err(Error::NotSquare { rows: range.len(), columns: domain.len() });
        }
        fits("`b`", b.space().len(), "`A`'s rows", range.len())?;
        fits("`x`", x.space().len(), "`A`'s columns", domain.len())?;
        let m = &self.preconditioner;
        fits("the preconditioner", m.domain().len(), "`A`", range.len())?;
        for (matches, what) in [
            (b.space() == range, "`b`"),
            (x.space() == domain, "`x`"),
            (m.domain() == range && m.range() == domain, "the preconditioner"),
            (self.null_space.as_ref().is_none_or(|null| null.space() == range), "the null space"),
        ] {
            if !matches {
                return Err(Error::Space { what, than: "`A`" });
            }
        }
        Ok(())
    }

    /// Bytes that one iteration should move: the arrays of the operators once per product, and the vectors.
    pub fn bytes_per_iteration(&self) -> u64 {
        let cost = self.method.cost();
        let vector = self.operator.range().local_len() * size_of::<ElemOf<A::Vector>>();
        // `cost.vectors` counts a diagonal M⁻¹ already
        let diagonal = matches!(self.preconditioner.form(), Form::Diagonal(_));
        let preconditioner = if diagonal { 0 } else { self.preconditioner.bytes() };
        let deflation = self.null_space.as_ref().map_or(0, NullSpace::vectors);
        (cost.products * self.operator.bytes() as f64
            + cost.preconditionings * (preconditioner + deflation * vector) as f64
            + cost.vectors * vector as f64) as u64
    }
}

fn fits(what: &'static str, got: usize, of: &'static str, expected: usize) -> Result<()> {
    if got == expected { Ok(()) } else { Err(Error::Size { what, got, of, expected }) }
}
