//! Products with several vectors on a GPU.

use super::{Result, allowed, matrix};
use krysp::formats::{Bsr, Halo, OnDevice, Sell};
use krysp::solvers::MultiVector;
use krysp::{Csr, Cuda, CudaVector, LinearOperator, Operator, Permutation, Space};
use std::path::Path;
use std::time::Instant;

/// Approximate milliseconds of a batch (products that are timed together), and the number of batches.
const BATCH: f64 = 10.0;
const SAMPLES: usize = 11;

const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];

/// Measures the matrices with these names, or the usual ones.
pub(crate) fn all(mut names: Vec<String>, folder: Option<&String>) -> Result<()> {
    if Cuda::devices().is_empty() {
        println!("skipped: no CUDA device on this machine");
        return Ok(());
    }
    let gpu = Cuda::new(0)?;
    if names.is_empty() {
        names = ["p7_128", "elast55", "el3_100M_perm", "p1_100M_perm"].map(String::from).into();
    }
    println!("{}", gpu.name());
    for name in &names {
        let a = matrix(name)?;
        println!("{name}: {} rows, {} entries", a.rows(), a.nnz());
        let write = |a: &Csr<f64>, name: &str| match folder {
            Some(folder) => krysp::io::write_matrix(Path::new(folder).join(format!("{name}.npz")), a),
            None => Ok(()),
        };
        write(&a, name)?;
        let auto = Operator::auto(&a, &gpu)?;
        let chosen = auto.choice().stored().to_string();
        products(&gpu, &format!("chosen: {chosen}"), &auto)?;
        for format in ["BSR", "SELL-P", "CSR"] {
            if let Ok(operator) = Operator::in_format(&a, &gpu, format) {
                products(&gpu, format, &operator)?;
            }
        }
        drop(auto);
        if name.starts_with("p7") {
            continue;
        }
        let clusters = Permutation::clustered(&a, Halo::rows_per_block(&gpu, &a))?;
        let a = a.reordered(&clusters)?;
        write(&a, &format!("{name}_clustered"))?;
        reordered::<Halo<f64>>(&gpu, &a)?;
        reordered::<Sell<f64>>(&gpu, &a)?;
        reordered::<Bsr<f64>>(&gpu, &a)?;
    }
    Ok(())
}

/// Measures a format of a matrix in clustered ordering, if the format is suitable.
fn reordered<F: OnDevice<f64>>(gpu: &Cuda, a: &Csr<f64>) -> Result<()> {
    match F::on(gpu, a) {
        Ok(operator) => products(gpu, &format!("clustered: {}", F::NAME), &operator),
        Err(_) => Ok(()),
    }
}

/// Milliseconds of one call of `work` among many: the median over batches.
fn time(gpu: &Cuda, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    let mut batch = |count: usize| -> Result<f64> {
        let started = Instant::now();
        (0..count).try_for_each(|_| work())?;
        gpu.synchronize()?;
        Ok(started.elapsed().as_secs_f64() * 1e3 / count as f64)
    };
    batch(2)?;
    let count = (BATCH / batch(3)?).ceil() as usize;
    let mut times = (0..SAMPLES).map(|_| batch(count)).collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[SAMPLES / 2])
}

fn products(gpu: &Cuda, name: &str, a: &dyn LinearOperator<Vector = CudaVector<f64>>) -> Result<()> {
    let n = a.domain().len();
    let column = |seed: usize| -> Result<CudaVector<f64>> {
        let entries: Vec<f64> = (0..n).map(|i| ((i * 7 + seed * 13) % 101) as f64 / 50.0 - 1.0).collect();
        Ok(a.domain().vector(&entries)?)
    };
    let (x, mut z) = (column(0)?, a.range().zeros()?);
    let single = time(gpu, &mut || Ok(a.apply(&x, &mut z)?))?;
    let single_dot = time(gpu, &mut || Ok(a.apply_dot(&x, &mut z).map(|_| ())?))?;
    println!("  {name}: single {single:.4} ms, with inner product {single_dot:.4}");
    for count in COUNTS {
        let columns = (0..count).map(column).collect::<Result<Vec<_>>>()?;
        let x = MultiVector::from_columns(a.domain(), columns)?;
        let mut y = MultiVector::<CudaVector<f64>>::zeros(a.range(), count)?;
        let joint = time(gpu, &mut || Ok(a.apply_many(&x, &mut y)?))? / count as f64;
        let dots = time(gpu, &mut || Ok(a.apply_dot_many(&x, &mut y).map(|_| ())?))? / count as f64;
        println!(
            "    {count:2} vectors: {joint:.4} ms each, {:.3} of a single one; bytes allow {:.3}; with inner products {dots:.4} ms, {:.3}",
            joint / single,
            allowed(a.bytes(), n, count),
            dots / single_dot
        );
    }
    Ok(())
}
