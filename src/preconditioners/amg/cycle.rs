//! One V-cycle, in single precision.
//!
//! ```text
//! cycle(b):                               on the coarsest level: x = A⁻¹ b, dense
//!     x ← w₁ D⁻¹ b                        sweeps with weights w₁ … w_k, from a zero initial guess
//!     x ← x + w_i D⁻¹ (b − A x)
//!     x ← x + P cycle(Pᵀ (b − A x))       below unsmoothed aggregates, PASSES cycles, each continuing from
//!                                         the result of the one before (plain.rs)
//!     x ← x + w_i D⁻¹ (b − A x)           all k sweeps, in reverse order
//! ```
//!
//! Jacobi sweeps whose weights are the inverse roots of a Chebyshev polynomial apply that polynomial
//! (Chebyshev smoothing). Sweeps after the correction run in reverse order, so the cycle is symmetric, and it
//! is positive definite where `1 − Π (1 − w_i λ)` is positive.
//!
//! Cost of a level: `2 k` products with `A`, one more for each cycle that starts from a nonzero guess, one
//! with `P` and one with `Pᵀ`, 4 bytes a value. Sweeps, residuals and corrections are fused with the
//! products, so that each reads and writes its vectors once.

use super::plain::{PASSES, Plain};
use super::stored::Stored;
use crate::saved::{Loaded, Reader, Saved, Writer, saved};
use crate::{HostSpace, HostVector};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::coarse::dense_product;
use krysp_kernels::cpu::preconditioners::inverse::row_stride;
use krysp_kernels::cpu::run::followed::Then;
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_solvers::{LinearOperator, Result, Space};

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
    Plain(Box<Plain>),
}

impl Saved for Transfer {
    fn save(&self, to: &mut Writer<'_>) {
        match self {
            Transfer::Smoothed(transfers) => {
                true.save(to);
                transfers.iter().for_each(|matrix| matrix.save(to));
            }
            Transfer::Plain(plain) => {
                false.save(to);
                plain.save(to);
            }
        }
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Transfer> {
        Ok(match from.load()? {
            true => Transfer::Smoothed(Box::new([from.load()?, from.load()?])),
            false => Transfer::Plain(Box::new(from.load()?)),
        })
    }
}

impl Transfer {
    /// Bytes that a cycle reads.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Transfer::Smoothed(transfers) => transfers.iter().map(LinearOperator::bytes).sum(),
            Transfer::Plain(plain) => plain.bytes(),
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

/// Workspace of a cycle.
#[derive(Debug)]
pub(super) struct Workspace {
    /// `b`, `x` and a temporary vector for each level, the coarsest one included.
    levels: Vec<[HostVector<f32>; 3]>,
    /// `b` and `x` of the coarsest level, padded to whole SIMD registers.
    dense: [Vec<f32>; 2],
}

impl Workspace {
    pub(super) fn new(levels: &[Level], dense: Option<&Dense>) -> Result<Workspace> {
        let rows = levels.iter().map(|level| level.inverse.as_slice().len());
        let of = |rows: usize| -> Result<_> {
            let space = HostSpace::new(rows);
            Ok([space.zeros()?, space.zeros()?, space.zeros()?])
        };
        let levels = rows.chain(dense.map(|dense| dense.rows)).map(of).collect::<Result<_>>()?;
        let stride = dense.map_or(0, |dense| row_stride(dense.rows));
        Ok(Workspace { levels, dense: [0; 2].map(|_| vec![0.0; stride]) })
    }

    /// The right-hand side and the solution of the finest level.
    pub(super) fn ends(&mut self) -> [&mut [f32]; 2] {
        match self.levels.first_mut() {
            Some([b, x, _]) => [b.as_mut_slice(), x.as_mut_slice()],
            None => [&mut [], &mut []],
        }
    }
}

/// Applies one cycle to the right-hand side in `workspace`.
pub(super) fn cycle(levels: &[Level], dense: Option<&Dense>, workspace: &mut Workspace) -> Result<()> {
    down_and_up(levels, dense, &mut workspace.levels, &mut workspace.dense, true)
}

fn down_and_up(
    levels: &[Level],
    dense: Option<&Dense>,
    workspaces: &mut [[HostVector<f32>; 3]],
    registers: &mut [Vec<f32>; 2],
    from_zero: bool,
) -> Result<()> {
    let Some(([b, x, t], below)) = workspaces.split_first_mut() else { return Ok(()) };
    let Some((level, coarser)) = levels.split_first() else {
        if let Some(dense) = dense {
            let [from, to] = registers;
            from[..dense.rows].copy_from_slice(b.as_slice());
            dense_product(&dense.inverse, dense.rows, from, to);
            x.as_mut_slice().copy_from_slice(&to[..dense.rows]);
        }
        return Ok(());
    };
    let Level { a, inverse, weights, transfer, .. } = level;
    match from_zero {
        true => scaled(weights[0], inverse, b, x),
        false => sweep(a, weights[0], inverse, b, [x, t])?,
    }
    for &weight in &weights[1..] {
        sweep(a, weight, inverse, b, [x, t])?;
    }
    if let (Some(transfer), Some([b_below, ..])) = (transfer, below.first_mut()) {
        a.product(Then::Subtract { b: b.as_slice() }, x, t)?;
        match transfer {
            Transfer::Smoothed(transfers) => {
                let [p, r] = &**transfers;
                r.apply(t, b_below)?;
                down_and_up(coarser, dense, below, registers, true)?;
                p.product(Then::Add { b: x.as_slice() }, &below[0][1], t)?;
                std::mem::swap(x, t);
            }
            Transfer::Plain(plain) => {
                plain.restrict(t, b_below);
                // an exact solve leaves no residual for a second pass
                for pass in 0..if coarser.is_empty() { 1 } else { PASSES } {
                    down_and_up(coarser, dense, below, registers, pass == 0)?;
                }
                plain.add(&below[0][1], x);
            }
        }
    }
    for &weight in weights.iter().rev() {
        sweep(a, weight, inverse, b, [x, t])?;
    }
    Ok(())
}

/// `x ← w D⁻¹ b`
pub(super) fn scaled(weight: f32, inverse: &HostVector<f32>, b: &HostVector<f32>, x: &mut HostVector<f32>) {
    let (inverse, b) = (inverse.as_slice(), b.as_slice());
    over_rows(b.len(), 3, x.as_mut_slice(), &|rows, x: &mut [f32]| {
        for ((x, b), d) in x.iter_mut().zip(&b[rows.clone()]).zip(&inverse[rows]) {
            *x = weight * d * b;
        }
    });
}

/// `x ← x + w D⁻¹ (b − A x)`, using `t` as workspace
fn sweep(
    a: &Stored,
    weight: f32,
    inverse: &HostVector<f32>,
    b: &HostVector<f32>,
    [x, t]: [&mut HostVector<f32>; 2],
) -> Result<()> {
    a.product(Then::Relax { weight, inverse: inverse.as_slice(), b: b.as_slice() }, x, t)?;
    std::mem::swap(x, t);
    Ok(())
}
