//! A matrix on a device whose entries lie row by row, as in the pattern on the host: what layouts are filled from.

use super::device::{Array, Device, Real};
use super::error::Result;
use super::product::{Pattern, Shape};
use super::vector::copy_from;
use crate::index::Offsets;
use cudarc::driver::DeviceRepr;

/// Where the entries of rows lie.
#[derive(Debug)]
pub(super) enum Rows {
    Short(Array<u32>),
    Long(Array<u64>),
}

/// [`Rows`] as kernels see them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawRows {
    offsets: u64,
    count: u32,
    wide: u32,
}
// SAFETY: as `RowStarts` of prelude.cu
unsafe impl DeviceRepr for RawRows {}

impl Rows {
    pub(super) fn new(device: &Device, offsets: &Offsets) -> Result<Rows> {
        Ok(match offsets {
            Offsets::Short(offsets) => Rows::Short(device.upload(offsets)?),
            Offsets::Long(offsets) => Rows::Long(device.upload(offsets)?),
        })
    }

    pub(super) fn address(&self) -> u64 {
        match self {
            Rows::Short(offsets) => offsets.address(0),
            Rows::Long(offsets) => offsets.address(0),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Rows::Short(offsets) => offsets.bytes(),
            Rows::Long(offsets) => offsets.bytes(),
        }
    }

    /// How many rows.
    pub(super) fn count(&self) -> usize {
        let offsets = match self {
            Rows::Short(offsets) => offsets.len(),
            Rows::Long(offsets) => offsets.len(),
        };
        offsets - 1
    }

    pub(super) fn raw(&self) -> RawRows {
        let wide = matches!(self, Rows::Long(_)).into();
        RawRows { offsets: self.address(), count: self.count() as u32, wide }
    }
}

/// A matrix in the order of its pattern.
#[derive(Debug)]
pub struct Ordered<T: Real> {
    pub(super) rows: Rows,
    pub(super) columns: Array<u32>,
    pub(super) values: Array<T>,
}

impl<T: Real> Ordered<T> {
    /// A pattern with a value for each entry.
    pub(super) fn new(device: &Device, pattern: Pattern<'_>, values: &[T]) -> Result<Self> {
        assert_eq!(values.len(), pattern.entries(), "a value for each entry");
        Ok(Ordered {
            rows: Rows::new(device, pattern.offsets())?,
            columns: device.upload(pattern.columns())?,
            values: device.upload(values)?,
        })
    }

    /// A pattern without columns and with zeros, for the values of a matrix that was made from it.
    pub(super) fn zeros(device: &Device, made_from: Shape, pattern: Pattern<'_>) -> Result<Self> {
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        Ok(Ordered {
            rows: Rows::new(device, pattern.offsets())?,
            columns: device.zeros(0)?,
            values: device.zeros(pattern.entries())?,
        })
    }

    /// The same with values.
    pub(super) fn with_values(
        device: &Device,
        made_from: Shape,
        pattern: Pattern<'_>,
        values: &[T],
    ) -> Result<Self> {
        let mut ordered = Ordered::zeros(device, made_from, pattern)?;
        ordered.values.write(values)?;
        Ok(ordered)
    }

    /// The same with the columns of the pattern.
    pub(super) fn with_columns(mut self, pattern: Pattern<'_>) -> Result<Self> {
        self.columns = self.device().upload(pattern.columns())?;
        Ok(self)
    }

    /// New values for the pattern that it was made from.
    pub(super) fn fill(&mut self, made_from: Shape, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        self.values.write(values)
    }

    /// The values, in the order of the pattern that it was made from.
    pub(super) fn entries(&self, made_from: Shape, pattern: Pattern<'_>, values: &mut [T]) -> Result<()> {
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        self.values.read(values)
    }

    /// The values of another of the same pattern.
    pub(super) fn take(&mut self, other: &Ordered<T>) -> Result<()> {
        copy_from(&other.values, 0, &self.values)
    }

    pub(super) fn device(&self) -> &Device {
        self.values.device()
    }

    pub(super) fn bytes(&self) -> usize {
        self.rows.bytes() + self.columns.bytes() + self.values.bytes()
    }
}

/// Which way values go between the order of a pattern and the slots of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    IntoSlots,
    Back,
}

/// A mark that a kernel sets where a matrix does not fit.
pub(super) struct Misfit(Array<u32>);

impl Misfit {
    pub(super) fn none(device: &Device) -> Result<Misfit> {
        Ok(Misfit(device.zeros(1)?))
    }

    pub(super) fn address(&self) -> u64 {
        self.0.address(0)
    }

    /// Whether it was set, when all work queued before is done.
    pub(super) fn is_set(&self) -> Result<bool> {
        let mut mark = [0];
        self.0.read(&mut mark)?;
        Ok(mark != [0])
    }
}
