//! Halo exchange: communication of vector entries between ranks.

use super::collective::{HALO, Ranks};
use super::comm::{Buffer, Messages};
use crate::error::{Error, Result};
use crate::numbers::Real;
use krysp_kernels::buffer::Plain;
use std::ops::Range;

/// Communication pattern: the entries of this rank that other ranks read, and the entries of other ranks that
/// this rank reads (its ghosts).
#[derive(Clone, Debug)]
pub struct Routes {
    ranks: Ranks,
    /// The entries that are sent, in the order of the ranks that receive them.
    sent: Vec<u32>,
    /// For each receiving rank, its part of `sent`.
    sends: Vec<(usize, Range<usize>)>,
    /// For each sending rank, its part of the ghosts.
    receives: Vec<(usize, Range<usize>)>,
}

impl Routes {
    /// Computes the pattern: each rank sends the indices of its ghosts to their owners. `bounds` has the
    /// first entry of each rank, then the total number of entries; `ghosts` are ascending. Collective: all
    /// ranks call this.
    pub(crate) fn new(ranks: &Ranks, bounds: &[u64], ghosts: &[u64]) -> Result<Routes> {
        let place = |row: u64| ghosts.partition_point(|&ghost| ghost < row);
        let of_rank = |rank: usize| place(bounds[rank])..place(bounds[rank + 1]);
        let parts: Vec<Range<usize>> = (0..ranks.size()).map(of_rank).collect();
        let wanted = ranks.exchange(parts.iter().map(|part| ghosts[part.clone()].to_vec()).collect())?;
        let (first, mut sent, mut sends) = (bounds[ranks.rank()], vec![], vec![]);
        for (rank, rows) in wanted.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            sends.push((rank, sent.len()..sent.len() + rows.len()));
            sent.extend(rows.iter().map(|row| (row - first) as u32));
        }
        let receives = parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()).collect();
        Ok(Routes { ranks: ranks.clone(), sent, sends, receives })
    }

    pub(crate) fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The entries that are sent, in the order of the ranks that receive them.
    pub(crate) fn sent(&self) -> &[u32] {
        &self.sent
    }

    /// Number of ghosts.
    pub(crate) fn ghost_count(&self) -> usize {
        self.receives.last().map_or(0, |(_, part)| part.end)
    }

    /// The entries that are sent to each rank.
    #[cfg(feature = "cuda")]
    pub(super) fn sends_by_rank(&self) -> Vec<Vec<u32>> {
        let mut parts = vec![vec![]; self.ranks.size()];
        self.sends.iter().for_each(|(rank, part)| parts[*rank] = self.sent[part.clone()].to_vec());
        parts
    }

    /// The first ghost of each rank, then the total number of ghosts.
    #[cfg(feature = "cuda")]
    pub(super) fn ghosts_from(&self) -> Vec<usize> {
        let mut starts = vec![0; self.ranks.size() + 1];
        self.receives.iter().for_each(|(rank, part)| starts[rank + 1..].fill(part.end));
        starts
    }

    /// Number of ranks to which entries are sent.
    pub(super) fn neighbours(&self) -> usize {
        self.sends.len()
    }

    /// The pattern for vectors with `width` values per entry.
    pub(crate) fn widened(&self, width: usize) -> Routes {
        let wide = |parts: &[(usize, Range<usize>)]| {
            parts.iter().map(|(rank, part)| (*rank, part.start * width..part.end * width)).collect()
        };
        let numbers = |&entry: &u32| (0..width as u32).map(move |k| entry * width as u32 + k);
        Routes {
            ranks: self.ranks.clone(),
            sent: self.sent.iter().flat_map(numbers).collect(),
            sends: wide(&self.sends),
            receives: wide(&self.receives),
        }
    }

    /// Exchanges once: returns the values of the ghosts. `own` has the values of this rank's entries, `width`
    /// for each. Collective: all ranks call this.
    #[cfg(feature = "cuda")]
    pub(crate) fn ghosts<X: Plain + Default>(&self, width: usize, own: &[X]) -> Result<Vec<X>> {
        let numbers = |&entry: &u32| own[entry as usize * width..][..width].iter().copied();
        let part = |sent: Range<usize>| self.sent[sent].iter().flat_map(numbers).collect();
        self.exchange_parts(&self.sends, part).map(|parts| parts.concat())
    }

    /// Exchanges once: sends a list of values, of any length, for each entry that others read; returns the
    /// lists of this rank's ghosts, concatenated. Collective: all ranks call this.
    pub(crate) fn rows<X: Plain + Default>(&self, of: impl Fn(usize) -> Vec<X>) -> Result<Vec<X>> {
        let part =
            |sent: Range<usize>| self.sent[sent].iter().flat_map(|&entry| of(entry as usize)).collect();
        self.exchange_parts(&self.sends, part).map(|parts| parts.concat())
    }

    /// Exchanges once: sends a list of values for each entry that others read, or, if `back`, for each ghost to the
    /// owner of the entry. List `k` of `data` begins at `offset(k)`. Returns the received lists, concatenated: those of
    /// this rank's ghosts, or those for each of [`Routes::sent`]. Collective: all ranks call this.
    pub(crate) fn lists<X: Plain + Default>(
        &self,
        back: bool,
        data: &[X],
        offset: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<X>> {
        let to = if back { &self.receives } else { &self.sends };
        let part = |range: Range<usize>| data[offset(range.start)..offset(range.end)].to_vec();
        self.exchange_parts(to, part).map(|parts| parts.concat())
    }

    /// Sends `part(range)` to each rank of `to`; returns the parts that each rank has sent.
    fn exchange_parts<X: Plain + Default>(
        &self,
        to: &[(usize, Range<usize>)],
        part: impl Fn(Range<usize>) -> Vec<X>,
    ) -> Result<Vec<Vec<X>>> {
        let mut parts = vec![vec![]; self.ranks.size()];
        to.iter().for_each(|(rank, range)| parts[*rank] = part(range.clone()));
        self.ranks.exchange(parts)
    }

    /// Prepares a repeated exchange of ghosts. Collective: all ranks call this.
    pub(crate) fn halo<T: Real>(&self) -> Result<HaloExchange<T>> {
        let messages = self.ranks.comm().messages(HALO, &self.sends, &self.receives);
        self.halo_of(messages, self.sent.clone(), self.sends.len())
    }

    /// Like [`Routes::halo`], with given buffers for sending and receiving. Collective: all ranks call this.
    #[cfg(feature = "cuda")]
    pub(super) fn halo_through<T: Real, B: Buffer<T>>(
        &self,
        sent: B,
        received: B,
    ) -> Result<HaloExchange<T, B>> {
        let messages = self.ranks.comm().messages_in(HALO, &self.sends, &self.receives, sent, received);
        self.halo_of(messages, self.sent.clone(), self.sends.len())
    }

    /// Like [`Routes::back`], with given buffers for sending the values at ghosts, and for receiving.
    /// Collective: all ranks call this.
    #[cfg(feature = "cuda")]
    pub(super) fn back_through<T: Real, B: Buffer<T>>(
        &self,
        sent: B,
        received: B,
    ) -> Result<HaloExchange<T, B>> {
        let messages = self.ranks.comm().messages_in(HALO, &self.receives, &self.sends, sent, received);
        self.halo_of(messages, (0..self.ghost_count() as u32).collect(), self.receives.len())
    }

    fn halo_of<T: Real, B: Buffer<T>>(
        &self,
        messages: Result<Messages<T, B>>,
        sent: Vec<u32>,
        neighbours: usize,
    ) -> Result<HaloExchange<T, B>> {
        Ok(HaloExchange { messages: self.ranks.all(messages)?, ranks: self.ranks.clone(), sent, neighbours })
    }

    /// Prepares a repeated exchange in which values at ghosts are sent to their owners. Collective: all ranks
    /// call this.
    pub(crate) fn back<T: Real>(&self) -> Result<Back<T>> {
        let messages = self.ranks.comm().messages(HALO, &self.receives, &self.sends);
        let messages = self.ranks.all(messages)?;
        let neighbours = self.receives.len();
        Ok(Back { ranks: self.ranks.clone(), messages, sent: self.sent.clone(), neighbours })
    }
}

/// A repeated exchange: sends this rank's entries that others read, and receives the ghosts.
pub(crate) struct HaloExchange<T: Real, B: Buffer<T> = Vec<T>> {
    ranks: Ranks,
    messages: Messages<T, B>,
    sent: Vec<u32>,
    neighbours: usize,
}

impl<T: Real, B: Buffer<T>> HaloExchange<T, B> {
    pub(super) fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Starts to send entries of `x`, and to receive.
    pub(crate) fn start(&mut self, x: &[T]) -> Result<()> {
        let HaloExchange { ranks, messages, sent, .. } = self;
        ranks.check()?;
        for (to, &from) in outgoing(messages)?.as_mut().iter_mut().zip(&*sent) {
            *to = x[from as usize];
        }
        self.start_filled()
    }

    /// Passes the send buffer to `fill`; [`HaloExchange::start_filled`] then sends it.
    #[cfg(feature = "cuda")]
    pub(super) fn fill(&mut self, fill: impl FnOnce(&mut B) -> Result<()>) -> Result<()> {
        self.ranks.check()?;
        fill(outgoing(&mut self.messages)?)
    }

    /// Starts to send the filled buffer, and to receive.
    pub(super) fn start_filled(&mut self) -> Result<()> {
        self.ranks.check()?;
        self.ranks.count(self.neighbours, self.sent.len() * size_of::<T>());
        self.messages.start();
        Ok(())
    }

    /// Waits for the ghosts.
    pub(crate) fn receive(&mut self) -> Result<&[T]> {
        Ok(self.wait()?.as_ref())
    }

    /// Waits for the ghosts, and returns the buffer that holds them.
    pub(super) fn wait(&mut self) -> Result<&B> {
        let messages = &mut self.messages;
        self.ranks.wait(|| messages.is_complete())?;
        self.messages.received().ok_or_else(in_flight)
    }
}

fn outgoing<T: Real, B: Buffer<T>>(messages: &mut Messages<T, B>) -> Result<&mut B> {
    messages.outgoing().ok_or_else(in_flight)
}

fn in_flight() -> Error {
    Error::Communication("messages of the preceding product are still in flight".into())
}

/// The transpose of a [`HaloExchange`]: values at ghosts are added to the entries of their owners.
pub(crate) struct Back<T: Real> {
    ranks: Ranks,
    messages: Messages<T>,
    sent: Vec<u32>,
    neighbours: usize,
}

impl<T: Real> Back<T> {
    /// Sends the values at ghosts, and adds those received to `own`, in the order of the ranks.
    pub(crate) fn add(&mut self, ghosts: &[T], own: &mut [T]) -> Result<()> {
        self.ranks.check()?;
        outgoing(&mut self.messages)?.copy_from_slice(ghosts);
        self.ranks.count(self.neighbours, size_of_val(ghosts));
        self.messages.start();
        let messages = &mut self.messages;
        self.ranks.wait(|| messages.is_complete())?;
        let received = self.messages.received().ok_or_else(in_flight)?;
        for (&to, &number) in self.sent.iter().zip(received) {
            own[to as usize] += number;
        }
        Ok(())
    }
}
