//! Symmetric patterns whose variables are ordered.

use crate::formats::{Csr, Rows};
use crate::numbers::Real;

/// Neighbours of each variable in a symmetric pattern. A variable may be listed among its own neighbours, and
/// a neighbour twice.
pub(crate) trait Neighbours {
    fn of(&self, variable: u32) -> impl Iterator<Item = u32>;
}

/// The pattern of a matrix and of its transpose.
pub(crate) struct Both<'a, T: Real> {
    matrix: Rows<'a, T>,
    /// `None` if the pattern is symmetric.
    transposed: Option<Rows<'a, T>>,
}

impl<'a, T: Real> Both<'a, T> {
    pub(crate) fn new([matrix, transposed]: [&'a Csr<T>; 2]) -> Both<'a, T> {
        let other = (!is_symmetric([matrix, transposed])).then(|| Rows::of(transposed));
        Both { matrix: Rows::of(matrix), transposed: other }
    }
}

/// Returns whether a matrix has the pattern of its transpose.
pub(crate) fn is_symmetric<T: Real>([matrix, transposed]: [&Csr<T>; 2]) -> bool {
    let lengths = || matrix.row_lengths().eq(transposed.row_lengths());
    std::ptr::eq(matrix.pattern(), transposed.pattern())
        || matrix.columns() == transposed.columns() && lengths()
}

impl<T: Real> Neighbours for Both<'_, T> {
    fn of(&self, variable: u32) -> impl Iterator<Item = u32> {
        let above = self.transposed.map_or(&[][..], |transposed| transposed.columns(variable as usize));
        self.matrix.columns(variable as usize).iter().chain(above).copied()
    }
}
