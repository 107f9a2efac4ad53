//! Estimates of condition numbers from solves with factors (Hager 1984, Higham 1988).
//!
//! ```text
//! x = (1/n, ..., 1/n)
//! repeat at most five times:
//!     y = A⁻¹ x;  estimate of ‖A⁻¹‖₁: ‖y‖₁
//!     z = A⁻ᵀ sign(y): the gradient of ‖A⁻¹ x‖₁;  stop if no |zⱼ| is above zᵀ x, or signs repeat
//!     x = eⱼ, where |zⱼ| is the largest
//! compare with a vector of alternating signs
//! ```

use super::super::check_space;
use super::{Cholesky, Ldl};
use crate::error::Result;
use crate::formats::{Csr, Rows};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use krysp_solvers::{Element, LinearOperator, Space};

/// Maximum number of solves with the transpose: Higham reports two for most matrices, and never more than
/// five.
const STEPS: usize = 5;

/// `‖A‖₁`: the maximum over columns of the sum of magnitudes.
pub(super) fn norm<T: Real>(csr: &Csr<T>) -> f64 {
    let mut sums = vec![0.0; csr.cols()];
    for (&column, &value) in csr.columns().iter().zip(csr.entries()) {
        sums[column as usize] += Element::to_f64(value).abs();
    }
    sums.into_iter().fold(0.0, f64::max)
}

/// [`norm`] of the transpose of `columns`, with the same bits.
pub(super) fn norm_of_columns<T: Real>(columns: &Csr<T>) -> f64 {
    let sum = |values: &[T]| values.iter().fold(0.0, |sum, &value| sum + Element::to_f64(value).abs());
    Rows::of(columns).iter().map(|(_, values)| sum(values)).fold(0.0, f64::max)
}

/// Estimates `‖A‖₁ ‖A⁻¹‖₁` from below, up to rounding. `solve` applies `A⁻¹`, and `transposed` applies `A⁻ᵀ`.
/// The estimate is infinite if a solution overflows, and 1 for a matrix without rows.
pub(super) fn estimate<T: Real>(
    norm: f64,
    space: &HostSpace<T>,
    solve: impl Fn(&HostVector<T>, &mut HostVector<T>) -> Result<()>,
    transposed: impl Fn(&HostVector<T>, &mut HostVector<T>) -> Result<()>,
) -> Result<f64> {
    let n = space.len();
    if n == 0 {
        return Ok(1.0);
    }
    let [mut x, mut y, mut z] = [space.zeros()?, space.zeros()?, space.zeros()?];
    let mut signs: Vec<T> = vec![];
    x.as_mut_slice().fill(T::from_f64(1.0 / n as f64));
    let (mut most, mut at) = (0.0, None);
    for _ in 0..STEPS {
        solve(&x, &mut y)?;
        let sum = sum(&y);
        let new_signs: Vec<T> = y.as_slice().iter().map(|&y| T::one().copysign(y)).collect();
        if !sum.is_finite() || sum <= most || new_signs == signs {
            most = larger(most, sum);
            break;
        }
        (most, signs) = (sum, new_signs);
        y.as_mut_slice().copy_from_slice(&signs);
        transposed(&y, &mut z)?;
        let size = |j: usize| Element::to_f64(z.as_slice()[j]).abs();
        let largest = (1..n).fold(0, |best, j| if size(j) > size(best) { j } else { best });
        let along: f64 = z
            .as_slice()
            .iter()
            .zip(x.as_slice())
            .map(|(&z, &x)| Element::to_f64(z) * Element::to_f64(x))
            .sum();
        if size(largest) <= along || at == Some(largest) {
            break;
        }
        at = Some(largest);
        x.as_mut_slice().fill(T::zero());
        x.as_mut_slice()[largest] = T::one();
    }
    let sign = |j: usize| if j.is_multiple_of(2) { 1.0 } else { -1.0 };
    let alternating = |j: usize| sign(j) * (1.0 + j as f64 / (n - 1).max(1) as f64);
    x.as_mut_slice().iter_mut().enumerate().for_each(|(j, x)| *x = T::from_f64(alternating(j)));
    solve(&x, &mut y)?;
    // ‖x‖₁ = 1.5 n for n > 1
    Ok(norm * larger(most, sum(&y) / (1.5 * n as f64)))
}

/// Declares an estimate for factors of a symmetric matrix.
macro_rules! scaled_condition_estimate {
    ($($factors:ident),*) => {$(
        impl<T: Real> $factors<T> {
            /// Estimates the condition number of `D^-½ A D^-½`, where `D = |diag A|`, as `condition_estimate` does that of `A`. It
            /// does not depend on the units of the unknowns. About the inverse of the machine epsilon or more: the matrix is singular
            /// to working precision. `a` must be the matrix that was factorized.
            pub fn scaled_condition_estimate(&self, a: &Csr<T>) -> Result<f64> {
                of_scaled(a, self.domain(), |r, z| Ok(self.apply(r, z)?))
            }
        }
    )*};
}
scaled_condition_estimate!(Cholesky, Ldl);

/// Estimates the condition number of a symmetric matrix that is scaled to a diagonal of ones. `solve` applies the inverse of the
/// unscaled matrix.
fn of_scaled<T: Real>(
    a: &Csr<T>,
    space: &HostSpace<T>,
    solve: impl Fn(&HostVector<T>, &mut HostVector<T>) -> Result<()>,
) -> Result<f64> {
    let root = |entry: T| if entry.is_zero() { T::one() } else { entry.abs().sqrt() };
    let roots: Vec<T> = a.diagonal_entries().iter().map(|&entry| root(entry)).collect();
    check_space(a, space)?;
    let mut sums = vec![0.0; a.cols()];
    for ((columns, values), &root) in Rows::of(a).iter().zip(&roots) {
        for (&column, &value) in columns.iter().zip(values) {
            sums[column as usize] += Element::to_f64(value / root / roots[column as usize]).abs();
        }
    }
    let multiply = |vector: &mut HostVector<T>| {
        vector.as_mut_slice().iter_mut().zip(&roots).for_each(|(entry, &root)| *entry *= root);
    };
    let scaled = |r: &HostVector<T>, z: &mut HostVector<T>| -> Result<()> {
        let mut own = space.zeros()?;
        own.as_mut_slice().copy_from_slice(r.as_slice());
        multiply(&mut own);
        solve(&own, z)?;
        multiply(z);
        Ok(())
    };
    estimate(sums.into_iter().fold(0.0, f64::max), space, scaled, scaled)
}

/// `‖v‖₁`, in double precision.
fn sum<T: Real>(v: &HostVector<T>) -> f64 {
    v.as_slice().iter().map(|&v| Element::to_f64(v).abs()).sum()
}

/// The larger of two norms, infinite if one is not a number.
fn larger(one: f64, other: f64) -> f64 {
    if one.is_nan() || other.is_nan() { f64::INFINITY } else { one.max(other) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, random};
    use crate::formats::Csr;
    use crate::preconditioners::{Cholesky, Ldl, Lu, Refresh};

    /// `‖A‖₁ ‖A⁻¹‖₁` from the inverse, by Gauss-Jordan elimination with full pivoting; `None` if a pivot is nearly zero.
    fn exact(a: &Csr<f64>) -> Option<f64> {
        let n = a.rows();
        let mut dense = vec![vec![0.0; 2 * n]; n];
        a.triplets().for_each(|(i, j, value)| dense[i][j] = value);
        (0..n).for_each(|i| dense[i][n + i] = 1.0);
        let norm = |from: usize, dense: &[Vec<f64>]| {
            let column = |j: usize| dense.iter().map(|row| row[from + j].abs()).sum::<f64>();
            (0..n).map(column).fold(0.0, f64::max)
        };
        let of_matrix = norm(0, &dense);
        let (mut free, mut columns): (Vec<usize>, Vec<usize>) = ((0..n).collect(), (0..n).collect());
        while !columns.is_empty() {
            let places = free.iter().flat_map(|&i| columns.iter().map(move |&j| (i, j)));
            let size = |&(i, j): &(usize, usize)| dense[i][j].abs();
            let (i, j) = places.max_by(|one, other| size(one).total_cmp(&size(other)))?;
            if size(&(i, j)) < 1e-7 * of_matrix {
                return None;
            }
            let pivot = dense[i][j];
            dense[i].iter_mut().for_each(|value| *value /= pivot);
            let row = dense[i].clone();
            for (other, values) in dense.iter_mut().enumerate() {
                let factor = values[j];
                if other != i && factor != 0.0 {
                    values.iter_mut().zip(&row).for_each(|(value, &row)| *value -= factor * row);
                }
            }
            free.retain(|&row| row != i);
            columns.retain(|&column| column != j);
        }
        // the rows of the inverse are permuted, which does not change the norm
        Some(of_matrix * norm(n, &dense))
    }

    fn check(estimate: f64, exact: f64, label: &str) {
        assert!(
            estimate <= exact * (1.0 + 1e-6) && 3.0 * estimate >= exact,
            "{label}: {estimate:e}, {exact:e}"
        );
    }

    #[test]
    fn estimates_are_within_a_factor_of_three_of_the_exact_condition_number() {
        let mut source = Random(0x0bad_cafe_1234_5678);
        let mut compared = 0;
        for case in 0..500 {
            let (n, entries) = random(&mut source);
            let a = Csr::from_triplets(n, n, &entries).unwrap();
            let (Some(exact), Ok(lu)) = (exact(&a), Lu::new(&a)) else { continue };
            check(lu.condition_estimate().unwrap(), exact, &format!("case {case}"));
            compared += 1;
        }
        assert!(compared > 150, "{compared}");
    }

    #[test]
    fn factors_of_symmetric_matrices_estimate_the_same() {
        let mut source = Random(0x1122_3344_5566_7788);
        for n in [1, 2, 7, 40] {
            let chain = |shift: f64, source: &mut Random| {
                let entries: Vec<_> = (0..n)
                    .flat_map(|i| {
                        let value = -1.0 - 0.5 * source.number().abs();
                        let pair = [(i, i + 1, value), (i + 1, i, value)].into_iter().filter(|_| i + 1 < n);
                        pair.chain([(i, i, shift)]).collect::<Vec<_>>()
                    })
                    .collect();
                Csr::from_triplets(n, n, &entries).unwrap()
            };
            let (definite, not) = (chain(3.01, &mut source), chain(0.3, &mut source));
            let known = exact(&definite).unwrap();
            check(Cholesky::new(&definite).unwrap().condition_estimate().unwrap(), known, "Cholesky");
            check(Ldl::new(&definite).unwrap().condition_estimate().unwrap(), known, "Ldl");
            check(
                Ldl::new(&not).unwrap().condition_estimate().unwrap(),
                exact(&not).unwrap(),
                "Ldl, indefinite",
            );
        }
    }

    #[test]
    fn refreshed_factors_estimate_the_condition_of_the_new_matrix() {
        let matrix = |last: f64| {
            Csr::from_triplets(3, 3, &[(0, 0, 4.0), (0, 1, 1.0), (1, 1, 4.0), (1, 2, 1.0), (2, 2, last)])
                .unwrap()
        };
        let mut lu = Lu::new(&matrix(4.0)).unwrap();
        lu.refresh(&matrix(4000.0)).unwrap();
        check(lu.condition_estimate().unwrap(), exact(&matrix(4000.0)).unwrap(), "refreshed");
        let symmetric = |last: f64| {
            let entries = [(0, 0, 4.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, last)];
            Csr::from_triplets(2, 2, &entries).unwrap()
        };
        let (mut cholesky, mut ldl) =
            (Cholesky::new(&symmetric(4.0)).unwrap(), Ldl::new(&symmetric(4.0)).unwrap());
        cholesky.refresh(&symmetric(4000.0)).unwrap();
        ldl.refresh(&symmetric(4000.0)).unwrap();
        let known = exact(&symmetric(4000.0)).unwrap();
        check(cholesky.condition_estimate().unwrap(), known, "Cholesky");
        check(ldl.condition_estimate().unwrap(), known, "Ldl");
    }

    #[test]
    fn single_precision_and_matrices_without_rows_have_estimates() {
        let a = Csr::from_triplets(2, 2, &[(0, 0, 1e-4f32), (0, 1, 1.0), (1, 1, 1.0)]).unwrap();
        let estimate = Lu::new(&a).unwrap().condition_estimate().unwrap();
        check(estimate, exact(&a.cast::<f64>()).unwrap(), "f32");
        let none = Csr::<f64>::from_triplets::<usize>(0, 0, &[]).unwrap();
        assert_eq!(Lu::new(&none).unwrap().condition_estimate().unwrap(), 1.0);
    }
}
