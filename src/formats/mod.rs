//! Sparse formats: one file each, with its conversion and its operator.
//!
//! [`Csr`] is the hub and the only one a user must know. Every other is made from it, keeps its values in slots of its
//! own order, and can be [refreshed](Format::refresh) with values in the order of [`Csr::entries`].
//! `list.rs` names them all, `format.rs` says what each can do, `offer.rs` what each tells the chooser.

mod bsr;
mod checks;
mod coo;
mod csr;
mod csr_ref;
pub(crate) mod derived;
mod dia;
mod ehyb;
mod ell;
mod ellpack_r;
mod format;
pub(crate) mod given;
mod halo;
mod hyb;
mod input;
mod list;
mod mirrored;
mod offer;
#[cfg(feature = "cuda")]
mod on_device;
mod operator;
pub(crate) mod pattern;
mod renumbered;
mod rounded;
mod saved;
mod sell;
mod shared_rows;
mod slices;
mod source;
mod symmetric;
mod symmetric_bsr;
#[cfg(test)]
mod worked_example;

// what is public in the file of each format: its type, its options, and functions that belong to it
macro_rules! reexport {
    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
        $(pub use $file::*;)*
    };
}
crate::each_format!(reexport);

pub use csr_ref::CsrRef;
pub(crate) use dia::diagonals_of;
pub use format::Format;
pub use input::Index;
pub use krysp_kernels::strategy::Strategy;
pub(crate) use mirrored::{Mirrored, over_mirrored_rows};
pub(crate) use offer::{Offer, Offered, Priced, Variant};
#[cfg(feature = "cuda")]
pub use on_device::OnDevice;
pub(crate) use operator::{Multiply, precise_residual, row_operator};
pub use rounded::Rounded;
pub(crate) use slices::{check_padding, default_height, has_short_columns};
pub use source::Source;
