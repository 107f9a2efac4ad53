//! Sparse matrices whose entries are small dense blocks, and their transposes.

use crate::Result;
use crate::formats::pattern::Pattern;
use krysp_kernels::buffer::{Buffer, in_huge_pages, shared};
use krysp_kernels::cpu::run::threads::{ByRow, over_rows, tasks};
use krysp_kernels::cpu::simd::prefetch;
use krysp_kernels::index::Offsets;
use rayon::prelude::*;
use std::sync::atomic::Ordering;

/// A sparse matrix of blocks: where they stand, rows and columns of each, and their numbers, block by block and row by row.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub(super) pattern: &'a Pattern,
    pub(super) shape: [usize; 2],
    pub(super) values: &'a [f64],
}

impl<'a> Blocks<'a> {
    /// The numbers of a block.
    #[inline(always)]
    pub(super) fn block(self, entry: usize) -> &'a [f64] {
        let size = self.shape[0] * self.shape[1];
        &self.values[entry * size..(entry + 1) * size]
    }

    /// The columns of a row, and the numbers of its blocks.
    #[inline(always)]
    pub(super) fn row(self, row: usize) -> impl Iterator<Item = (u32, &'a [f64])> + Clone {
        let range = self.pattern.offsets.range(row);
        self.pattern.columns[range.clone()].iter().copied().zip(range.map(move |entry| self.block(entry)))
    }
}

/// The entries of a row of numbers.
#[inline(always)]
pub(super) fn entries(a: Blocks<'_>, row: usize) -> impl Iterator<Item = (u32, f64)> + Clone {
    let range = a.pattern.offsets.range(row);
    a.pattern.columns[range.clone()].iter().copied().zip(a.values[range].iter().copied())
}

/// A matrix that can be asked for a row.
pub(super) trait Rows: Sync {
    fn columns(&self) -> usize;

    /// Columns of a block.
    fn width(&self) -> usize;

    /// The columns and the numbers of a row.
    fn of(&self, row: usize) -> (&[u32], &[f64]);

    /// Asks for what [`Rows::of`] will read.
    #[inline(always)]
    fn fetch(&self, row: usize) {
        let (columns, values) = self.of(row);
        prefetch(columns);
        prefetch(values);
    }
}

impl Rows for Blocks<'_> {
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

/// Where a transpose has blocks, and the block that each of them is. Entries are counted by columns in ranges of rows, which
/// then put theirs behind those of the ranges before.
pub(super) fn transposed_pattern(pattern: &Pattern) -> Result<(Pattern, Vec<u32>)> {
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

/// The numbers of a transpose, where `from` names the block that each of its blocks is.
pub(super) fn transposed(a: Blocks<'_>, from: &[u32]) -> Buffer<f64> {
    let [rows, columns] = a.shape;
    let size = rows * columns;
    let mut values = Buffer::zeros(from.len() * size);
    let offset = |block: usize| block * size;
    over_rows(from.len(), 2 * size, ByRow::new(&mut values, &offset), &|blocks, values: ByRow<'_, f64>| {
        let (values, _) = values.all();
        for (&from, to) in from[blocks].iter().zip(values.chunks_exact_mut(size)) {
            let block = a.block(from as usize);
            for (column, to) in to.chunks_exact_mut(rows).enumerate() {
                (0..rows).for_each(|row| to[row] = block[row * columns + column]);
            }
        }
    });
    values
}
