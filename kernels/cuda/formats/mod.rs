//! Storage formats: each has its layout and launches in a `.rs` file, next to the `.cu` file with its
//! kernels.

pub mod bsr;
pub mod coo;
pub mod dia;
pub mod ehyb;
pub mod halo;
pub mod hyb;
pub(crate) mod slab_layout;
pub(crate) mod slabs;
pub mod sliced;
pub mod symmetric;
