//! Where preconditioners that are built on a GPU take their matrix from.

use crate::cuda::{Cuda, OnCuda};
use crate::formats::derived::check_pattern;
use crate::formats::pattern::Pattern;
use crate::formats::{Format, OnDevice, Source};
use crate::{Csr, Error, HostSpace, Real, Result};
use krysp_kernels::cuda::{Ordered, Product};
use krysp_solvers::LinearOperator;
use std::borrow::Cow;
use std::sync::Arc;

/// A matrix that a preconditioner is built from on a GPU: one in host memory, which crosses the bus for it, or an operator on
/// that GPU, with the values that it has there.
pub trait Origin<T: Real> {
    /// Its pattern and spaces.
    #[doc(hidden)]
    fn source(&self) -> &Source<T>;

    /// The matrix on a GPU, row by row.
    #[doc(hidden)]
    fn ordered(&self, gpu: &Cuda) -> Result<Ordered<T>>;

    /// Its values, for one of the same pattern on a GPU.
    #[doc(hidden)]
    fn give_values(&self, gpu: &Cuda, to: &mut Ordered<T>) -> Result<()>;

    /// The matrix in host memory.
    #[doc(hidden)]
    fn in_host_memory(&self) -> Result<Cow<'_, Csr<T>>>;
}

impl<T: Real> Origin<T> for Csr<T> {
    fn source(&self) -> &Source<T> {
        Format::source(self)
    }

    fn ordered(&self, gpu: &Cuda) -> Result<Ordered<T>> {
        let mut ordered = Ordered::zeros_of(gpu.device(), Format::source(self).on_device())?;
        ordered.write(self.entries())?;
        Ok(ordered)
    }

    fn give_values(&self, _: &Cuda, to: &mut Ordered<T>) -> Result<()> {
        Ok(to.write(self.entries())?)
    }

    fn in_host_memory(&self) -> Result<Cow<'_, Csr<T>>> {
        Ok(Cow::Borrowed(self))
    }
}

impl<T: Real, F: OnDevice<T>> Origin<T> for OnCuda<T, F> {
    fn source(&self) -> &Source<T> {
        &self.source
    }

    fn ordered(&self, gpu: &Cuda) -> Result<Ordered<T>> {
        self.check_gpu(gpu)?;
        let pattern = self.source.on_device();
        Ok(self.arrays.entries(pattern)?.with_columns(pattern)?)
    }

    fn give_values(&self, gpu: &Cuda, to: &mut Ordered<T>) -> Result<()> {
        self.check_gpu(gpu)?;
        Ok(self.arrays.give_to(self.source.on_device(), to)?)
    }

    fn in_host_memory(&self) -> Result<Cow<'_, Csr<T>>> {
        Ok(Cow::Owned(self.to_csr()?))
    }
}

impl<T: Real, F: OnDevice<T>> OnCuda<T, F> {
    fn check_gpu(&self, gpu: &Cuda) -> Result<()> {
        if self.domain().gpu() == gpu { Ok(()) } else { Err(other_space()) }
    }
}

/// Refuses a matrix that is not square.
pub(crate) fn check_square<T: Real>(what: &'static str, a: &impl Origin<T>) -> Result<()> {
    let (rows, cols) = (a.source().pattern.rows(), a.source().pattern.cols());
    if rows == cols { Ok(()) } else { Err(Error::NotSquare { what, rows, cols }) }
}

/// Refuses new values from a matrix of another space or pattern than those of a preconditioner.
pub(crate) fn check_alike<T: Real>(
    a: &impl Origin<T>,
    domain: &HostSpace<T>,
    pattern: &Arc<Pattern>,
) -> Result<()> {
    if a.source().domain() != domain {
        return Err(other_space());
    }
    check_pattern(pattern, &a.source().pattern)
}

fn other_space() -> Error {
    krysp_solvers::Error::Space { what: "the matrix", than: "the preconditioner" }.into()
}
