//! BSR (small dense blocks) on a device, in slices of block rows. bsr_blocks.cu describes the layout and the
//! memory traffic.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::launch::index;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::matrix::columns::{COLUMNS, Many, RawColumns, Reads};
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction, RowStarts};
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Kernel, Layout, copy_by_column};
use crate::cuda::matrix::slices::{Lane, RawSliceArrays, SliceArrays, Slices, Widths, shared_by};
use crate::cuda::tuning::BLOCKS_IN_FLIGHT;
use cudarc::driver::{CudaFunction, DeviceRepr};

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "bsr.cu",
    text: concat!(include_str!("bsr_blocks.cu"), "#line 1 \"bsr.cu\"\n", include_str!("bsr.cu")),
    constants: constants![],
    mirrors: &[
        mirror!("Bsr<u32>" = RawBsr { arrays.starts, arrays.order, arrays.bases, arrays.columns, values, rows, slices, lanes }),
        mirror!("Bsr<u16>" = RawBsr { arrays.starts, arrays.order, arrays.bases, arrays.columns, values, rows, slices, lanes }),
    ],
};

/// The kernels for several vectors.
pub(crate) const MANY: Source = Source {
    file: "bsr_many.cu",
    text: concat!(
        include_str!("bsr_blocks.cu"),
        include_str!("../matrix/columns.cu"),
        include_str!("../matrix/packed.cu"),
        "#line 1 \"bsr_many.cu\"\n",
        include_str!("bsr_many.cu")
    ),
    constants: constants![COLUMNS],
    mirrors: &[mirror!("Columns" = RawColumns { x, y, count, width })],
};

/// Lanes per block row for a mean number of blocks per block row.
pub fn lanes(block_rows: usize, mean_length: f64, multiprocessors: usize) -> usize {
    shared_by(block_rows, mean_length, BLOCKS_IN_FLIGHT, multiprocessors)
}

/// A matrix of small dense blocks.
#[derive(Debug)]
pub struct Bsr<T: Real, V: Storage<T> = T> {
    shape: Shape,
    /// Rows per block.
    size: usize,
    /// Slices of block rows.
    slices: SliceArrays,
    values: Array<V>,
    kernel: Kernel<T>,
    copy_values: CudaFunction,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawBsr {
    arrays: RawSliceArrays,
    values: u64,
    rows: u32,
    slices: u32,
    lanes: u32,
}
// SAFETY: has the layout of `Bsr` in bsr_blocks.cu
unsafe impl DeviceRepr for RawBsr {}

impl<T: Real, V: Storage<T>> Bsr<T, V> {
    /// Uploads a matrix with a value for each entry of the pattern, in blocks of `size` rows and columns: 2,
    /// 3, 4 or 6. Every entry must be in one of the `blocks`.
    pub fn new(
        device: &Device,
        size: usize,
        blocks: Pattern<'_>,
        pattern: Pattern<'_>,
        values: &[T],
    ) -> Result<Self> {
        let scalar = (blocks.rows() * size, blocks.cols() * size);
        assert_eq!((pattern.rows(), pattern.cols()), scalar, "blocks of the size make up the matrix");
        index("the number of rows", pattern.rows())?;
        let ordered = DeviceCsr::new(device, pattern, values)?;
        let lane = Lane { pack: 1, in_flight: BLOCKS_IN_FLIGHT };
        let slices = {
            let (rows, columns) =
                (RowStarts::new(device, blocks.offsets())?, device.upload(blocks.columns())?);
            let slices = Slices::new::<T, V>(device, blocks, &rows, Widths::Each { sort: true }, lane)?;
            SliceArrays::new::<T, V>(slices, &rows, &columns)?
        };
        let columns = if slices.has_short_columns() { "short" } else { "wide" };
        let name = format!("bsr_{size}_{columns}");
        let reads = Reads::Packed { lanes: slices.lanes };
        let many = Many::new::<V>(&MANY, format!("{name}_many"), reads, THREADS);
        let bsr = Bsr {
            shape: pattern.shape(),
            size,
            values: device.zeros(slices.slots() * size * size)?,
            kernel: Kernel::load::<V>(device, &SOURCE, &name, THREADS)?.with_many(many),
            copy_values: device.function_storing::<T, V>(&SOURCE, &format!("bsr_copy_values_{columns}"))?,
            slices,
        };
        bsr.copy_values(&ordered, Direction::ToSlots)?;
        Ok(bsr)
    }

    /// Returns whether block columns are stored in 16 bits.
    pub fn has_short_columns(&self) -> bool {
        self.slices.has_short_columns()
    }

    /// Returns whether block rows were sorted.
    pub fn is_sorted(&self) -> bool {
        self.slices.is_sorted()
    }

    /// Lanes per block row.
    pub fn lanes(&self) -> usize {
        self.slices.lanes
    }
}

// SAFETY: slices cover the block rows of the matrix, their columns are below its number of block columns, and
// `values` has a block for each slot
unsafe impl<T: Real, V: Storage<T>> Layout for Bsr<T, V> {
    type Element = T;
    type Value = V;
    type Raw = RawBsr;

    fn by_column(&self) -> bool {
        true
    }

    fn raw(&self) -> RawBsr {
        RawBsr {
            arrays: self.slices.raw(),
            values: self.values.address(0),
            rows: self.slices.rows as u32,
            slices: self.slices.count as u32,
            lanes: self.slices.lanes as u32,
        }
    }

    fn kernel(&self) -> &Kernel<T> {
        &self.kernel
    }

    fn threads(&self) -> usize {
        self.slices.count * WARP
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn bytes(&self) -> usize {
        self.slices.bytes() + self.values.bytes()
    }

    fn spill(&mut self) -> Result<usize> {
        self.values.spill()?;
        Ok(self.values.bytes() + self.slices.spill_columns()?)
    }

    fn values(&self) -> &Array<V> {
        &self.values
    }

    fn copy_values(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<()> {
        let config = config(self.shape.rows);
        // SAFETY: arguments as in bsr.cu; rows are those of the matrix
        let fits = unsafe { copy_by_column(self, &self.copy_values, ordered, direction, self.size, config) }?;
        assert!(fits, "a block for each entry");
        Ok(())
    }
}
