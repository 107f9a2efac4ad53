//! Assembly of fronts.

use super::{Assembled, Kind, Rest, Work, Workspace};
use crate::preconditioners::direct::tree::NONE;
use crate::{Error, Real, Result};
use std::ops::Range;
use std::sync::atomic::Ordering;

impl<T: Real> Work<'_, T> {
    /// Assembles a front: its entries of the matrix, and the Schur complements of its children.
    pub(super) fn assemble(
        &self,
        at: usize,
        rests: &mut [Option<Rest<T>>],
        from: usize,
        workspace: &mut Workspace<T>,
    ) -> Result<Assembled<T>> {
        let front = &self.tree.fronts[at];
        let [mut rows, mut columns] =
            [(); 2].map(|()| front.columns.clone().map(|at| at as u32).collect::<Vec<_>>());
        let children = || {
            let next = |&child: &u32| Some(self.next[child as usize]).filter(|&next| next != NONE);
            std::iter::successors(Some(self.first[at]).filter(|&first| first != NONE), next)
        };
        let mut own = vec![];
        for child in children() {
            // missing if an earlier call took it and then failed
            own.push(rests[child as usize - from].take().ok_or(Error::NoOperator)?);
        }
        for rest in &own {
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
        self.take(self.workspace_bytes(order, summed))?;
        values.clear();
        self.budget.reserve(values, order * order)?;
        values.resize(order * order, T::zero());
        let mut least = vec![T::zero(); order];
        self.entries(front.columns.clone(), [row_at, column_at], order, values, &mut least);
        let mut positions = vec![];
        for rest in own {
            for (&column, &rounding) in rest.columns.iter().zip(&rest.least) {
                let least = &mut least[column_at[column as usize] as usize];
                *least = least.max(rounding);
            }
            positions.clear();
            positions.extend(rest.rows.iter().map(|&row| row_at[row as usize]));
            for (j, column) in rest.values.chunks_exact(rest.rows.len().max(1)).enumerate() {
                if self.kind == Kind::Symmetric {
                    for (&row, &value) in positions[j..].iter().zip(&column[j..]) {
                        let (row, column) = (row.max(positions[j]) as usize, row.min(positions[j]) as usize);
                        values[column * order + row] += value;
                    }
                    continue;
                }
                let to = &mut values[column_at[rest.columns[j] as usize] as usize * order..][..order];
                for (&row, &value) in positions.iter().zip(column) {
                    to[row as usize] += value;
                }
            }
            self.held.fetch_sub(size_of_val(&*rest.values), Ordering::Relaxed);
        }
        Ok(Assembled { rows, columns, summed, least })
    }

    /// Adds the entries of the matrix in the rows and columns of a front that earlier fronts have not added.
    fn entries(
        &self,
        own: Range<usize>,
        [row_at, column_at]: [&[u32]; 2],
        order: usize,
        values: &mut [T],
        least: &mut [T],
    ) {
        let ([row_scale, column_scale], place) = (self.scales, &self.tree.place);
        for (at, least) in own.clone().zip(least) {
            let variable = self.tree.order[at] as usize;
            let to = &mut values[column_at[at] as usize * order..][..order];
            let mut largest = T::zero();
            for (&row, &value) in
                self.columns.row_columns(variable).iter().zip(self.columns.row_values(variable))
            {
                let value = value * row_scale[row as usize] * column_scale[variable];
                largest = largest.max(value.abs());
                let row = place[row as usize] as usize;
                let first = if self.kind == Kind::Symmetric { at } else { own.start };
                if row >= first {
                    to[row_at[row] as usize] += value;
                }
            }
            *least = least.max(largest * self.pivoting.rounding());
            if self.kind == Kind::Symmetric {
                continue;
            }
            let row = row_at[at] as usize;
            for (&column, &value) in
                self.matrix.row_columns(variable).iter().zip(self.matrix.row_values(variable))
            {
                let to = place[column as usize] as usize;
                if to >= own.end {
                    values[column_at[to] as usize * order + row] +=
                        value * row_scale[variable] * column_scale[column as usize];
                }
            }
        }
    }
}
