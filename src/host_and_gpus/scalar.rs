//! Scalars of vectors that are split between the host and coprocessors: sums that are added up on the host.

use crate::numbers::Real;
use krysp_solvers::{Error, Result, Scalar};
use std::ops::{Add, Div, Mul, Neg};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Waits for the sums of one coprocessor.
pub type Awaited<T> = Box<dyn FnOnce() -> Result<Vec<T>> + Send>;

/// The first error of a coprocessor that no call has returned yet.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstError(Arc<Mutex<Option<Error>>>);

impl FirstError {
    pub(super) fn keep(&self, error: Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Returns the error, once.
    pub(super) fn take(&self) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

/// Sums of which each coprocessor computes a part, computed by one reduction.
struct Sums<T> {
    of_host: Vec<T>,
    /// The parts of the coprocessors, until they are read.
    awaited: Mutex<Vec<Awaited<T>>>,
    whole: OnceLock<Vec<T>>,
    error: FirstError,
}

impl<T: Real> Sums<T> {
    /// Adds up the parts in the order of the processors, which makes sums repeatable.
    fn whole(&self) -> &[T] {
        self.whole.get_or_init(|| {
            let awaited = std::mem::take(&mut *self.awaited.lock().unwrap_or_else(PoisonError::into_inner));
            let mut sums = self.of_host.clone();
            for read in awaited {
                match read() {
                    Ok(parts) => sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part),
                    Err(error) => {
                        self.error.keep(error);
                        sums.fill(T::nan());
                    }
                }
            }
            sums
        })
    }
}

/// A number in host memory, or a sum of which coprocessors still compute a part; reading waits for them.
///
/// An error of a coprocessor makes the value NaN. [`Scalar::read`] returns the error, also if it reads a number
/// that was computed from the value.
#[derive(Clone)]
pub struct SplitScalar<T>(Value<T>);

#[derive(Clone)]
enum Value<T> {
    Known(T, Option<FirstError>),
    Sum(Arc<Sums<T>>, usize),
}

impl<T: Real> SplitScalar<T> {
    /// The sums over all processors: `of_host` has the parts of the host.
    pub(super) fn sums<const K: usize>(
        of_host: [T; K],
        awaited: Vec<Awaited<T>>,
        error: &FirstError,
    ) -> [SplitScalar<T>; K] {
        if awaited.is_empty() {
            return of_host.map(Self::from);
        }
        let (awaited, whole, error) = (Mutex::new(awaited), OnceLock::new(), error.clone());
        let sums = Arc::new(Sums { of_host: of_host.to_vec(), awaited, whole, error });
        std::array::from_fn(|k| SplitScalar(Value::Sum(sums.clone(), k)))
    }

    /// The value, NaN after an error.
    pub(super) fn value(&self) -> T {
        match &self.0 {
            Value::Known(value, _) => *value,
            Value::Sum(sums, k) => sums.whole()[*k],
        }
    }

    fn error(&self) -> Option<&FirstError> {
        match &self.0 {
            Value::Known(_, error) => error.as_ref(),
            Value::Sum(sums, _) => Some(&sums.error),
        }
    }

    fn map(&self, value: impl FnOnce(T) -> T) -> Self {
        SplitScalar(Value::Known(value(self.value()), self.error().cloned()))
    }

    fn with(&self, other: &Self, value: impl FnOnce(T, T) -> T) -> Self {
        let error = self.error().or(other.error()).cloned();
        SplitScalar(Value::Known(value(self.value(), other.value()), error))
    }
}

impl<T: Real> From<T> for SplitScalar<T> {
    fn from(value: T) -> Self {
        SplitScalar(Value::Known(value, None))
    }
}

impl<T: Real> Neg for SplitScalar<T> {
    type Output = Self;

    fn neg(self) -> Self {
        self.map(|value| -value)
    }
}

impl<T: Real> Add for SplitScalar<T> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(&other, |a, b| a + b)
    }
}

impl<T: Real> Mul for SplitScalar<T> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        self.with(&other, |a, b| a * b)
    }
}

impl<T: Real> Div for SplitScalar<T> {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        self.with(&other, |a, b| a / b)
    }
}

impl<T: Real> Scalar<T> for SplitScalar<T> {
    fn assign(&mut self, value: &Self) {
        *self = value.clone();
    }

    fn read(&self) -> Result<T> {
        let value = self.value();
        self.error().map_or(Ok(()), FirstError::take)?;
        Ok(value)
    }

    fn quotient(self, divisor: Self) -> Self {
        self.with(&divisor, |a, b| <T as Scalar<T>>::quotient(a, b))
    }

    fn sqrt(self) -> Self {
        self.map(|value| <T as Scalar<T>>::sqrt(value))
    }
}
