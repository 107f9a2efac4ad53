//! Solves every system of ../shared/matrices by one call, without options: attempts, times and residuals.
//!
//! ```text
//! cargo bench --bench plan [-- [--gpu] [--rows FROM..TO] [--solves 1,10,1000] [--limit 60] [--against] [--part 3/8] [--explain | --products | --loading | --transient [--parts] | --elastic]
//!     [heat_sink_p1_27k p7_64 ...]]
//! ```
//!
//! Prints a line for each right-hand side: that of the file, or `A` times a smooth vector; and all ones. Names are files of
//! shared matrices, or generated matrices. `--limit` is the time limit of a solve in seconds. `--solves` is the number of solves
//! of each system, of which only the first ones are run and the others extrapolated. Options:
//!
//! - `--against` also solves each system by fixed configurations, and compares the total time of the plan with that of the
//!   fastest one in hindsight. A configuration whose solve takes more than 3 times as long as the fastest so far, without setup,
//!   is excluded. Complete factorizations of more than some number of rows run only if the plan runs them.
//! - `--part 3/8` takes the third of eight equal parts of the matrices, to distribute the work over processes on separate cores.
//! - `--products` compares products instead: the format and ordering that a plan for many solves chooses by measurement, and all
//!   formats in the ordering for the machine and in the given one.
//! - `--loading` compares the time to load a saved plan with the time to build it.
//! - `--transient` compares loops of time steps with fixed configurations: all of them, or those named, `growing`, `constant`,
//!   `jumps` and `example`. With `--parts` also the milliseconds of the parts of a step.
//! - `--elastic` compares plans with the coordinates of the nodes, of `elast_bracket_p1_59k` or the matrices named (with files `NAME_b` and
//!   `NAME_coord`), with `Amg` configured explicitly.
//! - `--explain` prints the plan, the attempts, those of later solves that build preconditioners, and the cost of each fixed configuration
//!   in iterations of `Cg` with `Jacobi`.
//!
//! The last lines are totals.

#[path = "../examples/common/mod.rs"]
mod common;
#[path = "plan/elastic.rs"]
mod elastic;
#[path = "plan/once.rs"]
mod once;
#[path = "plan/options.rs"]
mod options;
#[path = "plan/transient.rs"]
mod transient;

use krysp::io::{read_matrix, read_vector};
use krysp::plan::{Backend, Costs, Method, PlannedSolver, Preconditioner, Preparation, Solved};
use krysp::prelude::*;
use krysp::testing::{SHARED_FOLDERS, matrices, shared_matrices};
use krysp::{Outcome, Plan};
use options::{Once, Options, options};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Maximum relative residual of a solution, recomputed by this program.
const RTOL: f64 = 1e-8;

/// Once so many solves have been run, or those after the first have taken `LONG` seconds, the rest is extrapolated from the last ones: as
/// soon as the last three were single attempts with a preconditioner that was built before, or after `LONGER` times as many.
const COMPUTED: usize = 24;
const LONG: f64 = 2.5;
const LONGER: usize = 8;

/// A run (the setup and the solves of one configuration) of at most `AGAIN` seconds is repeated once, and further as long as
/// the runs have taken less than `OFTEN` together.
const AGAIN: f64 = 0.5;
const OFTEN: Duration = Duration::from_millis(100);

/// A configuration whose solve takes more than `RIVAL` times that of the best one is excluded, unless it takes less than `SHORT`
/// seconds.
const RIVAL: f64 = 3.0;
const SHORT: f64 = 0.02;

/// Maximum numbers of rows for complete factorizations if the plan does not run them: larger meshes take minutes.
const MOST: [(Preconditioner, usize); 3] =
    [(Preconditioner::Cholesky, 100_000), (Preconditioner::Ldl, 50_000), (Preconditioner::Lu, 20_000)];

/// Fixed configurations, which one might use for every matrix.
const FIXED: [(Method, Preconditioner); 14] = [
    (Method::Cg, Preconditioner::Jacobi),
    (Method::Cg, Preconditioner::TwoLevel),
    (Method::Cg, Preconditioner::Amg),
    (Method::Cg, Preconditioner::Ic0),
    (Method::Cg, Preconditioner::Cholesky),
    (Method::Minres, Preconditioner::Jacobi),
    (Method::BiCgStab, Preconditioner::None),
    (Method::BiCgStab, Preconditioner::Jacobi),
    (Method::BiCgStab, Preconditioner::Ilu0),
    (Method::Gmres, Preconditioner::Jacobi),
    (Method::Gmres, Preconditioner::Ilu0),
    (Method::Idr, Preconditioner::Ilut),
    (Method::Gmres, Preconditioner::Ldl),
    (Method::Gmres, Preconditioner::Lu),
];

/// Counts over all systems.
#[derive(Default)]
struct Totals {
    systems: usize,
    solved: usize,
    /// Number of inconsistent systems that were reported as inconsistent.
    impossible: usize,
    missed: Vec<String>,
    /// The number of solves, and the time of the plan divided by that of the fastest fixed configuration.
    ratios: Vec<(usize, f64)>,
}

fn main() -> Result<()> {
    let options = options()?;
    if options.transient {
        return match options.gpu {
            #[cfg(feature = "cuda")]
            true => transient::all(&Cuda::new(0)?, &options.wanted),
            #[cfg(not(feature = "cuda"))]
            true => Err("--gpu needs the feature cuda".into()),
            false => transient::all(&Host, &options.wanted),
        };
    }
    if options.elastic {
        return elastic::all(&options.wanted);
    }
    println!(
        "{}",
        match options.once {
            Some(Once::Products) => "matrix,rows,nnz,chosen,product_s,best,best_s,ratio",
            Some(Once::Loading) => "matrix,rows,nnz,bytes,built_s,read_s,part",
            None =>
                "matrix,rows,nnz,rhs,solves,ending,iterations,residual,first_s,total_s,best,best_s,ratio,attempts",
        }
    );
    let mut totals = Totals::default();
    if options.gpu {
        #[cfg(feature = "cuda")]
        all(&Cuda::new(0)?, &options, &mut totals);
        #[cfg(not(feature = "cuda"))]
        return Err("--gpu needs the feature cuda".into());
    } else {
        all(&Host, &options, &mut totals);
    }
    if totals.systems == 0 {
        eprintln!("no system found in ../shared/matrices");
        return Ok(());
    }
    if let Some(once) = options.once {
        if once == Once::Loading {
            return Ok(());
        }
        let of = |most: f64| totals.ratios.iter().filter(|(_, ratio)| *ratio <= most).count();
        println!(
            "# {} products: {} within 1.03, {} within 1.10 of the best",
            totals.systems,
            of(1.03),
            of(1.1)
        );
        return Ok(());
    }
    println!(
        "# {} of {} to {RTOL:e}, {} inconsistent and reported as such",
        totals.solved, totals.systems, totals.impossible
    );
    println!("# missed: {}", totals.missed.join(" "));
    for &solves in &options.solves {
        let of = totals.ratios.iter().filter(|(of, _)| *of == solves).map(|(_, ratio)| *ratio);
        let (count, logs) =
            of.clone().fold((0.0, 0.0), |(count, sum), ratio| (count + 1.0, sum + ratio.ln()));
        if count > 0.0 {
            let (mean, worst) = ((logs / count).exp(), of.clone().fold(0.0, f64::max));
            let beyond = of.filter(|ratio| *ratio > 2.0).count();
            println!(
                "# {solves} solves relative to the best in hindsight: mean {mean:.2} of {count}, worst {worst:.1}, {beyond} beyond 2"
            );
        }
    }
    Ok(())
}

fn all(machine: &impl Backend<f64>, options: &Options, totals: &mut Totals) {
    let [part, parts] = options.part;
    let generated = options.wanted.iter().filter(|name| matrices::named(name).is_some());
    let all = files(options).into_iter().chain(generated.map(PathBuf::from));
    for path in all.enumerate().filter(|(index, _)| index % parts == part - 1).map(|(_, path)| path) {
        if let Err(error) = system(machine, options, &path, totals) {
            eprintln!("{}: {error}", name_of(&path));
        }
    }
}

/// The files of matrices, without vectors; the smallest first, so that equal parts of the list take about
/// equally long.
fn files(options: &Options) -> Vec<PathBuf> {
    let root = shared_matrices();
    let mut paths: Vec<PathBuf> = SHARED_FOLDERS
        .iter()
        .filter_map(|folder| std::fs::read_dir(root.join(folder)).ok())
        .flat_map(|files| files.filter_map(|file| Some(file.ok()?.path())))
        .filter(|path| {
            let name = name_of(path);
            let vector = ["_b", "_x", "_f", "_coord"].iter().any(|end| name.ends_with(end));
            path.to_string_lossy().contains(".mtx")
                && !vector
                && (options.wanted.is_empty() || options.wanted.contains(&name))
        })
        .collect();
    paths.sort_by_cached_key(|path| (std::fs::metadata(path).map_or(0, |data| data.len()), path.clone()));
    paths
}

fn name_of(path: &Path) -> String {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    file.split(".mtx").next().unwrap_or_default().into()
}

fn system(machine: &impl Backend<f64>, options: &Options, path: &Path, totals: &mut Totals) -> Result<()> {
    let name = name_of(path);
    let a: Csr<f64> = match matrices::named(&name) {
        Some(generated) => generated.csr()?,
        None => read_matrix(path)?,
    };
    if a.rows() != a.cols() || !options.rows.contains(&a.rows()) {
        return Ok(());
    }
    if let Some(once) = options.once {
        let ratio = match once {
            Once::Products => once::products(machine, &name, &a)?,
            Once::Loading => once::loading(machine, &name, &a)?,
        };
        totals.systems += 1;
        totals.ratios.extend(ratio.map(|ratio| (0, ratio)));
        return Ok(());
    }
    let smooth: Vec<f64> = (0..a.rows()).map(|i| 1.0 + (i as f64 * 0.01).sin()).collect();
    let mut image = vec![0.0; a.rows()];
    a.triplets().for_each(|(i, j, v)| image[i] += v * smooth[j]);
    let given = read_vector(path.to_string_lossy().replace(".mtx", "_b.mtx"));
    let given = match given {
        Ok(b) => ("file", b),
        Err(_) => ("smooth", image),
    };
    for (rhs, b) in [given, ("ones", vec![1.0; a.rows()])] {
        let mut runs = vec![];
        for &solves in &options.solves {
            let plan = Plan::new(&a)?.on(machine).solves(solves).time_limit(options.limit);
            if options.explain {
                println!("{plan}");
            }
            let build = || Plan::new(&a)?.on(machine).solves(solves).time_limit(options.limit).build();
            let run = again(solves, || run(build, &b, solves))?;
            if options.explain {
                println!("{}", run.solved);
                println!("# times of later solves: {:?}{}\n", run.others, run.trials);
            }
            runs.push((solves, run));
        }
        let fixed = if options.against { fixed(machine, &a, &b, options, &runs) } else { vec![] };
        for (at, (solves, run)) in runs.into_iter().enumerate() {
            let residual = residual(&a, &b, &run.solved.x);
            if at == 0 {
                totals.systems += 1;
                totals.solved += usize::from(residual <= RTOL);
                let impossible = matches!(run.solved.report.outcome, Outcome::Inconsistent { .. });
                totals.impossible += usize::from(impossible);
                if residual > RTOL && !impossible {
                    totals.missed.push(format!("{name}/{rhs}"));
                }
            }
            let seconds = run.seconds(solves);
            let times = fixed.iter().map(|(name, run)| (name.clone(), run.seconds(solves)));
            let best = times.min_by(|(_, one), (_, other)| one.total_cmp(other));
            let (best, best_seconds) = best.unwrap_or((String::new(), f64::NAN));
            let ratio = seconds / best_seconds;
            // if only one configuration solves the system, there is nothing to compare
            if fixed.len() > 1 && residual <= RTOL {
                totals.ratios.push((solves, ratio));
            }
            let Run { solved, first, .. } = run;
            let text = solved.report.to_string();
            let ending = text.split(" after ").next().unwrap_or_default().replace(',', ";");
            println!(
                "{name},{},{},{rhs},{solves},{ending},{},{residual:.1e},{:.5},{seconds:.5},{best},{best_seconds:.5},{ratio:.2},{}",
                a.rows(),
                a.nnz(),
                solved.report.iterations,
                first.as_secs_f64(),
                attempts(&solved)
            );
        }
    }
    Ok(())
}

fn attempts(solved: &Solved<f64>) -> String {
    let text = |attempt: &krysp::plan::Attempt| {
        let seconds = (attempt.setup + attempt.time).as_secs_f64();
        format!(
            "{}+{} {} {seconds:.3} {:.0e}",
            attempt.method, attempt.preconditioner, attempt.iterations, attempt.residual
        )
    };
    solved.attempts.iter().map(text).collect::<Vec<_>>().join(" > ")
}

/// The times of repeated solves.
struct Run {
    /// The first solution.
    solved: Solved<f64>,
    /// Expected costs of the first candidate, in which the elimination ordering and the factors that were built are accounted for.
    costs: Costs,
    /// The time from the matrix to the first solution.
    first: Duration,
    /// The times of later solves.
    others: Vec<Duration>,
    /// The attempts of those later solves that built a preconditioner, or switched to another candidate.
    trials: String,
}

impl Run {
    /// The time of `solves` solves, extrapolated if fewer were run.
    fn seconds(&self, solves: usize) -> f64 {
        let made = self.others.len().min(solves - 1);
        let known: f64 = self.others[..made].iter().map(Duration::as_secs_f64).sum();
        // the minimum of the last three solves, because some may have been slowed down by other programs
        let last = self.others.iter().rev().take(3).min().map_or(0.0, Duration::as_secs_f64);
        self.first.as_secs_f64() + known + (solves - 1 - made) as f64 * last
    }
}

/// Repeats a short run and returns the fastest one: code and memory are cold in the first run, and runs of milliseconds are
/// easily disturbed.
fn again(solves: usize, run: impl Fn() -> Result<Run>) -> Result<Run> {
    let started = Instant::now();
    let mut best = run()?;
    let mut made = 1;
    while made < 2 && best.seconds(solves.min(COMPUTED)) <= AGAIN || started.elapsed() < OFTEN {
        let other = run()?;
        if other.seconds(solves) < best.seconds(solves) {
            best = other;
        }
        made += 1;
    }
    Ok(best)
}

fn run<M: Backend<f64>>(
    build: impl Fn() -> krysp::Result<PlannedSolver<f64, M>>,
    b: &[f64],
    solves: usize,
) -> Result<Run> {
    let started = Instant::now();
    let mut solver = build()?;
    let solved = solver.solve(b)?;
    let first = started.elapsed();
    let (others, trials) =
        if solved.converged() { repeated(&mut solver, b, solves)? } else { Default::default() };
    let costs = solver.candidates()[0].costs;
    Ok(Run { solved, costs, first, others, trials })
}

/// The times of the solves after the first, and [`Run::trials`].
fn repeated<M: Backend<f64>>(
    solver: &mut PlannedSolver<f64, M>,
    b: &[f64],
    solves: usize,
) -> Result<(Vec<Duration>, String)> {
    let started = Instant::now();
    let (mut others, mut trials, mut alike) = (vec![], String::new(), 0);
    let within = |made: usize, factor: usize| {
        made < solves.min(factor * COMPUTED) && started.elapsed().as_secs_f64() < factor as f64 * LONG
    };
    while others.len() + 1 < solves
        && (within(others.len() + 1, 1) || alike < 3 && within(others.len() + 1, LONGER))
    {
        let started = Instant::now();
        let solved = solver.solve(b)?;
        others.push(started.elapsed());
        let is_single = matches!(&*solved.attempts, [one] if one.preparation == Preparation::Ready);
        alike = if is_single { alike + 1 } else { 0 };
        if !is_single {
            trials += &format!("; {}: {}", others.len() + 1, attempts(&solved));
        }
    }
    Ok((others, trials))
}

/// The repeated solves by each fixed configuration that is not excluded by [`RIVAL`].
fn fixed<M: Backend<f64>>(
    machine: &M,
    a: &Csr<f64>,
    b: &[f64],
    options: &Options,
    planned: &[(usize, Run)],
) -> Vec<(String, Run)> {
    let mut runs = vec![];
    let made = |preconditioner: Preconditioner| {
        planned.iter().any(|(_, run)| {
            run.solved.attempts.iter().any(|attempt| attempt.preconditioner == preconditioner)
        })
    };
    let mut best = options.limit;
    for (_, run) in planned.iter().filter(|(_, run)| run.solved.converged()) {
        best = run.others.iter().copied().chain([run.first]).min().unwrap_or(best).min(best);
    }
    // seconds of an iteration of Cg with Jacobi
    let mut unit = f64::NAN;
    for (method, preconditioner) in FIXED {
        let large = MOST.iter().any(|(of, most)| *of == preconditioner && a.rows() > *most);
        if !machine.has(preconditioner) || large && !made(preconditioner) {
            continue;
        }
        let limit = best.mul_f64(RIVAL).max(Duration::from_secs_f64(SHORT));
        let solved = || -> Result<Run> {
            let started = Instant::now();
            let plan = Plan::new(a)?.on(machine).solves(1).max_iterations(1);
            let mut solver = plan.method(method).preconditioner(preconditioner).build()?;
            // the first solve builds the preconditioner
            let built = solver.solve(b)?;
            let setup = started.elapsed();
            let mut solver = solver.max_iterations(None).time_limit(Some(limit));
            let started = Instant::now();
            let mut solved = solver.solve(b)?;
            let first = setup + started.elapsed();
            if let (Some(attempt), Some(first)) = (solved.attempts.first_mut(), built.attempts.first()) {
                attempt.setup = first.setup;
            }
            let (others, trials) =
                if solved.converged() { repeated(&mut solver, b, 3)? } else { Default::default() };
            let costs = solver.candidates()[0].costs;
            Ok(Run { solved, costs, first, others, trials })
        };
        let Ok(run) = again(3, solved) else { continue };
        let [attempt] = &*run.solved.attempts else { continue };
        let (setup, time) = (attempt.setup.as_secs_f64(), attempt.time.as_secs_f64());
        let each = time / attempt.iterations.max(1) as f64;
        if unit.is_nan() {
            unit = each;
        }
        if options.explain {
            println!(
                "# {method}+{preconditioner}: {} after {} iterations, {:.1e}; setup {setup:.2e} s, {:.0} units, expected {:.0}; an iteration {each:.2e} s, {:.1} units, expected {:.1}; then {:.2e} s",
                attempt.ending,
                attempt.iterations,
                attempt.residual,
                setup / unit,
                run.costs.setup.0,
                each / unit,
                run.costs.iteration.0,
                run.others.iter().min().map_or(f64::NAN, Duration::as_secs_f64)
            );
        }
        if run.solved.converged() {
            best = run.others.iter().copied().min().unwrap_or(best).min(best);
            runs.push((format!("{method}+{preconditioner}"), run));
        }
    }
    runs
}

/// `‖b − A x‖ / ‖b‖`, by an independent loop in twice the working precision: for an `x` as large as those of difficult systems,
/// sums in working precision would be dominated by rounding.
fn residual(a: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let mut r: Vec<[f64; 2]> = b.iter().map(|&b| [b, 0.0]).collect();
    for (i, j, v) in a.triplets() {
        let term = -v * x[j];
        let [sum, rest] = r[i];
        let (rounded, next) = ((-v).mul_add(x[j], -term), sum + term);
        let part = next - sum;
        r[i] = [next, rest + rounded + (sum - (next - part)) + (term - part)];
    }
    let r: Vec<f64> = r.iter().map(|[sum, rest]| sum + rest).collect();
    let norm = |v: &[f64]| {
        let most = v.iter().fold(0.0f64, |most, v| most.max(v.abs()));
        if most == 0.0 { 0.0 } else { most * v.iter().map(|v| (v / most).powi(2)).sum::<f64>().sqrt() }
    };
    let rest = norm(&r);
    if rest == 0.0 { 0.0 } else { rest / norm(b) }
}
