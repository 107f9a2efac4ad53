//! Scaled systems: `R A C y = R b` with `x = C y`, with rows permuted if that helps.
//!
//! | scaling | for | factors |
//! | --- | --- | --- |
//! | [`Scaling::symmetric`] | a positive diagonal, and `Cg` | `diag(A)^(−1/2)` on both sides: the diagonal is one |
//! | [`Scaling::equilibrated`] | rows or columns of very different sizes | powers of two: the largest magnitude of each row and column becomes about one |
//! | [`Scaling::matched`] | a diagonal that is zero or weak | those of a [`Matching`]; the matched entries are permuted to the diagonal |
//!
//! Conjugate gradients on the symmetrically scaled system take the same iterations as with a Jacobi
//! preconditioner. They need neither the diagonal nor a preconditioned residual, and so move 10 vectors per
//! iteration instead of 12. The reported residual is `‖R (b − A x)‖`.
//!
//! ```
//! use krysp::{Cg, Csr, Scaling};
//!
//! let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 9.0)])?;
//! let scaling = Scaling::symmetric(&a)?;
//! let mut solution = Cg::new(scaling.matrix(&a)?).rtol(1e-12).solve(&scaling.rhs(&[5.0, 10.0])?)?;
//! scaling.unscale(&mut solution.x)?;
//! assert!((solution.x[0] - 1.0_f64).abs() < 1e-9 && (solution.x[1] - 1.0).abs() < 1e-9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod matching;

use crate::error::{Error, Result};
use crate::formats::matrix_source::check_square;
use crate::formats::{Csr, Format};
use crate::host::HostSpace;
use crate::numbers::Real;
use crate::saved::saved;
use krysp_solvers::{Element, LinearOperator, Space};
pub use matching::Matching;

/// Maximum number of equilibration sweeps. A sweep replaces the largest magnitude of each row and column by
/// about its square root, so that ten sweeps reduce 2^1000 to 2.
const SWEEPS: usize = 10;

/// The factors of a scaled system, and the order of its rows.
#[derive(Clone, Debug)]
pub struct Scaling<T: Real> {
    space: HostSpace<T>,
    /// For each row of the scaled matrix, the row of the original matrix; both in the order in which the
    /// matrix is stored. `None`: rows are not permuted.
    rows: Option<Vec<u32>>,
    /// A factor for each row of the matrix, in the order in which it is stored.
    row_factors: Vec<T>,
    /// A factor for each column.
    column_factors: Vec<T>,
}

saved!(impl[T: Real] Scaling<T> { space, rows, row_factors, column_factors } where |read| {
    let rows = read.space.len();
    let places = |places: &Vec<u32>| places.len() == rows && places.iter().all(|&at| (at as usize) < rows);
    read.rows.as_ref().is_none_or(places) && [read.row_factors.len(), read.column_factors.len()] == [rows; 2]
});

impl<T: Real> Scaling<T> {
    /// The symmetric scaling `S A S` of a matrix whose diagonal is positive, `S = diag(A)^(−1/2)`.
    pub fn symmetric(csr: &Csr<T>) -> Result<Scaling<T>> {
        check_square("symmetric scaling", csr)?;
        let factor = |(row, entry): (usize, T)| {
            let factor = entry.sqrt().recip();
            if Element::is_finite(factor) && factor > T::zero() {
                Ok(factor)
            } else {
                Err(Error::ZeroDiagonal { row, value: entry.to_f64() })
            }
        };
        let factors: Vec<T> =
            csr.diagonal_entries().into_iter().enumerate().map(factor).collect::<Result<_>>()?;
        let space = csr.domain().clone();
        Ok(Scaling { space, rows: None, row_factors: factors.clone(), column_factors: factors })
    }

    /// Brings the largest magnitude of each row and column to about one (Ruiz 2001): every sweep divides each
    /// entry by the square roots of the largest magnitudes of its row and of its column. A symmetric matrix
    /// stays symmetric. Factors are powers of two, so nothing is rounded. Rows and columns without entries
    /// keep a factor of one.
    ///
    /// ```
    /// use krysp::{Csr, Scaling};
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 1e12), (0, 1, 1.0), (1, 0, 1e6), (1, 1, 3e-6)])?;
    /// let scaled = Scaling::equilibrated(&a)?.matrix(&a)?;
    /// assert!(scaled.entries().iter().all(|value| (0.2..4.0).contains(value)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn equilibrated(csr: &Csr<T>) -> Result<Scaling<T>> {
        check_square("equilibration", csr)?;
        csr.check_finite()?;
        let n = csr.rows();
        let [mut row_logs, mut column_logs] = [vec![0.0; n], vec![0.0; n]];
        let logs: Vec<f64> = csr.entries().iter().map(|value| Element::to_f64(*value).abs().log2()).collect();
        for _ in 0..SWEEPS {
            let [mut of_rows, mut of_columns] = [vec![f64::NEG_INFINITY; n], vec![f64::NEG_INFINITY; n]];
            for row in 0..n {
                let entries = csr.row_columns(row).iter().zip(&logs[csr.pattern().offsets.range(row)]);
                for (&column, &log) in entries {
                    let log: f64 = log + (row_logs[row] + column_logs[column as usize]);
                    of_rows[row] = log.max(of_rows[row]);
                    of_columns[column as usize] = log.max(of_columns[column as usize]);
                }
            }
            let mut largest: f64 = 0.0;
            for (logs, most) in [(&mut row_logs, of_rows), (&mut column_logs, of_columns)] {
                for (log, most) in logs.iter_mut().zip(most).filter(|(_, most)| most.is_finite()) {
                    *log -= 0.5 * most;
                    largest = largest.max(most.abs());
                }
            }
            if largest < 0.5 {
                break;
            }
        }
        let factors = |logs: Vec<f64>| logs.into_iter().map(|log| representable(log.round())).collect();
        let (row_factors, column_factors) = (factors(row_logs), factors(column_logs));
        Ok(Scaling { space: csr.domain().clone(), rows: None, row_factors, column_factors })
    }

    /// Permutes the entries chosen by a matching to the diagonal, and scales the matrix so that these have
    /// magnitude one and all others at most one. Use this for a diagonal with zeros, by which
    /// [`Jacobi`](crate::Jacobi) and incomplete factorizations would divide. Symmetry is lost.
    ///
    /// ```
    /// use krysp::{BiCgStab, Csr, Jacobi, Matching, Scaling};
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 1e-9), (0, 1, 5.0), (1, 0, 2.0)])?;
    /// let scaling = Scaling::matched(&a, &Matching::of(&a)?)?;
    /// let scaled = scaling.matrix(&a)?;
    /// let mut solver = BiCgStab::new(&scaled).preconditioner(Jacobi::new(&scaled)?);
    /// let mut solution = solver.solve(&scaling.rhs(&[5.0, 4.0])?)?;
    /// scaling.unscale(&mut solution.x)?;
    /// assert!((solution.x[0] - 2.0_f64).abs() < 1e-7 && (solution.x[1] - 1.0).abs() < 1e-7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn matched(csr: &Csr<T>, matching: &Matching) -> Result<Scaling<T>> {
        check_square("scaling by a matching", csr)?;
        let (got, expected) = (matching.rows().len(), csr.rows());
        if got != expected {
            return Err(Error::Length { what: "the matching", got, expected, why: "one entry for each row" });
        }
        let factors =
            |logs: &[f64]| logs.iter().map(|&log| representable(log * std::f64::consts::LOG2_E)).collect();
        Ok(Scaling {
            space: csr.domain().clone(),
            rows: Some(matching.rows().to_vec()),
            row_factors: factors(&matching.row_logs),
            column_factors: factors(&matching.column_logs),
        })
    }

    /// Computes `R A C`, with permuted rows, for the matrix from which the scaling was computed, or another
    /// with the same `domain()` and `range()`.
    pub fn matrix(&self, csr: &Csr<T>) -> Result<Csr<T>> {
        if csr.domain() != &self.space || csr.range() != &self.space {
            return Err(krysp_solvers::Error::Space { what: "the matrix", than: "the scaling" }.into());
        }
        let mut values = Vec::with_capacity(csr.nnz());
        let mut columns = Vec::with_capacity(if self.rows.is_some() { csr.nnz() } else { 0 });
        for place in 0..csr.rows() {
            let row = self.row(place);
            let entries = csr.row_columns(row).iter().zip(csr.row_values(row));
            let factor = self.row_factors[row];
            values.extend(
                entries.map(|(&column, &value)| factor * value * self.column_factors[column as usize]),
            );
            if self.rows.is_some() {
                columns.extend_from_slice(csr.row_columns(row));
            }
        }
        if self.rows.is_none() {
            let mut matrix = csr.clone();
            matrix.fill(&values);
            return Ok(matrix);
        }
        let mut offsets = vec![0];
        let mut end = 0;
        offsets.extend((0..csr.rows()).map(|place| {
            end += csr.row_columns(self.row(place)).len();
            end
        }));
        Ok(Csr::from_sorted(csr.cols(), offsets, columns, values)?.declared_in(&self.space))
    }

    /// Scales the transpose of `A`, so that it becomes the transpose of `R A C`. Rows are not permuted.
    pub(crate) fn scale_transposed(&self, transposed: &mut Csr<T>) {
        let mut values = Vec::with_capacity(transposed.nnz());
        for (column, &factor) in self.column_factors.iter().enumerate() {
            let entries = transposed.row_columns(column).iter().zip(transposed.row_values(column));
            values.extend(entries.map(|(&row, &value)| self.row_factors[row as usize] * value * factor));
        }
        transposed.fill(&values);
    }

    /// The row of the original matrix for row `place` of the scaled matrix.
    fn row(&self, place: usize) -> usize {
        self.rows.as_ref().map_or(place, |rows| rows[place] as usize)
    }

    /// The index in the user's order for position `place` of the space.
    fn user(&self, place: usize) -> usize {
        self.space.permutation().map_or(place, |permutation| permutation.old_of_new()[place] as usize)
    }

    /// Computes `R b`, with permuted rows.
    pub fn rhs(&self, b: &[T]) -> Result<Vec<T>> {
        self.check_length(b)?;
        let mut scaled = b.to_vec();
        for place in 0..b.len() {
            let row = self.row(place);
            scaled[self.user(place)] = self.row_factors[row] * b[self.user(row)];
        }
        Ok(scaled)
    }

    /// Drops the permutation of rows, so that a symmetric pattern stays symmetric.
    pub(crate) fn keep_rows(&mut self) {
        self.rows = None;
    }

    /// Replaces the factors of row i and column i by the square root of their product, and drops the
    /// permutation of rows, so that a symmetric matrix stays symmetric.
    pub(crate) fn symmetrized(mut self) -> Scaling<T> {
        self.rows = None;
        for (row, column) in self.row_factors.iter_mut().zip(&mut self.column_factors) {
            let factor = row.sqrt() * column.sqrt();
            (*row, *column) = (factor, factor);
        }
        self
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.row_factors.len()
    }

    /// Like [`Scaling::rhs`], for a vector in the order of the space.
    pub(crate) fn rhs_in_place_order(&self, b: &[T], to: &mut Vec<T>) {
        to.clear();
        to.extend((0..b.len()).map(|place| {
            let row = self.row(place);
            self.row_factors[row] * b[row]
        }));
    }

    /// Applies the transpose of [`Scaling::rhs`] to a vector in the order of the space: the result `t`
    /// satisfies `vᵀ rhs(b) = tᵀ b` for every `b`.
    pub(crate) fn transposed_in_place_order(&self, v: &[T]) -> Vec<T> {
        let mut scaled = v.to_vec();
        for (place, &v) in v.iter().enumerate() {
            let row = self.row(place);
            scaled[row] = self.row_factors[row] * v;
        }
        scaled
    }

    /// Like [`Scaling::unscale`], for a vector in the order of the space.
    pub(crate) fn unscale_in_place_order(&self, x: &mut [T]) {
        x.iter_mut().zip(&self.column_factors).for_each(|(x, &factor)| *x *= factor);
    }

    /// Converts the solution `y` of the scaled system, in `x`, to that of the original system: `x ← C x`.
    pub fn unscale(&self, x: &mut [T]) -> Result<()> {
        self.check_length(x)?;
        self.column_factors.iter().enumerate().for_each(|(place, &factor)| x[self.user(place)] *= factor);
        Ok(())
    }

    /// Converts an initial guess of the original system to one of the scaled system: `x ← C⁻¹ x`.
    pub fn scale_guess(&self, x: &mut [T]) -> Result<()> {
        self.check_length(x)?;
        self.column_factors.iter().enumerate().for_each(|(place, &factor)| x[self.user(place)] /= factor);
        Ok(())
    }

    fn check_length(&self, vector: &[T]) -> Result<()> {
        let (got, expected) = (vector.len(), self.space.len());
        if got == expected {
            return Ok(());
        }
        Err(Error::Length { what: "the vector", got, expected, why: "one entry for each row" })
    }
}

/// `2^log`, clamped so that a product of two such factors is representable.
fn representable<T: Real>(log: f64) -> T {
    let limit = (0.5 * T::max_value().to_f64().log2()).floor();
    T::from_f64(log.clamp(-limit, limit).exp2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permutation::Permutation;
    use crate::testing::matrices;
    use krysp_solvers::BiCgStab;

    #[test]
    fn a_negative_diagonal_is_refused() {
        let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, -1.0)]).unwrap();
        assert!(matches!(Scaling::symmetric(&a), Err(Error::ZeroDiagonal { row: 1, .. })));
        let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, 4.0)]).unwrap();
        let scaling = Scaling::symmetric(&a).unwrap();
        assert!(scaling.rhs(&[1.0]).is_err());
        assert!(scaling.matrix(&Csr::from_triplets(1, 1, &[(0, 0, 1.0)]).unwrap()).is_err());
    }

    /// A matrix whose rows and columns have magnitudes that differ by up to 30 orders of magnitude.
    fn badly_scaled(n: usize) -> Csr<f64> {
        let size = |i: usize| 10f64.powi((7 * i % 31) as i32 - 15);
        let entry = |i: usize, j: usize| (i, j, (1.0 + (i + j) as f64 / n as f64) * size(i) * size(j + 3));
        let entries: Vec<_> =
            (0..n).flat_map(|i| [entry(i, i), entry(i, (i + 1) % n), entry((5 * i) % n, i)]).collect();
        Csr::from_triplets(n, n, &entries).unwrap()
    }

    #[test]
    fn equilibrated_rows_and_columns_are_of_one_size() {
        let a = badly_scaled(97);
        let scaling = Scaling::equilibrated(&a).unwrap();
        let scaled = scaling.matrix(&a).unwrap();
        let [mut rows, mut columns] = [vec![0.0f64; 97], vec![0.0f64; 97]];
        for (i, j, value) in scaled.triplets() {
            (rows[i], columns[j]) = (rows[i].max(value.abs()), columns[j].max(value.abs()));
            // powers of two: nothing was rounded
            let exact = a.get(i, j).unwrap() / value;
            assert_eq!(exact.log2(), exact.log2().round(), "({i}, {j})");
        }
        assert!(rows.iter().chain(&columns).all(|most| (0.25..=4.0).contains(most)), "{rows:?} {columns:?}");
        let size = |i: usize| 2f64.powi((11 * i % 61) as i32 - 30);
        let stencil = matrices::stencil27(5).csr::<f64>().unwrap();
        let entries: Vec<_> = stencil.triplets().map(|(i, j, v)| (i, j, v * size(i) * size(j))).collect();
        let symmetric = Csr::from_triplets(125, 125, &entries).unwrap();
        let scaling = Scaling::equilibrated(&symmetric).unwrap();
        scaling.matrix(&symmetric).unwrap().check_symmetric(0.0).unwrap();
        // nothing to scale, and values that must not be scaled
        let empty = Csr::from_triplets(3, 3, &[(0, 2, 4.0), (1, 1, 0.0)]).unwrap();
        assert_eq!(Scaling::equilibrated(&empty).unwrap().matrix(&empty).unwrap().entries(), [1.0, 0.0]);
        let infinite = Csr::from_triplets(1, 1, &[(0, 0, f64::NAN)]).unwrap();
        assert!(matches!(Scaling::equilibrated(&infinite), Err(Error::NotFinite { .. })));
    }

    /// Every scaling leads to the same solution, in any order of rows, and maps a guess there and back.
    #[test]
    fn scaled_systems_have_the_same_solution() {
        let a = badly_scaled(60);
        let backwards = Permutation::from_old_of_new((0..60).rev().collect()).unwrap();
        let exact: Vec<f64> = (0..60).map(|i| 1.0 + (i % 5) as f64).collect();
        let mut b = vec![0.0; 60];
        a.triplets().for_each(|(i, j, value)| b[i] += value * exact[j]);
        for a in [a.reordered(&backwards).unwrap(), a] {
            let matching = Matching::of(&a).unwrap();
            for scaling in [Scaling::equilibrated(&a).unwrap(), Scaling::matched(&a, &matching).unwrap()] {
                let mut guess = exact.clone();
                scaling.scale_guess(&mut guess).unwrap();
                let (scaled, b) = (scaling.matrix(&a).unwrap(), scaling.rhs(&b).unwrap());
                let report = BiCgStab::new(&scaled).rtol(1e-10).solve_from(&b, &guess).unwrap().report;
                assert_eq!(report.iterations, 0, "{report}");
                scaling.unscale(&mut guess).unwrap();
                assert!(guess.iter().zip(&exact).all(|(x, y)| (x - y).abs() <= 1e-14 * y));
            }
        }
        let other = Csr::from_triplets(1, 1, &[(0, 0, 1.0)]).unwrap();
        assert!(Scaling::matched(&other, &Matching::of(&badly_scaled(5)).unwrap()).is_err());
    }
}
