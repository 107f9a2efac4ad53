//! Transfers of large arrays through pinned memory. All host threads copy to and from the pinned memory.
//!
//! From and to pageable memory, the driver copies with one thread; the bus is several times faster than that.

use crate::cuda::device::error::Result;
use crate::cuda::tuning::{STAGE_BYTES, STAGE_SHARE, STAGES};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result, sys};
use rayon::prelude::*;
use std::sync::Arc;

/// Pinned memory, divided into stages.
#[derive(Debug)]
pub(crate) struct Staging {
    start: *mut u8,
    /// Event of each stage, recorded after the last transfer that uses the stage.
    done: Vec<CudaEvent>,
    context: Arc<CudaContext>,
}

// SAFETY: the memory is owned, and accessed through `&mut self` only
unsafe impl Send for Staging {}

impl Staging {
    pub(crate) fn new(context: &Arc<CudaContext>) -> Result<Staging> {
        let done = (0..STAGES).map(|_| context.new_event(None)).collect::<std::result::Result<_, _>>()?;
        // SAFETY: the memory is freed once, on drop
        let start = unsafe { result::malloc_host(STAGES * STAGE_BYTES, sys::CU_MEMHOSTALLOC_PORTABLE) }?;
        // SAFETY: just allocated with this length
        unsafe { start.cast::<u8>().write_bytes(0, STAGES * STAGE_BYTES) };
        Ok(Staging { start: start.cast(), done, context: context.clone() })
    }

    /// Waits until the device has finished with a stage, and returns the stage.
    fn stage(&mut self, number: usize, len: usize) -> Result<&mut [u8]> {
        let at = number % STAGES;
        self.done[at].synchronize()?;
        assert!(len <= STAGE_BYTES, "no more than a stage");
        // SAFETY: within the allocation, which is initialized; nothing else uses it
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start.add(at * STAGE_BYTES), len) })
    }

    /// Queues a copy of host memory to a device.
    ///
    /// # Safety
    /// `host.len()` bytes can be written from the address `to` on.
    pub(crate) unsafe fn upload(&mut self, stream: &CudaStream, host: &[u8], to: u64) -> Result<()> {
        self.context.bind_to_thread()?;
        for (number, part) in host.chunks(STAGE_BYTES).enumerate() {
            let stage = self.stage(number, part.len())?;
            copy(part, stage);
            // SAFETY: within the range that the caller promised; the stage is not overwritten before the
            // event
            unsafe {
                result::memcpy_htod_async(to + (number * STAGE_BYTES) as u64, stage, stream.cu_stream())
            }?;
            self.done[number % STAGES].record(stream)?;
        }
        Ok(())
    }

    /// Copies from a device to host memory; waits for all work queued before.
    ///
    /// # Safety
    /// `host.len()` bytes can be read from the address `from` on.
    pub(crate) unsafe fn download(&mut self, stream: &CudaStream, from: u64, host: &mut [u8]) -> Result<()> {
        self.context.bind_to_thread()?;
        let lens: Vec<usize> = host.chunks(STAGE_BYTES).map(<[u8]>::len).collect();
        // the device copies STAGES − 1 parts ahead of the host
        for step in 0..lens.len() + STAGES - 1 {
            if let Some(number) = (step + 1).checked_sub(STAGES) {
                let part = &mut host[number * STAGE_BYTES..][..lens[number]];
                copy(self.stage(number, part.len())?, part);
            }
            if let Some(&len) = lens.get(step) {
                let stage = self.stage(step, len)?;
                // SAFETY: within the range that the caller promised; the stage is not read before the event
                unsafe {
                    result::memcpy_dtoh_async(stage, from + (step * STAGE_BYTES) as u64, stream.cu_stream())
                }?;
                self.done[step % STAGES].record(stream)?;
            }
        }
        Ok(())
    }
}

/// Copies with all threads.
fn copy(from: &[u8], to: &mut [u8]) {
    to.par_chunks_mut(STAGE_SHARE)
        .zip(from.par_chunks(STAGE_SHARE))
        .for_each(|(to, from)| to.copy_from_slice(from));
}

impl Drop for Staging {
    fn drop(&mut self) {
        let bound = self.context.bind_to_thread();
        let waited = self.done.iter().try_for_each(CudaEvent::synchronize);
        // SAFETY: allocated by `malloc_host`, freed once; the device has finished with it
        let freed = unsafe { result::free_host(self.start.cast()) };
        self.context.record_err(bound.and(waited).and(freed));
    }
}
