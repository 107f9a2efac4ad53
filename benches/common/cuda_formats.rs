//! The formats of this library in device memory.

use super::Result;
use super::cuda_peers::CudaElement;
use krysp::cuda::OnCuda;
use krysp::formats::{Crossing, OnDevice, Rounded, Strategy};
use krysp::{
    Bsr, Coo, Csr, Cuda, CudaVector, Dia, Ehyb, Ell, EllpackR, Halo, Hyb, LinearOperator, Real, Sell, SymBsr,
    SymCsr,
};

pub type Operator<T> = dyn LinearOperator<Vector = CudaVector<T>>;

/// A conversion to a format, or `None` if the format refuses the matrix.
pub type Convert<T> = fn(&Csr<T>, &Cuda) -> Result<Option<Box<Operator<T>>>>;

/// The name of a format, and the conversion.
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

/// `None` if the format refused the matrix.
fn suited<T: Real, F: OnDevice<T> + 'static>(
    converted: krysp::Result<OnCuda<T, F>>,
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

/// All formats.
pub fn converters<T: CudaElement>() -> Vec<Converter<T>> {
    let mut all = vec![
        Converter::new("CSR", |csr, gpu| suited(Csr::on_with(gpu, csr, Strategy::Classical))),
        Converter::new("CSR load-balance", |csr, gpu| suited(Csr::on_with(gpu, csr, Strategy::LoadBalance))),
        Converter::new("CSR merge-path", |csr, gpu| suited(Csr::on_with(gpu, csr, Strategy::MergePath))),
        Converter::new("CSR speculative", |csr, gpu| suited(Csr::on_with(gpu, csr, Strategy::Speculative))),
        converter::<T, Sell<T>>(),
        converter::<T, EllpackR<T>>(),
        converter::<T, Ell<T>>(),
        converter::<T, Dia<T>>(),
        converter::<T, Bsr<T>>(),
        converter::<T, Halo<T>>(),
        converter::<T, Ehyb<T>>(),
        converter::<T, SymCsr<T>>(),
        converter::<T, SymBsr<T>>(),
        converter::<T, Hyb<T>>(),
        converter::<T, Coo<T>>(),
        Converter::new("COO carried out", |csr, gpu| suited(Coo::on_with(gpu, csr, Crossing::CarriedOut))),
        Converter::new("COO slabs", |csr, gpu| suited(Coo::on_with(gpu, csr, Crossing::Slabs))),
    ];
    all.extend(T::rounded());
    all
}
