//! Which rung comes next: what each is likely to cost, from what has been found out so far.

use super::candidates::Direct;
use super::climb::{LAST, Standing};
use super::ladder::Foretold;
use super::pace::{Next, Weigh};
use super::{Backend, PlannedSolver, Preconditioner};
use crate::preconditioners::Symbolic;
use crate::{Csr, DirectOptions, Error, Real};
use krysp_kernels::interrupt;
use std::sync::PoisonError;

/// A known rung is left before it begins if the next one costs this much less: what is known is worth more than a guess.
const CLEARLY: f64 = 1.3;

/// With many solves ahead, so many times what it takes to try another, guesses are tried that may be too high by as much.
const LITTLE: f64 = 15.0;
const PERHAPS: f64 = 0.3;

/// What of a setup counts for one solve. If nobody said how many solves there will be, those that are done pay for it.
#[derive(Clone, Copy)]
pub(super) struct Share {
    left: Option<f64>,
    spent: f64,
}

impl Share {
    pub(super) fn of(self, setup: f64) -> f64 {
        self.left.map_or_else(|| (setup - self.spent).max(0.0), |left| setup / left)
    }
}

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// Where to begin.
    pub(super) fn first(&mut self) -> Option<usize> {
        // its time was that of new memory: it is timed again before others are compared with it
        let cold = self.cold.take().filter(|&index| self.goes_by_clock() && self.is_ready(index));
        if cold.is_some() {
            return cold;
        }
        let count = self.memory.candidates.len();
        let standing = Standing { rest: vec![None; count], made: vec![0.0; count], indefinite: false };
        let known = self.memory.known.iter().enumerate().filter_map(|(index, cost)| Some((index, (*cost)?)));
        let known = known.filter(|(_, cost)| cost.is_finite());
        let cheapest = known.min_by(|(_, a), (_, b)| a.total_cmp(b));
        loop {
            let unknown = |index: usize| self.memory.known[index].is_none();
            let first = match cheapest {
                Some((at, cost)) => {
                    let worth = |index| unknown(index) && self.is_worth_trying(index, cost, &standing);
                    self.cheapest(&standing, worth).or(Some(at))
                }
                None => {
                    let soon = |index| unknown(index) && !self.is_second(index, &standing);
                    self.cheapest(&standing, soon).or_else(|| self.cheapest(&standing, unknown))
                }
            };
            if !first.is_some_and(|first| self.needs_weighing(first)) || interrupt::is_raised() {
                return first;
            }
            analyse(&self.matrix, &self.symbolic);
            self.reweigh();
        }
    }

    /// Whether to try a rung where another is known to cost this much a solve: it promises to be cheaper, or might be, and what
    /// it takes to find out is little beside all solves that are ahead.
    pub(super) fn is_worth_trying(&self, index: usize, cost: f64, standing: &Standing) -> bool {
        let ahead =
            self.memory.options.solves.map_or(1, |solves| solves.saturating_sub(self.memory.solves)) as f64;
        let candidate = &self.memory.candidates[index];
        let little = LITTLE * (candidate.setup + candidate.solve(self.plain(standing))) < ahead * cost;
        (if little { PERHAPS } else { CLEARLY }) * self.price(index, standing) < cost
    }

    /// The next rung: the cheapest that is untried, or was left although it would have ended.
    pub(super) fn next(&mut self, standing: &Standing) -> Option<usize> {
        loop {
            let next = self.other(standing, usize::MAX);
            if !next.is_some_and(|next| self.needs_weighing(next)) || interrupt::is_raised() {
                return next;
            }
            analyse(&self.matrix, &self.symbolic);
            self.reweigh();
        }
    }

    /// The cheapest of those that are possible, but for one.
    pub(super) fn other(&self, standing: &Standing, but: usize) -> Option<usize> {
        let possible = self.possible(standing, but);
        self.cheapest(standing, |index| possible.contains(&index))
    }

    /// All that are possible, but for one. Where conjugate gradients are slow, so are methods for other matrices: these wait until
    /// the matrix is known not to be definite, or for the end.
    pub(super) fn possible(&self, standing: &Standing, but: usize) -> Vec<usize> {
        let possible = |index: &usize| {
            let failed = [self.memory.known[*index], standing.rest[*index]].contains(&Some(f64::INFINITY));
            let excluded = standing.indefinite && self.memory.candidates[*index].needs_definite();
            *index != but && !failed && !excluded
        };
        let all: Vec<usize> = (0..self.memory.candidates.len()).filter(possible).collect();
        let soon: Vec<usize> =
            all.iter().copied().filter(|&index| !self.is_second(index, standing)).collect();
        if soon.is_empty() { all } else { soon }
    }

    /// What may come after a rung; the last is what anything may cost.
    pub(super) fn nexts(&self, standing: &Standing, but: usize) -> Vec<Next> {
        let next = |index: usize| {
            let (setup, rest) = self.parts_of_price(index, standing);
            let candidate = rest.is_none().then(|| self.memory.candidates[index].clone());
            Next { fixed: setup + rest.unwrap_or(0.0), candidate, unweighed: self.needs_weighing(index) }
        };
        let last = Next { fixed: LAST, candidate: None, unweighed: false };
        self.possible(standing, but).into_iter().map(next).chain([last]).collect()
    }

    /// What all iterations with Jacobi are likely to cost, as far as they have been tried, in this solve or in one before: zero if
    /// they say nothing, as where residuals grew.
    pub(super) fn plain(&self, standing: &Standing) -> f64 {
        let tried = match standing.rest[0] {
            Some(rest) if rest < LAST && self.memory.candidates[0].is_measure() => {
                Some(rest + standing.made[0])
            }
            Some(_) => None,
            None => {
                self.memory.known[0].filter(|cost| *cost < LAST && self.memory.candidates[0].is_measure())
            }
        };
        tried.unwrap_or(0.0)
    }

    /// Whether factors without gaps were no help: then the system is hardly regular.
    pub(super) fn has_failed_direct(&self, standing: &Standing) -> bool {
        (0..).zip(&self.memory.candidates).any(|(index, candidate): (usize, _)| {
            candidate.preconditioner == Preconditioner::Lu && standing.made[index] > 0.0
        })
    }

    /// Whether it is for a matrix that turns out not to be definite.
    pub(super) fn is_second(&self, index: usize, standing: &Standing) -> bool {
        let [first, this] = [&self.memory.candidates[0], &self.memory.candidates[index]];
        let definite = !standing.indefinite && standing.rest[0] != Some(f64::INFINITY);
        !this.needs_definite() && first.needs_definite() && definite
    }

    /// The cheapest rung of some; of equal ones the first.
    pub(super) fn cheapest(&self, standing: &Standing, some: impl Fn(usize) -> bool) -> Option<usize> {
        let some = (0..self.memory.candidates.len()).filter(|&index| some(index));
        some.min_by(|&a, &b| self.price(a, standing).total_cmp(&self.price(b, standing)))
    }

    /// What a solve with this rung, or the rest of it, is likely to cost, with its share of what it takes to build.
    pub(super) fn price(&self, index: usize, standing: &Standing) -> f64 {
        let (setup, rest) = self.parts_of_price(index, standing);
        setup + rest.unwrap_or_else(|| self.memory.candidates[index].solve(self.plain(standing)))
    }

    /// The share of what it takes to build, and the rest if it is known.
    pub(super) fn parts_of_price(&self, index: usize, standing: &Standing) -> (f64, Option<f64>) {
        let setup =
            if self.is_ready(index) { 0.0 } else { self.share().of(self.memory.candidates[index].setup) };
        (setup, standing.rest[index].or(self.memory.known[index].filter(|cost| cost.is_finite())))
    }

    pub(super) fn share(&self) -> Share {
        let left =
            self.memory.options.solves.map(|solves| solves.saturating_sub(self.memory.solves).max(1) as f64);
        Share { left, spent: self.memory.spent }
    }

    /// Whether what it costs is not known and can be.
    pub(super) fn needs_weighing(&self, index: usize) -> bool {
        self.memory.direct.is_none() && self.memory.candidates[index].is_direct(&self.memory.profile)
    }

    /// Takes in what an order of elimination has told.
    pub(super) fn reweigh(&mut self) {
        let symbolic = self.symbolic.lock().unwrap_or_else(PoisonError::into_inner);
        if let (None, Some(symbolic)) = (self.memory.direct, &*symbolic) {
            self.memory.direct = Some(Direct::of(symbolic));
            for candidate in
                self.memory.candidates.iter_mut().filter(|one| one.is_direct(&self.memory.profile))
            {
                *candidate = candidate.clone().weighed(&self.memory.profile, self.memory.direct);
            }
        }
    }

    /// How to find out what comes after a rung really costs, while that rung waits.
    pub(super) fn weigh(&self, mut next: Vec<Next>) -> Option<Weigh> {
        if !next.iter().any(|next| next.unweighed) {
            return None;
        }
        let (matrix, symbolic, profile) =
            (self.matrix.clone(), self.symbolic.clone(), self.memory.profile.clone());
        let share = self.share();
        Some(Box::new(move || {
            let direct = analyse(&matrix, &symbolic);
            for next in next.iter_mut().filter(|next| next.unweighed) {
                next.unweighed = false;
                if let Some(candidate) = next.candidate.take() {
                    let candidate = candidate.weighed(&profile, Some(direct));
                    next.fixed = share.of(candidate.setup);
                    next.candidate = Some(candidate);
                }
            }
            next
        }))
    }
}

/// Computes the symbolic factorization, unless it is known, and returns the cost of the numerical one. An interrupted analysis is not
/// kept.
fn analyse<T: Real>(matrix: &Csr<T>, symbolic: &Foretold) -> Direct {
    let mut symbolic = symbolic.lock().unwrap_or_else(PoisonError::into_inner);
    let cost = Direct::of(symbolic.get_or_insert_with(|| Symbolic::new(matrix, DirectOptions::default())));
    if matches!(&*symbolic, Some(Err(Error::Interrupted(_)))) {
        *symbolic = None;
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;
    use crate::testing::matrices;

    /// Where a solve began otherwise, what iterations with Jacobi cost is known from one before.
    #[test]
    fn what_is_easy_is_remembered() {
        let a = matrices::stencil7(6).csr::<f64>().unwrap();
        let mut ladder = Plan::new(&a).unwrap().solves(1000).build().unwrap();
        let count = ladder.memory.candidates.len();
        let mut standing = Standing { rest: vec![None; count], made: vec![0.0; count], indefinite: false };
        assert_eq!(ladder.plain(&standing), 0.0);
        ladder.memory.known[0] = Some(24.0);
        assert_eq!(ladder.plain(&standing), 24.0);
        let ilut = ladder.memory.candidates.iter().position(|one| one.preconditioner == Preconditioner::Ilut);
        // a tenth of what is ahead is not spent on it, but a guess that may be too high is tried
        let ilut = ilut.unwrap();
        ladder.memory.candidates[ilut].setup = 500.0;
        assert!(ladder.is_worth_trying(ilut, 24.0, &standing));
        ladder.memory.candidates[ilut].setup = 5000.0;
        assert!(!ladder.is_worth_trying(ilut, 10.0, &standing));
        // in this solve more is known
        (standing.rest[0], standing.made[0]) = (Some(30.0), 10.0);
        assert_eq!(ladder.plain(&standing), 40.0);
        standing.rest[0] = Some(LAST);
        assert_eq!(ladder.plain(&standing), 0.0);
    }
}
