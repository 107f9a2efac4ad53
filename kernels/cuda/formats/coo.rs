//! Coordinates (COO) on a device: each warp takes an equal number of entries. coo.cu and slabs.cu describe
//! the algorithms and the memory traffic.

use crate::cost::scattering;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::launch::index;
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::formats::slab_layout::share_of_sums;
use crate::cuda::formats::slabs::{self, Slabs};
use crate::cuda::matrix::borders::{Borders, EMPTY_ROWS_PER_THREAD, Onto};
use crate::cuda::matrix::chunks::{Chunks, RawCoo, RawTaken, SOURCE, Started, TILE};
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction, RowStarts};
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Product, Slots, check, check_square};
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::vector;
use crate::cuda::tuning::{SLABS, SLABS_BYTE, SLABS_ENTRY, SLABS_SAVE, SLABS_START, SLABS_SUM_BYTE};
use crate::index::Offsets;
use cudarc::driver::CudaFunction;

/// Method by which rows whose entries are divided among several warps are summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crossing {
    /// [`Crossing::Slabs`] if columns are scattered and there are many entries, otherwise
    /// [`Crossing::CarriedOut`].
    #[default]
    Automatic,
    /// Each warp sends its part of a row, and the warp in which the row ends waits for the parts and adds
    /// them in a fixed order.
    CarriedOut,
    /// Entries are sorted by slabs of columns whose part of `x` is kept in shared memory; a second kernel
    /// adds the partial sums of a row over all slabs, in a fixed order. Falls back to `CarriedOut` if there
    /// are no entries, more than 8,192 slabs, more slots than 32-bit indices allow, or a row with more than
    /// 4,096 partial sums.
    Slabs,
}

/// Entries on a device, and the kernel that multiplies them.
#[derive(Debug)]
pub(crate) struct Coordinates<T: Real, V: Storage<T>> {
    chunks: Chunks,
    /// Number of leading entries of each row that are not stored here, but in slices (HYB).
    skip: usize,
    /// Words of [`Started`], one for each lane of each tile.
    starts: Array<u16>,
    /// For each chunk: the row of the preceding entry (`NONE` before the first), and the chunk in which that
    /// row begins.
    before: Array<u32>,
    /// The nonempty rows; `None` if all rows are nonempty. Row indices of entries count nonempty rows only.
    rows: Option<Array<u32>>,
    columns: Array<u32>,
    values: Array<V>,
    /// Buffers for the parts of rows that cross chunks, and the empty rows.
    borders: Borders<T>,
    multiply: CudaFunction,
    copy_values: CudaFunction,
}

impl<T: Real, V: Storage<T>> Coordinates<T, V> {
    /// Lays out all entries of a matrix on the device except the first `skip` of every row; `pattern` must be
    /// the pattern of the matrix.
    pub(crate) fn of(ordered: &DeviceCsr<T>, pattern: Pattern<'_>, skip: usize, onto: Onto) -> Result<Self> {
        let device = ordered.device();
        let chunks = Chunks::of_whole_rows(pattern, skip, device.multiprocessors())?;
        let borders = Borders::new(device, &chunks, onto)?;
        let multiply = match onto {
            Onto::Nothing => "coo",
            Onto::Y => "coo_add",
        };
        Coordinates::filled(ordered, pattern, (chunks, skip), borders, multiply)
    }

    fn filled(
        ordered: &DeviceCsr<T>,
        pattern: Pattern<'_>,
        (chunks, skip): (Chunks, usize),
        borders: Borders<T>,
        multiply: &str,
    ) -> Result<Self> {
        let (device, slots) = (ordered.device(), chunks.tiles * TILE);
        let started = Started::new(&chunks);
        let coordinates = Coordinates {
            starts: device.zeros(chunks.tiles * WARP)?,
            before: device.upload(started.before(&chunks).as_flattened())?,
            rows: started.rows.as_deref().map(|rows| device.upload(rows)).transpose()?,
            columns: device.zeros(slots)?,
            values: device.zeros(slots)?,
            skip,
            borders,
            multiply: device.function_storing::<T, V>(&SOURCE, multiply)?,
            copy_values: device.function_storing::<T, V>(&SOURCE, "coo_copy_values")?,
            chunks,
        };
        coordinates.fill_places(ordered, pattern, &started.at)?;
        coordinates.copy_values(ordered, Direction::ToSlots)?;
        Ok(coordinates)
    }

    fn taken(&self, ordered: &DeviceCsr<T>, here: &RowStarts, last_column: u32) -> RawTaken {
        let (all, here, columns) = (ordered.rows.raw(), here.raw(), ordered.columns.address(0));
        RawTaken { all, here, columns, skip: self.skip as u32, last_column, slots: self.values.len() as u64 }
    }

    fn fill_places(&self, ordered: &DeviceCsr<T>, pattern: Pattern<'_>, started: &Offsets) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let (device, starts) = (ordered.device(), &self.chunks.starts);
        let (fill, here) =
            (device.function_storing::<T, V>(&SOURCE, "coo_columns")?, RowStarts::new(device, starts)?);
        let row = self.chunks.row_of(self.chunks.count());
        let column = pattern.row(row).last().map_or(0, |entry| pattern.columns()[entry]);
        let (taken, columns) = (self.taken(ordered, &here, column), self.columns.address(0));
        let mut launch = device.launch(&fill);
        launch.arg(&taken).arg(&columns);
        // SAFETY: arguments as in coo.cu; the array has as many slots as `taken` says
        unsafe { launch.launch(config(self.columns.len())) }?;

        let (mark, rows) =
            (device.function_storing::<T, V>(&SOURCE, "coo_starts")?, RowStarts::new(device, started)?);
        let (rows, tiles, starts) = (rows.raw(), self.chunks.tiles as u32, self.starts.address(0));
        let mut launch = device.launch(&mark);
        launch.arg(&rows).arg(&tiles).arg(&starts);
        // SAFETY: arguments as in coo.cu; the array has a word for each lane of all tiles, and the rows are
        // freed in stream order, after the kernel
        unsafe { launch.launch(config(self.starts.len())) }?;
        Ok(())
    }

    /// Queues the copy of values between CSR order and slots.
    pub(crate) fn copy_values(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let device = ordered.device();
        let here = RowStarts::new(device, &self.chunks.starts)?;
        let (taken, back) = (self.taken(ordered, &here, 0), u32::from(direction == Direction::FromSlots));
        let (entries, values) = (ordered.values.address(0), self.values.address(0));
        let mut launch = device.launch(&self.copy_values);
        launch.arg(&taken).arg(&entries).arg(&values).arg(&back);
        // SAFETY: arguments as in coo.cu; entries are those of a pattern with as many rows and entries as
        // this one, and there are as many values as `taken` says
        unsafe { launch.launch(config(self.values.len())) }?;
        Ok(())
    }

    /// `y ← A x` or `y ← y + A x`, for vectors that were checked against the matrix.
    pub(crate) fn multiply(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        let to = y.address(0);
        let empties = self.borders.empty.len();
        if self.is_empty() && empties == 0 {
            return Ok(());
        }
        let raw = RawCoo {
            starts: self.starts.address(0),
            before: self.before.address(0),
            rows: self.rows.as_ref().map_or(0, |rows| rows.address(0)),
            empty: self.borders.empty.address(0),
            columns: self.columns.address(0),
            values: self.values.address(0),
            parts: self.borders.parts.address(0),
            empties: empties as u32,
            tiles: self.chunks.tiles as u32,
            tiles_of_chunk: self.chunks.tiles_of_chunk as u32,
        };
        let x_address = x.address(0);
        let mut launch = x.device().launch(&self.multiply);
        launch.arg(&raw).arg(&x_address).arg(&to);
        // SAFETY: arguments as in coo.cu; rows and columns were checked with the pattern, and tiles are whole
        unsafe {
            launch.launch(config((self.chunks.chunks() * WARP).max(empties.div_ceil(EMPTY_ROWS_PER_THREAD))))
        }?;
        Ok(())
    }

    /// The array of values.
    pub(crate) fn slots(&self) -> Slots {
        Slots::of::<T, V>(&self.values)
    }

    /// Returns whether there are no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.tiles == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        let rows = self.rows.as_ref().map_or(0, Array::bytes);
        self.starts.bytes()
            + self.before.bytes()
            + rows
            + self.columns.bytes()
            + self.values.bytes()
            + self.borders.bytes()
    }

    fn spill(&mut self) -> Result<usize> {
        self.starts.spill()?;
        self.columns.spill()?;
        self.values.spill()?;
        Ok(self.starts.bytes() + self.columns.bytes() + self.values.bytes())
    }
}

/// A matrix in coordinates.
#[derive(Debug)]
pub struct Coo<T: Real, V: Storage<T> = T> {
    shape: Shape,
    sorted: Sorted<T, V>,
}

/// Order of the entries.
#[derive(Debug)]
enum Sorted<T: Real, V: Storage<T>> {
    /// Sorted by rows.
    Rows(Box<Coordinates<T, V>>),
    /// Sorted by slabs of columns.
    Slabs(Box<Slabs<T, V>>),
}

impl<T: Real, V: Storage<T>> Coo<T, V> {
    /// Uploads a matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], crossing: Crossing) -> Result<Self> {
        index("the number of rows", pattern.rows())?;
        let ordered = DeviceCsr::new(device, pattern, values)?;
        let by_slabs = match crossing {
            Crossing::Slabs => true,
            Crossing::Automatic => sums_in_slabs::<T>(pattern, device.shared_memory()?).is_some(),
            Crossing::CarriedOut => false,
        };
        let slabs = if by_slabs { Slabs::of(&ordered, pattern)? } else { None };
        let sorted = match slabs {
            Some(slabs) => Sorted::Slabs(Box::new(slabs)),
            None => Sorted::Rows(Box::new(Coordinates::of(&ordered, pattern, 0, Onto::Nothing)?)),
        };
        Ok(Coo { shape: pattern.shape(), sorted })
    }

    fn device(&self) -> &Device {
        match &self.sorted {
            Sorted::Rows(coordinates) => coordinates.values.device(),
            Sorted::Slabs(slabs) => slabs.device(),
        }
    }

    fn multiply(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        match &self.sorted {
            Sorted::Rows(coordinates) => coordinates.multiply(x, y),
            Sorted::Slabs(slabs) => slabs.multiply(x, y),
        }
    }

    fn copy_values(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<()> {
        match &self.sorted {
            Sorted::Rows(coordinates) => coordinates.copy_values(ordered, direction),
            Sorted::Slabs(slabs) => slabs.copy_values(ordered, direction),
        }
    }
}

/// Estimated number of partial sums of a matrix in slabs, on a device with `shared` bytes of shared memory
/// per block. `None` if a product with entries sorted by slabs is slower than with entries sorted by rows,
/// that is, if the loads of `x` that slabs save do not outweigh the partial sums that they write and read.
///
/// Only this function decides between rows and slabs, both for [`Crossing::Automatic`] and in the choice of a
/// format, where only one of the two orders of a matrix is a candidate. The cost models of the two orders are
/// compared with those of other formats, not with each other. (For all matrices with slabs in
/// `benches/record/h200`, they would agree with this function.)
pub fn sums_in_slabs<T>(pattern: Pattern<'_>, shared: usize) -> Option<f64> {
    let entries = pattern.entries() as f64;
    let width = slabs::width::<T>(pattern.cols(), shared);
    // an upper bound of the savings (one read of `x` saved per entry) does not need the columns, which may
    // not be computed yet
    if width == 0 || !SLABS.contains(&pattern.cols().div_ceil(width)) || entries * SLABS_SAVE < SLABS_START {
        return None;
    }
    let share = share_of_sums(pattern, width);
    let gathers = entries * scattering(pattern.columns(), size_of::<T>());
    (saved_by_slabs(entries, gathers, entries * share, size_of::<T>()) > 0.0).then_some(entries * share)
}

/// Time that slabs save in a product with coordinates, in picoseconds; negative if they are slower. `gathers`
/// is the number of memory sectors of `x` read with entries sorted by rows, `sums` the number of partial
/// sums, `value` the bytes of a value.
fn saved_by_slabs(entries: f64, gathers: f64, sums: f64, value: usize) -> f64 {
    let value = value as f64;
    SLABS_SAVE * gathers
        - (SLABS_ENTRY + SLABS_BYTE * value) * entries
        - SLABS_SUM_BYTE * value * sums
        - SLABS_START
}

impl<T: Real, V: Storage<T>> Product<T> for Coo<T, V> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(self.shape, self.device(), x, y);
        self.multiply(x, y)
    }

    /// Computes the inner product in a separate launch, because several warps may contribute to one row.
    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(self.shape, self.device(), x, y);
        self.multiply(x, y)?;
        Ok(vector::dot(x, y))
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let ordered = DeviceCsr::with_values(self.device(), self.shape, pattern, values)?;
        self.copy_values(&ordered, Direction::ToSlots)
    }

    fn copy_values_to(&self, pattern: Pattern<'_>, ordered: &mut DeviceCsr<T>) -> Result<()> {
        ordered.check(self.shape, pattern);
        self.copy_values(ordered, Direction::FromSlots)
    }

    fn entries(&self, pattern: Pattern<'_>) -> Result<DeviceCsr<T>> {
        let ordered = DeviceCsr::zeros(self.device(), self.shape, pattern)?;
        self.copy_values(&ordered, Direction::FromSlots)?;
        Ok(ordered)
    }

    fn slots(&self) -> Vec<Slots> {
        match &self.sorted {
            Sorted::Rows(coordinates) => vec![coordinates.slots()],
            Sorted::Slabs(slabs) => vec![slabs.slots()],
        }
    }

    fn fill_from(&mut self, pattern: Pattern<'_>, ordered: &DeviceCsr<T>) -> Result<()> {
        ordered.check(self.shape, pattern);
        self.copy_values(ordered, Direction::ToSlots)
    }

    fn bytes(&self) -> usize {
        match &self.sorted {
            Sorted::Rows(coordinates) => coordinates.bytes(),
            Sorted::Slabs(slabs) => slabs.bytes(),
        }
    }

    fn spill(&mut self) -> Result<usize> {
        match &mut self.sorted {
            Sorted::Rows(coordinates) => coordinates.spill(),
            Sorted::Slabs(_) => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For every matrix with slabs in `benches/record/h200`, the model predicts that slabs are faster than
    /// rows.
    #[test]
    fn slabs_of_the_record_are_chosen() {
        let record = include_str!("../../../benches/record/h200/layouts.csv");
        let rows: Vec<Vec<&str>> = record.lines().map(|line| line.split(',').collect()).collect();
        let mut found = 0;
        for slabs in rows.iter().filter(|row| row[3] == "COO slabs") {
            let is_csr = |row: &&Vec<&str>| row[..3] == slabs[..3] && row[3].starts_with("CSR");
            let csr = rows.iter().find(is_csr).unwrap();
            let number = |row: &[&str], at: usize| row[at].parse::<f64>().unwrap();
            let (entries, gathers) = (number(slabs, 6), number(csr, 6));
            let value = if slabs[2] == "f64" { 8 } else { 4 };
            // bytes: an entry takes its value, 2 bytes of column and 4 bits; a sum is written and read, and
            // takes 2 bytes of position
            let of_entries = entries * (value as f64 + 2.0) + (entries / 2.0).ceil();
            let sums = (number(slabs, 5) - of_entries) / (2 * value + 2) as f64;
            assert!((0.0..=entries).contains(&sums), "{slabs:?}: {sums}");
            assert!(saved_by_slabs(entries, gathers, sums, value) > 0.0, "{slabs:?}");
            found += 1;
        }
        assert!(found > 10, "{found}");
    }
}
