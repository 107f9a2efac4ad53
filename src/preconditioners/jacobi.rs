//! Jacobi: `M = diag(A)`.
//!
//! One vector; its application is fused with whatever vector work stands beside it.

use crate::{Csr, Error, Format, HostSpace, HostVector, Real, Result};
use krysp_kernels::cpu::vector;
use krysp_solvers::{LinearOperator, Space, Vector, check_spaces};

/// The inverse of a diagonal.
#[derive(Clone, Debug)]
pub struct Jacobi<T: Real> {
    inverse: HostVector<T>,
}

impl<T: Real> Jacobi<T> {
    /// From the diagonal of a matrix, in the matrix's space.
    pub fn new(csr: &Csr<T>) -> Result<Jacobi<T>> {
        let (rows, cols) = (csr.rows(), csr.cols());
        if rows != cols {
            return Err(Error::NotSquare { what: "Jacobi", rows, cols });
        }
        let mut jacobi = Jacobi { inverse: csr.source().domain().zeros()? };
        jacobi.refresh(csr)?;
        Ok(jacobi)
    }

    /// Takes the diagonal of a matrix of the same space with new values.
    pub fn refresh(&mut self, csr: &Csr<T>) -> Result<()> {
        if csr.source().domain() != self.inverse.space() {
            return Err(krysp_solvers::Error::Space { what: "the matrix", than: "the preconditioner" }.into());
        }
        let diagonal = csr.diagonal_entries();
        for (row, (inverse, &entry)) in self.inverse.as_mut_slice().iter_mut().zip(&diagonal).enumerate() {
            *inverse = T::one() / entry;
            if !krysp_solvers::Element::is_finite(*inverse) || inverse.is_zero() {
                return Err(Error::ZeroDiagonal { row, value: entry.to_f64() });
            }
        }
        Ok(())
    }
}

impl<T: Real> LinearOperator for Jacobi<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        self.inverse.space()
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        vector::mul(self.inverse.as_slice(), x.as_slice(), y.as_mut_slice());
        Ok(())
    }

    fn axpy_apply_dot(
        &self,
        a: &T,
        q: &HostVector<T>,
        r: &mut HostVector<T>,
        z: &mut HostVector<T>,
    ) -> krysp_solvers::Result<[T; 2]> {
        check_spaces(self, r, z)?;
        check_spaces(self, q, z)?;
        let d = self.inverse.as_slice();
        Ok(vector::axpy_mul_dots(*a, q.as_slice(), r.as_mut_slice(), d, z.as_mut_slice()))
    }

    fn diagonal(&self) -> Option<&HostVector<T>> {
        Some(&self.inverse)
    }

    fn bytes(&self) -> usize {
        size_of_val(self.inverse.as_slice())
    }
}
