//! Formats in device memory, as operators.

use super::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::formats::OnDevice;
use crate::{Csr, Real, Result};
use krysp_kernels::cuda::Product;
use krysp_solvers::{Error, LinearOperator, check_spaces};

/// A matrix in device memory, made by [`OnDevice::to`] from a format in host memory.
///
/// The format stays in host memory beside it, for [`OnCuda::refresh`] and [`OnCuda::to_csr`].
#[derive(Debug)]
pub struct OnCuda<T: Real, F: OnDevice<T>> {
    format: F,
    arrays: F::Arrays,
    domain: CudaSpace<T>,
    range: CudaSpace<T>,
}

impl<T: Real, F: OnDevice<T>> OnCuda<T, F> {
    pub(crate) fn new(format: F, gpu: &Cuda) -> Result<OnCuda<T, F>> {
        let source = format.source();
        let (domain, range) = (CudaSpace::like(gpu, source.domain()), CudaSpace::like(gpu, source.range()));
        let arrays = format.upload(gpu.device())?;
        Ok(OnCuda { format, arrays, domain, range })
    }

    /// The format in host memory.
    pub fn format(&self) -> &F {
        &self.format
    }

    /// The matrix, with the values it has now.
    pub fn to_csr(&self) -> Csr<T> {
        self.format.to_csr()
    }

    /// New values for the same pattern, in the order in which the matrix was given.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.format.refresh(values)?;
        self.format.upload_values(&mut self.arrays)
    }
}

impl<T: Real, F: OnDevice<T>> LinearOperator for OnCuda<T, F> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.domain
    }

    fn range(&self) -> &CudaSpace<T> {
        &self.range
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        self.arrays.product(&x.entries, &mut y.entries).map_err(failed)
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        if self.domain != self.range {
            let (rows, columns) = (self.arrays.rows(), self.arrays.cols());
            return Err(Error::NotSquare { rows, columns });
        }
        check_spaces(self, x, y)?;
        Ok(CudaScalar(self.arrays.product_dot(&x.entries, &mut y.entries).map_err(failed)?))
    }

    fn bytes(&self) -> usize {
        self.arrays.bytes()
    }

    fn replays(&self) -> bool {
        true
    }
}
