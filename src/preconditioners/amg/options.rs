//! What may be chosen about a hierarchy.

use crate::saved::saved;
use crate::{Error, Result};

/// Rows of the last level at most: its inverse takes the third power of them in time.
const LARGEST: usize = 8192;

/// Options of [`Amg`](crate::Amg).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmgOptions {
    /// A connection is strong if it is at least this part of the strongest of either node: 0 to 1. Larger values coarsen along
    /// strong directions alone, where coefficients depend on the direction.
    pub strength: f64,
    /// Sweeps of the smoother before and after each coarse correction: at least one.
    pub sweeps: usize,
    /// A level of so many rows is inverted.
    pub coarsest: usize,
    /// Whether a matrix in host memory gets the hierarchy that a GPU and ranks make: up to a third fewer iterations, for twice
    /// the setup and more. Worth it for many solves. Otherwise the finest level's aggregates stay as they are, where the matrix is
    /// symmetric with one unknown a node, and modes are constants.
    pub smoothed: bool,
}

saved!(impl[] AmgOptions { strength, sweeps, coarsest, smoothed });

impl Default for AmgOptions {
    fn default() -> Self {
        AmgOptions { strength: 0.1, sweeps: 2, coarsest: 600, smoothed: false }
    }
}

impl AmgOptions {
    pub(super) fn check(&self) -> Result<()> {
        let refused = |what, got: String, expected| Err(Error::Option { what, got, expected });
        if !(0.0..=1.0).contains(&self.strength) {
            return refused("strength", self.strength.to_string(), "0 to 1");
        }
        if self.sweeps == 0 {
            return refused("sweeps", "0".into(), "at least one");
        }
        if self.coarsest > LARGEST {
            return refused("coarsest", self.coarsest.to_string(), "at most 8192");
        }
        Ok(())
    }
}
