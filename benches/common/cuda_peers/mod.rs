//! NVIDIA's libraries, used directly. Of the benches for GPUs, only the files of this folder call foreign functions.

#![allow(unsafe_code, reason = "cuSPARSE and cuBLAS are C; `cudarc` declares their functions and no more")]

pub mod arnoldi;
pub mod cusparse;
mod layouts;
pub mod textbook;

use super::Result;
use super::contestant::Element;
use super::cuda_formats::{self, Converter};
use cudarc::cusparse::sys::cudaDataType;
use cudarc::driver::{CudaContext, CudaStream};
use krysp::Cuda;
use std::sync::Arc;

/// An element type that this library and NVIDIA's libraries support.
pub trait CudaElement: Element {
    const TYPE: cudaDataType;

    /// The formats of this library that store values in fewer bits.
    fn rounded() -> Vec<Converter<Self>> {
        vec![]
    }
}

impl CudaElement for f32 {
    const TYPE: cudaDataType = cudaDataType::CUDA_R_32F;
}

impl CudaElement for f64 {
    const TYPE: cudaDataType = cudaDataType::CUDA_R_64F;

    fn rounded() -> Vec<Converter<f64>> {
        cuda_formats::rounded()
    }
}

/// The stream of a GPU, for work of other libraries that alternates with that of this library. It must not outlive the GPU.
pub fn stream(gpu: &Cuda) -> Result<Arc<CudaStream>> {
    // both use the primary context of the device
    let context = CudaContext::new(0)?;
    // SAFETY: the stream belongs to that context; benches keep `gpu` as long as the stream
    Ok(unsafe { context.wrap_borrowed_stream(gpu.stream().cast()) })
}
