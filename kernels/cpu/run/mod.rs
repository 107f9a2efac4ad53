//! Parallel loops: rows on threads in a fixed order, load balancing by entries, and prefetching of scattered
//! `x`.

pub mod balanced;
pub mod followed;
pub mod rows;
pub(crate) mod scattered;
pub mod threads;
pub mod tiles;
