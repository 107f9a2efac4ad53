//! Remainder of a front after the elimination of its pivots.

use super::{Assembled, Kind, Rest, Work};
use crate::error::{Error, Result};
use crate::numbers::Real;
use crate::preconditioners::direct::order::Pivoting;
use krysp_kernels::cpu::run::threads::{ByRow, over_parts, tasks};
use krysp_solvers::Element;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

impl<T: Real> Work<'_, T> {
    /// Finds fully summed rows and columns without a pivot that are zero to rounding. All entries of such a column are in this
    /// front, and later fronts add multiples of its entries in pivot rows, which are zero: the matrix is singular. Returns pairs of a
    /// row and a column, or an error for a zero column unless singular matrices are allowed.
    pub(super) fn null(&self, front: &Assembled<T>, pivots: usize, values: &[T]) -> Result<Vec<[usize; 2]>> {
        let (order, least, symmetric) = (front.rows.len(), &front.least, self.kind == Kind::Symmetric);
        let at = |row: usize, column: usize| match symmetric && row < column {
            true => values[row * order + column].abs(),
            false => values[column * order + row].abs(),
        };
        let is_null = |&column: &usize| (pivots..order).all(|row| at(row, column) <= least[column]);
        let mut columns = (pivots..front.summed).filter(is_null);
        if matches!(self.pivoting, Pivoting::Tolerant) {
            let is_null = |&row: &usize| (pivots..order).all(|column| at(row, column) <= least[column]);
            let rows = (pivots..front.summed).filter(is_null);
            return Ok(rows.zip(columns).map(|(row, column)| [row, column]).collect());
        }
        match columns.next() {
            None => Ok(vec![]),
            Some(column) => {
                let pivot = (pivots..order).fold(T::zero(), |most, row| most.max(at(row, column)));
                let column = self.tree.order[front.columns[column] as usize] as usize;
                Err(Error::Singular { what: self.budget.what(), column, pivot: pivot.to_f64() })
            }
        }
    }

    /// Copies the Schur complement that a front passes to its parent, without the rows and columns of `null`, which is empty for a
    /// symmetric matrix.
    pub(super) fn rest(
        &self,
        front: Assembled<T>,
        pivots: usize,
        values: &[T],
        null: &[[usize; 2]],
    ) -> Result<Rest<T>> {
        let (order, left) = (front.rows.len(), front.rows.len() - pivots - null.len());
        // the rows, or columns, that are kept; all after the pivots if the list is empty
        let kept = |list: usize| match null {
            [] => vec![],
            // both lists of `null` are in ascending order
            _ => (pivots..order)
                .filter(|at| null.binary_search_by_key(at, |pair| pair[list]).is_err())
                .collect::<Vec<_>>(),
        };
        let [rows, columns] = [0, 1].map(kept);
        let column_at = |column: usize| columns.get(column).copied().unwrap_or(pivots + column);
        self.delayed.fetch_add(front.summed - pivots - null.len(), Ordering::Relaxed);
        self.take(left * left * size_of::<T>())?;
        let mut rest = self.budget.buffer(left * left)?;
        let (rounding, parts) = (self.pivoting.rounding::<T>(), tasks(left * left).min(left));
        let (bound, offset) = (|part: usize| part * left / parts, |column: usize| column * left);
        let symmetric = self.kind == Kind::Symmetric;
        // Only the lower triangle of a symmetric front is used: an entry belongs to its column and, mirrored, to
        // that of its row.
        let mirrored = Mutex::new(vec![T::zero(); if symmetric { left } else { 0 }]);
        let mut least: Vec<T> = (0..left).map(|column| front.least[column_at(column)]).collect();
        let data = (ByRow::new(&mut rest, &offset), &mut *least);
        over_parts(parts, &bound, data, &|range, (rest, least)| {
            let mut of_rows = vec![T::zero(); if symmetric { left - range.start } else { 0 }];
            let all = range.clone().zip(rest.all().0.chunks_exact_mut(left));
            for ((column, to), least) in all.zip(least) {
                let from = if symmetric { column } else { 0 };
                let (to, stored) = (&mut to[from..], &values[column_at(column) * order..][..order]);
                if rows.is_empty() {
                    to.copy_from_slice(&stored[pivots + from..]);
                } else {
                    to.iter_mut().zip(&rows).for_each(|(to, &row)| *to = stored[row]);
                }
                let largest = to.iter().fold(T::zero(), |most, value| most.max(value.abs()));
                *least = least.max(rounding * largest);
                for (most, value) in of_rows.iter_mut().skip(column - range.start).zip(to) {
                    *most = most.max(value.abs());
                }
            }
            let mut mirrored = mirrored.lock().unwrap_or_else(PoisonError::into_inner);
            let rows = mirrored.iter_mut().skip(range.start);
            rows.zip(of_rows).for_each(|(all, most)| *all = all.max(most));
        });
        let mirrored = mirrored.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (least, most) in least.iter_mut().zip(mirrored) {
            *least = least.max(rounding * most);
        }
        let places = |places: &[u32], kept: &[usize]| match kept {
            [] => places[pivots..].to_vec(),
            _ => kept.iter().map(|&at| places[at]).collect(),
        };
        Ok(Rest {
            rows: places(&front.rows, &rows),
            columns: places(&front.columns, &columns),
            delayed: front.summed - pivots - null.len(),
            least,
            values: rest,
        })
    }

    /// Returns an error if columns of a root front have no pivot, unless singular matrices are allowed and the
    /// remaining entries are finite.
    pub(super) fn check_missing(&self, front: &Assembled<T>, pivots: usize, values: &[T]) -> Result<()> {
        let order = front.rows.len();
        for (at, (column, &place)) in values.chunks_exact(order).zip(&front.columns).enumerate().skip(pivots)
        {
            // only the lower triangle of a symmetric front is used
            let from = if self.kind == Kind::Symmetric { at } else { pivots };
            let left = &column[from..];
            let pivot = left.iter().fold(T::zero(), |most, value| most.max(value.abs()));
            let finite = left.iter().all(|&value| Element::is_finite(value));
            if !finite || matches!(self.pivoting, Pivoting::Regular) {
                let column = self.tree.order[place as usize] as usize;
                let pivot = if finite { pivot.to_f64() } else { f64::NAN };
                return Err(Error::Singular { what: self.budget.what(), column, pivot });
            }
        }
        Ok(())
    }
}
