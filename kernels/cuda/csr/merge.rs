//! CSR products on a device balanced by work (merge path): thread blocks take equal numbers of entries plus
//! row ends. merge.cu describes the algorithm and the memory traffic.

use crate::cuda::csr::by_entries::Strategic;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::launch::index;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::{RawRowStarts, THREADS};
use crate::cuda::device::{Array, Real, Storage, lock};
use crate::cuda::matrix::device_csr::DeviceCsr;
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::index::Offsets;
use cudarc::driver::{CudaFunction, DeviceRepr};
use rayon::prelude::*;
use std::sync::Mutex;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "merge.cu",
    text: include_str!("merge.cu"),
    constants: constants![OF_LANE],
    mirrors: &[
        mirror!("Merge" = RawMerge { rows, columns, values, first, carries, entries }),
        mirror!("Crossing" = RawCrossing { rows, carries, count }),
    ],
};

/// Items (entries and row ends) per lane. Guess.
const OF_LANE: usize = 8;
/// Items per warp.
const TILE: usize = OF_LANE * WARP;
/// Tiles per thread block.
const TILES: usize = THREADS as usize / WARP;

/// The merged list of row ends and entries, cut into tiles.
#[derive(Debug)]
struct Tiles {
    /// Number of rows that end before each tile, followed by the number of all rows. Tiles are padded to
    /// whole thread blocks.
    first: Vec<u32>,
    /// `[row, first block, last block]` of every row that crosses blocks.
    crossing: Vec<u32>,
}

impl Tiles {
    fn new(offsets: &Offsets) -> Result<Tiles> {
        let (rows, items) = (offsets.ranges(), offsets.ranges() + offsets.end());
        index("the number of rows", rows)?;
        let blocks = items.div_ceil(TILE * TILES);
        index("the number of tiles", blocks * TILES)?;
        let before = |tile: usize| ends_before(offsets, (tile * TILE).min(items)) as u32;
        let first: Vec<u32> = (0..=blocks * TILES).into_par_iter().map(before).collect();
        let mut crossing: Vec<u32> = vec![];
        for block in 1..blocks {
            let row = first[block * TILES];
            let entry = block * TILES * TILE - row as usize;
            if row as usize == rows || offsets.at(row as usize) >= entry {
                continue;
            }
            match crossing.last_chunk_mut::<3>() {
                Some([same, _, last]) if *same == row => *last = block as u32,
                _ => crossing.extend([row, block as u32 - 1, block as u32]),
            }
        }
        Ok(Tiles { first, crossing })
    }

    fn blocks(&self) -> usize {
        (self.first.len() - 1) / TILES
    }
}

/// Number of row ends among the first `items` items of the list.
fn ends_before(offsets: &Offsets, items: usize) -> usize {
    let (mut low, mut high) = (items.saturating_sub(offsets.end()), items.min(offsets.ranges()));
    while low < high {
        let middle = (low + high) / 2;
        // a row's end is preceded by the entries of the row and by all items of earlier rows
        if offsets.at(middle + 1) + middle < items {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// A CSR matrix, multiplied along the merge path.
#[derive(Debug)]
pub struct Merge<T: Real, V: Storage<T> = T> {
    shape: Shape,
    ordered: DeviceCsr<V>,
    first: Array<u32>,
    crossing: Array<u32>,
    carries: Array<T>,
    multiply: CudaFunction,
    finish: CudaFunction,
    /// Locked while both kernels are queued, because they share `carries`.
    queueing: Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawMerge {
    rows: RawRowStarts,
    columns: u64,
    values: u64,
    first: u64,
    carries: u64,
    entries: u64,
}
// SAFETY: has the layout of `Merge` in merge.cu
unsafe impl DeviceRepr for RawMerge {}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawCrossing {
    rows: u64,
    carries: u64,
    count: u32,
}
// SAFETY: has the layout of `Crossing` in merge.cu
unsafe impl DeviceRepr for RawCrossing {}

impl<T: Real, V: Storage<T>> Merge<T, V> {
    /// Wraps a matrix on the device; `pattern` must be its pattern.
    pub(crate) fn of(ordered: DeviceCsr<V>, pattern: Pattern<'_>) -> Result<Self> {
        let device = &ordered.device().clone();
        let tiles = Tiles::new(pattern.offsets())?;
        Ok(Merge {
            shape: pattern.shape(),
            ordered,
            carries: device.zeros(2 * tiles.blocks())?,
            first: device.upload(&tiles.first)?,
            crossing: device.upload(&tiles.crossing)?,
            multiply: device.function_storing::<T, V>(&SOURCE, "merge")?,
            finish: device.function_storing::<T, V>(&SOURCE, "merge_finish")?,
            queueing: Mutex::new(()),
        })
    }
}

impl<T: Real, V: Storage<T>> Strategic<T> for Merge<T, V> {
    type Value = V;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn ordered(&self) -> &DeviceCsr<V> {
        &self.ordered
    }

    fn ordered_mut(&mut self) -> &mut DeviceCsr<V> {
        &mut self.ordered
    }

    fn multiply(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        let blocks = self.carries.len() / 2;
        if blocks == 0 {
            return Ok(());
        }
        let device = y.device();
        let DeviceCsr { rows, columns, values } = &self.ordered;
        let raw = RawMerge {
            rows: rows.raw(),
            columns: columns.address(0),
            values: values.address(0),
            first: self.first.address(0),
            carries: self.carries.address(0),
            entries: self.shape.entries as u64,
        };
        let (x, y) = (x.address(0), y.address(0));
        let _queueing = lock(&self.queueing);
        let mut launch = device.launch(&self.multiply);
        launch.arg(&raw).arg(&x).arg(&y);
        // SAFETY: arguments as in merge.cu; there are whole blocks of tiles, rows are those of `y`, and
        // column indices are below the length of `x`
        unsafe { launch.launch(config(blocks * THREADS as usize)) }?;
        let count = self.crossing.len() / 3;
        if count > 0 {
            let crossing =
                RawCrossing { rows: self.crossing.address(0), carries: raw.carries, count: count as u32 };
            let mut launch = device.launch(&self.finish);
            launch.arg(&crossing).arg(&y);
            // SAFETY: arguments as in merge.cu; rows are those of `y`, and blocks are those with carries
            unsafe { launch.launch(config(count * WARP)) }?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.ordered.bytes() + self.first.bytes() + self.crossing.bytes() + self.carries.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::matrix::cases::{Matrix, matrices};

    /// Emulates the kernels for `x = 1`, tile by tile.
    fn add_up(tiles: &Tiles, matrix: &Matrix) -> Vec<f64> {
        let offsets = matrix.pattern().offsets();
        let (rows, items) = (offsets.ranges(), offsets.ranges() + offsets.end());
        let mut y = vec![f64::NAN; rows];
        let mut write = |row: usize, sum: f64| {
            assert!(y[row].is_nan(), "row {row} is written once");
            y[row] = sum;
        };
        let mut carries = vec![];
        let entry = |tile: usize| (tile * TILE).min(items) - tiles.first[tile] as usize;
        for block in 0..tiles.blocks() {
            let (mut carry, mut out) = (0.0, 0.0);
            let first_of_block = entry(block * TILES);
            for tile in block * TILES..(block + 1) * TILES {
                let (first, end) = (tiles.first[tile] as usize, tiles.first[tile + 1] as usize);
                let (from, to) = (entry(tile), entry(tile + 1));
                assert!(to - from + end - first <= TILE);
                let sum = |from: usize, to: usize| matrix.values[from..to].iter().sum::<f64>();
                for row in first..end {
                    let here = sum(offsets.at(row).max(from), offsets.at(row + 1));
                    match (offsets.at(row) < from, offsets.at(row) < first_of_block) {
                        (false, _) => write(row, here),
                        (true, false) => write(row, carry + here),
                        (true, true) => out = carry + here,
                    }
                    carry = 0.0;
                }
                if end < rows {
                    carry += sum(offsets.at(end).max(from).min(to), to);
                }
            }
            carries.push([out, carry]);
        }
        for crossing in tiles.crossing.chunks(3) {
            let &[row, first, last] = crossing else { unreachable!() };
            let part = |block: u32| carries[block as usize][usize::from(block != last)];
            write(row as usize, (first..=last).map(part).sum());
        }
        y
    }

    #[test]
    fn tiles_hold_the_matrix_and_add_up() {
        for matrix in &matrices() {
            let tiles = Tiles::new(matrix.pattern().offsets()).unwrap();
            let mut y = vec![0.0; matrix.pattern().rows()];
            matrix.triplets().iter().for_each(|&(row, _, value)| y[row] += value);
            assert_eq!(add_up(&tiles, matrix), y, "{}", matrix.name);
        }
    }

    #[test]
    fn a_row_ends_behind_its_entries() {
        let offsets = Offsets::from_lengths([2, 0, 3]);
        // entry entry END END entry entry entry END
        let ends = [0, 0, 0, 1, 2, 2, 2, 2, 3];
        assert_eq!(std::array::from_fn(|items| ends_before(&offsets, items)), ends);
    }

    /// Uses offsets only; no entries are allocated.
    #[test]
    fn ends_are_found_beyond_32_bits() {
        let offsets = Offsets::from_lengths([3 << 30, 0, 1 << 31, 1 << 33]);
        let items = [
            3 << 30,
            (3 << 30) + 1,
            (3 << 30) + 2,
            (5 << 30) + 2,
            (5 << 30) + 3,
            (13 << 30) + 3,
            (13 << 30) + 4,
        ];
        assert_eq!(items.map(|items| ends_before(&offsets, items)), [0, 1, 2, 2, 3, 3, 4]);
    }
}
