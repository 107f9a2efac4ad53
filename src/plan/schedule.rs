//! Decides what a planned solver does next: a state machine without vectors, clocks or element types.
//!
//! ```text
//! begin ─► Analyse ─► choose the candidate of the least expected cost
//!            ▲            │
//!            │            ├─ not built ──► Build ─┬─ cannot be built: failed ─► choose
//!            │            ├─ earlier values ► Renew, once the additional iterations have cost as much
//!            │            ▼                       ▼
//!            │           Run ◄────────────────────┘
//!            │            ├─ converged ──────────────────────────────────────► Finish
//!            │            ├─ another one is expected to be faster: suspended, with its estimated remaining cost
//!            │            ├─ ended without a solution: failed
//!            └────────────┴─ before much more is spent, once: TestConsistency ─► choose, or Finish
//! ```
//!
//! The cost of a candidate is the expected work of one solve: its shares of the setup and of renewals for new values of the matrix, and
//! its iterations, which are measured (`Record`), estimated from an interrupted run (`State::Suspended`), or expected (`Costs`).

mod expected;
#[cfg(test)]
mod replay;
mod state;

pub(super) use state::{Action, End, Ended, Event, Findings};

use super::context::Context;
use super::costs::Factorization;
use super::monitor::Outlook;
use super::{Candidate, Preconditioner, Profile, WorkUnits};
use state::{Built, Pending, Record, Solve, State};

/// Maximum cost of an attempt while others are left, and the assumed cost of the last resort, minimizing the residual. A guess.
pub(super) const LAST: WorkUnits = WorkUnits(20_000.0);

/// An attempt that has cost this fraction of [`LAST`] when it is stopped has failed, and is not resumed. A guess.
const EXHAUSTED: f64 = 0.5;

/// Cost of the consistency test. If resuming an attempt is expected to cost more, the test runs first. Not measured.
const TEST: WorkUnits = WorkUnits(2_000.0);

/// A preconditioner of earlier values is renewed before the solve if that costs at most this fraction of a solve. A guess.
const CHEAP: f64 = 0.05;

/// Number of announced solves from which on formats and orderings are compared by measured times. Not measured.
pub(super) const MANY: usize = 100;

/// Work of one thread of the host to reorder the matrix (45 to 130 units of two threads were measured), or to convert it to the formats
/// that are compared (10 to 30 units each). For a GPU the host does both, too: a conversion of `heat_sink_transient_80k` took 26 ms beside an H200, where this is 34 ms.
const REARRANGING: WorkUnits = WorkUnits(90.0);

/// A resumed attempt has failed if, when it is stopped again, its residual is above this fraction of that at its suspension. A guess.
const RESUMED: f64 = 0.1;

/// State machine that chooses the actions of a planned solver.
pub(super) struct Scheduler {
    /// Expected costs and measurements.
    pub(super) found: Findings,
    context: Context,
    /// Number of solves that was announced, and whether changes of the values were announced.
    announced: Option<usize>,
    values_change: bool,
    built: Vec<Built>,
    solve: Solve,
}

impl Scheduler {
    pub(super) fn new(
        context: Context,
        candidates: Vec<Candidate>,
        announced: Option<usize>,
        values_change: bool,
    ) -> Scheduler {
        let records = vec![Record::default(); candidates.len()];
        let known = Findings { candidates, records, trial: [0, 1], ..Findings::default() };
        Scheduler::with(context, known, announced, values_change)
    }

    /// A scheduler with the expected costs and the measurements of an earlier run of the program. As many further solves are
    /// expected as were announced to that run.
    pub(super) fn with(
        context: Context,
        known: Findings,
        announced: Option<usize>,
        values_change: bool,
    ) -> Scheduler {
        Scheduler {
            context,
            announced: announced.map(|ahead| ahead.saturating_add(known.solves)),
            found: known,
            values_change,
            built: vec![],
            solve: Solve::default(),
        }
    }

    /// Begins a solve.
    pub(super) fn begin(&mut self) -> Action {
        self.begin_solve();
        self.first()
    }

    fn begin_solve(&mut self) {
        let count = self.found.candidates.len();
        if (0..count).all(|index| self.has_failed_before(index)) {
            // all have failed: try them again, because another right-hand side may be easier
            self.found.records.iter_mut().for_each(|record| (record.cost, record.failures) = (None, 0));
        }
        self.solve = Solve {
            states: vec![State::Untried; count],
            made: vec![WorkUnits::ZERO; count],
            tested: self.is_alone(),
            ..Solve::default()
        };
    }

    /// Records a solve from `x = 0` that converged with a candidate which is built, but was not chosen by this scheduler.
    pub(super) fn solved(&mut self, index: usize, iterations: usize) {
        self.begin_solve();
        let ended = Ended { iterations, residual: 0.0, improved: true, end: End::Converged };
        self.ended(index, &ended);
        self.finish();
    }

    /// Returns the action after an event; `proceed` chooses the next candidate.
    pub(super) fn next(&mut self, event: Event, index: usize) -> Action {
        match event {
            Event::Analysed(factorization) => {
                self.analysed(factorization);
                match self.solve.pending.take() {
                    Some(Pending::First) => self.first(),
                    _ => self.proceed(),
                }
            }
            Event::Rearranged(moved) => {
                self.found.may_rearrange = false;
                // also if the matrix is unchanged: computing an ordering, or converting, takes most of the time
                self.found.spent += self.rearranging();
                if moved {
                    self.built.clear();
                }
                match self.solve.pending.take() {
                    Some(Pending::Prepare(index)) => self.prepare(index),
                    _ => self.proceed(),
                }
            }
            Event::Built => {
                self.found.spent += self.found.candidates[index].costs.setup;
                self.note_built(index);
                Action::Run { index }
            }
            Event::Suspended => {
                let spent = self.limit(index);
                self.found.spent += spent;
                let candidate = &mut self.found.candidates[index];
                let costs = &mut candidate.costs;
                // as much work again is expected; `Ilut` begins from the start
                let is_ilut = candidate.preconditioner == Preconditioner::Ilut;
                let more = if is_ilut { spent * 2.0 } else { spent };
                (costs.setup, costs.refresh) = (more, costs.refresh.max(more));
                // a trial that was refused is not repeated in this solve
                if is_ilut && self.is_trial() {
                    self.solve.states[index] = State::Failed;
                }
                self.proceed()
            }
            Event::Expensive(work) => {
                // `Lu` of the same matrix takes as much at least
                let alike = |one: &&mut Candidate| {
                    matches!(one.preconditioner, Preconditioner::Ldl | Preconditioner::Lu)
                        && one.costs.setup < work
                };
                for one in self.found.candidates.iter_mut().filter(alike) {
                    (one.costs.setup, one.costs.refresh) = (work, work);
                }
                self.proceed()
            }
            Event::NotBuilt { indefinite } => {
                self.solve.indefinite |= indefinite;
                self.fail(index);
                self.proceed()
            }
            Event::TooLong => {
                // only in this solve: later ones may have more time
                if let Some(state) = self.solve.states.get_mut(index) {
                    *state = State::Failed;
                }
                self.proceed()
            }
            Event::Renewed => {
                self.found.spent += self.found.candidates[index].costs.refresh;
                self.found.records[index].renewals += 1;
                self.note_built(index);
                Action::Run { index }
            }
            Event::Ended(ended) => self.ended(index, &ended),
            Event::Tested(true) => Action::Finish,
            Event::Tested(false) => self.proceed(),
        }
    }

    /// Records that the values of the matrix have changed.
    pub(super) fn values_changed(&mut self) {
        self.found.refreshes += 1;
        self.mark_stale();
    }

    /// Records that all preconditioners are those of earlier values.
    pub(super) fn mark_stale(&mut self) {
        self.built.iter_mut().for_each(|one| one.stale = true);
    }

    /// Discards all measurements, and forgets which preconditioners are built.
    pub(super) fn forget(&mut self) {
        self.found.records.fill(Record::default());
        self.built.clear();
    }

    /// Replaces the candidates by those for new values of another kind, for which there are no measurements and no preconditioners.
    pub(super) fn replace_candidates(&mut self, profile: &Profile, candidates: Vec<Candidate>) {
        self.found.records = vec![Record::default(); candidates.len()];
        (self.context.profile, self.found.candidates) = (profile.clone(), candidates);
        self.found.trial = [self.found.solves, 1];
        self.built.clear();
        // the elimination ordering depends on the pattern alone
        if let Some(factorization) = self.found.factorization.take() {
            self.analysed(factorization);
        }
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

    /// Records the end of a solve.
    pub(super) fn finish(&mut self) {
        self.found.solves += 1;
        if self.solve.indefinite {
            // candidates for definite matrices are not tried for another right-hand side either
            for index in 0..self.found.candidates.len() {
                if self.found.candidates[index].needs_definite() && !self.has_failed_before(index) {
                    self.fail(index);
                }
            }
        }
    }

    /// Whether a preconditioner is that of earlier values of the matrix; `None` if it is not built.
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

    /// Whether there is only one candidate, so that there is none to switch to.
    pub(super) fn is_alone(&self) -> bool {
        self.found.candidates.len() == 1
    }

    /// Chooses the first action of a solve.
    fn first(&mut self) -> Action {
        let known = |index: usize| self.found.records[index].cost.is_some() && !self.has_failed_before(index);
        let best = self.cheapest(known);
        if best == Some(0) {
            self.found.trial = [self.found.solves, 1];
        }
        let unknown =
            |index: usize| self.found.records[index].cost.is_none() && !self.has_failed_before(index);
        let soon = |index: usize| unknown(index) && !self.waits_for_indefinite(index);
        let first = match best {
            Some(best) if self.tries_jacobi(best) => {
                self.found.trial[0] = self.found.solves + self.found.trial[1];
                self.found.trial[1] *= 2;
                self.solve.trial = true;
                Some(0)
            }
            Some(best) => {
                let cost = self.cost(best);
                // complete factorizations do not wait: their cost does not depend on definiteness
                let complete = |index: usize| self.found.candidates[index].preconditioner.is_complete();
                let possible = |index| soon(index) || unknown(index) && complete(index);
                let worth = |index| possible(index) && self.is_worth_trying(index, cost);
                self.cheapest(worth).or(Some(best))
            }
            None => self.cheapest(soon).or_else(|| self.cheapest(unknown)),
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

    /// Whether to try Jacobi again: its cost was measured for earlier values, and another candidate is expected to be faster.
    fn tries_jacobi(&self, best: usize) -> bool {
        let record = &self.found.records[0];
        best != 0
            && self.found.candidates[0].is_measure()
            && record.cost.is_some()
            && !self.has_failed_before(0)
            && record.values < self.found.refreshes
            && self.found.solves >= self.found.trial[0]
    }

    /// Chooses the action after a candidate that has not solved the system.
    fn proceed(&mut self) -> Action {
        let next = self.best_but(usize::MAX);
        if next.is_some_and(|next| self.needs_analysis(next)) {
            return Action::Analyse;
        }
        let goes_on = |next: usize| {
            let cost = self.cost(next);
            let untried = self.solve.states[next] == State::Untried;
            cost <= LAST && (untried || self.context.class.is_gpu()) || cost <= TEST
        };
        let factorize = self.has_failed_direct();
        if self.solve.ran && !self.solve.tested && (factorize || !next.is_some_and(goes_on)) {
            self.solve.tested = true;
            return Action::TestConsistency { factorize };
        }
        next.map_or(Action::Finish, |next| self.prepare(next))
    }

    /// Chooses the next action on the way to a run of a candidate.
    fn prepare(&mut self, index: usize) -> Action {
        if let Some(ahead) = self.earns_rearranging(index) {
            self.solve.pending = Some(Pending::Prepare(index));
            return Action::Rearrange { ahead };
        }
        match self.built(index) {
            Some(built) if built.stale && self.renews(built) => Action::Renew { index },
            Some(_) => Action::Run { index },
            None => Action::Build { index },
        }
    }

    /// Whether a preconditioner of earlier values is renewed before a solve: if it has not solved yet, if renewing is cheap, or if
    /// `all + last >= refresh`. Here `all` is the work of iterations in excess of [`Built::fresh`] in all solves since the preconditioner
    /// became outdated, and `last` that in the last solve.
    fn renews(&self, built: &Built) -> bool {
        let costs = self.found.candidates[built.index].costs;
        let solve = self.found.records[built.index].cost.unwrap_or(WorkUnits::ZERO);
        let [all, last] = built.excess;
        built.fresh.is_none() || costs.refresh <= solve * CHEAP || all + last >= costs.refresh
    }

    /// Records how a run ended, and chooses the next action.
    fn ended(&mut self, index: usize, ended: &Ended) -> Action {
        let costs = self.found.candidates[index].costs;
        let work = costs.iteration * ended.iterations as f64;
        let untouched = self.solve.made[index] == WorkUnits::ZERO && !self.solve.ran;
        self.solve.ran = true;
        self.found.spent += work;
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
        // expected work of a solve with a renewed preconditioner: the cost of a renewal is shared by the solves until the next one
        let renewed = costs.refresh * self.renewals_per_solve(index) + costs.iteration * fresh as f64;
        let was_renewed = self.solve.renewed.take() == Some(index);
        let record = &mut self.found.records[index];
        let before = self.solve.states[index];
        let values = self.found.refreshes;
        // an attempt from the `x` of a failed one may take several times as long as from the guess
        let is_first = untouched || before != State::Untried;
        let is_known = record.solves > 0 && record.values == values && !is_first;
        match &ended.end {
            End::Converged => {
                record.solves += 1;
                let cost = if was_renewed { work } else { made };
                record.cost = record.cost.filter(|_| is_known).or(Some(cost));
                (record.values, record.failures) = (values, 0);
                if let Some(State::Suspended { .. }) = self.solve.states.first().filter(|_| index != 0) {
                    self.found.records[0].cost = self.known(0).map(|rest| rest + self.solve.made[0]);
                }
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
                    // a residual that has not fallen is normal only for methods for symmetric matrices: the others are resumed last
                    let needs_symmetry = self.found.candidates[index].method.needs_symmetry();
                    let remaining = if ended.improved || needs_symmetry { estimate.remaining } else { LAST };
                    self.solve.states[index] = State::Suspended { remaining, residual: ended.residual };
                    record.cost = record.cost.filter(|_| is_known).or(Some(made + remaining));
                    record.values = values;
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

    /// Records that a candidate has failed. After 1, 2, 4, ... further solves it may be tried again, if the values have changed.
    fn fail(&mut self, index: usize) {
        if let Some(state) = self.solve.states.get_mut(index) {
            *state = State::Failed;
        }
        let record = &mut self.found.records[index];
        (record.cost, record.values) = (None, self.found.refreshes);
        record.retry = self.found.solves.saturating_add(1 << record.failures.min(20));
        record.failures += 1;
    }

    fn has_failed_before(&self, index: usize) -> bool {
        let record = &self.found.records[index];
        let again = record.values < self.found.refreshes && self.found.solves >= record.retry;
        record.failures > 0 && !again
    }

    /// The order in which candidates run if each of them fails, with the costs that are expected of them at first; and the conditions under
    /// which the first one will be stopped.
    pub(super) fn order(mut self) -> (Vec<(usize, WorkUnits)>, Option<Outlook>) {
        let (mut order, mut outlook, mut index, mut action) = (vec![], None, 0, self.begin());
        let costs: Vec<_> = (0..self.found.candidates.len()).map(|index| self.cost(index)).collect();
        loop {
            let event = match action {
                Action::Finish => return (order, outlook),
                Action::Analyse => Event::Analysed(Factorization::estimate(&self.context.profile)),
                Action::Rearrange { .. } => Event::Rearranged(false),
                Action::TestConsistency { .. } => Event::Tested(false),
                Action::Build { index: at } | Action::Renew { index: at } | Action::Run { index: at } => {
                    outlook.get_or_insert_with(|| self.monitor(at).outlook());
                    order.push((at, costs[at]));
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
        self.found.records.iter_mut().for_each(|record| record.cost = Some(WorkUnits(1e4)));
        self.found.records[index].cost = Some(WorkUnits(10.0));
        self.found.trial[0] = usize::MAX;
    }
}
