//! Options of algebraic multigrid.

use crate::error::{Error, Result};
use crate::saved::saved;

/// Maximum number of rows of the coarsest level: inverting it takes time proportional to their third power.
const LARGEST: usize = 8192;

/// Options of [`Amg`](crate::Amg).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmgOptions {
    /// Threshold of strong connections, 0 to 1: a connection is strong if it is at least this fraction of the
    /// strongest connection of one of its two nodes. For anisotropic coefficients, larger values coarsen
    /// along the strong direction only.
    pub strength: f64,
    /// Sweeps of the smoother before and after each coarse correction: 1 to 100.
    pub sweeps: usize,
    /// A level with at most this many rows is inverted.
    pub max_coarse_size: usize,
    /// `Some(true)` if the prolongator of the finest level is smoothed: up to a third fewer iterations, but at
    /// least twice the setup time in host memory, which pays for many solves. `Some(false)`: the finest level uses
    /// unsmoothed aggregation where the matrix is symmetric with one unknown per node, and the near-null space is
    /// that of the constants; a cycle then visits the other levels three times. `None`: `false` in host memory,
    /// and `true` on a GPU and on ranks, where setups are short, and visits of small levels take many launches or
    /// messages.
    pub smooth_finest: Option<bool>,
}

saved!(impl[] AmgOptions { strength, sweeps, max_coarse_size, smooth_finest });

impl Default for AmgOptions {
    fn default() -> Self {
        AmgOptions { strength: 0.1, sweeps: 2, max_coarse_size: 600, smooth_finest: None }
    }
}

/// Maximum number of sweeps. A guess: far more than ever pay off.
const MAX_SWEEPS: usize = 100;

impl AmgOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |what, got: String, expected| Err(Error::Option { what, got, expected });
        if !(0.0..=1.0).contains(&self.strength) {
            return refused("strength", self.strength.to_string(), "0 to 1");
        }
        if !(1..=MAX_SWEEPS).contains(&self.sweeps) {
            return refused("sweeps", self.sweeps.to_string(), "1 to 100");
        }
        if self.max_coarse_size > LARGEST {
            return refused("max_coarse_size", self.max_coarse_size.to_string(), "at most 8192");
        }
        Ok(())
    }
}
