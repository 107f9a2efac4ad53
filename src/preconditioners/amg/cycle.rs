//! One cycle in host memory, in single precision. Its operations and their order are those of
//! [`krysp_kernels::multigrid`].
//!
//! Jacobi sweeps whose weights are the inverse roots of a Chebyshev polynomial apply that polynomial
//! (Chebyshev smoothing). Sweeps after the correction run in reverse order, so the cycle is symmetric. It is
//! positive definite if `1 − Π (1 − w_i λ)` is positive for every eigenvalue `λ` of `D⁻¹ A`.
//!
//! Cost of a level: `2 k` products with `A`, one more for each cycle that starts from a nonzero guess, one
//! with `P` and one with `Pᵀ`, 4 bytes a value. Sweeps, residuals and corrections are fused with the
//! products, so that each reads and writes its vectors once.
//!
//! A cycle works on `W` vectors stored row by row: one, or those of a [tile](krysp_kernels::cpu::run::tiles),
//! so that the matrices are read once for all of them. Results are bitwise those of separate cycles.

use super::aggregates::Aggregates;
use super::coarsening::Coarsening;
use super::stored::Stored;
use super::unsmoothed::Unsmoothed;
use crate::host::HostVector;
use crate::memory::check_free_memory;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::coarse::dense_product_many;
use krysp_kernels::cpu::preconditioners::inverse::row_stride;
use krysp_kernels::cpu::run::followed::Then;
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_kernels::multigrid::{self, LevelBytes, Levels, Shape};
use krysp_solvers::LinearOperator;
use std::convert::Infallible;

/// A level that is smoothed, as opposed to the coarsest one, which is inverted.
pub(super) type Level = multigrid::Level<Stored, HostVector<f32>, Transfer>;

saved!(impl[] Level { a, inverse, weights, gain, transfer, visits });

/// The levels in host memory.
pub(super) type Hierarchy = multigrid::Hierarchy<Stored, HostVector<f32>, Transfer, Dense>;

saved!(impl[] Hierarchy { scale, levels, last });

/// Transfer to the next level and back.
#[derive(Debug)]
pub(super) enum Transfer {
    /// Smoothed aggregation.
    Smoothed(Box<Coarsening>),
    /// Unsmoothed aggregation, on the finest level only.
    Unsmoothed(Box<Unsmoothed>),
}

saved!(impl[] enum Transfer { Smoothed { 0: coarsening }, Unsmoothed { 0: unsmoothed } });

impl Transfer {
    /// Bytes that a cycle reads.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Transfer::Smoothed(coarsening) => coarsening.transfers.iter().map(LinearOperator::bytes).sum(),
            Transfer::Unsmoothed(unsmoothed) => unsmoothed.bytes(),
        }
    }

    /// The aggregates.
    pub(super) fn aggregates(&self) -> &Aggregates {
        match self {
            Transfer::Smoothed(coarsening) => &coarsening.aggregates,
            Transfer::Unsmoothed(unsmoothed) => &unsmoothed.aggregates,
        }
    }
}

/// The inverse of the coarsest level.
#[derive(Debug)]
pub(super) struct Dense {
    pub(super) rows: usize,
    pub(super) inverse: Buffer<f32>,
}

saved!(impl[] Dense { rows, inverse } where |read| {
    read.rows.checked_mul(row_stride(read.rows)).is_some_and(|numbers| numbers <= read.inverse.len())
});

/// Bytes that a cycle reads.
pub(super) fn bytes(hierarchy: &Hierarchy) -> usize {
    let of_level = |level: &Level| LevelBytes {
        sweep: level.a.bytes() + size_of_val(level.inverse.as_slice()),
        transfer: level.transfer.as_ref().map_or(0, Transfer::bytes),
    };
    hierarchy.bytes(of_level, |dense| size_of_val(&*dense.inverse))
}

/// Workspace of a cycle with `W` vectors, which are stored row by row.
#[derive(Debug, Default)]
pub(super) struct Workspace<const W: usize> {
    /// `b`, `x` and a temporary vector for each level, including the coarsest one. Empty before the first
    /// cycle.
    levels: Vec<[Buffer<f32>; 3]>,
    /// `b` of the coarsest level: the vectors one after the other, each padded to whole SIMD registers.
    padded: Buffer<f32>,
}

impl<const W: usize> Workspace<W> {
    /// Allocates the workspace, unless that has been done.
    pub(super) fn prepare(&mut self, hierarchy: &Hierarchy) -> krysp_solvers::Result<()> {
        if self.levels.is_empty() {
            let Hierarchy { levels, last: dense, .. } = hierarchy;
            let rows = levels.iter().map(|level| level.inverse.as_slice().len());
            let rows = rows.chain(dense.as_ref().map(|dense| dense.rows));
            let padded = W * dense.as_ref().map_or(0, |dense| row_stride(dense.rows));
            let numbers = rows.clone().map(|rows| 3 * W * rows).sum::<usize>() + padded;
            check_free_memory("the workspace of AMG", (numbers * size_of::<f32>()) as u128)?;
            self.levels = rows.map(|rows| [(); 3].map(|()| Buffer::zeros(rows * W))).collect();
            self.padded = Buffer::zeros(padded);
        }
        Ok(())
    }

    /// The right-hand sides and the solutions of the finest level.
    pub(super) fn ends(&mut self) -> [&mut [f32]; 2] {
        match self.levels.first_mut() {
            Some([b, x, _]) => [b, x],
            None => [&mut [], &mut []],
        }
    }
}

/// A hierarchy with the vectors of a cycle.
struct OnVectors<'a, const W: usize> {
    hierarchy: &'a Hierarchy,
    workspace: &'a mut Workspace<W>,
}

/// Applies one cycle to the right-hand sides in `workspace`.
pub(super) fn cycle<const W: usize>(hierarchy: &Hierarchy, workspace: &mut Workspace<W>) {
    let Ok(()) = multigrid::cycle(&mut OnVectors { hierarchy, workspace }, 0, true);
}

impl<const W: usize> Levels for OnVectors<'_, W> {
    type Error = Infallible;

    fn shape(&self, level: usize) -> Option<Shape> {
        self.hierarchy.levels.get(level).map(Level::shape)
    }

    fn smooth(&mut self, level: usize, k: usize, from_zero: bool) -> Result<(), Infallible> {
        let Level { a, inverse, weights, .. } = &self.hierarchy.levels[level];
        let ([b, x, t], weight) = (&mut self.workspace.levels[level], weights[k]);
        let inverse = inverse.as_slice();
        if from_zero {
            scaled::<W>(weight, inverse, b, x);
        } else {
            a.product::<W>(Some(Then::Relax { weight, inverse, b }), x, t);
            std::mem::swap(x, t);
        }
        Ok(())
    }

    fn restrict(&mut self, level: usize) -> Result<(), Infallible> {
        let Level { a, transfer, .. } = &self.hierarchy.levels[level];
        if let [[b, x, t], [b_below, ..], ..] = &mut self.workspace.levels[level..] {
            a.product::<W>(Some(Then::Subtract { b }), x, t);
            match transfer {
                Some(Transfer::Smoothed(smoothed)) => smoothed.transfers[1].product::<W>(None, t, b_below),
                Some(Transfer::Unsmoothed(unsmoothed)) => unsmoothed.restrict::<W>(t, b_below),
                None => {}
            }
        }
        Ok(())
    }

    fn solve(&mut self) -> Result<(), Infallible> {
        let Workspace { levels, padded } = &mut *self.workspace;
        if let (Some(dense), Some([b, x, _])) = (&self.hierarchy.last, levels.last_mut()) {
            for (j, to) in padded.chunks_mut(row_stride(dense.rows).max(1)).enumerate() {
                to.iter_mut().zip(b.as_chunks::<W>().0).for_each(|(to, b)| *to = b[j]);
            }
            dense_product_many::<f32, W>(&dense.inverse, dense.rows, padded, x);
        }
        Ok(())
    }

    fn prolong(&mut self, level: usize) -> Result<(), Infallible> {
        if let [[_, x, t], [_, below, _], ..] = &mut self.workspace.levels[level..] {
            match &self.hierarchy.levels[level].transfer {
                Some(Transfer::Smoothed(smoothed)) => {
                    smoothed.transfers[0].product::<W>(Some(Then::Add { b: x }), below, t);
                    std::mem::swap(x, t);
                }
                Some(Transfer::Unsmoothed(unsmoothed)) => unsmoothed.add::<W>(below, x),
                None => {}
            }
        }
        Ok(())
    }
}

/// `x ← w D⁻¹ b`, for `W` vectors stored row by row.
pub(crate) fn scaled<const W: usize>(weight: f32, inverse: &[f32], b: &[f32], x: &mut [f32]) {
    let (b, x) = (b.as_chunks::<W>().0, x.as_chunks_mut::<W>().0);
    over_rows(inverse.len(), 2 * W + 1, x, &|rows, x: &mut [[f32; W]]| {
        for ((x, b), d) in x.iter_mut().zip(&b[rows.clone()]).zip(&inverse[rows]) {
            let factor = weight * d;
            (0..W).for_each(|j| x[j] = factor * b[j]);
        }
    });
}
