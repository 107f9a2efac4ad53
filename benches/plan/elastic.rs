//! One solve of linear elasticity: a plan with the coordinates of the nodes, and `Amg` with rigid body modes configured explicitly.

use crate::Result;
use krysp::io::{read_columns, read_matrix, read_vector};
use krysp::prelude::*;
use krysp::testing::{shared_matrix, skipped};
use krysp::{Amg, Plan, UnknownOrder, rigid_body_modes};
use std::time::{Duration, Instant};

const NAME: &str = "elast_bracket_p1_59k";
const RTOL: f64 = 1e-8;

/// Runs of each, in turns; the shortest counts.
const ROUNDS: usize = 5;

/// Prints the times from the matrix to `x` for the systems wanted, by default that of the bracket.
pub(crate) fn all(wanted: &[String]) -> Result<()> {
    println!("matrix,solver,seconds,ratio,iterations");
    match wanted {
        [] => one(NAME),
        _ => wanted.iter().try_for_each(|name| one(name)),
    }
}

fn one(matrix: &str) -> Result<()> {
    let path = |suffix: &str| shared_matrix(&format!("{matrix}{suffix}"));
    let (Some(a), Some(b), Some(points)) = (path(""), path("_b"), path("_coord")) else {
        skipped(&format!("no shared matrix {matrix}"));
        return Ok(());
    };
    let (a, b): (Csr<f64>, Vec<f64>) = (read_matrix(a)?, read_vector(b)?);
    let columns = read_columns::<f64>(points)?;
    let [x, y, z] = &columns[..] else { return Err("three coordinates are expected".into()) };
    let points: Vec<[f64; 3]> = (0..x.len()).map(|node| [x[node], y[node], z[node]]).collect();
    let planned = || -> Result<usize> {
        let solved = Plan::new(&a)?.coordinates(&points).rtol(RTOL).build()?.solve(&b)?;
        Ok(solved.report.iterations)
    };
    let named = || -> Result<usize> {
        let plan = Plan::new(&a)?.coordinates(&points).rtol(RTOL);
        let amg = plan.method(krysp::plan::Method::Cg).preconditioner(krysp::plan::Preconditioner::Amg);
        Ok(amg.build()?.solve(&b)?.report.iterations)
    };
    let explicit = |symmetric: bool| -> Result<usize> {
        let operator = match symmetric {
            true => Operator::symmetric(&a, &Host)?,
            false => Operator::auto(&a, &Host)?,
        };
        let amg = Amg::with_near_null_space(&a, &rigid_body_modes(&points, UnknownOrder::ByNode))?;
        Ok(Cg::new(operator).preconditioner(amg).rtol(RTOL).solve(&b)?.report.iterations)
    };
    let solvers: [(&str, &dyn Fn() -> Result<usize>); 4] = [
        ("Plan", &planned),
        ("Plan of Cg with Amg", &named),
        ("Amg", &|| explicit(false)),
        ("Amg, symmetric format", &|| explicit(true)),
    ];
    let mut best = [(Duration::MAX, 0); 4];
    for _ in 0..ROUNDS {
        for (best, (_, solve)) in best.iter_mut().zip(&solvers) {
            let started = Instant::now();
            let iterations = solve()?;
            *best = (*best).min((started.elapsed(), iterations));
        }
    }
    let least = best[2].0.min(best[3].0).as_secs_f64();
    for ((name, _), (time, iterations)) in solvers.iter().zip(best) {
        let seconds = time.as_secs_f64();
        println!("{matrix},\"{name}\",{seconds:.3},{:.2},{iterations}", seconds / least);
    }
    Ok(())
}
