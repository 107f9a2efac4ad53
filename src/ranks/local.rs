//! The memory of a rank's part of vectors and matrices: host memory, or a GPU.

use super::collective::{Own, Ranks};
use super::halo::{HaloExchange, Routes};
use crate::choice::{HostBorder, Machine, Stores};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::{Host, HostSpace, HostVector};
use crate::numbers::Real;
use crate::preconditioners::CoarseSpace;
use krysp_solvers::{BasicVector, Element, ScalarOf, SpaceOf, StepsOf, Vector};
use std::convert::Infallible;
use std::fmt;

/// The basis type of a rank's part.
pub(super) type BasisOf<T, L> = <<L as Stores<T>>::Vector as BasicVector>::Basis;

/// Machine that a rank computes with: the threads of [`Host`], or the GPU of a `Cuda`.
pub trait Local<T: Real>: RankMemory<T> {}

impl<T: Real> Local<T> for Host {}
#[cfg(feature = "cuda")]
impl<T: Real> Local<T> for crate::device::Cuda {}

/// Operations that ranks need from the memory that holds their parts.
pub trait RankMemory<T: Real>: Machine<T> + Clone + fmt::Debug + Send + Sync + 'static {
    /// Entries of a rank's rows in columns of other ranks.
    type OffDiagonal: OffDiagonal<T, Self::Vector>;

    /// Link between the GPUs of all ranks.
    type Link: Link;

    /// Links the GPUs of all ranks if they can access each other's memory: sums and entries of `x` are then
    /// sent between GPUs without the hosts. Collective: all ranks call this.
    fn link(&self, ranks: &Ranks) -> Result<Option<Self::Link>>;

    /// The space of vectors with `len` entries.
    fn space(&self, len: usize) -> SpaceOf<Self::Vector>;

    /// Prepares products with rows that have entries in columns of other ranks: `outside` has a row for each
    /// of `rows`, and a column for each ghost. Collective: all ranks call this.
    fn off_diagonal(
        &self,
        routes: &Routes,
        link: Option<&Self::Link>,
        own: usize,
        rows: &[u32],
        outside: Csr<T>,
    ) -> Result<Self::OffDiagonal>;

    /// Begins a step of GPUs with peer access; returns `true` if the caller must enqueue the step and then
    /// call [`RankMemory::end_step`]. `_place` is the place of this step in the period of the method, and
    /// `_replays` says whether the step can be replayed.
    fn begin_step(
        _steps: &mut StepsOf<Self::Vector>,
        _place: usize,
        _replays: bool,
    ) -> krysp_solvers::Result<bool> {
        Ok(true)
    }

    /// Ends a step. `_ok` says whether it was enqueued without an error. Returns `true` if it must be enqueued
    /// again.
    fn end_step(_steps: &mut StepsOf<Self::Vector>, _ok: bool) -> krysp_solvers::Result<bool> {
        Ok(false)
    }

    /// Reads back this rank's parts of sums, for the host to sum over all ranks.
    fn read_back<const K: usize>(sums: [ScalarOf<Self::Vector>; K]) -> Own;

    /// Aggregates of this rank's rows, for restriction and prolongation.
    type Aggregates: Aggregated<T, Self::Vector> + fmt::Debug;

    /// Prepares restriction to the aggregates of a coarse space of this rank's rows.
    fn aggregates(space: &SpaceOf<Self::Vector>, coarse: &CoarseSpace<T>) -> Result<Self::Aggregates>;

    /// Replaces the coefficients of a projection on this rank by those over all ranks.
    fn replace_coefficients(basis: &mut BasisOf<T, Self>, c: &[T]) -> krysp_solvers::Result<()>;
}

/// A link between GPUs of all ranks that can access each other's memory.
pub trait Link: Clone + fmt::Debug + Send + Sync {
    /// Enqueues work whose sums are taken over all ranks.
    fn sum<R>(&self, work: impl FnOnce() -> R) -> R;

    /// Returns an error if a rank has failed, in which case numbers read before are invalid.
    fn check(&self) -> Result<()>;
}

/// Hosts have no such link, so the type of their link has no values.
impl Link for Infallible {
    fn sum<R>(&self, _: impl FnOnce() -> R) -> R {
        match *self {}
    }

    fn check(&self) -> Result<()> {
        match *self {}
    }
}

/// Entries of a rank's rows in columns of other ranks, with the exchange of ghosts that a product needs.
pub trait OffDiagonal<T: Real, V: Vector<Elem = T>>: Send {
    /// Starts to send the entries of `x` that other ranks read, and deferred sums. Meanwhile runs `own`,
    /// which computes or enqueues the product of the diagonal block.
    fn send<R>(&mut self, x: &V, own: impl FnOnce() -> krysp_solvers::Result<R>) -> krysp_solvers::Result<R>;

    /// Waits for the ghosts; `y ← y + A_ghost ghosts`.
    fn add(&mut self, x: &V, y: &mut V) -> krysp_solvers::Result<()>;

    /// Like [`OffDiagonal::add`]; returns `⟨x, y⟩` over this rank's rows, or over all ranks if the GPUs
    /// communicate peer to peer. `own` is the value of `⟨x, y⟩` before the ghosts' contributions are added.
    fn add_dot(&mut self, x: &V, y: &mut V, own: V::Scalar) -> krysp_solvers::Result<V::Scalar>;

    /// The ghosts of a vector whose own entries are in host memory.
    fn ghosts(&mut self, x: &[T]) -> Result<Vec<T>>;

    /// Replaces the values, in the order of the entries of `outside`.
    fn refresh(&mut self, values: &[T]) -> Result<()>;

    /// The entries in columns of other ranks.
    fn outside(&self) -> Result<Csr<T>>;

    /// Bytes that a product reads.
    fn bytes(&self) -> usize;
}

/// Restriction to aggregates and prolongation from them. The columns of `Z` are the modes on each aggregate.
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

impl<T: Real> RankMemory<T> for Host {
    type OffDiagonal = HostOffDiagonal<T>;
    type Aggregates = CoarseSpace<T>;
    type Link = Infallible;

    fn link(&self, _: &Ranks) -> Result<Option<Infallible>> {
        Ok(None)
    }

    fn space(&self, len: usize) -> HostSpace<T> {
        HostSpace::new(len)
    }

    fn off_diagonal(
        &self,
        routes: &Routes,
        _: Option<&Infallible>,
        _: usize,
        rows: &[u32],
        outside: Csr<T>,
    ) -> Result<HostOffDiagonal<T>> {
        let border = routes.ranks().all(HostBorder::new(rows, &outside))?;
        Ok(HostOffDiagonal { border, halo: routes.halo()? })
    }

    fn read_back<const K: usize>(sums: [T; K]) -> Own {
        let own = sums.map(Element::to_f64).to_vec();
        Box::new(|| Ok(own))
    }

    fn aggregates(_: &HostSpace<T>, coarse: &CoarseSpace<T>) -> Result<CoarseSpace<T>> {
        Ok(coarse.clone())
    }

    fn replace_coefficients(basis: &mut crate::host::HostBasis<T>, c: &[T]) -> krysp_solvers::Result<()> {
        basis.replace_coefficients(c);
        Ok(())
    }
}

/// Entries in columns of other ranks, in host memory.
pub struct HostOffDiagonal<T: Real> {
    border: HostBorder<T>,
    halo: HaloExchange<T>,
}

impl<T: Real> OffDiagonal<T, HostVector<T>> for HostOffDiagonal<T> {
    fn send<R>(
        &mut self,
        x: &HostVector<T>,
        own: impl FnOnce() -> krysp_solvers::Result<R>,
    ) -> krysp_solvers::Result<R> {
        self.halo.start(x.as_slice())?;
        self.halo.ranks().send_sums()?;
        own()
    }

    fn add(&mut self, _: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.border.ghosts().copy_from_slice(self.halo.receive()?);
        self.border.add(y.as_mut_slice())
    }

    fn add_dot(&mut self, x: &HostVector<T>, y: &mut HostVector<T>, own: T) -> krysp_solvers::Result<T> {
        self.border.ghosts().copy_from_slice(self.halo.receive()?);
        Ok(own + self.border.add_dot(x.as_slice(), y.as_mut_slice())?)
    }

    fn ghosts(&mut self, x: &[T]) -> Result<Vec<T>> {
        self.halo.start(x)?;
        Ok(self.halo.receive()?.to_vec())
    }

    fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.border.refresh(values)
    }

    fn outside(&self) -> Result<Csr<T>> {
        self.border.outside()
    }

    fn bytes(&self) -> usize {
        self.border.bytes()
    }
}
