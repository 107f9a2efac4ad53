//! A stream of a GPU, and the memory that only its work uses.
//!
//! A queue belongs to one device at a time. When that device is dropped, the queue is kept for the next one,
//! with everything that is slow to create: the stream, its memory pool, and pinned memory. All other state,
//! such as memory limits, the first error or the membership in a team (GPUs that share vectors), belongs to
//! the device.

use crate::cuda::device::error::Result;
use crate::cuda::device::lock;
use crate::cuda::device::pool::Pool;
use crate::cuda::device::transfer::Staging;
use crate::cuda::tuning::{IDLE_BYTES, PINNED_BYTES};
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A stream and its memory.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Staging buffers, created for the first large array that is copied.
    staging: Mutex<Option<Staging>>,
    /// Pinned memory for reuse.
    pinned: Mutex<Vec<Block>>,
    /// True if all pinned memory is kept until the queue becomes idle.
    keeps_pinned: AtomicBool,
    /// `None` if the driver has no memory pools.
    pub(crate) pool: Option<Pool>,
    pub(crate) stream: Arc<CudaStream>,
    /// The primary context; a queue has a separate reference because cudarc keeps errors of destructors in it.
    pub(crate) context: Arc<CudaContext>,
}

impl Queue {
    pub(crate) fn new(ordinal: usize) -> Result<Queue> {
        let context = CudaContext::new(ordinal)?;
        // SAFETY: all memory of a queue is used on its only stream, whose work runs in order, so no events
        // are needed
        unsafe { context.disable_event_tracking() };
        let pool = match context.has_async_alloc() {
            true => Some(Pool::new(ordinal, context.total_mem()?)?),
            false => None,
        };
        let stream = context.new_stream()?;
        let (staging, pinned, keeps_pinned) = Default::default();
        Ok(Queue { staging, pinned, keeps_pinned, pool, stream, context })
    }

    /// Runs a transfer through pinned memory.
    pub(crate) fn staged(&self, transfer: impl FnOnce(&mut Staging) -> Result<()>) -> Result<()> {
        let mut staging = lock(&self.staging);
        let staging = match &mut *staging {
            Some(staging) => staging,
            none => none.insert(Staging::new(&self.context)?),
        };
        transfer(staging)
    }

    /// Bytes of the pool that are not in use.
    pub(crate) fn unused(&self) -> Result<usize> {
        self.pool.as_ref().map_or(Ok(0), Pool::unused)
    }

    /// Prepares the queue for its next device. Returns `false` if no other device can use it, because a
    /// destructor failed, the stream is being captured or has failed, or arrays outlive their device.
    pub(crate) fn becomes_idle(&self) -> bool {
        if Arc::strong_count(&self.stream) > 1 {
            return false;
        }
        if self.keeps_pinned.swap(false, Ordering::Relaxed) {
            let mut kept = 0;
            lock(&self.pinned).retain(|block| {
                kept += block.bytes;
                kept <= PINNED_BYTES
            });
        }
        // `trim` returns memory only after the host has waited for the work that used it
        let waited = self.stream.synchronize();
        let trimmed = self.pool.as_ref().map_or(Ok(()), |pool| pool.trim(IDLE_BYTES));
        waited.is_ok() && trimmed.is_ok() && self.context.check_err().is_ok()
    }

    /// Pinned memory of at least this many bytes, with any content.
    pub(crate) fn take_pinned(&self, bytes: usize) -> Result<Block> {
        let mut pinned = lock(&self.pinned);
        // a large block is kept for requests of its size
        let most = bytes.saturating_mul(2).max(PINNED_BYTES);
        let fits = (0..pinned.len()).filter(|&at| (bytes..=most).contains(&pinned[at].bytes));
        match fits.min_by_key(|&at| pinned[at].bytes) {
            Some(at) => Ok(pinned.swap_remove(at)),
            None => Block::new(&self.context, bytes),
        }
    }

    /// Keeps all pinned memory for reuse until the queue becomes idle. Members of a team need this, because
    /// freeing it makes the driver wait for all GPUs of the process: a member would wait for others that wait
    /// for it.
    pub(crate) fn keep_pinned(&self) {
        self.keeps_pinned.store(true, Ordering::Relaxed);
    }

    /// Takes back pinned memory that neither host nor device uses any longer.
    pub(crate) fn return_pinned(&self, block: Block) {
        let mut pinned = lock(&self.pinned);
        let kept: usize = pinned.iter().map(|block| block.bytes).sum();
        if kept + block.bytes <= PINNED_BYTES || self.keeps_pinned.load(Ordering::Relaxed) {
            pinned.push(block);
        }
    }
}

/// Pinned memory, at one address for the host and all devices.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) start: *mut u8,
    bytes: usize,
    context: Arc<CudaContext>,
}

// SAFETY: the memory is owned; owners of the block access it only through references to themselves
unsafe impl Send for Block {}
// SAFETY: as above
unsafe impl Sync for Block {}

impl Block {
    fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Block> {
        context.bind_to_thread()?;
        let (flags, bytes) = (sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE, bytes.max(1));
        // SAFETY: the memory is freed once, on drop
        let start = unsafe { result::malloc_host(bytes, flags) }?.cast::<u8>();
        // initialize, so that every byte may be read
        // SAFETY: just allocated with this length
        unsafe { start.write_bytes(0, bytes) };
        Ok(Block { start, bytes, context: context.clone() })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let bound = self.context.bind_to_thread();
        // SAFETY: allocated by `malloc_host`, and freed once; its last owner has waited for the device
        let freed = unsafe { result::free_host(self.start.cast()) };
        self.context.record_err(bound.and(freed));
    }
}
