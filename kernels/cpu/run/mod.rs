//! Parallel loops over rows, with reductions in a fixed order; load balancing by entries; and prefetching of
//! scattered entries of `x`.

pub mod balanced;
pub mod followed;
pub mod rows;
pub(crate) mod scattered;
pub mod threads;
pub mod tiles;
