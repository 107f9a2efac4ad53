//! Common part of the formats with sliced rows: positions of slots (stored entries and padding), and columns.

use super::pattern::Pattern;
use super::{Coefficients, Variant};
use crate::error::{Error, Result};
use crate::formats::analysis::{Analysis, Model};
use crate::memory::check_free_memory;
use crate::numbers::Real;
use crate::saved::{InconsistentData, saved};
use krysp_kernels::buffer::{Buffer, Plain};
use krysp_kernels::cost::CostModel;
use krysp_kernels::cpu::formats::sliced::{
    ChunkOrder, ShortColumns, Sliced, SlicedColumns, Widths, height_step,
};
use krysp_kernels::cpu::run::threads::{CHUNK, fill_by_rows, find_row, map_rows, over_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::cuda::{formats::sliced::lanes, tuning::SLOTS_IN_FLIGHT};
use krysp_kernels::index::{Columns, Offsets};

/// Width of each slice.
#[derive(Clone, Debug)]
pub(super) enum SliceWidths {
    Uniform(usize),
    Each(Offsets),
}

/// Permutation of rows that were sorted within their chunk.
#[derive(Clone, Debug)]
struct Sorted {
    /// Row at each position.
    order: ChunkOrder,
    /// Position of each row.
    place: Vec<u16>,
}

/// Slots of rows in slices.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    rows: usize,
    height: usize,
    widths: SliceWidths,
    columns: SlicedColumns,
    sorted: Option<Sorted>,
}

// arrays of the other kind of columns are empty
saved!(impl[] Slices as |this| {
    rows: usize = &this.rows,
    height: usize = &this.height,
    widths: SliceWidths = &this.widths,
    bound: usize = &this.columns.bound(),
    is_short: bool = &matches!(this.columns, SlicedColumns::Short(_)),
    columns: Buffer<u32> = if let SlicedColumns::Wide(columns) = &this.columns { &columns[..] } else { &[] },
    bases: Vec<u32> = if let SlicedColumns::Short(columns) = &this.columns { columns.bases() } else { &[] },
    offsets: Buffer<u16> = if let SlicedColumns::Short(columns) = &this.columns { columns.offsets() } else { &[] },
    sorted: Option<Sorted> = &this.sorted,
} => {
    let slices = rows.checked_next_multiple_of(height).ok_or(InconsistentData)? / height;
    let columns_of_slots = match &widths {
        SliceWidths::Uniform(width) => slices.checked_mul(*width),
        SliceWidths::Each(offsets) => Some(offsets.end()).filter(|_| offsets.ranges() == slices),
    };
    columns_of_slots.and_then(|columns| columns.checked_mul(height)).ok_or(InconsistentData)?;
    let nothing = Columns::new(Vec::new(), 0).map_err(|_| InconsistentData)?;
    let mut read = Slices { rows, height, widths, columns: SlicedColumns::Wide(nothing), sorted };
    let places = |sorted: &Sorted| sorted.order.len() == rows && sorted.place.len() == rows;
    if !read.sorted.as_ref().is_none_or(places) || (is_short && bases.len() != slices) {
        return Err(InconsistentData);
    }
    let columns = match is_short {
        true => ShortColumns::new(bases, offsets, |slice| read.slice(slice), bound).map(SlicedColumns::Short),
        false => Columns::new(columns, bound).map(SlicedColumns::Wide),
    };
    read.columns = columns.map_err(|_| InconsistentData)?;
    Ok(read)
});

saved!(impl[] enum SliceWidths { Uniform { 0: width }, Each { 0: offsets } });

saved!(impl[] Sorted { order, place });

/// Functions of [`Format`](super::Format) of a format whose entries are all in `slices`: `source`, `values`, and slots.
macro_rules! stored_in_slices {
    () => {
        fn source(&self) -> &Source<T> {
            &self.source
        }

        fn values(&self) -> &Buffer<T> {
            &self.values
        }

        fn values_mut(&mut self) -> &mut Buffer<T> {
            &mut self.values
        }

        fn first_slot(&self, row: usize) -> usize {
            self.slices.first_slot(row)
        }

        fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
            let entries = self.source.pattern.offsets.range(row);
            entries.zip(self.slices.row_slots(row)).for_each(|(entry, slot)| visit(entry, slot));
        }
    };
}
pub(super) use stored_in_slices;

/// Maximum number of entries of a row that are stored in slices; the others are stored elsewhere.
pub(crate) type Longest = usize;

/// The part of a matrix that is stored in slices.
#[derive(Clone, Copy)]
pub(super) struct Stored<'s> {
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Columns of a row, ascending.
    pub(super) of: &'s (dyn Fn(usize) -> &'s [u32] + Sync),
}

impl Slices {
    /// Lays out the rows of a pattern; `order` holds the row (relative to its chunk) at each position.
    pub(super) fn new(
        format: &'static str,
        pattern: &Pattern,
        height: usize,
        widths: SliceWidths,
        order: Option<Vec<u16>>,
        longest: Longest,
    ) -> Result<Slices> {
        let of = |row: usize| &pattern.row(row)[..pattern.row(row).len().min(longest)];
        let stored = Stored { rows: pattern.rows(), cols: pattern.cols(), of: &of };
        Slices::of(format, stored, height, widths, order)
    }

    /// Lays out rows whose columns are given.
    pub(super) fn of(
        format: &'static str,
        stored: Stored<'_>,
        height: usize,
        widths: SliceWidths,
        order: Option<Vec<u16>>,
    ) -> Result<Slices> {
        let invalid = |_| Error::Unsuitable { format, why: "an index is out of range".into() };
        let Stored { rows, cols, .. } = stored;
        let sorted = match order {
            None => None,
            Some(order) => {
                let mut place = vec![0u16; rows];
                over_rows(rows, 1, place.as_mut_slice(), &|rows, place: &mut [u16]| {
                    let chunks = place.chunks_mut(CHUNK).zip(order[rows].chunks(CHUNK));
                    for (place, order) in chunks {
                        order.iter().enumerate().for_each(|(at, &row)| place[row as usize] = at as u16);
                    }
                });
                Some(Sorted { order: ChunkOrder::new(order).map_err(invalid)?, place })
            }
        };
        let nothing = Columns::new(Vec::new(), 0).map_err(invalid)?;
        let mut slices = Slices { rows, height, widths, columns: SlicedColumns::Wide(nothing), sorted };
        check_free_memory(format, slices.slots() as u128 * (size_of::<u32>() + size_of::<f64>()) as u128)?;
        slices.columns = match slices.short_bases(stored) {
            Some(bases) => {
                let offset = |slice: usize, column: u32| (column - bases[slice]) as u16;
                let offsets = slices.columns_as(stored, &offset);
                let slots = |slice: usize| slices.slice(slice);
                SlicedColumns::Short(ShortColumns::new(bases, offsets, slots, cols).map_err(invalid)?)
            }
            None => {
                let columns = slices.columns_as(stored, &|_, column| column);
                SlicedColumns::Wide(Columns::new(columns, cols).map_err(invalid)?)
            }
        };
        Ok(slices)
    }

    /// Column of every slot, converted by `store(slice, column)`. A padding slot repeats a column that its
    /// row or its slice uses anyway.
    fn columns_as<X: Plain>(
        &self,
        stored: Stored<'_>,
        store: &(impl Fn(usize, u32) -> X + Sync),
    ) -> Buffer<X> {
        let mut columns = Buffer::zeros(self.slots());
        fill_by_rows(self.rows, &mut columns, &|row| self.first_slot(row), &|rows, part, first| {
            for slice in rows.step_by(self.height).map(|start| start / self.height) {
                let slots = self.slice(slice);
                if slots.is_empty() {
                    continue;
                }
                let base = self.bounds(stored, slice).map_or(0, |(smallest, _)| smallest);
                for place in 0..self.height {
                    let entries = self.stored(stored, slice * self.height + place);
                    let padding = entries.last().copied().unwrap_or(base);
                    let own = &mut part[slots.start + place - first..slots.end - first];
                    let mut own = own.iter_mut().step_by(self.height);
                    for (&column, to) in entries.iter().zip(own.by_ref()) {
                        *to = store(slice, column);
                    }
                    let padding = store(slice, padding);
                    own.for_each(|to| *to = padding);
                }
            }
        });
        columns
    }

    /// Smallest column of each slice; `None` if some difference to it does not fit 16 bits.
    fn short_bases(&self, stored: Stored<'_>) -> Option<Vec<u32>> {
        let slices = self.rows.div_ceil(self.height);
        let base = |slice: usize| {
            let (smallest, largest) = self.bounds(stored, slice).unwrap_or_default();
            fit(smallest, largest).then_some(smallest)
        };
        map_rows(slices, self.height, &base).into_iter().collect()
    }

    /// Smallest and largest column of a slice, if it has any.
    fn bounds(&self, stored: Stored<'_>, slice: usize) -> Option<(u32, u32)> {
        let rows = slice * self.height..(slice + 1) * self.height;
        bounds(rows.map(|place| self.stored(stored, place)))
    }

    /// Stored columns of the row at a position.
    fn stored<'s>(&self, stored: Stored<'s>, place: usize) -> &'s [u32] {
        match self.row_at(place).filter(|&row| row < self.rows) {
            Some(row) => (stored.of)(row),
            None => &[],
        }
    }

    /// Row at a position.
    fn row_at(&self, place: usize) -> Option<usize> {
        match &self.sorted {
            None => Some(place),
            Some(sorted) => Some(place / CHUNK * CHUNK + *sorted.order.get(place)? as usize),
        }
    }

    /// Slots of a slice.
    fn slice(&self, slice: usize) -> std::ops::Range<usize> {
        match &self.widths {
            SliceWidths::Uniform(width) => slice * width * self.height..(slice + 1) * width * self.height,
            SliceWidths::Each(offsets) => {
                let range = offsets.range(slice);
                range.start * self.height..range.end * self.height
            }
        }
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.first_slot(self.rows)
    }

    /// First slot of `row`, which must be the first row of a slice. If `row` is the number of rows, the
    /// number of slots.
    pub(super) fn first_slot(&self, row: usize) -> usize {
        let slice = row.div_ceil(self.height);
        match &self.widths {
            SliceWidths::Uniform(width) => slice * width * self.height,
            SliceWidths::Each(offsets) => offsets.at(slice) * self.height,
        }
    }

    /// Slot of a row's first entry; each further entry of the row is `height` slots after the one before.
    fn slot(&self, row: usize) -> usize {
        let place = match &self.sorted {
            None => row,
            Some(sorted) => row / CHUNK * CHUNK + sorted.place[row] as usize,
        };
        self.slice(place / self.height).start + place % self.height
    }

    /// Slots of the entries of a row, in order.
    pub(super) fn row_slots(&self, row: usize) -> impl Iterator<Item = usize> {
        (self.slot(row)..).step_by(self.height)
    }

    /// Rows per slice.
    pub(super) fn height(&self) -> usize {
        self.height
    }

    /// Returns whether columns take 16 bits.
    pub(super) fn short(&self) -> bool {
        matches!(self.columns, SlicedColumns::Short(_))
    }

    /// Returns whether rows of this length fit slices of uniform width; false if slices have different
    /// widths.
    pub(super) fn hold(&self, length: usize) -> bool {
        match &self.widths {
            SliceWidths::Uniform(width) => length <= *width,
            SliceWidths::Each(_) => false,
        }
    }

    /// Returns whether rows were sorted.
    pub(super) fn sorted(&self) -> bool {
        self.sorted.is_some()
    }

    /// Bytes that a product reads, without the values.
    pub(super) fn bytes(&self) -> usize {
        let widths = match &self.widths {
            SliceWidths::Uniform(_) => 0,
            SliceWidths::Each(offsets) => offsets.bytes(),
        };
        widths + self.columns.bytes() + self.sorted.as_ref().map_or(0, |s| size_of_val(&*s.order))
    }

    /// Arrays for the kernel. With `lengths`, each slice is processed only up to its longest row.
    pub(super) fn kernel<'a, V>(&'a self, values: &'a [V], lengths: Option<&'a [u32]>) -> Sliced<'a, V> {
        let widths = match (&self.widths, lengths) {
            (SliceWidths::Uniform(width), None) => Widths::Uniform(*width),
            (SliceWidths::Uniform(width), Some(lengths)) => Widths::Longest { width: *width, lengths },
            (SliceWidths::Each(offsets), _) => Widths::Each(offsets),
        };
        Sliced {
            rows: self.rows,
            height: self.height,
            widths,
            columns: &self.columns,
            values,
            order: self.sorted.as_ref().map(|s| &s.order),
        }
    }
}

/// Smallest and largest column of some rows.
fn bounds<'p>(rows: impl Iterator<Item = &'p [u32]>) -> Option<(u32, u32)> {
    // columns ascend within a row
    let ends = rows.filter_map(|columns| Some((*columns.first()?, *columns.last()?)));
    ends.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
}

/// Returns whether the difference between the largest and the smallest column fits 16 bits.
fn fit(smallest: u32, largest: u32) -> bool {
    largest - smallest <= u32::from(u16::MAX)
}

/// Returns whether columns would take 16 bits in slices of this height, laid out as by [`Slices::new`].
pub(crate) fn has_short_columns(
    pattern: &Pattern,
    height: usize,
    order: Option<&[u16]>,
    longest: Longest,
) -> bool {
    let rows = pattern.rows();
    let row_at = |place: usize| order.map_or(place, |order| place / CHUNK * CHUNK + order[place] as usize);
    let stored = |place: usize| {
        let row = pattern.row(row_at(place));
        &row[..row.len().min(longest)]
    };
    let wide = |slice: usize| {
        let places = slice * height..rows.min((slice + 1) * height);
        bounds(places.map(stored)).is_some_and(|(smallest, largest)| !fit(smallest, largest))
    };
    find_row(rows.div_ceil(height), height, &wide).is_none()
}

/// Checks that a layout is not mostly padding: that it has `slots ≤ 20 entries + 2²⁰`.
/// The error names `instead`, the reason or a format that suits such a matrix better.
pub fn check_padding(format: &'static str, slots: usize, entries: usize, instead: &str) -> Result<()> {
    if slots <= 20 * entries + (1 << 20) {
        return Ok(());
    }
    let why = format!("{slots} slots for {entries} entries are mostly padding; {instead}");
    Err(Error::Unsuitable { format, why })
}

/// Cost coefficients of SELL-P, ELL and ELLPACK-R. On a GPU they have the same kernel; in host memory, a byte costs as
/// much as `byte` bytes streamed.
pub(super) fn streamed(name: &'static str, byte: f64) -> Variant {
    let fixed = Coefficients::Fixed;
    Variant {
        name,
        host: fixed(CostModel { start: 0.0, byte, gather: 0.0, row: 0.0, wait: 0.0 }),
        gpu: fixed(CostModel { start: 9.56e6, byte: 0.7, gather: 10.6, row: 0.0, wait: 3.41e6 }),
    }
}

/// Number of batches of slots, loaded one batch after the other, that the busiest lane of a GPU waits for.
pub(super) fn waits<T: Real>(matrix: &Analysis<'_, T>) -> usize {
    match matrix.machine {
        Model::Host => 0,
        #[cfg(feature = "cuda")]
        Model::Gpu { multiprocessors } => {
            let lanes = lanes(matrix.rows.rows, matrix.rows.mean(), multiprocessors);
            matrix.rows.longest.div_ceil(SLOTS_IN_FLIGHT * lanes)
        }
    }
}

/// Default number of rows per slice, as many as two of the widest registers have lanes: enough independent
/// sums to hide the latency of an addition at every SIMD level.
pub(crate) fn default_height<T: Real>() -> usize {
    2 * height_step::<T>()
}
