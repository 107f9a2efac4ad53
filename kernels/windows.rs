//! Blocks of rows and their windows. A window is the set of entries of `x` that the rows of a block read.
//!
//! A window begins with the entries of `x` that belong to the block's own rows; the other columns, its halo,
//! follow in ascending order. Every column of the block thus becomes a 16-bit index into the window.

use crate::index::{Columns, Offsets};
use rayon::prelude::*;
use std::ops::Range;

/// Largest number of columns of a window; one more index is reserved for padding.
pub const LARGEST: usize = u16::MAX as usize;

/// Largest number of columns of a window whose indices fit 12 bits; one more index is reserved for padding.
/// On a GPU, the indices of matrices without dense blocks (one row per node) are stored in 12 bits.
pub const PACKED: usize = (1 << 12) - 1;

/// Partition of the rows into blocks, with the window of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    cols: usize,
    /// First row of each block, then the end of the last.
    bounds: Vec<u32>,
    /// Start of the halo of each block in `halo`, then the end of the last.
    starts: Vec<u32>,
    /// Columns of all halos, ascending within each.
    halo: Vec<u32>,
}

/// Error: the window of these rows is larger than allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Rows of the block.
    pub rows: Range<usize>,
    /// Number of columns of their window.
    pub window: usize,
}

impl Windows {
    /// Partitions the rows into blocks of `height` rows, a multiple of `grain`. A block whose window has more
    /// than `most` columns is halved, at a multiple of `grain`, until every window fits. Returns an error if
    /// the window of `grain` rows is still too large.
    pub fn new(
        offsets: &Offsets,
        columns: &Columns,
        height: usize,
        grain: usize,
        most: usize,
    ) -> Result<Windows, TooLarge> {
        assert!(
            grain > 0 && height.is_multiple_of(grain) && height > 0,
            "`height` is a positive multiple of `grain`"
        );
        let (rows, cols, most) = (offsets.ranges(), columns.bound(), most.min(LARGEST));
        let block = |block: usize| {
            let mut done = vec![];
            let whole = block * height..rows.min((block + 1) * height);
            let mut left = Vec::from([whole]);
            while let Some(rows) = left.pop() {
                let halo = halo(offsets, columns, rows.clone());
                let window = own(&rows, cols).len() + halo.len();
                if window <= most {
                    done.push((rows.end as u32, halo));
                } else if rows.len() > grain {
                    let middle = rows.start
                        + (rows.len() / 2).next_multiple_of(grain).min((rows.len() - 1) / grain * grain);
                    left.push(middle..rows.end);
                    left.push(rows.start..middle);
                } else {
                    return Err(TooLarge { rows, window });
                }
            }
            Ok(done)
        };
        let blocks: Vec<Vec<(u32, Vec<u32>)>> =
            (0..rows.div_ceil(height)).into_par_iter().map(block).collect::<Result<_, _>>()?;
        let (mut bounds, mut starts, mut places) = (vec![0], vec![0], 0);
        for (end, halo) in blocks.iter().flatten() {
            places += halo.len();
            bounds.push(*end);
            // the halos have together at most as many columns as the matrix has entries, which may exceed 2³²
            let Ok(place) = u32::try_from(places) else {
                return Err(TooLarge { rows: 0..rows, window: places });
            };
            starts.push(place);
        }
        let mut halo = vec![0; places];
        let mut rest = halo.as_mut_slice();
        let mut copies = vec![];
        for (_, from) in blocks.iter().flatten() {
            let (to, others) = rest.split_at_mut(from.len());
            copies.push((to, from));
            rest = others;
        }
        copies.into_par_iter().with_min_len(16).for_each(|(to, from)| to.copy_from_slice(from));
        Ok(Windows { cols, bounds, starts, halo })
    }

    /// Number of blocks.
    pub fn count(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Rows of a block.
    pub fn rows(&self, block: usize) -> Range<usize> {
        self.bounds[block] as usize..self.bounds[block + 1] as usize
    }

    /// Columns at the beginning of a window: those with the indices of the block's own rows.
    pub fn own(&self, block: usize) -> Range<usize> {
        own(&self.rows(block), self.cols)
    }

    /// Columns that follow the own ones in a window, ascending.
    pub fn halo(&self, block: usize) -> &[u32] {
        &self.halo[self.starts[block] as usize..self.starts[block + 1] as usize]
    }

    /// Number of columns of a window.
    pub fn len(&self, block: usize) -> usize {
        self.own(block).len() + self.halo(block).len()
    }

    /// Returns whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Number of columns of the largest window.
    pub fn largest(&self) -> usize {
        (0..self.count()).map(|block| self.len(block)).max().unwrap_or(0)
    }

    /// Number of rows of the largest block.
    pub fn tallest(&self) -> usize {
        (0..self.count()).map(|block| self.rows(block).len()).max().unwrap_or(0)
    }

    /// Index of a column in a window that contains it.
    pub fn place(&self, block: usize, column: u32) -> usize {
        let own = self.own(block);
        match own.contains(&(column as usize)) {
            true => column as usize - own.start,
            false => own.len() + self.halo(block).partition_point(|&c| c < column),
        }
    }

    /// Column at an index of a window.
    pub fn column(&self, block: usize, place: usize) -> usize {
        let own = self.own(block);
        match place.checked_sub(own.len()) {
            None => own.start + place,
            Some(place) => self.halo(block)[place] as usize,
        }
    }

    /// Number of columns of the matrix.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// First row of each block, then the end of the last.
    pub fn bounds(&self) -> &[u32] {
        &self.bounds
    }

    /// Start of the halo of each block in [`Windows::all_halos`], then the end of the last.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// Columns of all halos, block after block.
    pub fn all_halos(&self) -> &[u32] {
        &self.halo
    }
}

/// Columns with the same indices as these rows.
fn own(rows: &Range<usize>, cols: usize) -> Range<usize> {
    rows.start.min(cols)..rows.end.min(cols)
}

/// Columns that the rows read outside their own indices, ascending.
fn halo(offsets: &Offsets, columns: &Columns, rows: Range<usize>) -> Vec<u32> {
    let outside = |&column: &u32| !rows.contains(&(column as usize));
    let mut halo: Vec<u32> =
        columns[offsets.at(rows.start)..offsets.at(rows.end)].iter().copied().filter(outside).collect();
    halo.sort_unstable();
    halo.dedup();
    halo
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix whose rows have entries in these columns.
    fn matrix(cols: usize, rows: &[Vec<u32>]) -> (Offsets, Columns) {
        (Offsets::from_lengths(rows.iter().map(Vec::len)), Columns::new(rows.concat(), cols).unwrap())
    }

    fn band(rows: usize, cols: usize, reach: usize) -> Vec<Vec<u32>> {
        let row = |i: usize| (i.saturating_sub(reach)..cols.min(i + reach + 1)).step_by(3).map(|c| c as u32);
        (0..rows).map(|i| row(i).collect()).collect()
    }

    #[test]
    fn every_column_has_its_place() {
        for (rows, cols, reach) in
            [(1000, 1000, 40), (333, 1000, 5), (1000, 333, 400), (64, 64, 64), (0, 5, 1)]
        {
            let entries = band(rows, cols, reach);
            let (offsets, columns) = matrix(cols, &entries);
            let windows = Windows::new(&offsets, &columns, 128, 32, 500).unwrap();
            assert_eq!(windows.bounds().last(), Some(&(rows as u32)));
            assert_eq!(windows.is_empty(), rows == 0);
            for block in 0..windows.count() {
                assert!(windows.rows(block).start.is_multiple_of(32) && windows.len(block) <= 500);
                let window: Vec<u32> =
                    windows.own(block).map(|c| c as u32).chain(windows.halo(block).iter().copied()).collect();
                assert!(windows.halo(block).is_sorted());
                for row in windows.rows(block) {
                    let found = |&c: &u32| windows.column(block, windows.place(block, c)) == c as usize;
                    assert!(entries[row].iter().all(|c| window[windows.place(block, *c)] == *c && found(c)));
                }
            }
        }
    }

    #[test]
    fn blocks_with_large_windows_are_halved() {
        let mut entries = band(1000, 5000, 1);
        entries[700] = (0..400).collect();
        let (offsets, columns) = matrix(5000, &entries);
        let windows = Windows::new(&offsets, &columns, 256, 32, 450).unwrap();
        assert_eq!(windows.bounds()[..3], [0, 256, 512]);
        assert!(windows.largest() <= 450 && windows.count() > 4);
        assert!(windows.bounds().windows(2).all(|b| b[0] < b[1]));
        let refused = Windows::new(&offsets, &columns, 256, 32, 300).unwrap_err();
        assert!(refused.rows.contains(&700) && refused.window > 300, "{refused:?}");
    }
}
