//! Errors of a GPU.

use std::fmt;

/// Result of calls to a GPU.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of a GPU: absent, out of memory, or failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The CUDA driver is not installed.
    #[error(
        "no CUDA driver on this machine (libcuda was not found): install NVIDIA's driver, or solve in host memory"
    )]
    NoDriver,
    /// The run-time compiler is not installed.
    #[error(
        "no NVRTC, the run-time compiler for kernels, of a CUDA version that the driver supports was found: install the CUDA \
         toolkit, in Python `pip install krysp[cuda]`, or name its folder in CUDA_HOME"
    )]
    NoCompiler,
    /// cuDSS is not installed, or cannot be used.
    #[error(
        "cuDSS, NVIDIA's library of sparse direct solvers ({names}), cannot be used: {why}; install it by \
         `pip install nvidia-cudss-cu13`, and name its folder in LD_LIBRARY_PATH unless the program runs in Python"
    )]
    NoCuDss {
        /// Names of the library.
        names: String,
        /// The reason: a version or symbol that does not fit, or the error of the dynamic linker.
        why: String,
    },
    /// A call of cuDSS failed.
    #[error("cuDSS: {call} failed: {status}")]
    CuDss {
        /// The function, or the phase.
        call: &'static str,
        /// The meaning of the status that the call returned.
        status: &'static str,
    },
    /// There is no device with this number.
    #[error("there is no CUDA device {ordinal}, this machine has {count}")]
    NoDevice {
        /// The requested device.
        ordinal: usize,
        /// Number of devices.
        count: usize,
    },
    /// The process was forked from one that had used a GPU.
    #[error(
        "this process was forked from one that had used a GPU, and CUDA does not work in it: start the process by other means \
         (in Python, the start method \"spawn\" of `multiprocessing`), or solve in host memory"
    )]
    Forked,
    /// Device memory is full. Nothing was allocated, and the device remains usable.
    #[error("device memory is full: {requested} bytes were requested, {free} of {total} are free")]
    OutOfMemory {
        /// Bytes requested.
        requested: usize,
        /// Bytes that were free.
        free: usize,
        /// Total bytes of the device, or the limit set for it.
        total: usize,
    },
    /// A range of addresses that is not in the memory of the device.
    #[error(
        "{bytes} bytes at address {address:#x} are not in one allocation of GPU {ordinal}, or do not begin at a multiple of 256"
    )]
    Foreign {
        /// Start address.
        address: u64,
        /// Size in bytes.
        bytes: usize,
        /// The device.
        ordinal: usize,
    },
    /// The run-time compiler rejected a kernel.
    #[error("{file} does not compile for sm_{arch}: {log}")]
    Compile {
        /// File of the kernel.
        file: &'static str,
        /// Architecture: 90 for `sm_90`.
        arch: u32,
        /// Messages of the compiler.
        log: String,
    },
    /// A number is too large for a kernel.
    #[error("{what} is {got}, at most {limit} are possible on a GPU")]
    TooLarge {
        /// Name of the number.
        what: &'static str,
        /// Value of the number.
        got: usize,
        /// The largest value.
        limit: usize,
    },
    /// A layout that would consist mostly of padding.
    #[error("{slots} slots for {entries} entries are mostly padding")]
    Padding {
        /// Number of values that would be stored, including padding.
        slots: usize,
        /// Entries of the matrix.
        entries: usize,
    },
    /// Rows that read more entries of `x` than fit in shared memory.
    #[error("rows {} to {} read {window} entries of x, at most {most} fit in a block's shared memory: reorder the matrix, or use SELL-P or CSR", rows.start, rows.end)]
    Window {
        /// Range of rows, or of nodes if nodes have several rows.
        rows: std::ops::Range<usize>,
        /// Number of entries that they read.
        window: usize,
        /// Maximum number of entries that fit.
        most: usize,
    },
    /// A device failed during its work. Its arrays are lost, and CUDA lets this process do nothing more on it; other
    /// devices and the host are not affected.
    #[error(
        "a GPU has failed and takes no more work from this process: {0}; rebuild its objects on another GPU, or restart the process"
    )]
    Lost(String),
    /// Error reported by the driver.
    #[error("CUDA: {0}")]
    Driver(String),
}

impl From<cudarc::driver::DriverError> for Error {
    fn from(error: cudarc::driver::DriverError) -> Self {
        use cudarc::driver::sys::CUresult;
        let why = format!("{error}");
        match error.0 {
            CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED => Error::Lost(why),
            _ => Error::Driver(why),
        }
    }
}

/// Writes the message of `Display`, because a `main` that returns the error prints its `Debug` form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::device::launch::config;
    use crate::cuda::device::module::{Source, constants};
    use crate::cuda::device::{Device, count};

    const SOURCE: Source = Source {
        file: "fault.cu",
        text: "extern \"C\" __global__ void fault() { begin(); asm volatile(\"trap;\"); }",
        constants: constants![],
        mirrors: &[],
    };

    /// A kernel that fails makes its device unusable for the rest of the process; other devices are not
    /// affected.
    #[test]
    #[ignore = "fails the first GPU for all of this process"]
    fn a_device_that_fails_is_lost_alone() {
        assert!(count() > 0, "this test needs a GPU");
        let others: Vec<Device> = (1..count()).map(|at| Device::new(at).unwrap()).collect();
        let device = Device::new(0).unwrap();
        let before = device.upload(&[1.0, 2.0, 3.0]).unwrap();
        let fault = device.function::<f64>(&SOURCE, "fault").unwrap();
        // SAFETY: the kernel has no arguments, and touches no memory
        unsafe { device.launch(&fault).launch(config(1)) }.unwrap();
        let lost = |outcome: Result<()>| matches!(outcome, Err(Error::Lost(_)));
        assert!(lost(device.synchronize()));
        assert!(lost(device.zeros::<f64>(10).map(drop)));
        assert!(lost(before.read(&mut [0.0; 3])));
        for other in others {
            let (array, mut back) = (other.upload(&[1.0, 2.0]).unwrap(), [0.0; 2]);
            array.read(&mut back).unwrap();
            assert_eq!(back, [1.0, 2.0]);
        }
        // a new device object fails, both while old objects live and afterwards
        let again = || Device::new(0)?.upload(&[1.0]).map(drop);
        assert!(lost(again()));
        drop((fault, before, device));
        assert!(lost(again()));
    }
}
