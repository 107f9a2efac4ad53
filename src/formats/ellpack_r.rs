//! ELLPACK-R (Vázquez et al. 2011): ELLPACK with the length of every row, `rl`.
//!
//! Padding beyond the longest row of a slice is neither read nor multiplied. On a CPU the rows of a slice
//! fill a few registers; in the paper a slice has the rows of a warp.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::ell::{offer_of_uniform, uniform};
use super::slices::{Slices, stored_in_slices, streamed};
use super::{Analysis, Csr, Format, Offer, Offered, Source, Variant, row_operator};
use crate::error::Result;
use crate::numbers::{Real, Storage};
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::run::threads::map_rows;
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;

/// A matrix in ELLPACK-R.
#[derive(Clone, Debug)]
pub struct EllpackR<T: Real> {
    source: Source<T>,
    slices: Slices,
    lengths: Buffer<u32>,
    values: Buffer<T>,
}

saved!(impl[T: Real] EllpackR<T> { source, slices, lengths, values } where |read| {
    read.lengths.iter().all(|&length| read.slices.hold(length as usize))
        && read.source.fits(&read.kernel(&read.values))
});

impl<T: Real> EllpackR<T> {
    /// Converts a matrix. Returns an error if it would be mostly padding.
    pub fn new(csr: &Csr<T>) -> Result<EllpackR<T>> {
        let (slices, _) = uniform::<T>(Self::NAME, csr.pattern())?;
        let lengths: Vec<u32> = map_rows(csr.rows(), 1, &|row| csr.row_columns(row).len() as u32);
        let values = Buffer::zeros(slices.slots());
        let mut ell = EllpackR { source: csr.source().clone(), slices, lengths: lengths.into(), values };
        ell.fill(csr.entries());
        Ok(ell)
    }

    /// Length of every row without padding.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    fn kernel<'a, V: Storage<T>>(&'a self, values: &'a [V]) -> impl RowProduct<T> {
        self.slices.kernel(values, Some(&self.lengths))
    }

    fn array_bytes(&self) -> usize {
        self.slices.bytes() + size_of_val(&*self.lengths) + size_of_val(&*self.values)
    }
}

row_operator!(EllpackR);

impl<T: Real> Format<T> for EllpackR<T> {
    const NAME: &'static str = "ELLPACK-R";
    type Value = T;
    type Options = ();

    fn with(csr: &Csr<T>, (): ()) -> Result<Self> {
        EllpackR::new(csr)
    }

    stored_in_slices!();
}

impl<T: Real> Offered<T> for EllpackR<T> {
    fn variants() -> Vec<Variant> {
        vec![streamed(Self::NAME, 1.05)]
    }

    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<()>>> {
        offer_of_uniform(matrix, Self::variants()[0], size_of::<u32>())
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for EllpackR<T> {
    type Arrays<V: Storage<T>> = cuda::formats::sliced::Sliced<T, V>;

    fn chosen(&self) {}

    fn lay_out<V: Storage<T>>(csr: &Csr<T>, (): (), device: &cuda::Device) -> Result<Self::Arrays<V>> {
        let widths = cuda::formats::sliced::Widths::Lengths;
        Ok(Self::Arrays::<V>::new(device, csr.source().on_device(), csr.entries(), widths)?)
    }
}
