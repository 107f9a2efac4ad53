//! A preconditioner in single precision within a solve in double precision.
//!
//! Preconditioners are approximations: rounding their values to 24 bits rarely costs iterations, and it
//! halves the bytes of values and of gathered vector entries. The residual, the solution and all scalars
//! remain in double precision.
//!
//! Memory, in addition to that of the wrapped operator: two vectors of `f32` for each of the vectors to which
//! it is applied together, one for the rounded `r` and one for the result.
//!
//! Values below 1e-38 underflow to zero in single precision: scale systems whose residuals become that small.

use super::several::{Pair, checked_pairs};
use super::{MatrixSource, Refresh};
use crate::error::Result;
use crate::host::{HostSpace, HostVector};
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_solvers::{LinearOperator, MultiVector, Space, with_workspace};
use std::sync::Mutex;

/// An operator on vectors of `f64` that computes in `f32`: `z = M r`, with `r` rounded first.
///
/// ```
/// use krysp::{Cg, Composed, Fsai, SinglePrecision, Sell, gallery};
///
/// let a = gallery::poisson::<f64>(&[8; 3])?;
/// let fsai = Fsai::new(&a)?;
/// let [upper, lower] = [fsai.upper(), fsai.lower()].map(|factor| factor.cast::<f32>());
/// let narrow = SinglePrecision::new(Composed::new(Sell::new(&upper)?, Sell::new(&lower)?)?)?;
/// let solution = Cg::new(&a).preconditioner(narrow).rtol(1e-12).solve(&vec![1.0; a.rows()])?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[doc(alias = "mixed precision")]
#[doc(alias = "f32")]
pub struct SinglePrecision<M> {
    inner: M,
    domain: HostSpace<f64>,
    range: HostSpace<f64>,
    /// Rounded vectors, and the operator's results.
    vectors: Mutex<[Vec<HostVector<f32>>; 2]>,
}

impl<M: LinearOperator<Vector = HostVector<f32>>> SinglePrecision<M> {
    /// Wraps an operator on vectors of `f32`.
    pub fn new(inner: M) -> Result<SinglePrecision<M>> {
        let (domain, range) = (inner.domain().cast(), inner.range().cast());
        let vectors = Mutex::new([vec![inner.domain().zeros()?], vec![inner.range().zeros()?]]);
        Ok(SinglePrecision { inner, domain, range, vectors })
    }

    /// The wrapped operator.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// The wrapped operator, for refreshing it. Its spaces must not change.
    pub fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }
}

/// Refreshes the wrapped operator from a rounded copy of the matrix.
impl<M: Refresh<f32>> Refresh<f64> for SinglePrecision<M> {
    fn refresh(&mut self, a: &dyn MatrixSource<f64>) -> Result<()> {
        self.inner.refresh(&a.in_host_memory()?.cast::<f32>())
    }
}

impl<M: LinearOperator<Vector = HostVector<f32>>> SinglePrecision<M> {
    fn apply_to(&self, pairs: &mut [Pair<'_, f64>]) -> krysp_solvers::Result<()> {
        with_workspace(&self.vectors, || Ok(Default::default()), |vectors| self.apply_with(vectors, pairs))
    }

    fn apply_with(
        &self,
        [from, to]: &mut [Vec<HostVector<f32>>; 2],
        pairs: &mut [Pair<'_, f64>],
    ) -> krysp_solvers::Result<()> {
        for (vectors, space) in [(&mut *from, self.inner.domain()), (&mut *to, self.inner.range())] {
            for _ in vectors.len()..pairs.len() {
                vectors.push(space.zeros()?);
            }
        }
        for (from, (x, _)) in from.iter_mut().zip(&*pairs) {
            let wide = x.as_slice();
            over_rows(wide.len(), 2, from.as_mut_slice(), &|rows, from: &mut [f32]| {
                from.iter_mut().zip(&wide[rows]).for_each(|(from, &x)| *from = x as f32);
            });
        }
        if let ([from, ..], [to, ..], 1) = (&from[..], &mut to[..], pairs.len()) {
            self.inner.apply(from, to)?;
        } else {
            let count = pairs.len();
            let x = MultiVector::from_columns(self.inner.domain(), from.drain(..count).collect())?;
            let mut y = MultiVector::from_columns(self.inner.range(), to.drain(..count).collect())?;
            self.inner.apply_many(&x, &mut y)?;
            drop(from.splice(..0, x.into_columns()));
            drop(to.splice(..0, y.into_columns()));
        }
        for ((_, y), to) in pairs.iter_mut().zip(&*to) {
            let narrow = to.as_slice();
            over_rows(narrow.len(), 2, y.as_mut_slice(), &|rows, y: &mut [f64]| {
                y.iter_mut().zip(&narrow[rows]).for_each(|(y, &to)| *y = f64::from(to));
            });
        }
        Ok(())
    }
}

impl<M: LinearOperator<Vector = HostVector<f32>>> LinearOperator for SinglePrecision<M> {
    type Vector = HostVector<f64>;

    fn domain(&self) -> &HostSpace<f64> {
        &self.domain
    }

    fn range(&self) -> &HostSpace<f64> {
        &self.range
    }

    fn apply(&self, x: &HostVector<f64>, y: &mut HostVector<f64>) -> krysp_solvers::Result<()> {
        krysp_solvers::check_spaces(self, x, y)?;
        self.apply_to(&mut [(x, y)])
    }

    fn apply_many(
        &self,
        x: &MultiVector<HostVector<f64>>,
        y: &mut MultiVector<HostVector<f64>>,
    ) -> krysp_solvers::Result<()> {
        self.apply_to(&mut checked_pairs(self, x, y)?)
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}
