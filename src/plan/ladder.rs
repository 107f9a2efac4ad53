//! What a plan builds: a solver that climbs from one configuration to the next.

use super::backend::ForFactors;
use super::candidates::{Candidate, Direct};
use super::matched::Begins;
use super::measured::{fastest, is_scattered};
use super::pace::Pace;
use super::plan::Options;
use super::rung::{AnyPreconditioner, Outside, Running, Watch, Watcher, solver};
use super::solved::{Attempt, AttemptEnd, Solved};
use super::{Backend, Plan, Preconditioner, Profile};
use crate::formats::given::UserOrder;
use crate::formats::{Source, check_symmetric};
use crate::preconditioners::Symbolic;
use crate::saved::saved;
use crate::{Csr, Error, Format, Operator, Real, Report, Result};
use krysp_solvers::{CancelToken, LinearOperator, Progress, Space, SpaceOf, Vector};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Steps of GMRES before it starts again: longer than its default, because what is hard needs a longer memory.
const RESTART: usize = 60;

/// Solves from which on all is compared by measuring: formats, numberings, and what an iteration takes.
const MANY: usize = 100;

/// Solves from which on formats and numberings are compared of what is larger than so many bytes, where products are made by the
/// host, which converts: what fits the cache is multiplied as fast in most, and solved before they are compared.
const SOME: usize = 10;
const CACHED: usize = 1 << 22;

/// What is known of the factor of a matrix, or why it would not fit.
pub(super) type Foretold = Arc<Mutex<Option<Result<Symbolic>>>>;

/// A solver that tries one configuration after the other, until the residual, computed anew, meets the tolerance. Made by
/// [`Plan::build`].
///
/// The next solve begins with the configuration that solved the last one, or with one that has become worth building.
pub struct PlannedSolver<T: Real, M: Backend<T>> {
    pub(super) machine: M,
    pub(super) matrix: Arc<Csr<T>>,
    /// The order of the user's entries, where the matrix is in another numbering than the one that the plan was made of.
    pub(super) user_order: Option<UserOrder<T>>,
    pub(super) memory: Memory,
    /// The order of elimination, until it is used.
    pub(super) symbolic: Foretold,
    pub(super) cancel: Option<CancelToken>,
    pub(super) watch: Watch,
    pub(super) running: Running<T, M::Vector>,
    /// Where no rung has it.
    pub(super) operator: Option<Operator<M::Vector>>,
    /// A preconditioner that was read from a file, and which of the candidates it is of.
    pub(super) read: Option<(usize, AnyPreconditioner<T, M::Vector>)>,
    /// A matching, and factors that were given up for now.
    pub(super) begins: Option<Begins<T>>,
    /// What has solved once since it was built: its memory was new to it.
    pub(super) cold: Option<usize>,
    /// Memory for `b − A x`.
    pub(super) residual: Option<M::Vector>,
    /// Whether another numbering would make products faster, once the work done has earned it.
    pub(super) renumbers: bool,
    pub(super) report: Report,
    pub(super) attempts: Vec<Attempt>,
}

/// What a ladder has decided and found out, all of which is in its file.
pub(super) struct Memory {
    pub(super) profile: Profile,
    pub(super) symmetric: bool,
    pub(super) options: Options,
    pub(super) candidates: Vec<Candidate>,
    /// What a solve with each costs: measured, or foretold when it was left. Infinite if it cannot solve this matrix.
    pub(super) known: Vec<Option<f64>>,
    /// Seconds of an iteration with each, the least so far; infinite where there was none.
    pub(super) paces: Vec<f64>,
    /// What is known of factors, once their order has been found.
    pub(super) direct: Option<Direct>,
    /// Whether a direct factorisation has met a pivot of zero.
    pub(super) singular: bool,
    /// Solves made, and what they cost.
    pub(super) solves: usize,
    pub(super) spent: f64,
}

saved!(impl[] Memory {
    profile, symmetric, options, candidates, known, paces, direct, singular, solves, spent
} where |read| !read.candidates.is_empty() && [read.known.len(), read.paces.len()] == [read.candidates.len(); 2]);

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    pub(super) fn new(plan: &Plan<'_, T, M>) -> Result<Self> {
        let symmetric = plan.profile.is_symmetric() && !plan.options.new_values;
        let Options { solves, format, .. } = &plan.options;
        let bytes = plan.a.nnz() * (size_of::<T>() + size_of::<u32>());
        let pays = |solves: usize| solves >= MANY || M::ON_HOST && solves >= SOME && bytes >= CACHED;
        let (matrix, operator) = match (format.as_deref(), *solves) {
            (None, Some(solves)) if pays(solves) => {
                fastest(&plan.machine, plan.a.clone(), symmetric, solves)?
            }
            (Some(format), _) => (plan.a.clone(), operator(&plan.machine, plan.a, symmetric, Some(format))?),
            (None, _) => (plan.a.clone(), operator(&plan.machine, plan.a, symmetric, None)?),
        };
        let compared = format.is_some() || solves.is_some_and(pays);
        let (profile, options, candidates) = (plan.profile.clone(), plan.options.clone(), plan.candidates());
        let memory = Memory {
            symmetric,
            options,
            known: vec![None; candidates.len()],
            paces: vec![f64::INFINITY; candidates.len()],
            candidates,
            direct: None,
            singular: profile.has_empty_lines(),
            profile,
            solves: 0,
            spent: 0.0,
        };
        let renumbers = M::ON_HOST && !compared && is_scattered(&matrix, operator.choice());
        let user_order = user_order(plan.a, &matrix);
        Ok(PlannedSolver {
            renumbers,
            user_order,
            ..PlannedSolver::with(plan.machine.clone(), matrix, operator, memory)
        })
    }

    /// In which nothing runs yet.
    pub(super) fn with(machine: M, matrix: Csr<T>, operator: Operator<M::Vector>, memory: Memory) -> Self {
        PlannedSolver {
            machine,
            matrix: Arc::new(matrix),
            user_order: None,
            memory,
            symbolic: Arc::default(),
            cancel: None,
            watch: Arc::new(Mutex::new(Watcher { pace: Pace::new(), observers: vec![] })),
            running: None,
            operator: Some(operator),
            read: None,
            begins: None,
            cold: None,
            residual: None,
            renumbers: false,
            report: Report::default(),
            attempts: vec![],
        }
    }

    /// Ends solves, as a rule within 0.2 s, when another thread cancels the token, whether they iterate or build a
    /// preconditioner. Set it before the first solve.
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Calls `observer` for each iteration of each rung; iterations of a rung count from 1. To be said before the first solve.
    pub fn observe(self, observer: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).observers.push(Box::new(observer));
        self
    }

    /// As [`Plan::rtol`], from now on: for a ladder that was [loaded](PlannedSolver::load).
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.memory.options.rtol = rtol;
        self
    }

    /// As [`Plan::max_iterations`], from now on; no limit where `None`.
    pub fn max_iterations(mut self, iterations: Option<usize>) -> Self {
        self.memory.options.max_iterations = iterations;
        self
    }

    /// As [`Plan::time_limit`], from now on; no limit where `None`.
    pub fn time_limit(mut self, limit: Option<Duration>) -> Self {
        self.memory.options.time_limit = limit;
        self
    }

    /// The space of `b` and `x` for [`PlannedSolver::solve_into`]. [`PlannedSolver::solve`] and [`PlannedSolver::solve_from`] may renumber the matrix: then
    /// it is another after them.
    pub fn space(&self) -> Result<&SpaceOf<M::Vector>> {
        Ok(self.operator()?.domain())
    }

    /// The operator, in the format that was chosen.
    pub fn operator(&self) -> Result<&Operator<M::Vector>> {
        match (&self.running, &self.operator) {
            (Some((_, rung)), _) => Ok(rung.operator()),
            (None, Some(operator)) => Ok(operator),
            (None, None) => Err(Error::Lost),
        }
    }

    /// The attempts of the last solve.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Solves `A x = b` from `x = 0`; `b` and `x` are in host memory and in the user's numbering.
    pub fn solve(&mut self, b: &[T]) -> Result<Solved<T>> {
        self.solve_host(b, None)
    }

    /// Solves `A x = b` from the guess `x0`.
    pub fn solve_from(&mut self, b: &[T], x0: &[T]) -> Result<Solved<T>> {
        self.solve_host(b, Some(x0))
    }

    fn solve_host(&mut self, b: &[T], x0: Option<&[T]>) -> Result<Solved<T>> {
        let space = self.space()?.clone();
        for (what, vector) in [("`b`", Some(b)), ("`x0`", x0)] {
            if let Some(got) = vector.map(<[T]>::len).filter(|&got| got != space.len()) {
                let expected = space.len();
                return Err(krysp_solvers::Error::Size { what, got, of: "`A`'s rows", expected }.into());
            }
        }
        let (mut rhs, mut x) = (space.zeros()?, space.zeros()?);
        space.load(b, &mut rhs)?;
        if let Some(x0) = x0 {
            space.load(x0, &mut x)?;
        }
        self.solve_on(&rhs, &mut x, true)?;
        let mut host = vec![T::default(); b.len()];
        x.space().clone().store(&x, &mut host)?;
        Ok(Solved { x: host, report: self.report.clone(), attempts: self.attempts.clone() })
    }

    /// The matrix that the plan was made of.
    pub(super) fn user(&self) -> &Source<T> {
        self.user_order.as_ref().map_or(self.matrix.source(), UserOrder::user)
    }

    /// Takes new values for the same pattern, in the order of [`Csr::entries`] of the matrix that the plan was made of, as
    /// [`Format::refresh`] does. What was built stays if it can take them.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        let entries = match &self.user_order {
            Some(order) => Cow::Owned(order.entries(values)?),
            None => Cow::Borrowed(values),
        };
        Arc::make_mut(&mut self.matrix).refresh(&entries)?;
        (self.memory.singular, self.begins) = (false, None);
        let matrix = &*self.matrix;
        let exactly = || matrix.check_symmetric(0.0).is_ok();
        let symmetric = self.memory.symmetric && (check_symmetric(matrix).is_ok() || exactly());
        let same_kind = symmetric == self.memory.symmetric;
        self.memory.symmetric = symmetric;
        if same_kind && self.pass_on(&entries).is_ok() {
            // what a solve has cost is the best guess still; what has failed may do with these values
            self.memory.known.iter_mut().for_each(|known| *known = known.filter(|cost| cost.is_finite()));
            return Ok(());
        }
        // the operator or the preconditioner refuses these values: the ladder begins anew
        self.memory.known.fill(None);
        (self.running, self.operator, self.read) = (None, None, None);
        let format = self.memory.options.format.as_deref();
        self.operator = Some(operator(&self.machine, &self.matrix, symmetric, format)?);
        Ok(())
    }

    /// Takes the values of a matrix of the same pattern, as [`Format::refresh_from`] does.
    pub fn refresh_from(&mut self, a: &Csr<T>) -> Result<()> {
        let entries = self.user().entries_of(a)?;
        self.refresh(&entries)
    }

    /// Turns assembled values into entries, as [`Csr::assemble`] of the matrix that the plan was made of.
    pub fn assemble<'v>(&self, values: &'v [T]) -> Result<Cow<'v, [T]>> {
        self.user().assemble(values)
    }

    /// Gives new values to what has been built, or read from a file.
    fn pass_on(&mut self, entries: &[T]) -> Result<()> {
        if let Some((_, rung)) = &mut self.running {
            self.read = None;
            return rung.refresh(entries);
        }
        let Some(operator) = &mut self.operator else { return Err(Error::Lost) };
        operator.refresh(entries)?;
        self.read.as_mut().map_or(Ok(()), |(_, read)| read.refresh(operator))
    }

    /// Whether this rung has been built, or read from a file.
    pub(super) fn is_ready(&self, index: usize) -> bool {
        let running = self.running.as_ref().is_some_and(|(running, _)| *running == index);
        running || self.read.as_ref().is_some_and(|(read, _)| *read == index)
    }

    /// Whether costs are counted by the clock: with many solves ahead.
    pub(super) fn goes_by_clock(&self) -> bool {
        self.memory.candidates.len() > 1 && self.memory.options.solves.is_some_and(|solves| solves >= MANY)
    }

    /// Notes what iterations of a rung have taken, and counts them by that, beside those of the first rung.
    pub(super) fn clock(&mut self, index: usize, report: &Report) {
        if report.iterations == 0 {
            return;
        }
        self.memory.paces[index] =
            self.memory.paces[index].min(report.time.as_secs_f64() / report.iterations as f64);
        let unit = self.memory.paces[0] / self.memory.candidates[0].iteration;
        if index != 0 && unit.is_finite() && self.goes_by_clock() {
            self.memory.candidates[index].iteration = self.memory.paces[index] / unit;
        }
    }

    /// What is spent on building this rung before it is halted, where another would cost so much.
    pub(super) fn patience(&self, index: usize, other: f64) -> f64 {
        let Memory { options, solves, candidates, .. } = &self.memory;
        let ahead = options.solves.map_or(1, |all| all.saturating_sub(*solves)).max(1);
        candidates[index].patience(other, ahead as f64)
    }

    /// Makes this rung the running one, where another would cost so much. That it cannot be built is noted, too.
    pub(super) fn build(&mut self, index: usize, other: f64) -> Result<Duration> {
        if self.running.as_ref().is_some_and(|(running, _)| *running == index) {
            return Ok(Duration::ZERO);
        }
        let started = Instant::now();
        if let Some((_, rung)) = self.running.take() {
            self.operator = Some(rung.into_operator());
        }
        let read = self.read.take_if(|(read, _)| *read == index);
        let candidate = &self.memory.candidates[index];
        let ordered = match candidate.preconditioner {
            Preconditioner::Cholesky => self.symbolic.lock().unwrap_or_else(PoisonError::into_inner).take(),
            _ => None,
        };
        // what was asked for by name may take as long as it does
        let alone = self.memory.candidates.len() == 1;
        let most = if alone { f64::INFINITY } else { self.patience(index, other) };
        let most = Candidate::multiplications(most, &self.memory.profile);
        let mut begins = self.begins.take();
        let (matrix, operator) = (&*self.matrix, self.operator()?);
        let factors = ForFactors { ordered, most, begins: &mut begins };
        let m = match read {
            Some((_, read)) => Ok(read),
            None => self.machine.preconditioner(candidate.preconditioner, matrix, operator, factors),
        };
        self.begins = begins;
        let m = m.inspect_err(|error| {
            self.memory.singular |= matches!(error, Error::Singular { .. });
            let ending = AttemptEnd::NotBuilt(error.to_string());
            self.attempts.push(Attempt::new(candidate, started.elapsed(), f64::NAN, ending));
        })?;
        let Some(operator) = self.operator.take() else { return Err(Error::Lost) };
        let restart = RESTART.min(operator.domain().len().max(1));
        let outside = Outside { cancel: self.cancel.as_ref(), watch: &self.watch };
        self.running = Some((index, solver(candidate.method, restart, operator, m, &outside)));
        Ok(started.elapsed())
    }
}

/// The order of a user's entries, where a matrix is the same in another numbering.
pub(super) fn user_order<T: Real>(user: &Csr<T>, own: &Csr<T>) -> Option<UserOrder<T>> {
    (user.domain() != own.domain()).then(|| UserOrder::new(user.source(), own.source()))
}

/// The matrix in the format asked for, or in the one of the least cost.
pub(super) fn operator<T: Real, M: Backend<T>>(
    machine: &M,
    matrix: &Csr<T>,
    symmetric: bool,
    format: Option<&str>,
) -> Result<Operator<M::Vector>> {
    match (format, symmetric) {
        (Some(format), _) => Operator::in_format(matrix, machine, format),
        (None, true) => {
            Operator::known(matrix, machine, true, None).or_else(|_| Operator::auto(matrix, machine))
        }
        (None, false) => Operator::auto(matrix, machine),
    }
}
