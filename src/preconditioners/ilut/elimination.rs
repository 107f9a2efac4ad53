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

/// Columns are exchanged if the magnitude of the pivot is below this fraction of the largest in its row. Not
/// measured; Saad recommends 0.1 to 0.01 for ILUTP.
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
    let mut column_at = rows.to_vec();
    let mut place_of = vec![0u32; n];
    (0..).zip(rows).for_each(|(place, &column)| place_of[column as usize] = place);
    let (mut lower, mut upper) = (Triangle::new(n), Triangle::new(n));
    // the largest magnitude in each row of U
    let mut largest: Vec<T> = Vec::with_capacity(n);
    let mut row = Row { values: vec![T::zero(); n], is_set: vec![false; n], set: vec![] };
    let mut waiting: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
    let (mut left, mut right): (Vec<Entry<T>>, Vec<Entry<T>>) = (vec![], vec![]);
    // maximum number of additional entries per row of each triangle
    let limit = (0.5 * options.fill * csr.nnz() as f64 / n.max(1) as f64).ceil() as usize;
    let mut replaced_pivots = 0;
    let phase = Phase::new("ILUT factorization", n as f64);
    let (mut polled_at, mut scanned) = (0, 0);
    let mut multiplications = 0;
    for i in 0..n {
        if scanned >= POLLED {
            phase.advance((i - polled_at) as u64)?;
            (polled_at, scanned) = (i, 0);
        }
        let original = rows[i] as usize;
        let (columns, values) = (csr.row_columns(original), csr.row_values(original));
        let mean =
            values.iter().fold(T::zero(), |sum, v| sum + v.abs()) / T::from_f64(values.len().max(1) as f64);
        let refuse = |pivot: T| Error::ZeroPivot { what: NAME, row: original, pivot: pivot.to_f64() };
        if !(mean > T::zero() && Element::is_finite(mean)) {
            return Err(refuse(mean));
        }
        let threshold = T::from_f64(options.drop_tolerance) * mean;
        let mut below = 0;
        for (&column, &value) in columns.iter().zip(values) {
            row.add(column, value);
            let place = place_of[column as usize];
            if (place as usize) < i {
                waiting.push(Reverse(place));
                below += 1;
            }
        }
        scanned += columns.len() + 1;
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
            multiplications += range.len();
            for (&column, &u) in upper.columns[range.clone()].iter().zip(&upper.values[range]).skip(1) {
                if row.add(column, -(factor * u)) && (place_of[column as usize] as usize) < i {
                    waiting.push(Reverse(place_of[column as usize]));
                }
            }
        }
        right.clear();
        for &column in &row.set {
            let (place, value) = (place_of[column as usize] as usize, row.values[column as usize]);
            if place > i && value.abs() > threshold {
                right.push((column, value, value.abs()));
            }
        }
        let own = column_at[i];
        let mut pivot = if row.is_set[own as usize] { row.values[own as usize] } else { T::zero() };
        row.clear();
        let by_weight =
            |a: &Entry<T>, b: &Entry<T>| a.2.partial_cmp(&b.2).unwrap_or(std::cmp::Ordering::Equal);
        let most = right.iter().copied().max_by(by_weight);
        if let Some((column, value, weight)) = most
            && pivot.abs() < T::from_f64(PIVOTING) * weight
        {
            let other = place_of[column as usize];
            column_at.swap(i, other as usize);
            (place_of[own as usize], place_of[column as usize]) = (other, i as u32);
            right.retain(|entry| entry.0 != column);
            if pivot.abs() > threshold {
                right.push((own, pivot, pivot.abs()));
            }
            pivot = value;
        }
        if !Element::is_finite(pivot) {
            return Err(refuse(pivot));
        }
        let least = T::from_f64(options.drop_tolerance.max(T::EPSILON)) * mean;
        if pivot.abs() < least {
            pivot = if pivot < T::zero() { -least } else { least };
            replaced_pivots += 1;
        }
        keep_largest(&mut left, below + limit);
        keep_largest(&mut right, (columns.len() - below).saturating_sub(1) + limit);
        left.sort_unstable_by_key(|entry| entry.0);
        left.iter().for_each(|&(k, factor, _)| lower.push(k, factor));
        lower.push(i as u32, T::one());
        lower.end_row();
        upper.push(column_at[i], pivot);
        right.iter().for_each(|&(column, value, _)| upper.push(column, value));
        upper.end_row();
        largest.push(right.iter().fold(pivot.abs(), |most, entry| most.max(entry.2)));
        let bytes = (lower.columns.len() + upper.columns.len()) * (size_of::<u32>() + size_of::<T>());
        if bytes > options.max_bytes {
            let why = format!(
                "after {} of {n} rows the factors take {bytes} bytes, {} are allowed: raise `max_bytes` or lower `fill`",
                i + 1,
                options.max_bytes
            );
            return Err(Error::Unsuitable { format: NAME, why });
        }
        if multiplications as f64 > options.max_multiplications {
            let why = format!(
                "after {} of {n} rows it has taken {multiplications} multiplications, {:.1e} are allowed",
                i + 1,
                options.max_multiplications
            );
            return Err(Error::Unsuitable { format: NAME, why });
        }
    }
    // replace the columns of the matrix by their positions in the factors
    for i in 0..n {
        let range = upper.offsets[i]..upper.offsets[i + 1];
        let entries = upper.columns[range.clone()].iter().zip(&upper.values[range.clone()]);
        right.clear();
        right.extend(entries.map(|(&column, &value)| (place_of[column as usize], value, value)));
        right.sort_unstable_by_key(|entry| entry.0);
        for (at, &(place, value, _)) in range.zip(&right) {
            (upper.columns[at], upper.values[at]) = (place, value);
        }
    }
    Ok(Factors { lower, upper, columns: column_at, replaced_pivots })
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
