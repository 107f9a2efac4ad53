//! CSR operators over borrowed arrays.

use super::row_operator;
use super::shared_rows::SharedRows;
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::host::{HostSpace, HostVector};
use crate::numbers::{Real, Storage};
use krysp_kernels::cpu::formats::csr;
use krysp_kernels::cpu::formats::residual::Equations;
use krysp_kernels::cpu::run::balanced::Balanced;
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::index::{ColumnsRef, Invalid, OffsetsRef};

/// An operator over borrowed CSR arrays, which are checked once and never copied.
///
/// It multiplies as fast as [`Csr`](crate::Csr). Rows may be unsorted, and duplicate entries add up.
///
/// ```
/// use krysp::formats::CsrRef;
/// use krysp::{Cg, Jacobi};
///
/// let (offsets, columns, values) = ([0, 2, 4], [0, 1, 0, 1], [2.0, 1.0, 1.0, 2.0]);
/// let a = CsrRef::new(2, &offsets, &columns, &values)?;
/// let jacobi = Jacobi::from_diagonal(&a.diagonal_entries())?;
/// let solution = Cg::new(a).preconditioner(jacobi).solve(&[3.0, 3.0])?;
/// assert_eq!(solution.x, [1.0, 1.0]);
/// # Ok::<(), krysp::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CsrRef<'a, T: Real> {
    offsets: OffsetsRef<'a>,
    columns: ColumnsRef<'a>,
    values: &'a [T],
    rows: SharedRows<T>,
}

impl<'a, T: Real> CsrRef<'a, T> {
    /// Wraps CSR arrays: the row offsets (the index of the first entry of each row, then the number of
    /// entries), and the column and value of each entry.
    pub fn new(cols: usize, offsets: &'a [u32], columns: &'a [u32], values: &'a [T]) -> Result<Self> {
        let entries = columns.len();
        if values.len() != entries {
            let (what, got, why) = ("the values", values.len(), "one for each entry");
            return Err(Error::Length { what, got, expected: entries, why });
        }
        let refused = |fall: usize| {
            // an offset that is too large comes before the fall that it causes
            let too_large = offsets.iter().position(|&offset| offset as usize > entries);
            let position = too_large.map_or(fall, |position| position.min(fall));
            let offset = offsets.get(position).map_or(0, |&offset| i128::from(offset));
            Error::Offsets { position, offset, entries }
        };
        let columns = ColumnsRef::new(columns, cols).map_err(|invalid| match invalid {
            Invalid::Bound { position, index, bound } => {
                Error::Index { position, what: "column", index: i128::from(index), bound: bound as usize }
            }
            Invalid::Order { position } => refused(position),
        })?;
        let offsets = OffsetsRef::from_short(offsets).map_err(|invalid| match invalid {
            Invalid::Order { position } | Invalid::Bound { position, .. } => refused(position),
        })?;
        let rows = offsets.ranges();
        if offsets.end() != entries {
            return Err(refused(rows));
        }
        let rows = SharedRows::new(offsets, HostSpace::new(cols), HostSpace::new(rows));
        Ok(CsrRef { offsets, columns, values, rows })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.offsets.ranges()
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.columns.bound()
    }

    /// Number of entries.
    pub fn nnz(&self) -> usize {
        self.columns.len()
    }

    /// Diagonal of the matrix, zero where no entry is stored.
    pub fn diagonal_entries(&self) -> Vec<T> {
        let entry = |row: usize| {
            let range = self.offsets.range(row);
            let entries = self.columns[range.clone()].iter().zip(&self.values[range]);
            let of_diagonal = |(&column, &value)| if column as usize == row { value } else { T::zero() };
            entries.map(of_diagonal).fold(T::zero(), |sum, value| sum + value)
        };
        map_rows(self.rows().min(self.cols()), 16, &entry)
    }

    /// Copies the matrix to a [`Csr`] with sorted rows.
    pub fn to_csr(&self) -> Result<Csr<T>> {
        let (rows, cols, columns) = (self.rows(), self.cols(), &*self.columns);
        match self.offsets {
            OffsetsRef::Short(offsets) => Csr::from_csr(rows, cols, &offsets, columns, self.values),
            OffsetsRef::Long(offsets) => Csr::from_csr(rows, cols, &offsets, columns, self.values),
        }
    }

    fn kernel<'k, V: Storage<T>>(&'k self, values: &'k [V]) -> impl RowProduct<T> {
        Balanced(csr::Csr { offsets: self.offsets, columns: self.columns, values })
    }

    fn array_bytes(&self) -> usize {
        self.offsets.bytes() + size_of_val(&*self.columns) + size_of_val(self.values)
    }
}

row_operator!(CsrRef<'a>, rows, {
    fn residual(
        &self,
        b: &HostVector<T>,
        x: &HostVector<T>,
        r: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.rows.check_residual(b, x, r)?;
        let (offsets, columns, values) = (self.offsets, self.columns, self.values);
        Equations { offsets, columns, values, b: b.as_slice(), x: x.as_slice() }.residual(r.as_mut_slice());
        Ok(())
    }
});
