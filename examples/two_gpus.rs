//! A system shared by all GPUs of this machine, beside one of them.
//!
//! ```text
//! cargo run --release --features testing --example two_gpus [MATRIX] [GPUS]
//! ```

use krysp::testing::matrices;
use krysp::{Cg, Csr, Cuda, Halo, Jacobi, Numbering, Operator, Spread, ToCuda};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or("p1_10M_perm".into());
    let all = Cuda::devices().len();
    let count = args.next().map_or(Ok(all), |count| count.parse())?;
    if all == 0 {
        println!("no GPU on this machine");
        return Ok(());
    }
    let a: Csr<f64> = matrices::named(&name).ok_or("no such matrix")?.diagonally_dominant().csr()?;
    let first = Cuda::new(0)?;
    // unknowns that are read together lie together, so that few rows read what another GPU owns
    let a = a.renumbered(&Numbering::clustered(&a, Halo::rows_per_block(&first, &a))?)?;
    let b = vec![1.0; a.rows()];

    let op = Operator::auto(&a, &first)?;
    println!("{name}: {} rows, {} entries, alone as {}", a.rows(), a.nnz(), op.choice().stored());
    let jacobi = Jacobi::new(&a)?.to(&first)?;
    let time = |iterations: usize| -> Result<_, Box<dyn std::error::Error>> {
        let mut solver =
            Cg::new(&op).preconditioner(&jacobi).rtol(0.0).patience(usize::MAX).max_iterations(iterations);
        let times = (0..3).map(|_| Ok(solver.solve(&b)?.report.time.as_secs_f64()));
        times
            .collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()
            .map(|times| times.into_iter().fold(f64::INFINITY, f64::min))
    };
    let one = (time(300)? - time(60)?) / 240.0;

    let gpus = (0..count).map(|ordinal| Cuda::new(ordinal % all)).collect::<Result<Vec<_>, _>>()?;
    let spread = Spread::new(&gpus, &a)?;
    println!("{spread}");
    let time = |iterations: usize| -> Result<_, Box<dyn std::error::Error>> {
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let solution = spread.solve(&b, |part, b| {
                let solver = Cg::new(part).preconditioner(part.jacobi()?).rtol(0.0).patience(usize::MAX);
                Ok(solver.max_iterations(iterations).solve(b)?)
            })?;
            best = best.min(solution.report.time.as_secs_f64());
        }
        Ok(best)
    };
    let several = (time(300)? - time(60)?) / 240.0;
    println!(
        "{:.4} ms an iteration alone, {:.4} ms on {count}: {:.2} times as fast",
        one * 1e3,
        several * 1e3,
        one / several
    );
    Ok(())
}
