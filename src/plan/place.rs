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

use super::{Plan, Preconditioner, Profile};
use crate::numbers::Real;

/// Where a solve runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the threads of the CPU: [`Host`](crate::Host).
    Cpu,
    /// On a GPU: `Cuda`.
    Gpu,
}

/// State of the GPU in this process, which determines the cost of its first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only tests have a GPU then"))]
enum GpuState {
    /// There is no GPU, or this library was built without the feature `cuda`.
    Absent,
    /// The process has used a GPU already.
    Open,
    /// The context must be created; compiled kernels are on disk.
    Compiled,
    /// The context must be created, and kernels compiled.
    Cold,
}

/// Seconds to create the context of a GPU and load kernels, in a process that has used none. Measured: 0.18 (H100,
/// `python/benches/gpu_calls.py`) to 0.7 s.
const CONTEXT: f64 = 0.2;
/// Seconds to compile the kernels of a first solve, beyond the context. Measured: 0.65 to 2 s (H100 and H200).
const COMPILE: f64 = 1.2;
/// Seconds of a solve on a GPU in addition to its iterations; and bytes of the matrix per second that are converted and copied, from CSR
/// in pageable memory to the format on the GPU. Measured by calls from Python on an H100 with 1,000 to 2 million unknowns: 3 ms at least,
/// 0.35 to 1.1 GB/s.
const CALL: f64 = 3e-3;
const UPLOAD: f64 = 1.1e9;
/// Seconds of an iteration in addition to its memory traffic: kernel launches on a GPU (6 to 13 µs measured), waking threads on a CPU (a
/// guess).
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

impl GpuState {
    /// The state of the process and of the cache of compiled kernels, for elements of this type. Does not start the driver, which
    /// takes 0.1 s, so a machine with a driver and no GPU is not recognized.
    #[cfg(feature = "cuda")]
    fn now<T: Real>() -> GpuState {
        use krysp_kernels::cuda::{driver_is_usable, has_compiled, is_open};
        if !driver_is_usable() {
            GpuState::Absent
        } else if is_open() {
            GpuState::Open
        } else if has_compiled::<T>() {
            GpuState::Compiled
        } else {
            GpuState::Cold
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::extra_unused_type_parameters, reason = "kernels are compiled for an element type")]
    fn now<T: Real>() -> GpuState {
        GpuState::Absent
    }

    /// Seconds before the first kernel runs.
    fn start(self) -> f64 {
        match self {
            GpuState::Absent => f64::INFINITY,
            GpuState::Open => 0.0,
            GpuState::Compiled => CONTEXT,
            GpuState::Cold => CONTEXT + COMPILE,
        }
    }
}

/// Seconds of one iteration of `Cg` with `Jacobi`, on `threads` threads of a CPU, and on a GPU.
fn iteration(profile: &Profile, element: usize, threads: usize) -> [f64; 2] {
    let vectors = VECTORS * (profile.rows * element) as f64;
    let bytes = matrix_bytes(profile, element) + vectors;
    let bandwidth = CPU_BANDWIDTH.min(THREAD_BANDWIDTH * threads as f64);
    [WAKE + bytes / bandwidth, LAUNCH + bytes / GPU_BANDWIDTH]
}

/// Bytes of the matrix as CSR.
fn matrix_bytes(profile: &Profile, element: usize) -> f64 {
    (profile.entries * (element + 4) + 4 * profile.rows) as f64
}

/// Seconds that `solves` solves with one matrix take on `threads` threads of a CPU, and on a GPU in state `gpu`.
fn seconds(profile: &Profile, element: usize, solves: usize, threads: usize, gpu: GpuState) -> [f64; 2] {
    let iterations = (PER_LENGTH * (profile.rows as f64).cbrt()).min(MOST) * solves.max(1) as f64;
    let each = iteration(profile, element, threads);
    let upload = CALL + matrix_bytes(profile, element) / UPLOAD;
    [iterations * each[0], gpu.start() + upload + iterations * each[1]]
}

/// The place where `solves` solves with one matrix are expected to end first. `element` is the size of an element in bytes.
///
/// Systems whose diagonal has zeros or negative entries stay on the CPU: most need factorizations, which the host computes anyway.
fn place(profile: &Profile, element: usize, solves: usize, threads: usize, gpu: GpuState) -> Place {
    let [cpu, gpu] = seconds(profile, element, solves, threads, gpu);
    if gpu < cpu && profile.has_positive_diagonal() { Place::Gpu } else { Place::Cpu }
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
        use Preconditioner::{Ic0, Ilu0, Ilut};
        let given = self.options.preconditioner;
        if given == Some(Preconditioner::CuDss) && has_gpu() {
            return Place::Gpu;
        }
        if given.is_some_and(|one| one.is_complete() || matches!(one, Ic0 | Ilu0 | Ilut)) {
            return Place::Cpu;
        }
        let (solves, threads) = (self.options.solves.unwrap_or(1), rayon::current_num_threads());
        let on = |gpu| place(&self.profile, size_of::<T>(), solves, threads, gpu);
        // loading the driver takes 20 ms or more (H100): avoid that where it cannot change the result
        let best = if is_open() { GpuState::Open } else { GpuState::Compiled };
        if on(best) == Place::Cpu || on(GpuState::now::<T>()) == Place::Cpu || !has_gpu() {
            return Place::Cpu;
        }
        Place::Gpu
    }
}

/// Whether this process has used a GPU.
fn is_open() -> bool {
    #[cfg(feature = "cuda")]
    return krysp_kernels::cuda::is_open();
    #[cfg(not(feature = "cuda"))]
    false
}

/// Starts the driver, and returns whether there is a GPU.
#[cfg(feature = "cuda")]
fn has_gpu() -> bool {
    !crate::device::Cuda::devices().is_empty()
}

#[cfg(not(feature = "cuda"))]
fn has_gpu() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery;
    use GpuState::{Absent, Cold, Compiled, Open};

    /// The device chosen for `solves` solves on 16 threads, for a cube of points.
    fn of(side: usize, solves: usize, gpu: GpuState) -> Place {
        place(&cube(side), 8, solves, 16, gpu)
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
            assert_eq!((of(side, 1, Compiled), of(side, 1, Open)), (first, later), "{side}");
        }
    }

    #[test]
    fn compiling_pays_for_many_solves_only() {
        assert_eq!([1, 1000].map(|solves| of(128, solves, Cold)), [Place::Cpu, Place::Gpu]);
        assert_eq!([1, 1000].map(|solves| of(58, solves, Cold)), [Place::Cpu, Place::Gpu]);
        assert_eq!(of(128, 1000, Absent), Place::Cpu);
    }

    #[test]
    fn few_threads_are_slower() {
        let on = |threads| place(&cube(58), 8, 1, threads, Compiled);
        assert_eq!([1, 16].map(on), [Place::Gpu, Place::Cpu]);
    }

    #[test]
    fn what_needs_a_factorization_stays_on_the_cpu() {
        let mut saddle = cube(128);
        saddle.zero_diagonal = 1000;
        assert_eq!(place(&saddle, 8, 1, 16, Open), Place::Cpu);
    }
}
