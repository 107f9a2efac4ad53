//! Implementation of `LinearOperator` for formats: products, and residuals in twice the working precision.

use crate::host::HostVector;
use crate::numbers::{Real, Storage};
use krysp_solvers::{BasicVector, MultiVector, Scalars};

/// Products of a format in which `values` of the caller, one for each slot, replace the format's own. So
/// [`Rounded`](super::Rounded) stores the values of any format in fewer bits.
///
/// A format whose rows are computed independently gets it from [`row_operator!`](crate::row_operator). Any
/// other format implements it, and [`LinearOperator`](krysp_solvers::LinearOperator) with `self.values` in
/// place of the caller's values; two macros shorten that: [`many_columns!`](crate::many_columns) and
/// [`precise_residual!`](crate::precise_residual).
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
    ) -> krysp_solvers::Result<T> {
        self.multiply(values, x, y)?;
        Ok(x.dot(y))
    }

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

/// Implements the methods of [`LinearOperator`](crate::LinearOperator) for several vectors by those of
/// [`Multiply`](crate::formats::Multiply), for a format of elements `T` with the field `values`. Used within the implementation of
/// `LinearOperator`.
#[macro_export]
macro_rules! many_columns {
    () => {
        fn apply_many(
            &self,
            x: &$crate::solvers::MultiVector<Self::Vector>,
            y: &mut $crate::solvers::MultiVector<Self::Vector>,
        ) -> $crate::solvers::Result<()> {
            $crate::formats::Multiply::multiply_many(self, &self.values, x, y)
        }

        fn apply_dot_many(
            &self,
            x: &$crate::solvers::MultiVector<Self::Vector>,
            y: &mut $crate::solvers::MultiVector<Self::Vector>,
        ) -> $crate::solvers::Result<$crate::solvers::Scalars<T, T>> {
            $crate::formats::Multiply::multiply_dot_many(self, &self.values, x, y)
        }
    };
}
pub use many_columns;

/// Implements [`LinearOperator`](crate::LinearOperator) and [`Multiply`](crate::formats::Multiply) for a format
/// whose rows are computed independently: `row_operator!(Type);` for `Type<T: Real>`.
///
/// The type has the fields `source` (a [`Source`](crate::formats::Source)) and `values` (a `Buffer<T>`), and the methods
/// `kernel(&self, values: &[V]) -> impl RowProduct<T>`, the product with these values, and
/// `array_bytes(&self) -> usize`, the bytes that a product reads.
#[macro_export]
macro_rules! row_operator {
    ($format:ident) => {
        $crate::row_operator!($format<>, source, {
            $crate::precise_residual!();
        });
    };
    ($format:ident<$($life:lifetime)?>, $rows:ident, { $($more:tt)* }) => {
        impl<$($life,)? T: $crate::Real> $crate::formats::Multiply<T> for $format<$($life,)? T> {
            fn multiply<V: $crate::Storage<T>>(
                &self,
                values: &[V],
                x: &$crate::HostVector<T>,
                y: &mut $crate::HostVector<T>,
            ) -> $crate::solvers::Result<()> {
                self.$rows.product(&self.kernel(values), x, y)
            }

            fn multiply_dot<V: $crate::Storage<T>>(
                &self,
                values: &[V],
                x: &$crate::HostVector<T>,
                y: &mut $crate::HostVector<T>,
            ) -> $crate::solvers::Result<T> {
                self.$rows.product_dot(&self.kernel(values), x, y)
            }

            fn multiply_many<V: $crate::Storage<T>>(
                &self,
                values: &[V],
                x: &$crate::solvers::MultiVector<$crate::HostVector<T>>,
                y: &mut $crate::solvers::MultiVector<$crate::HostVector<T>>,
            ) -> $crate::solvers::Result<()> {
                self.$rows.product_many(&self.kernel(values), x, y)
            }

            fn multiply_dot_many<V: $crate::Storage<T>>(
                &self,
                values: &[V],
                x: &$crate::solvers::MultiVector<$crate::HostVector<T>>,
                y: &mut $crate::solvers::MultiVector<$crate::HostVector<T>>,
            ) -> $crate::solvers::Result<$crate::solvers::Scalars<T, T>> {
                self.$rows.product_dot_many(&self.kernel(values), x, y)
            }
        }

        impl<$($life,)? T: $crate::Real> $crate::solvers::LinearOperator for $format<$($life,)? T> {
            type Vector = $crate::HostVector<T>;

            fn domain(&self) -> &$crate::HostSpace<T> {
                self.$rows.domain()
            }

            fn range(&self) -> &$crate::HostSpace<T> {
                self.$rows.range()
            }

            fn apply(&self, x: &Self::Vector, y: &mut Self::Vector) -> $crate::solvers::Result<()> {
                $crate::formats::Multiply::multiply(self, &self.values, x, y)
            }

            fn apply_dot(&self, x: &Self::Vector, y: &mut Self::Vector) -> $crate::solvers::Result<T> {
                $crate::formats::Multiply::multiply_dot(self, &self.values, x, y)
            }

            $crate::many_columns!();

            $($more)*

            fn bytes(&self) -> usize {
                self.array_bytes()
            }
        }
    };
}
pub use row_operator;

/// Implements the residual of a [`Format`](crate::Format) with elements `T`, in twice the working precision, from
/// the entries stored in its slots. Used within the implementation of [`LinearOperator`](crate::LinearOperator).
#[macro_export]
macro_rules! precise_residual {
    () => {
        fn residual(
            &self,
            b: &$crate::HostVector<T>,
            x: &$crate::HostVector<T>,
            r: &mut $crate::HostVector<T>,
        ) -> $crate::solvers::Result<()> {
            use $crate::formats::Format;
            self.source().residual(&self.entries_from(self.values()), b, x, r)
        }
    };
}
pub use precise_residual;
