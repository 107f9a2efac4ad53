//! Construction, options and entry points of a solver, shared by all methods.

use crate::callbacks::Callbacks;
use crate::driver::{Driver, Operators, fits};
use crate::{
    Arithmetic, BasicVector, CancelToken, Cost, ElemOf, Identity, LinearOperator, Method, Progress, Report,
    Result, ScalarOf, Solution, Space, Stopping,
};
use num_traits::Zero;
use std::time::{Duration, Instant};

/// A method, an operator and a preconditioner, ready to solve. Created by `Cg::new(op)`, `Gmres::new(op)` and
/// so on.
pub struct Solver<K, A, M>
where
    A: LinearOperator,
    K: Method<A::Vector>,
{
    pub(crate) driver: Driver<K, A::Vector>,
    pub(crate) operator: A,
    pub(crate) preconditioner: M,
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
        Solver { driver: Driver::new(K::default()), operator, preconditioner }
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
        self.driver.forget_operator_facts();
        Solver { driver: self.driver, operator: self.operator, preconditioner }
    }

    /// Sets the relative tolerance: converged when `‖b − A x‖ ≤ rtol ‖b‖`. The default is 1e-8 in `f64` and
    /// 3.5e-4 in `f32`.
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.driver.stopping.rtol = rtol;
        self
    }

    /// Sets the absolute tolerance: also converged when `‖b − A x‖ ≤ atol`. The default is zero.
    pub fn atol(mut self, atol: f64) -> Self {
        self.driver.stopping.atol = atol;
        self
    }

    /// Sets the maximum number of iterations. The default is 10,000.
    pub fn max_iterations(mut self, iterations: usize) -> Self {
        self.driver.stopping.max_iterations = iterations;
        self
    }

    /// Sets a time limit. The default is none.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.driver.stopping.time_limit = Some(limit);
        self
    }

    /// Sets the stagnation window: checks for stagnation when the residual has not decreased for this many
    /// iterations and for half of all iterations so far. The default is 2,000, and ten cycles for GMRES;
    /// `usize::MAX` turns the check off. [`Evidence`](crate::Evidence) lists what ends the solve.
    pub fn stagnation_window(mut self, iterations: usize) -> Self {
        self.driver.stopping.stagnation_window = Some(iterations);
        self
    }

    /// Replaces all stopping criteria: tolerances, limits and stagnation window.
    pub fn stopping(mut self, stopping: Stopping) -> Self {
        self.driver.stopping = stopping;
        self
    }

    /// Sets a token by which another thread can cancel the solve.
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.driver.cancel = Some(token.clone());
        self
    }

    /// Calls `observer` for each iteration, in order. A GPU reports iterations to the host in batches, some
    /// time after they ran.
    pub fn observe(mut self, observer: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.driver.callbacks.observers.push(Box::new(observer));
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
        self.driver.callbacks.iterate_observers.push(Box::new(observer));
        self
    }

    /// Ends the solve when `stop` returns true. `stop` is called after each iteration, so iterations cannot
    /// share one kernel launch: a small system that would otherwise stay on the chip of a GPU takes more than
    /// twice as long.
    pub fn stop_when(mut self, stop: impl FnMut(&Progress) -> bool + Send + 'static) -> Self {
        self.driver.callbacks.stop_rules.push(Box::new(stop));
        self
    }

    /// Like [`Solver::stop_when`], but the solve may overshoot: iterations that are already launched or
    /// queued still run and are reported to `stop`, and the solve ends if it still returns true after the
    /// last of them. Does not slow the solve down.
    pub fn stop_soon_when(mut self, stop: impl FnMut(&Progress) -> bool + Send + 'static) -> Self {
        self.driver.callbacks.late_rules.push(Box::new(stop));
        self
    }

    /// Mutable access to the stopping criteria, to change them between solves.
    pub fn stopping_mut(&mut self) -> &mut Stopping {
        &mut self.driver.stopping
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
        self.driver.forget_system();
        Solver { driver: self.driver, operator, preconditioner }
    }

    /// `‖A‖` as estimated from below by earlier solves, at the cost of two products; `None` before the first
    /// solve.
    pub fn operator_norm(&self) -> Option<f64> {
        self.driver.operator_norm
    }

    /// Sets `‖A‖`, as estimated by another solver for the same values.
    pub fn with_operator_norm(mut self, norm: Option<f64>) -> Self {
        self.driver.operator_norm = norm;
        self
    }

    /// Runs `work` with this solver, without its observers and stop rules. Used by plans.
    #[doc(hidden)]
    pub fn unwatched<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let callbacks = std::mem::replace(&mut self.driver.callbacks, Callbacks::new());
        let result = work(self);
        self.driver.callbacks = callbacks;
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
        self.driver.forget_operator_facts();
        &mut self.operator
    }

    /// The operator and the preconditioner.
    pub fn operators(&self) -> (&A, &M) {
        (&self.operator, &self.preconditioner)
    }

    /// Mutable access to the operator and the preconditioner, to refresh both between solves.
    pub fn operators_mut(&mut self) -> (&mut A, &mut M) {
        self.driver.forget_operator_facts();
        (&mut self.operator, &mut self.preconditioner)
    }

    /// Cost of one iteration.
    pub fn cost(&self) -> Cost {
        self.driver.method.cost()
    }

    /// Solves `A x = b` from `x = 0`; `b` and `x` are in host memory and in the user's order of unknowns.
    pub fn solve(&mut self, b: &[ElemOf<A::Vector>]) -> Result<Solution<ElemOf<A::Vector>>> {
        let x = self.operator.domain().zeros();
        let (driver, on) = self.parts();
        let solution = x.and_then(|x| driver.solve_host(on, b, x, Arithmetic::Zero));
        self.or_report(solution)
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
        let (driver, on) = self.parts();
        let solution = guess.and_then(|x| driver.solve_host(on, b, x, Arithmetic::Plain));
        self.or_report(solution)
    }

    /// Passes a result on, after reporting an error to all processes that share the vectors.
    pub(crate) fn or_report<R>(&self, result: Result<R>) -> Result<R> {
        result.inspect_err(|error| self.operator.range().report_failure(error))
    }

    /// Solves `A x = b` on vectors of the operator's space, which are not copied. `x` holds the initial guess
    /// and receives the solution. After the first solve with an operator, later ones allocate nothing, except
    /// if a solution comes so close to the rounding limit that its residual must be computed in twice the
    /// working precision.
    pub fn solve_into(&mut self, b: &A::Vector, x: &mut A::Vector) -> Result<&Report> {
        let (driver, on) = self.parts();
        let outcome = driver.solve_at(on, b, x, Arithmetic::Plain, Instant::now()).map(|_| ());
        self.or_report(outcome)?;
        Ok(&self.driver.report)
    }

    /// Like [`Solver::solve_into`] from `x = 0`, whatever `x` holds. Takes one product less than from a
    /// guess.
    pub fn solve_from_zero(&mut self, b: &A::Vector, x: &mut A::Vector) -> Result<&Report> {
        let started = Instant::now();
        let (driver, on) = self.parts();
        let outcome = driver.check_spaces(on, b, x).and_then(|()| {
            let zero: ScalarOf<A::Vector> = ElemOf::<A::Vector>::zero().into();
            x.axpby(&zero, b, &zero);
            driver.solve_at(on, b, x, Arithmetic::Zero, started).map(|_| ())
        });
        self.or_report(outcome)?;
        Ok(&self.driver.report)
    }

    /// The driver, and the operators for it.
    pub(crate) fn parts(&mut self) -> (&mut Driver<K, A::Vector>, Operators<'_, A::Vector>) {
        (&mut self.driver, Operators { a: &self.operator, m: &self.preconditioner })
    }

    /// Memory traffic of one iteration in bytes, by a model: the arrays of the operators once per product,
    /// and the vectors.
    pub fn bytes_per_iteration(&self) -> u64 {
        self.driver.bytes_per_iteration(Operators { a: &self.operator, m: &self.preconditioner })
    }
}
