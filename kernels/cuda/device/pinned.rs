//! Pinned host memory, which a device reads and writes over the bus.

use crate::buffer::bytes_of;
use crate::cuda::device::error::Result;
use crate::cuda::device::queue::{Block, Queue};
use crate::cuda::device::{Array, Device, Element};
use cudarc::driver::{CudaStream, result, sys};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of each copy that measures the bandwidth of the bus: 0.3 ms at 55 GB/s.
const MEASURED: usize = 16 << 20;

/// Number of polls between two queries of the stream's state. Guess, chosen so that queries are rare.
const POLLS: usize = 1000;

/// Pinned memory for kernels of one queue, at the same address for host and device.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// The memory; `None` after it was returned to the queue.
    block: Option<Block>,
    start: *mut u8,
    len: usize,
    queue: Arc<Queue>,
}

// SAFETY: the memory is owned; the host accesses it only through references to `self`
unsafe impl Send for Pinned {}
// SAFETY: as above
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Zeroed memory of `len` bytes, for kernels of a device.
    pub(crate) fn new(device: &Device, len: usize) -> Result<Pinned> {
        let queue = device.inner.queue.clone();
        let block = queue.take_pinned(len)?;
        let mut pinned = Pinned { start: block.start, block: Some(block), len, queue };
        pinned.bytes_mut().fill(0);
        Ok(pinned)
    }

    /// Device address.
    pub(crate) fn address(&self) -> u64 {
        self.start as u64
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this length, and initialized
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed for writing
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        // wait for queued kernels that may still use the memory; synchronizing with the whole GPU would be an
        // error while another thread captures a graph
        match self.queue.stream.synchronize() {
            Ok(()) => self.queue.return_pinned(block),
            error => self.queue.context.record_err(error),
        }
    }
}

/// An array in pinned memory, which a device and MPI can both read and write.
#[derive(Debug)]
pub struct PinnedArray<T> {
    memory: Pinned,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> PinnedArray<T> {
    /// Device address.
    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Reads an element that the device may write meanwhile.
    pub(crate) fn peek(&self, at: usize) -> T {
        let all = self.as_ref();
        // SAFETY: an element of the array, and any bits are a value; the load is volatile because the device
        // may write meanwhile
        unsafe { std::ptr::from_ref(&all[at]).read_volatile() }
    }

    /// Queues a copy to an array on the device.
    pub fn copy_to(&self, array: &mut Array<T>) -> Result<()> {
        // SAFETY: memory of this queue is freed only when its stream is done
        unsafe { self.copy_on(&self.memory.queue.stream, array) }
    }

    /// Queues a copy to an array on the device on another stream.
    ///
    /// # Safety
    ///
    /// Both arrays must exist until the copy is done.
    pub(crate) unsafe fn copy_on(&self, stream: &CudaStream, array: &mut Array<T>) -> Result<()> {
        assert_eq!(array.len(), self.len, "arrays of one length");
        if self.len == 0 {
            return Ok(());
        }
        stream.context().bind_to_thread()?;
        let (to, from) = (array.address(0), bytes_of(self.as_ref()));
        // SAFETY: both have this many bytes, and the caller ensures that they exist long enough
        Ok(unsafe { result::memcpy_htod_async(to, from, stream.cu_stream()) }?)
    }
}

impl<T: Element> AsRef<[T]> for PinnedArray<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: allocated with this length, page-aligned, and any bits are a value
        unsafe { std::slice::from_raw_parts(self.memory.start.cast(), self.len) }
    }
}

impl<T: Element> AsMut<[T]> for PinnedArray<T> {
    fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed for writing
        unsafe { std::slice::from_raw_parts_mut(self.memory.start.cast(), self.len) }
    }
}

impl Device {
    /// An array of zeros in pinned memory.
    pub fn pinned<T: Element>(&self, len: usize) -> Result<PinnedArray<T>> {
        let memory = Pinned::new(self, len * size_of::<T>())?;
        Ok(PinnedArray { memory, len, element: PhantomData })
    }

    /// Polls until `there` returns true or all queued work is done; returns the last value of `there`.
    pub(crate) fn wait_for(&self, there: impl Fn() -> bool) -> Result<bool> {
        loop {
            if (0..POLLS).any(|_| there()) {
                return Ok(true);
            }
            self.inner.context.bind_to_thread()?;
            // SAFETY: queries the state of a live stream
            match unsafe { sys::cuStreamQuery(self.inner.stream.cu_stream()) } {
                sys::CUresult::CUDA_ERROR_NOT_READY => std::thread::yield_now(),
                done => {
                    done.result()?;
                    return self.take_error().map_or(Ok(there()), Err);
                }
            }
        }
    }

    /// Transfer rate from pinned memory to the device in bytes per second: the fastest of five copies. On a device that is nearly full,
    /// the copies are shorter, and the rate is underestimated.
    pub fn bus(&self) -> Result<f64> {
        let bytes = MEASURED.min(self.memory()?.0 / 2).max(1);
        let pinned = Pinned::new(self, bytes)?;
        let to = self.uninitialized::<u8>(bytes)?;
        let mut least = f64::INFINITY;
        for _ in 0..5 {
            self.synchronize()?;
            let started = Instant::now();
            // SAFETY: the array has this many bytes, and the pinned memory lives until the copy is complete
            let copied = unsafe {
                result::memcpy_htod_async(to.address(0), pinned.bytes(), self.inner.stream.cu_stream())
            };
            self.synchronize()?;
            copied?;
            least = least.min(started.elapsed().as_secs_f64());
        }
        Ok(bytes as f64 / least)
    }
}
