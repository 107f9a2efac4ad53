//! The formats of this library in device memory.

use super::Result;
use super::cuda_peers::CudaElement;
use krysp::cuda::CudaMatrix;
use krysp::formats::{CooOptions, Crossing, CsrOptions, OnDevice, Rounded, Strategy};
use krysp::{Bsr, Coo, Csr, Cuda, CudaVector, Dia, Format, Halo, LinearOperator, Real, Sell, SymBsr};

pub type Operator<T> = dyn LinearOperator<Vector = CudaVector<T>>;

/// A function that converts a matrix to a format on the GPU; it returns `None` if the format is unsuitable.
pub type Convert<T> = fn(&Csr<T>, &Cuda) -> Converted<T>;

/// A format: its name, and the function that converts to it.
pub struct Converter<T: Real> {
    pub name: &'static str,
    pub convert: Convert<T>,
    /// Whether values are stored in `f32` for vectors of `f64`.
    pub rounds: bool,
}

impl<T: Real> Converter<T> {
    fn new(name: &'static str, convert: Convert<T>) -> Self {
        Converter { name, convert, rounds: false }
    }
}

fn converter<T: Real, F: OnDevice<T> + 'static>() -> Converter<T> {
    Converter::new(F::NAME, |csr, gpu| suited(F::on(gpu, csr)))
}

/// The operator, or `None` if the format refused the matrix.
fn suited<T: Real, F: OnDevice<T> + 'static>(
    converted: krysp::Result<CudaMatrix<T, F>>,
) -> Result<Option<Box<Operator<T>>>> {
    match converted {
        Ok(operator) => Ok(Some(Box::new(operator))),
        Err(
            krysp::Error::Unsuitable { .. }
            | krysp::Error::NotSymmetric { .. }
            | krysp::Error::NotSquare { .. },
        ) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A format whose values are stored in `f32`.
fn rounding<F: OnDevice<f64> + 'static>(name: &'static str) -> Converter<f64> {
    Converter { name, convert: |csr, gpu| suited(Rounded::<F, f32>::on(gpu, csr)), rounds: true }
}

/// Formats whose values are stored in `f32` for vectors of `f64`.
pub fn rounded() -> Vec<Converter<f64>> {
    vec![
        rounding::<Csr<f64>>("CSR f32 values"),
        rounding::<Sell<f64>>("SELL-P f32 values"),
        rounding::<Dia<f64>>("DIA f32 values"),
        rounding::<Bsr<f64>>("BSR f32 values"),
        rounding::<Halo<f64>>("Halo f32 values"),
        rounding::<SymBsr<f64>>("symmetric BSR f32 values"),
    ]
}

/// Every format; CSR and COO with all algorithms.
pub fn converters<T: CudaElement>() -> Vec<Converter<T>> {
    let mut all = vec![];
    macro_rules! list {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            $(krysp::where_on_gpu!($memory, all.push(converter::<T, krysp::$format<T>>()););)*
        };
    }
    krysp::each_format!(list);
    // in the CSV files of measurements, the name of CSR says which strategy was used: omit CSR with the
    // automatically chosen one
    all.retain(|converter| converter.name != Csr::<T>::NAME);
    all.extend([
        Converter::new("CSR", |csr, gpu| shared(csr, gpu, Strategy::Classical)),
        Converter::new("CSR load-balance", |csr, gpu| shared(csr, gpu, Strategy::LoadBalance)),
        Converter::new("CSR merge-path", |csr, gpu| shared(csr, gpu, Strategy::MergePath)),
        Converter::new("CSR speculative", |csr, gpu| shared(csr, gpu, Strategy::Speculative)),
        Converter::new("COO carried out", |csr, gpu| crossing(csr, gpu, Crossing::CarriedOut)),
        Converter::new("COO slabs", |csr, gpu| crossing(csr, gpu, Crossing::Slabs)),
    ]);
    all.extend(T::rounded());
    all
}

type Converted<T> = Result<Option<Box<Operator<T>>>>;

/// Converts to CSR with a strategy.
fn shared<T: Real>(csr: &Csr<T>, gpu: &Cuda, strategy: Strategy) -> Converted<T> {
    suited(Csr::on_with(gpu, csr, CsrOptions { strategy }))
}

/// Converts to COO with an algorithm for rows that are divided among several warps.
fn crossing<T: Real>(csr: &Csr<T>, gpu: &Cuda, crossing: Crossing) -> Converted<T> {
    suited(Coo::on_with(gpu, csr, CooOptions { crossing }))
}
