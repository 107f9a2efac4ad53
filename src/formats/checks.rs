//! Checks of a matrix's entries that a user asks for.

use super::{Csr, Format};
use crate::{Error, Real, Result};
use krysp_kernels::cpu::run::threads::find_row;

impl<T: Real> Csr<T> {
    /// Refuses infinite and NaN entries, and names the first by its row and column in the user's numbering. Reads the values
    /// once, on all threads.
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

    /// Refuses a matrix with `aᵢⱼ ≠ aⱼᵢ`, beyond `tolerance` times the larger of the two.
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

    /// Checks every entry, `check(row, column, value)`; the first that is refused is reported.
    pub(super) fn check_entries(&self, check: impl Fn(usize, usize, T) -> Result<()> + Sync) -> Result<()> {
        let check_row = |row: usize| {
            let mut entries = self.row_columns(row).iter().zip(self.row_values(row));
            entries.try_for_each(|(&col, &value)| check(row, col as usize, value))
        };
        let refused = find_row(self.rows(), 16, &|row| check_row(row).is_err());
        refused.map_or(Ok(()), check_row)
    }
}
