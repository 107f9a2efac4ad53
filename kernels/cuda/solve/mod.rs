//! Building blocks of a solve: scalars that stay on the device, vectors, bases, and steps queued ahead of the
//! host.

pub(crate) mod advance;
pub(crate) mod basis;
pub mod cast;
pub(crate) mod gate;
pub(crate) mod number;
pub(crate) mod readback;
pub(crate) mod ring;
pub(crate) mod step;
pub(crate) mod sums;
pub mod vector;
