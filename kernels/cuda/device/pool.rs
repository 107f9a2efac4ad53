//! Memory pools of device memory.
//!
//! A preconditioner needs 200 to 350 MB, and allocating them from the driver takes as long as partitioning,
//! transposing and laying out its matrices on the device: on an H200, FSAI of heat_sink_p1_340k is built in
//! 4.0 ms instead of 4.8, SPAI in 6.3 instead of 7.9, once the pool has the memory of an earlier
//! preconditioner.
//!
//! Each queue has its own pool. With a shared pool, the driver may assign memory that one queue has freed to
//! another queue, which then waits for the first one: sixteen threads with a queue each deadlocked (CUDA 13.0
//! on an H200).

use crate::cuda::device::Device;
use crate::cuda::device::error::Result;
use crate::cuda::tuning::POOL_SHARE;
use cudarc::driver::{CudaSlice, CudaStream, DriverError, result, sys};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory pool of one queue, not shared with other users of the device.
#[derive(Debug)]
pub(crate) struct Pool {
    handle: sys::CUmemoryPool,
    /// Bytes of freed memory that the pool keeps for reuse.
    share: u64,
    /// Number of [`KeepsMemory`] guards alive.
    keepers: AtomicUsize,
}

/// While this lives, the pool of a device returns no memory to the driver. Otherwise, work that repeatedly
/// allocates gigabytes would wait for the driver each time.
#[derive(Debug)]
pub struct KeepsMemory(Device);

impl KeepsMemory {
    pub(crate) fn of(device: &Device) -> Result<KeepsMemory> {
        if let Some(pool) = &device.inner.pool {
            pool.keep(u64::MAX)?;
            pool.keepers.fetch_add(1, Ordering::SeqCst);
        }
        Ok(KeepsMemory(device.clone()))
    }
}

impl Drop for KeepsMemory {
    fn drop(&mut self) {
        if let Some(pool) = &self.0.inner.pool
            && pool.keepers.fetch_sub(1, Ordering::SeqCst) == 1
        {
            // ignore errors: the pool then keeps more memory than its share
            let _ = pool.keep(pool.share);
        }
    }
}

// SAFETY: the driver's functions may be called with the handle from any thread
unsafe impl Send for Pool {}
// SAFETY: as above
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool on a device with `total` bytes of memory, whose context is bound.
    pub(crate) fn new(ordinal: usize, total: usize) -> Result<Pool> {
        let location = sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: ordinal as i32,
        };
        let properties = sys::CUmemPoolProps {
            allocType: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location,
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        // SAFETY: properties of a pool of device memory, which live until the call returns
        let handle = unsafe { result::mem_pool::create(&properties) }?;
        let pool = Pool { handle, share: (total / POOL_SHARE) as u64, keepers: AtomicUsize::new(0) };
        pool.keep(pool.share)?;
        Ok(pool)
    }

    /// Sets the size in bytes up to which the pool keeps freed memory.
    fn keep(&self, mut bytes: u64) -> std::result::Result<(), DriverError> {
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool lives; the attribute is a number of 64 bits
        unsafe { result::mem_pool::set_attribute(self.handle, threshold, (&raw mut bytes).cast()) }
    }

    /// Allocates memory for `len` entries on a stream of the device, whose context is bound.
    pub(crate) fn take<T>(
        &self,
        stream: &Arc<CudaStream>,
        len: usize,
    ) -> std::result::Result<CudaSlice<T>, DriverError> {
        let bytes = len * size_of::<T>();
        // SAFETY: pool and stream live; the memory is written before it is read
        let address = unsafe { result::mem_pool::alloc_async(self.handle, bytes, stream.cu_stream()) }?;
        // SAFETY: just allocated with this length, and owned by nothing else
        Ok(unsafe { stream.upgrade_device_ptr(address, len) })
    }

    /// Returns unused memory to the driver, so that the pool holds at most `bytes` or what is in use.
    pub(crate) fn trim(&self, bytes: usize) -> Result<()> {
        // SAFETY: the pool lives
        Ok(unsafe { result::mem_pool::trim_to(self.handle, bytes) }?)
    }

    /// Bytes that the pool holds and that are not in use.
    pub(crate) fn unused(&self) -> Result<usize> {
        let read = |attribute| {
            let mut bytes = 0u64;
            // SAFETY: the pool lives; the attribute is a number of 64 bits
            unsafe { result::mem_pool::get_attribute(self.handle, attribute, (&raw mut bytes).cast()) }?;
            Ok::<_, DriverError>(bytes)
        };
        let held = read(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let used = read(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        Ok(held.saturating_sub(used) as usize)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // the driver releases memory that is still in use when it is freed
        // SAFETY: destroyed once
        let _ = unsafe { result::mem_pool::destroy(self.handle) };
    }
}
