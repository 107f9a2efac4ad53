//! A system distributed over all GPUs of this machine, compared with one GPU.
//!
//! ```text
//! cargo run --release --example two_gpus [MATRIX] [GPUS]
//! ```

use krysp::testing::matrices;
use krysp::{BiCgStab, Cg, Csr, Cuda, Gmres, Halo, Jacobi, Minres, MultiGpu, Operator, Permutation, ToCuda};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or("p1_10M_perm".into());
    let all = Cuda::devices().len();
    let count = args.next().map_or(Ok(all), |count| count.parse())?.min(all);
    if count == 0 {
        println!("no GPU on this machine");
        return Ok(());
    }
    let a: Csr<f64> = matrices::named(&name).ok_or("no such matrix")?.diagonally_dominant().csr()?;
    let first = Cuda::new(0)?;
    // reorder for locality, so that few rows need entries of `x` from other GPUs
    let a = a.reordered(&Permutation::clustered(&a, Halo::rows_per_block(&first, &a))?)?;
    let b = vec![1.0; a.rows()];

    let (op, jacobi) = (Operator::auto(&a, &first)?, Jacobi::new(&a)?.to(&first)?);
    println!("{name}: {} rows, {} entries; alone as {}", a.rows(), a.nnz(), op.choice().stored());
    let gpus = (0..count).map(Cuda::new).collect::<std::result::Result<Vec<_>, _>>()?;
    let multi_gpu = MultiGpu::on_all_gpus(&gpus, &a)?;
    println!("{multi_gpu}\n{}", multi_gpu.balance()?);
    macro_rules! compare {
        ($($method:ident),*) => {$({
            let alone = milliseconds(|iterations| {
                let solver = $method::new(&op).preconditioner(&jacobi).rtol(0.0).stagnation_window(usize::MAX);
                Ok(solver.max_iterations(iterations).solve(&b)?.report.time.as_secs_f64())
            })?;
            let together = milliseconds(|iterations| {
                let solution = multi_gpu.solve(&b, |part, b| {
                    let solver = $method::new(part).preconditioner(part.jacobi()?).rtol(0.0).stagnation_window(usize::MAX);
                    solver.max_iterations(iterations).solve(b)
                })?;
                Ok(solution.report.time.as_secs_f64())
            })?;
            println!(
                "{}: {alone:.4} ms per iteration on one GPU, {together:.4} ms on {count}: {:.2} times as fast",
                stringify!($method),
                alone / together
            );
        })*};
    }
    compare!(Cg, BiCgStab, Gmres, Minres);
    Ok(())
}

/// The time of an iteration: the difference of a long and a short solve, each the fastest of five, per iteration.
fn milliseconds(solve: impl Fn(usize) -> Result<f64>) -> Result<f64> {
    let fastest = |iterations| (0..5).try_fold(f64::INFINITY, |least, _| Ok(solve(iterations)?.min(least)));
    let [short, long] = [60, 300].map(fastest) as [Result<f64>; 2];
    Ok(1e3 * (long? - short?) / 240.0)
}
