//! Products of a CSR matrix in host memory, for each [`Strategy`].

use super::{Csr, Format, Multiply, Strategy};
use crate::host::HostVector;
use crate::numbers::{Real, Storage};
use krysp_kernels::cpu::run::balanced::Balanced;
use krysp_solvers::{MultiVector, Scalars};

/// In host memory, all strategies but [`Strategy::Classical`] are [`Strategy::LoadBalance`], which costs nothing if
/// there are no long rows to divide.
impl<T: Real> Multiply<T> for Csr<T> {
    fn multiply<V: Storage<T>>(
        &self,
        values: &[V],
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        let kernel = self.kernel(values);
        match self.strategy() {
            Strategy::Classical => self.source().product(&kernel, x, y),
            _ => self.source().product(&Balanced(kernel), x, y),
        }
    }

    fn multiply_dot<V: Storage<T>>(
        &self,
        values: &[V],
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<T> {
        let kernel = self.kernel(values);
        match self.strategy() {
            Strategy::Classical => self.source().product_dot(&kernel, x, y),
            _ => self.source().product_dot(&Balanced(kernel), x, y),
        }
    }

    fn multiply_many<V: Storage<T>>(
        &self,
        values: &[V],
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        let kernel = self.kernel(values);
        match self.strategy() {
            Strategy::Classical => self.source().product_many(&kernel, x, y),
            _ => self.source().product_many(&Balanced(kernel), x, y),
        }
    }

    fn multiply_dot_many<V: Storage<T>>(
        &self,
        values: &[V],
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<Scalars<T, T>> {
        let kernel = self.kernel(values);
        match self.strategy() {
            Strategy::Classical => self.source().product_dot_many(&kernel, x, y),
            _ => self.source().product_dot_many(&Balanced(kernel), x, y),
        }
    }
}
