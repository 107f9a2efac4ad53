//! How every method ends on every system of ../shared/matrices, with default settings and 20,000 allowed iterations.
//!
//! ```text
//! cargo bench --bench endings [-- [--gpu] [--to-the-end] [--rows FROM..TO] [--methods CG,GMRES] [--two-level 512]
//!     [heat_sink_p1_27k ...]]
//! ```
//!
//! `--two-level 512` uses `TwoLevel` with 512 coarse unknowns as preconditioner, and rigid body modes if the coordinates of
//! the nodes are known.
//!
//! Prints one line of CSV for each solve. `--to-the-end` turns off the check for stagnation: a solve that converges with it
//! and stagnates without it was ended too early. The right-hand side comes with the matrix, or is all ones. The preconditioner
//! is `Jacobi` if the diagonal has no zeros.

#[allow(dead_code, reason = "a part of it is used")]
#[path = "preconditioners/system.rs"]
mod system;

use krysp::io::{read_matrix, read_vector};
use krysp::solvers::{Identity, Method, Solver};
use krysp::testing::{SHARED_FOLDERS, shared_matrices};
use krysp::{
    BiCgStab, Cg, CoarseSpace, Csr, Fcg, Fgmres, Gmres, Idr, Jacobi, LinearOperator, Minres, PipelinedCg,
    Solution, TwoLevel, Vector,
};
use std::ops::Range;
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const RTOL: f64 = 1e-8;
const ITERATIONS: usize = 20_000;

struct Options {
    gpu: bool,
    to_the_end: bool,
    rows: Range<usize>,
    methods: Option<String>,
    two_level: Option<usize>,
    wanted: Vec<String>,
}

fn main() -> Result<()> {
    let mut options = Options {
        gpu: false,
        to_the_end: false,
        rows: 0..usize::MAX,
        methods: None,
        two_level: None,
        wanted: vec![],
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--bench" => {}
            "--gpu" => options.gpu = true,
            "--to-the-end" => options.to_the_end = true,
            "--methods" => options.methods = Some(args.next().ok_or("--methods needs names")?),
            "--two-level" => {
                options.two_level = Some(args.next().ok_or("--two-level needs a number")?.parse()?);
            }
            "--rows" => {
                let range = args.next().ok_or("--rows needs FROM..TO")?;
                let (from, to) = range.split_once("..").ok_or("--rows needs FROM..TO")?;
                options.rows = from.parse()?..to.parse()?;
            }
            name => options.wanted.push(name.into()),
        }
    }
    println!("matrix,rows,nnz,method,preconditioner,outcome,iterations,relative_residual,seconds");
    let mut found = 0;
    for path in matrices(&options) {
        found += usize::from(all_methods(&options, &path)?);
    }
    if found == 0 {
        eprintln!("no system found in ../shared/matrices");
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
            let vector = ["_b", "_x", "_f", "_coord", "_Mp"].iter().any(|end| name.ends_with(end));
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

fn all_methods(options: &Options, path: &Path) -> Result<bool> {
    let name = name_of(path);
    let a: Csr<f64> = match read_matrix(path) {
        Ok(a) if a.rows() == a.cols() => a,
        Ok(a) => {
            eprintln!("{name}: {} x {} is not square", a.rows(), a.cols());
            return Ok(false);
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            return Ok(false);
        }
    };
    if !options.rows.contains(&a.rows()) {
        return Ok(false);
    }
    let file = path.to_string_lossy();
    let b = match read_vector(file.replace(".mtx", "_b.mtx")) {
        Ok(b) => b,
        Err(_) => vec![1.0; a.rows()],
    };
    let line = Line { options, name: &name, a: &a, b: &b };
    if options.gpu && !cfg!(feature = "cuda") {
        return Err("--gpu needs the feature cuda".into());
    }
    if let Some(unknowns) = options.two_level {
        let coarse = match system::System::new(&name, false)?.rigid {
            Some(modes) => CoarseSpace::with_near_null_space(&a, unknowns, &modes)?,
            None => CoarseSpace::new(&a, unknowns)?,
        };
        let with = format!("TwoLevel {unknowns}");
        #[cfg(feature = "cuda")]
        if options.gpu {
            use krysp::ToCuda;
            let gpu = krysp::Cuda::new(0)?;
            let m = TwoLevel::with_inner_on(Jacobi::new(&a)?.to(&gpu)?, coarse, &a)?;
            line.methods(&a.to(&gpu)?, &m, &with)?;
            return Ok(true);
        }
        line.methods(&a, &TwoLevel::with_inner(Jacobi::new(&a)?, coarse, &a)?, &with)?;
        return Ok(true);
    }
    let jacobi = Jacobi::new(&a);
    if options.gpu {
        #[cfg(feature = "cuda")]
        {
            use krysp::ToCuda;
            let gpu = krysp::Cuda::new(0)?;
            let fast = a.to(&gpu)?;
            match jacobi {
                Ok(m) => line.methods(&fast, &m.to(&gpu)?, "Jacobi")?,
                Err(_) => line.methods(&fast, &Identity::new(fast.domain()), "none")?,
            }
            return Ok(true);
        }
    }
    match jacobi {
        Ok(m) => line.methods(&a, &m, "Jacobi")?,
        Err(_) => line.methods(&a, &Identity::new(a.domain()), "none")?,
    }
    Ok(true)
}

/// One system that every method solves.
struct Line<'l> {
    options: &'l Options,
    name: &'l str,
    a: &'l Csr<f64>,
    b: &'l [f64],
}

impl Line<'_> {
    fn methods<A, M>(&self, a: &A, m: &M, with: &str) -> Result<()>
    where
        A: LinearOperator,
        A::Vector: Vector<Elem = f64>,
        M: LinearOperator<Vector = A::Vector>,
    {
        self.solve("CG", with, Cg::new(a).preconditioner(m))?;
        self.solve("PIPELINED", with, PipelinedCg::new(a).preconditioner(m))?;
        self.solve("FCG", with, Fcg::new(a).preconditioner(m))?;
        self.solve("MINRES", with, Minres::new(a).preconditioner(m))?;
        self.solve("BiCGStab", with, BiCgStab::new(a).preconditioner(m))?;
        self.solve("IDR(4)", with, Idr::new(a).preconditioner(m))?;
        self.solve("GMRES", with, Gmres::new(a).preconditioner(m))?;
        self.solve("FGMRES", with, Fgmres::new(a).preconditioner(m))
    }

    fn solve<K, A, M>(&self, method: &str, with: &str, solver: Solver<K, A, M>) -> Result<()>
    where
        A: LinearOperator,
        A::Vector: Vector<Elem = f64>,
        K: Method<A::Vector>,
        M: LinearOperator<Vector = A::Vector>,
    {
        if self.options.methods.as_ref().is_some_and(|methods| methods.split(',').all(|one| one != method)) {
            return Ok(());
        }
        let mut solver = solver.rtol(RTOL).max_iterations(ITERATIONS);
        if self.options.to_the_end {
            solver = solver.stagnation_window(usize::MAX);
        }
        let Solution { report, .. } = solver.solve(self.b)?;
        let text = report.to_string();
        let outcome = text.split(" after ").next().unwrap_or_default().replace(',', ";");
        println!(
            "{},{},{},{method},{with},{outcome},{},{:.3e},{:.3}",
            self.name,
            self.a.rows(),
            self.a.nnz(),
            report.iterations,
            report.relative_residual(),
            report.time.as_secs_f64(),
        );
        Ok(())
    }
}
