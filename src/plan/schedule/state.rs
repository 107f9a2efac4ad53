//! Actions, events, and the state of a scheduler.

use crate::plan::costs::Factorization;
use crate::plan::monitor::Estimate;
use crate::plan::{Candidate, WorkUnits};
use crate::saved::saved;

/// An instruction to the executor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::plan) enum Action {
    /// Compute the elimination ordering of complete factorizations.
    Analyse,
    /// Reorder the matrix if that makes the reads of `x` more local; if many solves were announced, choose its format and its ordering by
    /// measured times of products. The expected work `ahead` limits what measuring may cost.
    Rearrange { ahead: WorkUnits },
    /// Build a preconditioner; after the work `Scheduler::limit` `Lu` is suspended, and `Ilut` and `Ldl` are refused.
    Build { index: usize },
    /// Renew a preconditioner of earlier values: recompute it for the present values of the matrix.
    Renew { index: usize },
    /// Iterate, with the monitor of `Scheduler::monitor`.
    Run { index: usize },
    /// Test whether the system has a solution; `factorize` if a complete factorization has not solved it.
    TestConsistency { factorize: bool },
    /// Return the best solution so far.
    Finish,
}

/// The result of an action.
#[derive(Clone, Debug)]
pub(in crate::plan) enum Event {
    Analysed(Factorization),
    /// States whether the matrix was reordered. If so, all preconditioners were dropped.
    Rearranged(bool),
    Built,
    /// Building was suspended, or refused, at its limit.
    Suspended,
    /// A factorization was left ordered, because it is expected to take this work, more than its limit.
    Expensive(WorkUnits),
    /// The time left is too short to build or renew a preconditioner that cannot be cancelled.
    TooLong,
    NotBuilt {
        indefinite: bool,
    },
    Renewed,
    Ended(Ended),
    /// Whether the consistency test has decided the solve.
    Tested(bool),
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(in crate::plan) struct Ended {
    pub(in crate::plan) iterations: usize,
    /// Relative residual, recomputed.
    pub(in crate::plan) residual: f64,
    /// Whether no earlier attempt of this solve had a smaller residual.
    pub(in crate::plan) improved: bool,
    pub(in crate::plan) end: End,
}

#[derive(Clone, Debug)]
pub(in crate::plan) enum End {
    Converged,
    /// Stopped by the monitor, to switch to another candidate or to renew the preconditioner.
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
    /// Measured or estimated work of a solve, without the setup.
    pub(super) cost: Option<WorkUnits>,
    /// Number of refreshes of the matrix when `cost` was measured.
    pub(super) values: usize,
    /// Number of failures since the last success, and the number of solves from which on it may be tried again with new values.
    pub(super) failures: u32,
    pub(super) retry: usize,
    /// Number of solves with it, and of renewals of its preconditioner.
    pub(super) solves: usize,
    pub(super) renewals: usize,
}

saved!(impl[] Record { cost, values, failures, retry, solves, renewals });

/// A preconditioner that is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Built {
    pub(super) index: usize,
    /// Whether the values of the matrix have changed since it was built or renewed.
    pub(super) stale: bool,
    /// Iterations of its first solve after it was built or renewed.
    pub(super) fresh: Option<usize>,
    /// Work of iterations in excess of `fresh`: in all solves since the values changed, and in the last one.
    pub(super) excess: [WorkUnits; 2],
}

/// State of the current solve.
#[derive(Default)]
pub(super) struct Solve {
    pub(super) states: Vec<State>,
    /// Work of the iterations of each candidate in this solve.
    pub(super) made: Vec<WorkUnits>,
    pub(super) indefinite: bool,
    pub(super) tested: bool,
    /// Whether any candidate has run.
    pub(super) ran: bool,
    /// The candidate that continues after a renewal in the middle of the solve: only the work of its next run counts as its cost.
    pub(super) renewed: Option<usize>,
    /// Whether Jacobi is tried again, to find out whether it has become the fastest.
    pub(super) trial: bool,
    /// The decision that `Analyse` or `Rearrange` has interrupted; `None` for the choice of the next candidate.
    pub(super) pending: Option<Pending>,
}

#[derive(Clone, Copy)]
pub(super) enum Pending {
    First,
    Prepare(usize),
}

/// Expected costs and measurements of a scheduler, which are saved with a plan.
#[derive(Default)]
pub(in crate::plan) struct Findings {
    pub(in crate::plan) candidates: Vec<Candidate>,
    /// Work and memory of a complete factorization, once an elimination ordering is computed.
    pub(in crate::plan) factorization: Option<Factorization>,
    pub(super) records: Vec<Record>,
    /// Number of solves so far, their work, and the number of refreshes of the matrix.
    pub(in crate::plan) solves: usize,
    pub(super) spent: WorkUnits,
    pub(in crate::plan) refreshes: usize,
    /// Number of solves after which Jacobi may be tried again with new values, and the distance to the next such trial, which doubles.
    pub(super) trial: [usize; 2],
    /// Whether the matrix may be rearranged: another ordering or format may make products faster.
    pub(in crate::plan) may_rearrange: bool,
}

saved!(impl[] Findings { candidates, factorization, records, solves, spent, refreshes, trial, may_rearrange }
    where |read| !read.candidates.is_empty() && read.records.len() == read.candidates.len());
