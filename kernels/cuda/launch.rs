//! Launches of kernels, each of which may start while the one before it ends.
//!
//! Every kernel begins with `begin` of prelude.cu: it waits until the kernel before it has ended and all it wrote can be
//! seen, and allows the one behind it to be brought to the multiprocessors as they become free. What a launch costs is paid
//! while the kernel before still runs (1 to 2 µs of each kernel behind another); no result can tell the difference.

use super::device::Device;
use super::error::Result;
use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr, LaunchConfig, sys};
use std::ffi::c_void;
use std::marker::PhantomData;

/// The first architecture whose kernels can wait for the one before them.
const WAITS: u32 = 90;

/// Arguments of most kernels.
const ARGUMENTS: usize = 10;

/// A kernel with its arguments, to be launched on a device's stream.
pub(super) struct Launch<'a> {
    stream: &'a CudaStream,
    function: &'a CudaFunction,
    may_overlap: bool,
    arguments: Vec<*mut c_void>,
    borrowed: PhantomData<&'a ()>,
}

impl Device {
    /// A launch of a kernel, to be given its arguments.
    pub(super) fn launch<'a>(&'a self, function: &'a CudaFunction) -> Launch<'a> {
        Launch {
            stream: &self.inner.stream,
            function,
            may_overlap: self.arch() >= WAITS,
            arguments: Vec::with_capacity(ARGUMENTS),
            borrowed: PhantomData,
        }
    }
}

impl<'a> Launch<'a> {
    /// Adds an argument.
    pub(super) fn arg<T: DeviceRepr>(&mut self, argument: &'a T) -> &mut Self {
        self.arguments.push(std::ptr::from_ref(argument).cast_mut().cast());
        self
    }

    /// Queues the kernel.
    ///
    /// # Safety
    /// Arguments are those of the kernel, and what they point to lives until it has run.
    pub(super) unsafe fn launch(&mut self, config: LaunchConfig) -> Result<()> {
        self.stream.context().bind_to_thread()?;
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: config.grid_dim.0,
            gridDimY: config.grid_dim.1,
            gridDimZ: config.grid_dim.2,
            blockDimX: config.block_dim.0,
            blockDimY: config.block_dim.1,
            blockDimZ: config.block_dim.2,
            sharedMemBytes: config.shared_mem_bytes,
            hStream: self.stream.cu_stream(),
            attrs: &mut overlap,
            numAttrs: self.may_overlap.into(),
        };
        let arguments = self.arguments.as_mut_ptr();
        // SAFETY: as the caller promised; the configuration and its attribute live until the call returns
        let queued = unsafe {
            sys::cuLaunchKernelEx(&config, self.function.cu_function(), arguments, std::ptr::null_mut())
        };
        Ok(queued.result()?)
    }
}

#[cfg(test)]
mod tests {
    /// What stands behind the first brace that follows the parameters of a kernel.
    fn body(kernel: &str) -> Option<&str> {
        let mut open = 0;
        // bounds, if any, and parameters
        let end = kernel.char_indices().find(|&(_, c)| {
            open += i32::from(c == '(') - i32::from(c == ')');
            c == '{' && open == 0
        });
        end.map(|(brace, _)| kernel[brace + 1..].trim_start_matches([' ', '\\', '\n']))
    }

    #[test]
    fn every_kernel_begins_by_waiting() {
        let mut kernels = 0;
        for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda")).unwrap() {
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
