//! Layout and columns of matrices stored in slices (ELLPACK variants).
//!
//! A slice is processed by a warp and has at most 32 rows; if rows are long or few, several lanes share a
//! row. sliced_rows.cu describes the order of slots (stored positions, including padding). The width of each
//! slice is computed from the lengths of its rows on the device, unless all slices have the same width.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::launch::index;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::device::{Array, Device, Element, Real, Storage};
use crate::cuda::matrix::device_csr::{Direction, Misfit, RowStarts};
use crate::cuda::matrix::pattern::Pattern;
use crate::cuda::matrix::scan::scan;
use crate::cuda::tuning::{BUSY, SORTED_ROWS};
use cudarc::driver::{CudaFunction, DeviceRepr};
use rayon::prelude::*;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "slices.cu",
    text: include_str!("slices.cu"),
    constants: constants![SORTED_ROWS],
    mirrors: &[mirror!("Slices" = RawSlices { starts, order, rows, count, width, lanes, pack, longest })],
};

/// Widths of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Widths {
    /// All slices are as wide as the longest row; a lane stops at padding (ELLPACK). If rows are few and
    /// long, up to 32 lanes share a row.
    Uniform,
    /// All slices are as wide as the longest row, and there is an array of row lengths (ELLPACK-R).
    Lengths,
    /// Slices have at most this number of entries of every row; the others are stored elsewhere (HYB).
    First(usize),
    /// Each slice is as wide as its longest row (SELL-P). With `sort`, rows are sorted by length if that
    /// saves padding (SELL-C-σ).
    Each {
        /// True if rows may be sorted.
        sort: bool,
    },
}

/// Slots per load and slots in flight of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// Maximum number of consecutive slots per load.
    pub(crate) pack: usize,
    /// Number of slots in flight. The number of lanes per row is doubled only while each lane has more slots
    /// than this.
    pub(crate) in_flight: usize,
}

impl Lane {
    /// Number of slots per load of a lane. `one` and `all` are the total numbers of slots with narrow and
    /// with wide loads; wide loads are chosen if they add at most 4 % of padding.
    fn packed(self, one: usize, all: usize) -> usize {
        if 25 * all <= 26 * one { self.pack } else { 1 }
    }
}

/// Partition of rows into slices.
#[derive(Debug)]
pub(crate) struct Slices {
    rows: usize,
    /// Maximum number of entries per row that are stored in slices.
    longest: usize,
    /// Lanes per row.
    lanes: usize,
    /// Number of consecutive slots per load of a lane.
    pack: usize,
    /// Total number of groups (`pack` slots for each of 32 lanes) of all slices.
    groups: usize,
    /// Number of groups per slice, if all slices have the same number; 0 otherwise.
    width: usize,
    /// Index of each slice's first group, and the end; `None` if all slices have the same number of groups.
    starts: Option<Array<u32>>,
    /// Row at each place, if rows were sorted.
    order: Option<Array<u32>>,
}

impl Slices {
    /// Cuts the rows of a pattern, whose row offsets are on a device, into slices, for vectors of `T` and
    /// values of type `V`.
    pub(crate) fn new<T: Real, V: Storage<T>>(
        device: &Device,
        pattern: Pattern<'_>,
        rows: &RowStarts,
        widths: Widths,
        lane: Lane,
    ) -> Result<Slices> {
        index("the number of rows", pattern.rows())?;
        match widths {
            Widths::Each { sort } => Slices::each::<T, V>(device, rows, pattern.entries(), lane, sort),
            _ => Slices::uniform(pattern, lane, widths, device.multiprocessors()),
        }
    }

    /// Slices of equal width. Lanes per row are chosen such that `multiprocessors` multiprocessors are kept
    /// busy.
    fn uniform(pattern: Pattern<'_>, lane: Lane, widths: Widths, multiprocessors: usize) -> Result<Slices> {
        let rows = pattern.rows();
        let longest = if let Widths::First(entries) = widths { entries } else { usize::MAX };
        let length = |row: usize| pattern.row(row).len().min(longest);
        let width = (0..rows).into_par_iter().map(length).max().unwrap_or(0);
        let lanes = match widths {
            // rows are few and long: threshold of Anzt et al. 2020
            Widths::Uniform if 100 * width > rows => width.next_power_of_two().min(WARP),
            _ => shared_by(rows, pattern.mean_length().min(width as f64), lane.in_flight, multiprocessors),
        };
        let slots = |pack: usize| width.div_ceil(pack * lanes) * pack;
        let pack = lane.packed(slots(1), slots(lane.pack));
        let width = index("the width of a row", width.div_ceil(pack * lanes))? as usize;
        let groups = rows.div_ceil(WARP / lanes) * width;
        let (slots, entries) = (groups * pack * WARP, pattern.entries());
        if slots > 40 * entries + (1 << 22) {
            return Err(Error::Padding { slots, entries });
        }
        Ok(Slices { rows, longest, lanes, pack, groups, width, starts: None, order: None })
    }

    /// Slices that are as wide as their longest row. The number of groups is computed for rows in the given
    /// order and sorted by length, for narrow and for wide loads; the best of these layouts is chosen.
    pub(crate) fn each<T: Real, V: Storage<T>>(
        device: &Device,
        rows: &RowStarts,
        entries: usize,
        lane: Lane,
        sort: bool,
    ) -> Result<Slices> {
        let count = rows.count();
        let mean = entries as f64 / count.max(1) as f64;
        let lanes = shared_by(count, mean, lane.in_flight, device.multiprocessors());
        let slices = count.div_ceil(WARP / lanes);
        let [a, b, c, d] = [(); 4].map(|()| device.uninitialized::<u32>(slices + 1));
        let (groups, order) = ([a?, b?, c?, d?], device.uninitialized(count)?);
        let (totals, cut) =
            (device.zeros::<u64>(4)?, device.function_storing::<T, V>(&SOURCE, "slices_cut")?);
        let raw = (rows.raw(), [lanes, lane.pack, usize::from(sort)].map(|number| number as u32));
        let to = groups.each_ref().map(|groups| groups.address(0));
        let (places, sums) = (order.address(0), totals.address(0));
        let mut launch = device.launch(&cut);
        launch.arg(&raw.0).arg(&raw.1[0]).arg(&raw.1[1]).arg(&raw.1[2]).arg(&places);
        launch.arg(&to[0]).arg(&to[1]).arg(&to[2]).arg(&to[3]).arg(&sums);
        // SAFETY: arguments as in slices.cu; there is an element for each row, a number of groups for each
        // slice, and four sums
        unsafe { launch.launch(config(count.div_ceil(SORTED_ROWS) * THREADS as usize)) }?;
        let mut all = [0u64; 4];
        totals.read(&mut all)?;
        let [natural, natural_packed, sorted, sorted_packed] = all.map(|groups| groups as usize);
        let [a, b, c, d] = groups;
        // sort only if rows in the given order need a tenth more groups than sorted rows and than the entries
        // alone, because sorted rows cost an order array and uncoalesced writes
        let saves = sort && 10 * natural > 11 * entries.div_ceil(WARP) && 10 * natural > 11 * sorted;
        let (one, packed) = match saves {
            true => ((sorted, c), (sorted_packed, d)),
            false => ((natural, a), (natural_packed, b)),
        };
        let pack = lane.packed(one.0, packed.0 * lane.pack);
        let (groups, starts) = if pack == 1 { one } else { packed };
        index("the number of groups", groups)?;
        scan(&starts)?;
        let (starts, order) = (Some(starts), saves.then_some(order));
        Ok(Slices { rows: count, longest: usize::MAX, lanes, pack, groups, width: 0, starts, order })
    }

    fn count(&self) -> usize {
        self.rows.div_ceil(WARP / self.lanes)
    }
}

/// Slots and columns of sliced rows, on a device.
#[derive(Debug)]
pub(crate) struct SliceArrays {
    pub(crate) rows: usize,
    /// Number of slices.
    pub(crate) count: usize,
    /// Groups per slice; 0 if slices differ.
    pub(crate) width: usize,
    /// Lanes per row.
    pub(crate) lanes: usize,
    /// Number of consecutive slots per load of a lane.
    pub(crate) pack: usize,
    longest: usize,
    slots: usize,
    starts: Option<Array<u32>>,
    order: Option<Array<u32>>,
    columns: ColumnArrays,
    copy_values: CudaFunction,
}

#[derive(Debug)]
enum ColumnArrays {
    Wide(Array<u32>),
    Short { bases: Array<u32>, offsets: Array<u16> },
}

/// Partition into slices, as passed to the kernels that fill them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawSlices {
    starts: u64,
    order: u64,
    rows: u32,
    count: u32,
    width: u32,
    lanes: u32,
    pack: u32,
    longest: u32,
}
// SAFETY: has the layout of `Slices` in slices.cu
unsafe impl DeviceRepr for RawSlices {}

impl SliceArrays {
    /// Moves the columns to host memory; starts of slices and bases of columns stay on the device.
    pub(crate) fn spill_columns(&mut self) -> Result<usize> {
        match &mut self.columns {
            ColumnArrays::Wide(columns) => columns.spill().map(|()| columns.bytes()),
            ColumnArrays::Short { offsets, .. } => offsets.spill().map(|()| offsets.bytes()),
        }
    }

    /// Slices of rows on a device, filled with their columns, for vectors of `T` and values of type `V`.
    pub(crate) fn new<T: Real, V: Storage<T>>(
        slices: Slices,
        rows: &RowStarts,
        columns: &Array<u32>,
    ) -> Result<Self> {
        let device = columns.device();
        let (count, slots) = (slices.count(), slices.groups * WARP * slices.pack);
        let bases = device.uninitialized(slices.groups * slices.pack)?;
        let mut arrays = SliceArrays {
            rows: slices.rows,
            count,
            width: slices.width,
            lanes: slices.lanes,
            pack: slices.pack,
            longest: slices.longest,
            slots,
            starts: slices.starts,
            order: slices.order,
            columns: ColumnArrays::Short { bases, offsets: device.uninitialized(slots)? },
            copy_values: device.function_storing::<T, V>(&SOURCE, "slices_copy_values")?,
        };
        if !arrays.fill_short::<T, V>(rows, columns)? {
            // free the short columns before allocating twice as much
            arrays.columns = ColumnArrays::Wide(device.zeros(0)?);
            arrays.columns = ColumnArrays::Wide(device.uninitialized(slots)?);
            arrays.fill_wide::<T, V>(rows, columns)?;
        }
        Ok(arrays)
    }

    /// Fills 16-bit columns, and returns whether 16 bits suffice.
    fn fill_short<T: Real, V: Storage<T>>(&self, rows: &RowStarts, columns: &Array<u32>) -> Result<bool> {
        let device = columns.device();
        let (fill, misfit) =
            (device.function_storing::<T, V>(&SOURCE, "slices_short")?, Misfit::none(device)?);
        let (cut, rows, from, raw) = (self.raw_slices(), rows.raw(), columns.address(0), self.raw());
        let mark = misfit.address();
        let mut launch = device.launch(&fill);
        launch.arg(&cut).arg(&rows).arg(&from).arg(&raw.bases).arg(&raw.columns).arg(&mark);
        // SAFETY: arguments as in slices.cu; arrays have as many groups and slots as the partition says
        unsafe { launch.launch(config(self.count * WARP)) }?;
        Ok(!misfit.is_set()?)
    }

    fn fill_wide<T: Real, V: Storage<T>>(&self, rows: &RowStarts, columns: &Array<u32>) -> Result<()> {
        let device = columns.device();
        let fill = device.function_storing::<T, V>(&SOURCE, "slices_wide")?;
        let (cut, rows, from, raw) = (self.raw_slices(), rows.raw(), columns.address(0), self.raw());
        let mut launch = device.launch(&fill);
        launch.arg(&cut).arg(&rows).arg(&from).arg(&raw.columns);
        // SAFETY: as in `fill_short`
        unsafe { launch.launch(config(self.count * WARP)) }?;
        Ok(())
    }

    /// The columns of the entries, for slices that hold all entries.
    pub(crate) fn columns<T: Real, V: Storage<T>>(
        &self,
        rows: &RowStarts,
        entries: usize,
    ) -> Result<Array<u32>> {
        let device = self.device();
        let (columns, read) =
            (device.uninitialized(entries)?, device.function_storing::<T, V>(&SOURCE, "slices_columns")?);
        let (cut, rows, raw, to) = (self.raw_slices(), rows.raw(), self.raw(), columns.address(0));
        let mut launch = device.launch(&read);
        launch.arg(&cut).arg(&rows).arg(&raw.bases).arg(&raw.columns).arg(&raw.columns).arg(&to);
        // SAFETY: as in `fill_short`; there are bases if columns are short, and an element for each entry
        unsafe { launch.launch(config(self.count * WARP)) }?;
        Ok(columns)
    }

    /// Queues the copy of values between CSR order and slots, for the types with which the kernel was loaded.
    pub(crate) fn copy_values<T: Real, V: Storage<T>>(
        &self,
        rows: &RowStarts,
        entries: &Array<T>,
        slots: &Array<V>,
        direction: Direction,
    ) -> Result<()> {
        assert_eq!(slots.len(), self.slots, "a value for each slot");
        let (cut, rows, back) = (self.raw_slices(), rows.raw(), u32::from(direction == Direction::FromSlots));
        let (entries, slots) = (entries.address(0), slots.address(0));
        let mut launch = self.device().launch(&self.copy_values);
        launch.arg(&cut).arg(&rows).arg(&entries).arg(&slots).arg(&back);
        // SAFETY: as in `fill_short`; there is an element for each entry
        unsafe { launch.launch(config(self.count * WARP)) }?;
        Ok(())
    }

    /// Queues the copy of values from entries to slots, times a factor.
    pub(crate) fn scale_values<T: Real, V: Storage<T>>(
        &self,
        rows: &RowStarts,
        entries: &Array<T>,
        factor: T,
        slots: &Array<V>,
    ) -> Result<()> {
        assert_eq!(slots.len(), self.slots, "a value for each slot");
        let scale = self.device().function_storing::<T, V>(&SOURCE, "slices_scale_values")?;
        let (cut, rows) = (self.raw_slices(), rows.raw());
        let (entries, slots) = (entries.address(0), slots.address(0));
        let mut launch = self.device().launch(&scale);
        launch.arg(&cut).arg(&rows).arg(&entries).arg(&factor).arg(&slots);
        // SAFETY: as in `fill_short`; there is an element for each entry
        unsafe { launch.launch(config(self.count * WARP)) }
    }

    fn device(&self) -> &Device {
        match &self.columns {
            ColumnArrays::Wide(columns) => columns.device(),
            ColumnArrays::Short { bases, .. } => bases.device(),
        }
    }

    pub(crate) fn has_short_columns(&self) -> bool {
        matches!(self.columns, ColumnArrays::Short { .. })
    }

    pub(crate) fn is_sorted(&self) -> bool {
        self.order.is_some()
    }

    /// Number of slots, including padding.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    pub(crate) fn bytes(&self) -> usize {
        let columns = match &self.columns {
            ColumnArrays::Wide(columns) => columns.bytes(),
            ColumnArrays::Short { bases, offsets } => bases.bytes() + offsets.bytes(),
        };
        let [starts, order] = [&self.starts, &self.order].map(|array| array.as_ref().map_or(0, Array::bytes));
        starts + order + columns
    }

    pub(crate) fn raw(&self) -> RawSliceArrays {
        let (bases, columns) = match &self.columns {
            ColumnArrays::Wide(columns) => (0, columns.address(0)),
            ColumnArrays::Short { bases, offsets } => (bases.address(0), offsets.address(0)),
        };
        RawSliceArrays { starts: address(&self.starts), order: address(&self.order), bases, columns }
    }

    fn raw_slices(&self) -> RawSlices {
        RawSlices {
            starts: address(&self.starts),
            order: address(&self.order),
            rows: self.rows as u32,
            count: self.count as u32,
            width: self.width as u32,
            lanes: self.lanes as u32,
            pack: self.pack as u32,
            longest: u32::try_from(self.longest).unwrap_or(u32::MAX),
        }
    }
}

/// Device address of an array; null if there is none.
pub(crate) fn address<X: Element>(array: &Option<Array<X>>) -> u64 {
    array.as_ref().map_or(0, |array| array.address(0))
}

/// [`SliceArrays`] as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawSliceArrays {
    pub(crate) starts: u64,
    pub(crate) order: u64,
    pub(crate) bases: u64,
    pub(crate) columns: u64,
}

/// Lanes per row: more than one if rows are long, and there are too few rows to fill the device.
pub(crate) fn shared_by(rows: usize, mean_length: f64, in_flight: usize, multiprocessors: usize) -> usize {
    let mut lanes = 1;
    while lanes < 8 && rows * lanes < BUSY * multiprocessors && mean_length > (lanes * in_flight) as f64 {
        lanes *= 2;
    }
    lanes
}

/// Index of each slice's first group, and the end.
pub(crate) fn group_starts(groups: &[u32]) -> Result<Vec<u32>> {
    let mut starts = Vec::with_capacity(groups.len() + 1);
    let mut end = 0usize;
    starts.push(0);
    for &groups in groups {
        end += groups as usize;
        starts.push(index("the number of groups", end)? as u32);
    }
    Ok(starts)
}

/// Length of the longest row in each slice.
pub(crate) fn longest_of(lengths: &[u32], height: usize) -> Vec<u32> {
    lengths
        .par_chunks(height)
        .with_min_len(1024)
        .map(|slice| slice.iter().copied().max().unwrap_or(0))
        .collect()
}

/// Rows sorted by descending length within windows of `window` rows.
pub(crate) fn sorted(lengths: &[u32], window: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
    let by_length = |window: &mut [u32]| window.sort_by_key(|&row| std::cmp::Reverse(lengths[row as usize]));
    order.par_chunks_mut(window).for_each(by_length);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::matrix::cases::matrices;

    fn lane(pack: usize) -> Lane {
        Lane { pack, in_flight: 8 }
    }

    #[test]
    fn slices_are_wide_enough_for_their_rows() {
        for matrix in &matrices() {
            for (widths, pack, multiprocessors) in [Widths::Uniform, Widths::Lengths, Widths::First(3)]
                .iter()
                .flat_map(|&widths| [1, 2, 4].map(|pack| (widths, pack)))
                .flat_map(|(widths, pack)| [0, 1, 132].map(|count| (widths, pack, count)))
            {
                let pattern = matrix.pattern();
                let slices = Slices::uniform(pattern, lane(pack), widths, multiprocessors).unwrap();
                let lengths = (0..slices.rows).map(|row| pattern.row(row).len().min(slices.longest));
                let slots = slices.width * slices.pack * slices.lanes;
                assert!(slots >= lengths.max().unwrap_or(0), "{}, {slices:?}", matrix.name);
                assert_eq!(slices.groups, slices.count() * slices.width);
            }
        }
    }

    #[test]
    fn long_rows_and_few_are_shared() {
        assert_eq!([5.0, 15.0, 79.0].map(|mean| shared_by(20_000, mean, 8, 132)), [1, 2, 8]);
        assert_eq!([5.0, 15.0, 79.0].map(|mean| shared_by(1_000_000, mean, 8, 132)), [1, 1, 1]);
        let matrix = &matrices()[5];
        let slices = |widths| Slices::uniform(matrix.pattern(), lane(2), widths, 132).unwrap();
        assert_eq!((slices(Widths::Uniform).lanes, slices(Widths::Uniform).count()), (32, 1));
        assert!(slices(Widths::Lengths).lanes < 32, "rows of their true lengths are not padded");
    }

    #[test]
    fn slices_of_padding_are_refused() {
        let lengths = |row: usize| if row == 7 { 5000 } else { 0 };
        let matrix = crate::cuda::matrix::cases::with_lengths(50_000, 50_000, lengths);
        let slices = |widths| Slices::uniform(matrix.pattern(), lane(1), widths, 132);
        assert!(matches!(slices(Widths::Uniform), Err(Error::Padding { .. })));
        assert!(slices(Widths::First(5)).is_ok());
    }
}
