//! Converts matrices to and from other crates, behind the features `faer`, `nalgebra` and `sprs`.
//!
//! - `Csr::try_from(matrix)` converts a foreign matrix. The arrays of a matrix that is passed by value are reused without a
//!   copy if the layout is the same. [`Csr::assemble`](crate::Csr::assemble) then takes values in the order of the foreign
//!   matrix.
//! - `CsrRef::try_from(view)` borrows foreign arrays for products without a copy, if they are CSR with 32-bit
//!   indices.
//! - `CsMat::from(&csr)`, `SparseRowMat::from(&csr)` and `CsrMatrix::try_from(&csr)` copy a matrix, in the order of the `Csr`.
//! - `AsFaer` wraps any operator for faer's solvers.
//!
//! For other versions of these crates, and for other crates, convert from slices:
//! [`Csr::from_csr`](crate::Csr::from_csr), [`Csr::from_csc`](crate::Csr::from_csc),
//! [`CsrRef::new`](crate::formats::CsrRef::new).

#[cfg(feature = "faer")]
mod faer;
#[cfg(feature = "nalgebra")]
mod nalgebra;
#[cfg(feature = "sprs")]
mod sprs;

#[cfg(feature = "faer")]
pub use self::faer::AsFaer;

use crate::formats::Csr;
use crate::numbers::Real;

/// The offsets of a matrix as 32-bit numbers.
#[cfg(any(feature = "faer", feature = "sprs"))]
fn short_offsets<T: Real>(csr: &Csr<T>, to: &'static str, limit: usize) -> crate::error::Result<Vec<u32>> {
    let (rows, cols, nnz) = (csr.rows(), csr.cols(), csr.nnz());
    if nnz.max(rows).max(cols) > limit {
        let why = format!("{rows} x {cols} with {nnz} entries exceeds 32-bit indices: use `usize`");
        return Err(crate::error::Error::Unsuitable { format: to, why });
    }
    Ok(csr.offsets().into_iter().map(|offset| offset as u32).collect())
}

/// The columns of a matrix as `usize`.
fn wide_columns<T: Real>(csr: &Csr<T>) -> Vec<usize> {
    csr.columns().iter().map(|&column| column as usize).collect()
}
