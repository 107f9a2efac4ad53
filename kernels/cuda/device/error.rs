//! What can go wrong on a GPU.

/// What calls to a GPU return.
pub type Result<T> = std::result::Result<T, Error>;

/// A GPU that is not there, is full, or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    #[error("{bytes} bytes at address {address:#x} are not in one allocation of GPU {ordinal}")]
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
    /// The driver reports an error.
    #[error("CUDA: {0}")]
    Driver(String),
}

impl From<cudarc::driver::DriverError> for Error {
    fn from(error: cudarc::driver::DriverError) -> Self {
        Error::Driver(format!("{error}"))
    }
}
