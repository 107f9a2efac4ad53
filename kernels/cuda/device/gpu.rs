//! State of a GPU that the process creates once: the context, the kernels loaded into it, and idle queues.
//!
//! The driver destroys the context, and the kernels loaded into it, when the last reference is dropped. This
//! state holds a reference: otherwise a call that creates and drops the only [`Device`](super::Device) would
//! spend 0.18 s on an H100 on creating (122 ms) and destroying (55 ms) a context (benches/RESULTS.md has the
//! effect on whole calls). The state is never dropped, because at the end of the process the driver may be
//! unloaded before static variables are destroyed.

use crate::cuda::device::ahead::{Ahead, Key};
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::lock;
use crate::cuda::device::queue::Queue;
use crate::cuda::tuning::IDLE_QUEUES;
use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{CudaContext, CudaModule, result, sys};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// CUDA device number (ordinal).
    pub ordinal: usize,
    /// Name of the model.
    pub name: String,
    /// Bytes of memory.
    pub memory: usize,
}

/// Numbers of objects that the process has created on a GPU so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// Streams, each with a memory pool.
    pub queues: usize,
    /// Modules, each of which holds the kernels of a file.
    pub modules: usize,
}

/// A GPU that the process has used.
pub(crate) struct Gpu {
    /// Reference to the primary context that keeps it alive.
    pub(crate) context: Arc<CudaContext>,
    pub(crate) name: String,
    pub(crate) arch: u32,
    pub(crate) multiprocessors: usize,
    /// Kernels belong to the context, not to a stream, so all queues share them.
    pub(crate) modules: Mutex<HashMap<Key, Arc<CudaModule>>>,
    pub(crate) ahead: Ahead,
    /// Queues without a user; the last one returned is the next one taken.
    idle: Mutex<Vec<Arc<Queue>>>,
    /// Number of [`Device`](super::Device)s in use.
    devices: AtomicUsize,
    queues_created: AtomicUsize,
    pub(crate) modules_created: AtomicUsize,
}

static GPUS: Mutex<Vec<&'static Gpu>> = Mutex::new(Vec::new());

/// Id of the process that created the contents of [`GPUS`]; zero until then.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Returns whether this process was forked from one that had used a GPU. Such a process cannot use a GPU. It must not
/// take any lock here: a thread of the parent may have held the lock at the fork, and would never release it.
fn is_forked() -> bool {
    let id = std::process::id();
    matches!(OWNER.compare_exchange(0, id, Ordering::SeqCst, Ordering::SeqCst), Err(owner) if owner != id)
}

/// The GPUs of this machine; empty if there is no driver. They are queried once per process.
pub fn devices() -> Vec<Info> {
    found().to_vec()
}

/// Number of GPUs of this machine.
pub fn count() -> usize {
    found().len()
}

/// Returns whether a driver is installed that this process may use. Does not initialize the driver.
pub fn driver_is_usable() -> bool {
    !is_forked() && driver_is_present()
}

/// Returns whether this process has used a GPU, so that a context exists.
pub fn is_open() -> bool {
    !is_forked() && !lock(&GPUS).is_empty()
}

fn found() -> &'static [Info] {
    static FOUND: OnceLock<Vec<Info>> = OnceLock::new();
    FOUND.get_or_init(|| {
        if !driver_is_present() {
            return vec![];
        }
        let count = result::init().and_then(|()| CudaContext::device_count()).unwrap_or(0);
        let info = |ordinal| {
            let device = result::device::get(ordinal).ok()?;
            let name = result::device::get_name(device).ok()?;
            // SAFETY: the device was just found
            let memory = unsafe { result::device::total_mem(device) }.ok()?;
            Some(Info { ordinal: ordinal as usize, name, memory })
        };
        (0..count).filter_map(info).collect()
    })
}

fn driver_is_present() -> bool {
    // SAFETY: checks for the presence of a library only; every other call panics without it
    unsafe { sys::is_culib_present() }
}

/// The newest version of CUDA that the driver supports, as `1000 * major + 10 * minor`. Does not initialize
/// the driver.
pub(crate) fn driver_version() -> Option<u32> {
    let mut version = 0;
    // SAFETY: the driver is present, and the number is written to a local
    (driver_is_present() && unsafe { sys::cuDriverGetVersion(&mut version) }.result().is_ok())
        .then(|| version.try_into().ok())?
}

/// Numbers of objects that the process has created on a GPU so far; for tests of what is created only once.
pub fn created(ordinal: usize) -> Created {
    let gpus = lock(&GPUS);
    let count = |gpu: &&Gpu| Created {
        queues: gpu.queues_created.load(Ordering::Relaxed),
        modules: gpu.modules_created.load(Ordering::Relaxed),
    };
    gpus.iter().find(|gpu| gpu.context.ordinal() == ordinal).map(count).unwrap_or_default()
}

impl Gpu {
    /// A GPU by its number; the first call creates its context.
    pub(crate) fn get(ordinal: usize) -> Result<&'static Gpu> {
        if is_forked() {
            return Err(Error::Forked);
        }
        let mut gpus = lock(&GPUS);
        if let Some(gpu) = gpus.iter().find(|gpu| gpu.context.ordinal() == ordinal) {
            return Ok(gpu);
        }
        let gpu = Box::leak(Box::new(Gpu::new(ordinal)?));
        gpus.push(gpu);
        Ok(gpu)
    }

    fn new(ordinal: usize) -> Result<Gpu> {
        let count = count();
        if ordinal >= count {
            return Err(match driver_is_present() {
                true => Error::NoDevice { ordinal, count },
                false => Error::NoDriver,
            });
        }
        let driver = result::device::get(ordinal as i32)?;
        let number = |attribute| -> Result<u32> {
            // SAFETY: the device was just found
            Ok(unsafe { result::device::get_attribute(driver, attribute) }?.max(0) as u32)
        };
        let arch = 10 * number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        // compile in the background while the context is created; most solves are in double precision
        let ahead = Ahead::default();
        ahead.begin::<f64>(arch);
        let context = CudaContext::new(ordinal)?;
        let multiprocessors = number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(Gpu {
            name: context.name()?,
            arch,
            multiprocessors: multiprocessors.max(1) as usize,
            modules: Mutex::default(),
            ahead,
            idle: Mutex::default(),
            devices: AtomicUsize::new(0),
            queues_created: AtomicUsize::new(0),
            modules_created: AtomicUsize::new(0),
            context,
        })
    }

    /// A queue for one more device: an idle one, or a new one.
    pub(crate) fn take_queue(&self) -> Result<Arc<Queue>> {
        let idle = lock(&self.idle).pop();
        let queue = match idle {
            Some(queue) => queue,
            None => {
                self.queues_created.fetch_add(1, Ordering::Relaxed);
                Arc::new(Queue::new(self.context.ordinal())?)
            }
        };
        self.devices.fetch_add(1, Ordering::SeqCst);
        Ok(queue)
    }

    /// Takes back a queue from a device that is dropped. The queue is kept for the next device if no work on
    /// it has failed (`sound`) and only the caller refers to it; otherwise it is destroyed.
    pub(crate) fn return_queue(&self, queue: &Arc<Queue>, sound: bool) {
        if is_forked() {
            return;
        }
        if self.devices.fetch_sub(1, Ordering::SeqCst) == 1 {
            // a process that ends while the compiler runs would unload the compiler
            self.ahead.wait();
        }
        if sound && Arc::strong_count(queue) == 1 && queue.becomes_idle() {
            let mut idle = lock(&self.idle);
            if idle.len() < IDLE_QUEUES {
                idle.push(queue.clone());
            }
        }
    }

    /// Bytes of memory that idle queues hold.
    pub(crate) fn idle_memory(&self) -> usize {
        lock(&self.idle).iter().map(|queue| queue.unused().unwrap_or(0)).sum()
    }

    /// Destroys all idle queues, which returns their memory to the driver. Returns `false` if there is no
    /// idle queue.
    pub(crate) fn destroy_idle(&self) -> bool {
        let idle = std::mem::take(&mut *lock(&self.idle));
        for queue in &idle {
            // the pool can return its memory once the work that used it is done; an error is ignored, because
            // the queue is destroyed anyway
            let _ = queue.stream.synchronize();
        }
        !idle.is_empty()
    }
}
