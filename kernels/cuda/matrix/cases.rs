//! Test patterns at the edges of slices, groups and batches.

use crate::cuda::matrix::pattern::Pattern;
use crate::index::{Columns, Offsets};

/// A matrix on the host.
pub(crate) struct Matrix {
    pub(crate) name: String,
    offsets: Offsets,
    columns: Columns,
    pub(crate) values: Vec<f64>,
}

impl Matrix {
    pub(crate) fn pattern(&self) -> Pattern<'_> {
        Pattern::new(&self.offsets, &self.columns)
    }

    /// Row, column and value of every entry, sorted.
    pub(crate) fn triplets(&self) -> Vec<(usize, usize, f64)> {
        let row = |row| {
            let entries = self.pattern().row(row);
            entries.map(move |k| (row, self.columns[k] as usize, self.values[k]))
        };
        (0..self.offsets.ranges()).flat_map(row).collect()
    }

    fn new(name: &str, cols: usize, rows: Vec<Vec<u32>>) -> Matrix {
        let offsets = Offsets::from_lengths(rows.iter().map(Vec::len));
        let columns = Columns::new(rows.concat(), cols).unwrap();
        // distinct values, so that a misplaced entry is detected
        let values = (1..=columns.len()).map(|k| k as f64).collect();
        Matrix { name: format!("{name}, {} x {cols}", rows.len()), offsets, columns, values }
    }
}

pub(crate) fn with_lengths(rows: usize, cols: usize, length: impl Fn(usize) -> usize) -> Matrix {
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
    let row =
        |i: usize| offsets.iter().map(|o| i as i64 + o).filter(inside).map(|column| column as u32).collect();
    Matrix::new("bands", rows, (0..rows).map(row).collect())
}

/// Shapes and row lengths at the edges of slices, groups and batches.
pub(crate) fn matrices() -> Vec<Matrix> {
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
