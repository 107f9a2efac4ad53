//! What is known before the first solve, and what follows from it.

use super::candidates::{Candidate, ladder};
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

    /// What will be tried, in this order.
    pub fn candidates(&self) -> Vec<Candidate> {
        let Options { method, preconditioner, .. } = self.options;
        let mut ladder = ladder(&self.profile, |preconditioner| self.machine.has(preconditioner));
        match (method, preconditioner) {
            (Some(method), None) => ladder = self.with_method(method, &ladder),
            _ => ladder.retain(|rung| {
                method.is_none_or(|method| method == rung.method)
                    && preconditioner.is_none_or(|preconditioner| preconditioner == rung.preconditioner)
            }),
        }
        if ladder.is_empty() {
            let symmetric = self.profile.is_symmetric();
            let suits = |method: &Method| symmetric || !method.needs_symmetry();
            let usual = if symmetric { Method::Minres } else { Method::BiCgStab };
            let method = method.or(Some(usual).filter(suits)).unwrap_or(Method::Gmres);
            let preconditioner = preconditioner.unwrap_or(Preconditioner::Jacobi);
            ladder.push(Candidate::new(method, preconditioner, "as requested", &self.profile));
        }
        ladder
    }

    /// This method with every preconditioner of a list that suits it. Complete factorizations are left out, because they solve the
    /// system by themselves: whoever names a method wants its iterations.
    fn with_method(&self, method: Method, list: &[Candidate]) -> Vec<Candidate> {
        let mut chosen: Vec<Candidate> = vec![];
        for Candidate { method: usual, preconditioner, reason, .. } in list {
            let direct = matches!(preconditioner, Preconditioner::Cholesky | Preconditioner::Lu);
            // a method for symmetric matrices needs a symmetric preconditioner
            let suits = !method.needs_symmetry() || usual.needs_symmetry();
            if direct || !suits || chosen.iter().any(|one| one.preconditioner == *preconditioner) {
                continue;
            }
            chosen.push(Candidate::new(method, *preconditioner, reason, &self.profile));
        }
        if let Some(first) = chosen.first_mut() {
            // it is tried first: its residual tells more than any expectation
            first.hope = list[0].hope;
        }
        chosen
    }

    /// Converts the matrix, and builds what is tried first.
    pub fn build(&self) -> Result<PlannedSolver<T, M>> {
        PlannedSolver::new(self)
    }
}

/// What will be done, why, and what else there is.
impl<T: Real, M: Backend<T>> fmt::Display for Plan<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.profile)?;
        for (index, candidate) in self.candidates().iter().enumerate() {
            let Candidate { method, preconditioner, reason, setup, iteration, hope, .. } = candidate;
            write!(f, "\n{}. {}: {reason}", index + 1, configuration(*method, *preconditioner))?;
            write!(f, "; estimated cost: setup {setup:.0}, iteration {iteration:.1}")?;
            if *hope > 0.0 {
                write!(f, ", about {hope:.0} iterations expected")?;
            }
        }
        write!(f, "\n(a cost of 1 is one iteration of Cg with Jacobi)")
    }
}
