//! Scalars of vectors that are split between the host and coprocessors: sums that are added up on the host.

use crate::numbers::Real;
use krysp_solvers::{Error, Result, Scalar};
use std::ops::{Add, Div, Mul, Neg};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Waits for the sums of one coprocessor.
pub type Awaited<T> = Box<dyn FnOnce() -> Result<Vec<T>> + Send>;

/// The error of a coprocessor, kept with all that was computed from what failed; `None` if nothing failed.
pub(super) type Failure = Option<Arc<Error>>;

/// The first of these failures.
pub(super) fn first<'f>(failures: impl IntoIterator<Item = &'f Failure>) -> Failure {
    failures.into_iter().flatten().next().cloned()
}

/// Returns the error, if there is one.
pub(super) fn check(failure: &Failure) -> Result<()> {
    failure.clone().map_or(Ok(()), |error| Err(Error::Backend(Box::new(error))))
}

/// Sums of which each coprocessor computes a part, computed by one reduction.
struct Sums<T> {
    of_host: Vec<T>,
    /// The parts of the coprocessors, until they are read.
    awaited: Mutex<Vec<Awaited<T>>>,
    /// Failure of the vectors.
    failure: Failure,
    whole: OnceLock<(Vec<T>, Failure)>,
}

impl<T: Real> Sums<T> {
    /// Adds up the parts in the order of the processors, which makes sums repeatable.
    fn whole(&self) -> &(Vec<T>, Failure) {
        self.whole.get_or_init(|| {
            let awaited = std::mem::take(&mut *self.awaited.lock().unwrap_or_else(PoisonError::into_inner));
            let (mut sums, mut failure) = (self.of_host.clone(), self.failure.clone());
            for read in awaited {
                match read() {
                    Ok(parts) => sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part),
                    Err(error) => {
                        failure.get_or_insert(Arc::new(error));
                        sums.fill(T::nan());
                    }
                }
            }
            (sums, failure)
        })
    }
}

/// A number in host memory, or a sum of which coprocessors still compute a part; reading waits for them.
///
/// An error of a coprocessor makes the value NaN. [`Scalar::read`] returns the error, also if it reads a number
/// that was computed from the value, or from a vector that was.
#[derive(Clone)]
pub struct SplitScalar<T>(Value<T>);

#[derive(Clone)]
enum Value<T> {
    Known(T, Failure),
    Sum(Arc<Sums<T>>, usize),
}

impl<T: Real> SplitScalar<T> {
    /// The sums over all processors: `of_host` has the parts of the host, `failure` is that of the vectors.
    pub(super) fn sums<const K: usize>(
        of_host: [T; K],
        awaited: Vec<Awaited<T>>,
        failure: Failure,
    ) -> [SplitScalar<T>; K] {
        if awaited.is_empty() {
            return of_host.map(|sum| SplitScalar(Value::Known(sum, failure.clone())));
        }
        let (awaited, whole) = (Mutex::new(awaited), OnceLock::new());
        let sums = Arc::new(Sums { of_host: of_host.to_vec(), awaited, failure, whole });
        std::array::from_fn(|k| SplitScalar(Value::Sum(sums.clone(), k)))
    }

    fn known(&self) -> (T, &Failure) {
        match &self.0 {
            Value::Known(value, failure) => (*value, failure),
            Value::Sum(sums, k) => (sums.whole().0[*k], &sums.whole().1),
        }
    }

    /// The value, NaN after an error.
    pub(super) fn value(&self) -> T {
        self.known().0
    }

    pub(super) fn failure(&self) -> &Failure {
        self.known().1
    }

    fn map(&self, value: impl FnOnce(T) -> T) -> Self {
        SplitScalar(Value::Known(value(self.value()), self.failure().clone()))
    }

    fn with(&self, other: &Self, value: impl FnOnce(T, T) -> T) -> Self {
        let failure = first([self.failure(), other.failure()]);
        SplitScalar(Value::Known(value(self.value(), other.value()), failure))
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
        let (value, failure) = self.known();
        check(failure).map(|()| value)
    }

    fn quotient(self, divisor: Self) -> Self {
        self.with(&divisor, |a, b| <T as Scalar<T>>::quotient(a, b))
    }

    fn sqrt(self) -> Self {
        self.map(|value| <T as Scalar<T>>::sqrt(value))
    }
}
