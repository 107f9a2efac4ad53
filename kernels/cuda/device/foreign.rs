//! Arrays of other libraries in the memory of a device.

use super::{Array, Device};
use crate::cuda::device::element::Element;
use crate::cuda::device::error::{Error, Result};
use cudarc::driver::sys::{self, CUpointer_attribute};

/// What the first byte of an array is a multiple of: kernels load several entries at once. The driver gives no memory that
/// begins elsewhere.
const ALIGNED: u64 = 256;

impl Device {
    /// What another library keeps at an address in the memory of this device, as an array of so many entries. The address is a
    /// multiple of 256. What is queued elsewhere to write there must be done, or queued before; the library keeps the memory for
    /// as long as the array is used.
    pub fn array_at<T: Element>(&self, address: u64, len: usize) -> Result<Array<T>> {
        self.check_address(address, len.saturating_mul(size_of::<T>()))?;
        // SAFETY: the memory was found to be in an allocation of this device that has room, and the library keeps it
        Ok(unsafe { self.lent(address, len) })
    }

    /// Refuses an address unless it is aligned, and so many bytes from there on lie in one allocation of this device.
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
        // SAFETY: the driver writes the types of the attributes, which are those of the variables, and looks at no memory at the
        // address
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
