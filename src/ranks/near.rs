//! Rows of this rank (own rows) and the rows of other ranks to which they are coupled, for preconditioners
//! that solve small local systems.

use super::halo::Routes;
use super::matrix::RankMatrix;
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_solvers::{LinearOperator, Space};

/// Own rows, and fetched copies of those rows of other ranks whose indices are columns of own rows.
///
/// Order of the local positions: the fetched rows, ascending; own rows; columns in which only fetched rows
/// have entries.
pub(super) struct Near<T: Real> {
    first: u64,
    own: usize,
    fetched: Vec<u64>,
    beyond: Vec<u64>,
    /// Length of each row, in the order of positions.
    lengths: Vec<usize>,
    columns: Vec<u64>,
    values: Vec<T>,
}

impl<T: Real> Near<T> {
    /// Keeps the entries for which `kept(row, column)` is true; its arguments are global indices. If a kept
    /// entry of an own row is in a column of another rank, the row of that index is fetched, with the entries
    /// that its owner keeps. Collective: all ranks call this.
    pub(super) fn new(matrix: &RankMatrix<T>, kept: impl Fn(u64, u64) -> bool) -> Result<Near<T>> {
        let (ranks, space) = (matrix.ranks(), matrix.domain());
        let csr: Csr<T> = ranks.all(matrix.whole())?;
        let (first, own) = (space.rows().start, space.local_len());
        let global = |column: u32| match matrix.ghosts().get((column as usize).wrapping_sub(own)) {
            Some(&ghost) => ghost,
            None => first + u64::from(column),
        };
        let of_row = |row: usize| {
            let entries = csr.row_columns(row).iter().zip(csr.row_values(row));
            let named = entries.map(|(&column, &value)| (global(column), value));
            named.filter(|&(column, _)| kept(first + row as u64, column)).collect::<Vec<_>>()
        };
        let mine: Vec<Vec<(u64, T)>> = (0..own).map(of_row).collect();
        let is_own = |column: &u64| (first..first + own as u64).contains(column);
        let others = mine.iter().flatten().map(|&(column, _)| column);
        let fetched = distinct(others.filter(|column| !is_own(column)));
        let routes = Routes::new(ranks, space.bounds(), &fetched)?;
        let lengths = routes.rows(|row| vec![mine[row].len() as u64])?;
        let mut columns: Vec<u64> = routes.rows(|row| mine[row].iter().map(|entry| entry.0).collect())?;
        let mut values: Vec<T> = routes.rows(|row| mine[row].iter().map(|entry| entry.1).collect())?;
        let known = |column: &u64| is_own(column) || fetched.binary_search(column).is_ok();
        let beyond = distinct(columns.iter().copied().filter(|column| !known(column)));
        let lengths = lengths.into_iter().map(|length| length as usize);
        let lengths = lengths.chain(mine.iter().map(Vec::len)).collect();
        columns.extend(mine.iter().flatten().map(|entry| entry.0));
        values.extend(mine.iter().flatten().map(|entry| entry.1));
        Ok(Near { first, own, fetched, beyond, lengths, columns, values })
    }

    /// Global column of a local position.
    pub(super) fn global(&self, place: u32) -> u64 {
        let (place, fetched) = (place as usize, self.fetched.len());
        match place.checked_sub(fetched) {
            None => self.fetched[place],
            Some(own) if own < self.own => self.first + own as u64,
            Some(other) => self.beyond[other - self.own],
        }
    }

    fn place(&self, global: u64) -> u32 {
        let fetched = self.fetched.len();
        let own = global.checked_sub(self.first).filter(|&own| own < self.own as u64);
        let place = match own {
            Some(own) => fetched + own as usize,
            None => match self.fetched.binary_search(&global) {
                Ok(at) => at,
                Err(_) => fetched + self.own + self.beyond.partition_point(|&column| column < global),
            },
        };
        place as u32
    }

    /// Positions of own rows.
    pub(super) fn own(&self) -> std::ops::Range<usize> {
        self.fetched.len()..self.fetched.len() + self.own
    }

    /// The square matrix of all local positions; rows after the own rows are empty.
    pub(super) fn system(&self) -> Result<Csr<T>> {
        let n = self.lengths.len() + self.beyond.len();
        let mut offsets = vec![0usize];
        for at in 0..n {
            offsets.push(offsets[at] + self.lengths.get(at).copied().unwrap_or(0));
        }
        let columns: Vec<u32> = self.columns.iter().map(|&global| self.place(global)).collect();
        Csr::from_csr(n, n, &offsets, &columns, &self.values)
    }

    /// The error with global row indices in place of local ones.
    pub(super) fn with_global_rows(&self, error: Error) -> Error {
        let global = |row: usize| self.global(row as u32) as usize;
        match error {
            Error::NotPositive { what, row, pivot } => Error::NotPositive { what, row: global(row), pivot },
            Error::SingularLocal { what, at, unknown } => {
                Error::SingularLocal { what, at: global(at), unknown: global(unknown) }
            }
            error => error,
        }
    }
}

/// Sorts and removes duplicates.
fn distinct(columns: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut columns: Vec<u64> = columns.collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}
