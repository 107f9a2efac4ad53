//! The setup on ranks as a [`Memory`].

use super::setup::{RankAggregates, Rows};
use super::{FEW, Last, Transfer};
use crate::error::{Error, Result};
use crate::host::{HostSpace, HostVector};
use crate::mpi::matrix::RankMatrix;
use crate::mpi::ranks::Ranks;
use crate::preconditioners::amg::hierarchy::{Coarser, LevelOf, Memory};
use crate::preconditioners::amg::modes::NearNullSpace;
use crate::preconditioners::amg::nodes::Nodes;
use crate::preconditioners::amg::on_host::round;
use crate::preconditioners::amg::report::LevelReport;
use crate::preconditioners::amg::spectrum::{largest, noise};
use crate::preconditioners::amg::stored::rounded;
use crate::preconditioners::amg::{Amg, AmgOptions, strength};
use krysp_kernels::interrupt;
use krysp_solvers::{Diagonal, LinearOperator, Space};
use std::sync::Arc;

/// The setup on ranks. All methods are collective.
pub(super) struct OnRanks {
    pub(super) ranks: Ranks,
    pub(super) options: AmgOptions,
    /// Nodes of the finest level that differ in their number of unknowns.
    pub(super) nodes: Option<Nodes>,
}

impl Memory for OnRanks {
    type Matrix<'a> = Rows;
    type Inverse = Vec<f64>;
    type Modes = NearNullSpace;
    type Aggregates = RankAggregates;
    type Stored = RankMatrix<f32>;
    type Diagonal = HostVector<f32>;
    type Transfer = Transfer;
    type Last = Last;

    fn options(&self) -> &AmgOptions {
        &self.options
    }

    fn rows(&self, a: &Rows) -> u64 {
        a.all()
    }

    fn is_last(&self, a: &Rows) -> bool {
        a.all() <= (self.options.max_coarse_size as u64).max(FEW * self.ranks.size() as u64)
    }

    fn check_interrupt(&self) -> Result<()> {
        self.ranks.all(interrupt::check("AMG setup").map_err(Error::from))
    }

    fn aggregates(&mut self, _: usize, a: &Rows, modes: &NearNullSpace) -> Result<Option<RankAggregates>> {
        a.aggregates(modes, self.options.strength, self.nodes.take())
    }

    fn inverse(&self, _: usize, a: &mut Rows) -> Result<Vec<f64>> {
        self.ranks.all(strength::inverse_diagonal(a.blocks()))
    }

    fn least(&self, _: usize, inverse: &Vec<f64>) -> Result<f64> {
        Ok(strength::least_of(&self.ranks.gather(vec![strength::least_of(inverse)])?))
    }

    fn stored(
        &self,
        _: usize,
        a: &Rows,
        inverse: &Vec<f64>,
        scale: f64,
    ) -> Result<(RankMatrix<f32>, HostVector<f32>)> {
        Ok((a.narrow(scale)?, self.ranks.all(rounded_diagonal(inverse, scale))?))
    }

    fn refill(&self, level: &mut LevelOf<Self>, a: &Rows, inverse: &Vec<f64>, scale: f64) -> Result<()> {
        level.a.refresh(&rounded(a.blocks(), scale))?;
        level.inverse = self.ranks.all(rounded_diagonal(inverse, scale))?;
        Ok(())
    }

    fn largest(&self, _: usize, level: &mut LevelOf<Self>) -> Result<f64> {
        let (space, own) = (level.a.domain(), level.a.domain().rows());
        let noise = space.vector(&noise(own.start as usize..own.end as usize))?;
        let diagonal = Diagonal::new(space.vector(level.inverse.as_slice())?);
        largest(&level.a, &diagonal, noise, &mut level.gain)
    }

    fn coarser<'a>(
        &self,
        a: &Rows,
        smoothed: Option<(&Vec<f64>, f64)>,
        _: &NearNullSpace,
        aggregates: RankAggregates,
    ) -> Result<Coarser<'a, Self>> {
        let aggregates = Arc::new(aggregates);
        let Some((inverse, omega)) = smoothed else {
            let below = NearNullSpace::constants(aggregates.near.own, 1);
            let (transfer, coarse) = a.unsmoothed(aggregates)?;
            return Ok((transfer, coarse, below));
        };
        let below = aggregates.below.clone();
        let (transfer, coarse) = a.smoothed(aggregates, inverse, omega)?;
        Ok((transfer, coarse, below))
    }

    fn renew<'a>(
        &self,
        transfer: &mut Transfer,
        a: &Rows,
        inverse: &Vec<f64>,
        omega: f64,
    ) -> Result<Self::Matrix<'a>> {
        let (aggregates, unsmoothed) = transfer.made_of.clone();
        let (renewed, coarse) = match unsmoothed {
            true => a.unsmoothed(aggregates)?,
            false => a.smoothed(aggregates, inverse, omega)?,
        };
        *transfer = renewed;
        Ok(coarse)
    }

    /// Replicates the level on all ranks.
    fn last(&self, a: &Rows, modes: &NearNullSpace, _: f64) -> Result<Last> {
        let (csr, whole) = a.everywhere(modes)?;
        let amg = Amg::of_nodes(&csr, a.size, (whole, None), false, self.options);
        Ok(Last::new(self.ranks.all(amg)?, a, modes.clone()))
    }

    fn renew_last(&self, last: &mut Last, a: &Rows, scale: f64) -> Result<()> {
        *last = self.last(a, &last.modes, scale)?;
        Ok(())
    }

    fn report(&self, level: &LevelOf<Self>) -> Result<LevelReport> {
        let (report, own) = (RankMatrix::report(&level.a), level.inverse.as_slice().len());
        let formats = match &level.transfer {
            Some(Transfer { p, r, .. }) => format!("{}, {} and {}", report.format, p.name(), r.name()),
            None => report.format.clone(),
        };
        let bytes = level.a.bytes() + 4 * own + level.transfer.as_ref().map_or(0, Transfer::bytes);
        let all = self.ranks.gather(vec![report.entries as u64, bytes as u64])?;
        let sum = |which: usize| all.iter().skip(which).step_by(2).sum::<u64>() as usize;
        Ok(LevelReport::new(level.a.domain().len(), sum(0), sum(1), formats))
    }

    fn report_last(&self, last: &Last) -> LevelReport {
        LevelReport::dense(last.amg.domain().len())
    }
}

/// The inverse diagonal of `scale A`, one for zero rows.
fn rounded_diagonal(inverse: &[f64], scale: f64) -> Result<HostVector<f32>> {
    let mut rounded = HostSpace::new(inverse.len()).zeros()?;
    round(inverse, scale, &mut rounded);
    Ok(rounded)
}
