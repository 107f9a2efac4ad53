//! Entries of `x` that travel between ranks in a product.

use super::ranks::{HALO, Ranks};
use super::raw::Messages;
use super::vector::RankSpace;
use crate::{Real, Result};
use std::ops::Range;

/// What this rank sends of its part of `x`, and the ghosts that it receives.
pub(super) struct Halo<T: Real> {
    ranks: Ranks,
    messages: Messages<T>,
    /// Which entries are sent, in the order of the ranks that receive them.
    sent: Vec<u32>,
    /// To how many ranks.
    neighbours: usize,
}

impl<T: Real> Halo<T> {
    /// Tells every rank which of its entries others read. `ghosts` are ascending. All ranks call this.
    pub(super) fn new(space: &RankSpace<T>, ghosts: &[u64]) -> Result<Halo<T>> {
        let ranks = space.ranks();
        let place = |row: u64| ghosts.partition_point(|&ghost| ghost < row);
        let of_rank = |rank| {
            let rows = space.rows_of(rank);
            place(rows.start)..place(rows.end)
        };
        let parts: Vec<Range<usize>> = (0..ranks.size()).map(of_rank).collect();
        let wanted = ranks.exchange(parts.iter().map(|part| ghosts[part.clone()].to_vec()).collect())?;
        let (first, mut sent, mut sends) = (space.rows().start, vec![], vec![]);
        for (rank, rows) in wanted.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            sends.push((rank, sent.len()..sent.len() + rows.len()));
            sent.extend(rows.iter().map(|row| (row - first) as u32));
        }
        let receives: Vec<_> = parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()).collect();
        let messages = ranks.all(ranks.comm().messages(HALO, &sends, &receives))?;
        Ok(Halo { ranks: ranks.clone(), messages, sent, neighbours: sends.len() })
    }

    /// To how many ranks entries are sent, and how many entries.
    pub(super) fn sent(&self) -> [usize; 2] {
        [self.neighbours, self.sent.len()]
    }

    /// Begins to send what others read, and to receive.
    pub(super) fn start(&mut self, x: &[T]) -> Result<()> {
        self.ranks.check()?;
        for (to, &from) in self.messages.outgoing().iter_mut().zip(&self.sent) {
            *to = x[from as usize];
        }
        self.ranks.count(self.neighbours, self.sent.len() * size_of::<T>());
        self.messages.start();
        Ok(())
    }

    /// Waits for the ghosts.
    pub(super) fn receive(&mut self) -> Result<&[T]> {
        let messages = &mut self.messages;
        self.ranks.wait(|| messages.landed())?;
        Ok(self.messages.received())
    }
}
