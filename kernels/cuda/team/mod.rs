//! Teams: devices that solve one system together. Each has a part of every vector; sums are over all parts.

pub mod across;
mod border;
pub mod halo;
pub mod member;
pub mod post;
