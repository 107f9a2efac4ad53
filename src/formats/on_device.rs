//! Formats in the memory of a GPU.

use super::{Format, Source};
use crate::cuda::{Cuda, OnCuda};
use crate::{Csr, Real, Result, Storage};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cuda::{self, Device, Ordered, Product};

/// A format that can be in the memory of a GPU, where its arrays may lie in another order than on the host.
pub trait OnDevice<T: Real + cuda::Real>: Format<T> {
    /// What holds the matrix there, with values stored as `V`.
    type Arrays<V: Storage<T>>: Product<T>;

    /// What one may choose.
    type Options;

    /// What is chosen where nothing is said.
    fn defaults() -> Self::Options;

    /// What was chosen for this one.
    fn chosen(&self) -> Self::Options;

    /// Lays a matrix out in the memory of a device.
    #[doc(hidden)]
    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: Self::Options,
        device: &Device,
    ) -> Result<Self::Arrays<V>>;

    /// Lays out a matrix that is in the memory of a device, row by row.
    #[doc(hidden)]
    fn lay_out_from<V: Storage<T>>(
        source: &Source<T>,
        ordered: &Ordered<T>,
        options: Self::Options,
    ) -> Result<Self::Arrays<V>> {
        // through host memory, where a format does not know better
        let mut values = Buffer::zeros(source.nnz());
        ordered.read(&mut values)?;
        Self::lay_out(&Csr::from_source(source.clone(), values), options, ordered.device())
    }

    /// A matrix in this format on a GPU, converted there: no slot of the format is filled in host memory.
    fn on(gpu: &Cuda, csr: &Csr<T>) -> Result<OnCuda<T, Self>> {
        Self::on_with(gpu, csr, Self::defaults())
    }

    /// The same with options.
    fn on_with(gpu: &Cuda, csr: &Csr<T>, options: Self::Options) -> Result<OnCuda<T, Self>> {
        OnCuda::new(gpu, csr, options)
    }

    /// This matrix on a GPU. What is in host memory stays as it is; [`OnDevice::on`] does without it.
    fn to(&self, gpu: &Cuda) -> Result<OnCuda<T, Self>> {
        Self::on_with(gpu, &self.to_csr(), self.chosen())
    }
}
