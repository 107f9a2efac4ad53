//! Preconditioners: operators that apply `M⁻¹`.
//!
//! | preconditioner | for | one application |
//! | --- | --- | --- |
//! | [`Jacobi`] | everything, as a start; [`Jacobi::blocks`] for several unknowns a node | one pass over vectors |
//! | [`Fsai`] | symmetric positive definite, on any number of threads and on GPUs | two products, `Gᵀ (G r)` |
//! | [`Spai`] | any matrix, likewise | one product, `M r` |
//!
//! Approximate inverses are matrices: any format, on any device, applies them.

mod fsai;
mod jacobi;
mod rows;
mod spai;
mod sparsity;

pub use fsai::Fsai;
pub use jacobi::Jacobi;
pub use spai::{Side, Spai, SpaiReport};
pub use sparsity::{Growth, Sparsity};
