//! Products and transposes of sparse matrices whose entries are small dense blocks.
//!
//! ```text
//! symbolic    row i of C has the columns of all rows k of B that row i of A names, each once
//! numeric     C_ij = Σ_k A_ik B_kj, at places that are looked up in an array with one for each column
//! ```
//!
//! A row is computed by one thread, in the order of the rows of `A` and `B`: the result is bitwise the same for every
//! number of threads. The pattern is found once; numbers follow as often as values change.
//!
//! Budget: both passes read a row of `B` for each entry of `A`, and write `C` once; the numeric one takes
//! `2 · rows · inner · columns` operations of a block for each pair. Each task has an array of 4 bytes a column of `C`.

use super::super::rows::{STREAMS, find_rows};
use crate::Result;
use crate::formats::pattern::Pattern;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{ByRow, over_rows};

/// A sparse matrix of blocks: where they stand, rows and columns of each, and their numbers, block by block and row by row.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub(super) pattern: &'a Pattern,
    pub(super) shape: [usize; 2],
    pub(super) values: &'a [f64],
}

impl<'a> Blocks<'a> {
    /// The numbers of a block.
    pub(super) fn block(self, entry: usize) -> &'a [f64] {
        let size = self.shape[0] * self.shape[1];
        &self.values[entry * size..(entry + 1) * size]
    }

    /// The columns of a row, and the numbers of its blocks.
    pub(super) fn row(self, row: usize) -> impl Iterator<Item = (u32, &'a [f64])> + Clone {
        let range = self.pattern.offsets.range(row);
        let size = self.shape[0] * self.shape[1];
        let blocks = self.values[range.start * size..range.end * size].chunks_exact(size);
        self.pattern.columns[range].iter().copied().zip(blocks)
    }
}

/// Columns that were met in a row: an array of the last row that met each, and one.
pub(super) struct Met(Vec<u32>);

impl Met {
    pub(super) fn new(columns: usize) -> Met {
        Met(vec![0; columns])
    }

    /// Whether a row meets a column for the first time.
    pub(super) fn first(&mut self, row: usize, column: u32) -> bool {
        let stamp = row as u32 + 1;
        std::mem::replace(&mut self.0[column as usize], stamp) != stamp
    }
}

/// Where `A B` has blocks.
pub(super) fn pattern(a: &Pattern, b: &Pattern) -> Result<Pattern> {
    find_rows(a.rows(), b.cols(), &|| Met::new(b.cols()), &|row, met: &mut Met, columns| {
        for &middle in a.row(row) {
            columns.extend(b.row(middle as usize).iter().filter(|&&column| met.first(row, column)));
        }
        Ok(())
    })
}

/// The numbers of `A B`, whose pattern is known.
pub(super) fn values(a: Blocks<'_>, b: Blocks<'_>, pattern: &Pattern) -> Buffer<f64> {
    let [rows, inner, columns] = [a.shape[0], a.shape[1], b.shape[1]];
    match [rows, inner, columns] {
        [1, 1, 1] => numbers(a, b, pattern, &scalars),
        // scalars with one mode that later has several; elasticity in two and in three dimensions, fine and coarse
        [2, 2, 3] => numbers(a, b, pattern, &add::<2, 2, 3>),
        [3, 2, 3] => numbers(a, b, pattern, &add::<3, 2, 3>),
        [2, 2, 2] => numbers(a, b, pattern, &add::<2, 2, 2>),
        [3, 3, 3] => numbers(a, b, pattern, &add::<3, 3, 3>),
        [3, 3, 6] => numbers(a, b, pattern, &add::<3, 3, 6>),
        [6, 3, 6] => numbers(a, b, pattern, &add::<6, 3, 6>),
        [6, 6, 6] => numbers(a, b, pattern, &add::<6, 6, 6>),
        [rows, inner, columns] => numbers(a, b, pattern, &|a: &[f64], b: &[f64], to: &mut [f64]| {
            for row in 0..rows {
                for k in 0..inner {
                    let factor = a[row * inner + k];
                    let to = &mut to[row * columns..(row + 1) * columns];
                    to.iter_mut().zip(&b[k * columns..]).for_each(|(to, b)| *to += factor * b);
                }
            }
        }),
    }
}

/// `C ← C + A B` of numbers.
#[inline(always)]
fn scalars(a: &[f64], b: &[f64], to: &mut [f64]) {
    to[0] += a[0] * b[0];
}

/// `C ← C + A B` of blocks.
#[inline(always)]
fn add<const ROWS: usize, const INNER: usize, const COLUMNS: usize>(a: &[f64], b: &[f64], to: &mut [f64]) {
    let (a, b) = (&a.as_chunks::<INNER>().0[..ROWS], &b.as_chunks::<COLUMNS>().0[..INNER]);
    for (to, a) in to.as_chunks_mut::<COLUMNS>().0.iter_mut().zip(a) {
        for (factor, b) in a.iter().zip(b) {
            for (to, b) in to.iter_mut().zip(b) {
                *to += factor * b;
            }
        }
    }
}

fn numbers(
    a: Blocks<'_>,
    b: Blocks<'_>,
    pattern: &Pattern,
    add: &(impl Fn(&[f64], &[f64], &mut [f64]) + Sync),
) -> Buffer<f64> {
    let size = a.shape[0] * b.shape[1];
    let mut values = Buffer::zeros(pattern.entries() * size);
    let offset = |row: usize| pattern.offsets.at(row) * size;
    let data = ByRow::new(&mut values, &offset);
    over_rows(pattern.rows(), STREAMS, data, &|rows, values: ByRow<'_, f64>| {
        let (mut values, _) = values.all();
        let mut places = vec![0u32; pattern.cols()];
        for row in rows {
            let columns = pattern.row(row);
            let (to, rest) = values.split_at_mut(columns.len() * size);
            values = rest;
            (0..).zip(columns).for_each(|(place, &column)| places[column as usize] = place);
            for (middle, factor) in a.row(row) {
                for (column, block) in b.row(middle as usize) {
                    let place = places[column as usize] as usize;
                    add(factor, block, &mut to[place * size..(place + 1) * size]);
                }
            }
        }
    });
    values
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
            let product = || {
                let pattern = pattern(a.pattern, b.pattern).unwrap();
                let values = values(a, b, &pattern);
                (pattern, values)
            };
            let (found, values) = product();
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
                let (again, others) = pool.install(product);
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
