//! Scalar left-looking LU, column by column (Gilbert and Peierls 1988). It can be suspended between columns.
//!
//! ```text
//! for each column j, in an order with little fill:
//!     reach: the steps whose columns of L update column j, by a depth-first search in L
//!     x ← column j;  for each step s of the reach, in reverse order of discovery:  x ← x − x_s L_s
//!     pivot: the preferred row if its entry is large enough, else another row with a large entry
//! ```
//!
//! The diagonal blocks of a block triangular form are eliminated one after the other; entries above them are
//! only scaled. Searches use symmetric pruning (Eisenstat and Liu 1992). Rows are scaled by powers of two to
//! a largest entry near one.

use super::super::order::{Order, Pivoting};
use super::super::report::growth;
use super::super::scale::larger;
use super::super::tree::NONE;
use super::super::triangle::Triangle;
use super::column_factors::ColumnFactors;
use super::{Budget, NAME};
use crate::error::{Error, Result};
use crate::formats::{Csr, Rows};
use crate::numbers::Real;
use krysp_kernels::interrupt::Phase;
use krysp_solvers::Element;
use std::ops::Range;

/// Minimum magnitude of a pivot, as a fraction of the largest entry of its column: for the preferred row, and for
/// other rows. A small preferred pivot costs a step of iterative refinement; a pivot in another row costs more,
/// because the ordering no longer suits the later columns. The defaults of UMFPACK for symmetric patterns (0.001, for
/// the diagonal) and in general (0.1).
const PREFERRED: f64 = 1e-3;
const OTHERS: f64 = 0.1;

/// Work between two polls for interruption, in multiplications (about 0.1 ms), and the work counted for each column
/// in addition to its multiplications. The time is estimated, not measured.
const POLLED: f64 = 65_536.0;
const COLUMN: f64 = 64.0;

/// State of the elimination after some steps.
#[derive(Debug)]
pub(super) struct Progress<T> {
    scale: Vec<T>,
    /// Largest magnitude of a scaled entry in a diagonal block so far.
    largest: T,
    /// First step of each diagonal block, then the number of steps.
    blocks: Vec<u32>,
    /// Number of entries of each row of the matrix; empty if they do not count in the choice of pivots.
    lengths: Vec<u32>,
    upper: Triangle<T>,
    pivots: Vec<T>,
    missing: Vec<u32>,
    /// Smallest magnitude of a pivot, relative to the largest one that its column has had.
    pub(super) least: T,
    /// Number of multiplications so far.
    pub(super) work: f64,
    /// Whether an error left a column unfinished.
    failed: bool,
    /// Current column, indexed by rows; zero between steps.
    x: Vec<T>,
    step_of: Vec<u32>,
    row_of: Vec<u32>,
    lower: Triangle<T>,
    /// End of the part of each column of `L` that searches must follow (symmetric pruning).
    pruned: Vec<usize>,
    /// States whether each column of `L` has first the pivot row of the next step, then the rows of the next
    /// column in the same order. Two such columns are subtracted together, which reads and writes each entry
    /// once.
    continued: Vec<bool>,
    /// Column whose search visited each row last.
    found_by: Vec<u32>,
    /// Steps of the reach, and rows of the current column that are not yet pivots.
    reach: Vec<u32>,
    fresh: Vec<u32>,
    path: Vec<(u32, Range<usize>)>,
}

impl<T: Real> Progress<T> {
    /// Prepares the elimination. `scale` has a factor for each row, `lengths` the number of entries of each row, or nothing if pivots in
    /// short rows are not preferred; `expected` is the predicted number of entries of each triangle.
    pub(super) fn new(
        scale: Vec<T>,
        lengths: Vec<u32>,
        blocks: Vec<u32>,
        expected: usize,
        budget: Budget,
    ) -> Progress<T> {
        let n = scale.len();
        let triangle = || {
            let mut triangle = Triangle::new(n);
            // if the prediction exceeds the limit, actual factors may still fit: they grow as needed
            let _ = make_room(&mut triangle, expected, expected.saturating_mul(entry_bytes::<T>()), budget);
            triangle
        };
        Progress {
            scale,
            largest: T::zero(),
            blocks,
            lengths,
            upper: triangle(),
            pivots: Vec::with_capacity(n),
            missing: vec![],
            least: T::one(),
            work: 0.0,
            failed: false,
            x: vec![T::zero(); n],
            step_of: vec![NONE; n],
            row_of: Vec::with_capacity(n),
            lower: triangle(),
            pruned: Vec::with_capacity(n),
            continued: Vec::with_capacity(n),
            found_by: vec![NONE; n],
            reach: vec![],
            fresh: vec![],
            path: vec![],
        }
    }

    /// Returns whether columns have no pivot.
    pub(super) fn is_deficient(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Bytes reserved for the factors.
    pub(super) fn bytes(&self) -> usize {
        self.lower.reserved() + self.upper.reserved()
    }

    /// Largest magnitude in `U`, divided by that of the scaled matrix.
    pub(super) fn growth(&self) -> Option<f64> {
        let pivots = self.pivots.iter().filter(|pivot| Element::is_finite(**pivot));
        let largest = pivots.chain(&self.upper.values).fold(T::zero(), |most, &value| larger(most, value));
        growth(largest, self.largest)
    }

    /// Continues until all columns are eliminated, and then returns `true`; or until `self.work` exceeds
    /// `most`, or the factors have more than `order.most_entries` entries.
    pub(super) fn run(
        &mut self,
        columns: &Csr<T>,
        order: &Order,
        pivoting: Pivoting,
        budget: Budget,
        most: f64,
    ) -> Result<bool> {
        if std::mem::replace(&mut self.failed, true) {
            return Err(Error::NoOperator);
        }
        let complete = self.eliminate(columns, order, pivoting, budget, most)?;
        self.failed = false;
        Ok(complete)
    }

    fn eliminate(
        &mut self,
        columns: &Csr<T>,
        order: &Order,
        pivoting: Pivoting,
        budget: Budget,
        most: f64,
    ) -> Result<bool> {
        // the work of later columns is not known, so progress is counted in columns
        let phase = Phase::new("LU factorization by columns", columns.rows() as f64);
        phase.advance(self.row_of.len() as u64)?;
        let (mut polled_at, mut polled_work) = (self.row_of.len() as u32, self.work);
        let mut block = self.blocks.partition_point(|&start| start <= polled_at) - 1;
        let columns = Rows::of(columns);
        for (step, &column) in (0..).zip(&order.column_of).skip(self.row_of.len()) {
            block += usize::from(self.blocks[block + 1] == step);
            let start = self.blocks[block];
            if self.work > most || self.upper.rows.len() + self.lower.rows.len() > order.most_entries {
                return Ok(false);
            }
            if self.work - polled_work + COLUMN * f64::from(step - polled_at) >= POLLED {
                phase.advance(u64::from(step - polled_at))?;
                (polled_at, polled_work) = (step, self.work);
            }
            let entries = columns.row(column as usize);
            self.search(entries.0, column, start);
            let largest = self.load(entries, start, budget)?;
            self.largest = self.largest.max(largest);
            let largest = self.update(largest);
            let row = self.pivot_row(column, order);
            let Progress { upper, pivots, missing, x, fresh, lower, row_of, .. } = &mut *self;
            let pivot = row.map_or(T::zero(), |row| x[row as usize]);
            // magnitude that rounding may leave in a column that depends on others
            let rounding = largest * pivoting.rounding();
            let (Some(row), true) = (row, pivot.abs() > rounding && Element::is_finite(pivot)) else {
                if matches!(pivoting, Pivoting::Tolerant) && (row.is_none() || Element::is_finite(pivot)) {
                    fresh.iter().for_each(|&other| x[other as usize] = T::zero());
                    upper.starts.push(upper.rows.len());
                    lower.starts.push(lower.rows.len());
                    // division by this pivot yields zero
                    pivots.push(T::infinity());
                    row_of.push(NONE);
                    missing.push(step);
                    self.pruned.push(self.lower.rows.len());
                    self.continued.push(false);
                    continue;
                }
                return Err(Error::Singular { what: NAME, column: column as usize, pivot: pivot.to_f64() });
            };
            pivots.push(pivot);
            self.least = self.least.min(pivot.abs() / largest);
            self.store(step, column, start, (row, pivot));
            (0..self.reach.len()).for_each(|at| self.prune(self.reach[at], row));
        }
        Ok(true)
    }

    /// Eliminates the steps of the reach from the current column. Returns the largest one of `largest` and the magnitudes of
    /// its entries in `U`. A refresh uses the order of these entries, so that it computes bitwise the same sums.
    fn update(&mut self, mut largest: T) -> T {
        let Progress { upper, work, x, reach, lower, row_of, continued, .. } = self;
        upper.rows.extend(reach.iter().rev());
        let (mut steps, mut multiplications) = (reach.iter().rev().copied().peekable(), 0);
        while let Some(step) = steps.next() {
            let factor = std::mem::take(&mut x[row_of[step as usize] as usize]);
            upper.values.push(factor);
            largest = larger(largest, factor);
            let next = steps.next_if(|&next| continued[step as usize] && next == step + 1);
            if next.is_some() {
                let second = lower.subtract_two(step as usize, factor, x);
                upper.values.push(second);
                largest = larger(largest, second);
                multiplications += 2 * lower.column(step as usize).0.len() - 1;
            } else {
                multiplications += lower.subtract(step as usize, factor, x);
            }
        }
        *work += multiplications as f64;
        largest
    }

    /// Stores the current column of `L`, and its pivot.
    fn store(&mut self, step: u32, column: u32, start: u32, (row, pivot): (u32, T)) {
        self.step_of[row as usize] = step;
        let previous = (step as usize).wrapping_sub(1);
        let continues = step > start
            && self.found_by.get(self.row_of[previous] as usize) == Some(&column)
            && self.lower.column(previous).0.len() == self.fresh.len();
        if continues {
            // both columns have the same rows, apart from the pivot
            let at = self.lower.column(previous).0.iter().position(|&other| other == row).unwrap_or(0);
            self.exchange(previous, at, 0);
            self.continued[previous] = true;
        }
        let Progress { x, fresh, lower, upper, .. } = self;
        x[row as usize] = T::zero();
        if continues {
            for at in lower.starts[previous] + 1..lower.starts[previous + 1] {
                let other = lower.rows[at];
                lower.push(other, std::mem::take(&mut x[other as usize]) / pivot);
            }
        } else {
            for &other in fresh.iter().filter(|&&other| other != row) {
                lower.push(other, std::mem::take(&mut x[other as usize]) / pivot);
            }
        }
        upper.starts.push(upper.rows.len());
        lower.starts.push(lower.rows.len());
        self.row_of.push(row);
        self.pruned.push(self.lower.rows.len());
        self.continued.push(false);
    }

    /// Exchanges two entries of a column of `L`, and the same rows in the columns that it continues.
    fn exchange(&mut self, step: usize, mut one: usize, mut other: usize) {
        let Triangle { starts, rows, values } = &mut self.lower;
        for at in (0..=step).rev().take_while(|&at| at == step || self.continued[at]) {
            rows.swap(starts[at] + one, starts[at] + other);
            values.swap(starts[at] + one, starts[at] + other);
            (one, other) = (one + 1, other + 1);
        }
    }

    /// Chooses the pivot row of the current column.
    fn pivot_row(&self, column: u32, order: &Order) -> Option<u32> {
        let preferred = order.preferred.get(column as usize).copied();
        let is_candidate =
            |row: &u32| self.found_by[*row as usize] == column && self.step_of[*row as usize] == NONE;
        let lengths = (!self.lengths.is_empty()).then_some(&*self.lengths);
        choose(&self.fresh, &self.x, preferred.filter(is_candidate), lengths)
    }

    /// Loads a column of the matrix: entries in its diagonal block, which begins at step `start`, into the
    /// workspace; entries above it, which only solves need, into `U`. Returns the largest magnitude in the
    /// block.
    fn load(&mut self, (rows, values): (&[u32], &[T]), start: u32, budget: Budget) -> Result<T> {
        make_room(&mut self.upper, self.reach.len() + rows.len(), self.lower.reserved(), budget)?;
        make_room(&mut self.lower, self.fresh.len(), self.upper.reserved(), budget)?;
        let Progress { upper, x, step_of, scale, .. } = self;
        let mut largest = T::zero();
        for (&row, &value) in rows.iter().zip(values) {
            let (step, value) = (step_of[row as usize], value * scale[row as usize]);
            if step < start {
                upper.push(step, value);
            } else {
                x[row as usize] = value;
                largest = larger(largest, value);
            }
        }
        Ok(largest)
    }

    /// Factors of a completed elimination.
    pub(super) fn factors(self) -> ColumnFactors<T> {
        let n = self.step_of.len();
        let Progress { scale, largest, blocks, upper, pivots, missing, mut lower, .. } = self;
        let (mut step_of, mut row_of) = (self.step_of, self.row_of);
        // assign the unused rows to the steps without a pivot
        let unused = (0..n as u32).filter(|&row| step_of[row as usize] == NONE).collect::<Vec<_>>();
        for (&step, row) in missing.iter().zip(unused) {
            (row_of[step as usize], step_of[row as usize]) = (row, step);
        }
        lower.rows.iter_mut().for_each(|row| *row = step_of[*row as usize]);
        ColumnFactors { scale, largest, blocks, row_of, lower, upper, pivots, missing }
    }

    /// Finds the reach of a column in its diagonal block, which begins at step `start`, and its rows that are
    /// not yet pivots. A step follows all steps that it updates.
    fn search(&mut self, rows: &[u32], column: u32, start: u32) {
        let Progress { step_of, lower, pruned, found_by, reach, fresh, path, .. } = self;
        let Triangle { starts, rows: below, .. } = lower;
        reach.clear();
        fresh.clear();
        // returns the step of a row that was not visited before, unless no search may continue from there
        let mut visit = |row: u32, reach: &mut Vec<u32>| {
            let step = step_of[row as usize];
            if step < start || std::mem::replace(&mut found_by[row as usize], column) == column {
                return None;
            }
            if step == NONE {
                fresh.push(row);
                return None;
            }
            let rows = starts[step as usize]..pruned[step as usize];
            if rows.is_empty() {
                reach.push(step);
                return None;
            }
            Some((step, rows))
        };
        for &row in rows {
            let Some((mut step, mut rows)) = visit(row, reach) else { continue };
            loop {
                let next = below[rows.clone()]
                    .iter()
                    .enumerate()
                    .find_map(|(at, &row)| Some((at, visit(row, reach)?)));
                match next {
                    Some((at, next)) => {
                        path.push((step, rows.start + at + 1..rows.end));
                        (step, rows) = next;
                    }
                    None => {
                        reach.push(step);
                        let Some(above) = path.pop() else { break };
                        (step, rows) = above;
                    }
                }
            }
        }
    }

    /// Symmetric pruning: if column `step` of `L` contains the newest pivot row, searches need to follow only
    /// its rows that are pivots by now. The other rows are reachable through the newest step.
    fn prune(&mut self, step: u32, pivot: u32) {
        let step = step as usize;
        let range = self.lower.starts[step]..self.lower.starts[step + 1];
        if self.pruned[step] < range.end || !self.lower.rows[range.clone()].contains(&pivot) {
            return;
        }
        let mut kept = 0;
        for at in 0..range.len() {
            if self.step_of[self.lower.rows[range.start + at] as usize] != NONE {
                if at > kept {
                    self.exchange(step, at, kept);
                }
                kept += 1;
            }
        }
        self.pruned[step] = range.start + kept;
    }
}

/// Chooses the pivot row: the preferred row if its entry is large enough; otherwise, among the rows with
/// large enough entries, the one with the largest entry. If there are `lengths`, the numbers of entries of
/// rows of `A`, rows with fewer entries come first.
fn choose<T: Real>(rows: &[u32], x: &[T], preferred: Option<u32>, lengths: Option<&[u32]>) -> Option<u32> {
    let size = |row: u32| x[row as usize].abs();
    let largest = rows.iter().fold(T::zero(), |most, &row| larger(most, x[row as usize]));
    if let Some(row) = preferred.filter(|&row| size(row) >= largest * T::from_f64(PREFERRED)) {
        return Some(row);
    }
    let least = largest * T::from_f64(OTHERS);
    let enough = rows.iter().copied().filter(|&row| size(row) >= least && size(row) > T::zero());
    let length = |row: u32| lengths.map_or(0, |lengths| lengths[row as usize]);
    let better = |a: u32, b: u32| {
        let by_size = || size(a) > size(b) || size(a) == size(b) && a < b;
        length(a) < length(b) || length(a) == length(b) && by_size()
    };
    enough.reduce(|best, row| if better(row, best) { row } else { best })
}

/// Bytes of an entry of a triangle.
fn entry_bytes<T>() -> usize {
    size_of::<u32>() + size_of::<T>()
}

/// Reserves memory for `more` entries of one column, within the limit; `others` is the number of bytes
/// reserved for the other triangle.
fn make_room<T: Real>(triangle: &mut Triangle<T>, more: usize, others: usize, budget: Budget) -> Result<()> {
    let (len, entry) = (triangle.rows.len(), entry_bytes::<T>());
    if more <= triangle.rows.capacity().min(triangle.values.capacity()) - len {
        return Ok(());
    }
    budget.allows(len.saturating_add(more).saturating_mul(entry).saturating_add(others))?;
    let most = (budget.limit() - others) / entry - len;
    let more = most.min(more + len / 2);
    budget.reserve(&mut triangle.rows, more)?;
    budget.reserve(&mut triangle.values, more)
}
