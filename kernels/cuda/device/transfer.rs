//! Large arrays on their way to a device and back, through pinned memory that all threads copy to and from.
//!
//! The driver copies from ordinary memory with one thread; a bus moves several times what that thread can.

use crate::cuda::device::error::Result;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result, sys};
use rayon::prelude::*;
use std::sync::Arc;

/// From so many bytes on it pays.
pub(crate) const LARGE: usize = 1 << 20;
/// Bytes of a piece: to hand one out to all threads and wait for them takes some 0.1 ms (an H200 and 16 threads: 38 MB take
/// 1.3 ms in pieces of 16 MiB, 1.5 of 8, 1.8 of 4).
const PIECE: usize = 16 << 20;
/// Pieces on their way at once: one is copied by the host while another is copied by the device.
const PIECES: usize = 2;
/// Bytes that a thread copies at a time.
const SHARE: usize = 256 << 10;

/// Pinned memory, in pieces.
pub(crate) struct Staging {
    start: *mut u8,
    /// When the device is done with a piece.
    done: Vec<CudaEvent>,
    context: Arc<CudaContext>,
}

// SAFETY: the memory is owned, and reached through `&mut self` only
unsafe impl Send for Staging {}

impl Staging {
    pub(crate) fn new(context: &Arc<CudaContext>) -> Result<Staging> {
        let done = (0..PIECES).map(|_| context.new_event(None)).collect::<std::result::Result<_, _>>()?;
        // SAFETY: the memory is freed once, on drop
        let start = unsafe { result::malloc_host(PIECES * PIECE, sys::CU_MEMHOSTALLOC_PORTABLE) }?;
        // SAFETY: just allocated with this length
        unsafe { start.cast::<u8>().write_bytes(0, PIECES * PIECE) };
        Ok(Staging { start: start.cast(), done, context: context.clone() })
    }

    /// A piece, when the device is done with it.
    fn piece(&mut self, number: usize, len: usize) -> Result<&mut [u8]> {
        let at = number % PIECES;
        self.done[at].synchronize()?;
        assert!(len <= PIECE, "no more than a piece");
        // SAFETY: within the allocation, whose bytes were written; nobody else uses it
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start.add(at * PIECE), len) })
    }

    /// Queues a copy of host memory to a device.
    ///
    /// # Safety
    /// As many bytes as `host` has can be written from the address `to` on.
    pub(crate) unsafe fn upload(&mut self, stream: &CudaStream, host: &[u8], to: u64) -> Result<()> {
        self.context.bind_to_thread()?;
        for (number, part) in host.chunks(PIECE).enumerate() {
            let piece = self.piece(number, part.len())?;
            copy(part, piece);
            // SAFETY: within what the caller promised; the piece is not written to before the event
            unsafe { result::memcpy_htod_async(to + (number * PIECE) as u64, piece, stream.cu_stream()) }?;
            self.done[number % PIECES].record(stream)?;
        }
        Ok(())
    }

    /// Copies from a device to host memory, when all work queued before is done.
    ///
    /// # Safety
    /// As many bytes as `host` has can be read from the address `from` on.
    pub(crate) unsafe fn download(&mut self, stream: &CudaStream, from: u64, host: &mut [u8]) -> Result<()> {
        self.context.bind_to_thread()?;
        let lens: Vec<usize> = host.chunks(PIECE).map(<[u8]>::len).collect();
        // what the device copies runs ahead of what the host does
        for turn in 0..lens.len() + PIECES - 1 {
            if let Some(number) = (turn + 1).checked_sub(PIECES) {
                let part = &mut host[number * PIECE..][..lens[number]];
                copy(self.piece(number, part.len())?, part);
            }
            if let Some(&len) = lens.get(turn) {
                let piece = self.piece(turn, len)?;
                // SAFETY: within what the caller promised; the piece is not read before the event
                unsafe {
                    result::memcpy_dtoh_async(piece, from + (turn * PIECE) as u64, stream.cu_stream())
                }?;
                self.done[turn % PIECES].record(stream)?;
            }
        }
        Ok(())
    }
}

/// Copies on all threads.
fn copy(from: &[u8], to: &mut [u8]) {
    to.par_chunks_mut(SHARE).zip(from.par_chunks(SHARE)).for_each(|(to, from)| to.copy_from_slice(from));
}

impl Drop for Staging {
    fn drop(&mut self) {
        let bound = self.context.bind_to_thread();
        let waited = self.done.iter().try_for_each(CudaEvent::synchronize);
        // SAFETY: allocated by `malloc_host`, freed once; the device is done with it
        let freed = unsafe { result::free_host(self.start.cast()) };
        self.context.record_err(bound.and(waited).and(freed));
    }
}
