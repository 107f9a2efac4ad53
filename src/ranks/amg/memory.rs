//! Setup of distributed levels: each rank stores the rows of its nodes, in host memory or on its GPU. Ranks exchange rows
//! at the borders, through host memory.
//!
//! ```text
//! columns of a level:     own nodes, then ghosts in ascending order
//! aggregates, T           of own nodes only
//! P = (I − ω D⁻¹ A_F) T   reads rows of T of ghosts
//! A P                     reads rows of P of ghosts
//! Pᵀ (A P)                rows owned by other ranks are sent there and added
//! ```

use super::blocks::HostBlocks;
use super::level::LevelMatrix;
use super::local::{LocalSetup, ModesOf, Single, Tentative};
use super::on_host::tentative;
use super::rows::{Columns, Rows, common_size, in_blocks, placed, sums};
use super::{FEW, Last, Transfer};
use crate::error::{Error, Result};
use crate::formats::MatrixSource;
use crate::formats::pattern::Pattern;
use crate::host::Host;
use crate::numbers::Real;
use crate::preconditioners::amg::aggregates::Aggregates;
use crate::preconditioners::amg::blocks::transposed_pattern;
use crate::preconditioners::amg::hierarchy::{Coarser, LevelOf, Memory};
use crate::preconditioners::amg::nodes::Nodes;
use crate::preconditioners::amg::report::LevelReport;
use crate::preconditioners::amg::spectrum::{largest, noise};
use crate::preconditioners::amg::unsmoothed::{OVER, is_worthwhile};
use crate::preconditioners::amg::{AmgOptions, strength};
use crate::ranks::Ranks;
use crate::ranks::halo::Routes;
use crate::ranks::local::{Local, RankMemory};
use crate::ranks::matrix::RankMatrix;
use crate::ranks::vector::RankSpace;
use krysp_kernels::index::Offsets;
use krysp_kernels::interrupt;
use krysp_kernels::multigrid::gains;
use krysp_solvers::{BasicVector, Diagonal, LinearOperator, Space};
use std::cell::Cell;
use std::sync::Arc;

/// The aggregates of own nodes and of ghosts, and the tentative prolongator on them.
pub(super) struct RankAggregates<L: LocalSetup> {
    pub(super) local: Tentative<L>,
    /// Rows per node, and number of modes.
    pub(super) shape: [usize; 2],
    /// The first aggregate of each rank, then the total number of aggregates.
    bounds: Vec<u64>,
    /// The aggregates of own nodes, then those of ghosts.
    near: Columns,
}

/// Aggregates, and the near-null space of the next level.
pub(super) type Aggregated<L> = (RankAggregates<L>, ModesOf<L>);

/// The setup on ranks. All methods but those that return counts and options are collective.
pub(super) struct OnRanks<L: LocalSetup> {
    pub(super) ranks: Ranks,
    pub(super) local: L,
    /// Link between the GPUs of all ranks.
    pub(super) link: Option<<L as RankMemory<f32>>::Link>,
    pub(super) options: AmgOptions,
    /// The pattern of entries in own columns on the finest level; `None` in a refresh, which keeps the formats.
    pub(super) finest: Option<Arc<Pattern>>,
    /// The aggregates of the finest level if its nodes differ in their number of unknowns.
    pub(super) known: Option<Aggregates>,
}

impl<L: LocalSetup> Memory for OnRanks<L> {
    type Matrix<'a> = Rows<L>;
    type Inverse = L::Inverse;
    type Modes = ModesOf<L>;
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

    fn aggregates(&mut self, _: usize, rows: &Rows<L>, modes: &Self::Modes) -> Result<Option<Aggregated<L>>> {
        let count = modes.count;
        // aggregates have nodes of one rank, so connections to other ranks matter for thresholds only
        let (Tentative { t, strong }, below) = match self.known.take() {
            Some(known) => self.ranks.all(self.of_known(known, modes))?,
            None => self.found(rows, modes)?,
        };
        let ranks = &self.ranks;
        let own = L::columns(&t);
        let bounds: Vec<u64> = sums(&ranks.all_gather(vec![own as u64])?);
        // one decision of all ranks: a rank whose own nodes coarsen little takes part
        if !gains(bounds[ranks.size()], count, rows.all()) {
            return Ok(None);
        }
        // number the aggregates over all ranks; those of ghosts become columns behind the own ones
        let numbered = Columns { first: bounds[ranks.rank()], own, ghosts: vec![] };
        let (t, near) =
            self.with_received(Ok(t), &numbered, (&rows.routes, false, rows.nodes()), |t, more, near| {
                Ok((more.unwrap_or(t), near))
            })?;
        let local = Tentative { t, strong };
        Ok(Some((RankAggregates { local, shape: [rows.size, count], bounds, near }, below)))
    }

    fn inverse(&self, _: usize, a: &mut Rows<L>) -> Result<L::Inverse> {
        self.ranks.all(L::inverse(&a.a))
    }

    fn least(&self, _: usize, inverse: &L::Inverse) -> Result<f64> {
        let own = self.ranks.all(L::least(inverse))?;
        Ok(strength::least_of(&self.ranks.all_gather(vec![own])?))
    }

    fn diagonal(&self, inverse: &L::Inverse, scale: f64) -> Result<Single<L>> {
        self.ranks.all(self.local.rounded(inverse, scale))
    }

    fn stored(&self, level: usize, a: &Rows<L>, scale: f64) -> Result<LevelMatrix<L>> {
        let finest = self.finest.as_deref().filter(|_| level == 0);
        let (inside, outside) = self.ranks.all(self.local.level(&a.a, scale, finest))?;
        let own = RankMemory::<f32>::space(&self.local, a.nodes() * a.size);
        let bounds = a.bounds.iter().map(|bound| bound * a.size as u64).collect();
        let space = RankSpace::of(self.ranks.clone(), bounds, own, self.link.clone());
        let (routes, entries) = (a.routes.widened(a.size), L::entries(&a.a));
        LevelMatrix::new(space, &self.local, &routes, inside, (&outside, scale), entries)
    }

    fn refill(&self, stored: &mut LevelMatrix<L>, a: &Rows<L>, scale: f64) -> Result<()> {
        let outside = L::refill(&mut stored.inside, &a.a, scale);
        self.ranks.all(outside.and_then(|outside| stored.refresh_outside(&outside, scale)))
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
        let (transfer, coarse) = self.next_level(a, Arc::new(aggregates), smoothed)?;
        let below = match smoothed {
            Some(_) => below,
            None => self.ranks.all(self.local.constants(coarse.nodes(), 1))?,
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
        let (renewed, coarse) = self.next_level(a, transfer.aggregates.clone(), smoothed)?;
        *transfer = renewed;
        Ok(coarse)
    }

    /// Replicates the level on all ranks.
    fn last(&self, a: &Rows<L>, modes: &Self::Modes, _: f64) -> Result<Last> {
        Last::new(self, a, self.ranks.all(L::read_modes(modes))?)
    }

    fn renew_last(&self, last: &mut Last, a: &Rows<L>, _: f64) -> Result<()> {
        *last = Last::new(self, a, last.modes.clone())?;
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
        let all = self.ranks.all_gather(vec![level.a.entries as u64, bytes as u64])?;
        let sum = |which: usize| all.iter().skip(which).step_by(2).sum::<u64>() as usize;
        Ok(LevelReport::new(level.a.domain().len(), sum(0), sum(1), formats))
    }
}

impl<L: LocalSetup> OnRanks<L> {
    pub(super) fn new(
        ranks: &Ranks,
        local: &L,
        link: Option<<L as RankMemory<f32>>::Link>,
        options: AmgOptions,
    ) -> OnRanks<L> {
        let (ranks, local) = (ranks.clone(), local.clone());
        OnRanks { ranks, local, link, options, finest: None, known: None }
    }

    /// Reads the rows of a matrix. Collective: all ranks call this.
    pub(super) fn rows_of<T: Real>(&self, matrix: &RankMatrix<T, L>) -> Result<Rows<L>>
    where
        L: Local<T>,
    {
        let (space, size) = (matrix.domain(), common_size(matrix)?);
        let mut ghosts: Vec<u64> = matrix.ghosts().iter().map(|ghost| ghost / size as u64).collect();
        ghosts.dedup();
        let made = || match size {
            1 => self.local.rows(matrix),
            size => self.local.upload(in_blocks(matrix, &ghosts, size)?),
        };
        let a = self.ranks.all(made())?;
        let bounds: Vec<u64> = space.bounds().iter().map(|bound| bound / size as u64).collect();
        let (first, own) = (bounds[self.ranks.rank()], space.local_len() / size);
        Rows::new(&self.ranks, bounds, Columns { first, own, ghosts }, size, a)
    }

    /// Returns whether the finest level of a matrix without given modes uses unsmoothed aggregation. Collective:
    /// all ranks call this.
    pub(super) fn is_worthwhile<T: Real>(&self, matrix: &RankMatrix<T, L>, size: usize) -> Result<bool>
    where
        L: Local<T>,
    {
        if self.options.smooth_finest != Some(false) {
            return Ok(false);
        }
        let values = |at: &[usize]| self.local.entries_at(matrix, at);
        let pattern = &matrix.diagonal_block().structure().pattern;
        let own = self.ranks.all(is_worthwhile(false, size, pattern, values))?;
        Ok(self.ranks.all_gather(vec![u8::from(own)])?.iter().all(|&own| own == 1))
    }

    /// Detects nodes of at most `most` unknowns in a matrix of single unknowns, and aggregates them, unless some rank
    /// has no such nodes. Collective: all ranks call this.
    pub(super) fn detected(&self, rows: &Rows<L>, most: usize) -> Result<Option<Aggregates>> {
        if rows.size > 1 {
            return Ok(None);
        }
        let a = self.ranks.all(L::read(&rows.a))?;
        let nodes = Nodes::detect(&a.pattern, 1, most);
        let there = self.ranks.all_gather(vec![u8::from(nodes.is_some() || rows.nodes() == 0)])?;
        if there.contains(&0) {
            return Ok(None);
        }
        let nodes = nodes.unwrap_or_default();
        let aggregates = a.own_part().and_then(|own| nodes.aggregated(own.view(), self.options.strength));
        self.ranks.all(aggregates).map(Some)
    }

    /// The tentative prolongator on known aggregates of single unknowns, and the modes of the next level.
    fn of_known(&self, known: Aggregates, modes: &ModesOf<L>) -> Result<(Tentative<L>, ModesOf<L>)> {
        let (Tentative::<Host> { t, .. }, below) = tentative(None, known, 1, &L::read_modes(modes)?)?;
        Ok((Tentative { t: self.local.upload(t)?, strong: None }, self.local.modes(below)?))
    }

    /// Aggregates the own nodes. Collective: all ranks call this.
    fn found(
        &self,
        Rows { a, routes, .. }: &Rows<L>,
        modes: &ModesOf<L>,
    ) -> Result<(Tentative<L>, ModesOf<L>)> {
        // true from the beginning of an exchange until it has succeeded: an error in it is known to all ranks. After another error this rank
        // must still take part in the `all` below
        let together = Cell::new(false);
        let exchange = |own: Result<Vec<f64>>| {
            together.set(true);
            let came = routes.lists(false, &self.ranks.all(own)?, &|at| at)?;
            together.set(false);
            Ok(came)
        };
        let found = L::aggregated(a, modes, self.options.strength, routes.sent(), &exchange);
        if together.get() { found } else { self.ranks.all(found) }
    }

    /// The next level, and the transfer to it. `smoothed` has the inverse diagonal and `ω`; `None` means unsmoothed
    /// aggregation: aggregates have nodes of one rank, so transfers then need no communication. Collective: all ranks
    /// call this.
    fn next_level(
        &self,
        rows: &Rows<L>,
        aggregates: Arc<RankAggregates<L>>,
        smoothed: Option<(&L::Inverse, f64)>,
    ) -> Result<(Transfer<L>, Rows<L>)> {
        let (ranks, local, nodes) = (&self.ranks, &self.local, rows.nodes());
        let RankAggregates { bounds, near, shape: [_, modes], local: of_nodes } = &*aggregates;
        let (p, ghosts, factor) = match smoothed {
            Some(smoothed) => (L::prolongator(&rows.a, of_nodes, smoothed), near.ghosts.clone(), 1.0),
            None => (L::ones(&of_nodes.t, nodes, near.own), vec![], f64::from(OVER)),
        };
        let near = Columns { ghosts, ..*near };
        let (partial, stored, columns) =
            self.with_received(p, &near, (&rows.routes, false, nodes), |p, more, columns| {
                let (partial, stored) = local.galerkin(&rows.a, [&p, more.as_ref().unwrap_or(&p)], factor)?;
                Ok((partial, stored, columns))
            })?;
        let routes = Routes::new(ranks, bounds, &near.ghosts)?;
        // the rows of own aggregates, to which those received are added: a product with a matrix of zeros and ones
        let (a, columns) = self.with_received(
            Ok(partial),
            &columns,
            (&routes, true, near.own),
            |partial, more, columns| {
                let Some(more) = more else { return Ok((partial, columns)) };
                // an own row, and the received rows for it in the order of the ranks
                let terms: Vec<u32> = (0..near.own as u32).chain(routes.sent().iter().copied()).collect();
                let terms = Pattern::sorted(Offsets::of_rows(terms.len(), &|_| 1), terms, near.own)?;
                let terms = HostBlocks::identities(Arc::new(transposed_pattern(&terms)?.0), *modes);
                Ok((L::product(&local.upload(terms)?, &more)?, columns))
            },
        )?;
        let coarse = Rows::new(ranks, bounds.clone(), columns, *modes, a)?;
        let exchange = local.exchange(routes.widened(*modes), near.count() * modes)?;
        Ok((Transfer { stored, exchange, aggregates, unsmoothed: smoothed.is_none() }, coarse))
    }

    /// Receives rows from other ranks: those of ghosts or, if `back`, contributions to own rows. Passes to `then`: `a`; the first
    /// `own` rows of `a` followed by the received rows, or `None` if this rank has no ghost columns and receives none; and the
    /// columns of the result. Collective: all ranks call this.
    fn with_received<R>(
        &self,
        a: Result<L::Blocks>,
        columns: &Columns,
        (routes, back, own): (&Routes, bool, usize),
        then: impl FnOnce(L::Blocks, Option<L::Blocks>, Columns) -> Result<R>,
    ) -> Result<R> {
        let ghosts: Vec<u32> = (own as u32..(own + routes.ghost_count()) as u32).collect();
        let sent = a.and_then(|a| Ok((L::rows_at(&a, if back { &ghosts } else { routes.sent() })?, a)));
        let (sent, a) = self.ranks.all(sent)?;
        let (pattern, shape, width) = (&sent.pattern, sent.shape, sent.width());
        let lengths: Vec<u64> = pattern.offsets.lengths().map(|length| length as u64).collect();
        let names: Vec<u64> = pattern.columns.iter().map(|&column| columns.name(column)).collect();
        let lengths = routes.lists(back, &lengths, &|row| row)?;
        let names = routes.lists(back, &names, &|row| pattern.offsets.at(row))?;
        let values = routes.lists(back, &sent.values, &|row| pattern.offsets.at(row) * width)?;
        let made = || {
            if columns.ghosts.is_empty() && lengths.is_empty() {
                return then(a, None, columns.clone());
            }
            let mut all = names.clone();
            if back {
                // columns that only the sent rows use are dropped
                let used = L::used(&a, own)?;
                let ghosts = columns.ghosts.iter().zip(&used[columns.own..]);
                all.extend(ghosts.filter(|(_, used)| **used).map(|(&ghost, _)| ghost));
            } else {
                all.extend(&columns.ghosts);
            }
            let joined = Columns::new(columns.first, columns.own, &all);
            // a dropped column gets a place, too, which is not read
            let moved = joined.places(&columns.ghosts);
            let below = placed(&lengths, joined.places(&names), &values, shape, joined.count())?;
            let stacked = L::stacked(&a, own, (columns.own, &moved), &below, joined.count())?;
            then(a, Some(stacked), joined)
        };
        self.ranks.all(made())
    }
}
