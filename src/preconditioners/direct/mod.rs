//! Direct factorizations: `A = L Lᵀ`, `A = L D Lᵀ` and `A = L U` with all of their fill, so that one application solves the system.
//!
//! | | for | how |
//! | --- | --- | --- |
//! | [`Cholesky`] | symmetric positive definite | dense fronts, on all threads |
//! | [`Ldl`] | symmetric, definite or not | dense fronts with delayed pivots, on all threads |
//! | [`Lu`] | any square matrix | the same; or column by column on one thread, where that is faster |
//!
//! Each is a preconditioner, `z = A⁻¹ r` to rounding. A solver over it ends after one or two iterations, refines what rounding
//! left, and reports the recomputed residual: there is no other way to refine here.
//!
//! Factors have fill: many more entries than the matrix. How many is known before the first number is computed, or watched while
//! they are; what would not fit is refused with [`Error::Memory`](crate::Error::Memory).

mod cholesky;
mod condition;
mod fronts;
mod ldl;
mod lu;
mod memory;
mod order;
mod scale;
#[cfg(test)]
mod testing;
mod transpose;
mod tree;
mod triangle;

pub use cholesky::Cholesky;
pub(crate) use cholesky::Symbolic;
pub use ldl::{Inertia, Ldl};
pub use lu::Lu;
pub(crate) use lu::{PartialLu, lu_by_fronts};
pub use memory::DirectOptions;

use memory::Budget;
