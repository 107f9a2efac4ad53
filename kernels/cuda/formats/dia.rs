//! Matrices stored by diagonals, on a device. dia_rows.cu describes the layout and the memory traffic.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::launch::index;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::matrix::columns::{COLUMNS, Many, RawColumns, Reads};
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction, Misfit, RowStarts};
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Kernel, Layout, copy_by_column};
use crate::cuda::tuning::ROWS_FOR_FOUR;
use cudarc::driver::{CudaFunction, DeviceRepr};

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "dia.cu",
    text: concat!(include_str!("dia_rows.cu"), "#line 1 \"dia.cu\"\n", include_str!("dia.cu")),
    constants: constants![BATCH, NOWHERE],
    mirrors: &[mirror!("Dia" = RawDia { offsets, values, rows, cols, slices, diagonals })],
};

/// The kernels for several vectors.
pub(crate) const MANY: Source = Source {
    file: "dia_many.cu",
    text: concat!(
        include_str!("dia_rows.cu"),
        include_str!("../matrix/columns.cu"),
        "#line 1 \"dia_many.cu\"\n",
        include_str!("dia_many.cu")
    ),
    constants: constants![BATCH, NOWHERE, COLUMNS],
    mirrors: &[mirror!("Columns" = RawColumns { x, y, count, width })],
};

/// Maximum number of diagonals whose offsets a kernel loads together. Guess.
pub(crate) const BATCH: usize = 8;
/// Offset that pads a batch: for every row, the column is outside the matrix.
pub(crate) const NOWHERE: u32 = 1 << 31;

/// A matrix stored by diagonals.
#[derive(Debug)]
pub struct Dia<T: Real, V: Storage<T> = T> {
    shape: Shape,
    diagonals: usize,
    /// Rows per lane.
    of_lane: usize,
    offsets: Array<u32>,
    values: Array<V>,
    kernel: Kernel<T>,
    copy_values: CudaFunction,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawDia {
    offsets: u64,
    values: u64,
    rows: u32,
    cols: u32,
    slices: u32,
    diagonals: u32,
}
// SAFETY: has the layout of `Dia` in dia_rows.cu
unsafe impl DeviceRepr for RawDia {}

impl<T: Real, V: Storage<T>> Dia<T, V> {
    /// Uploads a matrix with a value for each entry of the pattern. Entries must be on `diagonals`, which
    /// ascend: entry `(i, j)` is on diagonal `j − i`.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], diagonals: &[i64]) -> Result<Self> {
        let ordered = DeviceCsr::new(device, pattern, values)?;
        let dia = Dia::empty(device, pattern.shape(), diagonals)?;
        dia.copy_values(&ordered, Direction::ToSlots)?;
        Ok(dia)
    }

    /// Lays out a matrix on the device with `cols` columns; `None` if an entry is on none of the diagonals.
    pub(crate) fn of(ordered: &DeviceCsr<T>, cols: usize, diagonals: &[i64]) -> Result<Option<Self>> {
        let shape = Shape { rows: ordered.rows.count(), cols, entries: ordered.nnz() };
        let dia = Dia::empty(ordered.device(), shape, diagonals)?;
        Ok(dia.copies(ordered, Direction::ToSlots)?.then_some(dia))
    }

    /// A matrix of zeros on the device.
    pub(crate) fn empty(device: &Device, shape: Shape, diagonals: &[i64]) -> Result<Self> {
        index("the number of diagonals", diagonals.len())?;
        assert!(diagonals.is_sorted(), "diagonals ascend");
        let rows = index("the number of rows", shape.rows)? as usize;
        let of_lane = if rows >= ROWS_FOR_FOUR * device.multiprocessors() { 4 } else { 1 };
        let slots = rows.next_multiple_of(WARP * of_lane) * diagonals.len();
        let name = if of_lane == 1 { "dia_1" } else { "dia_4" };
        let few = if diagonals.len() <= BATCH { "_few" } else { "" };
        let many = Many::new::<V>(&MANY, format!("{name}{few}_many"), Reads::Stored, THREADS);
        Ok(Dia {
            shape,
            diagonals: diagonals.len(),
            of_lane,
            offsets: device.upload(&offsets(diagonals))?,
            values: device.zeros(slots)?,
            kernel: Kernel::load::<V>(device, &SOURCE, name, THREADS)?.with_many(many),
            copy_values: device.function_storing::<T, V>(&SOURCE, "dia_copy_values")?,
        })
    }

    /// Rows per lane.
    pub(crate) fn rows_of_lane(&self) -> usize {
        self.of_lane
    }

    /// Copies values between CSR order and slots; returns whether every entry is on one of the stored
    /// diagonals.
    fn copies(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<bool> {
        let config = config(self.shape.rows);
        // SAFETY: arguments as in dia.cu; rows are those of the matrix
        unsafe { copy_by_column(self, &self.copy_values, ordered, direction, self.of_lane, config) }
    }

    /// Copies `numbers`, one for each entry in CSR order, into the slots, times a factor; `rows` and
    /// `columns` are the CSR arrays. The returned flag is set if an entry is on none of the stored diagonals.
    pub(crate) fn take_scaled<U: Real>(
        &self,
        (rows, columns): (&RowStarts, &Array<u32>),
        numbers: &Array<U>,
        factor: U,
    ) -> Result<Misfit>
    where
        V: Storage<U>,
    {
        assert!(
            rows.count() == self.shape.rows && numbers.len() == self.shape.entries,
            "a number for each entry"
        );
        let device = self.values.device();
        let (scale, misfit) =
            (device.function_storing::<U, V>(&SOURCE, "dia_scale_values")?, Misfit::none(device)?);
        let (matrix, rows, columns, mark) = (self.raw(), rows.raw(), columns.address(0), misfit.address());
        let (entries, slots, of_lane) = (numbers.address(0), self.values.address(0), self.of_lane as u32);
        let mut launch = device.launch(&scale);
        launch
            .arg(&matrix)
            .arg(&rows)
            .arg(&columns)
            .arg(&entries)
            .arg(&factor)
            .arg(&slots)
            .arg(&of_lane)
            .arg(&mark);
        // SAFETY: as in `copies`
        unsafe { launch.launch(config(self.shape.rows)) }?;
        Ok(misfit)
    }

    fn slices(&self) -> usize {
        self.shape.rows.div_ceil(WARP * self.of_lane)
    }
}

/// Offsets modulo 2³², as the kernel adds them to rows, padded to whole batches.
fn offsets(diagonals: &[i64]) -> Vec<u32> {
    let mut offsets: Vec<u32> = diagonals.iter().map(|&offset| offset as u32).collect();
    offsets.resize(offsets.len().next_multiple_of(BATCH), NOWHERE);
    offsets
}

// SAFETY: `offsets` is padded to whole batches, and `values` has a slot for every row of every slice on every
// diagonal; the kernel checks that columns are below the length of `x`, and rows below that of `y`
unsafe impl<T: Real, V: Storage<T>> Layout for Dia<T, V> {
    type Element = T;
    type Value = V;
    type Raw = RawDia;

    fn by_column(&self) -> bool {
        true
    }

    fn raw(&self) -> RawDia {
        RawDia {
            offsets: self.offsets.address(0),
            values: self.values.address(0),
            rows: self.shape.rows as u32,
            cols: self.shape.cols as u32,
            slices: self.slices() as u32,
            diagonals: self.diagonals as u32,
        }
    }

    fn kernel(&self) -> &Kernel<T> {
        &self.kernel
    }

    fn threads(&self) -> usize {
        self.slices() * WARP
    }

    /// Number of threads. A lane processes at most two rows at a time for all vectors (four in `f32` with
    /// more than [`BATCH`] diagonals), because registers hold the sums of no more.
    fn threads_of_many(&self, _: usize) -> usize {
        self.threads() * self.of_lane.div_ceil(2)
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn bytes(&self) -> usize {
        self.offsets.bytes() + self.values.bytes()
    }

    fn spill(&mut self) -> Result<usize> {
        self.values.spill()?;
        Ok(self.values.bytes())
    }

    fn values(&self) -> &Array<V> {
        &self.values
    }

    fn copy_values(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<()> {
        assert!(self.copies(ordered, direction)?, "every entry is on a diagonal");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_come_in_batches() {
        assert_eq!(offsets(&[]), []);
        let three = offsets(&[-1, 0, 1 << 20]);
        assert_eq!(three[..3], [u32::MAX, 0, 1 << 20]);
        assert_eq!(three[3..], [NOWHERE; 5]);
        assert_eq!(offsets(&[0; 9]).len(), 16);
    }
}
