//! ELLPACK (ELL): every row is padded to the length of the longest.
//!
//! No row offsets and no row lengths are stored. The format is best if all rows have nearly the same length.
//! Slots (entries and padding) are stored slice by slice (the rows of a slice fill a few registers), and
//! column by column within a slice. This has better locality than columns of the whole matrix.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::pattern::Pattern;
use super::slices::{SliceWidths, Slices, check_padding, default_height, stored_in_slices, streamed, waits};
use super::{Analysis, Csr, Format, Offer, Offered, Source, Variant, row_operator};
use crate::error::Result;
use crate::numbers::{Real, Storage};
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::run::threads::over_rows;
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A matrix in ELLPACK (ELL).
#[derive(Clone, Debug)]
pub struct Ell<T: Real> {
    source: Source<T>,
    slices: Slices,
    width: usize,
    values: Buffer<T>,
}

saved!(impl[T: Real] Ell<T> { source, slices, width, values } where |read| {
    read.source.fits(&read.kernel(&read.values))
});

/// Slices of uniform width, the length of the longest row.
pub(super) fn uniform<T: Real>(format: &'static str, pattern: &Pattern) -> Result<(Slices, usize)> {
    let longest = AtomicUsize::new(0);
    over_rows(pattern.rows(), 1, (), &|rows, ()| {
        let here = rows.map(|row| pattern.row(row).len()).max().unwrap_or(0);
        longest.fetch_max(here, Ordering::Relaxed);
    });
    let width = longest.into_inner();
    let height = default_height::<T>();
    let slots = pattern.rows().next_multiple_of(height) * width;
    check_padding(format, slots, pattern.entries(), "SELL-P or CSR store rows of unequal length")?;
    Ok((Slices::new(format, pattern, height, SliceWidths::Uniform(width), None, width)?, width))
}

impl<T: Real> Ell<T> {
    /// Converts a matrix. Returns an error if it would be mostly padding.
    pub fn new(csr: &Csr<T>) -> Result<Ell<T>> {
        let (slices, width) = uniform::<T>(Self::NAME, csr.pattern())?;
        let values = Buffer::zeros(slices.slots());
        let mut ell = Ell { source: csr.source().clone(), slices, width, values };
        ell.fill(csr.entries());
        Ok(ell)
    }

    /// Length of the longest row, to which all rows are padded.
    pub fn width(&self) -> usize {
        self.width
    }

    fn kernel<'a, V: Storage<T>>(&'a self, values: &'a [V]) -> impl RowProduct<T> {
        self.slices.kernel(values, None)
    }

    fn array_bytes(&self) -> usize {
        self.slices.bytes() + size_of_val(&*self.values)
    }
}

row_operator!(Ell);

impl<T: Real> Format<T> for Ell<T> {
    const NAME: &'static str = "ELL";
    type Value = T;
    type Options = ();

    fn with(csr: &Csr<T>, (): ()) -> Result<Self> {
        Ell::new(csr)
    }

    stored_in_slices!();
}

impl<T: Real> Offered<T> for Ell<T> {
    fn variants() -> Vec<Variant> {
        vec![streamed(Self::NAME, 1.0)]
    }

    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<()>>> {
        offer_of_uniform(matrix, Self::variants()[0], 0)
    }
}

/// The offer of a format with slices of uniform width, and with `more` bytes per row.
pub(super) fn offer_of_uniform<T: Real>(
    matrix: &Analysis<'_, T>,
    variant: Variant,
    more: usize,
) -> Result<Vec<Offer<()>>> {
    let width = matrix.rows.longest;
    let (slots, bytes) = matrix.uniform(variant.name, width)?;
    Ok(vec![Offer {
        detail: format!("{width} slots a row"),
        waits: waits(matrix),
        ..matrix.offer(variant, (), bytes + more * matrix.csr.rows(), slots)
    }])
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for Ell<T> {
    type Arrays<V: Storage<T>> = cuda::formats::sliced::Sliced<T, V>;

    fn chosen(&self) {}

    fn lay_out<V: Storage<T>>(csr: &Csr<T>, (): (), device: &cuda::Device) -> Result<Self::Arrays<V>> {
        let widths = cuda::formats::sliced::Widths::Uniform;
        Ok(Self::Arrays::<V>::new(device, csr.source().on_device(), csr.entries(), widths)?)
    }
}
