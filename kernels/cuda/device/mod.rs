//! A device: one CUDA stream, the memory of its arrays, and the first error of its work.

pub(crate) mod ahead;
mod array;
mod compiler;
mod element;
pub(crate) mod error;
mod foreign;
mod gpu;
pub(crate) mod kept;
pub(crate) mod launch;
pub(crate) mod module;
pub(crate) mod pinned;
pub(crate) mod pool;
pub(crate) mod prelude;
pub(crate) mod queue;
pub(crate) mod transfer;

use crate::cuda::device::ahead::File;
pub use crate::cuda::device::array::Array;
pub(crate) use crate::cuda::device::array::Held;
pub use crate::cuda::device::compiler::{compiler_version, look_for_compiler_in};
pub(crate) use crate::cuda::device::compiler::{folders as library_folders, newest as newest_toolkit};
pub use crate::cuda::device::element::{Element, Real, Storage};
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::gpu::Gpu;
pub use crate::cuda::device::gpu::{Created, Info, count, created, devices, driver_is_usable, is_open};
use crate::cuda::device::kept::KeptByType;
use crate::cuda::device::module::Source;
pub use crate::cuda::device::pinned::PinnedArray;
pub use crate::cuda::device::pool::KeepsMemory;
use crate::cuda::device::queue::Queue;
use cudarc::driver::CudaFunction;
use cudarc::driver::sys::{CUdevice_attribute, CUfunction_attribute};
use std::any::Any;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device with its own stream: queued work runs in order. Clones share the stream.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    gpu: &'static Gpu,
    /// The stream and its memory; used by no other device while this one lives.
    queue: Arc<Queue>,
    error: Mutex<Option<Error>>,
    /// Total bytes of all arrays, and their limit.
    held: AtomicUsize,
    limit: AtomicUsize,
    kept: KeptByType,
}

impl Deref for Inner {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.queue
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // drop the cached objects, which use the queue, before the queue is returned
        self.kept = KeptByType::default();
        let sound = lock(&self.error).is_none();
        self.gpu.return_queue(&self.queue, sound);
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (CUDA device {}, sm_{})", self.name(), self.ordinal(), self.arch())
    }
}

/// Locks a mutex, even if a thread has panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Creates a stream of work on a device.
    ///
    /// The first call for a device in a process creates its context, which takes 0.1 to 0.2 s. Later ones share the context and
    /// the kernels loaded so far, and take over a stream and memory of a device that was dropped, if there is one.
    pub fn new(ordinal: usize) -> Result<Device> {
        let gpu = Gpu::get(ordinal)?;
        let inner = Inner {
            queue: gpu.take_queue()?,
            gpu,
            error: Mutex::default(),
            held: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            kept: KeptByType::default(),
        };
        Ok(Device { inner: Arc::new(inner) })
    }

    /// CUDA device number (ordinal).
    pub fn ordinal(&self) -> usize {
        self.inner.context.ordinal()
    }

    /// Name of the model.
    pub fn name(&self) -> &str {
        &self.inner.gpu.name
    }

    /// Architecture of the device: 90 for `sm_90`.
    pub fn arch(&self) -> u32 {
        self.inner.gpu.arch
    }

    /// Number of multiprocessors.
    pub fn multiprocessors(&self) -> usize {
        self.inner.gpu.multiprocessors
    }

    /// Maximum bytes of shared memory of a thread block.
    pub(crate) fn shared_memory(&self) -> Result<usize> {
        let most = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        Ok(self.inner.context.attribute(most)?.max(0) as usize)
    }

    /// Free and total bytes of memory, at most those that the limit allows. Memory that pools keep for reuse
    /// counts as free.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let (free, total) = self.inner.context.mem_get_info()?;
        let free = free + self.inner.unused()? + self.inner.gpu.idle_memory();
        let limit = self.limit();
        let left = limit.saturating_sub(self.inner.held.load(Ordering::Relaxed));
        Ok((free.min(left), total.min(limit)))
    }

    /// Frees the unused memory of the pool and of idle queues, so that a library that does not allocate from
    /// the pool can use it. Waits for all queued work.
    pub(crate) fn release_unused(&self) -> Result<()> {
        self.inner.stream.synchronize()?;
        self.inner.pool.as_ref().map_or(Ok(()), |pool| pool.trim(0))?;
        self.inner.gpu.destroy_idle();
        Ok(())
    }

    /// Limits the total size of arrays in bytes; allocating an array that would exceed it fails as if memory
    /// were full.
    pub fn limit_memory(&self, bytes: usize) {
        self.inner.limit.store(bytes, Ordering::Relaxed);
    }

    /// The limit of the total size of arrays in bytes.
    pub fn limit(&self) -> usize {
        self.inner.limit.load(Ordering::Relaxed)
    }

    /// The stream, a `CUstream`, which lives as long as this device.
    pub fn stream(&self) -> *mut c_void {
        self.inner.stream.cu_stream().cast()
    }

    /// Waits until all queued work is done, and returns the first error since the last call.
    pub fn synchronize(&self) -> Result<()> {
        let waited = self.inner.stream.synchronize().map_err(Error::from);
        match lock(&self.inner.error).take() {
            Some(first) => Err(first),
            None => waited,
        }
    }

    /// Stores the error of a call that cannot return it, unless one is stored already;
    /// [`Device::synchronize`] returns it.
    pub fn store_error(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            lock(&self.inner.error).get_or_insert(error);
        }
    }

    /// Takes the stored error, if any.
    pub fn take_error(&self) -> Option<Error> {
        lock(&self.inner.error).take()
    }

    /// Starts to compile the kernels that solves in `T` most likely need, on background threads.
    pub fn begin<T: Real>(&self) {
        self.inner.gpu.ahead.begin::<T>(self.arch());
    }

    /// Starts to compile those kernel files that a solve in `T` needs and that are not loaded yet.
    pub(crate) fn begin_with<T: Real>(&self, files: impl Iterator<Item = File>) {
        let modules = lock(&self.inner.gpu.modules);
        let missing: Vec<File> =
            files.filter(|(source, made_for)| !modules.contains_key(&made_for.key::<T>(source))).collect();
        drop(modules);
        self.inner.gpu.ahead.begin_with::<T>(missing.into_iter(), self.arch());
    }

    /// Loads a kernel of a file, compiled for this device.
    pub(crate) fn function<T: Real>(&self, source: &Source, name: &str) -> Result<CudaFunction> {
        self.function_storing::<T, T>(source, name)
    }

    /// Loads a kernel of a file, compiled for this device and for matrices with values of type `V`.
    pub(crate) fn function_storing<T: Real, V: Storage<T>>(
        &self,
        source: &Source,
        name: &str,
    ) -> Result<CudaFunction> {
        let (gpu, key) = (self.inner.gpu, [source.file, T::C_NAME, V::STORED_AS]);
        // the lock is not held while the compiler runs, because other queues need other kernels
        let loaded = lock(&gpu.modules).get(&key).cloned();
        let module = match loaded {
            Some(module) => module,
            None => {
                let code = gpu.ahead.take::<T, V>(source, gpu.arch)?;
                let mut modules = lock(&gpu.modules);
                match modules.entry(key) {
                    Entry::Occupied(loaded) => loaded.get().clone(),
                    Entry::Vacant(place) => {
                        let module = gpu.context.load_module(cudarc::nvrtc::Ptx::from_binary(code))?;
                        gpu.modules_created.fetch_add(1, Ordering::Relaxed);
                        place.insert(module).clone()
                    }
                }
            }
        };
        Ok(module.load_function(name)?)
    }

    /// Allows launches of a kernel to use all the shared memory that a block can have. The limit is a
    /// property of the kernel, which all matrices of a format share, so it cannot be set for each matrix.
    pub(crate) fn lift_shared_limit(&self, function: &CudaFunction) -> Result<()> {
        let own = function.get_attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let most = self.shared_memory()? as i32 - own;
        // setting it takes longer than querying it
        if function.get_attribute(limit)? < most {
            function.set_attribute(limit, most)?;
        }
        Ok(())
    }

    /// Makes the pool keep all freed memory for reuse until the returned value is dropped.
    pub fn keep_memory(&self) -> Result<KeepsMemory> {
        KeepsMemory::of(self)
    }

    /// The object of a type that this device caches, created at first use.
    pub(crate) fn kept<X: Any + Send + Sync + Default>(&self) -> &X {
        self.inner.kept.get()
    }
}
