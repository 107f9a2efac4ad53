//! Where a rank has its part of vectors and matrices: host memory, or a GPU.

use super::halo::{Halo, Routes};
use super::ranks::{Own, Ranks};
use crate::choice::{Machine, Stores};
use crate::{CoarseSpace, Csr, Host, HostSpace, HostVector, Operator, Real, Result};
use krysp_solvers::{Element, LinearOperator, ScalarOf, Space, SpaceOf, StepsOf, Vector};
use std::convert::Infallible;
use std::fmt;

/// The bases of a rank.
pub(super) type BasisOf<T, L> = <<L as Stores<T>>::Vector as Vector>::Basis;

/// What a rank computes with: [`Host`], its threads, or a [`Cuda`](crate::Cuda), its GPU.
pub trait Local<T: Real>: Keeps<T> {}

impl<T: Real> Local<T> for Host {}
#[cfg(feature = "cuda")]
impl<T: Real> Local<T> for crate::Cuda {}

/// What ranks ask of the memory that has their parts.
pub trait Keeps<T: Real>: Machine<T> + Clone + fmt::Debug + Send + Sync + 'static {
    /// The entries of a rank's rows in columns of other ranks.
    type Border: Border<T, Self::Vector>;

    /// What joins GPUs of all ranks.
    type Link: Link;

    /// Joins them, where they reach each other's memory: sums and entries of `x` then pass between them without the hosts. All
    /// ranks call this.
    fn link(&self, ranks: &Ranks) -> Result<Option<Self::Link>>;

    /// The space of vectors with so many entries.
    fn space(&self, len: usize) -> SpaceOf<Self::Vector>;

    /// Prepares products with rows that have entries in columns of other ranks: a row of `outside` for each of `rows`, a
    /// column for each ghost. All ranks call this.
    fn border(
        &self,
        routes: &Routes,
        link: Option<&Self::Link>,
        own: usize,
        rows: &[u32],
        outside: Csr<T>,
    ) -> Result<Self::Border>;

    /// Begins a step of joined GPUs; `true` if its work is to be queued, and [`Keeps::end_step`] to be called then.
    fn begin_step(_: &mut StepsOf<Self::Vector>, _: usize, _: bool) -> krysp_solvers::Result<bool> {
        Ok(true)
    }

    /// Ends it; `ok` unless that failed. `true` if its work is to be queued again.
    fn end_step(_: &mut StepsOf<Self::Vector>, _: bool) -> krysp_solvers::Result<bool> {
        Ok(false)
    }

    /// Sums of this rank, for the host that adds up those of all ranks.
    fn told<const K: usize>(sums: [ScalarOf<Self::Vector>; K]) -> Own;

    /// What restrictions to aggregates of this rank's rows need.
    type Aggregates: Aggregated<T, Self::Vector> + fmt::Debug;

    /// Prepares restrictions to the aggregates of a coarse space of this rank's rows.
    fn aggregates(space: &SpaceOf<Self::Vector>, coarse: &CoarseSpace<T>) -> Result<Self::Aggregates>;

    /// Coefficients of a projection in place of those that this rank has found.
    fn replace_coefficients(basis: &mut BasisOf<T, Self>, c: &[T]) -> krysp_solvers::Result<()>;
}

/// GPUs of all ranks that reach each other's memory.
pub trait Link: Clone + fmt::Debug + Send + Sync {
    /// Queues work whose sums are those of all ranks.
    fn sum<R>(&self, work: impl FnOnce() -> R) -> R;

    /// An error if a rank has given up: numbers that are read then are none.
    fn check(&self) -> Result<()>;
}

/// Hosts are not joined in this way.
impl Link for Infallible {
    fn sum<R>(&self, _: impl FnOnce() -> R) -> R {
        match *self {}
    }

    fn check(&self) -> Result<()> {
        match *self {}
    }
}

/// The entries of a rank's rows in columns of other ranks, with what a product needs of those.
pub trait Border<T: Real, V: Vector<Elem = T>>: Send {
    /// Sends what others read of `x`, and sums that wait, while `own` computes or is queued.
    fn send<R>(&mut self, x: &V, own: impl FnOnce() -> krysp_solvers::Result<R>) -> krysp_solvers::Result<R>;

    /// Waits for the ghosts; `y ← y + A_ghost ghosts`.
    fn add(&mut self, x: &V, y: &mut V) -> krysp_solvers::Result<()>;

    /// [`Border::add`], and `⟨x, y⟩` over the rows of this rank, where `own` is what it was before; over all rows, where GPUs are
    /// joined.
    fn add_dot(&mut self, x: &V, y: &mut V, own: V::Scalar) -> krysp_solvers::Result<V::Scalar>;

    /// The ghosts of a vector of which the host has this rank's entries.
    fn ghosts(&mut self, x: &[T]) -> Result<Vec<T>>;

    /// New values, in the order in which `outside` was given.
    fn refresh(&mut self, values: &[T]) -> Result<()>;

    /// Those entries.
    fn outside(&self) -> Result<Csr<T>>;

    /// Bytes that a product reads.
    fn bytes(&self) -> usize;
}

/// Sums over aggregates, and what comes back from there.
pub trait Aggregated<T: Real, V: Vector<Elem = T>>: Send + Sync {
    /// `Zᵀ r`
    fn restrict(&self, r: &V) -> krysp_solvers::Result<Vec<T>>;

    /// `z ← z + Z e`
    fn prolong(&self, e: &[T], z: &mut V) -> krysp_solvers::Result<()>;
}

impl<T: Real> Aggregated<T, HostVector<T>> for CoarseSpace<T> {
    fn restrict(&self, r: &HostVector<T>) -> krysp_solvers::Result<Vec<T>> {
        let mut restricted = vec![T::zero(); self.unknowns()];
        self.kernel().restrict(r.as_slice(), &mut restricted);
        Ok(restricted)
    }

    fn prolong(&self, e: &[T], z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.kernel().prolong(e, z.as_mut_slice());
        Ok(())
    }
}

impl<T: Real> Keeps<T> for Host {
    type Border = HostBorder<T>;
    type Aggregates = CoarseSpace<T>;
    type Link = Infallible;

    fn link(&self, _: &Ranks) -> Result<Option<Infallible>> {
        Ok(None)
    }

    fn space(&self, len: usize) -> HostSpace<T> {
        HostSpace::new(len)
    }

    fn border(
        &self,
        routes: &Routes,
        _: Option<&Infallible>,
        _: usize,
        rows: &[u32],
        outside: Csr<T>,
    ) -> Result<HostBorder<T>> {
        let stored = || {
            let outside = Operator::auto(&outside, &Host)?;
            let [ghosts, sums] = [outside.domain().zeros()?, outside.range().zeros()?];
            Ok((outside, ghosts, sums))
        };
        let (outside, ghosts, sums) = routes.ranks().all(stored())?;
        Ok(HostBorder { rows: rows.to_vec(), outside, halo: routes.halo()?, ghosts, sums })
    }

    fn told<const K: usize>(sums: [T; K]) -> Own {
        let own = sums.map(Element::to_f64).to_vec();
        Box::new(|| Ok(own))
    }

    fn aggregates(_: &HostSpace<T>, coarse: &CoarseSpace<T>) -> Result<CoarseSpace<T>> {
        Ok(coarse.clone())
    }

    fn replace_coefficients(basis: &mut crate::HostBasis<T>, c: &[T]) -> krysp_solvers::Result<()> {
        basis.replace_coefficients(c);
        Ok(())
    }
}

/// A border in host memory.
pub struct HostBorder<T: Real> {
    rows: Vec<u32>,
    outside: Operator<HostVector<T>>,
    halo: Halo<T>,
    ghosts: HostVector<T>,
    /// What ghosts contribute to the rows.
    sums: HostVector<T>,
}

impl<T: Real> Border<T, HostVector<T>> for HostBorder<T> {
    fn send<R>(
        &mut self,
        x: &HostVector<T>,
        own: impl FnOnce() -> krysp_solvers::Result<R>,
    ) -> krysp_solvers::Result<R> {
        self.halo.start(x.as_slice())?;
        self.halo.ranks().send_sums()?;
        own()
    }

    fn add(&mut self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.add_dot(x, y, T::zero()).map(|_| ())
    }

    fn add_dot(&mut self, x: &HostVector<T>, y: &mut HostVector<T>, own: T) -> krysp_solvers::Result<T> {
        self.ghosts.as_mut_slice().copy_from_slice(self.halo.receive()?);
        self.outside.apply(&self.ghosts, &mut self.sums)?;
        let (x, y) = (x.as_slice(), y.as_mut_slice());
        let mut dot = T::zero();
        for (&row, &sum) in self.rows.iter().zip(self.sums.as_slice()) {
            y[row as usize] += sum;
            dot += x[row as usize] * sum;
        }
        Ok(own + dot)
    }

    fn ghosts(&mut self, x: &[T]) -> Result<Vec<T>> {
        self.halo.start(x)?;
        Ok(self.halo.receive()?.to_vec())
    }

    fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.outside.refresh(&self.outside.assemble(values)?)
    }

    fn outside(&self) -> Result<Csr<T>> {
        Ok(self.outside.origin().in_host_memory()?.into_owned())
    }

    fn bytes(&self) -> usize {
        self.outside.bytes()
    }
}
