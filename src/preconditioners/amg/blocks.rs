//! Sparse matrices whose entries are small dense blocks, and their transposes.

use crate::error::Result;
use crate::formats::pattern::Pattern;
use krysp_kernels::buffer::{Buffer, Plain, in_huge_pages, shared};
use krysp_kernels::cpu::run::threads::{ByRow, over_long_rows, tasks};
use krysp_kernels::cpu::simd::prefetch;
use krysp_kernels::index::Offsets;
use rayon::prelude::*;
use std::array::from_fn;
use std::sync::atomic::Ordering;

/// A sparse matrix of dense blocks: the block pattern, the shape of a block, and the values, block by block
/// and row-major within a block.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    pub(crate) pattern: &'a Pattern,
    pub(crate) shape: [usize; 2],
    pub(crate) values: &'a [f64],
    /// Whether the values are in CSR order of the scalar matrix, so that a matrix in which all rows of a node
    /// have the same pattern is used without a copy.
    pub(crate) by_rows: bool,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(pattern: &'a Pattern, shape: [usize; 2], values: &'a [f64]) -> Blocks<'a> {
        Blocks { pattern, shape, values, by_rows: false }
    }

    /// Position of the first value of block `entry`, which is in block row `node`, and the distance between
    /// the first values of its rows.
    #[inline(always)]
    fn place(self, node: usize, entry: usize) -> (usize, usize) {
        let [rows, columns] = self.shape;
        if !self.by_rows {
            return (entry * rows * columns, columns);
        }
        let range = self.pattern.offsets.range(node);
        (range.start * rows * columns + (entry - range.start) * columns, range.len() * columns)
    }

    /// Row `row` of block `entry`, which is in block row `node`.
    #[inline(always)]
    pub(crate) fn row_of_block(self, node: usize, entry: usize, row: usize) -> &'a [f64] {
        let (first, apart) = self.place(node, entry);
        &self.values[first + row * apart..][..self.shape[1]]
    }

    /// The rows of block `entry`, which is in block row `node`.
    #[inline(always)]
    pub(crate) fn rows_of_block(self, node: usize, entry: usize) -> impl Iterator<Item = &'a [f64]> + Clone {
        (0..self.shape[0]).map(move |row| self.row_of_block(node, entry, row))
    }

    /// Position of the diagonal block of a node.
    pub(crate) fn own(self, node: usize) -> Option<usize> {
        let at = self.pattern.row(node).binary_search(&(node as u32)).ok()?;
        Some(self.pattern.offsets.at(node) + at)
    }

    /// The values of a block, which must be contiguous (`by_rows` is false).
    #[inline(always)]
    pub(crate) fn block(self, entry: usize) -> &'a [f64] {
        debug_assert!(!self.by_rows);
        let size = self.shape[0] * self.shape[1];
        &self.values[entry * size..(entry + 1) * size]
    }
}

/// The columns and values of a row of a matrix with 1 x 1 blocks.
#[inline(always)]
pub(super) fn entries(a: Blocks<'_>, row: usize) -> impl Iterator<Item = (u32, f64)> + Clone {
    let range = a.pattern.offsets.range(row);
    a.pattern.columns[range.clone()].iter().copied().zip(a.values[range].iter().copied())
}

/// Calls `fill` for each row with its part of `to`, in which rows have the given offsets times `width`.
pub(crate) fn fill_rows<X: Plain + Send>(
    offsets: &Offsets,
    width: usize,
    to: &mut [X],
    fill: &(impl Fn(usize, &mut [X]) + Sync),
) {
    let offset = |row: usize| offsets.at(row) * width;
    over_long_rows(offsets.ranges(), 16 * width, ByRow::new(to, &offset), &|rows, mut part: ByRow<'_, X>| {
        for row in rows {
            fill(row, part.row_mut(row, offsets.range(row).len() * width));
        }
    });
}

/// The left factor of a product, read block by block.
pub(crate) trait LeftFactor: Copy + Sync {
    fn pattern(&self) -> &Pattern;

    /// Number of rows and columns of a block.
    fn shape(&self) -> [usize; 2];

    /// The values of block `entry`, which is in block row `node`, for a shape known at compile time.
    fn load<const ROWS: usize, const COLUMNS: usize>(
        &self,
        node: usize,
        entry: usize,
    ) -> [[f64; COLUMNS]; ROWS];

    /// Prefetches a block, if blocks are not read in the order in which they are stored.
    #[inline(always)]
    fn fetch(&self, _entry: usize) {}

    /// One value of a block.
    fn number(&self, node: usize, entry: usize, row: usize, column: usize) -> f64;
}

impl LeftFactor for Blocks<'_> {
    fn pattern(&self) -> &Pattern {
        self.pattern
    }

    fn shape(&self) -> [usize; 2] {
        self.shape
    }

    #[inline(always)]
    fn load<const ROWS: usize, const COLUMNS: usize>(
        &self,
        node: usize,
        entry: usize,
    ) -> [[f64; COLUMNS]; ROWS] {
        let (first, apart) = match self.by_rows {
            true => self.place(node, entry),
            false => (entry * ROWS * COLUMNS, COLUMNS),
        };
        let block = &self.values[first..][..(ROWS - 1) * apart + COLUMNS];
        from_fn(|row| from_fn(|column| block[row * apart + column]))
    }

    #[inline(always)]
    fn number(&self, node: usize, entry: usize, row: usize, column: usize) -> f64 {
        self.row_of_block(node, entry, row)[column]
    }
}

/// A transpose that is not stored: its pattern, and for each of its blocks the index of the block in `of`.
/// The blocks of `of` must be contiguous.
#[derive(Clone, Copy)]
pub(crate) struct Transposed<'a> {
    pub(crate) pattern: &'a Pattern,
    pub(crate) of: Blocks<'a>,
    pub(crate) from: &'a [u32],
}

impl LeftFactor for Transposed<'_> {
    fn pattern(&self) -> &Pattern {
        self.pattern
    }

    fn shape(&self) -> [usize; 2] {
        let [rows, columns] = self.of.shape;
        [columns, rows]
    }

    #[inline(always)]
    fn load<const ROWS: usize, const COLUMNS: usize>(
        &self,
        _: usize,
        entry: usize,
    ) -> [[f64; COLUMNS]; ROWS] {
        let block = &self.of.values[self.from[entry] as usize * ROWS * COLUMNS..][..ROWS * COLUMNS];
        from_fn(|row| from_fn(|column| block[column * ROWS + row]))
    }

    #[inline(always)]
    fn fetch(&self, entry: usize) {
        if let Some(&from) = self.from.get(entry) {
            prefetch(self.of.block(from as usize));
        }
    }

    #[inline(always)]
    fn number(&self, _: usize, entry: usize, row: usize, column: usize) -> f64 {
        self.of.block(self.from[entry] as usize)[column * self.of.shape[1] + row]
    }
}

/// A matrix whose rows can be read in any order.
pub(crate) trait RowAccess: Sync {
    fn columns(&self) -> usize;

    /// Number of columns of a block.
    fn width(&self) -> usize;

    /// The columns and the values of a row.
    fn of(&self, row: usize) -> (&[u32], &[f64]);

    /// Prefetches the offset of a row, if offsets of consecutive rows are not adjacent.
    #[inline(always)]
    fn fetch_place(&self, _row: usize) {}

    /// Prefetches what [`RowAccess::of`] will read.
    #[inline(always)]
    fn fetch(&self, row: usize) {
        let (columns, values) = self.of(row);
        prefetch(columns);
        prefetch(values);
    }
}

impl RowAccess for Blocks<'_> {
    fn columns(&self) -> usize {
        self.pattern.cols()
    }

    fn width(&self) -> usize {
        self.shape[1]
    }

    #[inline(always)]
    fn of(&self, row: usize) -> (&[u32], &[f64]) {
        let (range, size) = (self.pattern.offsets.range(row), self.shape[0] * self.shape[1]);
        (&self.pattern.columns[range.clone()], &self.values[range.start * size..range.end * size])
    }
}

/// Computes the pattern of the transpose, and for each of its blocks the index of the original block. Ranges
/// of rows are processed in parallel: first each range counts its entries of each column, then it writes them
/// behind those of the preceding ranges.
pub(crate) fn transposed_pattern(pattern: &Pattern) -> Result<(Pattern, Vec<u32>)> {
    let (rows, cols) = (pattern.rows(), pattern.cols());
    let parts = tasks(pattern.entries()).clamp(1, 2 * rayon::current_num_threads());
    let rows_of = |part: usize| part * rows / parts..(part + 1) * rows / parts;
    let counted = (0..parts).into_par_iter().map(|part| {
        let mut counts = vec![0u32; cols];
        let range = pattern.offsets.at(rows_of(part).start)..pattern.offsets.at(rows_of(part).end);
        pattern.columns[range].iter().for_each(|&column| counts[column as usize] += 1);
        counts
    });
    let mut next: Vec<Vec<u32>> = counted.collect();
    let mut lengths = vec![0; cols];
    for counts in &mut next {
        lengths.iter_mut().zip(counts).for_each(|(sum, count)| *sum += std::mem::replace(count, *sum));
    }
    let offsets = Offsets::from_lengths(lengths.iter().map(|&length| length as usize));
    let (mut columns, mut from) = (Buffer::zeros(pattern.entries()), vec![0; pattern.entries()]);
    in_huge_pages(&mut from);
    let (to_columns, to_from) = (shared(&mut columns), shared(&mut from));
    next.par_iter_mut().enumerate().for_each(|(part, next)| {
        for row in rows_of(part) {
            for (entry, &column) in pattern.offsets.range(row).zip(pattern.row(row)) {
                let next = &mut next[column as usize];
                let place = offsets.at(column as usize) + *next as usize;
                *next += 1;
                to_columns[place].store(row as u32, Ordering::Relaxed);
                to_from[place].store(entry as u32, Ordering::Relaxed);
            }
        }
    });
    Ok((Pattern::sorted(offsets, columns, rows)?, from))
}
