//! Algebraic multigrid by smoothed aggregation: the levels are built from the matrix alone, each some ten to
//! thirty times smaller than the one before.
//!
//! ```text
//! setup, level by level, until few rows are left: hierarchy.rs, the same in every memory
//!     strong connections            strength.rs
//!     aggregates                    aggregates.rs
//!     P = T, A ← Tᵀ A T             unsmoothed.rs: unsmoothed, only on the finest level
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
pub(crate) mod hierarchy;
pub(crate) mod modes;
pub(crate) mod nodes;
#[cfg(feature = "cuda")]
pub(crate) mod on_cuda;
pub(crate) mod on_host;
mod options;
pub(crate) mod product;
pub(crate) mod report;
mod saved;
#[cfg(feature = "cuda")]
pub(crate) mod setup_on_cuda;
pub(crate) mod spectrum;
pub(crate) mod stored;
pub(crate) mod strength;
pub(crate) mod unsmoothed;

pub use modes::{UnknownOrder, rigid_body_modes};
#[cfg(feature = "cuda")]
pub use on_cuda::OnGpu;
pub use options::AmgOptions;

use super::{MatrixSource, Refresh, check_space, check_square, finite};
use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::formats::pattern::check_pattern;
use crate::formats::{Csr, Format, node_pattern};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use apply::Workspaces;
use cycle::{Hierarchy, Transfer};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
use krysp_solvers::{Element, Space};
use modes::{NearNullSpace, check_modes};
use nodes::Nodes;
use on_host::{Matrix, OnHost};
use rayon::prelude::*;
use report::LevelReport;
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use stored::gathered;

/// Name in error messages.
const NAME: &str = "AMG";

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
    hierarchy: Hierarchy,
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
            hierarchy: Hierarchy { scale: 1.0, levels: vec![], last: None },
            workspaces: Workspaces::default(),
            reports: vec![],
        };
        let mut memory = OnHost { options, nodes: near.1 };
        (amg.hierarchy, amg.reports) =
            hierarchy::build(&mut memory, amg.matrix(csr), near.0, unsmoothed, started)?;
        Ok(amg)
    }

    /// The aggregate of each node of each level, `None` for nodes that are only smoothed.
    #[doc(hidden)]
    pub fn aggregates(&self) -> Vec<Vec<Option<u32>>> {
        let of = |&aggregate: &u32| (aggregate != aggregates::NONE).then_some(aggregate);
        let all = self.hierarchy.levels.iter().filter_map(|level| level.transfer.as_ref());
        let all = all.map(Transfer::aggregates);
        all.map(|aggregates| aggregates.of_node.iter().map(of).collect()).collect()
    }

    /// The matrix in double precision, gathered block by block unless it can be read in place.
    fn matrix<'a>(&self, csr: &'a Csr<T>) -> Matrix<'a> {
        let entries: Cow<'a, Buffer<f64>> = match (csr.values() as &dyn Any).downcast_ref::<Buffer<f64>>() {
            Some(values) => Cow::Borrowed(values),
            None => Cow::Owned(map_rows(csr.nnz(), 2, &|at| Element::to_f64(csr.entries()[at])).into()),
        };
        let (pattern, size) = (self.pattern.clone(), self.size);
        // in a matrix of whole blocks, all rows of a node have the same pattern
        match csr.nnz() == pattern.entries() * size * size {
            true => Matrix { rows: Some(self.whole.clone()), pattern, size, values: entries },
            false => Matrix {
                values: Cow::Owned(gathered(&entries, &self.whole, &pattern, size)),
                rows: None,
                pattern,
                size,
            },
        }
    }
}

/// The modes in the row order of the matrix.
fn loaded<T: Real, V: AsRef<[T]> + Sync>(space: &HostSpace<T>, modes: &[V]) -> Result<NearNullSpace> {
    check_modes(modes)?;
    let loaded: Vec<HostVector<T>> =
        modes.par_iter().map(|mode| Ok(space.vector(mode.as_ref())?)).collect::<Result<_>>()?;
    let count = modes.len();
    let entry = |at: usize| Element::to_f64(loaded[at % count].as_slice()[at / count]);
    Ok(NearNullSpace { count, values: map_rows(space.len() * count, 2, &entry) })
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
        let a = self.matrix(csr);
        hierarchy::refresh(&OnHost { options: self.options, nodes: None }, &mut self.hierarchy, a)
    }
}
