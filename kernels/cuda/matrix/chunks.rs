//! Matrices cut into chunks of equally many entries, one chunk for a warp. coo.cu says how they are multiplied, and its
//! structs have their counterparts here.

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

/// Coordinates as the kernels that multiply see them.
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
// SAFETY: as `Coo` of coo.cu
unsafe impl DeviceRepr for RawCoo {}

/// Coordinates of all entries but the first of rows, as the kernels that fill them see it.
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
// SAFETY: as `Taken` of coo.cu
unsafe impl DeviceRepr for RawTaken {}

/// Compressed sparse rows, cut by entries, as the kernel sees them.
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
// SAFETY: as `CsrByEntries` of coo.cu
unsafe impl DeviceRepr for RawCsrByEntries {}

/// Entries that a lane takes at a time.
pub(crate) const OF_LANE: usize = 4;
/// Entries that a warp takes at a time.
pub(crate) const TILE: usize = OF_LANE * WARP;

/// The entries of every row but the first `skip`, in tiles and chunks of tiles.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// The entries before each row, and all of them.
    pub(crate) starts: Offsets,
    pub(crate) tiles: usize,
    pub(crate) tiles_of_chunk: usize,
}

/// Tiles of a chunk: as many as let all chunks run at once, or in waves that are all full.
pub(crate) fn tiles_of_chunk(tiles: usize, multiprocessors: usize) -> usize {
    let at_once = (WARPS_OF_CHUNKS * multiprocessors).max(1);
    let waves = tiles.div_ceil(at_once * TILES_OF_CHUNK).max(1);
    tiles.div_ceil(at_once * waves).max(1)
}

impl Chunks {
    pub(crate) fn new(pattern: Pattern<'_>, skip: usize, multiprocessors: usize) -> Result<Chunks> {
        let lengths = pattern.offsets().lengths().map(|length| length.saturating_sub(skip));
        Chunks::of(Offsets::from_lengths(lengths), multiprocessors)
    }

    /// Chunks of entries that can be moved apart: rows much shorter than a chunk end in the chunk that they begin in. What is
    /// left of a chunk belongs to the row before, behind its entries.
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
        // a few chunks more that run in the same wave delay nothing
        if waves(&same) > waves(&chunks) { padded(chunks.tiles_of_chunk + 1) } else { Ok(same) }
    }

    /// Of entries that begin so in each row.
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

    /// The row of an entry; behind the last entry, its row.
    pub(crate) fn row_of(&self, entry: usize) -> usize {
        row_of(&self.starts, entry.min(self.count().saturating_sub(1)))
    }

    /// Rows without entries.
    pub(crate) fn empty(&self) -> Vec<u32> {
        let empty = |row: &usize| self.starts.range(*row).is_empty();
        (0..self.rows()).filter(empty).map(|row| row as u32).collect()
    }
}

/// Lengths of rows, some of them longer, so that rows much shorter than a chunk are in one.
fn filled_up(lengths: impl Iterator<Item = usize>, of_chunk: usize) -> Vec<usize> {
    /// Chunks are that much longer than what is not cut: hardly more is filled up.
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

/// The last of the rows that start so, at or before an entry.
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

/// The rows that have entries, and where these start. A lane's word has a bit for each of its entries that starts a row, and
/// 16 times the number of those in the tile's lanes before.
#[derive(Debug)]
pub(crate) struct Started {
    /// Where they start, one after the other.
    pub(crate) at: Offsets,
    /// Which they are, where not all rows have entries.
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

    /// Of each chunk: the row, counted here, of the entry before, and the chunk in which it begins.
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
mod tests {
    use super::*;
    use crate::cuda::matrix::cases::{Matrix, matrices};

    /// What `put` of the kernel writes to: `y`, or what the chunk has of the row that began before it.
    struct Target<'t> {
        y: &'t mut [f64],
        head: f64,
        first: u32,
    }

    impl Target<'_> {
        fn put(&mut self, row: u32, sum: f64) {
            let to = if row == self.first { &mut self.head } else { &mut self.y[row as usize] };
            assert!(to.is_nan(), "row {row} is written once");
            *to = sum;
        }
    }

    /// The word of a lane, as `coo_starts` makes it.
    fn word(started: &Started, tile: usize, lane: usize) -> u32 {
        let before =
            |entry: usize| (0..started.at.ranges()).filter(|&row| started.at.at(row) < entry).count();
        let entry = tile * TILE + lane * (TILE / WARP);
        let bits = (0..TILE / WARP).map(|k| ((before(entry + k + 1) - before(entry + k)) as u32) << k);
        bits.sum::<u32>() + 16 * (before(entry) - before(tile * TILE)) as u32
    }

    /// The rows of a tile's entries, as the kernel finds them in the words, behind an entry of row `open`.
    fn rows_of_tile(started: &Started, tile: usize, open: u32) -> Vec<u32> {
        let of_lane = |lane: usize| {
            let word = word(started, tile, lane);
            let row = move |k: u32| open.wrapping_add(word / 16 + (word & ((2 << k) - 1)).count_ones());
            (0..(TILE / WARP) as u32).map(row)
        };
        (0..WARP).flat_map(of_lane).collect()
    }

    #[test]
    fn words_lead_to_rows() {
        for matrix in &matrices() {
            for skip in [0, 3] {
                let chunks = Chunks::of_whole_rows(matrix.pattern(), skip, 1).unwrap();
                if chunks.count() > 6_000 || chunks.rows() > 5_000 {
                    continue;
                }
                let started = Started::new(&chunks);
                let before = started.before(&chunks);
                assert_eq!(before.len(), chunks.chunks());
                let (mut open, mut begun) = (NONE, 0);
                for tile in 0..chunks.tiles {
                    if tile % chunks.tiles_of_chunk == 0 {
                        let [row, first] = before[tile / chunks.tiles_of_chunk];
                        assert_eq!(row, open);
                        assert_eq!(first as usize, begun / (chunks.tiles_of_chunk * TILE));
                    }
                    let rows = rows_of_tile(&started, tile, open);
                    for (entry, &row) in (tile * TILE..).zip(&rows) {
                        begun = if row == open { begun } else { entry };
                        open = row;
                    }
                    let row =
                        |&row: &u32| started.rows.as_ref().map_or(row, |rows| rows[row as usize]) as usize;
                    let expected = (tile * TILE..).map(|entry| chunks.row_of(entry));
                    assert!(rows.iter().map(row).eq(expected.take(TILE)), "{}, {skip}, {tile}", matrix.name);
                }
            }
        }
    }

    /// What the kernels do with the products of all entries, a tile at a time.
    fn add_up(chunks: &Chunks, rows: &[u32], products: &[f64]) -> Vec<f64> {
        let mut y = vec![f64::NAN; chunks.rows()];
        let mut parts: Vec<Option<f64>> = vec![None; chunks.chunks()];
        for chunk in 0..chunks.chunks() {
            let start = chunk * chunks.tiles_of_chunk;
            let end = chunks.tiles.min(start + chunks.tiles_of_chunk);
            let first = rows[start * TILE];
            let is_shared = start > 0 && rows[start * TILE - 1] == first;
            let mut target =
                Target { y: &mut y, head: f64::NAN, first: if is_shared { first } else { NONE } };
            let (mut open_row, mut open_sum) = (first, 0.0);
            for tile in start..end {
                (open_row, open_sum) = tile_of(
                    &rows[tile * TILE..][..TILE],
                    &products[tile * TILE..][..TILE],
                    (open_row, open_sum),
                    &mut target,
                );
            }
            let goes_on = rows.get(end * TILE) == Some(&open_row);
            if goes_on {
                parts[chunk] = Some(open_sum);
            } else {
                target.put(open_row, open_sum);
            }
            if is_shared && !(goes_on && open_row == first) {
                let head = target.head;
                let begins = chunks.starts.at(first as usize) / (chunks.tiles_of_chunk * TILE);
                let sum: f64 =
                    parts[begins..chunk].iter_mut().map(|part| part.take().expect("it was sent")).sum();
                assert!(y[first as usize].is_nan());
                y[first as usize] = sum + head;
            }
        }
        assert!(parts.iter().all(Option::is_none), "all that is sent is received");
        for row in chunks.empty() {
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

    fn holds(matrix: &Matrix, skip: usize, chunks: &Chunks) {
        let pattern = matrix.pattern();
        let mut stored = matrix.triplets();
        let mut before = (usize::MAX, 0);
        stored.retain(|&(row, ..)| {
            before = if before.0 == row { (row, before.1 + 1) } else { (row, 0) };
            before.1 >= skip
        });
        assert!(stored.len() <= chunks.count(), "{}", matrix.name);
        let rows: Vec<u32> = (0..chunks.tiles * TILE).map(|k| chunks.row_of(k) as u32).collect();
        let mut values = vec![0.0; rows.len()];
        let (mut row_before, mut slot) = (None, 0);
        for &(row, _, value) in &stored {
            if row_before.replace(row) != Some(row) {
                slot = chunks.starts.at(row);
            }
            assert_eq!(rows[slot] as usize, row, "{}", matrix.name);
            values[slot] = value;
            slot += 1;
        }
        let mut y = vec![0.0; pattern.rows()];
        stored.iter().for_each(|&(row, _, value)| y[row] += value);
        assert_eq!(add_up(chunks, &rows, &values), y, "{}, {skip}", matrix.name);
    }

    #[test]
    fn coordinates_hold_the_matrix_and_add_up() {
        for matrix in &matrices() {
            for skip in [0, 1, 3, 1000] {
                for multiprocessors in [0, 1, 132] {
                    let (pattern, tight) = (matrix.pattern(), Chunks::new);
                    holds(matrix, skip, &tight(pattern, skip, multiprocessors).unwrap());
                    holds(matrix, skip, &Chunks::of_whole_rows(pattern, skip, multiprocessors).unwrap());
                }
            }
        }
    }

    /// The rows that go on in another chunk.
    fn crossing(chunks: &Chunks) -> impl Iterator<Item = usize> {
        let borders = (1..chunks.chunks()).map(|chunk| chunk * chunks.tiles_of_chunk * TILE);
        borders
            .filter(|&border| chunks.row_of(border - 1) == chunks.row_of(border))
            .map(|border| chunks.row_of(border))
    }

    #[test]
    fn short_rows_do_not_cross_borders() {
        let filled = |lengths: &[usize], of_chunk| filled_up(lengths.iter().copied(), of_chunk);
        assert_eq!(filled(&[6, 0, 3, 6, 2, 0, 1], 8), [6, 0, 3, 6, 2, 0, 1]);
        assert_eq!(filled(&[60, 0, 3, 8, 52, 0, 1, 4, 0], 64), [60, 0, 4, 8, 52, 0, 4, 4, 0]);
        assert_eq!(filled(&[200, 7, 50, 2], 64), [200, 7, 50, 2]);
        assert_eq!(filled(&[250, 7, 50, 2], 64), [256, 7, 50, 2]);
        for matrix in &matrices() {
            let chunks = Chunks::of_whole_rows(matrix.pattern(), 0, 132).unwrap();
            for row in crossing(&chunks) {
                assert!(matrix.pattern().row(row).len() * 8 > TILE * chunks.tiles_of_chunk);
            }
        }
    }

    #[test]
    fn waves_of_chunks_are_full() {
        let of = |tiles| tiles_of_chunk(tiles, 132);
        assert_eq!([0, 1, 5280, 5281, 16 * 5280].map(of), [1, 1, 1, 2, 16]);
        // one more would have left most of a second wave idle
        assert_eq!(of(16 * 5280 + 1), 9);
        assert_eq!(tiles_of_chunk(100, 0), TILES_OF_CHUNK - 1);
        for tiles in (0..3_000_000).step_by(997) {
            assert!(of(tiles) <= TILES_OF_CHUNK && (tiles < 100_000 || of(tiles) > TILES_OF_CHUNK / 2));
        }
    }

    /// No entry of them is stored anywhere.
    #[test]
    fn entries_beyond_32_bits_are_cut() {
        let lengths = [3 << 30, 0, 1 << 31, 5, 0, 1 << 33];
        let chunks = Chunks::of(Offsets::from_lengths(lengths), 132).unwrap();
        let all: usize = lengths.iter().sum();
        assert_eq!((chunks.count(), chunks.tiles), (all, all.div_ceil(TILE)));
        let at = [0, (3 << 30) - 1, 3 << 30, (5 << 30) - 1, 5 << 30, (5 << 30) + 5, all - 1, all + 1000];
        assert_eq!(at.map(|entry| chunks.row_of(entry)), [0, 0, 2, 2, 3, 5, 5, 5]);
        let of_chunk = TILE * TILES_OF_CHUNK;
        let mut rows: Vec<usize> = crossing(&chunks).collect();
        rows.dedup();
        // five entries begin the chunk that the last row shares
        let begin = |row| (row, chunks.starts.at(row) / of_chunk);
        let border = (5usize << 30) / of_chunk;
        let expected = [(0, 0), (2, (3 << 30) / of_chunk), (5, border)];
        assert!(rows.into_iter().map(begin).eq(expected));
    }
}
