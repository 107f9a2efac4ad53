//! What layouts of a device share: rows of a pattern, and arrays that threads fill slice by slice.

use super::product::Pattern;
use crate::buffer::{Buffer, Plain};
use crate::cpu::threads::{Split, over_parts, tasks};
use std::ops::Range;

impl Pattern<'_> {
    /// The number of rows, of columns and of entries.
    pub(super) fn shape(self) -> (usize, usize, usize) {
        (self.rows(), self.cols(), self.entries())
    }

    /// The places of a row's entries among all entries; none for a row beyond the last.
    pub(super) fn row(self, row: usize) -> Range<usize> {
        if row < self.rows() { self.offsets().range(row) } else { 0..0 }
    }
}

/// An array whose slices lie one after the other, handed out to threads.
struct BySlice<'a, X> {
    data: &'a mut [X],
    first: usize,
    start: &'a (dyn Fn(usize) -> usize + Sync),
}

impl<X: Send> Split for BySlice<'_, X> {
    fn split(self, slices: usize) -> (Self, Self) {
        let BySlice { data, first, start } = self;
        let (a, b) = data.split_at_mut(start(first + slices) - start(first));
        (BySlice { data: a, first, start }, BySlice { data: b, first: first + slices, start })
    }
}

/// An array filled slice by slice, from zeros: slice `s` from `start(s)` to `start(s + 1)`.
pub(super) fn by_slices<X: Plain>(
    slices: usize,
    start: &(dyn Fn(usize) -> usize + Sync),
    fill: &(impl Fn(usize, &mut [X]) + Sync),
) -> Buffer<X> {
    let mut array = Buffer::zeros(start(slices));
    let count = tasks(array.len()).min(slices);
    let bound = |part: usize| part * slices / count.max(1);
    let whole = BySlice { data: &mut array, first: 0, start };
    over_parts(count, &bound, whole, &|slices, part: BySlice<'_, X>| {
        let mut rest = part.data;
        for slice in slices {
            let (here, next) = rest.split_at_mut(start(slice + 1) - start(slice));
            fill(slice, here);
            rest = next;
        }
    });
    array
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::index::{Columns, Offsets};

    /// A matrix on the host.
    pub(in crate::cuda) struct Matrix {
        pub(in crate::cuda) name: String,
        offsets: Offsets,
        columns: Columns,
        pub(in crate::cuda) values: Vec<f64>,
    }

    impl Matrix {
        pub(in crate::cuda) fn pattern(&self) -> Pattern<'_> {
            Pattern::new(&self.offsets, &self.columns)
        }

        /// Row, column and value of every entry, sorted.
        pub(in crate::cuda) fn triplets(&self) -> Vec<(usize, usize, f64)> {
            let row = |row| {
                let entries = self.pattern().row(row);
                entries.map(move |k| (row, self.columns[k] as usize, self.values[k]))
            };
            (0..self.offsets.ranges()).flat_map(row).collect()
        }

        fn new(name: &str, cols: usize, rows: Vec<Vec<u32>>) -> Matrix {
            let offsets = Offsets::from_lengths(rows.iter().map(Vec::len));
            let columns = Columns::new(rows.concat(), cols).unwrap();
            // a value tells where it came from
            let values = (1..=columns.len()).map(|k| k as f64).collect();
            Matrix { name: format!("{name}, {} x {cols}", rows.len()), offsets, columns, values }
        }
    }

    fn with_lengths(rows: usize, cols: usize, length: impl Fn(usize) -> usize) -> Matrix {
        let row = |i: usize| {
            let length = length(i).min(cols);
            let mut columns: Vec<u32> = (0..length).map(|k| ((i + k * k * 7 + k) % cols) as u32).collect();
            columns.sort_unstable();
            columns.dedup();
            columns
        };
        Matrix::new("rows of several lengths", cols, (0..rows).map(row).collect())
    }

    fn banded(rows: usize, offsets: &[i64]) -> Matrix {
        let inside = |column: &i64| (0..rows as i64).contains(column);
        let row = |i: usize| {
            offsets.iter().map(|o| i as i64 + o).filter(inside).map(|column| column as u32).collect()
        };
        Matrix::new("bands", rows, (0..rows).map(row).collect())
    }

    /// Dense blocks of `size` on some places of a grid: the places, and the matrix.
    pub(in crate::cuda) fn blocks(
        size: usize,
        block_rows: usize,
        length: impl Fn(usize) -> usize,
    ) -> (Matrix, Matrix) {
        let nodes = with_lengths(block_rows, block_rows, length);
        let row = |i: usize| {
            let node = nodes.pattern().row(i / size);
            // every seventh row lacks the first entry of each block: blocks need not be full
            let first = u32::from(i % 7 == 6);
            let block = |k: usize| (first..size as u32).map(move |j| (k, j));
            node.flat_map(block).map(|(k, j)| nodes.columns[k] * size as u32 + j).collect()
        };
        let rows = (0..block_rows * size).map(row).collect();
        let matrix = Matrix::new("blocks", block_rows * size, rows);
        (nodes, matrix)
    }

    /// Shapes and row lengths at the edges of slices, groups and batches.
    pub(in crate::cuda) fn matrices() -> Vec<Matrix> {
        let mut matrices = vec![
            Matrix::new("nothing", 0, vec![]),
            Matrix::new("no rows", 5, vec![]),
            Matrix::new("no columns", 0, vec![vec![]; 5]),
            Matrix::new("one entry", 1, vec![vec![0]]),
            Matrix::new("the last entry", 40, [vec![vec![]; 39], vec![vec![39]]].concat()),
            Matrix::new("one full row", 1000, vec![(0..1000).collect()]),
            Matrix::new("far columns", 1 << 20, vec![vec![0, 65_534, 65_535, 65_536, (1 << 20) - 1]; 70]),
        ];
        for rows in [31, 32, 33, 63, 64, 65, 127, 128, 129, 767, 768, 769, 1600] {
            matrices.push(banded(rows, &[-33, -1, 0, 1, 40]));
            matrices.push(with_lengths(rows, rows, |i| i % 9));
            matrices.push(with_lengths(rows, rows, |_| 8));
            matrices.push(with_lengths(rows, 5000, |i| if i == rows / 2 { 700 } else { 3 }));
            matrices.push(with_lengths(rows, rows, |i| 60 + i % 20));
            matrices.push(with_lengths(rows, rows, |i| if i > 5 && i < rows - 3 { 0 } else { 2 }));
        }
        matrices
    }

    #[test]
    fn slices_are_filled_once() {
        for slices in [0, 1, 5, 40_000] {
            let start = |slice: usize| slice * (slice + 1) / 2;
            let filled = by_slices::<u32>(slices.min(900), &start, &|slice, part| {
                assert_eq!(part.len(), slice + 1);
                part.iter_mut().for_each(|x| *x += 1);
            });
            assert!(filled.iter().all(|&x| x == 1));
        }
    }
}
