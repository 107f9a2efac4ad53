//! Vectors split between the memory of the host and of coprocessors.

use super::coprocessor::Coprocessor;
use super::scalar::{Failure, SplitScalar, check, first};
use crate::host::{HostSpace, HostVector, gather};
use crate::numbers::Real;
use krysp_kernels::interrupt;
use krysp_solvers::{BasicVector, Error, Immediate, Result, ScalarOf, Space, SpaceOf, Vector, VectorBasis};
use std::convert::Infallible;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Space of vectors whose first entries are in host memory and whose others are on coprocessors.
pub struct SplitSpace<T: Real, M: Coprocessor<T>> {
    /// Length and order of all entries.
    whole: HostSpace<T>,
    host: HostSpace<T>,
    others: Arc<Vec<(M, SpaceOf<M::Vector>)>>,
    /// Boundaries between the parts.
    bounds: Arc<Vec<usize>>,
}

impl<T: Real, M: Coprocessor<T>> SplitSpace<T, M> {
    /// The space with entries `bounds[0]..bounds[1]` on the host, and the next ranges on the machines.
    pub(super) fn new(whole: HostSpace<T>, bounds: Vec<usize>, machines: &[M]) -> Self {
        let lengths = bounds.windows(2).skip(1).map(|b| b[1] - b[0]);
        let others = machines.iter().zip(lengths).map(|(m, len)| (m.clone(), m.space(len))).collect();
        let (host, bounds) = (HostSpace::new(bounds[1] - bounds[0]), Arc::new(bounds));
        SplitSpace { whole, host, others: Arc::new(others), bounds }
    }

    /// The space of all entries in host memory.
    pub fn whole(&self) -> &HostSpace<T> {
        &self.whole
    }

    /// The space of the entries on the host.
    pub fn host(&self) -> &HostSpace<T> {
        &self.host
    }

    /// The machines, with the space of the entries on each.
    pub(super) fn others(&self) -> &[(M, SpaceOf<M::Vector>)] {
        &self.others
    }

    /// Ranges of the entries of the host and of each machine.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.bounds.windows(2).map(|b| b[0]..b[1])
    }

    /// A vector with these entries, given in the user's order.
    pub fn vector(&self, entries: &[T]) -> Result<SplitVector<T, M>> {
        let mut vector = self.zeros()?;
        self.load(entries, &mut vector)?;
        Ok(vector)
    }

    /// Copies entries in the order of the space.
    pub(super) fn load_ordered(&self, entries: &[T], into: &mut SplitVector<T, M>) -> Result<()> {
        let mut ranges = self.ranges();
        let of_host = ranges.next().unwrap_or_default();
        for (((_, space), part), range) in self.others.iter().zip(&mut into.others).zip(ranges) {
            space.load(&entries[range], part)?;
        }
        into.failure = None;
        self.host.load(&entries[of_host], &mut into.host)
    }

    fn fits(&self, what: &'static str, got: usize) -> Result<()> {
        let expected = self.len();
        if got == expected { Ok(()) } else { Err(Error::Size { what, got, of: "the space", expected }) }
    }

    /// Sums over all entries. `of_other` queues the part of a coprocessor; then `of_host` computes that of the
    /// host. `failure` is that of the vectors.
    fn sums<const K: usize>(
        &self,
        failure: Failure,
        mut of_other: impl FnMut(usize) -> [ScalarOf<M::Vector>; K],
        of_host: impl FnOnce() -> [T; K],
    ) -> [SplitScalar<T>; K] {
        let machines = self.others.iter().enumerate();
        let awaited = machines.map(|(k, (machine, _))| machine.read_back(of_other(k))).collect();
        SplitScalar::sums(of_host(), awaited, failure)
    }
}

impl<T: Real, M: Coprocessor<T>> Clone for SplitSpace<T, M> {
    fn clone(&self) -> Self {
        SplitSpace {
            whole: self.whole.clone(),
            host: self.host.clone(),
            others: self.others.clone(),
            bounds: self.bounds.clone(),
        }
    }
}

impl<T: Real, M: Coprocessor<T>> PartialEq for SplitSpace<T, M> {
    fn eq(&self, other: &Self) -> bool {
        let spaces = |of: &Self| of.others.iter().map(|(_, space)| space.clone()).collect::<Vec<_>>();
        self.whole == other.whole
            && self.bounds == other.bounds
            && (Arc::ptr_eq(&self.others, &other.others) || spaces(self) == spaces(other))
    }
}

impl<T: Real, M: Coprocessor<T>> fmt::Debug for SplitSpace<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SplitSpace")
            .field("bounds", &self.bounds)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}

impl<T: Real, M: Coprocessor<T>> Space for SplitSpace<T, M> {
    type Vector = SplitVector<T, M>;

    fn len(&self) -> usize {
        self.whole.len()
    }

    fn is_interrupted(&self) -> bool {
        interrupt::is_raised()
    }

    fn zeros(&self) -> Result<SplitVector<T, M>> {
        let others = self.others.iter().map(|(_, space)| space.zeros()).collect::<Result<_>>()?;
        Ok(SplitVector { host: self.host.zeros()?, others, space: self.clone(), failure: None })
    }

    fn load(&self, host: &[T], into: &mut SplitVector<T, M>) -> Result<()> {
        self.fits("the host slice", host.len())?;
        self.fits("the vector", into.space.len())?;
        match self.whole.permutation() {
            None => self.load_ordered(host, into),
            Some(permutation) => {
                let mut entries = vec![T::zero(); host.len()];
                gather(host, permutation.old_of_new(), &mut entries);
                self.load_ordered(&entries, into)
            }
        }
    }

    fn store(&self, from: &SplitVector<T, M>, host: &mut [T]) -> Result<()> {
        self.fits("the host slice", host.len())?;
        self.fits("the vector", from.space.len())?;
        let mut ordered = self.whole.permutation().map(|_| vec![T::zero(); host.len()]);
        let entries = ordered.as_deref_mut().unwrap_or(host);
        let mut ranges = self.ranges();
        self.host.store(&from.host, &mut entries[ranges.next().unwrap_or_default()])?;
        for (((_, space), part), range) in self.others.iter().zip(&from.others).zip(ranges) {
            space.store(part, &mut entries[range])?;
        }
        if let (Some(ordered), Some(permutation)) = (&ordered, self.whole.permutation()) {
            gather(ordered, permutation.new_of_old(), host);
        }
        check(&from.failure)
    }
}

/// A vector whose first entries are in host memory and whose others are on coprocessors.
///
/// An operation is queued on the coprocessors, then computed on the host by all threads. Parts of sums are
/// added in the order of the processors, so that results are bitwise repeatable.
pub struct SplitVector<T: Real, M: Coprocessor<T>> {
    pub(super) host: HostVector<T>,
    pub(super) others: Vec<M::Vector>,
    space: SplitSpace<T, M>,
    /// Failure of a number or vector from which the entries were computed.
    pub(super) failure: Failure,
}

impl<T: Real, M: Coprocessor<T>> SplitVector<T, M> {
    /// The entries on the host.
    pub fn host(&self) -> &HostVector<T> {
        &self.host
    }

    /// The entries on each coprocessor.
    pub fn others(&self) -> &[M::Vector] {
        &self.others
    }
}

/// The failure of `b y` for the vector `y` that a sum replaces: none if `b` is zero, because then its entries are not read.
fn scaled<'f, T: Real>(b: &'f SplitScalar<T>, y: &'f Failure) -> [&'f Failure; 2] {
    [b.failure(), if b.value().is_zero() { &None } else { y }]
}

/// The scalar of a coprocessor with the value of `a`.
fn of<T: Real, M: Coprocessor<T>>(a: T) -> ScalarOf<M::Vector> {
    a.into()
}

impl<T: Real, M: Coprocessor<T>> BasicVector for SplitVector<T, M> {
    type Elem = T;
    type Scalar = SplitScalar<T>;
    type Space = SplitSpace<T, M>;
    type Basis = VectorBasis<Self>;
    type Steps = Immediate<Self>;
    type Native = Infallible;

    fn space(&self) -> &SplitSpace<T, M> {
        &self.space
    }

    fn copy_from(&mut self, x: &Self) {
        self.failure = x.failure.clone();
        self.others.iter_mut().zip(&x.others).for_each(|(y, x)| y.copy_from(x));
        self.host.copy_from(&x.host);
    }

    fn axpby(&mut self, a: &SplitScalar<T>, x: &Self, b: &SplitScalar<T>) {
        self.failure = first([a.failure(), &x.failure].into_iter().chain(scaled(b, &self.failure)));
        let (a, b) = (a.value(), b.value());
        for (y, x) in self.others.iter_mut().zip(&x.others) {
            y.axpby(&of::<T, M>(a), x, &of::<T, M>(b));
        }
        self.host.axpby(&a, &x.host, &b);
    }

    fn dot(&self, y: &Self) -> SplitScalar<T> {
        let failure = first([&self.failure, &y.failure]);
        let of_other = |k: usize| [self.others[k].dot(&y.others[k])];
        let [dot] = self.space.sums(failure, of_other, || [self.host.dot(&y.host)]);
        dot
    }

    fn multiply(&mut self, d: &Self, x: &Self) {
        self.failure = first([&d.failure, &x.failure]);
        for ((y, d), x) in self.others.iter_mut().zip(&d.others).zip(&x.others) {
            y.multiply(d, x);
        }
        self.host.multiply(&d.host, &x.host);
    }

    fn basis(space: &SplitSpace<T, M>, count: usize) -> Result<VectorBasis<Self>> {
        VectorBasis::new(space, count)
    }
}

impl<T: Real, M: Coprocessor<T>> Vector for SplitVector<T, M> {
    fn norm_squared(&self) -> SplitScalar<T> {
        let of_other = |k: usize| [self.others[k].norm_squared()];
        let [sum] = self.space.sums(self.failure.clone(), of_other, || [self.host.norm_squared()]);
        sum
    }

    fn dot_2(&self, y: &Self, z: &Self) -> [SplitScalar<T>; 2] {
        let failure = first([&self.failure, &y.failure, &z.failure]);
        let of_other = |k: usize| self.others[k].dot_2(&y.others[k], &z.others[k]);
        self.space.sums(failure, of_other, || self.host.dot_2(&y.host, &z.host))
    }

    fn axpbypcz(&mut self, a: &SplitScalar<T>, x: &Self, b: &SplitScalar<T>, y: &Self, c: &SplitScalar<T>) {
        let terms = [a.failure(), &x.failure, b.failure(), &y.failure];
        self.failure = first(terms.into_iter().chain(scaled(c, &self.failure)));
        let [a, b, c] = [a, b, c].map(SplitScalar::value);
        for ((z, x), y) in self.others.iter_mut().zip(&x.others).zip(&y.others) {
            z.axpbypcz(&of::<T, M>(a), x, &of::<T, M>(b), y, &of::<T, M>(c));
        }
        self.host.axpbypcz(&a, &x.host, &b, &y.host, &c);
    }

    fn axpy_dot_2(&mut self, a: &SplitScalar<T>, x: &Self, y: &Self) -> [SplitScalar<T>; 2] {
        self.failure = first([a.failure(), &x.failure, &self.failure]);
        let (a, failure) = (a.value(), first([&self.failure, &y.failure]));
        let Self { host, others, space, .. } = self;
        let of_other = |k: usize| others[k].axpy_dot_2(&of::<T, M>(a), &x.others[k], &y.others[k]);
        space.sums(failure, of_other, || host.axpy_dot_2(&a, &x.host, &y.host))
    }

    fn axpy_norm(&mut self, a: &SplitScalar<T>, x: &Self) -> SplitScalar<T> {
        self.failure = first([a.failure(), &x.failure, &self.failure]);
        let (a, Self { host, others, space, failure }) = (a.value(), self);
        let of_other = |k: usize| [others[k].axpy_norm(&of::<T, M>(a), &x.others[k])];
        let [sum] = space.sums(failure.clone(), of_other, || [host.axpy_norm(&a, &x.host)]);
        sum
    }

    fn axpy_xpby(&mut self, a: &SplitScalar<T>, p: &mut Self, z: &Self, b: &SplitScalar<T>) {
        self.failure = first([a.failure(), &p.failure, &self.failure]);
        p.failure = first([&z.failure].into_iter().chain(scaled(b, &p.failure)));
        let (a, b) = (a.value(), b.value());
        for ((x, p), z) in self.others.iter_mut().zip(&mut p.others).zip(&z.others) {
            x.axpy_xpby(&of::<T, M>(a), p, z, &of::<T, M>(b));
        }
        self.host.axpy_xpby(&a, &mut p.host, &z.host, &b);
    }

    fn multiply_dot(&mut self, d: &Self, x: &Self) -> SplitScalar<T> {
        self.failure = first([&d.failure, &x.failure]);
        let Self { host, others, space, failure } = self;
        let of_other = |k: usize| [others[k].multiply_dot(&d.others[k], &x.others[k])];
        let [sum] = space.sums(failure.clone(), of_other, || [host.multiply_dot(&d.host, &x.host)]);
        sum
    }

    fn axpy_multiply_dot(
        &mut self,
        a: &SplitScalar<T>,
        q: &Self,
        d: &Self,
        z: &mut Self,
    ) -> [SplitScalar<T>; 2] {
        self.failure = first([a.failure(), &q.failure, &self.failure]);
        z.failure = first([&self.failure, &d.failure]);
        let (a, Self { host, others, space, .. }) = (a.value(), self);
        let of_other = |k: usize| {
            others[k].axpy_multiply_dot(&of::<T, M>(a), &q.others[k], &d.others[k], &mut z.others[k])
        };
        space.sums(z.failure.clone(), of_other, || host.axpy_multiply_dot(&a, &q.host, &d.host, &mut z.host))
    }
}
