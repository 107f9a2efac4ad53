//! SPAI of distributed matrices.

use super::assemble::RowDistribution;
use super::local::Local;
use super::matrix::RankMatrix;
use super::near::Near;
use crate::error::Result;
use crate::formats::Csr;
use crate::formats::pattern::Pattern;
use crate::host::Host;
use crate::numbers::Real;
use crate::preconditioners::spai;
use krysp_kernels::index::Offsets;
use krysp_solvers::{LinearOperator, Space, Wrapper};

/// [`Spai`](crate::Spai) of the whole matrix: a right approximate inverse `M` with the pattern of the matrix.
/// `M` is the same for any number of ranks, up to rounding.
///
/// A column of `M` needs columns of the matrix that other ranks own; they are fetched once.
///
/// ```no_run
/// use krysp::BiCgStab;
/// use krysp::ranks::{RankMatrix, RankSpai};
///
/// fn solve(a: &RankMatrix<f64>, b: &[f64]) -> krysp::Result<Vec<f64>> {
///     Ok(BiCgStab::new(a).preconditioner(RankSpai::new(a)?).rtol(1e-8).solve(b)?.x)
/// }
/// ```
pub struct RankSpai<T: Real, L: Local<T> = Host> {
    matrix: RankMatrix<T, L>,
}

impl<T: Real> RankSpai<T> {
    /// Computes `M` with the pattern of the matrix. Collective: all ranks call this.
    pub fn new(matrix: &RankMatrix<T>) -> Result<RankSpai<T>> {
        let (ranks, space) = (matrix.ranks(), matrix.domain());
        let (n, rows) = (space.len() as u64, RowDistribution::Given(space.bounds()));
        // Transpose the matrix: each rank then stores the columns whose indices are those of its rows, and
        // computes these columns of `M`.
        let columns = RankMatrix::from_entries(ranks, n, rows, &matrix.mirrored()?)?;
        let near = Near::new(&columns, |_, _| true)?;
        let inverse = near.system().and_then(|system| {
            let pattern = pattern(&near, &system)?;
            spai::on_pattern(&system, pattern).map_err(|error| near.with_global_rows(error))
        });
        let global = |place: usize| near.global(place as u32);
        let entries = ranks.all(inverse)?;
        let entries = entries.triplets().map(|(column, row, value)| (global(row), global(column), value));
        let entries: Vec<_> = entries.collect();
        Ok(RankSpai::of_matrix(RankMatrix::from_entries(ranks, n, rows, &entries)?))
    }

    /// Recomputes `M` for new values. Collective: all ranks call this.
    pub fn refresh(&mut self, matrix: &RankMatrix<T>) -> Result<()> {
        *self = RankSpai::new(matrix)?;
        Ok(())
    }
}

impl<T: Real, L: Local<T>> RankSpai<T, L> {
    pub(super) fn of_matrix(matrix: RankMatrix<T, L>) -> RankSpai<T, L> {
        RankSpai { matrix }
    }

    /// `M`
    pub fn matrix(&self) -> &RankMatrix<T, L> {
        &self.matrix
    }
}

/// The pattern of `M`, column by column: this rank's columns have the pattern of the matrix, all others are
/// empty.
fn pattern<T: Real>(near: &Near<T>, columns: &Csr<T>) -> Result<Pattern> {
    let own = near.own();
    let lengths =
        (0..columns.rows()).map(|at| if own.contains(&at) { columns.row_columns(at).len() } else { 0 });
    let members: Vec<u32> = own.clone().flat_map(|at| columns.row_columns(at).iter().copied()).collect();
    Pattern::sorted(Offsets::from_lengths(lengths), members, columns.cols())
}

impl<T: Real, L: Local<T>> Wrapper for RankSpai<T, L> {
    type Inner = RankMatrix<T, L>;

    fn inner(&self) -> &RankMatrix<T, L> {
        &self.matrix
    }
}
