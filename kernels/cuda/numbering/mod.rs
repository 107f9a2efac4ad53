//! Numberings of large graphs that are found on a device.

pub(crate) mod clusters;
pub(crate) mod graph;
pub mod runs;
