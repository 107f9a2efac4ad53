//! Products of sparse matrices whose entries are small dense blocks.
//!
//! ```text
//! row i of C:  for each entry k of row i of A, for each entry j of row k of B:  C_ij ← C_ij + A_ik B_kj
//! ```
//!
//! The first product finds the pattern as well; later ones compute the values of the known pattern. Each row
//! is computed by one thread, in the order of the rows of `A` and `B`, so that values are bitwise the same
//! for every number of threads, and for the first and every later product.
//!
//! Cost: one row of `B` read for each entry of `A`, and `C` written once; `2 · rows · inner · columns`
//! operations for each pair of blocks. Each task has an array of 4 bytes per column of `C`.

use super::super::rows::STREAMS;
use super::blocks::{Blocks, LeftFactor, RowAccess};
use crate::error::Result;
use crate::formats::pattern::{Pattern, cut};
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{ByRow, over_long_rows, over_parts, tasks};
use krysp_kernels::cpu::simd::prefetch;
use krysp_kernels::index::Offsets;
use krysp_kernels::interrupt::Phase;
use rayon::prelude::*;
use std::ops::Range;

/// Accumulator of one row of blocks.
pub(crate) struct Row {
    /// Values per block.
    size: usize,
    /// Per column, `base` plus the position of its block; less than `base` if this row has no block there.
    places: Vec<u32>,
    base: u32,
    /// Number of blocks of this row.
    count: usize,
    /// Columns and blocks in the order of first use; blocks beyond `count` are zero.
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl Row {
    fn new(columns: usize, size: usize) -> Row {
        Row { size, places: vec![0; columns], base: 1, count: 0, columns: vec![], values: vec![] }
    }

    fn start(&mut self) {
        self.base = match self.base.checked_add(self.count as u32) {
            Some(base) if base < u32::MAX / 2 => base,
            _ => {
                self.places.fill(0);
                1
            }
        };
        self.values[..self.count * self.size].fill(0.0);
        self.count = 0;
    }

    fn columns(&self) -> &[u32] {
        &self.columns[..self.count]
    }

    fn values(&self) -> &[f64] {
        &self.values[..self.count * self.size]
    }

    /// Reserves capacity for more columns.
    #[inline(always)]
    fn reserve(&mut self, columns: usize) {
        if self.columns.len() < self.count + columns {
            let limit = 2 * (self.count + columns);
            self.columns.resize(limit, 0);
            self.values.resize(limit * self.size, 0.0);
        }
    }

    /// Position of a column's block. Capacity must have been reserved. Written without branches, because
    /// whether a column is new is unpredictable.
    #[inline(always)]
    fn place(&mut self, column: u32) -> usize {
        let place = &mut self.places[column as usize];
        let is_new = *place < self.base;
        let at = if is_new { self.base + self.count as u32 } else { *place };
        *place = at;
        let at = (at - self.base) as usize;
        self.columns[at] = column;
        self.count += usize::from(is_new);
        at
    }

    /// The block of a column, initially zero.
    #[inline(always)]
    pub(crate) fn block(&mut self, column: u32) -> &mut [f64] {
        self.reserve(1);
        let at = self.place(column) * self.size;
        &mut self.values[at..at + self.size]
    }

    /// Adds to the value of a column, for 1 x 1 blocks.
    #[inline(always)]
    pub(crate) fn add(&mut self, column: u32, value: f64) {
        self.reserve(1);
        let at = self.place(column);
        self.values[at] += value;
    }
}

/// Consecutive rows of a result.
#[derive(Clone, Default)]
struct Collected {
    lengths: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// Maximum length of a list for which [`ranks`] counts smaller numbers, which is then faster than sorting.
const COMPARED: usize = 128;

/// Computes the rank of each of some distinct numbers in ascending order. Few numbers are ranked by counting
/// the smaller ones: quadratic, but without the unpredictable branches of a sort.
fn ranks(numbers: &[u32], places: &mut Vec<u32>) {
    places.clear();
    if numbers.len() <= COMPARED {
        places.extend(
            numbers.iter().map(|one| numbers.iter().map(|other| u32::from(other < one)).sum::<u32>()),
        );
        return;
    }
    let mut order: Vec<u64> = (0..).zip(numbers).map(|(k, &one)| u64::from(one) << 32 | k).collect();
    order.sort_unstable();
    places.resize(numbers.len(), 0);
    (0..).zip(order).for_each(|(place, of)| places[of as u32 as usize] = place);
}

/// Assembles a matrix with blocks of `size` values from the rows that `row` computes: pattern and values.
pub(crate) fn assembled(
    [rows, cols]: [usize; 2],
    size: usize,
    row: &(dyn Fn(usize, &mut Row) + Sync),
) -> Result<(Pattern, Buffer<f64>)> {
    let parts = tasks(rows * STREAMS * size).min(rows);
    let phase = Phase::new("sparse matrix product", 0.0);
    let mut collected = vec![Collected::default(); parts];
    let rows_of = |part: usize| -> Range<usize> { part * rows / parts..(part + 1) * rows / parts };
    over_parts(parts, &|part| part, collected.as_mut_slice(), &|range, collected: &mut [Collected]| {
        let (mut local, mut places, mut counter) = (Row::new(cols, size), vec![], phase.counter());
        for (part, Collected { lengths, columns, values }) in range.zip(collected) {
            for at in rows_of(part) {
                local.start();
                row(at, &mut local);
                if counter.add(local.values().len()).is_err() {
                    return;
                }
                ranks(local.columns(), &mut places);
                let (count, first) = (places.len(), columns.len());
                lengths.push(count);
                columns.resize(first + count, 0);
                values.resize((first + count) * size, 0.0);
                let (columns, values) = (&mut columns[first..], &mut values[first * size..]);
                for (&place, &column) in places.iter().zip(local.columns()) {
                    columns[place as usize] = column;
                }
                if size == 1 {
                    for (&place, &value) in places.iter().zip(local.values()) {
                        values[place as usize] = value;
                    }
                    continue;
                }
                for (&place, block) in places.iter().zip(local.values().chunks_exact(size)) {
                    values[place as usize * size..][..size].copy_from_slice(block);
                }
            }
        }
    });
    phase.check()?;
    let offsets = Offsets::from_lengths(collected.iter().flat_map(|part| part.lengths.iter().copied()));
    let lengths = |size: usize| collected.iter().map(|part| part.columns.len() * size).collect::<Vec<_>>();
    let (mut columns, mut values) = (Buffer::zeros(offsets.end()), Buffer::zeros(offsets.end() * size));
    let targets = cut(&mut columns, &lengths(1)).into_par_iter().zip(cut(&mut values, &lengths(size)));
    targets.zip(&collected).for_each(|((columns, values), part)| {
        columns.copy_from_slice(&part.columns);
        values.copy_from_slice(&part.values);
    });
    Ok((Pattern::sorted(offsets, columns, cols)?, values))
}

/// Computes the values of a product whose pattern is known; otherwise like [`assembled`].
pub(super) fn numbers(
    pattern: &Pattern,
    size: usize,
    row: &(dyn Fn(usize, &mut Row) + Sync),
) -> Result<Buffer<f64>> {
    let phase = Phase::new("sparse matrix product", 0.0);
    let mut values = Buffer::zeros(pattern.entries() * size);
    let offset = |row: usize| pattern.offsets.at(row) * size;
    let data = ByRow::new(&mut values, &offset);
    over_long_rows(pattern.rows(), STREAMS * size, data, &|rows, values: ByRow<'_, f64>| {
        let (mut values, _) = values.all();
        let (mut local, mut counter) = (Row::new(pattern.cols(), size), phase.counter());
        for at in rows {
            let columns = pattern.row(at);
            let (to, rest) = values.split_at_mut(columns.len() * size);
            values = rest;
            local.start();
            for &column in columns {
                local.block(column);
            }
            row(at, &mut local);
            if counter.add(local.values().len()).is_err() {
                return;
            }
            // the lengths differ only if the pattern was loaded from a forged file
            to.iter_mut().zip(local.values()).for_each(|(to, &value)| *to = value);
        }
    });
    phase.check()?;
    Ok(values)
}

/// `A B`: pattern and values.
pub(crate) fn product(a: impl LeftFactor, b: &impl RowAccess) -> Result<(Pattern, Buffer<f64>)> {
    let shape = [a.pattern().rows(), b.columns()];
    each_row(a, b, |size, row| assembled(shape, size, row))
}

/// The values of `A B`, whose pattern is known.
pub(super) fn values(a: impl LeftFactor, b: &impl RowAccess, pattern: &Pattern) -> Result<Buffer<f64>> {
    each_row(a, b, |size, row| numbers(pattern, size, row))
}

/// Prefetch distance, in entries of `A`, for rows of `B`; their offsets are prefetched twice as far ahead.
const AHEAD: usize = 12;

/// Number of rows in a piece, which one thread computes. Few, so that levels of some thousand rows occupy all threads:
/// with 4096, the product of the second level of elasticity on 55³ nodes had two pieces.
pub(super) const PIECE: usize = 256;

/// A product that is only read row by row. It is stored in the pieces in which it was computed, and the
/// columns of a row are not sorted.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(super) columns: usize,
    pub(super) shape: [usize; 2],
    pub(super) pieces: Vec<Piece>,
}

saved!(impl[] Pieces { columns, shape, pieces });

#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) starts: Vec<u32>,
    pub(super) columns: Vec<u32>,
    values: Vec<f64>,
}

saved!(impl[] Piece { starts, columns, values });

impl Pieces {
    /// `A B`
    pub(crate) fn product(a: Blocks<'_>, b: &impl RowAccess) -> Result<Pieces> {
        let phase = Phase::new("sparse matrix product", 0.0);
        let (rows, columns) = (a.pattern.rows(), b.columns());
        let pieces = each_row(a, b, |size, row| {
            let piece = |(local, like): &mut (Row, usize), at: usize| -> Result<Piece> {
                // reserve the size of the preceding piece, plus a margin
                let (columns, values) = (Vec::with_capacity(*like), Vec::with_capacity(*like * size));
                let mut piece = Piece { starts: vec![0], columns, values };
                let mut counter = phase.counter();
                for at in at * PIECE..rows.min((at + 1) * PIECE) {
                    local.start();
                    row(at, local);
                    counter.add(local.values().len())?;
                    piece.columns.extend_from_slice(local.columns());
                    piece.values.extend_from_slice(local.values());
                    piece.starts.push(piece.columns.len() as u32);
                }
                *like = piece.columns.len() + piece.columns.len() / 32;
                Ok(piece)
            };
            let all = (0..rows.div_ceil(PIECE)).into_par_iter();
            all.map_init(|| (Row::new(columns, size), 0), piece).collect::<Result<_>>()
        })?;
        Ok(Pieces { columns, shape: [a.shape[0], b.width()], pieces })
    }

    /// Recomputes the values, for matrices with the same patterns.
    pub(super) fn refill(&mut self, a: Blocks<'_>, b: &impl RowAccess) -> Result<()> {
        let columns = self.columns;
        let phase = Phase::new("sparse matrix product", 0.0);
        each_row(a, b, |size, row| {
            let refill = |local: &mut Row, (at, piece): (usize, &mut Piece)| -> Result<()> {
                piece.values.clear();
                let mut counter = phase.counter();
                for (at, range) in (at * PIECE..).zip(piece.starts.windows(2)) {
                    local.start();
                    for &column in &piece.columns[range[0] as usize..range[1] as usize] {
                        local.block(column);
                    }
                    row(at, local);
                    counter.add(local.values().len())?;
                    piece.values.extend_from_slice(local.values());
                }
                Ok(())
            };
            self.pieces.par_iter_mut().enumerate().try_for_each_init(|| Row::new(columns, size), refill)
        })
    }

    /// Frees the values; the pattern stays.
    pub(super) fn clear(&mut self) {
        self.pieces.par_iter_mut().for_each(|piece| piece.values = vec![]);
    }
}

impl RowAccess for Pieces {
    fn columns(&self) -> usize {
        self.columns
    }

    fn width(&self) -> usize {
        self.shape[1]
    }

    #[inline(always)]
    fn fetch_place(&self, row: usize) {
        prefetch(&self.pieces[row / PIECE].starts[row % PIECE..][..1]);
    }

    #[inline(always)]
    fn of(&self, row: usize) -> (&[u32], &[f64]) {
        let (piece, size) = (&self.pieces[row / PIECE], self.shape[0] * self.shape[1]);
        let [start, end] = [0, 1].map(|k| piece.starts[row % PIECE + k] as usize);
        (&piece.columns[start..end], &piece.values[start * size..end * size])
    }
}

/// Calls `does` with a function that computes a row of `A B`, compiled for the block shapes of `a` and `b`.
fn each_row<R>(
    a: impl LeftFactor,
    b: &impl RowAccess,
    does: impl FnOnce(usize, &(dyn Fn(usize, &mut Row) + Sync)) -> R,
) -> R {
    let ([rows, inner], columns) = (a.shape(), b.width());
    let (size, pattern) = (rows * columns, a.pattern());
    match [rows, inner, columns] {
        [1, 1, 1] => does(size, &|row, to| {
            let all = &**pattern.columns;
            let range = pattern.offsets.range(row);
            for (entry, &column) in range.clone().zip(&all[range]) {
                if let Some(&later) = all.get(entry + 2 * AHEAD) {
                    b.fetch_place(later as usize);
                    b.fetch(all[entry + AHEAD] as usize);
                    a.fetch(entry + AHEAD);
                }
                let [[factor]] = a.load::<1, 1>(row, entry);
                let (columns, values) = b.of(column as usize);
                to.reserve(columns.len());
                for (&column, value) in columns.iter().zip(values) {
                    let at = to.place(column);
                    to.values[at] += factor * value;
                }
            }
        }),
        // the shapes of elasticity in two and three dimensions, on the finest and on coarser levels, with
        // constants and with rigid body modes
        [2, 2, 3] => does(size, &|row, to| of_row::<2, 2, 3>(a, b, row, to)),
        [3, 2, 3] => does(size, &|row, to| of_row::<3, 2, 3>(a, b, row, to)),
        [2, 2, 2] => does(size, &|row, to| of_row::<2, 2, 2>(a, b, row, to)),
        [3, 3, 3] => does(size, &|row, to| of_row::<3, 3, 3>(a, b, row, to)),
        [3, 3, 6] => does(size, &|row, to| of_row::<3, 3, 6>(a, b, row, to)),
        [6, 3, 6] => does(size, &|row, to| of_row::<6, 3, 6>(a, b, row, to)),
        [6, 6, 6] => does(size, &|row, to| of_row::<6, 6, 6>(a, b, row, to)),
        [rows, inner, width] => does(size, &|row, to| {
            for entry in pattern.offsets.range(row) {
                let (columns, values) = b.of(pattern.columns[entry] as usize);
                for (&column, b) in columns.iter().zip(values.chunks_exact(inner * width)) {
                    let to = to.block(column);
                    for at in 0..rows * inner {
                        let to = &mut to[at / inner * width..][..width];
                        let b = &b[at % inner * width..][..width];
                        let factor = a.number(row, entry, at / inner, at % inner);
                        to.iter_mut().zip(b).for_each(|(to, b)| *to += factor * b);
                    }
                }
            }
        }),
    }
}

/// Computes row `row` of `A B`.
#[inline(always)]
fn of_row<const ROWS: usize, const INNER: usize, const COLUMNS: usize>(
    a: impl LeftFactor,
    b: &impl RowAccess,
    row: usize,
    to: &mut Row,
) {
    let all = &**a.pattern().columns;
    for entry in a.pattern().offsets.range(row) {
        a.fetch(entry + 2);
        if let Some(&later) = all.get(entry + 2) {
            b.fetch(later as usize);
        }
        let (columns, values) = b.of(all[entry] as usize);
        let a = a.load::<ROWS, INNER>(row, entry);
        let blocks = values.as_chunks::<COLUMNS>().0.chunks_exact(INNER);
        for (&column, b) in columns.iter().zip(blocks) {
            for (to, a) in to.block(column).as_chunks_mut::<COLUMNS>().0.iter_mut().zip(&a) {
                for (factor, b) in a.iter().zip(b) {
                    to.iter_mut().zip(b).for_each(|(to, b)| *to += factor * b);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
