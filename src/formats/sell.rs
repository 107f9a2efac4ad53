//! SELL-P (Anzt et al. 2014) and SELL-C-σ (Kreutzer et al. 2014): slices of rows, each padded to its own
//! longest row.
//!
//! Sorting rows by length within windows of σ rows groups similar lengths and reduces padding. Columns take
//! 16 bits, as offsets from the smallest column of their slice, if all of them fit: 10 bytes per entry
//! instead of 12 (f64).
//!
//! Differs from the papers:
//! 1. By default a slice has as many rows as two of the widest registers have lanes, instead of 64: this
//!    needs less padding, and a CPU gains nothing from more rows.
//! 2. Rows are sorted within windows of at most 768 rows, so that each chunk of rows (the unit of fused
//!    operations and of the distribution over threads) keeps its rows.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::slices::{
    SliceWidths, Slices, check_padding, default_height, has_short_columns, stored_in_slices, streamed, waits,
};
use super::{Analysis, Csr, Format, Offer, Offered, Source, Variant, offset_bytes, row_operator};
use crate::error::{Error, Result};
use crate::numbers::{Real, Storage};
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::formats::sliced::height_step;
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::run::threads::{CHUNK, map_rows, over_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;
use krysp_kernels::index::Offsets;

/// Options of the conversion to SELL-P or SELL-C-σ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SellOptions {
    /// Rows per slice in host memory: a multiple of 8 (f64) or 16 (f32) that divides 768. `None` selects as
    /// many rows as two of the widest registers have lanes. On a GPU slices have 32 rows or fewer, and
    /// setting a height is an error.
    pub height: Option<usize>,
    /// Rows are sorted by length within windows of this many rows: a multiple of the height that divides 768,
    /// or 1 to keep their order. `None` sorts within 768 rows if that saves padding. On a GPU, a window other
    /// than `None` and 1 is an error.
    pub window: Option<usize>,
}

#[cfg(feature = "cuda")]
impl SellOptions {
    /// Widths of slices on a device. Returns an error for options that a device does not support.
    fn widths(self) -> Result<cuda::formats::sliced::Widths> {
        if let Some(height) = self.height {
            return Err(Error::Option {
                what: "the slice height",
                got: height.to_string(),
                expected: "no height can be set on a GPU, whose slices have 32 rows or fewer",
            });
        }
        match self.window {
            None | Some(1) => Ok(cuda::formats::sliced::Widths::Each { sort: self.window.is_none() }),
            Some(window) => Err(Error::Option {
                what: "the sorting window",
                got: window.to_string(),
                expected: "none on a GPU, which sorts within 768 rows where that saves padding, or 1 for the order \
                           that rows have",
            }),
        }
    }
}

/// A matrix in SELL-P format, or in SELL-C-σ if its rows are sorted.
#[derive(Clone, Debug)]
pub struct Sell<T: Real> {
    source: Source<T>,
    /// Sorting window given in the options.
    window: Option<usize>,
    slices: Slices,
    values: Buffer<T>,
}

saved!(impl[T: Real] Sell<T> { source, window, slices, values } where |read| {
    read.source.fits(&read.kernel(&read.values))
});

impl<T: Real> Sell<T> {
    /// Converts a matrix with default options.
    pub fn new(csr: &Csr<T>) -> Result<Sell<T>> {
        Sell::with(csr, SellOptions::default())
    }

    /// Converts a matrix with options.
    pub fn with(csr: &Csr<T>, options: SellOptions) -> Result<Sell<T>> {
        let Cut { height, widths, order } = Cut::new(csr, options)?;
        let widths = SliceWidths::Each(Offsets::from_lengths(widths));
        let slices = Slices::new(Self::NAME, csr.pattern(), height, widths, order, usize::MAX)?;
        let values = Buffer::zeros(slices.slots());
        let mut sell = Sell { source: csr.source().clone(), window: options.window, slices, values };
        sell.fill(csr.entries());
        Ok(sell)
    }

    /// Options of this matrix.
    pub fn options(&self) -> SellOptions {
        SellOptions { height: Some(self.slices.height()), window: self.window }
    }

    /// Returns whether rows were sorted.
    pub fn is_sorted(&self) -> bool {
        self.slices.sorted()
    }

    /// Returns whether columns take 16 bits.
    pub fn has_short_columns(&self) -> bool {
        self.slices.short()
    }

    pub(crate) fn kernel<'a, V: Storage<T>>(&'a self, values: &'a [V]) -> impl RowProduct<T> {
        self.slices.kernel(values, None)
    }

    fn array_bytes(&self) -> usize {
        self.slices.bytes() + size_of_val(&*self.values)
    }
}

/// Division of rows into slices.
pub(crate) struct Cut {
    /// Rows per slice.
    pub(crate) height: usize,
    /// Length of the longest row of each slice.
    pub(crate) widths: Vec<usize>,
    /// Row (relative to its chunk) at each position, if rows are sorted.
    pub(crate) order: Option<Vec<u16>>,
}

impl Cut {
    /// Divides a matrix into slices. Returns an error for options out of range, and for slices that would be
    /// mostly padding.
    pub(crate) fn new<T: Real>(csr: &Csr<T>, options: SellOptions) -> Result<Cut> {
        let height = options.height.unwrap_or_else(default_height::<T>);
        if height == 0 || !height.is_multiple_of(height_step::<T>()) || !CHUNK.is_multiple_of(height) {
            return Err(Error::Option {
                what: "the slice height",
                got: height.to_string(),
                expected: "a multiple of 8 (f64) or 16 (f32) that divides 768",
            });
        }
        let lengths = map_rows(csr.rows(), 1, &|row| csr.row_columns(row).len());
        let natural = widths(&lengths, height);
        let (widths, order) = match options.window {
            Some(1) => (natural, None),
            Some(window) if window.is_multiple_of(height) && CHUNK.is_multiple_of(window) => {
                sorted(&lengths, height, window)
            }
            Some(window) => {
                return Err(Error::Option {
                    what: "the sorting window",
                    got: window.to_string(),
                    expected: "1, or a multiple of the slice height that divides 768",
                });
            }
            None => {
                let total = |widths: &[usize]| widths.iter().sum::<usize>();
                // with sorted rows, sums are scattered to `y`, which costs about as much as 20 % padding
                let saves = |sorted: usize| 5 * total(&natural) * height > 6 * sorted;
                // first test with a lower bound of the slots after sorting: no padding at all
                let after = saves(csr.nnz()).then(|| sorted(&lengths, height, CHUNK));
                after.filter(|(sorted, _)| saves(total(sorted) * height)).unwrap_or((natural, None))
            }
        };
        let slots = widths.iter().sum::<usize>() * height;
        check_padding(Sell::<T>::NAME, slots, csr.nnz(), "CSR stores rows of any length")?;
        Ok(Cut { height, widths, order })
    }
}

/// Length of the longest row of each slice.
fn widths(lengths: &[usize], height: usize) -> Vec<usize> {
    map_rows(lengths.len().div_ceil(height), height, &|slice| {
        let rows = lengths[slice * height..].iter().take(height);
        rows.copied().max().unwrap_or(0)
    })
}

/// Widths after sorting within windows, and the row (relative to its chunk) at each position.
fn sorted(lengths: &[usize], height: usize, window: usize) -> (Vec<usize>, Option<Vec<u16>>) {
    let mut order = vec![0u16; lengths.len()];
    let mut by_place = vec![0; lengths.len()];
    let data = (order.as_mut_slice(), by_place.as_mut_slice());
    over_rows(lengths.len(), 16, data, &|rows, (order, by_place): (&mut [u16], &mut [usize])| {
        let windows = order.chunks_mut(window).zip(by_place.chunks_mut(window));
        for (start, (order, by_place)) in rows.step_by(window).zip(windows) {
            let chunk = start / CHUNK * CHUNK;
            let length = |row: u16| lengths[chunk + row as usize];
            for (row, place) in (start..).zip(&mut *order) {
                *place = (row - chunk) as u16;
            }
            order.sort_by_key(|&row| std::cmp::Reverse(length(row)));
            for (place, &row) in by_place.iter_mut().zip(&*order) {
                *place = length(row);
            }
        }
    });
    (widths(&by_place, height), Some(order))
}

row_operator!(Sell);

impl<T: Real> Format<T> for Sell<T> {
    const NAME: &'static str = "SELL-P";
    type Value = T;
    type Options = SellOptions;

    fn with(csr: &Csr<T>, options: SellOptions) -> Result<Self> {
        Sell::with(csr, options)
    }

    stored_in_slices!();
}

impl<T: Real> Offered<T> for Sell<T> {
    fn variants() -> Vec<Variant> {
        vec![streamed(Self::NAME, 1.0)]
    }

    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<SellOptions>>> {
        let height = matrix.slice_height();
        let Cut { widths, order, .. } =
            Cut::new(matrix.csr, SellOptions { height: Some(height), window: None })?;
        let slots = widths.iter().sum::<usize>() * height;
        let short_columns = has_short_columns(matrix.csr.pattern(), height, order.as_deref(), usize::MAX);
        let order_bytes = order.as_ref().map_or(0, |order| size_of_val(&**order));
        let bytes = offset_bytes(widths.len(), slots) + order_bytes + matrix.slices(slots, short_columns);
        let bits = if short_columns { 16 } else { 32 };
        let sorted = if order.is_some() { ", rows sorted by length" } else { "" };
        Ok(vec![Offer {
            detail: format!("columns of {bits} bits{sorted}"),
            waits: waits(matrix),
            ..matrix.offer(Self::variants()[0], SellOptions::default(), bytes, slots)
        }])
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for Sell<T> {
    type Arrays<V: Storage<T>> = cuda::formats::sliced::Sliced<T, V>;

    /// Only the option to keep the order of the rows applies to a device, which has its own slice heights.
    fn chosen(&self) -> SellOptions {
        SellOptions { height: None, window: self.window.filter(|&window| window == 1) }
    }

    fn by_lengths(_: &Csr<T>, options: &SellOptions) -> Option<SellOptions> {
        Some(*options)
    }

    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: SellOptions,
        device: &cuda::Device,
    ) -> Result<Self::Arrays<V>> {
        Ok(Self::Arrays::<V>::new(device, csr.source().on_device(), csr.entries(), options.widths()?)?)
    }

    fn lay_out_from<V: Storage<T>>(
        source: &Source<T>,
        ordered: &cuda::DeviceCsr<T>,
        options: SellOptions,
    ) -> Result<Self::Arrays<V>> {
        Ok(Self::Arrays::<V>::of(ordered, source.on_device(), options.widths()?)?)
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;
    use crate::formats::keeps_to_chunks;

    #[test]
    fn slots_of_another_pattern_are_noticed() {
        let wide: Vec<_> = (0..3).map(|j| (0, j, 1.0)).collect();
        let [wide, diagonal] = [wide, (0..16).map(|i| (i, i, 1.0)).collect()]
            .map(|entries| Csr::<f64>::from_triplets(16, 16, &entries).unwrap());
        let [longer, mut forged] = [wide, diagonal].map(|csr| Sell::new(&csr).unwrap());
        assert!(keeps_to_chunks(&longer) && keeps_to_chunks(&forged));
        // as many rows and columns, but the first row has three entries, and one slot
        forged.source = longer.source;
        assert!(!keeps_to_chunks(&forged));
    }

    #[test]
    fn a_gpu_refuses_slices_that_it_would_not_cut() {
        let refused = |height, window| {
            let error = SellOptions { height, window }.widths().unwrap_err();
            assert!(matches!(error, Error::Option { .. }));
            error.to_string()
        };
        assert!(refused(Some(48), None).contains("32 rows or fewer"));
        assert!(refused(None, Some(96)).contains("within 768 rows"));
        for window in [None, Some(1)] {
            assert!(SellOptions { height: None, window }.widths().is_ok());
        }
        // a matrix in host memory is moved without these options
        let csr = Csr::from_triplets(1, 1, &[(0, 0, 1.0)]).unwrap();
        for (window, kept) in [(None, None), (Some(1), Some(1)), (Some(96), None)] {
            let sell = Sell::with(&csr, SellOptions { height: Some(48), window }).unwrap();
            assert_eq!(sell.chosen(), SellOptions { height: None, window: kept });
        }
    }
}
