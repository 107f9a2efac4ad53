//! In which order columns of an unsymmetric matrix are eliminated, and what becomes of those that depend on others.

use super::tree::{Both, Foretold};
use crate::numbering::minimum_degree;
use crate::{Csr, Real, Result};
use krysp_solvers::Element;

/// The order is that of `A + Aᵀ` if so many of the off-diagonal entries have a partner, and so many rows a diagonal.
const PARTNERS: f64 = 0.5;
const DIAGONALS: f64 = 0.9;

/// Fill beyond so many times that of diagonal pivots says that these do not serve.
const MOST_BY_FORETOLD: usize = 3;

/// In which order columns are eliminated.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) column_of: Vec<u32>,
    /// The entries of the factors up to which diagonals come first for pivots; `None` where any row will do.
    pub(super) by_diagonal: Option<usize>,
}

/// What becomes of a column that depends on those before it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pivoting {
    /// The matrix is refused.
    Regular,
    /// Its unknown is zero.
    Tolerant,
}

impl Pivoting {
    /// What of a column counts as rounding, beside its largest number on the way.
    pub(super) fn rounding<T: Real>(self) -> T {
        match self {
            Pivoting::Regular => T::epsilon(),
            Pivoting::Tolerant => T::from_f64(<T as Element>::EPSILON.powf(TOLERANT)),
        }
    }
}

/// The power of the epsilon, 3e-13 in `f64`, below which a pivot would make a solution so large that its rounding hides what is
/// solved for.
const TOLERANT: f64 = 0.8;

impl Order {
    pub(super) fn of<T: Real>(a: &Csr<T>, columns: &Csr<T>) -> Result<Order> {
        let n = a.rows();
        let (mut partners, mut diagonals) = (0, 0);
        for row in 0..n {
            let (mut left, mut right) = (a.row_columns(row), columns.row_columns(row));
            while let (Some(x), Some(y)) = (left.first(), right.first()) {
                partners += usize::from(x == y);
                let (skip, other) = (usize::from(x <= y), usize::from(y <= x));
                (left, right) = (&left[skip..], &right[other..]);
            }
            diagonals += usize::from(a.get(row, row).is_some_and(|value| !value.is_zero()));
        }
        let stored = (0..n).filter(|&row| a.row_columns(row).binary_search(&(row as u32)).is_ok()).count();
        let by_diagonal = (partners - stored) as f64 >= PARTNERS * (a.nnz() - stored) as f64
            && diagonals as f64 >= DIAGONALS * n as f64;
        if !by_diagonal {
            return Order::of_columns(a, columns);
        }
        let Foretold { order, lengths, .. } =
            Foretold::new(minimum_degree::of_sum(a, columns)?, &Both([a, columns]))?;
        let entries: usize = lengths.iter().map(|&length| 2 * length as usize).sum();
        Ok(Order { column_of: order, by_diagonal: Some(MOST_BY_FORETOLD * entries) })
    }

    pub(super) fn of_columns<T: Real>(a: &Csr<T>, columns: &Csr<T>) -> Result<Order> {
        Ok(Order { column_of: minimum_degree::of_columns(a, columns)?, by_diagonal: None })
    }
}
