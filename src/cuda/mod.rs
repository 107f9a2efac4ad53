//! NVIDIA GPUs: vectors in device memory, and solves that stay there.
//!
//! ```no_run
//! use krysp::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (a, b) = (Csr::from_triplets(1, 1, &[(0, 0, 2.0)])?, [1.0]);
//! let gpu = Cuda::new(0)?;
//! let solution = Cg::new(a.to(&gpu)?).preconditioner(Jacobi::new(&a)?.to(&gpu)?).solve(&b)?;
//! # Ok(())
//! # }
//! ```
//!
//! Nothing of CUDA is needed to build this. Its libraries are looked for at run time: the driver, and the run-time
//! compiler (NVRTC) that compiles kernels for the device at hand; compiled kernels are kept in `$KRYSP_CACHE`, or
//! `~/.cache/krysp`.

mod operator;
mod steps;
mod streamed;
mod to_cuda;
mod vector;

pub use krysp_kernels::cuda::{Error, Info};
pub use operator::CudaMatrix;
pub use steps::{CudaSteps, OnChip};
pub use streamed::{Streamed, Traffic};
pub use to_cuda::{OnCuda, ToCuda};
pub use vector::{CudaBasis, CudaScalar, CudaSpace, CudaVector};

use crate::{Real, Result};
use krysp_kernels::cuda::{Device, devices};

/// A GPU, and a queue of work on it. Clones share the queue; vectors and operators of one queue may mix.
///
/// Memory that they give back is kept for the next ones while all of the queue's is no more than an eighth of the GPU's; other
/// programs do not have it before then.
///
/// The first queue on a GPU creates a CUDA context, which takes 0.1 to 0.2 s, and its first solve loads kernels. The process keeps
/// both until it ends, for all queues. When the last clone is dropped, up to four queues per GPU are kept idle, each with at most
/// 256 MiB of memory, and [`Cuda::new`] takes one of them instead of creating another. A queue on which something failed is not
/// used again.
#[derive(Clone, Debug, PartialEq)]
pub struct Cuda {
    device: Device,
}

impl Cuda {
    /// The GPUs of this machine; none where there is no driver.
    pub fn devices() -> Vec<Info> {
        devices()
    }

    /// A GPU, counted from 0, with a queue of its own. In a process that was forked after its parent had used a GPU, this is
    /// [`Error::Forked`].
    pub fn new(ordinal: usize) -> Result<Cuda> {
        Ok(Cuda { device: Device::new(ordinal)? })
    }

    /// Its number, counted from 0.
    pub fn ordinal(&self) -> usize {
        self.device.ordinal()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// How many multiprocessors it has: 132 an H200.
    pub fn multiprocessors(&self) -> usize {
        self.device.multiprocessors()
    }

    /// From now on the arrays of this queue take no more bytes than this, vectors among them. Asking for more gives
    /// [`Error::OutOfMemory`], as if the GPU was full.
    ///
    /// ```no_run
    /// use krysp::Cuda;
    ///
    /// let gpu = Cuda::new(0)?;
    /// gpu.limit_memory(8 << 30); // others want some of it, too
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn limit_memory(&self, bytes: usize) {
        self.device.limit_memory(bytes);
    }

    /// Bytes of its memory that are free, and all of them, as far as its limit allows.
    pub fn memory(&self) -> Result<(usize, usize)> {
        Ok(self.device.memory()?)
    }

    /// Waits until all work queued so far is done.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.device.synchronize()?)
    }

    /// The queue as other CUDA libraries take it, a `CUstream`, alive as long as this. What they queue there runs in turn
    /// with everything queued here.
    pub fn stream(&self) -> *mut std::ffi::c_void {
        self.device.stream()
    }

    /// Vectors of `len` entries in its memory, in the user's numbering.
    pub fn space<T: Real>(&self, len: usize) -> CudaSpace<T> {
        CudaSpace::like(self, &crate::HostSpace::new(len))
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }
}

/// A failure of a GPU, as solvers report it.
pub(crate) fn failed(error: Error) -> krysp_solvers::Error {
    krysp_solvers::Error::Backend(Box::new(error))
}
