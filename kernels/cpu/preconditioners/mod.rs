//! Kernels of preconditioners: block-diagonal, coarse-space, dense and triangular solves.

pub mod block_diagonal;
pub mod coarse;
pub mod dense;
pub mod frontal;
mod gathered;
pub mod inverse;
pub mod levels;
mod stages;
pub mod triangular;

use crate::interrupt::Interrupted;

/// Reason why a factorization stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refused<T> {
    /// A pivot is zero or not finite or, in Cholesky factorizations, not positive.
    Pivot {
        /// Row and column of the pivot.
        at: usize,
        /// Value of the pivot.
        value: T,
    },
    /// The [`Scope`](crate::interrupt::Scope) in which the factorization runs was interrupted.
    Interrupted(Interrupted),
}

impl<T> From<Interrupted> for Refused<T> {
    fn from(interrupted: Interrupted) -> Refused<T> {
        Refused::Interrupted(interrupted)
    }
}
