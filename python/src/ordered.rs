//! A preconditioner for a matrix that was reordered.

use crate::matrix::Number;
use crate::solve::OnHost;
use krysp::solvers::{Result, check_spaces};
use krysp::{HostSpace, HostVector, LinearOperator, MultiVector, Space};

/// Applies an operator to vectors in another ordering than its own: permutes the input to the operator's ordering, and the
/// result back. An `M` from Python uses the ordering of the user's vectors, while an `Operator` may have reordered its matrix.
pub(crate) struct Ordered<'a, T: Number> {
    operator: OnHost<'a, T>,
    space: HostSpace<T>,
}

impl<'a, T: Number> Ordered<'a, T> {
    pub(crate) fn new(operator: OnHost<'a, T>, space: &HostSpace<T>) -> Self {
        Ordered { operator, space: space.clone() }
    }
}

impl<T: Number> LinearOperator for Ordered<'_, T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> Result<()> {
        check_spaces(self, x, y)?;
        let mut entries = vec![T::default(); self.space.len()];
        self.space.store(x, &mut entries)?;
        let own = self.operator.domain().vector(&entries)?;
        let mut image = self.operator.range().zeros()?;
        self.operator.apply(&own, &mut image)?;
        self.operator.range().store(&image, &mut entries)?;
        self.space.load(&entries, y)
    }

    fn apply_many(&self, x: &MultiVector<HostVector<T>>, y: &mut MultiVector<HostVector<T>>) -> Result<()> {
        let mut entries = vec![T::default(); self.space.len()];
        let mut own = vec![];
        for (x, y) in MultiVector::open_pairs(x, y)? {
            check_spaces(self, x, y)?;
            self.space.store(x, &mut entries)?;
            own.push(self.operator.domain().vector(&entries)?);
        }
        let own = MultiVector::from_columns(self.operator.domain(), own)?;
        let mut images = MultiVector::<HostVector<T>>::zeros(self.operator.range(), own.columns().len())?;
        self.operator.apply_many(&own, &mut images)?;
        for ((_, y), image) in MultiVector::open_pairs(x, y)?.zip(images.columns()) {
            self.operator.range().store(image, &mut entries)?;
            self.space.load(&entries, y)?;
        }
        Ok(())
    }
}
