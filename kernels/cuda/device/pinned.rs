//! Host memory that stays where it is, so that a device reads and writes it over the bus.

use crate::cuda::device::Device;
use crate::cuda::device::error::Result;
use cudarc::driver::{CudaStream, result, sys};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of the copies that measure the bus: 0.3 ms at 55 GB/s.
const MEASURED: usize = 16 << 20;

/// Pinned memory, at one address for host and device.
#[derive(Debug)]
pub(crate) struct Pinned {
    start: *mut u8,
    len: usize,
    stream: Arc<CudaStream>,
}

// SAFETY: the memory is owned; the host reaches it through references to this only
unsafe impl Send for Pinned {}
// SAFETY: as above
unsafe impl Sync for Pinned {}

impl Pinned {
    /// So many bytes, at least one, all zero, for kernels of one stream.
    pub(crate) fn new(stream: &Arc<CudaStream>, len: usize) -> Result<Pinned> {
        stream.context().bind_to_thread()?;
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the memory is freed once, on drop
        let start = unsafe { result::malloc_host(len.max(1), flags) }?.cast::<u8>();
        // SAFETY: just allocated with this length
        unsafe { start.write_bytes(0, len) };
        Ok(Pinned { start, len, stream: stream.clone() })
    }

    /// The address, for kernels.
    pub(crate) fn address(&self) -> u64 {
        self.start as u64
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this length, and written
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed for writing
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // what is queued may still read it; to wait for the whole GPU is an error while another thread records its steps
        let waited = self.stream.synchronize();
        // SAFETY: allocated by `malloc_host`, freed once; the device is done with it
        let freed = unsafe { result::free_host(self.start.cast()) };
        self.stream.context().record_err(waited.and(freed));
    }
}

impl Device {
    /// Bytes a second from pinned memory to the device: the fastest of five copies.
    pub fn bus(&self) -> Result<f64> {
        let pinned = Pinned::new(&self.inner.stream, MEASURED)?;
        let to = self.uninitialised::<u8>(MEASURED)?;
        let mut least = f64::INFINITY;
        for _ in 0..5 {
            self.synchronize()?;
            let started = Instant::now();
            // SAFETY: the array has as many bytes, and the pinned memory outlives the copy, which is waited for
            let copied = unsafe {
                result::memcpy_htod_async(to.address(0), pinned.bytes(), self.inner.stream.cu_stream())
            };
            self.synchronize()?;
            copied?;
            least = least.min(started.elapsed().as_secs_f64());
        }
        Ok(MEASURED as f64 / least)
    }
}
