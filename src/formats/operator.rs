//! Implementation of `LinearOperator` for formats: products, and residuals in twice the working precision.

use crate::host::HostVector;
use crate::numbers::{Real, Storage};
use krysp_solvers::{MultiVector, Scalars};

/// Products in which `values` of the caller, one for each stored value of the format, replace the format's
/// own; used by [`Rounded`](super::Rounded). The trait has no public path, which seals
/// [`Format`](super::Format).
pub trait Multiply<T: Real> {
    /// `y ← A x`
    fn multiply<V: Storage<T>>(
        &self,
        values: &[V],
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()>;

    /// `y ← A x; ⟨x, y⟩`
    fn multiply_dot<V: Storage<T>>(
        &self,
        values: &[V],
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<T>;

    /// `Y ← A X`
    fn multiply_many<V: Storage<T>>(
        &self,
        values: &[V],
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        MultiVector::open_pairs(x, y)?.try_for_each(|(x, y)| self.multiply(values, x, y))
    }

    /// `Y ← A X`; returns `⟨x_j, y_j⟩` for each column `j`.
    fn multiply_dot_many<V: Storage<T>>(
        &self,
        values: &[V],
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<Scalars<T, T>> {
        let mut sums = Scalars::<T, T>::new([]);
        for (x, y) in MultiVector::open_pairs(x, y)? {
            sums.extend([self.multiply_dot(values, x, y)?]);
        }
        Ok(y.scalars_of_open(sums.into_columns()))
    }
}

/// Implements the methods of [`LinearOperator`](krysp_solvers::LinearOperator) for several vectors by those
/// of [`Multiply`].
macro_rules! many_columns {
    () => {
        fn apply_many(
            &self,
            x: &krysp_solvers::MultiVector<Self::Vector>,
            y: &mut krysp_solvers::MultiVector<Self::Vector>,
        ) -> krysp_solvers::Result<()> {
            $crate::formats::Multiply::multiply_many(self, &self.values, x, y)
        }

        fn apply_dot_many(
            &self,
            x: &krysp_solvers::MultiVector<Self::Vector>,
            y: &mut krysp_solvers::MultiVector<Self::Vector>,
        ) -> krysp_solvers::Result<krysp_solvers::Scalars<T, T>> {
            $crate::formats::Multiply::multiply_dot_many(self, &self.values, x, y)
        }
    };
}
pub(crate) use many_columns;

/// Implements [`LinearOperator`](krysp_solvers::LinearOperator) for a format by its methods `kernel(values)`,
/// which computes rows independently, and `array_bytes()`, the bytes that a product reads.
macro_rules! row_operator {
    ($format:ident) => {
        $crate::formats::row_operator!($format<>, source, {
            $crate::formats::precise_residual!();
        });
    };
    ($format:ident<$($life:lifetime)?>, $rows:ident, { $($more:tt)* }) => {
        impl<$($life,)? T: crate::numbers::Real> $crate::formats::Multiply<T> for $format<$($life,)? T> {
            fn multiply<V: crate::numbers::Storage<T>>(
                &self,
                values: &[V],
                x: &crate::host::HostVector<T>,
                y: &mut crate::host::HostVector<T>,
            ) -> krysp_solvers::Result<()> {
                self.$rows.product(&self.kernel(values), x, y)
            }

            fn multiply_dot<V: crate::numbers::Storage<T>>(
                &self,
                values: &[V],
                x: &crate::host::HostVector<T>,
                y: &mut crate::host::HostVector<T>,
            ) -> krysp_solvers::Result<T> {
                self.$rows.product_dot(&self.kernel(values), x, y)
            }

            fn multiply_many<V: crate::numbers::Storage<T>>(
                &self,
                values: &[V],
                x: &krysp_solvers::MultiVector<crate::host::HostVector<T>>,
                y: &mut krysp_solvers::MultiVector<crate::host::HostVector<T>>,
            ) -> krysp_solvers::Result<()> {
                self.$rows.product_many(&self.kernel(values), x, y)
            }

            fn multiply_dot_many<V: crate::numbers::Storage<T>>(
                &self,
                values: &[V],
                x: &krysp_solvers::MultiVector<crate::host::HostVector<T>>,
                y: &mut krysp_solvers::MultiVector<crate::host::HostVector<T>>,
            ) -> krysp_solvers::Result<krysp_solvers::Scalars<T, T>> {
                self.$rows.product_dot_many(&self.kernel(values), x, y)
            }
        }

        impl<$($life,)? T: crate::numbers::Real> krysp_solvers::LinearOperator for $format<$($life,)? T> {
            type Vector = crate::host::HostVector<T>;

            fn domain(&self) -> &crate::host::HostSpace<T> {
                self.$rows.domain()
            }

            fn range(&self) -> &crate::host::HostSpace<T> {
                self.$rows.range()
            }

            fn apply(&self, x: &Self::Vector, y: &mut Self::Vector) -> krysp_solvers::Result<()> {
                $crate::formats::Multiply::multiply(self, &self.values, x, y)
            }

            fn apply_dot(&self, x: &Self::Vector, y: &mut Self::Vector) -> krysp_solvers::Result<T> {
                $crate::formats::Multiply::multiply_dot(self, &self.values, x, y)
            }

            $crate::formats::many_columns!();

            $($more)*

            fn bytes(&self) -> usize {
                self.array_bytes()
            }
        }
    };
}
pub(crate) use row_operator;

/// Implements the residual of a [`Format`](super::Format) with elements `T`, from the entries stored in its
/// slots.
macro_rules! precise_residual {
    () => {
        fn residual(
            &self,
            b: &crate::host::HostVector<T>,
            x: &crate::host::HostVector<T>,
            r: &mut crate::host::HostVector<T>,
        ) -> krysp_solvers::Result<()> {
            use crate::formats::Format;
            self.source().residual(&self.entries_from(self.values()), b, x, r)
        }
    };
}
pub(crate) use precise_residual;
