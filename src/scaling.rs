//! Symmetric scaling by the diagonal: `S A S` with `S = diag(A)^(−1/2)`, whose diagonal is one.
//!
//! Conjugate gradients on the scaled system take the same iterations as CG preconditioned by Jacobi. They need neither
//! the diagonal nor a preconditioned residual, and so move 10 vectors an iteration, not 12. The residual reported is
//! `‖S (b − A x)‖`.
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

use crate::{Csr, Error, Format, HostSpace, Real, Result};
use krysp_solvers::{Element, LinearOperator, Space};

/// The factors of a symmetric scaling.
#[derive(Clone, Debug)]
pub struct Scaling<T: Real> {
    space: HostSpace<T>,
    /// The factors in the numbering of the space.
    factors: Vec<T>,
    /// The factors in the user's numbering.
    user_factors: Vec<T>,
}

impl<T: Real> Scaling<T> {
    /// The scaling of a matrix whose diagonal is positive.
    pub fn symmetric(csr: &Csr<T>) -> Result<Scaling<T>> {
        let (rows, cols) = (csr.rows(), csr.cols());
        if rows != cols {
            return Err(Error::NotSquare { what: "symmetric scaling", rows, cols });
        }
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
        let mut user_factors = factors.clone();
        if let Some(numbering) = space.numbering() {
            for (&factor, &old) in factors.iter().zip(numbering.old_of_new()) {
                user_factors[old as usize] = factor;
            }
        }
        Ok(Scaling { space, factors, user_factors })
    }

    /// Computes `S A S` for a matrix in the space of the scaling.
    pub fn matrix(&self, csr: &Csr<T>) -> Result<Csr<T>> {
        if csr.domain() != &self.space || csr.range() != &self.space {
            return Err(krysp_solvers::Error::Space { what: "the matrix", than: "the scaling" }.into());
        }
        let scaled =
            csr.triplets().map(|(row, column, value)| self.factors[row] * value * self.factors[column]);
        let scaled: Vec<T> = scaled.collect();
        let mut matrix = csr.clone();
        matrix.fill(&scaled);
        Ok(matrix)
    }

    /// Computes `S b`.
    pub fn rhs(&self, b: &[T]) -> Result<Vec<T>> {
        let mut scaled = b.to_vec();
        self.unscale(&mut scaled)?;
        Ok(scaled)
    }

    /// Turns the solution of the scaled system into that of the original one: `x ← S x`.
    pub fn unscale(&self, x: &mut [T]) -> Result<()> {
        let expected = self.space.len();
        if x.len() != expected {
            let (what, got) = ("the vector", x.len());
            return Err(Error::Length { what, got, expected, why: "one entry for each row" });
        }
        for (x, &factor) in x.iter_mut().zip(&self.user_factors) {
            *x *= factor;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::matrices;
    use crate::{Cg, Jacobi, Numbering};

    #[test]
    fn scaled_cg_takes_the_iterations_of_jacobi_cg() {
        let poisson = matrices::stencil7(9).csr::<f64>().unwrap();
        // diagonal entries of very different sizes
        let size = |i: usize| 10f64.powi(i as i32 % 5);
        let entries: Vec<_> = poisson.triplets().map(|(i, j, v)| (i, j, v * size(i) * size(j))).collect();
        let a = Csr::from_triplets(poisson.rows(), poisson.rows(), &entries).unwrap();
        let backwards = Numbering::from_old_of_new((0..a.rows() as u32).rev().collect()).unwrap();
        let b: Vec<f64> = (0..a.rows()).map(|i| size(i) * (1.0 + (i % 3) as f64)).collect();
        for a in [a.renumbered(&backwards).unwrap(), a] {
            let jacobi = Jacobi::new(&a).unwrap();
            let expected = Cg::new(&a).preconditioner(jacobi).rtol(1e-13).solve(&b).unwrap();
            let scaling = Scaling::symmetric(&a).unwrap();
            let scaled = scaling.matrix(&a).unwrap();
            assert!(scaled.diagonal_entries().iter().all(|d| (d - 1.0).abs() < 1e-14));
            let mut solution = Cg::new(scaled).rtol(1e-13).solve(&scaling.rhs(&b).unwrap()).unwrap();
            scaling.unscale(&mut solution.x).unwrap();
            let largest = expected.x.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            for (x, y) in solution.x.iter().zip(&expected.x) {
                assert!((x - y).abs() <= 1e-9 * largest, "{x} {y}");
            }
            let (one, other) = (solution.report.iterations, expected.report.iterations);
            assert!(one.abs_diff(other) <= 5, "{one} {other}");
        }
    }

    #[test]
    fn a_negative_diagonal_is_refused() {
        let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, -1.0)]).unwrap();
        assert!(matches!(Scaling::symmetric(&a), Err(Error::ZeroDiagonal { row: 1, .. })));
        let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, 4.0)]).unwrap();
        let scaling = Scaling::symmetric(&a).unwrap();
        assert!(scaling.rhs(&[1.0]).is_err());
        assert!(scaling.matrix(&Csr::from_triplets(1, 1, &[(0, 0, 1.0)]).unwrap()).is_err());
    }
}
