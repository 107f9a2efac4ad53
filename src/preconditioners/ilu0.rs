//! ILU(0): an incomplete LU factorization on the pattern of the matrix (Meijerink and van der Vorst 1977).
//!
//! `A ≈ L U`, exact where `A` has entries, `L` with a unit diagonal. Rows of a level are computed in
//! parallel, as in [`Ic0`](super::Ic0); there is no pivoting.
//!
//! The factorization does not run on a GPU; its approximate inverse [`Isai`](super::Isai) does.
//!
//! Cost: as that of [`Ic0`](super::Ic0): an application reads `L` and `U` once, padded to slices, reads or
//! writes 8 vectors, and synchronizes all threads at most twice per level.

use super::solves::{Scheduled, Solves, applied_by_solves};
use super::{MatrixSource, Refresh, check_space, finite};
use crate::error::{Error, Result};
use crate::formats::derived::Derivation;
use crate::formats::{Csr, Format};
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::cpu::preconditioners::Refused;
use krysp_kernels::cpu::preconditioners::triangular::incomplete_lu;
use krysp_solvers::{Element, LinearOperator};

const NAME: &str = "ILU(0)";

/// An incomplete LU factorization in host memory. It cannot be copied to a GPU; [`Isai`](super::Isai) of it
/// can.
///
/// ```
/// use krysp::{Gmres, Ilu0, gallery};
///
/// let a = gallery::poisson::<f64>(&[8; 3])?;
/// let solution = Gmres::new(&a).preconditioner(Ilu0::new(&a)?).solve(&vec![1.0; a.rows()])?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ilu0<T: Real> {
    solves: Solves<T>,
    /// Both factors on the pattern of `A`, in the order of elimination.
    factors: Csr<T>,
    from_a: Derivation,
    /// The maps from `factors` to its lower and upper triangle.
    parts: [Derivation; 2],
}

saved!(impl[T: Real] Ilu0<T> { solves, factors, from_a, parts });

impl<T: Real> Ilu0<T> {
    /// Factorizes a square matrix. The factorization applies to vectors of `csr.domain()`.
    pub fn new(csr: &Csr<T>) -> Result<Ilu0<T>> {
        Ilu0::build(csr, Scheduled::new(NAME, csr)?)
    }

    fn build(csr: &Csr<T>, scheduled: Scheduled<T>) -> Result<Ilu0<T>> {
        let Scheduled { levels, permutation, csr: factors, from: from_a } = scheduled;
        let (lower, below) = Derivation::part(&factors, |row, column| column <= row)?;
        let (upper, above) = Derivation::part(&factors, |row, column| column >= row)?;
        let solves = Solves::new(csr.source().domain(), (levels, permutation), (lower, upper));
        let mut ilu0 = Ilu0 { solves, factors, from_a, parts: [below, above] };
        ilu0.refresh(csr)?;
        Ok(ilu0)
    }

    /// `L` with its unit diagonal, with rows and columns in the order of the matrix.
    pub fn lower(&self) -> Result<Csr<T>> {
        self.solves.in_space(&self.solves.lower)
    }

    /// `U`, with rows and columns in the order of the matrix.
    pub fn upper(&self) -> Result<Csr<T>> {
        self.solves.in_space(&self.solves.upper)
    }
}

/// Recomputes the factors for new values of a matrix of the same pattern. Levels are kept.
impl<T: Real> Refresh<T> for Ilu0<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.domain())?;
        let Ilu0 { solves, factors, from_a, parts: [below, above] } = self;
        from_a.refresh(&*finite(a)?, factors)?;
        let pattern = factors.source().pattern.clone();
        let (offsets, columns) = ((&*pattern.offsets).into(), (&*pattern.columns).into());
        incomplete_lu(&solves.levels, offsets, columns, factors.values_mut()).map_err(
            |refused| match refused {
                Refused::Pivot { at, value } => {
                    Error::ZeroPivot { what: NAME, row: solves.row(at), pivot: Element::to_f64(value) }
                }
                Refused::Interrupted(interrupted) => interrupted.into(),
            },
        )?;
        below.refresh(factors, &mut solves.lower)?;
        above.refresh(factors, &mut solves.upper)?;
        let lower = solves.lower.source().pattern.clone();
        let values = solves.lower.values_mut();
        (0..lower.rows()).for_each(|row| values[lower.offsets.at(row + 1) - 1] = T::one());
        solves.fill();
        Ok(())
    }
}

applied_by_solves!(Ilu0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permutation::Permutation;
    use crate::testing::matrices;
    use krysp_solvers::BiCgStab;

    /// A convection stencil, and a few unsymmetric entries.
    fn convection(side: usize) -> Csr<f64> {
        let stencil = matrices::stencil7(side).csr::<f64>().unwrap();
        let n = stencil.rows();
        let wind = |(i, j, v): (usize, usize, f64)| {
            (i, j, if j > i { 0.4 * v } else { v } + if i == j { (i % 3) as f64 } else { 0.0 })
        };
        let mut entries: Vec<_> = stencil.triplets().map(wind).collect();
        entries.extend((0..n / 3).flat_map(|k| [(k, n - 1 - k, 0.25), (n - 1 - k, (5 * k) % n, -0.5)]));
        Csr::from_triplets(n, n, &entries).unwrap()
    }

    /// `L U` is `A` where `A` has entries.
    fn check(a: &Csr<f64>, ilu0: &Ilu0<f64>) {
        let (lower, upper) = (ilu0.lower().unwrap(), ilu0.upper().unwrap());
        assert_eq!(lower.nnz() + upper.nnz(), a.nnz() + a.rows());
        for (row, column, value) in a.triplets() {
            let terms = lower.row_columns(row).iter().zip(lower.row_values(row));
            let product: f64 =
                terms.map(|(&k, l)| l * upper.get(k as usize, column).unwrap_or_default()).sum();
            assert!((product - value).abs() < 1e-13, "({row}, {column}): {product} {value}");
        }
        assert!((0..a.rows()).all(|row| lower.get(row, row) == Some(1.0)));
    }

    #[test]
    fn the_product_of_the_factors_is_the_matrix_on_its_pattern() {
        let a = convection(8);
        check(&a, &Ilu0::new(&a).unwrap());
        let a = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
        check(&a, &Ilu0::new(&a).unwrap());
    }

    /// For a full pattern, ILU(0) is Gaussian elimination.
    #[test]
    fn a_full_pattern_is_solved() {
        let n = 30;
        let entry = |i: usize, j: usize| ((i * 7 + j * 11) % 13) as f64 + if i == j { 40.0 } else { 0.0 };
        let entries: Vec<_> = (0..n * n).map(|k| (k / n, k % n, entry(k / n, k % n))).collect();
        let a = Csr::from_triplets(n, n, &entries).unwrap();
        let b: Vec<f64> = (0..n).map(|i| 1.0 + i as f64).collect();
        let ilu0 = Ilu0::new(&a).unwrap();
        let report = BiCgStab::new(&a).preconditioner(ilu0).rtol(1e-12).solve(&b).unwrap().report;
        assert_eq!(report.iterations, 1);
    }

    #[test]
    fn new_values_are_those_of_a_new_one() {
        let a = convection(6);
        let a = Csr::from_sorted(a.cols(), a.offsets(), a.columns().to_vec(), a.entries().to_vec()).unwrap();
        let values: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j { v + i as f64 } else { v }).collect();
        let b = a.with_values(&values).unwrap();
        let mut ilu0 = Ilu0::new(&a).unwrap();
        ilu0.refresh(&b).unwrap();
        check(&b, &ilu0);
        let rebuilt = Ilu0::new(&b).unwrap();
        assert_eq!(ilu0.factors.entries(), rebuilt.factors.entries());
        assert_eq!(ilu0.solves.lower.entries(), rebuilt.solves.lower.entries());
    }

    #[test]
    fn pivots_that_vanish_are_named() {
        let a = Csr::from_triplets(3, 3, &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 1.0), (1, 1, 2.0), (2, 2, 1.0)])
            .unwrap();
        assert!(matches!(Ilu0::new(&a), Err(Error::ZeroPivot { row: 1, pivot: 0.0, .. })));
        let gap = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 0, 1.0)]).unwrap();
        assert!(matches!(Ilu0::new(&gap), Err(Error::ZeroPivot { row: 1, .. })));
        let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
        assert!(matches!(Ilu0::new(&wide), Err(Error::NotSquare { .. })));
    }
}
