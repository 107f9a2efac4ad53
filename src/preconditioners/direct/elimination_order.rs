//! Elimination orders, for the bench `direct` to write.

use super::fill::reducing;
use super::transpose::transposed;
use crate::error::Result;
use crate::formats::Csr;
use crate::ordering::dissection;
use crate::ordering::minimum_degree::{self, Both};

/// An ordering for Cholesky factorizations.
#[derive(Clone, Copy, Debug)]
pub enum EliminationOrder {
    /// Minimum degree.
    Degree,
    /// Nested dissection.
    Dissection,
    /// The one of both that factorizations choose.
    Chosen,
}

impl EliminationOrder {
    /// The orderings, in the sequence in which the bench writes them.
    pub const ALL: [EliminationOrder; 3] = [Self::Degree, Self::Dissection, Self::Chosen];
}

/// Computes an elimination order for the pattern of `A + Aᵀ`, where `a` is square: the variables, those eliminated first in front.
pub fn elimination_order(a: &Csr<f64>, ordering: EliminationOrder) -> Result<Vec<u32>> {
    let (n, columns) = (a.rows(), transposed(a)?);
    let both = Both::new([a, &columns]);
    match ordering {
        EliminationOrder::Degree => Ok(minimum_degree::of_symmetric(n, a.nnz(), &both)?.order),
        EliminationOrder::Dissection => dissection::of_symmetric(n, a.nnz(), &both),
        EliminationOrder::Chosen => Ok(reducing(n, a.nnz(), &both)?.order()),
    }
}
