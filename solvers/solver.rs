//! The driver: construction, stopping, observation, restarts and reports, once for all methods.

use crate::deflation::{Deflated, NullSpace};
use crate::verdict::{converged, finite_or, norm, trivial};
use crate::{
    CancelToken, Cost, ElemOf, Element, Ending, Error, Identity, LinearOperator, Method, Outcome, Patience,
    Progress, Report, Result, Solution, Space, SpaceOf, Steps, Stopping, System, Vector, lanczos,
};
use std::time::{Duration, Instant};

/// Steps queued at once, at most: limits and tokens are looked at in between.
const LEAP: usize = 256;

/// Sees the progress and says whether to stop.
type Observer = Box<dyn FnMut(&Progress) -> bool + Send>;

/// A method, an operator and a preconditioner, ready to solve. Made by `Cg::new(op)` and its like.
pub struct Solver<K, A, M>
where
    A: LinearOperator,
    K: Method<A::Vector>,
{
    pub(crate) method: K,
    pub(crate) operator: A,
    preconditioner: M,
    pub(crate) null_space: Option<NullSpace<A::Vector>>,
    stopping: Stopping,
    cancel: Option<CancelToken>,
    observers: Vec<Observer>,
    report: Report,
    room: Option<Room<K, A::Vector>>,
}

/// What a solver keeps from solve to solve.
struct Room<K: Method<V>, V: Vector> {
    space: SpaceOf<V>,
    work: K::Work,
    steps: V::Steps,
    /// `b` without its part along the null space, where there is one.
    rhs: Option<V>,
    /// What a step recorded.
    numbers: Vec<f64>,
    /// `[α, β]` of every iteration since the last start, for methods of Lanczos type.
    lanczos: Vec<[f64; 2]>,
}

impl<K: Method<V>, V: Vector> Room<K, V> {
    fn new(method: &K, space: &SpaceOf<V>) -> Result<Self> {
        Ok(Room {
            space: space.clone(),
            work: method.workspace(space)?,
            steps: V::Steps::new(space, method.numbers(space.len()))?,
            rhs: None,
            numbers: Vec::new(),
            lanczos: Vec::new(),
        })
    }
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
            null_space: None,
            stopping: Stopping::new(ElemOf::<A::Vector>::EPSILON),
            cancel: None,
            observers: Vec::new(),
            report: Report::default(),
            room: None,
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
            null_space: self.null_space,
            stopping: self.stopping,
            cancel: self.cancel,
            observers: self.observers,
            report: self.report,
            room: self.room,
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
        let mut room = match self.room.take() {
            Some(room) if room.space == *space => room,
            _ => Room::new(&self.method, space)?,
        };
        self.report.history.clear();
        self.report.restarts = 0;
        room.lanczos.clear();
        let outcome = self.deflate(b, x, &mut room, started);
        self.report.condition = lanczos::condition(&room.lanczos);
        self.room = Some(room);
        self.report.outcome = outcome?;
        self.report.iterations = self.report.history.len().saturating_sub(1);
        self.report.bytes = self.bytes_per_iteration() * self.report.iterations as u64;
        self.report.time = started.elapsed();
        Ok(&self.report)
    }

    /// Makes the next solve build its workspace anew, after an option changed its size.
    pub(crate) fn forget_workspace(&mut self) {
        self.room = None;
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
            (self.null_space.as_ref().is_none_or(|null| null.space() == range), "the null space"),
        ] {
            if !matches {
                return Err(Error::Space { what, than: "`A`" });
            }
        }
        Ok(())
    }

    /// Iterates on what is left of the system without the null space, where there is one.
    fn deflate(
        &mut self,
        b: &A::Vector,
        x: &mut A::Vector,
        room: &mut Room<K, A::Vector>,
        started: Instant,
    ) -> Result<Outcome> {
        self.report.removed = 0.0;
        let Some(null_space) = &self.null_space else { return self.iterate(b, x, room, started) };
        let mut rhs = match room.rhs.take() {
            Some(rhs) => rhs,
            None => room.space.zeros()?,
        };
        rhs.copy_from(b);
        null_space.remove(&mut rhs);
        self.report.removed = null_space.removed()?;
        null_space.remove(x);
        let outcome = self.iterate(&rhs, x, room, started);
        room.rhs = Some(rhs);
        outcome
    }

    /// Runs the method until something ends it, and again from the true residual where that may help.
    fn iterate(
        &mut self,
        b: &A::Vector,
        x: &mut A::Vector,
        room: &mut Room<K, A::Vector>,
        started: Instant,
    ) -> Result<Outcome> {
        let report = &mut self.report;
        report.rhs_norm = norm::<A::Vector>(b.norm_squared())?;
        report.true_residual = f64::NAN;
        if !report.rhs_norm.is_finite() {
            return Ok(Outcome::NotFinite { whence: "`b`" });
        }
        if report.rhs_norm == 0.0 {
            return trivial(b, x, report);
        }
        // what was taken out leaves its rounding behind
        let rounding = 10.0 * <ElemOf<A::Vector>>::EPSILON * report.removed;
        let threshold = self.stopping.threshold(report.rhs_norm).max(rounding);
        let m = Deflated { m: &self.preconditioner, null_space: self.null_space.as_ref() };
        let system = System { a: &self.operator, m: &m, b };
        let first = norm::<A::Vector>(self.method.start(&system, x, &mut room.work)?)?;
        self.report.true_residual = first;
        self.report.history.push(first);
        if !first.is_finite() {
            return Ok(Outcome::NotFinite { whence: "the initial residual" });
        }
        if first <= threshold {
            return converged(first, threshold, &self.report, x);
        }
        room.steps.forget();
        loop {
            let outcome = self.run(b, x, room, started, threshold)?;
            // The recurrence has spoken; now the truth, which is also the place to start from again.
            let m = Deflated { m: &self.preconditioner, null_space: self.null_space.as_ref() };
            let system = System { a: &self.operator, m: &m, b };
            self.method.finish(&system, x, &mut room.work)?;
            let before = self.report.true_residual;
            let truth = norm::<A::Vector>(self.method.start(&system, x, &mut room.work)?)?;
            self.report.true_residual = truth;
            if truth <= threshold {
                return converged(truth, threshold, &self.report, x);
            }
            if !truth.is_finite() && !matches!(outcome, Outcome::NotFinite { .. }) {
                return Ok(Outcome::NotFinite { whence: "the solution" });
            }
            let may_help = truth < 0.5 * before;
            match outcome {
                Outcome::Converged if truth <= 2.0 * threshold => {
                    return converged(truth, 2.0 * threshold, &self.report, x);
                }
                Outcome::Converged if !may_help => return finite_or(Outcome::Stagnated, x),
                Outcome::Converged => {}
                Outcome::Breakdown { .. } | Outcome::NotFinite { .. }
                    if may_help && self.method.restarts_after_breakdown() => {}
                ended => return finite_or(ended, x),
            }
            self.report.restarts += 1;
            room.lanczos.clear();
        }
    }

    /// Steps from where the method has started, until one of the stopping rules holds.
    ///
    /// Steps may be on their way when the host decides to stop: they are waited for, and reported, so that `x` is the
    /// iterate reported last.
    fn run(
        &mut self,
        b: &A::Vector,
        x: &mut A::Vector,
        room: &mut Room<K, A::Vector>,
        started: Instant,
        threshold: f64,
    ) -> Result<Outcome> {
        let m = Deflated { m: &self.preconditioner, null_space: self.null_space.as_ref() };
        let system = System { a: &self.operator, m: &m, b };
        let method = &self.method;
        let Room { space, work, steps, numbers, lanczos, .. } = room;
        let replays = self.operator.replays() && self.preconditioner.replays();
        let cycle = method.cycle(space.len());
        let report = &mut self.report;
        let Patience { iterations, fall } = method.patience();
        let patience = self.stopping.patience.unwrap_or(iterations);
        let made = report.history.len() - 1;
        let (mut best, mut best_at) = (report.true_residual, made);
        let (mut queued, mut place, mut ending) = (made, 0, None);
        steps.begin(threshold * threshold)?;
        loop {
            while ending.is_none()
                && steps.in_flight() < <A::Vector as Vector>::Steps::LAG
                && cycle != Some(place)
            {
                if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                    ending = Some(Outcome::Cancelled);
                } else if queued >= self.stopping.max_iterations {
                    ending = Some(Outcome::IterationLimit);
                } else if self.stopping.time_limit.is_some_and(|limit| started.elapsed() >= limit) {
                    ending = Some(Outcome::TimeLimit);
                } else {
                    // who observes may stop a solve, and would find that it went on
                    let leap = if self.observers.is_empty() { LEAP } else { 0 };
                    let count = leap.min(self.stopping.max_iterations - queued);
                    let made = method.leap(&system, x, work, steps, count)?;
                    queued += made;
                    if made == 0 {
                        steps
                            .run(place, replays, &mut |steps| method.step(&system, x, work, place, steps))?;
                        queued += 1;
                        place = if cycle.is_some() { place + 1 } else { (place + 1) % method.places() };
                    }
                }
            }
            if steps.in_flight() == 0 {
                if let Some(ended) = ending {
                    return Ok(ended);
                }
                method.finish(&system, x, work)?;
                method.start(&system, x, work)?;
                steps.begin(threshold * threshold)?;
                place = 0;
                continue;
            }
            let iteration = report.history.len();
            let broken = |what, value: f64| match value.is_finite() {
                true => Outcome::Breakdown { what, value, iteration },
                false => Outcome::NotFinite { whence: what },
            };
            let (residual, last) = match steps.next(numbers)? {
                Ending::Failed { what, value } => return Ok(broken(what, value)),
                Ending::Known { last } => match method.learn(work, numbers, lanczos) {
                    Ok(residual) => (residual, last || (cycle.is_some() && residual <= threshold)),
                    Err(Error::Breakdown { what, value }) => return Ok(broken(what, value)),
                    Err(error) => return Err(error),
                },
            };
            report.history.push(residual);
            let progress = Progress { iteration, residual, threshold };
            let mut stop = false;
            for observer in &mut self.observers {
                stop |= observer(&progress);
            }
            if !residual.is_finite() {
                return Ok(Outcome::NotFinite { whence: "the residual" });
            }
            if last {
                return Ok(Outcome::Converged);
            }
            if residual < (1.0 - fall) * best {
                (best, best_at) = (residual, iteration);
            }
            if ending.is_some() {
                continue;
            }
            if stop {
                ending = Some(Outcome::Stopped);
            } else if residual > self.stopping.divergence * report.history[0] {
                ending = Some(Outcome::Diverged);
            } else if iteration - best_at >= patience {
                ending = Some(Outcome::Stagnated);
            }
        }
    }

    /// The byte budget of one iteration: the formats once a product, and the vectors.
    pub fn bytes_per_iteration(&self) -> u64 {
        let cost = self.method.cost();
        let vector = self.operator.range().len() * size_of::<ElemOf<A::Vector>>();
        // a diagonal M⁻¹ is a vector, and counted among them
        let diagonal = self.preconditioner.diagonal().is_some();
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
