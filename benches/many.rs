//! Time per vector of products and of CG iterations with several vectors, compared with those with one
//! vector.
//!
//! ```text
//! cargo bench --bench many [-- p7_128 tets_128 elasticity_60 ...]
//! cargo bench --bench many -- --gpu [p7_128 el3_100M_perm p1_100M_perm ...]
//!     --solves            on a GPU: instead of products, solves by conjugate gradients with several preconditioners
//!     --write FOLDER      writes the measured matrices, in their order, for `benches/cusparse_many.py`
//! ```
//!
//! `tets_128` are tetrahedra on 128³ nodes in clustered ordering; `elasticity_60` is linear elasticity of
//! hexahedra with 60³ free nodes. Other names are those of shared or generated matrices. Times are the
//! minimum over rounds, in which products with one vector and with several take turns. "Bytes allow" is the
//! memory traffic per vector, relative to that of a product with one vector: the matrix is read once for all
//! vectors.
//!
//! With the feature `peers`, the product of MKL with eight vectors is measured too, if MKL is found: stored
//! row by row and column by column, with CSR and BSR, in turns with the product of the chosen format.
//!
//! For positive definite matrices, applications of preconditioners to several vectors are measured likewise,
//! and solves for eight load cases by CG with AMG: with rigid body modes for `elasticity_60`, and for shared
//! matrices whose coordinates are known, such as `elast_bracket_p1_59k`.
//!
//! On a GPU, products are timed in batches, back to back. A matrix is measured in its given ordering with the
//! chosen format, BSR, SELL-P and CSR, and in clustered ordering (except for stencils `p7`) with Halo, SELL-P
//! and BSR.

#[cfg(feature = "peers")]
mod common;
#[cfg(feature = "cuda")]
#[path = "many/gpu.rs"]
mod gpu;
#[path = "many/load_cases.rs"]
mod load_cases;
#[cfg(feature = "peers")]
#[path = "many/mkl.rs"]
mod mkl;
#[cfg(feature = "cuda")]
#[path = "many/solves.rs"]
mod solves;
#[cfg(feature = "cuda")]
#[allow(dead_code, reason = "a part of it is used")]
#[path = "preconditioners/system.rs"]
mod system;

use krysp::io::read_matrix;
use krysp::solvers::MultiVector;
use krysp::testing::matrices::{self, NodeOrder};
use krysp::testing::shared_matrix;
use krysp::{Cg, Csr, Host, HostVector, Jacobi, LinearOperator, Operator, Permutation, Space};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 7;
const COUNTS: [usize; 5] = [2, 3, 4, 8, 16];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = arguments.iter().position(|argument| argument == "--write").map(|at| at + 1);
    let names =
        arguments.iter().enumerate().filter(|(at, name)| Some(*at) != folder && !name.starts_with('-'));
    let mut names: Vec<String> = names.map(|(_, name)| name.clone()).collect();
    #[cfg(feature = "cuda")]
    if arguments.iter().any(|argument| argument == "--solves") {
        return solves::all(names);
    }
    #[cfg(feature = "cuda")]
    if arguments.iter().any(|argument| argument == "--gpu") {
        return gpu::all(names, folder.and_then(|at| arguments.get(at)));
    }
    if names.is_empty() {
        names = ["p7_128", "tets_128", "elasticity_60"].map(String::from).into();
    }
    for name in &names {
        let a = matrix(name)?;
        println!("{name}: {} rows, {} entries", a.rows(), a.nnz());
        let auto = Operator::auto(&a, &Host)?;
        let chosen = auto.choice().stored().to_string();
        products(&format!("chosen: {chosen}"), &auto)?;
        #[cfg(feature = "peers")]
        mkl::eight(&a, &auto)?;
        for format in ["CSR", "SELL-P", "BSR"] {
            if let Ok(operator) = Operator::in_format(&a, &Host, format) {
                products(format, &operator)?;
            }
        }
        iterations(&a, &auto)?;
        load_cases::all(name, &a, &auto)?;
    }
    Ok(())
}

fn matrix(name: &str) -> Result<Csr<f64>> {
    let side = |prefix: &str| name.strip_prefix(prefix).and_then(|side| side.parse().ok());
    if let Some(side) = side("tets_") {
        let a = matrices::tetrahedra(side, NodeOrder::Natural).csr::<f64>()?;
        let permutation = Permutation::clustered(&a, 1024)?;
        return Ok(a.reordered(&permutation)?);
    }
    if let Some(side) = side("elasticity_") {
        return Ok(matrices::elasticity(side).csr()?);
    }
    if let Some(path) = shared_matrix(name) {
        return Ok(read_matrix(path)?);
    }
    let matrix = matrices::named(name).ok_or_else(|| format!("no matrix is named {name}"))?;
    Ok(matrix.csr()?)
}

/// The minimum time of each function, in milliseconds. The functions are called in turns.
fn best<const N: usize>(work: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    let mut work = work;
    for _ in 0..ROUNDS {
        for (work, best) in work.iter_mut().zip(&mut best) {
            let started = Instant::now();
            work();
            *best = best.min(started.elapsed().as_secs_f64() * 1e3);
        }
    }
    best
}

fn vector(a: &impl LinearOperator<Vector = HostVector<f64>>, seed: usize) -> Result<HostVector<f64>> {
    let n = a.domain().len();
    let entries: Vec<f64> = (0..n).map(|i| ((i * 7 + seed * 13) % 101) as f64 / 50.0 - 1.0).collect();
    Ok(a.domain().vector(&entries)?)
}

/// Memory traffic per vector of a product with `count` vectors, relative to that of a product with one
/// vector.
fn allowed(matrix: usize, rows: usize, count: usize) -> f64 {
    let (matrix, vectors) = (matrix as f64, (2 * rows * size_of::<f64>()) as f64);
    (matrix / count as f64 + vectors) / (matrix + vectors)
}

fn products(name: &str, a: &impl LinearOperator<Vector = HostVector<f64>>) -> Result<()> {
    for count in COUNTS {
        let columns = (0..count).map(|seed| vector(a, seed)).collect::<Result<Vec<_>>>()?;
        let x = MultiVector::from_columns(a.domain(), columns)?;
        let mut y = MultiVector::<HostVector<f64>>::zeros(a.range(), count)?;
        let mut z = a.range().zeros()?;
        let mut failed = Ok(());
        let [single, joint] = best([
            &mut || failed = std::mem::replace(&mut failed, Ok(())).and(a.apply(&x.columns()[0], &mut z)),
            &mut || a.apply_many(&x, &mut y).unwrap_or_default(),
        ]);
        failed?;
        let allowed = allowed(a.bytes(), a.domain().len(), count);
        println!(
            "  {name:24} {count:2} vectors: single {single:7.2} ms, joint {joint:8.2} ms, {:.3} of a single one for each; bytes allow {allowed:.3}",
            joint / count as f64 / single
        );
    }
    Ok(())
}

/// Fifty iterations of conjugate gradients with Jacobi, for one and for eight right-hand sides.
fn iterations(a: &Csr<f64>, operator: &Operator<HostVector<f64>>) -> Result<()> {
    let n = operator.domain().len();
    let b: Vec<Vec<f64>> = (1..9).map(|j| (0..n).map(|i| ((i * j) % 17) as f64 - 8.0).collect()).collect();
    let jacobi = Jacobi::new(a)?;
    let mut solver = Cg::new(operator).preconditioner(&jacobi).max_iterations(50).rtol(1e-14);
    let mut many = Cg::new(operator).preconditioner(&jacobi).max_iterations(50).rtol(1e-14);
    let columns =
        b.iter().map(|b| operator.domain().vector(b)).collect::<krysp::solvers::Result<Vec<_>>>()?;
    let rhs = MultiVector::from_columns(operator.domain(), columns)?;
    let (mut x, mut y) =
        (operator.domain().zeros()?, MultiVector::<HostVector<f64>>::zeros(operator.domain(), 8)?);
    let zero = operator.domain().zeros()?;
    let [single, joint] = best([
        &mut || {
            use krysp::BasicVector;
            x.copy_from(&zero);
            let _ = solver.solve_into(&rhs.columns()[0], &mut x);
        },
        &mut || {
            use krysp::BasicVector;
            y.columns_mut().iter_mut().for_each(|y| y.copy_from(&zero));
            let _ = many.solve_many_into(&rhs, &mut y);
        },
    ]);
    println!(
        "  50 iterations of CG with Jacobi: single {single:.0} ms, eight {joint:.0} ms, {:.3} of a single one for each",
        joint / 8.0 / single
    );
    Ok(())
}
