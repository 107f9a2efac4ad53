//! Which configurations suit a matrix, in the order in which they are tried, and what each is likely to cost.
//!
//! The unit of costs is an iteration of conjugate gradients with Jacobi: a product and the vectors around it. What is counted
//! so does not depend on the machine's speed, nor on what else runs there.

use super::{Method, Preconditioner, Profile};
use crate::saved::saved;

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

saved!(impl[] Candidate { method, preconditioner, reason, setup, iteration, hope });

/// What a direct factorisation of a symmetric matrix takes beside its ordering: some `5.4 n²` operations, as for a mesh in space
/// numbered well, ten times as fast as those of a product, which makes two for each entry.
fn direct(profile: &Profile) -> f64 {
    let (rows, entries) = (profile.rows as f64, profile.entries.max(1) as f64);
    5.4 * rows * rows / (10.0 * 2.0 * entries)
}

/// What a preconditioner takes: to build, to apply, and the iterations to hope for.
///
/// Measured on two threads of a CPU, with stencils and finite elements of 60,000 to 2 million unknowns. `Amg` took 140 to 330
/// to build and 5 to 7 to apply, of blocks 2 to 3; `TwoLevel` 30 to 90 and a half; incomplete factors wait for threads more than
/// for memory. Factors of 3,000 to 60,000 unknowns took 4 to 80 to apply. Pivoting, in an order for columns alone, makes `Lu`
/// three to seventeen times as dear as `Cholesky`.
fn price(preconditioner: Preconditioner, profile: &Profile) -> (f64, f64, f64) {
    // levels of blocks have fewer indices, and numbers of half the size count for more
    let cycle = if profile.block > 1 { 2.5 } else { 5.5 };
    match preconditioner {
        Preconditioner::None => (0.0, 0.0, 5000.0),
        Preconditioner::Jacobi => (2.0, 0.0, 500.0),
        Preconditioner::TwoLevel => (60.0, 0.5, 300.0),
        Preconditioner::Amg => (240.0, cycle, 30.0),
        Preconditioner::Fsai => (150.0, 1.5, 200.0),
        Preconditioner::Spai => (250.0, 1.0, 250.0),
        Preconditioner::Ic0 | Preconditioner::Ilu0 => (80.0, 4.0, 150.0),
        Preconditioner::Ilut => (400.0, 6.0, 60.0),
        Preconditioner::Cholesky => (120.0 + direct(profile), 30.0, 2.0),
        Preconditioner::Lu => (200.0 + 6.0 * direct(profile), 30.0, 4.0),
    }
}

impl Candidate {
    pub(super) fn new(
        method: Method,
        preconditioner: Preconditioner,
        reason: &str,
        profile: &Profile,
    ) -> Candidate {
        let (setup, application, hope) = price(preconditioner, profile);
        // two products and two preconditionings
        let twice = if method == Method::BiCgStab { 2.0 } else { 1.0 };
        let iteration = twice * (1.0 + application);
        Candidate { method, preconditioner, reason: reason.into(), setup, iteration, hope: hope / twice }
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

/// The ladder for a matrix, of the preconditioners that a machine has. The first is ready at once: it is tried, and its residual
/// tells.
pub(super) fn ladder(profile: &Profile, has: impl Fn(Preconditioner) -> bool) -> Vec<Candidate> {
    use Method::*;
    use Preconditioner::*;
    let mut ladder: Vec<Candidate> = vec![];
    let mut rung = |method, preconditioner, reason: &str| {
        let rung = Candidate::new(method, preconditioner, reason, profile);
        let hope = if ladder.is_empty() { 0.0 } else { rung.hope };
        if has(preconditioner) {
            ladder.push(Candidate { hope, ..rung });
        }
    };
    // approximate inverses do for a machine without incomplete factors
    let inverses = !has(Ilu0);
    if !profile.is_symmetric() {
        rung(BiCgStab, Jacobi, "not symmetric: ready at once");
    } else if profile.has_positive_diagonal() {
        rung(Cg, Jacobi, "symmetric with a positive diagonal: ready at once");
        rung(Cg, Amg, "few iterations, however many unknowns");
        rung(Cg, Ic0, "few iterations, whatever the matrix is of");
        if inverses {
            rung(Cg, Fsai, "fewer iterations, and no solves with factors");
        }
        rung(Cg, Cholesky, "direct: no iterations to speak of");
        rung(Minres, Jacobi, "if it is not positive definite");
    } else {
        rung(Minres, Jacobi, "symmetric and not positive definite: ready at once");
    }
    if profile.zero_diagonal == 0 {
        rung(BiCgStab, Ilu0, "incomplete factors see more than the diagonal");
    }
    if inverses {
        rung(BiCgStab, Spai, "an approximate inverse sees more than the diagonal");
        rung(Idr, Spai, "a longer memory where `BiCgStab` breaks down");
    }
    rung(Idr, Ilut, "a matching puts large entries on the diagonal, and factors keep what is large");
    rung(Gmres, Lu, "direct: no iterations to speak of");
    rung(Gmres, None, "neither factors nor divisions that can fail");
    ladder
}
