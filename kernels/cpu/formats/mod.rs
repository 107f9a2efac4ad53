//! Products: one file for each format, one loop in it, generic over SIMD lanes.

pub mod bsr;
pub mod coo;
pub mod csr;
pub mod dia;
pub mod ehyb;
pub mod halo;
pub mod hyb;
pub mod residual;
pub mod sliced;
pub mod speculative;
pub mod symmetric;
pub mod symmetric_blocks;
