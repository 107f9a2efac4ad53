//! A preconditioner that each rank has for itself.

use super::local::Local;
use super::matrix::RankMatrix;
use super::scalar::RankScalar;
use super::vector::{RankSpace, RankVector};
use crate::preconditioners::{Origin, Refresh};
use crate::{Csr, Host, Real, Result};
use krysp_solvers::{LinearOperator, check_spaces};

/// Block Jacobi: each rank preconditions with its own rows and columns alone, by whatever serves there.
///
/// With [`Jacobi`](crate::Jacobi) in each block this is Jacobi for the whole matrix. With a factorisation or a multigrid in
/// each block iterations grow with the number of ranks, slowly where blocks are compact.
///
/// ```no_run
/// use krysp::mpi::{BlockJacobi, RankMatrix, Ranks};
/// use krysp::{Cg, Ic0};
///
/// fn solve(a: &RankMatrix<f64>, b: &[f64]) -> krysp::Result<Vec<f64>> {
///     let m = BlockJacobi::new(a, |block| Ic0::new(block))?;
///     Ok(Cg::new(a).preconditioner(m).rtol(1e-8).solve(b)?.x)
/// }
/// ```
#[derive(Debug)]
pub struct BlockJacobi<T: Real, M, L: Local<T> = Host> {
    space: RankSpace<T, L>,
    own: M,
}

impl<T: Real, L: Local<T>, M: LinearOperator<Vector = L::Vector>> BlockJacobi<T, M, L> {
    /// Makes this rank's preconditioner from this rank's diagonal block. Where the matrix is on GPUs it must be there too. All
    /// ranks call this.
    pub fn new(
        matrix: &RankMatrix<T, L>,
        make: impl FnOnce(&Csr<T>) -> Result<M>,
    ) -> Result<BlockJacobi<T, M, L>> {
        let made = matrix.own_block().in_host_memory().and_then(|block| {
            let own = make(&block)?;
            let space = matrix.domain().own();
            let fits = own.domain() == space && own.range() == space;
            let wrong = krysp_solvers::Error::Space { what: "the preconditioner", than: "the block" };
            if fits { Ok(own) } else { Err(wrong.into()) }
        });
        Ok(BlockJacobi { own: matrix.ranks().all(made)?, space: matrix.domain().clone() })
    }

    /// This rank's preconditioner.
    pub fn own(&self) -> &M {
        &self.own
    }

    /// Takes new values from a matrix. All ranks call this.
    pub fn refresh(&mut self, matrix: &RankMatrix<T, L>) -> Result<()>
    where
        M: Refresh<T>,
    {
        let refreshed = self.own.refresh(matrix.own_block());
        matrix.ranks().all(refreshed)
    }
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
    ) -> krysp_solvers::Result<RankScalar<T>> {
        check_spaces(self, x, y)?;
        let own = self.own.apply_dot(&x.own, &mut y.own)?;
        let [sum] = RankScalar::sums::<L, 1>(self.space.ranks(), [own]);
        Ok(sum)
    }

    fn axpy_apply_dot(
        &self,
        a: &RankScalar<T>,
        q: &RankVector<T, L>,
        r: &mut RankVector<T, L>,
        z: &mut RankVector<T, L>,
    ) -> krysp_solvers::Result<[RankScalar<T>; 2]> {
        check_spaces(self, q, r)?;
        check_spaces(self, r, z)?;
        let own = self.own.axpy_apply_dot(&a.local(), &q.own, &mut r.own, &mut z.own)?;
        Ok(RankScalar::sums::<L, 2>(self.space.ranks(), own))
    }

    fn bytes(&self) -> usize {
        self.own.bytes()
    }
}
