//! Formats in the memory of a GPU.

use super::Format;
use crate::cuda::{Cuda, OnCuda};
use crate::{Real, Result};
use krysp_kernels::cuda::{self, Device, Pattern, Product};

/// A format that can move to a GPU, where its arrays may lie in another order than on the host.
pub trait OnDevice<T: Real + cuda::Real>: Format<T> {
    /// What holds the matrix there.
    type Arrays: Product<T>;

    /// The matrix as an operator in the memory of a GPU. What this holds is copied, and stays.
    fn to(&self, gpu: &Cuda) -> Result<OnCuda<T, Self>>
    where
        Self: Clone,
    {
        OnCuda::new(self.clone(), gpu)
    }

    /// A copy of the matrix in the memory of a device.
    fn upload(&self, device: &Device) -> Result<Self::Arrays>;

    /// Takes the values over that the matrix has now, after a [`Format::refresh`]: `arrays` were made by
    /// [`OnDevice::upload`] of this matrix, or of one of equal pattern and options.
    fn upload_values(&self, arrays: &mut Self::Arrays) -> Result<()>;

    /// Where the entries stand.
    #[doc(hidden)]
    fn pattern(&self) -> Pattern<'_> {
        let pattern = &self.source().pattern;
        Pattern::new(&pattern.offsets, &pattern.columns)
    }
}
