//! Preconditioners that are built on a device.

pub mod blocks;
pub mod coarse;
pub mod cudss;
pub mod diagonal;
pub mod fsai;
pub mod spai;
pub(super) mod spai_kernels;
