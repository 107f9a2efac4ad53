//! A device, its one stream of work, its memory, and the first thing that went wrong on it.

pub(crate) mod ahead;
mod array;
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

use crate::cuda::device::ahead::{Ahead, File, Key};
pub use crate::cuda::device::array::Array;
pub use crate::cuda::device::element::{Element, Real, Storage};
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::kept::KeptByType;
use crate::cuda::device::module::Source;
pub use crate::cuda::device::pinned::PinnedArray;
pub use crate::cuda::device::pool::KeepsMemory;
use crate::cuda::device::pool::Pool;
use crate::cuda::device::transfer::Staging;
use cudarc::driver::sys::{CUdevice_attribute, CUfunction_attribute};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, result, sys};
use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device with a stream of its own: work queued on it runs in the order it was queued in. Clones share the stream.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<Inner>,
}

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

    /// Begins to compile files that a solve in `T` needs, those that are not there yet.
    pub(crate) fn begin_with<T: Real>(&self, files: impl Iterator<Item = File>) {
        let modules = lock(&self.inner.modules);
        let missing: Vec<File> =
            files.filter(|(source, made_for)| !modules.contains_key(&made_for.key::<T>(source))).collect();
        drop(modules);
        self.inner.ahead.begin_with::<T>(missing.into_iter(), self.inner.arch);
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
}
