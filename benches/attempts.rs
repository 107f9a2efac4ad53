//! Solves each system of ../shared/matrices with all combinations of scaling, preconditioner and method, to find those that solve
//! difficult systems.
//!
//! ```text
//! cargo bench --bench attempts [-- [--rows FROM..TO] [--seconds 2] [--drop 1e-3] [--fill 5] [west0479 ...]]
//! ```
//!
//! Prints one line of CSV for each solve, with the times of its phases. A solve may take 2,000 products with the matrix, and
//! `--seconds` in all. A scaled system is solved again with the residual `b − A x` as right-hand side, until its norm is below
//! 1e-8 `‖b‖` or is not halved any more. `b` comes with the matrix, or is all ones.

use krysp::io::{read_matrix, read_vector};
use krysp::solvers::{Method, Solver};
use krysp::testing::{SHARED_FOLDERS, shared_matrices};
use krysp::{
    BiCgStab, Csr, Gmres, HostVector, Idr, Ilu0, Ilut, IlutOptions, Jacobi, LinearOperator, Matching,
    Scaling, Space,
};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const RTOL: f64 = 1e-8;
const PRODUCTS: usize = 2000;

struct Options {
    rows: Range<usize>,
    seconds: f64,
    ilut: IlutOptions,
    wanted: Vec<String>,
}

fn main() -> Result<()> {
    let mut options =
        Options { rows: 0..usize::MAX, seconds: 2.0, ilut: IlutOptions::default(), wanted: vec![] };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--bench" => {}
            "--seconds" => options.seconds = args.next().ok_or("--seconds needs a number")?.parse()?,
            "--drop" => options.ilut.drop_tolerance = args.next().ok_or("--drop needs a number")?.parse()?,
            "--fill" => options.ilut.fill = args.next().ok_or("--fill needs a number")?.parse()?,
            "--rows" => {
                let range = args.next().ok_or("--rows needs FROM..TO")?;
                let (from, to) = range.split_once("..").ok_or("--rows needs FROM..TO")?;
                options.rows = from.parse()?..to.parse()?;
            }
            name => options.wanted.push(name.into()),
        }
    }
    println!(
        "matrix,rows,nnz,scaling,preconditioner,method,solved,iterations,attempts,relative_residual,setup,seconds"
    );
    for folder in SHARED_FOLDERS {
        let Ok(entries) = std::fs::read_dir(shared_matrices().join(folder)) else { continue };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".mtx.gz"))
                && (options.wanted.is_empty() || options.wanted.iter().any(|wanted| wanted == name))
            {
                matrix(name, &path, &options)?;
            }
        }
    }
    Ok(())
}

fn matrix(name: &str, path: &Path, options: &Options) -> Result<()> {
    let a: Csr<f64> = match read_matrix(path) {
        Ok(a) => a,
        Err(error) => {
            eprintln!("{name}: {error}");
            return Ok(());
        }
    };
    let is_system = a.rows() == a.cols() && a.nnz() > a.rows();
    if !is_system || !options.rows.contains(&a.rows()) {
        return Ok(());
    }
    let beside = path.with_file_name(format!("{name}_b.mtx.gz"));
    let b = if beside.is_file() { read_vector(beside)? } else { vec![1.0; a.rows()] };
    for kind in ["none", "equilibrated", "matched"] {
        let started = Instant::now();
        let scaling = match kind {
            "none" => None,
            "equilibrated" => Some(Scaling::equilibrated(&a)?),
            _ => {
                let matching = Matching::of(&a)?;
                let took = started.elapsed().as_secs_f64();
                eprintln!("{name}: {} unmatched, {took:.3} s", matching.unmatched());
                Some(Scaling::matched(&a, &matching)?)
            }
        };
        let scaled = scaling.as_ref().map_or_else(|| Ok(a.clone()), |scaling| scaling.matrix(&a))?;
        let setup = started.elapsed().as_secs_f64();
        let system = System { name, a: &a, b: &b, scaled: &scaled, scaling: scaling.as_ref(), kind, setup };
        system.with("Jacobi", options, || Jacobi::new(&scaled));
        system.with("ILU(0)", options, || Ilu0::new(&scaled));
        system.with("ILUT", options, || {
            let ilut = Ilut::with(&scaled, options.ilut.clone())?;
            let ratio = ilut.entries() as f64 / scaled.nnz() as f64;
            eprintln!("{name}, {kind}: fill {ratio:.2}, {} pivots replaced", ilut.replaced_pivots());
            Ok(ilut)
        });
    }
    Ok(())
}

struct System<'a> {
    name: &'a str,
    a: &'a Csr<f64>,
    b: &'a [f64],
    scaled: &'a Csr<f64>,
    scaling: Option<&'a Scaling<f64>>,
    kind: &'a str,
    setup: f64,
}

impl System<'_> {
    fn with<M: LinearOperator<Vector = HostVector<f64>>>(
        &self,
        what: &str,
        options: &Options,
        build: impl Fn() -> krysp::Result<M>,
    ) {
        let started = Instant::now();
        let m = match build() {
            Ok(m) => m,
            Err(error) => {
                eprintln!("{}, {}: {error}", self.name, self.kind);
                return;
            }
        };
        let setup = self.setup + started.elapsed().as_secs_f64();
        self.line(
            what,
            "BiCGStab",
            setup,
            options,
            PRODUCTS / 2,
            BiCgStab::new(self.scaled).preconditioner(&m),
        );
        self.line(
            what,
            "GMRES(50)",
            setup,
            options,
            PRODUCTS,
            Gmres::new(self.scaled).restart(50).preconditioner(&m),
        );
        self.line(what, "IDR(4)", setup, options, PRODUCTS, Idr::new(self.scaled).preconditioner(&m));
    }

    fn line<K, M>(
        &self,
        preconditioner: &str,
        method: &str,
        setup: f64,
        options: &Options,
        most: usize,
        solver: Solver<K, &Csr<f64>, M>,
    ) where
        K: Method<HostVector<f64>>,
        M: LinearOperator<Vector = HostVector<f64>>,
    {
        let started = Instant::now();
        let norm = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
        let whole = norm(self.b);
        let mut solver = solver.rtol(RTOL);
        let (mut x, mut r) = (vec![0.0; self.b.len()], self.b.to_vec());
        let (mut left, mut iterations, mut attempts) = (1.0, 0, 0);
        while left > RTOL && iterations < most && started.elapsed().as_secs_f64() < options.seconds {
            let rest = options.seconds - started.elapsed().as_secs_f64();
            solver = solver.max_iterations(most - iterations).time_limit(Duration::from_secs_f64(rest));
            let b = self.scaling.map_or_else(|| Ok(r.clone()), |scaling| scaling.rhs(&r));
            let Ok(mut solution) = b.and_then(|b| Ok(solver.solve(&b)?)) else { break };
            if let Some(scaling) = self.scaling {
                scaling.unscale(&mut solution.x).unwrap_or_default();
            }
            attempts += 1;
            iterations += solution.report.iterations;
            let next: Vec<f64> = x.iter().zip(&solution.x).map(|(x, d)| x + d).collect();
            let mut residual = self.b.to_vec();
            self.a.triplets().for_each(|(i, j, value)| residual[i] -= value * next[j]);
            let now = norm(&residual) / whole;
            if now.is_nan() || now >= left {
                break;
            }
            let slow = now > 0.5 * left;
            (x, r, left) = (next, residual, now);
            if slow || self.scaling.is_none() {
                break;
            }
        }
        println!(
            "{},{},{},{},{preconditioner},{method},{},{iterations},{attempts},{left:.1e},{setup:.4},{:.4}",
            self.name,
            self.a.domain().len(),
            self.a.nnz(),
            self.kind,
            u8::from(left <= 2.0 * RTOL),
            started.elapsed().as_secs_f64()
        );
    }
}
