//! Formats in the memory of a GPU.

use super::{Format, Source};
use crate::cuda::{Cuda, OnCuda};
use crate::{Csr, Numbering, Real, Result, Storage};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cuda::{Device, Ordered, Product};

/// A format that can be in the memory of a GPU, where its arrays may lie in another order than on the host.
pub trait OnDevice<T: Real>: Format<T> + 'static {
    /// What holds the matrix there, with values stored as `V`.
    type Arrays<V: Storage<T>>: Product<T>;

    /// What was chosen for this one, as far as it has a meaning on a GPU: with that it is moved there.
    fn chosen(&self) -> Self::Options;

    /// Lays a matrix out in the memory of a device; refuses an option that has no meaning there.
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
        let csr = Csr::from_source(source.clone(), values_of(ordered)?);
        Self::lay_out(&csr, options, ordered.device())
    }

    /// A matrix in this format on a GPU, converted there: no slot of the format is filled in host memory.
    fn on(gpu: &Cuda, csr: &Csr<T>) -> Result<OnCuda<T, Self>> {
        Self::on_with(gpu, csr, Self::Options::default())
    }

    /// A matrix in this format on a GPU, converted there, with options.
    fn on_with(gpu: &Cuda, csr: &Csr<T>, options: Self::Options) -> Result<OnCuda<T, Self>> {
        OnCuda::new(gpu, csr, options)
    }

    /// `Self::on(gpu, &csr.renumbered(numbering)?)`, renumbered on the GPU too: the arrays of CSR cross the bus in the order
    /// in which they are, once, and the renumbered ones are not made in host memory before something asks for them, such as
    /// [`OnCuda::refresh`].
    ///
    /// SELL-P gains by it, and Halo where nodes have one unknown. For other formats the host renumbers, and whatever has a
    /// numbering already or rows of more than 2048 entries.
    fn on_renumbered(gpu: &Cuda, csr: &Csr<T>, numbering: &Numbering) -> Result<OnCuda<T, Self>> {
        Self::on_renumbered_with(gpu, csr, numbering, Self::Options::default())
    }

    /// A matrix in this format on a GPU, renumbered and converted there, with options.
    fn on_renumbered_with(
        gpu: &Cuda,
        csr: &Csr<T>,
        numbering: &Numbering,
        options: Self::Options,
    ) -> Result<OnCuda<T, Self>> {
        if let Some(options) = Self::by_lengths(csr, &options)
            && let Some((source, ordered)) = csr.renumbered_on(gpu.device(), numbering)?
        {
            return OnCuda::from_ordered(gpu, source, &ordered, options);
        }
        Self::on_with(gpu, &csr.renumbered(numbering)?, options)
    }

    /// Options with which [`OnDevice::lay_out_from`] needs nothing of a matrix in host memory but the lengths of its rows,
    /// however these are numbered; none where it needs more.
    #[doc(hidden)]
    fn by_lengths(_: &Csr<T>, _: &Self::Options) -> Option<Self::Options> {
        None
    }

    /// This matrix on a GPU. What is in host memory stays as it is; [`OnDevice::on`] does without it.
    fn to(&self, gpu: &Cuda) -> Result<OnCuda<T, Self>> {
        Self::on_with(gpu, &self.to_csr(), self.chosen())
    }
}

/// The values of a matrix on a device.
pub(super) fn values_of<T: Real>(ordered: &Ordered<T>) -> Result<Buffer<T>> {
    let mut values = Buffer::zeros(ordered.nnz());
    ordered.read(&mut values)?;
    Ok(values)
}
