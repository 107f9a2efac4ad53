//! Kernel launches, with programmatic dependent launch: except for cooperative kernels, each launch is
//! prepared while the previous kernel runs.
//!
//! Every kernel begins with `begin` of prelude.cu, which waits until the previous kernel has ended and all
//! its writes are visible, so results are not affected. This hides the cost of a launch, about 1 µs per
//! kernel: on an H200, el3_2M_perm improves from 0.0081 ms to 0.0069 (BSR, f64), heat_sink_p1_340k from
//! 0.0163 to 0.0147 (Halo, f64), CG on st7_128 from 0.0990 to 0.0976 ms an iteration. No kernel allows the
//! next one to start before its own end (`launch_dependents`), because blocks that start early are
//! distributed unevenly over multiprocessors (in ms: Halo in f32 0.0108 became 0.0128, CG 0.0976 became
//! 0.1021).

use crate::cuda::device::Device;
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::tuning::VECTOR_BLOCKS;
use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr, LaunchConfig, sys};
use std::ffi::c_void;
use std::marker::PhantomData;

/// Threads of a warp.
pub(crate) const WARP: usize = 32;
/// Maximum number of blocks of a launch with sums over the grid. Guess, chosen as many more than are
/// resident on any GPU.
pub(crate) const MAX_BLOCKS: usize = 1 << 16;

/// Launch configuration of at least `threads` threads, for kernels that work with any grid.
pub(crate) fn config(threads: usize) -> LaunchConfig {
    let blocks = threads.div_ceil(THREADS as usize).clamp(1, i32::MAX as usize) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
}

/// Launch configuration for `n` elements with `items` per thread, limited to the blocks that are resident at
/// the same time.
pub(crate) fn config_concurrent(device: &Device, n: usize, items: usize) -> LaunchConfig {
    let most = (VECTOR_BLOCKS * device.multiprocessors()).min(MAX_BLOCKS);
    let blocks = n.div_ceil(THREADS as usize * items).clamp(1, most);
    LaunchConfig { grid_dim: (blocks as u32, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
}

/// Converts a number for kernels that use 32-bit indices; fails if it does not fit.
pub(crate) fn index(what: &'static str, got: usize) -> Result<i32> {
    i32::try_from(got).map_err(|_| Error::TooLarge { what, got, limit: i32::MAX as usize })
}

/// The first architecture with programmatic dependent launch.
const WAITS: u32 = 90;

/// Number of arguments for which a launch reserves memory; few kernels have more.
const ARGUMENTS: usize = 10;

/// A kernel and its arguments, to be launched on a device's stream.
pub(crate) struct Launch<'a> {
    stream: &'a CudaStream,
    function: &'a CudaFunction,
    prepared_early: bool,
    cooperative: bool,
    arguments: Vec<*mut c_void>,
    borrowed: PhantomData<&'a ()>,
}

impl Device {
    /// Starts a launch of a kernel; the caller adds its arguments.
    pub(crate) fn launch<'a>(&'a self, function: &'a CudaFunction) -> Launch<'a> {
        Launch {
            stream: &self.inner.stream,
            function,
            prepared_early: self.arch() >= WAITS,
            cooperative: false,
            arguments: Vec::with_capacity(ARGUMENTS),
            borrowed: PhantomData,
        }
    }
}

impl<'a> Launch<'a> {
    /// Adds an argument.
    pub(crate) fn arg<T: DeviceRepr>(&mut self, argument: &'a T) -> &mut Self {
        self.arguments.push(std::ptr::from_ref(argument).cast_mut().cast());
        self
    }

    /// Makes the launch cooperative: all blocks are resident, so they may wait for each other. Such a kernel
    /// is not prepared early, since it is not guaranteed that all of its blocks become resident while another
    /// kernel ends.
    pub(crate) fn cooperative(&mut self) -> &mut Self {
        self.cooperative = true;
        self
    }

    /// Queues the kernel.
    ///
    /// # Safety
    /// The arguments match the kernel's parameters, and the memory they point to lives until the kernel has
    /// run.
    pub(crate) unsafe fn launch(&mut self, config: LaunchConfig) -> Result<()> {
        self.stream.context().bind_to_thread()?;
        let (id, value) = match self.cooperative {
            true => (
                sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                sys::CUlaunchAttributeValue { cooperative: 1 },
            ),
            false => (
                sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            ),
        };
        let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let config = sys::CUlaunchConfig {
            gridDimX: config.grid_dim.0,
            gridDimY: config.grid_dim.1,
            gridDimZ: config.grid_dim.2,
            blockDimX: config.block_dim.0,
            blockDimY: config.block_dim.1,
            blockDimZ: config.block_dim.2,
            sharedMemBytes: config.shared_mem_bytes,
            hStream: self.stream.cu_stream(),
            attrs: &mut attribute,
            numAttrs: (self.cooperative || self.prepared_early).into(),
        };
        let arguments = self.arguments.as_mut_ptr();
        // SAFETY: promised by the caller; the configuration and its attribute live until the call returns
        let queued = unsafe {
            sys::cuLaunchKernelEx(&config, self.function.cu_function(), arguments, std::ptr::null_mut())
        };
        Ok(queued.result()?)
    }
}

#[cfg(test)]
mod tests {
    /// The text after the first brace that follows the parameters of a kernel.
    fn body(kernel: &str) -> Option<&str> {
        let mut open = 0;
        // launch bounds, if any, and parameters
        let end = kernel.char_indices().find(|&(_, c)| {
            open += i32::from(c == '(') - i32::from(c == ')');
            c == '{' && open == 0
        });
        end.map(|(brace, _)| kernel[brace + 1..].trim_start_matches([' ', '\\', '\n']))
    }

    #[test]
    fn every_kernel_begins_by_waiting() {
        let mut kernels = 0;
        let folders = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda")).unwrap();
        let folders = folders.map(|folder| folder.unwrap().path()).filter(|folder| folder.is_dir());
        for file in folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "cu") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for kernel in text.split("__global__").skip(1) {
                let body = body(kernel).unwrap();
                let name = kernel.lines().next().unwrap();
                assert!(body.starts_with("begin();"), "{}: {name}", path.display());
                kernels += 1;
            }
        }
        assert!(kernels > 50, "{kernels}");
    }
}
