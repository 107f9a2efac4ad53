//! Residual `r_i ← b_i − Σ_k v_k x_{c_k}` of a CSR matrix in twice the working precision, to verify a
//! solution.
//!
//! Error-free transformations split each product and each sum into its rounded value and the rounding error;
//! the errors are accumulated separately (Dot2 of Ogita, Rump and Oishi 2005). The memory traffic is that of
//! a CSR product, and `b`. It takes up to ten times as long as the product, because each entry needs a dozen
//! dependent operations.

use crate::cpu::run::threads::over_rows;
use crate::cpu::simd::{Simd, Task, Value, run};
use crate::index::{ColumnsRef, OffsetsRef};
use std::ops::Range;

/// A CSR matrix, a right-hand side and a solution.
#[derive(Clone, Copy, Debug)]
pub struct Equations<'a, T> {
    /// Row offsets.
    pub offsets: OffsetsRef<'a>,
    /// Column of each entry.
    pub columns: ColumnsRef<'a>,
    /// Value of each entry.
    pub values: &'a [T],
    /// The right-hand side.
    pub b: &'a [T],
    /// The solution.
    pub x: &'a [T],
}

impl<T: Value> Equations<'_, T> {
    /// `r ← b − A x`
    pub fn residual(self, r: &mut [T]) {
        assert_eq!(self.b.len(), r.len(), "`b` and `r` have equal lengths");
        assert_eq!(self.offsets.ranges(), r.len(), "`r` has an entry for each row");
        let mean = self.values.len() / r.len().max(1);
        over_rows(r.len(), 2 * mean + 2, r, &|rows, r: &mut [T]| run(Part { equations: self, rows, r }));
    }

    #[inline(always)]
    fn of_row(&self, row: usize) -> T {
        let (mut sum, mut low) = (self.b[row], T::zero());
        let entries = self.offsets.range(row);
        for (&column, &value) in self.columns[entries.clone()].iter().zip(&self.values[entries]) {
            let x = self.x[column as usize];
            let product = value * x;
            let taken = value.mul_add(x, -product);
            let next = sum - product;
            let back = next - sum;
            low += (sum - (next - back)) - (product + back) - taken;
            sum = next;
        }
        sum + low
    }
}

struct Part<'a, T> {
    equations: Equations<'a, T>,
    rows: Range<usize>,
    r: &'a mut [T],
}

impl<T: Value> Task for Part<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (row, r) in self.rows.zip(self.r) {
            *r = self.equations.of_row(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Columns, Offsets};

    #[test]
    fn what_cancels_is_not_lost() {
        // (1 + ε)² − (1 + 2ε) = ε², which is lost if the product is rounded
        let epsilon = f64::EPSILON;
        let offsets = Offsets::from_lengths([2, 1]);
        let columns = Columns::new(vec![0, 1, 0], 2).unwrap();
        let equations = Equations {
            offsets: (&offsets).into(),
            columns: (&columns).into(),
            values: &[1.0 + epsilon, 1e20, 2.0],
            b: &[1.0 + 2.0 * epsilon, 0.0],
            x: &[1.0 + epsilon, 0.0],
        };
        let mut r = [f64::NAN; 2];
        equations.residual(&mut r);
        assert_eq!(r, [-epsilon * epsilon, -2.0 - 2.0 * epsilon]);
        // two large entries that cancel, between small ones
        let offsets = Offsets::from_lengths([4]);
        let columns = Columns::new(vec![0, 1, 2, 3], 4).unwrap();
        let equations = Equations {
            offsets: (&offsets).into(),
            columns: (&columns).into(),
            values: &[1.0, 1e17, 1.0, -1e17],
            b: &[0.25],
            x: &[1.0; 4],
        };
        let mut r = [f64::NAN];
        equations.residual(&mut r);
        assert_eq!(r, [-1.75]);
    }
}
