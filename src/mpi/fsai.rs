//! FSAI over ranks.

use super::assemble::Rows;
use super::halo::Routes;
use super::matrix::RankMatrix;
use super::vector::{RankSpace, RankVector};
use crate::formats::pattern::Pattern;
use crate::preconditioners::fsai;
use crate::{Csr, Error, HostSpace, Real, Result};
use krysp_kernels::index::Offsets;
use krysp_solvers::{Composed, LinearOperator, Space};

/// [`Fsai`](crate::Fsai) of the whole matrix, on its own pattern: the same factors, to rounding, for any number of ranks.
///
/// A row of `G` needs rows of the matrix that other ranks have; those are fetched once. `G` and `Gᵀ` are matrices over ranks.
///
/// ```no_run
/// use krysp::Cg;
/// use krysp::mpi::{RankFsai, RankMatrix};
///
/// fn solve(a: &RankMatrix<f64>, b: &[f64]) -> krysp::Result<Vec<f64>> {
///     Ok(Cg::new(a).preconditioner(RankFsai::new(a)?).rtol(1e-8).solve(b)?.x)
/// }
/// ```
pub struct RankFsai<T: Real> {
    /// `Gᵀ` after `G`.
    product: Composed<RankMatrix<T>, RankMatrix<T>>,
}

impl<T: Real> RankFsai<T> {
    /// On the lower triangle of the matrix's own pattern. Only that triangle is read. All ranks call this.
    pub fn new(matrix: &RankMatrix<T>) -> Result<RankFsai<T>> {
        let (ranks, space) = (matrix.ranks(), matrix.domain());
        let near = Near::new(matrix)?;
        let lower = near.system().and_then(|(system, pattern)| {
            let [domain, range] = [pattern.cols(), pattern.rows()].map(HostSpace::new);
            fsai::factor(&system, pattern, domain, range).map_err(|error| near.renamed(error))
        });
        let lower = ranks.all(lower)?;
        let name = |&place: &u32| near.name(place);
        let columns: Vec<u64> = lower.columns().iter().map(name).collect();
        let offsets: Vec<usize> = lower.offsets().to_vec();
        let first = space.rows().start;
        let entries = lower
            .triplets()
            .map(|(row, column, value)| (near.name(column as u32), first + row as u64, value));
        let entries: Vec<_> = entries.collect();
        let g = RankMatrix::from_rows(ranks, &offsets, &columns, lower.entries())?;
        let rows = Rows::Given(space.bounds());
        let transposed = RankMatrix::from_entries(ranks, space.len() as u64, rows, &entries)?;
        Ok(RankFsai { product: Composed::new(transposed, g)? })
    }

    /// Takes new values from a matrix. All ranks call this.
    pub fn refresh(&mut self, matrix: &RankMatrix<T>) -> Result<()> {
        *self = RankFsai::new(matrix)?;
        Ok(())
    }

    /// `G`
    pub fn lower(&self) -> &RankMatrix<T> {
        self.product.inner()
    }

    /// `Gᵀ`
    pub fn upper(&self) -> &RankMatrix<T> {
        self.product.outer()
    }
}

/// The lower triangle of own rows, and of the rows of other ranks that they read. Places are in the order of the rows: those
/// of others first.
struct Near<T: Real> {
    first: u64,
    ghosts: Vec<u64>,
    /// Rows of ghosts, then own rows: columns counted over all ranks, and values.
    lengths: Vec<usize>,
    columns: Vec<u64>,
    values: Vec<T>,
}

impl<T: Real> Near<T> {
    fn new(matrix: &RankMatrix<T>) -> Result<Near<T>> {
        let (ranks, space) = (matrix.ranks(), matrix.domain());
        let csr: Csr<T> = ranks.all(matrix.whole())?;
        let (first, own) = (space.rows().start, space.local_len());
        let ghosts: Vec<u64> = matrix.ghosts().iter().copied().filter(|&ghost| ghost < first).collect();
        let routes = Routes::new(ranks, space.bounds(), &ghosts)?;
        let lower = |row: usize| {
            let name = move |column: u32| match matrix.ghosts().get((column as usize).wrapping_sub(own)) {
                Some(&ghost) => ghost,
                None => first + u64::from(column),
            };
            let entries = csr.row_columns(row).iter().zip(csr.row_values(row));
            let named = entries.map(move |(&column, &value)| (name(column), value));
            named.filter(move |&(column, _)| column <= first + row as u64)
        };
        let lengths = routes.rows(|row| vec![lower(row).count() as u64])?;
        let mut columns: Vec<u64> = routes.rows(|row| lower(row).map(|(column, _)| column).collect())?;
        let mut values: Vec<T> = routes.rows(|row| lower(row).map(|(_, value)| value).collect())?;
        let mut lengths: Vec<usize> = lengths.into_iter().map(|length| length as usize).collect();
        for row in 0..own {
            let before = columns.len();
            for (column, value) in lower(row) {
                columns.push(column);
                values.push(value);
            }
            lengths.push(columns.len() - before);
        }
        Ok(Near { first, ghosts, lengths, columns, values })
    }

    fn name(&self, place: u32) -> u64 {
        let place = place as usize;
        self.ghosts.get(place).copied().unwrap_or_else(|| self.first + (place - self.ghosts.len()) as u64)
    }

    /// The place of a column; none for what own rows do not read.
    fn place(&self, name: u64) -> Option<u32> {
        match name.checked_sub(self.first) {
            Some(own) => Some((self.ghosts.len() as u64 + own) as u32),
            None => self.ghosts.binary_search(&name).ok().map(|at| at as u32),
        }
    }

    /// The matrix of all places, and where own rows of `G` have entries.
    fn system(&self) -> Result<(Csr<T>, Pattern)> {
        let (mut offsets, mut columns, mut values) = (vec![0usize], vec![], vec![]);
        let mut end = 0;
        for &length in &self.lengths {
            let row = end..end + length;
            end = row.end;
            for (&name, &value) in self.columns[row.clone()].iter().zip(&self.values[row]) {
                if let Some(place) = self.place(name) {
                    columns.push(place);
                    values.push(value);
                }
            }
            offsets.push(columns.len());
        }
        let n = self.lengths.len();
        let system = Csr::from_csr(n, n, &offsets, &columns, &values)?;
        let (mut lengths, mut columns) = (vec![], vec![]);
        for row in self.ghosts.len()..n {
            let before = columns.len();
            columns.extend_from_slice(system.row_columns(row));
            if columns[before..].last() != Some(&(row as u32)) {
                columns.push(row as u32);
            }
            lengths.push(columns.len() - before);
        }
        let pattern = Pattern::sorted(Offsets::from_lengths(lengths), columns, n)?;
        Ok((system, pattern))
    }

    /// An error that names the row as it is counted over all ranks.
    fn renamed(&self, error: Error) -> Error {
        match error {
            Error::NotPositive { what, row, pivot } => {
                Error::NotPositive { what, row: self.name(row as u32) as usize, pivot }
            }
            error => error,
        }
    }
}

impl<T: Real> LinearOperator for RankFsai<T> {
    type Vector = RankVector<T>;

    fn domain(&self) -> &RankSpace<T> {
        self.product.domain()
    }

    fn apply(&self, x: &RankVector<T>, y: &mut RankVector<T>) -> krysp_solvers::Result<()> {
        self.product.apply(x, y)
    }

    fn bytes(&self) -> usize {
        self.product.bytes()
    }
}
