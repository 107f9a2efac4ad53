//! Complete factorizations: `A = L Lᵀ`, `A = L D Lᵀ` and `A = L U`. One application solves the system up to
//! rounding.
//!
//! | | for | how |
//! | --- | --- | --- |
//! | [`Cholesky`] | symmetric positive definite | dense fronts, on all threads |
//! | [`Ldl`] | symmetric, definite or not | dense fronts with delayed pivots, on all threads |
//! | [`Lu`] | any square matrix | dense fronts with delayed pivots, on all threads; or columns, on one thread, if that is faster |
//!
//! With the feature `cuda`, `CuDss` factorizes on a GPU by NVIDIA's cuDSS.
//!
//! Each is a preconditioner, `z = A⁻¹ r` up to rounding. A Krylov solver with it stops after one or two
//! iterations, which act as iterative refinement, and reports the recomputed residual.
//!
//! Factors have fill-in: many more entries than the matrix. Their number is known before the numeric
//! factorization, or checked during it. If the memory limit would be exceeded, the constructor returns
//! [`Error::Memory`](crate::Error::Memory).

mod cholesky;
mod condition;
#[cfg(feature = "cuda")]
mod cudss;
#[cfg(feature = "testing")]
mod elimination_order;
mod fill;
mod fronts;
mod ldl;
mod lu;
mod memory;
mod order;
mod report;
mod scale;
#[cfg(test)]
mod testing;
mod transpose;
mod tree;
mod triangle;

pub use cholesky::Cholesky;
pub(crate) use cholesky::Symbolic;
#[cfg(feature = "cuda")]
pub use cudss::{CuDss, CuDssKind, CuDssReport};
#[cfg(feature = "testing")]
pub use elimination_order::{EliminationOrder, elimination_order};
pub(crate) use fill::is_long;
pub use ldl::Ldl;
pub(crate) use ldl::OrderedLdl;
pub use lu::Lu;
pub(crate) use lu::{PartialLu, lu_by_fronts};
pub use memory::DirectOptions;
pub use report::{FactorReport, Inertia};

use memory::Budget;
