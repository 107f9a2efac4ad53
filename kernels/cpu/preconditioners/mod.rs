//! Loops of preconditioners: diagonal blocks, coarse spaces, dense and triangular systems.

pub mod block_diagonal;
pub mod coarse;
pub mod dense;
pub mod frontal;
pub mod inverse;
pub mod levels;
pub mod triangular;

use crate::interrupt::Interrupted;

/// Why a factorization ended early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refused<T> {
    /// A pivot is not positive, or zero, or not finite.
    Pivot {
        /// Its row and column.
        at: usize,
        /// The pivot.
        value: T,
    },
    /// The scope was interrupted.
    Interrupted(Interrupted),
}

impl<T> From<Interrupted> for Refused<T> {
    fn from(interrupted: Interrupted) -> Refused<T> {
        Refused::Interrupted(interrupted)
    }
}
