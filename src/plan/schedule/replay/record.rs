//! Records the histories that `replay` reads.

use super::*;

/// The rows of `histories.txt` for a system.
fn record(name: &str, a: &crate::Csr<f64>, b: &[f64], limit: std::time::Duration) -> String {
    use crate::plan::AttemptEnd;
    use crate::preconditioners::Symbolic;
    use crate::{DirectOptions, Error, Outcome, Plan};
    let plan = Plan::new(a).unwrap();
    let join = |numbers: &[f64]| numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
    let interrupt = crate::Interrupt::new(&crate::CancelToken::new()).time_limit(limit);
    let symbolic = interrupt.run(|| Symbolic::new(a, DirectOptions::default()));
    let Factorization { entries, multiplications, fronts } = Factorization::of(&symbolic);
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
        let alone = plan.clone().method(one.method).preconditioner(one.preconditioner).time_limit(limit);
        let (ending, iterations, history) = match alone.build().and_then(|mut solver| solver.solve(b)) {
            Err(Error::NotPositive { .. }) => ("unbuilt", 0, vec![]),
            Err(_) => ("unbuilt", 0, vec![]),
            Ok(solved) => {
                let report = solved.report;
                let ending = match (&report.outcome, &solved.attempts.last().map(|one| &one.ending)) {
                    (Outcome::Converged, _) => "converged",
                    (_, Some(AttemptEnd::NotBuilt(_)) | None) => "unbuilt",
                    (Outcome::TimeLimit, _) => "limit",
                    (Outcome::Breakdown { value, .. }, _) if *value < 0.0 && one.needs_definite() => {
                        "indefinite"
                    }
                    _ => "failed",
                };
                let relative = report.history.iter().map(|r| (r / report.rhs_norm).max(1e-20)).collect();
                (ending, report.iterations, relative)
            }
        };
        let mut points = String::new();
        let (mut at, last) = (0, history.len().saturating_sub(1));
        while at <= last && !history.is_empty() {
            let log = history[at].log10();
            write!(points, " {at}:{:.2}", if log.is_finite() { log.min(30.0) } else { 30.0 }).unwrap();
            at = if at == last { last + 1 } else { (at + 1).max(at * 5 / 4).min(last) };
        }
        let configuration = configuration(one.method, one.preconditioner);
        writeln!(text, "{configuration}|{ending}|{iterations}|{points}").unwrap();
    }
    text
}

#[test]
#[ignore = "writes tests/data/plan/histories.txt"]
fn record_histories() {
    use crate::testing::{SHARED_FOLDERS, shared_matrices};
    let limit = std::time::Duration::from_secs_f64(4.0);
    let mut text = String::from(
        "# Residual histories of candidates, written by record_histories (src/plan/schedule/replay.rs).\n",
    );
    let mut paths: Vec<PathBuf> = SHARED_FOLDERS
        .iter()
        .filter_map(|folder| std::fs::read_dir(shared_matrices().join(folder)).ok())
        .flat_map(|files| files.filter_map(|file| Some(file.ok()?.path())))
        .collect();
    paths.sort_by_cached_key(|path| path.metadata().map_or(0, |data| data.len()));
    for path in paths {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".mtx.gz") else { continue };
        if ["_b", "_x", "_f", "_coord"].iter().any(|end| name.ends_with(end)) {
            continue;
        }
        let Ok(a) = crate::io::read_matrix::<f64>(&path) else { continue };
        if a.rows() != a.cols() || a.rows() > 100_000 {
            continue;
        }
        let given = crate::io::read_vector::<f64>(path.to_string_lossy().replace(".mtx", "_b.mtx"));
        let b = given.unwrap_or_else(|_| {
            let mut image = vec![0.0; a.rows()];
            a.triplets().for_each(|(i, j, v)| image[i] += v * (1.0 + (j as f64 * 0.01).sin()));
            image
        });
        println!("{name}");
        text += &record(name, &a, &b, limit);
        text += &record(&format!("{name} ones"), &a, &vec![1.0; a.rows()], limit);
    }
    std::fs::write(data("histories.txt"), text).unwrap();
}
