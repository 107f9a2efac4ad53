//! The setup on ranks as a [`Memory`].

use super::level::LevelMatrix;
use super::local::{LocalSetup, Single};
use super::setup::{Aggregated, Rows};
use super::{FEW, Last, Transfer};
use crate::error::{Error, Result};
use crate::preconditioners::amg::aggregates::Aggregates;
use crate::preconditioners::amg::hierarchy::{Coarser, LevelOf, Memory};
use crate::preconditioners::amg::modes::NearNullSpace;
use crate::preconditioners::amg::report::LevelReport;
use crate::preconditioners::amg::spectrum::{largest, noise};
use crate::preconditioners::amg::{AmgOptions, strength};
use crate::ranks::Ranks;
use crate::ranks::local::RankMemory;
use krysp_kernels::interrupt;
use krysp_solvers::{BasicVector, Diagonal, LinearOperator, Space};
use std::sync::Arc;

/// The setup on ranks. All methods are collective.
pub(super) struct OnRanks<L: LocalSetup> {
    pub(super) ranks: Ranks,
    pub(super) local: L,
    /// Link between the GPUs of all ranks.
    pub(super) link: Option<<L as RankMemory<f32>>::Link>,
    pub(super) options: AmgOptions,
    /// The aggregates of the finest level if its nodes differ in their number of unknowns.
    pub(super) known: Option<Aggregates>,
}

impl<L: LocalSetup> Memory for OnRanks<L> {
    type Matrix<'a> = Rows<L>;
    type Inverse = L::Inverse;
    type Modes = NearNullSpace<L::Numbers>;
    type Aggregates = Aggregated<L>;
    type Stored = LevelMatrix<L>;
    type Diagonal = Single<L>;
    type Transfer = Transfer<L>;
    type Last = Last;

    fn options(&self) -> &AmgOptions {
        &self.options
    }

    fn rows(&self, a: &Rows<L>) -> u64 {
        a.all()
    }

    fn is_last(&self, a: &Rows<L>) -> bool {
        a.all() <= (self.options.max_coarse_size as u64).max(FEW * self.ranks.size() as u64)
    }

    fn check_interrupt(&self) -> Result<()> {
        self.ranks.all(interrupt::check("AMG setup").map_err(Error::from))
    }

    fn aggregates(&mut self, _: usize, a: &Rows<L>, modes: &Self::Modes) -> Result<Option<Aggregated<L>>> {
        a.aggregates(modes, &self.options, self.known.take())
    }

    fn inverse(&self, _: usize, a: &mut Rows<L>) -> Result<L::Inverse> {
        self.ranks.all(L::inverse(&a.a))
    }

    fn least(&self, _: usize, inverse: &L::Inverse) -> Result<f64> {
        let own = self.ranks.all(L::least(inverse))?;
        Ok(strength::least_of(&self.ranks.gather(vec![own])?))
    }

    fn stored(
        &self,
        _: usize,
        a: &Rows<L>,
        inverse: &L::Inverse,
        scale: f64,
    ) -> Result<(LevelMatrix<L>, Single<L>)> {
        let diagonal = self.ranks.all(self.local.rounded(inverse, scale))?;
        Ok((a.narrow(self.link.clone(), scale)?, diagonal))
    }

    fn refill(&self, level: &mut LevelOf<Self>, a: &Rows<L>, inverse: &L::Inverse, scale: f64) -> Result<()> {
        let outside = L::refill(&mut level.a.inside, &a.a, scale);
        self.ranks.all(outside.and_then(|outside| level.a.refresh_outside(&outside, scale)))?;
        level.inverse = self.ranks.all(self.local.rounded(inverse, scale))?;
        Ok(())
    }

    fn largest(&self, _: usize, level: &mut LevelOf<Self>) -> Result<f64> {
        let (space, own) = (level.a.domain(), level.a.domain().rows());
        let made = || {
            let noise = space.vector(&noise(own.start as usize..own.end as usize))?;
            let mut inverse = space.zeros()?;
            inverse.own_mut().copy_from(&level.inverse);
            Ok((noise, Diagonal::new(inverse)))
        };
        let (noise, inverse) = self.ranks.all(made())?;
        largest(&level.a, &inverse, noise, &mut level.gain)
    }

    fn coarser<'a>(
        &self,
        a: &Rows<L>,
        smoothed: Option<(&L::Inverse, f64)>,
        _: &Self::Modes,
        (aggregates, below): Aggregated<L>,
    ) -> Result<Coarser<'a, Self>> {
        let (transfer, coarse) = a.coarser(Arc::new(aggregates), smoothed, &self.options)?;
        let below = match smoothed {
            Some(_) => below,
            None => {
                let values = self.ranks.all(self.local.constants(coarse.nodes(), 1))?;
                NearNullSpace { count: 1, values }
            }
        };
        Ok((transfer, coarse, below))
    }

    fn renew<'a>(
        &self,
        transfer: &mut Transfer<L>,
        a: &Self::Matrix<'_>,
        inverse: &L::Inverse,
        omega: f64,
    ) -> Result<Self::Matrix<'a>> {
        let smoothed = (!transfer.unsmoothed).then_some((inverse, omega));
        let (renewed, coarse) = a.coarser(transfer.aggregates.clone(), smoothed, &self.options)?;
        *transfer = renewed;
        Ok(coarse)
    }

    /// Replicates the level on all ranks.
    fn last(&self, a: &Rows<L>, modes: &Self::Modes, _: f64) -> Result<Last> {
        let values = self.ranks.all(L::read_numbers(&modes.values))?;
        Last::new(a, NearNullSpace { count: modes.count, values }, self.options)
    }

    fn renew_last(&self, last: &mut Last, a: &Rows<L>, _: f64) -> Result<()> {
        *last = Last::new(a, last.modes.clone(), self.options)?;
        Ok(())
    }

    fn report(&self, level: &LevelOf<Self>) -> Result<LevelReport> {
        let (own, format) = (level.a.domain().local_len(), L::name(&level.a.inside));
        let (formats, transfer) = match &level.transfer {
            Some(transfer) => {
                let [p, r] = transfer.stored.each_ref().map(L::name);
                (format!("{format}, {p} and {r}"), transfer.bytes())
            }
            None => (format.into(), 0),
        };
        let bytes = level.a.bytes() + 4 * own + transfer;
        let all = self.ranks.gather(vec![level.a.entries as u64, bytes as u64])?;
        let sum = |which: usize| all.iter().skip(which).step_by(2).sum::<u64>() as usize;
        Ok(LevelReport::new(level.a.domain().len(), sum(0), sum(1), formats))
    }

    fn report_last(&self, last: &Last) -> LevelReport {
        LevelReport::dense(last.amg.domain().len())
    }
}
