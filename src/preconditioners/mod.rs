//! Preconditioners: operators that apply `M⁻¹`.
//!
//! | preconditioner | for | one application | on a GPU |
//! | --- | --- | --- | --- |
//! | [`Jacobi`] | everything, as a start; [`Jacobi::blocks`] for several unknowns a node | one pass over vectors | copied, built |
//! | [`PositiveJacobi`] | the same for indefinite matrices; the preconditioner that plans print as Jacobi | the same | built |
//! | [`Fsai`] | symmetric positive definite, on any number of threads | two products, `Gᵀ (G r)` | copied, built |
//! | [`Spai`] | any matrix, on any number of threads | one product, `M r` | copied, built |
//! | [`TwoLevel`] | symmetric positive definite and large; combined with any other | the other preconditioner, two passes over vectors, a small dense product | copied, built |
//! | [`Amg`] | symmetric positive definite and even larger, or many right-hand sides | a V-cycle: some products with each level | copied, built |
//! | [`Isai`] | the same matrices as [`Ic0`] and [`Ilu0`], without triangular solves | two products | copied |
//! | [`Ic0`] | symmetric positive definite; less than half of the iterations of [`Jacobi`] | two triangular solves, level by level | no |
//! | [`Ilu0`] | any matrix that can be factorized without pivoting | two triangular solves, level by level | no |
//! | [`Ilut`] | general systems on which all others fail | two triangular solves, on one thread | no |
//! | [`SaddlePoint`] | saddle points `[A Bᵀ; B −C]`: flow, constraints | a cycle or a factorization of `A`, and the Schur complement | no |
//! | [`Cholesky`] | symmetric positive definite, where the factor fits: plane and thin meshes, many right-hand sides | two triangular solves with the factor | no |
//! | [`Ldl`] | symmetric, definite or not, where the factor fits; returns the inertia | two triangular solves with the factor | no |
//! | [`Lu`] | any matrix whose factors fit: systems on which no method converges | two triangular solves with the factors | no |
//! | `CuDss` | the same on a GPU, by NVIDIA's cuDSS, a library that is opened if it is installed | two triangular solves with the factors | built there only |
//!
//! `x.to(&gpu)` (trait `ToCuda`) copies a preconditioner to a GPU. `X::on(&gpu, &a)` builds one there, equal
//! to that of the host up to rounding, from a matrix in host memory or an operator that is already on the
//! GPU. Constructors with options have counterparts: [`Fsai::with_pattern`] and `Fsai::with_pattern_on`.
//! Approximate inverses are matrices: they can be applied in any format, on any device.
//!
//! All are updated for new values in the same way: [`Refresh::refresh`] with an operator that stores them, in
//! any format and memory. [`SinglePrecision`] applies any of them in single precision within a solve in double
//! precision.

pub mod amg;
mod coarse;
mod direct;
pub mod fsai;
mod ic0;
mod ilu0;
mod ilut;
mod isai;
pub mod jacobi;
mod local;
pub(crate) mod positive_jacobi;
pub(crate) mod refresh;
mod rows;
pub mod saddle;
mod several;
mod single_precision;
mod solves;
pub mod spai;
mod sparsity;
#[cfg(feature = "cuda")]
pub(crate) mod transposed_on_cuda;
pub mod two_level;

pub use crate::formats::MatrixSource;
pub use amg::{Amg, AmgOptions, UnknownOrder, rigid_body_modes};
pub use coarse::CoarseSpace;
pub use direct::{Cholesky, DirectOptions, FactorReport, Inertia, Ldl, Lu};
#[cfg(feature = "cuda")]
pub use direct::{CuDss, CuDssKind, CuDssReport};
#[cfg(feature = "testing")]
pub use direct::{EliminationOrder, elimination_order};
pub(crate) use direct::{OrderedLdl, PartialLu, Symbolic, is_long, lu_by_fronts};
pub use fsai::Fsai;
pub use ic0::Ic0;
pub use ilu0::Ilu0;
pub use ilut::{Ilut, IlutOptions};
pub use isai::{Isai, TriangularFactors};
pub use jacobi::Jacobi;
pub use krysp_kernels::block_diagonal::StoredRows;
pub use positive_jacobi::PositiveJacobi;
pub use refresh::Refresh;
pub use saddle::{BlockSolver, Fields, SaddleEstimate, SaddlePoint, SaddlePointOptions, Schur};
pub use single_precision::SinglePrecision;
pub use spai::{Side, Spai, SpaiReport};
pub use sparsity::{Growth, Sparsity};
pub use two_level::TwoLevel;

use crate::formats::matrix_source::check_square;
use refresh::{check_space, finite};
