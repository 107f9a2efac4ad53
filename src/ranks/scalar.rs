//! Scalars that are the same on all ranks; the value may be a sum that is not known yet.

use super::collective::{Pending, Ranks};
use super::local::{Link, Local, RankMemory};
use crate::host::Host;
use crate::numbers::Real;
use krysp_solvers::{Result, Scalar, ScalarOf};
use std::ops::{Add, Div, Mul, Neg};
use std::sync::Arc;

/// A scalar whose value is known on all ranks, or a deferred sum over the ranks.
///
/// Deferred sums are communicated together, so that several sums of a step take one collective operation:
/// either when one of them is read, or during the next product, which hides the time of the communication.
/// GPUs with peer access sum directly: the scalar is then stored on each of them, and is read back when the
/// host needs it.
pub struct RankScalar<T: Real, L: Local<T> = Host>(Number<T, L>);

enum Number<T: Real, L: Local<T>> {
    Known(T),
    Sum(Ranks, Arc<Pending>, usize),
    /// Stored on the GPU of each rank.
    OnGpus(ScalarOf<L::Vector>, <L as RankMemory<T>>::Link),
}

impl<T: Real, L: Local<T>> Clone for RankScalar<T, L> {
    fn clone(&self) -> Self {
        RankScalar(match &self.0 {
            Number::Known(value) => Number::Known(*value),
            Number::Sum(ranks, pending, at) => Number::Sum(ranks.clone(), pending.clone(), *at),
            Number::OnGpus(number, link) => Number::OnGpus(number.clone(), link.clone()),
        })
    }
}

impl<T: Real, L: Local<T>> RankScalar<T, L> {
    /// Deferred sums over all ranks; `own` are this rank's parts.
    pub(super) fn sums<const K: usize>(ranks: &Ranks, own: [ScalarOf<L::Vector>; K]) -> [Self; K] {
        RankScalar::whole(ranks, ranks.sum(L::read_back(own)))
    }

    /// A deferred sum over all ranks of numbers in host memory.
    pub(super) fn sum_of_hosts(ranks: &Ranks, own: T) -> Self {
        let [sum] = RankScalar::whole(ranks, ranks.sum(Host::read_back([own])));
        sum
    }

    fn whole<const K: usize>(ranks: &Ranks, pending: Arc<Pending>) -> [Self; K] {
        std::array::from_fn(|at| RankScalar(Number::Sum(ranks.clone(), pending.clone(), at)))
    }

    /// A scalar that is stored on the GPUs of all ranks.
    pub(super) fn on_gpus(number: ScalarOf<L::Vector>, link: &<L as RankMemory<T>>::Link) -> Self {
        RankScalar(Number::OnGpus(number, link.clone()))
    }

    /// Returns whether [`Scalar::read`] returns without waiting.
    pub(super) fn is_known(&self) -> bool {
        match &self.0 {
            Number::Known(_) => true,
            Number::Sum(_, pending, _) => Ranks::known(pending),
            Number::OnGpus(..) => false,
        }
    }

    /// The value; NaN if a rank has failed, which [`Scalar::read`] reports.
    fn value(&self) -> T {
        self.read().unwrap_or(T::from_f64(f64::NAN))
    }

    /// The scalar for operations on this rank's parts of vectors; NaN if a rank has failed.
    pub(super) fn local(&self) -> ScalarOf<L::Vector> {
        match &self.0 {
            Number::OnGpus(number, _) => number.clone(),
            _ => self.value().into(),
        }
    }

    fn link(&self) -> Option<&<L as RankMemory<T>>::Link> {
        match &self.0 {
            Number::OnGpus(_, link) => Some(link),
            _ => None,
        }
    }

    /// Combines two scalars, on the GPUs if one of the scalars is stored there.
    fn joined(
        self,
        other: Self,
        on_host: impl FnOnce(T, T) -> T,
        on_gpus: impl FnOnce(ScalarOf<L::Vector>, ScalarOf<L::Vector>) -> ScalarOf<L::Vector>,
    ) -> Self {
        match self.link().or(other.link()) {
            Some(link) => RankScalar::on_gpus(on_gpus(self.local(), other.local()), link),
            None => on_host(self.value(), other.value()).into(),
        }
    }

    fn mapped(
        self,
        on_host: impl FnOnce(T) -> T,
        on_gpus: impl FnOnce(ScalarOf<L::Vector>) -> ScalarOf<L::Vector>,
    ) -> Self {
        match self.0 {
            Number::OnGpus(number, link) => RankScalar(Number::OnGpus(on_gpus(number), link)),
            _ => on_host(self.value()).into(),
        }
    }
}

impl<T: Real, L: Local<T>> From<T> for RankScalar<T, L> {
    fn from(value: T) -> Self {
        RankScalar(Number::Known(value))
    }
}

impl<T: Real, L: Local<T>> Neg for RankScalar<T, L> {
    type Output = Self;

    fn neg(self) -> Self {
        self.mapped(|a| -a, |a| -a)
    }
}

impl<T: Real, L: Local<T>> Add for RankScalar<T, L> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.joined(other, |a, b| a + b, |a, b| a + b)
    }
}

impl<T: Real, L: Local<T>> Mul for RankScalar<T, L> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        self.joined(other, |a, b| a * b, |a, b| a * b)
    }
}

impl<T: Real, L: Local<T>> Div for RankScalar<T, L> {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        self.joined(other, |a, b| a / b, |a, b| a / b)
    }
}

impl<T: Real, L: Local<T>> Scalar<T> for RankScalar<T, L> {
    fn assign(&mut self, value: &Self) {
        let Some(link) = self.link().or(value.link()).cloned() else { return self.clone_from(value) };
        // a separate cell on the GPU, from which replayed steps read the value
        let mut place = self.local();
        place.assign(&value.local());
        *self = RankScalar(Number::OnGpus(place, link));
    }

    fn read(&self) -> Result<T> {
        match &self.0 {
            Number::Known(value) => Ok(*value),
            Number::Sum(ranks, pending, at) => Ok(T::from_f64(ranks.whole(pending)?[*at])),
            Number::OnGpus(number, link) => {
                let number = number.read()?;
                link.check()?;
                Ok(number)
            }
        }
    }

    fn quotient(self, divisor: Self) -> Self {
        self.joined(divisor, Scalar::quotient, Scalar::quotient)
    }

    fn sqrt(self) -> Self {
        self.mapped(Scalar::sqrt, Scalar::sqrt)
    }
}
