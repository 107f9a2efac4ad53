//! `A = L U` with pivoting, column by column (Gilbert and Peierls 1988).
//!
//! ```text
//! for each column j, in an order with little fill:
//!     reach: the steps whose pivots column j is joined to, by a search along the columns of L
//!     x ← column j;  for each step s of the reach, in turn:  x ← x − x_s L_s
//!     pivot: of the rows not yet taken one that is large enough; the diagonal's, if it is
//! ```
//!
//! The order is by minimum degree: of `A + Aᵀ` where the pattern is nearly symmetric and the diagonal serves for pivots, of `Aᵀ A`
//! else, for then any row may become a pivot. Where the first leads to more fill than diagonal pivots would make, the second is
//! taken after all. Searches skip entries that others lead to as well (Eisenstat and Liu 1992).
//! Rows are scaled to a largest entry near one, by powers of two: rounds nothing.
//!
//! Budget: time goes with the multiplications, some 10⁹ a second, on one thread; an application moves `L` and `U` once.

mod begun;
mod saved;

pub(crate) use begun::Begun;

use super::super::{Origin, Refresh, check_space, finite};
use super::order::{Order, Pivoting};
use super::triangle::Triangle;
use super::{Budget, DirectOptions};
use crate::formats::derived::Derivation;
use crate::{Csr, HostSpace, HostVector, Real, Result};
use krysp_kernels::interrupt::Phase;
use krysp_solvers::{Element, LinearOperator, check_spaces};
use std::sync::{Mutex, PoisonError};

const NAME: &str = "LU";

/// New values are given to old pivots if none is smaller than this, beside the largest of its column.
const SOUND: f64 = 1e-5;

/// A factorisation of a square matrix, applied as `A⁻¹`.
///
/// Under [`Gmres`](crate::Gmres) it is a direct solver with iterative refinement. It suits matrices of circuits, grids of power
/// and chemical plants of any size, meshes in the plane up to some 10⁵ unknowns and in space up to some 10⁴.
///
/// ```
/// use krysp::{Csr, Gmres, Lu};
///
/// // no diagonal to divide by
/// let a = Csr::from_triplets(3, 3, &[(0, 1, 2.0), (1, 2, 4.0), (2, 0, 5.0), (2, 2, 1.0)])?;
/// let solution = Gmres::new(&a).preconditioner(Lu::new(&a)?).solve(&[2.0, 8.0, 7.0])?;
/// assert!(solution.report.converged() && solution.report.iterations <= 2);
/// assert!(solution.x.iter().zip([1.0, 1.0, 2.0]).all(|(x, exact): (&f64, f64)| (x - exact).abs() < 1e-14));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Lu<T: Real> {
    space: HostSpace<T>,
    budget: Budget,
    /// `Aᵀ`, whose rows are the columns of `A`.
    columns: Csr<T>,
    from_a: Derivation,
    order: Order,
    pivoting: Pivoting,
    factors: Factors<T>,
    work: Mutex<Vec<T>>,
}

/// `L`, with a diagonal of ones, and `U`, in the order of steps.
#[derive(Debug)]
struct Factors<T> {
    scale: Vec<T>,
    /// The row that is the pivot of a step.
    row_of: Vec<u32>,
    lower: Triangle<T>,
    upper: Triangle<T>,
    pivots: Vec<T>,
    /// Steps without a pivot, in ascending order.
    missing: Vec<u32>,
}

impl<T: Real> Lu<T> {
    /// Factorises a matrix in its own space.
    pub fn new(csr: &Csr<T>) -> Result<Lu<T>> {
        Lu::with(csr, DirectOptions::default())
    }

    /// As [`Lu::new`], within a limit of memory.
    pub fn with(csr: &Csr<T>, options: DirectOptions) -> Result<Lu<T>> {
        Lu::pivoted(csr, options, Pivoting::Regular)
    }

    /// As [`Lu::new`], but of any rank: unknowns whose columns depend on others are zero, which solves what has a solution.
    pub(crate) fn tolerant(csr: &Csr<T>) -> Result<Lu<T>> {
        Lu::pivoted(csr, DirectOptions::default(), Pivoting::Tolerant)
    }

    fn pivoted(csr: &Csr<T>, options: DirectOptions, pivoting: Pivoting) -> Result<Lu<T>> {
        let mut begun = Begun::with(csr, Budget::new(NAME, options), pivoting)?;
        begun.go_on(csr, f64::INFINITY)?;
        Ok(begun.whole())
    }

    /// How many columns depend on others.
    pub(crate) fn missing(&self) -> usize {
        self.factors.missing.len()
    }

    /// `N b`, where the rows of `N` span all `v` with `vᵀ A = 0`: zero if `A x = b` has a solution.
    pub(crate) fn missed(&self, b: &[T]) -> Vec<T> {
        let mut x = vec![T::zero(); b.len()];
        self.factors.forward(b, &mut x);
        self.factors.missing.iter().map(|&step| x[step as usize]).collect()
    }

    /// `Nᵀ w`.
    pub(crate) fn missed_transposed(&self, w: &[T]) -> Vec<T> {
        let Factors { scale, row_of, lower, missing, .. } = &self.factors;
        let mut x = vec![T::zero(); row_of.len()];
        missing.iter().zip(w).for_each(|(&step, &w)| x[step as usize] = w);
        let mut own = missing.iter().rev().peekable();
        for step in (0..x.len()).rev() {
            if own.next_if(|&&missing| missing as usize == step).is_none() {
                let (rows, values) = lower.column(step);
                let sum = rows.iter().zip(values).map(|(&row, &value)| value * x[row as usize]);
                x[step] = -sum.fold(T::zero(), |sum, term| sum + term);
            }
        }
        let mut v = vec![T::zero(); x.len()];
        for (&row, &x) in row_of.iter().zip(&x) {
            v[row as usize] = scale[row as usize] * x;
        }
        v
    }

    /// The entries of both factors.
    pub fn nnz(&self) -> usize {
        let Factors { lower, upper, pivots, .. } = &self.factors;
        lower.rows.len() + upper.rows.len() + pivots.len()
    }
}

/// Order and, where they are still sound, pivots and pattern stay.
impl<T: Real> Refresh<T> for Lu<T> {
    fn refresh(&mut self, a: &dyn Origin<T>) -> Result<()> {
        check_space(a, &self.space)?;
        let csr = &*finite(a)?;
        self.from_a.refresh(csr, &mut self.columns)?;
        if !self.factors.refresh(&self.columns, &self.order)? {
            let mut begun = Begun::with(csr, self.budget, self.pivoting)?;
            begun.go_on(csr, f64::INFINITY)?;
            *self = begun.whole();
        }
        Ok(())
    }
}

impl<T: Real> LinearOperator for Lu<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        // what a solve that failed left behind is overwritten
        let mut x = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        self.factors.solve(r.as_slice(), &mut x);
        for (&column, &x) in self.order.column_of.iter().zip(&*x) {
            z.as_mut_slice()[column as usize] = x;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.factors.lower.bytes() + self.factors.upper.bytes() + size_of_val(&*self.factors.pivots)
    }
}

impl<T: Real> Factors<T> {
    /// Computes with new values for the same pivots; `false` if one of them is too small for that.
    fn refresh(&mut self, columns: &Csr<T>, order: &Order) -> Result<bool> {
        let n = columns.rows();
        let Factors { scale, row_of, lower, upper, pivots, missing } = self;
        if !missing.is_empty() {
            return Ok(false);
        }
        let phase = Phase::new("LU factorization, known pivots", lower.rows.len() as f64);
        let mut counter = phase.counter();
        *scale = begun::scale(columns);
        let mut step_of = vec![0u32; n];
        (0..).zip(&*row_of).for_each(|(step, &row)| step_of[row as usize] = step);
        let sound = T::from_f64(SOUND);
        let mut x = vec![T::zero(); n];
        for (step, &column) in order.column_of.iter().enumerate() {
            let (rows, values) = (columns.row_columns(column as usize), columns.row_values(column as usize));
            let mut largest = T::zero();
            for (&row, &value) in rows.iter().zip(values) {
                let value = value * scale[row as usize];
                x[step_of[row as usize] as usize] = value;
                largest = largest.max(value.abs());
            }
            for at in upper.starts[step]..upper.starts[step + 1] {
                let factor = std::mem::take(&mut x[upper.rows[at] as usize]);
                upper.values[at] = factor;
                largest = largest.max(factor.abs());
                let (rows, values) = lower.column(upper.rows[at] as usize);
                counter.add(rows.len())?;
                for (&row, &value) in rows.iter().zip(values) {
                    x[row as usize] -= value * factor;
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
            let least = (sound * below).max(largest * T::epsilon());
            if pivot.abs() <= least || !Element::is_finite(pivot) || !Element::is_finite(below) {
                return Ok(false);
            }
            pivots[step] = pivot;
        }
        Ok(true)
    }

    /// `x = L⁻¹ b`, in the order of steps.
    fn forward(&self, b: &[T], x: &mut [T]) {
        for (x, &row) in x.iter_mut().zip(&self.row_of) {
            *x = b[row as usize] * self.scale[row as usize];
        }
        for step in 0..x.len() {
            let (solved, (rows, values)) = (x[step], self.lower.column(step));
            if !solved.is_zero() {
                rows.iter().zip(values).for_each(|(&row, &value)| x[row as usize] -= value * solved);
            }
        }
    }

    /// `x = U⁻¹ L⁻¹ b`, in the order of steps.
    fn solve(&self, b: &[T], x: &mut [T]) {
        let Factors { upper, pivots, .. } = self;
        self.forward(b, x);
        for step in (0..x.len()).rev() {
            let (solved, (rows, values)) = (x[step] / pivots[step], upper.column(step));
            x[step] = solved;
            if !solved.is_zero() {
                rows.iter().zip(values).for_each(|(&row, &value)| x[row as usize] -= value * solved);
            }
        }
    }
}
