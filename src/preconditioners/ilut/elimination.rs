//! Row-wise Gaussian elimination with dropping and column pivoting (Saad 1994, ILUT and ILUTP).
//!
//! ```text
//! for each row i:   w ← a_i
//!     for each k < i with w_k ≠ 0, ascending:   l = w_k / u_kk;  drop it if |l| max |u_k| ≤ τ_i;  w ← w − l u_k
//!     keep the largest entries of L and of U above τ_i, up to a limit for each
//!     exchange columns if the diagonal is much smaller than the largest entry of U
//! ```
//!
//! `τ_i` is the drop tolerance times the mean magnitude of the row's entries. A multiplier `l` is dropped by
//! the size of the update that it would cause, not by its own size, so that scaling rows changes nothing.

use super::{IlutOptions, NAME};
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_kernels::interrupt::Phase;
use krysp_solvers::Element;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Columns are exchanged if the magnitude of the pivot is below this fraction of the largest in its row.
/// Guess; Saad recommends 0.1 to 0.01 for ILUTP.
const PIVOTING: f64 = 0.1;

/// Number of entries read between two polls for interruption: some 0.2 ms. The time is estimated, not measured.
const POLLED: usize = 1 << 16;

/// A triangle in CSR, with ascending columns.
#[derive(Debug, Default)]
pub(super) struct Triangle<T> {
    pub(super) offsets: Vec<usize>,
    pub(super) columns: Vec<u32>,
    pub(super) values: Vec<T>,
}

impl<T> Triangle<T> {
    fn new(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Triangle { offsets, columns: vec![], values: vec![] }
    }

    fn push(&mut self, column: u32, value: T) {
        self.columns.push(column);
        self.values.push(value);
    }

    fn end_row(&mut self) {
        self.offsets.push(self.columns.len());
    }
}

/// The factors, `A ≈ L U`, with rows in the given order and columns in the order found by pivoting.
#[derive(Debug)]
pub(super) struct Factors<T> {
    /// `L` with its unit diagonal.
    pub(super) lower: Triangle<T>,
    pub(super) upper: Triangle<T>,
    /// The column of the matrix that corresponds to each column of the factors.
    pub(super) columns: Vec<u32>,
    /// Number of pivots that were too small and were replaced.
    pub(super) replaced_pivots: usize,
}

/// A position (in `L`) or a column of the matrix (in `U`), the value there, and a weight: the entries of
/// largest weight are kept.
type Entry<T> = (u32, T, T);

/// Accumulator of the current row: a value for each column of the matrix, and which columns are set.
struct Row<T> {
    values: Vec<T>,
    is_set: Vec<bool>,
    set: Vec<u32>,
}

/// Eliminates a matrix, with row `rows[i]` as row `i`, and its diagonal entry as first choice of pivot.
pub(super) fn eliminate<T: Real>(csr: &Csr<T>, rows: &[u32], options: &IlutOptions) -> Result<Factors<T>> {
    let n = rows.len();
    let mut elimination = Elimination::new(csr, rows, options);
    let phase = Phase::new("ILUT factorization", n as f64);
    let (mut polled_at, mut scanned) = (0, 0);
    for i in 0..n {
        if scanned >= POLLED {
            phase.advance((i - polled_at) as u64)?;
            (polled_at, scanned) = (i, 0);
        }
        scanned += elimination.eliminate_row(i)?;
        elimination.check_limits(i)?;
    }
    Ok(elimination.into_factors())
}

/// State of the elimination between two rows.
struct Elimination<'a, T: Real> {
    csr: &'a Csr<T>,
    /// The row of the matrix for each row of the factors.
    rows: &'a [u32],
    options: &'a IlutOptions,
    /// Maximum number of additional entries per row of each triangle.
    limit: usize,
    /// The column of the matrix for each column of the factors.
    column_at: Vec<u32>,
    /// The column of the factors for each column of the matrix.
    place_of: Vec<u32>,
    lower: Triangle<T>,
    /// `U`, with columns of the matrix until all rows are eliminated. The pivot is the first entry of a row.
    upper: Triangle<T>,
    /// The largest magnitude in each row of `U`.
    largest: Vec<T>,
    replaced_pivots: usize,
    /// Number of multiplications so far.
    multiplications: usize,
    row: Row<T>,
    /// Columns of the factors where the current row has entries to eliminate.
    waiting: BinaryHeap<Reverse<u32>>,
    /// Entries of the current row of `L`, and of `U` without the pivot.
    left: Vec<Entry<T>>,
    right: Vec<Entry<T>>,
}

impl<'a, T: Real> Elimination<'a, T> {
    fn new(csr: &'a Csr<T>, rows: &'a [u32], options: &'a IlutOptions) -> Self {
        let n = rows.len();
        let mut place_of = vec![0u32; n];
        (0..).zip(rows).for_each(|(place, &column)| place_of[column as usize] = place);
        Elimination {
            csr,
            rows,
            options,
            limit: (0.5 * options.fill * csr.nnz() as f64 / n.max(1) as f64).ceil() as usize,
            column_at: rows.to_vec(),
            place_of,
            lower: Triangle::new(n),
            upper: Triangle::new(n),
            largest: Vec::with_capacity(n),
            replaced_pivots: 0,
            multiplications: 0,
            row: Row { values: vec![T::zero(); n], is_set: vec![false; n], set: vec![] },
            waiting: BinaryHeap::new(),
            left: vec![],
            right: vec![],
        }
    }

    /// Appends row `i` to both factors. Returns the number of entries read.
    fn eliminate_row(&mut self, i: usize) -> Result<usize> {
        let original = self.rows[i] as usize;
        let (columns, values) = (self.csr.row_columns(original), self.csr.row_values(original));
        let mean =
            values.iter().fold(T::zero(), |sum, v| sum + v.abs()) / T::from_f64(values.len().max(1) as f64);
        let refuse = |pivot: T| Error::ZeroPivot { what: NAME, row: original, pivot: pivot.to_f64() };
        if !(mean > T::zero() && Element::is_finite(mean)) {
            return Err(refuse(mean));
        }
        let threshold = T::from_f64(self.options.drop_tolerance) * mean;
        let below = self.scatter(i, columns, values);
        let scanned = self.subtract_rows(i, threshold) + columns.len() + 1;
        let mut pivot = self.choose_pivot(i, threshold);
        if !Element::is_finite(pivot) {
            return Err(refuse(pivot));
        }
        let least = T::from_f64(self.options.drop_tolerance.max(T::EPSILON)) * mean;
        if pivot.abs() < least {
            pivot = if pivot < T::zero() { -least } else { least };
            self.replaced_pivots += 1;
        }
        keep_largest(&mut self.left, below.saturating_add(self.limit));
        let right = (columns.len() - below).saturating_sub(1);
        keep_largest(&mut self.right, right.saturating_add(self.limit));
        self.store_row(i, pivot);
        Ok(scanned)
    }

    /// `w ← a_i`. Returns the number of entries left of the diagonal, which wait for their elimination.
    fn scatter(&mut self, i: usize, columns: &[u32], values: &[T]) -> usize {
        let mut below = 0;
        for (&column, &value) in columns.iter().zip(values) {
            self.row.add(column, value);
            let place = self.place_of[column as usize];
            if (place as usize) < i {
                self.waiting.push(Reverse(place));
                below += 1;
            }
        }
        below
    }

    /// `w ← w − Σ l_k u_k` over the rows above, with the multipliers in `left`. Returns the number of entries
    /// read.
    fn subtract_rows(&mut self, i: usize, threshold: T) -> usize {
        let Self { column_at, place_of, upper, largest, row, waiting, left, .. } = self;
        let mut scanned = 0;
        left.clear();
        while let Some(Reverse(k)) = waiting.pop() {
            let at = k as usize;
            let range = upper.offsets[at]..upper.offsets[at + 1];
            let factor = row.values[column_at[at] as usize] / upper.values[range.start];
            let weight = factor.abs() * largest[at];
            if weight <= threshold {
                continue;
            }
            left.push((k, factor, weight));
            scanned += range.len();
            self.multiplications += range.len();
            for (&column, &u) in upper.columns[range.clone()].iter().zip(&upper.values[range]).skip(1) {
                if row.add(column, -(factor * u)) && (place_of[column as usize] as usize) < i {
                    waiting.push(Reverse(place_of[column as usize]));
                }
            }
        }
        scanned
    }

    /// Moves the entries right of the diagonal from `w` to `right`. Exchanges columns if the diagonal is
    /// small. Returns the pivot.
    fn choose_pivot(&mut self, i: usize, threshold: T) -> T {
        let Self { column_at, place_of, row, right, .. } = self;
        right.clear();
        for &column in &row.set {
            let (place, value) = (place_of[column as usize] as usize, row.values[column as usize]);
            if place > i && value.abs() > threshold {
                right.push((column, value, value.abs()));
            }
        }
        let own = column_at[i];
        let pivot = if row.is_set[own as usize] { row.values[own as usize] } else { T::zero() };
        row.clear();
        let by_weight =
            |a: &Entry<T>, b: &Entry<T>| a.2.partial_cmp(&b.2).unwrap_or(std::cmp::Ordering::Equal);
        match right.iter().copied().max_by(by_weight) {
            Some((column, value, weight)) if pivot.abs() < T::from_f64(PIVOTING) * weight => {
                let other = place_of[column as usize];
                column_at.swap(i, other as usize);
                (place_of[own as usize], place_of[column as usize]) = (other, i as u32);
                right.retain(|entry| entry.0 != column);
                if pivot.abs() > threshold {
                    right.push((own, pivot, pivot.abs()));
                }
                value
            }
            _ => pivot,
        }
    }

    /// Appends `left`, the pivot and `right` to the factors.
    fn store_row(&mut self, i: usize, pivot: T) {
        let Self { lower, upper, left, right, .. } = self;
        left.sort_unstable_by_key(|entry| entry.0);
        left.iter().for_each(|&(k, factor, _)| lower.push(k, factor));
        lower.push(i as u32, T::one());
        lower.end_row();
        upper.push(self.column_at[i], pivot);
        right.iter().for_each(|&(column, value, _)| upper.push(column, value));
        upper.end_row();
        self.largest.push(right.iter().fold(pivot.abs(), |most, entry| most.max(entry.2)));
    }

    /// Returns an error if the factors are too large after row `i`, or have taken too many multiplications.
    fn check_limits(&self, i: usize) -> Result<()> {
        let (n, IlutOptions { max_bytes, max_multiplications, .. }) = (self.rows.len(), self.options);
        let entries = self.lower.columns.len() + self.upper.columns.len();
        let bytes = entries * (size_of::<u32>() + size_of::<T>());
        let why = if bytes > *max_bytes {
            format!(
                "after {} of {n} rows the factors take {bytes} bytes, {max_bytes} are allowed: raise `max_bytes` or lower `fill`",
                i + 1
            )
        } else if self.multiplications as f64 > *max_multiplications {
            format!(
                "after {} of {n} rows it has taken {} multiplications, {max_multiplications:.1e} are allowed: raise `max_multiplications` or `drop_tolerance`",
                i + 1,
                self.multiplications
            )
        } else {
            return Ok(());
        };
        Err(Error::Unsuitable { format: NAME, why })
    }

    /// Replaces the columns of the matrix in `U` by those of the factors, and sorts each row by them.
    fn into_factors(self) -> Factors<T> {
        let Self { lower, mut upper, column_at, place_of, mut right, replaced_pivots, .. } = self;
        for i in 0..column_at.len() {
            let range = upper.offsets[i]..upper.offsets[i + 1];
            let entries = upper.columns[range.clone()].iter().zip(&upper.values[range.clone()]);
            right.clear();
            right.extend(entries.map(|(&column, &value)| (place_of[column as usize], value, value)));
            right.sort_unstable_by_key(|entry| entry.0);
            for (at, &(place, value, _)) in range.zip(&right) {
                (upper.columns[at], upper.values[at]) = (place, value);
            }
        }
        Factors { lower, upper, columns: column_at, replaced_pivots }
    }
}

impl<T: Real> Row<T> {
    /// Adds to an entry; returns whether it was unset before.
    fn add(&mut self, column: u32, value: T) -> bool {
        let at = column as usize;
        if self.is_set[at] {
            self.values[at] += value;
            return false;
        }
        self.is_set[at] = true;
        self.values[at] = value;
        self.set.push(column);
        true
    }

    fn clear(&mut self) {
        self.set.drain(..).for_each(|column| self.is_set[column as usize] = false);
    }
}

/// Keeps the `count` entries of largest weight.
fn keep_largest<T: Real>(entries: &mut Vec<Entry<T>>, count: usize) {
    if entries.len() > count {
        let order = |a: &Entry<T>, b: &Entry<T>| b.2.partial_cmp(&a.2).unwrap_or(std::cmp::Ordering::Equal);
        entries.select_nth_unstable_by(count, |a, b| order(a, b).then(a.0.cmp(&b.0)));
        entries.truncate(count);
    }
}
