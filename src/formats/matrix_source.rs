//! The data that a preconditioner reads from a matrix: pattern, entries and diagonal.

use super::{Csr, Format, Source};
#[cfg(feature = "cuda")]
use super::{CudaMatrix, OnDevice, pattern::Pattern};
#[cfg(feature = "cuda")]
use crate::device::Cuda;
use crate::error::{Error, Result};
use crate::numbers::Real;
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::cpu::simd::storage::widen;
#[cfg(feature = "cuda")]
use krysp_kernels::cuda::{Array, DeviceCsr, Product, preconditioners::diagonal::Places};
use std::any::Any;
use std::borrow::Cow;
#[cfg(feature = "cuda")]
use std::ops::Deref;
#[cfg(feature = "cuda")]
use std::sync::Arc;
use std::sync::LazyLock;

/// A matrix whose entries a preconditioner can read: every [`Format`], every operator on a GPU, and
/// [`Operator`](crate::Operator) of both. A [`LinearOperator`](crate::LinearOperator) has products only; a preconditioner
/// needs entries, wherever they are stored. One on a GPU reads the values of an operator there without
/// involving the host.
///
/// The trait is sealed: every [`Format`] that is `Clone` has it, also one of another crate, and nothing else can
/// implement it. An operator that is not a format is given to a preconditioner as a [`Csr`]. A preconditioner of
/// another crate reads the matrix by [`structure`](MatrixSource::structure),
/// [`in_host_memory`](MatrixSource::in_host_memory) and [`diagonal`](MatrixSource::diagonal).
pub trait MatrixSource<T: Real>: Sealed<T> {
    /// Pattern and spaces of the matrix, without its values.
    fn structure(&self) -> &Source<T>;

    /// The matrix in host memory: borrowed if it is stored as CSR there, otherwise copied.
    fn in_host_memory(&self) -> Result<Cow<'_, Csr<T>>>;

    /// Diagonal of the matrix in the order of its space, zero where no entry is stored.
    fn diagonal(&self) -> Result<Vec<T>>;

    /// The matrix on a GPU, in CSR order.
    #[cfg(feature = "cuda")]
    #[doc(hidden)]
    fn ordered(&self, gpu: &Cuda) -> Result<DeviceCsr<T>>;

    /// Like `ordered`, but borrows a matrix that is already stored in CSR order on this GPU instead of
    /// copying it.
    #[cfg(feature = "cuda")]
    #[doc(hidden)]
    fn borrowed_on(&self, gpu: &Cuda) -> Result<CowOnDevice<'_, T>> {
        Ok(CowOnDevice::Copied(self.ordered(gpu)?))
    }

    /// Copies the values of the matrix to one of the same pattern on a GPU.
    #[cfg(feature = "cuda")]
    #[doc(hidden)]
    fn copy_values_to(&self, gpu: &Cuda, to: &mut DeviceCsr<T>) -> Result<()>;

    /// Diagonal of the matrix on a GPU. `places` caches the positions of the diagonal entries; they are
    /// recomputed if the pattern differs.
    #[cfg(feature = "cuda")]
    #[doc(hidden)]
    fn diagonal_on(&self, gpu: &Cuda, _: &mut Option<DiagonalPlaces>) -> Result<Array<T>> {
        Ok(gpu.device().upload(&self.diagonal()?)?)
    }
}

/// Seals [`MatrixSource`]: the module has no public path.
pub(crate) mod sealed {
    pub trait Sealed<T> {}
}
use sealed::Sealed;

impl<T: Real, F: Format<T> + Clone + 'static> Sealed<T> for F {}
#[cfg(feature = "cuda")]
impl<T: Real, F: OnDevice<T>> Sealed<T> for CudaMatrix<T, F> {}

/// A matrix on a GPU in CSR order, borrowed or copied.
#[cfg(feature = "cuda")]
#[doc(hidden)]
#[derive(Debug)]
pub enum CowOnDevice<'a, T> {
    Borrowed(&'a DeviceCsr<T>),
    Copied(DeviceCsr<T>),
}

#[cfg(feature = "cuda")]
impl<T> Deref for CowOnDevice<'_, T> {
    type Target = DeviceCsr<T>;

    fn deref(&self) -> &DeviceCsr<T> {
        match self {
            CowOnDevice::Borrowed(ordered) => ordered,
            CowOnDevice::Copied(ordered) => ordered,
        }
    }
}

/// Positions of the diagonal entries on a GPU, for all matrices of one pattern.
#[cfg(feature = "cuda")]
#[doc(hidden)]
#[derive(Debug)]
pub struct DiagonalPlaces {
    pattern: Arc<Pattern>,
    places: Places,
}

/// Every format in host memory. The bound `Clone` keeps this from overlapping with the one for [`Operator`](crate::Operator),
/// which is not `Clone`.
impl<T: Real, F: Format<T> + Clone + 'static> MatrixSource<T> for F {
    fn structure(&self) -> &Source<T> {
        self.source()
    }

    fn in_host_memory(&self) -> Result<Cow<'_, Csr<T>>> {
        Ok(as_csr(self).map_or_else(|| Cow::Owned(self.to_csr()), Cow::Borrowed))
    }

    /// Reads the diagonal entries from the positions in the format's value array (slots) where they are
    /// stored.
    fn diagonal(&self) -> Result<Vec<T>> {
        let pattern = &self.source().pattern;
        // compute the lazy columns before a parallel loop reads them
        LazyLock::force(&pattern.columns);
        let entry = |row: usize| {
            let Ok(place) = pattern.row(row).binary_search(&(row as u32)) else { return T::zero() };
            let (own, mut value) = (pattern.offsets.at(row) + place, T::zero());
            self.slots(row, |entry, slot| {
                if entry == own {
                    value = widen(self.values()[slot]);
                }
            });
            value
        };
        Ok(map_rows(pattern.rows().min(pattern.cols()), 16, &entry))
    }

    #[cfg(feature = "cuda")]
    fn ordered(&self, gpu: &Cuda) -> Result<DeviceCsr<T>> {
        let mut ordered = DeviceCsr::zeros_of(gpu.device(), self.source().on_device())?;
        self.copy_values_to(gpu, &mut ordered)?;
        Ok(ordered)
    }

    #[cfg(feature = "cuda")]
    fn copy_values_to(&self, _: &Cuda, to: &mut DeviceCsr<T>) -> Result<()> {
        match as_csr(self) {
            Some(csr) => Ok(to.write(csr.entries())?),
            None => Ok(to.write(&self.entries_from(self.values()))?),
        }
    }
}

/// The matrix itself if it is stored as CSR, which saves a copy.
fn as_csr<T: Real, F: 'static>(format: &F) -> Option<&Csr<T>> {
    (format as &dyn Any).downcast_ref()
}

/// An operator on a GPU. Its values are copied back only if the host needs them.
#[cfg(feature = "cuda")]
impl<T: Real, F: OnDevice<T>> MatrixSource<T> for CudaMatrix<T, F> {
    fn structure(&self) -> &Source<T> {
        &self.source
    }

    fn in_host_memory(&self) -> Result<Cow<'_, Csr<T>>> {
        Ok(Cow::Owned(self.to_csr()?))
    }

    fn diagonal(&self) -> Result<Vec<T>> {
        let found = self.diagonal_on(krysp_solvers::LinearOperator::domain(self).gpu(), &mut None)?;
        let mut diagonal = vec![T::zero(); found.len()];
        found.read(&mut diagonal)?;
        Ok(diagonal)
    }

    fn ordered(&self, gpu: &Cuda) -> Result<DeviceCsr<T>> {
        self.check_gpu(gpu)?;
        let pattern = self.source.on_device();
        Ok(self.arrays.entries(pattern)?.with_columns(pattern)?)
    }

    fn borrowed_on(&self, gpu: &Cuda) -> Result<CowOnDevice<'_, T>> {
        self.check_gpu(gpu)?;
        self.arrays.in_order().map_or_else(
            || Ok(CowOnDevice::Copied(self.ordered(gpu)?)),
            |there| Ok(CowOnDevice::Borrowed(there)),
        )
    }

    fn copy_values_to(&self, gpu: &Cuda, to: &mut DeviceCsr<T>) -> Result<()> {
        self.check_gpu(gpu)?;
        Ok(self.arrays.copy_values_to(self.source.on_device(), to)?)
    }

    fn diagonal_on(&self, gpu: &Cuda, places: &mut Option<DiagonalPlaces>) -> Result<Array<T>> {
        self.check_gpu(gpu)?;
        let pattern = &self.source.pattern;
        let mut ordered = self.arrays.entries(pattern.on_device())?;
        let places = match places {
            Some(known) if Arc::ptr_eq(&known.pattern, pattern) => known,
            _ => {
                ordered = ordered.with_columns(pattern.on_device())?;
                let found = Places::find(&ordered)?;
                places.insert(DiagonalPlaces { pattern: pattern.clone(), places: found })
            }
        };
        Ok(places.places.diagonal(&ordered)?)
    }
}

#[cfg(feature = "cuda")]
impl<T: Real, F: OnDevice<T>> CudaMatrix<T, F> {
    fn check_gpu(&self, gpu: &Cuda) -> Result<()> {
        if krysp_solvers::LinearOperator::domain(self).gpu() == gpu { Ok(()) } else { Err(other_space()) }
    }
}

/// Refuses a matrix that is not square.
pub(crate) fn check_square<T: Real>(what: &'static str, a: &dyn MatrixSource<T>) -> Result<()> {
    let pattern = &a.structure().pattern;
    let (rows, cols) = (pattern.rows(), pattern.cols());
    if rows == cols { Ok(()) } else { Err(Error::NotSquare { what, rows, cols }) }
}

/// The error for a matrix of another space than that of a preconditioner.
pub(crate) fn other_space() -> Error {
    krysp_solvers::Error::Space { what: "the matrix", than: "the preconditioner" }.into()
}
