//! A preconditioner for a singular system: `P M⁻¹`, where `P` removes the null space.

use super::AnyPreconditioner;
use super::running::Prepared;
use crate::error::Result;
use crate::formats::MatrixSource;
use crate::numbers::Real;
use crate::preconditioners::Refresh;
use krysp_solvers::{LinearOperator, MultiVector, NullSpace, SpaceOf, Vector};

/// The preconditioner `P M⁻¹`. Search directions are combinations of preconditioned residuals, so they stay orthogonal to the null space.
pub(super) struct Deflated<T: Real, V: Vector<Elem = T>> {
    pub(super) m: AnyPreconditioner<T, V>,
    pub(super) null_space: NullSpace<V>,
}

impl<T: Real, V: Vector<Elem = T>> Deflated<T, V> {
    /// The preconditioner `M⁻¹`, without the projection.
    pub(super) fn inner(&self) -> &dyn Prepared<T, V> {
        &*self.m
    }
}

impl<T: Real, V: Vector<Elem = T>> LinearOperator for Deflated<T, V> {
    type Vector = V;

    fn domain(&self) -> &SpaceOf<V> {
        self.m.domain()
    }

    fn range(&self) -> &SpaceOf<V> {
        self.m.range()
    }

    fn apply(&self, x: &V, y: &mut V) -> krysp_solvers::Result<()> {
        self.m.apply(x, y)?;
        self.null_space.remove(y);
        Ok(())
    }

    fn apply_many(&self, x: &MultiVector<V>, y: &mut MultiVector<V>) -> krysp_solvers::Result<()> {
        self.m.apply_many(x, y)?;
        MultiVector::open_pairs(x, y)?.for_each(|(_, y)| self.null_space.remove(y));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.m.bytes()
    }
}

/// Refreshes `M⁻¹`; the new matrix must have the same null space.
impl<T: Real, V: Vector<Elem = T>> Refresh<T> for Deflated<T, V> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        self.m.refresh(a)
    }
}
