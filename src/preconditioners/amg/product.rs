//! Products and transposes of sparse matrices whose entries are small dense blocks.
//!
//! ```text
//! row i of C:  for each entry k of row i of A, for each entry j of row k of B:  C_ij ← C_ij + A_ik B_kj
//! ```
//!
//! The first time columns are found on the way; later numbers alone are computed, at places that are known. Either way a row is
//! computed by one thread, in the order of the rows of `A` and `B`: the result is bitwise the same for every number of
//! threads, and at first as ever after.
//!
//! Budget: a row of `B` read for each entry of `A`, and `C` written once; `2 · rows · inner · columns` operations of a block
//! for each pair. Each task has an array of 4 bytes a column of `C`.

use super::super::rows::STREAMS;
use crate::Result;
use crate::formats::pattern::{Pattern, cut};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{ByRow, over_parts, over_rows, tasks};
use krysp_kernels::index::Offsets;
use rayon::prelude::*;
use std::ops::Range;

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

/// A row of blocks in the making.
pub(super) struct Row {
    /// Numbers of a block.
    size: usize,
    /// Of each column, `base` and the place of its block; less where it has none in this row.
    places: Vec<u32>,
    base: u32,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl Row {
    fn new(columns: usize, size: usize) -> Row {
        Row { size, places: vec![0; columns], base: 1, columns: vec![], values: vec![] }
    }

    fn start(&mut self) {
        self.base = match self.base.checked_add(self.columns.len() as u32) {
            Some(base) if base < u32::MAX / 2 => base,
            _ => {
                self.places.fill(0);
                1
            }
        };
        self.columns.clear();
        self.values.clear();
    }

    /// The block of a column, zeros at first.
    #[inline(always)]
    pub(super) fn block(&mut self, column: u32) -> &mut [f64] {
        let place = &mut self.places[column as usize];
        if *place < self.base {
            *place = self.base + self.columns.len() as u32;
            self.columns.push(column);
            self.values.resize(self.columns.len() * self.size, 0.0);
        }
        let at = (*place - self.base) as usize * self.size;
        &mut self.values[at..at + self.size]
    }

    /// Adds to the number of a column, where blocks are numbers.
    #[inline(always)]
    pub(super) fn add(&mut self, column: u32, value: f64) {
        let place = &mut self.places[column as usize];
        if *place < self.base {
            *place = self.base + self.columns.len() as u32;
            self.columns.push(column);
            self.values.push(value);
        } else {
            self.values[(*place - self.base) as usize] += value;
        }
    }
}

/// Rows that follow each other.
#[derive(Clone, Default)]
struct Collected {
    lengths: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// A matrix whose rows are computed by `row`, of blocks of `size` numbers: where they stand, and the numbers.
pub(super) fn assembled(
    [rows, cols]: [usize; 2],
    size: usize,
    row: &(dyn Fn(usize, &mut Row) + Sync),
) -> Result<(Pattern, Buffer<f64>)> {
    let parts = tasks(rows * STREAMS).min(rows);
    let mut collected = vec![Collected::default(); parts];
    let rows_of = |part: usize| -> Range<usize> { part * rows / parts..(part + 1) * rows / parts };
    over_parts(parts, &|part| part, collected.as_mut_slice(), &|range, collected: &mut [Collected]| {
        let (mut local, mut order) = (Row::new(cols, size), vec![]);
        for (part, Collected { lengths, columns, values }) in range.zip(collected) {
            for at in rows_of(part) {
                local.start();
                row(at, &mut local);
                order.clear();
                order.extend((0..).zip(&local.columns).map(|(k, &column)| u64::from(column) << 32 | k));
                order.sort_unstable();
                lengths.push(order.len());
                columns.extend(order.iter().map(|&of| (of >> 32) as u32));
                if size == 1 {
                    values.extend(order.iter().map(|&of| local.values[of as u32 as usize]));
                    continue;
                }
                for &of in &order {
                    values.extend_from_slice(&local.values[of as u32 as usize * size..][..size]);
                }
            }
        }
    });
    let offsets = Offsets::from_lengths(collected.iter().flat_map(|part| part.lengths.iter().copied()));
    let lengths = |size: usize| collected.iter().map(|part| part.columns.len() * size).collect::<Vec<_>>();
    let (mut columns, mut values) = (vec![0; offsets.end()], Buffer::zeros(offsets.end() * size));
    let targets = cut(&mut columns, &lengths(1)).into_par_iter().zip(cut(&mut values, &lengths(size)));
    targets.zip(&collected).for_each(|((columns, values), part)| {
        columns.copy_from_slice(&part.columns);
        values.copy_from_slice(&part.values);
    });
    Ok((Pattern::sorted(offsets, columns, cols)?, values))
}

/// The numbers of such a matrix, whose pattern is known.
pub(super) fn numbers(pattern: &Pattern, size: usize, row: &(dyn Fn(usize, &mut Row) + Sync)) -> Buffer<f64> {
    let mut values = Buffer::zeros(pattern.entries() * size);
    let offset = |row: usize| pattern.offsets.at(row) * size;
    let data = ByRow::new(&mut values, &offset);
    over_rows(pattern.rows(), STREAMS, data, &|rows, values: ByRow<'_, f64>| {
        let (mut values, _) = values.all();
        let mut local = Row::new(pattern.cols(), size);
        for at in rows {
            let columns = pattern.row(at);
            let (to, rest) = values.split_at_mut(columns.len() * size);
            values = rest;
            local.start();
            for &column in columns {
                local.block(column);
            }
            row(at, &mut local);
            to.copy_from_slice(&local.values[..to.len()]);
        }
    });
    values
}

/// `A B`: where it has blocks, and the numbers.
pub(super) fn product(a: Blocks<'_>, b: Blocks<'_>) -> Result<(Pattern, Buffer<f64>)> {
    let shape = [a.pattern.rows(), b.pattern.cols()];
    each_row(a, b, |size, row| assembled(shape, size, row))
}

/// The numbers of `A B`, whose pattern is known.
pub(super) fn values(a: Blocks<'_>, b: Blocks<'_>, pattern: &Pattern) -> Buffer<f64> {
    each_row(a, b, |size, row| numbers(pattern, size, row))
}

/// Hands out what computes a row of `A B`, compiled for blocks of these shapes.
fn each_row<R>(
    a: Blocks<'_>,
    b: Blocks<'_>,
    does: impl FnOnce(usize, &(dyn Fn(usize, &mut Row) + Sync)) -> R,
) -> R {
    let [rows, inner, columns] = [a.shape[0], a.shape[1], b.shape[1]];
    let size = rows * columns;
    match [rows, inner, columns] {
        [1, 1, 1] => does(size, &|row, to| {
            for (middle, factor) in entries(a, row) {
                entries(b, middle as usize).for_each(|(column, value)| to.add(column, factor * value));
            }
        }),
        // elasticity in two and in three dimensions, the finest level and the others, with constants and with rigid motions
        [2, 2, 3] => does(size, &|row, to| of_row::<2, 2, 3>(a, b, row, to)),
        [3, 2, 3] => does(size, &|row, to| of_row::<3, 2, 3>(a, b, row, to)),
        [2, 2, 2] => does(size, &|row, to| of_row::<2, 2, 2>(a, b, row, to)),
        [3, 3, 3] => does(size, &|row, to| of_row::<3, 3, 3>(a, b, row, to)),
        [3, 3, 6] => does(size, &|row, to| of_row::<3, 3, 6>(a, b, row, to)),
        [6, 3, 6] => does(size, &|row, to| of_row::<6, 3, 6>(a, b, row, to)),
        [6, 6, 6] => does(size, &|row, to| of_row::<6, 6, 6>(a, b, row, to)),
        [rows, inner, columns] => does(size, &|row, to| {
            for (middle, a) in a.row(row) {
                for (column, b) in b.row(middle as usize) {
                    let to = to.block(column);
                    for at in 0..rows * inner {
                        let to = &mut to[at / inner * columns..][..columns];
                        let b = &b[at % inner * columns..][..columns];
                        to.iter_mut().zip(b).for_each(|(to, b)| *to += a[at] * b);
                    }
                }
            }
        }),
    }
}

/// The entries of a row of numbers.
#[inline(always)]
pub(super) fn entries(a: Blocks<'_>, row: usize) -> impl Iterator<Item = (u32, f64)> + Clone {
    let range = a.pattern.offsets.range(row);
    a.pattern.columns[range.clone()].iter().copied().zip(a.values[range].iter().copied())
}

/// Row `row` of `A B`.
#[inline(always)]
fn of_row<const ROWS: usize, const INNER: usize, const COLUMNS: usize>(
    a: Blocks<'_>,
    b: Blocks<'_>,
    row: usize,
    to: &mut Row,
) {
    let (a_rows, b_rows) = (a.values.as_chunks::<INNER>().0, b.values.as_chunks::<COLUMNS>().0);
    for entry in a.pattern.offsets.range(row) {
        let (middle, a) = (a.pattern.columns[entry] as usize, &a_rows[entry * ROWS..(entry + 1) * ROWS]);
        for entry in b.pattern.offsets.range(middle) {
            let to = to.block(b.pattern.columns[entry]).as_chunks_mut::<COLUMNS>().0;
            let b = &b_rows[entry * INNER..(entry + 1) * INNER];
            for (to, a) in to.iter_mut().zip(a) {
                for (factor, b) in a.iter().zip(b) {
                    to.iter_mut().zip(b).for_each(|(to, b)| *to += factor * b);
                }
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Csr;
    use crate::testing::matrices;

    /// A matrix without a pattern in it, and its numbers as a dense matrix.
    fn random([rows, cols]: [usize; 2], shape: [usize; 2], seed: u64) -> (Csr<f64>, Vec<f64>, Vec<f64>) {
        let pattern = matrices::random(rows, cols, 0.07, seed).csr::<f64>().unwrap();
        let size = shape[0] * shape[1];
        let values: Vec<f64> =
            (0..pattern.nnz() * size).map(|k| ((k * 7919 + 13) % 101) as f64 / 50.0 - 1.0).collect();
        let mut dense = vec![0.0; rows * cols * size];
        let width = cols * shape[1];
        for (entry, (row, column, _)) in pattern.triplets().enumerate() {
            for k in 0..size {
                let at = (row * shape[0] + k / shape[1]) * width + column * shape[1] + k % shape[1];
                dense[at] = values[entry * size + k];
            }
        }
        (pattern, values, dense)
    }

    fn dense(blocks: Blocks<'_>) -> Vec<f64> {
        let [r, c] = blocks.shape;
        let width = blocks.pattern.cols() * c;
        let mut dense = vec![0.0; blocks.pattern.rows() * r * width];
        for row in 0..blocks.pattern.rows() {
            for (column, block) in blocks.row(row) {
                for (k, value) in block.iter().enumerate() {
                    dense[(row * r + k / c) * width + column as usize * c + k % c] = *value;
                }
            }
        }
        dense
    }

    #[test]
    fn products_and_transposes_are_those_of_dense_matrices() {
        for [r, k, c] in
            [[1, 1, 1], [2, 2, 3], [3, 2, 3], [3, 3, 6], [6, 3, 6], [6, 6, 6], [1, 1, 2], [4, 2, 5]]
        {
            let (n, m, l) = (60, 47, 31);
            let (a, a_values, a_dense) = random([n, m], [r, k], 1);
            let (b, b_values, b_dense) = random([m, l], [k, c], 2);
            let a = Blocks { pattern: a.pattern(), shape: [r, k], values: &a_values };
            let b = Blocks { pattern: b.pattern(), shape: [k, c], values: &b_values };
            let (found, values) = product(a, b).unwrap();
            assert_eq!(*values, *super::values(a, b, &found));
            let got = dense(Blocks { pattern: &found, shape: [r, c], values: &values });
            for row in 0..n * r {
                for column in 0..l * c {
                    let terms = (0..m * k).map(|i| a_dense[row * m * k + i] * b_dense[i * l * c + column]);
                    let expected: f64 = terms.sum();
                    assert!((got[row * l * c + column] - expected).abs() < 1e-13);
                }
            }
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let (again, others) = pool.install(|| product(a, b)).unwrap();
                assert!(**again.columns == **found.columns && *others == *values);
            }
            let (mirrored, from) = a.pattern.transposed().unwrap();
            assert_eq!([mirrored.rows(), mirrored.cols()], [m, n]);
            let values = transposed(a, &from);
            let got = dense(Blocks { pattern: &mirrored, shape: [k, r], values: &values });
            for row in 0..n * r {
                for column in 0..m * k {
                    assert_eq!(got[column * n * r + row], a_dense[row * m * k + column]);
                }
            }
        }
    }
}
