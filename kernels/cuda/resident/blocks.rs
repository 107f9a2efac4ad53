//! Partition of a matrix among the blocks of a persistent kernel: the rows of each block, and the entries of
//! `x` that they read.

use super::RESIDENT_THREADS;
use crate::cuda::matrix::pattern::Pattern;
use rayon::prelude::*;
use std::ops::Range;

const WARPS: usize = RESIDENT_THREADS / 32;

/// The parts of all blocks, in the arrays of `System` of resident.cu. Columns are indices into a block's
/// window: its own rows, then its halo (the other entries of `x` that its rows read).
#[derive(Debug, Default)]
pub(super) struct BlockArrays {
    pub(super) rows: Vec<u32>,
    pub(super) halo_first: Vec<u32>,
    pub(super) halo: Vec<u32>,
    pub(super) slice_first: Vec<u32>,
    pub(super) slices: Vec<u32>,
    pub(super) columns: Vec<u16>,
    /// Entry of the matrix in each slot (stored position); `u32::MAX` for padding.
    pub(super) entries: Vec<u32>,
    pub(super) lanes: usize,
    pub(super) window: usize,
    pub(super) own: usize,
}

impl BlockArrays {
    /// Partitions rows into blocks with about equal numbers of entries. `None` if a window is too large for
    /// 16-bit indices, or if `fits(largest window, largest number of rows of a block)` is false.
    pub(super) fn new(
        pattern: Pattern<'_>,
        blocks: usize,
        fits: &(dyn Fn(usize, usize) -> bool + Sync),
    ) -> Option<BlockArrays> {
        let (offsets, n) = (pattern.offsets(), pattern.rows());
        let work = pattern.entries() + n;
        let mut arrays = BlockArrays {
            rows: vec![0],
            halo_first: vec![0],
            slice_first: vec![0],
            slices: vec![0],
            ..BlockArrays::default()
        };
        let before = |row: usize| offsets.at(row) + row;
        let mut row = 0;
        for block in 1..=blocks {
            let goal = work * block / blocks;
            while row < n && (block == blocks || before(row + 1) <= goal) {
                row += 1;
            }
            arrays.rows.push(row as u32);
        }
        arrays.own = arrays.rows.windows(2).map(|r| (r[1] - r[0]) as usize).max().unwrap_or(0);
        arrays.lanes = lanes(pattern.mean_length(), arrays.own);
        let (lanes, own) = (arrays.lanes, arrays.own);
        let fits = |window: usize| window <= usize::from(u16::MAX) && fits(window, own);
        for rows in arrays.rows.windows(2) {
            for slice in (rows[0] as usize..rows[1] as usize).step_by(32 / lanes) {
                let stored = slice..(slice + 32 / lanes).min(rows[1] as usize);
                let longest = stored.map(|row| offsets.range(row).len()).max().unwrap_or(0);
                let before = arrays.slices.last().copied().unwrap_or(0);
                arrays.slices.push(before + longest.div_ceil(lanes) as u32);
            }
            arrays.slice_first.push(arrays.slices.len() as u32 - 1);
        }
        let slots = 32 * arrays.slices.last().map_or(0, |&groups| groups as usize);
        (arrays.columns, arrays.entries) = (vec![0; slots], vec![0; slots]);
        let halos = Block::all(&mut arrays).into_par_iter();
        // few parts, because each one needs a workspace for all columns
        let halos = halos.with_min_len(blocks.div_ceil(2 * rayon::current_num_threads()));
        let halos =
            halos.map_init(|| vec![u32::MAX; n], |place, block| block.fill(pattern, lanes, place, &fits));
        for (block, halo) in (0..).zip(halos.collect::<Option<Vec<_>>>()?) {
            let own = (arrays.rows[block + 1] - arrays.rows[block]) as usize;
            arrays.window = arrays.window.max(own + halo.len());
            arrays.halo.extend(halo);
            arrays.halo_first.push(arrays.halo.len() as u32);
        }
        Some(arrays)
    }
}

/// The part of one block: its rows, its slots, and the offsets of its slices in groups of 32 slots, the end of the last one included.
struct Block<'a> {
    rows: Range<usize>,
    slices: &'a [u32],
    columns: &'a mut [u16],
    entries: &'a mut [u32],
}

impl Block<'_> {
    /// The parts of all blocks.
    fn all(arrays: &mut BlockArrays) -> Vec<Block<'_>> {
        let (mut columns, mut entries) = (&mut arrays.columns[..], &mut arrays.entries[..]);
        let slices = arrays.slice_first.windows(2).map(|first| first[0] as usize..first[1] as usize + 1);
        let rows = arrays.rows.windows(2).map(|rows| rows[0] as usize..rows[1] as usize);
        let block = |(rows, slices): (Range<usize>, Range<usize>)| {
            let slices = &arrays.slices[slices];
            let slots = 32 * (slices[slices.len() - 1] - slices[0]) as usize;
            let (columns, entries) = (columns.split_off_mut(..slots)?, entries.split_off_mut(..slots)?);
            Some(Block { rows, slices, columns, entries })
        };
        rows.zip(slices).filter_map(block).collect()
    }

    /// Lays out the part, and returns its halo; `None` if the window does not fit. `place` is workspace with an element for each column,
    /// `u32::MAX` before and after the call.
    fn fill(
        self,
        pattern: Pattern<'_>,
        lanes: usize,
        place: &mut [u32],
        fits: &impl Fn(usize) -> bool,
    ) -> Option<Vec<u32>> {
        let Block { rows, slices, columns: into, entries } = self;
        let (offsets, columns) = (pattern.offsets(), pattern.columns());
        let inside = |column: u32| rows.contains(&(column as usize));
        let mut halo = vec![];
        for &column in columns[offsets.at(rows.start)..offsets.at(rows.end)].iter() {
            if !inside(column) && std::mem::replace(&mut place[column as usize], 0) == u32::MAX {
                halo.push(column);
            }
        }
        if !fits(rows.len() + halo.len()) {
            halo.iter().for_each(|&column| place[column as usize] = u32::MAX);
            return None;
        }
        // sort, so that consecutive halo entries are close in memory
        halo.sort_unstable();
        for (at, &column) in halo.iter().enumerate() {
            place[column as usize] = (rows.len() + at) as u32;
        }
        entries.fill(u32::MAX);
        // `lanes` is a power of two
        let (shift, mask) = (lanes.trailing_zeros(), lanes - 1);
        let height = 32 / lanes;
        for (at, row) in rows.clone().enumerate() {
            let start = 32 * (slices[at / height] - slices[0]) as usize + at % height * lanes;
            for (number, entry) in offsets.range(row).enumerate() {
                let (slot, column) = (start + (number >> shift) * 32 + (number & mask), columns[entry]);
                into[slot] = match inside(column) {
                    true => (column as usize - rows.start) as u16,
                    false => place[column as usize] as u16,
                };
                entries[slot] = entry as u32;
            }
        }
        halo.iter().for_each(|&column| place[column as usize] = u32::MAX);
        Some(halo)
    }
}

/// Number of lanes per row that minimizes the number of rounds in which the warps of a block process all its
/// groups of 32 slots; `own` is the number of rows of the largest block.
fn lanes(mean_length: f64, own: usize) -> usize {
    let rounds = |lanes: usize| {
        let slices = (own * lanes).div_ceil(32);
        slices.div_ceil(WARPS) * ((mean_length / lanes as f64).ceil() as usize + 2)
    };
    [1, 2, 4, 8, 16, 32].into_iter().min_by_key(|&lanes| rounds(lanes)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Columns, Offsets};

    /// Reconstructs row, column and entry of all slots.
    fn entries_of(arrays: &BlockArrays, blocks: usize) -> Vec<(usize, usize, u32)> {
        let mut found = vec![];
        for block in 0..blocks {
            let (first, end) = (arrays.rows[block] as usize, arrays.rows[block + 1] as usize);
            let halo = &arrays.halo[arrays.halo_first[block] as usize..arrays.halo_first[block + 1] as usize];
            let slices = arrays.slice_first[block] as usize..arrays.slice_first[block + 1] as usize;
            for (w, slice) in slices.enumerate() {
                for slot in arrays.slices[slice] as usize * 32..arrays.slices[slice + 1] as usize * 32 {
                    if arrays.entries[slot] == u32::MAX {
                        continue;
                    }
                    let row = first + (w * 32 + slot % 32) / arrays.lanes;
                    let place = usize::from(arrays.columns[slot]);
                    let column = if place < end - first {
                        first + place
                    } else {
                        halo[place - (end - first)] as usize
                    };
                    found.push((row, column, arrays.entries[slot]));
                }
            }
        }
        found.sort_unstable_by_key(|&(_, _, entry)| entry);
        found
    }

    #[test]
    fn blocks_hold_every_entry_once() {
        for (n, blocks) in [(1, 1), (33, 2), (500, 3), (1000, 7)] {
            let row = |i: usize| -> Vec<u32> {
                let mut columns: Vec<u32> = (0..i % 40).map(|k| ((i * 7 + k * k * 13) % n) as u32).collect();
                columns.sort_unstable();
                columns.dedup();
                columns
            };
            let offsets = Offsets::from_lengths((0..n).map(|i| row(i).len()));
            let columns = Columns::new((0..n).flat_map(row).collect::<Vec<_>>(), n).unwrap();
            let arrays = BlockArrays::new(Pattern::new(&offsets, &columns), blocks, &|_, _| true).unwrap();
            let expected: Vec<_> = (0..n)
                .flat_map(|i| {
                    offsets
                        .range(i)
                        .zip(row(i))
                        .map(move |(entry, column)| (i, column as usize, entry as u32))
                })
                .collect();
            assert_eq!(
                entries_of(&arrays, blocks),
                expected,
                "{n} rows, {blocks} blocks, {} lanes",
                arrays.lanes
            );
            let widest = |window: usize, _: usize| window < arrays.window;
            assert!(BlockArrays::new(Pattern::new(&offsets, &columns), blocks, &widest).is_none());
        }
    }
}
