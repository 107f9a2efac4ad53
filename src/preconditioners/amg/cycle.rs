//! One V-cycle, in single precision.
//!
//! ```text
//! cycle(b):                               on the coarsest level: x = A⁻¹ b, dense
//!     x ← w₁ D⁻¹ b                        sweeps with weights w₁ … w_k, from a zero initial guess
//!     x ← x + w_i D⁻¹ (b − A x)
//!     x ← x + P cycle(Pᵀ (b − A x))       below unsmoothed aggregates, PASSES cycles, each continuing from
//!                                         the result of the one before (unsmoothed.rs)
//!     x ← x + w_i D⁻¹ (b − A x)           all k sweeps, in reverse order
//! ```
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

use super::stored::Stored;
use super::unsmoothed::{PASSES, Unsmoothed};
use crate::host::HostVector;
use crate::memory::check_free_memory;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::coarse::dense_product_many;
use krysp_kernels::cpu::preconditioners::inverse::row_stride;
use krysp_kernels::cpu::run::followed::Then;
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_solvers::{LinearOperator, Result};

/// A level that is smoothed, as opposed to the coarsest one, which is inverted.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) a: Stored,
    /// `D⁻¹`
    pub(super) inverse: HostVector<f32>,
    pub(super) weights: Vec<f32>,
    /// Correction factor of the eigenvalue estimate in a refresh, see [`largest`](super::spectrum::largest).
    pub(super) gain: Option<f64>,
    /// `None` on the last level if that is only smoothed.
    pub(super) transfer: Option<Transfer>,
}

saved!(impl[] Level { a, inverse, weights, gain, transfer });

/// Transfer to the next level and back.
#[derive(Debug)]
pub(super) enum Transfer {
    /// `P` and `Pᵀ`
    Smoothed(Box<[Stored; 2]>),
    /// Unsmoothed aggregation, on the finest level only.
    Unsmoothed(Box<Unsmoothed>),
}

saved!(impl[] enum Transfer { Smoothed { 0: transfers }, Unsmoothed { 0: unsmoothed } });

impl Transfer {
    /// Bytes that a cycle reads.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Transfer::Smoothed(transfers) => transfers.iter().map(LinearOperator::bytes).sum(),
            Transfer::Unsmoothed(unsmoothed) => unsmoothed.bytes(),
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
    pub(super) fn prepare(&mut self, levels: &[Level], dense: Option<&Dense>) -> Result<()> {
        if self.levels.is_empty() {
            let rows = levels.iter().map(|level| level.inverse.as_slice().len());
            let rows = rows.chain(dense.map(|dense| dense.rows));
            let padded = W * dense.map_or(0, |dense| row_stride(dense.rows));
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

/// Applies one cycle to the right-hand sides in `workspace`.
pub(super) fn cycle<const W: usize>(levels: &[Level], dense: Option<&Dense>, workspace: &mut Workspace<W>) {
    down_and_up::<W>(levels, dense, &mut workspace.levels, &mut workspace.padded, true);
}

fn down_and_up<const W: usize>(
    levels: &[Level],
    dense: Option<&Dense>,
    workspaces: &mut [[Buffer<f32>; 3]],
    padded: &mut Buffer<f32>,
    from_zero: bool,
) {
    let Some(([b, x, t], below)) = workspaces.split_first_mut() else { return };
    let Some((level, coarser)) = levels.split_first() else {
        if let Some(dense) = dense {
            for (j, to) in padded.chunks_mut(row_stride(dense.rows).max(1)).enumerate() {
                to.iter_mut().zip(b.as_chunks::<W>().0).for_each(|(to, b)| *to = b[j]);
            }
            dense_product_many::<f32, W>(&dense.inverse, dense.rows, padded, x);
        }
        return;
    };
    let Level { a, inverse, weights, transfer, .. } = level;
    let inverse = inverse.as_slice();
    match from_zero {
        true => scaled::<W>(weights[0], inverse, b, x),
        false => sweep::<W>(a, weights[0], inverse, b, [x, t]),
    }
    for &weight in &weights[1..] {
        sweep::<W>(a, weight, inverse, b, [x, t]);
    }
    if let (Some(transfer), Some([b_below, ..])) = (transfer, below.first_mut()) {
        a.product::<W>(Some(Then::Subtract { b }), x, t);
        match transfer {
            Transfer::Smoothed(transfers) => {
                let [p, r] = &**transfers;
                r.product::<W>(None, t, b_below);
                down_and_up::<W>(coarser, dense, below, padded, true);
                p.product::<W>(Some(Then::Add { b: x }), &below[0][1], t);
                std::mem::swap(x, t);
            }
            Transfer::Unsmoothed(unsmoothed) => {
                unsmoothed.restrict::<W>(t, b_below);
                // an exact solve leaves no residual for a second pass
                for pass in 0..if coarser.is_empty() { 1 } else { PASSES } {
                    down_and_up::<W>(coarser, dense, below, padded, pass == 0);
                }
                unsmoothed.add::<W>(&below[0][1], x);
            }
        }
    }
    for &weight in weights.iter().rev() {
        sweep::<W>(a, weight, inverse, b, [x, t]);
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

/// `x ← x + w D⁻¹ (b − A x)`, using `t` as workspace
fn sweep<const W: usize>(
    a: &Stored,
    weight: f32,
    inverse: &[f32],
    b: &Buffer<f32>,
    [x, t]: [&mut Buffer<f32>; 2],
) {
    a.product::<W>(Some(Then::Relax { weight, inverse, b }), x, t);
    std::mem::swap(x, t);
}
