//! What can go wrong on a GPU.

use std::fmt;

/// What calls to a GPU return.
pub type Result<T> = std::result::Result<T, Error>;

/// A GPU that is not there, is full, or failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No driver.
    #[error(
        "no CUDA driver on this machine (libcuda was not found): install NVIDIA's driver, or solve in host memory"
    )]
    NoDriver,
    /// No run-time compiler.
    #[error(
        "no CUDA run-time compiler on this machine (libnvrtc was not found; it comes with the CUDA toolkit)"
    )]
    NoCompiler,
    /// No such device.
    #[error("there is no CUDA device {ordinal}, this machine has {count}")]
    NoDevice {
        /// The device asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// A process that was forked from one that had used a GPU.
    #[error(
        "this process was forked from one that had used a GPU, and CUDA does not work in it: start the process by other means \
         (in Python, the start method \"spawn\" of `multiprocessing`), or solve in host memory"
    )]
    Forked,
    /// Device memory is full. Nothing was allocated, and the device can be used on.
    #[error("{requested} bytes of device memory were asked for, {free} of {total} are free")]
    OutOfMemory {
        /// Bytes asked for.
        requested: usize,
        /// Bytes that were free.
        free: usize,
        /// Bytes that the device has.
        total: usize,
    },
    /// An address that is not in the memory of the device.
    #[error(
        "{bytes} bytes at address {address:#x} are not in one allocation of GPU {ordinal}, or do not begin at a multiple of 256"
    )]
    Foreign {
        /// The address.
        address: u64,
        /// The bytes that were to be there.
        bytes: usize,
        /// The device.
        ordinal: usize,
    },
    /// A kernel that the run-time compiler refuses.
    #[error("{file} does not compile for sm_{arch}: {log}")]
    Compile {
        /// The kernel's file.
        file: &'static str,
        /// The architecture.
        arch: u32,
        /// What the compiler says.
        log: String,
    },
    /// A matrix too large for the indices of a kernel.
    #[error("{what} is {got}, at most {limit} are possible on a GPU")]
    TooLarge {
        /// Which number.
        what: &'static str,
        /// Its value.
        got: usize,
        /// The largest value.
        limit: usize,
    },
    /// A layout that would be mostly padding.
    #[error("{slots} slots for {entries} entries are mostly padding")]
    Padding {
        /// Slots that would be stored.
        slots: usize,
        /// Entries of the matrix.
        entries: usize,
    },
    /// Rows that need more of `x` than shared memory has room for.
    #[error("rows {} to {} need {window} entries of x, at most {most} fit a block's shared memory: renumber, or use SELL-P or CSR", rows.start, rows.end)]
    Window {
        /// The rows, of nodes where these have several.
        rows: std::ops::Range<usize>,
        /// What they need.
        window: usize,
        /// What fits.
        most: usize,
    },
    /// A device that failed in the middle of its work. Its arrays are gone, and CUDA lets this process do nothing more on it;
    /// other devices and the host go on.
    #[error(
        "a GPU has failed and takes no more work from this process: {0}; build what was on it again on another, or start anew"
    )]
    Lost(String),
    /// The driver reports an error.
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

/// The message: a `main` that returns the error prints what `Debug` writes.
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

    /// A kernel that fails takes its device with it, for the rest of the process, and nothing else.
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
        // neither beside what was there, nor after it
        let again = || Device::new(0)?.upload(&[1.0]).map(drop);
        assert!(lost(again()));
        drop((fault, before, device));
        assert!(lost(again()));
    }
}
