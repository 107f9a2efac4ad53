//! Rows padded to the longest, one after the other.

use crate::kernel;
use krysp::formats::extend::{
    Analysis, Buffer, Coefficients, Columns, CostModel, Format, Offer, Offered, Real, RowByRow, RowProduct,
    Source, Storage, Variant, check_padding, fill_by_rows, row_operator, saved,
};
use krysp::{Csr, Error, Result};

/// A matrix whose rows are padded to the longest.
#[derive(Clone, Debug)]
pub struct Padded<T: Real> {
    source: Source<T>,
    width: usize,
    columns: Columns,
    values: Buffer<T>,
}

saved!(impl[T: Real] Padded<T> { source, width, columns, values } where |read| {
    read.source.fits(&read.kernel(&read.values))
});

impl<T: Real> Padded<T> {
    /// Converts a matrix; refuses one that would be mostly padding.
    pub fn new(csr: &Csr<T>) -> Result<Padded<T>> {
        let width = csr.row_lengths().max().unwrap_or(0);
        let slots = csr.rows() * width;
        check_padding(Self::NAME, slots, csr.nnz(), "SELL-P stores rows of unequal length")?;
        let mut columns = Buffer::zeros(slots);
        fill_by_rows(csr.rows(), &mut columns, &|row| row * width, &|rows, part: &mut [u32], _| {
            for (row, part) in rows.zip(part.chunks_mut(width.max(1))) {
                let stored = csr.row_columns(row);
                part.fill(stored.last().copied().unwrap_or(0));
                part[..stored.len()].copy_from_slice(stored);
            }
        });
        let why = "a column is out of range";
        let columns = Columns::new(columns, csr.cols())
            .map_err(|_| Error::Unsuitable { format: Self::NAME, why: why.into() })?;
        let values = Buffer::zeros(slots);
        let mut padded = Padded { source: csr.source().clone(), width, columns, values };
        padded.fill(csr.entries());
        Ok(padded)
    }

    fn kernel<'a, V: Storage<T>>(&'a self, values: &'a [V]) -> impl RowProduct<T> {
        let Padded { source, width, columns, .. } = self;
        RowByRow(kernel::Padded { rows: source.rows(), width: *width, columns, values })
    }

    fn array_bytes(&self) -> usize {
        size_of_val(&*self.columns) + size_of_val(&*self.values)
    }
}

row_operator!(Padded);

impl<T: Real> Format<T> for Padded<T> {
    const NAME: &'static str = "padded";
    type Value = T;
    type Options = ();

    fn with(csr: &Csr<T>, (): ()) -> Result<Self> {
        Padded::new(csr)
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
        row * self.width
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        let entries = self.source.row_entries(row).take(self.width);
        entries.zip(row * self.width..).for_each(|(entry, slot)| visit(entry, slot));
    }
}

impl<T: Real> Offered<T> for Padded<T> {
    /// A guess: the coefficients of CSR, and a little less for a row, as no offsets are read.
    fn variants() -> Vec<Variant> {
        vec![Variant {
            name: Self::NAME,
            host: Coefficients::Fixed(CostModel { start: 0.0, byte: 1.0, gather: 0.0, row: 20.0, wait: 0.0 }),
            gpu: Coefficients::NotOffered("there is no kernel for it"),
        }]
    }

    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<()>>> {
        let (rows, width) = (matrix.rows.rows, matrix.rows.longest);
        let slots = rows * width;
        check_padding(Self::NAME, slots, matrix.rows.entries, "rows are of unequal length")?;
        let bytes = slots * Analysis::<T>::ENTRY;
        Ok(vec![Offer {
            detail: format!("{width} slots a row"),
            rows,
            ..matrix.offer(Self::variants()[0], (), bytes, slots)
        }])
    }
}
