//! Candidates for a matrix: methods, each with a preconditioner.

use super::context::Context;
use super::costs::Costs;
use super::{Method, Preconditioner, Profile};
use crate::saved::saved;

/// A configuration that may be run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// The method.
    pub method: Method,
    /// The preconditioner.
    pub preconditioner: Preconditioner,
    /// Why it is in the list.
    pub reason: String,
    /// Its expected costs.
    pub costs: Costs,
}

saved!(impl[] Candidate { method, preconditioner, reason, costs });

/// Expected iterations of the first candidate if most of the diagonal is zero: its preconditioner is nearly useless then. The
/// high number makes a factorization run first. Not measured.
const ITERATIONS_WITH_ZERO_DIAGONAL: f64 = 5000.0;

/// Expected iterations of the first candidate are `ELASTIC * nodes^⅓` if near-null space vectors were given: multigrid then runs first, unless
/// the system is small. A guess on the low side: `elast_bracket_p1_59k` takes 80.
const ELASTIC: f64 = 10.0;

impl Candidate {
    pub(super) fn new(
        method: Method,
        preconditioner: Preconditioner,
        reason: &str,
        context: &Context,
    ) -> Candidate {
        let costs = Costs::of(context, method, preconditioner, None);
        Candidate { method, preconditioner, reason: reason.into(), costs }
    }

    /// Returns whether an elimination ordering determines its cost: for `Cholesky` and `Ldl`, for `Lu` of a symmetric matrix, and for
    /// `Lu` if at least half of the off-diagonal entries are mirrored and at most a tenth of the diagonal is zero. `Ldl` computes
    /// another ordering if it needs a matching; the fill-in is similar then, that of `Lu` may be larger.
    pub(super) fn is_analysable(&self, profile: &Profile) -> bool {
        let alike =
            2 * profile.mirrored >= profile.off_diagonal && 10 * profile.zero_diagonal <= profile.rows;
        match self.preconditioner {
            Preconditioner::Cholesky | Preconditioner::Ldl => true,
            // otherwise an analysed `Ldl` would be compared with an estimate that is too low
            Preconditioner::Lu => alike || profile.is_symmetric(),
            _ => false,
        }
    }

    /// Whether its iterations predict those of other preconditioners.
    pub(super) fn is_measure(&self) -> bool {
        self.preconditioner == Preconditioner::Jacobi && matches!(self.method, Method::Cg | Method::BiCgStab)
    }

    /// Whether it needs a positive definite matrix.
    pub(super) fn needs_definite(&self) -> bool {
        matches!(self.method, Method::Cg | Method::Fcg)
    }
}

/// The candidates for a matrix, with preconditioners for which `has` is true. The first needs hardly any setup: it runs first, as a rule,
/// and its residuals predict the costs of the others.
pub(super) fn candidates(context: &Context, has: impl Fn(Preconditioner) -> bool) -> Vec<Candidate> {
    use Method::*;
    use Preconditioner::*;
    let Context { profile, class, .. } = context;
    let on_gpu = class.is_gpu();
    let mut list: Vec<Candidate> = vec![];
    let mut add = |method, preconditioner, reason: &str| {
        if !has(preconditioner) {
            return;
        }
        let mut one = Candidate::new(method, preconditioner, reason, context);
        if list.is_empty() {
            one.costs.iterations = match profile.has_zero_diagonal() {
                true => ITERATIONS_WITH_ZERO_DIAGONAL,
                false if profile.declared.near_null_space => {
                    ELASTIC * (profile.rows as f64 / profile.block as f64).cbrt()
                }
                false => 0.0,
            };
        }
        list.push(one);
    };
    let positive = profile.has_positive_diagonal();
    if !profile.is_symmetric() {
        add(BiCgStab, Jacobi, "unsymmetric matrix; hardly any setup");
    } else if positive {
        add(Cg, Jacobi, "symmetric matrix with positive diagonal; hardly any setup");
        match profile.is_rough() && !profile.declared.near_null_space {
            true => add(Cg, Amg, "multigrid: many iterations expected, because many row sums are negative"),
            false => add(Cg, Amg, "multigrid: the iterations hardly grow with the unknowns"),
        }
        if !on_gpu {
            add(Cg, Ic0, "incomplete Cholesky: fewer iterations than with Jacobi");
        }
        add(Cg, Fsai, "approximate inverse: fewer iterations than with Jacobi");
        add(Cg, TwoLevel, "Jacobi and a coarse space: fewer iterations than with Jacobi");
        add(Cg, Cholesky, "complete factorization: a direct solve");
        add(Minres, Jacobi, "runs if the matrix proves not to be positive definite");
    } else {
        add(Minres, Jacobi, "symmetric, not positive definite; hardly any setup");
    }
    // for a symmetric matrix these come last
    let general = |reason: &str| match profile.is_symmetric() {
        true => format!("{reason} (does not use the symmetry)"),
        false => reason.to_owned(),
    };
    if profile.saddle.is_some() {
        add(Idr, SaddlePoint, "block preconditioner: the matrix is a saddle point");
    }
    if profile.zero_diagonal == 0 && !on_gpu {
        add(BiCgStab, Ilu0, &general("incomplete LU: fewer iterations than with Jacobi"));
    }
    // coarse matrices of an irregular matrix fill in: with one dense row the setup took half a second, and failed
    if on_gpu && !profile.is_symmetric() && positive && !profile.is_irregular() {
        add(BiCgStab, Amg, "multigrid: few iterations where the diagonal is strong");
    }
    add(BiCgStab, Spai, &general("approximate inverse: fewer iterations than with Jacobi"));
    if on_gpu {
        add(Idr, Spai, &general("approximate inverse, if BiCgStab breaks down"));
    }
    add(Idr, Ilut, &general("threshold ILU after a matching: also for weak or zero diagonals"));
    if profile.is_symmetric() && profile.looks_symmetric() {
        add(Gmres, Ldl, "complete factorization of a symmetric matrix: a direct solve");
    }
    if on_gpu {
        add(Gmres, CuDss, "complete factorization on the GPU: a direct solve");
    }
    add(Gmres, Lu, "complete factorization: a direct solve");
    add(Gmres, None, "fallback: cannot break down");
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Csr;
    use crate::plan::costs::MachineClass;

    #[test]
    fn unsymmetric_irregular_matrices_are_not_solved_with_multigrid_on_a_gpu() {
        let n = 2000;
        let mut entries: Vec<_> =
            (0..n).flat_map(|i| [(i, i, 4.0), (i, (i + 1) % n, -1.0), (i, (i + n - 1) % n, -2.0)]).collect();
        let has_amg = |entries: &[(usize, usize, f64)]| {
            let profile = Profile::of(&Csr::from_triplets(n, n, entries).unwrap());
            let context = Context::of_table(&profile, MachineClass::Gpu { threads: 8 });
            candidates(&context, |_| true).iter().any(|one| one.preconditioner == Preconditioner::Amg)
        };
        assert!(has_amg(&entries));
        entries.extend((2..n - 1).map(|j| (0, j, 1e-3)));
        assert!(!has_amg(&entries));
    }
}
