//! Assembly of fronts.

use super::{Assembled, Kind, Rest, Work, Workspace};
use crate::error::{Error, Result};
use crate::numbers::Real;
use crate::preconditioners::direct::tree::{Front, NONE};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{ByRow, over_parts, tasks};
use std::iter::successors;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Number of entries of a column for each pivot of a front above which the rows of the pivots are searched in the
/// column, instead of all its rows in the front: a binary search of a column takes about as many steps. A guess.
const SEARCHED: usize = 16;

/// A child's Schur complement, and the rows and columns of the parent front to which its rows and columns belong.
struct Child<T> {
    rest: Rest<T>,
    rows: Vec<u32>,
    columns: Vec<u32>,
}

impl<T: Real> Work<'_, T> {
    /// Assembles a front: its entries of the matrix, and the Schur complements of its children.
    pub(super) fn assemble(&self, at: usize, workspace: &mut Workspace<T>) -> Result<Assembled<T>> {
        let front = &self.tree.fronts[at];
        let [mut rows, mut columns] =
            [(); 2].map(|()| front.columns.clone().map(|at| at as u32).collect::<Vec<_>>());
        let next = |&child: &u32| Some(self.next[child as usize]).filter(|&next| next != NONE);
        let mut rests = vec![];
        for child in successors(Some(self.first[at]).filter(|&first| first != NONE), next) {
            let rest = self.rests[child as usize].lock().unwrap_or_else(PoisonError::into_inner).take();
            // missing if an earlier call took it and then failed
            rests.push(rest.ok_or(Error::NoOperator)?);
        }
        for rest in &rests {
            rows.extend_from_slice(&rest.rows[..rest.delayed]);
            columns.extend_from_slice(&rest.columns[..rest.delayed]);
        }
        let summed = rows.len();
        rows.extend_from_slice(self.tree.rows(front));
        columns.extend_from_slice(self.tree.rows(front));
        let order = rows.len();
        let Workspace { rows: row_at, columns: column_at, values, .. } = workspace;
        (0..).zip(&rows).for_each(|(at, &row)| row_at[row as usize] = at);
        (0..).zip(&columns).for_each(|(at, &column)| column_at[column as usize] = at);
        let bytes = self.workspace_bytes(order, summed);
        self.check_growth(bytes)?;
        self.take(bytes)?;
        if values.len() < order * order {
            // free the old array first
            *values = Buffer::default();
            *values = self.budget.buffer(order * order)?;
        }
        let of = |at: &[u32], places: &[u32]| places.iter().map(|&place| at[place as usize]).collect();
        let children = rests.into_iter().map(|rest| {
            let (rows, columns) = (of(row_at, &rest.rows), of(column_at, &rest.columns));
            Child { rest, rows, columns }
        });
        let children: Vec<Child<T>> = children.collect();
        let mut least = vec![T::zero(); order];
        let parts = tasks(order * order).min(order);
        let (bound, offset) = (|part: usize| part * order / parts, |column: usize| column * order);
        let data = (ByRow::new(&mut values[..order * order], &offset), &mut *least);
        over_parts(parts, &bound, data, &|range, (values, least)| {
            let (values, _) = values.all();
            values.fill(T::zero());
            let own = columns[range.clone()].iter().zip(values.chunks_exact_mut(order)).zip(least);
            own.for_each(|((&column, to), least)| self.entries(front, column as usize, row_at, to, least));
            children.iter().for_each(|child| child.add(self.kind, range.clone(), order, values));
        });
        for child in children {
            for (&column, &rounding) in child.columns.iter().zip(&child.rest.least) {
                let least = &mut least[column as usize];
                *least = least.max(rounding);
            }
            self.held.fetch_sub(size_of_val(&*child.rest.values), Ordering::Relaxed);
        }
        Ok(Assembled { rows, columns, summed, least })
    }

    /// Adds the entries of the matrix in one column of a front that earlier fronts have not added. `least` receives
    /// the magnitude up to which a pivot of the column counts as zero.
    fn entries(&self, front: &Front, column: usize, row_at: &[u32], to: &mut [T], least: &mut T) {
        let ([row_scale, column_scale], place) = (self.scales, &self.tree.place);
        let own = front.columns.clone();
        // earlier fronts have added the columns of delayed pivots, and the rows before those of this front
        let rows = match self.kind {
            Kind::Symmetric if own.contains(&column) => column..usize::MAX,
            Kind::General if own.contains(&column) => own.start..usize::MAX,
            Kind::General if column >= own.end => own.clone(),
            _ => return,
        };
        let variable = self.tree.order[column] as usize;
        let entries = self.columns.row_columns(variable);
        // a column with many entries is below the columns of many fronts
        if column >= own.end && entries.len() > SEARCHED * own.len() {
            let scale = column_scale[variable];
            for at in own {
                let row = self.tree.order[at];
                if let Ok(entry) = entries.binary_search(&row) {
                    let value = self.columns.row_values(variable)[entry];
                    to[row_at[at] as usize] += value * row_scale[row as usize] * scale;
                }
            }
            return;
        }
        let mut largest = T::zero();
        for (&row, &value) in self.columns.row_columns(variable).iter().zip(self.columns.row_values(variable))
        {
            let value = value * row_scale[row as usize] * column_scale[variable];
            largest = largest.max(value.abs());
            let row = place[row as usize] as usize;
            if rows.contains(&row) {
                to[row_at[row] as usize] += value;
            }
        }
        if own.contains(&column) {
            *least = largest * self.pivoting.rounding();
        }
    }
}

impl<T: Real> Child<T> {
    /// Adds the Schur complement to the columns `range` of the parent front, which has `order` rows.
    fn add(&self, kind: Kind, range: Range<usize>, order: usize, values: &mut [T]) {
        let column_in = |column: u32| Some(column as usize).filter(|column| range.contains(column));
        let start = |column: usize| (column - range.start) * order;
        for (j, column) in self.rest.values.chunks_exact(self.rows.len().max(1)).enumerate() {
            if kind == Kind::General {
                let Some(at) = column_in(self.columns[j]) else { continue };
                let to = &mut values[start(at)..][..order];
                for (&row, &value) in self.rows.iter().zip(column) {
                    to[row as usize] += value;
                }
                continue;
            }
            let (rows, column) = (&self.rows[j..], &column[j..]);
            if j < self.rest.delayed {
                // other rows may come before that of a delayed pivot
                for (&row, &value) in rows.iter().zip(column) {
                    if let Some(at) = column_in(row.min(rows[0])) {
                        values[start(at) + row.max(rows[0]) as usize] += value;
                    }
                }
            } else if let Some(at) = column_in(rows[0]) {
                let to = &mut values[start(at)..][..order];
                for (&row, &value) in rows.iter().zip(column) {
                    to[row as usize] += value;
                }
            }
        }
    }
}
