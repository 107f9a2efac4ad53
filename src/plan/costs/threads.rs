//! Scaling of work with the number of threads.

/// Scaling of work with the number of threads, relative to an iteration of CG with Jacobi.
#[derive(Clone, Copy)]
pub(super) enum Threads {
    /// All of the work scales like the iteration.
    Alike,
    /// Half of the work scales like the iteration, and half runs on one thread.
    Partly,
    /// The work runs on one thread.
    One,
}

impl Threads {
    /// Time of this work divided by that of the iteration, relative to two threads.
    pub(super) fn factor(self, threads: usize, unit: f64) -> f64 {
        let ratio = speedup(threads, unit);
        match self {
            Threads::Alike => 1.0,
            Threads::Partly => 0.5 + 0.5 * ratio,
            Threads::One => ratio,
        }
    }
}

/// Speedup of an iteration over two threads: that of `SPEEDUP`, interpolated linearly in the logarithm of the number of threads. An iteration
/// of a small matrix is hardly faster on many threads.
pub(super) fn speedup(threads: usize, unit: f64) -> f64 {
    let at = (threads.max(1) as f64).log2().min(4.0);
    let low = (at as usize).min(3);
    let speedup = SPEEDUP[low] + (SPEEDUP[low + 1] - SPEEDUP[low]) * (at - low as f64);
    1.0 + (speedup / SPEEDUP[1] - 1.0) * unit / (unit + PARALLEL)
}

/// Multiply-adds of an iteration from which on many threads make it faster. A guess: `crack` and `memplus`, below 3e5, gain nothing.
const PARALLEL: f64 = 2e6;

/// Speedup of an iteration of CG with Jacobi on 1, 2, 4, 8 and 16 threads, for matrices larger than the caches.
const SPEEDUP: [f64; 5] = [1.0, 1.9, 3.5, 6.0, 9.0];
