//! Entries of a vector that travel between ranks.

use super::ranks::{HALO, Ranks};
use super::raw::Messages;
use crate::{Real, Result};
use krysp_kernels::buffer::Plain;
use std::ops::Range;

/// Who reads which of this rank's entries, and whose entries this rank reads: its ghosts.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    ranks: Ranks,
    /// Which entries are sent, in the order of the ranks that receive them.
    sent: Vec<u32>,
    /// The part of `sent` for each rank that receives some.
    sends: Vec<(usize, Range<usize>)>,
    /// The ghosts of each rank that sends some.
    receives: Vec<(usize, Range<usize>)>,
}

impl Routes {
    /// Tells every rank which of its entries others read. `bounds` says where the entries of each rank begin, and their
    /// number; `ghosts` are ascending. All ranks call this.
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

    pub(super) fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The entries that are sent, in the order of the ranks that receive them.
    pub(crate) fn sent(&self) -> &[u32] {
        &self.sent
    }

    /// To how many ranks entries are sent.
    pub(super) fn neighbours(&self) -> usize {
        self.sends.len()
    }

    /// The routes of `width` numbers for each entry.
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

    /// Once: what ghosts have where own entries have `width` numbers each. All ranks call this.
    pub(crate) fn ghosts<X: Plain + Default>(&self, width: usize, own: &[X]) -> Result<Vec<X>> {
        let numbers = |&entry: &u32| own[entry as usize * width..][..width].iter().copied();
        let part = |sent: Range<usize>| self.sent[sent].iter().flat_map(numbers).collect();
        self.turn(&self.sends, part).map(|parts| parts.concat())
    }

    /// Once: something of each entry that is sent, of any length, for the ghosts of others; returns those of this rank's
    /// ghosts, joined. All ranks call this.
    pub(crate) fn rows<X: Plain + Default>(&self, of: impl Fn(usize) -> Vec<X>) -> Result<Vec<X>> {
        let part =
            |sent: Range<usize>| self.sent[sent].iter().flat_map(|&entry| of(entry as usize)).collect();
        self.turn(&self.sends, part).map(|parts| parts.concat())
    }

    /// Once, the other way: something of each ghost, for the rank that has the entry; returns what came for each of
    /// [`Routes::sent`], joined. All ranks call this.
    pub(crate) fn rows_back<X: Plain + Default>(&self, of: impl Fn(usize) -> Vec<X>) -> Result<Vec<X>> {
        self.turn(&self.receives, |ghosts| ghosts.flat_map(&of).collect()).map(|parts| parts.concat())
    }

    fn turn<X: Plain + Default>(
        &self,
        to: &[(usize, Range<usize>)],
        part: impl Fn(Range<usize>) -> Vec<X>,
    ) -> Result<Vec<Vec<X>>> {
        let mut parts = vec![vec![]; self.ranks.size()];
        to.iter().for_each(|(rank, range)| parts[*rank] = part(range.clone()));
        self.ranks.exchange(parts)
    }

    /// Messages to ghosts, for many times. All ranks call this.
    pub(crate) fn halo<T: Real>(&self) -> Result<Halo<T>> {
        let messages = self.ranks.comm().messages(HALO, &self.sends, &self.receives);
        let messages = self.ranks.all(messages)?;
        Ok(Halo {
            ranks: self.ranks.clone(),
            messages,
            sent: self.sent.clone(),
            neighbours: self.sends.len(),
        })
    }

    /// Messages from ghosts to where their entries are, for many times. All ranks call this.
    pub(crate) fn back<T: Real>(&self) -> Result<Back<T>> {
        let messages = self.ranks.comm().messages(HALO, &self.receives, &self.sends);
        let messages = self.ranks.all(messages)?;
        let neighbours = self.receives.len();
        Ok(Back { ranks: self.ranks.clone(), messages, sent: self.sent.clone(), neighbours })
    }
}

/// What this rank sends of its part of a vector, and the ghosts that it receives, again and again.
pub(crate) struct Halo<T: Real> {
    ranks: Ranks,
    messages: Messages<T>,
    sent: Vec<u32>,
    neighbours: usize,
}

impl<T: Real> Halo<T> {
    /// Begins to send what others read, and to receive.
    pub(crate) fn start(&mut self, x: &[T]) -> Result<()> {
        self.ranks.check()?;
        for (to, &from) in self.messages.outgoing().iter_mut().zip(&self.sent) {
            *to = x[from as usize];
        }
        self.ranks.count(self.neighbours, self.sent.len() * size_of::<T>());
        self.messages.start();
        Ok(())
    }

    /// Waits for the ghosts.
    pub(crate) fn receive(&mut self) -> Result<&[T]> {
        let messages = &mut self.messages;
        self.ranks.wait(|| messages.landed())?;
        Ok(self.messages.received())
    }
}

/// The transpose of a [`Halo`]: numbers at ghosts are added where their entries are.
pub(crate) struct Back<T: Real> {
    ranks: Ranks,
    messages: Messages<T>,
    sent: Vec<u32>,
    neighbours: usize,
}

impl<T: Real> Back<T> {
    /// Sends the numbers at ghosts, and adds what others send to `own`, in the order of the ranks.
    pub(crate) fn add(&mut self, ghosts: &[T], own: &mut [T]) -> Result<()> {
        self.ranks.check()?;
        self.messages.outgoing().copy_from_slice(ghosts);
        self.ranks.count(self.neighbours, size_of_val(ghosts));
        self.messages.start();
        let messages = &mut self.messages;
        self.ranks.wait(|| messages.landed())?;
        for (&to, &number) in self.sent.iter().zip(self.messages.received()) {
            own[to as usize] += number;
        }
        Ok(())
    }
}
