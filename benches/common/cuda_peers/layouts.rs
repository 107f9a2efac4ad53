//! Converts matrices to the layouts of cuSPARSE, in host memory.

use super::CudaElement;
use krysp::Csr;
use rayon::prelude::*;

/// The number of rows in a slice.
pub const SLICE: usize = 32;

/// A sliced format is refused if it has more slots (stored positions, including padding) than `PADDING` times
/// the number of entries plus 100,000.
const PADDING: usize = 4;

/// Offsets, indices and values, with 32-bit indices.
pub struct Arrays<T> {
    pub offsets: Vec<i32>,
    pub columns: Vec<i32>,
    pub values: Vec<T>,
}

/// The offsets as 32-bit integers, if the matrix is small enough.
fn indices<'a>(indices: impl IntoIterator<Item = &'a usize>) -> Option<Vec<i32>> {
    indices.into_iter().map(|&index| i32::try_from(index).ok()).collect()
}

pub fn csr<T: CudaElement>(csr: &Csr<T>) -> Option<Arrays<T>> {
    Some(Arrays {
        offsets: indices(&csr.offsets())?,
        columns: csr.columns().par_iter().map(|&column| column as i32).collect(),
        values: csr.entries().to_vec(),
    })
}

/// Coordinates: the array `offsets` holds the row of each entry.
pub fn coo<T: CudaElement>(matrix: &Csr<T>) -> Option<Arrays<T>> {
    let mut arrays = csr(matrix)?;
    let row = |row: usize| std::iter::repeat_n(row as i32, matrix.row_columns(row).len());
    arrays.offsets = (0..matrix.rows()).into_par_iter().flat_map_iter(row).collect();
    Some(arrays)
}

/// Slices of 32 rows, padded to their longest row with column −1. `None` if that needs too much padding.
pub fn sliced<T: CudaElement>(csr: &Csr<T>) -> Option<Arrays<T>> {
    let lengths: Vec<usize> = csr.row_lengths().collect();
    let mut offsets = vec![0];
    let mut end = 0;
    for slice in lengths.chunks(SLICE) {
        end += SLICE * slice.iter().max().copied().unwrap_or(0);
        offsets.push(end);
    }
    if end > PADDING * csr.nnz() + 100_000 {
        return None;
    }
    // column-major in each slice: the k-th entries of its rows are adjacent
    let place = |slice: usize| {
        let width = (offsets[slice + 1] - offsets[slice]) / SLICE;
        let lengths = &lengths;
        (0..width).flat_map(move |k| {
            (slice * SLICE..(slice + 1) * SLICE)
                .map(move |row| (row, k, lengths.get(row).is_some_and(|&length| k < length)))
        })
    };
    let slices = || (0..offsets.len() - 1).into_par_iter();
    let column = |(row, k, taken)| if taken { csr.row_columns(row)[k] as i32 } else { -1 };
    let value = |(row, k, taken)| if taken { csr.row_values(row)[k] } else { T::narrow(0.0) };
    Some(Arrays {
        offsets: indices(&offsets)?,
        columns: slices().flat_map_iter(|slice| place(slice).map(column)).collect(),
        values: slices().flat_map_iter(|slice| place(slice).map(value)).collect(),
    })
}

/// Square blocks of `side` rows, each stored by rows. `None` if `side` does not divide the number of rows.
pub fn blocked<T: CudaElement>(csr: &Csr<T>, side: usize) -> Option<Arrays<T>> {
    if !csr.rows().is_multiple_of(side) {
        return None;
    }
    let block_row = |block_row: usize| {
        let rows = block_row * side..(block_row + 1) * side;
        let mut columns: Vec<u32> =
            rows.clone().flat_map(|row| csr.row_columns(row)).map(|&column| column / side as u32).collect();
        columns.sort_unstable();
        columns.dedup();
        let mut values = vec![T::narrow(0.0); columns.len() * side * side];
        for row in rows {
            let mut block = 0;
            for (&column, &value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
                let (block_column, within) = (column / side as u32, column as usize % side);
                while columns[block] != block_column {
                    block += 1;
                }
                values[(block * side + row % side) * side + within] = value;
            }
        }
        (columns, values)
    };
    let block_rows: Vec<_> = (0..csr.rows() / side).into_par_iter().map(block_row).collect();
    let ends = block_rows.iter().scan(0, |end, (columns, _)| {
        *end += columns.len();
        Some(*end)
    });
    let offsets: Vec<usize> = std::iter::once(0).chain(ends).collect();
    Some(Arrays {
        offsets: indices(&offsets)?,
        columns: block_rows.iter().flat_map(|(columns, _)| columns).map(|&column| column as i32).collect(),
        values: block_rows.par_iter().flat_map_iter(|(_, values)| values.iter().copied()).collect(),
    })
}
