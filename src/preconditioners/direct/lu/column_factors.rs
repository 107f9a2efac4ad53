//! LU factors that are stored by columns, and solves with them.

use super::super::order::{Order, Pivoting};
use super::super::report::{FactorReport, growth};
use super::super::scale::{larger, row_scale};
use super::super::triangle::Triangle;
use super::NAME;
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_kernels::interrupt::Phase;
use krysp_solvers::Element;
use std::ops::Range;

/// A refresh keeps the pivots if each is larger than this fraction of the largest entry below it (guess).
const SOUND: f64 = 1e-5;

/// `L`, with a unit diagonal, and `U` of each diagonal block, indexed by steps of the elimination.
#[derive(Debug)]
pub(super) struct ColumnFactors<T> {
    pub(super) scale: Vec<T>,
    /// Largest magnitude of a scaled entry in a diagonal block.
    pub(super) largest: T,
    /// First step of each diagonal block, then the number of steps.
    pub(super) blocks: Vec<u32>,
    /// Pivot row of each step.
    pub(super) row_of: Vec<u32>,
    pub(super) lower: Triangle<T>,
    /// `U`, and the entries of the matrix above the diagonal blocks.
    pub(super) upper: Triangle<T>,
    pub(super) pivots: Vec<T>,
    /// Steps without a pivot, in ascending order.
    pub(super) missing: Vec<u32>,
}

impl<T: Real> ColumnFactors<T> {
    /// Recomputes the factors for new values, with the same pivots. If one of them is too small, returns
    /// `false`, and the factors are unchanged.
    pub(super) fn refresh(&mut self, columns: &Csr<T>, order: &Order, pivoting: Pivoting) -> Result<bool> {
        let kept = (
            (self.scale.clone(), self.largest),
            self.lower.values.clone(),
            self.upper.values.clone(),
            self.pivots.clone(),
        );
        let complete = self.recompute(columns, order, pivoting);
        if !matches!(complete, Ok(true)) {
            ((self.scale, self.largest), self.lower.values, self.upper.values, self.pivots) = kept;
        }
        complete
    }

    fn recompute(&mut self, columns: &Csr<T>, order: &Order, pivoting: Pivoting) -> Result<bool> {
        let n = columns.rows();
        let ColumnFactors { scale, largest: most, blocks, row_of, lower, upper, pivots, missing } = self;
        if !missing.is_empty() {
            return Ok(false);
        }
        let phase = Phase::new("LU factorization, known pivots", 0.0);
        let mut counter = phase.counter();
        (*scale, *most) = (row_scale(columns), T::zero());
        let mut step_of = vec![0u32; n];
        (0..).zip(&*row_of).for_each(|(step, &row)| step_of[row as usize] = step);
        let (sound, continued) = (T::from_f64(SOUND), lower.continued());
        let mut x = vec![T::zero(); n];
        let mut block = 0;
        for (step, &column) in order.column_of.iter().enumerate() {
            block += usize::from(blocks[block + 1] as usize == step);
            let start = blocks[block];
            let (rows, values) = (columns.row_columns(column as usize), columns.row_values(column as usize));
            let mut largest = T::zero();
            for (&row, &value) in rows.iter().zip(values) {
                let value = value * scale[row as usize];
                x[step_of[row as usize] as usize] = value;
                if step_of[row as usize] >= start {
                    largest = largest.max(value.abs());
                }
            }
            *most = most.max(largest);
            let mut entries = upper.starts[step]..upper.starts[step + 1];
            while let Some(at) = entries.next() {
                let earlier = upper.rows[at];
                let factor = std::mem::take(&mut x[earlier as usize]);
                upper.values[at] = factor;
                if earlier < start {
                    continue;
                }
                largest = largest.max(factor.abs());
                counter.add(2 * lower.column(earlier as usize).0.len())?;
                if continued[earlier as usize] && !entries.is_empty() && upper.rows[at + 1] == earlier + 1 {
                    let second = lower.subtract_two(earlier as usize, factor, &mut x);
                    upper.values[at + 1] = second;
                    largest = largest.max(second.abs());
                    entries.next();
                } else {
                    lower.subtract(earlier as usize, factor, &mut x);
                }
            }
            let pivot = std::mem::take(&mut x[step]);
            let range = lower.starts[step]..lower.starts[step + 1];
            let mut below = T::zero();
            for (&row, value) in lower.rows[range.clone()].iter().zip(&mut lower.values[range]) {
                let entry = std::mem::take(&mut x[row as usize]);
                below = below.max(entry.abs());
                *value = entry / pivot;
            }
            let least = (sound * below).max(largest * pivoting.rounding::<T>());
            if pivot.abs() <= least || !Element::is_finite(pivot) || !Element::is_finite(below) {
                return Ok(false);
            }
            pivots[step] = pivot;
        }
        Ok(true)
    }

    /// `x ← L⁻¹ b`, indexed by steps, for factors with a single diagonal block.
    pub(super) fn forward(&self, b: &[T], x: &mut [T]) {
        self.gather(b, x);
        self.forward_block(0..x.len(), x);
    }

    fn gather(&self, b: &[T], x: &mut [T]) {
        for (x, &row) in x.iter_mut().zip(&self.row_of) {
            *x = b[row as usize] * self.scale[row as usize];
        }
    }

    fn forward_block(&self, steps: Range<usize>, x: &mut [T]) {
        for step in steps {
            let (solved, (rows, values)) = (x[step], self.lower.column(step));
            if !solved.is_zero() {
                rows.iter().zip(values).for_each(|(&row, &value)| x[row as usize] -= value * solved);
            }
        }
    }

    /// Range of steps of each diagonal block.
    fn blocks(&self) -> impl DoubleEndedIterator<Item = Range<usize>> {
        self.blocks.windows(2).map(|bounds| bounds[0] as usize..bounds[1] as usize)
    }

    /// Solves `A x = b` by block back substitution, with `L` and `U` of each diagonal block; `x` is indexed
    /// by steps.
    pub(super) fn solve(&self, b: &[T], x: &mut [T]) {
        let ColumnFactors { upper, pivots, .. } = self;
        self.gather(b, x);
        for steps in self.blocks().rev() {
            self.forward_block(steps.clone(), x);
            for step in steps.rev() {
                let (solved, (rows, values)) = (x[step] / pivots[step], upper.column(step));
                x[step] = solved;
                if !solved.is_zero() {
                    rows.iter().zip(values).for_each(|(&row, &value)| x[row as usize] -= value * solved);
                }
            }
        }
    }

    /// `x ← A⁻ᵀ b`, where `column_of` is the column of each step.
    pub(super) fn solve_transposed(&self, column_of: &[u32], b: &[T], x: &mut [T]) {
        let ColumnFactors { upper, pivots, .. } = self;
        let mut y: Vec<T> = column_of.iter().map(|&column| b[column as usize]).collect();
        for steps in self.blocks() {
            for step in steps.clone() {
                let (rows, values) = upper.column(step);
                y[step] = (y[step] - sum(rows, values, &y)) / pivots[step];
            }
            self.backward_block(steps, &mut y);
        }
        self.scatter(&y, x);
    }

    /// `y ← L⁻ᵀ y` for one diagonal block. Entries of steps without a pivot are unchanged.
    fn backward_block(&self, steps: Range<usize>, y: &mut [T]) {
        let mut missing = self.missing.iter().rev().peekable();
        for step in steps.rev() {
            if missing.next_if(|&&missing| missing as usize == step).is_none() {
                let (rows, values) = self.lower.column(step);
                let known = sum(rows, values, y);
                y[step] -= known;
            }
        }
    }

    /// Copies `y` to the original order of rows, and applies the row scaling.
    fn scatter(&self, y: &[T], x: &mut [T]) {
        for (&row, &y) in self.row_of.iter().zip(y) {
            x[row as usize] = self.scale[row as usize] * y;
        }
    }

    /// `Nᵀ w`, where the rows of `N` span the left null space, all `v` with `vᵀ A = 0`.
    pub(super) fn missed_transposed(&self, w: &[T]) -> Vec<T> {
        let [mut y, mut v] = [(); 2].map(|()| vec![T::zero(); self.row_of.len()]);
        self.missing.iter().zip(w).for_each(|(&step, &w)| y[step as usize] = w);
        self.backward_block(0..y.len(), &mut y);
        self.scatter(&y, &mut v);
        v
    }

    /// Facts about the factors, from a pass over `U`.
    pub(super) fn report(&self) -> FactorReport {
        let (mut multiplications, mut largest) = (0, T::zero());
        for steps in self.blocks() {
            for step in steps.clone() {
                let (rows, values) = self.upper.column(step);
                // entries above the diagonal block are not changed by the elimination
                let own = rows.iter().zip(values).filter(|(row, _)| **row as usize >= steps.start);
                for (&earlier, &value) in own {
                    multiplications += self.lower.column(earlier as usize).0.len();
                    largest = larger(largest, value);
                }
            }
        }
        // the pivots of steps without one are infinite
        let pivots = self.pivots.iter().copied().filter(|pivot| Element::is_finite(*pivot));
        FactorReport {
            kind: NAME,
            rows: self.pivots.len(),
            entries: self.nnz(),
            multiplications: multiplications as f64,
            bytes: self.bytes(),
            by_fronts: false,
            delayed_pivots: 0,
            missing_pivots: self.missing.len(),
            inertia: None,
            growth: growth(pivots.fold(largest, larger), self.largest),
        }
    }

    /// Number of stored entries of both factors.
    pub(super) fn nnz(&self) -> usize {
        self.lower.rows.len() + self.upper.rows.len() + self.pivots.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.lower.bytes() + self.upper.bytes() + size_of_val(&*self.pivots)
    }
}

/// Dot product of a sparse column with `x`.
fn sum<T: Real>(rows: &[u32], values: &[T], x: &[T]) -> T {
    rows.iter().zip(values).fold(T::zero(), |sum, (&row, &value)| sum + value * x[row as usize])
}

#[cfg(test)]
mod tests {
    use super::super::{Budget, DirectOptions, columns};
    use super::*;
    use crate::preconditioners::direct::transpose::transposed;

    #[test]
    fn the_growth_of_wilkinsons_matrix_doubles_with_each_row() {
        // 1 on the diagonal and in the last column, -1 below the diagonal
        let n = 30;
        let row = |i: usize| (0..i).map(move |j| (i, j, -1.0)).chain([(i, i, 1.0), (i, n - 1, 1.0)]);
        let mut entries: Vec<_> = (0..n).flat_map(row).collect();
        entries.dedup_by_key(|&mut (i, j, _)| (i, j));
        let columns = transposed(&Csr::<f64>::from_triplets(n, n, &entries).unwrap()).unwrap();
        let natural: Vec<u32> = (0..n as u32).collect();
        let order = Order { column_of: natural.clone(), preferred: natural, most_entries: usize::MAX };
        let budget = Budget::new(NAME, DirectOptions::default(), n);
        let blocks = vec![0, n as u32];
        let mut progress = columns::Progress::new(row_scale(&columns), vec![], blocks, n * n, budget);
        assert!(progress.run(&columns, &order, Pivoting::Regular, budget, f64::INFINITY).unwrap());
        let work = progress.work;
        let mut factors = progress.factors();
        let report = factors.report();
        assert_eq!(report.growth, Some(2f64.powi(n as i32 - 1)), "{report}");
        assert_eq!(report.multiplications, work);
        // with the same pivots, the factors of a multiple are a multiple
        let tripled: Vec<f64> = columns.entries().iter().map(|value| 3.0 * value).collect();
        let tripled = columns.with_values(&tripled).unwrap();
        assert!(factors.refresh(&tripled, &order, Pivoting::Regular).unwrap());
        assert_eq!(factors.report().growth, report.growth);
    }
}
