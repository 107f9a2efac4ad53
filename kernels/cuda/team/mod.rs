//! Devices that share the vectors of a solve: each has a part of them, and sums are those of all parts.

pub mod across;
mod border;
pub mod halo;
pub mod member;
pub mod post;
