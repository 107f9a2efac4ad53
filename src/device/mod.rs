//! A GPU, and vectors in its memory.

mod steps;
mod to_cuda;
mod vector;

pub use krysp_kernels::cuda::{Error, Info, compiler_version, look_for_compiler_in};
pub use steps::{CudaSteps, OnChip};
pub use to_cuda::{OnCuda, ToCuda};
pub(crate) use vector::open_columns;
pub use vector::{CudaBasis, CudaScalar, CudaSpace, CudaVector};

use crate::error::Result;
use crate::numbers::Real;
use krysp_kernels::cuda::{Device, devices};

/// A GPU, and a queue of work (a CUDA stream) on it. Clones share the queue; vectors and operators of one
/// queue can be combined.
///
/// Memory that vectors and operators free is kept for reuse as long as the queue holds at most an eighth of
/// the GPU's memory; other programs cannot use it meanwhile.
///
/// The first queue on a GPU creates a CUDA context, which takes 0.1 to 0.2 s, and its first solve loads
/// kernels. The process keeps both until it ends, for all queues. When the last clone is dropped, up to four
/// queues per GPU are kept idle, each with at most 256 MiB of memory, and [`Cuda::new`] takes one of them
/// instead of creating another. A queue on which an error has occurred is not reused.
#[derive(Clone, Debug, PartialEq)]
pub struct Cuda {
    device: Device,
}

impl Cuda {
    /// The GPUs of this machine; empty if there is no driver.
    pub fn devices() -> Vec<Info> {
        devices()
    }

    /// A GPU, counted from 0, with a separate queue. In a process that was forked after its parent had used a
    /// GPU, this returns [`Error::Forked`].
    pub fn new(ordinal: usize) -> Result<Cuda> {
        Ok(Cuda { device: Device::new(ordinal)? })
    }

    /// Index of the GPU, counted from 0.
    pub fn ordinal(&self) -> usize {
        self.device.ordinal()
    }

    /// Name of the GPU.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Number of multiprocessors: 132 for an H200.
    pub fn multiprocessors(&self) -> usize {
        self.device.multiprocessors()
    }

    /// Limits the total bytes of all arrays of this queue, vectors included. An allocation that would exceed
    /// the limit returns [`Error::OutOfMemory`], as if the GPU's memory were full.
    ///
    /// ```no_run
    /// use krysp::Cuda;
    ///
    /// let gpu = Cuda::new(0)?;
    /// gpu.limit_memory(8 << 30); // leave the rest to other programs
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn limit_memory(&self, bytes: usize) {
        self.device.limit_memory(bytes);
    }

    /// Free bytes and total bytes of the GPU's memory, at most those that the limit allows.
    pub fn memory(&self) -> Result<(usize, usize)> {
        Ok(self.device.memory()?)
    }

    /// Waits until all work enqueued so far is done.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.device.synchronize()?)
    }

    /// The CUDA stream, a `CUstream`, for use by other libraries; valid as long as this object lives. Work
    /// that other libraries enqueue on it runs in order with the work of this queue.
    pub fn stream(&self) -> *mut std::ffi::c_void {
        self.device.stream()
    }

    /// The space of vectors of `len` entries in the GPU's memory, in the user's order.
    pub fn space<T: Real>(&self, len: usize) -> CudaSpace<T> {
        CudaSpace::like(self, &crate::host::HostSpace::new(len))
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }
}

/// Wraps an error of a GPU as an error of the solvers.
pub(crate) fn failed(error: Error) -> krysp_solvers::Error {
    krysp_solvers::Error::Backend(Box::new(error))
}
