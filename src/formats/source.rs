//! Data that every format shares with the matrix it was converted from.

use super::pattern::Pattern;
use super::shared_rows::SharedRows;
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::saved::{InconsistentData, saved};
use krysp_kernels::cpu::formats::residual::Equations;
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_solvers::{MultiVector, Scalars, Space};
use std::ops::Range;
use std::sync::Arc;

/// Data that every format shares with the matrix it was converted from: the pattern, the spaces of `x` and
/// `y` (length and order of unknowns), and the distribution of rows over threads.
#[derive(Clone, Debug)]
pub struct Source<T> {
    pub(crate) pattern: Arc<Pattern>,
    rows: SharedRows<T>,
}

// the distribution of rows over threads is not saved but recomputed
saved!(impl[T: Real] Source<T> as |this| {
    pattern: Arc<Pattern> = &this.pattern,
    domain: HostSpace<T> = this.domain(),
    range: HostSpace<T> = this.range(),
} => {
    let fit = domain.len() == pattern.cols() && range.len() == pattern.rows();
    if fit { Ok(Source::new(pattern, domain, range)) } else { Err(InconsistentData) }
});

impl<T: Real> Source<T> {
    pub(crate) fn new(pattern: Arc<Pattern>, domain: HostSpace<T>, range: HostSpace<T>) -> Self {
        let rows = SharedRows::new(&*pattern.offsets, domain, range);
        Source { pattern, rows }
    }

    /// Returns whether the arrays of `kernel` have the shape of this matrix.
    pub fn fits(&self, kernel: &impl RowProduct<T>) -> bool {
        kernel.rows() == self.pattern.rows() && kernel.fits(self.pattern.cols())
    }

    /// Space of `x`.
    pub fn domain(&self) -> &HostSpace<T> {
        self.rows.domain()
    }

    /// Space of `y`.
    pub fn range(&self) -> &HostSpace<T> {
        self.rows.range()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.pattern.rows()
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.pattern.cols()
    }

    /// Range of the entries of a row, as indices in [`Csr::entries`](super::Csr::entries).
    pub fn row_entries(&self, row: usize) -> Range<usize> {
        self.pattern.offsets.range(row)
    }

    /// Columns of a row, ascending. The first call may compute the columns of all rows, on all threads: call it
    /// once before a loop on all threads does.
    pub fn row_columns(&self, row: usize) -> &[u32] {
        self.pattern.row(row)
    }

    /// Number of entries.
    pub fn nnz(&self) -> usize {
        self.pattern.entries()
    }

    /// Bytes of the pattern, which all formats of a matrix share; products do not read them.
    pub fn bytes(&self) -> usize {
        self.pattern.bytes()
    }

    /// The pattern in the form that kernels for devices accept.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_device(&self) -> krysp_kernels::cuda::Pattern<'_> {
        self.pattern.on_device()
    }

    /// `y ← A x`, on all threads, by the product of a format whose rows are computed independently.
    ///
    /// # Panics
    /// If the arrays of `kernel` do not have the shape of this matrix.
    pub fn product(
        &self,
        kernel: &impl RowProduct<T>,
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.rows.product(kernel, x, y)
    }

    /// `y ← A x; ⟨x, y⟩`, as [`Source::product`].
    pub fn product_dot(
        &self,
        kernel: &impl RowProduct<T>,
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<T> {
        self.rows.product_dot(kernel, x, y)
    }

    /// `Y ← A X`, as [`Source::product`].
    pub fn product_many(
        &self,
        kernel: &impl RowProduct<T>,
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        self.rows.product_many(kernel, x, y)
    }

    pub(crate) fn product_rows<const W: usize>(&self, kernel: &impl RowProduct<T>, x: &[T], y: &mut [T]) {
        self.rows.product_rows::<W>(kernel, x, y);
    }

    /// `Y ← A X`; returns `⟨x_j, y_j⟩` for each column `j`, as [`Source::product`].
    pub fn product_dot_many(
        &self,
        kernel: &impl RowProduct<T>,
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<Scalars<T, T>> {
        self.rows.product_dot_many(kernel, x, y)
    }

    /// `r ← b − A x` in twice the working precision, given the entries of the pattern.
    pub fn residual(
        &self,
        entries: &[T],
        b: &HostVector<T>,
        x: &HostVector<T>,
        r: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.rows.check_residual(b, x, r)?;
        let pattern = &self.pattern;
        Equations {
            offsets: (&*pattern.offsets).into(),
            columns: (&*pattern.columns).into(),
            values: entries,
            b: b.as_slice(),
            x: x.as_slice(),
        }
        .residual(r.as_mut_slice());
        Ok(())
    }

    /// Checks that the vectors are in the spaces of `x` and `y`. A product that does not use [`Source::product`]
    /// begins with it.
    pub fn check(&self, x: &HostVector<T>, y: &HostVector<T>) -> krysp_solvers::Result<()> {
        self.rows.check(x, y)
    }
}
