//! Block Jacobi with one block per rank.

use super::local::Local;
use super::matrix::RankMatrix;
use super::scalar::RankScalar;
use super::vector::{RankSpace, RankVector};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::Host;
use crate::numbers::Real;
use crate::preconditioners::{MatrixSource, Refresh};
use krysp_solvers::{BasicVector, Form, LinearOperator, Space, Vector, check_spaces};
use std::fmt;

/// Block Jacobi: each rank applies its own preconditioner, of any kind, which is built from its diagonal
/// block only. This needs no communication.
///
/// With [`Jacobi`](crate::Jacobi) in each block this is Jacobi of the whole matrix. With a factorization or a
/// multigrid method in each block, the number of iterations grows with the number of ranks, slowly if the
/// blocks are compact subdomains.
///
/// ```no_run
/// use krysp::ranks::{BlockJacobi, RankMatrix, Ranks};
/// use krysp::{Cg, Ic0};
///
/// fn solve(a: &RankMatrix<f64>, b: &[f64]) -> krysp::Result<Vec<f64>> {
///     let m = BlockJacobi::new(a, |block| Ic0::new(block))?;
///     Ok(Cg::new(a).preconditioner(m).rtol(1e-8).solve(b)?.x)
/// }
/// ```
pub struct BlockJacobi<T: Real, M, L: Local<T> = Host> {
    space: RankSpace<T, L>,
    own: M,
    /// Copy of the preconditioner's diagonal, if the preconditioner is diagonal and the GPUs communicate peer
    /// to peer; a fused kernel uses it.
    diagonal: Option<RankVector<T, L>>,
}

impl<T: Real, M: fmt::Debug, L: Local<T>> fmt::Debug for BlockJacobi<T, M, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockJacobi")
            .field("space", &self.space)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

impl<T: Real, L: Local<T>, M: LinearOperator<Vector = L::Vector>> BlockJacobi<T, M, L> {
    /// Builds this rank's preconditioner from its diagonal block, by `make`. If the matrix is on GPUs, the
    /// preconditioner must be, too. Collective: all ranks call this.
    pub fn new(
        matrix: &RankMatrix<T, L>,
        make: impl FnOnce(&Csr<T>) -> Result<M>,
    ) -> Result<BlockJacobi<T, M, L>> {
        let made = matrix.diagonal_block().in_host_memory().and_then(|block| {
            let own = make(&block)?;
            let space = matrix.domain().own();
            let fits = own.domain() == space && own.range() == space;
            let wrong = krysp_solvers::Error::Space { what: "the preconditioner", than: "the block" };
            if fits { Ok(own) } else { Err(wrong.into()) }
        });
        let (own, space) = (matrix.ranks().all(made)?, matrix.domain().clone());
        let diagonal = matrix.ranks().all(diagonal(&space, &own))?;
        Ok(BlockJacobi { space, own, diagonal })
    }

    /// This rank's preconditioner.
    pub fn own(&self) -> &M {
        &self.own
    }

    /// Refreshes each block from a matrix. Collective: all ranks call this.
    pub fn refresh(&mut self, matrix: &RankMatrix<T, L>) -> Result<()>
    where
        M: Refresh<T>,
    {
        let refreshed = self.own.refresh(matrix.diagonal_block()).and_then(|()| {
            self.diagonal = diagonal(&self.space, &self.own)?;
            Ok(())
        });
        matrix.ranks().all(refreshed)
    }
}

/// Returns a copy of the preconditioner's diagonal, if the preconditioner is diagonal and the GPUs
/// communicate peer to peer.
fn diagonal<T: Real, L: Local<T>, M: LinearOperator<Vector = L::Vector>>(
    space: &RankSpace<T, L>,
    own: &M,
) -> Result<Option<RankVector<T, L>>> {
    let (Some(_), Form::Diagonal(d)) = (space.link(), own.form()) else { return Ok(None) };
    let mut copy = space.zeros()?;
    copy.own.copy_from(d);
    Ok(Some(copy))
}

impl<T: Real, L: Local<T>, M: LinearOperator<Vector = L::Vector>> LinearOperator for BlockJacobi<T, M, L> {
    type Vector = RankVector<T, L>;

    fn domain(&self) -> &RankSpace<T, L> {
        &self.space
    }

    fn apply(&self, x: &RankVector<T, L>, y: &mut RankVector<T, L>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        self.own.apply(&x.own, &mut y.own)
    }

    fn apply_dot(
        &self,
        x: &RankVector<T, L>,
        y: &mut RankVector<T, L>,
    ) -> krysp_solvers::Result<RankScalar<T, L>> {
        check_spaces(self, x, y)?;
        if self.space.link().is_some() {
            // with peer-to-peer access, `dot` adds over all ranks on the GPUs; `apply_dot` of this rank's
            // preconditioner would need a separate sum over the ranks on the hosts
            self.own.apply(&x.own, &mut y.own)?;
            return Ok(x.dot(y));
        }
        let own = self.own.apply_dot(&x.own, &mut y.own)?;
        let [sum] = RankScalar::sums(self.space.ranks(), [own]);
        Ok(sum)
    }

    fn axpy_apply_dot(
        &self,
        a: &RankScalar<T, L>,
        q: &RankVector<T, L>,
        r: &mut RankVector<T, L>,
        z: &mut RankVector<T, L>,
    ) -> krysp_solvers::Result<[RankScalar<T, L>; 2]> {
        check_spaces(self, q, r)?;
        check_spaces(self, r, z)?;
        if self.space.link().is_some() {
            r.axpy(a, q);
            self.own.apply(&r.own, &mut z.own)?;
            return Ok(r.dot_2(r, z));
        }
        let own = self.own.axpy_apply_dot(&a.local(), &q.own, &mut r.own, &mut z.own)?;
        Ok(RankScalar::sums(self.space.ranks(), own))
    }

    fn form(&self) -> Form<'_, RankVector<T, L>> {
        self.diagonal.as_ref().map_or(Form::General, Form::Diagonal)
    }

    fn bytes(&self) -> usize {
        self.own.bytes()
    }

    fn replays(&self) -> bool {
        self.own.replays()
    }
}
