//! The four blocks of a saddle point matrix, and approximations of its Schur complement.

use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, Format, Source};
use crate::host::HostSpace;
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{find_row, map_rows, over_rows};
use krysp_kernels::index::Offsets;
use krysp_kernels::interrupt;
use krysp_solvers::Element;
use rayon::prelude::*;
use std::sync::Arc;

/// Rows of a product that one task computes (guess: enough to amortize its marker array).
const ROWS: usize = 4096;

/// A block of a matrix; `from` holds the position of each of its entries in the whole matrix.
#[derive(Debug)]
pub(super) struct Part<T: Real> {
    pub(super) matrix: Csr<T>,
    from: Buffer<u32>,
}

saved!(impl[T: Real] Part<T> { matrix, from } where |read| read.matrix.nnz() == read.from.len());

impl<T: Real> Part<T> {
    /// Extracts entries of `rows`. `local` maps columns of the matrix to columns of the block; entries in
    /// other columns (`None`) are omitted.
    fn new(csr: &Csr<T>, rows: &[u32], local: &[Option<u32>], cols: usize) -> Result<Part<T>> {
        let (mut from, mut columns, mut lengths) = (vec![], vec![], Vec::with_capacity(rows.len()));
        for &row in rows {
            let before = columns.len();
            let entries = csr.pattern().offsets.range(row as usize);
            for (entry, &column) in entries.zip(csr.row_columns(row as usize)) {
                if let Some(column) = local[column as usize] {
                    columns.push(column);
                    from.push(entry as u32);
                }
            }
            lengths.push(columns.len() - before);
        }
        let values = map_rows(from.len(), 2, &|k| csr.entries()[from[k] as usize]);
        Ok(Part { matrix: matrix(lengths, columns, values, cols)?, from: from.into() })
    }

    /// Copies the values of a matrix of the same pattern.
    pub(super) fn refresh(&mut self, csr: &Csr<T>) {
        let (from, values) = (&self.from, csr.entries());
        over_rows(from.len(), 2, &mut **self.matrix.values_mut(), &|entries, to: &mut [T]| {
            to.iter_mut().zip(&from[entries]).for_each(|(to, &from)| *to = values[from as usize]);
        });
    }

    /// Returns whether all positions in `from` are valid for a matrix with `nnz` entries.
    fn fits(&self, nnz: usize) -> bool {
        find_row(self.from.len(), 1, &|k| self.from[k] as usize >= nnz).is_none()
    }
}

/// The blocks of a matrix `[A G; H K]`; `D = diag(A)`.
#[derive(Debug)]
pub(super) struct Blocks<T: Real> {
    pub(super) a: Part<T>,
    pub(super) g: Part<T>,
    pub(super) h: Part<T>,
    pub(super) k: Part<T>,
    /// The unknowns of each field.
    pub(super) rows: [Vec<u32>; 2],
}

saved!(impl[T: Real] Blocks<T> { a, g, h, k, rows });

impl<T: Real> Blocks<T> {
    /// Splits a matrix. Cost: one pass over its entries for each block.
    pub(super) fn new(csr: &Csr<T>, field: &[u8]) -> Result<Blocks<T>> {
        if u32::try_from(csr.nnz()).is_err() {
            let why = format!("{} entries are more than the 32-bit places of a block reach", csr.nnz());
            return Err(Error::Unsuitable { format: super::NAME, why });
        }
        let mut rows = [vec![], vec![]];
        let mut local = [vec![None; field.len()], vec![None; field.len()]];
        for (row, &field) in field.iter().enumerate() {
            let (rows, local) = (&mut rows[usize::from(field)], &mut local[usize::from(field)]);
            local[row] = Some(rows.len() as u32);
            rows.push(row as u32);
        }
        let [n, m] = [rows[0].len(), rows[1].len()];
        Ok(Blocks {
            a: Part::new(csr, &rows[0], &local[0], n)?,
            g: Part::new(csr, &rows[0], &local[1], m)?,
            h: Part::new(csr, &rows[1], &local[0], n)?,
            k: Part::new(csr, &rows[1], &local[1], m)?,
            rows,
        })
    }

    /// Copies the values of a matrix of the same pattern.
    pub(super) fn refresh(&mut self, csr: &Csr<T>) {
        [&mut self.a, &mut self.g, &mut self.h, &mut self.k].into_iter().for_each(|part| part.refresh(csr));
    }

    /// Returns whether the blocks fit a matrix with these numbers of unknowns and entries.
    pub(super) fn fits(&self, unknowns: usize, nnz: usize) -> bool {
        let [n, m] = self.rows.each_ref().map(Vec::len);
        let shapes = [(&self.a, n, n), (&self.g, n, m), (&self.h, m, n), (&self.k, m, m)];
        n + m == unknowns
            && shapes.iter().all(|(part, rows, cols)| {
                (part.matrix.rows(), part.matrix.cols()) == (*rows, *cols) && part.fits(nnz)
            })
            && self.rows.iter().flatten().all(|&row| (row as usize) < unknowns)
    }

    /// The inverse of the diagonal of `A`. Returns an error for entries that are zero, subnormal or not
    /// finite.
    pub(super) fn inverse_diagonal(&self) -> Result<Vec<T>> {
        let diagonal = self.a.matrix.diagonal_entries();
        let wrong = |row: usize| !(Element::to_f64(diagonal[row]).is_normal());
        match find_row(diagonal.len(), 1, &wrong) {
            Some(row) => Err(Error::ZeroDiagonal {
                row: self.rows[0][row] as usize,
                value: Element::to_f64(diagonal[row]),
            }),
            None => Ok(map_rows(diagonal.len(), 1, &|row| T::one() / diagonal[row])),
        }
    }

    /// Number of multiplications of `H D⁻¹ G`.
    pub(super) fn work(&self) -> f64 {
        let lengths: Vec<usize> = self.g.matrix.row_lengths().collect();
        self.h.matrix.columns().iter().map(|&column| lengths[column as usize] as f64).sum()
    }

    /// `σ (H D⁻¹ G − K)` with a full diagonal, and the sign `σ` that makes most of the diagonal positive. A
    /// zero diagonal entry becomes one.
    pub(super) fn approximate_schur(&self, inverse: &[T]) -> Result<(Csr<T>, T)> {
        let m = self.rows[1].len();
        let tasks: Vec<_> = (0..m.div_ceil(ROWS)).map(|task| task * ROWS..m.min((task + 1) * ROWS)).collect();
        let parts: Vec<_> = tasks
            .into_par_iter()
            .map(|rows| {
                interrupt::check("Schur complement")?;
                Ok(self.rows_of_product(rows, inverse))
            })
            .collect::<Result<_>>()?;
        let (mut lengths, mut columns, mut values) = (vec![], vec![], vec![]);
        for part in parts {
            lengths.extend(part.0);
            columns.extend(part.1);
            values.extend(part.2);
        }
        let mut made = matrix(lengths, columns, values, m)?;
        let sign = sign_of(&made.diagonal_entries());
        let pattern = made.source().pattern.clone();
        let values = &mut **made.values_mut();
        for row in 0..m {
            for (entry, &column) in pattern.offsets.range(row).zip(pattern.row(row)) {
                let value = sign * values[entry];
                values[entry] = match column as usize == row {
                    true if value == T::zero() => T::one(),
                    _ => value,
                };
            }
        }
        Ok((made, sign))
    }

    /// Lengths, columns and values of some rows of `H D⁻¹ G − K`, with a full diagonal.
    fn rows_of_product(&self, rows: std::ops::Range<usize>, inverse: &[T]) -> (Vec<usize>, Vec<u32>, Vec<T>) {
        let m = self.rows[1].len();
        let (mut lengths, mut columns, mut values) = (vec![], vec![], vec![]);
        let (mut sums, mut is_in) = (vec![T::zero(); m], vec![false; m]);
        for row in rows {
            let start = columns.len();
            let mut add = |column: u32, value: T| {
                if !std::mem::replace(&mut is_in[column as usize], true) {
                    columns.push(column);
                }
                sums[column as usize] += value;
            };
            add(row as u32, T::zero());
            let h = &self.h.matrix;
            for (&at, &value) in h.row_columns(row).iter().zip(h.row_values(row)) {
                let (at, value) = (at as usize, value * inverse[at as usize]);
                let g = &self.g.matrix;
                g.row_columns(at)
                    .iter()
                    .zip(g.row_values(at))
                    .for_each(|(&column, &g)| add(column, value * g));
            }
            let k = &self.k.matrix;
            k.row_columns(row).iter().zip(k.row_values(row)).for_each(|(&column, &k)| add(column, -k));
            columns[start..].sort_unstable();
            lengths.push(columns.len() - start);
            for &column in &columns[start..] {
                values.push(std::mem::take(&mut sums[column as usize]));
                is_in[column as usize] = false;
            }
        }
        (lengths, columns, values)
    }

    /// The diagonal of `σ (H D⁻¹ G − K)`, computed without the product by one search in `G` for each entry of
    /// `H`; and `σ`.
    pub(super) fn diagonal_of_schur(&self, inverse: &[T]) -> Result<(Vec<T>, T)> {
        let mut diagonal: Vec<T> = self.k.matrix.diagonal_entries().iter().map(|&k| -k).collect();
        let (h, g) = (&self.h.matrix, &self.g.matrix);
        // entry (i, j) of H is multiplied by entry (j, i) of G
        for (row, own) in diagonal.iter_mut().enumerate() {
            for (&at, &value) in h.row_columns(row).iter().zip(h.row_values(row)) {
                let other = g.get(at as usize, row).unwrap_or_else(T::zero);
                *own += value * inverse[at as usize] * other;
            }
        }
        let sign = sign_of(&diagonal);
        diagonal.iter_mut().for_each(|own| *own = if *own == T::zero() { T::one() } else { sign * *own });
        Ok((diagonal, sign))
    }
}

/// The sign of most of the numbers.
fn sign_of<T: Real>(numbers: &[T]) -> T {
    let sum: f64 = numbers
        .iter()
        .map(|&value| Element::to_f64(value))
        .filter(|value| *value != 0.0)
        .map(f64::signum)
        .sum();
    if sum >= 0.0 { T::one() } else { -T::one() }
}

/// A matrix of sorted rows.
fn matrix<T: Real>(lengths: Vec<usize>, columns: Vec<u32>, values: Vec<T>, cols: usize) -> Result<Csr<T>> {
    let rows = lengths.len();
    let pattern = Pattern::sorted(Offsets::from_lengths(lengths), columns, cols)?;
    let source = Source::new(Arc::new(pattern), HostSpace::new(cols), HostSpace::new(rows));
    Ok(Csr::from_source(source, values.into()))
}
