//! How loops run: rows on threads in a fixed order, work divided evenly, and `x` that lies scattered.

pub mod balanced;
pub mod followed;
pub mod rows;
pub(crate) mod scattered;
pub mod threads;
