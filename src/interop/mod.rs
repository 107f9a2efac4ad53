//! Matrices of other crates in and out, behind the features `faer`, `nalgebra` and `sprs`.
//!
//! - `Csr::try_from(matrix)` takes a foreign matrix; what is given away and laid out alike is adopted, not copied.
//!   [`Format::refresh`](crate::Format::refresh) then takes values in the order of the foreign matrix.
//! - `CsrRef::try_from(view)` multiplies with foreign arrays where they are, if they are compressed rows with 32-bit
//!   indices.
//! - `CsMat::from(&csr)`, `SparseRowMat::from(&csr)`, `CsrMatrix::from(&csr)` copy a matrix out, in the numbering that
//!   it has.
//! - `AsFaer` lends any operator to faer's solvers.
//!
//! Other versions of these crates, and other crates, plug in through slices: [`Csr::from_csr`](crate::Csr::from_csr),
//! [`Csr::from_csc`](crate::Csr::from_csc), [`CsrRef::new`](crate::formats::CsrRef::new).

#[cfg(feature = "faer")]
mod faer;
#[cfg(feature = "nalgebra")]
mod nalgebra;
#[cfg(feature = "sprs")]
mod sprs;

#[cfg(feature = "faer")]
pub use self::faer::AsFaer;

use crate::{Csr, Real};

/// The offsets of a matrix, in 32 bits.
#[cfg(any(feature = "faer", feature = "sprs"))]
fn short_offsets<T: Real>(csr: &Csr<T>, to: &'static str, limit: usize) -> crate::Result<Vec<u32>> {
    let (rows, cols, nnz) = (csr.rows(), csr.cols(), csr.nnz());
    if nnz.max(rows).max(cols) > limit {
        let why = format!("{rows} x {cols} with {nnz} entries is beyond 32-bit indices: take `usize`");
        return Err(crate::Error::Unsuitable { format: to, why });
    }
    Ok(csr.offsets().into_iter().map(|offset| offset as u32).collect())
}

/// The columns of a matrix, as wide as memory.
fn wide_columns<T: Real>(csr: &Csr<T>) -> Vec<usize> {
    csr.columns().iter().map(|&column| column as usize).collect()
}
