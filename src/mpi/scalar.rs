//! Numbers that all ranks have, or are about to have.

use super::local::Local;
use super::ranks::{Pending, Ranks};
use crate::Real;
use krysp_solvers::{Result, Scalar, ScalarOf};
use std::ops::{Add, Div, Mul, Neg};
use std::sync::Arc;

/// A number that all ranks know, or one of the sums that are added up over the ranks when one of them is read.
///
/// Sums wait until a number is needed. They are then added up together with all others that wait, so that several sums of
/// a step take one message; or they travel during the next product.
#[derive(Clone)]
pub struct RankScalar<T>(Number<T>);

#[derive(Clone)]
enum Number<T> {
    Known(T),
    Sum(Ranks, Arc<Pending>, usize),
}

impl<T: Real> RankScalar<T> {
    /// Sums over all ranks of which this rank has these parts.
    pub(super) fn sums<L: Local<T>, const K: usize>(
        ranks: &Ranks,
        own: [ScalarOf<L::Vector>; K],
    ) -> [RankScalar<T>; K] {
        let pending = ranks.sum(L::told(own));
        std::array::from_fn(|at| RankScalar(Number::Sum(ranks.clone(), pending.clone(), at)))
    }

    /// Whether [`Scalar::read`] would not wait.
    pub(super) fn is_known(&self) -> bool {
        match &self.0 {
            Number::Known(_) => true,
            Number::Sum(_, pending, _) => Ranks::known(pending),
        }
    }

    /// The number; NaN if a rank has failed, which [`Scalar::read`] reports.
    pub(super) fn value(&self) -> T {
        self.read().unwrap_or(T::from_f64(f64::NAN))
    }

    /// The number, for operations on this rank's parts of vectors; NaN as for [`RankScalar::value`].
    pub(super) fn local<S: From<T>>(&self) -> S {
        self.value().into()
    }
}

impl<T: Real> From<T> for RankScalar<T> {
    fn from(value: T) -> Self {
        RankScalar(Number::Known(value))
    }
}

impl<T: Real> Neg for RankScalar<T> {
    type Output = Self;

    fn neg(self) -> Self {
        (-self.value()).into()
    }
}

impl<T: Real> Add for RankScalar<T> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        (self.value() + other.value()).into()
    }
}

impl<T: Real> Mul for RankScalar<T> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        (self.value() * other.value()).into()
    }
}

impl<T: Real> Div for RankScalar<T> {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        (self.value() / other.value()).into()
    }
}

impl<T: Real> Scalar<T> for RankScalar<T> {
    fn assign(&mut self, value: &Self) {
        self.clone_from(value);
    }

    fn read(&self) -> Result<T> {
        match &self.0 {
            Number::Known(value) => Ok(*value),
            Number::Sum(ranks, pending, at) => Ok(T::from_f64(ranks.whole(pending)?[*at])),
        }
    }

    fn quotient(self, divisor: Self) -> Self {
        Scalar::quotient(self.value(), divisor.value()).into()
    }

    fn sqrt(self) -> Self {
        Scalar::sqrt(self.value()).into()
    }
}
