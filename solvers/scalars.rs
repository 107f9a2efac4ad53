//! One scalar for each column of a [`MultiVector`](crate::MultiVector).

use crate::{Element, Result, Scalar};
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg};

/// One scalar for each column of a [`MultiVector`](crate::MultiVector), or one for all of them. Arithmetic is
/// column by column.
#[derive(Clone, Debug)]
pub struct Scalars<T, S> {
    values: Values<S>,
    element: PhantomData<fn() -> T>,
}

#[derive(Clone, Debug)]
enum Values<S> {
    /// One scalar for all columns.
    Same(S),
    /// The scalar of each column.
    Each(Vec<S>),
}

impl<T, S> Scalars<T, S> {
    /// The scalars of these columns, in order.
    pub fn new(columns: Vec<S>) -> Self {
        Scalars { values: Values::Each(columns), element: PhantomData }
    }

    /// The scalar of a column.
    ///
    /// # Panics
    /// Panics if there is no such column.
    pub fn column(&self, column: usize) -> &S {
        match &self.values {
            Values::Same(value) => value,
            Values::Each(values) => &values[column],
        }
    }

    fn map(self, f: impl Fn(S) -> S) -> Self {
        let values = match self.values {
            Values::Same(value) => Values::Same(f(value)),
            Values::Each(values) => Values::Each(values.into_iter().map(f).collect()),
        };
        Scalars { values, element: PhantomData }
    }
}

impl<T, S: Clone> Scalars<T, S> {
    fn combine(self, other: Self, f: impl Fn(S, S) -> S) -> Self {
        let values = match (self.values, other.values) {
            (Values::Same(a), Values::Same(b)) => Values::Same(f(a, b)),
            (Values::Same(a), Values::Each(b)) => {
                Values::Each(b.into_iter().map(|b| f(a.clone(), b)).collect())
            }
            (Values::Each(a), Values::Same(b)) => {
                Values::Each(a.into_iter().map(|a| f(a, b.clone())).collect())
            }
            (Values::Each(a), Values::Each(b)) => {
                Values::Each(a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect())
            }
        };
        Scalars { values, element: PhantomData }
    }
}

impl<T: Element, S: Scalar<T>> From<T> for Scalars<T, S> {
    fn from(value: T) -> Self {
        Scalars { values: Values::Same(value.into()), element: PhantomData }
    }
}

impl<T: Element, S: Scalar<T>> Neg for Scalars<T, S> {
    type Output = Self;

    fn neg(self) -> Self {
        self.map(|value| -value)
    }
}

impl<T: Element, S: Scalar<T>> Add for Scalars<T, S> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combine(other, |a, b| a + b)
    }
}

impl<T: Element, S: Scalar<T>> Mul for Scalars<T, S> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        self.combine(other, |a, b| a * b)
    }
}

impl<T: Element, S: Scalar<T>> Div for Scalars<T, S> {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        self.combine(other, |a, b| a / b)
    }
}

impl<T: Element, S: Scalar<T>> Scalar<T> for Scalars<T, S> {
    fn assign(&mut self, value: &Self) {
        self.values = value.values.clone();
    }

    /// The value of the first column; zero without columns.
    fn read(&self) -> Result<T> {
        match &self.values {
            Values::Same(value) => value.read(),
            Values::Each(values) => values.first().map_or(Ok(T::zero()), |value| value.read()),
        }
    }

    fn quotient(self, divisor: Self) -> Self {
        self.combine(divisor, |a, b| a.quotient(b))
    }

    fn sqrt(self) -> Self {
        self.map(|value| value.sqrt())
    }
}
