//! When to leave a rung: the rest of it seems to cost more than the next.
//!
//! Costs are counted in iterations of conjugate gradients with Jacobi, not in seconds: a solve is then the same from run to
//! run, whatever else the machine does.

use super::Candidate;
use krysp_solvers::Progress;

/// The rest must seem to cost so many times the next: rates improve, above all those of conjugate gradients.
const MARGIN: f64 = 1.5;

/// A rung needs at most so many times the iterations it has made, as far as anybody can tell: it is not left before it has cost
/// a quarter of the next.
const FORESEEN: f64 = 6.0;

/// The earlier, the more must seem to be missing: the rest, times what has been made, is at least this part of the square of what the
/// next costs.
const SOONER: f64 = MARGIN * MARGIN / FORESEEN;

/// As `FORESEEN`, of conjugate gradients: their residual may rest, or rise, for a third of all iterations while the error falls.
const HIDDEN: f64 = 3.0;

/// As `HIDDEN`, of those with Jacobi, if it is known what the next costs: a residual that rests is left after a ninth of that. They
/// so often take several times as long that waiting costs more than leaving in vain.
const EARLY: f64 = 30.0;

/// Between two looks the iterations grow by a part of this: looking costs a logarithm or two.
const LOOK: usize = 16;

/// What may come after a rung.
#[derive(Clone, Debug)]
pub(super) struct Next {
    /// Its share of what it takes to build, and what is known of the rest.
    pub(super) fixed: f64,
    /// What it is, where its iterations are guessed.
    pub(super) candidate: Option<Candidate>,
    /// Whether what it costs is not known and can be.
    pub(super) unweighed: bool,
}

impl Next {
    /// What it costs, if all iterations with Jacobi cost `plain`.
    fn price(&self, plain: f64) -> f64 {
        self.fixed + self.candidate.as_ref().map_or(0.0, |candidate| candidate.solve(plain))
    }
}

/// Of fewer residuals nothing is foretold: the first iteration over factors may not be the last.
const SEEN: usize = 8;

/// Says what may come after a rung, once it matters: finding out what it costs takes time.
pub(super) type Weigh = Box<dyn FnOnce() -> Vec<Next> + Send>;

/// Follows the residual of a rung.
pub(super) struct Pace {
    /// What an iteration costs.
    iteration: f64,
    /// What may come next.
    next: Vec<Next>,
    /// How to find out what that really costs.
    weigh: Option<Weigh>,
    /// What all iterations with Jacobi are likely to cost; `None` while this rung is what they are made with.
    plain: Option<f64>,
    /// It needs at most so many times the iterations it has made; and where what comes next is not weighed yet.
    foreseen: [f64; 2],
    /// The residual after each iteration.
    residuals: Vec<f64>,
    /// No look before this iteration.
    look_at: usize,
    /// The iterations that it seemed to need still when it was looked at last, and whether that was too many.
    pub(super) needed: f64,
    leaves: bool,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace {
            iteration: 1.0,
            next: vec![],
            weigh: None,
            plain: None,
            foreseen: [FORESEEN; 2],
            residuals: vec![],
            look_at: 0,
            needed: f64::INFINITY,
            leaves: false,
        }
    }

    /// Begins a rung. It has at least the iterations that are hoped for; `hidden` is whether its residual may hide how far it is.
    pub(super) fn begin(
        &mut self,
        (iteration, hope): (f64, f64),
        hidden: bool,
        next: Vec<Next>,
        weigh: Option<Weigh>,
        plain: Option<f64>,
    ) {
        (self.iteration, self.next, self.weigh, self.plain) = (iteration, next, weigh, plain);
        self.foreseen = match (hidden, self.plain) {
            (true, None) => [EARLY, HIDDEN],
            (true, Some(_)) => [HIDDEN; 2],
            (false, _) => [FORESEEN; 2],
        };
        self.look_at = SEEN.max(hope.max(self.earned([0.0; 2])) as usize);
        self.residuals.clear();
        self.leaves = false;
    }

    /// Notes a residual. Returns whether to leave: what was so at the last look, until the next.
    pub(super) fn leave(&mut self, progress: &Progress) -> bool {
        self.residuals.push(progress.residual);
        let made = self.residuals.len();
        if made < self.look_at {
            return self.leaves;
        }
        let rest = rest(&self.residuals, progress.threshold);
        let most = |foreseen: f64| rest.min(foreseen * made as f64);
        let costs = [made as f64, most(self.foreseen[0])].map(|iterations| iterations * self.iteration);
        if self.is_overtaken(costs)
            && self.cheapest(costs).1
            && let Some(weigh) = self.weigh.take()
        {
            self.next = weigh();
        }
        self.look_at = (made + 1 + made / LOOK).max(self.earned(costs) as usize);
        self.leaves = self.is_overtaken(costs);
        // as much as it is left for: it is not gone on with while that is more than the next costs
        self.needed = most(self.foreseen[usize::from(self.cheapest(costs).1)]);
        self.leaves
    }

    /// Whether the cheapest promises to end sooner, by what this rung has cost and the rest of it.
    fn is_overtaken(&self, [made, rest]: [f64; 2]) -> bool {
        let (price, unweighed) = self.cheapest([made, rest]);
        let rest = rest.min(self.foreseen[usize::from(unweighed)] * made);
        rest >= MARGIN * price && rest * made >= SOONER * price * price
    }

    /// What the cheapest costs, by what this rung has cost and the rest of it; and whether that is not known and can be.
    fn cheapest(&self, [made, rest]: [f64; 2]) -> (f64, bool) {
        let plain = self.plain.unwrap_or(made + rest.min(FORESEEN * made));
        let prices = self.next.iter().map(|next| (next.price(plain), next.unweighed));
        prices.min_by(|(a, _), (b, _)| a.total_cmp(b)).unwrap_or((f64::INFINITY, false))
    }

    /// The iterations before which the rung is not left.
    fn earned(&self, costs: [f64; 2]) -> f64 {
        let (price, unweighed) = self.cheapest(costs);
        MARGIN / self.foreseen[usize::from(unweighed)] * price / self.iteration
    }
}

/// The iterations that a threshold is away, at most `FORESEEN` times those made.
pub fn needed(residuals: &[f64], threshold: f64) -> f64 {
    rest(residuals, threshold).min(FORESEEN * residuals.len() as f64)
}

/// The iterations that a threshold is away, if the residual goes on as it fell from the second quarter of the iterations so far
/// to the last: each gives its least. That of conjugate gradients may first rise far above where it began.
fn rest(residuals: &[f64], threshold: f64) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cg, Csr};

    /// When a rung with these residuals is left, if an iteration costs one and the next rung this much.
    fn left(next_cost: f64, known: Option<f64>, residual: impl Fn(usize) -> f64) -> Option<usize> {
        let mut pace = Pace::new();
        let next = |fixed, unweighed| vec![Next { fixed, candidate: None, unweighed }];
        let weigh = known.map(|known| Box::new(move || next(known, false)) as Weigh);
        pace.begin((1.0, 0.0), false, next(next_cost, known.is_some()), weigh, None);
        let at = |iteration| Progress { iteration, residual: residual(iteration), threshold: 1e-8 };
        (1..10_000).take_while(|&k| residual(k) > 1e-8).find(|&k| pace.leave(&at(k)))
    }

    /// When conjugate gradients with these eigenvalues are left, and the iterations that they take.
    fn conjugate(next_cost: f64, unweighed: bool, eigenvalues: &[f64]) -> (Option<usize>, usize) {
        let n = eigenvalues.len();
        let entries: Vec<_> = eigenvalues.iter().enumerate().map(|(i, &value)| (i, i, value)).collect();
        let a = Csr::<f64>::from_triplets(n, n, &entries).unwrap();
        let history = Cg::new(&a).rtol(1e-8).solve(&vec![1.0; n]).unwrap().report.history;
        let mut pace = Pace::new();
        pace.begin((1.0, 0.0), true, vec![Next { fixed: next_cost, candidate: None, unweighed }], None, None);
        let at =
            |iteration| Progress { iteration, residual: history[iteration], threshold: 1e-8 * history[0] };
        let left = (1..history.len() - 1).find(|&k| pace.leave(&at(k)));
        // or it would be gone on with at once, as it seems to be cheaper than what it was left for
        assert!(left.is_none() || pace.needed >= MARGIN * next_cost, "{} for {next_cost}", pace.needed);
        (left, history.len() - 1)
    }

    #[test]
    fn conjugate_gradients_are_left_early_for_what_is_known() {
        // those of a chain: as many iterations as unknowns
        let chain: Vec<f64> =
            (1..=500).map(|k| 2.0 - 2.0 * (std::f64::consts::PI * f64::from(k) / 501.0).cos()).collect();
        let (left, all) = conjugate(200.0, false, &chain);
        assert!(left.is_some_and(|left| left < 40) && all >= 500, "{left:?} of {all}");
        // what the next costs is to be found out: not before half of it
        let (left, _) = conjugate(200.0, true, &chain);
        assert_eq!(left, Some(100));
    }

    #[test]
    fn a_few_small_eigenvalues_are_waited_for() {
        let outlying = |k: u32| if k < 5 { 1e-6 * f64::from(k + 1) } else { 1.0 + f64::from(k) / 1000.0 };
        let eigenvalues: Vec<f64> = (0..1000).map(outlying).collect();
        let (left, all) = conjugate(200.0, false, &eigenvalues);
        assert!(left.is_none() && all < 80, "{left:?} of {all}");
    }

    #[test]
    fn what_is_nearly_done_is_not_left() {
        let rate = |rate: f64| move |k: usize| rate.powi(k as i32);
        // 184 iterations in all
        assert_eq!(left(150.0, None, rate(0.905)), None);
        // 18,400
        assert_eq!(left(400.0, None, rate(0.999)), Some(100));
        assert_eq!(left(f64::INFINITY, None, rate(0.999)), None);
        // what rests is left as soon as that is allowed
        assert_eq!(left(1000.0, None, |_| 1.0), Some(250));
        // a rise by a hundred in ten iterations, and a steady fall
        let rate = |k: usize| if k < 10 { 1.6f64.powi(k as i32) } else { 100.0 * 0.9f64.powi(k as i32 - 10) };
        assert_eq!(left(240.0, None, rate), None);
        // a fall with jumps
        assert_eq!(left(240.0, None, |k| 0.9f64.powi(k as i32) * if k % 7 == 0 { 1e3 } else { 1.0 }), None);
    }

    #[test]
    fn what_comes_next_is_weighed_before_anything_is_left() {
        // rises for 800 iterations and falls in 1,300 more: what costs 5,000 is no better
        let slow =
            |k: usize| if k < 800 { 1.005f64.powi(k as i32) } else { 54.0 * 0.983f64.powi(k as i32 - 800) };
        assert_eq!(left(400.0, None, slow), Some(100));
        assert_eq!(left(400.0, Some(5000.0), slow), None);
        assert_eq!(left(400.0, Some(600.0), slow), Some(150));
    }

    #[test]
    fn what_rests_is_not_given_up() {
        assert_eq!(needed(&[1.0; 100], 1e-8), 600.0);
        assert_eq!(needed(&[1.0, 0.5, 0.2, 1e-9], 1e-8), 0.0);
        // a hundredth in a hundred iterations: a rate is better than a guess
        let falls: Vec<f64> = (0..100).map(|k| 10f64.powf(-0.02 * k as f64)).collect();
        assert!((needed(&falls, 1e-8) - 300.0).abs() < 20.0);
    }
}
