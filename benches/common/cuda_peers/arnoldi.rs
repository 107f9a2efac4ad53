//! Orthogonalizes a vector against others with cuBLAS, by classical Gram-Schmidt applied twice, as GMRES
//! does.

use super::Result;
use cudarc::cublas::CudaBlas;
use cudarc::cublas::sys::{
    cublasDgemv_v2, cublasDnrm2_v2, cublasOperation_t, cublasPointerMode_t, cublasSetPointerMode_v2,
    is_culib_present,
};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use std::sync::Arc;

/// The columns of a basis, and a vector to orthogonalize against them.
pub struct Arnoldi {
    blas: CudaBlas,
    stream: Arc<CudaStream>,
    n: usize,
    columns: CudaSlice<f64>,
    w: CudaSlice<f64>,
    /// In GPU memory: the coefficients `c`, then the numbers 0, 1, −1 and the norm.
    numbers: CudaSlice<f64>,
    most: usize,
}

impl Arnoldi {
    /// A basis of `most` columns, each with the same `n` entries.
    pub fn new(stream: &Arc<CudaStream>, column: &[f64], most: usize) -> Result<Arnoldi> {
        // SAFETY: only checks whether the library is present; every other call panics without it
        if !unsafe { is_culib_present() } {
            return Err("no cuBLAS on this machine (libcublas was not found)".into());
        }
        let blas = CudaBlas::new(stream.clone())?;
        let on_device = cublasPointerMode_t::CUBLAS_POINTER_MODE_DEVICE;
        // SAFETY: the handle lives
        unsafe { cublasSetPointerMode_v2(*blas.handle(), on_device) }.result()?;
        let mut numbers = vec![0.0; most];
        numbers.extend([0.0, 1.0, -1.0, 0.0]);
        Ok(Arnoldi {
            columns: stream.clone_htod(&column.repeat(most))?,
            w: stream.clone_htod(column)?,
            numbers: stream.clone_htod(&numbers)?,
            stream: stream.clone(),
            n: column.len(),
            blas,
            most,
        })
    }

    fn number(&self, at: usize) -> *mut f64 {
        (self.numbers.device_ptr(&self.stream).0 as *mut f64).wrapping_add(at)
    }

    /// `c ← V_kᵀ w` if `transposed`, else `w ← w − V_k c`, with the first `k` columns `V_k` of the basis.
    fn multiply(&self, transposed: bool, k: usize) -> Result<()> {
        let [zero, one, minus] = [0, 1, 2].map(|at| self.number(self.most + at));
        let (columns, w) = (self.columns.device_ptr(&self.stream).0, self.w.device_ptr(&self.stream).0);
        let (n, c) = (i32::try_from(self.n)?, self.number(0));
        let (operation, alpha, x, beta, y) = match transposed {
            true => (cublasOperation_t::CUBLAS_OP_T, one, w as *mut f64, zero, c),
            false => (cublasOperation_t::CUBLAS_OP_N, minus, c, one, w as *mut f64),
        };
        let (k, columns) = (i32::try_from(k)?, columns as *const f64);
        // SAFETY: n rows of k columns, vectors of n and k entries, and factors in device memory
        let status = unsafe {
            cublasDgemv_v2(*self.blas.handle(), operation, n, k, alpha, columns, n, x, 1, beta, y, 1)
        };
        Ok(status.result()?)
    }

    /// Queues two projections onto the first `k` columns, subtracts both, and computes the norm of the result.
    pub fn step(&mut self, k: usize) -> Result<()> {
        for _ in 0..2 {
            self.multiply(true, k)?;
            self.multiply(false, k)?;
        }
        let (n, w) = (i32::try_from(self.n)?, self.w.device_ptr(&self.stream).0 as *const f64);
        // SAFETY: a vector of n entries, and a number in device memory
        Ok(unsafe { cublasDnrm2_v2(*self.blas.handle(), n, w, 1, self.number(self.most + 3)) }.result()?)
    }
}
