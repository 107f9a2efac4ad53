//! Expected costs of the candidates, from what a scheduler has measured of each in earlier solves (`Record`).

use super::state::State;
use super::{LAST, MANY, REARRANGING, Scheduler};
use crate::plan::WorkUnits;
use crate::plan::costs::{Costs, Factorization, by_host};
use crate::plan::monitor::{Alternative, Monitor, Start};
use crate::plan::{Method, Preconditioner};

/// Distribution of the cost of a candidate that was never run: multiples of its expected cost, and their probabilities. A guess; measured
/// iterations are mostly within a factor of two of the expected ones. The cost of a complete factorization is known once it is analysed.
const SPREAD: [(f64, f64); 5] = [(0.25, 0.05), (0.5, 0.2), (1.0, 0.5), (2.0, 0.2), (4.0, 0.05)];
const CERTAIN: [(f64, f64); 1] = [(1.0, 1.0)];

/// Building `Lu` is suspended after the work `max(OVERRUN * setup, OVERRUN * other, ahead * other)`, where `setup` is its estimated
/// setup, `other` the cost of a solve with the best other candidate, and `ahead` the number of solves ahead. `Ldl` is refused if its
/// factorization is expected to take more. A guess.
const OVERRUN: f64 = 3.0;

/// Building `Ilut`, which cannot be resumed, ends after the work `max(REFUSED * setup, ahead * other)`, and after `REFUSED * setup` if another
/// candidate has solved a system before. The setup takes up to twice the estimate where factors have the expected fill, and 20 times on edge
/// elements, where little can be dropped.
const REFUSED: f64 = 2.0;

/// Expected number of renewals of a preconditioner per refresh of the matrix, until three solves with it have been counted. 1/4 to 1/30
/// were counted in loops of time steps. Values from 0.06 to 0.25 cost the same within 7 % in the loops of the test
/// `time_steps_cost_little_more_than_the_best_fixed_configuration`.
const LAGGED: f64 = 0.1;

/// Number of iterations that a solve with a preconditioner of earlier values may take more than with a new one, even if that costs
/// less than they do. Not measured; chosen as the noise of iterations.
const LEAST_MORE: f64 = 8.0;

/// Expected total iterations of `BiCgStab` with Jacobi divided by those made, if it stopped at a relative residual of at least `HARDLY`, where
/// residuals predict too few. Both are guesses. Of 59 such systems, with mostly 18 to 58 iterations made, Jacobi solved 3 in 20 ms or more;
/// `Ilu0`, whose expected iterations follow from those of Jacobi, solved 11 of the 49 on which it ran.
const UNPREDICTED: f64 = 20.0;
const HARDLY: f64 = 0.03;

/// Fraction of the later work that a reordering saves; 0.25 to 0.78 were measured.
const SAVED: f64 = 0.5;

impl Scheduler {
    /// Of the candidates that may run, without `but`, the one with the least expected cost.
    pub(super) fn best_but(&self, but: usize) -> Option<usize> {
        let possible = self.possible(but);
        self.cheapest(|index| possible.contains(&index))
    }

    /// All candidates that may run, without `but`.
    pub(super) fn possible(&self, but: usize) -> Vec<usize> {
        let possible = |&index: &usize| {
            let failed = self.has_failed_before(index) || self.solve.states[index] == State::Failed;
            index != but
                && !failed
                && !(self.solve.indefinite && self.found.candidates[index].needs_definite())
        };
        let all: Vec<usize> = (0..self.found.candidates.len()).filter(possible).collect();
        let soon: Vec<usize> =
            all.iter().copied().filter(|&index| !self.waits_for_indefinite(index)).collect();
        if soon.is_empty() { all } else { soon }
    }

    /// Whether a candidate for indefinite matrices waits until the matrix is known not to be definite: where conjugate gradients are
    /// slow, so are methods for indefinite matrices. `CuDss` factorizes both kinds.
    pub(super) fn waits_for_indefinite(&self, index: usize) -> bool {
        let [first, this] = [&self.found.candidates[0], &self.found.candidates[index]];
        let failed = self.solve.states[0] == State::Failed || self.has_failed_before(0);
        let is_for_both = this.preconditioner == Preconditioner::CuDss;
        !this.needs_definite() && !is_for_both && first.needs_definite() && !self.solve.indefinite && !failed
    }

    /// Of the candidates for which `some` holds, the one with the least expected cost; of equal ones the first.
    pub(super) fn cheapest(&self, some: impl Fn(usize) -> bool) -> Option<usize> {
        let some = (0..self.found.candidates.len()).filter(|&index| some(index));
        some.min_by(|&a, &b| self.cost(a).0.total_cmp(&self.cost(b).0))
    }

    /// Expected work of a solve with a candidate, or of the rest of a suspended one.
    pub(super) fn cost(&self, index: usize) -> WorkUnits {
        let solve = self.known(index).unwrap_or_else(|| self.found.candidates[index].solve(self.jacobi()));
        self.fixed(index) + solve
    }

    /// The part of the expected cost that is not for iterations: shares of the setup and of renewals.
    pub(super) fn fixed(&self, index: usize) -> WorkUnits {
        let (costs, built) = (&self.found.candidates[index].costs, self.built(index).is_some());
        fixed(costs, built, self.ahead(), self.renewals_per_solve(index))
    }

    /// Number of solves ahead, this one included. If it was not announced, as many are expected as have been made: a setup then pays off
    /// once it would have been amortized over the solves so far.
    fn ahead(&self) -> f64 {
        let ahead = self.announced.map_or(self.found.solves + 1, |all| all.saturating_sub(self.found.solves));
        ahead.max(1) as f64
    }

    /// Number of renewals of a preconditioner per solve: counted or, before three solves with it, `LAGGED` times the refreshes of the
    /// matrix per solve, where announced changes count as one more refresh.
    pub(super) fn renewals_per_solve(&self, index: usize) -> f64 {
        let record = &self.found.records[index];
        if record.solves > 2 {
            return record.renewals as f64 / record.solves as f64;
        }
        let announced = usize::from(self.values_change && self.announced != Some(1));
        LAGGED * ((self.found.refreshes + announced) as f64 / (self.found.solves + 1) as f64).min(1.0)
    }

    /// Work of the iterations of a solve, or of the rest of them, if it was measured or estimated from a run.
    pub(super) fn known(&self, index: usize) -> Option<WorkUnits> {
        match self.solve.states.get(index) {
            Some(State::Suspended { remaining, .. }) if index == 0 => {
                Some(remaining.max(self.jacobi_needs()).max(self.unpredicted().unwrap_or_default()))
            }
            Some(State::Suspended { remaining, .. }) => Some(*remaining),
            _ => self.found.records[index].cost,
        }
    }

    /// Lower bound of the remaining work with Jacobi where its residuals are no prediction, see [`UNPREDICTED`].
    fn unpredicted(&self) -> Option<WorkUnits> {
        let State::Suspended { residual, .. } = self.solve.states.first()? else { return None };
        let first = &self.found.candidates[0];
        let is_hard = first.is_measure() && first.method == Method::BiCgStab && *residual >= HARDLY;
        is_hard.then(|| (self.solve.made[0] * (UNPREDICTED - 1.0)).min(LAST))
    }

    /// Lower bound of the remaining work with Jacobi: the maximum over the other candidates of (spent + estimated remaining work) ×
    /// `jacobi_per_work`, less the work spent with Jacobi; at most [`LAST`].
    fn jacobi_needs(&self) -> WorkUnits {
        let needs = |index: usize| {
            let remaining = match self.solve.states[index] {
                State::Suspended { remaining, .. } if remaining < LAST => remaining,
                _ => WorkUnits::ZERO,
            };
            (self.solve.made[index] + remaining) * self.jacobi_per_work(index)
        };
        let most = (1..self.found.candidates.len()).map(needs).fold(WorkUnits::ZERO, WorkUnits::max);
        WorkUnits(most.0 - self.solve.made[0].0).min(LAST)
    }

    /// Lower bound of the work with Jacobi per unit of work of another candidate, from the upper bound of its iterations relative to Jacobi
    /// (`most_of_jacobi`); zero if there is none.
    fn jacobi_per_work(&self, index: usize) -> f64 {
        let [jacobi, other] = [0, index].map(|index| &self.found.candidates[index]);
        match other.most_of_jacobi() {
            Some(most) if index > 0 && jacobi.is_measure() => {
                jacobi.costs.iteration.0 / (most * other.costs.iteration.0)
            }
            _ => 0.0,
        }
    }

    /// Work of CG with Jacobi for as many products as the first candidate makes, as measured or estimated in this solve or an earlier one;
    /// zero if that is unknown.
    pub(super) fn jacobi(&self) -> WorkUnits {
        let tried = match self.solve.states.first() {
            Some(State::Suspended { remaining, .. }) => {
                let more = match *remaining < LAST {
                    true => self.known(0),
                    false => self.unpredicted().map(|work| work.max(self.jacobi_needs())),
                };
                more.map(|more| more + self.solve.made[0])
            }
            Some(State::Failed) => None,
            _ => self.found.records[0].cost.filter(|&cost| cost < LAST),
        };
        let first = &self.found.candidates[0];
        tried.filter(|_| first.is_measure()).map_or(WorkUnits::ZERO, |work| work * first.products_per_work())
    }

    /// Whether to try a candidate instead of one whose cost is `known`: if the work that it is expected to save in later solves exceeds
    /// that of the trial. If it is slower, later solves do not use it.
    ///
    /// ```text
    /// later Σ probability max(known − multiple cost, 0)  >  setup + cost − known
    /// ```
    pub(super) fn is_worth_trying(&self, index: usize, known: WorkUnits) -> bool {
        let later = match self.announced {
            Some(all) => all.saturating_sub(self.found.solves + 1),
            None => self.found.solves,
        };
        let candidate = &self.found.candidates[index];
        let costs = &candidate.costs;
        let cost = candidate.solve(self.jacobi()) + costs.refresh * self.renewals_per_solve(index);
        let is_analysed =
            self.found.factorization.is_some() && candidate.is_analysable(&self.context.profile);
        let spread = if is_analysed { &CERTAIN[..] } else { &SPREAD };
        let saved = spread.iter().map(|(multiple, part)| part * (known.0 - multiple * cost.0).max(0.0));
        let setup = if self.built(index).is_some() { 0.0 } else { costs.setup.0 };
        later as f64 * saved.sum::<f64>() > setup + cost.0 - known.0
    }

    /// Returns whether a complete factorization may run.
    pub(in crate::plan) fn may_factorize(&self) -> bool {
        let is_complete = |&index: &usize| self.found.candidates[index].preconditioner.is_complete();
        self.possible(usize::MAX).iter().any(is_complete)
    }

    /// Whether iterations with `Lu` have not solved the system, which is then singular or nearly so.
    pub(super) fn has_failed_direct(&self) -> bool {
        self.found
            .candidates
            .iter()
            .zip(&self.solve.made)
            .any(|(one, made)| one.preconditioner == Preconditioner::Lu && *made > WorkUnits::ZERO)
    }

    /// Work ahead with a candidate, if rearranging the matrix (reordering it, or comparing its formats) before a run is expected to pay off.
    pub(super) fn earns_rearranging(&self, index: usize) -> Option<WorkUnits> {
        let candidate = &self.found.candidates[index];
        // with a complete factorization, which has its own ordering, a solve makes one or two products
        if !self.found.may_rearrange || candidate.preconditioner.is_complete() {
            return None;
        }
        // measuring waits until a candidate has solved a system, and for one that the next solves will use
        let measures = self.announced.is_some_and(|all| all >= MANY);
        if measures && (self.found.records[index].solves == 0 || self.solve.trial) {
            return None;
        }
        let again = if self.built(index).is_some() { candidate.costs.setup } else { WorkUnits::ZERO };
        let cost = self.cost(index);
        let ahead = match self.announced {
            Some(_) => cost * self.ahead(),
            // if the number of solves is unknown, as much work is expected as has been done
            None if self.found.spent < self.rearranging() => return None,
            None => cost + self.found.spent,
        };
        (ahead * SAVED >= self.rearranging() + again).then_some(ahead)
    }

    /// Work to reorder the matrix, or to convert it to other formats.
    pub(super) fn rearranging(&self) -> WorkUnits {
        by_host(REARRANGING, &self.context.profile, self.context.class)
    }

    /// Whether a candidate that has not failed has solved an earlier system, so that others are tried without need.
    pub(super) fn is_trial(&self) -> bool {
        (0..self.found.records.len())
            .any(|index| self.found.records[index].solves > 0 && !self.has_failed_before(index))
    }

    /// Work after which building `Lu` is suspended, and `Ilut` and `Ldl` are refused, `Ldl` before its factorization.
    pub(in crate::plan) fn limit(&self, index: usize) -> WorkUnits {
        if self.is_alone() {
            return WorkUnits::INFINITE;
        }
        let other = self.best_but(index).map_or(LAST, |other| self.cost(other).min(LAST));
        let ahead = self.ahead();
        let candidate = &self.found.candidates[index];
        let setup = candidate.costs.setup;
        match candidate.preconditioner {
            Preconditioner::Ilut if self.is_trial() => setup * REFUSED,
            Preconditioner::Ilut => (setup * REFUSED).max(other * ahead),
            _ => (setup.max(other) * OVERRUN).max(other * ahead),
        }
    }

    pub(super) fn needs_analysis(&self, index: usize) -> bool {
        let candidate = &self.found.candidates[index];
        self.found.factorization.is_none() && candidate.is_analysable(&self.context.profile)
    }

    /// Updates expected costs with the result of an elimination ordering.
    pub(in crate::plan) fn analysed(&mut self, factorization: Factorization) {
        if self.found.factorization.is_some() {
            return;
        }
        self.found.factorization = Some(factorization);
        let context = &self.context;
        for one in self.found.candidates.iter_mut().filter(|one| one.is_analysable(&context.profile)) {
            one.costs = Costs::of(context, one.method, one.preconditioner, Some(factorization));
        }
    }

    /// Corrects the expected work of an iteration for computed factors of `Ilut`, or of `Lu` by columns: `stored` is their memory divided by
    /// that of a value and a `u32` index.
    pub(in crate::plan) fn note_factors(&mut self, index: usize, stored: f64) {
        self.found.candidates[index].note_factors(&self.context, self.found.factorization, stored);
    }

    /// The alternatives to a running candidate; the last one is the upper limit of costs.
    pub(super) fn alternatives(&self, index: usize) -> Vec<Alternative> {
        let last =
            Alternative { index: None, fixed: LAST, estimated: None, analysable: false, jacobi_made: None };
        if self.is_alone() {
            return vec![];
        }
        let alternative = |other: usize| {
            let known = self.known(other);
            Alternative {
                index: Some(other),
                fixed: self.fixed(other) + known.unwrap_or_default(),
                estimated: known.is_none().then(|| self.found.candidates[other].clone()),
                analysable: self.needs_analysis(other),
                jacobi_made: match self.solve.states.get(other) {
                    Some(State::Suspended { .. }) if other == 0 => Some(self.solve.made[0]),
                    _ => None,
                },
            }
        };
        self.possible(index).into_iter().map(alternative).chain([last]).collect()
    }

    /// A function that computes the alternatives to a running candidate from the result of an elimination ordering, for
    /// [`Monitor::analysed`]. The costs of the scheduler itself are updated by [`Scheduler::analysed`].
    pub(in crate::plan) fn analysed_alternatives(
        &self,
        index: usize,
    ) -> impl FnOnce(Factorization) -> Vec<Alternative> + Send + use<> {
        let with_rates = |one: Alternative| {
            let rate = one.index.map_or(0.0, |other| self.renewals_per_solve(other));
            (one, rate)
        };
        let alternatives: Vec<_> = self.alternatives(index).into_iter().map(with_rates).collect();
        let (context, ahead) = (self.context.clone(), self.ahead());
        move |factorization| {
            let analysed = |(mut one, rate): (Alternative, f64)| {
                if let (true, Some(candidate)) = (one.analysable, &mut one.estimated) {
                    let (method, preconditioner) = (candidate.method, candidate.preconditioner);
                    candidate.costs = Costs::of(&context, method, preconditioner, Some(factorization));
                    // `false`: this preconditioner is not built, because building a factorization includes its analysis
                    one.fixed = fixed(&candidate.costs, false, ahead, rate);
                }
                one
            };
            alternatives.into_iter().map(analysed).collect()
        }
    }

    /// The monitor for a run of a candidate.
    pub(in crate::plan) fn monitor(&self, index: usize) -> Monitor {
        let candidate = &self.found.candidates[index];
        let costs = &candidate.costs;
        let record = &self.found.records[index];
        let granted = match (self.solve.states[index], record.cost) {
            // a resumed attempt is granted as many iterations as it has made, so that two candidates do not preempt each other for ever
            (State::Suspended { .. }, _) => self.solve.made[index].0 / costs.iteration.0,
            // a candidate that has solved a system is granted as many iterations as it took
            (_, Some(cost)) if !(self.solve.trial && index == 0) => {
                costs.iterations.max(cost.0 / costs.iteration.0)
            }
            // no setup is lost if it stops
            _ if candidate.preconditioner == Preconditioner::Jacobi => 0.0,
            _ => costs.iterations,
        };
        let renew_after = self.built(index).filter(|one| one.stale).and_then(|one| {
            let fresh = one.fresh?;
            Some(fresh + (costs.refresh.0 / costs.iteration.0).max(LEAST_MORE) as usize)
        });
        let measures = index == 0 && candidate.is_measure();
        Monitor::new(Start {
            iteration: costs.iteration,
            granted,
            conjugate: candidate.needs_definite(),
            alternatives: self.alternatives(index),
            jacobi: (!measures).then(|| self.jacobi()),
            jacobi_per_work: self.jacobi_per_work(index),
            products_per_work: candidate.products_per_work(),
            made: self.solve.made[index],
            renew_after,
        })
    }
}

/// Expected work of a solve besides its iterations: the setup, unless it is built, divided by `ahead`, and renewals.
fn fixed(costs: &Costs, built: bool, ahead: f64, renewals: f64) -> WorkUnits {
    let setup = if built { WorkUnits::ZERO } else { costs.setup * (1.0 / ahead) };
    setup + costs.refresh * renewals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Profile;
    use crate::plan::candidates::candidates;
    use crate::plan::context::Context;
    use crate::plan::costs::MachineClass;
    use crate::plan::monitor::Estimate;
    use crate::plan::schedule::{Action, End, Ended, Event};
    use crate::testing::matrices::stencil7;

    #[test]
    fn ilut_that_exceeds_its_limit_gives_way() {
        let a = stencil7(10).csr::<f64>().unwrap();
        let values: Vec<f64> = a.triplets().map(|(i, j, v)| if j > i { 0.3 * v } else { v }).collect();
        let a = a.with_values(&values).unwrap();
        let profile = Profile::of(&a);
        let context = Context::of_table(&profile, MachineClass::Host { threads: 2 });
        let mut scheduler = Scheduler::new(context.clone(), candidates(&context, |_| true), Some(1), false);
        scheduler.begin();
        let is_ilut = |one: &crate::plan::Candidate| one.preconditioner == Preconditioner::Ilut;
        let index = scheduler.found.candidates.iter().position(is_ilut).unwrap();
        let (limit, setup) = (scheduler.limit(index), scheduler.found.candidates[index].costs.setup);
        assert!(limit >= setup * 2.0, "{limit:?} {setup:?}");
        let next = scheduler.next(Event::Suspended, index);
        assert_eq!(scheduler.found.candidates[index].costs.setup, limit * 2.0);
        assert!(!matches!(next, Action::Build { index: at } if at == index), "{next:?}");
        assert!(scheduler.limit(index) >= limit * 2.0);
    }

    #[test]
    fn where_jacobi_hardly_reduces_the_residual_ilu0_is_expected_to_be_slow() {
        let a = stencil7(10).csr::<f64>().unwrap();
        let values: Vec<f64> = a.triplets().map(|(i, j, v)| if j > i { 0.3 * v } else { v }).collect();
        let profile = Profile::of(&a.with_values(&values).unwrap());
        let context = Context::of_table(&profile, MachineClass::Host { threads: 2 });
        let stopped = |context: &Context, candidates: Vec<crate::plan::Candidate>, residual: f64| {
            let mut scheduler = Scheduler::new(context.clone(), candidates, Some(1), false);
            scheduler.begin();
            scheduler.next(Event::Built, 0);
            let estimate = Estimate { remaining: WorkUnits(100.0), ..Estimate::default() };
            let end = End::Stopped { estimate, renew: false };
            let ended = Ended { iterations: 30, residual, improved: true, end };
            scheduler.next(Event::Ended(ended), 0);
            scheduler
        };
        let cost_after = |residual: f64| {
            let scheduler = stopped(&context, candidates(&context, |_| true), residual);
            let of = |one: &crate::plan::Candidate| one.preconditioner == Preconditioner::Ilu0;
            let index = scheduler.found.candidates.iter().position(of).unwrap();
            (scheduler.cost(0), scheduler.cost(index))
        };
        let ([jacobi, ilu0], [hard_jacobi, hard_ilu0]) = (cost_after(1e-4).into(), cost_after(0.5).into());
        assert!(jacobi == WorkUnits(100.0) && hard_jacobi > jacobi * 10.0, "{jacobi:?} {hard_jacobi:?}");
        assert!(hard_ilu0 > ilu0 * 1.5, "{ilu0:?} {hard_ilu0:?}");
        // the bound applies only if the first candidate runs Jacobi
        let spai = |one: Preconditioner| one == Preconditioner::Spai;
        let gpu = Context::of_table(&profile, MachineClass::Gpu { threads: 8 });
        assert_eq!(candidates(&gpu, spai)[0].method, Method::BiCgStab);
        assert_eq!(stopped(&gpu, candidates(&gpu, spai), 0.5).cost(0), WorkUnits(100.0));
    }

    #[test]
    fn complete_factorizations_may_run_until_all_have_failed() {
        let a = stencil7(10).csr::<f64>().unwrap();
        let context = Context::of_table(&Profile::of(&a), MachineClass::Host { threads: 2 });
        let mut scheduler = Scheduler::new(context.clone(), candidates(&context, |_| true), Some(1), false);
        scheduler.begin();
        let complete: Vec<usize> = (0..scheduler.found.candidates.len())
            .filter(|&index| scheduler.found.candidates[index].preconditioner.is_complete())
            .collect();
        assert!(!complete.is_empty() && scheduler.may_factorize());
        complete.iter().for_each(|&index| scheduler.solve.states[index] = State::Failed);
        assert!(!scheduler.may_factorize());
    }

    #[test]
    fn ldl_beyond_its_limit_is_compared_at_its_real_cost() {
        let a = stencil7(10).csr::<f64>().unwrap();
        let values: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j { v - 6.5 } else { v }).collect();
        let profile = Profile::of(&a.with_values(&values).unwrap());
        let context = Context::of_table(&profile, MachineClass::Host { threads: 2 });
        let mut scheduler = Scheduler::new(context.clone(), candidates(&context, |_| true), Some(1), false);
        scheduler.begin();
        let find = |of: Preconditioner| {
            scheduler.found.candidates.iter().position(|one| one.preconditioner == of).unwrap()
        };
        let [ldl, lu] = [Preconditioner::Ldl, Preconditioner::Lu].map(find);
        let work = scheduler.found.candidates[lu].costs.setup * 10.0;
        scheduler.next(Event::Expensive(work), ldl);
        assert!([ldl, lu].iter().all(|&one| scheduler.found.candidates[one].costs.setup == work));
        assert!(scheduler.possible(usize::MAX).contains(&ldl));
    }

    #[test]
    fn an_iteration_costs_what_its_factors_take() {
        let a = stencil7(10).csr::<f64>().unwrap();
        let entries: Vec<_> = a.triplets().map(|(i, j, v)| (i, j, if j > i { 0.3 * v } else { v })).collect();
        let a = crate::formats::Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap();
        let profile = Profile::of(&a);
        let context = Context::of_table(&profile, MachineClass::Host { threads: 2 });
        let mut scheduler =
            Scheduler::new(context.clone(), candidates(&context, |_| true), Some(1000), false);
        for preconditioner in [Preconditioner::Lu, Preconditioner::Ilut] {
            let find = |one: &crate::plan::Candidate| one.preconditioner == preconditioner;
            let index = scheduler.found.candidates.iter().position(find).unwrap();
            let before = scheduler.found.candidates[index].costs;
            let mut iteration = |stored: usize| {
                scheduler.note_factors(index, stored as f64);
                scheduler.found.candidates[index].costs.iteration
            };
            let [few, many] = [1, 100].map(|times| iteration(times * a.nnz()));
            assert!(few < many && many > before.iteration, "{few:?} {many:?}");
            assert!(preconditioner == Preconditioner::Ilut || few < before.iteration, "{few:?}");
            assert_eq!(scheduler.found.candidates[index].costs.setup, before.setup);
        }
        let jacobi = scheduler.found.candidates[0].costs;
        assert_eq!(scheduler.found.candidates[0].method, Method::BiCgStab);
        scheduler.note_factors(0, 1e6);
        assert_eq!(scheduler.found.candidates[0].costs, jacobi);
    }
}
