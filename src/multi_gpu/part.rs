//! A GPU's rows of a matrix.

use super::PartReport;
use super::matrix::GpuPartMatrix;
use crate::device::{Cuda, CudaVector};
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_kernels::cuda::team::member::Member;
use krysp_solvers::{Diagonal, Element, LinearOperator, Wrapper};
use std::ops::Range;
use std::sync::Arc;

/// A GPU's rows of a matrix: an operator on its part of the vectors.
pub struct GpuPart<T: Real> {
    gpu: Cuda,
    member: Arc<Member>,
    rows: Range<usize>,
    matrix: GpuPartMatrix<T>,
    diagonal: Vec<T>,
}

impl<T: Real> GpuPart<T> {
    pub(super) fn new(
        gpu: Cuda,
        member: Arc<Member>,
        rows: Range<usize>,
        matrix: GpuPartMatrix<T>,
        diagonal: Vec<T>,
    ) -> Self {
        GpuPart { gpu, member, rows, matrix, diagonal }
    }

    pub(super) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    pub(super) fn report(&self) -> PartReport {
        self.matrix.report(self.gpu.name())
    }

    /// Seconds of a product with the diagonal block, which does not wait for other GPUs.
    pub(super) fn seconds(&self) -> Result<f64> {
        self.matrix.seconds()
    }

    pub(super) fn refresh(&mut self, csr: &Csr<T>, diagonal: &[T]) -> Result<()> {
        self.diagonal = diagonal[self.rows.clone()].to_vec();
        self.matrix.refresh(csr, &self.rows)
    }

    /// Runs `solve` while this GPU shares vectors with the others (as a member of their team). A GPU that has
    /// all rows needs no team.
    pub(super) fn run<R>(
        &self,
        solve: impl FnOnce(&Self) -> krysp_solvers::Result<R>,
    ) -> krysp_solvers::Result<R> {
        /// Leaves the team when dropped. If this thread has failed, its drop first releases the threads that
        /// wait for it.
        struct Leave<'p>(&'p Cuda, &'p Member, bool);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                if !self.2 {
                    self.1.report_failure();
                }
                self.1.end();
                self.0.device().join(None);
            }
        }
        if !self.matrix.is_whole() {
            self.gpu.device().join(Some(self.member.clone()));
        }
        let mut leave = Leave(&self.gpu, &self.member, false);
        let result = solve(self);
        leave.2 = result.is_ok();
        result
    }

    /// The GPU, with the CUDA stream that this matrix uses.
    pub fn gpu(&self) -> &Cuda {
        &self.gpu
    }

    /// Range of the GPU's rows, in the order of the matrix.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Index of this part.
    pub(super) fn place(&self) -> usize {
        self.member.place().0
    }

    /// Jacobi preconditioner: the inverse of this part of the diagonal.
    pub fn jacobi(&self) -> Result<Diagonal<CudaVector<T>>> {
        if let Some(row) = self.diagonal.iter().position(|&d| {
            let inverse = T::one() / d;
            !Element::is_finite(inverse) || inverse.is_zero()
        }) {
            return Err(Error::diagonal(self.rows.start + row, self.diagonal[row].to_f64()));
        }
        let inverse: Vec<T> = self.diagonal.iter().map(|&d| T::one() / d).collect();
        Ok(Diagonal::new(self.matrix.domain().vector(&inverse)?))
    }

    /// The diagonal block of this part. A preconditioner built from this block acts on the part only, like
    /// one block of block Jacobi. The rows of a node are never divided between parts, so that the small
    /// diagonal blocks of `Jacobi` are the same as for the whole matrix.
    ///
    /// ```no_run
    /// # use krysp::{Cg, Cuda, Jacobi, MultiGpu, ToCuda, gallery};
    /// # let (a, _) = gallery::elasticity::<f64>([9, 8, 8], 0.3)?;
    /// # let multi_gpu = MultiGpu::new(&[Cuda::new(0)?], &a)?;
    /// let solution = multi_gpu.solve(&vec![1.0; a.rows()], |part, b| {
    ///     let jacobi = Jacobi::blocks(&part.block()?, 3)?.to(part.gpu())?;
    ///     Cg::new(part).preconditioner(jacobi).solve(b)
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block(&self) -> Result<Csr<T>> {
        self.matrix.block()
    }
}

impl<T: Real> Wrapper for GpuPart<T> {
    type Inner = dyn LinearOperator<Vector = CudaVector<T>>;

    fn inner(&self) -> &Self::Inner {
        &self.matrix
    }
}
