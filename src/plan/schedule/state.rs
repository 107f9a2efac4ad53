//! Actions, events, and the state of a scheduler.

use crate::plan::candidates::Candidate;
use crate::plan::costs::Factorization;
use crate::plan::monitor::Estimate;
use crate::plan::{Preconditioner, WorkUnits};
use crate::saved::saved;

/// An instruction to the executor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::plan) enum Action {
    /// Compute the elimination ordering of complete factorizations.
    Analyse,
    /// Reorder the matrix if its rows then read `x` from nearer.
    Reorder,
    /// Build a preconditioner; `Lu` is suspended after this much work.
    Build { index: usize, limit: WorkUnits },
    /// Take the values of the matrix into a preconditioner that was built for earlier ones.
    Renew { index: usize },
    /// Iterate, watched by [`Scheduler::monitor`].
    Run { index: usize },
    /// Find out whether the system has a solution; `factorize` if a complete factorization has not solved it.
    TestConsistency { factorize: bool },
    /// Return the best solution so far.
    Finish,
}

/// The result of an action.
#[derive(Clone, Debug)]
pub(in crate::plan) enum Event {
    Analysed(Factorization),
    /// Whether the matrix is in another order now, for which nothing is built.
    Reordered(bool),
    Built,
    /// Building was suspended at its limit.
    Suspended,
    NotBuilt {
        indefinite: bool,
    },
    Renewed,
    Ended(Ended),
    /// Whether that has decided the solve.
    Tested(bool),
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(in crate::plan) struct Ended {
    pub(in crate::plan) iterations: usize,
    /// Relative residual, recomputed.
    pub(in crate::plan) residual: f64,
    /// Whether that is less than before.
    pub(in crate::plan) improved: bool,
    pub(in crate::plan) end: End,
}

#[derive(Clone, Debug)]
pub(in crate::plan) enum End {
    Converged,
    /// Stopped by the monitor, to switch or to renew.
    Stopped {
        estimate: Estimate,
        renew: bool,
    },
    Failed {
        indefinite: bool,
    },
}

/// State of a candidate in the current solve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    Untried,
    Suspended { remaining: WorkUnits, residual: f64 },
    Failed,
}

/// Measurements of a candidate in earlier solves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    /// Work of a solve, the setup apart.
    pub(super) cost: Option<WorkUnits>,
    /// Number of refreshes of the matrix before that.
    pub(super) values: usize,
    /// How often it has failed, and the solve from which on it may be tried again with other values.
    pub(super) failures: u32,
    pub(super) retry: usize,
    /// Solves with it, and how often its preconditioner took new values.
    pub(super) solves: usize,
    pub(super) renewals: usize,
}

saved!(impl[] Record { cost, values, failures, retry, solves, renewals });

/// A preconditioner that is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Built {
    pub(super) index: usize,
    /// Whether the matrix has other values now.
    pub(super) stale: bool,
    /// Iterations of its first solve with the values that it has.
    pub(super) fresh: Option<usize>,
    /// Work of iterations beyond those, since then and in the last solve.
    pub(super) excess: [WorkUnits; 2],
}

/// State of the current solve.
#[derive(Default)]
pub(super) struct Solve {
    pub(super) states: Vec<State>,
    /// Work of the iterations of each candidate.
    pub(super) made: Vec<WorkUnits>,
    pub(super) indefinite: bool,
    pub(super) tested: bool,
    /// Whether anything has run.
    pub(super) ran: bool,
    /// The candidate whose next run continues after a renewal in the middle of the solve: the work of that run alone is recorded.
    pub(super) renewed: Option<usize>,
    /// Whether Jacobi runs to find out whether it is the fastest again.
    pub(super) trial: bool,
    /// The decision that is continued after `Analyse` or `Reorder`; the choice of the next candidate if `None`.
    pub(super) pending: Option<Pending>,
}

#[derive(Clone, Copy)]
pub(super) enum Pending {
    First,
    Prepare(usize),
}

/// Costs and records of a scheduler, which are saved.
pub(in crate::plan) struct Findings {
    pub(super) candidates: Vec<Candidate>,
    pub(super) factorization: Option<Factorization>,
    pub(super) records: Vec<Record>,
    pub(super) solves: usize,
    pub(super) spent: WorkUnits,
    pub(super) refreshes: usize,
    pub(super) trial: [usize; 2],
}

saved!(impl[] Findings { candidates, factorization, records, solves, spent, refreshes, trial }
    where |read| !read.candidates.is_empty() && read.records.len() == read.candidates.len());

impl Findings {
    /// The preconditioner of a candidate.
    pub(in crate::plan) fn preconditioner(&self, index: usize) -> Option<Preconditioner> {
        Some(self.candidates.get(index)?.preconditioner)
    }
}
