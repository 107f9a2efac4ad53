//! Which configurations suit a matrix, in the order in which they are tried, and what each is likely to cost.
//!
//! The unit of costs is an iteration of conjugate gradients with Jacobi: a product and the vectors around it. What is counted
//! so does not depend on the machine's speed, nor on what else runs there.

use super::{Method, Preconditioner, Profile};
use crate::Result;
use crate::preconditioners::Symbolic;
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
    /// It takes about this part of the iterations with `Jacobi`, or more: what is hard for that is hard for it, too.
    pub share: f64,
}

saved!(impl[] Candidate { method, preconditioner, reason, setup, iteration, hope, share });

/// What the factor of a symmetric pattern takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    /// Entries of the factor.
    pub(super) entries: f64,
    /// Multiplications.
    pub(super) work: f64,
    /// Dense blocks of it.
    pub(super) fronts: f64,
}

saved!(impl[] Direct { entries, work, fronts });

impl Direct {
    /// Infinite where it would not fit.
    pub(super) fn of(symbolic: &Result<Symbolic>) -> Direct {
        symbolic.as_ref().map_or(
            Direct { entries: f64::INFINITY, work: f64::INFINITY, fronts: 0.0 },
            |known| Direct { entries: known.entries(), work: known.work(), fronts: known.fronts() },
        )
    }

    /// That of a network where rows are short, of a mesh in space where nodes have many neighbours, else of a mesh in the plane
    /// with so many rows. What this one takes is known once it has been ordered.
    fn hoped(profile: &Profile) -> Direct {
        let (rows, entries) = (profile.rows.max(2) as f64, profile.entries as f64);
        let fronts = FRONTS_OF_ROW * rows;
        if profile.is_network() {
            return Direct { entries: 2.0 * entries, work: 6.0 * entries, fronts };
        }
        if entries >= IN_SPACE * rows * profile.block as f64 {
            // what fills in are blocks
            let block = profile.block as f64;
            let work = 0.3 * (block * rows).powi(2);
            return Direct { entries: 3.0 * block * rows.powf(4.0 / 3.0), work, fronts };
        }
        Direct { entries: 4.0 * rows * rows.log2(), work: 18.0 * rows.powf(1.5), fronts }
    }
}

/// What a preconditioner takes: to build, to apply, and the iterations to hope for.
///
/// Measured on two threads of a CPU, with stencils and finite elements of 1,000 to 2 million unknowns. `Amg` took 100 to 280
/// to build and 3 to 6 to apply, more of a few thousand rows; `TwoLevel` 30 to 90 and a half; incomplete factors wait for threads
/// more than for memory. What factors without gaps take follows from their entries and multiplications.
fn price(preconditioner: Preconditioner, profile: &Profile, direct: Option<Direct>) -> (f64, f64, f64) {
    let iteration = iteration(profile);
    // how things move rigidly is not known
    let cycles = if profile.block > 1 { 60.0 } else { 18.0 };
    let Direct { entries, work, fronts } = direct.unwrap_or_else(|| Direct::hoped(profile));
    let length = profile.entries as f64 / profile.rows.max(1) as f64;
    let find = ORDER * profile.entries as f64 / iteration;
    // once it is known it costs nothing
    let order = if direct.is_some() { 0.0 } else { find };
    let [entries, work, fronts] = [entries, work, fronts].map(|count| count / iteration);
    match preconditioner {
        Preconditioner::None => (0.0, 0.0, 5000.0),
        Preconditioner::Jacobi => (2.0, 0.0, 150.0),
        Preconditioner::TwoLevel => (60.0, 0.5, 300.0),
        // the shorter rows are, the less an iteration takes beside it
        Preconditioner::Amg => (80.0 + 700.0 / length + COARSE / iteration, 4.5, cycles),
        Preconditioner::Fsai => (150.0, 1.5, 200.0),
        Preconditioner::Spai => (250.0, 1.0, 250.0),
        Preconditioner::Ic0 => (100.0, 2.0, 150.0),
        Preconditioner::Ilu0 => (80.0 + 3.5 * length, 1.2 + 0.06 * length, 120.0),
        // each entry takes a row of what is kept
        Preconditioner::Ilut => {
            let kept = (70.0 * length).max(600.0);
            let hope = match profile.is_hollow() {
                true => 50.0,
                false if profile.is_unmatched() => UNMATCHED,
                false => 20.0,
            };
            (kept * profile.entries as f64 / iteration, 4.0, hope)
        }
        Preconditioner::Cholesky => {
            (order + 10.0 * entries + 0.3 * work, 3.0 + 6.0 * entries + FRONT * fronts, 1.0)
        }
        // after a matching and an order of its own it eliminates on both sides, where entries come up one by one
        Preconditioner::Lu => (2.0 * find + 150.0 * entries + 4.0 * work, 3.0 + 12.0 * entries, 1.0),
    }
}

/// The iterations over `Ilut` where most of the entries off the diagonal are mirrored and the diagonal is often zero: a matching
/// takes such a pattern apart, factors fill up, and what they leave out matters.
const UNMATCHED: f64 = 500.0;

impl Profile {
    /// Whether the matrix is that of a network, a tree or a plant rather than of a mesh: rows are short, or entries stand alone.
    fn is_network(&self) -> bool {
        (self.entries as f64) < NETWORK * self.rows.max(2) as f64 || 2 * self.mirrored < self.off_diagonal
    }

    /// Whether the diagonal says next to nothing: most of it is zero, and no symmetry makes up for that.
    fn is_hollow(&self) -> bool {
        2 * self.zero_diagonal > self.rows && !self.is_symmetric()
    }

    fn is_unmatched(&self) -> bool {
        2 * self.mirrored >= self.off_diagonal && 10 * self.zero_diagonal >= 3 * self.rows
    }
}

/// What an iteration counts for, in multiplications by entries: it goes over the entries once, and over some vectors.
fn iteration(profile: &Profile) -> f64 {
    (profile.entries + 8 * profile.rows).max(1) as f64
}

/// The iterations with Jacobi where the diagonal says nothing: then factors come first.
const HOLLOW: f64 = 5000.0;

/// What a multiplication of `Lu` takes at most, where numbers are chosen as they come, beside those of an iteration.
const ONE_BY_ONE: f64 = 5.0;

/// What applying `Cholesky` takes for each front, and how many there are for a row, in the mean.
const FRONT: f64 = 250.0;
const FRONTS_OF_ROW: f64 = 0.25;

/// `Lu` is halted at so many times what was foretold, or what another rung would cost, and then foretold to take as much again.
const GIVEN_UP: f64 = 3.0;

/// Rows of less entries than this, in the mean, are those of networks and trees, whose factors have few entries more; the
/// coarsest mesh in the plane has five.
const NETWORK: f64 = 4.8;

/// Products of an iteration, and preconditionings.
fn products(method: Method) -> f64 {
    if method == Method::BiCgStab { 2.0 } else { 1.0 }
}

/// Rows of so many entries for each unknown of a node, in the mean, are those of meshes in space: triangles have seven,
/// tetrahedra fourteen.
const IN_SPACE: f64 = 12.0;

/// How much more than the share of iterations with `Jacobi` it may be.
const VARIED: f64 = 2.0;

/// What sees more than the diagonal takes at most this part of the iterations with `Jacobi`.
const FEWER: f64 = 0.5;

/// As `FEWER`, of what keeps all that is not small.
const FEWEST: f64 = 0.15;

/// What the coarse levels of `Amg` take, of which there are as many for few rows.
const COARSE: f64 = 5e6;

/// What `Amg` on a GPU waits for launches, counted in multiplications: in its setup, and in a cycle. `LAUNCH` is what an iteration with
/// Jacobi waits. On an H200 these are 3 ms, 60 µs and 4 µs, and 10⁶ multiplications take 3.4 µs (`p7_64` to `p7_256`,
/// `elast_bracket_p1_59k`, `hypre_beam_tet`). So small systems are left to Jacobi, whose iterations share one launch.
const LAUNCHES: [f64; 2] = [9e8, 1.8e7];
const LAUNCH: f64 = 1.2e6;

/// What it takes to find an order of elimination, in multiplications for each entry.
const ORDER: f64 = 200.0;

impl Candidate {
    pub(super) fn new(
        method: Method,
        preconditioner: Preconditioner,
        reason: &str,
        profile: &Profile,
    ) -> Candidate {
        let share = match preconditioner {
            Preconditioner::Jacobi => 1.0,
            Preconditioner::Ilu0 if !profile.is_symmetric() => 0.15,
            Preconditioner::Ic0 | Preconditioner::Ilu0 => 0.3,
            Preconditioner::Fsai => 0.4,
            // it does not know how things move rigidly; 0.08 to 0.35 were measured, the least where there are most rows
            Preconditioner::Amg if profile.block > 1 => 0.1,
            _ => 0.0,
        };
        let reason = reason.into();
        Candidate { method, preconditioner, reason, setup: 0.0, iteration: 0.0, hope: 0.0, share }
            .weighed(profile, None)
    }

    /// With what a factor takes, where that is known.
    pub(super) fn weighed(self, profile: &Profile, direct: Option<Direct>) -> Candidate {
        let (setup, application, hope) = price(self.preconditioner, profile, direct);
        let twice = products(self.method);
        let iteration = twice * (1.0 + application);
        Candidate { setup, iteration, hope: hope / twice, ..self }
    }

    /// `Amg` on a GPU, where launches are counted.
    fn launched(self, profile: &Profile) -> Candidate {
        let [setup, cycle] = LAUNCHES.map(|launches| launches / (iteration(profile) + LAUNCH));
        let iteration = self.iteration + products(self.method) * cycle;
        Candidate { setup: self.setup + setup, iteration, ..self }
    }

    /// What a solve is likely to cost, without building, if all iterations of `Cg` with `Jacobi` would cost `plain`; zero where only a
    /// trial tells.
    pub(super) fn solve(&self, plain: f64) -> f64 {
        let iterations = plain / products(self.method);
        let least = self.share * iterations;
        let most = match self.preconditioner {
            // of other matrices the iterations with Jacobi are foretold less well
            _ if least > 0.0 && self.needs_definite() => VARIED * least,
            Preconditioner::None | Preconditioner::Jacobi => f64::INFINITY,
            Preconditioner::Ilut if plain > 0.0 => FEWEST * iterations,
            _ if plain > 0.0 => FEWER * iterations,
            _ => f64::INFINITY,
        };
        self.hope.min(most).max(least) * self.iteration
    }

    /// Whether what it takes can be known from an order of elimination: of a pattern that is nearly symmetric.
    pub(super) fn is_direct(&self, profile: &Profile) -> bool {
        let alike =
            2 * profile.mirrored >= profile.off_diagonal && 10 * profile.zero_diagonal <= profile.rows;
        match self.preconditioner {
            Preconditioner::Cholesky => true,
            Preconditioner::Lu => alike,
            _ => false,
        }
    }

    /// What is spent on `Lu` before it is halted, where another rung costs so much in each of so many solves.
    pub(super) fn patience(&self, other: f64, solves: f64) -> f64 {
        (GIVEN_UP * self.setup.max(other)).max(solves * other)
    }

    /// The multiplications of `Lu` that cost so much.
    pub(super) fn multiplications(cost: f64, profile: &Profile) -> f64 {
        cost * iteration(profile) / ONE_BY_ONE
    }

    /// Whether the iterations that it needs say how many others need.
    pub(super) fn is_measure(&self) -> bool {
        self.preconditioner == Preconditioner::Jacobi && matches!(self.method, Method::Cg | Method::BiCgStab)
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
    // approximate inverses do for a machine without incomplete factors: a GPU
    let inverses = !has(Ilu0);
    let mut rung = |method, preconditioner, reason: &str| {
        let rung = Candidate::new(method, preconditioner, reason, profile);
        let rung = if inverses && preconditioner == Amg { rung.launched(profile) } else { rung };
        let hope = match ladder.is_empty() {
            true if profile.is_hollow() => HOLLOW,
            true => 0.0,
            false => rung.hope,
        };
        if has(preconditioner) {
            ladder.push(Candidate { hope, ..rung });
        }
    };
    if !profile.is_symmetric() {
        rung(BiCgStab, Jacobi, "unsymmetric matrix; needs no setup");
    } else if profile.has_positive_diagonal() {
        rung(Cg, Jacobi, "symmetric matrix with positive diagonal; needs no setup");
        rung(Cg, Amg, "multigrid: the iterations hardly grow with the unknowns");
        rung(Cg, Ic0, "incomplete Cholesky: fewer iterations than with Jacobi");
        if inverses {
            rung(Cg, Fsai, "approximate inverse: fewer iterations than with Jacobi");
        }
        rung(Cg, Cholesky, "complete factorization: a direct solve");
        rung(Minres, Jacobi, "if the matrix is not positive definite");
    } else {
        rung(Minres, Jacobi, "symmetric, not positive definite; needs no setup");
    }
    if profile.zero_diagonal == 0 {
        rung(BiCgStab, Ilu0, "incomplete LU: fewer iterations than with Jacobi");
    }
    if inverses && !profile.is_symmetric() && profile.has_positive_diagonal() {
        rung(BiCgStab, Amg, "multigrid: few iterations where the diagonal is strong");
    }
    if inverses {
        rung(BiCgStab, Spai, "approximate inverse: fewer iterations than with Jacobi");
        rung(Idr, Spai, "approximate inverse, if BiCgStab breaks down");
    }
    rung(Idr, Ilut, "threshold ILU after a matching: for weak or zero diagonals");
    rung(Gmres, Lu, "complete factorization: a direct solve");
    rung(Gmres, None, "last resort: cannot break down");
    ladder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Csr;
    use crate::testing::matrices;

    #[test]
    fn what_is_slow_with_jacobi_is_slow_with_its_kin() {
        let profile = Profile::of(&matrices::stencil7(5).csr::<f64>().unwrap());
        let of = |preconditioner| Candidate::new(Method::Cg, preconditioner, "", &profile);
        let ic0 = of(Preconditioner::Ic0);
        // unknown, few and many iterations with Jacobi
        assert_eq!(ic0.solve(0.0), ic0.hope * ic0.iteration);
        assert!(ic0.solve(30.0) < 30.0 * ic0.iteration);
        assert!(ic0.solve(10_000.0) >= 3000.0 * ic0.iteration);
        // levels of a scalar problem depend on nothing of the kind
        let amg = of(Preconditioner::Amg);
        assert_eq!(amg.solve(10_000.0), amg.solve(0.0));
        // what is easy with Jacobi is as easy with more
        assert_eq!(amg.solve(24.0), 12.0 * amg.iteration);
        let unsymmetric = Candidate::new(Method::BiCgStab, Preconditioner::None, "", &profile);
        assert_eq!(unsymmetric.solve(24.0), unsymmetric.hope * unsymmetric.iteration);
        // the less, the more is kept
        let kept = Candidate::new(Method::Idr, Preconditioner::Ilut, "", &profile);
        assert_eq!(kept.solve(24.0), FEWEST * 24.0 * kept.iteration);
    }

    #[test]
    fn launches_count_where_systems_are_small() {
        let amg = |n: usize, on_gpu: bool| {
            let profile = Profile::of(&matrices::stencil7(n).csr::<f64>().unwrap());
            let has = |one| one != Preconditioner::Ilu0 || !on_gpu;
            let found =
                ladder(&profile, has).into_iter().find(|one| one.preconditioner == Preconditioner::Amg);
            found.map(|one| (one.setup, one.iteration)).unwrap()
        };
        let [(setup, iteration), (on_gpu, launched)] = [amg(10, false), amg(10, true)];
        assert!(on_gpu > 2.0 * setup && launched > 3.0 * iteration);
        let [(setup, iteration), (on_gpu, launched)] = [amg(80, false), amg(80, true)];
        assert!(on_gpu < 2.0 * setup && launched < 1.5 * iteration);
    }

    #[test]
    fn factors_with_gaps_come_after_those_without_where_the_diagonal_is_zero() {
        let profile = |diagonal: f64| {
            // a square of 30 x 30 points
            let neighbours = |k: usize| {
                let right = (k % 30 < 29).then_some((k, k + 1, 1.0));
                right.into_iter().chain((k < 870).then_some((k, k + 30, 1.0)))
            };
            let pairs =
                (0..900).flat_map(neighbours).flat_map(|(i, j, value)| [(i, j, value), (j, i, value)]);
            let entries: Vec<_> = (0..900).map(|i| (i, i, diagonal)).chain(pairs).collect();
            Profile::of(&Csr::from_triplets(900, 900, &entries).unwrap())
        };
        let price = |preconditioner, profile: &Profile| {
            let candidate = Candidate::new(Method::Gmres, preconditioner, "", profile);
            candidate.setup + candidate.solve(0.0)
        };
        let [zero, four] = [0.0, 4.0].map(profile);
        assert!(price(Preconditioner::Ilut, &zero) > price(Preconditioner::Lu, &zero));
        assert!(price(Preconditioner::Ilut, &four) < price(Preconditioner::Ilut, &zero));
    }

    #[test]
    fn an_order_of_elimination_costs_until_it_is_known() {
        let profile = Profile::of(&matrices::stencil7(12).csr::<f64>().unwrap());
        let direct = Direct::hoped(&profile);
        let hoped = Candidate::new(Method::Cg, Preconditioner::Cholesky, "", &profile);
        let known = hoped.clone().weighed(&profile, Some(direct));
        let order = ORDER * profile.entries as f64 / iteration(&profile);
        assert!(order > 50.0 && (hoped.setup - known.setup - order).abs() < 1e-9, "{order}");
    }
}
