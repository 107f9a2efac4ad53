//! The matrix of a distributed level in single precision.

use super::local::{Border, LocalSetup};
use crate::error::Result;
use crate::formats::Csr;
use crate::preconditioners::amg::stored::{expanded, rounded};
use crate::ranks::halo::Routes;
use crate::ranks::local::{OffDiagonal, RankMemory};
use crate::ranks::vector::{RankSpace, RankVector};
use krysp_solvers::{LinearOperator, Space, check_spaces};
use std::sync::{Mutex, PoisonError};

/// This rank's rows of a level: entries in own columns in the format of one process, and the others as in a
/// [`RankMatrix`](crate::ranks::RankMatrix).
pub(super) struct LevelMatrix<L: LocalSetup> {
    space: RankSpace<f32, L>,
    pub(super) inside: L::Stored,
    outside: Mutex<<L as RankMemory<f32>>::OffDiagonal>,
    /// Number of entries of this rank's rows.
    pub(super) entries: usize,
}

impl<L: LocalSetup> LevelMatrix<L> {
    /// Prepares products. Collective: all ranks call this.
    pub(super) fn new(
        space: RankSpace<f32, L>,
        local: &L,
        routes: &Routes,
        inside: L::Stored,
        ((nodes, outside), scale): (&Border, f64),
        entries: usize,
    ) -> Result<LevelMatrix<L>> {
        let size = outside.shape[0] as u32;
        let rows: Vec<u32> = nodes.iter().flat_map(|node| node * size..(node + 1) * size).collect();
        let border = || -> Result<_> {
            let whole = expanded(&outside.pattern, outside.shape)?;
            let offsets: Vec<usize> = (0..=rows.len()).map(|row| whole.offsets.at(row)).collect();
            let values = rounded(outside.view(), scale);
            Csr::from_csr(rows.len(), whole.cols(), &offsets, &whole.columns, &values)
        };
        let csr = routes.ranks().all(border())?;
        let outside = local.off_diagonal(routes, space.link(), space.local_len(), &rows, csr)?;
        Ok(LevelMatrix { space, inside, outside: Mutex::new(outside), entries })
    }

    /// Replaces the values of the entries in columns of ghosts.
    pub(super) fn refresh_outside(&mut self, (_, outside): &Border, scale: f64) -> Result<()> {
        let there = self.outside.get_mut().unwrap_or_else(PoisonError::into_inner);
        there.refresh(&rounded(outside.view(), scale))
    }
}

impl<L: LocalSetup> LinearOperator for LevelMatrix<L> {
    type Vector = RankVector<f32, L>;

    fn domain(&self) -> &RankSpace<f32, L> {
        &self.space
    }

    fn apply(&self, x: &RankVector<f32, L>, y: &mut RankVector<f32, L>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        let mut outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
        outside.send(x.own(), || self.inside.apply(x.own(), y.own_mut()))?;
        outside.add(x.own(), y.own_mut())
    }

    fn bytes(&self) -> usize {
        self.inside.bytes() + self.outside.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }
}
