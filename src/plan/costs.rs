//! Cost model of preconditioners and methods, as one table.
//!
//! Work is counted in [`WorkUnits`], not in seconds, so that decisions are the same from run to run, whatever else the machine does. The
//! figures of the table (`line_of`) were fitted on two threads of a CPU (`cargo bench --bench plan -- --explain`, matrices of finite elements,
//! stencils and circuits with 1,000 to 2 million unknowns). For GPUs and other numbers of threads the figures are scaled: work on one
//! thread costs more units on machines where the iteration that defines the unit is faster.

mod cudss;
mod factorization;
mod kinds;
mod machine;
mod threads;

use super::context::Context;
use super::running::RESTART;
use super::{Candidate, Method, Preconditioner, Profile, WorkUnits};
use crate::preconditioners::{SaddleEstimate, lu_by_fronts};
use crate::saved::saved;
pub(super) use cudss::check_time;
use factorization::{DISSECTION, MATCHING};
pub(super) use factorization::{Factorization, SharedSymbolic, ordering};
pub use machine::MachineClass;
use threads::Threads::{self, Alike, One, Partly};

/// Estimated costs of one configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Costs {
    /// Work to build the preconditioner.
    pub setup: WorkUnits,
    /// Work to renew a built preconditioner for new values of the matrix.
    pub refresh: WorkUnits,
    /// Work of one iteration.
    pub iteration: WorkUnits,
    /// Iterations expected if nothing is known about this matrix.
    pub iterations: f64,
    /// Lower bound of the iterations, as a fraction of those with Jacobi: what is hard for Jacobi is hard for this preconditioner, too.
    pub share_of_jacobi: f64,
}

saved!(impl[] Costs { setup, refresh, iteration, iterations, share_of_jacobi });

/// Variables of the formulas in the table.
struct Shape<'p> {
    profile: &'p Profile,
    class: MachineClass,
    /// Mean entries in a row.
    length: f64,
    /// One multiply-add per row of the matrix, in units.
    rows: f64,
    /// Multiply-adds that take as long as one unit: one pass over the entries and over eight vectors.
    unit: f64,
    /// Whether the finest prolongator of `Amg` is smoothed, and the factor by which that increases the setup on the host.
    smoothed: bool,
    smoothing: f64,
    /// Index into figures of the table: 1 if the matrix is symmetric, else 0.
    symmetric: usize,
    /// Index into figures of the table: 1 if the matrix is taken for that of a mesh, 0 for that of a network.
    mesh: usize,
    /// Costs of the block preconditioner of a saddle point system, in units.
    saddle: SaddleEstimate,
    /// Cost of the complete factorization, and the work to compute its ordering (none for `Cholesky` if it is known), both in units.
    factor: Factorization,
    ordering: f64,
}

impl Shape<'_> {
    /// Σ `length^power` over the rows, in units.
    fn lengths(&self, power: i32) -> f64 {
        self.profile.sum_of_lengths(power) / self.unit
    }
}

/// One line of the table, for two threads of a CPU. Formulas return work units.
struct Line {
    setup: fn(&Shape<'_>) -> f64,
    /// Work of a refresh as a fraction of the setup, which for `Cholesky` and `CuDss` is counted without the ordering.
    refresh: f64,
    /// Work of one application, in addition to the one unit of the iteration.
    application: fn(&Shape<'_>) -> f64,
    iterations: fn(&Shape<'_>) -> f64,
    /// Scaling of setup and application with the number of threads.
    threads: [Threads; 2],
}

/// The table, fitted on 30 matrices of `../shared/matrices` on two threads of an AMD EPYC. Measured: `Amg` took 40 to 100 units to build and
/// 1.5 to 4.5 to apply (more for a few thousand rows; `heat_sink_p1_27k`, `wathenSmall`, `bcsstk16`, `elast_bracket_p1_59k`, `p7_64`),
/// `TwoLevel` 30 to 90 and 0.5, `Ilu0` 28 to 118 and 0.3 to 3, complete factorizations mostly 0.6 to 1.5 times their lines. A refresh of
/// `Amg` took half of its setup, one of `Cholesky` all of it but the ordering. Complete factorizations of 25 matrices were fitted again on a
/// Xeon, with the time of each row: 240 ns for `Cholesky`, 750 for `Ldl`.
fn line_of(preconditioner: Preconditioner) -> Line {
    match preconditioner {
        Preconditioner::None => line(|_| 0.0, 1.0, |_| 0.0, |_| 5000.0, [Alike, Alike]),
        Preconditioner::Jacobi => line(|_| 2.0, 1.0, |_| 0.0, |_| 150.0, [Alike, Alike]),
        Preconditioner::TwoLevel => line(|_| 60.0, 0.8, |_| 0.5, |_| 300.0, [Partly, Alike]),
        // with short rows the iteration is cheap relative to the setup; coarse levels take COARSE multiply-adds
        Preconditioner::Amg => line(
            |s| s.smoothing * (40.0 + 400.0 / s.length + COARSE / s.unit),
            0.6,
            |s| 1.2 + 20.0 / s.length,
            |s| match (s.profile.declared.near_null_space, s.profile.is_rough(), s.profile.block > 1) {
                (true, ..) => 25.0,
                (_, true, _) => 500.0,
                (_, _, true) => 60.0,
                _ if s.smoothed => 13.0,
                _ => 18.0,
            },
            [Partly, Alike],
        ),
        Preconditioner::Fsai => line(|s| 150.0 + 0.3 * s.lengths(3), 0.9, |_| 1.5, |_| 200.0, [Alike, Alike]),
        Preconditioner::Spai => line(
            |s| 250.0 + 3.0 * s.lengths(3),
            0.9,
            |_| 1.0,
            |s| match (s.symmetric, s.class) {
                (1, _) => SPAI[2],
                (_, MachineClass::Gpu { .. }) => SPAI[0],
                _ => SPAI[1],
            },
            [Alike, Alike],
        ),
        Preconditioner::Ic0 => line(|s| 60.0 + 7.0 * s.length, 0.7, |_| 2.0, |_| 150.0, [Partly, Partly]),
        Preconditioner::Ilu0 => line(
            // each entry below the diagonal subtracts a row from another one
            |s| 50.0 + 3.0 * s.lengths(2),
            0.7,
            |s| 0.4 + 0.1 * s.length,
            |s| ILU0[s.symmetric],
            [Partly, Partly],
        ),
        // each entry of the matrix costs one pass over a row of kept entries
        Preconditioner::Ilut => line(
            |s| KEPT[s.mesh] * s.length.max(7.5) * s.profile.entries as f64 / s.unit,
            1.0,
            |s| [2.0, 4.0][s.mesh],
            |s| s.profile.ilut_iterations(),
            [One, Partly],
        ),
        Preconditioner::Cholesky => line(
            |s| s.ordering + 480.0 * s.rows + 7.0 * s.factor.entries + 0.2 * s.factor.multiplications,
            1.0,
            |s| 125.0 * s.rows + 2.1 * s.factor.entries + FRONT * s.factor.fronts,
            |_| 1.0,
            [Alike, Alike],
        ),
        // one triangle, as for `Cholesky`, but with a search for pivots
        Preconditioner::Ldl => line(
            |s| s.ordering + 1500.0 * s.rows + 15.0 * s.factor.entries + DENSE * s.factor.multiplications,
            1.0,
            |s| 170.0 * s.rows + 3.1 * s.factor.entries + FRONT * s.factor.fronts,
            |_| 1.0,
            [Alike, Alike],
        ),
        // a column ordering, and rarely a matching, then scalar updates of both triangles
        Preconditioner::Lu => line(
            |s| s.ordering + 32.0 * s.factor.entries + 0.85 * s.factor.multiplications,
            1.0,
            |s| APPLIED[0] * s.rows + 2.0 * APPLIED[1] * s.factor.entries,
            |_| 1.0,
            [One, One],
        ),
        // the vector operations of `Idr` are included; a guess from iterations that took 2 to 11 times as long as those of `Minres` with Jacobi
        // (median 4.6, nine systems of 12,000 to 32,000 rows)
        Preconditioner::SaddlePoint => line(
            |s| s.saddle.setup,
            0.9,
            |s| 3.0 + 2.0 * s.saddle.application,
            |s| s.saddle.iterations,
            [Partly, Partly],
        ),
        Preconditioner::CuDss => cudss::LINE,
    }
}

impl Line {
    /// Costs of setup and application on a machine, from those on two threads of a CPU.
    fn on(
        &self,
        preconditioner: Preconditioner,
        class: MachineClass,
        [rows, unit]: [f64; 2],
        [setup, application]: [f64; 2],
    ) -> [f64; 2] {
        let levels = levels(rows);
        let by_host = [
            setup * class.of_setup(self.threads[0], unit),
            application * class.of_application(self.threads[1], unit),
        ];
        if !class.is_gpu() {
            return by_host;
        }
        let on_gpu = [setup, application];
        // `more`: multiply-adds that take as long as kernel launches, or as copies to and from the host
        let ([setup, application], more) = match preconditioner {
            Preconditioner::Amg => (on_gpu, LAUNCHES.map(|launches| launches * levels)),
            Preconditioner::CuDss => (on_gpu, cudss::FIXED),
            Preconditioner::Jacobi => ([by_host[0], 0.0], [COPIES, 0.0]),
            // the host computes the coarse matrix
            Preconditioner::TwoLevel => ([by_host[0], application], [0.0; 2]),
            one if one.needs_host() => (by_host, [0.0, COPIES]),
            _ => (on_gpu, [0.0; 2]),
        };
        [setup + more[0] / (unit + LAUNCH), application + more[1] / (unit + LAUNCH)]
    }
}

const fn line(
    setup: fn(&Shape<'_>) -> f64,
    refresh: f64,
    application: fn(&Shape<'_>) -> f64,
    iterations: fn(&Shape<'_>) -> f64,
    threads: [Threads; 2],
) -> Line {
    Line { setup, refresh, application, iterations, threads }
}

/// Multiply-adds of the setup of the coarse levels of `Amg`; about the same for matrices with few rows.
const COARSE: f64 = 3e6;

/// Multiply-adds per front to apply `Cholesky` or `Ldl`. An application of `Cholesky` took 63 ns per row,
/// 1.1 ns per entry and 110 ns per front, one of `Ldl` 86, 1.6 and 81 ns, and one of `Lu` 16 ns per row and 1.3 ns per entry (each within a
/// third, 10 to 28 matrices of 500 to 20,000 rows, one thread of an AMD EPYC). Times are divided by 0.5 ns; a multiply-add of an
/// iteration takes 0.25 to 0.9 ns, most for few rows. One value serves both, although `Ldl` alone would have 160.
const FRONT: f64 = 220.0;

/// Multiply-adds to apply `Lu` or `Ilut`: per row, and per entry of both triangles. `Ilut` also permutes and scales vectors, and runs under
/// `Idr`, whose vector operations count for it.
const APPLIED: [f64; 2] = [33.0, 2.7];

/// Work to build multifrontal `Lu` divided by that of `Ldl`, which computes one triangle: 1.1 to 1.6 on matrices that have both.
const TRIANGLES: f64 = 1.2;

/// Time of a multiplication, with its scattered reads, divided by that of a multiply-add of an iteration: an upper bound for `Lu`, and for
/// `Ilut` (14 on `maxwell_cavity_n1_97k`, a mesh of edge elements, and on `teko_szd`).
const SCATTERED: [f64; 2] = [5.0, 14.0];

/// Time of a multiplication in the fronts of `Ldl`, divided in the same way: fitted with the table.
const DENSE: f64 = 0.4;

/// Multiply-adds that take as long as kernel launches on a GPU. `LAUNCH`: those of an iteration with Jacobi, 4 µs on an H200, where 10⁶
/// multiply-adds take 3.4 µs. `LAUNCHES`: those of a setup of `Amg` and of its cycle, for each [level](levels): 0.3 ms and 10 µs
/// (37 matrices of 494 to 1.6 million rows on an H200; most within a factor of 2, but for `memplus` and `cage10`, whose coarse levels are
/// nearly dense: 27 and 14 ms instead of 2.3).
const LAUNCHES: [f64; 2] = [9e7, 2.8e6];
const LAUNCH: f64 = 1.2e6;

/// Number of levels of `Amg`, up to a factor: each has a fraction of the rows of the one before.
fn levels(rows: f64) -> f64 {
    (rows / 100.0).ln().max(0.5)
}

/// Multiply-adds of a GPU that take as long as copying two vectors. A guess: 30 µs.
const COPIES: f64 = 1e7;

/// Upper bound of the iterations of CG, as a multiple of the lower bound by `share_of_jacobi`.
const VARIED: f64 = 2.0;

/// Upper bounds of the iterations as fractions of those with Jacobi: for preconditioners that use more than the diagonal, and for
/// threshold ILU, which drops only small entries.
const FEWER: f64 = 0.5;
const FEWEST: f64 = 0.15;

/// Iterations with Jacobi at which those with `Amg` are as in the table. With fewer, they are proportional to `√Jacobi`. Measured
/// `Amg / √Jacobi`: 0.8 to 1.6 on 20 scalar systems with 16 to 560 iterations of Jacobi; 0.6 to 1.1 with smoothing.
const TYPICAL: f64 = 190.0;

/// Setup time of `Amg` on the host with a smoothed finest prolongator divided by that without: 1.5 to 2.5 (heat sinks, `p7_64`). The
/// times of an iteration differ by at most a fifth.
const SMOOTHING: f64 = 1.8;

/// Number of solves from which on a smoothed finest prolongator is worth its setup; 2 to 14 were measured. And that on at least
/// `MANY_THREADS`, where the setup takes 1.4 times as long, and two solves make up for it (`heat_sink_transient_80k`, 16 threads).
pub(super) const MANY_SOLVES: usize = 10;
const MANY_SOLVES_ON_MANY_THREADS: usize = 5;
const MANY_THREADS: usize = 8;

/// Iterations of `Ilu0` with one product each: for unsymmetric matrices; and for symmetric ones, which run it only if they are not positive
/// definite. There it is refused, fails or takes hundreds of iterations, unless `Minres` takes few (all of 15 matrices of
/// `../shared/matrices`), and fails on a Maxwell problem, too. The number is high so that a complete factorization comes first, unless it
/// is very expensive.
const ILU0: [f64; 2] = [80.0, 5000.0];

/// Multiply-adds to build `Ilut`, per entry of the matrix and entry kept in a row: for networks and for meshes. Measured on a Xeon: on
/// 26 networks 18 to 170 (median 56; 400 and 2,400 on random graphs), on 27 unsymmetric meshes 15 to 1,340 (median 217; 600 and more for
/// convection with central differences), on 69 symmetric ones 3 to 730 (median 103; 900 to 1,630 for a biharmonic problem, power-law graphs
/// and edge elements).
const KEPT: [f64; 2] = [50.0, 200.0];

/// Iterations of BiCGStab with `Spai`: on a GPU; on a host, high because incomplete factorizations, nearly always faster, come first; and
/// for symmetric matrices, which run it only if they are not positive definite and where it fails on the systems described at `ILUT` in `kinds.rs`.
const SPAI: [f64; 3] = [250.0, 1000.0, 5000.0];

/// Costs of `SaddlePoint` for a matrix that is no saddle point: prohibitively high.
const NO_SADDLE: SaddleEstimate = SaddleEstimate { setup: 1e4, application: 10.0, iterations: 1000.0 };

/// Number of matrix-vector products per iteration, and of applications of the preconditioner.
fn products(method: Method) -> f64 {
    if method == Method::BiCgStab { 2.0 } else { 1.0 }
}

/// Multiply-adds per row of the matrix to orthogonalize the basis, per iteration: an inner product and an update with half of the restart
/// length of vectors, in the mean. 53 was measured in the median of 55 matrices.
fn orthogonalization(method: Method, iterations: f64) -> f64 {
    match method {
        Method::Gmres | Method::Fgmres => iterations.min(RESTART as f64),
        _ => 0.0,
    }
}

/// Multiply-adds that take as long as one work unit.
pub(super) fn unit(profile: &Profile) -> f64 {
    (profile.entries + 8 * profile.rows).max(1) as f64
}

/// Whether `Lu` is multifrontal, which requires a nearly symmetric pattern, instead of eliminating column by column.
fn lu_takes_fronts(profile: &Profile, factor: Factorization) -> bool {
    2 * profile.mirrored >= profile.off_diagonal
        && lu_by_fronts(profile.rows, factor.entries, 2.0 * factor.multiplications)
}

/// Multiplications of `Ldl`, `Lu` or `Ilut` that cost this much work of `class`. All threads factorize fronts, otherwise one does.
pub(super) fn multiplications(
    of: Preconditioner,
    work: WorkUnits,
    profile: &Profile,
    factorization: Option<Factorization>,
    class: MachineClass,
) -> f64 {
    let factor = factorization.unwrap_or_else(|| Factorization::estimate(profile));
    let by_fronts = of == Preconditioner::Ldl || of == Preconditioner::Lu && lu_takes_fronts(profile, factor);
    let scattered = match of {
        Preconditioner::Ldl => DENSE,
        Preconditioner::Ilut => SCATTERED[1],
        _ => SCATTERED[0],
    };
    let unit = unit(profile);
    work.0 / class.of_setup(if by_fronts { Alike } else { One }, unit) * unit / scattered
}

/// Converts work of one thread of the host, in units of two threads, to units of `class`.
pub(super) fn by_host(work: WorkUnits, profile: &Profile, class: MachineClass) -> WorkUnits {
    work * class.of_setup(One, unit(profile))
}

impl Costs {
    /// The costs of a configuration. `factorization` is the cost of a complete factorization, if its ordering has been computed.
    pub(super) fn of(
        context: &Context,
        method: Method,
        preconditioner: Preconditioner,
        factorization: Option<Factorization>,
    ) -> Costs {
        let Context { profile, class, factors } = context;
        let (class, factors) = (*class, factors(preconditioner));
        let scalar = profile.block == 1 && !profile.declared.near_null_space;
        let smoothed = scalar && profile.smooths_finest(class, 0);
        let unit = unit(profile);
        let factor = factorization.unwrap_or_else(|| Factorization::estimate(profile));
        // multifrontal `Lu` is built like `Ldl`, and applied like it
        let by_fronts = preconditioner == Preconditioner::Lu && lu_takes_fronts(profile, factor);
        let (row, triangles) =
            if by_fronts { (Preconditioner::Ldl, TRIANGLES) } else { (preconditioner, 1.0) };
        let (line, built) = (line_of(preconditioner), line_of(row));
        // one thread computes it, while the rest of the setup may run on all threads
        let find = ordering(profile).0 * class.of_setup(One, unit) / class.of_setup(built.threads[0], unit);
        let dissection = if factor.dissects { DISSECTION * profile.entries as f64 / unit } else { 0.0 };
        let ordering = match (preconditioner, factorization) {
            // a matching, and another ordering
            (Preconditioner::Lu | Preconditioner::Ldl, _) if profile.takes_matching() => {
                MATCHING * find + dissection
            }
            (Preconditioner::CuDss, _) => cudss::ANALYSIS * profile.rows as f64 / unit,
            (_, Some(_)) => dissection,
            (_, None) => find + dissection,
        };
        let shape = Shape {
            profile,
            class,
            length: profile.entries as f64 / profile.rows.max(1) as f64,
            rows: profile.rows as f64 / unit,
            unit,
            smoothed,
            smoothing: if smoothed && !class.is_gpu() { SMOOTHING } else { 1.0 },
            symmetric: usize::from(profile.is_symmetric()),
            mesh: usize::from(!profile.is_network()),
            saddle: profile.saddle.map_or(NO_SADDLE, |SaddleEstimate { setup, application, iterations }| {
                SaddleEstimate { setup: setup / unit, application: application / unit, iterations }
            }),
            factor: Factorization {
                entries: factor.entries / unit,
                multiplications: factor.multiplications / unit,
                fronts: factor.fronts / unit,
                dissects: factor.dissects,
            },
            ordering,
        };
        let work = [factors[0] * triangles * (built.setup)(&shape), factors[1] * (built.application)(&shape)];
        let [setup, application] = built.on(row, class, [profile.rows as f64, unit], work);
        let twice = products(method);
        let keeps_order = matches!(preconditioner, Preconditioner::Cholesky | Preconditioner::CuDss);
        let iterations = (line.iterations)(&shape) / twice;
        // the fraction of the setup that a refresh leaves out
        let kept = if keeps_order { ordering / (built.setup)(&shape).max(f64::MIN_POSITIVE) } else { 0.0 };
        let renewed = setup * (1.0 - kept);
        Costs {
            setup: WorkUnits(setup),
            refresh: WorkUnits(line.refresh * renewed),
            iteration: WorkUnits(
                twice * (1.0 + application)
                    + orthogonalization(method, iterations) * shape.rows
                    + class.of_kernels(method, unit),
            ),
            iterations,
            share_of_jacobi: share_of_jacobi(preconditioner, profile),
        }
    }
}

impl Candidate {
    /// Replaces the work of an iteration with `Ilut`, or `Lu` by columns, by that with factors of `stored` entries, both triangles together:
    /// diagonal blocks, and dropping, leave fewer or more than expected.
    pub(super) fn note_factors(
        &mut self,
        context: &Context,
        factorization: Option<Factorization>,
        stored: f64,
    ) {
        let (Context { profile, class, factors }, method) = (context, self.method);
        let factor = factorization.unwrap_or_else(|| Factorization::estimate(profile));
        let by_columns = || !lu_takes_fronts(profile, factor);
        match self.preconditioner {
            Preconditioner::Ilut => {}
            Preconditioner::Lu if by_columns() => {}
            _ => return,
        }
        let (unit, [_, factor]) = (unit(profile), factors(self.preconditioner));
        let work = factor * (APPLIED[0] * profile.rows as f64 + APPLIED[1] * stored) / unit;
        let size = [profile.rows as f64, unit];
        let [_, application] =
            line_of(self.preconditioner).on(self.preconditioner, *class, size, [0.0, work]);
        let orthogonal = orthogonalization(method, self.costs.iterations) * profile.rows as f64 / unit;
        let kernels = class.of_kernels(method, unit);
        self.costs.iteration = WorkUnits(products(method) * (1.0 + application) + orthogonal + kernels);
    }

    /// Upper bound of the iterations, as a fraction of those with Jacobi: `VARIED * share_of_jacobi`. `None` if `share_of_jacobi` is zero
    /// (unknown), or for methods other than `Cg` and `Fcg`.
    pub(super) fn most_of_jacobi(&self) -> Option<f64> {
        // for unsymmetric matrices the iterations with Jacobi are a weaker predictor
        let share = self.costs.share_of_jacobi;
        (share > 0.0 && self.needs_definite()).then_some(VARIED * share)
    }

    /// Products with the matrix per unit of work of the iterations.
    pub(super) fn products_per_work(&self) -> f64 {
        products(self.method) / self.costs.iteration.0
    }

    /// Work expected of one solve, without the setup, if all iterations of CG with Jacobi would cost `jacobi`. The result is zero if
    /// neither `iterations` nor `jacobi` is known yet (both are zero).
    pub(super) fn solve(&self, jacobi: WorkUnits) -> WorkUnits {
        let (costs, iterations) = (&self.costs, jacobi.0 / products(self.method));
        let least = costs.share_of_jacobi * iterations;
        let most = match (self.most_of_jacobi(), self.preconditioner) {
            _ if iterations == 0.0 => f64::INFINITY,
            (Some(most), _) => most * iterations,
            (None, Preconditioner::None | Preconditioner::Jacobi) => f64::INFINITY,
            (None, Preconditioner::Ilut) => FEWEST * iterations,
            (None, Preconditioner::Amg) => costs.iterations * (iterations / TYPICAL).sqrt(),
            (None, _) => FEWER * iterations,
        };
        costs.iteration * costs.iterations.min(most).max(least)
    }
}

/// Lower bound of the iterations as a fraction of those with Jacobi, measured on finite elements. `Amg` without rigid body modes took
/// 0.08 to 0.35 on elasticity, least for the matrices with most rows.
fn share_of_jacobi(preconditioner: Preconditioner, profile: &Profile) -> f64 {
    match preconditioner {
        Preconditioner::Jacobi => 1.0,
        Preconditioner::Ilu0 if !profile.is_symmetric() => 0.15,
        Preconditioner::Ic0 | Preconditioner::Ilu0 => 0.3,
        Preconditioner::Fsai => 0.4,
        Preconditioner::TwoLevel => 0.6,
        Preconditioner::Amg if profile.declared.near_null_space => 0.0,
        Preconditioner::Amg if profile.is_rough() => 0.4,
        Preconditioner::Amg if profile.block > 1 => 0.1,
        _ => 0.0,
    }
}
