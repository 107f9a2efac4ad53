//! Communication between ranks that are threads of one process: values are copied through mailboxes in shared memory.
//!
//! Every rank has a mailbox. A message is delivered to the mailbox of its receiver when it is sent. A repeated
//! exchange is complete only when the messages of the one before it have been taken, so that mailboxes stay
//! small. The messages of a route (sender and tag) are numbered by the sender, and the receiver expects
//! them in the same order, as MPI does.

use super::comm::{Buffer, Ranges, end};
use crate::error::Result;
use krysp_kernels::buffer::Plain;
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Tag of collective operations.
const COLLECTIVE: i32 = 0;

/// Maximum time between two polls of a sleeping rank, for waits that end without a message. A guess.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// A value that a rank can send to another one.
pub(super) trait Value: Any + Clone + Send + Sync {}
impl<X: Any + Clone + Send + Sync> Value for X {}

/// A vector of values of any type.
type Message = Arc<dyn Any + Send + Sync>;

/// Sender and tag of a message.
type Route = (usize, i32);

/// Mailbox of a rank.
#[derive(Default)]
struct Mailbox {
    contents: Mutex<Contents>,
    /// Number of changes of the contents, so that polling takes no lock.
    changes: AtomicU64,
    changed: Condvar,
    /// True if this rank has ended its work, so that it sends nothing more.
    has_ended: AtomicBool,
}

/// Messages that have arrived, and what their receiver must know to expect them in order.
#[derive(Default)]
struct Contents {
    messages: HashMap<(Route, u64), Message>,
    /// Messages to discard when they arrive, because their receiver no longer expects them.
    unwanted: HashSet<(Route, u64)>,
    /// Number of messages sent and number of messages expected so far.
    counts: HashMap<Route, [u64; 2]>,
    /// True if the contents have changed since the rank slept last.
    is_new: bool,
    /// True while the rank sleeps.
    sleeps: bool,
}

impl Mailbox {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the contents, and wakes the rank if it sleeps.
    fn change(&self, change: impl FnOnce(&mut Contents)) {
        let mut contents = self.contents();
        change(&mut contents);
        contents.is_new = true;
        // while locked: a rank that has seen `is_new` must also see that there is something to poll for
        self.changes.fetch_add(1, Ordering::Release);
        let sleeps = contents.sleeps;
        drop(contents);
        if sleeps {
            self.changed.notify_all();
        }
    }
}

/// State that all ranks share.
struct Shared {
    mailboxes: Vec<Mailbox>,
    /// The first failure: the rank that failed, and its message. Shared by all ranks, so that a rank that ends because
    /// of the failure is never reported as its cause.
    failure: OnceLock<(usize, String)>,
}

/// A rank of this process.
#[derive(Clone)]
pub(super) struct Comm {
    shared: Arc<Shared>,
    pub(super) rank: usize,
    pub(super) size: usize,
}

impl Comm {
    /// Creates all ranks.
    pub(super) fn all(size: usize) -> Vec<Comm> {
        let mailboxes = (0..size).map(|_| Mailbox::default()).collect();
        let shared = Arc::new(Shared { mailboxes, failure: OnceLock::new() });
        (0..size).map(|rank| Comm { shared: shared.clone(), rank, size }).collect()
    }

    fn deliver(&self, to: usize, tag: i32, message: Message) {
        let route = (self.rank, tag);
        self.shared.mailboxes[to].change(|contents| {
            let [sent, _] = contents.counts.entry(route).or_default();
            let number = *sent;
            *sent += 1;
            if !contents.unwanted.remove(&(route, number)) {
                contents.messages.insert((route, number), message);
            }
        });
    }

    /// The next messages of other ranks, each for a range of a buffer.
    fn expect(&self, tag: i32, ranges: &[(usize, Range<usize>)]) -> Incoming {
        let mut contents = self.shared.mailboxes[self.rank].contents();
        let missing = ranges.iter().map(|(from, range)| {
            let route = (*from, tag);
            let [_, expected] = contents.counts.entry(route).or_default();
            let number = *expected;
            *expected += 1;
            ((route, number), range.clone())
        });
        let missing = missing.collect();
        Incoming { shared: self.shared.clone(), rank: self.rank, missing, polled: None }
    }

    /// Starts to gather equally many values of any type from each rank, which clones them.
    pub(super) fn start_all_gather<X: Value + Default>(&self, own: Vec<X>) -> Result<Flight<X>> {
        let count = own.len();
        let own: Message = Arc::new(own);
        (0..self.size).for_each(|rank| self.deliver(rank, COLLECTIVE, own.clone()));
        Ok(self.flight(count))
    }

    pub(super) fn start_all_to_all<X: Value + Default>(&self, own: Vec<X>) -> Result<Flight<X>> {
        own.into_iter().enumerate().for_each(|(rank, number)| {
            self.deliver(rank, COLLECTIVE, Arc::new(vec![number]));
        });
        Ok(self.flight(1))
    }

    /// Expects `count` values from each rank.
    fn flight<X: Value + Default>(&self, count: usize) -> Flight<X> {
        let ranges: Vec<_> = (0..self.size).map(|rank| (rank, rank * count..(rank + 1) * count)).collect();
        let receive = vec![X::default(); end(&ranges)];
        Flight { receive, incoming: self.expect(COLLECTIVE, &ranges) }
    }

    pub(super) fn messages_in<X: Plain, B: Buffer<X>>(
        &self,
        tag: i32,
        sends: &Ranges,
        receives: &Ranges,
        send: B,
        receive: B,
    ) -> Result<Messages<X, B>> {
        Ok(Messages {
            own: self.clone(),
            tag,
            sends: sends.to_vec(),
            receives: receives.to_vec(),
            send,
            receive,
            incoming: None,
            sent: Default::default(),
            number: PhantomData,
        })
    }

    /// The same number for all ranks, because all are on the same machine.
    #[cfg(feature = "cuda")]
    pub(super) fn machine(&self) -> u64 {
        0
    }

    /// Reports the failure of this rank to all others.
    pub(super) fn report_failure(&self, message: &str) {
        // the first failure is the one to report
        let _ = self.shared.failure.set((self.rank, message.into()));
        self.wake_all();
    }

    /// The failure that was reported first, if any.
    pub(super) fn failure(&self) -> Option<(usize, String)> {
        self.shared.failure.get().cloned()
    }

    /// Announces that this rank sends nothing more, so that no other rank waits for it.
    pub(super) fn end(&self) {
        self.shared.mailboxes[self.rank].has_ended.store(true, Ordering::Release);
        self.wake_all();
    }

    fn wake_all(&self) {
        self.shared.mailboxes.iter().for_each(|mailbox| mailbox.change(|_| ()));
    }

    /// Sleeps until something has arrived since the last call, or for a millisecond.
    pub(super) fn sleep(&self) {
        let mailbox = &self.shared.mailboxes[self.rank];
        let mut contents = mailbox.contents();
        if !contents.is_new {
            contents.sleeps = true;
            let woken = mailbox.changed.wait_timeout(contents, LONGEST_SLEEP);
            contents = woken.unwrap_or_else(PoisonError::into_inner).0;
            contents.sleeps = false;
        }
        contents.is_new = false;
    }
}

/// Messages that a rank expects, each for a range of a buffer.
struct Incoming {
    shared: Arc<Shared>,
    rank: usize,
    missing: Vec<((Route, u64), Range<usize>)>,
    /// Number of changes of the mailbox at the last poll.
    polled: Option<u64>,
}

impl Incoming {
    /// Copies the messages that have arrived into the buffer; returns whether all have.
    fn receive_into<X: Value>(&mut self, buffer: &mut [X]) -> bool {
        let Incoming { shared, rank, missing, polled } = self;
        let own = &shared.mailboxes[*rank];
        let changes = Some(own.changes.load(Ordering::Acquire));
        if missing.is_empty() || *polled == changes {
            std::hint::spin_loop();
            return missing.is_empty();
        }
        *polled = changes;
        missing.retain(|(place, range)| {
            let sender = place.0.0;
            // a rank that had ended before its messages were looked for sends none afterwards
            let has_ended = shared.mailboxes[sender].has_ended.load(Ordering::Acquire);
            let message = own.contents().messages.remove(place);
            let wrong = match message.as_deref().map(|message| message.downcast_ref::<Vec<X>>()) {
                Some(Some(values)) if values.len() == range.len() => {
                    buffer[range.clone()].clone_from_slice(values);
                    return false;
                }
                Some(_) => "called another collective operation",
                None if has_ended => "ended its work before the others",
                None => return true,
            };
            let message = format!("{wrong}: all ranks must make the same calls");
            let _ = shared.failure.set((sender, message));
            true
        });
        missing.is_empty()
    }
}

/// Discards the messages that are not received any more, also those that arrive later.
impl Drop for Incoming {
    fn drop(&mut self) {
        if self.missing.is_empty() {
            return;
        }
        let mut contents = self.shared.mailboxes[self.rank].contents();
        for (place, _) in self.missing.drain(..) {
            if contents.messages.remove(&place).is_none() {
                contents.unwanted.insert(place);
            }
        }
    }
}

/// A collective operation in flight.
pub(super) struct Flight<X> {
    receive: Vec<X>,
    incoming: Incoming,
}

impl<X: Value> Flight<X> {
    pub(super) fn is_complete(&mut self) -> bool {
        self.incoming.receive_into(&mut self.receive)
    }

    pub(super) fn received(mut self) -> Vec<X> {
        if self.is_complete() { self.receive } else { vec![] }
    }
}

/// Messages that are sent and received repeatedly.
pub(super) struct Messages<X, B> {
    own: Comm,
    tag: i32,
    sends: Vec<(usize, Range<usize>)>,
    receives: Vec<(usize, Range<usize>)>,
    send: B,
    receive: B,
    /// The messages in flight.
    incoming: Option<Incoming>,
    /// Messages of the last start, and those of the one before that the receivers may not have taken: receiver and message.
    sent: [Vec<(usize, Weak<dyn Any + Send + Sync>)>; 2],
    number: PhantomData<X>,
}

impl<X: Plain, B: Buffer<X>> Messages<X, B> {
    pub(super) fn outgoing(&mut self) -> Option<&mut B> {
        self.incoming.is_none().then_some(&mut self.send)
    }

    pub(super) fn received(&self) -> Option<&B> {
        self.incoming.is_none().then_some(&self.receive)
    }

    pub(super) fn start(&mut self) {
        if self.incoming.is_some() || self.sends.is_empty() && self.receives.is_empty() {
            return;
        }
        self.sent.swap(0, 1);
        self.sent[0].clear();
        for (rank, range) in &self.sends {
            let part: Message = Arc::new(self.send.as_ref()[range.clone()].to_vec());
            self.sent[0].push((*rank, Arc::downgrade(&part)));
            self.own.deliver(*rank, self.tag, part);
        }
        self.incoming = Some(self.own.expect(self.tag, &self.receives));
    }

    pub(super) fn is_complete(&mut self) -> bool {
        let Some(incoming) = &mut self.incoming else { return true };
        // a rank is at most one exchange ahead of those that receive from it, so that mailboxes do not grow
        let mailboxes = &self.own.shared.mailboxes;
        self.sent[1].retain(|(to, message)| {
            message.strong_count() > 0 && !mailboxes[*to].has_ended.load(Ordering::Acquire)
        });
        if incoming.receive_into(self.receive.as_mut()) && self.sent[1].is_empty() {
            self.incoming = None;
        }
        self.incoming.is_none()
    }
}
