//! The plan of a solver: the analysis of the matrix, the options, and the candidates that follow from both.

use super::candidates::{Candidate, candidates};
use super::context::Context;
use super::costs::MANY_SOLVES;
use super::declarations::{Declarations, Declared, check_declared, in_double};
use super::monitor::Outlook;
use super::points::Points;
use super::schedule::Scheduler;
use super::solved::configuration;
use super::{Backend, Costs, Method, PlannedSolver, Preconditioner, Profile, WorkUnits};
use crate::error::{Error, Result};
use crate::formats::{Csr, Format, looks_symmetric, sample_looks_symmetric};
use crate::host::Host;
use crate::numbers::Real;
use crate::preconditioners::SaddleEstimate;
use crate::saved::saved;
use krysp_solvers::Stopping;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A plan for solving systems with one matrix: the candidates, their order and the reasons for it, which `Display` prints.
#[derive(Clone, Debug)]
pub struct Plan<'a, T: Real, M = Host> {
    pub(super) a: &'a Csr<T>,
    pub(super) machine: M,
    pub(super) profile: Profile,
    pub(super) options: Options,
}

/// Options that a user may set.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) solves: Option<usize>,
    pub(super) values_change: bool,
    pub(super) rtol: f64,
    pub(super) max_iterations: Option<usize>,
    pub(super) time_limit: Option<Duration>,
    pub(super) method: Option<Method>,
    pub(super) preconditioner: Option<Preconditioner>,
    pub(super) format: Option<String>,
    pub(super) declarations: Declarations,
}

saved!(impl[] Options {
    solves, values_change, rtol, max_iterations, time_limit, method, preconditioner, format, declarations
});

impl<'a, T: Real> Plan<'a, T> {
    /// Analyses a matrix. Returns an error if it is not square, or has entries that are not finite.
    pub fn new(a: &'a Csr<T>) -> Result<Plan<'a, T>> {
        let (rows, cols) = (a.rows(), a.cols());
        if rows != cols {
            return Err(Error::Rectangular { rows, cols });
        }
        let profile = Profile::scan(a);
        if profile.not_finite > 0 {
            a.check_finite()?;
        }
        let options = Options { rtol: Stopping::new(T::EPSILON).rtol, ..Options::default() };
        Ok(Plan { a, machine: Host, profile, options })
    }
}

impl<'a, T: Real, M: Backend<T>> Plan<'a, T, M> {
    /// Sets where to solve: `&Host`, [`&Formats`](crate::choice::Formats), which adds formats of other crates, or a `&Cuda`.
    pub fn on<N: Backend<T>>(self, machine: &N) -> Plan<'a, T, N> {
        Plan { a: self.a, machine: machine.clone(), profile: self.profile, options: self.options }
    }

    /// Announces the number of solves with this matrix, over which setup costs are amortized. By default the first solve starts with a
    /// preconditioner that needs hardly any setup, and an expensive one is built once the work done so far justifies its cost.
    pub fn solves(mut self, solves: usize) -> Self {
        self.options.solves = Some(solves);
        self.profile.declared.many_solves = solves >= MANY_SOLVES;
        self
    }

    /// Announces whether the values will change, by [`PlannedSolver::refresh`]. If not, formats that store one triangle may be chosen.
    pub fn values_change(mut self, change: bool) -> Self {
        self.options.values_change = change;
        self
    }

    /// Sets the tolerance: a solve has converged when `‖b − A x‖ ≤ rtol ‖b‖`. The default is 1e-8, and 3.5e-4 in `f32`.
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.options.rtol = rtol;
        self
    }

    /// Sets the maximum number of iterations of a solve, summed over all attempts. By default only an attempt has a limit, of 100,000.
    pub fn max_iterations(mut self, iterations: usize) -> Self {
        self.options.max_iterations = Some(iterations);
        self
    }

    /// Sets the maximum duration of a solve, setups included: a factorization or setup that takes longer is interrupted, and the solve
    /// ends with [`Outcome::TimeLimit`](crate::Outcome::TimeLimit) and the best `x` so far. To limit [`build`](Plan::build) too, run both
    /// inside an [`Interrupt`](crate::Interrupt).
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.options.time_limit = Some(limit);
        self
    }

    /// Restricts the candidates to this method. Unless [`Plan::preconditioner`] names one, the candidates have different preconditioners,
    /// but no complete factorizations.
    pub fn method(mut self, method: Method) -> Self {
        self.options.method = Some(method);
        self
    }

    /// Restricts the candidates to this preconditioner.
    pub fn preconditioner(mut self, preconditioner: Preconditioner) -> Self {
        self.options.preconditioner = Some(preconditioner);
        self
    }

    /// Sets the format of the matrix, by a name that [`Operator::in_format`](crate::Operator::in_format) accepts: `"Csr"`, `"sell"`.
    pub fn format(mut self, name: &str) -> Self {
        self.options.format = Some(name.into());
        self
    }

    /// Declares the near-null space: vectors, in the user's order of unknowns, that the operator without boundary conditions maps to
    /// zero. [`Amg`](crate::Amg) builds its levels from them; the default is the constant vector. For elasticity [`Plan::coordinates`] is
    /// simpler.
    #[doc(alias = "near null space")]
    pub fn near_null_space<V: AsRef<[T]>>(mut self, vectors: &[V]) -> Self {
        self.options.declarations.near_null_space = Arc::new(in_double(vectors));
        self.known()
    }

    /// Declares that the unknowns are displacements of nodes at these points, with consecutive unknowns for each node: 2 in the plane,
    /// where all z are equal, or 3 in space. [`Amg`](crate::Amg) then uses the rigid body modes as near-null space.
    ///
    /// The points are checked by [`Plan::build`], and stored in the file of a saved plan.
    ///
    /// ```
    /// use krysp::{Plan, gallery};
    ///
    /// let (a, points) = gallery::elasticity::<f64>([10, 9, 9], 0.3)?;
    /// let mut solver = Plan::new(&a)?.coordinates(&points).build()?;
    /// assert!(solver.solve(&vec![1.0; a.rows()])?.converged());
    /// # Ok::<(), krysp::Error>(())
    /// ```
    #[doc(alias = "rigid body modes")]
    pub fn coordinates(self, points: &[[f64; 3]]) -> Self {
        self.points(points, None)
    }

    /// Declares a point and a component for each unknown, where [`Plan::coordinates`] does not apply: boundary conditions have removed
    /// unknowns of some nodes, or the unknowns of a node are not consecutive. The point is that of the unknown's node; the component is 0
    /// for x, 1 for y and 2 for z. Unknowns at the same point belong to one node.
    ///
    /// ```
    /// use krysp::{Csr, Plan, gallery};
    ///
    /// let (a, points) = gallery::elasticity::<f64>([4, 4, 4], 0.3)?;
    /// // displacements in z are zero where z = 0: those unknowns are removed
    /// let free: Vec<usize> = (0..a.rows()).filter(|i| i % 3 != 2 || points[i / 3][2] > 0.0).collect();
    /// let place = |i: usize| free.binary_search(&i).ok();
    /// let entries = a.triplets().filter_map(|(i, j, value)| Some((place(i)?, place(j)?, value)));
    /// let a = Csr::from_triplets(free.len(), free.len(), &entries.collect::<Vec<_>>())?;
    ///
    /// let points: Vec<[f64; 3]> = free.iter().map(|i| points[i / 3]).collect();
    /// let components: Vec<usize> = free.iter().map(|i| i % 3).collect();
    /// let plan = Plan::new(&a)?.unknown_coordinates(&points, &components);
    /// assert!(plan.build()?.solve(&vec![1.0; a.rows()])?.converged());
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn unknown_coordinates(self, points: &[[f64; 3]], components: &[usize]) -> Self {
        self.points(points, Some(components.to_vec()))
    }

    fn points(mut self, points: &[[f64; 3]], components: Option<Vec<usize>>) -> Self {
        self.options.declarations.points = Some(Arc::new(Points { points: points.to_vec(), components }));
        self.known()
    }

    fn known(mut self) -> Self {
        self.profile.declared.near_null_space = self.options.declarations.has_near_null_space();
        self
    }

    /// Declares the null space of a singular symmetric matrix: vectors, in the user's order of unknowns, that the matrix maps to zero;
    /// for a pure Neumann problem, the vector of ones. `solve` and `solve_from` remove the component of `b` in the null space, and return
    /// a solution without such a component; callers of `solve_into` remove it from `b` themselves. Complete factorizations are then no
    /// candidates.
    ///
    /// ```
    /// use krysp::{Plan, gallery};
    ///
    /// let a = gallery::neumann::<f64>(&[10, 10])?;
    /// let b: Vec<f64> = (0..100).map(|i| if i < 50 { 1.0 } else { -1.0 }).collect();
    /// let solved = Plan::new(&a)?.null_space(&[vec![1.0; 100]]).build()?.solve(&b)?;
    /// assert!(solved.converged() && solved.x.iter().sum::<f64>().abs() < 1e-6);
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn null_space<V: AsRef<[T]>>(mut self, vectors: &[V]) -> Self {
        self.options.declarations.null_space = Arc::new(in_double(vectors));
        self.profile.declared.null_space = !vectors.is_empty();
        self
    }

    /// Declares whether the matrix is symmetric, which is detected by default. [`Plan::build`] returns an error if the matrix is declared
    /// symmetric and a pair `a_ij`, `a_ji` differs by more than a millionth of `max(|a_ij|, |a_ji|, sqrt(a_ii a_jj))`.
    pub fn symmetric(mut self, symmetric: bool) -> Self {
        self.profile.declared.symmetric = Some(symmetric);
        self
    }

    /// Declares whether a symmetric matrix is positive definite. If so, methods for indefinite matrices are no candidates; if not,
    /// methods for definite matrices are none. [`Plan::build`] checks only symmetry and a positive diagonal.
    pub fn positive_definite(mut self, positive_definite: bool) -> Self {
        self.profile.declared.positive_definite = Some(positive_definite);
        self
    }

    /// Declares the field of each unknown of a saddle point system: 0 for primal unknowns (velocities), 1 for multipliers (pressures).
    #[doc(alias = "saddle point")]
    pub fn fields(mut self, fields: &[usize]) -> Self {
        self.options.declarations.fields = Some(Arc::new(fields.to_vec()));
        let symmetric = self.profile.is_symmetric();
        let known = self.options.declarations.saddle_fields(self.a);
        self.profile.saddle = known.map(|fields| SaddleEstimate::new(self.a, &fields, symmetric));
        self
    }

    /// Suggests declarations that would make solves faster: coordinates, if the matrix looks like one of elasticity.
    pub fn hint(&self) -> Option<String> {
        self.options.declarations.hint(&self.profile)
    }

    /// The analysis of the matrix.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    fn context(&self) -> Context {
        Context::here(&self.profile, self.machine.class())
    }

    /// A scheduler without measurements.
    pub(super) fn scheduler(&self) -> Scheduler {
        let Options { solves, values_change, .. } = self.options;
        Scheduler::new(self.context(), self.list(), solves, values_change)
    }

    /// The candidates in the order in which they would run if all of them failed.
    pub fn candidates(&self) -> Vec<Candidate> {
        let list = self.list();
        self.scheduler().order().0.iter().filter_map(|(index, _)| list.get(*index).cloned()).collect()
    }

    /// The candidates for the matrix and the options. As a rule the first one runs first, and predicts the costs of the others.
    fn list(&self) -> Vec<Candidate> {
        let Options { method, preconditioner, .. } = self.options;
        let Declared { positive_definite, null_space, .. } = self.profile.declared;
        let context = self.context();
        let mut list = candidates(&context, |preconditioner| self.machine.has(preconditioner));
        let first = list.first().map(|first| first.costs.iterations);
        // what the declarations rule out
        list.retain(|one| {
            let definite = one.needs_definite() || one.preconditioner == Preconditioner::Cholesky;
            let is_suitable = match positive_definite {
                Some(true) => one.method != Method::Minres,
                Some(false) => !definite,
                None => true,
            };
            // `Lu` solves singular systems, the other complete factorizations do not
            let is_regular = one.preconditioner.is_complete() && one.preconditioner != Preconditioner::Lu;
            is_suitable && !(null_space && is_regular)
        });
        if let (Some(method), None) = (method, preconditioner) {
            list = with_method(&context, method, &list);
        }
        if let (Some(new), Some(first)) = (list.first_mut(), first) {
            // takes over the expected iterations of the original first candidate (as a rule 0), so that it runs first
            new.costs.iterations = first;
        }
        list.retain(|one| {
            method.is_none_or(|method| method == one.method)
                && preconditioner.is_none_or(|preconditioner| preconditioner == one.preconditioner)
        });
        if list.is_empty() {
            let symmetric = self.profile.is_symmetric();
            let suits = |method: &Method| symmetric || !method.needs_symmetry();
            let usual = match preconditioner {
                // Minres needs a positive definite preconditioner, which these are not
                Some(Preconditioner::Ldl | Preconditioner::CuDss) => Method::Gmres,
                _ if symmetric => Method::Minres,
                _ => Method::BiCgStab,
            };
            let method = method.or(Some(usual).filter(suits)).unwrap_or(Method::Gmres);
            let preconditioner = preconditioner.unwrap_or(Preconditioner::Jacobi);
            list.push(Candidate::new(method, preconditioner, "as requested", &context));
        }
        list
    }

    /// Checks the declarations, and converts the matrix to its format. Preconditioners are built by the solves.
    pub fn build(&self) -> Result<PlannedSolver<T, M>> {
        self.options.declarations.check(self.a.rows())?;
        check_declared(self.a, &self.profile)?;
        self.options.declarations.check_null_space(self.a)?;
        if self.profile.is_symmetric() && !self.profile.looks_symmetric() {
            // nearly symmetric: `values_change` rules out formats that store one triangle, which would change the matrix
            return PlannedSolver::new(&self.clone().values_change(true));
        }
        PlannedSolver::new(self)
    }
}

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// Checks a declared null space for new values. Where other declarations do not hold any more, the methods do not converge.
    pub(super) fn check_new_values(&self, values: &[T]) -> Result<()> {
        if !self.settings.profile.declared.null_space {
            return Ok(());
        }
        let mut new = Csr::clone(&self.matrix);
        match &self.user_order {
            Some(order) => order.refresh(values, &mut new)?,
            None => new.refresh(values)?,
        }
        self.settings.options.declarations.check_null_space(&new)
    }

    /// Returns whether the new values of a refresh are symmetric to rounding. All are compared if the format stores one triangle; otherwise
    /// a sample, and all if the sample differs from the earlier values: a mistake then costs iterations only. If symmetry is declared and the
    /// format stores all values, nothing is compared. Where symmetry changes, and is not declared, the candidates become those of a plan
    /// for the new values, and no preconditioner is kept.
    pub(super) fn examine_symmetry(&mut self) -> bool {
        let Profile { declared, block, .. } = self.settings.profile;
        let before = self.settings.profile.looks_symmetric();
        let is_declared = declared.symmetric.is_some();
        let one_triangle = self.operator().is_ok_and(|operator| operator.choice().stored().is_symmetric());
        if is_declared && !one_triangle {
            return self.settings.symmetric;
        }
        if !one_triangle && sample_looks_symmetric(&self.matrix, self.scheduler.found.refreshes) == before {
            return before;
        }
        let symmetric = looks_symmetric(&self.matrix);
        if is_declared || symmetric == before {
            return symmetric;
        }
        let mut profile = Profile { declared, block, ..Profile::scan(&self.matrix) };
        let options = self.settings.options.clone();
        if let Some(fields) = options.declarations.saddle_fields(&self.matrix) {
            profile.saddle = Some(SaddleEstimate::new(&self.matrix, &fields, symmetric));
        }
        let plan = Plan { a: &self.matrix, machine: self.machine.clone(), profile, options };
        self.scheduler.replace_candidates(&plan.profile, plan.list());
        self.settings.profile = plan.profile;
        self.take_apart();
        self.kept = None;
        symmetric
    }
}

impl<T: Real, M> Plan<'_, T, M> {
    /// Prints the expected cost of a solve, and what it consists of.
    fn write_costs(&self, f: &mut fmt::Formatter<'_>, costs: &Costs, cost: WorkUnits) -> fmt::Result {
        let Costs { setup, refresh, iteration, iterations, .. } = *costs;
        if iterations > 0.0 {
            write!(f, "; expected cost of a solve {:.0}: ", cost.0)?;
        } else {
            write!(f, "; ")?;
        }
        write!(f, "setup {:.0}", setup.0)?;
        if self.options.values_change {
            write!(f, ", new values {:.0}", refresh.0)?;
        }
        match iterations {
            0.0 => write!(f, ", iterations of {:.1}", iteration.0),
            1.0 => write!(f, ", 1 iteration of {:.1}", iteration.0),
            _ => write!(f, ", {iterations:.0} iterations of {:.1}", iteration.0),
        }
    }
}

/// Candidates of one method, with each preconditioner of a list that suits it. Complete factorizations are left out: callers who name a
/// method want its iterations.
fn with_method(context: &Context, method: Method, list: &[Candidate]) -> Vec<Candidate> {
    let mut chosen: Vec<Candidate> = vec![];
    for Candidate { method: usual, preconditioner, reason, .. } in list {
        // a method for symmetric matrices needs a symmetric preconditioner
        let suits = !method.needs_symmetry() || usual.needs_symmetry();
        let is_new = chosen.iter().all(|one| one.preconditioner != *preconditioner);
        if suits && is_new && !preconditioner.is_complete() {
            chosen.push(Candidate::new(method, *preconditioner, reason, context));
        }
    }
    chosen
}

/// Prints the profile, the declarations, and the candidates in the order of [`Plan::candidates`], with their expected costs; for the first one
/// also when it would be stopped.
impl<T: Real, M: Backend<T>> fmt::Display for Plan<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.profile, self.options.declarations)?;
        let list = self.list();
        let (order, outlook) = self.scheduler().order();
        let place = |of: usize| order.iter().position(|(index, _)| *index == of).map(|at: usize| at + 1);
        for (at, &(index, cost)) in order.iter().enumerate() {
            let Some(one) = list.get(index) else { continue };
            let Candidate { method, preconditioner, reason, costs, .. } = one;
            write!(f, "\n{}. {}: {reason}", at + 1, configuration(*method, *preconditioner))?;
            self.write_costs(f, costs, cost)?;
            let Some(Outlook { next, remaining, earliest }) = outlook.filter(|_| at == 0) else { continue };
            write!(f, "\n   runs first")?;
            if one.is_measure() {
                write!(f, ", and its residuals correct the costs of the others")?;
            }
            if let Some(next) = next.and_then(place) {
                write!(f, "; candidate {next} replaces it once its remaining work is estimated at ")?;
                write!(f, "{remaining:.0}, early on at yet more, and not before iteration {earliest}")?;
            }
        }
        write!(f, "\n(a cost of 1 is the work of one iteration of Cg with Jacobi")?;
        match self.options.solves {
            Some(solves) if solves > 1 => write!(f, "; setups are shared by {solves} solves)")?,
            _ => write!(f, ")")?,
        }
        self.hint().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}
