//! CSR matrices on a device, with entries in the order of the host's pattern; other layouts are filled from
//! them.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::RawRowStarts;
use crate::cuda::device::{Array, Device, Element, Real, Storage};
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::tuning::{REFILL_SLOTS, REFILL_THREADS};
use crate::index::Offsets;
use cudarc::driver::DeviceRepr;
use std::any::Any;
use std::sync::Arc;

/// Kernels that copy values into and out of slots (positions in a format's value array).
pub(crate) const SOURCE: Source = Source {
    file: "refill.cu",
    text: include_str!("refill.cu"),
    constants: constants![SECTOR, REFILL_THREADS; REFILL_SLOTS],
    mirrors: &[mirror!("Tiles" = RawTiles { counts, sectors, places, tile, most, slots })],
};

/// Bytes per memory sector.
pub(crate) const SECTOR: usize = 32;

/// Data for the refill of an array of slots, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawTiles {
    pub(crate) counts: u64,
    pub(crate) sectors: u64,
    pub(crate) places: u64,
    pub(crate) tile: u32,
    pub(crate) most: u32,
    pub(crate) slots: i64,
}
// SAFETY: has the layout of `Tiles` in refill.cu
unsafe impl DeviceRepr for RawTiles {}

/// Row offsets of 32 or 64 bits.
#[derive(Debug)]
pub(crate) enum RowStarts {
    Short(Array<u32>),
    Long(Array<u64>),
}

impl RowStarts {
    pub(crate) fn new(device: &Device, offsets: &Offsets) -> Result<RowStarts> {
        Ok(match offsets {
            Offsets::Short(offsets) => RowStarts::Short(device.upload(offsets)?),
            Offsets::Long(offsets) => RowStarts::Long(device.upload(offsets)?),
        })
    }

    pub(crate) fn address(&self) -> u64 {
        match self {
            RowStarts::Short(offsets) => offsets.address(0),
            RowStarts::Long(offsets) => offsets.address(0),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            RowStarts::Short(offsets) => offsets.bytes(),
            RowStarts::Long(offsets) => offsets.bytes(),
        }
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> usize {
        let offsets = match self {
            RowStarts::Short(offsets) => offsets.len(),
            RowStarts::Long(offsets) => offsets.len(),
        };
        offsets - 1
    }

    pub(crate) fn raw(&self) -> RawRowStarts {
        let wide = matches!(self, RowStarts::Long(_)).into();
        RawRowStarts { offsets: self.address(), count: self.count() as u32, wide }
    }
}

/// A CSR matrix with values of type `V`.
#[derive(Debug)]
pub struct DeviceCsr<V> {
    pub(crate) rows: Arc<RowStarts>,
    pub(crate) columns: Arc<Array<u32>>,
    pub(crate) values: Array<V>,
}

impl<V: Element> DeviceCsr<V> {
    /// Uploads a pattern and a value for each entry.
    pub(crate) fn new(device: &Device, pattern: Pattern<'_>, values: &[V]) -> Result<Self> {
        assert_eq!(values.len(), pattern.entries(), "a value for each entry");
        Ok(DeviceCsr {
            rows: Arc::new(RowStarts::new(device, pattern.offsets())?),
            columns: Arc::new(device.upload(pattern.columns())?),
            values: device.upload(values)?,
        })
    }

    /// Uploads a pattern and a value for each entry, rounded to the storage type.
    pub(crate) fn narrowed<T: Real>(device: &Device, pattern: Pattern<'_>, values: &[T]) -> Result<Self>
    where
        V: Storage<T>,
    {
        DeviceCsr::new(device, pattern, &V::narrowed(values))
    }

    /// Uploads a pattern; all values are zero.
    pub fn zeros_of(device: &Device, pattern: Pattern<'_>) -> Result<Self> {
        DeviceCsr::zeros(device, pattern.shape(), pattern)?.with_columns(pattern)
    }

    /// A zero matrix that shares the pattern of this one.
    pub fn zeros_like(&self) -> Result<Self> {
        let values = self.device().zeros(self.values.len())?;
        Ok(DeviceCsr { rows: self.rows.clone(), columns: self.columns.clone(), values })
    }

    /// Writes a value for each entry.
    pub fn write(&mut self, values: &[V]) -> Result<()> {
        self.values.write(values)
    }

    /// Panics unless the pattern has the shape `made_from`, and this matrix has as many rows, values and
    /// columns.
    pub(crate) fn check(&self, made_from: Shape, pattern: Pattern<'_>) {
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        let (rows, entries) = (self.rows.count(), self.values.len());
        assert_eq!((rows, entries), (pattern.rows(), pattern.entries()), "values of the pattern");
        assert_eq!(self.columns.len(), entries, "a column for each entry");
    }

    /// Number of entries.
    pub fn nnz(&self) -> usize {
        self.values.len()
    }

    /// Copies the values to the host, after all work queued before.
    pub fn read(&self, values: &mut [V]) -> Result<()> {
        self.values.read(values)
    }

    /// The device that stores the matrix.
    pub fn device(&self) -> &Device {
        self.values.device()
    }

    /// A zero matrix without column indices, to which values of a matrix with this pattern can be copied.
    pub(crate) fn zeros(device: &Device, made_from: Shape, pattern: Pattern<'_>) -> Result<Self> {
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        Ok(DeviceCsr {
            rows: Arc::new(RowStarts::new(device, pattern.offsets())?),
            columns: Arc::new(device.zeros(0)?),
            values: device.zeros(pattern.entries())?,
        })
    }

    /// A zero matrix without column indices; row offsets are uploaded unless `rows` provides them.
    pub(crate) fn on(
        device: &Device,
        rows: Option<&Arc<RowStarts>>,
        made_from: Shape,
        pattern: Pattern<'_>,
    ) -> Result<Self> {
        let Some(rows) = rows else { return DeviceCsr::zeros(device, made_from, pattern) };
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        let (columns, values) = (Arc::new(device.zeros(0)?), device.zeros(pattern.entries())?);
        Ok(DeviceCsr { rows: rows.clone(), columns, values })
    }

    /// A matrix with these values and without column indices; `made_from` is the expected shape of the
    /// pattern.
    pub(crate) fn with_values(
        device: &Device,
        made_from: Shape,
        pattern: Pattern<'_>,
        values: &[V],
    ) -> Result<Self> {
        let mut ordered = DeviceCsr::zeros(device, made_from, pattern)?;
        ordered.values.write(values)?;
        Ok(ordered)
    }

    /// Uploads the column indices of the pattern, unless the matrix has them already.
    pub fn with_columns(mut self, pattern: Pattern<'_>) -> Result<Self> {
        if self.columns.len() == pattern.entries() {
            return Ok(self);
        }
        self.columns = Arc::new(self.device().upload(pattern.columns())?);
        Ok(self)
    }

    /// Writes new values; the pattern must be the one that the matrix was made from.
    pub(crate) fn fill<T: Real>(&mut self, made_from: Shape, pattern: Pattern<'_>, values: &[T]) -> Result<()>
    where
        V: Storage<T>,
    {
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        self.values.write(&V::narrowed(values))
    }

    /// A copy with values widened to `T`; the pattern is shared.
    pub(crate) fn entries<T: Real>(&self, made_from: Shape, pattern: Pattern<'_>) -> Result<DeviceCsr<T>>
    where
        V: Storage<T>,
    {
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        let values = self.device().uninitialized(self.values.len())?;
        let mut copy = DeviceCsr { rows: self.rows.clone(), columns: self.columns.clone(), values };
        self.copy_values_to(&mut copy)?;
        Ok(copy)
    }

    /// This matrix, if its values are of type `T` and in device memory.
    pub(crate) fn in_order<T: Real>(&self) -> Option<&DeviceCsr<T>> {
        let same = (self as &dyn Any).downcast_ref::<DeviceCsr<T>>();
        same.filter(|ordered| !ordered.values.is_spilled() && !ordered.columns.is_spilled())
    }

    /// Copies the values of a matrix with the same pattern, rounded to the storage type.
    pub(crate) fn take<T: Real>(&mut self, other: &DeviceCsr<T>) -> Result<()>
    where
        V: Storage<T>,
    {
        self.copy_values(other, Direction::ToSlots)
    }

    /// Copies the values, widened, to a matrix with the same pattern.
    pub(crate) fn copy_values_to<T: Real>(&self, other: &mut DeviceCsr<T>) -> Result<()>
    where
        V: Storage<T>,
    {
        self.copy_values(other, Direction::FromSlots)
    }

    /// Queues the copy of values between this matrix and another one with the same pattern.
    fn copy_values<T: Real>(&self, other: &DeviceCsr<T>, direction: Direction) -> Result<()>
    where
        V: Storage<T>,
    {
        let (device, count) = (self.device(), self.values.len());
        assert!(other.values.len() == count && other.device() == device, "values of the same pattern");
        let copy = device.function_storing::<T, V>(&SOURCE, "refill_in_order")?;
        let (entries, number, slots) = (other.values.address(0), count as i64, self.values.address(0));
        let back = u32::from(direction == Direction::FromSlots);
        let mut launch = device.launch(&copy);
        launch.arg(&entries).arg(&number).arg(&slots).arg(&back);
        // SAFETY: arguments as in refill.cu; both arrays have `count` entries
        unsafe { launch.launch(config(count)) }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.rows.bytes() + self.columns.bytes() + self.values.bytes()
    }
}

/// Direction of a copy between the order of the pattern and the slots of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToSlots,
    FromSlots,
}

/// A flag that a kernel sets if a matrix does not satisfy a condition.
pub(crate) struct Misfit(Array<u32>);

impl Misfit {
    pub(crate) fn none(device: &Device) -> Result<Misfit> {
        Ok(Misfit(device.zeros(1)?))
    }

    pub(crate) fn address(&self) -> u64 {
        self.0.address(0)
    }

    /// Returns whether the flag was set; waits for all work queued before.
    pub(crate) fn is_set(&self) -> Result<bool> {
        let mut mark = [0];
        self.0.read(&mut mark)?;
        Ok(mark != [0])
    }
}
