//! CSR products on a device balanced by entries: each warp takes an equal number of entries and finds their
//! rows among the row starts (CSRI of Anzt et al.). coo.cu describes the algorithm and the memory traffic.

use crate::cuda::csr::by_entries::Strategic;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::{Array, Real, Storage};
use crate::cuda::matrix::borders::{Borders, EMPTY_ROWS_PER_THREAD, Onto};
use crate::cuda::matrix::chunks::{Chunks, RawCsrByEntries, SOURCE, TILE};
use crate::cuda::matrix::device_csr::DeviceCsr;
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::tuning::ROWS_GONE_THROUGH;
use cudarc::driver::CudaFunction;
use rayon::prelude::*;

/// A CSR matrix, multiplied with equal numbers of entries per warp.
#[derive(Debug)]
pub struct LoadBalance<T: Real, V: Storage<T> = T> {
    shape: Shape,
    ordered: DeviceCsr<V>,
    chunks: Chunks,
    first: Array<u32>,
    far_at: Array<u32>,
    far: Array<u32>,
    borders: Borders<T>,
    multiply: CudaFunction,
}

/// The row of each tile's first entry, followed by the row of the last entry of the matrix.
fn first_rows(chunks: &Chunks) -> Vec<u32> {
    (0..=chunks.tiles).into_par_iter().map(|tile| chunks.row_of(tile * TILE) as u32).collect()
}

/// For tiles with more than [`ROWS_GONE_THROUGH`] rows, tables with the row of every entry; and for each tile
/// the index of its table.
fn far_rows(chunks: &Chunks, first: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let far: Vec<usize> =
        (0..chunks.tiles).filter(|&tile| first[tile + 1] - first[tile] > ROWS_GONE_THROUGH).collect();
    let mut at = vec![0; if far.is_empty() { 0 } else { chunks.tiles }];
    far.iter().enumerate().for_each(|(place, &tile)| at[tile] = place as u32);
    let entries = far.par_iter().flat_map_iter(|&tile| tile * TILE..(tile + 1) * TILE);
    (at, entries.map(|entry| chunks.row_of(entry) as u32).collect())
}

impl<T: Real, V: Storage<T>> LoadBalance<T, V> {
    /// Wraps a matrix on the device; `pattern` must be its pattern.
    pub(crate) fn of(ordered: DeviceCsr<V>, pattern: Pattern<'_>) -> Result<Self> {
        let device = &ordered.device().clone();
        let chunks = Chunks::new(pattern, 0, device.multiprocessors())?;
        let first = first_rows(&chunks);
        let (far_at, far) = far_rows(&chunks, &first);
        Ok(LoadBalance {
            shape: pattern.shape(),
            ordered,
            first: device.upload(&first)?,
            far_at: device.upload(&far_at)?,
            far: device.upload(&far)?,
            borders: Borders::new(device, &chunks, Onto::Nothing)?,
            multiply: device.function_storing::<T, V>(&SOURCE, "csr_by_entries")?,
            chunks,
        })
    }
}

impl<T: Real, V: Storage<T>> Strategic<T> for LoadBalance<T, V> {
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
        let Borders { empty, parts } = &self.borders;
        if self.chunks.tiles == 0 && empty.is_empty() {
            return Ok(());
        }
        let (from, to) = (x.address(0), y.address(0));
        let DeviceCsr { rows, columns, values } = &self.ordered;
        let raw = RawCsrByEntries {
            row_starts: rows.raw(),
            first: self.first.address(0),
            far_at: self.far_at.address(0),
            far: self.far.address(0),
            empty: empty.address(0),
            columns: columns.address(0),
            values: values.address(0),
            parts: parts.address(0),
            count: self.shape.entries as u64,
            empties: empty.len() as u32,
            tiles: self.chunks.tiles as u32,
            tiles_of_chunk: self.chunks.tiles_of_chunk as u32,
        };
        let mut launch = x.device().launch(&self.multiply);
        launch.arg(&raw).arg(&from).arg(&to);
        // SAFETY: arguments as in coo.cu; rows are those of `y`, column indices are below the length of `x`,
        // and the kernel reads no more than `count` entries
        unsafe {
            launch.launch(config(
                (self.chunks.chunks() * WARP).max(empty.len().div_ceil(EMPTY_ROWS_PER_THREAD)),
            ))
        }?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        let far = self.far_at.bytes() + self.far.bytes();
        self.ordered.bytes() + self.first.bytes() + far + self.borders.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::matrix::cases::{matrices, with_lengths};
    use crate::cuda::matrix::chunks::OF_LANE;
    use crate::index::Offsets;

    /// Emulates how the kernel finds the rows of a tile's entries, with all lanes in lockstep.
    fn rows_of_tile(
        starts: &Offsets,
        first: &[u32],
        (far_at, far): &(Vec<u32>, Vec<u32>),
        tile: usize,
    ) -> Vec<u32> {
        let (row, last) = (first[tile], first[tile + 1]);
        let (from, to) = (tile * TILE, (tile + 1) * TILE);
        if last - row > ROWS_GONE_THROUGH {
            return far[far_at[tile] as usize * TILE..][..TILE].to_vec();
        }
        let mut marks = vec![0; TILE];
        for at in row + 1..=last {
            let range = starts.range(at as usize);
            if range.start < to && !range.is_empty() {
                assert_eq!(marks[range.start - from], 0, "one row leaves a mark");
                marks[range.start - from] = at - row;
            }
        }
        let mut found = vec![];
        let mut lanes: Vec<[u32; OF_LANE]> =
            marks.chunks(OF_LANE).map(|lane| lane.try_into().unwrap()).collect();
        for lane in &mut lanes {
            (1..OF_LANE)
                .filter(|&k| lane[k] == 0)
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|k| lane[k] = lane[k - 1]);
        }
        for lane in 0..WARP {
            let before = (0..lane).rev().map(|lane| lanes[lane][OF_LANE - 1]).find(|&mark| mark != 0);
            let mark = |k: usize| if lanes[lane][k] == 0 { before.unwrap_or(0) } else { lanes[lane][k] };
            found.extend((0..OF_LANE).map(|k| row + mark(k)));
        }
        found
    }

    #[test]
    fn rows_are_found_where_they_start() {
        let mut all = matrices();
        // empty rows, in short and in long successions
        for gap in [1, 5, 37, 600, 5000] {
            all.push(with_lengths(20_000, 900, |row| if row % (gap + 1) == gap { 3 } else { 0 }));
        }
        let mut far = 0;
        for matrix in &all {
            let chunks = Chunks::new(matrix.pattern(), 0, 132).unwrap();
            let first = first_rows(&chunks);
            let tables = far_rows(&chunks, &first);
            far += tables.1.len() / TILE;
            for tile in 0..chunks.tiles {
                let expected: Vec<u32> =
                    (tile * TILE..(tile + 1) * TILE).map(|k| chunks.row_of(k) as u32).collect();
                assert_eq!(
                    rows_of_tile(&chunks.starts, &first, &tables, tile),
                    expected,
                    "{}, {tile}",
                    matrix.name
                );
            }
        }
        assert!(far > 0, "no tile has its rows in the table");
    }
}
