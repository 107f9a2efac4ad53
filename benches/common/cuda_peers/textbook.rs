//! Textbook conjugate gradients with Jacobi, on cuSPARSE and cuBLAS.

use super::Result;
use super::cusparse::{Cusparse, Kind, Product};
use cudarc::cublas::CudaBlas;
use cudarc::cublas::sys::{
    cublasDaxpy_v2, cublasDdot_v2, cublasDnrm2_v2, cublasDscal_v2, cublasPointerMode_t,
    cublasSetWorkspace_v2, is_culib_present,
};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{
    CudaFunction, CudaGraph, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, LaunchConfig, PushKernelArg,
};
use krysp::Csr;
use std::ffi::c_void;
use std::ptr::from_mut;
use std::rc::Rc;
use std::sync::Arc;

/// Kernels for what cuBLAS lacks: the preconditioner, and quotients of numbers in device memory.
const KERNELS: &str = r#"
extern "C" __global__ void jacobi(int n, const double *inverse, const double *r, double *z) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        z[i] = inverse[i] * r[i];
}

// numbers: rho, sigma, alpha, -alpha, rho', beta, |r|, 1
extern "C" __global__ void alpha(double *s) {
    s[2] = s[0] / s[1];
    s[3] = -s[2];
}

extern "C" __global__ void beta(double *s) {
    s[5] = s[4] / s[0];
    s[0] = s[4];
}
"#;

const RHO: usize = 0;
const SIGMA: usize = 1;
const ALPHA: usize = 2;
const MINUS_ALPHA: usize = 3;
const RHO_NEXT: usize = 4;
const BETA: usize = 5;
const NORM: usize = 6;
const ONE: usize = 7;

/// The number of iterations in a CUDA graph.
const RECORDED: usize = 10;

/// Bytes of workspace for cuBLAS, allocated in advance so that cuBLAS allocates nothing while a graph is recorded.
const WORKSPACE: usize = 32 << 20;

const THREADS: u32 = 256;
const MOST_BLOCKS: u32 = 1056;

/// Where the quotients `α` and `β` are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalars {
    /// Quotients on the host, which waits for every inner product.
    Host,
    /// Quotients on the device, by kernels of one thread.
    Device,
    /// Quotients on the device, with iterations recorded in a graph.
    Graph,
}

pub struct Textbook {
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    jacobi: CudaFunction,
    alpha: CudaFunction,
    beta: CudaFunction,
    /// `q ← A p`
    product: Product<f64>,
    b: CudaSlice<f64>,
    inverse: CudaSlice<f64>,
    x: CudaSlice<f64>,
    r: CudaSlice<f64>,
    z: CudaSlice<f64>,
    scalars: CudaSlice<f64>,
    /// The workspace of cuBLAS.
    _workspace: CudaSlice<u8>,
    graph: Option<CudaGraph>,
    n: i32,
}

impl Textbook {
    /// A solver with the matrix in a layout; `None` if the layout is not suitable.
    pub fn new(
        library: &Rc<Cusparse>,
        stream: &Arc<CudaStream>,
        kind: Kind,
        csr: &Csr<f64>,
        b: &[f64],
    ) -> Result<Option<Textbook>> {
        // SAFETY: only checks whether the library is present; every other call panics without it
        if !unsafe { is_culib_present() } {
            return Err("no cuBLAS on this machine (libcublas was not found)".into());
        }
        let Some(product) = Product::new(library, kind, csr, b)? else { return Ok(None) };
        let module = stream.context().load_module(cudarc::nvrtc::compile_ptx(KERNELS)?)?;
        let blas = CudaBlas::new(stream.clone())?;
        let mut workspace: CudaSlice<u8> = stream.alloc_zeros(WORKSPACE)?;
        let address = workspace.device_ptr_mut(stream).0 as *mut c_void;
        // SAFETY: the memory lives as long as the handle
        unsafe { cublasSetWorkspace_v2(*blas.handle(), address, WORKSPACE) }.result()?;
        let inverse: Vec<f64> = csr.diagonal_entries().iter().map(|entry| entry.recip()).collect();
        let mut scalars = [0.0; 8];
        scalars[ONE] = 1.0;
        Ok(Some(Textbook {
            jacobi: module.load_function("jacobi")?,
            alpha: module.load_function("alpha")?,
            beta: module.load_function("beta")?,
            blas,
            product,
            b: stream.clone_htod(b)?,
            inverse: stream.clone_htod(&inverse)?,
            x: stream.alloc_zeros(b.len())?,
            r: stream.alloc_zeros(b.len())?,
            z: stream.alloc_zeros(b.len())?,
            scalars: stream.clone_htod(&scalars)?,
            _workspace: workspace,
            graph: None,
            n: i32::try_from(b.len())?,
            stream: stream.clone(),
        }))
    }

    /// Runs `iterations` iterations, a multiple of ten, from `x = 0`, and waits for the end.
    pub fn solve(&mut self, scalars: Scalars, iterations: usize) -> Result<()> {
        assert!(iterations.is_multiple_of(RECORDED), "a graph holds {RECORDED} iterations");
        self.stream.memset_zeros(&mut self.x)?;
        self.stream.memcpy_dtod(&self.b, &mut self.r)?;
        self.precondition()?;
        self.stream.memcpy_dtod(&self.z, self.product.x_mut())?;
        let mode = match scalars {
            Scalars::Host => cublasPointerMode_t::CUBLAS_POINTER_MODE_HOST,
            Scalars::Device | Scalars::Graph => cublasPointerMode_t::CUBLAS_POINTER_MODE_DEVICE,
        };
        self.blas.set_pointer_mode(mode)?;
        match scalars {
            Scalars::Host => {
                let mut rho = 0.0;
                self.dot(Pair::Rz, from_mut(&mut rho))?;
                for _ in 0..iterations {
                    self.step_on_host(&mut rho)?;
                }
            }
            Scalars::Device => {
                self.dot(Pair::Rz, self.scalar(RHO))?;
                for _ in 0..iterations {
                    self.step_on_device()?;
                }
            }
            Scalars::Graph => {
                self.dot(Pair::Rz, self.scalar(RHO))?;
                let graph = match self.graph.take() {
                    Some(graph) => graph,
                    None => self.record()?,
                };
                for _ in 0..iterations / RECORDED {
                    graph.launch()?;
                }
                self.graph = Some(graph);
            }
        }
        Ok(self.stream.synchronize()?)
    }

    pub fn x(&self) -> Result<Vec<f64>> {
        let x = self.stream.clone_dtoh(&self.x)?;
        self.stream.synchronize()?;
        Ok(x)
    }

    fn record(&mut self) -> Result<CudaGraph> {
        self.stream.synchronize()?;
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let queued = (0..RECORDED).try_for_each(|_| self.step_on_device());
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0));
        queued?;
        Ok(graph?.ok_or("nothing was recorded")?)
    }

    fn step_on_host(&mut self, rho: &mut f64) -> Result<()> {
        let (mut sigma, mut rho_next, mut norm) = (0.0, 0.0, 0.0);
        self.product.queue()?; // q = A p
        self.dot(Pair::Pq, from_mut(&mut sigma))?;
        let (mut alpha, mut minus_alpha) = (*rho / sigma, -*rho / sigma);
        self.axpy(Update::X, from_mut(&mut alpha))?; // x = x + α p
        self.axpy(Update::R, from_mut(&mut minus_alpha))?; // r = r − α q
        self.precondition()?; // z = M⁻¹ r
        self.dot(Pair::Rz, from_mut(&mut rho_next))?;
        self.norm(from_mut(&mut norm))?; // for a stopping rule
        let (mut beta, mut one) = (rho_next / *rho, 1.0);
        self.scale(from_mut(&mut beta))?; // p = z + β p
        self.axpy(Update::P, from_mut(&mut one))?;
        *rho = rho_next;
        Ok(())
    }

    fn step_on_device(&mut self) -> Result<()> {
        self.product.queue()?;
        self.dot(Pair::Pq, self.scalar(SIGMA))?;
        self.quotient(&self.alpha)?;
        self.axpy(Update::X, self.scalar(ALPHA))?;
        self.axpy(Update::R, self.scalar(MINUS_ALPHA))?;
        self.precondition()?;
        self.dot(Pair::Rz, self.scalar(RHO_NEXT))?;
        self.norm(self.scalar(NORM))?;
        self.quotient(&self.beta)?;
        self.scale(self.scalar(BETA))?;
        self.axpy(Update::P, self.scalar(ONE))
    }

    /// The address of a number on the device.
    fn scalar(&self, index: usize) -> *mut f64 {
        let first = self.scalars.device_ptr(&self.stream).0 as *mut f64;
        first.wrapping_add(index)
    }

    fn address(&self, vector: &CudaSlice<f64>) -> *mut f64 {
        vector.device_ptr(&self.stream).0 as *mut f64
    }

    /// An inner product, written to host or device memory as the pointer mode requires.
    fn dot(&self, pair: Pair, to: *mut f64) -> Result<()> {
        let (x, y) = match pair {
            Pair::Pq => (self.product.x(), self.product.y()),
            Pair::Rz => (&self.r, &self.z),
        };
        let (x, y) = (self.address(x), self.address(y));
        // SAFETY: vectors of `n` entries; `to` points where the pointer mode requires
        Ok(unsafe { cublasDdot_v2(*self.blas.handle(), self.n, x, 1, y, 1, to) }.result()?)
    }

    fn norm(&self, to: *mut f64) -> Result<()> {
        // SAFETY: as in `dot`
        Ok(unsafe { cublasDnrm2_v2(*self.blas.handle(), self.n, self.address(&self.r), 1, to) }.result()?)
    }

    fn axpy(&self, update: Update, factor: *mut f64) -> Result<()> {
        let (x, y) = match update {
            Update::X => (self.product.x(), &self.x),
            Update::R => (self.product.y(), &self.r),
            Update::P => (&self.z, self.product.x()),
        };
        let (x, y) = (self.address(x), self.address(y));
        // SAFETY: vectors of `n` entries, not the same one; `factor` points where the pointer mode requires
        Ok(unsafe { cublasDaxpy_v2(*self.blas.handle(), self.n, factor, x, 1, y, 1) }.result()?)
    }

    /// `p ← β p`
    fn scale(&self, factor: *mut f64) -> Result<()> {
        let p = self.address(self.product.x());
        // SAFETY: as in `axpy`
        Ok(unsafe { cublasDscal_v2(*self.blas.handle(), self.n, factor, p, 1) }.result()?)
    }

    fn precondition(&mut self) -> Result<()> {
        let blocks = (self.n as u32).div_ceil(THREADS).clamp(1, MOST_BLOCKS);
        let config =
            LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.stream.launch_builder(&self.jacobi);
        launch.arg(&self.n).arg(&self.inverse).arg(&self.r).arg(&mut self.z);
        // SAFETY: the kernel's arguments, vectors of `n` entries
        unsafe { launch.launch(config) }?;
        Ok(())
    }

    fn quotient(&self, kernel: &CudaFunction) -> Result<()> {
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.stream.launch_builder(kernel);
        launch.arg(&self.scalars);
        // SAFETY: the kernel's argument, eight numbers that only this queue touches
        unsafe { launch.launch(config) }?;
        Ok(())
    }
}

/// Which inner product to compute.
#[derive(Clone, Copy)]
enum Pair {
    Pq,
    Rz,
}

/// Which vector to update.
#[derive(Clone, Copy)]
enum Update {
    /// `x ← x + α p`, where `α` is the factor.
    X,
    /// `r ← r + α q`
    R,
    /// `p ← p + α z`
    P,
}
