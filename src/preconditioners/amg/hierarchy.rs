//! Setup and refresh of a hierarchy in any memory.
//!
//! ```text
//! level by level, until few rows are left, or coarsening gains little:
//!     aggregates of strongly connected nodes
//!     D⁻¹, and the largest eigenvalue of D⁻¹ A, from which the smoother and ω follow
//!     P = T without smoothing (finest level only), or (I − ω D⁻¹ A) T
//!     A ← Pᵀ A P
//! last level: A⁻¹
//! ```
//!
//! A refresh keeps aggregates, `T` and patterns, takes half of the steps of the eigenvalue estimate, and
//! recomputes all values.

use super::AmgOptions;
use super::report::LevelReport;
use super::spectrum::weights;
use super::strength::scale_of;
use super::unsmoothed::VISITS;
use crate::error::Result;
use krysp_kernels::{interrupt, multigrid};
use std::time::Instant;

/// Maximum number of coarsening steps. Each level has at most nine tenths of the rows of the one before.
const LEVELS: usize = 40;

/// A smoothed level in a memory.
pub(crate) type LevelOf<M> =
    multigrid::Level<<M as Memory>::Stored, <M as Memory>::Diagonal, <M as Memory>::Transfer>;

/// The levels in a memory.
pub(crate) type HierarchyOf<M> = multigrid::Hierarchy<
    <M as Memory>::Stored,
    <M as Memory>::Diagonal,
    <M as Memory>::Transfer,
    <M as Memory>::Last,
>;

/// Result of a coarsening: the transfer to the next level, the matrix there, and its near-null space.
pub(crate) type Coarser<'a, M> = (<M as Memory>::Transfer, <M as Memory>::Matrix<'a>, <M as Memory>::Modes);

/// Operations of setup and refresh in a memory: that of the host, of a GPU, or of ranks. Level 0 is the finest.
pub(crate) trait Memory: Sized {
    /// The matrix of a level in double precision; that of the finest level may be borrowed.
    type Matrix<'a>;
    /// The inverse diagonal of a level in double precision.
    type Inverse;
    /// The near-null space of a level.
    type Modes;
    /// The aggregates of a level.
    type Aggregates;
    /// The matrix of a level in the format of the cycle, in single precision.
    type Stored;
    /// The inverse diagonal of a level in single precision.
    type Diagonal;
    /// Transfer between two levels, with what a refresh needs.
    type Transfer;
    /// The inverse of the last level.
    type Last;

    /// The options.
    fn options(&self) -> &AmgOptions;

    /// Number of rows of a matrix, over all processes that share it.
    fn rows(&self, a: &Self::Matrix<'_>) -> u64;

    /// Returns whether a level has so few rows that it is inverted.
    fn is_last(&self, a: &Self::Matrix<'_>) -> bool {
        self.rows(a) <= self.options().max_coarse_size as u64
    }

    /// Returns an error if the setup should end.
    fn check_interrupt(&self) -> Result<()> {
        Ok(interrupt::check("AMG setup")?)
    }

    /// Aggregates the nodes of a level; `None` if the next level would have no unknowns, or more than 0.9 times as
    /// many.
    fn aggregates(
        &mut self,
        level: usize,
        a: &Self::Matrix<'_>,
        modes: &Self::Modes,
    ) -> Result<Option<Self::Aggregates>>;

    /// The inverse diagonal of a matrix, which may be reordered after that.
    fn inverse(&self, level: usize, a: &mut Self::Matrix<'_>) -> Result<Self::Inverse>;

    /// The smallest nonzero number of an inverse diagonal; refuses a diagonal that is not positive.
    fn least(&self, level: usize, inverse: &Self::Inverse) -> Result<f64>;

    /// The inverse diagonal of `scale A` for the cycle, one for zero rows.
    fn diagonal(&self, inverse: &Self::Inverse, scale: f64) -> Result<Self::Diagonal>;

    /// The matrix times `scale`, for the cycle.
    fn stored(&self, level: usize, a: &Self::Matrix<'_>, scale: f64) -> Result<Self::Stored>;

    /// Replaces the values of a matrix from [`Memory::stored`].
    fn refill(&self, stored: &mut Self::Stored, a: &Self::Matrix<'_>, scale: f64) -> Result<()>;

    /// Estimates the largest eigenvalue of `D⁻¹ A`, see [`largest`](super::spectrum::largest).
    fn largest(&self, at: usize, level: &mut LevelOf<Self>) -> Result<f64>;

    /// Coarsens a level. `smoothed` has the inverse diagonal and the `ω` of the prolongator; `None` means
    /// unsmoothed aggregation.
    fn coarser<'a>(
        &self,
        a: &Self::Matrix<'_>,
        smoothed: Option<(&Self::Inverse, f64)>,
        modes: &Self::Modes,
        aggregates: Self::Aggregates,
    ) -> Result<Coarser<'a, Self>>;

    /// Replaces the values of a transfer; returns the matrix of the next level.
    fn renew<'a>(
        &self,
        transfer: &mut Self::Transfer,
        a: &Self::Matrix<'_>,
        inverse: &Self::Inverse,
        omega: f64,
    ) -> Result<Self::Matrix<'a>>;

    /// Inverts the last level.
    fn last(&self, a: &Self::Matrix<'_>, modes: &Self::Modes, scale: f64) -> Result<Self::Last>;

    /// Inverts the last level again, for new values.
    fn renew_last(&self, last: &mut Self::Last, a: &Self::Matrix<'_>, scale: f64) -> Result<()>;

    /// Describes a level.
    fn report(&self, level: &LevelOf<Self>) -> Result<LevelReport>;
}

/// Builds a hierarchy; `unsmoothed` says whether the prolongator of the finest level remains unsmoothed.
pub(crate) fn build<'a, M: Memory>(
    memory: &mut M,
    mut a: M::Matrix<'a>,
    mut modes: M::Modes,
    unsmoothed: bool,
    mut started: Instant,
) -> Result<(HierarchyOf<M>, Vec<LevelReport>)> {
    let (mut built, mut reports) = (HierarchyOf::<M> { scale: 1.0, levels: vec![], last: None }, vec![]);
    loop {
        memory.check_interrupt()?;
        let (at, is_last) = (built.levels.len(), memory.is_last(&a));
        let aggregates = match !is_last && at < LEVELS {
            true => memory.aggregates(at, &a, &modes)?,
            false => None,
        };
        let inverse = memory.inverse(at, &mut a)?;
        let least = memory.least(at, &inverse)?;
        if at == 0 {
            built.scale = scale_of(least);
        }
        if is_last {
            built.last = Some(memory.last(&a, &modes, built.scale)?);
            reports.push(LevelReport::dense(memory.rows(&a) as usize).since(started));
            return Ok((built, reports));
        }
        memory.check_interrupt()?;
        let mut level = LevelOf::<M> {
            a: memory.stored(at, &a, built.scale)?,
            inverse: memory.diagonal(&inverse, built.scale)?,
            weights: vec![],
            gain: None,
            transfer: None,
            visits: 1,
        };
        let omega = set_weights(memory, at, &mut level)?;
        let Some(aggregates) = aggregates else {
            reports.push(memory.report(&level)?.since(started));
            built.levels.push(level);
            return Ok((built, reports));
        };
        let smoothed = (at > 0 || !unsmoothed).then_some((&inverse, omega));
        let visits = if smoothed.is_some() { 1 } else { VISITS };
        let (transfer, coarse, below) = memory.coarser(&a, smoothed, &modes, aggregates)?;
        (level.transfer, level.visits) = (Some(transfer), visits);
        reports.push(memory.report(&level)?.since(started));
        started = Instant::now();
        built.levels.push(level);
        (a, modes) = (coarse, below);
    }
}

/// Recomputes the values of all levels for a matrix with the same pattern.
pub(crate) fn refresh<M: Memory>(memory: &M, built: &mut HierarchyOf<M>, mut a: M::Matrix<'_>) -> Result<()> {
    // the diagonals of coarse levels are checked at the end, which saves a GPU one of two waits for the host at
    // each level
    let mut inverses = vec![];
    let check = |inverses: &[M::Inverse]| {
        (0..).zip(inverses).skip(1).try_for_each(|(at, inverse)| memory.least(at, inverse).map(drop))
    };
    for at in 0..=built.levels.len() {
        memory.check_interrupt()?;
        let inverse = memory.inverse(at, &mut a)?;
        if at == 0 {
            built.scale = scale_of(memory.least(at, &inverse)?);
        }
        let Some(level) = built.levels.get_mut(at) else {
            inverses.push(inverse);
            check(&inverses)?;
            return match &mut built.last {
                Some(last) => memory.renew_last(last, &a, built.scale),
                None => Ok(()),
            };
        };
        memory.refill(&mut level.a, &a, built.scale)?;
        level.inverse = memory.diagonal(&inverse, built.scale)?;
        let omega = set_weights(memory, at, level)?;
        let below = match &mut level.transfer {
            Some(transfer) => Some(memory.renew(transfer, &a, &inverse, omega)?),
            None => None,
        };
        inverses.push(inverse);
        let Some(below) = below else { break };
        a = below;
    }
    check(&inverses)
}

/// Chooses the weights of a level's smoother; returns the `ω` of the prolongator.
fn set_weights<M: Memory>(memory: &M, at: usize, level: &mut LevelOf<M>) -> Result<f64> {
    let largest = memory.largest(at, level)?;
    level.weights = weights(largest, memory.options().sweeps);
    Ok(4.0 / 3.0 / largest)
}
