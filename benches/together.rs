//! Products and solves of the host and a GPU together, after Yang, Li, Mo and Li (2015).
//!
//! ```text
//! cargo bench --bench together                  # four matrices
//! cargo bench --bench together -- p7_128        # the matrices named
//! cargo bench --bench together -- --slowed      # the GPU repeats products, so that it is about as fast as the host
//! ```
//!
//! Prints for each matrix: the shares of host and GPU by measured powers, with predicted and measured times; the time of a product and of
//! an iteration of conjugate gradients on both and on the GPU alone; the largest imbalance of a processor, and the mean density, of
//! algorithms 2 and 3 for eight equal cores, and for two GPUs of power 75 with six cores. Without a GPU, host memory replaces it.
//!
//! With `--slowed` it prints how shares by measured times settle, and the time of a product on both and on either alone.

use krysp::host_and_gpus::{Coprocessor, DiagonalBlocks, HostAndGpus, SplitMatrix, StandIn};
use krysp::partition::{RowShares, by_length_classes, by_nonzeros, quality, ranges};
use krysp::testing::matrices::named;
use krysp::{Cg, Csr, Cuda, Jacobi, LinearOperator, Operator, Permutation, Space, ToCuda};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A stencil, an elastic body, tetrahedra in a clustered order, and rows of uneven lengths.
const MATRICES: [&str; 4] = ["st7_100M_nat", "el3_100M_perm", "p1_100M_perm", "rmat_33M"];

/// Iterations of a timed solve.
const ITERATIONS: usize = 100;

/// Number of times that `--slowed` cuts new shares. A guess.
const ROUNDS: usize = 6;

fn main() -> Result<()> {
    let (flags, mut names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let slowed = flags.iter().any(|flag| flag == "--slowed");
    if names.is_empty() {
        names = MATRICES.map(String::from).to_vec();
    }
    for name in names {
        let Some(matrix) = named(&name) else { return Err(format!("no matrix {name}").into()) };
        let symmetric = !name.starts_with("rmat");
        let a: Csr<f64> = if symmetric { matrix.diagonally_dominant() } else { matrix }.csr()?;
        let a = if name.contains("perm") { a.reordered(&Permutation::clustered(&a, 256)?)? } else { a };
        println!("\n== {name}");
        let gpu = match Cuda::devices().is_empty() {
            true => None,
            false => Some(Cuda::new(0)?),
        };
        if gpu.is_none() {
            println!("no GPU: host memory stands in for one");
        }
        if slowed {
            match &gpu {
                Some(gpu) => slowed_pair(std::slice::from_ref(gpu), &a)?,
                None => slowed_pair(&[StandIn::default()], &a)?,
            }
            continue;
        }
        imbalances(&a)?;
        let Some(gpu) = gpu else {
            together(&[StandIn::default()], &a, symmetric)?;
            continue;
        };
        together(std::slice::from_ref(&gpu), &a, symmetric)?;
        alone(&gpu, &a, symmetric)?;
        blocks(&gpu, &a)?;
    }
    Ok(())
}

/// Largest imbalance and mean density of algorithms 2 and 3.
fn imbalances(a: &Csr<f64>) -> Result<()> {
    let lengths: Vec<usize> = a.row_lengths().collect();
    println!("{:28}{:>16}{:>16}{:>12}{:>12}", "", "imbalance, %:", "", "density, %:", "");
    println!("{:28}{:>16}{:>16}{:>12}{:>12}", "powers", "alg. 2", "alg. 3", "alg. 2", "alg. 3");
    for (what, powers) in [
        ("eight equal cores", [1.0; 8]),
        ("two GPUs and six cores", [75.0, 75.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ] {
        let contiguous: Vec<Vec<usize>> =
            ranges(&by_nonzeros(&lengths, &powers)?).map(Iterator::collect).collect();
        let of = |parts| -> Result<[f64; 2]> {
            let quality = quality(&lengths, parts, &powers)?;
            let largest = quality.parts.iter().map(|part| part.imbalance()).fold(0.0, f64::max);
            Ok([100.0 * largest, 100.0 * quality.density])
        };
        let [two, three] = [of(contiguous)?, of(by_length_classes(&lengths, &powers)?)?];
        println!("{what:28}{:>16.5}{:>16.5}{:>12.1}{:>12.1}", two[0], three[0], two[1], three[1]);
    }
    Ok(())
}

/// Shares by measured powers, then by measured times, contiguous and by lengths of rows.
fn together<M: Coprocessor<f64>>(machines: &[M], a: &Csr<f64>, symmetric: bool) -> Result<()> {
    let started = Instant::now();
    let by_powers = SplitMatrix::on_all(machines, a)?;
    println!("built in {:.2} s\n{by_powers}", started.elapsed().as_secs_f64());
    let measured = by_powers.balance()?;
    println!("shares by measured powers:\n{measured}");
    iteration("both", &by_powers, by_powers.jacobi()?, symmetric)?;
    drop(by_powers);
    let cuts = [
        ("shares by measured times", RowShares::by_nonzeros(a, &measured.powers())?),
        ("algorithm 3", RowShares::by_length_classes(a, &measured.powers())?),
    ];
    for (what, shares) in cuts {
        let shared = SplitMatrix::with_shares(machines, a, &shares)?;
        println!("{what}:\n{}", shared.balance()?);
        iteration("both", &shared, shared.jacobi()?, symmetric)?;
    }
    let chosen = SplitMatrix::new(machines, a)?;
    let pays = chosen.members().first().is_some_and(|host| host.rows.rows > 0);
    println!("chosen: {}", if pays { "with the host" } else { "without the host" });
    Ok(())
}

/// Shares of the host and of a GPU that repeats its products, so that it takes about as long as the host; then both beside either alone.
fn slowed_pair<M: Coprocessor<f64>>(machines: &[M], a: &Csr<f64>) -> Result<()> {
    let seconds = |shares: &[f64]| -> Result<f64> {
        Ok(SplitMatrix::with_shares(machines, a, &RowShares::by_nonzeros(a, shares)?)?.balance()?.product)
    };
    let times = (seconds(&[1.0, 0.0])? / seconds(&[0.0, 1.0])?).round().max(1.0) as usize - 1;
    println!("the GPU multiplies by its rows {times} more times");
    let measured = |shares: &[f64]| {
        let shares = RowShares::by_nonzeros(a, shares)?;
        SplitMatrix::with_shares(machines, a, &shares)?.slowed(1, &(0..a.rows()), times)?.balance()
    };
    let mut both = measured(&[1.0, 1.0])?;
    for _ in 0..ROUNDS {
        println!("{both}");
        both = measured(&both.powers())?;
    }
    println!("{both}");
    let [host, gpu] = [measured(&[1.0, 0.0])?.product, measured(&[0.0, 1.0])?.product];
    println!(
        "a product: both {:.4} ms, the host alone {:.4} ms, the slow GPU alone {:.4} ms",
        1e3 * both.product,
        1e3 * host,
        1e3 * gpu
    );
    Ok(())
}

/// Prints the milliseconds of an iteration of conjugate gradients.
fn iteration<A: LinearOperator, P: LinearOperator<Vector = A::Vector>>(
    what: &str,
    a: &A,
    jacobi: P,
    symmetric: bool,
) -> Result<()>
where
    A::Vector: krysp::Vector<Elem = f64>,
{
    if !symmetric {
        return Ok(());
    }
    let b = vec![1.0; a.domain().len()];
    let mut solver = Cg::new(a).preconditioner(jacobi).rtol(0.0).max_iterations(ITERATIONS);
    solver.solve(&b)?;
    let (mut b_there, mut x) = (a.domain().zeros()?, a.domain().zeros()?);
    a.domain().load(&b, &mut b_there)?;
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        a.domain().load(&vec![0.0; b.len()], &mut x)?;
        let started = Instant::now();
        let report = solver.solve_into(&b_there, &mut x)?;
        least = least.min(started.elapsed().as_secs_f64() / report.iterations.max(1) as f64);
    }
    println!("an iteration on {what}: {:.4} ms", 1e3 * least);
    Ok(())
}

/// The GPU alone.
fn alone(gpu: &Cuda, a: &Csr<f64>, symmetric: bool) -> Result<()> {
    let on_gpu = Operator::auto(a, gpu)?;
    let (x, mut y) = (on_gpu.domain().zeros()?, on_gpu.range().zeros()?);
    on_gpu.apply(&x, &mut y)?;
    gpu.synchronize()?;
    let started = Instant::now();
    (0..ITERATIONS).try_for_each(|_| on_gpu.apply(&x, &mut y))?;
    gpu.synchronize()?;
    let ms = 1e3 * started.elapsed().as_secs_f64() / ITERATIONS as f64;
    println!("a product on the GPU alone: {ms:.4} ms ({})", on_gpu.choice().stored());
    iteration("the GPU alone", &on_gpu, Jacobi::new(a)?.to(gpu)?, symmetric)?;
    let without = RowShares::by_nonzeros(a, &[0.0, 1.0])?;
    let without = HostAndGpus::with_shares(std::slice::from_ref(gpu), a, &without)?;
    iteration("the GPU alone, driven by the host", &without, without.jacobi()?, symmetric)
}

/// Algorithm 4.
fn blocks(gpu: &Cuda, a: &Csr<f64>) -> Result<()> {
    if a.domain().permutation().is_some() {
        return Ok(());
    }
    let split = match DiagonalBlocks::new(gpu, a, 32) {
        Ok(split) => split,
        Err(error) => {
            println!("algorithm 4: {error}");
            return Ok(());
        }
    };
    let (x, mut y) = (split.domain().zeros()?, split.domain().zeros()?);
    split.apply(&x, &mut y)?;
    gpu.synchronize()?;
    let started = Instant::now();
    (0..10).try_for_each(|_| split.apply(&x, &mut y))?;
    gpu.synchronize()?;
    println!(
        "algorithm 4, blocks of 32 rows: a product takes {:.4} ms",
        100.0 * started.elapsed().as_secs_f64()
    );
    Ok(())
}
