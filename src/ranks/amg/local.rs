//! The memory of a rank's part of a hierarchy, host memory or a GPU: operations of setup and cycle.

use super::blocks::HostBlocks;
use crate::choice::Stores;
use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::numbers::Real;
use crate::preconditioners::amg::modes::NearNullSpace;
use crate::ranks::halo::Routes;
use crate::ranks::local::Local;
use crate::ranks::matrix::RankMatrix;
use crate::ranks::vector::RankSpace;
use krysp_kernels::multigrid;
use krysp_solvers::LinearOperator;
use std::borrow::Cow;

/// A rank's part of a vector of `T`.
pub(super) type PartOf<T, L> = <L as Stores<T>>::Vector;

/// A rank's part of a vector of a cycle, in single precision.
pub(super) type Single<L> = PartOf<f32, L>;

/// The near-null space of this rank's rows.
pub(super) type ModesOf<L> = multigrid::NearNullSpace<<L as LocalSetup>::Numbers>;

/// Rows with entries in columns of ghosts, and these entries, with a row for each of them.
pub(super) type Border = (Vec<u32>, HostBlocks);

/// The tentative prolongator, and the strong connections if the matrix is filtered.
pub struct Tentative<L: LocalSetup> {
    /// A row for each own node, then, once [`LocalSetup::stacked`] has appended them, for each ghost; at most one block
    /// in a row, in the column of its aggregate.
    pub(super) t: L::Blocks,
    pub(super) strong: Option<L::Strong>,
}

/// Sends values at entries that other ranks read; returns those of ghosts. Collective: all ranks call this, with an
/// error if they have no values.
pub(super) type GhostExchange<'a> = &'a dyn Fn(Result<Vec<f64>>) -> Result<Vec<f64>>;

/// Operations of the setup on this rank's rows. Only methods with `Routes` or [`GhostExchange`] are collective.
pub trait LocalSetup: Local<f32> {
    /// Own rows of a matrix of blocks, in double precision.
    type Blocks: Send + Sync;
    /// Numbers in double precision.
    type Numbers;
    /// The inverse diagonal, in double precision.
    type Inverse;
    /// The pattern of strong connections.
    type Strong: Send + Sync;
    /// A matrix in single precision: the entries of a level in own columns, `P` or `Pᵀ`.
    type Stored: LinearOperator<Vector = Single<Self>>;
    /// Exchange of entries of the next level.
    type Exchange: Send;
    /// Keeps freed memory for a refresh while it exists.
    type Keeps: Send + Sync;

    /// Begins a setup: starts to compile its kernels, and keeps freed memory for reuse while the result exists.
    fn begin<T: Real>(&self) -> Result<Self::Keeps>;

    /// The scalar rows of a matrix: columns of this rank, then ghosts.
    fn rows<T: Real>(&self, matrix: &RankMatrix<T, Self>) -> Result<Self::Blocks>
    where
        Self: Local<T>;

    /// Entries of the diagonal block of a matrix, at these positions of its pattern.
    fn entries_at<T: Real>(&self, matrix: &RankMatrix<T, Self>, at: &[usize]) -> Result<Vec<f64>>
    where
        Self: Local<T>;

    /// Copies a matrix from host memory.
    fn upload(&self, blocks: HostBlocks) -> Result<Self::Blocks>;

    /// The matrix in host memory.
    fn read(blocks: &Self::Blocks) -> Result<Cow<'_, HostBlocks>>;

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
    fn modes(&self, modes: NearNullSpace) -> Result<ModesOf<Self>>;

    /// Copies modes to host memory.
    fn read_modes(modes: &ModesOf<Self>) -> Result<NearNullSpace>;

    /// Modes that are constants, one for each unknown of a node of `size` rows.
    fn constants(&self, rows: usize, size: usize) -> Result<ModesOf<Self>>;

    /// Aggregates the own nodes by connections of at least `theta` (`AmgOptions::strength`); returns the tentative prolongator on them, and the modes of the next level. `sent` are
    /// the nodes that other ranks read. Collective: all ranks call this.
    fn aggregated(
        a: &Self::Blocks,
        modes: &ModesOf<Self>,
        theta: f64,
        sent: &[u32],
        exchange: GhostExchange<'_>,
    ) -> Result<(Tentative<Self>, ModesOf<Self>)>;

    /// Number of columns: own aggregates, then those of ghosts if they were appended.
    fn columns(t: &Self::Blocks) -> usize;

    /// The first `rows` rows of a scalar matrix, which have entries in the first `cols` columns, with ones as entries.
    fn ones(blocks: &Self::Blocks, rows: usize, cols: usize) -> Result<Self::Blocks>;

    /// The own rows of the smoothed prolongator, given the inverse diagonal and `ω`.
    fn prolongator(
        a: &Self::Blocks,
        tentative: &Tentative<Self>,
        smoothed: (&Self::Inverse, f64),
    ) -> Result<Self::Blocks>;

    /// `Pᵀ A P`, and `factor P` and `Pᵀ` in single precision, given the own rows of `P` and those with ghosts.
    fn galerkin(
        &self,
        a: &Self::Blocks,
        p: [&Self::Blocks; 2],
        factor: f64,
    ) -> Result<(Self::Blocks, [Self::Stored; 2])>;

    /// The inverse diagonal.
    fn inverse(a: &Self::Blocks) -> Result<Self::Inverse>;

    /// The smallest nonzero number of an inverse diagonal; refuses a diagonal that is not positive.
    fn least(inverse: &Self::Inverse) -> Result<f64>;

    /// The inverse diagonal of `scale A`, one for zero rows.
    fn rounded(&self, inverse: &Self::Inverse, scale: f64) -> Result<Single<Self>>;

    /// The entries in own columns times `scale`, in the format of a cycle, and the entries in columns of ghosts. `finest` is the
    /// pattern of the entries in own columns, on the finest level only.
    fn level(&self, a: &Self::Blocks, scale: f64, finest: Option<&Pattern>)
    -> Result<(Self::Stored, Border)>;

    /// Replaces the values of a matrix from [`LocalSetup::level`]; returns the entries in columns of ghosts.
    fn refill(inside: &mut Self::Stored, a: &Self::Blocks, scale: f64) -> Result<Border>;

    /// Name of the format.
    fn name(stored: &Self::Stored) -> &'static str;

    /// Prepares the exchange of the next level's `width` entries, own and ghosts. Collective: all ranks call this.
    fn exchange(&self, routes: Routes, width: usize) -> Result<Self::Exchange>;

    /// Adds up contributions to a vector of the next level: `product` computes those of this rank, for own entries and
    /// for ghosts.
    fn add_ghosts(
        exchange: &mut Self::Exchange,
        product: impl FnOnce(&mut Single<Self>) -> krysp_solvers::Result<()>,
        to: &mut Single<Self>,
    ) -> krysp_solvers::Result<()>;

    /// A vector of the next level with its ghosts.
    fn with_ghosts<'a>(
        exchange: &'a mut Self::Exchange,
        from: &Single<Self>,
    ) -> krysp_solvers::Result<&'a Single<Self>>;

    /// `x ← w D⁻¹ b`
    fn first_sweep(weight: f32, inverse: &Single<Self>, b: &Single<Self>, x: &mut Single<Self>);

    /// `x ← x + w D⁻¹ (b − t)`
    fn relax(weight: f32, inverse: &Single<Self>, b: &Single<Self>, t: &Single<Self>, x: &mut Single<Self>);
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
