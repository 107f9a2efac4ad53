//! Matrices cut into chunks of equal numbers of entries, one per warp. coo.cu describes the products, and
//! defines the counterparts of the structs here.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::{WARP, index};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::{NONE, RawRowStarts};
use crate::cuda::matrix::pattern::Pattern;
use crate::cuda::tuning::{ROWS_GONE_THROUGH, TILES_OF_CHUNK, WARPS_OF_CHUNKS};
use crate::index::Offsets;
use cudarc::driver::DeviceRepr;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "coo.cu",
    text: concat!(include_str!("tiles.cu"), "#line 1 \"coo.cu\"\n", include_str!("../formats/coo.cu")),
    constants: constants![OF_LANE, TILE, ROWS_GONE_THROUGH],
    mirrors: &[
        mirror!(
            "Coo" = RawCoo {
                starts,
                before,
                rows,
                empty,
                columns,
                values,
                parts,
                empties,
                tiles,
                tiles_of_chunk
            }
        ),
        mirror!("Taken" = RawTaken { all, here, columns, skip, last_column, slots }),
        mirror!(
            "CsrByEntries" = RawCsrByEntries {
                row_starts,
                first,
                far_at,
                far,
                empty,
                columns,
                values,
                parts,
                count,
                empties,
                tiles,
                tiles_of_chunk
            }
        ),
    ],
};

/// Coordinates (COO) as passed to the kernels that multiply.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawCoo {
    pub(crate) starts: u64,
    pub(crate) before: u64,
    pub(crate) rows: u64,
    pub(crate) empty: u64,
    pub(crate) columns: u64,
    pub(crate) values: u64,
    pub(crate) parts: u64,
    pub(crate) empties: u32,
    pub(crate) tiles: u32,
    pub(crate) tiles_of_chunk: u32,
}
// SAFETY: has the layout of `Coo` in coo.cu
unsafe impl DeviceRepr for RawCoo {}

/// Coordinates of all entries except the first `skip` of each row, as passed to the kernels that fill them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawTaken {
    pub(crate) all: RawRowStarts,
    pub(crate) here: RawRowStarts,
    pub(crate) columns: u64,
    pub(crate) skip: u32,
    pub(crate) last_column: u32,
    pub(crate) slots: u64,
}
// SAFETY: has the layout of `Taken` in coo.cu
unsafe impl DeviceRepr for RawTaken {}

/// CSR cut by entries, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawCsrByEntries {
    pub(crate) row_starts: RawRowStarts,
    pub(crate) first: u64,
    pub(crate) far_at: u64,
    pub(crate) far: u64,
    pub(crate) empty: u64,
    pub(crate) columns: u64,
    pub(crate) values: u64,
    pub(crate) parts: u64,
    pub(crate) count: u64,
    pub(crate) empties: u32,
    pub(crate) tiles: u32,
    pub(crate) tiles_of_chunk: u32,
}
// SAFETY: has the layout of `CsrByEntries` in coo.cu
unsafe impl DeviceRepr for RawCsrByEntries {}

/// Number of entries of a lane in a tile. Guess.
pub(crate) const OF_LANE: usize = 4;
/// Number of entries of a tile, which a warp processes together.
pub(crate) const TILE: usize = OF_LANE * WARP;

/// Partition of all entries except the first `skip` of each row into tiles, and of the tiles into chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// Offset of each row's entries, and the number of entries.
    pub(crate) starts: Offsets,
    pub(crate) tiles: usize,
    pub(crate) tiles_of_chunk: usize,
}

/// Number of tiles per chunk, chosen so that the chunks run in full waves (one wave if there are few).
pub(crate) fn tiles_of_chunk(tiles: usize, multiprocessors: usize) -> usize {
    let concurrent = (WARPS_OF_CHUNKS * multiprocessors).max(1);
    let waves = tiles.div_ceil(concurrent * TILES_OF_CHUNK).max(1);
    tiles.div_ceil(concurrent * waves).max(1)
}

impl Chunks {
    pub(crate) fn new(pattern: Pattern<'_>, skip: usize, multiprocessors: usize) -> Result<Chunks> {
        let lengths = pattern.offsets().lengths().map(|length| length.saturating_sub(skip));
        Chunks::of(Offsets::from_lengths(lengths), multiprocessors)
    }

    /// Chunks such that rows much shorter than a chunk do not cross chunks: a row that would do so begins in
    /// the next chunk, and the remainder of the chunk is padding at the end of the previous row.
    pub(crate) fn of_whole_rows(pattern: Pattern<'_>, skip: usize, multiprocessors: usize) -> Result<Chunks> {
        let chunks = Chunks::new(pattern, skip, multiprocessors)?;
        let padded = |tiles_of_chunk: usize| {
            let starts = Offsets::from_lengths(filled_up(chunks.starts.lengths(), tiles_of_chunk * TILE));
            let tiles = starts.end().div_ceil(TILE);
            index("the number of tiles", tiles)?;
            Ok(Chunks { starts, tiles, tiles_of_chunk })
        };
        let waves = |chunks: &Chunks| chunks.chunks().div_ceil((WARPS_OF_CHUNKS * multiprocessors).max(1));
        let same = padded(chunks.tiles_of_chunk)?;
        // padding may need a few more chunks, which cost no time within the same number of waves
        if waves(&same) > waves(&chunks) { padded(chunks.tiles_of_chunk + 1) } else { Ok(same) }
    }

    /// Chunks for given row offsets.
    fn of(starts: Offsets, multiprocessors: usize) -> Result<Chunks> {
        index("the number of rows", starts.ranges())?;
        let tiles = starts.end().div_ceil(TILE);
        index("the number of tiles", tiles)?;
        let tiles_of_chunk = tiles_of_chunk(tiles, multiprocessors);
        Ok(Chunks { starts, tiles, tiles_of_chunk })
    }

    pub(crate) fn rows(&self) -> usize {
        self.starts.ranges()
    }

    pub(crate) fn count(&self) -> usize {
        self.starts.end()
    }

    pub(crate) fn chunks(&self) -> usize {
        self.tiles.div_ceil(self.tiles_of_chunk)
    }

    /// The row of an entry. If `entry` is past the end, returns the row of the last entry.
    pub(crate) fn row_of(&self, entry: usize) -> usize {
        row_of(&self.starts, entry.min(self.count().saturating_sub(1)))
    }

    /// Indices of the empty rows.
    pub(crate) fn empty(&self) -> Vec<u32> {
        let empty = |row: &usize| self.starts.range(*row).is_empty();
        (0..self.rows()).filter(empty).map(|row| row as u32).collect()
    }
}

/// Lengths of rows, some of them padded so that each row much shorter than a chunk is in one chunk.
fn filled_up(lengths: impl Iterator<Item = usize>, of_chunk: usize) -> Vec<usize> {
    /// Only rows at most `1 / SHORT` as long as a chunk are kept in one chunk, so that little padding is added.
    /// Guess; it bounds the padding by an eighth.
    const SHORT: usize = 8;
    let mut lengths: Vec<usize> = lengths.collect();
    let (mut end, mut before) = (0usize, None);
    for row in 0..lengths.len() {
        let (length, left) = (lengths[row], end.next_multiple_of(of_chunk) - end);
        if length == 0 {
            continue;
        }
        if let Some(before) = before.filter(|_| left < length && length * SHORT <= of_chunk) {
            lengths[before] += left;
            end += left;
        }
        end += length;
        before = Some(row);
    }
    lengths
}

/// The last row that starts at or before an entry.
fn row_of(starts: &Offsets, entry: usize) -> usize {
    let (mut low, mut high) = (0, starts.ranges().max(1));
    while high - low > 1 {
        let middle = (low + high) / 2;
        if starts.at(middle) <= entry {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Nonempty rows and their starts, from which the kernel `coo_starts` computes a word for each lane of each
/// tile: one bit for each of the lane's [`OF_LANE`] entries that starts a row, plus 16 times the number of
/// rows that start in the preceding lanes of the tile.
#[derive(Debug)]
pub(crate) struct Started {
    /// Offsets of the nonempty rows.
    pub(crate) at: Offsets,
    /// Row numbers of the nonempty rows; `None` if all rows are nonempty.
    pub(crate) rows: Option<Vec<u32>>,
}

impl Started {
    pub(crate) fn new(chunks: &Chunks) -> Started {
        let lengths = chunks.starts.lengths();
        let at = Offsets::from_lengths(lengths.clone().filter(|&length| length > 0));
        let all = at.ranges() == chunks.rows();
        let of_entries = || lengths.enumerate().filter(|&(_, length)| length > 0).map(|(row, _)| row as u32);
        let rows = (!all).then(|| of_entries().collect());
        Started { at, rows }
    }

    /// For each chunk: the index (among nonempty rows) of the row of the preceding entry, and the chunk in
    /// which that row begins.
    pub(crate) fn before(&self, chunks: &Chunks) -> Vec<[u32; 2]> {
        let of_chunk = chunks.tiles_of_chunk * TILE;
        let before = |chunk: usize| match (chunk * of_chunk).checked_sub(1) {
            Some(entry) => {
                let row = row_of(&self.at, entry);
                [row as u32, (self.at.at(row) / of_chunk) as u32]
            }
            None => [NONE, 0],
        };
        (0..chunks.chunks()).map(before).collect()
    }
}

#[cfg(test)]
mod tests;
