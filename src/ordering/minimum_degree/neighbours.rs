//! Symmetric patterns whose variables are ordered.

use crate::formats::Csr;
use crate::numbers::Real;

/// Neighbours of each variable in a symmetric pattern. A variable may be listed among its own neighbours, and
/// a neighbour twice.
pub(crate) trait Neighbours {
    fn of(&self, variable: u32) -> impl Iterator<Item = u32>;
}

/// The pattern of a matrix and of its transpose.
pub(crate) struct Both<'a, T: Real> {
    matrix: &'a Csr<T>,
    /// `None` if the pattern is symmetric.
    transposed: Option<&'a Csr<T>>,
}

impl<'a, T: Real> Both<'a, T> {
    pub(crate) fn new([matrix, transposed]: [&'a Csr<T>; 2]) -> Both<'a, T> {
        Both { matrix, transposed: Some(transposed).filter(|_| !is_symmetric([matrix, transposed])) }
    }
}

/// Returns whether a matrix has the pattern of its transpose.
pub(crate) fn is_symmetric<T: Real>([matrix, transposed]: [&Csr<T>; 2]) -> bool {
    let lengths = || matrix.row_lengths().eq(transposed.row_lengths());
    std::ptr::eq(matrix, transposed) || matrix.columns() == transposed.columns() && lengths()
}

impl<T: Real> Neighbours for Both<'_, T> {
    fn of(&self, variable: u32) -> impl Iterator<Item = u32> {
        let above = self.transposed.map_or(&[][..], |transposed| transposed.row_columns(variable as usize));
        self.matrix.row_columns(variable as usize).iter().chain(above).copied()
    }
}
