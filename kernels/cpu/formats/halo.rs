//! HALO: each chunk of rows copies the entries of `x` that it reads (its window) to contiguous memory, so
//! that columns are stored as 16-bit indices into the window.
//!
//! Memory traffic of a product: 10 bytes per entry (f64), or `8 + 2/B²` in dense blocks of `B × B`, and the
//! window of each chunk twice (read from `x`, written to the copy).

use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::threads::{CHUNK, chunks};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Simd, Value};
use crate::index::Offsets;
use crate::windows::Windows;
use std::ops::Range;

/// Arrays of a matrix whose nodes have `size` rows each.
#[derive(Clone, Copy, Debug)]
pub struct Halo<'a, V> {
    /// Rows per node: 1, 2, 3, 4 or 6.
    pub size: usize,
    /// Windows of the chunks of rows, in nodes.
    pub windows: &'a Windows,
    /// Offsets of the block rows, one per node, counted in blocks.
    pub offsets: &'a Offsets,
    /// Index of each block's column node in the window.
    pub columns: &'a [u16],
    /// Values block after block, each column by column.
    pub values: &'a [V],
}

impl<T: Value, V: Storage<T>> RowProduct<T> for Halo<'_, V> {
    fn rows(&self) -> usize {
        self.offsets.ranges() * self.size
    }

    fn fits(&self, x: usize) -> bool {
        self.windows.cols() * self.size <= x
            && self.columns.len() >= self.offsets.end()
            && self.values.len() >= self.offsets.end() * self.size * self.size
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        match self.size {
            1 => self.walk::<S, T, 1>(rows, x, y),
            2 => self.walk::<S, T, 2>(rows, x, y),
            3 => self.walk::<S, T, 3>(rows, x, y),
            4 => self.walk::<S, T, 4>(rows, x, y),
            _ => self.walk::<S, T, 6>(rows, x, y),
        }
    }
}

impl<V> Halo<'_, V> {
    #[inline(always)]
    fn walk<S: Simd, T: Value, const B: usize>(&self, rows: Range<usize>, x: &[T], y: &mut [T])
    where
        V: Storage<T>,
    {
        let mut window: Vec<T> = vec![];
        let first = rows.start;
        for chunk in chunks(rows) {
            let block = chunk.start / CHUNK;
            let own = self.windows.own(block);
            window.clear();
            window.extend_from_slice(&x[own.start * B..own.end * B]);
            for &node in self.windows.halo(block) {
                window.extend_from_slice(&x[node as usize * B..][..B]);
            }
            let nodes = chunk.start / B..chunk.end / B;
            let y = &mut y[chunk.start - first..chunk.end - first];
            for (node, y) in nodes.zip(y.chunks_exact_mut(B)) {
                let blocks = self.offsets.range(node);
                let values = self.values[blocks.start * B * B..blocks.end * B * B].chunks_exact(B * B);
                // separate sums for each column of a block keep the additions independent
                let mut sums = [[T::zero(); B]; B];
                for (&column, values) in self.columns[blocks].iter().zip(values) {
                    let x = &window[column as usize * B..][..B];
                    for ((sums, values), &x) in sums.iter_mut().zip(values.chunks_exact(B)).zip(x) {
                        for (sum, &value) in sums.iter_mut().zip(values) {
                            *sum = S::mul_add(value.widen(), x, *sum);
                        }
                    }
                }
                for (i, y) in y.iter_mut().enumerate() {
                    *y = sums.iter().fold(T::zero(), |all, column| all + column[i]);
                }
            }
        }
    }
}
