//! The generated matrix, and two ways to assemble one in parallel.

use super::Triplets;
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use rayon::prelude::*;

/// Rows that one task of a parallel assembly fills.
const ROWS_PER_TASK: usize = 2048;

/// A matrix as CSR arrays. The entries of a row are sorted by column. Most matrices are square.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// The start of each row in `columns` and `values`, and the end of the last row: `rows + 1` numbers.
    pub offsets: Vec<u64>,
    /// The column of every entry.
    pub columns: Vec<u32>,
    /// The value of every entry.
    pub values: Vec<f64>,
}

impl Matrix {
    /// Converts to [`Csr`].
    pub fn csr<T: Real>(&self) -> Result<Csr<T>> {
        let values: Vec<T> = self.values.iter().map(|&v| T::from_f64(v)).collect();
        Csr::from_csr(self.rows, self.cols, &self.offsets, &self.columns, &values)
    }

    /// The number of stored entries.
    pub fn nnz(&self) -> usize {
        self.columns.len()
    }

    /// The columns and values of one row.
    pub fn row(&self, row: usize) -> (&[u32], &[f64]) {
        let range = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        (&self.columns[range.clone()], &self.values[range])
    }

    /// The entries as triplets, in row order.
    pub fn to_triplets(&self) -> Triplets {
        let entries = (0..self.rows)
            .flat_map(|row| {
                let (columns, values) = self.row(row);
                columns.iter().zip(values).map(move |(&column, &value)| (row as u32, column, value))
            })
            .collect();
        Triplets { rows: self.rows, cols: self.cols, entries }
    }

    /// Sets every stored diagonal entry to `1.0001 Σ|off-diagonal| + 1e-12`. This makes the symmetric indefinite hashed
    /// matrices positive definite, and still hard enough to be worth timing with Jacobi-CG.
    pub fn diagonally_dominant(mut self) -> Self {
        let diagonal: Vec<Option<(usize, f64)>> = (0..self.rows)
            .into_par_iter()
            .map(|row| {
                let (columns, values) = self.row(row);
                let at = columns.binary_search(&(row as u32)).ok()?;
                // One sum in row order without the diagonal. Subtracting the diagonal from a full sum would round
                // differently.
                let off: f64 = values
                    .iter()
                    .enumerate()
                    .filter(|&(k, _)| k != at)
                    .fold(0.0, |sum, (_, v)| sum + v.abs());
                Some((self.offsets[row] as usize + at, off * (1.0 + 1e-4) + 1e-12))
            })
            .collect();
        for (at, value) in diagonal.into_iter().flatten() {
            self.values[at] = value;
        }
        self
    }

    /// Sets each diagonal entry to minus the sum of the row's other entries, so that the matrix maps
    /// constants to zero, as a discretization without Dirichlet conditions does. Rows without a diagonal
    /// entry are unchanged.
    pub fn zero_row_sums(mut self) -> Self {
        for row in 0..self.rows {
            let entries = self.offsets[row] as usize..self.offsets[row + 1] as usize;
            let (columns, values) = (&self.columns[entries.clone()], &mut self.values[entries]);
            if let Ok(at) = columns.binary_search(&(row as u32)) {
                values[at] = 0.0;
                values[at] = -values.iter().sum::<f64>();
            }
        }
        self
    }

    /// The same entries in a matrix with `cols` columns.
    pub(super) fn with_columns(self, cols: usize) -> Self {
        Self { cols, ..self }
    }

    /// Assembles by rows, in two passes, so that no more memory is used than for the matrix. `pattern`
    /// appends the columns of a row in any order, possibly repeated. `fill` gets the sorted distinct columns
    /// and writes their values.
    pub(super) fn by_rows<P, F>(rows: usize, pattern: P, fill: F) -> Self
    where
        P: Fn(usize, &mut Vec<u32>) + Sync,
        F: Fn(usize, &[u32], &mut [f64]) + Sync,
    {
        let sorted_pattern = |row: usize, columns: &mut Vec<u32>| {
            columns.clear();
            pattern(row, columns);
            columns.sort_unstable();
            columns.dedup();
        };
        let lengths: Vec<u64> = (0..rows)
            .into_par_iter()
            .map_init(Vec::new, |columns, row| {
                sorted_pattern(row, columns);
                columns.len() as u64
            })
            .collect();
        let offsets = running_sum(&lengths);
        let nnz = offsets[rows] as usize;
        let (mut columns, mut values) = (vec![0; nnz], vec![0.0; nnz]);

        let mut tasks = Vec::with_capacity(rows.div_ceil(ROWS_PER_TASK));
        let (mut columns_left, mut values_left) = (columns.as_mut_slice(), values.as_mut_slice());
        for first in (0..rows).step_by(ROWS_PER_TASK) {
            let last = (first + ROWS_PER_TASK).min(rows);
            let entries = (offsets[last] - offsets[first]) as usize;
            let (task_columns, rest) = columns_left.split_at_mut(entries);
            columns_left = rest;
            let (task_values, rest) = values_left.split_at_mut(entries);
            values_left = rest;
            tasks.push((first..last, task_columns, task_values));
        }
        tasks.into_par_iter().for_each_init(Vec::new, |scratch, (task_rows, columns, values)| {
            let base = offsets[task_rows.start];
            for row in task_rows {
                let range = (offsets[row] - base) as usize..(offsets[row + 1] - base) as usize;
                sorted_pattern(row, scratch);
                columns[range.clone()].copy_from_slice(scratch);
                fill(row, &columns[range.clone()], &mut values[range]);
            }
        });
        Self { rows, cols: rows, offsets, columns, values }
    }

    /// Assembles from entries packed by [`pack`], in any order. Repeated entries are stored once.
    pub(super) fn by_entries<V>(rows: usize, mut entries: Vec<u64>, value: V) -> Self
    where
        V: Fn(u32, u32) -> f64 + Sync,
    {
        entries.par_sort_unstable();
        entries.dedup();
        let mut lengths = vec![0; rows];
        for &entry in &entries {
            lengths[unpack(entry).0 as usize] += 1;
        }
        let columns = entries.par_iter().map(|&entry| unpack(entry).1).collect();
        let values = entries
            .par_iter()
            .map(|&entry| {
                let (row, column) = unpack(entry);
                value(row, column)
            })
            .collect();
        Self { rows, cols: rows, offsets: running_sum(&lengths), columns, values }
    }
}

/// Row and column in one word that sorts by row, then column.
pub(super) fn pack(row: u64, column: u64) -> u64 {
    row << 32 | column
}

fn unpack(entry: u64) -> (u32, u32) {
    ((entry >> 32) as u32, entry as u32)
}

fn running_sum(lengths: &[u64]) -> Vec<u64> {
    let mut offsets = Vec::with_capacity(lengths.len() + 1);
    let mut total = 0;
    offsets.push(0);
    offsets.extend(lengths.iter().map(|length| {
        total += length;
        total
    }));
    offsets
}
