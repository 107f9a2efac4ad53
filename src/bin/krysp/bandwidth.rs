//! Measurements of memory bandwidth and of matrix-vector products.

use krysp::{HostSpace, LinearOperator, Space, Vector};
use std::hint::black_box;
use std::time::Instant;

/// Bytes of the array that is read, more than fit in the caches.
const READ: usize = 256 << 20;

/// Memory read bandwidth of all threads in bytes per second, the best of several rounds.
pub(crate) fn of_host() -> krysp::Result<f64> {
    let space = HostSpace::<f64>::new(READ / size_of::<f64>());
    let mut x = space.zeros()?;
    // write the array first: pages that were never written all map to one page of zeros, which stays in cache
    space.load(&vec![1.0; space.len()], &mut x)?;
    best(&x, &|| Ok(()))
}

/// Memory read bandwidth of a GPU in bytes per second, the best of several rounds.
#[cfg(feature = "cuda")]
pub(crate) fn of_gpu(gpu: &krysp::Cuda) -> krysp::Result<f64> {
    let x = gpu.space::<f64>(READ / size_of::<f64>()).zeros()?;
    best(&x, &|| gpu.synchronize())
}

fn best<V: Vector>(x: &V, wait: &dyn Fn() -> krysp::Result<()>) -> krysp::Result<f64> {
    let mut best = f64::INFINITY;
    for round in 0..4 {
        let started = Instant::now();
        black_box(x.norm_squared());
        wait()?;
        // not timed: the first round maps pages and compiles kernels
        if round > 0 {
            best = best.min(started.elapsed().as_secs_f64());
        }
    }
    Ok(READ as f64 / best)
}

/// Seconds of a product: the minimum over 3 to 200 rounds. After the third round, no round starts later than
/// 0.2 s after the first.
pub(crate) fn best_time<A: LinearOperator>(a: &A, wait: &dyn Fn() -> krysp::Result<()>) -> krysp::Result<f64>
where
    A::Vector: Vector<Elem = f64>,
{
    const LONG_ENOUGH: f64 = 0.2;
    /// Number of products in a round: enough that starting and waiting for the device take little of the
    /// time.
    const PRODUCTS: usize = 4;
    let host: Vec<f64> = (0..a.domain().len()).map(|i| 1.0 + (i % 7) as f64).collect();
    let (mut x, mut y) = (a.domain().zeros()?, a.range().zeros()?);
    a.domain().load(&host, &mut x)?;
    a.apply(&x, &mut y)?;
    wait()?;
    let (mut best, mut rounds) = (f64::INFINITY, 0);
    let all = Instant::now();
    while rounds < 3 || (rounds < 200 && all.elapsed().as_secs_f64() < LONG_ENOUGH) {
        let started = Instant::now();
        for _ in 0..PRODUCTS {
            a.apply(&x, &mut y)?;
        }
        wait()?;
        best = best.min(started.elapsed().as_secs_f64() / PRODUCTS as f64);
        rounds += 1;
    }
    Ok(best)
}
