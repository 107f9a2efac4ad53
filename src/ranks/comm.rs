//! Communication between ranks: processes of MPI ([`mpi`], with the feature `mpi`), or threads of one process ([`threads`]).
//!
//! No call blocks, except those that start and finalize MPI and that duplicate a communicator: callers poll
//! for completion, and can detect a failed rank meanwhile.

#[cfg(feature = "mpi")]
use super::mpi;
use super::threads;
use crate::error::{Error, Result};
use krysp_kernels::buffer::Plain;
use std::ops::Range;

/// Buffer of messages. Its data must stay at the same address when it is moved, as in a `Vec`.
pub(crate) trait Buffer<X>: AsRef<[X]> + AsMut<[X]> {}
impl<X, B: AsRef<[X]> + AsMut<[X]>> Buffer<X> for B {}

/// Parts of a buffer, each with the rank that it is sent to or received from.
pub(super) type Ranges = [(usize, Range<usize>)];

/// Evaluates an expression for the variant that a value has. `Comm => Flight` wraps its value in the variant of the
/// same name.
macro_rules! dispatch {
    ($kind:ident => $result:ident, $value:expr, $inner:ident => $call:expr) => {
        match $value {
            #[cfg(feature = "mpi")]
            $kind::Mpi($inner) => $result::Mpi($call),
            $kind::Thread($inner) => $result::Thread($call),
        }
    };
    ($kind:ident, $value:expr, $inner:ident => $call:expr) => {
        match $value {
            #[cfg(feature = "mpi")]
            $kind::Mpi($inner) => $call,
            $kind::Thread($inner) => $call,
        }
    };
}

/// This rank, and its connection to the others.
pub(super) enum Comm {
    #[cfg(feature = "mpi")]
    Mpi(mpi::Comm),
    Thread(threads::Comm),
}

impl Comm {
    /// This rank, from 0.
    pub(super) fn rank(&self) -> usize {
        dispatch!(Comm, self, comm => comm.rank)
    }

    /// Number of ranks.
    pub(super) fn size(&self) -> usize {
        dispatch!(Comm, self, comm => comm.size)
    }

    /// Starts to gather equally many numbers from each rank on all ranks (all-gather).
    pub(super) fn start_all_gather<X: Plain + Default>(&self, own: Vec<X>) -> Result<Flight<X>> {
        Ok(dispatch!(Comm => Flight, self, comm => comm.start_all_gather(own)?))
    }

    /// Starts to gather a value of any type from each rank; `None` if ranks are processes.
    #[cfg(feature = "cuda")]
    pub(super) fn start_sharing<X: threads::Value>(
        &self,
        own: X,
    ) -> Result<Option<threads::Flight<Option<X>>>> {
        match self {
            #[cfg(feature = "mpi")]
            Comm::Mpi(_) => Ok(None),
            Comm::Thread(comm) => comm.start_all_gather(vec![Some(own)]).map(Some),
        }
    }

    /// Starts to send one number to each rank and to receive one number from each rank (all-to-all).
    pub(super) fn start_all_to_all<X: Plain + Default>(&self, own: Vec<X>) -> Result<Flight<X>> {
        let (got, ranks) = (own.len(), self.size());
        if got != ranks {
            let message = format!("got {got} numbers, expected one for each of {ranks} ranks");
            return Err(Error::Communication(message));
        }
        Ok(dispatch!(Comm => Flight, self, comm => comm.start_all_to_all(own)?))
    }

    /// Prepares repeated messages between this rank and others.
    pub(super) fn messages<X: Plain + Default>(
        &self,
        tag: i32,
        sends: &Ranges,
        receives: &Ranges,
    ) -> Result<Messages<X>> {
        let [send, receive] = [sends, receives].map(|ranges| vec![X::default(); end(ranges)]);
        self.messages_in(tag, sends, receives, send, receive)
    }

    /// Prepares repeated messages in given buffers.
    pub(super) fn messages_in<X: Plain, B: Buffer<X>>(
        &self,
        tag: i32,
        sends: &Ranges,
        receives: &Ranges,
        send: B,
        receive: B,
    ) -> Result<Messages<X, B>> {
        let [going, coming] = [send.as_ref().len(), receive.as_ref().len()];
        if [going, coming] != [end(sends), end(receives)] {
            let message = format!("buffers of {going} and {coming} numbers do not match the messages");
            return Err(Error::Communication(message));
        }
        Ok(dispatch!(Comm => Messages, self, comm => comm.messages_in(tag, sends, receives, send, receive)?))
    }

    /// A hash of the name of the machine that this rank runs on; zero if all ranks are in one process.
    #[cfg(feature = "cuda")]
    pub(super) fn machine(&self) -> u64 {
        dispatch!(Comm, self, comm => comm.machine())
    }

    /// Reports the failure of this rank to all others.
    pub(super) fn report_failure(&self, message: &str) {
        dispatch!(Comm, self, comm => comm.report_failure(message));
    }

    /// A failure that was reported, if any: the rank that failed, and its message.
    pub(super) fn failure(&self) -> Option<(usize, String)> {
        dispatch!(Comm, self, comm => comm.failure())
    }

    /// Sleeps between two rounds of polling, because there may be more ranks than cores.
    pub(super) fn sleep(&self) {
        dispatch!(Comm, self, comm => comm.sleep());
    }
}

/// A collective operation in flight, with its buffers.
pub(super) enum Flight<X: Plain> {
    #[cfg(feature = "mpi")]
    Mpi(mpi::Flight<X>),
    Thread(threads::Flight<X>),
}

impl<X: Plain + Default> Flight<X> {
    /// Returns whether the operation is complete.
    pub(super) fn is_complete(&mut self) -> bool {
        dispatch!(Flight, self, flight => flight.is_complete())
    }

    /// The numbers received, in the order of the ranks; empty if the operation is not complete.
    pub(super) fn received(self) -> Vec<X> {
        dispatch!(Flight, self, flight => flight.received())
    }
}

/// Messages that are sent and received repeatedly.
pub(super) enum Messages<X: Plain, B: Buffer<X> = Vec<X>> {
    #[cfg(feature = "mpi")]
    Mpi(mpi::Messages<X, B>),
    Thread(threads::Messages<X, B>),
}

impl<X: Plain, B: Buffer<X>> Messages<X, B> {
    /// The send buffer; `None` while messages are in flight.
    pub(super) fn outgoing(&mut self) -> Option<&mut B> {
        dispatch!(Messages, self, messages => messages.outgoing())
    }

    /// The receive buffer; `None` while messages are in flight.
    pub(super) fn received(&self) -> Option<&B> {
        dispatch!(Messages, self, messages => messages.received())
    }

    /// Starts to send and to receive.
    pub(super) fn start(&mut self) {
        dispatch!(Messages, self, messages => messages.start());
    }

    /// Returns whether all messages have been sent and received.
    pub(super) fn is_complete(&mut self) -> bool {
        dispatch!(Messages, self, messages => messages.is_complete())
    }
}

/// Largest end of the ranges.
pub(super) fn end(ranges: &Ranges) -> usize {
    ranges.iter().map(|(_, range)| range.end).max().unwrap_or(0)
}
