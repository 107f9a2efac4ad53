//! Code shared by the strategies that divide entries, not rows, among threads.

use crate::cuda::device::error::Result;
use crate::cuda::device::{Array, Real, Storage};
use crate::cuda::matrix::device_csr::DeviceCsr;
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Product, Slots, check, check_square};
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::vector;
use std::fmt::Debug;

/// A CSR matrix that is multiplied with vectors of `T` by a strategy that divides entries among threads.
pub(crate) trait Strategic<T: Real>: Send + Sync + Debug {
    /// The type in which values are stored.
    type Value: Storage<T>;

    fn shape(&self) -> Shape;

    fn ordered(&self) -> &DeviceCsr<Self::Value>;

    fn ordered_mut(&mut self) -> &mut DeviceCsr<Self::Value>;

    /// `y ← A x`, for vectors of the lengths in `shape()` on the device of the matrix.
    fn multiply(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()>;

    /// Bytes of the matrix that a product reads.
    fn bytes(&self) -> usize {
        self.ordered().bytes()
    }
}

/// The products of such a matrix.
#[derive(Debug)]
pub(crate) struct ByEntries<S>(pub(crate) S);

impl<T: Real, S: Strategic<T>> Product<T> for ByEntries<S> {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(self.0.shape(), self.0.ordered().device(), x, y);
        self.0.multiply(x, y)
    }

    /// Computes the inner product in a separate launch, because several warps may contribute to one row.
    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(self.0.shape(), self.0.ordered().device(), x, y);
        self.0.multiply(x, y)?;
        Ok(vector::dot(x, y))
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let shape = self.0.shape();
        self.0.ordered_mut().fill(shape, pattern, values)
    }

    fn copy_values_to(&self, pattern: Pattern<'_>, ordered: &mut DeviceCsr<T>) -> Result<()> {
        ordered.check(self.0.shape(), pattern);
        self.0.ordered().copy_values_to(ordered)
    }

    fn entries(&self, pattern: Pattern<'_>) -> Result<DeviceCsr<T>> {
        self.0.ordered().entries(self.0.shape(), pattern)
    }

    fn in_order(&self) -> Option<&DeviceCsr<T>> {
        self.0.ordered().in_order()
    }

    fn slots(&self) -> Vec<Slots> {
        vec![Slots::of::<T, S::Value>(&self.0.ordered().values)]
    }

    fn fill_from(&mut self, pattern: Pattern<'_>, ordered: &DeviceCsr<T>) -> Result<()> {
        ordered.check(self.0.shape(), pattern);
        self.0.ordered_mut().take(ordered)
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
