//! The product that every contestant must arrive at.

use super::peers::Element;
use krysp::Csr;
use rayon::prelude::*;

/// `A x`, and how far from it a product may be.
pub struct Answer {
    sums: Vec<f64>,
    /// `Σ|a x|`
    magnitudes: Vec<f64>,
    /// `c ε`, with `c` the length of the row: any order of summation meets that share of the magnitude.
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

    /// Says which row is wrong, if any is.
    pub fn check<T: Element>(&self, y: &[T]) -> Result<(), String> {
        self.check_rounded(y, 0.0)
    }

    /// The same of a matrix whose entries were rounded, by this share of their size at most.
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
