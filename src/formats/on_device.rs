//! Formats in the memory of a GPU.

use super::{Format, Rounded, Source};
use crate::cuda::{Cuda, CudaMatrix, ToCuda};
use crate::{Csr, HostVector, Numbering, Origin, Real, Result, Storage};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cuda::{Device, Ordered, Product};
use krysp_solvers::LinearOperator;

/// A format that can be in the memory of a GPU, where its arrays may lie in another order than on the host.
pub trait OnDevice<T: Real>: Format<T> + ToCuda<OnCuda = CudaMatrix<T, Self>> + 'static {
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
    fn on(gpu: &Cuda, csr: &Csr<T>) -> Result<CudaMatrix<T, Self>> {
        Self::on_with(gpu, csr, Self::Options::default())
    }

    /// A matrix in this format on a GPU, converted there, with options.
    fn on_with(gpu: &Cuda, csr: &Csr<T>, options: Self::Options) -> Result<CudaMatrix<T, Self>> {
        CudaMatrix::new(gpu, csr, options)
    }

    /// `Self::on(gpu, &csr.renumbered(numbering)?)`, renumbered on the GPU too: the arrays of CSR cross the bus in the order
    /// in which they are, once, and the renumbered ones are not made in host memory before something asks for them, such as
    /// [`CudaMatrix::refresh`]. That takes values in the order of `csr.entries()`, not of the renumbered matrix.
    ///
    /// SELL-P gains by it, and Halo where nodes have one unknown. For other formats the host renumbers, and whatever has a
    /// numbering already or rows of more than 2048 entries.
    fn on_renumbered(gpu: &Cuda, csr: &Csr<T>, numbering: &Numbering) -> Result<CudaMatrix<T, Self>> {
        Self::on_renumbered_with(gpu, csr, numbering, Self::Options::default())
    }

    /// A matrix in this format on a GPU, renumbered and converted there, with options.
    fn on_renumbered_with(
        gpu: &Cuda,
        csr: &Csr<T>,
        numbering: &Numbering,
        options: Self::Options,
    ) -> Result<CudaMatrix<T, Self>> {
        if let Some(options) = Self::by_lengths(csr, &options)
            && let Some((source, ordered)) = csr.renumbered_on(gpu.device(), numbering)?
        {
            let renumbered = CudaMatrix::from_ordered(gpu, source, &ordered, options)?;
            return Ok(renumbered.renumbered_from(csr.source()));
        }
        let renumbered = Self::on_with(gpu, &csr.renumbered(numbering)?, options)?;
        Ok(renumbered.renumbered_from(csr.source()))
    }

    /// Options with which [`OnDevice::lay_out_from`] needs nothing of a matrix in host memory but the lengths of its rows,
    /// however these are numbered; none where it needs more.
    #[doc(hidden)]
    fn by_lengths(_: &Csr<T>, _: &Self::Options) -> Option<Self::Options> {
        None
    }
}

/// A copy of a format in host memory.
fn copied<T: Real, F: OnDevice<T> + Origin<T>>(format: &F, gpu: &Cuda) -> Result<CudaMatrix<T, F>> {
    F::on_with(gpu, &*format.in_host_memory()?, format.chosen())
}

macro_rules! to_cuda {
    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {$(
        crate::where_on_gpu!($memory,
            impl<T: Real> ToCuda for crate::$format<T> {
                type OnCuda = CudaMatrix<T, Self>;

                fn to(&self, gpu: &Cuda) -> Result<Self::OnCuda> {
                    copied(self, gpu)
                }
            }
        );
    )*};
}
crate::each_format!(to_cuda);

impl<T, F, V> ToCuda for Rounded<F, V>
where
    T: Real,
    F: OnDevice<T> + LinearOperator<Vector = HostVector<T>>,
    V: Storage<T>,
    Self: OnDevice<T>,
{
    type OnCuda = CudaMatrix<T, Self>;

    fn to(&self, gpu: &Cuda) -> Result<Self::OnCuda> {
        Self::on_with(gpu, &Format::to_csr(self), self.chosen())
    }
}

/// The values of a matrix on a device.
pub(super) fn values_of<T: Real>(ordered: &Ordered<T>) -> Result<Buffer<T>> {
    let mut values = Buffer::zeros(ordered.nnz());
    ordered.read(&mut values)?;
    Ok(values)
}
