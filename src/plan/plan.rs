//! What is known before the first solve, and what follows from it.

use super::candidates::{Candidate, Context, candidates};
use super::schedule::Scheduler;
use super::solved::configuration;
use super::{Backend, Method, PlannedSolver, Preconditioner, Profile};
use crate::saved::saved;
use crate::{Csr, Error, Host, Real, Result};
use std::fmt;
use std::time::Duration;

/// A plan to solve systems with one matrix: what to try, in which order, and why. Printed, it explains itself.
#[derive(Clone, Debug)]
pub struct Plan<'a, T: Real, M = Host> {
    pub(super) a: &'a Csr<T>,
    pub(super) machine: M,
    pub(super) profile: Profile,
    pub(super) options: Options,
}

/// What a user may decide.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) solves: Option<usize>,
    pub(super) new_values: bool,
    pub(super) rtol: f64,
    pub(super) max_iterations: Option<usize>,
    pub(super) time_limit: Option<Duration>,
    pub(super) method: Option<Method>,
    pub(super) preconditioner: Option<Preconditioner>,
    pub(super) format: Option<String>,
}

saved!(impl[] Options {
    solves, new_values, rtol, max_iterations, time_limit, method, preconditioner, format
});

impl<'a, T: Real> Plan<'a, T> {
    /// Looks at a matrix. Refuses one that is not square, or has entries that are not finite.
    pub fn new(a: &'a Csr<T>) -> Result<Plan<'a, T>> {
        let (rows, cols) = (a.rows(), a.cols());
        if rows != cols {
            return Err(Error::Rectangular { rows, cols });
        }
        let profile = Profile::scan(a);
        if profile.not_finite > 0 {
            a.check_finite()?;
        }
        let options = Options {
            solves: None,
            new_values: false,
            rtol: default_tolerance::<T>(),
            max_iterations: None,
            time_limit: None,
            method: None,
            preconditioner: None,
            format: None,
        };
        Ok(Plan { a, machine: Host, profile, options })
    }
}

/// A relative residual of 1e-8 in `f64`; in `f32` the square root of the epsilon, 3.5e-4.
fn default_tolerance<T: Real>() -> f64 {
    let root = T::EPSILON.sqrt();
    if root < 1e-7 { 1e-8 } else { root }
}

impl<'a, T: Real, M: Backend<T>> Plan<'a, T, M> {
    /// Where to solve: `&Host`, the threads of this program, or a `&Cuda`.
    pub fn on<N: Backend<T>>(self, machine: &N) -> Plan<'a, T, N> {
        Plan { a: self.a, machine: machine.clone(), profile: self.profile, options: self.options }
    }

    /// How many solves there will be with this matrix. If that is not said, the first begins with what is ready at once,
    /// and what takes longer to build is built when the work done so far has earned it.
    pub fn solves(mut self, solves: usize) -> Self {
        self.options.solves = Some(solves);
        self
    }

    /// Whether the values will change, by [`PlannedSolver::refresh`]. If not, formats that store one triangle may be taken.
    pub fn new_values(mut self, change: bool) -> Self {
        self.options.new_values = change;
        self
    }

    /// Ends at `‖b − A x‖ ≤ rtol ‖b‖`. The default is 1e-8, and 3.5e-4 in `f32`.
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.options.rtol = rtol;
        self
    }

    /// The most iterations of a solve, over all that is tried. Without a limit, each configuration has one of its own.
    pub fn max_iterations(mut self, iterations: usize) -> Self {
        self.options.max_iterations = Some(iterations);
        self
    }

    /// The most time of a solve, in all its phases: a factorization or setup that takes longer is interrupted, and the solve ends
    /// with [`Outcome::TimeLimit`](crate::Outcome::TimeLimit) and the best `x` so far. To limit [`build`](Plan::build) too, run
    /// both inside an [`Interrupt`](crate::Interrupt).
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.options.time_limit = Some(limit);
        self
    }

    /// This method and no other. Unless [`Plan::preconditioner`] names one, preconditioners are tried in turn; complete factorizations
    /// are not among them.
    pub fn method(mut self, method: Method) -> Self {
        self.options.method = Some(method);
        self
    }

    /// This preconditioner and no other.
    pub fn preconditioner(mut self, preconditioner: Preconditioner) -> Self {
        self.options.preconditioner = Some(preconditioner);
        self
    }

    /// This format, by a name as [`Operator::in_format`](crate::Operator::in_format) takes it: `"Csr"`, `"sell"`.
    pub fn format(mut self, name: &str) -> Self {
        self.options.format = Some(name.into());
        self
    }

    /// What was seen of the matrix.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    fn context(&self) -> Context<'_> {
        Context { profile: &self.profile, class: self.machine.class(), modes: false }
    }

    /// Decides what runs, with nothing measured yet.
    pub(super) fn scheduler(&self) -> Scheduler {
        let Options { solves, new_values, .. } = self.options;
        Scheduler::new(self.context(), self.list(), solves, new_values)
    }

    /// The candidates in the order in which they run if each of them fails.
    pub fn candidates(&self) -> Vec<Candidate> {
        let list = self.list();
        self.scheduler().order().iter().filter_map(|(index, _)| list.get(*index).cloned()).collect()
    }

    /// The candidates that suit the matrix and the options; the first one is run first, or tells what others cost.
    fn list(&self) -> Vec<Candidate> {
        let Options { method, preconditioner, .. } = self.options;
        let context = self.context();
        let mut list = candidates(context, |preconditioner| self.machine.has(preconditioner));
        match (method, preconditioner) {
            (Some(method), None) => list = with_method(context, method, &list),
            _ => list.retain(|one| {
                method.is_none_or(|method| method == one.method)
                    && preconditioner.is_none_or(|preconditioner| preconditioner == one.preconditioner)
            }),
        }
        if list.is_empty() {
            let symmetric = self.profile.is_symmetric();
            let suits = |method: &Method| symmetric || !method.needs_symmetry();
            let usual = if symmetric { Method::Minres } else { Method::BiCgStab };
            let method = method.or(Some(usual).filter(suits)).unwrap_or(Method::Gmres);
            let preconditioner = preconditioner.unwrap_or(Preconditioner::Jacobi);
            list.push(Candidate::new(method, preconditioner, "as requested", context));
        }
        list
    }

    /// Converts the matrix, and builds what is tried first.
    pub fn build(&self) -> Result<PlannedSolver<T, M>> {
        PlannedSolver::new(self)
    }
}

/// A method with every preconditioner of a list that suits it. Complete factorizations are left out, because they solve the system
/// by themselves: callers who name a method want its iterations.
fn with_method(context: Context<'_>, method: Method, list: &[Candidate]) -> Vec<Candidate> {
    let mut chosen: Vec<Candidate> = vec![];
    for Candidate { method: usual, preconditioner, reason, .. } in list {
        let direct = matches!(preconditioner, Preconditioner::Cholesky | Preconditioner::Lu);
        // a method for symmetric matrices needs a symmetric preconditioner
        let suits = !method.needs_symmetry() || usual.needs_symmetry();
        if direct || !suits || chosen.iter().any(|one| one.preconditioner == *preconditioner) {
            continue;
        }
        chosen.push(Candidate::new(method, *preconditioner, reason, context));
    }
    if let Some(first) = chosen.first_mut() {
        // its residual tells more than any expectation
        first.costs.iterations = list[0].costs.iterations;
    }
    chosen
}

/// The profile, and the candidates with their expected costs in the order in which they run if each of them fails.
impl<T: Real, M: Backend<T>> fmt::Display for Plan<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.profile)?;
        let list = self.list();
        for (at, (index, _)) in (1..).zip(self.scheduler().order()) {
            let at: usize = at;
            let Some(Candidate { method, preconditioner, reason, costs, .. }) = list.get(index) else {
                continue;
            };
            write!(f, "\n{at}. {}: {reason}", configuration(*method, *preconditioner))?;
            write!(f, "; estimated cost: setup {:.0}", costs.setup.0)?;
            if self.options.new_values {
                write!(f, ", new values {:.0}", costs.refresh.0)?;
            }
            write!(f, ", iteration {:.1}", costs.iteration.0)?;
            if costs.iterations > 0.0 {
                write!(f, ", about {:.0} iterations expected", costs.iterations)?;
            }
        }
        write!(
            f,
            "\n(a cost of 1 is one iteration of Cg with Jacobi; the first attempt shows what others will cost)"
        )
    }
}
