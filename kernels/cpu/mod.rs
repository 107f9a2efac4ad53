//! Kernels for the CPU: one algorithm each, generic over SIMD lanes, run on threads.

mod avx2;
mod avx512;
pub mod csr;
mod portable;
pub mod rows;
pub mod simd;
pub mod threads;
pub mod vector;
