//! Copies of formats on a GPU.

use super::{CudaMatrix, Format, MatrixSource, OnDevice, Rounded};
use crate::device::{Cuda, ToCuda};
use crate::error::Result;
use crate::host::HostVector;
use crate::numbers::{Real, Storage};
use krysp_solvers::LinearOperator;

/// Copies a format from host memory to a GPU.
fn copied<T: Real, F: OnDevice<T> + MatrixSource<T>>(format: &F, gpu: &Cuda) -> Result<CudaMatrix<T, F>> {
    F::on_with(gpu, &*format.in_host_memory()?, format.chosen())
}

macro_rules! to_cuda {
    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {$(
        crate::formats::where_on_gpu!($memory,
            impl<T: Real> ToCuda for crate::formats::$format<T> {
                type OnCuda = CudaMatrix<T, Self>;

                fn to(&self, gpu: &Cuda) -> Result<Self::OnCuda> {
                    copied(self, gpu)
                }
            }
        );
    )*};
}
crate::formats::each_format!(to_cuda);

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
