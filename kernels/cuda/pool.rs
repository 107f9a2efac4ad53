//! Memory of a device that was given back, and is there for what comes next.
//!
//! To ask the driver for as much memory as a preconditioner takes, 200 to 350 MB, takes as long as to cut, to transpose and to lay
//! out its matrices there: on an H200, FSAI of heat_sink_p1_340k is built in 4.0 ms instead of 4.8, SPAI in 6.3 instead of 7.9,
//! where there is what the one before gave back.

use super::error::Result;
use cudarc::driver::{CudaContext, DriverError, result, sys};
use std::sync::Arc;

/// What was given back is kept while all that the pool holds, in use or not, is no more than this part of the device's memory.
const KEPT: usize = 32;

/// The pool that a device's memory is taken from, by all of this process.
pub(super) struct Pool {
    handle: sys::CUmemoryPool,
}

// SAFETY: the driver's functions may be called with it from any thread
unsafe impl Send for Pool {}
// SAFETY: as above
unsafe impl Sync for Pool {}

impl Pool {
    /// The pool of a device, none where it has none; made to keep memory, unless somebody said already what it keeps.
    pub(super) fn of(context: &Arc<CudaContext>) -> Result<Option<Pool>> {
        if !context.has_async_alloc() {
            return Ok(None);
        }
        let device = result::device::get(context.ordinal() as i32)?;
        // SAFETY: the device was just found
        let pool = Pool { handle: unsafe { result::device::get_mem_pool(device) }? };
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        if pool.read(threshold)? == 0 {
            let mut kept = (context.total_mem()? / KEPT) as u64;
            // SAFETY: the pool lives as long as the device; the attribute is a number of 64 bits
            unsafe { result::mem_pool::set_attribute(pool.handle, threshold, (&raw mut kept).cast()) }?;
        }
        Ok(Some(pool))
    }

    /// Bytes that it holds and nobody uses.
    pub(super) fn spare(&self) -> Result<usize> {
        let held = self.read(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let used = self.read(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        Ok(held.saturating_sub(used) as usize)
    }

    fn read(&self, attribute: sys::CUmemPool_attribute) -> std::result::Result<u64, DriverError> {
        let mut number = 0u64;
        // SAFETY: the pool lives as long as the device; the attributes asked for are numbers of 64 bits
        unsafe { result::mem_pool::get_attribute(self.handle, attribute, (&raw mut number).cast()) }?;
        Ok(number)
    }
}
