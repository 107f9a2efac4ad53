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

mod saved;

use super::super::{Origin, Refresh, check_space, check_square};
use super::order::{Order, Pivoting};
use super::tree::NONE;
use super::triangle::Triangle;
use super::{Budget, DirectOptions};
use crate::formats::derived::Derivation;
use crate::{Csr, Error, Format, HostSpace, HostVector, Real, Result};
use krysp_solvers::{Element, LinearOperator, check_spaces};
use std::sync::{Mutex, PoisonError};

const NAME: &str = "LU";

/// A pivot may be this much smaller than the largest of its column, if fill is better for it: a diagonal, and any other. A diagonal
/// given up spoils the order for all columns to come, more than refinement costs.
const DIAGONAL: f64 = 1e-3;
const OTHERS: f64 = 0.1;

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
    /// Refuses what takes more multiplications than these.
    pub(crate) fn tolerant(csr: &Csr<T>, most: f64) -> Result<Lu<T>> {
        Lu::pivoted(csr, DirectOptions::default(), Pivoting::Tolerant { most })
    }

    fn pivoted(csr: &Csr<T>, options: DirectOptions, pivoting: Pivoting) -> Result<Lu<T>> {
        check_square(NAME, csr)?;
        let budget = Budget::new(NAME, options);
        let (columns, from_a) = Derivation::transposed(csr)?;
        let (order, factors) = factorised(csr, &columns, Order::of(csr, &columns), pivoting, budget)?;
        let work = Mutex::new(vec![T::zero(); csr.rows()]);
        let space = csr.source().domain().clone();
        Ok(Lu { space, budget, columns, from_a, order, pivoting, factors, work })
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
        let csr = &*a.in_host_memory()?;
        self.from_a.refresh(csr, &mut self.columns)?;
        if !self.factors.refresh(&self.columns, &self.order) {
            let order = Order::of(csr, &self.columns);
            (self.order, self.factors) = factorised(csr, &self.columns, order, self.pivoting, self.budget)?;
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

/// Factorises in an order, or in that of columns if its fill gets out of hand.
fn factorised<T: Real>(
    csr: &Csr<T>,
    columns: &Csr<T>,
    order: Order,
    pivoting: Pivoting,
    budget: Budget,
) -> Result<(Order, Factors<T>)> {
    let most = order.by_diagonal.unwrap_or(usize::MAX);
    if let Some(factors) = Factors::new(columns, &order, most, pivoting, budget)? {
        return Ok((order, factors));
    }
    let order = Order::of_columns(csr, columns);
    let factors = Factors::new(columns, &order, usize::MAX, pivoting, budget)?;
    factors.map(|factors| (order, factors)).ok_or(budget.refused(usize::MAX))
}

/// What a factorisation keeps of the steps so far.
struct Progress<'a, T: Real> {
    columns: &'a Csr<T>,
    step_of: Vec<u32>,
    row_of: Vec<u32>,
    lower: Triangle<T>,
    /// Where the part of each column of `L` ends that a search must follow.
    pruned: Vec<usize>,
    /// The last column whose reach a row was found in.
    found_by: Vec<u32>,
    /// Steps of the reach, and rows that are not yet pivots.
    reach: Vec<u32>,
    fresh: Vec<u32>,
    path: Vec<(u32, usize)>,
}

impl<T: Real> Progress<'_, T> {
    /// Finds what column `column` is joined to.
    fn search(&mut self, column: u32) {
        self.reach.clear();
        self.fresh.clear();
        let columns = self.columns;
        for &row in columns.row_columns(column as usize) {
            self.visit(row, column);
            while let Some((step, at)) = self.path.last_mut() {
                if *at == self.pruned[*step as usize] {
                    self.reach.push(*step);
                    self.path.pop();
                } else {
                    let row = self.lower.rows[*at];
                    *at += 1;
                    self.visit(row, column);
                }
            }
        }
    }

    fn visit(&mut self, row: u32, column: u32) {
        if std::mem::replace(&mut self.found_by[row as usize], column) == column {
            return;
        }
        match self.step_of[row as usize] {
            NONE => self.fresh.push(row),
            step => self.path.push((step, self.lower.starts[step as usize])),
        }
    }

    /// From a step whose column has the newest pivot, searches need to follow none but rows that are pivots by now: the newest leads
    /// to the others.
    fn prune(&mut self, step: u32, pivot: u32) {
        let step = step as usize;
        let range = self.lower.starts[step]..self.lower.starts[step + 1];
        if self.pruned[step] < range.end || !self.lower.rows[range.clone()].contains(&pivot) {
            return;
        }
        let (rows, values) = (&mut self.lower.rows[range.clone()], &mut self.lower.values[range.clone()]);
        let mut kept = 0;
        for at in 0..rows.len() {
            if self.step_of[rows[at] as usize] != NONE {
                rows.swap(at, kept);
                values.swap(at, kept);
                kept += 1;
            }
        }
        self.pruned[step] = range.start + kept;
    }
}

impl<T: Real> Factors<T> {
    /// `None` if the factors would have more than `most` entries.
    fn new(
        columns: &Csr<T>,
        order: &Order,
        most: usize,
        pivoting: Pivoting,
        budget: Budget,
    ) -> Result<Option<Factors<T>>> {
        let n = columns.rows();
        let scale = scale(columns);
        let mut lengths = vec![0u32; n];
        columns.columns().iter().for_each(|&row| lengths[row as usize] += 1);
        let mut progress = Progress {
            columns,
            step_of: vec![NONE; n],
            row_of: Vec::with_capacity(n),
            lower: Triangle::new(n),
            pruned: Vec::with_capacity(n),
            found_by: vec![NONE; n],
            reach: vec![],
            fresh: vec![],
            path: vec![],
        };
        let (mut upper, mut pivots) = (Triangle::new(n), Vec::with_capacity(n));
        let (mut missing, mut work) = (vec![], 0.0);
        let mut x = vec![T::zero(); n];
        for (step, &column) in (0..).zip(&order.column_of) {
            progress.search(column);
            // earlier steps first, as in a refresh: the same sums, bit by bit
            progress.reach.sort_unstable();
            let Progress { reach, fresh, lower, row_of, .. } = &mut progress;
            if upper.rows.len() + lower.rows.len() > most {
                return Ok(None);
            }
            make_room(&mut upper, reach.len(), lower.bytes(), budget)?;
            make_room(lower, fresh.len(), upper.bytes(), budget)?;
            let mut largest = T::zero();
            for (&row, &value) in
                columns.row_columns(column as usize).iter().zip(columns.row_values(column as usize))
            {
                x[row as usize] = value * scale[row as usize];
                largest = largest.max(x[row as usize].abs());
            }
            for &earlier in reach.iter() {
                work += (lower.starts[earlier as usize + 1] - lower.starts[earlier as usize]) as f64;
                let factor = std::mem::take(&mut x[row_of[earlier as usize] as usize]);
                upper.push(earlier, factor);
                largest = largest.max(factor.abs());
                let (rows, values) = lower.column(earlier as usize);
                for (&row, &value) in rows.iter().zip(values) {
                    x[row as usize] -= value * factor;
                }
            }
            if matches!(pivoting, Pivoting::Tolerant { most } if work > most) {
                let why = format!("it takes more than {work:.1e} multiplications");
                return Err(Error::Unsuitable { format: NAME, why });
            }
            let row = choose(fresh, &x, order.by_diagonal.map(|_| column), &lengths);
            let pivot = row.map_or(T::zero(), |row| x[row as usize]);
            // what cancellation leaves of a column that depends on others
            let rounding = largest * pivoting.rounding();
            let (Some(row), true) = (row, pivot.abs() > rounding && Element::is_finite(pivot)) else {
                let tolerant = matches!(pivoting, Pivoting::Tolerant { .. });
                if tolerant && (row.is_none() || Element::is_finite(pivot)) {
                    fresh.iter().for_each(|&other| x[other as usize] = T::zero());
                    upper.starts.push(upper.rows.len());
                    lower.starts.push(lower.rows.len());
                    // what is divided by it is zero
                    pivots.push(T::infinity());
                    row_of.push(NONE);
                    missing.push(step);
                    progress.pruned.push(progress.lower.rows.len());
                    continue;
                }
                return Err(Error::Singular { what: NAME, column: column as usize, pivot: pivot.to_f64() });
            };
            for &other in fresh.iter() {
                let value = std::mem::take(&mut x[other as usize]);
                if other != row {
                    lower.push(other, value / pivot);
                }
            }
            upper.starts.push(upper.rows.len());
            lower.starts.push(lower.rows.len());
            pivots.push(pivot);
            row_of.push(row);
            progress.step_of[row as usize] = step;
            progress.pruned.push(progress.lower.rows.len());
            for at in 0..progress.reach.len() {
                progress.prune(progress.reach[at], row);
            }
        }
        let Progress { mut lower, mut step_of, mut row_of, .. } = progress;
        // rows that no column needs stand where a column has none
        let spare = (0..n as u32).filter(|&row| step_of[row as usize] == NONE).collect::<Vec<_>>();
        for (&step, row) in missing.iter().zip(spare) {
            (row_of[step as usize], step_of[row as usize]) = (row, step);
        }
        lower.rows.iter_mut().for_each(|row| *row = step_of[*row as usize]);
        lower.sort();
        Ok(Some(Factors { scale, row_of, lower, upper, pivots, missing }))
    }

    /// Computes with new values for the same pivots; `false` if one of them is too small for that.
    fn refresh(&mut self, columns: &Csr<T>, order: &Order) -> bool {
        let n = columns.rows();
        let Factors { scale, row_of, lower, upper, pivots, missing } = self;
        if !missing.is_empty() {
            return false;
        }
        *scale = self::scale(columns);
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
                return false;
            }
            pivots[step] = pivot;
        }
        true
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

/// The row of the pivot: the diagonal if it is large enough, else of the rows that are large enough the one with the fewest
/// entries in `A`, the largest of those.
fn choose<T: Real>(rows: &[u32], x: &[T], diagonal: Option<u32>, lengths: &[u32]) -> Option<u32> {
    let size = |row: u32| x[row as usize].abs();
    let largest = rows.iter().map(|&row| size(row)).fold(T::zero(), T::max);
    let fits = |diagonal: &u32| rows.contains(diagonal) && size(*diagonal) >= largest * T::from_f64(DIAGONAL);
    if let Some(diagonal) = diagonal.filter(fits) {
        return Some(diagonal);
    }
    let least = largest * T::from_f64(OTHERS);
    let enough = rows.iter().copied().filter(|&row| size(row) >= least && size(row) > T::zero());
    let better = |a: u32, b: u32| {
        let by_size = || size(a) > size(b) || size(a) == size(b) && a < b;
        let (a, b) = if diagonal.is_some() { (0, 0) } else { (lengths[a as usize], lengths[b as usize]) };
        a < b || a == b && by_size()
    };
    enough.reduce(|best, row| if better(row, best) { row } else { best })
}

/// Powers of two that bring the largest entry of each row near one.
fn scale<T: Real>(columns: &Csr<T>) -> Vec<T> {
    let mut largest = vec![0.0f64; columns.cols()];
    for (&row, &value) in columns.columns().iter().zip(columns.entries()) {
        let largest = &mut largest[row as usize];
        *largest = largest.max(Element::to_f64(value).abs());
    }
    let power = |largest: f64| {
        let exponent = if largest > 0.0 && largest.is_finite() { -largest.log2().round() } else { 0.0 };
        T::from_f64(exponent.exp2())
    };
    largest.into_iter().map(power).collect()
}

/// Makes room for one more column, within the limit; `others` are bytes taken elsewhere.
fn make_room<T: Real>(triangle: &mut Triangle<T>, more: usize, others: usize, budget: Budget) -> Result<()> {
    let (len, entry) = (triangle.rows.len(), size_of::<u32>() + size_of::<T>());
    budget.allows(others + (len + more) * entry)?;
    if triangle.rows.capacity() < len + more {
        budget.reserve(&mut triangle.rows, more + len / 2)?;
        budget.reserve(&mut triangle.values, more + len / 2)?;
    }
    Ok(())
}
