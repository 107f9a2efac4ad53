//! Kernels for the CPU: one algorithm each, generic over SIMD lanes, run on threads.

mod avx2;
mod avx512;
pub mod balanced;
pub mod basis;
pub mod bf16;
pub mod bsr;
pub mod coarse;
pub mod coo;
pub mod csr;
pub mod dense;
pub mod dia;
pub mod ehyb;
pub mod halo;
pub mod hyb;
pub mod inverse;
mod portable;
pub mod rows;
mod scattered;
pub mod simd;
pub mod sliced;
pub mod speculative;
pub mod storage;
pub mod symmetric;
pub mod symmetric_blocks;
pub mod threads;
pub mod triangular;
pub mod vector;
