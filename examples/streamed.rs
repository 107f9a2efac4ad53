//! A matrix that exceeds the GPU memory allowed for it and is streamed from the host, compared with the same
//! matrix completely in GPU memory.
//!
//! ```text
//! cargo run --release --example streamed [MATRIX] [SIZE OF THE MATRIX / ALLOWED MEMORY]
//! ```

use krysp::testing::matrices;
use krysp::{
    Cg, Csr, Cuda, CudaVector, Halo, Jacobi, LinearOperator, Operator, Permutation, Space, Streamed, ToCuda,
};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or("p1_10M_perm".into());
    let times: f64 = args.next().map_or(Ok(4.0), |times| times.parse())?;
    if Cuda::devices().is_empty() {
        println!("no GPU on this machine");
        return Ok(());
    }
    let a: Csr<f64> = matrices::named(&name).ok_or("no such matrix")?.diagonally_dominant().csr()?;
    let gpu = Cuda::new(0)?;
    let a = a.reordered(&Permutation::clustered(&a, Halo::rows_per_block(&gpu, &a))?)?;
    let bytes = 12 * a.nnz() + 8 * a.rows();
    let limit = (bytes as f64 / times) as usize;
    println!("{name}: {} rows, {} entries, {:.1} MB as CSR", a.rows(), a.nnz(), bytes as f64 / 1e6);

    let inside = Operator::auto(&a, &gpu)?;
    let started = Instant::now();
    let streamed = Streamed::on(&gpu, &a, limit)?;
    let made = started.elapsed().as_secs_f64();
    println!("{}", streamed.traffic());
    let [alone, over_bus] =
        [&inside as &dyn LinearOperator<Vector = CudaVector<f64>>, &streamed].map(product);
    let (alone, over_bus) = (alone?, over_bus?);
    let of_csr = bytes as f64 / streamed.traffic().bandwidth;
    println!(
        "built in {made:.2} s; a product takes {:.4} ms, {:.4} ms if all is in GPU memory; time relative to that of reading the \
         streamed rows over the bus {:.2}, all of CSR {:.2}",
        1e3 * over_bus,
        1e3 * alone,
        over_bus / streamed.traffic().seconds(),
        over_bus / of_csr
    );

    let b = vec![1.0; a.rows()];
    let jacobi = Jacobi::new(&a)?.to(&gpu)?;
    for (title, op) in
        [("in memory", &inside as &dyn LinearOperator<Vector = CudaVector<f64>>), ("streamed", &streamed)]
    {
        let report = Cg::new(op).preconditioner(&jacobi).rtol(1e-8).solve(&b)?.report;
        println!("CG {title}: {report}");
    }
    Ok(())
}

/// Seconds of a product: the minimum over three rounds of the mean of ten consecutive products.
fn product(a: &dyn LinearOperator<Vector = CudaVector<f64>>) -> Result<f64> {
    let gpu = a.domain().gpu();
    let x = a.domain().vector(&vec![1.0; a.domain().len()])?;
    let mut y = a.range().zeros()?;
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        gpu.synchronize()?;
        let started = Instant::now();
        (0..10).try_for_each(|_| a.apply(&x, &mut y))?;
        gpu.synchronize()?;
        least = least.min(started.elapsed().as_secs_f64() / 10.0);
    }
    Ok(least)
}
