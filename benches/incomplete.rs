//! The cost of an iteration of CG with IC(0), relative to CG with Jacobi, for matrices in their given orderings.
//!
//! ```text
//! cargo bench --bench incomplete [-- heat_sink_p1_340k p7_128 ...]
//! ```
//!
//! `p7_128` is the 7-point Laplacian on 128³ nodes. Names are files of shared matrices, whose `b` is a file in the same folder,
//! or generated matrices, with a `b` of ones. Times are the median of three solves.

use krysp::io::{read_matrix, read_vector};
use krysp::testing::{matrices, shared_matrix, skipped};
use krysp::{Cg, Csr, Host, HostVector, Ic0, Jacobi, LinearOperator, Operator, SinglePrecision};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 3;

fn main() -> Result<()> {
    let mut names: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    if names.is_empty() {
        names = ["heat_sink_p1_340k", "p7_128"].map(String::from).into();
    }
    for name in &names {
        let a: Csr<f64> = match (shared_matrix(name), matrices::named(name)) {
            (Some(path), _) => read_matrix(path)?,
            (None, Some(matrix)) => matrix.csr()?,
            (None, None) => {
                skipped(&format!("{name} is neither a generated nor a shared matrix"));
                continue;
            }
        };
        let b = match shared_matrix(&format!("{name}_b")) {
            Some(path) => read_vector(path)?,
            None => vec![1.0; a.rows()],
        };
        let operator = Operator::symmetric(&a, &Host)?;
        let choice = operator.choice().to_string();
        println!(
            "{name}: {} rows, {} entries; {}",
            a.rows(),
            a.nnz(),
            choice.lines().next().unwrap_or_default()
        );
        let jacobi = line("Jacobi", &operator, &b, None, || Ok(Jacobi::new(&a)?))?;
        line("IC(0)", &operator, &b, Some(jacobi), || Ok(Ic0::shifted(&a)?))?;
        let narrow = || Ok(SinglePrecision::new(Ic0::shifted(&a.cast::<f32>())?)?);
        line("IC(0) in f32", &operator, &b, Some(jacobi), narrow)?;
    }
    Ok(())
}

/// Prints a line of the table; returns the time of an iteration.
fn line<M: LinearOperator<Vector = HostVector<f64>>>(
    name: &str,
    operator: &Operator<HostVector<f64>>,
    b: &[f64],
    jacobi: Option<f64>,
    make: impl Fn() -> Result<M>,
) -> Result<f64> {
    let started = Instant::now();
    let preconditioner = make()?;
    let setup = started.elapsed().as_secs_f64();
    let mut solver = Cg::new(operator).preconditioner(preconditioner).rtol(1e-8);
    let mut times = vec![];
    let mut iterations = 0;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let report = solver.solve(b)?.report;
        times.push(started.elapsed().as_secs_f64());
        if !report.converged() {
            return Err(report.to_string().into());
        }
        iterations = report.iterations;
    }
    times.sort_by(f64::total_cmp);
    let time = times[ROUNDS / 2];
    let each = time / iterations as f64;
    let share = jacobi.map_or(String::new(), |jacobi| format!(", {:.2} of Jacobi's", each / jacobi));
    println!(
        "  {name:14} setup {setup:6.3} s, {iterations:5} iterations in {time:6.3} s, {:7.3} ms each{share}",
        1e3 * each
    );
    Ok(each)
}
