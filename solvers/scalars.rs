//! One scalar for each column of a [`MultiVector`](crate::MultiVector).

use crate::few::TOGETHER;
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
    Each(Each<S>),
}

/// A scalar for each column. The first ones are stored in place, so that operations on as many columns as are
/// solved together allocate nothing.
#[derive(Clone, Debug)]
struct Each<S> {
    first: [Option<S>; TOGETHER],
    more: Vec<S>,
}

impl<S> Each<S> {
    fn new(columns: impl IntoIterator<Item = S>) -> Self {
        let mut columns = columns.into_iter().fuse();
        Each { first: std::array::from_fn(|_| columns.next()), more: columns.collect() }
    }

    fn into_iter(self) -> impl Iterator<Item = S> {
        self.first.into_iter().flatten().chain(self.more)
    }
}

impl<T, S> Scalars<T, S> {
    /// The scalars of these columns, in order.
    pub fn new(columns: impl IntoIterator<Item = S>) -> Self {
        Scalars { values: Values::Each(Each::new(columns)), element: PhantomData }
    }

    /// The scalars of the columns, in order; a single one if all columns have the same.
    pub fn into_columns(self) -> impl Iterator<Item = S> {
        let (same, each) = match self.values {
            Values::Same(value) => (Some(value), None),
            Values::Each(values) => (None, Some(values)),
        };
        same.into_iter().chain(each.into_iter().flat_map(Each::into_iter))
    }

    /// The scalar of a column.
    ///
    /// # Panics
    /// Panics if there is no such column.
    pub fn column(&self, column: usize) -> &S {
        match &self.values {
            Values::Same(value) => value,
            Values::Each(values) => match values.first.get(column) {
                Some(Some(value)) => value,
                _ => &values.more[column.wrapping_sub(TOGETHER)],
            },
        }
    }

    fn map(self, f: impl Fn(S) -> S) -> Self {
        let values = match self.values {
            Values::Same(value) => Values::Same(f(value)),
            Values::Each(values) => Values::Each(Each::new(values.into_iter().map(f))),
        };
        Scalars { values, element: PhantomData }
    }
}

impl<T, S: Clone> Scalars<T, S> {
    fn combine(self, other: Self, f: impl Fn(S, S) -> S) -> Self {
        let values = match (self.values, other.values) {
            (Values::Same(a), Values::Same(b)) => Values::Same(f(a, b)),
            (Values::Same(a), Values::Each(b)) => {
                Values::Each(Each::new(b.into_iter().map(|b| f(a.clone(), b))))
            }
            (Values::Each(a), Values::Same(b)) => {
                Values::Each(Each::new(a.into_iter().map(|a| f(a, b.clone()))))
            }
            (Values::Each(a), Values::Each(b)) => {
                Values::Each(Each::new(a.into_iter().zip(b.into_iter()).map(|(a, b)| f(a, b))))
            }
        };
        Scalars { values, element: PhantomData }
    }
}

/// Appends the scalars of further columns.
impl<T, S> Extend<S> for Scalars<T, S> {
    fn extend<I: IntoIterator<Item = S>>(&mut self, columns: I) {
        let mut columns = columns.into_iter();
        if let Values::Each(values) = &mut self.values {
            let free = values.first.iter_mut().filter(|value| value.is_none());
            free.for_each(|value| *value = columns.next());
            values.more.extend(columns);
        }
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
            Values::Each(values) => values.first[0].as_ref().map_or(Ok(T::zero()), |value| value.read()),
        }
    }

    fn quotient(self, divisor: Self) -> Self {
        self.combine(divisor, |a, b| a.quotient(b))
    }

    fn sqrt(self) -> Self {
        self.map(|value| value.sqrt())
    }
}
