//! The driver: construction, stopping, observation, restarts and reports, once for all methods.

use crate::{
    CancelToken, ConditionEstimate, ElemOf, Element, Error, Identity, LinearOperator, Monitor, Outcome,
    Progress, Report, Result, Scalar, ScalarOf, Solution, Space, SpaceOf, Stopping, Vector, lanczos,
};
use num_traits::Float;
use std::time::{Duration, Instant};

/// Sees the progress and says whether to stop.
type Observer = Box<dyn FnMut(&Progress) -> bool + Send>;

/// The system a method works on.
#[derive(Debug)]
pub struct System<'s, A: LinearOperator, M> {
    /// The operator.
    pub a: &'s A,
    /// The preconditioner, which applies `M⁻¹`.
    pub m: &'s M,
    /// The right-hand side.
    pub b: &'s A::Vector,
}

impl<A: LinearOperator, M> System<'_, A, M> {
    /// `r ← b − A x; ‖r‖²`
    pub fn residual(&self, x: &A::Vector, r: &mut A::Vector) -> Result<ScalarOf<A::Vector>> {
        let one = ElemOf::<A::Vector>::from_f64(1.0);
        self.a.apply(x, r)?;
        r.axpby(&one.into(), self.b, &(-one).into());
        Ok(r.norm_squared())
    }
}

/// What one iteration costs: the budget that benches hold it to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Products with `A`, each one reading of its format.
    pub products: f64,
    /// Applications of `M⁻¹`.
    pub preconditionings: f64,
    /// Vectors read or written, those of the products and of a diagonal `M⁻¹` included.
    pub vectors: f64,
}

/// A residual that has not fallen so far in so many iterations will not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// The iterations.
    pub iterations: usize,
    /// The part of the residual by which it must fall.
    pub fall: f64,
}

/// A Krylov method: its workspace and one iteration.
pub trait Method<V: Vector> {
    /// The vectors and scalars an iteration works with, kept from solve to solve.
    type Work: Send;

    /// Room to work in.
    fn workspace(&self, space: &V::Space) -> Result<Self::Work>;

    /// Begins at `x`: computes `r = b − A x` afresh and returns `‖r‖²`.
    fn start<A, M>(&self, system: &System<'_, A, M>, x: &V, work: &mut Self::Work) -> Result<V::Scalar>
    where
        A: LinearOperator<Vector = V>,
        M: LinearOperator<Vector = V>;

    /// One iteration; returns `‖r‖²` of the recurrence. All state is in the workspace. CG and BiCGStab never need a
    /// value on the host; GMRES reads its Hessenberg column.
    fn step<A, M>(
        &self,
        system: &System<'_, A, M>,
        x: &mut V,
        work: &mut Self::Work,
        monitor: &mut Monitor,
    ) -> Result<V::Scalar>
    where
        A: LinearOperator<Vector = V>,
        M: LinearOperator<Vector = V>;

    /// Brings `x` up to the iterate last reported, for methods that assemble it late.
    fn finish<A, M>(&self, _system: &System<'_, A, M>, _x: &mut V, _work: &mut Self::Work) -> Result<()>
    where
        A: LinearOperator<Vector = V>,
        M: LinearOperator<Vector = V>,
    {
        Ok(())
    }

    /// What one iteration costs.
    fn cost(&self) -> Cost;

    /// When there is no hope left.
    fn patience(&self) -> Patience {
        Patience { iterations: 2000, fall: 0.01 }
    }

    /// Whether a breakdown may be cured by starting again from the true residual.
    fn restarts_after_breakdown(&self) -> bool {
        false
    }

    /// Whether the recorded coefficients are those of a Lanczos process.
    fn estimates_condition(&self) -> bool {
        false
    }
}

/// A method, an operator and a preconditioner, ready to solve. Made by `Cg::new(op)` and its like.
pub struct Solver<K, A, M>
where
    A: LinearOperator,
    K: Method<A::Vector>,
{
    pub(crate) method: K,
    operator: A,
    preconditioner: M,
    stopping: Stopping,
    cancel: Option<CancelToken>,
    observers: Vec<Observer>,
    monitor: Monitor,
    report: Report,
    work: Option<(SpaceOf<A::Vector>, K::Work)>,
}

impl<K, A> Solver<K, A, Identity<A::Vector>>
where
    A: LinearOperator,
    K: Method<A::Vector> + Default,
{
    /// A solver for `A x = b`, without preconditioner. The operator may be owned, borrowed, boxed or shared.
    pub fn new(operator: A) -> Self {
        let preconditioner = Identity::new(operator.range());
        Solver {
            method: K::default(),
            operator,
            preconditioner,
            stopping: Stopping::new(ElemOf::<A::Vector>::EPSILON),
            cancel: None,
            observers: Vec::new(),
            monitor: Monitor::default(),
            report: Report::default(),
            work: None,
        }
    }
}

impl<K, A, M> Solver<K, A, M>
where
    A: LinearOperator,
    K: Method<A::Vector>,
    M: LinearOperator<Vector = A::Vector>,
{
    /// With a preconditioner: an operator that applies `M⁻¹`, in the space of `A`.
    pub fn preconditioner<N>(self, preconditioner: N) -> Solver<K, A, N>
    where
        N: LinearOperator<Vector = A::Vector>,
    {
        Solver {
            method: self.method,
            operator: self.operator,
            preconditioner,
            stopping: self.stopping,
            cancel: self.cancel,
            observers: self.observers,
            monitor: self.monitor,
            report: self.report,
            work: self.work,
        }
    }

    /// Ends at `‖r‖ ≤ rtol ‖b‖`.
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.stopping.rtol = rtol;
        self
    }

    /// Ends at `‖r‖ ≤ atol`, if that comes before the relative tolerance.
    pub fn atol(mut self, atol: f64) -> Self {
        self.stopping.atol = atol;
        self
    }

    /// Ends after so many iterations.
    pub fn max_iterations(mut self, iterations: usize) -> Self {
        self.stopping.max_iterations = iterations;
        self
    }

    /// Ends after so much time.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.stopping.time_limit = Some(limit);
        self
    }

    /// Calls it stagnation when the residual has not fallen for so many iterations; `usize::MAX` for never.
    pub fn patience(mut self, iterations: usize) -> Self {
        self.stopping.patience = Some(iterations);
        self
    }

    /// Replaces every stopping rule at once.
    pub fn stopping(mut self, stopping: Stopping) -> Self {
        self.stopping = stopping;
        self
    }

    /// Ends when the token is pulled, from whichever thread.
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Calls `observer` after each iteration.
    pub fn observe(mut self, mut observer: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.observers.push(Box::new(move |progress| {
            observer(progress);
            false
        }));
        self
    }

    /// Ends when `stop` says so.
    pub fn stop_when(mut self, stop: impl FnMut(&Progress) -> bool + Send + 'static) -> Self {
        self.observers.push(Box::new(stop));
        self
    }

    /// The operator.
    pub fn operator(&self) -> &A {
        &self.operator
    }

    /// The operator, to refresh its values between solves.
    pub fn operator_mut(&mut self) -> &mut A {
        &mut self.operator
    }

    /// The operator and the preconditioner, to refresh both between solves.
    pub fn operators_mut(&mut self) -> (&mut A, &mut M) {
        (&mut self.operator, &mut self.preconditioner)
    }

    /// What one iteration costs.
    pub fn cost(&self) -> Cost {
        self.method.cost()
    }

    /// Solves `A x = b` from `x = 0`; `b` and `x` are in host memory and in the user's numbering.
    pub fn solve(&mut self, b: &[ElemOf<A::Vector>]) -> Result<Solution<ElemOf<A::Vector>>> {
        let x = self.operator.domain().zeros()?;
        self.solve_host(b, x)
    }

    /// Solves `A x = b` from the guess `x0`.
    pub fn solve_from(
        &mut self,
        b: &[ElemOf<A::Vector>],
        x0: &[ElemOf<A::Vector>],
    ) -> Result<Solution<ElemOf<A::Vector>>> {
        let domain = self.operator.domain();
        fits("`x0`", x0.len(), "`A`'s columns", domain.len())?;
        let mut x = domain.zeros()?;
        domain.load(x0, &mut x)?;
        self.solve_host(b, x)
    }

    fn solve_host(
        &mut self,
        b: &[ElemOf<A::Vector>],
        mut x: A::Vector,
    ) -> Result<Solution<ElemOf<A::Vector>>> {
        let range = self.operator.range();
        fits("`b`", b.len(), "`A`'s rows", range.len())?;
        let mut rhs = range.zeros()?;
        range.load(b, &mut rhs)?;
        self.solve_into(&rhs, &mut x)?;
        let mut host = vec![ElemOf::<A::Vector>::default(); x.space().len()];
        x.space().store(&x, &mut host)?;
        Ok(Solution { x: host, report: std::mem::take(&mut self.report) })
    }

    /// Solves `A x = b` on vectors that stay where they are, from the guess that `x` holds. Allocates nothing once it
    /// has run with this operator.
    pub fn solve_into(&mut self, b: &A::Vector, x: &mut A::Vector) -> Result<&Report> {
        let started = Instant::now();
        self.check_spaces(b, x)?;
        let space = self.operator.range();
        let (space, mut work) = match self.work.take() {
            Some((of, work)) if of == *space => (of, work),
            _ => (space.clone(), self.method.workspace(space)?),
        };
        self.report.history.clear();
        self.report.restarts = 0;
        let outcome = self.iterate(b, x, &mut work, started);
        self.work = Some((space, work));
        self.report.outcome = outcome?;
        self.report.iterations = self.report.history.len().saturating_sub(1);
        self.report.condition = self.condition();
        self.report.bytes = self.bytes_per_iteration() * self.report.iterations as u64;
        self.report.time = started.elapsed();
        Ok(&self.report)
    }

    /// Makes the next solve build its workspace anew, after an option changed its size.
    pub(crate) fn forget_workspace(&mut self) {
        self.work = None;
    }

    fn check_spaces(&self, b: &A::Vector, x: &A::Vector) -> Result<()> {
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
        ] {
            if !matches {
                return Err(Error::Space { what, than: "`A`" });
            }
        }
        Ok(())
    }

    /// Runs the method until something ends it, and again from the true residual where that may help.
    fn iterate(
        &mut self,
        b: &A::Vector,
        x: &mut A::Vector,
        work: &mut K::Work,
        started: Instant,
    ) -> Result<Outcome> {
        let system = System { a: &self.operator, m: &self.preconditioner, b };
        let report = &mut self.report;
        report.rhs_norm = norm::<A::Vector>(b.norm_squared())?;
        report.true_residual = f64::NAN;
        if !report.rhs_norm.is_finite() {
            return Ok(Outcome::NotFinite { whence: "`b`" });
        }
        if report.rhs_norm == 0.0 {
            self.monitor.coefficients.clear();
            return trivial(b, x, report);
        }
        let threshold = self.stopping.threshold(report.rhs_norm);
        let Patience { iterations, fall } = self.method.patience();
        let patience = self.stopping.patience.unwrap_or(iterations);

        self.monitor.coefficients.clear();
        report.true_residual = norm::<A::Vector>(self.method.start(&system, x, work)?)?;
        let first = report.true_residual;
        report.history.push(first);
        if !first.is_finite() {
            return Ok(Outcome::NotFinite { whence: "the initial residual" });
        }
        if first <= threshold {
            return Ok(Outcome::Converged);
        }
        let (mut best, mut best_at) = (first, 0);
        loop {
            let outcome = loop {
                let iteration = report.history.len() - 1;
                if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                    break Outcome::Cancelled;
                }
                if iteration >= self.stopping.max_iterations {
                    break Outcome::IterationLimit;
                }
                if self.stopping.time_limit.is_some_and(|limit| started.elapsed() >= limit) {
                    break Outcome::TimeLimit;
                }
                let iteration = iteration + 1;
                let residual = match self.method.step(&system, x, work, &mut self.monitor) {
                    Ok(squared) => norm::<A::Vector>(squared)?,
                    Err(Error::Breakdown { what, value }) if value.is_finite() => {
                        break Outcome::Breakdown { what, value, iteration };
                    }
                    Err(Error::Breakdown { what, .. }) => break Outcome::NotFinite { whence: what },
                    Err(error) => return Err(error),
                };
                report.history.push(residual);
                let progress = Progress { iteration, residual, threshold };
                let mut stop = false;
                for observer in &mut self.observers {
                    stop |= observer(&progress);
                }
                if !residual.is_finite() {
                    break Outcome::NotFinite { whence: "the residual" };
                }
                if residual <= threshold {
                    break Outcome::Converged;
                }
                if stop {
                    break Outcome::Stopped;
                }
                if residual > self.stopping.divergence * first {
                    break Outcome::Diverged;
                }
                if residual < (1.0 - fall) * best {
                    (best, best_at) = (residual, iteration);
                } else if iteration - best_at >= patience {
                    break Outcome::Stagnated;
                }
            };
            // The recurrence has spoken; now the truth, which is also the place to start from again.
            self.method.finish(&system, x, work)?;
            let before = report.true_residual;
            report.true_residual = norm::<A::Vector>(self.method.start(&system, x, work)?)?;
            if report.true_residual <= threshold {
                return Ok(Outcome::Converged);
            }
            if !report.true_residual.is_finite() && !matches!(outcome, Outcome::NotFinite { .. }) {
                return Ok(Outcome::NotFinite { whence: "the solution" });
            }
            let may_help = report.true_residual < 0.5 * before;
            match outcome {
                Outcome::Converged if report.true_residual <= 2.0 * threshold => {
                    return Ok(Outcome::Converged);
                }
                Outcome::Converged if !may_help => return Ok(Outcome::Stagnated),
                Outcome::Converged => {}
                Outcome::Breakdown { .. } if may_help && self.method.restarts_after_breakdown() => {}
                ended => return Ok(ended),
            }
            report.restarts += 1;
            self.monitor.coefficients.clear();
            (best, best_at) = (report.true_residual, report.history.len() - 1);
        }
    }

    fn condition(&self) -> Option<ConditionEstimate> {
        if self.method.estimates_condition() { lanczos::condition(&self.monitor.coefficients) } else { None }
    }

    /// The byte budget of one iteration: the formats once a product, and the vectors.
    pub fn bytes_per_iteration(&self) -> u64 {
        let cost = self.method.cost();
        let vector = self.operator.range().len() * size_of::<ElemOf<A::Vector>>();
        // a diagonal M⁻¹ is a vector, and counted among them
        let diagonal = self.preconditioner.diagonal().is_some();
        let preconditioner = if diagonal { 0 } else { self.preconditioner.bytes() };
        (cost.products * self.operator.bytes() as f64
            + cost.preconditionings * preconditioner as f64
            + cost.vectors * vector as f64) as u64
    }
}

/// Solves `A x = 0`, and tells a right-hand side that is zero from one whose square underflows.
fn trivial<V: Vector>(b: &V, x: &mut V, report: &mut Report) -> Result<Outcome> {
    let (zero, largest) = (V::Elem::from_f64(0.0), <V::Elem as Element>::Real::min_positive_value().recip());
    x.axpby(&V::Elem::from_f64(largest.into()).into(), b, &zero.into());
    report.true_residual = 0.0;
    report.history.push(0.0);
    if norm::<V>(x.norm_squared())? == 0.0 {
        return Ok(Outcome::Converged);
    }
    x.axpby(&zero.into(), b, &zero.into());
    Ok(Outcome::Breakdown { what: "‖b‖²", value: 0.0, iteration: 0 })
}

fn norm<V: Vector>(squared: V::Scalar) -> Result<f64> {
    Ok(squared.read()?.to_f64().sqrt())
}

fn fits(what: &'static str, got: usize, of: &'static str, expected: usize) -> Result<()> {
    if got == expected { Ok(()) } else { Err(Error::Size { what, got, of, expected }) }
}
