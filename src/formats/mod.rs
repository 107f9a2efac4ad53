//! Sparse matrix formats: one file per format, with its conversion and its operator.
//!
//! [`Csr`] is the central format and the only one a user must know. Every other format is converted from it,
//! stores its values, and padding, in its order of slots, and can be [refreshed](Format::refresh) with values
//! in the order of [`Csr::entries`]. A format of another crate is written with the items of [`extend`].
//! `list.rs` lists all formats, `format.rs` defines what each can do, and `offer.rs` what each reports to the
//! automatic choice, from an analysis of the matrix (`analysis.rs`).

pub(crate) mod analysis;
pub(crate) mod assembly_order;
mod bsr;
mod checks;
mod coo;
mod csr;
mod csr_products;
mod csr_ref;
pub(crate) mod derived;
mod dia;
mod ehyb;
mod ell;
mod ellpack_r;
pub mod extend;
mod format;
mod halo;
mod hyb;
mod input;
mod list;
pub(crate) mod matrix_source;
mod mirrored;
mod offer;
#[cfg(feature = "cuda")]
mod on_device;
mod operator;
pub(crate) mod pattern;
mod reordered;
mod rounded;
mod rows;
mod saved;
mod sell;
mod shared_rows;
mod slices;
mod source;
mod symmetric;
mod symmetric_bsr;
#[cfg(feature = "cuda")]
mod to_cuda;
pub(crate) mod user_order;

// public items of each format's file: its type, its options, and related functions
macro_rules! reexport {
    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
        $(pub use $file::*;)*
    };
}
each_format!(reexport);

pub(crate) use analysis::{Analysis, offset_bytes};
pub use csr_ref::CsrRef;
pub(crate) use dia::diagonals_of;
pub use format::Format;
pub(crate) use format::keeps_to_chunks;
pub use input::Index;
pub use krysp_kernels::strategy::Strategy;
pub(crate) use list::each_format;
#[cfg(feature = "cuda")]
pub(crate) use list::where_on_gpu;
pub use matrix_source::MatrixSource;
pub(crate) use mirrored::{Mirrored, over_mirrored_rows};
pub(crate) use offer::{Coefficients, Offer, Offered, Variant};
#[cfg(feature = "cuda")]
pub use on_device::{CudaMatrix, OnDevice};
pub use operator::Multiply;
pub(crate) use operator::{many_columns, precise_residual, row_operator};
pub use rounded::Rounded;
pub(crate) use rows::{Rows, sampled_rows};
pub(crate) use slices::{check_padding, default_height, has_short_columns};
pub use source::Source;
