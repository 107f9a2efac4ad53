//! The orthogonalization of GMRES on a GPU, compared with cuBLAS on the same stream.
//!
//! ```text
//! cargo bench --features peers --bench cuda_basis
//! ```
//!
//! A step orthogonalizes a vector twice against `k` others and computes the norm of the result. That reads `k` vectors four
//! times; cuBLAS needs five calls. The printed share is the memory traffic of `4 k + 6` vectors at the bandwidth of a copy,
//! divided by the measured time. It exceeds one if a pass finds its vectors in the L2 cache.

mod common;

use common::cuda::Gpu;
use common::cuda_peers::arnoldi::Arnoldi;
use krysp::CudaVector;
use krysp::solvers::{BasicVector, Basis, Vector};

/// Maximum size of the basis, that of GMRES(30).
const MOST: usize = 30;

fn main() -> common::Result<()> {
    let Some(mut gpu) = Gpu::first()? else { return Ok(()) };
    let bytes_per_ms = gpu.bandwidth()?;
    println!(
        "{}, f64\n{:>10}{:>4}{:>12}{:>12}{:>8}{:>8}",
        gpu.name(),
        "n",
        "k",
        "ours, ms",
        "cuBLAS, ms",
        "ratio",
        "share"
    );
    for n in [20_000, 200_000, 1_215_672, 14_348_907] {
        let entries: Vec<f64> = (0..n).map(|i| ((i * 37 % 101) as f64 - 50.0) / n as f64).collect();
        let space = gpu.cuda.space::<f64>(n);
        let mut w = space.vector(&entries)?;
        let mut basis = CudaVector::<f64>::basis(&space, MOST)?;
        for k in 0..MOST {
            basis.push(k, &w, &w.norm_squared())?;
        }
        let mut theirs = Arnoldi::new(&gpu.stream, &entries, MOST)?;
        for k in [1, 8, 15, 30] {
            let ours_ms = gpu.warm(&mut || {
                basis.project(k, &w);
                basis.subtract_project(k, &mut w);
                basis.subtract_norm(k, &mut w);
                Ok(())
            })?;
            let theirs_ms = gpu.warm(&mut || theirs.step(k))?;
            let share = ((4 * k + 6) * n * size_of::<f64>()) as f64 / ours_ms / bytes_per_ms;
            println!("{n:>10}{k:>4}{ours_ms:>12.4}{theirs_ms:>12.4}{:>8.2}{share:>8.2}", theirs_ms / ours_ms);
        }
    }
    Ok(())
}
