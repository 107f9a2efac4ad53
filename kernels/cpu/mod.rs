//! Kernels for the CPU: one algorithm each, generic over SIMD lanes, run on threads.

pub mod basis;
pub mod formats;
pub mod preconditioners;
pub mod run;
pub mod simd;
pub(crate) mod tuning;
pub mod vector;
