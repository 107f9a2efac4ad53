//! NVIDIA GPUs: vectors in device memory, and solves that stay there.
//!
//! ```no_run
//! use krysp::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (a, b) = (Csr::from_triplets(1, 1, &[(0, 0, 2.0)])?, [1.0]);
//! let gpu = Cuda::new(0)?;
//! let solution = Cg::new(a.to(&gpu)?).preconditioner(Jacobi::new(&a)?.to(&gpu)?).solve(&b)?;
//! # Ok(())
//! # }
//! ```
//!
//! No part of CUDA is needed to build this. Its libraries are loaded at run time: the driver, and the
//! run-time compiler (NVRTC), which compiles kernels for the GPU in use. Compiled kernels are cached in
//! `$KRYSP_CACHE`, or `~/.cache/krysp`.

mod streamed;

pub use crate::device::{
    Cuda, CudaBasis, CudaScalar, CudaSpace, CudaSteps, CudaVector, Error, Info, OnChip, OnCuda, ToCuda,
    compiler_version, look_for_compiler_in,
};
pub use crate::formats::CudaMatrix;
pub use streamed::{Streamed, StreamingTraffic};
