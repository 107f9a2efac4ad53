//! Partial LU factorization of a dense front, with threshold pivoting among its fully summed rows.
//!
//! ```text
//! for each panel of BLOCK fully summed columns:
//!     for each column:  p = its largest entry in a fully summed row that is not eliminated
//!                       if |p| ≥ threshold · (largest entry of the column): p is the pivot; eliminate the column
//!                       in the panel
//!     subtract L U of the panel from the other fully summed columns
//! a rejected column is tried again after others have been eliminated
//! U₁₂ ← L₁₁⁻¹ A₁₂;  A₂₂ ← A₂₂ − L₂₁ U₁₂
//! ```
//!
//! Entries of `L` are at most `1 / threshold`. Columns without an acceptable pivot at the end, and as many
//! rows, are left to the caller, who delays them to the parent front (Duff and Reid 1984). Results are
//! bitwise the same for every number of threads.

#[cfg(test)]
mod tests;

use super::{BLOCK, Strip, add, subtract};
use crate::cpu::run::threads::{ByRow, over_parts, tasks};
use crate::cpu::simd::{MOST_LANES, Simd, Task, Value, run};
use crate::interrupt::{Interrupted, Phase};

/// A square front, stored column by column. Fully summed rows and columns come first.
#[derive(Debug)]
pub struct LuFront<'a, T> {
    /// Values: `order` columns of length `order`.
    pub values: &'a mut [T],
    /// Number of rows, and of columns, of the front.
    pub order: usize,
    /// Number of fully summed rows, and of columns.
    pub summed: usize,
    /// Label of each row; permuted with the rows.
    pub rows: &'a mut [u32],
    /// Label of each column; permuted with the columns.
    pub columns: &'a mut [u32],
    /// For each fully summed column, the magnitude up to which an entry counts as zero; permuted with the
    /// columns.
    pub least: &'a mut [T],
    /// Minimum magnitude of a pivot, as a fraction of the largest entry of its column.
    pub threshold: T,
}

/// Eliminates all fully summed columns that have acceptable pivots, and returns their number `k`. The first
/// `k` columns then hold `L` below the diagonal (its unit diagonal is not stored) and `U₁₁` on and above it.
/// `upper` receives `U₁₂ᵀ`: `k` columns of `order − k` rows. Rows and columns from `k` on hold the Schur
/// complement. Reports multiply-adds as work of `phase`.
///
/// # Panics
/// Panics if the sizes do not match.
pub fn eliminate<T: Value>(
    front: LuFront<'_, T>,
    upper: &mut Vec<T>,
    phase: &Phase,
) -> Result<usize, Interrupted> {
    let LuFront { values, order, summed, rows, columns, least, threshold } = front;
    assert!(
        values.len() == order * order && summed <= order && least.len() == summed,
        "a square with fully summed columns"
    );
    assert!(rows.len() == order && columns.len() == order, "a name for each row and column");
    let (tall, wide) = values.split_at_mut(summed * order);
    let mut tall = Tall { values: tall, order, summed, swaps: vec![], strip: vec![] };
    let (mut pivots, mut end, mut progress) = (0, summed, false);
    while pivots < end {
        let width = BLOCK.min(end - pivots);
        let found = tall.panel(pivots, width, threshold, columns, least, phase)?;
        // exchange rejected columns with the last columns not yet tried
        for rejected in (pivots + found..pivots + width).rev() {
            end -= 1;
            tall.swap_columns(rejected, end);
            columns.swap(rejected, end);
            least.swap(rejected, end);
        }
        pivots += found;
        progress |= found > 0;
        if pivots == end && end < summed && progress {
            (end, progress) = (summed, false);
        }
    }
    tall.swaps.iter().for_each(|&(one, other)| rows.swap(one, other));
    finish(tall, wide, pivots, upper, phase)?;
    Ok(pivots)
}

/// The fully summed columns.
struct Tall<'a, T> {
    values: &'a mut [T],
    order: usize,
    summed: usize,
    /// Row exchanges, in the order in which they were made.
    swaps: Vec<(usize, usize)>,
    /// Workspace: rows of `U`, one after the other.
    strip: Vec<T>,
}

impl<T: Value> Tall<'_, T> {
    fn swap_columns(&mut self, one: usize, other: usize) {
        if one != other {
            let (left, right) = self.values.split_at_mut(one.max(other) * self.order);
            left[one.min(other) * self.order..][..self.order].swap_with_slice(&mut right[..self.order]);
        }
    }

    /// Eliminates a panel, and subtracts its `L U` from the columns after it. Returns the number of pivots
    /// found.
    fn panel(
        &mut self,
        first: usize,
        width: usize,
        threshold: T,
        columns: &mut [u32],
        least: &mut [T],
        phase: &Phase,
    ) -> Result<usize, Interrupted> {
        let (order, summed, known) = (self.order, self.summed, self.swaps.len());
        let (before, rest) = self.values.split_at_mut(first * order);
        let (own, after) = rest.split_at_mut(width * order);
        let found = run(Panel {
            values: own,
            order,
            first,
            summed,
            threshold,
            columns: &mut columns[first..first + width],
            least: &mut least[first..first + width],
            swaps: &mut self.swaps,
        });
        phase.advance((width * width / 2 * (order - first)) as u64)?;
        if found == 0 {
            return Ok(0);
        }
        exchange(before, order, &self.swaps[known..]);
        exchange(after, order, &self.swaps[known..]);
        let (others, at) = (after.len() / order, first + found);
        if others > 0 {
            self.strip.clear();
            self.strip.resize(found * others, T::zero());
            solve(after, order, first, (own, found), (&mut self.strip, others));
            let left = Strip { values: &own[at..], stride: order, rows: order - at };
            let right = Strip { values: &self.strip, stride: others, rows: others };
            subtract(after, order, at, [left, right], found, false, phase)?;
        }
        Ok(found)
    }
}

/// Exchanges pairs of rows, one after the other.
fn exchange<T: Value>(values: &mut [T], order: usize, swaps: &[(usize, usize)]) {
    let columns = values.len() / order;
    let parts = tasks(2 * columns * swaps.len()).min(columns);
    let (bound, offset) = (|part: usize| part * columns / parts, |column: usize| column * order);
    over_parts(parts, &bound, ByRow::new(values, &offset), &|_, values| {
        for column in values.all().0.chunks_exact_mut(order) {
            swaps.iter().for_each(|&(one, other)| column.swap(one, other));
        }
    });
}

/// Overwrites `x` with `L₁₁⁻¹ x` in each column of `values`, where `x` is its rows `first..first + found`, and
/// copies the results to the rows of `upper`, which are `stride` apart. The first entry of `lower` belongs to the
/// first row, and the first of the `found ≤ BLOCK` columns, of `L`.
fn solve<T: Value>(
    values: &mut [T],
    order: usize,
    first: usize,
    (lower, found): (&[T], usize),
    (upper, stride): (&mut [T], usize),
) {
    let columns = values.len() / order;
    let mut rows: [&mut [T]; BLOCK] = std::array::from_fn(|_| &mut [][..]);
    for (row, to) in rows[..found].iter_mut().zip(upper.chunks_mut(stride.max(1))) {
        *row = &mut to[..columns];
    }
    let parts = tasks(found * columns).min(columns);
    let (bound, offset) = (|part: usize| part * columns / parts, |column: usize| column * order);
    over_parts(parts, &bound, (ByRow::new(values, &offset), rows), &|_, (values, mut rows)| {
        run(Solve { values: values.all().0, order, first, lower, upper: &mut rows[..found] });
    });
}

/// Computes `U₁₂`, and updates the columns that are not fully summed to the Schur complement.
fn finish<T: Value>(
    tall: Tall<'_, T>,
    wide: &mut [T],
    pivots: usize,
    upper: &mut Vec<T>,
    phase: &Phase,
) -> Result<(), Interrupted> {
    let Tall { values, order, summed, swaps, .. } = tall;
    let (height, delayed, others) = (order - pivots, summed - pivots, order - summed);
    upper.clear();
    upper.resize(pivots * height, T::zero());
    if pivots == 0 {
        return Ok(());
    }
    for (at, column) in values[pivots * order..].chunks_exact(order).enumerate() {
        for (pivot, &value) in column[..pivots].iter().enumerate() {
            upper[pivot * height + at] = value;
        }
    }
    if others == 0 {
        return Ok(());
    }
    exchange(wide, order, &swaps);
    let (stride, rows) = (height, others);
    for first in (0..pivots).step_by(BLOCK) {
        let (found, lower) = (BLOCK.min(pivots - first), &values[first * order..]);
        let at = first + found;
        let own = &mut upper[first * height + delayed..];
        solve(wide, order, first, (lower, found), (own, height));
        phase.advance((found * found / 2 * others) as u64)?;
        let left = Strip { values: &lower[at..], stride: order, rows: pivots - at };
        let right = Strip { values: &upper[first * height + delayed..], stride, rows };
        subtract(wide, order, at, [left, right], found, false, phase)?;
    }
    let left = Strip { values: &values[pivots..], stride: order, rows: height };
    let right = Strip { values: &upper[delayed..], stride, rows };
    subtract(wide, order, pivots, [left, right], pivots, false, phase)
}

/// Task that eliminates a panel of columns.
struct Panel<'a, T> {
    values: &'a mut [T],
    order: usize,
    /// The row of the first pivot.
    first: usize,
    summed: usize,
    threshold: T,
    columns: &'a mut [u32],
    least: &'a mut [T],
    swaps: &'a mut Vec<(usize, usize)>,
}

impl<T: Value> Task for Panel<'_, T> {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> usize {
        let Panel { values, order, first, summed, threshold, columns, least, swaps } = self;
        let (mut found, mut end) = (0, columns.len());
        while found < end {
            let at = first + found;
            let own = &values[found * order..][..order];
            let best = largest(&own[at..summed]);
            let all = largest(&own[summed..]);
            if best > least[found] && best >= threshold * all && best < T::infinity() {
                let row = own[at..summed].iter().position(|value| value.abs() == best).unwrap_or(0) + at;
                if row != at {
                    values.chunks_exact_mut(order).for_each(|column| column.swap(at, row));
                    swaps.push((at, row));
                }
                let (own, after) = values[found * order..].split_at_mut(order);
                let pivot = own[at];
                divide(&mut own[at + 1..], pivot);
                let own = &own[at + 1..];
                for column in after.chunks_exact_mut(order) {
                    let factor = -column[at];
                    if !factor.is_zero() {
                        for (value, &l) in column[at + 1..].iter_mut().zip(own) {
                            *value = S::mul_add(l, factor, *value);
                        }
                    }
                }
                found += 1;
            } else {
                end -= 1;
                if found < end {
                    let (left, right) = values.split_at_mut(end * order);
                    left[found * order..][..order].swap_with_slice(&mut right[..order]);
                    columns.swap(found, end);
                    least.swap(found, end);
                }
            }
        }
        found
    }
}

/// `x ← x / by`
#[inline(always)]
pub(super) fn divide<T: Value>(x: &mut [T], by: T) {
    let inverse = by.recip();
    if inverse.is_finite() {
        for x in x {
            *x *= inverse;
        }
    } else {
        for x in x {
            *x /= by;
        }
    }
}

/// Largest magnitude; infinity if there is a NaN, so that no pivot of its column is acceptable.
#[inline(always)]
pub(super) fn largest<T: Value>(values: &[T]) -> T {
    let (parts, rest) = values.as_chunks::<MOST_LANES>();
    let known = |value: T| if value.is_nan() { T::infinity() } else { value.abs() };
    let larger = |most: T, size: T| if size > most { size } else { most };
    let mut most = [T::zero(); MOST_LANES];
    for part in parts {
        for lane in 0..MOST_LANES {
            most[lane] = larger(most[lane], known(part[lane]));
        }
    }
    let most = most.into_iter().fold(T::zero(), larger);
    rest.iter().map(|&value| known(value)).fold(most, larger)
}

/// Task of [`solve`] for some columns; `upper` holds their part of each row.
struct Solve<'a, 'u, T> {
    values: &'a mut [T],
    order: usize,
    first: usize,
    lower: &'a [T],
    upper: &'a mut [&'u mut [T]],
}

impl<T: Value> Task for Solve<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Solve { values, order, first, lower, upper } = self;
        let found = upper.len();
        for (at, column) in values.chunks_exact_mut(order).enumerate() {
            let x = &mut column[first..first + found];
            for k in 0..found {
                let (solved, rest) = x[k..].split_at_mut(1);
                let factor = -solved[0];
                upper[k][at] = solved[0];
                if !factor.is_zero() {
                    let l = &lower[k * order + first + k + 1..][..found - k - 1];
                    for (value, &l) in rest.iter_mut().zip(l) {
                        *value = S::mul_add(l, factor, *value);
                    }
                }
            }
        }
    }
}

/// The factors of a front: `L` and `U₁₁` as [`eliminate`] leaves them, and `U₁₂ᵀ`.
#[derive(Clone, Copy, Debug)]
pub struct LuFactors<'a, T> {
    /// A column of length `order` for each pivot.
    pub lower: &'a [T],
    /// A column of length `order − pivots` for each pivot.
    pub upper: &'a [T],
    /// Number of rows of the front.
    pub order: usize,
}

/// Solves for several vectors, stored one after the other. `x` holds their entries in the fully summed rows
/// or columns, the second argument their entries in the other ones. Each column of the factors is read once
/// for all vectors.
impl<T: Value> LuFactors<'_, T> {
    /// `x ← L₁₁⁻¹ x` and `taken ← L₂₁ x`.
    ///
    /// # Panics
    /// Panics if the sizes do not match.
    pub fn forward(self, vectors: usize, x: &mut [T], taken: &mut [T]) {
        taken.fill(T::zero());
        self.step::<FORWARD>(vectors, x, taken);
    }

    /// `x ← U₁₁⁻¹ (x − U₁₂ others)`.
    ///
    /// # Panics
    /// Panics if the sizes do not match.
    pub fn backward(self, vectors: usize, x: &mut [T], others: &mut [T]) {
        self.step::<BACKWARD>(vectors, x, others);
    }

    /// `x ← U₁₁⁻ᵀ x` and `taken ← U₁₂ᵀ x`.
    ///
    /// # Panics
    /// Panics if the sizes do not match.
    pub fn forward_transposed(self, vectors: usize, x: &mut [T], taken: &mut [T]) {
        taken.fill(T::zero());
        self.step::<FORWARD_TRANSPOSED>(vectors, x, taken);
    }

    /// `x ← L₁₁⁻ᵀ (x − L₂₁ᵀ others)`.
    ///
    /// # Panics
    /// Panics if the sizes do not match.
    pub fn backward_transposed(self, vectors: usize, x: &mut [T], others: &mut [T]) {
        self.step::<BACKWARD_TRANSPOSED>(vectors, x, others);
    }

    /// Largest magnitude of an entry of `U`.
    pub fn largest(self) -> T {
        let columns = self.lower.chunks_exact(self.order.max(1)).enumerate();
        let own = columns.flat_map(|(pivot, column)| &column[..=pivot]);
        own.chain(self.upper)
            .fold(T::zero(), |most, value| if value.abs() > most { value.abs() } else { most })
    }

    fn step<const WHICH: u8>(self, vectors: usize, x: &mut [T], others: &mut [T]) {
        let LuFactors { lower, upper, order } = self;
        let [count, height] = [x.len(), others.len()].map(|numbers| numbers / vectors.max(1));
        assert!(x.len() == vectors * count && others.len() == vectors * height, "vectors of one length");
        assert!(vectors == 0 || count + height == order, "a number for each row");
        assert!(
            vectors == 0 || lower.len() == count * order && upper.len() == count * height,
            "whole factors"
        );
        run(Step::<_, WHICH> { factors: self, sizes: [vectors, count, height], x, others });
    }
}

const FORWARD: u8 = 0;
const BACKWARD: u8 = 1;
const FORWARD_TRANSPOSED: u8 = 2;
const BACKWARD_TRANSPOSED: u8 = 3;

/// Task that performs one of the four solves with the factors of a front.
struct Step<'a, T, const WHICH: u8> {
    factors: LuFactors<'a, T>,
    /// Number of vectors, of pivots, and of the other rows.
    sizes: [usize; 3],
    x: &'a mut [T],
    others: &'a mut [T],
}

impl<T: Value, const WHICH: u8> Task for Step<'_, T, WHICH> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Step { factors: LuFactors { lower, upper, order }, sizes: [vectors, count, height], x, others } =
            self;
        let right = |j: usize| &upper[j * height..][..height];
        if WHICH == BACKWARD {
            for j in (0..count).rev() {
                for v in 0..vectors {
                    x[v * count + j] -= super::dot::<T, S>(right(j), &others[v * height..][..height]);
                }
            }
        }
        for step in 0..count {
            let j = if matches!(WHICH, FORWARD | FORWARD_TRANSPOSED) { step } else { count - 1 - step };
            let l = &lower[j * order..][..order];
            for v in 0..vectors {
                let (x, others) = (&mut x[v * count..][..count], &mut others[v * height..][..height]);
                match WHICH {
                    FORWARD => {
                        let solved = x[j];
                        add::<T, S>(&mut x[j + 1..], &l[j + 1..count], -solved);
                        add::<T, S>(others, &l[count..], solved);
                    }
                    BACKWARD => {
                        let solved = x[j] / l[j];
                        x[j] = solved;
                        add::<T, S>(&mut x[..j], &l[..j], -solved);
                    }
                    FORWARD_TRANSPOSED => {
                        let solved = (x[j] - super::dot::<T, S>(&l[..j], &x[..j])) / l[j];
                        x[j] = solved;
                        add::<T, S>(others, right(j), solved);
                    }
                    _ => {
                        let sum = super::dot::<T, S>(&l[j + 1..count], &x[j + 1..]);
                        x[j] -= sum + super::dot::<T, S>(&l[count..], others);
                    }
                }
            }
        }
    }
}
