//! Setup in host memory.

use super::blocks::Blocks;
use super::coarsening::{Coarsening, aggregated};
use super::cycle::{Dense, Level, Transfer};
use super::hierarchy::{Coarser, Memory};
use super::modes::{NearNullSpace, constants};
use super::nodes::Nodes;
use super::report::LevelReport;
use super::spectrum::{largest, noise};
use super::stored::{Stored, expanded};
use super::unsmoothed::Unsmoothed;
use super::{AmgOptions, NAME, aggregates, strength};
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::host::{HostSpace, HostVector};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::Refused;
use krysp_kernels::cpu::preconditioners::inverse::{invert_positive, row_stride};
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
use krysp_kernels::multigrid::gains;
use krysp_solvers::{Diagonal, LinearOperator, Space};
use std::borrow::Cow;
use std::sync::Arc;

/// Largest ratio of a negative pivot of the coarsest level to its diagonal entry, in magnitude, that is
/// attributed to rounding.
pub(super) const SINGULAR: f64 = 1e-8;

/// Relative shift of the diagonal of a coarsest level that is singular up to rounding: far above the rounding
/// of single precision, far below the error reduction of a cycle.
pub(super) const SHIFT: f64 = 1e-5;

/// The setup in host memory.
pub(super) struct OnHost {
    pub(super) options: AmgOptions,
    /// Nodes of the finest level that differ in their number of unknowns.
    pub(super) nodes: Option<Nodes>,
}

/// The matrix of a level in double precision.
pub(super) struct Matrix<'a> {
    /// The pattern of the nodes.
    pub(super) pattern: Arc<Pattern>,
    /// Rows per node.
    pub(super) size: usize,
    pub(super) values: Cow<'a, Buffer<f64>>,
    /// The pattern of the rows if the values are those of its entries; `None` if they are stored block by block.
    pub(super) rows: Option<Arc<Pattern>>,
}

impl Matrix<'_> {
    fn made<'a>(pattern: &Arc<Pattern>, size: usize, values: Buffer<f64>) -> Matrix<'a> {
        Matrix { pattern: pattern.clone(), size, values: Cow::Owned(values), rows: None }
    }

    fn blocks(&self) -> Blocks<'_> {
        let by_rows = self.size > 1 && self.rows.is_some();
        Blocks { by_rows, ..Blocks::new(&self.pattern, [self.size; 2], &self.values) }
    }
}

/// The inverse diagonal of `scale A`, one for zero rows.
pub(crate) fn rounded_diagonal(inverse: &[f64], scale: f64) -> Result<HostVector<f32>> {
    let mut rounded = HostSpace::new(inverse.len()).zeros()?;
    over_rows(inverse.len(), 3, rounded.as_mut_slice(), &|rows, to: &mut [f32]| {
        for (to, &from) in to.iter_mut().zip(&inverse[rows]) {
            *to = if from == 0.0 { 1.0 } else { (from / scale) as f32 };
        }
    });
    Ok(rounded)
}

impl Memory for OnHost {
    type Matrix<'a> = Matrix<'a>;
    type Inverse = Vec<f64>;
    type Modes = NearNullSpace;
    type Aggregates = (Option<Pattern>, aggregates::Aggregates);
    type Stored = Stored;
    type Diagonal = HostVector<f32>;
    type Transfer = Transfer;
    type Last = Dense;

    fn options(&self) -> &AmgOptions {
        &self.options
    }

    fn rows(&self, a: &Matrix<'_>) -> u64 {
        (a.pattern.rows() * a.size) as u64
    }

    fn aggregates(
        &mut self,
        _: usize,
        a: &Matrix<'_>,
        modes: &NearNullSpace,
    ) -> Result<Option<Self::Aggregates>> {
        let (a, theta) = (a.blocks(), self.options.strength);
        let (strong, aggregates) = match self.nodes.take() {
            Some(nodes) => (None, nodes.aggregated(a, theta)?),
            None => aggregated(a, theta)?,
        };
        let rows = (a.pattern.rows() * a.shape[0]) as u64;
        Ok(gains(aggregates.count as u64, modes.count, rows).then_some((strong, aggregates)))
    }

    fn inverse(&self, _: usize, a: &mut Matrix<'_>) -> Result<Vec<f64>> {
        strength::inverse_diagonal(a.blocks())
    }

    fn least(&self, _: usize, inverse: &Vec<f64>) -> Result<f64> {
        Ok(strength::least_of(inverse))
    }

    fn diagonal(&self, inverse: &Vec<f64>, scale: f64) -> Result<HostVector<f32>> {
        rounded_diagonal(inverse, scale)
    }

    fn stored(&self, _: usize, a: &Matrix<'_>, scale: f64) -> Result<Stored> {
        let whole = match &a.rows {
            Some(rows) => rows.in_order(),
            None => expanded(&a.pattern, [a.size; 2])?,
        };
        Stored::new(a.blocks(), &whole, scale)
    }

    fn refill(&self, stored: &mut Stored, a: &Matrix<'_>, scale: f64) -> Result<()> {
        stored.renew(a.blocks(), scale);
        Ok(())
    }

    fn largest(&self, _: usize, level: &mut Level) -> Result<f64> {
        let noise = level.a.range().vector(&noise(0..level.inverse.as_slice().len()))?;
        largest(&level.a, &Diagonal::new(level.inverse.clone()), noise, &mut level.gain)
    }

    fn coarser<'a>(
        &self,
        a: &Matrix<'_>,
        smoothed: Option<(&Vec<f64>, f64)>,
        modes: &NearNullSpace,
        aggregates: Self::Aggregates,
    ) -> Result<Coarser<'a, OnHost>> {
        if let Some((inverse, omega)) = smoothed {
            let (coarsening, values, below) = Coarsening::new(a.blocks(), inverse, omega, modes, aggregates)?;
            let coarse = Matrix::made(&coarsening.coarse, coarsening.modes(), values);
            return Ok((Transfer::Smoothed(Box::new(coarsening)), coarse, below));
        }
        let (unsmoothed, values) = Unsmoothed::new(a.blocks(), aggregates.1)?;
        let (coarse, below) = (&unsmoothed.coarse, constants(unsmoothed.coarse.rows(), 1));
        let coarse = Matrix::made(coarse, 1, values);
        Ok((Transfer::Unsmoothed(Box::new(unsmoothed)), coarse, below))
    }

    fn renew<'a>(
        &self,
        transfer: &mut Transfer,
        a: &Matrix<'_>,
        inverse: &Vec<f64>,
        omega: f64,
    ) -> Result<Matrix<'a>> {
        Ok(match transfer {
            Transfer::Unsmoothed(unsmoothed) => {
                Matrix::made(&unsmoothed.coarse, 1, unsmoothed.numbers(a.blocks())?)
            }
            Transfer::Smoothed(coarsening) => {
                let values = coarsening.refill(a.blocks(), inverse, omega)?;
                Matrix::made(&coarsening.coarse, coarsening.modes(), values)
            }
        })
    }

    fn last(&self, a: &Matrix<'_>, _: &NearNullSpace, scale: f64) -> Result<Dense> {
        inverted(a.blocks(), scale)
    }

    fn renew_last(&self, last: &mut Dense, a: &Matrix<'_>, scale: f64) -> Result<()> {
        *last = inverted(a.blocks(), scale)?;
        Ok(())
    }

    fn report(&self, level: &Level) -> Result<LevelReport> {
        let formats = match &level.transfer {
            Some(Transfer::Smoothed(smoothed)) => {
                let [p, r] = smoothed.transfers.each_ref().map(Stored::name);
                format!("{}, {p} and {r}", level.a.name())
            }
            Some(Transfer::Unsmoothed(_)) => format!("{} and aggregates", level.a.name()),
            None => level.a.name().into(),
        };
        let (rows, transfers) =
            (level.inverse.as_slice().len(), level.transfer.as_ref().map_or(0, Transfer::bytes));
        let bytes = level.a.bytes() + 4 * rows + transfers;
        Ok(LevelReport::new(rows, level.a.entries(), bytes, formats))
    }
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
                for (k, value) in a.rows_of_block(node, entry).flatten().enumerate() {
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
