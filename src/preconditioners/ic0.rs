//! IC(0): an incomplete Cholesky factorization on the pattern of the matrix (Meijerink and van der Vorst
//! 1977).
//!
//! `A ≈ L Lᵀ`, exact where `A` has entries: fewer iterations than an approximate inverse of the same size, at
//! the cost of two triangular solves in every application. Solves are scheduled by levels: sets of rows that
//! do not depend on each other, and are computed in SIMD lanes and on all threads. The number of levels
//! depends on the order of the rows; the matrix's own order is kept, because it determines the quality of the
//! factors.
//!
//! **Measured** on two threads of an EPYC with AVX-512: an application took 4.7 ms on `heat_sink_p1_340k`,
//! 798 levels, and 3.4 ms as `SinglePrecision::new(Ic0::new(&a.cast::<f32>())?)`; on the 7-point Laplacian on 128³
//! nodes, 382 levels, 9.4 and 6.0 ms. Matrix-vector products with these two matrices take 2.1 and 3.6 ms. A
//! solve with `heat_sink_p1_340k` took 485 iterations, and 1,373 with [`Jacobi`](super::Jacobi). Whole solves
//! are compared by `cargo bench --bench incomplete`. Levels of less than a hundred rows have too little work
//! to share among threads.
//!
//! There are no triangular solves on a GPU, because their dependencies would leave most of it idle.
//! [`Isai`](super::Isai) of this factorization runs there.
//!
//! A pivot that is not positive is an error that names its row. [`Ic0::shifted`] factorizes `A + α diag A`
//! instead (Manteuffel 1980), with the first `α` of 0, 0.001, 0.002, 0.004, … for which all pivots are
//! positive; [`Ic0::shift`] returns it.
//!
//! Cost: an application reads `L` and `Lᵀ` once, padded to slices, reads or writes 8 vectors, and
//! synchronizes all threads at most twice per level.

use super::solves::{Scheduled, Solves, applied_by_solves};
use super::{MatrixSource, Refresh, check_space, finite};
use crate::error::{Error, Result};
use crate::formats::derived::Derivation;
use crate::formats::{Csr, Format};
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::cpu::preconditioners::Refused;
use krysp_kernels::cpu::preconditioners::triangular::incomplete_cholesky;
use krysp_solvers::{Element, LinearOperator};

const NAME: &str = "IC(0)";

/// The first nonzero shift; further ones are twice the preceding one. The value of Lin and Moré (1999), who double
/// it, too.
const FIRST_SHIFT: f64 = 1e-3;

/// Largest shift: with a larger one, the factorization would approximate little but the diagonal. Guess.
const LAST_SHIFT: f64 = 1.1;

/// An incomplete Cholesky factorization in host memory. It cannot be copied to a GPU; [`Isai`](super::Isai)
/// of it can.
///
/// ```
/// use krysp::{Cg, Ic0, gallery};
///
/// let a = gallery::poisson::<f64>(&[8; 3])?;
/// let b = vec![1.0; a.rows()];
/// let plain = Cg::new(&a).solve(&b)?;
/// let preconditioned = Cg::new(&a).preconditioner(Ic0::new(&a)?).solve(&b)?;
/// assert!(preconditioned.report.iterations < plain.report.iterations);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "incomplete cholesky")]
#[derive(Debug)]
pub struct Ic0<T: Real> {
    /// `L`, and `Lᵀ` as the upper triangle.
    solves: Solves<T>,
    from_a: Derivation,
    transposition: Derivation,
    shift: f64,
    largest_shift: f64,
}

saved!(impl[T: Real] Ic0<T> { solves, from_a, transposition, shift, largest_shift });

impl<T: Real> Ic0<T> {
    /// Factorizes a symmetric positive definite matrix, of which only the lower triangle is read. The
    /// factorization applies to vectors of `csr.domain()`.
    pub fn new(csr: &Csr<T>) -> Result<Ic0<T>> {
        Ic0::build(csr, Scheduled::new(NAME, csr)?, 0.0)
    }

    /// Like [`Ic0::new`], but if a pivot is not positive, increases the diagonal until all are. See
    /// [`Ic0::shift`].
    pub fn shifted(csr: &Csr<T>) -> Result<Ic0<T>> {
        Ic0::build(csr, Scheduled::new(NAME, csr)?, LAST_SHIFT)
    }

    fn build(csr: &Csr<T>, scheduled: Scheduled<T>, largest_shift: f64) -> Result<Ic0<T>> {
        let Scheduled { levels, permutation, csr: scheduled, from } = scheduled;
        let (lower, part) = Derivation::part(&scheduled, |row, column| column <= row)?;
        let from_a = from.then(&part);
        let (upper, transposition) = Derivation::transposed(&lower)?;
        let solves = Solves::new(csr.source().domain(), (levels, permutation), (lower, upper));
        let mut ic0 = Ic0 { solves, from_a, transposition, shift: 0.0, largest_shift };
        ic0.refresh(csr)?;
        Ok(ic0)
    }

    /// Factorizes with the current shift. The inner error has the row, in the order of elimination, and the
    /// value of a pivot that is not positive.
    fn factorize(&mut self, csr: &Csr<T>) -> Result<std::result::Result<(), (usize, T)>> {
        let Solves { lower, levels, .. } = &mut self.solves;
        self.from_a.refresh(csr, lower)?;
        let pattern = lower.source().pattern.clone();
        let values = lower.values_mut();
        if self.shift > 0.0 {
            let factor = T::from_f64(1.0 + self.shift);
            let ends = (0..pattern.rows()).map(|row| pattern.offsets.range(row)).filter(|r| !r.is_empty());
            ends.for_each(|range| values[range.end - 1] *= factor);
        }
        match incomplete_cholesky(levels, (&*pattern.offsets).into(), (&*pattern.columns).into(), values) {
            Ok(()) => Ok(Ok(())),
            Err(Refused::Pivot { at, value }) => Ok(Err((at, value))),
            Err(Refused::Interrupted(interrupted)) => Err(interrupted.into()),
        }
    }

    /// The relative shift `α` of the diagonal; zero if none was needed.
    pub fn shift(&self) -> f64 {
        self.shift
    }

    /// `L`, with rows and columns in the order of the matrix.
    pub fn lower(&self) -> Result<Csr<T>> {
        self.solves.in_space(&self.solves.lower)
    }
}

/// Recomputes the factor for new values of a matrix of the same pattern. Levels are kept; the shift is
/// determined again.
impl<T: Real> Refresh<T> for Ic0<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.domain())?;
        let csr = &*finite(a)?;
        self.shift = 0.0;
        while let Err((place, pivot)) = self.factorize(csr)? {
            self.shift = (2.0 * self.shift).max(FIRST_SHIFT);
            if self.shift > self.largest_shift {
                let row = self.solves.row(place);
                return Err(Error::NotPositive { what: NAME, row, pivot: Element::to_f64(pivot) });
            }
        }
        let Solves { lower, upper, .. } = &mut self.solves;
        self.transposition.refresh(lower, upper)?;
        self.solves.fill();
        Ok(())
    }
}

applied_by_solves!(Ic0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostVector;
    use crate::permutation::Permutation;
    use crate::preconditioners::Jacobi;
    use crate::testing::matrices;
    use krysp_kernels::cpu::simd::{Level, force};
    use krysp_solvers::Cg;

    /// `L Lᵀ` is `A` where `A` has entries.
    fn check(a: &Csr<f64>, ic0: &Ic0<f64>) {
        let lower = ic0.lower().unwrap();
        assert_eq!(lower.nnz(), (a.nnz() + a.rows()) / 2);
        for (row, column, value) in a.triplets().filter(|&(row, column, _)| column <= row) {
            let terms = lower.row_columns(row).iter().zip(lower.row_values(row));
            let product: f64 =
                terms.map(|(&k, l)| l * lower.get(column, k as usize).unwrap_or_default()).sum();
            let expected = if row == column { value * (1.0 + ic0.shift()) } else { value };
            let scale = a.get(row, row).unwrap() + a.get(column, column).unwrap();
            assert!((product - expected).abs() < 1e-14 * scale, "({row}, {column}): {product} {expected}");
        }
    }

    #[test]
    fn the_product_of_the_factors_is_the_matrix_on_its_pattern() {
        for a in [matrices::elasticity(4), matrices::stencil7(9), matrices::stencil27(6)] {
            let a = a.csr::<f64>().unwrap();
            check(&a, &Ic0::new(&a).unwrap());
            let rcm = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
            check(&rcm, &Ic0::new(&rcm).unwrap());
        }
    }

    /// A tridiagonal matrix has no fill, so its factorization is exact.
    #[test]
    fn a_tridiagonal_system_takes_one_iteration() {
        let a = matrices::edge::tridiagonal(2000).csr::<f64>().unwrap();
        let ic0 = Ic0::new(&a).unwrap();
        assert_eq!(ic0.levels(), 2000);
        let b: Vec<f64> = (0..2000).map(|i| (i % 9) as f64).collect();
        let report = Cg::new(&a).preconditioner(ic0).rtol(1e-10).solve(&b).unwrap().report;
        assert_eq!(report.iterations, 1);
    }

    /// Levels of some hundred rows, which threads share in tasks: results are bitwise the same for every
    /// number of threads.
    #[test]
    fn threads_change_nothing_but_time() {
        // other tests of this process change the SIMD width, and with it the rounding of sums
        let _one_level = force(Level::best());
        let a = matrices::stencil7(40).csr::<f64>().unwrap();
        let b: Vec<f64> = (0..a.rows()).map(|i| (i % 11) as f64).collect();
        let solve = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let ic0 = || Ic0::new(&a).unwrap();
            let solution = pool.install(|| Cg::new(&a).preconditioner(ic0()).solve(&b).unwrap());
            (solution.x, solution.report.iterations)
        };
        let one = solve(1);
        assert!(one == solve(2) && one == solve(3) && one == solve(5));
        let jacobi = Cg::new(&a).preconditioner(Jacobi::new(&a).unwrap()).solve(&b).unwrap();
        assert!(jacobi.report.iterations > 2 * one.1, "{} {}", jacobi.report.iterations, one.1);
    }

    #[test]
    fn new_values_are_those_of_a_new_one() {
        let a = matrices::stencil27(7).csr::<f64>().unwrap();
        let values: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j { v + i as f64 } else { v }).collect();
        let b = a.with_values(&values).unwrap();
        let mut ic0 = Ic0::new(&a).unwrap();
        ic0.refresh(&b).unwrap();
        check(&b, &ic0);
        let rebuilt = Ic0::new(&b).unwrap();
        assert_eq!(ic0.lower().unwrap().entries(), rebuilt.lower().unwrap().entries());
        assert_eq!(ic0.solves.upper.entries(), rebuilt.solves.upper.entries());
        let r = HostVector::from_slice(&vec![1.0; a.rows()]);
        let mut z = [r.clone(), r.clone()];
        ic0.apply(&r, &mut z[0]).unwrap();
        rebuilt.apply(&r, &mut z[1]).unwrap();
        assert_eq!(z[0].as_slice(), z[1].as_slice());
        assert!(ic0.refresh(&matrices::stencil7(7).csr().unwrap()).is_err());
    }

    /// Kershaw (1978): positive definite, and yet the last pivot of its incomplete factorization is −5.
    #[test]
    fn shifts_are_asked_for_and_reported() {
        let rows =
            [[3.0, -2.0, 0.0, 2.0], [-2.0, 3.0, -2.0, 0.0], [0.0, -2.0, 3.0, -2.0], [2.0, 0.0, -2.0, 3.0]];
        let entries: Vec<_> =
            (0..16).map(|k| (k / 4, k % 4, rows[k / 4][k % 4])).filter(|e| e.2 != 0.0).collect();
        let a = Csr::from_triplets(4, 4, &entries).unwrap();
        let Err(Error::NotPositive { row: 3, pivot, .. }) = Ic0::new(&a) else { panic!() };
        approx::assert_relative_eq!(pivot, -5.0, max_relative = 1e-12);
        let mut ic0 = Ic0::shifted(&a).unwrap();
        assert!(ic0.shift() > 0.0 && ic0.shift() < 1.0);
        check(&a, &ic0);
        let report = Cg::new(&a).preconditioner(&ic0).solve(&[1.0, 2.0, 3.0, 4.0]).unwrap().report;
        assert!(report.converged());
        // a matrix that needs no shift gets none
        let dominant: Vec<f64> = entries.iter().map(|e| if e.0 == e.1 { 9.0 } else { e.2 }).collect();
        ic0.refresh(&a.with_values(&dominant).unwrap()).unwrap();
        assert_eq!(ic0.shift(), 0.0);
        let negative = Csr::from_triplets(1, 1, &[(0, 0, -1.0)]).unwrap();
        assert!(matches!(Ic0::shifted(&negative), Err(Error::NotPositive { row: 0, .. })));
        let gap = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 0, 1.0)]).unwrap();
        assert!(matches!(Ic0::new(&gap), Err(Error::NotPositive { row: 1, pivot: 0.0, .. })));
        let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
        assert!(matches!(Ic0::new(&wide), Err(Error::NotSquare { .. })));
    }
}
