//! Formats in GPU memory.

use super::{Format, Rounded, Source};
use crate::cuda::{Cuda, CudaMatrix, ToCuda};
use crate::{Csr, HostVector, MatrixSource, Permutation, Real, Result, Storage};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cuda::{Device, DeviceCsr, Product};
use krysp_solvers::LinearOperator;

/// A format that can be in GPU memory, where the layout of its arrays may differ from that on the host.
pub trait OnDevice<T: Real>: Format<T> + ToCuda<OnCuda = CudaMatrix<T, Self>> + 'static {
    /// Device arrays of the matrix, with values stored as `V`.
    type Arrays<V: Storage<T>>: Product<T>;

    /// Those options of this matrix that apply to a GPU, for moving the matrix to a GPU.
    fn chosen(&self) -> Self::Options;

    /// Builds the device arrays of a matrix. Returns an error for options that do not apply on a device.
    #[doc(hidden)]
    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: Self::Options,
        device: &Device,
    ) -> Result<Self::Arrays<V>>;

    /// Builds the device arrays of a matrix that is already in device memory as CSR.
    #[doc(hidden)]
    fn lay_out_from<V: Storage<T>>(
        source: &Source<T>,
        ordered: &DeviceCsr<T>,
        options: Self::Options,
    ) -> Result<Self::Arrays<V>> {
        // default implementation: through host memory
        let csr = Csr::from_source(source.clone(), values_of(ordered)?);
        Self::lay_out(&csr, options, ordered.device())
    }

    /// Converts a matrix to this format on a GPU; no slot of the format is filled in host memory.
    fn on(gpu: &Cuda, csr: &Csr<T>) -> Result<CudaMatrix<T, Self>> {
        Self::on_with(gpu, csr, Self::Options::default())
    }

    /// Converts a matrix to this format on a GPU, with options.
    fn on_with(gpu: &Cuda, csr: &Csr<T>, options: Self::Options) -> Result<CudaMatrix<T, Self>> {
        CudaMatrix::new(gpu, csr, options)
    }

    /// Equivalent to `Self::on(gpu, &csr.reordered(permutation)?)`, but reorders on the GPU too. The CSR
    /// arrays are transferred once in their original order, and the reordered ones are built in host memory
    /// only when something needs them, such as [`CudaMatrix::refresh`]. That method takes values in the order
    /// of `csr.entries()`, not of the reordered matrix.
    ///
    /// This is faster for SELL-P, and for Halo with one unknown per node. For other formats the host
    /// reorders, as it does for a matrix that was reordered before or has rows of more than 2048 entries.
    fn on_reordered(gpu: &Cuda, csr: &Csr<T>, permutation: &Permutation) -> Result<CudaMatrix<T, Self>> {
        Self::on_reordered_with(gpu, csr, permutation, Self::Options::default())
    }

    /// Reorders a matrix and converts it to this format on a GPU, with options.
    fn on_reordered_with(
        gpu: &Cuda,
        csr: &Csr<T>,
        permutation: &Permutation,
        options: Self::Options,
    ) -> Result<CudaMatrix<T, Self>> {
        if let Some(options) = Self::by_lengths(csr, &options)
            && let Some((source, ordered)) = csr.reordered_on(gpu.device(), permutation)?
        {
            let reordered = CudaMatrix::from_ordered(gpu, source, &ordered, options)?;
            return Ok(reordered.reordered_from(csr.source()));
        }
        let reordered = Self::on_with(gpu, &csr.reordered(permutation)?, options)?;
        Ok(reordered.reordered_from(csr.source()))
    }

    /// Options with which [`OnDevice::lay_out_from`] needs only the row lengths of a matrix from host memory,
    /// whatever the ordering of the matrix; `None` if it needs more.
    #[doc(hidden)]
    fn by_lengths(_: &Csr<T>, _: &Self::Options) -> Option<Self::Options> {
        None
    }
}

/// Copies a format from host memory to a GPU.
fn copied<T: Real, F: OnDevice<T> + MatrixSource<T>>(format: &F, gpu: &Cuda) -> Result<CudaMatrix<T, F>> {
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

/// Copies the values of a matrix from a device.
pub(super) fn values_of<T: Real>(ordered: &DeviceCsr<T>) -> Result<Buffer<T>> {
    let mut values = Buffer::zeros(ordered.nnz());
    ordered.read(&mut values)?;
    Ok(values)
}
