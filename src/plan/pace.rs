//! When to leave a rung: the rest of it seems to cost more than the next.
//!
//! Costs are counted in iterations of conjugate gradients with Jacobi, not in seconds: a solve is then the same from run to
//! run, whatever else the machine does.

use super::Candidate;
use krysp_solvers::Progress;

/// A rung is not left before it has cost this part of the next: what it will need is not known earlier, and a residual that
/// rests at first may fall later.
const EARNED: f64 = 0.25;

/// The rest must seem to cost so many times the next: rates improve, above all those of conjugate gradients.
const MARGIN: f64 = 1.5;

/// A rung needs at most so many times the iterations it has made, as far as anybody can tell.
const FORESEEN: f64 = MARGIN / EARNED;

/// As `FORESEEN`, of conjugate gradients: their residual may rest, or rise, for a third of all iterations while the error falls.
const HIDDEN: f64 = 3.0;

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
    /// It needs at most so many times the iterations it has made.
    foreseen: f64,
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
            foreseen: FORESEEN,
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
        self.foreseen = if hidden { HIDDEN } else { FORESEEN };
        self.look_at = SEEN.max(hope.max(self.earned(0.0)) as usize);
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
        self.needed = needed(&self.residuals, progress.threshold).min(self.foreseen * made as f64);
        let rest = self.needed * self.iteration;
        let total = rest + made as f64 * self.iteration;
        let overtaken = |pace: &Pace| rest >= MARGIN * pace.cheapest(total).0;
        if overtaken(self)
            && self.cheapest(total).1
            && let Some(weigh) = self.weigh.take()
        {
            self.next = weigh();
        }
        self.look_at = (made + 1 + made / LOOK).max(self.earned(total) as usize);
        self.leaves = overtaken(self);
        self.leaves
    }

    /// What the cheapest costs, if all iterations of this rung cost so much; and whether that is not known and can be.
    fn cheapest(&self, total: f64) -> (f64, bool) {
        let plain = self.plain.unwrap_or(total);
        let prices = self.next.iter().map(|next| (next.price(plain), next.unweighed));
        prices.min_by(|(a, _), (b, _)| a.total_cmp(b)).unwrap_or((f64::INFINITY, false))
    }

    /// The iterations before which the rung is not left.
    fn earned(&self, total: f64) -> f64 {
        EARNED * self.cheapest(total).0 / self.iteration
    }
}

/// The iterations that a threshold is away, if the residual goes on as it fell from the second quarter of the iterations so far
/// to the last: each gives its least. That of conjugate gradients may first rise far above where it began.
pub fn needed(residuals: &[f64], threshold: f64) -> f64 {
    let made = residuals.len();
    let least = |part: &[f64]| part.iter().copied().fold(f64::INFINITY, f64::min);
    let (then, now) = (least(&residuals[made / 4..made / 2]), least(&residuals[made * 3 / 4..]));
    if now <= threshold {
        return 0.0;
    }
    let (fall, most) = ((then / now).ln(), FORESEEN * made as f64);
    if fall > 0.0 && fall.is_finite() {
        most.min((now / threshold).ln() / fall * (made - made / 2) as f64)
    } else {
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a rung with these residuals is left, if an iteration costs one and the next rung this much.
    fn left(next_cost: f64, known: Option<f64>, residual: impl Fn(usize) -> f64) -> Option<usize> {
        let mut pace = Pace::new();
        let next = |fixed, unweighed| vec![Next { fixed, candidate: None, unweighed }];
        let weigh = known.map(|known| Box::new(move || next(known, false)) as Weigh);
        pace.begin((1.0, 0.0), false, next(next_cost, known.is_some()), weigh, None);
        let at = |iteration| Progress { iteration, residual: residual(iteration), threshold: 1e-8 };
        (1..10_000).take_while(|&k| residual(k) > 1e-8).find(|&k| pace.leave(&at(k)))
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
