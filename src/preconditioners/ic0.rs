//! IC(0): an incomplete Cholesky factorisation on the pattern of the matrix (Meijerink and van der Vorst 1977).
//!
//! `A ≈ L Lᵀ`, exact where `A` has entries: fewer iterations than an approximate inverse of the same size, for two
//! recurrences in every application. Rows of a level run in parallel; what is few levels and what is many depends on the
//! numbering, and the matrix's own is kept, for it decides how good the factors are.
//!
//! **Measured, it is slower than [`Jacobi`](super::Jacobi).** On two threads, solves took 1.3 to 2.9 times as long on all four
//! systems of the records (`benches/record/*/preconditioners.csv`), setup included: a third to two fifths of the iterations do not
//! pay for the waiting. [`TwoLevel`](super::TwoLevel) was faster than both on each. Take this one where iterations are what
//! counts, or for the factors, which [`Isai`](super::Isai) applies by products.
//!
//! [`Ic0::blocks`] keeps threads from waiting at all, at the price of what joins their blocks. It does not run on a GPU: there are
//! no triangular solves there, because rows that wait for each other leave a GPU idle. What runs there is `Isai` of this one.
//!
//! A pivot that is not positive is an error that names its row. [`Ic0::shifted`] factorises `A + α diag A` instead
//! (Manteuffel 1980), `α` the first of 0, 0.001, 0.002, 0.004, … that works, and says which it was.
//!
//! Budget: an application moves `L` and `Lᵀ` once, 8 vectors, and waits for all threads twice a level.

use super::solves::{Scheduled, Solves};
use super::{Origin, Refresh, check_space};
use crate::formats::derived::Derivation;
use crate::saved::saved;
use crate::{Csr, Error, Format, HostSpace, HostVector, Real, Result};
use krysp_kernels::cpu::preconditioners::triangular::incomplete_cholesky;
use krysp_solvers::{Element, LinearOperator, check_spaces};

const NAME: &str = "IC(0)";

/// The first shift that is tried, then doubled.
const FIRST_SHIFT: f64 = 1e-3;

/// Shifts beyond this leave little of the matrix.
const LAST_SHIFT: f64 = 1.1;

/// An incomplete Cholesky factorisation in host memory. [`Jacobi`](super::Jacobi) was faster on every recorded system. It has no
/// copy on a GPU; [`Isai`](super::Isai) of it has.
///
/// ```
/// use krysp::testing::matrices;
/// use krysp::{Cg, Ic0};
///
/// let a = matrices::stencil7(8).csr::<f64>()?;
/// let b = vec![1.0; a.rows()];
/// let plain = Cg::new(&a).solve(&b)?;
/// let preconditioned = Cg::new(&a).preconditioner(Ic0::new(&a)?).solve(&b)?;
/// assert!(preconditioned.report.iterations < plain.report.iterations);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    /// Factorises a symmetric positive definite matrix in its own space. Only its lower triangle is read.
    pub fn new(csr: &Csr<T>) -> Result<Ic0<T>> {
        Ic0::build(csr, Scheduled::by_levels(NAME, csr)?, 0.0)
    }

    /// As [`Ic0::new`]; where a pivot is not positive, the diagonal is made larger until all are. See [`Ic0::shift`].
    pub fn shifted(csr: &Csr<T>) -> Result<Ic0<T>> {
        Ic0::build(csr, Scheduled::by_levels(NAME, csr)?, LAST_SHIFT)
    }

    /// As [`Ic0::new`], of so many blocks of consecutive rows by themselves. What joins two blocks is left out: a few
    /// more iterations, and no thread waits for another. As many blocks as threads is best.
    pub fn blocks(csr: &Csr<T>, count: usize) -> Result<Ic0<T>> {
        Ic0::build(csr, Scheduled::by_blocks(NAME, csr, count)?, 0.0)
    }

    fn build(csr: &Csr<T>, scheduled: Scheduled<T>, largest_shift: f64) -> Result<Ic0<T>> {
        let Scheduled { schedule, numbering, csr: scheduled, from } = scheduled;
        let (lower, part) = Derivation::part(&scheduled, |row, column| column <= row)?;
        let from_a = from.then(&part);
        let (upper, transposition) = Derivation::transposed(&lower)?;
        let solves = Solves::new(csr.source().domain(), (schedule, numbering), (lower, upper))?;
        let mut ic0 = Ic0 { solves, from_a, transposition, shift: 0.0, largest_shift };
        ic0.refresh(csr)?;
        Ok(ic0)
    }

    /// Factorises with the shift that is set; an error within is a pivot that is not positive.
    fn factorise(&mut self, csr: &Csr<T>) -> Result<std::result::Result<(), (usize, T)>> {
        let Solves { lower, schedule, .. } = &mut self.solves;
        self.from_a.refresh(csr, lower)?;
        let pattern = lower.source().pattern.clone();
        let values = lower.values_mut();
        if self.shift > 0.0 {
            let factor = T::from_f64(1.0 + self.shift);
            let ends = (0..pattern.rows()).map(|row| pattern.offsets.range(row)).filter(|r| !r.is_empty());
            ends.for_each(|range| values[range.end - 1] *= factor);
        }
        Ok(incomplete_cholesky(schedule, (&*pattern.offsets).into(), (&*pattern.columns).into(), values))
    }

    /// `α`, by which the diagonal was made larger, as a share of itself: zero unless it had to be.
    pub fn shift(&self) -> f64 {
        self.shift
    }

    /// How many levels the rows form, each of which is waited for twice in an application; or how many blocks.
    pub fn stages(&self) -> usize {
        self.solves.schedule.count()
    }

    /// `L`, in the matrix's space.
    pub fn lower(&self) -> Result<Csr<T>> {
        self.solves.in_space(&self.solves.lower)
    }
}

/// From a matrix of the same pattern. The levels stay; a shift is looked for anew.
impl<T: Real> Refresh<T> for Ic0<T> {
    fn refresh(&mut self, a: &dyn Origin<T>) -> Result<()> {
        check_space(a, self.domain())?;
        let csr = &*a.in_host_memory()?;
        self.shift = 0.0;
        while let Err((place, pivot)) = self.factorise(csr)? {
            self.shift = (2.0 * self.shift).max(FIRST_SHIFT);
            if self.shift > self.largest_shift {
                let row = self.solves.row(place);
                return Err(Error::NotPositive { what: NAME, row, pivot: Element::to_f64(pivot) });
            }
        }
        let Solves { lower, upper, .. } = &mut self.solves;
        self.transposition.refresh(lower, upper)
    }
}

impl<T: Real> LinearOperator for Ic0<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.solves.space
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        self.solves.apply(x, y);
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.solves.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::matrices;
    use crate::{Cg, Numbering};

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
            let rcm = a.renumbered(&Numbering::rcm(&a).unwrap()).unwrap();
            check(&rcm, &Ic0::new(&rcm).unwrap());
        }
    }

    /// Blocks are factorised as matrices of their own are.
    #[test]
    fn blocks_stand_by_themselves() {
        let stencil = matrices::stencil7(10).csr::<f64>().unwrap();
        let a = stencil.renumbered(&Numbering::rcm(&stencil).unwrap()).unwrap();
        let (whole, one, many) =
            (Ic0::new(&a).unwrap(), Ic0::blocks(&a, 1).unwrap(), Ic0::blocks(&a, 4).unwrap());
        let (expected, found) = (whole.lower().unwrap(), one.lower().unwrap());
        assert_eq!((expected.columns(), expected.entries()), (found.columns(), found.entries()));
        let inside: Vec<_> = a.triplets().filter(|&(i, j, _)| i / 250 == j / 250).collect();
        let inside = Csr::from_triplets(1000, 1000, &inside).unwrap();
        check(&inside, &many);
        assert_eq!(many.stages(), 4);
        let b: Vec<f64> = (0..1000).map(|i| (i % 11) as f64).collect();
        let iterations = |ic0| Cg::new(&a).preconditioner(ic0).solve(&b).unwrap().report.iterations;
        let [whole, one, many] = [whole, one, many].map(iterations);
        assert!(whole == one && many < 2 * one, "{whole} {one} {many}");
        assert!(matches!(Ic0::blocks(&a, 0), Err(Error::Option { .. })));
    }

    /// Without fill to drop, the factorisation is exact.
    #[test]
    fn a_tridiagonal_system_takes_one_iteration() {
        let a = matrices::edge::tridiagonal(2000).csr::<f64>().unwrap();
        let ic0 = Ic0::new(&a).unwrap();
        assert_eq!(ic0.stages(), 2000);
        let b: Vec<f64> = (0..2000).map(|i| (i % 9) as f64).collect();
        let report = Cg::new(&a).preconditioner(ic0).rtol(1e-10).solve(&b).unwrap().report;
        assert_eq!(report.iterations, 1);
    }

    #[test]
    fn new_values_are_those_of_a_new_one() {
        let a = matrices::stencil27(7).csr::<f64>().unwrap();
        let values: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j { v + i as f64 } else { v }).collect();
        let b = a.with_values(&values).unwrap();
        let mut ic0 = Ic0::new(&a).unwrap();
        ic0.refresh(&b).unwrap();
        check(&b, &ic0);
        let anew = Ic0::new(&b).unwrap();
        assert_eq!(ic0.lower().unwrap().entries(), anew.lower().unwrap().entries());
        assert_eq!(ic0.solves.upper.entries(), anew.solves.upper.entries());
        assert!(ic0.refresh(&matrices::stencil7(7).csr().unwrap()).is_err());
    }

    /// Kershaw (1978): positive definite, and yet the last pivot of its incomplete factorisation is −5.
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
        // a matrix that needs none gets none
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
