//! The memory of a rank's part of a hierarchy, host memory or a GPU: operations of setup and cycle.

use super::blocks::HostBlocks;
use super::on_host::{HostFound, HostModes};
use crate::choice::Stores;
use crate::error::Result;
use crate::mpi::halo::Routes;
use crate::mpi::local::Local;
use crate::mpi::matrix::RankMatrix;
use crate::mpi::vector::RankSpace;
use crate::numbers::Real;
use crate::preconditioners::amg::AmgOptions;
use krysp_solvers::{BasicVector, LinearOperator, Vector};

/// A rank's part of a vector of `T`.
pub(super) type PartOf<T, L> = <L as Stores<T>>::Vector;

/// A rank's part of a vector of a cycle, in single precision.
pub(super) type Single<L> = PartOf<f32, L>;

/// `P` and `Pᵀ` in single precision.
pub(super) type Transfers<L> = [<L as LocalSetup>::Stored; 2];

/// Operations of the setup on this rank's rows. Only methods with `routes` are collective.
pub trait LocalSetup: Local<f32> {
    /// Own rows of a matrix of blocks, in double precision.
    type Blocks: Send + Sync;
    /// The inverse diagonal, in double precision.
    type Inverse;
    /// A near-null space.
    type Modes;
    /// Aggregates of own nodes, with strong connections.
    type Found;
    /// Aggregates and tentative prolongator of own nodes and of ghosts, with strong connections.
    type Tentative: Send + Sync;
    /// `P` or `Pᵀ` in single precision.
    type Stored;
    /// The entries in own columns in single precision.
    type Inside: LinearOperator<Vector = Single<Self>>;
    /// `P`, `Pᵀ` and the exchange of entries of the next level.
    type Transfer: Send;

    /// Keeps freed memory for a refresh while it exists.
    type Keeps: Send + Sync;

    /// Begins a setup: starts to compile its kernels, and keeps freed memory for reuse while the result exists.
    fn begin<T: Real>(&self) -> Result<Self::Keeps>;

    /// The scalar rows of a matrix: columns of this rank, then ghosts.
    fn rows<T: Real>(&self, matrix: &RankMatrix<T, Self>) -> Result<Self::Blocks>
    where
        Self: Local<T>;

    /// Copies a matrix from host memory.
    fn upload(&self, blocks: HostBlocks) -> Result<Self::Blocks>;

    /// Copies a matrix to host memory.
    fn read(blocks: &Self::Blocks) -> Result<HostBlocks>;

    /// Number of entries of the scalar matrix.
    fn entries(blocks: &Self::Blocks) -> usize;

    /// Rows of a matrix, in host memory.
    fn rows_at(blocks: &Self::Blocks, rows: &[u32]) -> Result<HostBlocks>;

    /// The first `rows` rows, with `places` as columns from `own` on, followed by the rows `below`. The result has
    /// `cols` columns.
    fn stacked(
        blocks: &Self::Blocks,
        rows: usize,
        places: (usize, &[u32]),
        below: &HostBlocks,
        cols: usize,
    ) -> Result<Self::Blocks>;

    /// For each column, whether one of the first `rows` rows has an entry there.
    fn used(blocks: &Self::Blocks, rows: usize) -> Result<Vec<bool>>;

    /// `A B`
    fn product(a: &Self::Blocks, b: &Self::Blocks) -> Result<Self::Blocks>;

    /// Copies modes from host memory.
    fn modes(&self, modes: HostModes) -> Result<Self::Modes>;

    /// Constants, one for each unknown of a node of `size` rows.
    fn constants(&self, rows: usize, size: usize) -> Result<Self::Modes>;

    /// Copies modes to host memory.
    fn read_modes(modes: &Self::Modes) -> Result<HostModes>;

    /// Number of modes.
    fn count_of_modes(modes: &Self::Modes) -> usize;

    /// Aggregates the own nodes. Collective: all ranks call this, and if one has an error, all have.
    fn found(a: &Self::Blocks, options: &AmgOptions, routes: &Routes) -> Result<Self::Found>;

    /// Converts aggregates that were computed in host memory.
    fn known(&self, found: HostFound) -> Result<Self::Found>;

    /// Number of aggregates.
    fn count(found: &Self::Found) -> usize;

    /// The tentative prolongator, for nodes of `size` rows, and the modes of the next level.
    fn tentative(
        found: Self::Found,
        size: usize,
        modes: &Self::Modes,
        options: &AmgOptions,
    ) -> Result<(Self::Tentative, Self::Modes)>;

    /// Rows of the tentative prolongator, in host memory.
    fn tentative_at(aggregates: &Self::Tentative, nodes: &[u32]) -> Result<HostBlocks>;

    /// Appends the rows of ghosts to the tentative prolongator, which then has `cols` columns.
    fn with_ghosts(aggregates: Self::Tentative, ghosts: &HostBlocks, cols: usize) -> Result<Self::Tentative>;

    /// The aggregate of each of the first `nodes` nodes.
    fn of_nodes(aggregates: &Self::Tentative, nodes: usize) -> Result<Vec<Option<u32>>>;

    /// The own rows of `P`. Without `smoothed` (the inverse diagonal and `ω`), these are ones in the columns of the `own`
    /// aggregates.
    fn prolongator(
        a: &Self::Blocks,
        aggregates: &Self::Tentative,
        smoothed: Option<(&Self::Inverse, f64)>,
        own: usize,
        options: &AmgOptions,
    ) -> Result<Self::Blocks>;

    /// `Pᵀ A P`, and `factor P` and `Pᵀ` in single precision, given the own rows of `P` and those with ghosts.
    fn galerkin(
        a: &Self::Blocks,
        p: [&Self::Blocks; 2],
        factor: f64,
    ) -> Result<(Self::Blocks, Transfers<Self>)>;

    /// The inverse diagonal.
    fn inverse(a: &Self::Blocks) -> Result<Self::Inverse>;

    /// The smallest nonzero number of an inverse diagonal; refuses a diagonal that is not positive.
    fn least(inverse: &Self::Inverse) -> Result<f64>;

    /// The inverse diagonal of `scale A`, one for zero rows.
    fn rounded(&self, inverse: &Self::Inverse, scale: f64) -> Result<Single<Self>>;

    /// The entries in own columns times `scale`, in the format of a cycle, and the entries in columns of ghosts.
    fn level(&self, a: &Self::Blocks, scale: f64) -> Result<(Self::Inside, HostBlocks)>;

    /// Replaces the values of a matrix from [`LocalSetup::level`]; returns the entries in columns of ghosts.
    fn refill(inside: &mut Self::Inside, a: &Self::Blocks, scale: f64) -> Result<HostBlocks>;

    /// Name of the format.
    fn name(inside: &Self::Inside) -> &'static str;

    /// Prepares the exchange of the next level's `width` entries, own and ghosts. Collective: all ranks call this.
    fn transfer(&self, stored: Transfers<Self>, routes: Routes, width: usize) -> Result<Self::Transfer>;

    /// Names of the formats of `P` and `Pᵀ`.
    fn names(transfer: &Self::Transfer) -> [&'static str; 2];

    /// Bytes that both products of a transfer read.
    fn bytes(transfer: &Self::Transfer) -> usize;

    /// `to ← Pᵀ t`
    fn restrict(
        transfer: &mut Self::Transfer,
        t: &Single<Self>,
        to: &mut Single<Self>,
    ) -> krysp_solvers::Result<()>;

    /// `t ← P from`
    fn prolong(
        transfer: &mut Self::Transfer,
        from: &Single<Self>,
        t: &mut Single<Self>,
    ) -> krysp_solvers::Result<()>;

    /// `x ← w D⁻¹ b`; `change` is workspace.
    fn first_sweep(
        weight: f32,
        inverse: &Single<Self>,
        b: &Single<Self>,
        [x, change]: [&mut Single<Self>; 2],
    ) {
        change.multiply(inverse, b);
        x.axpby(&weight.into(), change, &0.0.into());
    }

    /// `x ← x + w D⁻¹ (b − t)`; `t` and `change` are workspace.
    fn relax(weight: f32, inverse: &Single<Self>, b: &Single<Self>, [t, x, change]: [&mut Single<Self>; 3]) {
        t.axpby(&1.0.into(), b, &(-1.0).into());
        change.multiply(inverse, t);
        x.axpy(&weight.into(), change);
    }
}

/// Memory of a rank's part of a hierarchy for systems in `T`.
pub trait LocalLevels<T: Real>: Local<T> + LocalSetup {
    /// The machine that a space belongs to.
    fn machine(space: &RankSpace<T, Self>) -> Self;

    /// Magnitude of a vector, from which the scaling of right-hand sides follows.
    fn magnitude(r: &PartOf<T, Self>) -> krysp_solvers::Result<f64>;

    /// `b ← factor r`, in single precision.
    fn narrow(r: &PartOf<T, Self>, factor: f64, b: &mut Single<Self>) -> krysp_solvers::Result<()>;

    /// `z ← factor x`
    fn widen(x: &Single<Self>, factor: f64, z: &mut PartOf<T, Self>) -> krysp_solvers::Result<()>;
}
