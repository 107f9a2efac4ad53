//! SPAI, the sparse approximate inverse of any matrix (Grote and Huckle 1997).
//!
//! Among all matrices on a pattern, `M` minimizes `‖A M − I‖_F` (or `‖M A − I‖_F`). Columns are independent
//! of each other:
//!
//! ```text
//! min ‖A[I, J] m − e_k‖       J: the pattern of column k, I: the rows in which A[:, J] has entries
//! ```
//!
//! solved by Householder reflections in double precision. The adaptive pattern follows the residual
//! `r = A m − e_k`: while `‖r‖ > ε`, those columns `j` are added that would, each alone, reduce `‖r‖²` most:
//! by `(rᵀ A e_j)² / ‖A e_j‖²`. The factorization is extended by them.
//!
//! Departures:
//! 1. a step adds the best candidate columns, without comparing them with the mean of all candidates;
//! 2. the final pattern is solved again as if it had been given, so that a refresh with the same values gives
//!    the same result.
//!
//! Cost: computing a column of `n` entries that involves `m` rows takes `n² (m − n/3)` multiplications; an
//! application is one product with `M`.

#[cfg(feature = "cuda")]
mod on_cuda;

#[cfg(feature = "cuda")]
pub use on_cuda::OnGpu;

use super::local::{Growing, System};
use super::rows::{find_rows, solve_rows};
use super::sparsity::{Growth, Sparsity};
use super::{MatrixSource, Refresh, check_space, check_square, finite};
use crate::error::{Error, Result};
use crate::formats::derived::Derivation;
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, Format, Source};
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_solvers::{Element, LinearOperator, Wrapper};
use std::sync::Arc;

const NAME: &str = "SPAI";

/// The residual of a zero column, up to rounding.
const NOTHING: f64 = 1.0 - 1e-12;

/// The side of `A` on which its approximate inverse is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `M A ≈ I`, computed row by row.
    Left,
    /// `A M ≈ I`, computed column by column: for right-preconditioned methods.
    Right,
}

/// Quality of an approximate inverse in double precision, before its entries were rounded to their type.
#[derive(Clone, Debug, PartialEq)]
pub struct SpaiReport {
    /// `‖A M − I‖_F`, or `‖M A − I‖_F`.
    pub frobenius: f64,
    /// The largest residual norm of a column (of a row for [`Side::Left`]).
    pub largest: f64,
    /// The columns (rows) that did not reach [`Growth::epsilon`], or, for a given pattern, whose residual is
    /// not less than 1, that of a zero column.
    pub missed: Vec<usize>,
}

saved!(impl[] SpaiReport { frobenius, largest, missed });

/// A sparse approximate inverse.
///
/// ```
/// use krysp::{BiCgStab, Growth, Side, Spai, Sparsity, gallery};
///
/// let a = gallery::poisson::<f64>(&[8; 3])?;
/// let fixed = Spai::new(&a)?;
/// println!("‖A M − I‖ = {:.1}", fixed.report().frobenius);
/// let solution = BiCgStab::new(&a).preconditioner(fixed).solve(&vec![1.0; a.rows()])?;
/// assert!(solution.report.converged());
///
/// let growth = Growth { epsilon: 0.3, ..Spai::<f64>::GROWTH };
/// let grown = Spai::adaptive(&a, Side::Right, Sparsity::Power(0), growth)?;
/// assert!(grown.report().missed.is_empty() && grown.report().largest <= 0.3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spai<T: Real> {
    matrix: Csr<T>,
    /// Transposes needed for [`Side::Right`].
    right: Option<Right<T>>,
    report: SpaiReport,
    /// Largest residual norm of a column that meets the tolerance.
    epsilon: f64,
}

saved!(impl[T: Real] Spai<T> { matrix, right, report, epsilon });

/// Transposes, for an inverse that is computed by columns.
#[derive(Clone, Debug)]
struct Right<T: Real> {
    /// `Aᵀ`, and the map from the values of `A` to its values.
    columns: (Csr<T>, Derivation),
    /// `Mᵀ`, and the map from its values to those of `M`.
    inverse: (Csr<T>, Derivation),
}

saved!(impl[T: Real] Right<T> { columns, inverse });

impl<T: Real> Spai<T> {
    /// Default limits of [`Spai::adaptive`]. A column's residual is `‖A m − e_k‖`.
    pub const GROWTH: Growth = Growth { epsilon: 0.4, max_steps: 10, step_entries: 5, max_fill: 50 };

    /// Computes a right inverse on the matrix's own pattern. It applies to vectors of `csr.domain()`.
    pub fn new(csr: &Csr<T>) -> Result<Spai<T>> {
        Spai::with_pattern(csr, Side::Right, Sparsity::Power(1))
    }

    /// Computes an inverse on a given pattern. `Sparsity::Power(0)` gives SPAI-0, the diagonal `aᵢᵢ / ‖aᵢ‖²`,
    /// where `aᵢ` is column `i` of `A` (row `i` for [`Side::Left`]).
    pub fn with_pattern(csr: &Csr<T>, side: Side, sparsity: Sparsity<'_, T>) -> Result<Spai<T>> {
        Spai::build(csr, side, sparsity, None)
    }

    /// Computes an inverse on a pattern that grows column by column (row by row for [`Side::Left`]) from a
    /// given one, usually the diagonal.
    pub fn adaptive(csr: &Csr<T>, side: Side, start: Sparsity<'_, T>, growth: Growth) -> Result<Spai<T>> {
        growth.check()?;
        Spai::build(csr, side, start, Some(growth))
    }

    fn build(csr: &Csr<T>, side: Side, sparsity: Sparsity<'_, T>, growth: Option<Growth>) -> Result<Spai<T>> {
        check_square(NAME, csr)?;
        csr.check_finite()?;
        let given = sparsity.whole(csr)?;
        let transposed = Derivation::transposed(csr)?;
        let on = |pattern: Arc<Pattern>| {
            let (space, values) = (csr.source().domain(), Buffer::zeros(pattern.entries()));
            Csr::from_source(Source::new(pattern, space.clone(), space.clone()), values)
        };
        // everything below computes rows: for the right side the rows of `Mᵀ`, from the columns of `A`
        let (columns, equations, start) = match side {
            Side::Left => (csr, &transposed.0, given),
            Side::Right => {
                let (start, _) = Derivation::transposed(&on(given))?;
                (&transposed.0, csr, start.source().pattern.clone())
            }
        };
        let pattern = match growth {
            None => start,
            Some(growth) => Arc::new(grown(columns, equations, &start, growth)?),
        };
        let mut inverse = on(pattern);
        let residuals = solve(columns, &mut inverse)?;
        let epsilon = growth.map_or(NOTHING, |growth| growth.epsilon);
        let report = SpaiReport::of(&residuals, epsilon);
        let (matrix, right) = match side {
            Side::Left => (inverse, None),
            Side::Right => {
                let (matrix, follows) = Derivation::transposed(&inverse)?;
                (matrix, Some(Right { columns: transposed, inverse: (inverse, follows) }))
            }
        };
        Ok(Spai { matrix, right, report, epsilon })
    }

    /// `M`, for use in other formats and on other devices.
    pub fn matrix(&self) -> &Csr<T> {
        &self.matrix
    }

    /// Quality of the inverse.
    pub fn report(&self) -> &SpaiReport {
        &self.report
    }
}

/// The pattern of `M` is kept; [`Spai::report`] is updated.
impl<T: Real> Refresh<T> for Spai<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.domain())?;
        let csr = &*finite(a)?;
        let residuals = match &mut self.right {
            None => solve(csr, &mut self.matrix)?,
            Some(Right { columns: (columns, follow_a), inverse: (inverse, followed) }) => {
                follow_a.refresh(csr, columns)?;
                let residuals = solve(columns, inverse)?;
                followed.refresh(inverse, &mut self.matrix)?;
                residuals
            }
        };
        self.report = SpaiReport::of(&residuals, self.epsilon);
        Ok(())
    }
}

impl SpaiReport {
    pub(crate) fn of(residuals: &[f64], epsilon: f64) -> SpaiReport {
        let missed = |(_, residual): &(usize, &f64)| **residual > epsilon;
        SpaiReport {
            frobenius: residuals.iter().map(|r| r * r).sum::<f64>().sqrt(),
            largest: residuals.iter().copied().fold(0.0, f64::max),
            missed: residuals.iter().enumerate().filter(missed).map(|(k, _)| k).collect(),
        }
    }
}

/// Computes every row of the inverse on its pattern, and its residual, from the columns of the matrix, stored
/// as rows.
fn solve<T: Real>(columns: &Csr<T>, inverse: &mut Csr<T>) -> Result<Vec<f64>> {
    let source = inverse.source().clone();
    let scratch = || System::new(columns.rows());
    solve_rows(&source.pattern, inverse.values_mut(), &scratch, &|k, system: &mut System, values| {
        system.start(k as u32);
        for &unknown in source.pattern.row(k) {
            if !system.push(columns, unknown) {
                return Err(Error::SingularLocal { what: NAME, at: k, unknown: unknown as usize });
            }
        }
        let (m, residual) = system.solve();
        values.iter_mut().zip(m).for_each(|(to, &m)| *to = T::from_f64(m));
        Ok(residual)
    })
}

/// Computes rows of `Mᵀ` on a pattern, from the columns of the matrix, stored as rows.
pub(crate) fn on_pattern<T: Real>(columns: &Csr<T>, pattern: Pattern) -> Result<Csr<T>> {
    let values = Buffer::zeros(pattern.entries());
    let space = columns.source().domain().clone();
    let mut inverse = Csr::from_source(Source::new(Arc::new(pattern), space.clone(), space), values);
    solve(columns, &mut inverse)?;
    Ok(inverse)
}

/// The error for row `k` of the inverse if the GPU has found the columns of its local system linearly
/// dependent; `unknowns` is the pattern of the row.
#[cfg(feature = "cuda")]
fn refusal<T: Real>(columns: &Csr<T>, unknowns: &[u32], k: usize) -> Error {
    let mut system = System::new(columns.rows());
    system.start(k as u32);
    let refused = unknowns.iter().find(|&&unknown| !system.push(columns, unknown));
    // with other rounding, the host may find all columns linearly independent
    let unknown = refused.or(unknowns.last()).map_or(k, |&unknown| unknown as usize);
    Error::SingularLocal { what: NAME, at: k, unknown }
}

/// Computes an adaptive pattern, beginning with `start`; `equations` are the rows of the matrix and `columns`
/// its columns, stored as rows.
fn grown<T: Real>(columns: &Csr<T>, equations: &Csr<T>, start: &Pattern, growth: Growth) -> Result<Pattern> {
    let n = columns.rows();
    let norm_squared =
        |j: usize| columns.row_values(j).iter().map(|&v| Element::to_f64(v).powi(2)).sum::<f64>();
    let norms_squared = map_rows(n, 16, &norm_squared);
    find_rows(n, n, &|| Growing::new(n), &|k, growing: &mut Growing, members| {
        let (k, start) = (k as u32, start.row(k));
        members.extend_from_slice(growing.grow(columns, equations, &norms_squared, (k, start), growth));
        Ok(())
    })
}

impl<T: Real> Wrapper for Spai<T> {
    type Inner = Csr<T>;

    fn inner(&self) -> &Csr<T> {
        &self.matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::matrices;

    /// A one-dimensional convection-diffusion matrix on a nonuniform mesh: unsymmetric, with rows of
    /// different values.
    fn convection(n: usize) -> Csr<f64> {
        let mut entries = vec![];
        for i in 0..n {
            let width = 1.0 + (i % 5) as f64 / 3.0;
            entries.push((i, i, 2.0 / width + 0.3));
            for (j, value) in [(i + 1, -1.0 / width), (i.wrapping_sub(1), -1.0 / width - 0.3), (i + 7, 0.2)] {
                if j < n {
                    entries.push((i, j, value));
                }
            }
        }
        Csr::from_triplets(n, n, &entries).unwrap()
    }

    /// `A M − I`, or `M A − I`, as dense columns (rows for the left side).
    fn residuals(a: &Csr<f64>, m: &Csr<f64>, side: Side) -> Vec<Vec<f64>> {
        let (n, mut dense) = (a.rows(), vec![vec![0.0; a.rows()]; a.rows()]);
        let (first, second) = if side == Side::Right { (a, m) } else { (m, a) };
        for (i, k, v) in first.triplets() {
            for (&j, w) in second.row_columns(k).iter().zip(second.row_values(k)) {
                let (outer, inner) = if side == Side::Right { (j as usize, i) } else { (i, j as usize) };
                dense[outer][inner] += v * w;
            }
        }
        (0..n).for_each(|i| dense[i][i] -= 1.0);
        dense
    }

    fn norm(x: &[f64]) -> f64 {
        x.iter().map(|x| x * x).sum::<f64>().sqrt()
    }

    /// `(A e_j)ᵀ (A m_k − e_k) = 0` for every entry `j` of every column `k`, and the report has the same
    /// norms.
    fn check(a: &Csr<f64>, spai: &Spai<f64>, side: Side) {
        let residuals = residuals(a, spai.matrix(), side);
        let norms: Vec<f64> = residuals.iter().map(|r| norm(r)).collect();
        approx::assert_relative_eq!(spai.report().frobenius, norm(&norms), max_relative = 1e-12);
        approx::assert_relative_eq!(
            spai.report().largest,
            norms.iter().copied().fold(0.0, f64::max),
            max_relative = 1e-12
        );
        for (row, column, _) in spai.matrix().triplets() {
            let (k, j) = if side == Side::Right { (column, row) } else { (row, column) };
            let entry = |i: usize| if side == Side::Right { a.get(i, j) } else { a.get(j, i) };
            let normal: f64 = (0..a.rows()).map(|i| entry(i).unwrap_or_default() * residuals[k][i]).sum();
            assert!(normal.abs() < 1e-13, "({row}, {column}): {normal:e}");
        }
    }

    #[test]
    fn normal_equations_hold_to_rounding() {
        let a = convection(40);
        for side in [Side::Left, Side::Right] {
            for sparsity in [Sparsity::Power(0), Sparsity::Power(1), Sparsity::Power(3), Sparsity::Of(&a)] {
                check(&a, &Spai::with_pattern(&a, side, sparsity).unwrap(), side);
            }
            let grown = Spai::adaptive(&a, side, Sparsity::Power(0), Spai::<f64>::GROWTH).unwrap();
            check(&a, &grown, side);
            assert!(grown.report().largest <= 0.4 && grown.report().missed.is_empty());
        }
    }

    #[test]
    fn on_the_diagonal_it_is_known() {
        let a = convection(23);
        for side in [Side::Left, Side::Right] {
            let spai = Spai::with_pattern(&a, side, Sparsity::Power(0)).unwrap();
            for i in 0..a.rows() {
                let line = a.triplets().filter(|&(r, c, _)| i == if side == Side::Left { r } else { c });
                let squares: f64 = line.map(|(_, _, v)| v * v).sum();
                let expected = a.get(i, i).unwrap() / squares;
                approx::assert_relative_eq!(spai.matrix().get(i, i).unwrap(), expected, max_relative = 1e-14);
            }
        }
    }

    #[test]
    fn a_full_pattern_gives_the_inverse() {
        let a = convection(12);
        for side in [Side::Left, Side::Right] {
            assert!(Spai::with_pattern(&a, side, Sparsity::Power(12)).unwrap().report().frobenius < 1e-13);
        }
    }

    #[test]
    fn columns_that_fall_short_are_named() {
        let a = convection(60);
        let tight = Growth { epsilon: 0.05, max_steps: 2, step_entries: 2, max_fill: 4 };
        let spai = Spai::adaptive(&a, Side::Right, Sparsity::Power(0), tight).unwrap();
        check(&a, &spai, Side::Right);
        let norms: Vec<f64> = residuals(&a, spai.matrix(), Side::Right).iter().map(|r| norm(r)).collect();
        let missed: Vec<usize> = (0..60).filter(|&k| norms[k] > 0.05).collect();
        assert!(!missed.is_empty());
        assert_eq!(spai.report().missed, missed);
        let mut fill = [0; 60];
        spai.matrix().columns().iter().for_each(|&k| fill[k as usize] += 1);
        assert_eq!(fill.iter().max(), Some(&4));
        // columns that the pattern cannot reach are zero, and are reported
        let shift = Csr::from_triplets(2, 2, &[(0, 1, 1.0), (1, 0, 1.0)]).unwrap();
        let spai = Spai::with_pattern(&shift, Side::Right, Sparsity::Power(0)).unwrap();
        assert_eq!(spai.report().missed, [0, 1]);
        approx::assert_relative_eq!(spai.report().largest, 1.0);
    }

    #[test]
    fn new_values_are_those_of_a_new_one() {
        let a = convection(50);
        let b = a.with_values(&a.entries().iter().map(|v| v * v + 0.1).collect::<Vec<_>>()).unwrap();
        for side in [Side::Left, Side::Right] {
            let mut spai = Spai::with_pattern(&a, side, Sparsity::Power(1)).unwrap();
            spai.refresh(&b).unwrap();
            check(&b, &spai, side);
            let rebuilt = Spai::with_pattern(&b, side, Sparsity::Power(1)).unwrap();
            assert_eq!(spai.matrix().entries(), rebuilt.matrix().entries());
            assert_eq!(spai.report(), rebuilt.report());
        }
        let mut grown = Spai::adaptive(&a, Side::Right, Sparsity::Power(0), Spai::<f64>::GROWTH).unwrap();
        let first = grown.matrix().entries().to_vec();
        grown.refresh(&a).unwrap();
        assert_eq!(grown.matrix().entries(), first);
        assert!(grown.refresh(&matrices::stencil7(4).csr().unwrap()).is_err());
    }

    #[test]
    fn singular_systems_are_named() {
        let a = Csr::from_triplets(3, 3, &[(0, 0, 1.0), (2, 2, 1.0)]).unwrap();
        let singular = Spai::new(&a);
        assert!(matches!(singular, Err(Error::SingularLocal { at: 1, unknown: 1, .. })));
        // with an adaptive pattern, it is reported as a column that misses the tolerance
        let grown = Spai::adaptive(&a, Side::Right, Sparsity::Power(0), Spai::<f64>::GROWTH).unwrap();
        assert_eq!(grown.report().missed, [1]);
        let wide = Spai::new(&Csr::<f64>::from_triplets::<u32>(1, 2, &[]).unwrap());
        assert!(matches!(wide, Err(Error::NotSquare { .. })));
    }
}
