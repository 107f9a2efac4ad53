//! Vectors whose entries are distributed over the ranks.

use super::collective::{Own, Ranks};
use super::local::{BasisOf, Link, Local, RankMemory};
use super::scalar::RankScalar;
use super::steps::RankSteps;
use crate::host::Host;
use crate::numbers::Real;
use krysp_solvers::{
    BasicVector, Basis, CgUpdate, Element, Error, Result, ScalarOf, Space, SpaceOf, Vector, flip_signs,
};
use std::convert::Infallible;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The space of distributed vectors ([`Space`]: memory, length and order of unknowns): each rank has the
/// entries of a range, in the order of the ranks.
pub struct RankSpace<T: Real, L: Local<T> = Host> {
    ranks: Ranks,
    /// First row of each rank, then the total number of rows: `ranks + 1` numbers.
    bounds: Arc<[u64]>,
    own: SpaceOf<L::Vector>,
    /// Link between the GPUs of all ranks, if they can access each other's memory.
    link: Option<<L as RankMemory<T>>::Link>,
}

impl<T: Real> RankSpace<T> {
    /// The space in which this rank has `own` entries. Collective: all ranks call this.
    pub fn new(ranks: &Ranks, own: usize) -> crate::error::Result<RankSpace<T>> {
        let mut end = 0;
        let ends = ranks.all_gather(vec![own as u64])?.into_iter().map(|rows| {
            end += rows;
            end
        });
        let bounds = std::iter::once(0).chain(ends).collect();
        Ok(RankSpace { ranks: ranks.clone(), bounds, own: Host.space(own), link: None })
    }
}

impl<T: Real, L: Local<T>> RankSpace<T, L> {
    /// The space of vectors with this part on this rank, given the first row of each rank and the number of rows.
    pub(super) fn of(
        ranks: Ranks,
        bounds: Arc<[u64]>,
        own: SpaceOf<L::Vector>,
        link: Option<<L as RankMemory<T>>::Link>,
    ) -> RankSpace<T, L> {
        RankSpace { ranks, bounds, own, link }
    }

    /// The space of the same vectors with this rank's part in the memory of `local`. Collective: all ranks
    /// call this.
    #[cfg(feature = "cuda")]
    pub(super) fn at<To: Local<T>>(&self, local: &To) -> crate::error::Result<RankSpace<T, To>> {
        let link = local.link(&self.ranks)?;
        Ok(RankSpace::of(self.ranks.clone(), self.bounds.clone(), local.space(self.own.len()), link))
    }

    pub(super) fn link(&self) -> Option<&<L as RankMemory<T>>::Link> {
        self.link.as_ref()
    }

    /// Sums over all ranks; `own` computes or enqueues this rank's parts.
    pub(super) fn sums<const K: usize>(
        &self,
        own: impl FnOnce() -> [ScalarOf<L::Vector>; K],
    ) -> [RankScalar<T, L>; K] {
        match &self.link {
            Some(link) => link.sum(own).map(|sum| RankScalar::on_gpus(sum, link)),
            None => RankScalar::sums(&self.ranks, own()),
        }
    }

    fn sum(&self, own: impl FnOnce() -> ScalarOf<L::Vector>) -> RankScalar<T, L> {
        let [sum] = self.sums(|| [own()]);
        sum
    }

    /// The ranks.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The range of rows of this rank.
    pub fn rows(&self) -> Range<u64> {
        self.rows_of(self.ranks.rank())
    }

    /// First row of each rank, then the total number of rows: `ranks + 1` numbers.
    pub(crate) fn bounds(&self) -> &[u64] {
        &self.bounds
    }

    /// The rows of a rank.
    pub(super) fn rows_of(&self, rank: usize) -> Range<u64> {
        self.bounds[rank]..self.bounds[rank + 1]
    }

    /// The space of this rank's part of a vector.
    pub fn own(&self) -> &SpaceOf<L::Vector> {
        &self.own
    }

    /// A vector with these entries on this rank.
    pub fn vector(&self, own: &[T]) -> Result<RankVector<T, L>> {
        let mut vector = self.zeros()?;
        self.load(own, &mut vector)?;
        Ok(vector)
    }
}

impl<T: Real, L: Local<T>> Clone for RankSpace<T, L> {
    fn clone(&self) -> Self {
        let RankSpace { ranks, bounds, own, link } = self;
        RankSpace { ranks: ranks.clone(), bounds: bounds.clone(), own: own.clone(), link: link.clone() }
    }
}

impl<T: Real, L: Local<T>> PartialEq for RankSpace<T, L> {
    fn eq(&self, other: &Self) -> bool {
        let alike = Arc::ptr_eq(&self.bounds, &other.bounds) || self.bounds == other.bounds;
        alike && self.own == other.own && self.ranks.same(&other.ranks)
    }
}

impl<T: Real, L: Local<T>> fmt::Debug for RankSpace<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows {:?} on {:?}", self.bounds, self.ranks)
    }
}

impl<T: Real, L: Local<T>> Space for RankSpace<T, L> {
    type Vector = RankVector<T, L>;

    fn len(&self) -> usize {
        self.bounds.last().map_or(0, |&end| end as usize)
    }

    fn local_len(&self) -> usize {
        self.own.len()
    }

    fn agree(&self, wish: u8) -> Result<u8> {
        Ok(self.ranks.largest(wish)?)
    }

    fn report_failure(&self, error: &Error) {
        self.ranks.report_failure(&error.to_string());
    }

    fn zeros(&self) -> Result<RankVector<T, L>> {
        Ok(RankVector { own: self.own.zeros()?, space: self.clone() })
    }

    /// If the GPUs communicate peer to peer, first synchronizes the hosts, because a GPU waits for others
    /// only for a limited time. A solve begins by loading `b`.
    fn load(&self, host: &[T], into: &mut RankVector<T, L>) -> Result<()> {
        if self.link.is_some() {
            self.agree(0)?;
        }
        self.own.load(host, &mut into.own)
    }

    fn store(&self, from: &RankVector<T, L>, host: &mut [T]) -> Result<()> {
        self.own.store(&from.own, host)
    }
}

/// A vector of which each rank has a part.
pub struct RankVector<T: Real, L: Local<T> = Host> {
    pub(super) own: L::Vector,
    space: RankSpace<T, L>,
}

impl<T: Real, L: Local<T>> RankVector<T, L> {
    /// The entries of this rank.
    pub fn own(&self) -> &L::Vector {
        &self.own
    }

    /// The entries of this rank.
    pub fn own_mut(&mut self) -> &mut L::Vector {
        &mut self.own
    }
}

impl<T: Real> Clone for RankVector<T> {
    fn clone(&self) -> Self {
        RankVector { own: self.own.clone(), space: self.space.clone() }
    }
}

impl<T: Real, L: Local<T, Vector: fmt::Debug>> fmt::Debug for RankVector<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankVector").field("own", &self.own).field("space", &self.space).finish()
    }
}

impl<T: Real, L: Local<T>> BasicVector for RankVector<T, L> {
    type Elem = T;
    type Scalar = RankScalar<T, L>;
    type Space = RankSpace<T, L>;
    type Basis = RankBasis<T, L>;
    type Steps = RankSteps<T, L>;
    type Native = Infallible;

    fn space(&self) -> &RankSpace<T, L> {
        &self.space
    }

    fn copy_from(&mut self, x: &Self) {
        self.own.copy_from(&x.own);
    }

    fn axpby(&mut self, a: &RankScalar<T, L>, x: &Self, b: &RankScalar<T, L>) {
        self.own.axpby(&a.local(), &x.own, &b.local());
    }

    fn dot(&self, y: &Self) -> RankScalar<T, L> {
        self.space.sum(|| self.own.dot(&y.own))
    }

    fn multiply(&mut self, d: &Self, x: &Self) {
        self.own.multiply(&d.own, &x.own);
    }

    fn basis(space: &RankSpace<T, L>, count: usize) -> Result<RankBasis<T, L>> {
        let (own, zeros) = (L::Vector::basis(&space.own, count)?, vec![T::zero(); count]);
        Ok(RankBasis { own, space: space.clone(), c: zeros.clone(), total: zeros })
    }
}

impl<T: Real, L: Local<T>> Vector for RankVector<T, L> {
    /// Flips the same signs as for a vector on one rank: signs depend on global indices.
    fn flip_signs(&mut self) -> Result<()> {
        let mut entries = vec![T::zero(); self.space.local_len()];
        self.space.own.store(&self.own, &mut entries)?;
        flip_signs(&mut entries, self.space.rows().start as usize);
        self.space.own.load(&entries, &mut self.own)
    }

    fn dot_2(&self, y: &Self, z: &Self) -> [RankScalar<T, L>; 2] {
        self.space.sums(|| self.own.dot_2(&y.own, &z.own))
    }

    fn axpbypcz(
        &mut self,
        a: &RankScalar<T, L>,
        x: &Self,
        b: &RankScalar<T, L>,
        y: &Self,
        c: &RankScalar<T, L>,
    ) {
        self.own.axpbypcz(&a.local(), &x.own, &b.local(), &y.own, &c.local());
    }

    fn axpy_dot_2(&mut self, a: &RankScalar<T, L>, x: &Self, y: &Self) -> [RankScalar<T, L>; 2] {
        let (a, RankVector { own, space }) = (a.local(), self);
        space.sums(|| own.axpy_dot_2(&a, &x.own, &y.own))
    }

    fn axpy_norm(&mut self, a: &RankScalar<T, L>, x: &Self) -> RankScalar<T, L> {
        let (a, RankVector { own, space }) = (a.local(), self);
        space.sum(|| own.axpy_norm(&a, &x.own))
    }

    fn axpy_xpby(&mut self, a: &RankScalar<T, L>, p: &mut Self, z: &Self, b: &RankScalar<T, L>) {
        self.own.axpy_xpby(&a.local(), &mut p.own, &z.own, &b.local());
    }

    fn axpy_multiply_dot(
        &mut self,
        a: &RankScalar<T, L>,
        q: &Self,
        d: &Self,
        z: &mut Self,
    ) -> [RankScalar<T, L>; 2] {
        let (a, RankVector { own, space }) = (a.local(), self);
        space.sums(|| own.axpy_multiply_dot(&a, &q.own, &d.own, &mut z.own))
    }

    fn cg_update(at: CgUpdate<'_, Self>) -> [RankScalar<T, L>; 2] {
        let CgUpdate { alpha, rho, q, d, x, r, p, z } = at;
        if r.space.link.is_none() {
            // the hosts need the sums of the first operation before the second one can begin
            let [norm_squared, rho_next] = r.axpy_multiply_dot(&-alpha.clone(), q, d, z);
            x.axpy_xpby(alpha, p, z, &(rho_next.clone() / rho.clone()));
            return [norm_squared, rho_next];
        }
        let (alpha, rho, RankVector { own: r, space }) = (&alpha.local(), &rho.local(), r);
        let (q, d, x, p, z) = (&q.own, &d.own, &mut x.own, &mut p.own, &mut z.own);
        space.sums(|| L::Vector::cg_update(CgUpdate { alpha, rho, q, d, x, r, p, z }))
    }
}

/// An orthonormal basis of which each rank has a part. The coefficients of a projection are summed over the
/// ranks in one collective operation, or by GPUs with peer access.
pub struct RankBasis<T: Real, L: Local<T> = Host> {
    own: BasisOf<T, L>,
    space: RankSpace<T, L>,
    /// Coefficients of the last projection, over all ranks, if the hosts sum them.
    c: Vec<T>,
    /// Coefficients accumulated since the last [`Basis::project`].
    total: Vec<T>,
}

impl<T: Real, L: Local<T>> RankBasis<T, L> {
    /// Computes `k` coefficients and sums them over the ranks. They are NaN if a rank has failed; the error
    /// is returned when the next scalar is read.
    fn find(&mut self, k: usize, find: impl FnOnce(&mut BasisOf<T, L>)) {
        let RankBasis { own, space, c, .. } = self;
        if let Some(link) = &space.link {
            return link.sum(|| find(own));
        }
        find(own);
        let c = &mut c[..k];
        let read = own.coefficients(c);
        let numbers: Vec<f64> = c.iter().map(|&c| Element::to_f64(c)).collect();
        let known: Own = Box::new(move || Ok(read.map(|()| numbers)?));
        let pending = space.ranks.sum(known);
        let whole = space.ranks.whole(&pending).unwrap_or_default();
        let numbers = whole.iter().copied().chain(std::iter::repeat(f64::NAN));
        c.iter_mut().zip(numbers).for_each(|(c, sum)| *c = T::from_f64(sum));
        if L::replace_coefficients(own, c).is_err() {
            c.fill(T::from_f64(f64::NAN));
        }
    }
}

impl<T: Real, L: Local<T>> Basis<RankVector<T, L>> for RankBasis<T, L> {
    fn push(&mut self, j: usize, w: &RankVector<T, L>, norm_squared: &RankScalar<T, L>) -> Result<()> {
        self.own.push(j, &w.own, &norm_squared.local())
    }

    fn load(&self, j: usize, w: &mut RankVector<T, L>) {
        self.own.load(j, &mut w.own);
    }

    fn project(&mut self, k: usize, w: &RankVector<T, L>) {
        self.find(k, |own| own.project(k, &w.own));
        self.total[..k].copy_from_slice(&self.c[..k]);
    }

    fn subtract(&mut self, k: usize, w: &mut RankVector<T, L>) {
        self.own.subtract(k, &mut w.own);
    }

    fn subtract_project(&mut self, k: usize, w: &mut RankVector<T, L>) {
        self.find(k, |own| own.subtract_project(k, &mut w.own));
        self.total[..k].iter_mut().zip(&self.c).for_each(|(total, &c)| *total += c);
    }

    fn subtract_norm(&mut self, k: usize, w: &mut RankVector<T, L>) -> RankScalar<T, L> {
        let RankBasis { own, space, .. } = self;
        space.sum(|| own.subtract_norm(k, &mut w.own))
    }

    fn coefficients(&self, c: &mut [T]) -> Result<()> {
        if let Some(link) = &self.space.link {
            self.own.coefficients(c)?;
            return Ok(link.check()?);
        }
        c.copy_from_slice(&self.c[..c.len()]);
        Ok(())
    }

    fn record(&self, k: usize, steps: &mut RankSteps<T, L>) -> Result<()> {
        match steps.of_gpu() {
            Some(steps) => self.own.record(k, steps),
            None => {
                steps.record_known(&self.total[..k]);
                Ok(())
            }
        }
    }

    fn combine(&mut self, y: &[T], x: &mut RankVector<T, L>) -> Result<()> {
        self.own.combine(y, &mut x.own)
    }
}
