//! Which configurations suit a matrix, in the order in which they are tried.

use super::{Method, Preconditioner, Profile};

/// A configuration that may be tried.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// The method.
    pub method: Method,
    /// The preconditioner.
    pub preconditioner: Preconditioner,
    /// Why it is there.
    pub reason: String,
    /// What it takes to build, in products with the matrix.
    pub setup: f64,
    /// What an iteration takes, in products with the matrix.
    pub iteration: f64,
}

/// What preconditioners take to build and to apply, in products with the matrix on a CPU.
pub(super) fn prices(preconditioner: Preconditioner) -> [f64; 2] {
    match preconditioner {
        Preconditioner::None => [0.0, 0.0],
        Preconditioner::Jacobi => [2.0, 0.1],
        Preconditioner::TwoLevel => [60.0, 0.5],
        Preconditioner::Amg => [200.0, 5.0],
        Preconditioner::Fsai => [150.0, 1.5],
        Preconditioner::Spai => [600.0, 1.0],
        Preconditioner::Ic0 | Preconditioner::Ilu0 => [60.0, 4.0],
    }
}

/// Products of an iteration.
fn products(method: Method) -> f64 {
    match method {
        Method::BiCgStab => 2.0,
        _ => 1.0,
    }
}

impl Candidate {
    pub(super) fn new(method: Method, preconditioner: Preconditioner, reason: &str) -> Candidate {
        let [setup, application] = prices(preconditioner);
        let iteration = products(method) * (1.0 + application);
        Candidate { method, preconditioner, reason: reason.into(), setup, iteration }
    }
}

/// The ladder for a matrix.
pub(super) fn ladder(profile: &Profile) -> Vec<Candidate> {
    use Method::*;
    use Preconditioner::*;
    let mut ladder = vec![];
    let mut rung = |method, preconditioner, reason: &str| {
        ladder.push(Candidate::new(method, preconditioner, reason));
    };
    if profile.is_symmetric() {
        if profile.has_positive_diagonal() {
            rung(Cg, Jacobi, "symmetric with a positive diagonal: ready at once");
            rung(Cg, Amg, "few iterations, however many unknowns");
            rung(Cg, Ic0, "few iterations, whatever the matrix is of");
        }
        rung(Minres, Jacobi, "symmetric, definite or not");
    } else {
        rung(BiCgStab, Jacobi, "not symmetric: ready at once");
    }
    rung(BiCgStab, Ilu0, "incomplete factors see more than the diagonal");
    rung(Gmres, Ilu0, "no division that can break down");
    rung(Gmres, Jacobi, "no division that can break down, and no factors either");
    ladder
}
