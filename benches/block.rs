//! Block conjugate gradients and block GMRES for 32 right-hand sides, compared with `solve_many` and with a single
//! solve. By `solve_many` conjugate gradients run in lockstep (one iteration for all right-hand sides at a time),
//! and GMRES solves one right-hand side after the other.
//!
//! ```text
//! cargo bench --bench block [-- [--iterations 30] [--columns 32] [--cases Jacobi-rough,Amg-smooth,Ilu0-rough]
//!     [--ways single,many,8,16,32] [--restart 30] [heat_sink_p1_340k convection_60 ...]]
//! ```
//!
//! Names are files of shared matrices or generated ones; `convection_60` is convection and diffusion on a grid of
//! 60³ points. These unsymmetric matrices are solved by GMRES, with `Jacobi` and `Ilu0`, all others by conjugate
//! gradients, with `Jacobi` and `Amg`. `rough` right-hand sides are pseudo-random; `smooth`
//! ones are cosine waves in the row number of the reverse Cuthill-McKee ordering, similar to load cases.
//! Prints, for each way of solving (`--ways`), the number of products with one vector (the sum of the
//! iterations of all columns), the maximum number of iterations of a column, and the time. The way `single`
//! solves for the first column only. With `--iterations`, all solves stop after this many, to compare only
//! times.

use krysp::io::read_matrix;
use krysp::solvers::{BlockMethod, MultiVector, Solver};
use krysp::testing::{matrices, shared_matrix, skipped};
use krysp::{
    Amg, BasicVector, Cg, Csr, Gmres, Host, HostVector, Ilu0, Jacobi, LinearOperator, Operator, Outcome,
    Permutation, Report, gallery,
};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const RTOL: f64 = 1e-8;

struct Options {
    iterations: Option<usize>,
    columns: usize,
    cases: String,
    /// Comma-separated: `single`, `many` (`solve_many`), or the number of columns of a block.
    ways: String,
    /// Steps of a cycle of GMRES.
    restart: usize,
    names: Vec<String>,
}

fn main() -> Result<()> {
    let mut options = Options {
        iterations: None,
        columns: 32,
        cases: "Jacobi-rough,Jacobi-smooth,Amg-rough,Amg-smooth,Ilu0-rough,Ilu0-smooth".into(),
        ways: "single,many,8,16,32".into(),
        restart: 30,
        names: vec![],
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match &*argument {
            "--bench" => {}
            "--iterations" => options.iterations = Some(value()?.parse()?),
            "--columns" => options.columns = value()?.parse()?,
            "--cases" => options.cases = value()?,
            "--ways" => options.ways = value()?,
            "--restart" => options.restart = value()?.parse()?,
            _ => options.names.push(argument),
        }
    }
    if options.names.is_empty() {
        options.names = vec!["heat_sink_p1_340k".into(), "convection_60".into()];
    }
    for name in &options.names {
        let points = name.strip_prefix("convection_").map(str::parse::<usize>).transpose()?;
        let a: Csr<f64> = match (points, shared_matrix(name), matrices::named(name)) {
            (Some(points), ..) => gallery::convection_diffusion(&[points; 3], &[2.0, 0.5, 1.0])?,
            (_, Some(path), _) => read_matrix(path)?,
            (_, None, Some(matrix)) => matrix.csr()?,
            (_, None, None) => {
                skipped(&format!("{name} is neither a generated nor a shared matrix"));
                continue;
            }
        };
        println!("{name}: {} rows, {} entries", a.rows(), a.nnz());
        let operator = Operator::auto(&a, &Host)?;
        for kind in ["rough", "smooth"] {
            let b = right_hand_sides(&a, &operator, kind, options.columns)?;
            let wanted = |name: &str| {
                let case = format!("{name}-{kind}");
                options.cases.split(',').any(|wanted| wanted == case)
            };
            let title = |name: &str| format!("{name}, {kind}");
            if points.is_some() {
                let solver = || Gmres::new(&operator).restart(options.restart);
                if wanted("Jacobi") {
                    let m = Jacobi::new(&a)?;
                    ways(&title("GMRES, Jacobi"), &|| solver().preconditioner(&m), &b, &options)?;
                }
                if wanted("Ilu0") {
                    let m = Ilu0::new(&a)?;
                    ways(&title("GMRES, Ilu0"), &|| solver().preconditioner(&m), &b, &options)?;
                }
                continue;
            }
            if wanted("Jacobi") {
                let m = Jacobi::new(&a)?;
                ways(&title("CG, Jacobi"), &|| Cg::new(&operator).preconditioner(&m), &b, &options)?;
            }
            if wanted("Amg") {
                let m = Amg::new(&a)?;
                ways(&title("CG, Amg"), &|| Cg::new(&operator).preconditioner(&m), &b, &options)?;
            }
        }
    }
    Ok(())
}

fn right_hand_sides(
    a: &Csr<f64>,
    operator: &Operator<HostVector<f64>>,
    kind: &str,
    columns: usize,
) -> Result<MultiVector<HostVector<f64>>> {
    let n = a.rows();
    let places: Vec<f64> = match kind {
        "smooth" => {
            Permutation::rcm(a)?.new_of_old().iter().map(|&place| f64::from(place) / n as f64).collect()
        }
        _ => vec![],
    };
    let column = |j: usize| -> Vec<f64> {
        if kind == "smooth" {
            return places.iter().map(|place| (std::f64::consts::PI * j as f64 * place).cos()).collect();
        }
        let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(j as u64 + 1);
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
        };
        (0..n).map(|_| next()).collect()
    };
    let vectors = (0..columns).map(|j| operator.domain().vector(&column(j)));
    Ok(MultiVector::from_columns(operator.domain(), vectors.collect::<krysp::solvers::Result<_>>()?)?)
}

/// Solves in the requested ways: for the first column of `b` alone, for all columns by `solve_many`, and in
/// blocks.
fn ways<K, A, M>(
    name: &str,
    new: &impl Fn() -> Solver<K, A, M>,
    b: &MultiVector<HostVector<f64>>,
    options: &Options,
) -> Result<()>
where
    K: BlockMethod<HostVector<f64>>,
    A: LinearOperator<Vector = HostVector<f64>>,
    M: LinearOperator<Vector = HostVector<f64>>,
{
    let (columns, space) = (b.columns().len(), b.columns()[0].space());
    let solver = || new().rtol(RTOL).max_iterations(options.iterations.unwrap_or(10_000));
    let zeros = |count| MultiVector::<HostVector<f64>>::zeros(space, count);
    println!("  {name}");
    for way in options.ways.split(',') {
        let started = Instant::now();
        let (reports, columns) = match way {
            "single" => {
                let mut x = zeros(1)?;
                let report = solver().solve_into(&b.columns()[0], &mut x.columns_mut()[0])?.clone();
                (vec![report], 1)
            }
            "many" => (solver().solve_many_into(b, &mut zeros(columns)?)?.to_vec(), columns),
            width => {
                let mut reports = vec![];
                for group in b.columns().chunks(width.parse()?) {
                    let group = MultiVector::from_columns(space, group.to_vec())?;
                    let mut solver = solver();
                    reports.extend_from_slice(
                        solver.solve_block_into(&group, &mut zeros(group.columns().len())?)?,
                    );
                }
                (reports, columns)
            }
        };
        print(way, &reports, started, columns)?;
    }
    Ok(())
}

fn print(way: &str, reports: &[Report], started: Instant, columns: usize) -> Result<()> {
    let time = started.elapsed().as_secs_f64();
    let ended = |report: &&Report| !matches!(report.outcome, Outcome::Converged | Outcome::IterationLimit);
    if let Some(report) = reports.iter().find(ended) {
        return Err(report.to_string().into());
    }
    let products: usize = reports.iter().map(|report| report.iterations).sum();
    let most = reports.iter().map(|report| report.iterations).max().unwrap_or(0);
    let restarts: usize = reports.iter().map(|report| report.restarts).sum();
    println!(
        "    {way:8} {products:6} products, at most {most:5} iterations, {restarts} restarts, {time:7.2} s, {:6.3} s a column, \
         {:6.2} ms a product",
        time / columns as f64,
        1e3 * time / products as f64
    );
    Ok(())
}
