//! Which configurations suit a matrix, in the order in which they are tried, and what each is likely to cost.
//!
//! The unit of costs is an iteration of conjugate gradients with Jacobi: a product and the vectors around it. What is counted
//! so does not depend on the machine's speed, nor on what else runs there.

use super::{Method, Preconditioner, Profile};

/// A configuration that may be tried. Costs are in iterations of [`Cg`](crate::Cg) with [`Jacobi`](crate::Jacobi).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// The method.
    pub method: Method,
    /// The preconditioner.
    pub preconditioner: Preconditioner,
    /// Why it is there.
    pub reason: String,
    /// What it takes to build.
    pub setup: f64,
    /// What an iteration takes.
    pub iteration: f64,
    /// The iterations to hope for. What is ready at once has none: it is tried, and its residual tells.
    pub hope: f64,
}

/// What a preconditioner takes: to build, to apply, and the iterations to hope for.
///
/// Measured on two threads of a CPU, with stencils and finite elements of 60,000 to 2 million unknowns. `Amg` took 140 to 330
/// to build and 5 to 7 to apply, `TwoLevel` 30 to 90 and a half; incomplete factors wait for threads more than for memory.
fn price(preconditioner: Preconditioner) -> (f64, f64, f64) {
    match preconditioner {
        Preconditioner::None => (0.0, 0.0, 1000.0),
        Preconditioner::Jacobi => (2.0, 0.0, 500.0),
        Preconditioner::TwoLevel => (60.0, 0.5, 300.0),
        Preconditioner::Amg => (240.0, 5.5, 30.0),
        Preconditioner::Fsai => (150.0, 1.5, 200.0),
        Preconditioner::Spai => (250.0, 1.0, 250.0),
        Preconditioner::Ic0 | Preconditioner::Ilu0 => (40.0, 4.0, 150.0),
    }
}

impl Candidate {
    pub(super) fn new(method: Method, preconditioner: Preconditioner, reason: &str) -> Candidate {
        let (setup, application, hope) = price(preconditioner);
        // two products and two preconditionings
        let twice = if method == Method::BiCgStab { 2.0 } else { 1.0 };
        let iteration = twice * (1.0 + application);
        Candidate { method, preconditioner, reason: reason.into(), setup, iteration, hope: hope / twice }
    }

    /// One that is ready at once: it is tried, and its residual tells.
    fn ready(method: Method, preconditioner: Preconditioner, reason: &str) -> Candidate {
        Candidate { hope: 0.0, ..Candidate::new(method, preconditioner, reason) }
    }

    /// What a solve is likely to cost, without building; zero where only a trial tells.
    pub(super) fn solve(&self) -> f64 {
        self.hope * self.iteration
    }

    /// Whether it needs a positive definite matrix.
    pub(super) fn needs_definite(&self) -> bool {
        matches!(self.method, Method::Cg | Method::Fcg)
    }
}

/// The ladder for a matrix.
pub(super) fn ladder(profile: &Profile) -> Vec<Candidate> {
    use Method::*;
    use Preconditioner::*;
    let mut ladder = vec![];
    if !profile.is_symmetric() {
        ladder.push(Candidate::ready(BiCgStab, Jacobi, "not symmetric: ready at once"));
    } else if profile.has_positive_diagonal() {
        ladder.push(Candidate::ready(Cg, Jacobi, "symmetric with a positive diagonal: ready at once"));
        ladder.push(Candidate::new(Cg, Amg, "few iterations, however many unknowns"));
        ladder.push(Candidate::new(Cg, Ic0, "few iterations, whatever the matrix is of"));
        ladder.push(Candidate::new(Minres, Jacobi, "if it is not positive definite"));
    } else {
        ladder.push(Candidate::ready(Minres, Jacobi, "symmetric and not positive definite: ready at once"));
    }
    ladder.push(Candidate::new(BiCgStab, Ilu0, "incomplete factors see more than the diagonal"));
    ladder.push(Candidate::new(Gmres, Ilu0, "no division that can break down"));
    ladder.push(Candidate::new(Gmres, Jacobi, "no factors that can be poor"));
    ladder
}
