//! Loops of preconditioners: diagonal blocks, coarse spaces, dense and triangular systems.

pub mod block_diagonal;
pub mod coarse;
pub mod dense;
pub mod frontal;
pub mod inverse;
pub mod levels;
pub mod triangular;
