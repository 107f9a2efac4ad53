//! One symmetric Gauss-Seidel sweep as a preconditioner: `M = (D + L) D⁻¹ (D + U)` for `A = L + D + U`.

use krysp::formats::extend::Real;
use krysp::solvers::{self, check_spaces};
use krysp::{Csr, Error, HostSpace, HostVector, LinearOperator, MatrixSource, Refresh, Result};

/// A symmetric Gauss-Seidel sweep, on one thread.
#[derive(Clone, Debug)]
pub struct GaussSeidel<T: Real> {
    a: Csr<T>,
    diagonal: Vec<T>,
}

impl<T: Real> GaussSeidel<T> {
    /// Copies a square matrix that any format or operator stores. Returns an error for an infinite entry, and for a zero
    /// on the diagonal.
    pub fn new(a: &dyn MatrixSource<T>) -> Result<GaussSeidel<T>> {
        let (rows, cols) = (a.structure().rows(), a.structure().cols());
        if rows != cols {
            return Err(Error::NotSquare { what: "GaussSeidel", rows, cols });
        }
        let (csr, diagonal) = (a.in_host_memory()?, a.diagonal()?);
        csr.check_finite()?;
        if let Some(row) = diagonal.iter().position(|entry| entry.is_zero()) {
            return Err(Error::ZeroDiagonal { row, value: 0.0 });
        }
        Ok(GaussSeidel { a: csr.into_owned(), diagonal })
    }
}

impl<T: Real> LinearOperator for GaussSeidel<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        self.a.domain()
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> solvers::Result<()> {
        check_spaces(self, x, y)?;
        let (x, y) = (x.as_slice(), y.as_mut_slice());
        let entries = |i: usize| self.a.row_columns(i).iter().map(|&j| j as usize).zip(self.a.row_values(i));
        for i in 0..x.len() {
            let mut rest = x[i];
            entries(i).filter(|&(j, _)| j < i).for_each(|(j, &a)| rest -= a * y[j]);
            y[i] = rest / self.diagonal[i];
        }
        for i in (0..x.len()).rev() {
            let mut upper = T::zero();
            entries(i).filter(|&(j, _)| j > i).for_each(|(j, &a)| upper += a * y[j]);
            y[i] -= upper / self.diagonal[i];
        }
        Ok(())
    }
}

impl<T: Real> Refresh<T> for GaussSeidel<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        if a.structure().domain() != self.domain() {
            return Err(solvers::Error::Space { what: "the matrix", than: "the preconditioner" }.into());
        }
        *self = GaussSeidel::new(a)?;
        Ok(())
    }
}
