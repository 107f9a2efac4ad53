//! A device, its one stream of work, its memory, and the first thing that went wrong on it.

mod ahead;
mod element;
pub(crate) mod error;
mod foreign;
mod kept;
pub(crate) mod launch;
pub(crate) mod module;
pub(crate) mod pinned;
pub(crate) mod pool;
pub(crate) mod prelude;
pub(crate) mod transfer;

use crate::cuda::device::ahead::{Ahead, Key};
pub use crate::cuda::device::element::{Element, Real, Storage};
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::kept::KeptByType;
use crate::cuda::device::module::Source;
use crate::cuda::device::pinned::Pinned;
pub use crate::cuda::device::pool::KeepsMemory;
use crate::cuda::device::pool::Pool;
use crate::cuda::device::transfer::Staging;
use crate::cuda::tuning::STAGED_FROM;
use cudarc::driver::sys::{CUdevice_attribute, CUfunction_attribute};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, result, sys};
use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device with a stream of its own: work queued on it runs in the order it was queued in. Clones share the stream.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<Inner>,
}

/// Bytes of an array that is worth a look at how much memory there is.
const HUGE: usize = 1 << 30;

pub(crate) struct Inner {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    name: String,
    arch: u32,
    multiprocessors: usize,
    error: Mutex<Option<Error>>,
    /// None where memory is not taken in the order of a stream.
    pool: Option<Pool>,
    /// Bytes of all arrays, and how many there may be.
    held: AtomicUsize,
    limit: AtomicUsize,
    /// Made for the first large array that comes or goes.
    staging: Mutex<Option<Staging>>,
    modules: Mutex<HashMap<Key, Arc<CudaModule>>>,
    ahead: Ahead,
    kept: KeptByType,
}

impl Inner {
    /// Does a transfer through pinned memory.
    fn staged(&self, transfer: impl FnOnce(&mut Staging) -> Result<()>) -> Result<()> {
        let mut staging = lock(&self.staging);
        let staging = match &mut *staging {
            Some(staging) => staging,
            none => none.insert(Staging::new(&self.context)?),
        };
        transfer(staging)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (CUDA device {}, sm_{})", self.inner.name, self.ordinal(), self.inner.arch)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many devices there are; none where there is no driver.
pub fn count() -> usize {
    // SAFETY: asks for the presence of a library only; every other call panics without it
    if !unsafe { sys::is_culib_present() } {
        return 0;
    }
    result::init().and_then(|()| CudaContext::device_count()).map_or(0, |count| count.max(0) as usize)
}

/// A device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its number.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub memory: usize,
}

/// The devices of this machine; none where there is no driver.
pub fn devices() -> Vec<Info> {
    let info = |ordinal: usize| {
        let device = result::device::get(ordinal as i32).ok()?;
        let name = result::device::get_name(device).ok()?;
        // SAFETY: the device was just found
        let memory = unsafe { result::device::total_mem(device) }.ok()?;
        Some(Info { ordinal, name, memory })
    };
    (0..count()).filter_map(info).collect()
}

impl Device {
    /// A stream of work on a device.
    pub fn new(ordinal: usize) -> Result<Device> {
        // SAFETY: asks for the presence of a library only
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDriver);
        }
        let count = count();
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        let driver = result::device::get(ordinal as i32)?;
        let number = |attribute| -> Result<u32> {
            // SAFETY: the device was just found
            Ok(unsafe { result::device::get_attribute(driver, attribute) }?.max(0) as u32)
        };
        let arch = 10 * number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        // a context takes as long as the compiler, and most solves are in double precision
        let ahead = Ahead::default();
        ahead.begin::<f64>(arch);
        let context = CudaContext::new(ordinal)?;
        // SAFETY: all memory of this device handle is used on its one stream, where order needs no events
        unsafe { context.disable_event_tracking() };
        let multiprocessors =
            context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let pool = match context.has_async_alloc() {
            true => Some(Pool::new(ordinal, context.total_mem()?)?),
            false => None,
        };
        let inner = Inner {
            stream: context.new_stream()?,
            name: context.name()?,
            arch,
            multiprocessors: multiprocessors.max(1) as usize,
            error: Mutex::default(),
            pool,
            held: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            staging: Mutex::default(),
            modules: Mutex::default(),
            ahead,
            kept: KeptByType::default(),
            context,
        };
        Ok(Device { inner: Arc::new(inner) })
    }

    /// Its number.
    pub fn ordinal(&self) -> usize {
        self.inner.context.ordinal()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its architecture, 90 for `sm_90`.
    pub fn arch(&self) -> u32 {
        self.inner.arch
    }

    /// How many multiprocessors it has.
    pub fn multiprocessors(&self) -> usize {
        self.inner.multiprocessors
    }

    /// Bytes of shared memory that a block of threads can have.
    pub(crate) fn shared_memory(&self) -> Result<usize> {
        let most = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        Ok(self.inner.context.attribute(most)?.max(0) as usize)
    }

    /// Bytes free and bytes in all, as far as its limit allows. What was given back is free.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let (free, total) = self.inner.context.mem_get_info()?;
        let free = free + self.inner.pool.as_ref().map_or(Ok(0), Pool::spare)?;
        let limit = self.limit();
        let left = limit.saturating_sub(self.inner.held.load(Ordering::Relaxed));
        Ok((free.min(left), total.min(limit)))
    }

    /// From now on arrays take no more bytes than this; one that would is refused as if memory was full.
    pub fn limit_memory(&self, bytes: usize) {
        self.inner.limit.store(bytes, Ordering::Relaxed);
    }

    /// The bytes that arrays may take.
    pub fn limit(&self) -> usize {
        self.inner.limit.load(Ordering::Relaxed)
    }

    /// Counts an array, if there may be one more so large.
    fn hold(&self, bytes: usize) -> Result<Held> {
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

    /// The stream, a `CUstream`, alive as long as this device.
    pub fn stream(&self) -> *mut c_void {
        self.inner.stream.cu_stream().cast()
    }

    /// Waits until all work queued so far is done, and returns the first error since the last call.
    pub fn synchronize(&self) -> Result<()> {
        let waited = self.inner.stream.synchronize().map_err(Error::from);
        match lock(&self.inner.error).take() {
            Some(first) => Err(first),
            None => waited,
        }
    }

    /// Keeps the first error of calls that cannot return one; [`Device::synchronize`] returns it.
    pub fn park(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            lock(&self.inner.error).get_or_insert(error);
        }
    }

    /// The error kept, if any.
    pub fn parked(&self) -> Option<Error> {
        lock(&self.inner.error).take()
    }

    /// Begins to compile what solves in `T` need, on other threads.
    pub fn begin<T: Real>(&self) {
        self.inner.ahead.begin::<T>(self.inner.arch);
    }

    /// A kernel of a file, compiled for this device.
    pub(crate) fn function<T: Real>(&self, source: &Source, name: &str) -> Result<CudaFunction> {
        self.function_storing::<T, T>(source, name)
    }

    /// A kernel of a file, compiled for this device and for matrices that store `V`.
    pub(crate) fn function_storing<T: Real, V: Storage<T>>(
        &self,
        source: &Source,
        name: &str,
    ) -> Result<CudaFunction> {
        let mut modules = lock(&self.inner.modules);
        let key = [source.file, T::C_NAME, V::STORED_AS];
        let module = match modules.get(&key) {
            Some(module) => module.clone(),
            None => {
                let code = self.inner.ahead.take::<T, V>(source, self.inner.arch)?;
                let module = self.inner.context.load_module(cudarc::nvrtc::Ptx::from_binary(code))?;
                modules.insert(key, module.clone());
                module
            }
        };
        Ok(module.load_function(name)?)
    }

    /// Lets launches of a kernel ask for all the shared memory that a block can have. The limit belongs to the kernel, which all
    /// matrices of a format share: were it set for each matrix, that of the last one would hold for all.
    pub(crate) fn lift_shared_limit(&self, function: &CudaFunction) -> Result<()> {
        let own = function.get_attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let most = self.shared_memory()? as i32 - own;
        // to set it takes longer than to ask
        if function.get_attribute(limit)? < most {
            function.set_attribute(limit, most)?;
        }
        Ok(())
    }

    /// All memory that is given back stays at hand, until what is returned is dropped.
    pub fn keep_memory(&self) -> Result<KeepsMemory> {
        KeepsMemory::of(self)
    }

    /// Lets another device read and write the arrays of this one.
    pub(crate) fn open_pool_to(&self, other: &Device) -> Result<()> {
        self.inner.pool.as_ref().map_or(Ok(()), |pool| pool.open_to(other.ordinal()))
    }

    /// What the device keeps of a type, made when first asked for.
    pub(crate) fn kept<X: Any + Send + Sync + Default>(&self) -> &X {
        self.inner.kept.get()
    }

    /// An array that is not initialised: it is written before it is read.
    pub(crate) fn uninitialised<T: Element>(&self, len: usize) -> Result<Array<T>> {
        let (Inner { context, stream, pool, .. }, stored) = (&*self.inner, len.max(1));
        context.bind_to_thread()?;
        let requested = stored.saturating_mul(size_of::<T>());
        let held = self.hold(requested)?;
        // more than there can be is not asked for: the driver takes all that is free before it gives up
        if requested > HUGE {
            let (free, total) = self.memory()?;
            if requested > total {
                return Err(Error::OutOfMemory { requested, free, total });
            }
        }
        let slice = match pool {
            Some(pool) => pool.take(stream, stored),
            // SAFETY: any bits are a value
            None => unsafe { stream.alloc(stored) },
        };
        let slice = slice.map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let (free, total) = self.memory().unwrap_or((0, 0));
                Error::OutOfMemory { requested, free, total }
            }
            _ => error.into(),
        })?;
        Ok(Array { slice, spilled: None, len, held })
    }

    /// An array of zeros.
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Array<T>> {
        let mut array = self.uninitialised(len)?;
        array.clear()?;
        Ok(array)
    }

    /// A copy of host data.
    pub fn upload<T: Element>(&self, host: &[T]) -> Result<Array<T>> {
        let mut array = self.uninitialised(host.len())?;
        array.write(host)?;
        Ok(array)
    }
}

/// What an array counts for in the memory of its device.
struct Held {
    device: Device,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.device.inner.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An array in device memory, or one that was moved to host memory, where the device reads it over the bus.
pub struct Array<T> {
    pub(crate) slice: CudaSlice<T>,
    /// Where the entries are instead.
    spilled: Option<Box<Pinned>>,
    len: usize,
    held: Held,
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} on {:?}", self.len, std::any::type_name::<T>(), self.held.device)
    }
}

impl<T: Element> Array<T> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The memory itself, for owners that must not own the device.
    pub(crate) fn into_slice(self) -> CudaSlice<T> {
        self.slice
    }

    /// Where it lives.
    pub fn device(&self) -> &Device {
        &self.held.device
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.held.device.inner.stream
    }

    /// The address of an entry, for kernels.
    pub(crate) fn address(&self, entry: usize) -> u64 {
        assert!(entry <= self.len, "entry {entry} of {}", self.len);
        use cudarc::driver::DevicePtr;
        let first = match &self.spilled {
            Some(pinned) => pinned.address(),
            None => self.slice.device_ptr(self.stream()).0,
        };
        first + (entry * size_of::<T>()) as u64
    }

    /// Moves the entries to host memory, when all work queued before is done. Kernels find them there, at the speed of the
    /// bus; device memory is given back.
    pub(crate) fn spill(&mut self) -> Result<()> {
        if self.spilled.is_some() || self.is_empty() {
            return Ok(());
        }
        let device = self.device().clone();
        let mut pinned = Pinned::new(&device.inner.context, self.bytes())?;
        let from = self.address(0);
        // SAFETY: as many bytes as the array has; they are there when the stream has come here
        unsafe { result::memcpy_dtoh_async(pinned.bytes_mut(), from, device.inner.stream.cu_stream()) }?;
        device.synchronize()?;
        let nothing = device.uninitialised::<T>(0)?;
        (self.slice, self.held) = (nothing.slice, nothing.held);
        self.spilled = Some(Box::new(pinned));
        Ok(())
    }

    /// Lends a range of entries as an array of its own.
    pub fn with_part<R>(&mut self, range: Range<usize>, work: impl FnOnce(&mut Array<T>) -> R) -> R {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        let (address, len) = (self.address(range.start), range.len());
        // SAFETY: entries of this array, which is borrowed for as long as the part is there, and keeps the memory
        let slice = unsafe { self.stream().upgrade_device_ptr(address, len) };
        let held = Held { device: self.device().clone(), bytes: 0 };
        let mut part = ManuallyDrop::new(Array { slice, spilled: None, len, held });
        let result = work(&mut part);
        ManuallyDrop::into_inner(part).into_slice().leak();
        result
    }

    /// Copies host data into the array, as many entries as the array has.
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
                // SAFETY: the array has as many bytes
                unsafe { staging.upload(&inner.stream, crate::buffer::bytes_of(host), to) }
            });
        }
        if self.len > 0 {
            inner.stream.memcpy_htod(host, &mut self.slice.slice_mut(..self.len))?;
        }
        Ok(())
    }

    /// Queues that all entries become zero.
    pub fn clear(&mut self) -> Result<()> {
        if let Some(pinned) = &mut self.spilled {
            self.held.device.synchronize()?;
            pinned.bytes_mut().fill(0);
            return Ok(());
        }
        Ok(self.held.device.inner.stream.memset_zeros(&mut self.slice)?)
    }

    /// The last entries, when all work queued before is done.
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

    /// Leaves the entries from `len` on unused.
    pub(crate) fn shorten(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Copies all entries to host memory, when all work queued before is done.
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
                // SAFETY: the array has as many bytes
                unsafe { staging.download(&inner.stream, from, crate::buffer::bytes_of_mut(host)) }
            })?;
        } else if self.len > 0 {
            inner.stream.memcpy_dtoh(&self.slice.slice(..self.len), host)?;
        }
        self.held.device.synchronize()
    }
}
