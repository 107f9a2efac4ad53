//! Vectors whose entries are shared out among ranks.

use super::ranks::Ranks;
use super::scalar::RankScalar;
use super::steps::RankSteps;
use crate::{HostBasis, HostSpace, HostVector, Real};
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_solvers::{Basis, Element, Error, Result, Space, Vector, flip_signs};
use std::convert::Infallible;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The space of vectors of which each rank has the entries of a range, in the order of the ranks.
#[derive(Clone)]
pub struct RankSpace<T> {
    ranks: Ranks,
    /// Where the rows of each rank begin, and the number of rows.
    bounds: Arc<[u64]>,
    own: HostSpace<T>,
}

impl<T: Real> RankSpace<T> {
    /// The space in which this rank has so many entries. All ranks call this.
    pub fn new(ranks: &Ranks, own: usize) -> crate::Result<RankSpace<T>> {
        let mut end = 0;
        let ends = ranks.gather(vec![own as u64])?.into_iter().map(|rows| {
            end += rows;
            end
        });
        let bounds = std::iter::once(0).chain(ends).collect();
        Ok(RankSpace { ranks: ranks.clone(), bounds, own: HostSpace::new(own) })
    }

    /// The ranks.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The rows of this rank.
    pub fn rows(&self) -> Range<u64> {
        self.rows_of(self.ranks.rank())
    }

    /// Where the rows of each rank begin, and the number of rows.
    pub(crate) fn bounds(&self) -> &[u64] {
        &self.bounds
    }

    /// The rows of a rank.
    pub(super) fn rows_of(&self, rank: usize) -> Range<u64> {
        self.bounds[rank]..self.bounds[rank + 1]
    }

    /// The space of this rank's part of a vector.
    pub fn own(&self) -> &HostSpace<T> {
        &self.own
    }

    /// A vector of which this rank has these entries.
    pub fn vector(&self, own: &[T]) -> Result<RankVector<T>> {
        Ok(RankVector { own: self.own.vector(own)?, space: self.clone() })
    }
}

impl<T> PartialEq for RankSpace<T> {
    fn eq(&self, other: &Self) -> bool {
        let alike = Arc::ptr_eq(&self.bounds, &other.bounds) || self.bounds == other.bounds;
        alike && self.ranks.same(&other.ranks)
    }
}

impl<T> fmt::Debug for RankSpace<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows {:?} on {:?}", self.bounds, self.ranks)
    }
}

impl<T: Real> Space for RankSpace<T> {
    type Vector = RankVector<T>;

    fn len(&self) -> usize {
        self.bounds.last().map_or(0, |&end| end as usize)
    }

    fn local_len(&self) -> usize {
        self.own.len()
    }

    fn agree(&self, wish: u8) -> Result<u8> {
        Ok(self.ranks.largest(wish)?)
    }

    fn give_up(&self, error: &Error) {
        self.ranks.give_up(&error.to_string());
    }

    fn zeros(&self) -> Result<RankVector<T>> {
        Ok(RankVector { own: self.own.zeros()?, space: self.clone() })
    }

    fn load(&self, host: &[T], into: &mut RankVector<T>) -> Result<()> {
        self.own.load(host, &mut into.own)
    }

    fn store(&self, from: &RankVector<T>, host: &mut [T]) -> Result<()> {
        self.own.store(&from.own, host)
    }
}

/// A vector of which each rank has a part in its memory.
#[derive(Clone, Debug)]
pub struct RankVector<T: Real> {
    pub(super) own: HostVector<T>,
    space: RankSpace<T>,
}

impl<T: Real> RankVector<T> {
    /// The entries of this rank.
    pub fn own(&self) -> &HostVector<T> {
        &self.own
    }

    /// The entries of this rank.
    pub fn own_mut(&mut self) -> &mut HostVector<T> {
        &mut self.own
    }

    fn sums<const K: usize>(&self, own: [T; K]) -> [RankScalar<T>; K] {
        RankScalar::sums(&self.space.ranks, own)
    }

    fn sum(&self, own: T) -> RankScalar<T> {
        let [sum] = self.sums([own]);
        sum
    }
}

impl<T: Real> Vector for RankVector<T> {
    type Elem = T;
    type Scalar = RankScalar<T>;
    type Space = RankSpace<T>;
    type Basis = RankBasis<T>;
    type Steps = RankSteps<T>;
    type Native = Infallible;

    fn space(&self) -> &RankSpace<T> {
        &self.space
    }

    fn copy_from(&mut self, x: &Self) {
        self.own.copy_from(&x.own);
    }

    fn axpby(&mut self, a: &RankScalar<T>, x: &Self, b: &RankScalar<T>) {
        self.own.axpby(&a.value(), &x.own, &b.value());
    }

    fn dot(&self, y: &Self) -> RankScalar<T> {
        self.sum(self.own.dot(&y.own))
    }

    fn multiply(&mut self, d: &Self, x: &Self) {
        self.own.multiply(&d.own, &x.own);
    }

    fn basis(space: &RankSpace<T>, count: usize) -> Result<RankBasis<T>> {
        Ok(RankBasis { own: HostVector::basis(&space.own, count)?, ranks: space.ranks.clone() })
    }

    /// As on one rank: the entries of all are counted on.
    fn flip_signs(&mut self) -> Result<()> {
        let first = self.space.rows().start as usize;
        let entries = self.own.as_mut_slice();
        over_rows(entries.len(), 2, entries, &|rows, entries: &mut [T]| {
            flip_signs(entries, first + rows.start);
        });
        Ok(())
    }

    fn dot_2(&self, y: &Self, z: &Self) -> [RankScalar<T>; 2] {
        self.sums(self.own.dot_2(&y.own, &z.own))
    }

    fn axpbypcz(&mut self, a: &RankScalar<T>, x: &Self, b: &RankScalar<T>, y: &Self, c: &RankScalar<T>) {
        self.own.axpbypcz(&a.value(), &x.own, &b.value(), &y.own, &c.value());
    }

    fn axpy_dot_2(&mut self, a: &RankScalar<T>, x: &Self, y: &Self) -> [RankScalar<T>; 2] {
        let sums = self.own.axpy_dot_2(&a.value(), &x.own, &y.own);
        self.sums(sums)
    }

    fn axpy_norm(&mut self, a: &RankScalar<T>, x: &Self) -> RankScalar<T> {
        let sum = self.own.axpy_norm(&a.value(), &x.own);
        self.sum(sum)
    }

    fn axpy_xpby(&mut self, a: &RankScalar<T>, p: &mut Self, z: &Self, b: &RankScalar<T>) {
        self.own.axpy_xpby(&a.value(), &mut p.own, &z.own, &b.value());
    }

    fn axpy_multiply_dot(
        &mut self,
        a: &RankScalar<T>,
        q: &Self,
        d: &Self,
        z: &mut Self,
    ) -> [RankScalar<T>; 2] {
        let sums = self.own.axpy_multiply_dot(&a.value(), &q.own, &d.own, &mut z.own);
        self.sums(sums)
    }
}

/// An orthonormal basis of which each rank has a part in its memory. The coefficients of a projection are added up over
/// the ranks in one message.
pub struct RankBasis<T: Real> {
    own: HostBasis<T>,
    ranks: Ranks,
}

/// Adds up coefficients over the ranks; NaN if a rank has failed, which the next number that is read reports.
fn add_up<T: Real>(ranks: &Ranks, coefficients: &mut [T]) {
    let pending = ranks.sum(coefficients.iter().map(|&c| Element::to_f64(c)).collect());
    let whole = ranks.whole(&pending).unwrap_or_default();
    let numbers = whole.iter().copied().chain(std::iter::repeat(f64::NAN));
    coefficients.iter_mut().zip(numbers).for_each(|(c, sum)| *c = T::from_f64(sum));
}

impl<T: Real> Basis<RankVector<T>> for RankBasis<T> {
    fn push(&mut self, j: usize, w: &RankVector<T>, norm_squared: &RankScalar<T>) -> Result<()> {
        self.own.push(j, &w.own, &norm_squared.value())
    }

    fn load(&self, j: usize, w: &mut RankVector<T>) {
        self.own.load(j, &mut w.own);
    }

    fn project(&mut self, k: usize, w: &RankVector<T>) {
        self.own.project_with(k, &w.own, |c| add_up(&self.ranks, c));
    }

    fn subtract(&mut self, k: usize, w: &mut RankVector<T>) {
        self.own.subtract(k, &mut w.own);
    }

    fn subtract_project(&mut self, k: usize, w: &mut RankVector<T>) {
        self.own.subtract_project_with(k, &mut w.own, |c| add_up(&self.ranks, c));
    }

    fn subtract_norm(&mut self, k: usize, w: &mut RankVector<T>) -> RankScalar<T> {
        let sum = self.own.subtract_norm(k, &mut w.own);
        w.sum(sum)
    }

    fn coefficients(&self, c: &mut [T]) -> Result<()> {
        self.own.coefficients(c)
    }

    fn record(&self, k: usize, steps: &mut RankSteps<T>) -> Result<()> {
        steps.record_known(self.own.total(k));
        Ok(())
    }

    fn combine(&mut self, y: &[T], x: &mut RankVector<T>) -> Result<()> {
        self.own.combine(y, &mut x.own)
    }
}
