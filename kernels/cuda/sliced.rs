//! Rows side by side in slices on a device: ELLPACK, ELLPACK-R, SELL-P and SELL-C-σ.
//!
//! Columns take 16 bits,
//! as offsets from the smallest of the 32 that a warp reads at once, wherever all of them fit. The kernel says where
//! slots lie, and what is moved.

use super::device::{Array, Device, Real};
use super::error::Result;
use super::module::Source;
use super::number::Scalar;
use super::product::{Kernel, Pattern, Product, check, check_square};
use super::slices::{Slices, Starts, WARP};
use super::vector::THREADS;
use cudarc::driver::DeviceRepr;

pub use super::slices::Widths;

/// The kernels.
pub(super) const SOURCE: Source = Source { file: "sliced.cu", text: include_str!("sliced.cu") };

/// A matrix of rows in slices.
#[derive(Debug)]
pub struct Sliced<T: Real> {
    cols: usize,
    entries: usize,
    layout: Slices,
    starts: Option<Array<u32>>,
    lengths: Option<Array<u32>>,
    order: Option<Array<u32>>,
    columns: AnyColumns,
    values: Array<T>,
    kernel: Kernel,
}

#[derive(Debug)]
enum AnyColumns {
    Wide(Array<u32>),
    Short { bases: Array<u32>, offsets: Array<u16> },
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Raw {
    starts: u64,
    lengths: u64,
    order: u64,
    bases: u64,
    columns: u64,
    values: u64,
    rows: u32,
    slices: u32,
    width: u32,
    lanes: u32,
}
// SAFETY: as `Sliced` of sliced.cu
unsafe impl DeviceRepr for Raw {}

impl<T: Real> Sliced<T> {
    /// A matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], widths: Widths) -> Result<Self> {
        assert_eq!(values.len(), pattern.entries(), "a value for each entry");
        let layout = Slices::new(pattern, widths, 16 / size_of::<T>(), device.multiprocessors())?;
        let wide = layout.columns(pattern);
        let (columns, name) = match (layout.short_columns(&wide), layout.pack) {
            (Some((bases, offsets)), pack) => {
                let (bases, offsets) = (device.upload(&bases)?, device.upload(&offsets)?);
                let name = if pack == 1 { "sliced_short" } else { "sliced_short_packed" };
                (AnyColumns::Short { bases, offsets }, name)
            }
            (None, 1) => (AnyColumns::Wide(device.upload(&wide)?), "sliced_wide"),
            (None, _) => (AnyColumns::Wide(device.upload(&wide)?), "sliced_wide_packed"),
        };
        let starts = match &layout.starts {
            Starts::Uniform(_) => None,
            Starts::Each(starts) => Some(device.upload(starts)?),
        };
        let lengths = match widths {
            Widths::Lengths => {
                let lengths: Vec<u32> = pattern.offsets().lengths().map(|length| length as u32).collect();
                Some(device.upload(&lengths)?)
            }
            _ => None,
        };
        Ok(Sliced {
            cols: pattern.cols(),
            entries: pattern.entries(),
            starts,
            lengths,
            order: layout.order.as_deref().map(|order| device.upload(order)).transpose()?,
            columns,
            values: device.upload(&layout.values(pattern, values))?,
            kernel: Kernel::load::<T>(device, &SOURCE, name, THREADS)?,
            layout,
        })
    }

    /// Whether columns take 16 bits.
    pub fn has_short_columns(&self) -> bool {
        matches!(self.columns, AnyColumns::Short { .. })
    }

    /// Whether rows were sorted.
    pub fn is_sorted(&self) -> bool {
        self.order.is_some()
    }

    /// Lanes that share a row.
    pub fn lanes(&self) -> usize {
        self.layout.lanes
    }

    /// Slots, those of padding included.
    pub fn slots(&self) -> usize {
        self.values.len()
    }

    fn raw(&self) -> Raw {
        let optional = |array: &Option<Array<u32>>| array.as_ref().map_or(0, |array| array.address(0));
        let (bases, columns) = match &self.columns {
            AnyColumns::Wide(columns) => (0, columns.address(0)),
            AnyColumns::Short { bases, offsets } => (bases.address(0), offsets.address(0)),
        };
        let width = match self.layout.starts {
            Starts::Uniform(width) => width,
            Starts::Each(_) => 0,
        };
        Raw {
            starts: optional(&self.starts),
            lengths: optional(&self.lengths),
            order: optional(&self.order),
            bases,
            columns,
            values: self.values.address(0),
            rows: self.layout.rows as u32,
            slices: self.layout.slices() as u32,
            width: width as u32,
            lanes: self.layout.lanes as u32,
        }
    }

    fn threads(&self) -> usize {
        self.layout.slices() * WARP
    }
}

impl<T: Real> Product<T> for Sliced<T> {
    fn rows(&self) -> usize {
        self.layout.rows
    }

    fn cols(&self) -> usize {
        self.cols
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(self, self.values.device(), x, y);
        // SAFETY: the layout made all arrays, for rows of `y` and columns below the length of `x`
        unsafe { self.kernel.product(&self.raw(), self.threads(), x, y) }
    }

    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(self, self.values.device(), x, y);
        // SAFETY: as in `product`
        unsafe { self.kernel.product_dot(&self.raw(), self.threads(), x, y) }
    }

    fn bytes(&self) -> usize {
        let optional = |array: &Option<Array<u32>>| array.as_ref().map_or(0, Array::bytes);
        let columns = match &self.columns {
            AnyColumns::Wide(columns) => columns.bytes(),
            AnyColumns::Short { bases, offsets } => bases.bytes() + offsets.bytes(),
        };
        optional(&self.starts)
            + optional(&self.lengths)
            + optional(&self.order)
            + columns
            + self.values.bytes()
    }

    fn refill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let made_from = (self.layout.rows, self.cols, self.entries);
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        assert_eq!(values.len(), pattern.entries(), "a value for each entry");
        self.values.write(&self.layout.values(pattern, values))
    }
}
