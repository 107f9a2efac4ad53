//! Rows in slices on a device: ELLPACK, ELLPACK-R, SELL-P and SELL-C-σ.
//!
//! Column indices are stored in 16 bits, as offsets from the smallest of the 32 that a warp reads together,
//! if all offsets of the matrix fit; otherwise in 32 bits. sliced_rows.cu describes the layout and the memory
//! traffic.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::{MOST_VALUES, PACK_BYTES, THREADS};
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::matrix::columns::{COLUMNS, Many, RawColumns, Reads};
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction, RowStarts};
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Kernel, Layout};
use crate::cuda::matrix::slices::{Lane, RawSliceArrays, SliceArrays, Slices, address, shared_by};
use crate::cuda::tuning::SLOTS_IN_FLIGHT;
use cudarc::driver::DeviceRepr;
use rayon::prelude::*;
use std::sync::Arc;

pub use crate::cuda::matrix::slices::Widths;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "sliced.cu",
    text: concat!(include_str!("sliced_rows.cu"), "#line 1 \"sliced.cu\"\n", include_str!("sliced.cu")),
    constants: constants![SLOTS_IN_FLIGHT],
    mirrors: &[
        mirror!("Sliced<u32>" = RawSliced { arrays.starts, arrays.order, arrays.bases, arrays.columns, lengths, values, rows, slices, width, lanes }),
        mirror!("Sliced<u16>" = RawSliced { arrays.starts, arrays.order, arrays.bases, arrays.columns, lengths, values, rows, slices, width, lanes }),
    ],
};

/// The kernels for several vectors.
pub(crate) const MANY: Source = Source {
    file: "sliced_many.cu",
    text: concat!(
        include_str!("sliced_rows.cu"),
        include_str!("../matrix/columns.cu"),
        include_str!("../matrix/packed.cu"),
        include_str!("sliced_packed.cu"),
        "#line 1 \"sliced_many.cu\"\n",
        include_str!("sliced_many.cu")
    ),
    constants: constants![SLOTS_IN_FLIGHT, COLUMNS],
    mirrors: &[mirror!("Columns" = RawColumns { x, y, count, width })],
};

/// Lanes per row for a mean row length. Layouts that pad all rows to one length may have more.
pub fn lanes(rows: usize, mean_length: f64, multiprocessors: usize) -> usize {
    shared_by(rows, mean_length, SLOTS_IN_FLIGHT, multiprocessors)
}

/// Slots per load and slots in flight of a lane, for values of type `V`.
fn lane<V>() -> Lane {
    Lane { pack: (PACK_BYTES / size_of::<V>()).min(MOST_VALUES), in_flight: SLOTS_IN_FLIGHT }
}

/// A matrix of rows in slices.
#[derive(Debug)]
pub struct Sliced<T: Real, V: Storage<T> = T> {
    shape: Shape,
    /// Row offsets of the CSR entries (4 or 8 B per row), needed to copy values into slots and back. `None`
    /// after the values have moved to host memory.
    rows: Option<Arc<RowStarts>>,
    slices: SliceArrays,
    lengths: Option<Array<u32>>,
    values: Array<V>,
    kernel: Kernel<T>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawSliced {
    arrays: RawSliceArrays,
    lengths: u64,
    values: u64,
    rows: u32,
    slices: u32,
    width: u32,
    lanes: u32,
}
// SAFETY: has the layout of `Sliced` in sliced_rows.cu
unsafe impl DeviceRepr for RawSliced {}

impl<T: Real, V: Storage<T>> Sliced<T, V> {
    /// Uploads a matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], widths: Widths) -> Result<Self> {
        Sliced::of(&DeviceCsr::new(device, pattern, values)?, pattern, widths)
    }

    /// Lays out a matrix on the device; `pattern` must be its pattern.
    pub fn of(ordered: &DeviceCsr<T>, pattern: Pattern<'_>, widths: Widths) -> Result<Self> {
        ordered.check(pattern.shape(), pattern);
        let device = ordered.device();
        let slices = Slices::new::<T, V>(device, pattern, &ordered.rows, widths, lane::<V>())?;
        let length = |row: usize| pattern.row(row).len() as u32;
        let lengths = match widths {
            Widths::Lengths => {
                let lengths: Vec<u32> = (0..pattern.rows()).into_par_iter().map(length).collect();
                Some(device.upload(&lengths)?)
            }
            _ => None,
        };
        let sliced = Sliced::cut(&ordered.rows, &ordered.columns, pattern.shape(), slices, lengths)?;
        sliced.copy_values(ordered, Direction::ToSlots)?;
        Ok(sliced)
    }

    /// Lays out a matrix on the device without reading any of its arrays in host memory. Each slice is as
    /// wide as its longest row; `sort` is that of [`Widths::Each`].
    pub(crate) fn of_rows(ordered: &DeviceCsr<T>, cols: usize, sort: bool) -> Result<Self> {
        let sliced = Sliced::without_values(&ordered.rows, &ordered.columns, cols, sort)?;
        sliced.copy_values(ordered, Direction::ToSlots)?;
        Ok(sliced)
    }

    /// Like [`Sliced::of_rows`], but leaves the values uninitialized.
    pub(crate) fn without_values(
        rows: &Arc<RowStarts>,
        columns: &Array<u32>,
        cols: usize,
        sort: bool,
    ) -> Result<Self> {
        let entries = columns.len();
        let slices = Slices::each::<T, V>(columns.device(), rows, entries, lane::<V>(), sort)?;
        Sliced::cut(rows, columns, Shape { rows: rows.count(), cols, entries }, slices, None)
    }

    /// Copies `numbers`, one for each entry in CSR order, into the slots, times a factor.
    pub(crate) fn take_scaled<U: Real>(&self, rows: &RowStarts, numbers: &Array<U>, factor: U) -> Result<()>
    where
        V: Storage<U>,
    {
        assert!(
            rows.count() == self.shape.rows && numbers.len() == self.shape.entries,
            "a number for each entry"
        );
        self.slices.scale_values(rows, numbers, factor, &self.values)
    }

    fn cut(
        rows: &Arc<RowStarts>,
        columns: &Array<u32>,
        shape: Shape,
        slices: Slices,
        lengths: Option<Array<u32>>,
    ) -> Result<Self> {
        let device = columns.device();
        let slices = SliceArrays::new::<T, V>(slices, rows, columns)?;
        let name = match (slices.has_short_columns(), slices.pack) {
            (false, 1) => "sliced_wide",
            (false, _) => "sliced_wide_packed",
            (true, 1) => "sliced_short",
            (true, _) => "sliced_short_packed",
        };
        // `lanes: 1` sets no limit on the number of vectors, because the lanes of a row may be spread over
        // warps
        let reads = Reads::Packed { lanes: 1 };
        let many = Many::new::<V>(&MANY, format!("{name}_many"), reads, THREADS);
        Ok(Sliced {
            shape,
            rows: Some(rows.clone()),
            lengths,
            values: device.uninitialized(slices.slots())?,
            kernel: Kernel::load::<V>(device, &SOURCE, name, THREADS)?.with_many(many),
            slices,
        })
    }

    /// Returns whether columns are stored in 16 bits.
    pub fn has_short_columns(&self) -> bool {
        self.slices.has_short_columns()
    }

    /// Returns whether rows were sorted.
    pub fn is_sorted(&self) -> bool {
        self.slices.is_sorted()
    }

    /// Number of consecutive slots per load of a lane.
    pub(crate) fn pack(&self) -> usize {
        self.slices.pack
    }

    /// Lanes per row.
    pub fn lanes(&self) -> usize {
        self.slices.lanes
    }

    /// Number of slots, including padding.
    pub fn slots(&self) -> usize {
        self.values.len()
    }
}

// SAFETY: slices cover the rows of `y`, their columns are below the length of `x`, and `values` has a value for
// each slot of the slices; `lengths` has an element for each row
unsafe impl<T: Real, V: Storage<T>> Layout for Sliced<T, V> {
    type Element = T;
    type Value = V;
    type Raw = RawSliced;

    fn by_column(&self) -> bool {
        false
    }

    fn raw(&self) -> RawSliced {
        RawSliced {
            arrays: self.slices.raw(),
            lengths: address(&self.lengths),
            values: self.values.address(0),
            rows: self.slices.rows as u32,
            slices: self.slices.count as u32,
            width: self.slices.width as u32,
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
        let lengths = self.lengths.as_ref().map_or(0, Array::bytes);
        self.slices.bytes() + lengths + self.values.bytes()
    }

    fn spill(&mut self) -> Result<usize> {
        self.rows = None;
        self.values.spill()?;
        Ok(self.values.bytes() + self.slices.spill_columns()?)
    }

    fn values(&self) -> &Array<V> {
        &self.values
    }

    fn rows(&self) -> Option<&Arc<RowStarts>> {
        self.rows.as_ref()
    }

    fn columns(&self, rows: &RowStarts) -> Result<Option<Array<u32>>> {
        self.slices.columns::<T, V>(rows, self.shape.entries).map(Some)
    }

    fn copy_values(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<()> {
        self.slices.copy_values(&ordered.rows, &ordered.values, &self.values, direction)
    }
}
