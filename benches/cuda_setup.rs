//! The cost of everything before the first product on a GPU, in units of one product: ordering, reordering, conversion, and
//! refresh.
//!
//! ```text
//! cargo bench --features peers --bench cuda_setup                   the usual matrices
//! cargo bench --features peers --bench cuda_setup -- p1_10M_perm    one of them
//! ```
//!
//! Setup times are the minimum of three calls, because the first one allocates memory. The ordering is computed on the
//! GPU and, for comparison, on the host. `copy` is the time to copy the CSR arrays to the GPU: that of the values,
//! multiplied by the ratio of the sizes. `on` is the conversion of a matrix that the host has reordered. `reordered on`
//! converts the given matrix and reorders it on the GPU; `all` adds the time to compute the ordering. Values are
//! refreshed from device memory.

mod common;

use common::cuda::Gpu;
use krysp::formats::{Bsr, Halo, OnDevice, Sell, SymBsr};
use krysp::solvers::{LinearOperator, Space};
use krysp::testing::matrices;
use krysp::{Csr, Cuda, CudaVector, Permutation, Real};
use std::time::Instant;

const USUAL: [&str; 4] = ["p1_10M_perm", "p1_100M_perm", "el3_10M_perm", "el3_100M_perm"];

fn main() -> common::Result<()> {
    let Some(mut gpu) = Gpu::first()? else { return Ok(()) };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    for name in USUAL.into_iter().filter(|name| wanted.is_empty() || wanted.iter().any(|wish| wish == name)) {
        let Some(matrix) = matrices::named(name) else { continue };
        let a: Csr<f64> = matrix.csr()?;
        println!("\n{name}, f64, {}: {} rows, {} entries", gpu.name(), a.rows(), a.nnz());
        let rows = || Halo::rows_per_block(&gpu.cuda, &a);
        let (expected, host_ms) = least(|| Ok(Permutation::clustered(&a, rows())?))?;
        let (permutation, ordering_ms) = least(|| Ok(Permutation::clustered_on(&gpu.cuda, &a, rows())?))?;
        if permutation != expected {
            return Err("orderings of the host and of the GPU differ".into());
        }
        let (reordered, reordered_ms) = least(|| Ok(a.reordered(&permutation)?))?;
        let copy_ms = copy_ms(&gpu.cuda, &a)?;
        println!(
            "ordering {ordering_ms:.1} ms, on the host {host_ms:.1} ms; reordering there {reordered_ms:.1} ms; \
             copy {copy_ms:.1} ms"
        );
        let values = gpu.cuda.space::<f64>(a.nnz()).vector(a.entries())?;
        println!(
            "{:<14}{:>12}{:>12}{:>18}{:>12}{:>12}{:>12}{:>12}",
            "", "product, ms", "on, ms", "reordered on, ms", "all, ms", "products", "refresh, ms", "products"
        );
        let given = Given { a, permutation, ordering_ms, values };
        setup::<Csr<f64>>(&mut gpu, &given, &reordered)?;
        setup::<Sell<f64>>(&mut gpu, &given, &reordered)?;
        setup::<Halo<f64>>(&mut gpu, &given, &reordered)?;
        if name.starts_with("el3") {
            setup::<Bsr<f64>>(&mut gpu, &given, &reordered)?;
            setup::<SymBsr<f64>>(&mut gpu, &given, &reordered)?;
        }
    }
    Ok(())
}

/// A matrix, its ordering, and its values on the GPU.
struct Given {
    a: Csr<f64>,
    permutation: Permutation,
    ordering_ms: f64,
    values: CudaVector<f64>,
}

/// The result of `work`, and the milliseconds of its fastest call.
fn least<R>(mut work: impl FnMut() -> common::Result<R>) -> common::Result<(R, f64)> {
    let mut times = vec![];
    loop {
        let started = Instant::now();
        let result = work()?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        if times.len() == 3 {
            return Ok((result, times.into_iter().fold(f64::INFINITY, f64::min)));
        }
    }
}

/// The milliseconds to copy the arrays of CSR to the GPU.
fn copy_ms<T>(gpu: &Cuda, a: &Csr<T>) -> common::Result<f64>
where
    T: Real + krysp_kernels::cuda::Real,
{
    let space = gpu.space::<T>(a.nnz());
    let mut vector = space.zeros()?;
    let ((), ms) = least(|| {
        space.load(a.entries(), &mut vector)?;
        Ok(gpu.synchronize()?)
    })?;
    Ok(ms * a.bytes() as f64 / size_of_val(a.entries()) as f64)
}

fn setup<F: OnDevice<f64>>(gpu: &mut Gpu, given: &Given, reordered: &Csr<f64>) -> common::Result<()> {
    let (cuda, Given { a, permutation, values, .. }) = (gpu.cuda.clone(), given);
    let (_, on_ms) = least(|| {
        let operator = F::on(&cuda, reordered)?;
        cuda.synchronize()?;
        Ok(operator)
    })?;
    let (mut operator, there_ms) = least(|| {
        let operator = F::on_reordered(&cuda, a, permutation)?;
        cuda.synchronize()?;
        Ok(operator)
    })?;
    let x = operator.domain().vector(&matrices::vector(a.cols()))?;
    let mut y = operator.range().zeros()?;
    let product_ms = gpu.warm(&mut || Ok(operator.apply(&x, &mut y)?))?;
    let mut expected = vec![0.0; a.rows()];
    operator.range().store(&y, &mut expected)?;
    let refresh_ms = gpu.warm(&mut || Ok(operator.refresh_from_device(values)?))?;
    // check that refreshing with the same values has changed nothing
    operator.apply(&x, &mut y)?;
    let mut found = vec![0.0; a.rows()];
    operator.range().store(&y, &mut found)?;
    if found != expected {
        return Err(format!("{}: refreshed values are not in their places", F::NAME).into());
    }
    let all_ms = given.ordering_ms + there_ms;
    println!(
        "{:<14}{product_ms:>12.4}{on_ms:>12.1}{there_ms:>18.1}{all_ms:>12.1}{:>12.0}{refresh_ms:>12.4}{:>12.2}",
        F::NAME,
        all_ms / product_ms,
        refresh_ms / product_ms
    );
    Ok(())
}
