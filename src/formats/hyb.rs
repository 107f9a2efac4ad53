//! HYB (Bell and Garland 2009): the first `t` entries of every row in ELLPACK, the overflow of longer rows in
//! coordinates.
//!
//! A matrix with `n` rows of lengths `n_i` takes
//!
//! ```text
//! S(t) = n t (v + p) + (v + 2p) Σ max(n_i − t, 0)
//! ```
//!
//! bytes, with `v` bytes per value and `p` bytes per index ([`hyb_bytes`]). Anzt et al. (2020) find the
//! minimum at a quantile of the row lengths ([`row_length_quantile`]): one more slot (stored position) in
//! every row costs `n (v + p)` and saves `v + 2p` for each row longer than `t`, so that `t = Q_R(p / (v +
//! 2p))`, the quantile at 1/4 for f64 and 1/3 for f32. A product reads `S(t)` bytes of the matrix, and `x`,
//! and writes `y`.
//!
//! Differs from the papers:
//! 1. Slots are stored in slices, and the overflow of a chunk follows its slots; both are added while the
//!    chunk's `y` is in the L1 cache.
//! 2. Columns of the slots take 16 bits if they fit, as in SELL-P; the threshold does not take this into
//!    account.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::analysis::RowStatistics;
use super::coo::{coordinate_bytes, entry_rows};
use super::slices::{SliceWidths, Slices, check_padding, default_height};
use super::{Analysis, Coefficients, Csr, Format, Offer, Offered, Source, Variant, row_operator};
use crate::error::{Error, Result};
use crate::numbers::{Real, Storage};
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cost::CostModel;
use krysp_kernels::cpu::formats::coo::EntryRows;
use krysp_kernels::cpu::formats::hyb;
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::run::threads::{CHUNK, fill_by_rows, over_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;
use krysp_kernels::index::{Columns, Offsets};
use std::sync::{Mutex, PoisonError};

/// Number of entries of every row that are stored in ELLPACK.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Threshold {
    /// The number that takes the fewest bytes.
    #[default]
    MinimalStorage,
    /// The [quantile](row_length_quantile) of the row lengths at `x`: for `x < 0` all entries overflow, for
    /// `x = 0` there is no padding, and for `x ≥ 1 − 1/rows` nothing overflows. Bell and Garland use 2/3.
    Quantile(f64),
    /// A quantile of the row lengths, but at most `share` times the number of rows, so that the slots are at
    /// most this fraction of all positions of a square matrix.
    BoundedQuantile {
        /// Quantile.
        x: f64,
        /// Fraction of the number of rows, at least 0.
        share: f64,
    },
    /// A fixed number; values above the length of the longest row have the same effect as that length.
    Columns(usize),
}

impl Threshold {
    /// Every threshold is `min(Q_R(x), most)`; returns `x` and `most`.
    fn limits<T>(self, rows: usize) -> Result<(f64, usize)> {
        let refused = |what, got: f64, expected| Err(Error::Option { what, got: got.to_string(), expected });
        match self {
            Threshold::MinimalStorage => Ok((fewest_bytes_at::<T>(), usize::MAX)),
            Threshold::Quantile(x) | Threshold::BoundedQuantile { x, .. } if x.is_nan() => {
                let expected = "a number: everything overflows below 0, nothing from 1 − 1/rows on";
                refused("the quantile of the row lengths", x, expected)
            }
            Threshold::Quantile(x) => Ok((x, usize::MAX)),
            Threshold::BoundedQuantile { x, share } if share >= 0.0 => {
                Ok((x, (share * rows as f64) as usize))
            }
            Threshold::BoundedQuantile { share, .. } => {
                refused("the share of the rows", share, "a number of at least 0")
            }
            Threshold::Columns(columns) => Ok((f64::INFINITY, columns)),
        }
    }
}

/// Options of the conversion to HYB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HybOptions {
    /// Number of entries of every row that are stored in ELLPACK.
    pub threshold: Threshold,
}

/// `Q_R(x) = min{t : x < F_R(t)}`, where `F_R(t)` is the share of rows no longer than `t`. It is 0 for
/// `x < 0`, the length of the shortest row for `x = 0`, and that of the longest from `1 − 1/rows` on.
///
/// ```
/// use krysp::formats::row_length_quantile;
///
/// let lengths = [3, 3, 1, 9];
/// assert_eq!([-1.0, 0.0, 1.0 / 4.0, 3.0 / 4.0].map(|x| row_length_quantile(lengths, x)), [0, 1, 3, 9]);
/// ```
pub fn row_length_quantile(lengths: impl IntoIterator<Item = usize>, x: f64) -> usize {
    let mut histogram = vec![];
    lengths.into_iter().for_each(|length| count(&mut histogram, length, 1));
    quantile(&histogram, x)
}

/// Adds `rows` rows of a length to the histogram.
fn count(histogram: &mut Vec<usize>, length: usize, rows: usize) {
    if length >= histogram.len() {
        histogram.resize(length + 1, 0);
    }
    histogram[length] += rows;
}

/// Number of rows of each length, up to the longest.
pub(crate) fn row_length_histogram<T: Real>(csr: &Csr<T>) -> Vec<usize> {
    let histogram = Mutex::new(vec![]);
    over_rows(csr.rows(), 1, (), &|rows, ()| {
        let mut part = vec![];
        rows.for_each(|row| count(&mut part, csr.row_columns(row).len(), 1));
        let mut all = histogram.lock().unwrap_or_else(PoisonError::into_inner);
        part.into_iter().enumerate().for_each(|(length, rows)| count(&mut all, length, rows));
    });
    histogram.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// [`row_length_quantile`], given the number of rows of each length.
pub(crate) fn quantile(histogram: &[usize], x: f64) -> usize {
    let most = share_of_rows(histogram.iter().sum(), x);
    let mut rows_up_to_here = 0;
    let reached = histogram.iter().position(|&rows| {
        rows_up_to_here += rows;
        rows_up_to_here as f64 > most
    });
    reached.unwrap_or(histogram.len().saturating_sub(1))
}

/// The condition `x < F_R(t)` as a number of rows: returns `rows · x`, which the number of rows no longer
/// than `t` must exceed. `x` is raised by 4 ε, so that `x = k / rows` never falls below `k` by rounding.
/// Returns −1 for negative `x`: zero rows already exceed it.
fn share_of_rows(rows: usize, x: f64) -> f64 {
    if x < 0.0 { -1.0 } else { rows as f64 * (x + 4.0 * f64::EPSILON) }
}

/// Quantile at which HYB takes the fewest bytes, `p / (v + 2p)`.
pub(crate) fn fewest_bytes_at<T>() -> f64 {
    let (value, index) = (size_of::<T>() as f64, size_of::<u32>() as f64);
    index / (value + 2.0 * index)
}

/// Number of entries of every row that are stored in ELLPACK. Returns an error if the threshold would leave
/// mostly padding.
pub(crate) fn width_of<T: Real>(csr: &Csr<T>, options: HybOptions) -> Result<usize> {
    let (x, most) = options.threshold.limits::<T>(csr.rows())?;
    let width = quantile(&row_length_histogram(csr), x).min(most);
    let slots = csr.rows().next_multiple_of(default_height::<T>()) * width;
    check_padding(Hyb::<T>::NAME, slots, csr.nnz(), "a smaller threshold leaves more to coordinates")?;
    Ok(width)
}

/// `S(t)`: bytes of rows of these lengths, with `t` entries of each in ELLPACK and the rest in coordinates.
pub fn hyb_bytes(lengths: impl IntoIterator<Item = usize>, t: usize, value: usize, index: usize) -> usize {
    lengths
        .into_iter()
        .map(|length| t * (value + index) + length.saturating_sub(t) * (value + 2 * index))
        .sum()
}

/// A matrix in HYB format (ELLPACK and coordinates).
#[derive(Clone, Debug)]
pub struct Hyb<T: Real> {
    source: Source<T>,
    width: usize,
    slices: Slices,
    /// Row of each overflow entry.
    rows: EntryRows,
    /// Column of each overflow entry.
    columns: Columns,
    /// Values: for each chunk, its slots, then its overflow.
    values: Buffer<T>,
}

saved!(impl[T: Real] Hyb<T> { source, width, slices, rows, columns, values } where |read| {
    read.source.fits(&read.kernel(&read.values))
});

impl<T: Real> Hyb<T> {
    /// Converts a matrix with the threshold that takes the fewest bytes.
    pub fn new(csr: &Csr<T>) -> Result<Hyb<T>> {
        Hyb::with(csr, HybOptions::default())
    }

    /// Converts a matrix. Returns an error if the threshold would leave mostly padding.
    pub fn with(csr: &Csr<T>, options: HybOptions) -> Result<Hyb<T>> {
        let width = width_of(csr, options)?;
        let widths = SliceWidths::Uniform(width);
        let slices = Slices::new(Self::NAME, csr.pattern(), default_height::<T>(), widths, None, width)?;
        let overflow = Offsets::from_lengths(csr.row_lengths().map(|length| length.saturating_sub(width)));
        let rows = entry_rows(Self::NAME, &overflow)?;
        let mut columns = Buffer::zeros(overflow.end());
        fill_by_rows(csr.rows(), &mut columns, &|row| overflow.at(row), &|rows, part, first| {
            for row in rows {
                let entries = overflow.range(row);
                if let Some(long) = csr.row_columns(row).get(width..) {
                    part[entries.start - first..entries.end - first].copy_from_slice(long);
                }
            }
        });
        let columns = Columns::new(columns, csr.cols())
            .map_err(|_| Error::Unsuitable { format: Self::NAME, why: "a column is out of range".into() })?;
        let values = Buffer::zeros(slices.slots() + rows.len());
        let mut hyb = Hyb { source: csr.source().clone(), width, slices, rows, columns, values };
        hyb.fill(csr.entries());
        Ok(hyb)
    }

    /// Number of entries of every row that are stored in ELLPACK, the threshold `t`.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Share of the entries that are stored in ELLPACK.
    pub fn ell_share(&self) -> f64 {
        1.0 - self.rows.len() as f64 / self.source.nnz().max(1) as f64
    }

    fn kernel<'a, V: Storage<T>>(&'a self, values: &'a [V]) -> impl RowProduct<T> {
        let slices = self.slices.kernel(values, None);
        hyb::Hyb { slices, rows: &self.rows, columns: &self.columns }
    }

    fn array_bytes(&self) -> usize {
        let overflow = self.rows.bytes() + size_of_val(&*self.columns);
        self.slices.bytes() + overflow + size_of_val(&*self.values)
    }
}

row_operator!(Hyb);

impl<T: Real> Format<T> for Hyb<T> {
    const NAME: &'static str = "HYB";
    type Value = T;
    type Options = HybOptions;

    fn with(csr: &Csr<T>, options: HybOptions) -> Result<Self> {
        Hyb::with(csr, options)
    }

    fn source(&self) -> &Source<T> {
        &self.source
    }

    fn values(&self) -> &Buffer<T> {
        &self.values
    }

    fn values_mut(&mut self) -> &mut Buffer<T> {
        &mut self.values
    }

    fn first_slot(&self, row: usize) -> usize {
        self.slices.first_slot(row) + self.rows.before(row)
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        let chunk = row / CHUNK * CHUNK;
        let next = self.source.pattern.rows().min(chunk + CHUNK);
        let before = self.rows.before(chunk);
        let mut entries = self.source.pattern.offsets.range(row);
        let first = entries.by_ref().take(self.width);
        first.zip(self.slices.row_slots(row)).for_each(|(entry, slot)| visit(entry, before + slot));
        if !entries.is_empty() {
            let slot = self.slices.first_slot(next) + self.rows.first_of(row);
            entries.enumerate().for_each(|(k, entry)| visit(entry, slot + k));
        }
    }
}

impl<T: Real> Offered<T> for Hyb<T> {
    fn variants() -> Vec<Variant> {
        vec![Variant {
            name: Self::NAME,
            host: Coefficients::Fixed(CostModel { start: 0.0, byte: 1.2, gather: 0.0, row: 0.0, wait: 0.0 }),
            gpu: Coefficients::Fixed(CostModel {
                start: 40.1e6,
                byte: 0.829,
                gather: 11.4,
                row: 45.8,
                wait: 0.0,
            }),
        }]
    }

    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<HybOptions>>> {
        let RowStatistics { rows, longest, quantile: width, .. } = matrix.rows;
        if width == longest {
            let why = format!("no row is longer than Q_R = {width}: it would be the same as ELL");
            return Err(Error::Unsuitable { format: Self::NAME, why });
        }
        let (slots, bytes) = matrix.uniform(Self::NAME, width)?;
        let overflow = matrix.overflow(width);
        let options = HybOptions { threshold: Threshold::Columns(width) };
        let bytes = bytes + coordinate_bytes(matrix, overflow);
        Ok(vec![Offer {
            detail: format!("{width} slots a row and {overflow} entries beyond"),
            rows,
            ..matrix.offer(Self::variants()[0], options, bytes, slots + overflow)
        }])
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for Hyb<T> {
    type Arrays<V: Storage<T>> = cuda::formats::hyb::Hyb<T, V>;

    fn chosen(&self) -> HybOptions {
        HybOptions { threshold: Threshold::Columns(self.width) }
    }

    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: HybOptions,
        device: &cuda::Device,
    ) -> Result<Self::Arrays<V>> {
        let (x, most) = options.threshold.limits::<T>(csr.rows())?;
        let width = cuda::formats::hyb::Width { rows: share_of_rows(csr.rows(), x), most };
        Ok(Self::Arrays::<V>::new(device, csr.source().on_device(), csr.entries(), width)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::coo::tests::{matrices, obeys, with_lengths};
    use super::*;
    use krysp_solvers::LinearOperator;

    fn with<T: Real>(csr: &Csr<T>, threshold: Threshold) -> Result<Hyb<T>> {
        Hyb::with(csr, HybOptions { threshold })
    }

    fn every_threshold_obeys<T: Real>() {
        for csr in &matrices::<T>() {
            let all = 1.0 - 1.0 / csr.rows().max(1) as f64;
            for x in [-1.0, 0.0, 1.0 / 4.0, 1.0 / 3.0, 2.0 / 3.0, all] {
                obeys(csr, |csr| with(csr, Threshold::Quantile(x)));
            }
            obeys(csr, |csr| with(csr, Threshold::BoundedQuantile { x: 0.9, share: 0.005 }));
            for columns in [0, 1, 3, 1000] {
                obeys(csr, |csr| with(csr, Threshold::Columns(columns)));
            }
            obeys(csr, Hyb::new);
        }
    }

    #[test]
    fn hyb_obeys() {
        every_threshold_obeys::<f64>();
        every_threshold_obeys::<f32>();
    }

    /// Lists of row lengths with very different distributions.
    fn distributions() -> Vec<Vec<usize>> {
        let hashed = |i: usize| (i * 7919 + 13) % 101;
        vec![
            vec![],
            vec![0; 12],
            vec![7],
            vec![5; 100],
            vec![0, 0, 0, 9],
            (0..64).collect(),
            (0..997).map(|i| hashed(i) % 12).collect(),
            (0..1000).map(|i| if i % 250 == 0 { 400 } else { 3 + i % 2 }).collect(),
            (0..400).map(|i| 200 / (1 + hashed(i))).collect(),
            (0..10).map(|i| 1 << i).collect(),
        ]
    }

    #[test]
    fn the_default_quantile_takes_the_fewest_bytes() {
        for lengths in distributions() {
            for (value, x) in [(8, 1.0 / 4.0), (4, 1.0 / 3.0)] {
                let bytes = |t| hyb_bytes(lengths.iter().copied(), t, value, 4);
                let longest = lengths.iter().copied().max().unwrap_or(0);
                let t = row_length_quantile(lengths.iter().copied(), x);
                assert_eq!(Some(bytes(t)), (0..=longest + 1).map(bytes).min(), "{value}, {lengths:?}");
            }
        }
    }

    #[test]
    fn the_quantile_is_the_first_length_beyond_its_share_of_rows() {
        for lengths in distributions().into_iter().filter(|lengths| !lengths.is_empty()) {
            let quantile = |x| row_length_quantile(lengths.iter().copied(), x);
            let (rows, longest) = (lengths.len(), lengths.iter().copied().max().unwrap());
            assert_eq!((quantile(-1.0), quantile(-1e-300)), (0, 0));
            assert_eq!(Some(quantile(0.0)), lengths.iter().copied().min());
            assert_eq!((quantile(1.0), quantile(5.0)), (longest, longest));
            for k in 0..rows {
                // `x = k / rows`, computed in two ways that round differently; `t` is the smallest length
                // such that more than `k` rows are no longer than `t`
                let expected = (0..).find(|&t| k < lengths.iter().filter(|&&length| length <= t).count());
                assert_eq!(Some(quantile(k as f64 / rows as f64)), expected);
                assert_eq!(Some(quantile(1.0 - (rows - k) as f64 / rows as f64)), expected);
            }
        }
        assert_eq!(row_length_quantile([], 0.5), 0);
    }

    #[test]
    fn the_last_quantile_leaves_no_overflow_for_any_number_of_rows() {
        for rows in 2..3000 {
            let lengths = (0..rows).map(|row| if row == 1 { 2 } else { 1 });
            assert_eq!(row_length_quantile(lengths, 1.0 - 1.0 / rows as f64), 2);
        }
    }

    #[test]
    fn the_ends_of_the_quantile_are_coordinates_and_ellpack() {
        let csr = with_lengths::<f64>(900, |row| 2 + row % 5, 900);
        let coordinates = with(&csr, Threshold::Quantile(-1.0)).unwrap();
        assert_eq!((coordinates.width(), coordinates.ell_share()), (0, 0.0));
        let unpadded = with(&csr, Threshold::Quantile(0.0)).unwrap();
        assert_eq!(unpadded.width(), 2);
        // the only padding is in slots beyond the last row
        let beyond = 900usize.next_multiple_of(default_height::<f64>()) - 900;
        assert_eq!(unpadded.padding(), beyond as f64 * 2.0 / csr.nnz() as f64);
        let ellpack = with(&csr, Threshold::Quantile(1.0 - 1.0 / 900.0)).unwrap();
        assert_eq!((ellpack.width(), ellpack.ell_share()), (6, 1.0));
        assert!(with(&csr, Threshold::Quantile(f64::NAN)).is_err());
    }

    #[test]
    fn a_share_of_the_rows_bounds_the_quantile() {
        let csr = with_lengths::<f64>(900, |row| 2 + row % 5, 900);
        let width = |x, share| with(&csr, Threshold::BoundedQuantile { x, share }).map(|hyb| hyb.width());
        let widths = [(0.7, 1.0), (0.7, 0.0), (0.7, 0.0034), (0.0, 0.0034), (2.0, 0.0056)];
        assert_eq!(widths.map(|(x, share)| width(x, share).unwrap()), [5, 0, 3, 2, 5]);
        for (x, share) in [(f64::NAN, 1.0), (0.5, f64::NAN), (0.5, -0.1)] {
            assert!(width(x, share).is_err());
        }
    }

    #[test]
    fn wide_columns_take_the_bytes_that_were_promised() {
        let rows = 100_000;
        let csr = with_lengths::<f64>(rows, |row| 2 + row % 3 + 40 * usize::from(row % 100 == 0), rows);
        let hyb = Hyb::new(&csr).unwrap();
        let starts = 4 * (rows.div_ceil(CHUNK) + 1);
        assert_eq!(hyb.bytes(), hyb_bytes(csr.row_lengths(), hyb.width(), 8, 4) + starts);
    }

    #[test]
    fn a_threshold_of_mostly_padding_is_refused() {
        let csr = with_lengths::<f64>(3000, |row| if row == 9 { 2000 } else { 1 }, 3000);
        assert!(with(&csr, Threshold::Quantile(1.0)).is_err());
        assert_eq!(Hyb::new(&csr).unwrap().width(), 1);
    }

    /// Share of entries in ELLPACK at the quantile 2/3 as printed by Vázquez et al. (2011), for the row
    /// lengths of the real matrices.
    #[test]
    fn golden_shares() {
        // rows of length 0, 1, 2, …
        let qh1484: &[usize] = &[0, 0, 190, 252, 710, 124, 72, 82, 12, 22, 12, 4, 2, 2];
        let gemat12: &[usize] = &[
            0, 0, 8, 322, 887, 291, 1559, 216, 876, 88, 291, 56, 128, 27, 50, 15, 46, 10, 27, 7, 2, 2, 6, 8,
            0, 2, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        ];
        for (histogram, rows, nonzeros, width, percent) in
            [(qh1484, 1484, 6110, 4, 86.8), (gemat12, 4929, 33_111, 8, 90.7)]
        {
            let lengths = histogram.iter().enumerate();
            let lengths: Vec<usize> =
                lengths.flat_map(|(length, &rows)| std::iter::repeat_n(length, rows)).collect();
            let csr = with_lengths::<f64>(rows, |row| lengths[row], rows);
            let hyb = with(&csr, Threshold::Quantile(2.0 / 3.0)).unwrap();
            assert_eq!((lengths.len(), csr.nnz(), hyb.width()), (rows, nonzeros, width));
            assert!((100.0 * hyb.ell_share() - percent).abs() < 0.05, "{}", hyb.ell_share());
        }
    }
}
