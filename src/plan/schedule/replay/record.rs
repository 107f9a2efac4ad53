//! Records the histories that `replay` reads.

use super::*;
use crate::error::Error;
use crate::formats::Csr;
use crate::plan::Plan;
use crate::plan::candidates::Candidate;
use std::path::Path;
use std::time::Duration;

/// The rows of `histories.txt` for a system.
fn record(name: &str, a: &Csr<f64>, b: &[f64], limit: Duration) -> String {
    use crate::preconditioners::{DirectOptions, Symbolic};
    use krysp_solvers::Outcome;
    let plan = Plan::new(a).unwrap();
    let join = |numbers: &[f64]| numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
    let interrupt = crate::interrupt::Interrupt::new(&krysp_solvers::CancelToken::new()).time_limit(limit);
    let symbolic = interrupt.run(|| Symbolic::new(a, DirectOptions::default()));
    let Factorization { entries, multiplications, fronts, .. } = Factorization::of(&symbolic);
    let solved = plan.clone().time_limit(limit * 4).build().unwrap().solve(b);
    let outcome = solved.as_ref().map(|solved| solved.report.outcome.clone());
    let consistency = match outcome {
        Ok(Outcome::Inconsistent { .. }) => "inconsistent",
        _ => "",
    };
    let numbers = join(&numbers(plan.profile()));
    let factors = join(&[entries, multiplications, fronts]);
    let mut text = format!("system|{name}|{numbers}|{factors}|{consistency}\n");
    for one in plan.candidates() {
        text += &line(&plan, &one, b, limit);
    }
    text
}

/// The history of one candidate alone.
fn line(plan: &Plan<'_, f64>, one: &Candidate, b: &[f64], limit: Duration) -> String {
    use crate::plan::AttemptEnd;
    use krysp_solvers::Outcome;
    let alone = plan.clone().method(one.method).preconditioner(one.preconditioner).time_limit(limit);
    let (ending, iterations, history) = match alone.build().and_then(|mut solver| solver.solve(b)) {
        Err(Error::NotPositive { .. }) => ("not positive", 0, vec![]),
        Err(_) => ("unbuilt", 0, vec![]),
        Ok(solved) => {
            let report = solved.report;
            let ending = match (&report.outcome, &solved.attempts.last().map(|one| &one.ending)) {
                (Outcome::Converged, _) => "converged",
                (_, Some(AttemptEnd::NotBuilt(_)) | None) => "unbuilt",
                (Outcome::TimeLimit, _) => "limit",
                (Outcome::Breakdown { value, .. }, _) if *value < 0.0 && one.needs_definite() => "indefinite",
                _ => "failed",
            };
            let relative = report.history.iter().map(|r| (r / report.rhs_norm).max(1e-20)).collect();
            (ending, report.iterations, relative)
        }
    };
    let mut points = String::new();
    let (mut at, last) = (0, history.len().saturating_sub(1));
    while at <= last && !history.is_empty() {
        let log: f64 = f64::log10(history[at]);
        write!(points, " {at}:{:.2}", if log.is_finite() { log.min(30.0) } else { 30.0 }).unwrap();
        at = if at == last { last + 1 } else { (at + 1).max(at * 5 / 4).min(last) };
    }
    let configuration = configuration(one.method, one.preconditioner);
    format!("{configuration}|{ending}|{iterations}|{points}\n")
}

/// The files of the systems that are recorded, the smallest first, with their names.
fn files() -> Vec<(String, PathBuf)> {
    use crate::testing::{SHARED_FOLDERS, shared_matrices};
    let mut paths: Vec<PathBuf> = SHARED_FOLDERS
        .iter()
        .filter_map(|folder| std::fs::read_dir(shared_matrices().join(folder)).ok())
        .flat_map(|files| files.filter_map(|file| Some(file.ok()?.path())))
        .collect();
    paths.sort_by_cached_key(|path| path.metadata().map_or(0, |data| data.len()));
    let named = paths.into_iter().filter_map(|path| {
        let file = path.file_name()?.to_string_lossy().into_owned();
        let name = file.strip_suffix(".mtx.gz")?.to_owned();
        let vector = ["_b", "_x", "_f", "_coord"].iter().any(|end| name.ends_with(end));
        (!vector).then_some((name, path))
    });
    named.collect()
}

/// The matrix of a file and its two right-hand sides; `None` if it is not recorded.
fn system(path: &Path) -> Option<(Csr<f64>, [Vec<f64>; 2])> {
    let a = crate::io::read_matrix::<f64>(path).ok()?;
    if a.rows() != a.cols() || a.rows() > 100_000 {
        return None;
    }
    let given = crate::io::read_vector::<f64>(path.to_string_lossy().replace(".mtx", "_b.mtx"));
    let b = given.unwrap_or_else(|_| {
        let mut image = vec![0.0; a.rows()];
        a.triplets().for_each(|(i, j, v)| image[i] += v * (1.0 + (j as f64 * 0.01).sin()));
        image
    });
    let ones = vec![1.0; a.rows()];
    Some((a, [b, ones]))
}

const LIMIT: Duration = Duration::from_secs(4);

#[test]
#[ignore = "writes tests/data/plan/histories.txt"]
fn record_histories() {
    let mut text = String::from(
        "# Residual histories of candidates, written by record_histories (src/plan/schedule/replay/record.rs).\n",
    );
    for (name, path) in files() {
        let Some((a, [b, ones])) = system(&path) else { continue };
        println!("{name}");
        text += &record(&name, &a, &b, LIMIT);
        text += &record(&format!("{name} ones"), &a, &ones, LIMIT);
    }
    std::fs::write(data("histories.txt"), text).unwrap();
}

/// Adds the candidates that are not recorded yet to the systems that are.
#[test]
#[ignore = "writes tests/data/plan/histories.txt"]
fn record_new_candidates() {
    let text = std::fs::read_to_string(data("histories.txt")).unwrap();
    let known = systems();
    let mut added = std::collections::HashMap::new();
    for (name, path) in files() {
        let Some((a, sides)) = system(&path) else { continue };
        let plan = Plan::new(&a).unwrap();
        for (name, b) in [name.clone(), format!("{name} ones")].into_iter().zip(sides) {
            let Some(known) = known.iter().find(|one| one.name == name) else { continue };
            let is_new = |one: &&Candidate| {
                let name = configuration(one.method, one.preconditioner);
                known.histories.iter().all(|(of, _)| *of != name)
            };
            let all = plan.candidates();
            let lines: String = all.iter().filter(is_new).map(|one| line(&plan, one, &b, LIMIT)).collect();
            println!("{name}: {}", lines.len());
            added.insert(name, lines);
        }
    }
    let mut new = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("system|").and_then(|rest| rest.split('|').next()) {
            writeln!(new, "{line}").unwrap();
            new += added.get(name).map_or("", String::as_str);
        } else {
            writeln!(new, "{line}").unwrap();
        }
    }
    std::fs::write(data("histories.txt"), new).unwrap();
}
