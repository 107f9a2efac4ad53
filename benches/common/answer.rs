//! The reference SpMV `A x`, with which the result of every compared implementation is checked.

use super::contestant::Element;
use krysp::Csr;
use rayon::prelude::*;

/// `A x` (`sums`, one for each row), and the allowed error.
pub struct Answer {
    sums: Vec<f64>,
    /// `Σ|a x|`
    magnitudes: Vec<f64>,
    /// `(c + 2) ε` with the number `c` of stored entries of the row. In any order of summation, the error is at most
    /// this fraction of `Σ|a x|`.
    allowed: Vec<f64>,
}

impl Answer {
    pub fn new<T: Element>(csr: &Csr<T>, x: &[T]) -> Answer {
        let of_row = |row: usize| {
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for (&column, value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
                let term = value.wide() * x[column as usize].wide();
                sum += term;
                magnitude += term.abs();
            }
            let terms = (csr.row_columns(row).len() + 2) as f64;
            (sum, (magnitude, terms * <T as krysp::Element>::EPSILON))
        };
        let (sums, (magnitudes, allowed)) = (0..csr.rows()).into_par_iter().map(of_row).unzip();
        Answer { sums, magnitudes, allowed }
    }

    /// Returns an error that names the first wrong row, if there is one.
    pub fn check<T: Element>(&self, y: &[T]) -> Result<(), String> {
        self.check_rounded(y, 0.0)
    }

    /// Checks like `check`, for a matrix whose entries were rounded with a relative error of at most `rounding`.
    pub fn check_rounded<T: Element>(&self, y: &[T], rounding: f64) -> Result<(), String> {
        if y.len() != self.sums.len() {
            return Err(format!("{} rows, must be {}", y.len(), self.sums.len()));
        }
        for (row, (y, sum)) in y.iter().zip(&self.sums).enumerate() {
            let allowed = (self.allowed[row] + rounding) * self.magnitudes[row];
            let off = (y.wide() - sum).abs();
            if off.is_nan() || off > allowed {
                return Err(format!("row {row} is {y}, must be {sum} within {allowed:e}"));
            }
        }
        Ok(())
    }
}
