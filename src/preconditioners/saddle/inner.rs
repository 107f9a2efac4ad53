//! The solver of one block.

use super::super::{Amg, Cholesky, Ilut, Lu, Refresh};
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::host::HostVector;
use crate::numbers::Real;
use crate::saved::saved;
use krysp_solvers::LinearOperator;

/// Maximum number of rows for a complete factorization of a block (guess: up to this size, its setup and
/// application cost no more than those of multigrid).
pub(super) const COMPLETE: usize = 3000;

/// Solver of a block of a [`SaddlePoint`](crate::SaddlePoint).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockSolver {
    /// A complete factorization up to 3,000 rows; above, [`Amg`](crate::Amg) for a symmetric block with a positive diagonal
    /// and [`Ilut`](crate::Ilut) for others.
    #[default]
    Automatic,
    /// One cycle of [`Amg`](crate::Amg).
    Amg,
    /// [`Cholesky`](crate::Cholesky) for a symmetric positive definite block, [`Lu`](crate::Lu) for others.
    Complete,
    /// [`Ilut`](crate::Ilut), an incomplete factorization.
    Incomplete,
}

/// A solver of a block.
#[derive(Debug)]
pub(super) enum Inner<T: Real> {
    Amg(Box<Amg<T>>),
    Cholesky(Box<Cholesky<T>>),
    Lu(Box<Lu<T>>),
    Ilut(Box<Ilut<T>>),
}

impl<T: Real> Inner<T> {
    /// Sets up a solver. `symmetric` states that the block is symmetric with a positive diagonal.
    pub(super) fn new(csr: &Csr<T>, symmetric: bool, solver: BlockSolver) -> Result<Inner<T>> {
        let solver = match solver {
            BlockSolver::Automatic if csr.rows() <= COMPLETE => BlockSolver::Complete,
            BlockSolver::Automatic if symmetric => BlockSolver::Amg,
            BlockSolver::Automatic => BlockSolver::Incomplete,
            chosen => chosen,
        };
        Ok(match solver {
            BlockSolver::Amg => Inner::Amg(Box::new(Amg::new(csr)?)),
            BlockSolver::Complete if symmetric => match Cholesky::new(csr) {
                Ok(cholesky) => Inner::Cholesky(Box::new(cholesky)),
                Err(Error::NotPositive { .. }) => complete(csr)?,
                Err(error) => return Err(error),
            },
            BlockSolver::Complete => complete(csr)?,
            _ => Inner::Ilut(Box::new(Ilut::new(csr)?)),
        })
    }

    /// Returns whether the solver is guaranteed to be symmetric positive definite.
    pub(super) fn is_positive(&self) -> bool {
        matches!(self, Inner::Amg(_) | Inner::Cholesky(_))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Inner::Amg(_) => "Amg",
            Inner::Cholesky(_) => "Cholesky",
            Inner::Lu(_) => "Lu",
            Inner::Ilut(_) => "Ilut",
        }
    }

    fn operator(&self) -> &dyn LinearOperator<Vector = HostVector<T>> {
        match self {
            Inner::Amg(inner) => &**inner,
            Inner::Cholesky(inner) => &**inner,
            Inner::Lu(inner) => &**inner,
            Inner::Ilut(inner) => &**inner,
        }
    }

    pub(super) fn rows(&self) -> usize {
        krysp_solvers::Space::len(self.operator().domain())
    }

    pub(super) fn bytes(&self) -> usize {
        self.operator().bytes()
    }

    pub(super) fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.operator().apply(r, z)
    }

    pub(super) fn refresh(&mut self, csr: &Csr<T>) -> Result<()> {
        match self {
            Inner::Amg(inner) => inner.refresh(csr),
            Inner::Cholesky(inner) => inner.refresh(csr),
            Inner::Lu(inner) => inner.refresh(csr),
            Inner::Ilut(inner) => inner.refresh(csr),
        }
    }
}

/// Computes `L U`. If the block is singular, unknowns whose columns depend linearly on others are set to
/// zero.
fn complete<T: Real>(csr: &Csr<T>) -> Result<Inner<T>> {
    Ok(Inner::Lu(Box::new(match Lu::new(csr) {
        Err(Error::Singular { .. }) => Lu::tolerant(csr)?,
        factors => factors?,
    })))
}

saved!(impl[T: Real] enum Inner<T> { Amg { 0: inner }, Cholesky { 0: inner }, Lu { 0: inner }, Ilut { 0: inner } });
