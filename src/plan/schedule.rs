//! Decides what a planned solver does next: a state machine without vectors, clocks or element types.
//!
//! ```text
//! begin ─► Analyse ─► choose the candidate of the least expected cost
//!            ▲            │
//!            │            ├─ not built ──► Build ─┬─ cannot be built: failed ─► choose
//!            │            ├─ earlier values ► Renew, if keeping it costs more than that
//!            │            ▼                       ▼
//!            │           Run ◄────────────────────┘
//!            │            ├─ converged ──────────────────────────────────────► Finish
//!            │            ├─ another one is expected to be faster: suspended, with an estimate of the rest
//!            │            ├─ ended without a solution: failed
//!            └────────────┴─ before much more is spent, once: TestConsistency ─► choose, or Finish
//! ```
//!
//! The cost of a candidate is that of one solve: the share of its setup, what it takes to follow new values of the matrix, and its
//! iterations, which are measured (`Record`), estimated from an interrupted run (`State::Suspended`), or expected (`Costs`).

mod expected;
#[cfg(test)]
mod replay;
mod state;

pub(super) use state::{Action, End, Ended, Event, Findings};

use super::Candidate;
use super::WorkUnits;
use super::candidates::Context;
use super::costs::{Factorization, MachineClass};
use super::{Preconditioner, Profile};
use state::{Built, Pending, Record, Solve, State};

/// The most work of an attempt while others are left: the cost of the test for the least residual, which comes last. A guess.
pub(super) const LAST: WorkUnits = WorkUnits(20_000.0);

/// An attempt that has cost this share of [`LAST`] without an end has failed.
const EXHAUSTED: f64 = 0.5;

/// Cost of the test whether a solution exists at all; made before something is resumed that costs more.
const TEST: WorkUnits = WorkUnits(2_000.0);

/// A preconditioner of earlier values is renewed at once if that costs at most this share of a solve. A guess.
const CHEAP: f64 = 0.05;

/// Work to reorder the matrix (45 to 130 units were measured).
pub(super) const REORDERING: WorkUnits = WorkUnits(90.0);

/// A resumed attempt must reduce its residual to this share before it is suspended again, or else has failed.
const RESUMED: f64 = 0.1;

/// The state machine.
pub(super) struct Scheduler {
    pub(super) candidates: Vec<Candidate>,
    pub(super) factorization: Option<Factorization>,
    profile: Profile,
    class: MachineClass,
    factors: fn(Preconditioner) -> [f64; 2],
    /// Solves that were announced, and whether values were announced to change.
    announced: Option<usize>,
    values_change: bool,
    records: Vec<Record>,
    /// Solves made, their work, and refreshes of the matrix.
    solves: usize,
    spent: WorkUnits,
    refreshes: usize,
    /// The solve from which on Jacobi is tried again with new values, and the solves until the next such trial.
    trial: [usize; 2],
    /// Whether another order of the matrix may make products faster.
    pub(super) may_reorder: bool,
    built: Vec<Built>,
    solve: Solve,
}

impl Scheduler {
    pub(super) fn new(
        context: Context<'_>,
        candidates: Vec<Candidate>,
        announced: Option<usize>,
        values_change: bool,
    ) -> Scheduler {
        let records = vec![Record::default(); candidates.len()];
        let (spent, trial) = (WorkUnits::ZERO, [0, 1]);
        let known =
            Findings { candidates, factorization: None, records, solves: 0, spent, refreshes: 0, trial };
        Scheduler::with(context, known, announced, values_change)
    }

    /// Continues with the costs and records of an earlier run. As many solves are ahead as were announced to that run.
    pub(super) fn with(
        context: Context<'_>,
        known: Findings,
        announced: Option<usize>,
        values_change: bool,
    ) -> Scheduler {
        let Findings { candidates, factorization, records, solves, spent, refreshes, trial } = known;
        Scheduler {
            candidates,
            factorization,
            profile: context.profile.clone(),
            class: context.class,
            factors: context.factors,
            announced: announced.map(|ahead| ahead.saturating_add(solves)),
            values_change,
            records,
            solves,
            spent,
            refreshes,
            trial,
            may_reorder: false,
            built: vec![],
            solve: Solve::default(),
        }
    }

    pub(super) fn findings(&self) -> Findings {
        let Scheduler { candidates, factorization, records, solves, spent, refreshes, trial, .. } = self;
        Findings {
            candidates: candidates.clone(),
            factorization: *factorization,
            records: records.clone(),
            solves: *solves,
            spent: *spent,
            refreshes: *refreshes,
            trial: *trial,
        }
    }

    /// Begins a solve.
    pub(super) fn begin(&mut self) -> Action {
        self.begin_solve();
        self.first()
    }

    fn begin_solve(&mut self) {
        let count = self.candidates.len();
        if (0..count).all(|index| self.has_failed_before(index)) {
            // another right-hand side may be easier
            self.records.iter_mut().for_each(|record| (record.cost, record.failures) = (None, 0));
        }
        self.solve = Solve {
            states: vec![State::Untried; count],
            made: vec![WorkUnits::ZERO; count],
            tested: self.is_alone(),
            ..Solve::default()
        };
    }

    /// Takes in a solve from zero that ran a candidate, which is built, outside of the schedule and converged.
    pub(super) fn solved(&mut self, index: usize, iterations: usize) {
        self.begin_solve();
        let ended = Ended { iterations, residual: 0.0, improved: true, end: End::Converged };
        self.ended(index, &ended);
        self.finish();
    }

    /// Says what to do after an event.
    pub(super) fn next(&mut self, event: Event, index: usize) -> Action {
        match event {
            Event::Analysed(factorization) => {
                self.analysed(factorization);
                match self.solve.pending.take() {
                    Some(Pending::First) => self.first(),
                    _ => self.proceed(),
                }
            }
            Event::Reordered(moved) => {
                self.may_reorder = false;
                // also if nothing came nearer: finding that out takes about as long
                self.spent += REORDERING;
                if moved {
                    self.built.clear();
                }
                match self.solve.pending.take() {
                    Some(Pending::Prepare(index)) => self.prepare(index),
                    _ => self.proceed(),
                }
            }
            Event::Built => {
                self.spent += self.candidates[index].costs.setup;
                self.note_built(index);
                Action::Run { index }
            }
            Event::Suspended => {
                let spent = self.limit(index);
                self.spent += spent;
                let costs = &mut self.candidates[index].costs;
                (costs.setup, costs.refresh) = (spent, costs.refresh.max(spent));
                self.proceed()
            }
            Event::NotBuilt { indefinite } => {
                self.solve.indefinite |= indefinite;
                self.fail(index);
                self.proceed()
            }
            Event::Renewed => {
                self.spent += self.candidates[index].costs.refresh;
                self.records[index].renewals += 1;
                self.note_built(index);
                Action::Run { index }
            }
            Event::Ended(ended) => self.ended(index, &ended),
            Event::Tested(true) => Action::Finish,
            Event::Tested(false) => self.proceed(),
        }
    }

    /// Takes in that the values of the matrix have changed.
    pub(super) fn values_changed(&mut self) {
        self.refreshes += 1;
        self.mark_stale();
    }

    /// Number of solves so far.
    pub(super) fn solves(&self) -> usize {
        self.solves
    }

    /// Notes that all preconditioners are those of earlier values.
    pub(super) fn mark_stale(&mut self) {
        self.built.iter_mut().for_each(|one| one.stale = true);
    }

    /// Forgets all that was measured, because the matrix is of another kind now.
    pub(super) fn forget(&mut self) {
        self.records.fill(Record::default());
        self.built.clear();
    }

    /// Notes that these preconditioners are built, and no others.
    pub(super) fn keep_built(&mut self, indices: &[usize]) {
        self.built.retain(|one| indices.contains(&one.index));
        for &index in indices {
            if self.built(index).is_none() {
                self.note_built(index);
            }
        }
    }

    /// Notes the end of a solve.
    pub(super) fn finish(&mut self) {
        self.solves += 1;
        if self.solve.indefinite {
            // candidates for definite matrices are not tried for another right-hand side either
            for index in 0..self.candidates.len() {
                if self.candidates[index].needs_definite() && !self.has_failed_before(index) {
                    self.fail(index);
                }
            }
        }
    }

    /// Whether a preconditioner is built, and for earlier values of the matrix.
    pub(super) fn is_built(&self, index: usize) -> Option<bool> {
        self.built(index).map(|one| one.stale)
    }

    fn built(&self, index: usize) -> Option<&Built> {
        self.built.iter().find(|one| one.index == index)
    }

    fn note_built(&mut self, index: usize) {
        self.built.retain(|one| one.index != index);
        self.built.push(Built { index, stale: false, fresh: None, excess: [WorkUnits::ZERO; 2] });
    }

    /// Whether there is no choice: a configuration that was named is not left.
    pub(super) fn is_alone(&self) -> bool {
        self.candidates.len() == 1
    }

    /// Chooses where a solve begins.
    fn first(&mut self) -> Action {
        let known = |index: usize| self.records[index].cost.is_some() && !self.has_failed_before(index);
        let best = self.cheapest(known);
        if best == Some(0) {
            self.trial = [self.solves, 1];
        }
        let unknown = |index: usize| self.records[index].cost.is_none() && !self.has_failed_before(index);
        let first = match best {
            Some(best) if self.tries_jacobi(best) => {
                self.trial[0] = self.solves + self.trial[1];
                self.trial[1] *= 2;
                self.solve.trial = true;
                Some(0)
            }
            Some(best) => {
                let cost = self.cost(best);
                let worth = |index| unknown(index) && self.is_worth_trying(index, cost);
                self.cheapest(worth).or(Some(best))
            }
            None => {
                let soon = |index| unknown(index) && !self.waits_for_indefinite(index);
                self.cheapest(soon).or_else(|| self.cheapest(unknown))
            }
        };
        match first {
            Some(index) if self.needs_analysis(index) => {
                self.solve.pending = Some(Pending::First);
                Action::Analyse
            }
            Some(index) => self.prepare(index),
            None => Action::Finish,
        }
    }

    /// Whether to try Jacobi again: the values are others than those for which something else was faster.
    fn tries_jacobi(&self, best: usize) -> bool {
        let record = &self.records[0];
        best != 0
            && self.candidates[0].is_measure()
            && record.cost.is_some()
            && !self.has_failed_before(0)
            && record.values < self.refreshes
            && self.solves >= self.trial[0]
    }

    /// Chooses what to do after a candidate has not solved the system.
    fn proceed(&mut self) -> Action {
        let next = self.best_but(usize::MAX);
        if next.is_some_and(|next| self.needs_analysis(next)) {
            return Action::Analyse;
        }
        let goes_on = |next: usize| {
            let cost = self.cost(next);
            let untried = self.solve.states[next] == State::Untried;
            cost <= LAST && (untried || self.class == MachineClass::Gpu) || cost <= TEST
        };
        let factorize = self.has_failed_direct();
        if self.solve.ran && !self.solve.tested && (factorize || !next.is_some_and(goes_on)) {
            self.solve.tested = true;
            return Action::TestConsistency { factorize };
        }
        next.map_or(Action::Finish, |next| self.prepare(next))
    }

    /// Leads to the run of a candidate.
    fn prepare(&mut self, index: usize) -> Action {
        if self.earns_reordering(index) {
            self.solve.pending = Some(Pending::Prepare(index));
            return Action::Reorder;
        }
        match self.built(index) {
            Some(built) if built.stale && self.renews(built) => Action::Renew { index },
            Some(_) => Action::Run { index },
            None => Action::Build { index, limit: self.limit(index) },
        }
    }

    /// Whether a preconditioner of earlier values is renewed before a solve: `excess + last excess >= refresh`, where the excess is the
    /// work of iterations beyond those with values that were new.
    fn renews(&self, built: &Built) -> bool {
        let costs = self.candidates[built.index].costs;
        let solve = self.records[built.index].cost.unwrap_or(WorkUnits::ZERO);
        let [all, last] = built.excess;
        built.fresh.is_none() || costs.refresh <= solve * CHEAP || all + last >= costs.refresh
    }

    /// Takes in how a run ended.
    fn ended(&mut self, index: usize, ended: &Ended) -> Action {
        let costs = self.candidates[index].costs;
        let work = costs.iteration * ended.iterations as f64;
        let untouched = self.solve.made[index] == WorkUnits::ZERO && !self.solve.ran;
        self.solve.ran = true;
        self.spent += work;
        self.solve.made[index] += work;
        let made = self.solve.made[index];
        let mut stale = false;
        if let Some(built) = self.built.iter_mut().find(|one| one.index == index) {
            stale = built.stale;
            match built.fresh {
                None if untouched || matches!(ended.end, End::Converged) => {
                    built.fresh = Some(ended.iterations)
                }
                Some(fresh) if stale => {
                    let more = costs.iteration * ended.iterations.saturating_sub(fresh) as f64;
                    built.excess = [built.excess[0] + more, more];
                }
                _ => {}
            }
        }
        let fresh = self.built(index).and_then(|one| one.fresh).unwrap_or(0);
        // what a renewal costs is shared by the solves until the next one
        let renewed = costs.refresh * self.renewals_per_solve(index) + costs.iteration * fresh as f64;
        let was_renewed = self.solve.renewed.take() == Some(index);
        let record = &mut self.records[index];
        let before = self.solve.states[index];
        let values = self.refreshes;
        match &ended.end {
            End::Converged => {
                record.solves += 1;
                let cost = if was_renewed { work } else { made };
                (record.cost, record.values, record.failures) = (Some(cost), values, 0);
                return Action::Finish;
            }
            End::Stopped { renew: true, .. } => return self.renew(index),
            End::Stopped { estimate, .. } if stale && renewed < estimate.next_cost => {
                return self.renew(index);
            }
            End::Failed { .. } if stale => return self.renew(index),
            End::Stopped { estimate, .. } => {
                let in_vain = |residual: f64| ended.residual.is_nan() || ended.residual > RESUMED * residual;
                let exhausted = made.0 >= EXHAUSTED * LAST.0
                    || matches!(before, State::Suspended { residual, .. } if in_vain(residual));
                if exhausted {
                    self.fail(index);
                } else {
                    // only conjugate gradients may be near the solution with a larger residual than before: others come last
                    let needs_symmetry = self.candidates[index].method.needs_symmetry();
                    let remaining = if ended.improved || needs_symmetry { estimate.remaining } else { LAST };
                    self.solve.states[index] = State::Suspended { remaining, residual: ended.residual };
                    (record.cost, record.values) = (Some(made + remaining), values);
                }
            }
            End::Failed { indefinite } => {
                self.solve.indefinite |= *indefinite;
                self.fail(index);
            }
        }
        if self.is_alone() { Action::Finish } else { self.proceed() }
    }

    /// Renews a preconditioner in the middle of a solve.
    fn renew(&mut self, index: usize) -> Action {
        self.solve.renewed = Some(index);
        Action::Renew { index }
    }

    /// Notes that a candidate has failed. With other values it is tried again, after one solve, two, four, ...
    fn fail(&mut self, index: usize) {
        if let Some(state) = self.solve.states.get_mut(index) {
            *state = State::Failed;
        }
        let record = &mut self.records[index];
        (record.cost, record.values) = (None, self.refreshes);
        record.retry = self.solves.saturating_add(1 << record.failures.min(20));
        record.failures += 1;
    }

    fn has_failed_before(&self, index: usize) -> bool {
        let record = &self.records[index];
        let again = record.values < self.refreshes && self.solves >= record.retry;
        record.failures > 0 && !again
    }

    /// The order in which candidates run if each of them fails, with the costs that are expected then.
    pub(super) fn order(mut self) -> Vec<(usize, WorkUnits)> {
        let (mut order, mut index, mut action) = (vec![], 0, self.begin());
        loop {
            let event = match action {
                Action::Finish => return order,
                Action::Analyse => Event::Analysed(Factorization::estimate(&self.profile)),
                Action::Reorder => Event::Reordered(false),
                Action::TestConsistency { .. } => Event::Tested(false),
                Action::Build { index: at, .. } | Action::Renew { index: at } | Action::Run { index: at } => {
                    order.push((at, self.cost(at)));
                    index = at;
                    let end = End::Failed { indefinite: false };
                    Event::Ended(Ended { iterations: 0, residual: f64::NAN, improved: false, end })
                }
            };
            action = self.next(event, index);
        }
    }

    #[cfg(test)]
    pub(super) fn pretend_best(&mut self, index: usize) {
        self.records.iter_mut().for_each(|record| record.cost = Some(WorkUnits(1e4)));
        self.records[index].cost = Some(WorkUnits(10.0));
        self.trial[0] = usize::MAX;
    }
}
