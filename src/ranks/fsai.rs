//! FSAI of distributed matrices.

use super::assemble::RowDistribution;
use super::local::Local;
use super::matrix::RankMatrix;
use super::near::Near;
use crate::error::Result;
use crate::formats::Csr;
use crate::formats::pattern::Pattern;
use crate::host::{Host, HostSpace};
use crate::numbers::Real;
use crate::preconditioners::fsai;
use krysp_kernels::index::Offsets;
use krysp_solvers::{Composed, LinearOperator, Space, Wrapper};

/// [`Fsai`](crate::Fsai) of the whole matrix: the preconditioner `Gᵀ G`, where `G` has the pattern of the
/// lower triangle of the matrix. `G` is the same for any number of ranks, up to rounding.
///
/// A row of `G` needs rows of the matrix that other ranks own; they are fetched once. `G` and `Gᵀ` are
/// distributed matrices.
///
/// ```no_run
/// use krysp::Cg;
/// use krysp::ranks::{RankFsai, RankMatrix};
///
/// fn solve(a: &RankMatrix<f64>, b: &[f64]) -> krysp::Result<Vec<f64>> {
///     Ok(Cg::new(a).preconditioner(RankFsai::new(a)?).rtol(1e-8).solve(b)?.x)
/// }
/// ```
pub struct RankFsai<T: Real, L: Local<T> = Host> {
    /// `Gᵀ G`
    product: Composed<RankMatrix<T, L>, RankMatrix<T, L>>,
}

impl<T: Real> RankFsai<T> {
    /// Computes `G` with the pattern of the lower triangle of the matrix. Only that triangle is read.
    /// Collective: all ranks call this.
    pub fn new(matrix: &RankMatrix<T>) -> Result<RankFsai<T>> {
        let (ranks, space) = (matrix.ranks(), matrix.domain());
        let near = Near::new(matrix, |row, column| column <= row)?;
        let lower = near.system().and_then(|system| {
            let pattern = pattern(&near, &system)?;
            let [domain, range] = [pattern.cols(), pattern.rows()].map(HostSpace::new);
            fsai::factor(&system, pattern, domain, range).map_err(|error| near.with_global_rows(error))
        });
        let lower = ranks.all(lower)?;
        let global = |&place: &u32| near.global(place);
        let columns: Vec<u64> = lower.columns().iter().map(global).collect();
        let offsets: Vec<usize> = lower.offsets().to_vec();
        let first = space.rows().start;
        let entries = lower
            .triplets()
            .map(|(row, column, value)| (near.global(column as u32), first + row as u64, value));
        let entries: Vec<_> = entries.collect();
        let g = RankMatrix::from_rows(ranks, &offsets, &columns, lower.entries())?;
        let rows = RowDistribution::Given(space.bounds());
        let transposed = RankMatrix::from_entries(ranks, space.len() as u64, rows, &entries)?;
        RankFsai::of_factors(g, transposed)
    }

    /// Recomputes the factors for new values. Collective: all ranks call this.
    pub fn refresh(&mut self, matrix: &RankMatrix<T>) -> Result<()> {
        *self = RankFsai::new(matrix)?;
        Ok(())
    }
}

impl<T: Real, L: Local<T>> RankFsai<T, L> {
    pub(super) fn of_factors(lower: RankMatrix<T, L>, upper: RankMatrix<T, L>) -> Result<RankFsai<T, L>> {
        Ok(RankFsai { product: Composed::new(upper, lower)? })
    }

    /// `G`
    pub fn lower(&self) -> &RankMatrix<T, L> {
        self.product.inner()
    }

    /// `Gᵀ`
    pub fn upper(&self) -> &RankMatrix<T, L> {
        self.product.outer()
    }
}

/// Pattern of this rank's rows of `G`: that of the rows of `system`, which has the lower triangle of the
/// matrix, with the diagonal added as the last entry where it is missing.
fn pattern<T: Real>(near: &Near<T>, system: &Csr<T>) -> Result<Pattern> {
    let (mut lengths, mut columns) = (vec![], vec![]);
    for row in near.own() {
        let before = columns.len();
        columns.extend_from_slice(system.row_columns(row));
        if columns[before..].last() != Some(&(row as u32)) {
            columns.push(row as u32);
        }
        lengths.push(columns.len() - before);
    }
    Pattern::sorted(Offsets::from_lengths(lengths), columns, system.cols())
}

impl<T: Real, L: Local<T>> Wrapper for RankFsai<T, L> {
    type Inner = Composed<RankMatrix<T, L>, RankMatrix<T, L>>;

    fn inner(&self) -> &Self::Inner {
        &self.product
    }
}
