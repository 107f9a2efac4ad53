//! A diagonal preconditioner that is positive definite for every matrix.

use crate::error::Result;
use crate::formats::matrix_source::check_square;
use crate::formats::{Csr, Format, MatrixSource};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::preconditioners::Refresh;
use crate::preconditioners::refresh::check_space;
use crate::saved::saved;
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_solvers::{Diagonal, Element, LinearOperator, Space, SpaceOf, Vector, Wrapper};

/// A diagonal entry is weak if its magnitude is at most this fraction of the largest one of its row. Guess.
pub(crate) const WEAK: f64 = 1e-6;

/// A diagonal preconditioner that is positive definite for every matrix, so that [`Minres`](crate::Minres)
/// and other methods can use it for indefinite matrices. Plans use it wherever they print "Jacobi".
///
/// It divides by `d_i = |a_ii|`. Where `|a_ii|` is at most 10⁻⁶ of the largest magnitude of its row, it
/// divides by `d_i = Σ a_ij² / d_j` over the unknowns `j` whose own diagonal is not that small: the
/// diagonal of the Schur complement of a saddle point. Where that is zero too, `d_i` is the largest magnitude
/// of the row, or one for a row of zeros. For a matrix with a positive diagonal and no such small entries it
/// equals [`Jacobi`](crate::Jacobi).
///
/// ```
/// use krysp::{Csr, LinearOperator, Minres, PositiveJacobi};
///
/// // a saddle point: the last unknown has no diagonal
/// let entries = [(0, 0, 4.0), (1, 1, 2.0), (0, 2, 1.0), (2, 0, 1.0), (1, 2, 1.0), (2, 1, 1.0)];
/// let a = Csr::from_triplets(3, 3, &entries)?;
/// let m = PositiveJacobi::new(&a, a.domain())?;
/// let solution = Minres::new(&a).preconditioner(m).solve(&[1.0, 1.0, 1.0])?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "jacobi")]
#[derive(Debug)]
pub struct PositiveJacobi<T: Real, V: Vector<Elem = T>> {
    inverse: Diagonal<V>,
    host: HostSpace<T>,
}

saved!(impl[T: Real] PositiveJacobi<T, HostVector<T>> as |this| {
    inverse: HostVector<T> = this.inverse.diagonal(),
    host: HostSpace<T> = &this.host,
} => Ok(PositiveJacobi { inverse: Diagonal::new(inverse), host }));

impl<T: Real, V: Vector<Elem = T>> PositiveJacobi<T, V> {
    /// Builds the preconditioner of a matrix for a space in the same order: `a.domain()` of the matrix
    /// itself, or of an operator made from it, in host memory or on a GPU.
    pub fn new(csr: &Csr<T>, space: &SpaceOf<V>) -> Result<Self> {
        check_square("Jacobi", csr)?;
        let mut made =
            PositiveJacobi { inverse: Diagonal::new(space.zeros()?), host: csr.source().domain().clone() };
        made.refresh(csr)?;
        Ok(made)
    }
}

impl<T: Real, V: Vector<Elem = T>> Refresh<T> for PositiveJacobi<T, V> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, &self.host)?;
        let csr = a.in_host_memory()?;
        let inverse = inverse_magnitudes(&csr);
        // spaces take entries in the user's order
        let mut ordered = inverse.clone();
        if let Some(permutation) = self.host.permutation() {
            for (&old, &entry) in permutation.old_of_new().iter().zip(&inverse) {
                ordered[old as usize] = entry;
            }
        }
        let space = self.inverse.domain().clone();
        Ok(space.load(&ordered, self.inverse.diagonal_mut())?)
    }
}

fn inverse_magnitudes<T: Real>(csr: &Csr<T>) -> Vec<T> {
    let size = |value: T| Element::to_f64(value).abs();
    let largest =
        |row: usize| csr.row_values(row).iter().fold(0.0, |most: f64, &value| most.max(size(value)));
    // diagonal magnitudes, zero where weak
    let strong: Vec<f64> = map_rows(csr.rows(), 8, &|row| {
        let own = csr.get(row, row).map_or(0.0, size);
        if own > WEAK * largest(row) { own } else { 0.0 }
    });
    map_rows(csr.rows(), 8, &|row| {
        let mut magnitude = strong[row];
        if magnitude == 0.0 {
            for (&column, &value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
                let (d, value) = (strong[column as usize], size(value));
                if d > 0.0 {
                    magnitude += value * value / d;
                }
            }
        }
        let usable = |magnitude: f64| Element::is_finite(T::from_f64(1.0 / magnitude)) && magnitude > 0.0;
        if !usable(magnitude) {
            magnitude = largest(row);
        }
        T::from_f64(if usable(magnitude) { 1.0 / magnitude } else { 1.0 })
    })
}

impl<T: Real, V: Vector<Elem = T>> Wrapper for PositiveJacobi<T, V> {
    type Inner = Diagonal<V>;

    fn inner(&self) -> &Diagonal<V> {
        &self.inverse
    }
}
