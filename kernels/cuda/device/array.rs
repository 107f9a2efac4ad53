//! Arrays in the memory of a device, and the accounting of their size.

use crate::cuda::device::pinned::Pinned;
use crate::cuda::device::queue::Queue;
use crate::cuda::device::{Device, Element, Error, Result};
use crate::cuda::tuning::STAGED_FROM;
use cudarc::driver::{CudaSlice, CudaStream, DriverError, result, sys};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Size in bytes above which an allocation first queries the size of the device's memory. Guess, chosen
/// so that small allocations take no query.
const HUGE: usize = 1 << 30;

/// Share of an array in the total size of all arrays of its device; subtracted when the array is dropped.
pub(crate) struct Held {
    device: Device,
    bytes: usize,
}

impl Held {
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.device.inner.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Device memory, freed on drop unless something else owns it.
pub(crate) struct Memory<T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    owned: bool,
}

impl<T> Memory<T> {
    fn owned(slice: CudaSlice<T>) -> Memory<T> {
        Memory { slice: ManuallyDrop::new(slice), owned: true }
    }
}

impl<T> Deref for Memory<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T> DerefMut for Memory<T> {
    fn deref_mut(&mut self) -> &mut CudaSlice<T> {
        &mut self.slice
    }
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, since the value is being dropped
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        if !self.owned {
            slice.leak();
        }
    }
}

/// An array in device memory. After `spill` it is in pinned host memory, which the device reads over the bus.
pub struct Array<T> {
    pub(crate) slice: Memory<T>,
    /// Pinned host memory with the entries, if they were moved there.
    spilled: Option<Box<Pinned>>,
    len: usize,
    held: Held,
}

impl Device {
    /// Allocates an uninitialized array; callers write it before they read it.
    pub(crate) fn uninitialized<T: Element>(&self, len: usize) -> Result<Array<T>> {
        let (Queue { context, stream, pool, .. }, stored) = (&**self.inner, len.max(1));
        context.bind_to_thread()?;
        let requested = stored.saturating_mul(size_of::<T>());
        let held = self.hold(requested)?;
        // do not try to allocate more than the device has: the driver would first take all free memory
        if requested > HUGE {
            let (free, total) = self.memory()?;
            if requested > total {
                return Err(Error::OutOfMemory { requested, free, total });
            }
        }
        let take = || match pool {
            Some(pool) => pool.take(stream, stored),
            // SAFETY: any bits are a valid value
            None => unsafe { stream.alloc(stored) },
        };
        let full = |error: &DriverError| error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let slice = match take() {
            Err(error) if full(&error) && self.inner.gpu.destroy_idle() => take(),
            taken => taken,
        };
        let slice = slice.map_err(|error| self.full(requested, error))?;
        Ok(Array { slice: Memory::owned(slice), spilled: None, len, held })
    }

    /// The error of a failed allocation.
    pub(crate) fn full(&self, requested: usize, error: DriverError) -> Error {
        if error.0 != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return error.into();
        }
        let (free, total) = self.memory().unwrap_or((0, 0));
        Error::OutOfMemory { requested, free, total }
    }

    /// An array of zeros.
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Array<T>> {
        let mut array = self.uninitialized(len)?;
        array.clear()?;
        Ok(array)
    }

    /// A copy of host data.
    pub fn upload<T: Element>(&self, host: &[T]) -> Result<Array<T>> {
        let mut array = self.uninitialized(host.len())?;
        array.write(host)?;
        Ok(array)
    }

    /// Wraps device memory that something else owns as an array.
    ///
    /// # Safety
    /// `len` entries from `address` on lie within one allocation, which outlives the array and all work queued
    /// with it.
    pub(crate) unsafe fn borrowed<T>(&self, address: u64, len: usize) -> Array<T> {
        // SAFETY: promised by the caller
        let slice = unsafe { self.inner.stream.upgrade_device_ptr(address, len) };
        let slice = Memory { slice: ManuallyDrop::new(slice), owned: false };
        Array { slice, spilled: None, len, held: Held { device: self.clone(), bytes: 0 } }
    }

    /// Adds an array, or memory of another library, to the device's total; fails if the total would exceed the
    /// limit.
    pub(crate) fn hold(&self, bytes: usize) -> Result<Held> {
        let before = self.inner.held.fetch_add(bytes, Ordering::Relaxed);
        let (held, limit) = (Held { device: self.clone(), bytes }, self.limit());
        if before.saturating_add(bytes) > limit {
            return Err(Error::OutOfMemory {
                requested: bytes,
                free: limit.saturating_sub(before),
                total: limit,
            });
        }
        Ok(held)
    }
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} on {:?}", self.len, std::any::type_name::<T>(), self.held.device)
    }
}

impl<T: Element> Array<T> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the array has no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Returns true if the array was moved to host memory.
    pub(crate) fn is_spilled(&self) -> bool {
        self.spilled.is_some()
    }

    /// Returns the memory without its handle to the device, for owners that belong to the device (a handle
    /// would be a reference cycle).
    pub(crate) fn into_slice(self) -> CudaSlice<T> {
        let mut memory = ManuallyDrop::new(self.slice);
        // SAFETY: taken once, because the owner is not dropped
        unsafe { ManuallyDrop::take(&mut memory.slice) }
    }

    /// The device of the array.
    pub fn device(&self) -> &Device {
        &self.held.device
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.held.device.inner.stream
    }

    /// Device address of an entry.
    pub(crate) fn address(&self, entry: usize) -> u64 {
        assert!(entry <= self.len, "entry {entry} of {}", self.len);
        use cudarc::driver::DevicePtr;
        let first = match &self.spilled {
            Some(pinned) => pinned.address(),
            None => self.slice.device_ptr(self.stream()).0,
        };
        first + (entry * size_of::<T>()) as u64
    }

    /// Moves the entries to pinned host memory and frees the device memory; waits for all work queued before.
    /// Kernels then read them over the bus.
    pub(crate) fn spill(&mut self) -> Result<()> {
        if self.spilled.is_some() || self.is_empty() {
            return Ok(());
        }
        let device = self.device().clone();
        let mut pinned = Pinned::new(&device, self.bytes())?;
        let from = self.address(0);
        // SAFETY: the buffer has as many bytes as the array, and is read only after the stream is
        // synchronized
        unsafe { result::memcpy_dtoh_async(pinned.bytes_mut(), from, device.inner.stream.cu_stream()) }?;
        device.synchronize()?;
        let nothing = device.uninitialized::<T>(0)?;
        (self.slice, self.held) = (nothing.slice, nothing.held);
        self.spilled = Some(Box::new(pinned));
        Ok(())
    }

    /// Calls `work` with an array that consists of a range of the entries, without a copy.
    pub fn with_part<R>(&mut self, range: Range<usize>, work: impl FnOnce(&mut Array<T>) -> R) -> R {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        let (address, len) = (self.address(range.start), range.len());
        // SAFETY: entries of this array, which is borrowed while the part exists, and owns the memory
        work(&mut unsafe { self.device().borrowed(address, len) })
    }

    /// Copies host data of the same length into the array.
    pub fn write(&mut self, host: &[T]) -> Result<()> {
        assert_eq!(host.len(), self.len, "host and device arrays of one length");
        if let Some(pinned) = &mut self.spilled {
            self.held.device.synchronize()?;
            pinned.bytes_mut().copy_from_slice(crate::buffer::bytes_of(host));
            return Ok(());
        }
        let inner = &self.held.device.inner;
        if self.bytes() >= STAGED_FROM {
            let to = self.address(0);
            return inner.staged(|staging| {
                // SAFETY: the array has this many bytes
                unsafe { staging.upload(&inner.stream, crate::buffer::bytes_of(host), to) }
            });
        }
        if self.len > 0 {
            inner.stream.memcpy_htod(host, &mut self.slice.slice_mut(..self.len))?;
        }
        Ok(())
    }

    /// Queues setting all entries to zero.
    pub fn clear(&mut self) -> Result<()> {
        if let Some(pinned) = &mut self.spilled {
            self.held.device.synchronize()?;
            pinned.bytes_mut().fill(0);
            return Ok(());
        }
        Ok(self.held.device.inner.stream.memset_zeros(&mut *self.slice)?)
    }

    /// Copies the last entries to the host; waits for all work queued before.
    pub(crate) fn read_last<const COUNT: usize>(&self) -> Result<[T; COUNT]>
    where
        T: Default,
    {
        let mut last = [T::default(); COUNT];
        let from = self.slice.slice(self.len - COUNT..self.len);
        self.stream().memcpy_dtoh(&from, &mut last)?;
        self.held.device.synchronize()?;
        Ok(last)
    }

    /// Reduces the length; the memory after the new end stays allocated.
    pub(crate) fn shorten(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Copies all entries to host memory; waits for all work queued before.
    pub fn read(&self, host: &mut [T]) -> Result<()> {
        assert_eq!(host.len(), self.len, "host and device arrays of one length");
        let inner = &self.held.device.inner;
        if let Some(pinned) = &self.spilled {
            self.held.device.synchronize()?;
            crate::buffer::bytes_of_mut(host).copy_from_slice(pinned.bytes());
            return Ok(());
        }
        if self.bytes() >= STAGED_FROM {
            let from = self.address(0);
            inner.staged(|staging| {
                // SAFETY: the array has this many bytes
                unsafe { staging.download(&inner.stream, from, crate::buffer::bytes_of_mut(host)) }
            })?;
        } else if self.len > 0 {
            inner.stream.memcpy_dtoh(&self.slice.slice(..self.len), host)?;
        }
        self.held.device.synchronize()
    }
}
