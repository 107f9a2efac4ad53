//! The items with which another crate writes a format that krysp treats like its own.
//!
//! | part | what it is for |
//! | --- | --- |
//! | [`Format`] | the conversion, and where entries are stored; refreshes, the conversion back and [`Rounded`](super::Rounded) follow from it |
//! | [`RowSum`] or [`RowProduct`], and [`row_operator!`] | the product, if rows are computed independently: [`LinearOperator`] and [`Multiply`] follow |
//! | [`Multiply`], [`LinearOperator`] | the product of any other format |
//! | [`Offered`] | its names, cost models and predicted work, by which [`Operator::auto`](crate::Operator::auto) chooses |
//! | [`Saved`], [`saved!`] | its arrays in files of operators and plans |
//!
//! [`Formats`](crate::choice::Formats) is a machine with the formats of krysp and yours. It is passed in
//! place of [`Host`](crate::Host) to operators and plans. With the feature `testing`,
//! `krysp::testing::laws::format` checks the properties that every format must have. `examples/padded_format`
//! in the repository is a complete crate with a format, a preconditioner and a method.
//!
//! Such a format is stored in host memory. On a GPU, only the formats of this crate are available.
//!
//! # Safe and unsafe code
//!
//! A format needs no `unsafe` code: a [`RowSum`] computes one entry of a product in safe Rust, and [`RowByRow`]
//! makes it a [`RowProduct`]. The compiler vectorizes it for each SIMD level, if it is `#[inline(always)]`. Only a
//! kernel that uses SIMD registers explicitly implements `RowProduct`, whose functions are `unsafe`, because the
//! caller ensures that the processor has the instructions. A format that implements a trait
//! wrongly, in safe code, gives wrong results or panics, but causes no undefined behaviour.

pub use super::analysis::{Analysis, Model, RowStatistics};
pub use super::format::Format;
pub use super::offer::{Coefficients, Offer, Offered, Variant};
pub use super::operator::{Multiply, many_columns, precise_residual, row_operator};
pub use super::slices::check_padding;
pub use super::source::Source;
pub use crate::numbers::{Real, Storage};
pub use crate::saved::{InconsistentData, Loaded, Reader, Saved, Schema, Writer, saved};
pub use krysp_kernels::buffer::{Buffer, Plain};
pub use krysp_kernels::cost::CostModel;
pub use krysp_kernels::cpu::run::rows::{RowByRow, RowProduct, RowSum};
pub use krysp_kernels::cpu::run::threads::{CHUNK, fill_by_rows};
pub use krysp_kernels::cpu::simd::Simd;
pub use krysp_kernels::index::{Columns, Invalid, Offsets};
pub use krysp_solvers::LinearOperator;
