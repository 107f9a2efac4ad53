//! ISAI in device memory: two products.

use crate::device::{Cuda, ToCuda};
use crate::error::Result;
use crate::formats::{CudaMatrix, OnDevice, Sell};
use crate::numbers::Real;
use crate::preconditioners::Isai;
use krysp_solvers::Composed;

/// Copies both inverses. A refresh needs the factorization, which stays in host memory: refresh there, and
/// copy again. For another format copy each inverse separately, `Halo::on(&gpu, isai.lower())`, and join them
/// by [`Composed`].
///
/// ```no_run
/// use krysp::prelude::*;
/// use krysp::{Ic0, Isai, Sparsity, gallery};
///
/// let (csr, gpu) = (gallery::poisson::<f64>(&[8; 3])?, Cuda::new(0)?);
/// let isai = Isai::new(Ic0::new(&csr)?, Sparsity::Power(1))?.to(&gpu)?;
/// let solution = Cg::new(csr.to(&gpu)?).preconditioner(isai).solve(&vec![1.0; csr.rows()])?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<T: Real, P> ToCuda for Isai<T, P> {
    type OnCuda = Composed<CudaMatrix<T, Sell<T>>, CudaMatrix<T, Sell<T>>>;

    fn to(&self, gpu: &Cuda) -> Result<Self::OnCuda> {
        Ok(Composed::new(Sell::on(gpu, self.upper())?, Sell::on(gpu, self.lower())?)?)
    }
}
