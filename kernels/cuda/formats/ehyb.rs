//! EHYB: rows are divided into parts. A thread block keeps the entries of `x` with the indices of a part's
//! rows in shared memory; the matrix entries of a row in other columns are stored separately, in an extra
//! line. ehyb.cu describes the layout and the memory traffic.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::launch::index;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::{RawNumber, RawRowStarts, THREADS};
use crate::cuda::device::{Array, Device, Element, Real, Storage};
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction};
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Kernel, Product, Slots, check, check_square};
use crate::cuda::matrix::slices::{group_starts, longest_of, sorted};
use crate::cuda::solve::number::Scalar;
use crate::cuda::tuning::RESIDENT_PARTS;
use crate::parts::Parts;
use cudarc::driver::{CudaFunction, DeviceRepr};
use rayon::prelude::*;
use std::cmp::Reverse;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "ehyb.cu",
    text: include_str!("ehyb.cu"),
    constants: constants![PART_THREADS, RESIDENT_PARTS],
    mirrors: &[
        mirror!("Inside" = RawInside { slices, order, columns, values, rows, cols, height }),
        mirror!("Extra" = RawExtra<f32> | RawExtra<f64> { slices, rows, columns, values, inside, count }),
        mirror!("Entries" = RawEntries { rows, columns }),
    ],
};

/// Threads per part.
const PART_THREADS: usize = 512;

/// The number of rows per part is a multiple of this, so that a part has whole slices and, because orderings
/// keep the rows of a node together, whole nodes of 1, 2, 3, 4 or 6 rows.
const GRAIN: usize = 3 * WARP;

/// Bytes of shared memory per block that are reserved for other data than `x`.
const RESERVED: usize = 2 << 10;

/// A matrix in parts, with extra lines.
#[derive(Debug)]
pub struct Ehyb<T: Real, V: Storage<T> = T> {
    shape: Shape,
    parts: Parts,
    inside: SlicesOnDevice<u16, u16, V>,
    extra: SlicesOnDevice<u32, u32, V>,
    kernel: Kernel<T>,
    extra_kernel: Kernel<T>,
    copy_values: CudaFunction,
}

/// Slices on a device.
#[derive(Debug)]
struct SlicesOnDevice<R, C, V> {
    /// First group (a slot for each of 32 rows) of each slice, and the end.
    slices: Array<u32>,
    /// Row at each place (position in the order sorted by length).
    rows: Array<R>,
    columns: Array<C>,
    values: Array<V>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawInside {
    slices: u64,
    order: u64,
    columns: u64,
    values: u64,
    rows: u32,
    cols: u32,
    height: u32,
}
// SAFETY: has the layout of `Inside` in ehyb.cu
unsafe impl DeviceRepr for RawInside {}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawExtra<T> {
    slices: u64,
    rows: u64,
    columns: u64,
    values: u64,
    inside: RawNumber<T>,
    count: u32,
}
// SAFETY: has the layout of `Extra` in ehyb.cu
unsafe impl<T: Real> DeviceRepr for RawExtra<T> {}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawEntries {
    rows: RawRowStarts,
    columns: u64,
}
// SAFETY: has the layout of `Entries` in ehyb.cu
unsafe impl DeviceRepr for RawEntries {}

/// Rows per part on a device, by equations 1 and 2 of the paper (Chen 2022). Each resident thread block
/// counts as a processor, and its share of the shared memory as the processor's cache.
pub fn rows_per_part<T: Real>(device: &Device, rows: usize) -> Result<usize> {
    let processors = RESIDENT_PARTS * device.multiprocessors();
    Ok(crate::parts::rows_per_part(rows, processors, most_rows::<T>(device, RESIDENT_PARTS)?, GRAIN))
}

/// Maximum number of rows whose `x`, followed by a zero, fits in the shared memory of a block, if `blocks`
/// blocks are resident on a multiprocessor.
fn most_rows<T: Real>(device: &Device, blocks: usize) -> Result<usize> {
    let places = (device.shared_memory()? / blocks).saturating_sub(RESERVED) / size_of::<T>();
    Ok((places.saturating_sub(1) / WARP * WARP).min((u16::MAX as usize - 1) / WARP * WARP))
}

impl<T: Real, V: Storage<T>> Ehyb<T, V> {
    /// Uploads a matrix with a value for each entry of the pattern, in parts of `height` rows, rounded up to
    /// a multiple of 32; `None` means [`rows_per_part`].
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], height: Option<usize>) -> Result<Self> {
        index("the number of rows", pattern.rows())?;
        let height = match height {
            Some(height) => height.next_multiple_of(WARP).max(WARP),
            None => rows_per_part::<T>(device, pattern.rows())?,
        };
        let most = most_rows::<T>(device, 1)?;
        if height > most {
            return Err(Error::Window { rows: 0..height, window: height, most });
        }
        let parts = Parts::new(pattern.rows(), pattern.cols(), height);
        let PartSlices { inside, extra } = PartSlices::new(pattern, parts)?;
        let shared = (height + 1) * size_of::<T>();
        let (threads, kernel) = (PART_THREADS as u32, "ehyb_inside");
        let ehyb = Ehyb {
            shape: pattern.shape(),
            parts,
            inside: SlicesOnDevice::new(device, &inside)?,
            extra: SlicesOnDevice::new(device, &extra)?,
            kernel: Kernel::with_shared_memory::<V>(device, &SOURCE, kernel, threads, shared)?,
            extra_kernel: Kernel::load::<V>(device, &SOURCE, "ehyb_extra", THREADS)?,
            copy_values: device.function_storing::<T, V>(&SOURCE, "ehyb_copy_values")?,
        };
        let ordered = DeviceCsr::new(device, pattern, values)?;
        ehyb.fill_columns(&ordered)?;
        ehyb.copy_values(&ordered, Direction::ToSlots)?;
        Ok(ehyb)
    }

    /// Number of parts.
    pub fn parts(&self) -> usize {
        self.parts.count()
    }

    /// Number of rows with an extra line.
    pub fn extra_rows(&self) -> usize {
        self.extra.rows.len()
    }

    fn raw(&self) -> RawInside {
        let SlicesOnDevice { slices, rows, columns, values } = &self.inside;
        RawInside {
            slices: slices.address(0),
            order: rows.address(0),
            columns: columns.address(0),
            values: values.address(0),
            rows: self.shape.rows as u32,
            cols: self.shape.cols as u32,
            height: self.parts.height() as u32,
        }
    }

    /// Kernel arguments for the extra lines; `inside` is `⟨x, y⟩` without the entries of these lines.
    fn raw_extra(&self, inside: RawNumber<T>) -> RawExtra<T> {
        let SlicesOnDevice { slices, rows, columns, values } = &self.extra;
        RawExtra {
            slices: slices.address(0),
            rows: rows.address(0),
            columns: columns.address(0),
            values: values.address(0),
            inside,
            count: rows.len() as u32,
        }
    }

    /// Number of threads of the first kernel.
    fn threads(&self) -> usize {
        self.parts.count() * PART_THREADS
    }

    /// Number of threads of the kernels that fill slots.
    fn filling(&self) -> usize {
        self.shape.rows.next_multiple_of(WARP)
    }

    fn fill_columns(&self, ordered: &DeviceCsr<T>) -> Result<()> {
        let device = ordered.device();
        let fill = device.function_storing::<T, V>(&SOURCE, "ehyb_columns")?;
        let (inside, extra, from) = (self.raw(), self.raw_extra(nothing()), entries(ordered));
        let mut launch = device.launch(&fill);
        launch.arg(&inside).arg(&extra).arg(&from).arg(&inside.columns).arg(&extra.columns);
        // SAFETY: arguments as in ehyb.cu; slices were made for these entries
        unsafe { launch.launch(config(self.filling())) }?;
        Ok(())
    }

    fn copy_values(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<()> {
        let (inside, extra, from) = (self.raw(), self.raw_extra(nothing()), entries(ordered));
        let (values, back) = (ordered.values.address(0), u32::from(direction == Direction::FromSlots));
        let mut launch = ordered.device().launch(&self.copy_values);
        launch.arg(&inside).arg(&extra).arg(&from).arg(&values);
        launch.arg(&inside.values).arg(&extra.values).arg(&back);
        // SAFETY: as in `fill_columns`; the kernel visits the slots, and skips padding
        unsafe { launch.launch(config(self.filling())) }?;
        Ok(())
    }

    fn device(&self) -> &Device {
        self.inside.values.device()
    }
}

/// The constant zero, passed as `inside` to kernels that compute no inner product.
fn nothing<T: Real>() -> RawNumber<T> {
    RawNumber::constant(T::zero())
}

/// CSR offsets and columns as passed to kernels.
fn entries<T: Real>(ordered: &DeviceCsr<T>) -> RawEntries {
    RawEntries { rows: ordered.rows.raw(), columns: ordered.columns.address(0) }
}

impl<T: Real, V: Storage<T>> Product<T> for Ehyb<T, V> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(self.shape, self.device(), x, y);
        // SAFETY: parts cover the rows of `y`, and their entries of `x` and a zero fit the shared memory;
        // columns of `inside` are positions in it, and there are as many slots as the slices need
        unsafe { self.kernel.product(&self.raw(), self.threads(), x, y) }?;
        match self.extra_rows() {
            0 => Ok(()),
            // SAFETY: lines belong to different rows of `y`, and their columns are below the length of `x`
            lines => unsafe { self.extra_kernel.product(&self.raw_extra(nothing()), lines, x, y) },
        }
    }

    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(self.shape, self.device(), x, y);
        // SAFETY: as in `product`
        let inside = unsafe { self.kernel.product_dot(&self.raw(), self.threads(), x, y) }?;
        match self.extra_rows() {
            0 => Ok(inside),
            lines => {
                let extra = self.raw_extra(inside.number().raw());
                // SAFETY: as in `product`
                unsafe { self.extra_kernel.product_dot(&extra, lines, x, y) }
            }
        }
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let ordered = DeviceCsr::with_values(self.device(), self.shape, pattern, values)?;
        self.copy_values(&ordered.with_columns(pattern)?, Direction::ToSlots)
    }

    fn copy_values_to(&self, pattern: Pattern<'_>, ordered: &mut DeviceCsr<T>) -> Result<()> {
        ordered.check(self.shape, pattern);
        self.copy_values(ordered, Direction::FromSlots)
    }

    fn entries(&self, pattern: Pattern<'_>) -> Result<DeviceCsr<T>> {
        let ordered = DeviceCsr::zeros(self.device(), self.shape, pattern)?.with_columns(pattern)?;
        self.copy_values(&ordered, Direction::FromSlots)?;
        Ok(ordered)
    }

    fn slots(&self) -> Vec<Slots> {
        vec![Slots::of::<T, V>(&self.inside.values), Slots::of::<T, V>(&self.extra.values)]
    }

    fn fill_from(&mut self, pattern: Pattern<'_>, ordered: &DeviceCsr<T>) -> Result<()> {
        ordered.check(Product::shape(self), pattern);
        self.copy_values(ordered, Direction::ToSlots)
    }

    fn bytes(&self) -> usize {
        self.inside.bytes() + self.extra.bytes()
    }
}

impl<R: Element, C: Element, V: Element> SlicesOnDevice<R, C, V> {
    /// Allocates slots for slices; columns and values are zero.
    fn new(device: &Device, slices: &Slices<R>) -> Result<Self> {
        let slots = slices.groups() * WARP;
        Ok(SlicesOnDevice {
            slices: device.upload(&slices.starts)?,
            rows: device.upload(&slices.rows)?,
            columns: device.zeros(slots)?,
            values: device.zeros(slots)?,
        })
    }

    fn bytes(&self) -> usize {
        self.slices.bytes() + self.rows.bytes() + self.columns.bytes() + self.values.bytes()
    }
}

/// Rows in slices.
#[derive(Debug)]
struct Slices<R> {
    /// Row at each place (position in the order sorted by length).
    rows: Vec<R>,
    /// First group of each slice, and the end.
    starts: Vec<u32>,
}

impl<R> Slices<R> {
    /// Forms slices of rows with these lengths.
    fn new(rows: Vec<R>, lengths: &[u32]) -> Result<Slices<R>> {
        Ok(Slices { rows, starts: group_starts(&longest_of(lengths, WARP))? })
    }

    /// Total number of groups of all slices.
    fn groups(&self) -> usize {
        self.starts.last().map_or(0, |&end| end as usize)
    }
}

/// Layout of a matrix in slices.
#[derive(Debug)]
struct PartSlices {
    /// Row (within its part) at each place.
    inside: Slices<u16>,
    /// Row of each line (`yIdxER` in the paper).
    extra: Slices<u32>,
}

impl PartSlices {
    fn new(pattern: Pattern<'_>, parts: Parts) -> Result<PartSlices> {
        let length = |row: usize| {
            let entries = pattern.row(row);
            let inside = parts.inside(row, &pattern.columns()[entries.clone()]).len();
            (inside as u32, (entries.len() - inside) as u32)
        };
        let (inside, outside): (Vec<u32>, Vec<u32>) = (0..pattern.rows()).into_par_iter().map(length).unzip();

        let order = sorted(&inside, parts.height());
        let lengths: Vec<u32> = order.par_iter().map(|&row| inside[row as usize]).collect();
        let order = order.par_iter().map(|&row| (row as usize % parts.height()) as u16).collect();
        let inside = Slices::new(order, &lengths)?;

        let mut lines: Vec<u32> =
            (0..pattern.rows() as u32).filter(|&row| outside[row as usize] > 0).collect();
        lines.par_sort_by_key(|&row| Reverse(outside[row as usize]));
        let lengths: Vec<u32> = lines.par_iter().map(|&row| outside[row as usize]).collect();
        let extra = Slices::new(lines, &lengths)?;

        let (slots, entries) = ((inside.groups() + extra.groups()) * WARP, pattern.entries());
        if slots > 40 * entries + (1 << 22) {
            return Err(Error::Padding { slots, entries });
        }
        Ok(PartSlices { inside, extra })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::matrix::cases::matrices;

    #[test]
    fn every_entry_has_its_slot() {
        for matrix in &matrices() {
            let pattern = matrix.pattern();
            for height in [32, 64, 512, 2048] {
                let parts = Parts::new(pattern.rows(), pattern.cols(), height);
                let PartSlices { inside, extra } = PartSlices::new(pattern, parts).unwrap();
                let groups = |starts: &[u32], place: usize| starts[place / WARP + 1] - starts[place / WARP];
                let entries_inside =
                    |row: usize| parts.inside(row, &pattern.columns()[pattern.row(row)]).len();
                let mut stored = vec![0; pattern.rows()];
                for (place, &row) in inside.rows.iter().enumerate() {
                    let row = place / height * height + row as usize;
                    let length = entries_inside(row);
                    assert!(groups(&inside.starts, place) as usize >= length, "{}", matrix.name);
                    stored[row] += length;
                }
                for (line, &row) in extra.rows.iter().enumerate() {
                    let length = pattern.row(row as usize).len() - entries_inside(row as usize);
                    assert!(length > 0 && groups(&extra.starts, line) as usize >= length, "{}", matrix.name);
                    stored[row as usize] += length;
                }
                let lengths = (0..pattern.rows()).map(|row| pattern.row(row).len());
                assert!(stored.into_iter().eq(lengths), "{}, parts of {height}", matrix.name);
            }
        }
    }

    #[test]
    fn the_longest_come_first() {
        for matrix in &matrices() {
            let pattern = matrix.pattern();
            let PartSlices { inside, extra } =
                PartSlices::new(pattern, Parts::new(pattern.rows(), pattern.cols(), 64)).unwrap();
            let widths = |starts: &[u32]| starts.windows(2).map(|s| s[1] - s[0]).collect::<Vec<_>>();
            assert!(widths(&inside.starts).chunks(2).all(|part| part.is_sorted_by(|a, b| a >= b)));
            assert!(widths(&extra.starts).is_sorted_by(|a, b| a >= b), "{}", matrix.name);
        }
    }
}
