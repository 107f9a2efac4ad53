//! Rows side by side in slices on a device: ELLPACK, ELLPACK-R, SELL-P and SELL-C-σ.
//!
//! Columns take 16 bits, as offsets from the smallest of the 32 that a warp reads at once, wherever all of them fit. The
//! kernel says where slots lie, and what is moved.

use super::device::{Array, Device, Real};
use super::error::Result;
use super::module::Source;
use super::number::Scalar;
use super::product::{Kernel, Pattern, Product, check, check_square};
use super::slices::{Lane, RawSlices, SliceArrays, Slices, WARP, address};
use super::vector::THREADS;
use cudarc::driver::DeviceRepr;

pub use super::slices::Widths;

/// The kernels.
pub(super) const SOURCE: Source = Source { file: "sliced.cu", text: include_str!("sliced.cu") };

/// A lane's slots that are in flight at once.
const IN_FLIGHT: usize = 8;

/// A matrix of rows in slices.
#[derive(Debug)]
pub struct Sliced<T: Real> {
    cols: usize,
    entries: usize,
    slices: Slices,
    arrays: SliceArrays,
    lengths: Option<Array<u32>>,
    values: Array<T>,
    kernel: Kernel,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Raw {
    slices: RawSlices,
    lengths: u64,
    values: u64,
    rows: u32,
    count: u32,
    width: u32,
    lanes: u32,
}
// SAFETY: as `Sliced` of sliced.cu
unsafe impl DeviceRepr for Raw {}

impl<T: Real> Sliced<T> {
    /// A matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], widths: Widths) -> Result<Self> {
        assert_eq!(values.len(), pattern.entries(), "a value for each entry");
        let lane = Lane { pack: 16 / size_of::<T>(), in_flight: IN_FLIGHT };
        let slices = Slices::new(pattern, widths, lane, device.multiprocessors())?;
        let arrays = SliceArrays::new(device, &slices, pattern)?;
        let lengths = match widths {
            Widths::Lengths => {
                let lengths: Vec<u32> = pattern.offsets().lengths().map(|length| length as u32).collect();
                Some(device.upload(&lengths)?)
            }
            _ => None,
        };
        let name = match (arrays.has_short_columns(), slices.pack) {
            (false, 1) => "sliced_wide",
            (false, _) => "sliced_wide_packed",
            (true, 1) => "sliced_short",
            (true, _) => "sliced_short_packed",
        };
        Ok(Sliced {
            cols: pattern.cols(),
            entries: pattern.entries(),
            arrays,
            lengths,
            values: device.upload(&slices.values(pattern, values))?,
            kernel: Kernel::load::<T>(device, &SOURCE, name, THREADS)?,
            slices,
        })
    }

    /// Whether columns take 16 bits.
    pub fn has_short_columns(&self) -> bool {
        self.arrays.has_short_columns()
    }

    /// Whether rows were sorted.
    pub fn is_sorted(&self) -> bool {
        self.arrays.is_sorted()
    }

    /// Lanes that share a row.
    pub fn lanes(&self) -> usize {
        self.slices.lanes
    }

    /// Slots, those of padding included.
    pub fn slots(&self) -> usize {
        self.values.len()
    }

    /// New values, in the order of the entries of the pattern that the matrix was made from.
    pub fn refill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let made_from = (self.slices.rows, self.cols, self.entries);
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        assert_eq!(values.len(), pattern.entries(), "a value for each entry");
        self.values.write(&self.slices.values(pattern, values))
    }

    fn raw(&self) -> Raw {
        Raw {
            slices: self.arrays.raw(),
            lengths: address(&self.lengths),
            values: self.values.address(0),
            rows: self.slices.rows as u32,
            count: self.slices.slices() as u32,
            width: self.slices.width() as u32,
            lanes: self.slices.lanes as u32,
        }
    }

    fn threads(&self) -> usize {
        self.slices.slices() * WARP
    }
}

impl<T: Real> Product<T> for Sliced<T> {
    fn rows(&self) -> usize {
        self.slices.rows
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
        let lengths = self.lengths.as_ref().map_or(0, Array::bytes);
        self.arrays.bytes() + lengths + self.values.bytes()
    }
}
