//! Coarse space of aggregates: restriction `Zᵀ r`, prolongation `z + Z c`, and products with a small dense
//! matrix.
//!
//! Each row belongs to one aggregate or to none. `Z` has `modes` columns per aggregate: the near-null-space
//! vectors, set to zero outside the aggregate.
//!
//! Memory traffic: [`Aggregates::restrict`] reads `r` and the indices of the rows, [`Aggregates::prolong`]
//! reads `z` and the aggregate of each row; both read `modes` weights per row if there are any. A dense
//! product reads its matrix. Sums have the same order on any number of threads.

use crate::buffer::Buffer;
use crate::cpu::preconditioners::inverse::row_stride;
use crate::cpu::run::threads::{ByRow, over_parts, over_rows, tasks};
use crate::cpu::simd::Value;
use crate::cpu::vector::block_dot;

/// Marks rows that belong to no aggregate.
pub const NONE: u32 = u32::MAX;

/// Rows of each aggregate, and the entries of `Z` in them.
#[derive(Clone, Copy, Debug)]
pub struct Aggregates<'a, T> {
    /// Offset of each aggregate in `rows`, then the end of the last.
    pub starts: &'a [u32],
    /// Rows, aggregate by aggregate.
    pub rows: &'a [u32],
    /// Aggregate of each row, or [`NONE`].
    pub of_row: &'a [u32],
    /// Number of columns of `Z` per aggregate (near-null-space vectors).
    pub modes: usize,
    /// Entries of `Z`: for each mode, one weight per row. `None` if all are one.
    pub weights: Option<&'a [T]>,
}

impl<'a, T: Value> Aggregates<'a, T> {
    /// Number of aggregates.
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of coarse unknowns, ordered by aggregate, then by mode.
    pub fn unknowns(&self) -> usize {
        self.count() * self.modes
    }

    /// Rows of an aggregate.
    pub fn rows_of(&self, aggregate: usize) -> &'a [u32] {
        &self.rows[self.starts[aggregate] as usize..self.starts[aggregate + 1] as usize]
    }

    /// Entry of `Z` in a row, for a mode of the row's aggregate.
    #[inline]
    pub fn weight(&self, mode: usize, row: usize) -> T {
        self.weights.map_or(T::one(), |weights| weights[mode * self.of_row.len() + row])
    }

    /// `c ← Zᵀ r`; entries of `c` beyond the coarse unknowns are unchanged.
    pub fn restrict(&self, r: &[T], c: &mut [T]) {
        assert_eq!(r.len(), self.of_row.len(), "the vector has an entry for each row");
        let (count, modes) = (self.count(), self.modes);
        let parts = tasks(2 * modes * r.len()).min(count);
        let bound = |part: usize| part * count / parts.max(1);
        let offset = |aggregate: usize| aggregate * modes;
        let c = ByRow::new(&mut c[..count * modes], &offset);
        over_parts(parts, &bound, c, &|aggregates, mut c| {
            for aggregate in aggregates {
                let rows = self.rows_of(aggregate);
                for (mode, c) in c.row_mut(aggregate, modes).iter_mut().enumerate() {
                    *c = match self.weights {
                        None => sum_of(rows, |row| r[row]),
                        Some(weights) => {
                            let weights = &weights[mode * r.len()..(mode + 1) * r.len()];
                            sum_of(rows, |row| weights[row] * r[row])
                        }
                    };
                }
            }
        });
    }

    /// `z ← z + Z c`
    pub fn prolong(&self, c: &[T], z: &mut [T]) {
        let n = self.of_row.len();
        assert_eq!(z.len(), n, "the vector has an entry for each row");
        over_rows(n, 2 + self.modes, z, &|rows, z: &mut [T]| {
            for (z, row) in z.iter_mut().zip(rows) {
                let aggregate = self.of_row[row];
                if aggregate == NONE {
                    continue;
                }
                let first = aggregate as usize * self.modes;
                match self.weights {
                    None => *z += c[first],
                    Some(weights) => {
                        for (mode, &c) in c[first..first + self.modes].iter().enumerate() {
                            *z += weights[mode * n + row] * c;
                        }
                    }
                }
            }
        });
    }
}

/// A symmetric sparse matrix of coarse unknowns, in blocks of `modes` rows and columns.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// Rows and columns per block.
    pub modes: usize,
    /// Number of block rows.
    pub count: usize,
    /// Block row and block column of each block, in ascending order of block rows.
    pub places: Vec<[u32; 2]>,
    /// Values block after block, each row by row.
    pub values: Vec<f64>,
}

impl Blocks {
    /// Number of rows.
    pub fn unknowns(&self) -> usize {
        self.modes * self.count
    }

    /// Diagonal entries.
    pub fn diagonal(&self) -> Vec<f64> {
        let mut diagonal = vec![0.0; self.unknowns()];
        for (&[row, column], block) in self.places.iter().zip(self.values.chunks(self.modes.pow(2).max(1))) {
            if row == column {
                let own = diagonal[row as usize * self.modes..][..self.modes].iter_mut();
                own.enumerate().for_each(|(mode, own)| *own = block[mode * (self.modes + 1)]);
            }
        }
        diagonal
    }

    /// All entries as a dense matrix, with rows [`row_stride`] numbers apart.
    pub fn dense(&self) -> Buffer<f64> {
        let (modes, stride) = (self.modes, row_stride(self.unknowns()));
        let mut dense = Buffer::zeros(self.unknowns() * stride);
        for (&[row, column], block) in self.places.iter().zip(self.values.chunks(modes.pow(2).max(1))) {
            for (mode, values) in block.chunks(modes).enumerate() {
                let first = (row as usize * modes + mode) * stride + column as usize * modes;
                dense[first..first + modes].copy_from_slice(values);
            }
        }
        dense
    }
}

/// Sums in four independent partial sums.
#[inline(always)]
fn sum_of<T: Value>(rows: &[u32], term: impl Fn(usize) -> T) -> T {
    let (fours, rest) = rows.as_chunks::<4>();
    let mut sums = [T::zero(); 4];
    for four in fours {
        for (sum, &row) in sums.iter_mut().zip(four) {
            *sum += term(row as usize);
        }
    }
    for (sum, &row) in sums.iter_mut().zip(rest) {
        *sum += term(row as usize);
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3])
}

/// `y ← E x` for a dense matrix with rows [`row_stride`] numbers apart; `x` and `y` have `row_stride(n)`
/// entries.
pub fn dense_product<T: Value>(e: &[T], n: usize, x: &[T], y: &mut [T]) {
    let stride = row_stride(n);
    assert!(
        e.len() == n * stride && x.len() == stride && y.len() == stride,
        "rows are padded to whole registers"
    );
    dense_rows(e, x, &mut y[..n]);
}

/// `Y ← E X` for `W` vectors. The vectors of `x` are stored one after the other, [`row_stride`] elements
/// apart, those of `y` row by row.
pub fn dense_product_many<T: Value, const W: usize>(e: &[T], n: usize, x: &[T], y: &mut [T]) {
    let stride = row_stride(n);
    let (y, rest) = y.as_chunks_mut::<W>();
    assert!(e.len() == n * stride && x.len() == W * stride, "rows are padded to whole registers");
    assert!(y.len() == n && rest.is_empty(), "`y` has `W` numbers for each row");
    let parts = tasks(e.len()).min(n);
    over_parts(parts, &|part| part * n / parts.max(1), y, &|rows, y: &mut [[T; W]]| {
        for (row, y) in rows.zip(y) {
            let e = &e[row * stride..(row + 1) * stride];
            for (j, y) in y.iter_mut().enumerate() {
                *y = block_dot(e, &x[j * stride..(j + 1) * stride]);
            }
        }
    });
}

/// `y ← E x` for some rows of a dense matrix, each as long as `x`, whose length is a [`row_stride`].
pub fn dense_rows<T: Value>(e: &[T], x: &[T], y: &mut [T]) {
    let (stride, n) = (x.len(), y.len());
    assert_eq!(e.len(), n * stride, "rows are as long as `x`");
    let parts = tasks(e.len()).min(n);
    over_parts(parts, &|part| part * n / parts.max(1), y, &|rows, y: &mut [T]| {
        for (row, y) in rows.zip(y) {
            *y = block_dot(&e[row * stride..(row + 1) * stride], x);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restriction_and_prolongation_are_transposes() {
        let of_row = [1, 0, NONE, 1, 1, 0, 1, 1, 1];
        let (starts, rows) = ([0, 2, 8], [1, 5, 0, 3, 4, 6, 7, 8]);
        let weights: Vec<f64> = (0..18).map(|i| f64::from(i) - 7.5).collect();
        let r: Vec<f64> = (0..9).map(|i| 1.0 / (1.0 + f64::from(i))).collect();
        for (modes, weights) in [(1, None), (2, Some(&*weights))] {
            let z = Aggregates { starts: &starts, rows: &rows, of_row: &of_row, modes, weights };
            let mut c = vec![f64::NAN; z.unknowns()];
            z.restrict(&r, &mut c);
            for column in 0..z.unknowns() {
                let mut unit = vec![0.0; z.unknowns()];
                unit[column] = 1.0;
                let mut prolonged = vec![0.0; 9];
                z.prolong(&unit, &mut prolonged);
                assert_eq!(prolonged[2], 0.0);
                let expected: f64 = prolonged.iter().zip(&r).map(|(z, r)| z * r).sum();
                assert!((c[column] - expected).abs() < 1e-14, "{column}: {} {expected}", c[column]);
            }
        }
    }

    #[test]
    fn dense_products() {
        let (n, stride) = (5, row_stride(5));
        let mut e = vec![0.0; n * stride];
        let mut x = vec![0.0; stride];
        for i in 0..n {
            x[i] = 1.0 + i as f64;
            for j in 0..n {
                e[i * stride + j] = (10 * i + j) as f64;
            }
        }
        let mut y = vec![0.0; stride];
        dense_product(&e, n, &x, &mut y);
        for (i, y) in y[..n].iter().enumerate() {
            assert_eq!(*y, (0..n).map(|j| (10 * i + j) as f64 * x[j]).sum::<f64>());
        }
    }
}
