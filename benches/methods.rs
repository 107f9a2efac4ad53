//! The benefit of each specialized method in iterations and time, compared with the method that it improves
//! on, on a matrix that shows the difference. Matrices are those of ../shared/matrices. All solves run to a
//! relative residual of 10⁻⁸.
//!
//! ```text
//! cargo bench --bench methods [-- [record] [stokes_tiny heat_sink_p1_27k ...]]
//! ```
//!
//! Without names all matrices are solved, which takes about ten minutes. `record` appends the rows to
//! `benches/record/<machine>/methods.csv`. The column `ratio` is the number of iterations of the method in the
//! column `against`, divided by that of the specialized method.

#[allow(dead_code, unreachable_pub, reason = "a part of it is used")]
#[path = "common/machine.rs"]
mod machine;
#[allow(dead_code, unreachable_pub, reason = "a part of it is used")]
#[path = "common/record.rs"]
mod record;

use krysp::io::read_matrix;
use krysp::solvers::{Method, OperatorFn, Solver};
use krysp::testing::{matrices, shared_matrix, skipped};
use krysp::{
    BasicVector, BiCgStab, Cg, Chebyshev, Csr, Fcg, Fgmres, Gmres, HostVector, Jacobi, LinearOperator,
    Minres, Report,
};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const HEADER: &str = "date,commit,device,matrix,rows,nnz,method,preconditioner,outcome,iterations,ms,true_residual,\
                      against,against_outcome,against_iterations,against_ms,ratio";

fn main() -> Result<()> {
    machine::join_threads()?;
    let mut table = Table { keep: std::env::args().any(|arg| arg == "record"), rows: vec![] };
    for name in ["heat_sink_p1_27k", "elast_bracket_p1_59k", "heat_sink_p1_340k"] {
        if let Some(a) = matrix(name)? {
            positive_definite(&mut table, name, &a)?;
        }
    }
    if let Some(a) = matrix("convdiff_channel_p1_186k")? {
        general(&mut table, "convdiff_channel_p1_186k", &a)?;
    }
    if let Some(a) = matrix("stokes_tiny")? {
        let diagonal = saddle_point_diagonal(&a, 1704);
        indefinite(&mut table, "stokes_tiny", &a, &Jacobi::from_diagonal(&diagonal)?)?;
    }
    if let Some(a) = matrix("ngs_screw_helmholtz")? {
        let magnitudes: Vec<f64> = a.diagonal_entries().into_iter().map(f64::abs).collect();
        indefinite(&mut table, "ngs_screw_helmholtz", &a, &Jacobi::from_diagonal(&magnitudes)?)?;
    }
    if table.keep {
        record::append(&record::folder(&machine::name()), "methods.csv", HEADER, &table.rows)?;
    }
    Ok(())
}

fn matrix(name: &str) -> Result<Option<Csr<f64>>> {
    let mut wanted =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-') && arg != "record").peekable();
    if wanted.peek().is_some() && !wanted.any(|wanted| wanted == name) {
        return Ok(None);
    }
    match shared_matrix(name) {
        Some(path) => Ok(Some(read_matrix(path)?)),
        None => {
            skipped(&format!("no shared matrix {name}"));
            Ok(None)
        }
    }
}

/// A solve: its method, its preconditioner, and its report.
struct Run(&'static str, &'static str, Report);

struct Table {
    keep: bool,
    rows: Vec<String>,
}

impl Table {
    fn compare(&mut self, name: &str, a: &Csr<f64>, run: &Run, against: &Run) {
        let Run(method, preconditioner, report) = run;
        let Run(other, with, before) = against;
        let ratio = before.iterations as f64 / report.iterations as f64;
        println!(
            "{name}: {method}, {preconditioner}: {report}\n  against {other}, {with}: {before}: {ratio:.2}"
        );
        let outcome = |report: &Report| format!("{:?}", report.outcome).replace(',', ";");
        self.rows.push(format!(
            "{},{},{},{name},{},{},{method},{preconditioner},{},{},{:.1},{:.3e},{other} {with},{},{},{:.1},{ratio:.2}",
            machine::date(),
            machine::commit(),
            machine::device(),
            a.rows(),
            a.nnz(),
            outcome(report),
            report.iterations,
            1e3 * report.time.as_secs_f64(),
            report.relative_residual(),
            outcome(before),
            before.iterations,
            1e3 * before.time.as_secs_f64(),
        ));
    }
}

fn run<K, M>(
    method: &'static str,
    preconditioner: &'static str,
    solver: Solver<K, &Csr<f64>, M>,
) -> Result<Run>
where
    K: Method<HostVector<f64>>,
    M: LinearOperator<Vector = HostVector<f64>>,
{
    let mut solver = solver.rtol(1e-8).max_iterations(20_000).time_limit(Duration::from_secs(60));
    let b = matrices::vector(solver.operator().rows());
    Ok(Run(method, preconditioner, solver.solve(&b)?.report))
}

/// A solve to a loose tolerance as a preconditioner, a nonlinear operator.
fn inner<'a, K, M>(
    solver: Solver<K, &'a Csr<f64>, M>,
) -> impl LinearOperator<Vector = HostVector<f64>> + use<'a, K, M>
where
    K: Method<HostVector<f64>> + Send + 'a,
    M: LinearOperator<Vector = HostVector<f64>> + 'a,
{
    let space = solver.operator().domain().clone();
    let solver = Mutex::new(solver.rtol(0.3));
    OperatorFn::new(&space, &space, move |x: &HostVector<f64>, y: &mut HostVector<f64>| {
        y.axpby(&0.0, x, &0.0);
        solver.lock().unwrap_or_else(PoisonError::into_inner).solve_into(x, y)?;
        Ok(())
    })
}

fn positive_definite(table: &mut Table, name: &str, a: &Csr<f64>) -> Result<()> {
    let jacobi = Jacobi::new(a)?;
    let plain = run("CG", "Jacobi", Cg::new(a).preconditioner(&jacobi))?;
    for (degree, called) in [(2, "Chebyshev(2)"), (4, "Chebyshev(4)"), (8, "Chebyshev(8)")] {
        let m = Chebyshev::new(a, &jacobi, degree)?;
        table.compare(name, a, &run("CG", called, Cg::new(a).preconditioner(m))?, &plain);
    }
    let loose = || inner(Cg::new(a).preconditioner(&jacobi));
    let rigid = run("CG", "CG to 0.3", Cg::new(a).preconditioner(loose()))?;
    table.compare(name, a, &run("FCG", "CG to 0.3", Fcg::new(a).preconditioner(loose()))?, &rigid);
    Ok(())
}

fn general(table: &mut Table, name: &str, a: &Csr<f64>) -> Result<()> {
    let jacobi = Jacobi::new(a)?;
    let loose = || inner(BiCgStab::new(a).preconditioner(&jacobi));
    let rigid = run("GMRES(30)", "BiCGStab to 0.3", Gmres::new(a).preconditioner(loose()))?;
    let flexible = run("FGMRES(30)", "BiCGStab to 0.3", Fgmres::new(a).preconditioner(loose()))?;
    table.compare(name, a, &flexible, &rigid);
    let plain = run("GMRES(30)", "Jacobi", Gmres::new(a).preconditioner(&jacobi))?;
    table.compare(name, a, &flexible, &plain);
    Ok(())
}

fn indefinite(table: &mut Table, name: &str, a: &Csr<f64>, diagonal: &Jacobi<f64>) -> Result<()> {
    let minres = run("MINRES", "diagonal", Minres::new(a).preconditioner(diagonal))?;
    let gmres = run("GMRES(30)", "diagonal", Gmres::new(a).preconditioner(diagonal))?;
    let bicgstab = run("BiCGStab", "diagonal", BiCgStab::new(a).preconditioner(diagonal))?;
    table.compare(name, a, &minres, &gmres);
    table.compare(name, a, &minres, &bicgstab);
    Ok(())
}

/// The diagonal `D` of `A`, and that of `B D⁻¹ Bᵀ`, for `[A Bᵀ; B 0]` in which `first_of_b` is the first row
/// of `B`.
fn saddle_point_diagonal(a: &Csr<f64>, first_of_b: usize) -> Vec<f64> {
    let mut diagonal = a.diagonal_entries();
    for row in first_of_b..a.rows() {
        let entries = a.row_columns(row).iter().zip(a.row_values(row));
        let velocities = entries.filter(|(column, _)| (**column as usize) < first_of_b);
        diagonal[row] = velocities.map(|(&column, v)| v * v / diagonal[column as usize]).sum();
    }
    diagonal
}
