//! Estimates the number of GPUs with which an iteration is fastest.
//!
//! An iteration of conjugate gradients reads the matrix, and reads or writes eleven vectors. The overhead
//! `step(k)` of kernel launches and, with several GPUs, synchronization is added. The exchanged entries of
//! `x` (ghosts) are known once the matrix is distributed. With sizes in bytes, and `memory` and `link` in
//! bytes per second:
//!
//! ```text
//! seconds(k) = (matrix + 11 vectors) / k / memory + ghosts / link + step(k)
//! ```

use crate::device::Cuda;
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_kernels::cuda::tuning::{LINK_SPEED, MEMORY_SPEED, STEP_ALONE, STEP_TOGETHER};
use std::fmt;

/// Number of vectors that an iteration of conjugate gradients with a diagonal preconditioner reads or writes.
const VECTORS: usize = 11;

/// Bytes of a column index: most formats store column indices with 16 bits.
const COLUMN: usize = 2;

/// Estimated seconds of an iteration on one GPU, on two, and so on; infinite if the matrix does not fit in
/// memory.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    seconds: Vec<f64>,
}

impl Forecast {
    /// Estimates the times of a matrix distributed over the first 1, 2, ... of these GPUs.
    pub(super) fn new<T: Real>(gpus: &[Cuda], csr: &Csr<T>) -> Result<Forecast> {
        if gpus.is_empty() {
            let (what, got) = ("the GPUs", "none".into());
            return Err(Error::Option { what, got, expected: "one or more of `Cuda::devices()`" });
        }
        let (value, vectors) = (size_of::<T>(), VECTORS * size_of::<T>() * csr.rows());
        let moved = csr.nnz() * (value + COLUMN) + vectors;
        // during conversion the matrix is stored twice
        let needed = csr.nnz() * (2 * value + COLUMN + size_of::<u32>()) + vectors;
        let mut least = usize::MAX;
        let mut seconds = vec![];
        for (gpu, count) in gpus.iter().zip(1..) {
            least = least.min(gpu.memory()?.0);
            seconds.push(if needed / count > least { f64::INFINITY } else { Forecast::of(moved, count) });
        }
        Ok(Forecast { seconds })
    }

    fn of(moved: usize, count: usize) -> f64 {
        let step = if count == 1 { STEP_ALONE } else { STEP_TOGETHER };
        moved as f64 / count as f64 / MEMORY_SPEED + step
    }

    /// The number of GPUs with the shortest time; all GPUs if the matrix does not fit even in the memory of
    /// all.
    pub(super) fn best(&self) -> usize {
        let fastest = self.seconds.iter().zip(1..).min_by(|(a, _), (b, _)| a.total_cmp(b));
        fastest.filter(|(seconds, _)| seconds.is_finite()).map_or(self.seconds.len(), |(_, count)| count)
    }

    /// Returns whether one GPU is faster than `count` GPUs, each of which receives up to `received` bytes from the
    /// others in a product.
    pub(super) fn one_is_faster(&self, count: usize, received: usize) -> bool {
        self.seconds[0] < self.seconds[count - 1] + received as f64 / LINK_SPEED
    }
}

/// The estimated times for each number of GPUs.
impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "estimated time of an iteration by number of GPUs:")?;
        for (seconds, count) in self.seconds.iter().zip(1..) {
            let comma = if count == 1 { "" } else { "," };
            match seconds.is_finite() {
                true => write!(f, "{comma} {:.4} ms on {count}", 1e3 * seconds)?,
                false => write!(f, "{comma} not enough memory on {count}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fastest number of GPUs for the numbers of rows and entries in the table of
    /// docs/how_to/several_gpus.md.
    #[test]
    fn small_systems_stay_on_one_gpu() {
        let measured = [
            (20_000, 133_000, 1),
            (195_000, 2_850_000, 1),
            (6_640_000, 98_800_000, 2),
            (1_216_000, 95_800_000, 2),
        ];
        for (rows, entries, fastest) in measured {
            let moved = entries * 10 + 88 * rows;
            let forecast = Forecast { seconds: (1..=2).map(|count| Forecast::of(moved, count)).collect() };
            assert_eq!(forecast.best(), fastest, "{rows} rows: {forecast}");
        }
    }

    #[test]
    fn what_fits_nowhere_takes_all() {
        let forecast = |seconds: &[f64]| Forecast { seconds: seconds.to_vec() };
        assert_eq!(forecast(&[f64::INFINITY; 3]).best(), 3);
        assert_eq!(forecast(&[f64::INFINITY, 2.0, 1.5]).best(), 3);
        assert!(forecast(&[1.0, 0.9]).one_is_faster(2, 40_000_000_000));
        assert!(!forecast(&[1.0, 0.9]).one_is_faster(2, 0));
    }
}
