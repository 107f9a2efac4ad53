//! ILUT: an incomplete LU factorization with a drop tolerance (Saad 1994), for systems on which fixed
//! patterns fail.
//!
//! `A ≈ L U`, computed row by row. Entries below the tolerance are dropped, and a row keeps at most a given
//! number of the largest others. If the diagonal is much smaller than another entry of its row of `U`, the
//! two columns are exchanged (ILUTP). Rows are eliminated in reverse Cuthill-McKee order, which reduces fill.
//!
//! A pivot below the drop tolerance, where no column exchange helps, is replaced by a number of that size,
//! and counted: the factors are an approximation anyway, and the convergence of the solver shows whether it
//! is a useful one. A row that is empty or has only zeros is an error.
//!
//! Setup is sequential, and so are the two triangular solves of an application; several vectors are solved for on
//! different threads. A solve reads `L` and `U` once, and reads or writes 6 vectors. `f32` takes two thirds of
//! the bytes: `SinglePrecision::new(Ilut::new(&a.cast::<f32>())?)`.

mod elimination;

use super::several::{Pair, alone, in_groups};
use super::solves::has_diagonal;
use super::{MatrixSource, Refresh, check_space, check_square, finite};
use crate::error::{Error, Result};
use crate::formats::{Csr, Format};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::permutation::Permutation;
use crate::saved::saved;
use elimination::{Factors, eliminate};
use krysp_kernels::cpu::preconditioners::triangular::{Triangle, solve};
use krysp_solvers::{LinearOperator, MultiVector, Space};
use std::sync::Mutex;

const NAME: &str = "ILUT";

/// Options of [`Ilut`].
#[derive(Clone, Debug)]
pub struct IlutOptions {
    /// Entries are dropped below this tolerance times the mean magnitude of their row's entries in the
    /// matrix.
    pub drop_tolerance: f64,
    /// Maximum number of additional entries of the factors, divided by the number of entries of the matrix.
    pub fill: f64,
    /// Maximum size of the factors in bytes; exceeding it is an error.
    pub max_bytes: usize,
    /// Maximum number of multiplications; exceeding it is an error. Where few entries can be dropped, they may be 20 times as many as
    /// the number of entries kept suggests.
    pub max_multiplications: f64,
}

saved!(impl[] IlutOptions { drop_tolerance, fill, max_bytes, max_multiplications });

impl Default for IlutOptions {
    fn default() -> Self {
        IlutOptions {
            drop_tolerance: 1e-3,
            fill: 5.0,
            max_bytes: usize::MAX,
            max_multiplications: f64::INFINITY,
        }
    }
}

impl IlutOptions {
    fn check(&self) -> Result<()> {
        let wrong = |what, got: f64, expected| Err(Error::Option { what, got: got.to_string(), expected });
        if !(0.0..1.0).contains(&self.drop_tolerance) {
            return wrong(
                "`drop_tolerance`",
                self.drop_tolerance,
                "at least 0, which drops nothing, and below 1",
            );
        }
        if !(0.0..).contains(&self.fill) {
            return wrong(
                "`fill`",
                self.fill,
                "at least 0, where the factors have as many entries as the matrix",
            );
        }
        if !(0.0..=f64::INFINITY).contains(&self.max_multiplications) {
            return wrong("`max_multiplications`", self.max_multiplications, "at least 0");
        }
        Ok(())
    }
}

/// An incomplete LU factorization with thresholds, in host memory, for general systems that are hard to
/// solve.
///
/// If the diagonal of the matrix is weak or has zeros, factorize the matrix that
/// [`Scaling::matched`](crate::Scaling::matched) computes from it.
///
/// ```
/// use krysp::{BiCgStab, Ilut, gallery};
///
/// let a = gallery::poisson::<f64>(&[8; 3])?;
/// let ilut = Ilut::new(&a)?;
/// let report = BiCgStab::new(&a).preconditioner(&ilut).solve(&vec![1.0; a.rows()])?.report;
/// assert!(report.converged() && report.iterations <= 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ilut<T: Real> {
    space: HostSpace<T>,
    options: IlutOptions,
    /// The row of the matrix that corresponds to each row of the factors.
    rows: Permutation,
    /// The column of the matrix that corresponds to each column of the factors.
    columns: Vec<u32>,
    lower: Csr<T>,
    upper: Csr<T>,
    replaced_pivots: usize,
    x: Mutex<Vec<T>>,
}

saved!(impl[T: Real] Ilut<T> {
    space, options, rows, columns, lower, upper, replaced_pivots; x = Mutex::default()
} where |read| {
    let Ilut { rows, columns, lower, upper, .. } = read;
    let n = read.space.len();
    let triangles = has_diagonal(Triangle::Lower, lower) && has_diagonal(Triangle::Upper, upper);
    let places = columns.len() == n && columns.iter().all(|&column| (column as usize) < n);
    triangles && places && [rows.len(), lower.rows(), upper.rows()] == [n; 3]
});

impl<T: Real> Ilut<T> {
    /// Factorizes a matrix with default options.
    pub fn new(csr: &Csr<T>) -> Result<Ilut<T>> {
        Ilut::with(csr, IlutOptions::default())
    }

    /// Factorizes a matrix.
    pub fn with(csr: &Csr<T>, options: IlutOptions) -> Result<Ilut<T>> {
        check_square(NAME, csr)?;
        options.check()?;
        csr.check_finite()?;
        let rows = Permutation::rcm(csr)?;
        let none = || Csr::from_triplets::<u32>(0, 0, &[]);
        let mut ilut = Ilut {
            space: csr.source().domain().clone(),
            options,
            rows,
            columns: vec![],
            lower: none()?,
            upper: none()?,
            replaced_pivots: 0,
            x: Mutex::new(vec![T::zero(); csr.rows()]),
        };
        ilut.factorize(csr)?;
        Ok(ilut)
    }

    fn factorize(&mut self, csr: &Csr<T>) -> Result<()> {
        let n = csr.rows();
        let Factors { lower, upper, columns, replaced_pivots } =
            eliminate(csr, self.rows.old_of_new(), &self.options)?;
        let matrix = |t: elimination::Triangle<T>| Csr::from_sorted(n, t.offsets, t.columns, t.values);
        (self.lower, self.upper) = (matrix(lower)?, matrix(upper)?);
        (self.columns, self.replaced_pivots) = (columns, replaced_pivots);
        Ok(())
    }

    /// Number of entries of both factors.
    pub fn entries(&self) -> usize {
        self.lower.nnz() + self.upper.nnz()
    }

    /// Number of pivots that were too small and were replaced. If these are more than a few, the factors are
    /// of little use.
    pub fn replaced_pivots(&self) -> usize {
        self.replaced_pivots
    }
}

/// Recomputes the factors for a matrix of the same size. The order of the rows is kept; entries are dropped
/// by their new values.
impl<T: Real> Refresh<T> for Ilut<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.domain())?;
        self.factorize(&*finite(a)?)
    }
}

impl<T: Real> Ilut<T> {
    fn solve(&self, pairs: &mut [Pair<'_, T>], x: &mut Vec<T>) {
        for (r, z) in pairs {
            let (r, z) = (r.as_slice(), z.as_mut_slice());
            x.clear();
            x.extend(self.rows.old_of_new().iter().map(|&row| r[row as usize]));
            solve(Triangle::Lower, self.lower.arrays(), x);
            solve(Triangle::Upper, self.upper.arrays(), x);
            self.columns.iter().zip(&*x).for_each(|(&column, &x)| z[column as usize] = x);
        }
    }
}

impl<T: Real> LinearOperator for Ilut<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        alone(self, &self.x, (r, z), |pairs, workspace| self.solve(pairs, workspace))
    }

    fn apply_many(
        &self,
        r: &MultiVector<HostVector<T>>,
        z: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        in_groups(self, r, z, 3 * self.domain().len(), |pairs, x| self.solve(pairs, x))
    }

    fn bytes(&self) -> usize {
        let orders = 2 * self.space.len() * size_of::<u32>();
        LinearOperator::bytes(&self.lower) + LinearOperator::bytes(&self.upper) + orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostVector;
    use crate::testing::matrices;
    use krysp_solvers::{BiCgStab, Vector};

    /// A random sparse matrix with zeros on half of the diagonal.
    fn scattered(n: usize) -> Csr<f64> {
        let value = |k: usize| ((k * 7919) % 201) as f64 / 100.0 - 1.003;
        let entries: Vec<_> = (0..n * 6)
            .map(|k| (k / 6, (k * k * 31 + k / 5) % n, value(k)))
            .chain((0..n).map(|i| (i, i, if i % 2 == 0 { 0.0 } else { 3.0 })))
            .filter(|&(i, j, _)| i != j || i % 2 == 1)
            .chain((0..n).map(|i| (i, (i + 1) % n, 4.0)))
            .collect();
        Csr::from_triplets(n, n, &entries).unwrap()
    }

    fn residual(a: &Csr<f64>, ilut: &Ilut<f64>) -> f64 {
        let b: Vec<f64> = (0..a.rows()).map(|i| 1.0 + (i % 7) as f64).collect();
        let (r, mut z) = (HostVector::from_slice(&b), HostVector::from_slice(&b));
        ilut.apply(&r, &mut z).unwrap();
        let mut az = HostVector::from_slice(&b);
        a.apply(&z, &mut az).unwrap();
        az.axpy(&-1.0, &r);
        (az.norm_squared() / r.norm_squared()).sqrt()
    }

    /// Without dropping, ILUT is Gaussian elimination with pivoting, whatever the diagonal.
    #[test]
    fn without_dropping_it_is_exact() {
        let all = IlutOptions { drop_tolerance: 0.0, fill: 1e9, ..IlutOptions::default() };
        for a in [scattered(200), matrices::stencil7(6).csr::<f64>().unwrap()] {
            let ilut = Ilut::with(&a, all.clone()).unwrap();
            assert_eq!(ilut.replaced_pivots(), 0);
            let residual = residual(&a, &ilut);
            assert!(residual < 1e-10, "{residual:e}");
        }
    }

    #[test]
    fn less_is_kept_where_more_is_dropped() {
        let a = matrices::stencil7(12).csr::<f64>().unwrap();
        let mut before = (usize::MAX, 0);
        for drop_tolerance in [1e-4, 1e-2, 0.3] {
            let options = IlutOptions { drop_tolerance, fill: 20.0, ..IlutOptions::default() };
            let ilut = Ilut::with(&a, options).unwrap();
            let solver = BiCgStab::new(&a).preconditioner(&ilut).rtol(1e-8);
            let iterations = { solver }.solve(&vec![1.0; a.rows()]).unwrap().report.iterations;
            assert!(ilut.entries() < before.0 && iterations > before.1, "{drop_tolerance}: {iterations}");
            before = (ilut.entries(), iterations);
        }
        let narrow = IlutOptions { drop_tolerance: 0.0, fill: 0.0, ..IlutOptions::default() };
        assert!(Ilut::with(&a, narrow).unwrap().entries() <= a.nnz() + a.rows());
    }

    #[test]
    fn new_values_are_those_of_a_new_one() {
        let a = scattered(150);
        let doubled: Vec<f64> = a.triplets().map(|(i, j, v)| v * (1.0 + ((i + j) % 3) as f64)).collect();
        let mut b = a.clone();
        Format::fill(&mut b, &doubled);
        let mut ilut = Ilut::new(&a).unwrap();
        ilut.refresh(&b).unwrap();
        let rebuilt = Ilut::new(&b).unwrap();
        assert_eq!(ilut.upper.entries(), rebuilt.upper.entries());
        assert_eq!(ilut.columns, rebuilt.columns);
    }

    #[test]
    fn small_pivots_are_replaced_and_counted() {
        // singular: two equal rows
        let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 1.0), (1, 1, 2.0)]).unwrap();
        assert_eq!(Ilut::new(&a).unwrap().replaced_pivots(), 1);
        let gap = Csr::from_triplets(2, 2, &[(0, 0, 1.0)]).unwrap();
        assert!(matches!(Ilut::new(&gap), Err(Error::ZeroPivot { row: 1, pivot: 0.0, .. })));
        let infinite = Csr::from_triplets(1, 1, &[(0, 0, f64::NAN)]).unwrap();
        assert!(matches!(Ilut::new(&infinite), Err(Error::NotFinite { row: 0, col: 0, .. })));
        assert!(Ilut::new(&Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap()).is_err());
    }

    #[test]
    fn what_takes_too_much_memory_is_refused() {
        let a = matrices::stencil7(8).csr::<f64>().unwrap();
        let short = IlutOptions { max_multiplications: 10.0, ..IlutOptions::default() };
        let refused = Ilut::with(&a, short).unwrap_err();
        assert!(refused.to_string().contains("raise `max_multiplications`"), "{refused}");
        let little = IlutOptions { max_bytes: 10_000, ..IlutOptions::default() };
        let error = Ilut::with(&a, little).unwrap_err().to_string();
        assert!(error.contains("10000 are allowed"), "{error}");
        for options in [
            IlutOptions { drop_tolerance: f64::NAN, ..IlutOptions::default() },
            IlutOptions { fill: -1.0, ..IlutOptions::default() },
            IlutOptions { max_multiplications: f64::NAN, ..IlutOptions::default() },
        ] {
            assert!(matches!(Ilut::with(&a, options), Err(Error::Option { .. })));
        }
    }
}
