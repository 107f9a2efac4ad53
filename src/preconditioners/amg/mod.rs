//! Algebraic multigrid by smoothed aggregation: the levels are built from the matrix alone, each some ten to
//! thirty times smaller than the one before.
//!
//! ```text
//! setup, level by level, until few rows are left:
//!     strong connections            strength.rs
//!     aggregates                    aggregates.rs
//!     P = T, A ← Tᵀ A T             unsmoothed.rs: unsmoothed, only on the finest level in host memory
//!     T: tentative prolongator      modes.rs: on all other levels
//!     P = (I − ω D⁻¹ A) T           coarsening.rs: ω = 4/3 / (largest eigenvalue of D⁻¹ A)
//!     A ← Pᵀ A P                    product.rs
//! coarsest level: A⁻¹, dense
//! application: one cycle            apply.rs, cycle.rs
//! ```
//!
//! Smoothing damps the oscillatory part of an error; the smooth part is represented on the coarser levels.
//! The number of iterations therefore hardly grows with the mesh. The cycle is symmetric and positive
//! definite where `A` is, as conjugate gradients require.
//!
//! Departures from Vaněk, Mandel and Brezina (1996):
//! 1. the cycle computes in single precision within a solve in double precision: half of the bytes at no more
//!    iterations. Values are scaled by powers of two to stay in its range. The hierarchy itself is computed
//!    in double precision;
//! 2. strength, aggregates and the smoother are those of `strength.rs`, `aggregates.rs` and `cycle.rs`, which
//!    say how they differ;
//! 3. if the coarsest level is singular up to rounding, as for a floating body, its diagonal is shifted
//!    slightly: [`Cg`](crate::Cg) with [`null_space`](krysp_solvers::Solver::null_space) solves such systems.
//!
//! Cost: with `k` sweeps, an application reads each level's matrix `2 k` times in single precision, and `P`
//! and `Pᵀ` once; three times as often on the levels below unsmoothed aggregates. With two sweeps that is
//! some 20 bytes per entry. Setup reads the matrix some ten times, and takes the multiply-adds of `A P` and
//! `Pᵀ (A P)`. The patterns of all levels are kept for refreshes.

pub(crate) mod aggregates;
mod apply;
pub(crate) mod blocks;
pub(crate) mod coarsening;
pub(crate) mod cycle;
pub(crate) mod modes;
mod nodes;
#[cfg(feature = "cuda")]
mod on_cuda;
mod options;
pub(crate) mod product;
mod report;
mod saved;
#[cfg(feature = "cuda")]
mod setup_on_cuda;
pub(crate) mod spectrum;
pub(crate) mod stored;
pub(crate) mod strength;
mod unsmoothed;

pub use modes::{UnknownOrder, rigid_body_modes};
#[cfg(feature = "cuda")]
pub use on_cuda::OnGpu;
pub use options::AmgOptions;

use super::{MatrixSource, Refresh, check_space, check_square, finite};
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::formats::pattern::check_pattern;
use crate::formats::{Csr, Format, node_pattern};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use apply::Workspaces;
use blocks::Blocks;
use coarsening::{Coarsening, aggregated};
use cycle::{Dense, Level, Transfer};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::Refused;
use krysp_kernels::cpu::preconditioners::inverse::{invert_positive, row_stride};
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
use krysp_kernels::interrupt;
use krysp_solvers::{Diagonal, Element, LinearOperator, Space};
use modes::NearNullSpace;
use nodes::Nodes;
use rayon::prelude::*;
use report::LevelReport;
use spectrum::{largest, noise, weights};
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use stored::{Stored, expanded, gathered};
use unsmoothed::Unsmoothed;

/// Name in error messages.
const NAME: &str = "AMG";

/// Maximum number of coarsening steps. Each level has at most nine tenths of the rows of the one before.
pub(crate) const LEVELS: usize = 40;

/// Largest ratio of a negative pivot of the coarsest level to its diagonal entry, in magnitude, that is
/// attributed to rounding.
const SINGULAR: f64 = 1e-8;

/// Relative shift of the diagonal of a coarsest level that is singular up to rounding: far above the rounding
/// of single precision, far below the error reduction of a cycle.
const SHIFT: f64 = 1e-5;

/// Algebraic multigrid by smoothed aggregation, one cycle per application: for symmetric positive definite
/// matrices; the larger they are, the more it saves. `Display` prints a table of the levels.
///
/// ```
/// use krysp::{Amg, Cg, gallery};
///
/// let a = gallery::poisson::<f64>(&[20; 3])?;
/// let m = Amg::new(&a)?;
/// println!("{m}");
/// let report = Cg::new(&a).preconditioner(&m).rtol(1e-8).solve(&vec![1.0; a.rows()])?.report;
/// assert!(report.converged() && report.iterations < 15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// For elasticity, pass rigid body modes, computed from the coordinates of the nodes:
///
/// ```
/// use krysp::{Amg, Cg, UnknownOrder, gallery, rigid_body_modes};
///
/// let (a, points) = gallery::elasticity::<f64>([10, 9, 9], 0.3)?;
/// let m = Amg::with_near_null_space(&a, &rigid_body_modes(&points, UnknownOrder::ByNode))?;
/// let report = Cg::new(&a).preconditioner(&m).rtol(1e-8).solve(&vec![1.0; a.rows()])?.report;
/// assert!(report.converged() && report.iterations < 25, "{report}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A node without off-diagonal couplings, a Dirichlet row for example, is only smoothed. Where nodes have
/// hardly any strong connections, coarsening stops; the last level is then smoothed if it has more than
/// [`AmgOptions::max_coarse_size`] rows.
#[derive(Debug)]
pub struct Amg<T: Real> {
    space: HostSpace<T>,
    /// Rows per node.
    size: usize,
    /// The pattern of the matrix.
    whole: Arc<Pattern>,
    /// The pattern of its nodes.
    pattern: Arc<Pattern>,
    options: AmgOptions,
    /// A power of two that scales the largest diagonal entry to about one.
    scale: f64,
    setup: Vec<Coarsening>,
    levels: Vec<Level>,
    dense: Option<Dense>,
    workspaces: Workspaces,
    reports: Vec<LevelReport>,
}

impl<T: Real> Amg<T> {
    /// Builds a hierarchy for a matrix whose near-null space is spanned by constants, one for each unknown of
    /// a node. Consecutive rows form a node if they have the same pattern, or would have the same pattern
    /// with at most 5 % more entries.
    pub fn new(csr: &Csr<T>) -> Result<Amg<T>> {
        Amg::with::<[T; 0]>(csr, &[], AmgOptions::default())
    }

    /// Builds a hierarchy for a near-null space spanned by the given vectors, in the order of the user's
    /// unknowns: vectors which the matrix maps to nearly zero apart from boundary conditions, as
    /// [`rigid_body_modes`] are for elasticity. If the nodes differ in their number of unknowns, consecutive
    /// rows with the same pattern form a node; [`Amg::with_nodes`] takes other nodes.
    pub fn with_near_null_space<V: AsRef<[T]> + Sync>(csr: &Csr<T>, modes: &[V]) -> Result<Amg<T>> {
        Amg::with(csr, modes, AmgOptions::default())
    }

    /// Like [`Amg::with_near_null_space`], with options. An empty slice of modes means constants.
    pub fn with<V: AsRef<[T]> + Sync>(csr: &Csr<T>, modes: &[V], options: AmgOptions) -> Result<Amg<T>> {
        Amg::made(csr, modes, None, options)
    }

    /// Builds a hierarchy for a matrix with `size` rows per node.
    pub(crate) fn of_nodes(
        csr: &Csr<T>,
        size: usize,
        near: (NearNullSpace, Option<Nodes>),
        unsmoothed: bool,
        options: AmgOptions,
    ) -> Result<Amg<T>> {
        let started = Instant::now();
        let pattern = match size {
            1 => csr.source().pattern.clone(),
            size => Arc::new(node_pattern(csr.pattern(), size)?),
        };
        let mut amg = Amg {
            space: csr.source().domain().clone(),
            size,
            whole: csr.source().pattern.clone(),
            pattern,
            options,
            scale: 1.0,
            setup: vec![],
            levels: vec![],
            dense: None,
            workspaces: Workspaces::default(),
            reports: vec![],
        };
        amg.build(csr, near, unsmoothed, started)?;
        Ok(amg)
    }

    /// The aggregate of each node of each level, `None` for nodes that are only smoothed.
    #[doc(hidden)]
    pub fn aggregates(&self) -> Vec<Vec<Option<u32>>> {
        let of = |&aggregate: &u32| (aggregate != aggregates::NONE).then_some(aggregate);
        let smoothed = self.setup.iter().map(|level| &level.aggregates);
        let all = self.unsmoothed().map(|unsmoothed| &unsmoothed.aggregates).into_iter().chain(smoothed);
        all.map(|aggregates| aggregates.of_node.iter().map(of).collect()).collect()
    }

    fn build(
        &mut self,
        csr: &Csr<T>,
        (mut modes, mut nodes): (NearNullSpace, Option<Nodes>),
        unsmoothed: bool,
        mut started: Instant,
    ) -> Result<()> {
        let (mut pattern, mut size) = (self.pattern.clone(), self.size);
        let mut values = self.numbers_of(csr);
        loop {
            interrupt::check("AMG setup")?;
            let by_rows = self.levels.is_empty() && self.by_rows(csr);
            let a = Blocks { by_rows, ..Blocks::new(&pattern, [size; 2], &values) };
            let inverse = strength::inverse_diagonal(a)?;
            if self.levels.is_empty() {
                self.scale = strength::scale_of(strength::least_of(&inverse));
            }
            let rows = pattern.rows() * size;
            if rows <= self.options.max_coarse_size {
                self.dense = Some(inverted(a, self.scale)?);
                self.reports.push(LevelReport::dense(rows, started));
                return Ok(());
            }
            let all = match self.levels.is_empty() && csr.nnz() == values.len() {
                true => csr.source().pattern.in_order(),
                false => expanded(&pattern, [size; 2])?,
            };
            let mut level = Level {
                a: Stored::new(a, &all, self.scale)?,
                inverse: HostSpace::new(rows).zeros()?,
                weights: vec![],
                gain: None,
                transfer: None,
            };
            interrupt::check("AMG setup")?;
            let omega = level.set_weights(&inverse, self.scale, self.options.sweeps)?;
            let aggregated = match (self.levels.len() < LEVELS, nodes.take()) {
                (true, Some(nodes)) => nodes.aggregated(a, modes.count, self.options.strength)?,
                (true, None) => aggregated(a, modes.count, self.options.strength)?,
                (false, _) => None,
            };
            let Some(aggregated) = aggregated else {
                self.reports.push(LevelReport::new(&level, started));
                self.levels.push(level);
                return Ok(());
            };
            if unsmoothed && self.levels.is_empty() {
                let (unsmoothed, numbers) = Unsmoothed::new(a, aggregated.1)?;
                (pattern, modes) =
                    (unsmoothed.coarse.clone(), NearNullSpace::constants(unsmoothed.coarse.rows(), 1));
                values = Cow::Owned(numbers);
                level.transfer = Some(Transfer::Unsmoothed(Box::new(unsmoothed)));
                self.reports.push(LevelReport::new(&level, started));
                started = Instant::now();
                self.levels.push(level);
                continue;
            }
            let (coarsening, numbers, coarse_modes) =
                Coarsening::new(a, &inverse, omega, &modes, aggregated)?;
            level.transfer = Some(Transfer::Smoothed(Box::new(coarsening.transfers(&numbers)?)));
            self.reports.push(LevelReport::new(&level, started));
            started = Instant::now();
            self.levels.push(level);
            (pattern, size, modes) = (coarsening.coarse.clone(), coarsening.modes(), coarse_modes);
            values = Cow::Owned(numbers.coarse);
            self.setup.push(coarsening);
        }
    }

    /// The unsmoothed aggregation of the finest level, if it has one.
    fn unsmoothed(&self) -> Option<&Unsmoothed> {
        match self.levels.first()?.transfer.as_ref()? {
            Transfer::Unsmoothed(unsmoothed) => Some(unsmoothed),
            Transfer::Smoothed(_) => None,
        }
    }

    /// Whether all rows of a node have the same pattern, so that its blocks can be read from the CSR arrays.
    fn by_rows(&self, csr: &Csr<T>) -> bool {
        self.size > 1 && csr.nnz() == self.pattern.entries() * self.size * self.size
    }

    /// The values of the matrix in double precision, gathered block by block unless they can be read in
    /// place.
    fn numbers_of<'a>(&self, csr: &'a Csr<T>) -> Cow<'a, Buffer<f64>> {
        let entries: Cow<'a, Buffer<f64>> = match (csr.values() as &dyn Any).downcast_ref::<Buffer<f64>>() {
            Some(values) => Cow::Borrowed(values),
            None => Cow::Owned(map_rows(csr.nnz(), 2, &|at| Element::to_f64(csr.entries()[at])).into()),
        };
        match self.size {
            1 => entries,
            _ if self.by_rows(csr) => entries,
            size => Cow::Owned(gathered(&entries, &self.whole, &self.pattern, size)),
        }
    }
}

impl Level {
    /// Stores an inverse diagonal and chooses the weights of the smoother for it; returns the `ω` of the
    /// prolongator.
    fn set_weights(&mut self, inverse: &[f64], scale: f64, sweeps: usize) -> Result<f64> {
        over_rows(inverse.len(), 3, self.inverse.as_mut_slice(), &|rows, to: &mut [f32]| {
            for (to, &from) in to.iter_mut().zip(&inverse[rows]) {
                *to = if from == 0.0 { 1.0 } else { (from / scale) as f32 };
            }
        });
        let noise = self.a.range().vector(&noise(0..inverse.len()))?;
        let diagonal = Diagonal::new(self.inverse.clone());
        let largest = largest(&self.a, &diagonal, noise, &mut self.gain)?;
        self.weights = weights(largest, sweeps);
        Ok(4.0 / 3.0 / largest)
    }
}

/// The modes in the row order of the matrix.
fn loaded<T: Real, V: AsRef<[T]> + Sync>(space: &HostSpace<T>, modes: &[V]) -> Result<NearNullSpace> {
    let loaded: Vec<HostVector<T>> =
        modes.par_iter().map(|mode| Ok(space.vector(mode.as_ref())?)).collect::<Result<_>>()?;
    let count = modes.len();
    let entry = |at: usize| Element::to_f64(loaded[at % count].as_slice()[at / count]);
    Ok(NearNullSpace { count, values: map_rows(space.len() * count, 2, &entry) })
}

/// Inverts the coarsest level. Zero rows become rows of the identity; a matrix that is singular up to
/// rounding is regularized by a shift of its diagonal.
fn inverted(a: Blocks<'_>, scale: f64) -> Result<Dense> {
    let size = a.shape[0];
    let rows = a.pattern.rows() * size;
    let stride = row_stride(rows);
    let dense = |shift: f64| {
        let mut dense = vec![0.0; rows * stride];
        for node in 0..a.pattern.rows() {
            for entry in a.pattern.offsets.range(node) {
                let column = a.pattern.columns[entry];
                for (k, value) in a.lines(node, entry).flatten().enumerate() {
                    let at = (node * size + k / size) * stride + column as usize * size + k % size;
                    dense[at] = value * scale;
                }
            }
        }
        for row in 0..rows {
            let own = &mut dense[row * (stride + 1)];
            *own = if *own == 0.0 { 1.0 } else { *own * (1.0 + shift) };
        }
        dense
    };
    let mut whole = dense(0.0);
    match invert_positive(&mut whole, rows) {
        Ok(()) => {}
        Err(Refused::Interrupted(interrupted)) => return Err(interrupted.into()),
        Err(Refused::Pivot { at: row, value: pivot }) => {
            whole = dense(SHIFT);
            let refused = Error::NotPositive { what: NAME, row, pivot: pivot / scale };
            if pivot < -SINGULAR * whole[row * (stride + 1)] || invert_positive(&mut whole, rows).is_err() {
                return Err(refused);
            }
        }
    }
    let inverse = map_rows(whole.len(), 2, &|at| whole[at] as f32).into();
    Ok(Dense { rows, inverse })
}

/// The largest absolute value; zero if one is not finite.
pub(crate) fn largest_of<T: Real>(numbers: &[T]) -> f64 {
    // the bit patterns of nonnegative numbers are ordered as the numbers
    let most = AtomicU64::new(0);
    over_rows(numbers.len(), 1, (), &|rows, ()| {
        let own = numbers[rows].iter().fold(0, |most, &v| most.max(Element::to_f64(v).abs().to_bits()));
        most.fetch_max(own, Ordering::Relaxed);
    });
    let most = f64::from_bits(most.into_inner());
    if most.is_finite() { most } else { 0.0 }
}

/// Up to `most` rows from all over a matrix. Each is displaced by a multiple of a prime, because equally
/// spaced rows of a structured grid could all be on the same side of the domain.
fn sampled(rows: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = most.min(rows);
    (0..count).map(move |k| (k * rows / count + 37 * k) % rows)
}

/// The largest power of two that does not exceed a positive number; 1 if the number is zero, subnormal,
/// infinite or NaN.
pub(crate) fn power_below(number: f64) -> f64 {
    let power = f64::powi(2.0, number.log2().floor() as i32);
    if power.is_normal() { power } else { 1.0 }
}

/// Keeps aggregates, modes and patterns; recomputes the values of all levels. After an error the
/// preconditioner must be refreshed again before it is applied.
impl<T: Real> Refresh<T> for Amg<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, &self.space)?;
        let csr = &*finite(a)?;
        check_pattern(&self.whole, &csr.source().pattern)?;
        let (mut pattern, mut size) = (self.pattern.clone(), self.size);
        let mut values = self.numbers_of(csr);
        let (by_rows, mut setup) = (self.by_rows(csr), self.setup.iter_mut());
        for at in 0..=self.levels.len() {
            interrupt::check("AMG setup")?;
            let a = Blocks { by_rows: at == 0 && by_rows, ..Blocks::new(&pattern, [size; 2], &values) };
            let inverse = strength::inverse_diagonal(a)?;
            if at == 0 {
                self.scale = strength::scale_of(strength::least_of(&inverse));
            }
            let Some(level) = self.levels.get_mut(at) else {
                self.dense = Some(inverted(a, self.scale)?);
                break;
            };
            level.a.renew(a, self.scale);
            let omega = level.set_weights(&inverse, self.scale, self.options.sweeps)?;
            match &mut level.transfer {
                None => break,
                Some(Transfer::Unsmoothed(unsmoothed)) => {
                    let numbers = unsmoothed.numbers(a)?;
                    pattern = unsmoothed.coarse.clone();
                    values = Cow::Owned(numbers);
                }
                Some(Transfer::Smoothed(transfers)) => {
                    let Some(coarsening) = setup.next() else { break };
                    let numbers = coarsening.numbers(a, &inverse, omega)?;
                    coarsening.refill(&numbers, transfers);
                    (pattern, size) = (coarsening.coarse.clone(), coarsening.modes());
                    values = Cow::Owned(numbers.coarse);
                }
            }
        }
        Ok(())
    }
}
