//! Orderings of large graphs, computed on a device.

pub(crate) mod clusters;
pub(crate) mod graph;
pub mod runs;
