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
//! [`Formats`](crate::choice::Formats) is a machine with the formats of krysp and yours. It takes the place of
//! [`Host`](crate::Host) for operators and plans. With the feature `testing`, `krysp::testing::laws::format` checks
//! what every format obeys. `examples/padded_format` in the repository is a complete crate with a format, a
//! preconditioner and a method.
//!
//! Such a format is in host memory. On a GPU there are the formats of this crate alone.
//!
//! # Safe and unsafe code
//!
//! A format needs no `unsafe` code: a [`RowSum`] computes one entry of a product in safe Rust, and [`RowByRow`]
//! makes it a [`RowProduct`]. The compiler vectorizes it for each SIMD level, if it is `#[inline(always)]`. Only a
//! kernel that uses SIMD registers explicitly implements `RowProduct`, whose functions are `unsafe`, because the
//! caller ensures that the processor has the instructions. A format of which a trait is implemented wrongly, in
//! safe code, gives wrong results or panics, and does no other harm.

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
