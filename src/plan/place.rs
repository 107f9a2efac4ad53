//! Choice of CPU or GPU: where a solve is expected to end first, if the creation of the GPU's context is counted.
//!
//! Both times are estimated as
//!
//! ```text
//! CPU:                                      solves * iterations * (10 µs + bytes / min(threads * 20 GB/s, 190 GB/s))
//! GPU: start + 3 ms + matrix / 1.1 GB/s  +  solves * iterations * (10 µs + bytes / 2.5 TB/s)
//! ```
//!
//! where `bytes` is the memory traffic of an iteration of `Cg` with `Jacobi` and `matrix` the size of the matrix as CSR, both in bytes.
//! `start` is the time to create the context and to compile kernels, zero if this process has used the GPU.
//! Work that both share, such as the scan of the matrix, is left out. The number of iterations is a guess, the same for both, so that its
//! error matters only where both take nearly equally long.

#![cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only tests have a GPU then"))]

use super::{Plan, Profile};
use crate::numbers::Real;

/// Where a solve runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the threads of the CPU: [`Host`](crate::Host).
    Cpu,
    /// On a GPU: `Cuda`.
    Gpu,
}

/// Seconds to create the context of a GPU and load kernels. Measured: 0.18 (H100, `python/benches/gpu_calls.py`) to 0.7 s.
const CONTEXT: f64 = 0.2;
/// Seconds to compile the kernels of a first solve, beyond the context. Measured: 0.65 to 2 s (H100 and H200).
const COMPILE: f64 = 1.2;
/// Seconds of a solve on a GPU in addition to its iterations; and bytes of the matrix per second that are converted and copied, from CSR
/// in pageable memory to the format on the GPU. Measured by calls from Python on an H100 with 1,000 to 2 million unknowns: 3 ms at least,
/// 0.35 to 1.1 GB/s.
const CALL: f64 = 3e-3;
const UPLOAD: f64 = 1.1e9;
/// Seconds of an iteration besides its memory traffic: kernel launches on a GPU (measured: 6 to 13 µs), waking threads on a CPU (guess).
const LAUNCH: f64 = 10e-6;
const WAKE: f64 = 10e-6;
/// Memory bandwidth of an iteration, in bytes per second. GPU: conjugate gradients reach 2.5 TB/s on an H100 and 4 TB/s on an H200. CPU:
/// 20 GB/s per thread (48 GB/s with two threads of a Zen 5), at most 190 GB/s (16 threads of a Sapphire Rapids).
const GPU_BANDWIDTH: f64 = 2.5e12;
const THREAD_BANDWIDTH: f64 = 20e9;
const CPU_BANDWIDTH: f64 = 190e9;
/// Vectors that an iteration of `Cg` with `Jacobi` reads or writes.
const VECTORS: f64 = 11.0;
/// Expected iterations: `PER_LENGTH rows^(1/3)`, between 3D stencils (factor 2.5) and graded meshes (20), at most `MOST`. Beyond that
/// another preconditioner, as a rule multigrid, is used, whose setup and cycles cost about as much as 300 iterations.
const PER_LENGTH: f64 = 5.0;
const MOST: f64 = 300.0;

/// Seconds before the first kernel for elements of this type runs: zero if the process has used a GPU, infinite if there is none. Does not
/// start the driver, which takes 0.1 s, so a machine with a driver and no GPU is not recognized.
#[cfg(feature = "cuda")]
fn start<T: Real>() -> f64 {
    use krysp_kernels::cuda::{driver_is_usable, has_compiled, is_open};
    match driver_is_usable() {
        false => f64::INFINITY,
        true if is_open() => 0.0,
        true if has_compiled::<T>() => CONTEXT,
        true => CONTEXT + COMPILE,
    }
}

/// The place where `solves` solves with one matrix are expected to end first: on `threads` threads of a CPU, or on a GPU whose first kernel
/// runs after `start` seconds. `element` is the size of an element in bytes.
///
/// Systems whose diagonal has zeros or negative entries stay on the CPU: most need factorizations, which the host computes anyway.
fn place(profile: &Profile, element: usize, solves: usize, threads: usize, start: f64) -> Place {
    let iterations = (PER_LENGTH * (profile.rows as f64).cbrt()).min(MOST) * solves.max(1) as f64;
    let matrix = (profile.entries * (element + 4) + 4 * profile.rows) as f64;
    let bytes = matrix + VECTORS * (profile.rows * element) as f64;
    let on_cpu = WAKE + bytes / CPU_BANDWIDTH.min(THREAD_BANDWIDTH * threads as f64);
    let on_gpu = LAUNCH + bytes / GPU_BANDWIDTH;
    let upload = CALL + matrix / UPLOAD;
    let is_faster = start + upload + iterations * on_gpu < iterations * on_cpu;
    if is_faster && profile.has_positive_diagonal() { Place::Gpu } else { Place::Cpu }
}

impl<T: Real> Plan<'_, T> {
    /// The place where the announced solves are expected to end first, including what this process has not done yet: creating the context
    /// of a GPU, compiling kernels, copying the matrix. One solve is assumed if no number is announced.
    ///
    /// ```
    /// use krysp::plan::Place;
    /// use krysp::{Plan, gallery};
    ///
    /// let small = gallery::poisson::<f64>(&[10; 3])?;
    /// assert_eq!(Plan::new(&small)?.place(), Place::Cpu);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn place(&self) -> Place {
        #[cfg(feature = "cuda")]
        if self.gains_by_gpu() {
            return Place::Gpu;
        }
        Place::Cpu
    }

    #[cfg(feature = "cuda")]
    fn gains_by_gpu(&self) -> bool {
        use super::Preconditioner::{CuDss, Ic0, Ilu0, Ilut};
        // starts the driver
        let has_gpu = || !crate::device::Cuda::devices().is_empty();
        let given = self.options.preconditioner;
        if given == Some(CuDss) && has_gpu() {
            return true;
        }
        if given.is_some_and(|one| one.is_complete() || matches!(one, Ic0 | Ilu0 | Ilut)) {
            return false;
        }
        let (solves, threads) = (self.options.solves.unwrap_or(1), rayon::current_num_threads());
        let gains = |start| place(&self.profile, size_of::<T>(), solves, threads, start) == Place::Gpu;
        // loading the driver takes 20 ms or more (H100): avoid that where it cannot change the result
        let least = if krysp_kernels::cuda::is_open() { 0.0 } else { CONTEXT };
        gains(least) && gains(start::<T>()) && has_gpu()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery;

    /// The device chosen for `solves` solves on 16 threads, for a cube of points.
    fn of(side: usize, solves: usize, start: f64) -> Place {
        place(&cube(side), 8, solves, 16, start)
    }

    /// Profile of a 7-point stencil on a cube of points. Only the numbers of rows and entries are those of the given size.
    fn cube(side: usize) -> Profile {
        let mut profile = Profile::of(&gallery::poisson::<f64>(&[6; 3]).unwrap());
        (profile.rows, profile.entries) = (side.pow(3), 7 * side.pow(3) - 6 * side.pow(2));
        profile
    }

    /// Compares with measured calls of `krysp.solve`, on an H100 and on 16 threads (`benches/RESULTS.md`): the first call with compiled
    /// kernels, and later ones. Side 27 is left out: with 11.0 and 9.2 ms, either device is right.
    #[test]
    fn the_faster_one_of_measured_calls_is_taken() {
        let measured =
            [(10, Place::Cpu, Place::Cpu), (58, Place::Cpu, Place::Gpu), (128, Place::Gpu, Place::Gpu)];
        for (side, first, later) in measured {
            assert_eq!((of(side, 1, CONTEXT), of(side, 1, 0.0)), (first, later), "{side}");
        }
    }

    #[test]
    fn compiling_pays_for_many_solves_only() {
        assert_eq!([1, 1000].map(|solves| of(128, solves, CONTEXT + COMPILE)), [Place::Cpu, Place::Gpu]);
        assert_eq!([1, 1000].map(|solves| of(58, solves, CONTEXT + COMPILE)), [Place::Cpu, Place::Gpu]);
        assert_eq!(of(128, 1000, f64::INFINITY), Place::Cpu);
    }

    #[test]
    fn few_threads_are_slower() {
        let on = |threads| place(&cube(58), 8, 1, threads, CONTEXT);
        assert_eq!([1, 16].map(on), [Place::Gpu, Place::Cpu]);
    }

    #[test]
    fn what_needs_a_factorization_stays_on_the_cpu() {
        let mut saddle = cube(128);
        saddle.zero_diagonal = 1000;
        assert_eq!(place(&saddle, 8, 1, 16, 0.0), Place::Cpu);
    }
}
