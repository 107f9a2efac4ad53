//! Exchange of entries of `x` between the host and coprocessors in a product. All entries pass through host
//! memory, also those that one coprocessor sends to another.

use super::coprocessor::{Coprocessor, Exchange};
use super::vector::{SplitSpace, SplitVector};
use crate::choice::HostBorder;
use crate::error::Result;
use crate::formats::Csr;
use crate::host::gather;
use crate::numbers::Real;
use crate::partition::Cut;
use krysp_solvers::{ScalarOf, Space};
use std::ops::Range;

/// Ghosts of one processor that another one owns.
struct Route {
    /// The owner: 0 for the host, `k + 1` for coprocessor `k`.
    owner: usize,
    /// Places among the ghosts of the receiver.
    to: Range<usize>,
    /// Places among the entries that a coprocessor sends, or in the host's part of `x`.
    places: Vec<u32>,
}

/// Entries of the processors' rows in columns of others, and the exchange of ghosts.
pub(super) struct Halo<T: Real, M: Coprocessor<T>> {
    of_host: HostBorder<T>,
    of_others: Vec<M::Exchange>,
    /// Routes to the host, then to each coprocessor.
    routes: Vec<Vec<Route>>,
}

impl<T: Real, M: Coprocessor<T>> Halo<T, M> {
    /// `cuts` are the rows of the host and of each coprocessor of `space`.
    pub(super) fn new(space: &SplitSpace<T, M>, cuts: &[Cut<T>]) -> Result<Halo<T, M>> {
        let ranges: Vec<Range<usize>> = space.ranges().collect();
        let ghosts_of = |receiver: usize, owner: usize| {
            let of_owner = ranges[owner].start as u64..ranges[owner].end as u64;
            cuts[receiver].ghosts_of(&of_owner)
        };
        let in_owner = |receiver: usize, owner: usize| {
            let ghosts = cuts[receiver].ghosts[ghosts_of(receiver, owner)].iter();
            ghosts.map(|&column| (column as usize - ranges[owner].start) as u32).collect::<Vec<u32>>()
        };
        let all = 0..cuts.len();
        let sent = |owner: usize| {
            let mut sent: Vec<u32> = all.clone().flat_map(|receiver| in_owner(receiver, owner)).collect();
            sent.sort_unstable();
            sent.dedup();
            // a coprocessor always sends something: waiting for it shows that earlier ghosts have been read
            if sent.is_empty() && !cuts[owner].ghosts.is_empty() {
                sent.push(0);
            }
            sent
        };
        let sent: Vec<Vec<u32>> = all.clone().map(sent).collect();
        let route = |receiver: usize, owner: usize| {
            let mut places = in_owner(receiver, owner);
            if owner > 0 {
                places.iter_mut().for_each(|place| {
                    *place = sent[owner].partition_point(|sent| sent < place) as u32;
                });
            }
            Route { owner, to: ghosts_of(receiver, owner), places }
        };
        let to = |receiver: usize| {
            let routes = all.clone().filter(|&owner| owner != receiver).map(|owner| route(receiver, owner));
            routes.filter(|route| !route.to.is_empty()).collect()
        };
        let outside = |cut: &Cut<T>| {
            let offsets: Vec<usize> = cut.offsets.iter().map(|&offset| offset as usize).collect();
            Csr::from_csr(cut.rows.len(), cut.ghosts.len(), &offsets, &cut.columns, &cut.values)
        };
        let of_others = space.others().iter().zip(&cuts[1..]).zip(&sent[1..]);
        let of_others = of_others.map(|(((machine, space), cut), sent)| {
            machine.exchange(space.local_len(), sent, &cut.rows, &outside(cut)?)
        });
        Ok(Halo {
            of_host: HostBorder::new(&cuts[0].rows, &outside(&cuts[0])?)?,
            of_others: of_others.collect::<Result<_>>()?,
            routes: all.clone().map(to).collect(),
        })
    }

    /// Queues the copies of the entries that coprocessors send.
    pub(super) fn collect(&mut self, x: &SplitVector<T, M>) -> krysp_solvers::Result<()> {
        x.others.iter().enumerate().try_for_each(|(k, x)| self.collect_from(k, x))
    }

    /// Queues the copy of the entries that coprocessor `k` sends.
    pub(super) fn collect_from(&mut self, k: usize, x: &M::Vector) -> krysp_solvers::Result<()> {
        self.of_others[k].collect(x)
    }

    /// Copies the entries of the host to the ghosts of all coprocessors.
    pub(super) fn send_from_host(&mut self, x: &[T]) {
        for (exchange, routes) in self.of_others.iter_mut().zip(&self.routes[1..]) {
            for route in routes.iter().filter(|route| route.owner == 0) {
                gather(x, &route.places, &mut exchange.ghosts()[route.to.clone()]);
            }
        }
    }

    /// Returns whether coprocessor `k` has no ghosts that another coprocessor owns.
    pub(super) fn needs_host_only(&self, k: usize) -> bool {
        self.routes[k + 1].iter().all(|route| route.owner == 0)
    }

    /// Waits for the entries that coprocessors send, and copies them to the ghosts of all processors.
    pub(super) fn send_from_others(&mut self) -> krysp_solvers::Result<()> {
        for exchange in &mut self.of_others {
            exchange.sent()?;
        }
        for (receiver, routes) in self.routes.iter().enumerate() {
            for route in routes.iter().filter(|route| route.owner > 0) {
                let owner = route.owner - 1;
                let (sent, ghosts) = match receiver.checked_sub(1) {
                    None => (self.of_others[owner].sent()?, self.of_host.ghosts()),
                    Some(k) => match self.of_others.get_disjoint_mut([owner, k]) {
                        Ok([owner, own]) => (owner.sent()?, own.ghosts()),
                        Err(_) => continue, // never: a processor owns none of its ghosts
                    },
                };
                gather(sent, &route.places, &mut ghosts[route.to.clone()]);
            }
        }
        Ok(())
    }

    /// Queues `y ← y + A_ghost ghosts` on coprocessor `k`. `own` is `⟨x, y⟩` before ghosts are added, if that
    /// sum is wanted; returns its final value.
    pub(super) fn add(
        &mut self,
        k: usize,
        x: &M::Vector,
        y: &mut M::Vector,
        own: Option<ScalarOf<M::Vector>>,
    ) -> krysp_solvers::Result<Option<ScalarOf<M::Vector>>> {
        match own {
            own if self.routes[k + 1].is_empty() => Ok(own),
            Some(own) => self.of_others[k].add_dot(x, y, own).map(Some),
            None => self.of_others[k].add(y).map(|()| None),
        }
    }

    /// Adds products with the ghosts to the host's part of `y`; returns `⟨x, A_ghost ghosts⟩` if `dot` is set.
    pub(super) fn add_to_host(&mut self, x: &[T], y: &mut [T], dot: bool) -> krysp_solvers::Result<T> {
        match self.routes[0].is_empty() {
            true => Ok(T::zero()),
            false if dot => self.of_host.add_dot(x, y),
            false => self.of_host.add(y).map(|()| T::zero()),
        }
    }

    /// Replaces the values by those of `cuts`.
    pub(super) fn refresh(&mut self, cuts: &[Cut<T>]) -> Result<()> {
        self.of_host.refresh(&cuts[0].values)?;
        self.of_others.iter_mut().zip(&cuts[1..]).try_for_each(|(halo, cut)| halo.refresh(&cut.values))
    }

    /// Bytes that a product of the host, or of coprocessor `processor - 1`, reads of the entries in columns of
    /// others.
    pub(super) fn bytes(&self, processor: usize) -> usize {
        match processor.checked_sub(1) {
            None => self.of_host.bytes(),
            Some(k) => self.of_others[k].bytes(),
        }
    }
}
