//! Conversions to and from faer, and operators for faer's solvers.

use super::{short_offsets, wide_columns};
use crate::error::{Error, Result};
use crate::formats::{Csr, CsrRef, Index};
use crate::host::HostVector;
use crate::numbers::Real;
use ::faer::dyn_stack::{MemStack, StackReq};
use ::faer::matrix_free::{LinOp, Precond};
use ::faer::sparse::{SparseColMatRef, SparseRowMat, SparseRowMatRef, SymbolicSparseRowMat};
use ::faer::traits::ComplexField;
use ::faer::{ColMut, ColRef, MatMut, MatRef, Par};
use krysp_solvers::{BasicVector, LinearOperator, Space};
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Removes the unused entries that faer allows between compressed rows or columns.
fn compact<I: Copy, T: Copy>(
    ranges: impl Iterator<Item = Range<usize>>,
    indices: &[I],
    values: &[T],
) -> (Vec<usize>, Vec<I>, Vec<T>) {
    let (mut offsets, mut kept, mut numbers) = (vec![0], vec![], vec![]);
    for range in ranges {
        kept.extend_from_slice(&indices[range.clone()]);
        numbers.extend_from_slice(&values[range]);
        offsets.push(kept.len());
    }
    (offsets, kept, numbers)
}

fn has_gaps<I: ::faer::Index>(offsets: &[I], lengths: Option<&[I]>, entries: usize) -> bool {
    let ends = (offsets.first().map(|o| o.zx()), offsets.last().map(|o| o.zx()));
    lengths.is_some() || ends != (Some(0), Some(entries))
}

impl<T: Real, I: ::faer::Index + Index> TryFrom<SparseRowMatRef<'_, I, T>> for Csr<T> {
    type Error = Error;

    fn try_from(matrix: SparseRowMatRef<'_, I, T>) -> Result<Csr<T>> {
        let (symbolic, values) = matrix.parts();
        let (rows, cols, offsets, lengths, columns) = symbolic.parts();
        if !has_gaps(offsets, lengths, columns.len()) {
            return Csr::from_csr(rows, cols, offsets, columns, values);
        }
        let (offsets, columns, values) =
            compact((0..rows).map(|row| symbolic.row_range(row)), columns, values);
        Csr::from_csr(rows, cols, &offsets, &columns, &values)
    }
}

impl<T: Real, I: ::faer::Index + Index> TryFrom<SparseColMatRef<'_, I, T>> for Csr<T> {
    type Error = Error;

    fn try_from(matrix: SparseColMatRef<'_, I, T>) -> Result<Csr<T>> {
        let (symbolic, values) = matrix.parts();
        let (rows, cols, offsets, lengths, indices) = symbolic.parts();
        if !has_gaps(offsets, lengths, indices.len()) {
            return Csr::from_csc(rows, cols, offsets, indices, values);
        }
        let (offsets, indices, values) =
            compact((0..cols).map(|col| symbolic.col_range(col)), indices, values);
        Csr::from_csc(rows, cols, &offsets, &indices, &values)
    }
}

/// Borrows a CSR matrix.
impl<'a, T: Real> TryFrom<SparseRowMatRef<'a, u32, T>> for CsrRef<'a, T> {
    type Error = Error;

    fn try_from(matrix: SparseRowMatRef<'a, u32, T>) -> Result<CsrRef<'a, T>> {
        let (symbolic, values) = matrix.parts();
        let (_, cols, offsets, lengths, columns) = symbolic.parts();
        if has_gaps(offsets, lengths, columns.len()) {
            let why = "its rows have gaps between them: copy it with `Csr::try_from`";
            return Err(Error::Unsuitable { format: "a borrowed faer matrix", why: why.into() });
        }
        CsrRef::new(cols, offsets, columns, values)
    }
}

impl<T: Real> From<&Csr<T>> for SparseRowMat<usize, T> {
    fn from(csr: &Csr<T>) -> Self {
        let (offsets, columns) = (csr.offsets(), wide_columns(csr));
        let symbolic = SymbolicSparseRowMat::new_checked(csr.rows(), csr.cols(), offsets, None, columns);
        SparseRowMat::new(symbolic, csr.entries().to_vec())
    }
}

impl<T: Real> TryFrom<&Csr<T>> for SparseRowMat<u32, T> {
    type Error = Error;

    fn try_from(csr: &Csr<T>) -> Result<Self> {
        // faer computes with signed indices
        let offsets = short_offsets(csr, "a faer matrix", i32::MAX as usize)?;
        let columns = csr.columns().to_vec();
        let symbolic = SymbolicSparseRowMat::new_checked(csr.rows(), csr.cols(), offsets, None, columns);
        Ok(SparseRowMat::new(symbolic, csr.entries().to_vec()))
    }
}

/// An operator or a preconditioner on host vectors, for use in faer's matrix-free solvers.
///
/// Columns are copied to vectors that are kept between products. faer's interface cannot return errors: if an
/// operator fails, the result is NaN. With faer 0.24 leave `initial_guess` at `MaybeNonZero`: with `Zero`,
/// faer's conjugate gradient method reads uninitialized memory.
pub struct AsFaer<A: LinearOperator> {
    operator: A,
    /// The vectors `x` and `y` of the last product, kept for the next.
    vectors: Mutex<Option<[A::Vector; 2]>>,
}

impl<A: LinearOperator> AsFaer<A> {
    /// Wraps an operator, owned or borrowed.
    pub fn new(operator: A) -> Self {
        AsFaer { operator, vectors: Mutex::new(None) }
    }
}

impl<A: LinearOperator> fmt::Debug for AsFaer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsFaer({} x {})", self.operator.range().len(), self.operator.domain().len())
    }
}

impl<T: Real, A: LinearOperator<Vector = HostVector<T>>> AsFaer<A> {
    /// Calls `product(x, y)` with the vectors of the last product, or with new ones if these do not fit or
    /// are in use.
    fn with_vectors(&self, product: impl FnOnce(&mut HostVector<T>, &mut HostVector<T>)) {
        let vectors = || self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let (domain, range) = (self.operator.domain(), self.operator.range());
        let kept = vectors().take().filter(|[x, y]| x.space() == domain && y.space() == range);
        let [mut x, mut y] = match kept {
            Some(vectors) => vectors,
            None => match (domain.zeros(), range.zeros()) {
                (Ok(x), Ok(y)) => [x, y],
                // cannot happen: an allocation in host memory either succeeds or aborts
                _ => return,
            },
        };
        product(&mut x, &mut y);
        *vectors() = Some([x, y]);
    }

    /// `y ← A x`, or NaN if the product fails.
    fn multiply(&self, from: ColRef<'_, T>, x: &mut HostVector<T>, y: &mut HostVector<T>) {
        let loaded = match from.try_as_col_major() {
            Some(column) => x.space().clone().load(column.as_slice(), x),
            None => x.space().clone().load(&from.iter().copied().collect::<Vec<T>>(), x),
        };
        if loaded.and_then(|()| self.operator.apply(x, y)).is_err() {
            y.as_mut_slice().fill(T::from_f64(f64::NAN));
        }
    }
}

fn store<T: Real>(y: &HostVector<T>, mut into: ColMut<'_, T>) {
    if let Some(column) = into.as_mut().try_as_col_major_mut()
        && y.space().store(y, column.as_slice_mut()).is_ok()
    {
        return;
    }
    let mut entries = vec![T::from_f64(f64::NAN); y.space().len()];
    if y.space().store(y, &mut entries).is_ok() {
        into.iter_mut().zip(&entries).for_each(|(to, &entry)| *to = entry);
    }
}

impl<T, A> LinOp<T> for AsFaer<A>
where
    T: Real + ComplexField,
    A: LinearOperator<Vector = HostVector<T>>,
{
    fn apply_scratch(&self, _: usize, _: Par) -> StackReq {
        StackReq::EMPTY
    }

    fn nrows(&self) -> usize {
        self.operator.range().len()
    }

    fn ncols(&self) -> usize {
        self.operator.domain().len()
    }

    fn apply(&self, mut out: MatMut<'_, T>, rhs: MatRef<'_, T>, _: Par, _: &mut MemStack) {
        self.with_vectors(|x, y| {
            for j in 0..rhs.ncols() {
                self.multiply(rhs.col(j), x, y);
                store(y, out.as_mut().col_mut(j));
            }
        });
    }

    fn conj_apply(&self, out: MatMut<'_, T>, rhs: MatRef<'_, T>, par: Par, stack: &mut MemStack) {
        self.apply(out, rhs, par, stack);
    }
}

impl<T, A> Precond<T> for AsFaer<A>
where
    T: Real + ComplexField,
    A: LinearOperator<Vector = HostVector<T>>,
{
    fn apply_in_place_scratch(&self, _: usize, _: Par) -> StackReq {
        StackReq::EMPTY
    }

    fn apply_in_place(&self, mut rhs: MatMut<'_, T>, _: Par, _: &mut MemStack) {
        self.with_vectors(|x, y| {
            for j in 0..rhs.ncols() {
                self.multiply(rhs.as_ref().col(j), x, y);
                store(y, rhs.as_mut().col_mut(j));
            }
        });
    }

    fn conj_apply_in_place(&self, rhs: MatMut<'_, T>, par: Par, stack: &mut MemStack) {
        self.apply_in_place(rhs, par, stack);
    }
}
