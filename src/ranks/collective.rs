//! Ranks that work together: sums, collective errors, and the failure of single ranks.

use super::comm::{Comm, Flight};
#[cfg(feature = "cuda")]
use super::threads::Value;
use crate::error::{Error, Result};
use krysp_kernels::buffer::Plain;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
#[cfg(feature = "cuda")]
use std::time::{Duration, Instant};

/// Tag of messages with entries of `x`.
pub(super) const HALO: i32 = 2;
/// Tag of messages that distribute a matrix.
const EXCHANGE: i32 = 3;
/// Number of times that a waiting rank polls the awaited operation before it polls for a failed rank. Guess.
const POLLS: usize = 64;
/// Maximum wait for the message of a rank that is known, through its GPU, to have failed.
#[cfg(feature = "cuda")]
const FAILURE_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of rounds of polling after which a waiting rank sleeps between rounds. These rounds together take a few
/// tenths of a millisecond. Guess.
const ROUNDS: usize = 20;

/// The ranks of a communicator, and this one among them. Clones share the communicator.
///
/// All ranks must make the same calls in the same order, from one thread at a time.
#[derive(Clone)]
pub struct Ranks(Arc<Inner>);

struct Inner {
    comm: Comm,
    sums: Mutex<Sums>,
    /// The first rank that failed, and its message.
    failed: OnceLock<(usize, String)>,
    /// True if this rank's last call returned an error because of another rank.
    follows: AtomicBool,
    traffic: [AtomicU64; 4],
    #[cfg(feature = "cuda")]
    teams: super::teams::Teams,
}

/// Function that reads back this rank's parts of sums.
pub(super) type Own = Box<dyn FnOnce() -> Result<Vec<f64>> + Send>;

/// Deferred sums, whose values over all ranks are not known yet.
#[derive(Default)]
struct Sums {
    waiting: Vec<(Arc<Pending>, Own)>,
    in_flight: Option<SumsInFlight>,
}

/// A gather in flight, and the deferred sums that it communicates, each with its number of values.
struct SumsInFlight {
    flight: Flight<f64>,
    sums: Vec<(Arc<Pending>, usize)>,
}

/// Sums over all ranks that may not be known yet.
#[derive(Default)]
pub(super) struct Pending {
    whole: OnceLock<Vec<f64>>,
}

/// Amounts of communication of a rank through hosts since the start: products, sums and small gathers, but not the
/// exchanges of constructors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommunicationCounts {
    /// Messages with entries of `x`, for matrix-vector products.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Collective operations: sums, collective error checks, and gathers of small data.
    pub reductions: u64,
    /// Numbers that were summed over all ranks.
    pub reduced_values: u64,
}

impl std::ops::Sub for CommunicationCounts {
    type Output = CommunicationCounts;

    fn sub(self, before: CommunicationCounts) -> CommunicationCounts {
        CommunicationCounts {
            messages: self.messages - before.messages,
            bytes: self.bytes - before.bytes,
            reductions: self.reductions - before.reductions,
            reduced_values: self.reduced_values - before.reduced_values,
        }
    }
}

impl Ranks {
    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.0.comm.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.0.comm.size()
    }

    /// Returns whether the ranks are threads of one process, made by [`Ranks::threads`].
    pub fn are_threads(&self) -> bool {
        matches!(self.0.comm, Comm::Thread(_))
    }

    /// Returns whether this rank's last call returned an error because of another rank.
    pub(super) fn follows_another_rank(&self) -> bool {
        self.0.follows.load(Relaxed)
    }

    /// Runs this rank's work. If it fails or panics, the other ranks return an error that names this rank,
    /// instead of waiting for it forever.
    pub fn run<R, E: fmt::Display>(
        &self,
        work: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        /// Reports a failure to the other ranks when dropped, unless its message is empty.
        struct Leave<'r>(&'r Ranks, String);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                if !self.1.is_empty() {
                    self.0.report_failure(&self.1);
                }
            }
        }
        let mut leave = Leave(self, "panicked".into());
        let result = work();
        leave.1 = result.as_ref().err().map(|error| format!("{error}")).unwrap_or_default();
        result
    }

    /// Amounts of communication of this rank since the start. Subtract two results to get the amounts in
    /// between.
    pub fn traffic(&self) -> CommunicationCounts {
        let [messages, bytes, reductions, numbers] =
            self.0.traffic.each_ref().map(|count| count.load(Relaxed));
        CommunicationCounts { messages, bytes, reductions, reduced_values: numbers }
    }

    /// Counts messages with entries of `x`.
    pub(super) fn count(&self, messages: usize, bytes: usize) {
        self.0.traffic[0].fetch_add(messages as u64, Relaxed);
        self.0.traffic[1].fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn comm(&self) -> &Comm {
        &self.0.comm
    }

    /// Returns whether both are the same communicator.
    pub(super) fn same(&self, other: &Ranks) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sends this rank's error to all others, which ends their work.
    pub(super) fn report_failure(&self, message: &str) {
        let message = if message.is_empty() { "an error without a message" } else { message };
        if self.0.failed.set((self.rank(), message.into())).is_ok() {
            self.0.comm.report_failure(message);
        }
        #[cfg(feature = "cuda")]
        self.0.teams.report_failure();
    }

    /// Returns an error if a rank has failed.
    pub(super) fn check(&self) -> Result<()> {
        let failed = self.0.failed.get();
        self.0.follows.store(failed.is_some_and(|(rank, _)| *rank != self.rank()), Relaxed);
        match failed {
            None => Ok(()),
            Some((rank, message)) => Err(Error::Rank { rank: *rank, message: message.clone() }),
        }
    }

    /// Waits until `done` returns true, or until a rank fails.
    pub(super) fn wait(&self, mut done: impl FnMut() -> bool) -> Result<()> {
        self.check()?;
        for round in 1.. {
            for _ in 0..POLLS {
                if done() {
                    return Ok(());
                }
            }
            if let Some(failed) = self.0.comm.failure() {
                // ignore this if the rank itself has failed at the same time: its own error is kept
                let _ = self.0.failed.set(failed);
            }
            self.check()?;
            if round >= ROUNDS {
                self.0.comm.sleep();
            }
        }
        Ok(())
    }

    /// Waits until a collective operation is complete, and returns the numbers received.
    pub(super) fn finish<X: Plain + Default>(&self, mut flight: Flight<X>) -> Result<Vec<X>> {
        self.wait(|| flight.is_complete())?;
        Ok(flight.received())
    }

    /// Gathers numbers on all ranks, in the order of the ranks. Each rank must pass equally many.
    pub(crate) fn all_gather<X: Plain + Default>(&self, own: Vec<X>) -> Result<Vec<X>> {
        self.finish(self.start_all_gather(own)?)
    }

    /// Gathers a value of any type from each rank, in the order of the ranks; `None` if ranks are processes,
    /// which share no memory. Collective: all ranks call this.
    #[cfg(feature = "cuda")]
    pub(super) fn share<X: Value>(&self, own: X) -> Result<Option<Vec<X>>> {
        self.check()?;
        let Some(mut flight) = self.0.comm.start_sharing(own)? else { return Ok(None) };
        self.0.traffic[2].fetch_add(1, Relaxed);
        self.wait(|| flight.is_complete())?;
        Ok(Some(flight.received().into_iter().flatten().collect()))
    }

    /// Starts a nonblocking all-gather. Each rank must pass equally many numbers.
    pub(super) fn start_all_gather<X: Plain + Default>(&self, own: Vec<X>) -> Result<Flight<X>> {
        self.check()?;
        self.0.traffic[2].fetch_add(1, Relaxed);
        self.0.comm.start_all_gather(own)
    }

    /// Sends numbers to each rank; returns the numbers received from each rank.
    pub(crate) fn exchange<X: Plain + Default>(&self, to: Vec<Vec<X>>) -> Result<Vec<Vec<X>>> {
        self.check()?;
        let announced = self.0.comm.start_all_to_all(to.iter().map(|part| part.len() as u64).collect())?;
        let expected = self.finish(announced)?;
        let ranges = |lengths: &mut dyn Iterator<Item = usize>| -> Vec<(usize, Range<usize>)> {
            let mut end = 0;
            let parts = lengths.map(|length| {
                end += length;
                end - length..end
            });
            parts.enumerate().filter(|(_, part)| !part.is_empty()).collect()
        };
        let sends = ranges(&mut to.iter().map(Vec::len));
        let receives = ranges(&mut expected.iter().map(|&count| count as usize));
        let mut messages = self.all(self.0.comm.messages(EXCHANGE, &sends, &receives))?;
        if let Some(buffer) = messages.outgoing() {
            buffer.copy_from_slice(&to.concat());
        }
        messages.start();
        self.wait(|| messages.is_complete())?;
        let mut parts = vec![vec![]; self.size()];
        for (rank, part) in receives {
            parts[rank] = messages.received().map_or(vec![], |values| values[part].to_vec());
        }
        Ok(parts)
    }

    /// Returns this rank's result if no rank has an error; otherwise returns this rank's error or, if it has
    /// none, that of the first rank with an error. Collective: all ranks call this.
    pub fn all<R>(&self, result: Result<R>) -> Result<R> {
        let message = result.as_ref().err().map(|error| error.to_string()).unwrap_or_default();
        // an error that came from another rank is still that of the other one
        let followed = self.follows_another_rank();
        let first = self.first_message(message);
        // A rank with an error returns that error, even if another rank has ended because of it and so fails the gather.
        let follows = if result.is_err() { followed } else { !matches!(first, Ok(None)) };
        self.0.follows.store(follows, Relaxed);
        let value = result?;
        match first? {
            None => Ok(value),
            Some((rank, message)) => Err(Error::Rank { rank, message }),
        }
    }

    /// The first rank whose message is not empty, and its message.
    fn first_message(&self, own: String) -> Result<Option<(usize, String)>> {
        let lengths = self.all_gather(vec![own.len() as u64])?;
        let Some(first) = lengths.iter().position(|&length| length > 0) else { return Ok(None) };
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        let mut padded = own.into_bytes();
        padded.resize(longest, 0);
        let messages = self.all_gather(padded)?;
        let text = &messages[first * longest..][..lengths[first] as usize];
        Ok(Some((first, String::from_utf8_lossy(text).into_owned())))
    }

    /// The ranks on the same machine as this one.
    #[cfg(feature = "cuda")]
    pub(super) fn of_this_machine(&self) -> Result<Vec<usize>> {
        let own = self.0.comm.machine();
        let machines = self.all_gather(vec![own])?;
        Ok((0..self.size()).filter(|&rank| machines[rank] == own).collect())
    }

    #[cfg(feature = "cuda")]
    pub(super) fn teams(&self) -> &super::teams::Teams {
        &self.0.teams
    }

    /// The error of a rank that is known to have failed. Waits a while for its message, which may be in
    /// flight.
    #[cfg(feature = "cuda")]
    pub(super) fn failed(&self, rank: usize) -> Error {
        let started = Instant::now();
        let late = |message: &str| Error::Rank { rank, message: message.into() };
        let heard = self.wait(|| started.elapsed() > FAILURE_TIMEOUT);
        heard.err().unwrap_or_else(|| {
            late("did not take part in a collective operation: all ranks must make the same calls")
        })
    }

    /// The maximum over all ranks.
    pub(super) fn largest(&self, own: u8) -> Result<u8> {
        Ok(self.all_gather(vec![own])?.into_iter().max().unwrap_or(own))
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.0.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Defers a sum over all ranks until it is needed; it is then communicated together with all other
    /// deferred sums.
    pub(super) fn sum(&self, own: Own) -> Arc<Pending> {
        let pending = Arc::<Pending>::default();
        self.sums().waiting.push((pending.clone(), own));
        pending
    }

    /// Starts to communicate all deferred sums, so that this overlaps with computation.
    pub(super) fn send_sums(&self) -> Result<()> {
        self.send(&mut self.sums())
    }

    /// Starts a gather of all deferred sums, after completing the one in flight.
    fn send(&self, sums: &mut Sums) -> Result<()> {
        if sums.waiting.is_empty() {
            return Ok(());
        }
        self.receive(sums)?;
        let (mut own, mut waiting) = (vec![], vec![]);
        for (pending, numbers) in std::mem::take(&mut sums.waiting) {
            let numbers = numbers()?;
            waiting.push((pending, numbers.len()));
            own.extend(numbers);
        }
        self.0.traffic[2].fetch_add(1, Relaxed);
        self.0.traffic[3].fetch_add(own.len() as u64, Relaxed);
        self.check()?;
        sums.in_flight = Some(SumsInFlight { flight: self.0.comm.start_all_gather(own)?, sums: waiting });
        Ok(())
    }

    /// Completes the sums in flight, adding in the order of the ranks, so that results are bitwise the same
    /// on all ranks and in every run.
    fn receive(&self, sums: &mut Sums) -> Result<()> {
        let Some(SumsInFlight { flight, sums }) = sums.in_flight.take() else { return Ok(()) };
        let parts = self.finish(flight)?;
        let count = parts.len() / self.size();
        let mut whole = vec![0.0; count];
        for part in parts.chunks(count.max(1)) {
            whole.iter_mut().zip(part).for_each(|(sum, own)| *sum += own);
        }
        let mut at = 0;
        for (pending, count) in sums {
            let end = at + count;
            let _ = pending.whole.set(whole[at..end].to_vec());
            at = end;
        }
        Ok(())
    }

    /// The sums over all ranks; waits for them if necessary.
    pub(super) fn whole<'p>(&self, pending: &'p Pending) -> Result<&'p [f64]> {
        if let Some(whole) = pending.whole.get() {
            return Ok(whole);
        }
        self.check()?;
        let mut sums = self.sums();
        self.receive(&mut sums)?;
        if pending.whole.get().is_none() {
            self.send(&mut sums)?;
            self.receive(&mut sums)?;
        }
        drop(sums);
        let lost = || Error::Communication("a sum was read after an earlier failure".into());
        pending.whole.get().map(Vec::as_slice).ok_or_else(lost)
    }

    /// Returns whether the sums are known, so that reading them does not wait.
    pub(super) fn known(pending: &Pending) -> bool {
        pending.whole.get().is_some()
    }
}

impl From<Comm> for Ranks {
    fn from(comm: Comm) -> Ranks {
        Ranks(Arc::new(Inner {
            comm,
            sums: Mutex::default(),
            failed: OnceLock::new(),
            follows: AtomicBool::new(false),
            traffic: Default::default(),
            #[cfg(feature = "cuda")]
            teams: Default::default(),
        }))
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}
