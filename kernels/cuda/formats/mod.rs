//! Formats: each has its layout and its launches in a `.rs` file, beside the `.cu` file with the kernels.

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
