//! Conversions to and from sprs.

use super::{short_offsets, wide_columns};
use crate::error::{Error, Result};
use crate::formats::{Csr, CsrRef, Index};
use crate::numbers::Real;
use ::sprs::{CsMat, CsMatBase, CsMatI, CsMatViewI, SpIndex};
use std::ops::Deref;

/// Reuses the arrays of a CSR matrix with 32-bit indices without a copy; with other indices, only the array of values.
impl<T, I, P> TryFrom<CsMatI<T, I, P>> for Csr<T>
where
    T: Real,
    I: SpIndex + Index,
    P: SpIndex + Index,
{
    type Error = Error;

    fn try_from(matrix: CsMatI<T, I, P>) -> Result<Csr<T>> {
        if !matrix.is_csr() || !matrix.indptr().is_proper() {
            return Csr::try_from(&matrix);
        }
        let cols = matrix.cols();
        let (offsets, columns, values) = matrix.into_raw_storage();
        Csr::from_sorted(cols, offsets, columns, values)
    }
}

/// Copies compressed rows or columns.
impl<T, I, P, PS, IS, DS> TryFrom<&CsMatBase<T, I, PS, IS, DS, P>> for Csr<T>
where
    T: Real,
    I: SpIndex + Index,
    P: SpIndex + Index,
    PS: Deref<Target = [P]>,
    IS: Deref<Target = [I]>,
    DS: Deref<Target = [T]>,
{
    type Error = Error;

    fn try_from(matrix: &CsMatBase<T, I, PS, IS, DS, P>) -> Result<Csr<T>> {
        let offsets = matrix.proper_indptr();
        let from = if matrix.is_csr() { Csr::from_csr } else { Csr::from_csc };
        from(matrix.rows(), matrix.cols(), &offsets, matrix.indices(), matrix.data())
    }
}

/// Borrows a CSR matrix.
impl<'a, T: Real> TryFrom<CsMatViewI<'a, T, u32>> for CsrRef<'a, T> {
    type Error = Error;

    fn try_from(view: CsMatViewI<'a, T, u32>) -> Result<CsrRef<'a, T>> {
        if !view.is_csr() {
            let why = "it holds compressed columns: copy it with `Csr::try_from`, or borrow its transpose";
            return Err(Error::Unsuitable { format: "a borrowed sprs matrix", why: why.into() });
        }
        let cols = view.cols();
        let (offsets, columns, values) = view.into_raw_storage();
        CsrRef::new(cols, offsets, columns, values)
    }
}

impl<T: Real> From<&Csr<T>> for CsMat<T> {
    fn from(csr: &Csr<T>) -> CsMat<T> {
        let shape = (csr.rows(), csr.cols());
        CsMatI::new(shape, csr.offsets(), wide_columns(csr), csr.entries().to_vec())
    }
}

impl<T: Real> TryFrom<&Csr<T>> for CsMatI<T, u32> {
    type Error = Error;

    fn try_from(csr: &Csr<T>) -> Result<CsMatI<T, u32>> {
        let offsets = short_offsets(csr, "a sprs matrix", u32::MAX as usize)?;
        let shape = (csr.rows(), csr.cols());
        Ok(CsMatI::new(shape, offsets, csr.columns().to_vec(), csr.entries().to_vec()))
    }
}
