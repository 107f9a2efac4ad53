//! Safe wrappers of the MPI functions that this library needs, with checked lengths and owned buffers: the
//! only place where MPI is called. [`comm`](super::comm) says what each function does.
//!
//! Calls from all threads are serialized, so the thread level `MPI_THREAD_SERIALIZED` suffices.
#![allow(unsafe_code, reason = "MPI is a C library")]

use super::collective::Ranks;
use super::comm::{self, Buffer, Ranges};
use crate::error::{Error, Result};
use ::mpi::ffi;
use ::mpi::raw::AsRaw;
use krysp_kernels::buffer::Plain;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Tag of the message by which a rank reports its failure.
const FAILURE: c_int = 1;

/// Serializes all calls.
static CALLS: Mutex<()> = Mutex::new(());
/// MPI, if this library has started it and still uses it.
static STARTED: Mutex<Weak<Started>> = Mutex::new(Weak::new());

fn calling() -> MutexGuard<'static, ()> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// MPI started by this library. It is finalized when the last communicator is dropped.
struct Started;

impl Drop for Started {
    fn drop(&mut self) {
        let _call = calling();
        // SAFETY: MPI was started by `Comm::world`, and no communicator of this library is left
        unsafe { ffi::MPI_Finalize() };
    }
}

impl Ranks {
    /// All ranks that `mpirun` has started. Initializes MPI if the program has not; MPI is then finalized
    /// when the last object made from these ranks is dropped. Needs the feature `mpi`.
    ///
    /// ```no_run
    /// use krysp::ranks::{BlockJacobi, RankMatrix, Ranks, RowDistribution};
    /// use krysp::{Cg, Ic0, LinearOperator, Space};
    ///
    /// fn main() -> krysp::Result<()> {
    ///     let ranks = Ranks::world()?;
    ///     ranks.run(|| {
    ///         let a = RankMatrix::<f64>::read(&ranks, "heat.mtx", RowDistribution::ByEntries)?;
    ///         let m = BlockJacobi::new(&a, Ic0::new)?;
    ///         let b = vec![1.0; a.domain().local_len()];
    ///         let solution = Cg::new(&a).preconditioner(m).rtol(1e-8).solve(&b)?;
    ///         println!("{}", solution.report);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn world() -> Result<Ranks> {
        Comm::world().map(|comm| comm::Comm::Mpi(comm).into())
    }

    /// The ranks of the program's own communicator, such as `mpi::topology::SimpleCommunicator`. It is
    /// duplicated, so that messages of the program and of this library do not mix; all its ranks must call
    /// this. MPI must not be finalized while anything made from these ranks is in use. Needs the feature `mpi`.
    pub fn of(communicator: &impl AsRaw<Raw = ffi::MPI_Comm>) -> Result<Ranks> {
        // SAFETY: `AsRaw` promises a valid handle; the caller must not finalize MPI before
        unsafe { Comm::copy(communicator.as_raw(), None) }.map(|comm| comm::Comm::Mpi(comm).into())
    }
}

/// A communicator of this library. It is not freed before MPI is finalized, because `MPI_Comm_free` is
/// collective.
pub(super) struct Comm {
    raw: ffi::MPI_Comm,
    pub(super) rank: usize,
    pub(super) size: usize,
    _started: Option<Arc<Started>>,
}

// SAFETY: the handle is used only while `CALLS` is locked
unsafe impl Send for Comm {}
// SAFETY: as above
unsafe impl Sync for Comm {}

impl Comm {
    /// The communicator of all ranks. Initializes MPI if that has not been done.
    fn world() -> Result<Comm> {
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = started.upgrade() {
            // SAFETY: MPI has started, and `started` keeps it running
            return unsafe { Comm::copy(ffi::RSMPI_COMM_WORLD, Some(started)) };
        }
        let (mut is_started, mut is_ended, mut level) = (0, 0, 0);
        let call = calling();
        // SAFETY: these may be called at any time; `MPI_Init_thread` only if MPI was neither initialized nor
        // finalized
        let serialized = unsafe {
            ffi::MPI_Initialized(&mut is_started);
            ffi::MPI_Finalized(&mut is_ended);
            if is_ended != 0 {
                return Err(Error::Communication(
                    "MPI was finalized in this program and cannot be initialized again".into(),
                ));
            }
            if is_started == 0 {
                ffi::MPI_Init_thread(null_mut(), null_mut(), ffi::RSMPI_THREAD_SERIALIZED, &mut level);
            } else {
                ffi::MPI_Query_thread(&mut level);
            }
            ffi::RSMPI_THREAD_SERIALIZED
        };
        drop(call);
        let ours = (is_started == 0).then(|| Arc::new(Started));
        if let Some(ours) = &ours {
            *started = Arc::downgrade(ours);
        }
        if level < serialized {
            return Err(Error::Communication(
                "MPI must provide the thread level `MPI_THREAD_SERIALIZED`, but provides less".into(),
            ));
        }
        // SAFETY: MPI has started
        unsafe { Comm::copy(ffi::RSMPI_COMM_WORLD, ours) }
    }

    /// Duplicates a communicator. Collective: all its ranks must call this.
    ///
    /// # Safety
    /// The handle is that of a valid intracommunicator. MPI is not finalized before the copy is dropped; `started`
    /// keeps it running.
    unsafe fn copy(from: ffi::MPI_Comm, started: Option<Arc<Started>>) -> Result<Comm> {
        let _call = calling();
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI runs and `from` is a communicator, by the caller's promise
        let raw = unsafe {
            let mut raw = ffi::RSMPI_COMM_NULL;
            ffi::MPI_Comm_dup(from, &mut raw);
            ffi::MPI_Comm_rank(raw, &mut rank);
            ffi::MPI_Comm_size(raw, &mut size);
            raw
        };
        Ok(Comm { raw, rank: rank as usize, size: size as usize, _started: started })
    }

    /// Starts to gather equally many numbers from each rank.
    pub(super) fn start_all_gather<X: Plain + Default>(&self, own: Vec<X>) -> Result<Flight<X>> {
        let count = number(own.len())?;
        let mut flight = Flight::new(own, self.size * count as usize);
        let of = datatype::<X>()?;
        let _call = calling();
        // SAFETY: `flight` owns both buffers until the request is complete; `count` numbers are sent and
        // `count` received from each rank
        unsafe {
            let Flight { send, receive, request } = &mut flight;
            let (from, to) = (send.as_ptr().cast(), receive.as_mut_ptr().cast());
            ffi::MPI_Iallgather(from, count, of, to, count, of, self.raw, request);
        }
        Ok(flight)
    }

    /// Starts to send one number to each rank and to receive one number from each rank (all-to-all).
    pub(super) fn start_all_to_all<X: Plain + Default>(&self, own: Vec<X>) -> Result<Flight<X>> {
        let mut flight = Flight::new(own, self.size);
        let of = datatype::<X>()?;
        let _call = calling();
        // SAFETY: `flight` owns both buffers until the request is complete; each has one number for each rank
        unsafe {
            let Flight { send, receive, request } = &mut flight;
            let (from, to) = (send.as_ptr().cast(), receive.as_mut_ptr().cast());
            ffi::MPI_Ialltoall(from, 1, of, to, 1, of, self.raw, request);
        }
        Ok(flight)
    }

    pub(super) fn messages_in<X: Plain, B: Buffer<X>>(
        &self,
        tag: c_int,
        sends: &Ranges,
        receives: &Ranges,
        send: B,
        receive: B,
    ) -> Result<Messages<X, B>> {
        let mut messages = Messages {
            send: ManuallyDrop::new(send),
            receive: ManuallyDrop::new(receive),
            requests: vec![],
            in_flight: false,
            number: PhantomData,
        };
        let [going, coming] = [messages.send.as_ref().len(), messages.receive.as_ref().len()];
        number(going.max(coming))?;
        let of = datatype::<X>()?;
        let _call = calling();
        for (rank, range) in receives {
            let (part, count) = (&mut messages.receive.as_mut()[range.clone()], range.len() as c_int);
            // SAFETY: the memory stays valid and in place as long as the request exists, and has `count`
            // numbers
            messages.requests.push(unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let to = part.as_mut_ptr().cast();
                ffi::MPI_Recv_init(to, count, of, *rank as c_int, tag, self.raw, &mut request);
                request
            });
        }
        for (rank, range) in sends {
            let (part, count) = (&messages.send.as_ref()[range.clone()], range.len() as c_int);
            // SAFETY: as above
            messages.requests.push(unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let from = part.as_ptr().cast();
                ffi::MPI_Send_init(from, count, of, *rank as c_int, tag, self.raw, &mut request);
                request
            });
        }
        Ok(messages)
    }

    /// A hash of the name of the machine that this rank runs on.
    #[cfg(feature = "cuda")]
    pub(super) fn machine(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let (mut name, mut length) = ([0u8; ffi::MPI_MAX_PROCESSOR_NAME as usize], 0);
        let call = calling();
        // SAFETY: the buffer is as long as the longest possible name
        unsafe { ffi::MPI_Get_processor_name(name.as_mut_ptr().cast(), &mut length) };
        drop(call);
        let mut hasher = DefaultHasher::new();
        name[..(length.max(0) as usize).min(name.len())].hash(&mut hasher);
        hasher.finish()
    }

    /// Sends a text that the other ranks can probe for. The text is leaked, once.
    pub(super) fn report_failure(&self, message: &str) {
        let text: &'static [u8] = Box::leak(Box::from(message.as_bytes()));
        let _call = calling();
        for rank in (0..self.size).filter(|&rank| rank != self.rank) {
            // SAFETY: the text is valid until the program ends; the request is not waited for
            unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let (count, of) = (text.len() as c_int, ffi::RSMPI_UINT8_T);
                let to = rank as c_int;
                ffi::MPI_Isend(text.as_ptr().cast(), count, of, to, FAILURE, self.raw, &mut request);
                if request != ffi::RSMPI_REQUEST_NULL {
                    ffi::MPI_Request_free(&mut request);
                }
            }
        }
    }

    /// Receives a text sent by [`Comm::report_failure`], if there is one; returns the sender and the text.
    pub(super) fn failure(&self) -> Option<(usize, String)> {
        let _call = calling();
        // SAFETY: an all-zero status is a valid value of this plain struct; the message that was found has
        // `count` bytes, which is the size of the buffer
        unsafe {
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            let (mut found, mut count, of) = (0, 0, ffi::RSMPI_UINT8_T);
            ffi::MPI_Iprobe(ffi::RSMPI_ANY_SOURCE, FAILURE, self.raw, &mut found, &mut status);
            if found == 0 {
                return None;
            }
            ffi::MPI_Get_count(&status, of, &mut count);
            let mut text = vec![0u8; count.max(0) as usize];
            let from = status.MPI_SOURCE;
            ffi::MPI_Recv(text.as_mut_ptr().cast(), count, of, from, FAILURE, self.raw, &mut status);
            Some((from as usize, String::from_utf8_lossy(&text).into_owned()))
        }
    }

    /// Sleeps between two rounds of polling, because there may be more ranks than cores.
    pub(super) fn sleep(&self) {
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// A collective operation in flight, with its buffers.
pub(super) struct Flight<X: Plain> {
    send: Vec<X>,
    receive: Vec<X>,
    request: ffi::MPI_Request,
}

// SAFETY: the handle is used only while `CALLS` is locked
unsafe impl<X: Plain> Send for Flight<X> {}

impl<X: Plain + Default> Flight<X> {
    fn new(send: Vec<X>, expected: usize) -> Flight<X> {
        // SAFETY: a constant
        let request = unsafe { ffi::RSMPI_REQUEST_NULL };
        Flight { send, receive: vec![X::default(); expected], request }
    }

    /// Returns whether the operation is complete.
    pub(super) fn is_complete(&mut self) -> bool {
        let mut done = 0;
        let _call = calling();
        // SAFETY: a request of this communicator, or the null request, which is complete
        unsafe { ffi::MPI_Test(&mut self.request, &mut done, ffi::RSMPI_STATUS_IGNORE) };
        done != 0
    }

    /// The numbers received, in the order of the ranks; empty if the operation is not complete.
    pub(super) fn received(mut self) -> Vec<X> {
        if self.is_complete() { std::mem::take(&mut self.receive) } else { vec![] }
    }
}

/// Leaks the buffers unless the operation is complete, because MPI may still read and write them.
impl<X: Plain> Drop for Flight<X> {
    fn drop(&mut self) {
        let _call = calling();
        // SAFETY: reading a constant
        if self.request != unsafe { ffi::RSMPI_REQUEST_NULL } {
            std::mem::forget(std::mem::take(&mut self.send));
            std::mem::forget(std::mem::take(&mut self.receive));
        }
    }
}

/// Messages that are sent and received repeatedly (persistent requests).
pub(super) struct Messages<X: Plain, B: Buffer<X> = Vec<X>> {
    send: ManuallyDrop<B>,
    receive: ManuallyDrop<B>,
    requests: Vec<ffi::MPI_Request>,
    in_flight: bool,
    number: PhantomData<X>,
}

// SAFETY: the handles are used only while `CALLS` is locked
unsafe impl<X: Plain, B: Buffer<X> + Send> Send for Messages<X, B> {}

impl<X: Plain, B: Buffer<X>> Messages<X, B> {
    /// The send buffer; `None` while messages are in flight.
    pub(super) fn outgoing(&mut self) -> Option<&mut B> {
        (!self.in_flight).then_some(&mut *self.send)
    }

    /// The receive buffer; `None` while messages are in flight.
    pub(super) fn received(&self) -> Option<&B> {
        (!self.in_flight).then_some(&*self.receive)
    }

    /// Starts to send and to receive.
    pub(super) fn start(&mut self) {
        if self.in_flight || self.requests.is_empty() {
            return;
        }
        self.in_flight = true;
        let _call = calling();
        // SAFETY: persistent requests that are inactive; nothing else accesses the buffers while `in_flight`
        // is set
        unsafe { ffi::MPI_Startall(self.requests.len() as c_int, self.requests.as_mut_ptr()) };
    }

    /// Returns whether all messages have been sent and received.
    pub(super) fn is_complete(&mut self) -> bool {
        if !self.in_flight {
            return true;
        }
        let mut done = 0;
        let _call = calling();
        let count = self.requests.len() as c_int;
        // SAFETY: persistent requests that are active
        unsafe { ffi::MPI_Testall(count, self.requests.as_mut_ptr(), &mut done, ffi::RSMPI_STATUSES_IGNORE) };
        self.in_flight = done == 0;
        !self.in_flight
    }
}

/// Leaks the buffers of messages that are still in flight, because MPI may read and write them.
impl<X: Plain, B: Buffer<X>> Drop for Messages<X, B> {
    fn drop(&mut self) {
        if self.in_flight {
            return;
        }
        let call = calling();
        for request in &mut self.requests {
            // SAFETY: an inactive persistent request; MPI still runs, because owners of messages own a
            // communicator
            unsafe { ffi::MPI_Request_free(request) };
        }
        drop(call);
        // SAFETY: the buffers are no longer used, and they are dropped once
        unsafe {
            ManuallyDrop::drop(&mut self.send);
            ManuallyDrop::drop(&mut self.receive);
        }
    }
}

/// The MPI type for the bits of a number.
fn datatype<X: Plain>() -> Result<ffi::MPI_Datatype> {
    // SAFETY: constants
    unsafe {
        match size_of::<X>() {
            1 => Ok(ffi::RSMPI_UINT8_T),
            4 => Ok(ffi::RSMPI_UINT32_T),
            8 => Ok(ffi::RSMPI_UINT64_T),
            bytes => Err(Error::Communication(format!("cannot send numbers of {bytes} bytes"))),
        }
    }
}

fn number(count: usize) -> Result<c_int> {
    let error =
        |_| Error::Communication(format!("a message of {count} numbers exceeds the limit of {}", c_int::MAX));
    c_int::try_from(count).map_err(error)
}
