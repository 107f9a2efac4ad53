//! Partial `L D Lᵀ` factorization of a dense symmetric front, with pivots of one or two rows by a threshold
//! test.
//!
//! ```text
//! for each panel of BLOCK fully summed columns:
//!     for each column p, with r the row of its largest off-diagonal entry in the panel:
//!         1×1 pivot a_pp       if |a_pp| ≥ threshold · (largest other entry of the column)
//!         2×2 pivot of p, r    otherwise, if all entries of [l_p l_r] = [a_p a_r] D⁻¹ are at most 1 / threshold
//!                              (Duff and Reid 1983)
//!     subtract L D Lᵀ of the panel from the other fully summed columns
//! if no column of a panel is accepted: try its first column with r among all fully summed rows
//! A₂₂ ← A₂₂ − L₂₁ D L₂₁ᵀ
//! ```
//!
//! A rejected column is tried again after others have been eliminated. Columns without an acceptable pivot at
//! the end are left to the caller, who delays them to the parent front. Results are bitwise the same for
//! every number of threads.

mod solves;
#[cfg(test)]
mod tests;

pub use solves::{LdlFactors, pack, packed};

use super::lu::{divide, largest};
use super::{BLOCK, Strip, add, subtract};
use crate::cpu::simd::{Simd, Task, Value, run};
use crate::interrupt::{Interrupted, Phase};

/// Minimum `|det| / (|a c| + b²)` of a 2×2 pivot: below, the determinant `a c − b²` is mostly rounding error.
/// A guess.
const CANCELLED: f64 = 1e-3;

/// A square front of which only the lower triangle is used, stored column by column. Fully summed columns
/// come first.
#[derive(Debug)]
pub struct LdlFront<'a, T> {
    /// Values: `order` columns of length `order`.
    pub values: &'a mut [T],
    /// Number of rows of the front.
    pub order: usize,
    /// Number of fully summed rows.
    pub summed: usize,
    /// Label of each row; permuted with the rows.
    pub rows: &'a mut [u32],
    /// For each fully summed row, the magnitude up to which a pivot counts as zero; permuted with the rows.
    pub least: &'a mut [T],
    /// Pivot threshold: entries of `L` are at most `1 / threshold`.
    pub threshold: T,
}

/// Eliminates all fully summed columns that have acceptable pivots, and returns their number `k`. The first
/// `k` columns then hold `L` below the diagonal (its unit diagonal is not stored) and `D` on the diagonal. If
/// columns `j` and `j + 1` form a 2×2 pivot, `pairs[j]` is true, and entry `(j + 1, j)` is the off-diagonal
/// entry of `D`. Columns from `k` on hold the Schur complement.
///
/// # Panics
/// Panics if the sizes do not match.
pub fn eliminate<T: Value>(
    front: LdlFront<'_, T>,
    pairs: &mut Vec<bool>,
    phase: &Phase,
) -> Result<usize, Interrupted> {
    let LdlFront { values, order, summed, rows, least, threshold } = front;
    assert!(
        values.len() == order * order && summed <= order && least.len() == summed && rows.len() == order,
        "a square with fully summed columns"
    );
    pairs.clear();
    let mut state = State { values, order, summed, rows, least, threshold, pairs, strip: vec![] };
    let (mut pivots, mut end, mut progress) = (0, summed, false);
    while pivots < end {
        let width = BLOCK.min(end - pivots);
        let mut found = state.panel(pivots, width, phase)?;
        let mut tested = width;
        if found == 0 {
            // the largest entry of the first column may be in a fully summed row outside the panel
            (found, tested) = (state.pair(pivots, end, phase)?, 1);
        }
        for rejected in (pivots + found..pivots + tested.max(found)).rev() {
            end -= 1;
            state.exchange(rejected, end);
        }
        pivots += found;
        progress |= found > 0;
        if pivots >= end && end < summed && progress {
            (end, progress) = (summed, false);
        }
    }
    state.finish(pivots, phase)?;
    Ok(pivots)
}

struct State<'a, T> {
    values: &'a mut [T],
    order: usize,
    summed: usize,
    rows: &'a mut [u32],
    least: &'a mut [T],
    threshold: T,
    pairs: &'a mut Vec<bool>,
    /// Workspace: `L D`, column by column.
    strip: Vec<T>,
}

impl<T: Value> State<'_, T> {
    /// Exchanges two rows and columns that have not been eliminated.
    fn exchange(&mut self, one: usize, other: usize) {
        let (p, q, order) = (one.min(other), one.max(other), self.order);
        if p == q {
            return;
        }
        self.rows.swap(p, q);
        self.least.swap(p, q);
        let values = &mut *self.values;
        for column in values[..p * order].chunks_exact_mut(order) {
            column.swap(p, q);
        }
        values.swap(p * order + p, q * order + q);
        for i in p + 1..q {
            values.swap(p * order + i, i * order + q);
        }
        for i in q + 1..order {
            values.swap(p * order + i, q * order + i);
        }
    }

    /// Tries column `first` as a 1×1 pivot, or as a 2×2 pivot with the row before `end` in which it has its
    /// largest entry. Returns the number of pivots found: 0, 1 or 2.
    fn pair(&mut self, first: usize, end: usize, phase: &Phase) -> Result<usize, Interrupted> {
        let column = &self.values[first * self.order..][..self.order];
        let mut partner = first;
        for row in first + 1..end {
            if partner == first || column[row].abs() > column[partner].abs() {
                partner = row;
            }
        }
        if partner == first {
            return Ok(0);
        }
        self.exchange(first + 1, partner);
        let found = self.panel(first, 2, phase)?;
        if found == 0 {
            // the panel moved the column to the second position; the caller rejects the first position
            self.exchange(first, first + 1);
        }
        Ok(found)
    }

    /// Eliminates a panel, and subtracts its `L D Lᵀ` from the fully summed columns after it. Returns the
    /// number of columns eliminated.
    fn panel(&mut self, first: usize, width: usize, phase: &Phase) -> Result<usize, Interrupted> {
        let (order, summed, known) = (self.order, self.summed, self.pairs.len());
        let (before, after) = self.values.split_at_mut((first + width) * order);
        let found = run(Panel {
            values: before,
            order,
            first,
            threshold: self.threshold,
            rows: self.rows,
            least: self.least,
            pairs: self.pairs,
        });
        phase.advance((width * width / 2 * (order - first)) as u64)?;
        let (at, others) = (first + width, summed - first - width);
        if found > 0 && others > 0 {
            let own = &before[first * order..];
            self.strip.clear();
            self.strip.resize(found * others, T::zero());
            run(Scaled {
                values: own,
                order,
                first,
                from: at,
                pairs: &self.pairs[known..],
                into: &mut self.strip,
            });
            let left = Strip { values: &own[at..], stride: order, rows: order - at };
            let right = Strip { values: &self.strip, stride: others, rows: others };
            subtract(&mut after[..others * order], order, at, [left, right], found, true, phase)?;
        }
        Ok(found)
    }

    /// Subtracts `L₂₁ D L₂₁ᵀ` of all pivots from the part of the front that is not fully summed.
    fn finish(self, pivots: usize, phase: &Phase) -> Result<(), Interrupted> {
        let State { values, order, summed, pairs, mut strip, .. } = self;
        let others = order - summed;
        if pivots == 0 || others == 0 {
            return Ok(());
        }
        let (tall, wide) = values.split_at_mut(summed * order);
        strip.clear();
        strip.resize(pivots * others, T::zero());
        run(Scaled { values: tall, order, first: 0, from: summed, pairs, into: &mut strip });
        let left = Strip { values: &tall[summed..], stride: order, rows: others };
        let right = Strip { values: &strip, stride: others, rows: others };
        subtract(wide, order, summed, [left, right], pivots, true, phase)
    }
}

/// Task that eliminates a panel: the columns of `values` from `first` on.
struct Panel<'a, T> {
    values: &'a mut [T],
    order: usize,
    first: usize,
    threshold: T,
    rows: &'a mut [u32],
    least: &'a mut [T],
    pairs: &'a mut Vec<bool>,
}

impl<T: Value> Task for Panel<'_, T> {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) -> usize {
        let (order, last) = (self.order, self.values.len() / self.order);
        // copy the lower triangle of the panel's diagonal block to the upper one, so that columns are
        // complete
        for j in self.first..last {
            for i in j + 1..last {
                self.values[i * order + j] = self.values[j * order + i];
            }
        }
        let (mut at, mut end) = (self.first, last);
        while at < end {
            match self.choose(at, end) {
                Some(None) => {
                    self.eliminate_one::<S>(at, last);
                    at += 1;
                }
                Some(Some(partner)) => {
                    self.exchange(at + 1, partner, last);
                    self.eliminate_two::<S>(at, last);
                    at += 2;
                }
                None => {
                    end -= 1;
                    self.exchange(at, end, last);
                }
            }
        }
        at - self.first
    }
}

impl<T: Value> Panel<'_, T> {
    /// Largest magnitude of a column from row `at` on, without rows `p` and `r`. Rows before `at` are
    /// eliminated.
    #[inline(always)]
    fn largest_but(&self, column: usize, at: usize, [p, r]: [usize; 2]) -> T {
        let column = &self.values[column * self.order..][..self.order];
        let (p, r) = (p.min(r), p.max(r));
        let [a, b] = [largest(&column[at..p]), largest(&column[p + 1..r.max(p + 1)])];
        let c = largest(&column[r + 1..]);
        let larger = |x: T, y: T| if x > y { x } else { y };
        larger(a, larger(b, c))
    }

    /// Pivot for column `at`: `Some(None)` for a 1×1 pivot, `Some(Some(partner))` for a 2×2 pivot with a
    /// partner before `end`, `None` if neither is acceptable.
    #[inline(always)]
    fn choose(&self, at: usize, end: usize) -> Option<Option<usize>> {
        let (order, one_by) = (self.order, T::one() / self.threshold);
        let column = &self.values[at * order..][..order];
        let (a, all) = (column[at], largest(&column[at + 1..]));
        if a.abs() > self.least[at] && a.abs() >= self.threshold * all && a.abs() < T::infinity() {
            return Some(None);
        }
        let mut partner = at;
        for row in at + 1..end {
            if partner == at || column[row].abs() > column[partner].abs() {
                partner = row;
            }
        }
        if partner == at {
            return None;
        }
        let (b, c) = (column[partner], self.values[partner * order + partner]);
        let (det, terms) = (a * c - b * b, (a * c).abs() + b * b);
        let [of_p, of_r] = [at, partner].map(|column| self.largest_but(column, at, [at, partner]));
        let bound = det.abs() * one_by;
        let accepted = b.abs() > self.least[at].max(self.least[partner])
            && det.abs() > <T as num_traits::NumCast>::from(CANCELLED).unwrap_or(T::zero()) * terms
            && c.abs() * of_p + b.abs() * of_r <= bound
            && b.abs() * of_p + a.abs() * of_r <= bound
            && bound < T::infinity();
        accepted.then_some(Some(partner))
    }

    /// Exchanges two rows and columns of the panel that have not been eliminated.
    #[inline(always)]
    fn exchange(&mut self, one: usize, other: usize, last: usize) {
        if one == other {
            return;
        }
        self.rows.swap(one, other);
        self.least.swap(one, other);
        let order = self.order;
        let (p, q) = (one.min(other), one.max(other));
        let (left, right) = self.values.split_at_mut(q * order);
        left[p * order..][..order].swap_with_slice(&mut right[..order]);
        for column in self.values[..last * order].chunks_exact_mut(order) {
            column.swap(p, q);
        }
    }

    #[inline(always)]
    fn eliminate_one<S: Simd>(&mut self, at: usize, last: usize) {
        let order = self.order;
        let (own, after) = self.values[at * order..last * order].split_at_mut(order);
        let pivot = own[at];
        divide(&mut own[at + 1..], pivot);
        let l = &own[at + 1..];
        for (column, &factor) in after.chunks_exact_mut(order).zip(l) {
            let factor = -factor * pivot;
            if !factor.is_zero() {
                add::<T, S>(&mut column[at + 1..], l, factor);
            }
        }
        self.pairs.push(false);
    }

    #[inline(always)]
    fn eliminate_two<S: Simd>(&mut self, at: usize, last: usize) {
        let order = self.order;
        let (own, after) = self.values[at * order..last * order].split_at_mut(2 * order);
        let (p, r) = own.split_at_mut(order);
        let (a, b, c) = (p[at], p[at + 1], r[at + 1]);
        // D⁻¹ computed without b², which may overflow
        let (ab, cb) = (a / b, c / b);
        let by = T::one() / ((ab * cb - T::one()) * b);
        for (p, r) in p[at + 2..].iter_mut().zip(&mut r[at + 2..]) {
            (*p, *r) = ((cb * *p - *r) * by, (ab * *r - *p) * by);
        }
        let (p, r) = (&p[at + 2..], &r[at + 2..]);
        for (column, (&l, &m)) in after.chunks_exact_mut(order).zip(p.iter().zip(r)) {
            let column = &mut column[at + 2..];
            add::<T, S>(column, p, -(a * l + b * m));
            add::<T, S>(column, r, -(b * l + c * m));
        }
        self.pairs.extend([true, false]);
    }
}

/// Task that computes rows of `L D` from row `from` on, for the pivots from `first` on.
struct Scaled<'a, T> {
    values: &'a [T],
    order: usize,
    first: usize,
    from: usize,
    pairs: &'a [bool],
    into: &'a mut [T],
}

impl<T: Value> Task for Scaled<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Scaled { values, order, first, from, pairs, into } = self;
        let rows = into.len() / pairs.len().max(1);
        let mut k = 0;
        while k < pairs.len() {
            let at = first + k;
            let own = &values[k * order..];
            if pairs[k] {
                let (p, r) = own[..2 * order].split_at(order);
                let (a, b, c) = (p[at], p[at + 1], r[at + 1]);
                let (left, right) = into[k * rows..][..2 * rows].split_at_mut(rows);
                let sources = p[from..][..rows].iter().zip(&r[from..][..rows]);
                for ((x, y), (&l, &m)) in left.iter_mut().zip(right).zip(sources) {
                    (*x, *y) = (a * l + b * m, b * l + c * m);
                }
                k += 2;
            } else {
                let d = own[at];
                for (x, &l) in into[k * rows..][..rows].iter_mut().zip(&own[from..order]) {
                    *x = l * d;
                }
                k += 1;
            }
        }
    }
}
