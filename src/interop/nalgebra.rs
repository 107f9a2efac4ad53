//! nalgebra-sparse.

use super::wide_columns;
use crate::{Csr, Error, Real, Result};
use nalgebra_sparse::{CooMatrix, CscMatrix, CsrMatrix};

impl<T: Real> TryFrom<&CsrMatrix<T>> for Csr<T> {
    type Error = Error;

    fn try_from(matrix: &CsrMatrix<T>) -> Result<Csr<T>> {
        let (offsets, columns, values) = matrix.csr_data();
        Csr::from_csr(matrix.nrows(), matrix.ncols(), offsets, columns, values)
    }
}

/// Adopts the values.
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

/// Repeated places add up.
impl<T: Real> TryFrom<&CooMatrix<T>> for Csr<T> {
    type Error = Error;

    fn try_from(matrix: &CooMatrix<T>) -> Result<Csr<T>> {
        let (rows, columns) = (matrix.row_indices(), matrix.col_indices());
        Csr::from_coordinates(matrix.nrows(), matrix.ncols(), rows, columns, matrix.values())
    }
}

impl<T: Real> From<&Csr<T>> for CsrMatrix<T> {
    fn from(csr: &Csr<T>) -> CsrMatrix<T> {
        let (offsets, columns, values) = (csr.offsets(), wide_columns(csr), csr.entries().to_vec());
        CsrMatrix::try_from_csr_data(csr.rows(), csr.cols(), offsets, columns, values)
            .unwrap_or_else(|_| unreachable!("rows are sorted and in range"))
    }
}

impl<T: Real> From<&Csr<T>> for CooMatrix<T> {
    fn from(csr: &Csr<T>) -> CooMatrix<T> {
        CooMatrix::from(&CsrMatrix::from(csr))
    }
}

impl<T: Real> From<&Csr<T>> for CscMatrix<T> {
    fn from(csr: &Csr<T>) -> CscMatrix<T> {
        CscMatrix::from(&CsrMatrix::from(csr))
    }
}
