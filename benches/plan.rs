//! Every system of ../shared/matrices by one call, without options: what was tried, how long it took, and the residual.
//!
//! ```text
//! cargo bench --bench plan [-- [--rows FROM..TO] [--against SECONDS] [--explain] [heat_sink_p1_27k ...]]
//! ```
//!
//! Prints a line for each right-hand side: that of the file, or `A` times a smooth vector; and all ones. `--against` also
//! solves each system by fixed configurations, with so many seconds for each, and compares the whole time of the one call
//! with that of the fastest, which nobody knows beforehand. `--explain` prints plan and rungs. The last lines count.

use krysp::io::{read_matrix, read_vector};
use krysp::plan::{Method, Preconditioner};
use krysp::testing::{SHARED_FOLDERS, shared_matrices};
use krysp::{Csr, Plan};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What a solution must reach, computed here.
const RTOL: f64 = 1e-8;

/// Configurations that somebody might take for every matrix.
const FIXED: [(Method, Preconditioner); 12] = [
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
    (Method::Gmres, Preconditioner::Lu),
];

struct Options {
    rows: Range<usize>,
    against: Option<Duration>,
    explain: bool,
    wanted: Vec<String>,
}

/// What is counted over all systems.
#[derive(Default)]
struct Totals {
    systems: usize,
    solved: usize,
    missed: Vec<String>,
    /// The time of the one call over that of the fastest fixed configuration.
    ratios: Vec<f64>,
}

fn main() -> Result<()> {
    let mut options = Options { rows: 0..usize::MAX, against: None, explain: false, wanted: vec![] };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--bench" => {}
            "--explain" => options.explain = true,
            "--against" => {
                let seconds = args.next().ok_or("--against needs seconds")?.parse()?;
                options.against = Some(Duration::from_secs_f64(seconds));
            }
            "--rows" => {
                let range = args.next().ok_or("--rows needs FROM..TO")?;
                let (from, to) = range.split_once("..").ok_or("--rows needs FROM..TO")?;
                options.rows = from.parse()?..to.parse()?;
            }
            name => options.wanted.push(name.into()),
        }
    }
    println!("matrix,rows,nnz,rhs,ending,iterations,residual,plan_s,total_s,best,best_s,ratio,rungs");
    let mut totals = Totals::default();
    for path in matrices(&options) {
        if let Err(error) = system(&options, &path, &mut totals) {
            eprintln!("{}: {error}", name_of(&path));
        }
    }
    if totals.systems == 0 {
        eprintln!("no system: is ../shared/matrices beside this checkout?");
        return Ok(());
    }
    println!("# {} of {} to {RTOL:e}", totals.solved, totals.systems);
    println!("# missed: {}", totals.missed.join(" "));
    if !totals.ratios.is_empty() {
        let count = totals.ratios.len() as f64;
        let mean = (totals.ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count).exp();
        let worst = totals.ratios.iter().copied().fold(0.0, f64::max);
        let beyond = totals.ratios.iter().filter(|ratio| **ratio > 2.0).count();
        println!(
            "# time against the best in hindsight: {mean:.2} in the mean, {worst:.1} at worst, {beyond} beyond 2"
        );
    }
    Ok(())
}

/// The files of matrices, without their vectors.
fn matrices(options: &Options) -> Vec<PathBuf> {
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
    paths.sort();
    paths
}

fn name_of(path: &Path) -> String {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    file.split(".mtx").next().unwrap_or_default().into()
}

fn system(options: &Options, path: &Path, totals: &mut Totals) -> Result<()> {
    let name = name_of(path);
    let a: Csr<f64> = read_matrix(path)?;
    if a.rows() != a.cols() || !options.rows.contains(&a.rows()) {
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
        let started = Instant::now();
        let plan = Plan::new(&a)?.solves(1);
        let planned = started.elapsed();
        let solved = plan.build()?.solve(&b)?;
        let time = started.elapsed();
        let residual = residual(&a, &b, &solved.x);
        totals.systems += 1;
        if residual <= RTOL {
            totals.solved += 1;
        } else {
            totals.missed.push(format!("{name}/{rhs}"));
        }
        let best = options.against.map_or((String::new(), f64::NAN), |limit| best(&a, &b, limit));
        let ratio = time.as_secs_f64() / best.1;
        if ratio.is_finite() && residual <= RTOL {
            totals.ratios.push(ratio);
        }
        let text = solved.report.to_string();
        let ending = text.split(" after ").next().unwrap_or_default().replace(',', ";");
        let rungs: Vec<String> = solved
            .rungs
            .iter()
            .map(|rung| {
                let seconds = (rung.setup + rung.time).as_secs_f64();
                format!(
                    "{}+{} {} {seconds:.2}s {:.0e}",
                    rung.method, rung.preconditioner, rung.iterations, rung.residual
                )
            })
            .collect();
        println!(
            "{name},{},{},{rhs},{ending},{},{residual:.1e},{:.4},{:.4},{},{:.4},{ratio:.2},{}",
            a.rows(),
            a.nnz(),
            solved.report.iterations,
            planned.as_secs_f64(),
            time.as_secs_f64(),
            best.0,
            best.1,
            rungs.join(" > ")
        );
        if options.explain {
            println!("{plan}\n{solved}\n");
        }
    }
    Ok(())
}

/// The fastest of the fixed configurations, from the matrix to the solution.
fn best(a: &Csr<f64>, b: &[f64], limit: Duration) -> (String, f64) {
    let mut best = (String::new(), f64::INFINITY);
    for (method, preconditioner) in FIXED {
        let Ok(plan) = Plan::new(a) else { continue };
        let plan = plan.solves(1).method(method).preconditioner(preconditioner).time_limit(limit);
        let started = Instant::now();
        let Ok(solved) = plan.build().and_then(|mut solver| solver.solve(b)) else { continue };
        let time = started.elapsed().as_secs_f64();
        if solved.converged() && time < best.1 {
            best = (format!("{method}+{preconditioner}"), time);
        }
    }
    best
}

/// `‖b − A x‖ / ‖b‖`, by a loop of its own.
fn residual(a: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let mut r = b.to_vec();
    a.triplets().for_each(|(i, j, v)| r[i] -= v * x[j]);
    let norm = |v: &[f64]| {
        let most = v.iter().fold(0.0f64, |most, v| most.max(v.abs()));
        if most == 0.0 { 0.0 } else { most * v.iter().map(|v| (v / most).powi(2)).sum::<f64>().sqrt() }
    };
    let rest = norm(&r);
    if rest == 0.0 { 0.0 } else { rest / norm(b) }
}
