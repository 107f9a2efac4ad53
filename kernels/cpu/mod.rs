//! Kernels for the CPU: one implementation of each algorithm, generic over SIMD lanes and run on threads.

pub mod basis;
pub mod block;
pub mod formats;
pub mod preconditioners;
pub mod run;
pub mod simd;
pub(crate) mod tuning;
pub mod vector;
