//! Transpose of a matrix by counting entries per column, on one thread: faster than sorting them on all
//! threads, and cheap compared with a factorization.

use crate::{Csr, Real, Result};

/// Returns the transpose, in a separate space.
pub(super) fn transposed<T: Real>(csr: &Csr<T>) -> Result<Csr<T>> {
    let (mut starts, entries) = (vec![0usize; csr.cols() + 1], csr.nnz());
    csr.columns().iter().for_each(|&column| starts[column as usize + 1] += 1);
    (0..csr.cols()).for_each(|column| starts[column + 1] += starts[column]);
    let (mut next, mut rows, mut values) = (starts.clone(), vec![0; entries], vec![T::zero(); entries]);
    for row in 0..csr.rows() {
        for (&column, &value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
            let place = &mut next[column as usize];
            (rows[*place], values[*place]) = (row as u32, value);
            *place += 1;
        }
    }
    Csr::from_sorted(csr.rows(), starts, rows, values)
}
