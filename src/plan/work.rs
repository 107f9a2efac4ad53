//! Unit of costs.

use crate::saved::saved;
use std::ops::{Add, AddAssign, Mul};

/// Work, as a multiple of one iteration of conjugate gradients with Jacobi on the same matrix and machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct WorkUnits(pub f64);

impl WorkUnits {
    /// No work.
    pub const ZERO: WorkUnits = WorkUnits(0.0);

    /// The cost of an action that is impossible.
    pub const INFINITE: WorkUnits = WorkUnits(f64::INFINITY);

    /// The larger of two; NaN is ignored.
    pub fn max(self, other: WorkUnits) -> WorkUnits {
        WorkUnits(self.0.max(other.0))
    }

    /// The smaller of two; NaN is ignored.
    pub fn min(self, other: WorkUnits) -> WorkUnits {
        WorkUnits(self.0.min(other.0))
    }
}

impl Add for WorkUnits {
    type Output = WorkUnits;
    fn add(self, other: WorkUnits) -> WorkUnits {
        WorkUnits(self.0 + other.0)
    }
}

impl AddAssign for WorkUnits {
    fn add_assign(&mut self, other: WorkUnits) {
        self.0 += other.0;
    }
}

impl Mul<f64> for WorkUnits {
    type Output = WorkUnits;
    fn mul(self, factor: f64) -> WorkUnits {
        WorkUnits(self.0 * factor)
    }
}

saved!(impl[] WorkUnits as |this| { units: f64 = &this.0 } => Ok(WorkUnits(units)));
