//! CSR products on a device with a fixed number of lanes per row, 1 to 32, chosen by the mean row length.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::{WARP, index};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::matrix::columns::{COLUMNS, Many, RawColumns, Reads};
use crate::cuda::matrix::device_csr::{DeviceCsr, RowStarts};
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Kernel, Product, Slots, check, check_square};
use crate::cuda::solve::number::Scalar;
use crate::cuda::tuning::{BUSY, ENTRIES_PER_LANE};
use cudarc::driver::DeviceRepr;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "csr.cu",
    text: concat!(include_str!("csr_rows.cu"), "#line 1 \"csr.cu\"\n", include_str!("csr.cu")),
    constants: constants![AHEAD],
    mirrors: &[
        mirror!("Csr<u32>" = RawCsr { offsets, columns, values, rows, lanes }),
        mirror!("Csr<u64>" = RawCsr { offsets, columns, values, rows, lanes }),
    ],
};

/// The kernels for several vectors.
pub(crate) const MANY: Source = Source {
    file: "csr_many.cu",
    text: concat!(
        include_str!("csr_rows.cu"),
        include_str!("../matrix/columns.cu"),
        include_str!("../matrix/packed.cu"),
        "#line 1 \"csr_many.cu\"\n",
        include_str!("csr_many.cu")
    ),
    constants: constants![AHEAD, COLUMNS],
    mirrors: &[mirror!("Columns" = RawColumns { x, y, count, width })],
};

/// Number of entries that a thread loads before it uses the first of them. Guess.
pub(crate) const AHEAD: usize = 4;

/// A matrix in compressed sparse rows.
#[derive(Debug)]
pub struct Csr<T: Real, V: Storage<T> = T> {
    shape: Shape,
    ordered: DeviceCsr<V>,
    lanes: u32,
    kernel: Kernel<T>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawCsr {
    offsets: u64,
    columns: u64,
    values: u64,
    rows: u32,
    lanes: u32,
}
// SAFETY: has the layout of `Csr` in csr_rows.cu: fields of the same types in the same order
unsafe impl DeviceRepr for RawCsr {}

impl<T: Real, V: Storage<T>> Csr<T, V> {
    /// Uploads a matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T]) -> Result<Self> {
        Csr::of(DeviceCsr::narrowed(device, pattern, values)?, pattern)
    }

    /// Wraps a matrix on the device; `pattern` must be its pattern.
    pub(crate) fn of(ordered: DeviceCsr<V>, pattern: Pattern<'_>) -> Result<Self> {
        index("the number of rows", pattern.rows())?;
        let device = ordered.device().clone();
        let name = match &*ordered.rows {
            RowStarts::Short(_) => "csr_short",
            RowStarts::Long(_) => "csr_long",
        };
        // `lanes: 1` does not limit the number of vectors: with `width` of them a warp has 32 / width lanes, and
        // if a row has more, each thread computes the partial sums of several (csr_many.cu)
        let many = Many::new::<V>(&MANY, format!("{name}_many"), Reads::Packed { lanes: 1 }, THREADS);
        Ok(Csr {
            shape: pattern.shape(),
            ordered,
            lanes: lanes(pattern.rows(), pattern.mean_length(), device.multiprocessors()),
            kernel: Kernel::load::<V>(&device, &SOURCE, name, THREADS)?.with_many(many),
        })
    }

    /// Returns the arrays of the matrix.
    pub(crate) fn into_ordered(self) -> DeviceCsr<V> {
        self.ordered
    }

    /// Lanes per row.
    pub fn lanes(&self) -> usize {
        self.lanes as usize
    }

    fn raw(&self) -> RawCsr {
        let DeviceCsr { rows, columns, values } = &self.ordered;
        let (offsets, columns, values) = (rows.address(), columns.address(0), values.address(0));
        RawCsr { offsets, columns, values, rows: self.shape.rows as u32, lanes: self.lanes }
    }

    fn threads(&self) -> usize {
        self.shape.rows * self.lanes as usize
    }

    /// Number of threads for several vectors, packed row by row with `width` numbers per row. A warp
    /// processes at least one row.
    fn threads_of_many(&self, width: usize) -> usize {
        self.shape.rows * (self.lanes as usize * width).min(WARP)
    }
}

/// Lanes per row, a power of two up to 32: the largest number with at least [`ENTRIES_PER_LANE`] entries per
/// lane in a row of mean length (1 if there is none). More lanes, but fewer than twice the mean row length,
/// if there would be too few threads to hide memory latency.
pub(crate) fn lanes(rows: usize, mean_length: f64, multiprocessors: usize) -> u32 {
    let mut lanes = 1;
    while lanes < 32 {
        let filled = mean_length / f64::from(2 * lanes) >= ENTRIES_PER_LANE;
        let idle = rows * (lanes as usize) < BUSY * multiprocessors && f64::from(lanes) < mean_length;
        if !filled && !idle {
            break;
        }
        lanes *= 2;
    }
    lanes
}

/// A product of a matrix whose values are stored in the order of the pattern.
impl<T: Real, V: Storage<T>> Product<T> for Csr<T, V> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(self.shape, self.ordered.device(), x, y);
        // SAFETY: offsets ascend to the length of `columns` and `values`; column indices are below the length
        // of `x`
        unsafe { self.kernel.product(&self.raw(), self.threads(), x, y) }
    }

    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(self.shape, self.ordered.device(), x, y);
        // SAFETY: as in `product`
        unsafe { self.kernel.product_dot(&self.raw(), self.threads(), x, y) }
    }

    fn products(&self, x: &[&Array<T>], y: &mut [&mut Array<T>]) -> Result<()> {
        let mut single = |x: &Array<T>, y: &mut Array<T>| self.product(x, y);
        let Some(many) = self.kernel.many.as_ref().filter(|_| x.len() > 1) else {
            return x.iter().zip(y).try_for_each(|(x, y)| single(x, y));
        };
        x.iter().zip(&*y).for_each(|(x, y)| check(self.shape, self.ordered.device(), x, y));
        // SAFETY: as in `product`
        unsafe { many.products(&self.raw(), &|width| self.threads_of_many(width), (x, y), &mut single) }
    }

    fn products_dot(&self, x: &[&Array<T>], y: &mut [&mut Array<T>]) -> Result<Vec<Scalar<T>>> {
        let mut single = |x: &Array<T>, y: &mut Array<T>| self.product_dot(x, y);
        let Some(many) = self.kernel.many.as_ref().filter(|_| x.len() > 1) else {
            return x.iter().zip(y).map(|(x, y)| single(x, y)).collect();
        };
        x.iter().zip(&*y).for_each(|(x, y)| check_square(self.shape, self.ordered.device(), x, y));
        // SAFETY: as in `product`
        unsafe { many.products_dot(&self.raw(), &|width| self.threads_of_many(width), (x, y), &mut single) }
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        self.ordered.fill(self.shape, pattern, values)
    }

    fn copy_values_to(&self, pattern: Pattern<'_>, ordered: &mut DeviceCsr<T>) -> Result<()> {
        ordered.check(self.shape, pattern);
        self.ordered.copy_values_to(ordered)
    }

    fn entries(&self, pattern: Pattern<'_>) -> Result<DeviceCsr<T>> {
        self.ordered.entries(self.shape, pattern)
    }

    fn in_order(&self) -> Option<&DeviceCsr<T>> {
        self.ordered.in_order()
    }

    fn slots(&self) -> Vec<Slots> {
        vec![Slots::of::<T, V>(&self.ordered.values)]
    }

    fn fill_from(&mut self, pattern: Pattern<'_>, ordered: &DeviceCsr<T>) -> Result<()> {
        ordered.check(self.shape, pattern);
        self.ordered.take(ordered)
    }

    fn bytes(&self) -> usize {
        self.ordered.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_follow_the_length_of_rows_and_the_size_of_the_device() {
        let large = 10_000_000;
        let by_length = [0.0, 1.0, 4.0, 7.0, 15.0, 27.0, 79.0, 1000.0].map(|mean| lanes(large, mean, 132));
        assert_eq!(by_length, [1, 1, 1, 2, 4, 8, 16, 32]);
        assert_eq!([0, 20_000, 200_000].map(|rows| lanes(rows, 7.0, 132)), [8, 8, 2]);
    }
}
