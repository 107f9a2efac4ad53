//! Conversions to and from nalgebra-sparse.

use super::wide_columns;
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use nalgebra_sparse::{CooMatrix, CscMatrix, CsrMatrix};

impl<T: Real> TryFrom<&CsrMatrix<T>> for Csr<T> {
    type Error = Error;

    fn try_from(matrix: &CsrMatrix<T>) -> Result<Csr<T>> {
        let (offsets, columns, values) = matrix.csr_data();
        Csr::from_csr(matrix.nrows(), matrix.ncols(), offsets, columns, values)
    }
}

/// Reuses the array of values without a copy.
impl<T: Real> TryFrom<CsrMatrix<T>> for Csr<T> {
    type Error = Error;

    fn try_from(matrix: CsrMatrix<T>) -> Result<Csr<T>> {
        let cols = matrix.ncols();
        let (offsets, columns, values) = matrix.disassemble();
        Csr::from_sorted(cols, offsets, columns, values)
    }
}

impl<T: Real> TryFrom<&CscMatrix<T>> for Csr<T> {
    type Error = Error;

    fn try_from(matrix: &CscMatrix<T>) -> Result<Csr<T>> {
        let (offsets, rows, values) = matrix.csc_data();
        Csr::from_csc(matrix.nrows(), matrix.ncols(), offsets, rows, values)
    }
}

/// Repeated entries are added up.
impl<T: Real> TryFrom<&CooMatrix<T>> for Csr<T> {
    type Error = Error;

    fn try_from(matrix: &CooMatrix<T>) -> Result<Csr<T>> {
        let (rows, columns) = (matrix.row_indices(), matrix.col_indices());
        Csr::from_coordinates(matrix.nrows(), matrix.ncols(), rows, columns, matrix.values())
    }
}

impl<T: Real> TryFrom<&Csr<T>> for CsrMatrix<T> {
    type Error = Error;

    fn try_from(csr: &Csr<T>) -> Result<CsrMatrix<T>> {
        let (offsets, columns, values) = (csr.offsets(), wide_columns(csr), csr.entries().to_vec());
        CsrMatrix::try_from_csr_data(csr.rows(), csr.cols(), offsets, columns, values)
            .map_err(|error| Error::Unsuitable { format: "nalgebra-sparse", why: error.to_string() })
    }
}

impl<T: Real> TryFrom<&Csr<T>> for CooMatrix<T> {
    type Error = Error;

    fn try_from(csr: &Csr<T>) -> Result<CooMatrix<T>> {
        Ok(CooMatrix::from(&CsrMatrix::try_from(csr)?))
    }
}

impl<T: Real> TryFrom<&Csr<T>> for CscMatrix<T> {
    type Error = Error;

    fn try_from(csr: &Csr<T>) -> Result<CscMatrix<T>> {
        Ok(CscMatrix::from(&CsrMatrix::try_from(csr)?))
    }
}
