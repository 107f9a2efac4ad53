//! Where the slots of rows in slices lie, and what they hold.
//!
//! A slice is a warp's, of 32 rows or fewer: where rows are long or few, several lanes share a row. sliced.cu says where
//! slots lie.

use super::device::{Array, Device, Real};
use super::error::Result;
use super::layout::by_slices;
use super::product::Pattern;
use super::vector::index;
use crate::buffer::{Buffer, Plain};

/// Lanes of a warp.
pub(super) const WARP: usize = 32;
/// Threads of a multiprocessor that hide the latency of memory.
const BUSY: usize = 1024;
/// Rows are sorted by length within windows of so many.
const WINDOW: usize = 768;
/// No entry here: the kernel skips it.
const PADDING: u32 = u32::MAX;
/// The same of 16 bits.
const SHORT_PADDING: u16 = u16::MAX;

/// How wide slices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Widths {
    /// All as the longest row; a lane ends where it meets padding only (ELLPACK). Long rows of few are shared by up to 32
    /// lanes.
    Uniform,
    /// The same, with the length of every row (ELLPACK-R).
    Lengths,
    /// The first entries of every row, so many at most; the rest is stored elsewhere (HYB).
    First(usize),
    /// Each as its longest row (SELL-P); `sort` rows by length where that saves padding (SELL-C-σ).
    Each {
        /// Whether rows may be sorted.
        sort: bool,
    },
}

/// What a lane reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// Neighbouring slots that one load may hold.
    pub(super) pack: usize,
    /// Slots that are in flight at once: rows are not shared where that leaves less to a lane.
    pub(super) in_flight: usize,
}

/// Where slots lie.
#[derive(Debug)]
pub(super) struct Slices {
    pub(super) rows: usize,
    /// Entries of a row that are stored, at most.
    longest: usize,
    /// Lanes of a row.
    pub(super) lanes: usize,
    /// Neighbouring slots of a lane.
    pub(super) pack: usize,
    starts: Starts,
    /// The row at each place, where rows were sorted.
    order: Option<Vec<u32>>,
}

/// The groups at which slices start.
#[derive(Debug)]
enum Starts {
    Uniform(usize),
    Each(Vec<u32>),
}

impl Slices {
    /// `multiprocessors` is how many should be kept busy.
    pub(super) fn new(
        pattern: Pattern<'_>,
        widths: Widths,
        lane: Lane,
        multiprocessors: usize,
    ) -> Result<Slices> {
        let rows = pattern.rows();
        index("the number of rows", rows)?;
        let longest = match widths {
            Widths::First(entries) => entries,
            _ => usize::MAX,
        };
        let length = |row: usize| pattern.row(row).len().min(longest);
        let width = (0..rows).map(length).max().unwrap_or(0);
        let lanes = match widths {
            // Anzt et al. 2020
            Widths::Uniform if 100 * width > rows => width.next_power_of_two().min(WARP),
            _ => shared_by(rows, pattern.mean_length().min(width as f64), lane.in_flight, multiprocessors),
        };
        let mut lengths: Vec<u32> = (0..rows).map(|row| length(row) as u32).collect();
        let height = WARP / lanes;
        let mut order = None;
        if widths == (Widths::Each { sort: true }) {
            let by_length = sorted(&lengths);
            let at = |order: &[u32]| -> Vec<u32> { order.iter().map(|&row| lengths[row as usize]).collect() };
            let sorted = at(&by_length);
            // rows out of order cost their places and writes in pieces
            if 10 * total(&lengths, height, lanes) > 11 * total(&sorted, height, lanes) {
                order = Some(by_length);
                lengths = sorted;
            }
        }
        let uniform = !matches!(widths, Widths::Each { .. });
        let slots = |pack: usize| match uniform {
            true => width.div_ceil(pack * lanes) * pack,
            false => total(&lengths, height, pack * lanes) * pack,
        };
        // wider loads are worth little padding
        let pack = if 25 * slots(lane.pack) <= 26 * slots(1) { lane.pack } else { 1 };
        let starts = if uniform {
            Starts::Uniform(index("the width of a row", width.div_ceil(pack * lanes))? as usize)
        } else {
            let mut starts = vec![0u32];
            let mut end = 0usize;
            for slice in lengths.chunks(height) {
                end += widest(slice, pack * lanes);
                starts.push(index("the number of groups", end)? as u32);
            }
            Starts::Each(starts)
        };
        Ok(Slices { rows, longest, lanes, pack, starts, order })
    }

    /// Groups of every slice; 0 where slices differ.
    pub(super) fn width(&self) -> usize {
        match self.starts {
            Starts::Uniform(width) => width,
            Starts::Each(_) => 0,
        }
    }

    /// Rows of a slice.
    fn height(&self) -> usize {
        WARP / self.lanes
    }

    pub(super) fn slices(&self) -> usize {
        self.rows.div_ceil(self.height())
    }

    /// The group at which a slice starts.
    fn start(&self, slice: usize) -> usize {
        match &self.starts {
            Starts::Uniform(width) => slice * width,
            Starts::Each(starts) => starts[slice] as usize,
        }
    }

    /// The slot at which a slice starts.
    pub(super) fn first_slot(&self, slice: usize) -> usize {
        self.start(slice) * WARP * self.pack
    }

    /// Visits the rows of a slice: `(row, the slot of the slice that its k-th entry has)`.
    pub(super) fn visit_rows(&self, slice: usize, mut visit: impl FnMut(usize, &dyn Fn(usize) -> usize)) {
        let places = slice * self.height()..self.rows.min((slice + 1) * self.height());
        for (at, place) in places.enumerate() {
            let slot = |k: usize| {
                let lane = at * self.lanes + k / self.pack % self.lanes;
                let group = k / (self.pack * self.lanes);
                (group * WARP + lane) * self.pack + k % self.pack
            };
            visit(self.order.as_ref().map_or(place, |order| order[place] as usize), &slot);
        }
    }

    /// The row at a place, if there is one.
    #[cfg(test)]
    pub(super) fn row_at(&self, place: usize) -> Option<usize> {
        let row = self.order.as_ref().map_or(Some(place), |order| Some(*order.get(place)? as usize));
        row.filter(|_| place < self.rows)
    }

    /// The column of every slot as kernels find it; none of padding.
    #[cfg(test)]
    pub(super) fn column_of_slots(&self, pattern: Pattern<'_>) -> Vec<Option<u32>> {
        let wide = self.columns(pattern);
        let column = |(slot, &wide): (usize, &u32)| (wide, slot / (WARP * self.pack), slot % self.pack);
        let slots = wide.iter().enumerate().map(column);
        match self.short_columns(&wide) {
            None => slots.map(|(wide, ..)| (wide != PADDING).then_some(wide)).collect(),
            Some((bases, offsets)) => slots
                .zip(offsets.iter())
                .map(|((_, group, k), &offset)| {
                    (offset != SHORT_PADDING).then(|| bases[group * self.pack + k] + u32::from(offset))
                })
                .collect(),
        }
    }

    fn fill<X: Plain>(&self, pattern: Pattern<'_>, from: &[X], padding: X) -> Buffer<X> {
        by_slices(self.slices(), &|slice| self.first_slot(slice), &|slice, part| {
            part.fill(padding);
            self.visit_rows(slice, |row, slot| {
                for (k, entry) in pattern.row(row).take(self.longest).enumerate() {
                    part[slot(k)] = from[entry];
                }
            });
        })
    }

    /// The column of every slot.
    fn columns(&self, pattern: Pattern<'_>) -> Buffer<u32> {
        self.fill(pattern, pattern.columns(), PADDING)
    }

    /// The smallest column of every 32 that a warp reads at once, and the offsets of all from it, if 16 bits hold them.
    fn short_columns(&self, columns: &[u32]) -> Option<(Buffer<u32>, Buffer<u16>)> {
        let (pack, group) = (self.pack, WARP * self.pack);
        let of_group = |k: usize, slots: &[u32]| {
            let columns = || slots.iter().skip(k).step_by(pack).copied().filter(|&c| c != PADDING);
            (columns().min().unwrap_or(0), columns().max().unwrap_or(0))
        };
        let groups = columns.len() / group;
        let most = u32::from(SHORT_PADDING) - 1;
        let fits = std::sync::atomic::AtomicBool::new(true);
        let bases = by_slices(groups, &|g| g * pack, &|g, bases: &mut [u32]| {
            for (k, base) in bases.iter_mut().enumerate() {
                let (least, largest) = of_group(k, &columns[g * group..(g + 1) * group]);
                *base = least;
                if largest - least > most {
                    fits.store(false, std::sync::atomic::Ordering::Relaxed);
                }
            }
        });
        if !fits.into_inner() {
            return None;
        }
        let offsets = by_slices(groups, &|g| g * group, &|g, offsets: &mut [u16]| {
            let bases = &bases[g * pack..(g + 1) * pack];
            for (slot, offset) in offsets.iter_mut().enumerate() {
                let column = columns[g * group + slot];
                *offset =
                    if column == PADDING { SHORT_PADDING } else { (column - bases[slot % pack]) as u16 };
            }
        });
        Some((bases, offsets))
    }

    /// The value of every slot, from those of the pattern's entries.
    pub(super) fn values<T: Real>(&self, pattern: Pattern<'_>, values: &[T]) -> Buffer<T> {
        self.fill(pattern, values, T::zero())
    }
}

/// Where slots lie and which columns they hold, on a device.
#[derive(Debug)]
pub(super) struct SliceArrays {
    starts: Option<Array<u32>>,
    order: Option<Array<u32>>,
    columns: ColumnArrays,
}

#[derive(Debug)]
enum ColumnArrays {
    Wide(Array<u32>),
    Short { bases: Array<u32>, offsets: Array<u16> },
}

impl SliceArrays {
    pub(super) fn new(device: &Device, slices: &Slices, pattern: Pattern<'_>) -> Result<Self> {
        let wide = slices.columns(pattern);
        let columns = match slices.short_columns(&wide) {
            None => ColumnArrays::Wide(device.upload(&wide)?),
            Some((bases, offsets)) => {
                ColumnArrays::Short { bases: device.upload(&bases)?, offsets: device.upload(&offsets)? }
            }
        };
        let starts = match &slices.starts {
            Starts::Uniform(_) => None,
            Starts::Each(starts) => Some(device.upload(starts)?),
        };
        let order = slices.order.as_deref().map(|order| device.upload(order)).transpose()?;
        Ok(SliceArrays { starts, order, columns })
    }

    pub(super) fn has_short_columns(&self) -> bool {
        matches!(self.columns, ColumnArrays::Short { .. })
    }

    pub(super) fn is_sorted(&self) -> bool {
        self.order.is_some()
    }

    pub(super) fn bytes(&self) -> usize {
        let columns = match &self.columns {
            ColumnArrays::Wide(columns) => columns.bytes(),
            ColumnArrays::Short { bases, offsets } => bases.bytes() + offsets.bytes(),
        };
        let [starts, order] = [&self.starts, &self.order].map(|array| array.as_ref().map_or(0, Array::bytes));
        starts + order + columns
    }

    pub(super) fn raw(&self) -> RawSlices {
        let (bases, columns) = match &self.columns {
            ColumnArrays::Wide(columns) => (0, columns.address(0)),
            ColumnArrays::Short { bases, offsets } => (bases.address(0), offsets.address(0)),
        };
        RawSlices { starts: address(&self.starts), order: address(&self.order), bases, columns }
    }
}

/// The address of an array, null where there is none.
pub(super) fn address(array: &Option<Array<u32>>) -> u64 {
    array.as_ref().map_or(0, |array| array.address(0))
}

/// [`SliceArrays`] as kernels see them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawSlices {
    starts: u64,
    order: u64,
    bases: u64,
    columns: u64,
}

/// Lanes that share a row, so that long rows and few keep a device busy.
fn shared_by(rows: usize, mean_length: f64, in_flight: usize, multiprocessors: usize) -> usize {
    let mut lanes = 1;
    while lanes < 8 && rows * lanes < BUSY * multiprocessors && mean_length > (lanes * in_flight) as f64 {
        lanes *= 2;
    }
    lanes
}

/// Groups that hold the longest row of a slice.
fn widest(lengths: &[u32], row_of_group: usize) -> usize {
    (lengths.iter().copied().max().unwrap_or(0) as usize).div_ceil(row_of_group)
}

/// Groups of all slices.
fn total(lengths: &[u32], height: usize, row_of_group: usize) -> usize {
    lengths.chunks(height).map(|slice| widest(slice, row_of_group)).sum()
}

/// Rows by falling length within each window.
fn sorted(lengths: &[u32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
    for window in order.chunks_mut(WINDOW) {
        window.sort_by_key(|&row| std::cmp::Reverse(lengths[row as usize]));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::{Matrix, matrices};
    use super::*;

    fn lane(pack: usize) -> Lane {
        Lane { pack, in_flight: 8 }
    }

    /// What the kernel reads, lane by lane.
    fn walk(layout: &Slices, widths: Widths, matrix: &Matrix) -> Vec<(usize, usize, f64)> {
        let pattern = matrix.pattern();
        let columns = layout.column_of_slots(pattern);
        let values = layout.values(pattern, &matrix.values);
        let slots = layout.first_slot(layout.slices());
        assert_eq!((columns.len(), values.len()), (slots, slots));
        let (pack, lanes) = (layout.pack, layout.lanes);
        let mut triplets = vec![];
        let mut written = vec![false; layout.rows];
        for slice in 0..layout.slices() {
            let (start, end) = (layout.start(slice), layout.start(slice + 1));
            for lane in 0..WARP {
                let place = slice * (WARP / lanes) + lane / lanes;
                let row = layout.row_at(place);
                let mut groups = end - start;
                if widths == Widths::Lengths {
                    groups = pattern.row(place).len().div_ceil(pack * lanes);
                }
                let mut stopped = false;
                for group in start..start + groups {
                    for k in 0..pack {
                        let slot = (group * WARP + lane) * pack + k;
                        match (row, columns[slot]) {
                            (_, None) => {
                                stopped = true;
                                assert_eq!(values[slot], 0.0);
                            }
                            (Some(row), Some(column)) => {
                                // early stops need padding at the end of a lane only
                                assert!(!stopped);
                                triplets.push((row, column as usize, values[slot]));
                            }
                            (None, Some(column)) => panic!("column {column} of no row"),
                        }
                    }
                }
                if let (Some(row), 0) = (row, lane % lanes) {
                    assert!(!std::mem::replace(&mut written[row], true));
                }
            }
        }
        assert!(written.iter().all(|&w| w), "every row is written");
        triplets.sort_by_key(|&(row, column, _)| (row, column));
        triplets
    }

    #[test]
    fn slices_hold_the_matrix() {
        let all =
            [Widths::Uniform, Widths::Lengths, Widths::Each { sort: false }, Widths::Each { sort: true }];
        for matrix in &matrices() {
            for widths in all {
                for pack in [1, 2, 4] {
                    for multiprocessors in [0, 1, 132] {
                        let layout =
                            Slices::new(matrix.pattern(), widths, lane(pack), multiprocessors).unwrap();
                        let walked = walk(&layout, widths, matrix);
                        assert_eq!(walked, matrix.triplets(), "{}, {widths:?}, {layout:?}", matrix.name);
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_entries_of_rows_can_stand_alone() {
        for matrix in &matrices() {
            for entries in [0, 1, 3, 1000] {
                let widths = Widths::First(entries);
                let layout = Slices::new(matrix.pattern(), widths, lane(2), 132).unwrap();
                let mut before = (usize::MAX, 0);
                let mut first = matrix.triplets();
                first.retain(|&(row, _, _)| {
                    before = if before.0 == row { (row, before.1 + 1) } else { (row, 0) };
                    before.1 < entries
                });
                assert_eq!(walk(&layout, widths, matrix), first, "{}", matrix.name);
            }
        }
    }

    #[test]
    fn columns_are_short_where_every_group_fits() {
        let short = |matrix: &Matrix, pack| {
            let layout = Slices::new(matrix.pattern(), Widths::Each { sort: false }, lane(pack), 0).unwrap();
            layout.short_columns(&layout.columns(matrix.pattern())).is_some()
        };
        for matrix in &matrices() {
            // the k-th entries of all rows are of one column here, however far the columns are apart
            let expected = matrix.pattern().cols() < usize::from(u16::MAX) || matrix.name.starts_with("far");
            assert_eq!(short(matrix, 1), expected, "{}", matrix.name);
        }
    }

    #[test]
    fn long_rows_and_few_are_shared() {
        assert_eq!([5.0, 15.0, 79.0].map(|mean| shared_by(20_000, mean, 8, 132)), [1, 2, 8]);
        assert_eq!([5.0, 15.0, 79.0].map(|mean| shared_by(1_000_000, mean, 8, 132)), [1, 1, 1]);
        let matrix = &matrices()[5];
        let layout = Slices::new(matrix.pattern(), Widths::Uniform, lane(2), 132).unwrap();
        assert_eq!((layout.lanes, layout.slices()), (32, 1));
    }

    #[test]
    fn sorting_saves_padding_or_is_left() {
        for matrix in &matrices() {
            let slots = |sort| {
                let layout = Slices::new(matrix.pattern(), Widths::Each { sort }, lane(1), 0).unwrap();
                (layout.first_slot(layout.slices()), layout.order.is_some())
            };
            let ((natural, _), (sorted, was)) = (slots(false), slots(true));
            assert!(sorted <= natural && was == (10 * natural > 11 * sorted), "{}", matrix.name);
        }
    }
}
