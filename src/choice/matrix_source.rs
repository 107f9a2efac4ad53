//! [`MatrixSource`] of an [`Operator`]: that of the format which stores the matrix.

use super::Operator;
#[cfg(feature = "cuda")]
use crate::device::Cuda;
use crate::error::Result;
use crate::formats::matrix_source::sealed::Sealed;
#[cfg(feature = "cuda")]
use crate::formats::matrix_source::{CowOnDevice, DiagonalPlaces};
use crate::formats::{Csr, MatrixSource, Source};
use crate::numbers::Real;
#[cfg(feature = "cuda")]
use krysp_kernels::cuda::{Array, DeviceCsr};
use krysp_solvers::Vector;
use std::borrow::Cow;

impl<T: Real, V: Vector<Elem = T>> Sealed<T> for Operator<V> {}

/// An operator in the format and the memory that were chosen for it.
impl<T: Real, V: Vector<Elem = T>> MatrixSource<T> for Operator<V> {
    fn structure(&self) -> &Source<T> {
        self.origin().structure()
    }

    fn in_host_memory(&self) -> Result<Cow<'_, Csr<T>>> {
        self.origin().in_host_memory()
    }

    fn diagonal(&self) -> Result<Vec<T>> {
        self.origin().diagonal()
    }

    #[cfg(feature = "cuda")]
    fn ordered(&self, gpu: &Cuda) -> Result<DeviceCsr<T>> {
        self.origin().ordered(gpu)
    }

    #[cfg(feature = "cuda")]
    fn borrowed_on(&self, gpu: &Cuda) -> Result<CowOnDevice<'_, T>> {
        self.origin().borrowed_on(gpu)
    }

    #[cfg(feature = "cuda")]
    fn copy_values_to(&self, gpu: &Cuda, to: &mut DeviceCsr<T>) -> Result<()> {
        self.origin().copy_values_to(gpu, to)
    }

    #[cfg(feature = "cuda")]
    fn diagonal_on(&self, gpu: &Cuda, places: &mut Option<DiagonalPlaces>) -> Result<Array<T>> {
        self.origin().diagonal_on(gpu, places)
    }
}
