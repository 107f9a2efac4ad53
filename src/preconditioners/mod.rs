//! Preconditioners: operators that apply `M⁻¹`.
//!
//! | preconditioner | for | one application |
//! | --- | --- | --- |
//! | [`Jacobi`] | everything, as a start; [`Jacobi::blocks`] for several unknowns a node | one pass over vectors |
//! | [`Fsai`] | symmetric positive definite, on any number of threads and on GPUs | two products, `Gᵀ (G r)` |
//! | [`Spai`] | any matrix, likewise | one product, `M r` |
//! | [`Ic0`] | symmetric positive definite, on few threads | two triangular solves, level by level |
//! | [`Ilu0`] | any matrix, likewise | the same |
//! | [`TwoLevel`] | symmetric positive definite and large; over any of these, on a GPU too | what it stands over, two passes over vectors, a small dense product |
//! | [`Isai`] | what these factorise, where products are cheaper than solves | two products |
//!
//! Approximate inverses are matrices: any format, on any device, applies them. `Fsai::on`, `Spai::on` and
//! `Jacobi::blocks_on` build them on a GPU, to rounding as on the host, the first two of an operator that is there
//! already as well. [`Narrow`] applies any of them in single precision within a solve in double.

mod coarse;
pub mod fsai;
mod ic0;
mod ilu0;
mod isai;
pub mod jacobi;
mod local;
mod narrow;
pub(crate) mod origin;
mod rows;
mod solves;
pub mod spai;
mod sparsity;
#[cfg(feature = "cuda")]
pub(crate) mod transposed_on_cuda;
pub mod two_level;

pub use coarse::CoarseSpace;
pub use fsai::Fsai;
pub use ic0::Ic0;
pub use ilu0::Ilu0;
pub use isai::{Factorised, Isai};
pub use jacobi::Jacobi;
pub use krysp_kernels::block_diagonal::StoredRows;
pub use narrow::Narrow;
pub use origin::{Origin, Refresh};
pub use spai::{Side, Spai, SpaiReport};
pub use sparsity::{Growth, Sparsity};
pub use two_level::TwoLevel;

use origin::{check_space, check_square};
