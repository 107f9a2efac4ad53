//! Arrays of other libraries in device memory.

use super::{Array, Device};
use crate::cuda::device::element::Element;
use crate::cuda::device::error::{Error, Result};
use cudarc::driver::sys::{self, CUpointer_attribute};

/// Required alignment of an array in bytes, because kernels load several entries together. Allocations of the
/// driver are aligned to it.
const ALIGNED: u64 = 256;

impl Device {
    /// Wraps memory of another library on this device as an array of `len` entries, without a copy. The
    /// address must be a multiple of 256. Work that writes the memory must be complete or already queued on
    /// this device's stream; the library must keep the memory while the array is used.
    pub fn array_at<T: Element>(&self, address: u64, len: usize) -> Result<Array<T>> {
        self.check_address(address, len.saturating_mul(size_of::<T>()))?;
        // SAFETY: the range was found within an allocation of this device, and the library keeps it
        Ok(unsafe { self.borrowed(address, len) })
    }

    /// Fails unless the address is aligned, and the range lies within one allocation of this device.
    fn check_address(&self, address: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.inner.context.bind_to_thread()?;
        let (mut ordinal, mut start, mut size) = (-1i32, 0u64, 0usize);
        let mut attributes = [
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        ];
        let mut into = [(&raw mut ordinal).cast(), (&raw mut start).cast(), (&raw mut size).cast()];
        // SAFETY: the driver writes the types of the attributes, which are those of the variables, and does
        // not access the memory at the address
        let found = unsafe {
            let count = attributes.len() as u32;
            sys::cuPointerGetAttributes(count, attributes.as_mut_ptr(), into.as_mut_ptr(), address)
        };
        let inside = address.checked_sub(start).is_some_and(|before| {
            usize::try_from(before).is_ok_and(|before| before.saturating_add(bytes) <= size)
        });
        if found.result().is_ok()
            && inside
            && address.is_multiple_of(ALIGNED)
            && usize::try_from(ordinal) == Ok(self.ordinal())
        {
            return Ok(());
        }
        Err(Error::Foreign { address, bytes, ordinal: self.ordinal() })
    }
}
