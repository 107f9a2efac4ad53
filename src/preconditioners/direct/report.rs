//! Facts about a complete factorization.

use super::{Cholesky, Ldl, Lu};
use crate::numbers::Real;
use krysp_solvers::Element;
use std::any::Any;
use std::fmt;

/// Numbers of negative and of positive eigenvalues of a symmetric matrix (Sylvester's law of inertia). No
/// eigenvalue is zero, because [`Ldl`] returns an error for a matrix that is singular to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inertia {
    /// Number of negative eigenvalues.
    pub negative: usize,
    /// Number of positive eigenvalues.
    pub positive: usize,
}

/// Facts about a complete factorization: its size, its work, and what its pivots show about the matrix.
///
/// ```
/// use krysp::{Ldl, gallery};
///
/// let report = Ldl::new(&gallery::poisson::<f64>(&[20, 20])?)?.report();
/// println!("{report}");
/// assert!(report.inertia.is_some_and(|inertia| inertia.positive == 400) && report.growth == Some(1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FactorReport {
    /// Kind of factorization: `"Cholesky"`, `"LDL"` or `"LU"`.
    pub kind: &'static str,
    /// Number of rows.
    pub rows: usize,
    /// Number of entries stored in the factors, including zeros: `nnz()` of the factorization.
    pub entries: usize,
    /// Number of multiplications of the factorization, with divisions by fronts and without by columns. Twice this number approximates the
    /// floating-point operations.
    pub multiplications: f64,
    /// Memory of the factors.
    pub bytes: usize,
    /// Whether the factorization is multifrontal (by fronts, on all threads), not column by column.
    pub by_fronts: bool,
    /// Number of pivots that a front left to its parent front. A pivot that several fronts leave counts for each of them.
    pub delayed_pivots: usize,
    /// Number of unknowns without a pivot. [`Lu::new`] refuses such matrices; in a plan, `Lu` sets these unknowns to zero.
    pub missing_pivots: usize,
    /// Numbers of negative and of positive eigenvalues; `None` for `Lu`, and for a `Cholesky` whose last refresh failed.
    pub inertia: Option<Inertia>,
    /// Pivot growth: the largest magnitude of an entry of `U`, or of `D Lᵀ`, divided by that of an entry of the scaled matrix that was
    /// factorized. `None` for `Cholesky`, where nothing grows, and for a matrix of zeros. It is a factor in the bound on the
    /// backward error: of a growth of `1e6`, up to six digits may be lost, which iterative refinement usually restores.
    #[doc(alias = "stability")]
    pub growth: Option<f64>,
}

impl FactorReport {
    /// Report of a factorization behind a trait object; `None` if it is not a `Cholesky`, `Ldl` or `Lu` of numbers of type `T`. Of an
    /// [`AnyPreconditioner`](crate::plan::AnyPreconditioner) `m`, which is a box, pass `&*m`. Wrappers of a factorization give `None`.
    pub fn of<T: Real>(factors: &dyn Any) -> Option<FactorReport> {
        let cholesky = factors.downcast_ref().map(Cholesky::<T>::report);
        let ldl = || factors.downcast_ref().map(Ldl::<T>::report);
        let lu = || factors.downcast_ref().map(Lu::<T>::report);
        cholesky.or_else(ldl).or_else(lu)
    }
}

/// Pivot growth, given the largest magnitudes of the factors and of the matrix.
pub(super) fn growth<T: Real>(of_factors: T, of_matrix: T) -> Option<f64> {
    (of_matrix > T::zero()).then(|| Element::to_f64(of_factors) / Element::to_f64(of_matrix))
}

impl fmt::Display for FactorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FactorReport { kind, rows, entries, multiplications, bytes, .. } = self;
        let way = if self.by_fronts { "fronts" } else { "columns" };
        write!(f, "{kind} by {way}: {rows} rows, {entries} entries in the factors, ")?;
        write!(f, "{multiplications:.1e} multiplications, {bytes} bytes")?;
        for (count, what) in [(self.delayed_pivots, "delayed"), (self.missing_pivots, "missing")] {
            if count > 0 {
                write!(f, ", {count} {what} pivot{}", if count == 1 { "" } else { "s" })?;
            }
        }
        if let Some(Inertia { negative, positive }) = self.inertia {
            write!(f, ", {positive} positive and {negative} negative eigenvalues")?;
        }
        self.growth.map_or(Ok(()), |growth| write!(f, ", pivot growth {growth:.1e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Csr;
    use crate::preconditioners::direct::testing::neumann;
    use krysp_solvers::LinearOperator;

    #[test]
    fn reports_of_a_dense_matrix_have_the_known_numbers() {
        let entry = |i: usize, j: usize| (i, j, if i == j { 4.0 } else { 1.0 });
        let entries: Vec<_> = (0..4).flat_map(|i| (0..4).map(move |j| entry(i, j))).collect();
        let a = Csr::<f64>::from_triplets(4, 4, &entries).unwrap();
        let (cholesky, ldl, lu) = (Cholesky::new(&a).unwrap(), Ldl::new(&a).unwrap(), Lu::new(&a).unwrap());
        let inertia = Some(Inertia { negative: 0, positive: 4 });
        // half of 4² + 3² + 2² + 1²
        let expected = FactorReport {
            kind: "Cholesky",
            rows: 4,
            entries: 10,
            multiplications: 15.0,
            bytes: cholesky.bytes(),
            by_fronts: true,
            delayed_pivots: 0,
            missing_pivots: 0,
            inertia,
            growth: None,
        };
        assert_eq!(cholesky.report(), expected);
        let growth = Some(1.0);
        assert_eq!(
            ldl.report(),
            FactorReport { kind: "LDL", bytes: ldl.bytes(), growth, ..expected.clone() }
        );
        assert_eq!(FactorReport::of::<f64>(&ldl), Some(ldl.report()));
        assert_eq!(FactorReport::of::<f32>(&ldl), None);
        // 3² + 2² + 1²
        let (multiplications, bytes) = (14.0, lu.bytes());
        let of_lu =
            FactorReport { kind: "LU", entries: 16, multiplications, bytes, by_fronts: false, ..expected };
        assert_eq!(lu.report(), FactorReport { inertia: None, growth, ..of_lu });
        let text = "LDL by fronts: 4 rows, 10 entries in the factors, 1.5e1 multiplications, ";
        assert!(ldl.report().to_string().starts_with(text), "{}", ldl.report());
    }

    #[test]
    fn a_small_pivot_of_ldl_grows() {
        let a = |d: f64| Csr::from_triplets(2, 2, &[(0, 0, d), (0, 1, 1.0), (1, 0, 1.0), (1, 1, d)]).unwrap();
        // the second pivot is d - 1 / d
        let growth = Ldl::new(&a(0.02)).unwrap().report().growth.unwrap();
        assert!((growth - 49.98).abs() < 1e-12, "{growth}");
        // a 2x2 pivot
        assert_eq!(Ldl::new(&a(0.002)).unwrap().report().growth, Some(1.0));
    }

    #[test]
    fn unknowns_without_a_pivot_are_counted() {
        for sizes in [[40, 1, 1], [20, 20, 1]] {
            let report = Lu::tolerant(&neumann(sizes)).unwrap().report();
            assert!(report.missing_pivots == 1 && report.growth.is_some_and(f64::is_finite), "{report}");
        }
    }

    #[test]
    fn a_limit_of_multiplications_refuses_before_factorizing() {
        let a = crate::gallery::poisson::<f64>(&[30, 30]).unwrap();
        let work = Ldl::new(&a).unwrap().report().multiplications;
        assert!(Ldl::within(&a, work).is_ok());
        let refused = Ldl::within(&a, 0.9 * work).map(|ldl| ldl.inertia());
        assert!(matches!(refused, Err(crate::error::Error::Unsuitable { .. })), "{refused:?}");
    }
}
