//! Decides from the residuals of a running attempt when another candidate is expected to be faster.
//!
//! With `spent` = work of the attempt so far, `remaining` = estimated work to the tolerance, `next` = expected cost of the best
//! alternative, an attempt stops when
//!
//! ```text
//! remaining >= MARGIN * next    and    remaining * spent >= MARGIN²/HORIZON * next²
//! ```
//!
//! so that early, when estimates are poor, a larger difference is required. Decisions do not depend on a clock.

use super::{Candidate, WorkUnits};
use krysp_solvers::Progress;

/// The remaining work must exceed the cost of the alternative by this factor, because convergence often accelerates, above all that of
/// conjugate gradients. Fitted with `cargo bench --bench plan -- --against`; values from 1.3 to 2 give similar results.
const MARGIN: f64 = 1.5;

/// Upper bound of the remaining iterations, as a multiple of those made. As `remaining <= HORIZON * spent`, an attempt is not stopped before
/// `spent >= MARGIN / HORIZON * next`, a quarter of the cost of the alternative.
const HORIZON: f64 = 6.0;

/// Least `remaining * spent / next²` at which an attempt stops.
const SOONER: f64 = MARGIN * MARGIN / HORIZON;

/// [`HORIZON`] for conjugate gradients with Jacobi, if the cost of the alternative is known. An attempt whose residual stagnates then stops
/// at `spent = √(SOONER / HORIZON_CG_JACOBI) * next`, a ninth of that cost, because most such attempts would take several times that cost.
const HORIZON_CG_JACOBI: f64 = 30.0;

/// An estimate after `n` iterations is followed by one after `n + n / LOOK + 1` iterations or later, because the cost of an estimate grows
/// with `n`.
const LOOK: usize = 16;

/// Minimum number of residuals for an estimate.
const SEEN: usize = 8;

/// A candidate that may run instead of the running one.
#[derive(Clone, Debug)]
pub(super) struct Alternative {
    /// Its index in the list of candidates; `None` for an additional entry, whose cost limits that of every attempt.
    pub(super) index: Option<usize>,
    /// The part of the cost that does not depend on Jacobi's iterations: the share of the setup and, if known, the cost of the solve.
    pub(super) fixed: WorkUnits,
    /// The candidate, if its iterations are estimated from those of Jacobi.
    pub(super) estimated: Option<Candidate>,
    /// Whether its cost is a rough estimate, which an elimination ordering would make precise, as that of `Cholesky`.
    pub(super) analysable: bool,
    /// For a suspended attempt with Jacobi: the work spent on its iterations. If the running attempt needs many iterations, Jacobi needs more:
    /// the remaining work of the suspended attempt is at least `(made + spent + remaining) * jacobi_per_work - jacobi_made`, with the
    /// values of the running attempt ([`Start`]).
    pub(super) jacobi_made: Option<WorkUnits>,
}

impl Alternative {
    /// Its expected cost, if all iterations with Jacobi take the work `jacobi`, and at least the work `least`.
    fn cost(&self, jacobi: WorkUnits, least: WorkUnits) -> WorkUnits {
        let least = self.jacobi_made.map_or(0.0, |made| least.0 - made.0);
        let cost = self.fixed + self.estimated.as_ref().map_or(WorkUnits::ZERO, |one| one.solve(jacobi));
        cost.max(WorkUnits(least))
    }
}

/// Decision after an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Iterate.
    Continue,
    /// Compute the elimination ordering: the cost of the best alternative depends on it.
    Analyse,
    /// Stop: another candidate is expected to be faster.
    Switch,
    /// Stop: the preconditioner is that of earlier values, and a new one is expected to be faster.
    Renew,
}

/// Estimates that led to the verdict on an attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// Estimated number of remaining iterations, and whether it was cut off at its limit, so that more are expected.
    pub(super) iterations: f64,
    pub(super) at_least: bool,
    /// Cost of the remaining iterations.
    pub(super) remaining: WorkUnits,
    /// Index of the best alternative, which the report names, and its cost. The scheduler itself chooses the next candidate.
    pub(super) next: Option<usize>,
    pub(super) next_cost: WorkUnits,
}

/// Conditions, evaluated at the start, under which an attempt will be stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// Index of the best alternative.
    pub(super) next: Option<usize>,
    /// Minimum work of the remaining iterations for which the attempt is stopped; early on more is required.
    pub(super) remaining: f64,
    /// First iteration after which it may be stopped.
    pub(super) earliest: usize,
}

/// Costs and alternatives with which an attempt starts. By default there are no alternatives, for which it would be stopped.
#[derive(Default)]
pub(super) struct Start {
    /// Work of one iteration.
    pub(super) iteration: WorkUnits,
    /// Number of iterations before which the attempt is not stopped, as a rule the expected ones: see `Scheduler::monitor`.
    pub(super) granted: f64,
    /// Whether the method is a conjugate gradient method (`Cg` or `Fcg`).
    pub(super) conjugate: bool,
    /// Candidates that may run instead of this one.
    pub(super) alternatives: Vec<Alternative>,
    /// Work of all iterations of CG with Jacobi; `None` if this attempt is the one that measures it, zero if it is unknown.
    pub(super) jacobi: Option<WorkUnits>,
    /// Lower bound of the work with Jacobi per unit of work of this candidate; zero if unknown.
    pub(super) jacobi_per_work: f64,
    /// Products with the matrix per unit of work of this candidate.
    pub(super) products_per_work: f64,
    /// Work of earlier attempts with this candidate in this solve.
    pub(super) made: WorkUnits,
    /// Iterations after which a preconditioner of earlier values is renewed.
    pub(super) renew_after: Option<usize>,
}

/// Collects the residuals of an attempt, and decides when it stops.
pub(super) struct Monitor {
    start: Start,
    /// Upper bounds of the remaining iterations, as multiples of those made. The first holds if the cost of the best alternative is
    /// known, the second if an elimination ordering must be computed to know it.
    horizon: [f64; 2],
    residuals: Vec<f64>,
    /// Iteration at which the next estimate is made.
    look_at: usize,
    verdict: Verdict,
    pub(super) estimate: Estimate,
}

impl Monitor {
    pub(super) fn new(start: Start) -> Monitor {
        let horizon = match (start.conjugate, start.jacobi) {
            (true, None) => [HORIZON_CG_JACOBI, HORIZON],
            _ => [HORIZON; 2],
        };
        let mut monitor = Monitor {
            start,
            horizon,
            residuals: vec![],
            look_at: 0,
            verdict: Verdict::Continue,
            estimate: Estimate::default(),
        };
        let amortized = monitor.amortized([WorkUnits::ZERO; 2]);
        monitor.look_at = SEEN.max(monitor.start.granted.max(amortized) as usize);
        monitor
    }

    /// Records a residual, and returns the verdict, which stays the same between two estimates.
    pub(super) fn observe(&mut self, progress: &Progress) -> Verdict {
        self.residuals.push(progress.residual);
        let made = self.residuals.len();
        let renews = |limit: usize| made >= limit && progress.residual > progress.threshold;
        if self.start.renew_after.is_some_and(renews) {
            return Verdict::Renew;
        }
        if made < self.look_at {
            return self.verdict;
        }
        let rest = iterations_needed(&self.residuals, progress.threshold);
        let bounded = |horizon: f64| rest.min(horizon * made as f64);
        let work = [made as f64, bounded(self.horizon[0])].map(|count| self.start.iteration * count);
        let (next, next_cost, analysable) = self.best(work);
        let overtaken = self.is_overtaken(work);
        if overtaken && analysable {
            return Verdict::Analyse;
        }
        self.look_at = (made + 1 + made / LOOK).max(self.amortized(work) as usize);
        let iterations = bounded(self.horizon[usize::from(analysable)]);
        let (remaining, at_least) = (self.start.iteration * iterations, rest > iterations);
        self.estimate = Estimate { iterations, at_least, remaining, next, next_cost };
        self.verdict = if overtaken { Verdict::Switch } else { Verdict::Continue };
        self.verdict
    }

    /// Continues after [`Verdict::Analyse`], with the alternatives and their analysed costs; `None` if there was nothing to analyse.
    pub(super) fn analysed(
        &mut self,
        alternatives: Option<Vec<Alternative>>,
        progress: &Progress,
    ) -> Verdict {
        if let Some(alternatives) = alternatives {
            self.start.alternatives = alternatives;
        }
        self.start.alternatives.iter_mut().for_each(|one| one.analysable = false);
        self.residuals.pop();
        self.observe(progress)
    }

    /// Whether the best alternative is expected to cost less, by the margins that the module states.
    fn is_overtaken(&self, [spent, remaining]: [WorkUnits; 2]) -> bool {
        let (_, next, analysable) = self.best([spent, remaining]);
        let remaining = remaining.min(spent * self.horizon[usize::from(analysable)]);
        remaining >= next * MARGIN && remaining.0 * spent.0 >= SOONER * next.0 * next.0
    }

    /// The best alternative, its cost, and whether an elimination ordering would improve the estimate of the cost.
    fn best(&self, [spent, remaining]: [WorkUnits; 2]) -> (Option<usize>, WorkUnits, bool) {
        let all = spent + remaining.min(spent * HORIZON);
        let least = (self.start.made + all) * self.start.jacobi_per_work;
        let jacobi = match self.start.jacobi {
            Some(jacobi) if jacobi > WorkUnits::ZERO => jacobi.max(least),
            known => known.unwrap_or(all * self.start.products_per_work),
        };
        let costs =
            self.start.alternatives.iter().map(|one| (one.index, one.cost(jacobi, least), one.analysable));
        let least = costs.min_by(|(_, a, _), (_, b, _)| a.0.total_cmp(&b.0));
        least.unwrap_or((None, WorkUnits::INFINITE, false))
    }

    pub(super) fn outlook(&self) -> Outlook {
        let (next, cost, _) = self.best([WorkUnits::ZERO; 2]);
        Outlook { next, remaining: MARGIN * cost.0, earliest: self.look_at }
    }

    /// Minimum number of iterations before the attempt may be stopped, from the cost of the best alternative.
    fn amortized(&self, work: [WorkUnits; 2]) -> f64 {
        let (_, next, analysable) = self.best(work);
        MARGIN / self.horizon[usize::from(analysable)] * next.0 / self.start.iteration.0
    }
}

/// Estimated remaining iterations, if the residual continues to fall as from quarter 2 to quarter 4 of the iterations so far. The residual of
/// a quarter is its minimum, because that of conjugate gradients may first rise. Infinite if the residual stagnates.
fn iterations_needed(residuals: &[f64], threshold: f64) -> f64 {
    let made = residuals.len();
    let least = |part: &[f64]| part.iter().copied().fold(f64::INFINITY, f64::min);
    let (then, now) = (least(&residuals[made / 4..made / 2]), least(&residuals[made * 3 / 4..]));
    if now <= threshold {
        return 0.0;
    }
    let fall = (then / now).ln();
    if fall > 0.0 && fall.is_finite() {
        (now / threshold).ln() / fall * (made - made / 2) as f64
    } else {
        f64::INFINITY
    }
}

/// Estimates how many iterations a solve with these residuals still needs to reach `threshold`: at most six times those made.
pub fn iterations_expected(residuals: &[f64], threshold: f64) -> f64 {
    iterations_needed(residuals, threshold).min(HORIZON * residuals.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Csr;
    use krysp_solvers::Cg;

    fn fixed(cost: f64, analysable: bool) -> Alternative {
        Alternative { index: Some(1), fixed: WorkUnits(cost), estimated: None, analysable, jacobi_made: None }
    }

    fn monitor(conjugate: bool, alternative: Alternative) -> Monitor {
        let alternatives = vec![alternative];
        let iteration = WorkUnits(1.0);
        Monitor::new(Start { iteration, conjugate, alternatives, ..Start::default() })
    }

    /// The iteration at which an attempt stops. Its alternative is expected to cost `next`, or `known` after an elimination ordering.
    fn stopped(next: f64, known: Option<f64>, residual: impl Fn(usize) -> f64) -> Option<usize> {
        let mut monitor = monitor(false, fixed(next, known.is_some()));
        let at = |iteration| Progress { iteration, residual: residual(iteration), threshold: 1e-8 };
        (1..10_000).take_while(|&k| residual(k) > 1e-8).find(|&k| match monitor.observe(&at(k)) {
            Verdict::Analyse => {
                monitor.analysed(Some(vec![fixed(known.unwrap(), false)]), &at(k)) == Verdict::Switch
            }
            verdict => verdict == Verdict::Switch,
        })
    }

    /// The iteration at which conjugate gradients for these eigenvalues are stopped, and the iterations that they take if they are not.
    fn conjugate(next: f64, analysable: bool, eigenvalues: &[f64]) -> (Option<usize>, usize) {
        let n = eigenvalues.len();
        let entries: Vec<_> = eigenvalues.iter().enumerate().map(|(i, &value)| (i, i, value)).collect();
        let a = Csr::<f64>::from_triplets(n, n, &entries).unwrap();
        let history = Cg::new(&a).rtol(1e-8).solve(&vec![1.0; n]).unwrap().report.history;
        let mut monitor = monitor(true, fixed(next, analysable));
        let at =
            |iteration| Progress { iteration, residual: history[iteration], threshold: 1e-8 * history[0] };
        let stopped = (1..history.len() - 1).find(|&k| monitor.observe(&at(k)) != Verdict::Continue);
        // what is left of a stopped attempt is expected to cost more than the alternative, or the attempt would be resumed at once
        assert!(stopped.is_none() || analysable || monitor.estimate.iterations >= MARGIN * next);
        (stopped, history.len() - 1)
    }

    #[test]
    fn slow_conjugate_gradients_stop_early_for_a_known_alternative() {
        // the eigenvalues of the 1D Laplacian: as many iterations as unknowns
        let chain: Vec<f64> =
            (1..=500).map(|k| 2.0 - 2.0 * (std::f64::consts::PI * f64::from(k) / 501.0).cos()).collect();
        let (stopped, all) = conjugate(200.0, false, &chain);
        assert!(stopped.is_some_and(|at| at < 40) && all >= 500, "{stopped:?} of {all}");
        // the cost of the alternative is yet to be analysed: no stop before a quarter of it
        let (stopped, _) = conjugate(200.0, true, &chain);
        assert_eq!(stopped, Some(50));
    }

    #[test]
    fn conjugate_gradients_may_find_a_few_small_eigenvalues() {
        let outlying = |k: u32| if k < 5 { 1e-6 * f64::from(k + 1) } else { 1.0 + f64::from(k) / 1000.0 };
        let eigenvalues: Vec<f64> = (0..1000).map(outlying).collect();
        let (stopped, all) = conjugate(200.0, false, &eigenvalues);
        assert!(stopped.is_none() && all < 80, "{stopped:?} of {all}");
    }

    #[test]
    fn attempts_that_are_nearly_done_do_not_stop() {
        let rate = |rate: f64| move |k: usize| rate.powi(k as i32);
        // 184 iterations in all
        assert_eq!(stopped(150.0, None, rate(0.905)), None);
        // 18,400 iterations in all
        assert_eq!(stopped(400.0, None, rate(0.999)), Some(100));
        assert_eq!(stopped(f64::INFINITY, None, rate(0.999)), None);
        // stagnation
        assert_eq!(stopped(1000.0, None, |_| 1.0), Some(250));
        // the residual rises by a factor of 100 in ten iterations, then falls steadily
        let rate = |k: usize| if k < 10 { 1.6f64.powi(k as i32) } else { 100.0 * 0.9f64.powi(k as i32 - 10) };
        assert_eq!(stopped(240.0, None, rate), None);
        // the residual falls with jumps
        assert_eq!(
            stopped(240.0, None, |k| 0.9f64.powi(k as i32) * if k % 7 == 0 { 1e3 } else { 1.0 }),
            None
        );
    }

    #[test]
    fn costs_are_analysed_before_an_attempt_stops() {
        // the residual rises for 800 iterations and converges in 1,300 more: an alternative that costs 5,000 is no better
        let slow =
            |k: usize| if k < 800 { 1.005f64.powi(k as i32) } else { 54.0 * 0.983f64.powi(k as i32 - 800) };
        assert_eq!(stopped(400.0, None, slow), Some(100));
        assert_eq!(stopped(400.0, Some(5000.0), slow), None);
        assert_eq!(stopped(400.0, Some(600.0), slow), Some(150));
    }

    #[test]
    fn a_preconditioner_of_earlier_values_is_renewed_when_it_has_cost_as_much() {
        let start = Start { renew_after: Some(30), ..Start::default() };
        let mut monitor = Monitor::new(start);
        let slow = |k: usize| Progress { iteration: k, residual: 0.99f64.powi(k as i32), threshold: 1e-8 };
        assert_eq!((1..100).find(|&k| monitor.observe(&slow(k)) == Verdict::Renew), Some(30));
    }

    #[test]
    fn an_estimate_at_its_limit_is_a_lower_bound() {
        let estimate = |rate: f64| {
            let mut watched = monitor(false, fixed(40.0, false));
            for k in 1..=12 {
                watched.observe(&Progress { iteration: k, residual: rate.powi(k as i32), threshold: 1e-8 });
            }
            watched.estimate
        };
        let (stagnating, falling) = (estimate(1.0), estimate(0.3));
        assert!(stagnating.at_least && stagnating.iterations >= HORIZON * 10.0, "{stagnating:?}");
        assert!(!falling.at_least && falling.iterations < 12.0, "{falling:?}");
    }

    #[test]
    fn stagnation_is_bounded_by_the_iterations_made() {
        assert_eq!(iterations_expected(&[1.0; 100], 1e-8), 600.0);
        assert_eq!(iterations_expected(&[1.0, 0.5, 0.2, 1e-9], 1e-8), 0.0);
        // the residual falls by a factor of 100 in 100 iterations
        let falls: Vec<f64> = (0..100).map(|k| 10f64.powf(-0.02 * k as f64)).collect();
        assert!((iterations_expected(&falls, 1e-8) - 300.0).abs() < 20.0);
    }
}
