//! Optional checks of a matrix's entries.

use super::{Csr, Format};
use crate::error::{Error, Result};
use crate::numbers::Real;
use krysp_kernels::cpu::run::threads::find_row;

impl<T: Real> Csr<T> {
    /// Checks that all entries are finite. The error names the first infinite or NaN entry by its row and
    /// column in the user's order. Reads the values once, on all threads.
    ///
    /// ```
    /// use krysp::Csr;
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 0, f64::NAN), (1, 1, 1.0)])?;
    /// assert_eq!(a.check_finite().unwrap_err().to_string(), "entry (1, 0) is NaN (indices start at 0)");
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn check_finite(&self) -> Result<()> {
        self.source().check_finite(self.entries())
    }

    /// Checks that the matrix is symmetric: `aᵢⱼ` and `aⱼᵢ` may differ by at most `tolerance` times the
    /// larger magnitude.
    pub fn check_symmetric(&self, tolerance: f64) -> Result<()> {
        self.check_square("symmetry")?;
        self.check_entries(|row, col, value| {
            let mirrored = self.get(col, row).unwrap_or_default();
            let (a, b) = (value.to_f64(), mirrored.to_f64());
            let largest = a.abs().max(b.abs());
            let agree = (a - b).abs() <= tolerance * largest && largest.is_finite();
            if a == b || agree {
                Ok(())
            } else {
                Err(Error::NotSymmetric { row, col, value: a, mirrored: b })
            }
        })
    }

    /// The error for a matrix that is not symmetric: names a pair of entries that differ by more than a
    /// millionth, or 100 machine epsilons, of `max(|aᵢⱼ|, |aⱼᵢ|, √|aᵢᵢ aⱼⱼ|)`. `None` for symmetric matrices and for a triangle alone. For
    /// the message of a factorization that has failed.
    pub(crate) fn asymmetry(&self) -> Option<Error> {
        let beyond = |side: fn(usize, usize) -> bool| {
            let has = |row: usize| self.row_columns(row).iter().any(|&col| side(col as usize, row));
            find_row(self.rows(), 2, &has).is_some()
        };
        if !(beyond(|col, row| col < row) && beyond(|col, row| col > row)) {
            return None;
        }
        let (diagonal, tolerance) = (self.diagonal_entries(), (100.0 * T::EPSILON).max(1e-6));
        let check = |row: usize, col: usize, value: T| {
            let mirrored = self.get(col, row).unwrap_or_default().to_f64();
            let scale = (diagonal[row].to_f64() * diagonal[col].to_f64()).abs().sqrt();
            let value = value.to_f64();
            match (value - mirrored).abs() > tolerance * scale.max(value.abs()).max(mirrored.abs()) {
                true => Err(Error::NotSymmetric { row, col, value, mirrored }),
                false => Ok(()),
            }
        };
        self.check_entries(check).err()
    }

    /// Calls `check(row, column, value)` for every entry and returns the first error.
    pub(super) fn check_entries(&self, check: impl Fn(usize, usize, T) -> Result<()> + Sync) -> Result<()> {
        let check_row = |row: usize| {
            let mut entries = self.row_columns(row).iter().zip(self.row_values(row));
            entries.try_for_each(|(&col, &value)| check(row, col as usize, value))
        };
        let refused = find_row(self.rows(), 16, &|row| check_row(row).is_err());
        refused.map_or(Ok(()), check_row)
    }
}
