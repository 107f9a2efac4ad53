//! Products of a CSR matrix in host memory, for each [`Strategy`].

use super::{Csr, Format, Multiply, Strategy};
use crate::host::HostVector;
use crate::numbers::{Real, Storage};
use krysp_kernels::cpu::formats::speculative;
use krysp_kernels::cpu::run::balanced::Balanced;
use krysp_solvers::{MultiVector, Scalars, Vector};

/// In host memory, [`Strategy::Automatic`] and [`Strategy::MergePath`] are [`Strategy::LoadBalance`], which
/// costs nothing if there are no long rows to divide.
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
            Strategy::Automatic | Strategy::LoadBalance | Strategy::MergePath => {
                self.source().product(&Balanced(kernel), x, y)
            }
            Strategy::Speculative => {
                self.source().check(x, y)?;
                speculative::product(&kernel, x.as_slice(), y.as_mut_slice());
                Ok(())
            }
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
            Strategy::Automatic | Strategy::LoadBalance | Strategy::MergePath => {
                self.source().product_dot(&Balanced(kernel), x, y)
            }
            Strategy::Speculative => {
                self.source().check_square()?;
                self.multiply(values, x, y)?;
                Ok(x.dot(y))
            }
        }
    }

    /// [`Strategy::Speculative`] multiplies one vector after the other.
    fn multiply_many<V: Storage<T>>(
        &self,
        values: &[V],
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        let kernel = self.kernel(values);
        match self.strategy() {
            Strategy::Classical => self.source().product_many(&kernel, x, y),
            Strategy::Automatic | Strategy::LoadBalance | Strategy::MergePath => {
                self.source().product_many(&Balanced(kernel), x, y)
            }
            Strategy::Speculative => {
                MultiVector::open_pairs(x, y)?.try_for_each(|(x, y)| self.multiply(values, x, y))
            }
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
            Strategy::Automatic | Strategy::LoadBalance | Strategy::MergePath => {
                self.source().product_dot_many(&Balanced(kernel), x, y)
            }
            Strategy::Speculative => {
                let mut sums = Scalars::<T, T>::new([]);
                for (x, y) in MultiVector::open_pairs(x, y)? {
                    sums.extend([self.multiply_dot(values, x, y)?]);
                }
                Ok(y.scalars_of_open(sums.into_columns()))
            }
        }
    }
}
