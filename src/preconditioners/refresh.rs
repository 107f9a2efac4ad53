//! Updates of preconditioners for new values.

use crate::error::Result;
use crate::formats::matrix_source::other_space;
#[cfg(feature = "cuda")]
use crate::formats::pattern::Pattern;
#[cfg(feature = "cuda")]
use crate::formats::pattern::check_pattern;
use crate::formats::{Csr, MatrixSource};
use crate::host::HostSpace;
use crate::numbers::Real;
use std::borrow::Cow;
#[cfg(feature = "cuda")]
use std::sync::Arc;

/// A preconditioner that can be updated for new values.
///
/// An operator is refreshed with new values, its preconditioner with the operator that stores them, in any
/// format and memory:
///
/// ```
/// use krysp::{Cg, Format, Jacobi, Refresh, Sell, gallery};
///
/// let csr = gallery::poisson::<f64>(&[8; 3])?;
/// let (a, jacobi) = (Sell::new(&csr)?, Jacobi::new(&csr)?);
/// let mut solver = Cg::new(a).preconditioner(jacobi);
/// let doubled: Vec<f64> = csr.entries().iter().map(|value| 2.0 * value).collect();
/// let (a, jacobi) = solver.operators_mut();
/// a.refresh(&doubled)?;
/// jacobi.refresh(a)?;
/// assert!(solver.solve(&vec![1.0; csr.rows()])?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Refresh<T: Real> {
    /// Recomputes the preconditioner for new values, from a matrix of the same space (length and order of
    /// unknowns) and, where the preconditioner was made for a pattern, of the same pattern. Everything that
    /// depends only on the pattern remains: levels, patterns, aggregates.
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()>;
}

/// The matrix in host memory. Refuses infinite entries and NaN, and reports the first: a factorization would
/// report only some invalid pivot.
pub(crate) fn finite<T: Real>(a: &dyn MatrixSource<T>) -> Result<Cow<'_, Csr<T>>> {
    let csr = a.in_host_memory()?;
    csr.check_finite()?;
    Ok(csr)
}

/// Refuses new values from another space than that of the preconditioner.
pub(crate) fn check_space<T: Real>(a: &dyn MatrixSource<T>, space: &HostSpace<T>) -> Result<()> {
    let structure = a.structure();
    if structure.domain() == space && structure.range() == space { Ok(()) } else { Err(other_space()) }
}

/// Refuses new values from a matrix of another space or pattern than those of a preconditioner.
#[cfg(feature = "cuda")]
pub(crate) fn check_alike<T: Real>(
    a: &dyn MatrixSource<T>,
    space: &HostSpace<T>,
    pattern: &Arc<Pattern>,
) -> Result<()> {
    check_space(a, space)?;
    check_pattern(pattern, &a.structure().pattern)
}
