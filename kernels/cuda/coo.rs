//! Coordinates on a device: warps take equally many entries each. The kernel says how, and what is moved.

use super::device::{Array, Device, Real, lock};
use super::error::Result;
use super::module::Source;
use super::number::Scalar;
use super::ordered::{Ordered, RawRows, Rows, Way};
use super::product::{Pattern, Product, Shape, check, check_square, config};
use super::slices::WARP;
use super::tuning::{TILES_OF_CHUNK, WARPS_OF_CHUNKS};
use super::vector::{self, index};
use crate::index::Offsets;
use cudarc::driver::{CudaFunction, DeviceRepr, PushKernelArg};
use std::sync::Mutex;

/// The kernels.
pub(super) const SOURCE: Source = Source { file: "coo.cu", text: include_str!("coo.cu") };

/// Entries that a warp takes at a time.
const TILE: usize = 4 * WARP;

/// Where entries lie: those of every row, but for the first `skip`.
#[derive(Debug)]
struct Entries {
    /// The entries before each row, and all of them.
    starts: Offsets,
    tiles: usize,
    tiles_of_chunk: usize,
}

impl Entries {
    fn new(pattern: Pattern<'_>, skip: usize, multiprocessors: usize) -> Result<Entries> {
        index("the number of rows", pattern.rows())?;
        let lengths = pattern.offsets().lengths().map(|length| length.saturating_sub(skip));
        let starts = Offsets::from_lengths(lengths);
        let tiles = starts.end().div_ceil(TILE);
        index("the number of tiles", tiles)?;
        let tiles_of_chunk =
            tiles.div_ceil((WARPS_OF_CHUNKS * multiprocessors).max(1)).clamp(1, TILES_OF_CHUNK);
        Ok(Entries { starts, tiles, tiles_of_chunk })
    }

    fn rows(&self) -> usize {
        self.starts.ranges()
    }

    fn count(&self) -> usize {
        self.starts.end()
    }

    fn chunks(&self) -> usize {
        self.tiles.div_ceil(self.tiles_of_chunk)
    }

    /// The row of an entry; behind the last entry, its row.
    fn row_of(&self, entry: usize) -> usize {
        let entry = entry.min(self.count().saturating_sub(1));
        let (mut low, mut high) = (0, self.rows().max(1));
        while high - low > 1 {
            let middle = (low + high) / 2;
            if self.starts.at(middle) <= entry {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// `[row, first chunk, last chunk]` of every row that crosses the borders of chunks.
    fn crossing(&self) -> Vec<u32> {
        let chunk_len = self.tiles_of_chunk * TILE;
        let mut crossing: Vec<u32> = vec![];
        for chunk in 1..self.chunks() {
            let row = self.row_of(chunk * chunk_len) as u32;
            if self.row_of(chunk * chunk_len - 1) as u32 != row {
                continue;
            }
            match crossing.last_chunk_mut::<3>() {
                Some([same, _, last]) if *same == row => *last = chunk as u32,
                _ => crossing.extend([row, chunk as u32 - 1, chunk as u32]),
            }
        }
        crossing
    }

    /// Rows without entries.
    fn empty(&self) -> Vec<u32> {
        let empty = |row: &usize| self.starts.range(*row).is_empty();
        (0..self.rows()).filter(empty).map(|row| row as u32).collect()
    }
}

/// Entries on a device, and the kernels that multiply them.
#[derive(Debug)]
pub(super) struct Coordinates<T: Real> {
    entries: Entries,
    shape: Shape,
    rows: Array<u32>,
    columns: Array<u32>,
    values: Array<T>,
    crossing: Array<u32>,
    empty: Array<u32>,
    carries: Array<T>,
    multiply: CudaFunction,
    finish: CudaFunction,
    exchange: CudaFunction,
    /// Held while both kernels are queued: they share `carries`.
    queueing: Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Raw {
    rows: u64,
    columns: u64,
    values: u64,
    carries: u64,
    tiles: u32,
    tiles_of_chunk: u32,
}
// SAFETY: as `Coo` of coo.cu
unsafe impl DeviceRepr for Raw {}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawRest {
    crossing: u64,
    empty: u64,
    carries: u64,
    crossings: u32,
    empties: u32,
}
// SAFETY: as `Rest` of coo.cu
unsafe impl DeviceRepr for RawRest {}

/// What becomes of `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Onto {
    /// `y ← A x`
    Nothing,
    /// `y ← y + A x`
    Y,
}

/// Coordinates of the last entries of rows, as the kernels that fill them see it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawTaken {
    all: RawRows,
    here: RawRows,
    columns: u64,
    last_row: u32,
    last_column: u32,
    slots: u64,
}
// SAFETY: as `Taken` of coo.cu
unsafe impl DeviceRepr for RawTaken {}

impl<T: Real> Coordinates<T> {
    /// All entries of every row but the first `skip`, of a matrix on the device whose pattern this is.
    pub(super) fn of(ordered: &Ordered<T>, pattern: Pattern<'_>, skip: usize, onto: Onto) -> Result<Self> {
        let device = ordered.device();
        let entries = Entries::new(pattern, skip, device.multiprocessors())?;
        let empty = if onto == Onto::Nothing { entries.empty() } else { vec![] };
        let [multiply, finish] = match onto {
            Onto::Nothing => ["coo", "coo_finish"],
            Onto::Y => ["coo_add", "coo_finish_add"],
        };
        let slots = entries.tiles * TILE;
        let coordinates = Coordinates {
            shape: pattern.shape(),
            rows: device.zeros(slots)?,
            columns: device.zeros(slots)?,
            values: device.zeros(slots)?,
            crossing: device.upload(&entries.crossing())?,
            empty: device.upload(&empty)?,
            carries: device.zeros(2 * entries.chunks())?,
            multiply: device.function::<T>(&SOURCE, multiply)?,
            finish: device.function::<T>(&SOURCE, finish)?,
            exchange: device.function::<T>(&SOURCE, "coo_exchange")?,
            entries,
            queueing: Mutex::new(()),
        };
        coordinates.fill_places(ordered, pattern)?;
        coordinates.exchange(ordered, Way::IntoSlots)?;
        Ok(coordinates)
    }

    fn taken(&self, ordered: &Ordered<T>, here: &Rows, (last_row, last_column): (u32, u32)) -> RawTaken {
        let (all, here, columns) = (ordered.rows.raw(), here.raw(), ordered.columns.address(0));
        RawTaken { all, here, columns, last_row, last_column, slots: self.values.len() as u64 }
    }

    fn fill_places(&self, ordered: &Ordered<T>, pattern: Pattern<'_>) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let (device, starts) = (ordered.device(), &self.entries.starts);
        let (fill, here) = (device.function::<T>(&SOURCE, "coo_places")?, Rows::new(device, starts)?);
        let row = self.entries.row_of(self.entries.count());
        let column = pattern.row(row).last().map_or(0, |entry| pattern.columns()[entry]);
        let taken = self.taken(ordered, &here, (row as u32, column));
        let (rows, columns) = (self.rows.address(0), self.columns.address(0));
        let mut launch = device.inner.stream.launch_builder(&fill);
        launch.arg(&taken).arg(&rows).arg(&columns);
        // SAFETY: arguments as in coo.cu; both arrays have so many slots
        unsafe { launch.launch(config(self.rows.len())) }?;
        Ok(())
    }

    /// Queues the copy of values between the order of rows and slots.
    pub(super) fn exchange(&self, ordered: &Ordered<T>, way: Way) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let device = ordered.device();
        let here = Rows::new(device, &self.entries.starts)?;
        let (taken, back) = (self.taken(ordered, &here, (0, 0)), u32::from(way == Way::Back));
        let (entries, values) = (ordered.values.address(0), self.values.address(0));
        let mut launch = device.inner.stream.launch_builder(&self.exchange);
        launch.arg(&taken).arg(&entries).arg(&values).arg(&back);
        // SAFETY: arguments as in coo.cu; entries are those of the pattern, values have so many slots
        unsafe { launch.launch(config(self.values.len())) }?;
        Ok(())
    }

    /// `y ← A x` or `y ← y + A x`, for vectors that were compared with the matrix.
    pub(super) fn multiply(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        let stream = &y.device().inner.stream;
        let (x, y, carries) = (x.address(0), y.address(0), self.carries.address(0));
        let (crossings, empties) = (self.crossing.len() / 3, self.empty.len());
        let _queueing = lock(&self.queueing);
        if self.entries.tiles > 0 {
            let raw = Raw {
                rows: self.rows.address(0),
                columns: self.columns.address(0),
                values: self.values.address(0),
                carries,
                tiles: self.entries.tiles as u32,
                tiles_of_chunk: self.entries.tiles_of_chunk as u32,
            };
            let mut launch = stream.launch_builder(&self.multiply);
            launch.arg(&raw).arg(&x).arg(&y);
            // SAFETY: arguments as in coo.cu; rows and columns were checked with the pattern, tiles are whole
            unsafe { launch.launch(config(self.entries.chunks() * WARP)) }?;
        }
        if crossings + empties > 0 {
            let rest = RawRest {
                crossing: self.crossing.address(0),
                empty: self.empty.address(0),
                carries,
                crossings: crossings as u32,
                empties: empties as u32,
            };
            let mut launch = stream.launch_builder(&self.finish);
            launch.arg(&rest).arg(&y);
            // SAFETY: arguments as in coo.cu; rows are those of `y`, chunks those that have carries
            unsafe { launch.launch(config((crossings * WARP).max(empties))) }?;
        }
        Ok(())
    }

    /// Whether there are no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.tiles == 0
    }

    pub(super) fn bytes(&self) -> usize {
        let lists = self.crossing.bytes() + self.empty.bytes() + self.carries.bytes();
        self.rows.bytes() + self.columns.bytes() + self.values.bytes() + lists
    }
}

/// A matrix in coordinates.
#[derive(Debug)]
pub struct Coo<T: Real>(Coordinates<T>);

impl<T: Real> Coo<T> {
    /// A matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T]) -> Result<Self> {
        Ok(Coo(Coordinates::of(&Ordered::new(device, pattern, values)?, pattern, 0, Onto::Nothing)?))
    }
}

impl<T: Real> Product<T> for Coo<T> {
    fn shape(&self) -> Shape {
        self.0.shape
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(self.0.shape, self.0.values.device(), x, y);
        self.0.multiply(x, y)
    }

    /// In a launch of its own: a row's entries may come from several warps.
    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(self.0.shape, self.0.values.device(), x, y);
        self.0.multiply(x, y)?;
        Ok(vector::dot(x, y))
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let ordered = Ordered::with_values(self.0.values.device(), self.0.shape, pattern, values)?;
        self.0.exchange(&ordered, Way::IntoSlots)
    }

    fn entries(&self, pattern: Pattern<'_>, values: &mut [T]) -> Result<()> {
        let ordered = Ordered::zeros(self.0.values.device(), self.0.shape, pattern)?;
        self.0.exchange(&ordered, Way::Back)?;
        ordered.values.read(values)
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Matrix, matrices};
    use super::*;

    const NONE: u32 = u32::MAX;

    /// What `put` of the kernel writes to: `y`, the carries of a chunk, and the rows that other chunks share.
    struct Target<'t> {
        y: &'t mut [f64],
        carries: &'t mut [f64],
        first: u32,
        last: u32,
    }

    impl Target<'_> {
        fn put(&mut self, row: u32, sum: f64) {
            let to = match row {
                row if row == self.first => &mut self.carries[0],
                row if row == self.last => &mut self.carries[1],
                row => &mut self.y[row as usize],
            };
            assert!(to.is_nan(), "row {row} is written once");
            *to = sum;
        }
    }

    /// What the kernels do with the products of all entries, a tile at a time.
    fn add_up(entries: &Entries, rows: &[u32], products: &[f64]) -> Vec<f64> {
        let mut y = vec![f64::NAN; entries.rows()];
        let mut carries = vec![f64::NAN; 2 * entries.chunks()];
        for chunk in 0..entries.chunks() {
            let start = chunk * entries.tiles_of_chunk;
            let end = entries.tiles.min(start + entries.tiles_of_chunk);
            let (first, last) = (rows[start * TILE], rows[end * TILE - 1]);
            let shared = |row: u32, other: Option<&u32>| if other == Some(&row) { row } else { NONE };
            let before = (start * TILE).checked_sub(1).map(|entry| &rows[entry]);
            let mut target = Target {
                y: &mut y,
                carries: &mut carries[2 * chunk..][..2],
                first: shared(first, before),
                last: shared(last, rows.get(end * TILE)),
            };
            let (mut open_row, mut open_sum) = (first, 0.0);
            for tile in start..end {
                (open_row, open_sum) = tile_of(
                    &rows[tile * TILE..][..TILE],
                    &products[tile * TILE..][..TILE],
                    (open_row, open_sum),
                    &mut target,
                );
            }
            target.put(open_row, open_sum);
        }
        for crossing in entries.crossing().chunks(3) {
            let &[row, first, last] = crossing else { unreachable!() };
            let part = |chunk: u32| carries[2 * chunk as usize + usize::from(chunk == first)];
            assert!(y[row as usize].is_nan());
            y[row as usize] = (first..=last).map(part).sum();
        }
        for row in entries.empty() {
            assert!(y[row as usize].is_nan());
            y[row as usize] = 0.0;
        }
        y
    }

    /// A tile of the kernel, all lanes in step.
    fn tile_of(
        rows: &[u32],
        products: &[f64],
        (open_row, open_sum): (u32, f64),
        target: &mut Target<'_>,
    ) -> (u32, f64) {
        let of_lane = TILE / WARP;
        let (mut head, mut tail, mut one_row) = ([0.0; WARP], [0.0; WARP], [true; WARP]);
        for lane in 0..WARP {
            let (rows, products) =
                (&rows[lane * of_lane..][..of_lane], &products[lane * of_lane..][..of_lane]);
            tail[lane] = products[0];
            for k in 1..of_lane {
                if rows[k] == rows[k - 1] {
                    tail[lane] += products[k];
                } else {
                    if one_row[lane] {
                        head[lane] = tail[lane];
                    } else {
                        target.put(rows[k - 1], tail[lane]);
                    }
                    one_row[lane] = false;
                    tail[lane] = products[k];
                }
            }
        }
        let first = |lane: usize| rows[lane * of_lane];
        let last = |lane: usize| rows[lane * of_lane + of_lane - 1];
        let continues = |lane: usize| first(lane) == if lane == 0 { open_row } else { last(lane - 1) };
        if !continues(0) {
            target.put(open_row, open_sum);
        }
        let mut sum = tail;
        if continues(0) && one_row[0] {
            sum[0] += open_sum;
        }
        let restarts = |lane: usize| lane == 0 || !one_row[lane] || !continues(lane);
        let start = |lane: usize| (0..=lane).rev().find(|&lane| restarts(lane)).unwrap();
        for step in [1, 2, 4, 8, 16] {
            let before = sum;
            for lane in step..WARP {
                if lane - step >= start(lane) {
                    sum[lane] += before[lane - step];
                }
            }
        }
        for lane in 0..WARP {
            let before = if lane == 0 { open_sum } else { sum[lane - 1] };
            if !one_row[lane] {
                target.put(first(lane), if continues(lane) { before + head[lane] } else { head[lane] });
            }
            if lane + 1 < WARP && first(lane + 1) != last(lane) {
                target.put(last(lane), sum[lane]);
            }
        }
        (last(WARP - 1), sum[WARP - 1])
    }

    fn holds(matrix: &Matrix, skip: usize, multiprocessors: usize) {
        let pattern = matrix.pattern();
        let entries = Entries::new(pattern, skip, multiprocessors).unwrap();
        let mut stored = matrix.triplets();
        let mut before = (usize::MAX, 0);
        stored.retain(|&(row, ..)| {
            before = if before.0 == row { (row, before.1 + 1) } else { (row, 0) };
            before.1 >= skip
        });
        assert_eq!(stored.len(), entries.count(), "{}", matrix.name);
        let rows: Vec<u32> = (0..entries.tiles * TILE).map(|k| entries.row_of(k) as u32).collect();
        let mut values: Vec<f64> = stored.iter().map(|&(.., value)| value).collect();
        assert!(stored.iter().zip(&rows).all(|(&(row, ..), &of)| row == of as usize), "{}", matrix.name);
        values.resize(rows.len(), 0.0);
        let mut y = vec![0.0; pattern.rows()];
        stored.iter().for_each(|&(row, _, value)| y[row] += value);
        assert_eq!(add_up(&entries, &rows, &values), y, "{}, {skip}, {multiprocessors}", matrix.name);
    }

    #[test]
    fn coordinates_hold_the_matrix_and_add_up() {
        for matrix in &matrices() {
            for skip in [0, 1, 3, 1000] {
                for multiprocessors in [0, 1, 132] {
                    holds(matrix, skip, multiprocessors);
                }
            }
        }
    }
}
