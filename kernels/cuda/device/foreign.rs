//! Arrays of other libraries in the memory of a device.

use super::{Array, Device};
use crate::cuda::device::element::Element;
use crate::cuda::device::error::{Error, Result};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUpointer_attribute};

impl<T: Element> Array<T> {
    /// Queues that all entries are copied from an address in the memory of this device, where another library keeps as many.
    /// What is queued elsewhere to write them must be done, or queued before.
    pub fn copy_from_address(&mut self, address: u64) -> Result<()> {
        self.device().check_address(address, self.bytes())?;
        self.copy(address, self.address(0))
    }

    /// Queues that all entries are copied to an address in the memory of this device, where another library has room for as
    /// many.
    pub fn copy_to_address(&self, address: u64) -> Result<()> {
        self.device().check_address(address, self.bytes())?;
        self.copy(self.address(0), address)
    }

    fn copy(&self, from: u64, to: u64) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let inner = &self.device().inner;
        inner.context.bind_to_thread()?;
        // SAFETY: one is the memory of the array, the other was found to be in an allocation of this device that has room
        unsafe { result::memcpy_dtod_async(to, from, self.bytes(), inner.stream.cu_stream())? };
        Ok(())
    }
}

impl Device {
    /// Refuses an address unless so many bytes from there on lie in one allocation of this device.
    fn check_address(&self, address: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.inner.context.bind_to_thread()?;
        let (mut ordinal, mut start, mut size) = (-1i32, 0u64, 0usize);
        let found = [
            (CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut ordinal).cast()),
            (CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (&raw mut start).cast()),
            (CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, (&raw mut size).cast()),
        ]
        .into_iter()
        .all(|(attribute, into)| {
            // SAFETY: the driver writes the attribute's type, which is that of the variable, and looks at no memory at the address
            unsafe { sys::cuPointerGetAttribute(into, attribute, address) }.result().is_ok()
        });
        let inside = address.checked_sub(start).is_some_and(|before| {
            usize::try_from(before).is_ok_and(|before| before.saturating_add(bytes) <= size)
        });
        if found && inside && usize::try_from(ordinal) == Ok(self.ordinal()) {
            return Ok(());
        }
        Err(Error::Foreign { address, bytes, ordinal: self.ordinal() })
    }
}
