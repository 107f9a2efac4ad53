//! COO (coordinate format): the row, the column and the value of every entry, sorted by row.
//!
//! The cost of a product depends on the number of entries, not on their distribution over the rows. On a CPU
//! it reads 16 bytes per entry (f64) or 12 (f32), and `x`, and writes `y`; CSR reads less if rows have more
//! than one entry on average. On a GPU it reads 12.5 (f64) or 8.5 (f32) bytes per entry, see coo.cu; if
//! columns are scattered, entries are sorted by slabs of columns, see slabs.cu.
//!
//! Differs from Anzt et al. (2020):
//! 1. Work is divided by rows; long rows are also divided by entries, and their partial sums are added in a
//!    tree. Each thread owns a part of `y`, so no atomics are needed and every product is bitwise the same.
//! 2. A register holds entries of one row only, so no segmented scan is needed.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::{
    Analysis, Coefficients, Csr, Format, Offer, Offered, Source, Variant, offset_bytes, row_operator,
};
use crate::error::{Error, Result};
use crate::numbers::{Real, Storage};
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cost::CostModel;
use krysp_kernels::cpu::formats::coo::{self, EntryRows};
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::run::threads::{CHUNK, fill_by_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;
use krysp_kernels::index::Offsets;

/// Method by which a GPU sums rows whose entries are distributed over several warps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crossing {
    /// [`Crossing::Slabs`] if columns are scattered and there are many entries, otherwise
    /// [`Crossing::CarriedOut`].
    #[default]
    Automatic,
    /// Each warp sends its partial sum of a row (carry-out), and the warp in which the row ends waits for the
    /// partial sums and adds them in a fixed order.
    CarriedOut,
    /// Entries are sorted by slabs of columns whose part of `x` is kept in shared memory; a second kernel
    /// adds the partial sums of a row over all slabs, in a fixed order. Falls back to
    /// [`Crossing::CarriedOut`] if a row has more than 4,096 partial sums, or there are more than 8,192
    /// slabs.
    Slabs,
}

/// Options of the conversion to COO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CooOptions {
    /// Method by which a GPU sums rows whose entries are distributed over several warps. In host memory only
    /// [`Crossing::Automatic`] is accepted.
    pub crossing: Crossing,
}

/// A matrix in coordinate format (COO).
#[derive(Clone, Debug)]
pub struct Coo<T: Real> {
    source: Source<T>,
    rows: EntryRows,
    values: Buffer<T>,
}

saved!(impl[T: Real] Coo<T> { source, rows, values } where |read| read.source.fits(&read.kernel(&read.values)));

/// Row index of each entry, for rows that begin at `offsets`.
pub(super) fn entry_rows(format: &'static str, offsets: &Offsets) -> Result<EntryRows> {
    let mut indices = Buffer::zeros(offsets.end());
    fill_by_rows(offsets.ranges(), &mut indices, &|row| offsets.at(row), &|rows, part, first| {
        for row in rows {
            let entries = offsets.range(row);
            part[entries.start - first..entries.end - first].fill(row as u32);
        }
    });
    EntryRows::new(indices, offsets.ranges())
        .map_err(|_| Error::Unsuitable { format, why: "its rows are out of order".into() })
}

impl<T: Real> Coo<T> {
    /// Converts a matrix.
    pub fn new(csr: &Csr<T>) -> Result<Coo<T>> {
        Coo::with(csr, CooOptions::default())
    }

    /// Converts a matrix. Returns an error for options that apply to a GPU only.
    pub fn with(csr: &Csr<T>, options: CooOptions) -> Result<Coo<T>> {
        if options.crossing != Crossing::Automatic {
            return Err(Error::Option {
                what: "the crossing of COO",
                got: format!("{:?}", options.crossing),
                expected: "`Automatic` in host memory, where threads share no row",
            });
        }
        let source = csr.source().clone();
        let rows = entry_rows(Self::NAME, &source.pattern.offsets)?;
        Ok(Coo { source, rows, values: csr.values().clone() })
    }

    /// Row of each entry, ascending.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Column of each entry.
    pub fn columns(&self) -> &[u32] {
        &self.source.pattern.columns
    }

    fn kernel<'a, V: Storage<T>>(&'a self, values: &'a [V]) -> impl RowProduct<T> {
        coo::Coo { rows: &self.rows, columns: &self.source.pattern.columns, values }
    }

    fn array_bytes(&self) -> usize {
        self.rows.bytes() + size_of_val(self.columns()) + size_of_val(&*self.values)
    }
}

row_operator!(Coo);

impl<T: Real> Format<T> for Coo<T> {
    const NAME: &'static str = "COO";
    type Value = T;
    type Options = CooOptions;

    fn with(csr: &Csr<T>, options: CooOptions) -> Result<Self> {
        Coo::with(csr, options)
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
        self.source.pattern.offsets.at(row)
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        self.source.pattern.offsets.range(row).for_each(|entry| visit(entry, entry));
    }
}

/// Coordinates sorted by row. The GPU coefficients were set manually, because the least-squares fit
/// underestimates small terms. They are in the middle of the range that minimizes the maximum, over the
/// fitted matrices, of the time of the chosen format divided by the time of the fastest one.
const COORDINATES: Variant = Variant {
    name: "COO",
    host: Coefficients::Fixed(CostModel { start: 0.0, byte: 1.1, gather: 0.0, row: 0.0, wait: 0.0 }),
    gpu: Coefficients::Fixed(CostModel { start: 14.5e6, byte: 0.82, gather: 13.5, row: 14.0, wait: 0.0 }),
};

/// Coordinates sorted by slabs of columns, whose part of `x` is kept in shared memory. The constant cost was
/// adjusted manually, as for [`COORDINATES`].
const SLABS: Variant = Variant {
    name: "COO slabs",
    host: Coefficients::NotOffered("slabs exist on GPUs only: a CPU caches `x` itself"),
    gpu: Coefficients::Fixed(CostModel { start: 20e6, byte: 0.768, gather: 5.0, row: 0.0, wait: 0.0 }),
};

impl<T: Real> Offered<T> for Coo<T> {
    fn variants() -> Vec<Variant> {
        vec![COORDINATES, SLABS]
    }

    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<CooOptions>>> {
        let entries = matrix.csr.nnz();
        #[cfg(feature = "cuda")]
        if matrix.on_gpu() {
            let pattern = matrix.csr.source().on_device();
            if let Some(sums) = cuda::formats::coo::sums_in_slabs::<T>(pattern, cuda::tuning::SHARED_MEMORY) {
                let sums = sums as usize;
                let of_entries =
                    entries * Analysis::<T>::ENTRY - entries * size_of::<u16>() + entries.div_ceil(2);
                // each partial sum is written and read once, and has an index
                let bytes = of_entries + sums * (2 * size_of::<T>() + size_of::<u16>());
                return Ok(vec![Offer {
                    detail: format!("{sums} sums"),
                    // one read of shared memory per entry, whatever its column
                    gathers: entries as f64,
                    ..matrix.offer(SLABS, CooOptions { crossing: Crossing::Slabs }, bytes, entries)
                }]);
            }
        }
        let bytes = coordinate_bytes(matrix, entries);
        let rows = matrix.rows.rows;
        Ok(vec![Offer { rows, ..matrix.offer(COORDINATES, CooOptions::default(), bytes, entries) }])
    }
}

/// Bytes of the entries with their row indices, and of the offsets of the chunks of rows. On a GPU, 16 bits
/// for four entries replace the row indices.
pub(super) fn coordinate_bytes<T: Real>(matrix: &Analysis<'_, T>, entries: usize) -> usize {
    let (entry, index) = (Analysis::<T>::ENTRY, Analysis::<T>::INDEX);
    if matrix.on_gpu() {
        return entries * entry + entries.div_ceil(4) * size_of::<u16>();
    }
    offset_bytes(matrix.csr.rows().div_ceil(CHUNK), entries) + entries * (entry + index)
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for Coo<T> {
    type Arrays<V: Storage<T>> = cuda::formats::coo::Coo<T, V>;
    fn chosen(&self) -> CooOptions {
        CooOptions::default()
    }

    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: CooOptions,
        device: &cuda::Device,
    ) -> Result<Self::Arrays<V>> {
        let crossing = match options.crossing {
            Crossing::Automatic => cuda::formats::coo::Crossing::Automatic,
            Crossing::CarriedOut => cuda::formats::coo::Crossing::CarriedOut,
            Crossing::Slabs => cuda::formats::coo::Crossing::Slabs,
        };
        Ok(Self::Arrays::<V>::new(device, csr.source().on_device(), csr.entries(), crossing)?)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use krysp_kernels::cpu::simd::{Level, force};
    use krysp_solvers::{BasicVector, LinearOperator, Space};

    /// Matrices with shapes and row lengths around the boundaries of lanes, slices and chunks.
    pub(in crate::formats) fn matrices<T: Real>() -> Vec<Csr<T>> {
        let dense_row = |row: usize| if row == 70 { 900 } else { row % 4 };
        let chunk_edge = |row: usize| if row % CHUNK == CHUNK - 1 { 37 } else { 1 };
        vec![
            with_lengths(0, |_| 0, 0),
            with_lengths(0, |_| 0, 5),
            with_lengths(5, |_| 0, 0),
            with_lengths(9, |_| 0, 9),
            with_lengths(1, |_| 1, 1),
            with_lengths(100, |row| row % 23, 40),
            with_lengths(2 * CHUNK, |row| row % 9, 3000),
            with_lengths(900, dense_row, 900),
            with_lengths(40_000, chunk_edge, 40_000),
        ]
    }

    /// A matrix with these row lengths.
    pub(in crate::formats) fn with_lengths<T: Real>(
        rows: usize,
        length: impl Fn(usize) -> usize,
        cols: usize,
    ) -> Csr<T> {
        let mut entries = vec![];
        for row in 0..rows {
            for k in 0..length(row) {
                let column = (row * 31 + k * 7919) % cols;
                entries.push((row, column, number(row + 3 * k)));
            }
        }
        Csr::from_triplets(rows, cols, &entries).unwrap()
    }

    fn number<T: Real>(seed: usize) -> T {
        T::from_f64((seed * 7919 % 1009) as f64 / 500.0 - 1.0)
    }

    fn wide<T: Real>(value: T) -> f64 {
        krysp_solvers::Element::to_f64(value)
    }

    /// Checks at every SIMD level that a format multiplies, converts back, and takes new values.
    pub(in crate::formats) fn obeys<T: Real, F: Format<T>>(
        csr: &Csr<T>,
        convert: impl Fn(&Csr<T>) -> Result<F>,
    ) {
        for level in Level::ALL {
            let Some(_forced) = force(level) else { continue };
            let mut format = convert(csr).unwrap();
            multiplies(&format, csr);
            assert_eq!(format.to_csr().entries(), csr.entries());
            let values: Vec<T> = (0..csr.nnz()).map(|k| number(5 * k + 1)).collect();
            let mut refreshed = csr.clone();
            refreshed.refresh(&values).unwrap();
            format.refresh(&values).unwrap();
            assert_eq!(format.to_csr().entries(), refreshed.entries());
            multiplies(&format, &refreshed);
        }
    }

    fn multiplies<T: Real, F: Format<T>>(format: &F, csr: &Csr<T>) {
        let x: Vec<T> = (0..csr.cols()).map(number).collect();
        let (mut vector, mut y) = (format.domain().zeros().unwrap(), format.range().zeros().unwrap());
        format.domain().load(&x, &mut vector).unwrap();
        format.range().load(&vec![T::from_f64(f64::NAN); csr.rows()], &mut y).unwrap();
        format.apply(&vector, &mut y).unwrap();
        let mut products = vec![T::zero(); csr.rows()];
        format.range().store(&y, &mut products).unwrap();
        for (row, product) in products.iter().enumerate() {
            let terms = csr.row_columns(row).iter().zip(csr.row_values(row));
            let terms = terms.map(|(&column, value)| wide(*value) * wide(x[column as usize]));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            let bound = 1000.0 * wide(T::epsilon()) * size;
            assert!((wide(*product) - sum).abs() <= bound, "{}: row {row}: {product:?}, {sum}", F::NAME);
        }
        let mut again = format.range().zeros().unwrap();
        if csr.rows() == csr.cols() {
            let xy = format.apply_dot(&vector, &mut again).unwrap();
            assert_eq!(xy, vector.dot(&y));
        } else {
            format.apply(&vector, &mut again).unwrap();
        }
        assert_eq!(again.as_slice(), y.as_slice());
    }

    #[test]
    fn coo_obeys() {
        matrices::<f64>().iter().for_each(|csr| obeys(csr, Coo::new));
        matrices::<f32>().iter().for_each(|csr| obeys(csr, Coo::new));
    }

    #[test]
    fn ways_of_a_gpu_are_refused_in_host_memory() {
        let csr = with_lengths::<f64>(9, |_| 2, 9);
        for crossing in [Crossing::CarriedOut, Crossing::Slabs] {
            let refused = Coo::with(&csr, CooOptions { crossing }).unwrap_err();
            assert!(matches!(refused, Error::Option { .. }), "{refused}");
        }
        assert!(Coo::with(&csr, CooOptions::default()).is_ok());
    }

    #[test]
    fn coo_is_stored_as_coordinates() {
        let csr = with_lengths::<f64>(1000, |row| row % 5, 1000);
        let coo = Coo::new(&csr).unwrap();
        assert_eq!(coo.rows(), csr.triplets().map(|(row, _, _)| row as u32).collect::<Vec<_>>());
        assert_eq!((coo.padding(), coo.bytes()), (0.0, 16 * csr.nnz() + 3 * 4));
    }
}
