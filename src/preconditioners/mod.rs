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
//! | [`Amg`] | symmetric positive definite and larger still, or many right-hand sides | a V-cycle: some products with each level |
//! | [`Isai`] | what these factorise, where products are cheaper than solves | two products |
//!
//! Approximate inverses are matrices: any format, on any device, applies them. `Fsai::on`, `Spai::on` and
//! `Jacobi::blocks_on` build them on a GPU, to rounding as on the host, the first two of an operator that is there
//! already as well. [`Narrow`] applies any of them in single precision within a solve in double.

mod amg;
mod coarse;
pub(crate) mod fsai;
mod ic0;
mod ilu0;
mod isai;
pub(crate) mod jacobi;
mod local;
mod narrow;
mod rows;
mod solves;
pub(crate) mod spai;
mod sparsity;
mod two_level;

pub use amg::{Amg, AmgOptions, Unknowns, rigid_motions};
pub use coarse::CoarseSpace;
pub use fsai::Fsai;
pub use ic0::Ic0;
pub use ilu0::Ilu0;
pub use isai::{Factorised, Isai};
pub use jacobi::Jacobi;
pub use krysp_kernels::block_diagonal::StoredRows;
pub use narrow::Narrow;
pub use spai::{Side, Spai, SpaiReport};
pub use sparsity::{Growth, Sparsity};
pub use two_level::TwoLevel;

use crate::{Csr, Error, Format, HostSpace, Real, Result};

/// Refuses a matrix that is not square.
pub(crate) fn check_square<T: Real>(what: &'static str, csr: &Csr<T>) -> Result<()> {
    let (rows, cols) = (csr.rows(), csr.cols());
    if rows == cols { Ok(()) } else { Err(Error::NotSquare { what, rows, cols }) }
}

/// Refuses new values from another space than that of the preconditioner.
pub(crate) fn check_space<T: Real>(csr: &Csr<T>, domain: &HostSpace<T>) -> Result<()> {
    if csr.source().domain() == domain {
        return Ok(());
    }
    Err(krysp_solvers::Error::Space { what: "the matrix", than: "the preconditioner" }.into())
}
