//! Our formats in device memory.

use super::Result;
use krysp::cuda::OnCuda;
use krysp::formats::{Crossing, OnDevice, Strategy};
use krysp::{
    Bsr, Coo, Csr, Cuda, CudaVector, Dia, Ehyb, Ell, EllpackR, Halo, Hyb, LinearOperator, Real, Sell, SymBsr,
    SymCsr,
};

pub type Operator<T> = dyn LinearOperator<Vector = CudaVector<T>>;

/// A conversion; none where the format refuses the matrix.
pub type Convert<T> = fn(&Csr<T>, &Cuda) -> Result<Option<Box<Operator<T>>>>;

/// A format's name, and the way into it.
pub struct Converter<T: Real> {
    pub name: &'static str,
    pub convert: Convert<T>,
}

fn converter<T: Real, F: OnDevice<T> + 'static>() -> Converter<T> {
    Converter { name: F::NAME, convert: |csr, gpu| suited(F::on(gpu, csr)) }
}

/// Nothing where the format refused the matrix.
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

/// Every format that is there.
pub fn converters<T: Real>() -> Vec<Converter<T>> {
    vec![
        Converter { name: "CSR", convert: |csr, gpu| suited(Csr::on_with(gpu, csr, Strategy::Classical)) },
        Converter {
            name: "CSR load-balance",
            convert: |csr, gpu| suited(Csr::on_with(gpu, csr, Strategy::LoadBalance)),
        },
        Converter {
            name: "CSR merge-path",
            convert: |csr, gpu| suited(Csr::on_with(gpu, csr, Strategy::MergePath)),
        },
        Converter {
            name: "CSR speculative",
            convert: |csr, gpu| suited(Csr::on_with(gpu, csr, Strategy::Speculative)),
        },
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
        Converter {
            name: "COO atomic",
            convert: |csr, gpu| suited(Coo::on_with(gpu, csr, Crossing::Atomic)),
        },
    ]
}
