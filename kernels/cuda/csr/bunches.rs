//! First stage of speculative segmented sums on a device. The entries of a CSR matrix are cut into tiles of
//! equal size, and consecutive tiles form a bunch. speculative.cu describes the algorithm and the memory
//! traffic.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::launch::index;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::RawRowStarts;
use crate::cuda::device::{Array, Element, Real, Storage};
use crate::cuda::matrix::chunks::{OF_LANE, TILE, tiles_of_chunk};
use crate::cuda::matrix::device_csr::DeviceCsr;
use crate::cuda::matrix::pattern::Shape;
use crate::cuda::tuning::TILES_OF_CHUNK;
use cudarc::driver::{CudaFunction, DeviceRepr};

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "speculative.cu",
    text: concat!(
        include_str!("../matrix/tiles.cu"),
        "#line 1 \"speculative.cu\"\n",
        include_str!("speculative.cu")
    ),
    constants: constants![OF_LANE, TILE, ROWS_OF_RANGE, FILL, MOST_TILES, NEAR_BATCHES],
    mirrors: &[
        mirror!("Unfinished" = RawUnfinished { parts, carries, rows, counts, ranges, report, number }),
        mirror!("Speculative" = RawSpeculative { rows, columns, values, left, count, tiles, tiles_of_bunch }),
    ],
};

/// Maximum number of rows of a range in which the second stage only sets empty rows to zero. Guess.
const ROWS_OF_RANGE: usize = 1024;
/// Maximum number of tiles per bunch. Guess.
const MOST_TILES: usize = 32;
/// Maximum number of batches of 32 row starts that a warp reads per tile. A tile with more rows is *far*: its
/// rows are found by a search.
const NEAR_BATCHES: usize = TILE / WARP + 1;
/// Flag of a range in which the second stage only sets empty rows to zero; sums are already in their rows.
pub(crate) const FILL: u32 = 1 << 31;

/// Partition of the entries; depends on their number only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bunches {
    pub(crate) shape: Shape,
    pub(crate) tiles: usize,
    tiles_of_bunch: usize,
}

impl Bunches {
    fn new(shape: Shape, multiprocessors: usize) -> Result<Bunches> {
        index("the number of rows", shape.rows)?;
        let tiles = match shape.rows {
            0 => 0,
            _ => shape.entries.div_ceil(TILE).max(1),
        };
        index("the number of tiles", tiles)?;
        const { assert!(TILES_OF_CHUNK < MOST_TILES) };
        Ok(Bunches { shape, tiles, tiles_of_bunch: tiles_of_chunk(tiles, multiprocessors) })
    }

    pub(crate) fn count(self) -> usize {
        self.tiles.div_ceil(self.tiles_of_bunch)
    }

    /// Entries per bunch.
    pub(crate) fn of_bunch(self) -> usize {
        self.tiles_of_bunch * TILE
    }

    /// Maximum number of ranges that the first stage may record: one per tile, and more for far tiles, which
    /// record a range for every [`ROWS_OF_RANGE`] rows.
    pub(crate) fn most_ranges(self) -> usize {
        self.tiles + self.shape.rows / ROWS_OF_RANGE
    }
}

/// Data passed between bunches and from the first stage to the second, as passed to kernels.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawUnfinished {
    pub(crate) parts: u64,
    pub(crate) carries: u64,
    pub(crate) rows: u64,
    pub(crate) counts: u64,
    pub(crate) ranges: u64,
    pub(crate) report: u64,
    pub(crate) number: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawSpeculative {
    rows: RawRowStarts,
    columns: u64,
    values: u64,
    left: RawUnfinished,
    count: u64,
    tiles: u32,
    tiles_of_bunch: u32,
}
// SAFETY: has the layout of `Speculative` in speculative.cu
unsafe impl DeviceRepr for RawSpeculative {}

/// A matrix and the kernel of the first stage.
#[derive(Debug)]
pub(crate) struct Speculation<V: Element> {
    pub(crate) bunches: Bunches,
    pub(crate) ordered: DeviceCsr<V>,
    speculate: CudaFunction,
}

impl<V: Element> Speculation<V> {
    /// Loads the kernel named `form`, a variant of the first stage, for a matrix on the device and vectors of
    /// `T`.
    pub(crate) fn of<T: Real>(ordered: DeviceCsr<V>, shape: Shape, form: &str) -> Result<Self>
    where
        V: Storage<T>,
    {
        let device = ordered.device();
        let bunches = Bunches::new(shape, device.multiprocessors())?;
        let speculate = device.function_storing::<T, V>(&SOURCE, form)?;
        Ok(Speculation { bunches, ordered, speculate })
    }

    pub(crate) fn raw(&self, left: RawUnfinished) -> RawSpeculative {
        let DeviceCsr { rows, columns, values } = &self.ordered;
        let (rows, columns, values) = (rows.raw(), columns.address(0), values.address(0));
        let Bunches { shape, tiles, tiles_of_bunch } = self.bunches;
        let (tiles, tiles_of_bunch) = (tiles as u32, tiles_of_bunch as u32);
        RawSpeculative { rows, columns, values, left, count: shape.entries as u64, tiles, tiles_of_bunch }
    }

    /// Queues the first stage. `y` is the device address of an element for each row; the arrays of `left` are
    /// as long as [`Bunches`] requires; `x` has the element type for which the kernel was loaded.
    pub(crate) fn queue<T: Real>(&self, x: &Array<T>, y: u64, left: RawUnfinished) -> Result<()> {
        let (raw, x_address) = (self.raw(left), x.address(0));
        let mut launch = x.device().launch(&self.speculate);
        launch.arg(&raw).arg(&x_address).arg(&y);
        // SAFETY: arguments as in speculative.cu; rows are those of `y`, columns below the length of `x`
        unsafe { launch.launch(config(self.bunches.count() * WARP)) }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::csr::second_stage::{rearrange, synchronize};
    use crate::cuda::device::prelude::NONE;
    use crate::cuda::matrix::cases::{Matrix, matrices, with_lengths};
    use crate::index::{Offsets, OffsetsRef};
    use std::ops::Range;

    /// Last row that starts at or before an entry. If `entry` is the number of entries, returns the number of
    /// rows.
    fn row_at(offsets: OffsetsRef<'_>, entry: usize) -> usize {
        let (mut low, mut high) = (0, offsets.ranges() + 1);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if offsets.at(middle) <= entry { low = middle } else { high = middle }
        }
        low
    }

    /// Output of the first stage.
    struct Left {
        y: Vec<f64>,
        /// Partial sums that bunches send to the bunch in which their row ends.
        parts: Vec<Option<f64>>,
        carries: Vec<f64>,
        rows: Vec<u32>,
        /// Ranges of rows, and whether only empty rows must be set to zero ([`FILL`]).
        ranges: Vec<(Range<usize>, bool)>,
    }

    /// Emulates the first stage for given products of entries, tile by tile, with all lanes in lockstep.
    fn speculate(bunches: Bunches, offsets: &Offsets, products: &[f64]) -> Left {
        let mut left = Left {
            y: vec![f64::NAN; bunches.shape.rows],
            parts: vec![None; bunches.count()],
            carries: vec![f64::NAN; 2 * bunches.count()],
            rows: vec![0; bunches.count()],
            ranges: vec![],
        };
        for bunch in 0..bunches.count() {
            let first = bunch * bunches.tiles_of_bunch;
            let mut start = if first == 0 { 0 } else { row_at(offsets.into(), first * TILE) };
            let mut continues = offsets.at(start) < first * TILE;
            let mut is_shared = continues;
            let mut transmitted = 0.0;
            left.rows[bunch] = if is_shared { start as u32 } else { NONE };
            for tile in first..bunches.tiles.min(first + bunches.tiles_of_bunch) {
                let (from, to) = (tile * TILE, products.len().min((tile + 1) * TILE));
                let mut product: Vec<f64> = products[from..to].to_vec();
                product.resize(TILE, 0.0);
                if continues {
                    product[0] += transmitted;
                }
                let Walk { stop, open, flags, found } = walk(offsets, start, from, to);
                let sums = segments(&flags, &product, |segment, sum, is_last| {
                    if is_last && open {
                        transmitted = sum;
                    } else if segment == 0 && is_shared {
                        left.carries[2 * bunch] = sum;
                    } else {
                        let row = found.as_ref().map_or(start + segment, |rows| rows[segment]);
                        assert!(left.y[row].is_nan(), "row {row} is written once");
                        left.y[row] = sum;
                    }
                });
                if !open {
                    transmitted = 0.0;
                }
                let sums = sums - usize::from(open);
                if found.is_some() {
                    let ranges = (start..stop).step_by(ROWS_OF_RANGE);
                    left.ranges.extend(ranges.map(|at| (at..stop.min(at + ROWS_OF_RANGE), true)));
                } else if sums < stop - start {
                    left.ranges.push((start..stop, false));
                }
                is_shared &= sums == 0;
                (continues, start) = (open, stop);
            }
            left.carries[2 * bunch + 1] = transmitted;
            left.parts[bunch] = continues.then_some(transmitted);
        }
        assert!(left.ranges.len() <= bunches.most_ranges());
        left
    }

    /// Rows and segments of a tile.
    struct Walk {
        stop: usize,
        open: bool,
        flags: Vec<bool>,
        /// The row of each segment, in a far tile.
        found: Option<Vec<usize>>,
    }

    fn walk(offsets: &Offsets, start: usize, from: usize, to: usize) -> Walk {
        let (mut stop, mut open, mut more) = (start, true, true);
        let mut flags = vec![false; TILE];
        for _ in 0..NEAR_BATCHES {
            if !more {
                break;
            }
            let begins = |lane: usize| {
                let row = stop + 1 + lane;
                if row <= offsets.ranges() { offsets.at(row) } else { to + 1 }
            };
            let passed = (0..WARP).filter(|&lane| begins(lane) <= to).count();
            (0..WARP).map(begins).filter(|&begin| begin < to).for_each(|begin| flags[begin - from] = true);
            open &= !(0..WARP).any(|lane| begins(lane) == to);
            stop += passed;
            more = passed == WARP;
        }
        let mut found = None;
        if more {
            stop = row_at(offsets.into(), to);
            open = offsets.at(stop) < to;
            let rows: Vec<usize> = (from..to).map(|entry| row_at(offsets.into(), entry)).collect();
            let begins = |k: usize| offsets.at(rows[k]) == from + k;
            flags = (0..TILE).map(|k| k < rows.len() && begins(k)).collect();
            let of_segments = (0..rows.len()).filter(|&k| k == 0 || begins(k)).map(|k| rows[k]);
            found = Some(if rows.is_empty() { vec![start] } else { of_segments.collect() });
        }
        flags[0] = true;
        Walk { stop, open, flags, found }
    }

    /// Calls `put(segment, sum, whether the segment is the last)`; returns the number of segments.
    fn segments(flags: &[bool], product: &[f64], mut put: impl FnMut(usize, f64, bool)) -> usize {
        let begun = |lane: usize| flags[lane * OF_LANE..][..OF_LANE].contains(&true);
        let before_here = |lane: usize| flags[..lane * OF_LANE].iter().filter(|&&flag| flag).count();
        let all = before_here(WARP);
        let (mut head, mut tail) = ([0.0; WARP], [0.0; WARP]);
        let mut puts = vec![];
        for lane in 0..WARP {
            let at = lane * OF_LANE;
            let mut is_begun = flags[at];
            let mut segment = before_here(lane) + usize::from(is_begun);
            tail[lane] = product[at];
            for k in at + 1..at + OF_LANE {
                if !flags[k] {
                    tail[lane] += product[k];
                    continue;
                }
                if is_begun {
                    puts.push((segment - 1, tail[lane]));
                } else {
                    head[lane] = tail[lane];
                }
                is_begun = true;
                segment += 1;
                tail[lane] = product[k];
            }
        }
        let mut sum = tail;
        let start = |lane: usize| (0..=lane).rev().find(|&lane| begun(lane)).unwrap();
        for step in [1, 2, 4, 8, 16] {
            let before = sum;
            (step..WARP)
                .filter(|&lane| lane - step >= start(lane))
                .for_each(|lane| sum[lane] += before[lane - step]);
        }
        for lane in (1..WARP).filter(|&lane| begun(lane)) {
            let whole = if flags[lane * OF_LANE] { sum[lane - 1] } else { sum[lane - 1] + head[lane] };
            puts.push((before_here(lane) - 1, whole));
        }
        puts.push((all - 1, sum[WARP - 1]));
        puts.into_iter().for_each(|(segment, sum)| put(segment, sum, segment + 1 == all));
        all
    }

    /// Emulates the second stage on the device, and adds the partial sums, which the first stage adds there.
    fn finish(bunches: Bunches, offsets: &Offsets, left: &mut Left) {
        let Left { y, parts, carries, rows, ranges } = left;
        for (range, only_zeros) in ranges.iter() {
            let has_entries = |row: usize| !offsets.range(row).is_empty();
            if *only_zeros {
                range.clone().filter(|&row| !has_entries(row)).for_each(|row| y[row] = 0.0);
                continue;
            }
            assert!(range.len() < NEAR_BATCHES * WARP);
            let before = y.clone();
            let mut slot = range.start;
            for row in range.clone() {
                if !has_entries(row) {
                    y[row] = 0.0;
                    continue;
                }
                if slot != row {
                    y[row] = before[slot];
                }
                slot += 1;
            }
        }
        // the bunch in which a row ends adds the parts that earlier bunches sent
        let ends = |bunch: &usize| rows[*bunch] != NONE && !carries[2 * bunch].is_nan();
        for bunch in (0..bunches.count()).filter(ends) {
            let row = rows[bunch] as usize;
            let sent = parts[offsets.at(row) / bunches.of_bunch()..bunch].iter_mut();
            let sum: f64 = sent.map(|part| part.take().expect("it was sent")).sum();
            y[row] = sum + carries[2 * bunch];
        }
        assert!(parts.iter().all(Option::is_none), "all that is sent is received");
    }

    /// Checks the row sums with the second stage on the host and on the device.
    fn adds_up(matrix: &Matrix, multiprocessors: usize) -> Left {
        let (pattern, name) = (matrix.pattern(), &matrix.name);
        let offsets = pattern.offsets();
        let bunches = Bunches::new(pattern.shape(), multiprocessors).unwrap();
        let mut expected = vec![0.0; pattern.rows()];
        matrix.triplets().iter().for_each(|&(row, _, value)| expected[row] += value);
        let mut left = speculate(bunches, offsets, &matrix.values);
        let mut y = left.y.clone();
        for (range, only_zeros) in &left.ranges {
            match only_zeros {
                false => rearrange(offsets.into(), range.clone(), &mut y[range.clone()]),
                true => {
                    let empty = range.clone().filter(|&row| offsets.range(row).is_empty());
                    empty.for_each(|row| y[row] = 0.0);
                }
            }
        }
        synchronize(offsets.into(), bunches.of_bunch(), &left.rows, &left.carries, &mut y);
        assert_eq!(y, expected, "on the host: {name}, {multiprocessors}");
        finish(bunches, offsets, &mut left);
        assert_eq!(left.y, expected, "{name}, {multiprocessors}");
        left
    }

    #[test]
    fn both_stages_add_up() {
        let mut all = matrices();
        // matrices in which at least 30 % of the rows are empty, in short and in long successions, and
        // matrices with rows that cross several bunches
        for gap in [1, 2, 5, 37, 600, 5000] {
            all.push(with_lengths(20_000, 900, |row| if row % (gap + 1) == gap { 3 } else { 0 }));
            all.push(with_lengths(9_000, 900, |row| [0, 1, 0, 40, 2, 0, 0][row % 7]));
            all.push(with_lengths(7_000, 20_000, |row| if row % 3000 == gap { 15_000 } else { gap % 2 }));
        }
        let (mut dirty, mut far) = (0, 0);
        for matrix in &all {
            for multiprocessors in [0, 1, 132] {
                let left = adds_up(matrix, multiprocessors);
                far += left.ranges.iter().filter(|range| range.1).count();
                dirty += left.ranges.iter().filter(|range| !range.1).count();
            }
        }
        assert!(dirty > 0 && far > 0);
    }

    /// The example of section 2 of the paper, whose products are numbers here.
    #[test]
    fn golden_descriptor_and_sums() {
        let offsets = Offsets::new(&[0, 3, 6, 8, 8, 9, 12]).unwrap();
        let Walk { stop, open, flags, found } = walk(&offsets, 0, 0, 12);
        assert_eq!((stop, open, found), (6, false, None));
        assert_eq!((0..12).filter(|&k| flags[k]).collect::<Vec<_>>(), [0, 3, 6, 8, 9]);
        let products = [2.0, 9.0, 30.0, 7.0, 22.0, 39.0, 51.0, 95.0, 115.0, 87.0, 124.0, 185.0];
        let bunches = Bunches::new(Shape { rows: 6, cols: 6, entries: 12 }, 1).unwrap();
        let mut left = speculate(bunches, &offsets, &products);
        assert_eq!(left.y[..5], [41.0, 68.0, 146.0, 115.0, 396.0]);
        assert_eq!(left.ranges, [(0..6, false)]);
        finish(bunches, &offsets, &mut left);
        assert_eq!(left.y, [41.0, 68.0, 146.0, 0.0, 115.0, 396.0]);
    }

    /// The second tile of figure 3 of the paper. Rows 0 to 4 are as in the figure; the others start at the positions printed there.
    #[test]
    fn golden_tile_of_figure_3() {
        let offsets = Offsets::new(&[0, 3, 8, 13, 19, 27, 29, 29, 34, 37, 37, 44, 48]).unwrap();
        assert_eq!([0, 24, 48].map(|entry| row_at((&offsets).into(), entry)), [0, 4, 12]);
        let Walk { stop, open, flags, found } = walk(&offsets, 4, 24, 48);
        assert_eq!((stop, open, found), (12, false, None));
        assert_eq!((0..TILE).filter(|&k| flags[k]).collect::<Vec<_>>(), [0, 3, 5, 10, 13, 20]);
    }

    #[test]
    fn nothing_is_dirty_without_empty_rows() {
        for length in [1, 2, 7, 128, 300] {
            let matrix = with_lengths(1000, 5000, |row| length + row % 3);
            assert_eq!(adds_up(&matrix, 1).ranges, []);
        }
    }

    /// Uses offsets only; no entries are allocated.
    #[test]
    fn tiles_are_walked_beyond_32_bits() {
        let offsets = Offsets::from_lengths([3 << 30, 0, 1 << 31, 1 << 33]);
        let at = [0, (3 << 30) - 1, 3 << 30, (5 << 30) - 1, 5 << 30, 13 << 30];
        assert_eq!(at.map(|entry| row_at((&offsets).into(), entry)), [0, 0, 2, 2, 3, 4]);
        let lengths: Vec<usize> = [vec![5 << 30, 0, 7], vec![0; 500], vec![3, 1 << 33]].concat();
        let (rows, entries) = (lengths.len(), lengths.iter().sum());
        let offsets = Offsets::from_lengths(lengths);
        let bunches = Bunches::new(Shape { rows, cols: 1, entries }, 132).unwrap();
        assert_eq!(
            (bunches.tiles, bunches.count()),
            (entries / TILE + 1, entries / TILE / TILES_OF_CHUNK + 1)
        );
        let from = 5 << 30;
        // inside the first row, and at its end
        let Walk { stop, open, flags, found } = walk(&offsets, 0, from - TILE, from);
        assert_eq!((stop, open, found, flags.iter().filter(|&&flag| flag).count()), (2, false, None, 1));
        let Walk { stop, open, flags, found } = walk(&offsets, 2, from, from + TILE);
        assert_eq!((stop, open, found), (504, true, Some(vec![2, 503, 504])));
        assert_eq!((0..TILE).filter(|&k| flags[k]).collect::<Vec<_>>(), [0, 7, 10]);
        let last = (entries / TILE) * TILE;
        let Walk { stop, open, .. } = walk(&offsets, 504, last, entries);
        assert_eq!((stop, open), (505, false));
    }
}
