//! Sparse matrix-vector products (SpMV): one file per format with one loop, generic over SIMD lanes.

pub mod bsr;
pub mod coo;
pub mod csr;
pub mod dia;
pub mod ehyb;
pub mod halo;
pub mod hyb;
pub mod residual;
pub mod sliced;
mod sliced_tile;
pub mod symmetric;
pub mod symmetric_blocks;
