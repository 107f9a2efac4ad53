//! DIA (diagonals): every diagonal that has entries is stored completely, without column indices.
//!
//! The format is best for stencils on structured grids. Diagonals are stored in slices of 32 rows, so that
//! values are read contiguously.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::slices::check_padding;
use super::{Analysis, Coefficients, Csr, Format, Offer, Offered, Source, Variant, row_operator};
use crate::error::Result;
use crate::numbers::{Real, Storage};
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cost::CostModel;
use krysp_kernels::cpu::formats::dia::{self, HEIGHT};
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::run::threads::over_rows;
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;
use std::sync::atomic::{AtomicU64, Ordering};

/// A matrix stored by diagonals (DIA).
#[derive(Clone, Debug)]
pub struct Dia<T: Real> {
    source: Source<T>,
    diagonals: Vec<i64>,
    values: Buffer<T>,
}

saved!(impl[T: Real] Dia<T> { source, diagonals, values } where |read| {
    read.source.fits(&read.kernel(&read.values))
});

impl<T: Real> Dia<T> {
    /// Converts a matrix. Returns an error if its diagonals would be mostly padding.
    pub fn new(csr: &Csr<T>) -> Result<Dia<T>> {
        let diagonals = diagonals_of(csr)?;
        let values = Buffer::zeros(csr.rows().next_multiple_of(HEIGHT) * diagonals.len());
        let mut dia = Dia { source: csr.source().clone(), diagonals, values };
        dia.fill(csr.entries());
        Ok(dia)
    }

    /// Offset of each stored diagonal: its entries are at `(i, i + offset)`.
    pub fn diagonals(&self) -> &[i64] {
        &self.diagonals
    }

    pub(crate) fn kernel<'a, V: Storage<T>>(&'a self, values: &'a [V]) -> impl RowProduct<T> {
        let pattern = &self.source.pattern;
        dia::Dia { rows: pattern.rows(), cols: pattern.cols(), diagonals: &self.diagonals, values }
    }

    fn array_bytes(&self) -> usize {
        size_of_val(&*self.diagonals) + size_of_val(&*self.values)
    }
}

/// Offsets of the diagonals that have entries, ascending. Returns an error if the diagonals would be mostly
/// padding.
pub(crate) fn diagonals_of<T: Real>(csr: &Csr<T>) -> Result<Vec<i64>> {
    const BITS: usize = u64::BITS as usize;
    let (rows, most) = (csr.rows(), (csr.rows() + csr.cols()).saturating_sub(1));
    let used: Vec<AtomicU64> = (0..most.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect();
    over_rows(rows, 8, (), &|range, ()| {
        for (row, &column) in
            range.flat_map(|row| csr.row_columns(row).iter().map(move |column| (row, column)))
        {
            let diagonal = rows - 1 - row + column as usize;
            let (word, bit) = (&used[diagonal / BITS], 1 << (diagonal % BITS));
            // testing the bit first avoids most writes to words that threads share: only the first entry of a
            // diagonal sets its bit
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    });
    let mut diagonals = vec![];
    for (k, word) in used.iter().enumerate() {
        let mut left = word.load(Ordering::Relaxed);
        while left != 0 {
            diagonals.push((k * BITS) as i64 + i64::from(left.trailing_zeros()) + 1 - rows as i64);
            left &= left - 1;
        }
    }
    let slots = rows.next_multiple_of(HEIGHT) * diagonals.len();
    check_padding(Dia::<T>::NAME, slots, csr.nnz(), "SELL-P or CSR store scattered entries")?;
    Ok(diagonals)
}

row_operator!(Dia);

impl<T: Real> Format<T> for Dia<T> {
    const NAME: &'static str = "DIA";
    type Value = T;
    type Options = ();

    fn with(csr: &Csr<T>, (): ()) -> Result<Self> {
        Dia::new(csr)
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
        row.next_multiple_of(HEIGHT) * self.diagonals.len()
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        let pattern = &self.source.pattern;
        let first = row / HEIGHT * HEIGHT * self.diagonals.len() + row % HEIGHT;
        // columns and diagonals both ascend
        let mut d = 0;
        for (entry, &column) in pattern.offsets.range(row).zip(pattern.row(row)) {
            let offset = i64::from(column) - row as i64;
            while self.diagonals.get(d).is_some_and(|&at| at < offset) {
                d += 1;
            }
            if d == self.diagonals.len() {
                // a diagonal is missing only if the matrix was loaded from a damaged file
                return;
            }
            visit(entry, first + d * HEIGHT);
        }
    }
}

impl<T: Real> Offered<T> for Dia<T> {
    /// On a CPU the time is that of the bytes: 16 threads with AVX-512 stream 120 GB/s of `elast55`, with DIA
    /// (403 MB with the vectors in 3.36 ms) as with BSR (338 MB in 2.81 ms). The coefficient would be wrong
    /// if it depended on the number of diagonals: relative to SELL-P it is 0.99 to 1.05 for 7, 15, 27 and 99
    /// diagonals in f64 (last rows of `benches/record/zen3-2t`).
    ///
    /// The constant cost on a GPU was set manually to the middle of the range that minimizes the maximum,
    /// over the fitted matrices, of the time of the chosen format divided by the time of the fastest one.
    fn variants() -> Vec<Variant> {
        vec![Variant {
            name: Self::NAME,
            host: Coefficients::Fixed(CostModel { start: 0.0, byte: 1.0, gather: 0.0, row: 0.0, wait: 0.0 }),
            gpu: Coefficients::Fixed(CostModel {
                start: 10.5e6,
                byte: 0.881,
                gather: 0.0,
                row: 0.0,
                wait: 0.128e6,
            }),
        }]
    }

    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<()>>> {
        let diagonals = diagonals_of(matrix.csr)?.len();
        let slots = matrix.csr.rows().next_multiple_of(HEIGHT) * diagonals;
        let bytes = diagonals * size_of::<i64>() + slots * size_of::<T>();
        Ok(vec![Offer {
            detail: format!("{diagonals} diagonals"),
            gathers: 0.0,
            waits: if matrix.on_gpu() { diagonals } else { 0 },
            ..matrix.offer(Self::variants()[0], (), bytes, slots)
        }])
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for Dia<T> {
    type Arrays<V: Storage<T>> = cuda::formats::dia::Dia<T, V>;

    fn chosen(&self) {}

    fn lay_out<V: Storage<T>>(csr: &Csr<T>, (): (), device: &cuda::Device) -> Result<Self::Arrays<V>> {
        let (pattern, diagonals) = (csr.source().on_device(), diagonals_of(csr)?);
        Ok(Self::Arrays::<V>::new(device, pattern, csr.entries(), &diagonals)?)
    }
}
