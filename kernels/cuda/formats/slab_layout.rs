//! Layout of entries in slabs (ranges of columns), for the two kernels of slabs.cu: the first computes
//! partial sums of rows for each slab, the second adds them in bins (ranges of rows).

use crate::cuda::device::launch::WARP;
use crate::cuda::device::prelude::NONE;
use crate::cuda::matrix::pattern::Pattern;
use crate::cuda::tuning::{START_OF_SLAB, SUMS_FOR_SIXTEEN, SUMS_OF_BIN};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Entries per lane of a chunk. Guess.
pub(crate) const OWN: usize = 8;
/// Entries of a chunk, which a warp processes together.
pub(crate) const CHUNK: usize = OWN * WARP;

/// Maximum number of partial sums per row, so that those of one row fit in the shared memory of every
/// supported device.
const MOST_SUMS: usize = 4096;

/// Maximum number of slabs, limited because each thread that sorts entries has a list for every slab.
const MOST_SLABS: usize = 1 << 13;

/// Sizes of slabs, and targets for the numbers of blocks and bins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlabSizes {
    /// Columns per slab, at most 2¹⁶.
    pub(crate) width: usize,
    /// Number of resident blocks of the first kernel on the device.
    pub(crate) blocks: usize,
    /// Desired minimum number of bins.
    pub(crate) bins: usize,
}

/// A matrix in slabs.
#[derive(Debug, Default)]
pub(crate) struct Slabbed {
    /// Column, within its slab, of each slot (stored position, perhaps padding).
    pub(crate) columns: Vec<u16>,
    /// Entry of each slot; [`NONE`] for padding at the end of a slab.
    pub(crate) entries: Vec<u32>,
    /// For each lane: in the low 16 bits, a bit for each slot that begins a partial sum; in the high 16 bits,
    /// the number of sums that begin in earlier lanes of the chunk.
    pub(crate) starts: Vec<u32>,
    /// Index of the first sum of each chunk.
    pub(crate) first: Vec<u32>,
    /// Work of each block of the first kernel: `[first chunk, chunks, first column, columns]`.
    pub(crate) shares: Vec<u32>,
    /// Number of partial sums.
    pub(crate) sums: usize,
    /// Runs of consecutive sums of a slab that belong to one bin, at most `lanes` each: `[first, count]`, bin
    /// by bin.
    pub(crate) runs: Vec<[u32; 2]>,
    /// First run of each bin, and the end.
    pub(crate) first_run: Vec<u32>,
    /// Lanes per run.
    pub(crate) lanes: usize,
    /// Position of each sum in the shared memory of its bin.
    pub(crate) places: Vec<u16>,
    /// First row of each bin, and the end.
    pub(crate) rows: Vec<u32>,
    /// Start of each row's sums in the shared memory of its bin, and for each bin the end.
    pub(crate) offsets: Vec<u16>,
    /// Upper bound on the number of sums, and of rows, of a bin.
    pub(crate) most_sums: usize,
}

/// The layout of one slab, with sums counted from the first of the slab.
#[derive(Default)]
struct Slab {
    columns: Vec<u16>,
    entries: Vec<u32>,
    starts: Vec<u32>,
    first: Vec<u32>,
    /// Row of each sum.
    rows: Vec<u32>,
}

impl Slab {
    /// Lays out the entries of a slab, given as pairs (row, entry) in ascending order.
    fn new(own: impl Iterator<Item = (u32, u32)>, first_column: usize, columns: &[u32]) -> Slab {
        let own: Vec<(u32, u32)> = own.collect();
        let mut slab = Slab::default();
        // padding repeats the last column, so a NaN in x affects only rows that read it anyway
        let mut column = 0;
        for chunk in own.chunks(CHUNK) {
            let first = slab.rows.len();
            slab.first.push(first as u32);
            let mut open = NONE;
            for lane in 0..WARP {
                let mut word = ((slab.rows.len() - first) as u32) << 16;
                for k in 0..OWN {
                    let Some(&(row, entry)) = chunk.get(lane * OWN + k) else {
                        slab.columns.push(column);
                        slab.entries.push(NONE);
                        continue;
                    };
                    if row != open {
                        word |= 1 << k;
                        slab.rows.push(row);
                        open = row;
                    }
                    column = (columns[entry as usize] as usize - first_column) as u16;
                    slab.columns.push(column);
                    slab.entries.push(entry);
                }
                slab.starts.push(word);
            }
        }
        slab
    }
}

impl Slabbed {
    /// Lays out a matrix. `None` if there are no entries, too many slabs, more slots than 32-bit indices
    /// allow, or too many partial sums in a row.
    pub(crate) fn new(pattern: Pattern<'_>, sizes: SlabSizes) -> Option<Slabbed> {
        let slabs = pattern.cols().div_ceil(sizes.width);
        if pattern.entries() == 0 || slabs > MOST_SLABS || pattern.entries() + slabs * CHUNK >= NONE as usize
        {
            return None;
        }
        let slabs = of_columns(pattern, sizes.width, slabs);
        let mut all = Slabbed::default();
        all.cut_rows(pattern.rows(), &slabs, sizes.bins)?;
        all.cut_slabs(pattern.cols(), &slabs, sizes);
        for slab in slabs {
            let before = all.sums as u32;
            all.first.extend(slab.first.iter().map(|first| before + first));
            all.sums += slab.rows.len();
            all.columns.extend(slab.columns);
            all.entries.extend(slab.entries);
            all.starts.extend(slab.starts);
        }
        Some(all)
    }

    /// Partitions the chunks of slabs into shares, one for each block of the first kernel, largest first. A
    /// share has chunks of one slab. The maximum size of a share is chosen so that the last block ends as
    /// early as possible, by the estimate of [`rounds`]. With a fixed maximum of 1.1 times the mean share, a
    /// few blocks often ran in a second wave (on an H200 boyd2_like took 0.0184 ms instead of 0.0162, f64,
    /// lp_like 0.0310 instead of 0.0279, f32).
    fn cut_slabs(&mut self, cols: usize, slabs: &[Slab], sizes: SlabSizes) {
        let chunks: usize = slabs.iter().map(|slab| slab.first.len()).sum();
        let part = |sixteenths: usize| (chunks * sixteenths).div_ceil(16 * sizes.blocks).max(1);
        let most = (12..=32).map(part).min_by_key(|&most| rounds(slabs, most, sizes.blocks)).unwrap_or(1);
        let mut shares: Vec<[u32; 4]> = vec![];
        let mut before = 0;
        for (at, slab) in slabs.iter().enumerate() {
            let (here, column) = (slab.first.len(), at * sizes.width);
            let parts = here.div_ceil(most);
            for part in 0..parts {
                let (from, to) = (here * part / parts, here * (part + 1) / parts);
                let width = sizes.width.min(cols - column);
                shares.push([before + from, to - from, column, width].map(|number| number as u32));
            }
            before += here;
        }
        shares.sort_by_key(|share| Reverse(share[1]));
        self.shares = shares.concat();
    }

    /// Partitions rows into bins of neighbouring rows with about equal numbers of sums.
    fn cut_rows(&mut self, rows: usize, slabs: &[Slab], bins: usize) -> Option<()> {
        let mut counts = vec![0u32; rows];
        slabs.iter().flat_map(|slab| &slab.rows).for_each(|&row| counts[row as usize] += 1);
        let sums: usize = slabs.iter().map(|slab| slab.rows.len()).sum();
        let longest = counts.iter().copied().max().unwrap_or(0) as usize;
        if longest > MOST_SUMS {
            return None;
        }
        let (least, most) = SUMS_OF_BIN;
        let enough = sums.div_ceil(bins).clamp(least, most);
        // position of the first sum of each row
        let mut next = Vec::with_capacity(rows);
        let mut here = 0;
        self.rows.push(0);
        for (row, &count) in counts.iter().enumerate() {
            let rows = row - self.rows.last().map_or(0, |&first| first as usize);
            // a bin has more than `enough` sums only if it has a single row
            if rows > 0 && here + count as usize > enough || rows == enough {
                self.offsets.push(here as u16);
                self.rows.push(row as u32);
                here = 0;
            }
            self.offsets.push(here as u16);
            next.push(here as u16);
            here += count as usize;
        }
        self.offsets.push(here as u16);
        self.rows.push(rows as u32);
        self.most_sums = enough.max(longest);

        // choose the number of lanes close to the number of sums of most runs
        let bins = self.rows.len() - 1;
        self.lanes = if sums / (bins * slabs.len()) >= SUMS_FOR_SIXTEEN { 16 } else { 8 };
        let runs_of_bin = |bin: &[u32]| {
            let mut runs = vec![];
            let mut before = 0;
            for slab in slabs {
                let [from, to] = [bin[0], bin[1]].map(|row| slab.rows.partition_point(|&of| of < row));
                let firsts = (from..to).step_by(self.lanes);
                runs.extend(
                    firsts.map(|at| [before + at, self.lanes.min(to - at)].map(|number| number as u32)),
                );
                before += slab.rows.len();
            }
            runs
        };
        let runs: Vec<Vec<[u32; 2]>> = self.rows.par_windows(2).map(runs_of_bin).collect();
        let ends = runs.iter().scan(0, |end, runs| {
            *end += runs.len() as u32;
            Some(*end)
        });
        self.first_run = std::iter::once(0).chain(ends).collect();
        self.runs = runs.concat();
        let place = |&row: &u32| {
            let place = next[row as usize];
            next[row as usize] += 1;
            place
        };
        self.places = slabs.iter().flat_map(|slab| &slab.rows).map(place).collect();
        Some(())
    }
}

/// Estimated time at which the last block ends, in units of the time for a chunk, if shares have at most
/// `most` chunks and `blocks` blocks are resident.
fn rounds(slabs: &[Slab], most: usize, blocks: usize) -> usize {
    let mut shares: Vec<usize> = vec![];
    for slab in slabs.iter().filter(|slab| !slab.first.is_empty()) {
        let parts = slab.first.len().div_ceil(most);
        shares.extend(std::iter::repeat_n(slab.first.len().div_ceil(parts) + START_OF_SLAB, parts));
    }
    shares.sort_unstable_by_key(|&share| Reverse(share));
    let mut ends: BinaryHeap<Reverse<usize>> = (0..blocks.max(1)).map(|_| Reverse(0)).collect();
    for share in shares {
        if let Some(mut earliest) = ends.peek_mut() {
            earliest.0 += share;
        }
    }
    ends.into_iter().map(|end| end.0).max().unwrap_or(0)
}

/// Estimated number of partial sums per entry in slabs of `width` columns: the average over 64 evenly spaced
/// runs of 1024 entries.
pub(crate) fn share_of_sums(pattern: Pattern<'_>, width: usize) -> f64 {
    const RUNS: usize = 64;
    let (columns, offsets) = (pattern.columns(), pattern.offsets());
    let run = columns.len().min(1024);
    let sums_of_run = |at: usize| {
        let first = (columns.len() - run) * at / (RUNS - 1);
        let mut row = first_row(pattern, first + 1) - 1;
        let mut sums: Vec<(usize, usize)> = (first..first + run)
            .map(|entry| {
                while offsets.at(row + 1) <= entry {
                    row += 1;
                }
                (row, columns[entry] as usize / width)
            })
            .collect();
        sums.sort_unstable();
        sums.dedup();
        sums.len()
    };
    (0..RUNS).map(sums_of_run).sum::<usize>() as f64 / (RUNS * run).max(1) as f64
}

/// The first row that starts at or after an entry.
fn first_row(pattern: Pattern<'_>, entry: usize) -> usize {
    let (mut low, mut high) = (0, pattern.rows());
    while low < high {
        let middle = (low + high) / 2;
        if pattern.offsets().at(middle) < entry {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The slabs of a matrix, with `width` columns each.
fn of_columns(pattern: Pattern<'_>, width: usize, slabs: usize) -> Vec<Slab> {
    /// Approximate number of entries that a thread sorts at a time. Guess, chosen as about a millisecond
    /// of work.
    const ENTRIES: usize = 1 << 18;
    let columns = pattern.columns();
    let blocks = pattern.entries().div_ceil(ENTRIES);
    let sorted = |block: usize| {
        let end =
            if block + 1 == blocks { pattern.rows() } else { first_row(pattern, (block + 1) * ENTRIES) };
        let mut own = vec![vec![]; slabs];
        for row in first_row(pattern, block * ENTRIES)..end {
            for entry in pattern.row(row) {
                own[columns[entry] as usize / width].push((row as u32, entry as u32));
            }
        }
        own
    };
    let sorted: Vec<Vec<Vec<(u32, u32)>>> = (0..blocks).into_par_iter().map(sorted).collect();
    let slab = |at: usize| {
        let own = sorted.iter().flat_map(|block| block[at].iter().copied());
        Slab::new(own, at * width, columns)
    };
    (0..slabs).into_par_iter().map(slab).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::matrix::cases::{Matrix, matrices, with_lengths};

    /// Emulates the kernels for `x = 1`.
    fn add_up(slabbed: &Slabbed, matrix: &Matrix, width: usize) -> Vec<f64> {
        let pattern = matrix.pattern();
        let mut sums = vec![f64::NAN; slabbed.sums];
        let mut chunks = vec![0; slabbed.first.len()];
        for share in slabbed.shares.chunks(4) {
            let [first, count, column, columns] = [0, 1, 2, 3].map(|at| share[at] as usize);
            assert!(columns <= width && column + columns <= pattern.cols());
            for (chunk, times) in chunks.iter_mut().enumerate().skip(first).take(count) {
                *times += 1;
                let mut at = slabbed.first[chunk] as usize;
                let mut open = None;
                for lane in 0..WARP {
                    let word = slabbed.starts[chunk * WARP + lane];
                    let begun = at - slabbed.first[chunk] as usize + usize::from(open.is_some());
                    assert_eq!(begun, (word >> 16) as usize);
                    for k in 0..OWN {
                        let slot = chunk * CHUNK + lane * OWN + k;
                        let entry = slabbed.entries[slot];
                        let begins = word >> k & 1 == 1;
                        if let Some(sum) = open.filter(|_| begins) {
                            assert!(sums[at].is_nan());
                            sums[at] = sum;
                            at += 1;
                        }
                        if begins {
                            open = Some(0.0);
                        }
                        if entry != NONE {
                            let own = column + slabbed.columns[slot] as usize;
                            assert_eq!(own, pattern.columns()[entry as usize] as usize);
                            assert!((slabbed.columns[slot] as usize) < columns);
                            open = open.map(|sum| sum + matrix.values[entry as usize]);
                        }
                    }
                }
                sums[at] = open.unwrap();
            }
        }
        assert!(chunks.iter().all(|&times| times == 1));

        let mut y = vec![f64::NAN; pattern.rows()];
        for bin in 0..slabbed.rows.len() - 1 {
            let mut of_bin = vec![f64::NAN; slabbed.most_sums];
            let runs = slabbed.first_run[bin] as usize..slabbed.first_run[bin + 1] as usize;
            for &[first, count] in &slabbed.runs[runs] {
                assert!((1..=slabbed.lanes).contains(&(count as usize)));
                for k in first..first + count {
                    let place = &mut of_bin[slabbed.places[k as usize] as usize];
                    assert!(place.is_nan());
                    *place = sums[k as usize];
                }
            }
            let rows = slabbed.rows[bin + 1] - slabbed.rows[bin];
            assert!(rows as usize <= slabbed.most_sums);
            let first = slabbed.rows[bin] as usize;
            for (row, y) in y.iter_mut().enumerate().skip(first).take(rows as usize) {
                let [from, to] = [0, 1].map(|k| slabbed.offsets[row + bin + k] as usize);
                *y = of_bin[from..to].iter().sum();
            }
        }
        y
    }

    #[test]
    fn slabs_add_up() {
        let mut all = matrices();
        all.push(with_lengths(20_000, 900, |row| if row % 600 == 0 { 3 } else { 0 }));
        all.push(with_lengths(7_000, 20_000, |row| if row % 3000 == 5 { 15_000 } else { 1 }));
        let mut several = 0;
        for matrix in &all {
            for width in [7, 64, 1000] {
                for (blocks, bins) in [(1, 1), (264, 800)] {
                    let Some(slabbed) = Slabbed::new(matrix.pattern(), SlabSizes { width, blocks, bins })
                    else {
                        let slabs = matrix.pattern().cols().div_ceil(width);
                        assert!(matrix.values.is_empty() || slabs > MOST_SLABS, "{}", matrix.name);
                        continue;
                    };
                    several += usize::from(slabbed.rows.len() > 2 && matrix.pattern().cols() > width);
                    let mut expected = vec![0.0; matrix.pattern().rows()];
                    matrix.triplets().iter().for_each(|&(row, _, value)| expected[row] += value);
                    assert_eq!(add_up(&slabbed, matrix, width), expected, "{}, {width}", matrix.name);
                }
            }
        }
        assert!(several > 0);
    }

    #[test]
    fn sums_are_estimated() {
        for matrix in &matrices() {
            let (pattern, width) = (matrix.pattern(), 64);
            let sizes = SlabSizes { width, blocks: 264, bins: 800 };
            let Some(slabbed) = Slabbed::new(pattern, sizes) else { continue };
            // the estimate is not exact: every chunk begins a new sum, and samples begin and end within rows
            let (share, sums) =
                (share_of_sums(pattern, width), slabbed.sums as f64 / pattern.entries() as f64);
            assert!(share > 0.5 * sums && share < 1.5 * sums + 0.05, "{}: {share}, {sums}", matrix.name);
        }
    }

    #[test]
    fn a_row_of_too_many_sums_is_refused() {
        let matrix = with_lengths(3, 1 << 20, |row| if row == 1 { 1 << 20 } else { 1 });
        let sizes = SlabSizes { width: 1 << 12, blocks: 1, bins: 1 };
        assert!(Slabbed::new(matrix.pattern(), sizes).is_some_and(|slabbed| slabbed.most_sums <= MOST_SUMS));
        let matrix = with_lengths(3, 2 << 20, |row| if row == 1 { 2 << 20 } else { 1 });
        assert!(Slabbed::new(matrix.pattern(), sizes).is_none());
    }
}
