//! Coordinates in slabs of columns whose part of `x` is kept in shared memory. slabs.cu describes the
//! algorithm and the memory traffic.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::{WARP, config};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::device::{Array, Device, Real, Storage, lock};
use crate::cuda::formats::slab_layout::{CHUNK, OWN, SlabSizes, Slabbed};
use crate::cuda::matrix::chunks::{OF_LANE, TILE};
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction};
use crate::cuda::matrix::pattern::Pattern;
use crate::cuda::matrix::product::Slots;
use crate::cuda::tuning::{
    BINS_OF_MULTIPROCESSOR, BYTES_OF_SLAB, BYTES_OF_WIDE_SLAB, SLAB_BLOCKS, SLAB_THREADS, WIDE_SLAB_THREADS,
    WIDE_SLABS_FROM,
};
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use std::sync::Mutex;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "slabs.cu",
    text: concat!(include_str!("../matrix/tiles.cu"), "#line 1 \"slabs.cu\"\n", include_str!("slabs.cu")),
    constants: constants![OF_LANE, TILE, OWN, CHUNK, PLACES, SLAB_THREADS, SLAB_BLOCKS, WIDE_SLAB_THREADS],
    mirrors: &[
        mirror!("Slabs" = RawSlabs { columns, values, starts, first, shares, sums }),
        mirror!("Bins" = RawBins { runs, first_run, places, rows, offsets, sums, most_sums }),
    ],
};

/// Alignment of a slab's part of `x` in bytes, so that it can be copied in packs of 16 bytes.
const ALIGNED: usize = 256;
/// Elements of shared memory for the sums of a warp: those of a chunk, padded against bank conflicts, and one
/// before the first.
const PLACES: usize = CHUNK + CHUNK / 16 + 1;

/// Variant of the first kernel, and the size of its slabs.
struct FirstKernel {
    kernel: &'static str,
    /// Threads per block.
    threads: u32,
    /// Resident blocks per multiprocessor.
    resident: usize,
    /// Maximum bytes of `x` per slab.
    bytes: usize,
}
const NARROW: FirstKernel =
    FirstKernel { kernel: "slabs", threads: SLAB_THREADS, resident: SLAB_BLOCKS, bytes: BYTES_OF_SLAB };
const WIDE: FirstKernel =
    FirstKernel { kernel: "slabs_wide", threads: WIDE_SLAB_THREADS, resident: 1, bytes: BYTES_OF_WIDE_SLAB };

impl FirstKernel {
    /// The variant for a matrix with `cols` columns, if a block can have `shared` bytes of shared memory.
    fn of<T>(cols: usize, shared: usize) -> FirstKernel {
        let is_wide = cols * size_of::<T>() >= WIDE_SLABS_FROM && WIDE.beside::<T>() + WIDE.bytes <= shared;
        if is_wide { WIDE } else { NARROW }
    }

    /// Bytes of shared memory in addition to `x`: padding to a whole pack, and the sums of warps.
    fn beside<T>(&self) -> usize {
        16 + self.threads as usize / WARP * PLACES * size_of::<T>()
    }

    /// Columns per slab.
    fn width<T>(&self, shared: usize) -> usize {
        shared.saturating_sub(self.beside::<T>()).min(self.bytes) / ALIGNED * ALIGNED / size_of::<T>()
    }
}

/// Columns per slab of a matrix with `cols` columns, if a block can have `shared` bytes of shared memory; 0
/// if that is too little for a slab.
pub(crate) fn width<T>(cols: usize, shared: usize) -> usize {
    FirstKernel::of::<T>(cols, shared).width::<T>(shared)
}

/// Entries in slabs on a device, and the kernels that multiply them.
#[derive(Debug)]
pub(crate) struct Slabs<T: Real, V: Storage<T>> {
    columns: Array<u16>,
    values: Array<V>,
    entries: Array<u32>,
    starts: Array<u32>,
    first: Array<u32>,
    shares: Array<u32>,
    sums: Array<T>,
    runs: Array<u32>,
    first_run: Array<u32>,
    places: Array<u16>,
    rows: Array<u32>,
    offsets: Array<u16>,
    /// Maximum number of sums per bin.
    most_sums: u32,
    /// Bytes of shared memory per block of the first and of the second kernel.
    shared: [u32; 2],
    /// Threads per block of the first kernel.
    threads: u32,
    multiply: CudaFunction,
    finish: CudaFunction,
    copy_values: CudaFunction,
    /// Locked while both kernels are queued, because they share `sums`.
    queueing: Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawSlabs {
    columns: u64,
    values: u64,
    starts: u64,
    first: u64,
    shares: u64,
    sums: u64,
}
// SAFETY: has the layout of `Slabs` in slabs.cu
unsafe impl DeviceRepr for RawSlabs {}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawBins {
    runs: u64,
    first_run: u64,
    places: u64,
    rows: u64,
    offsets: u64,
    sums: u64,
    most_sums: u32,
}
// SAFETY: has the layout of `Bins` in slabs.cu
unsafe impl DeviceRepr for RawBins {}

impl<T: Real, V: Storage<T>> Slabs<T, V> {
    /// Lays out a matrix on the device; `pattern` must be its pattern. `None` if a row would have too many
    /// sums.
    pub(crate) fn of(ordered: &DeviceCsr<T>, pattern: Pattern<'_>) -> Result<Option<Self>> {
        let device = ordered.device();
        let (concurrent, shared) = (device.multiprocessors(), device.shared_memory()?);
        let first = FirstKernel::of::<T>(pattern.cols(), shared);
        let width = first.width::<T>(shared);
        if width == 0 {
            return Ok(None);
        }
        let sizes = SlabSizes {
            width,
            blocks: first.resident * concurrent,
            bins: BINS_OF_MULTIPROCESSOR * concurrent,
        };
        let Some(slabbed) = Slabbed::new(pattern, sizes) else { return Ok(None) };
        // bytes of shared memory of both kernels; the second stores the sums of a bin and the offsets of its
        // rows
        let of_slab = width * size_of::<T>() + first.beside::<T>();
        let shared = [of_slab, slabbed.most_sums * size_of::<T>() + 2 * (slabbed.most_sums + 1)]
            .map(|bytes| bytes as u32);
        let function = |name: &str| device.function_storing::<T, V>(&SOURCE, name);
        let slabs = Slabs {
            columns: device.upload(&slabbed.columns)?,
            values: device.zeros(slabbed.columns.len())?,
            entries: device.upload(&slabbed.entries)?,
            starts: device.upload(&slabbed.starts)?,
            first: device.upload(&slabbed.first)?,
            shares: device.upload(&slabbed.shares)?,
            sums: device.zeros(slabbed.sums)?,
            runs: device.upload(slabbed.runs.as_flattened())?,
            first_run: device.upload(&slabbed.first_run)?,
            places: device.upload(&slabbed.places)?,
            rows: device.upload(&slabbed.rows)?,
            offsets: device.upload(&slabbed.offsets)?,
            most_sums: slabbed.most_sums as u32,
            shared,
            threads: first.threads,
            multiply: function(first.kernel)?,
            finish: function(&format!("slabs_finish_{}", slabbed.lanes))?,
            copy_values: function("slabs_copy_values")?,
            queueing: Mutex::new(()),
        };
        device.lift_shared_limit(&slabs.multiply)?;
        device.lift_shared_limit(&slabs.finish)?;
        slabs.copy_values(ordered, Direction::ToSlots)?;
        Ok(Some(slabs))
    }

    /// Queues the copy of values between CSR order and slots.
    pub(crate) fn copy_values(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<()> {
        let (of, slots, back) =
            (self.entries.address(0), self.values.len() as i64, u32::from(direction == Direction::FromSlots));
        let (entries, values) = (ordered.values.address(0), self.values.address(0));
        let mut launch = self.device().launch(&self.copy_values);
        launch.arg(&of).arg(&slots).arg(&entries).arg(&values).arg(&back);
        // SAFETY: arguments as in slabs.cu; there is an element for each entry of the pattern that slots were
        // made from
        unsafe { launch.launch(config(self.values.len())) }?;
        Ok(())
    }

    /// `y ← A x`, for vectors that were checked against the matrix.
    pub(crate) fn multiply(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        let (device, x, y) = (self.device(), x.address(0), y.address(0));
        let raw = RawSlabs {
            columns: self.columns.address(0),
            values: self.values.address(0),
            starts: self.starts.address(0),
            first: self.first.address(0),
            shares: self.shares.address(0),
            sums: self.sums.address(0),
        };
        let bins = RawBins {
            runs: self.runs.address(0),
            first_run: self.first_run.address(0),
            places: self.places.address(0),
            rows: self.rows.address(0),
            offsets: self.offsets.address(0),
            sums: raw.sums,
            most_sums: self.most_sums,
        };
        let blocks = |count: usize, threads: u32, shared: u32| LaunchConfig {
            grid_dim: (count as u32, 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: shared,
        };
        let _queueing = lock(&self.queueing);
        let mut launch = device.launch(&self.multiply);
        launch.arg(&raw).arg(&x);
        // SAFETY: arguments as in slabs.cu; there is a share per block, whose columns are below the length of
        // `x` and fit its shared memory
        unsafe { launch.launch(blocks(self.shares.len() / 4, self.threads, self.shared[0])) }?;
        let mut launch = device.launch(&self.finish);
        launch.arg(&bins).arg(&y);
        // SAFETY: arguments as in slabs.cu; there is a bin per block, whose sums fit its shared memory; rows
        // are those of `y`
        unsafe { launch.launch(blocks(self.rows.len() - 1, THREADS, self.shared[1])) }?;
        Ok(())
    }

    pub(crate) fn device(&self) -> &Device {
        self.values.device()
    }

    /// The array of values.
    pub(crate) fn slots(&self) -> Slots {
        Slots::of::<T, V>(&self.values)
    }

    pub(crate) fn bytes(&self) -> usize {
        let slots = self.columns.bytes() + self.values.bytes() + self.entries.bytes();
        let cut = self.starts.bytes() + self.first.bytes() + self.shares.bytes();
        let runs = self.runs.bytes() + self.first_run.bytes();
        let bins = self.places.bytes() + self.rows.bytes() + self.offsets.bytes();
        slots + cut + self.sums.bytes() + runs + bins
    }
}
