//! The trait of all sparse formats of the library.

use super::{Csr, Multiply, Source};
use crate::error::Result;
use crate::host::HostVector;
use crate::numbers::{Real, Storage};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{CHUNK, fill_by_rows, find_row};
use krysp_kernels::cpu::simd::storage::narrow;
use krysp_solvers::LinearOperator;

/// Returns whether the slots of each row are among those of its chunk. Otherwise [`Format::fill`] would panic; the
/// arrays of a matrix that was read from a forged file may be of that kind.
pub(crate) fn keeps_to_chunks<T: Real, F: Format<T>>(matrix: &F) -> bool {
    let rows = matrix.source().pattern.rows();
    let leaves = |row: usize| {
        let chunk = row / CHUNK * CHUNK;
        let [first, end] = [chunk, rows.min(chunk + CHUNK)].map(|row| matrix.first_slot(row));
        let mut outside = first > end;
        matrix.slots(row, |_, slot| outside |= slot < first || slot >= end);
        outside
    };
    matrix.first_slot(rows) <= matrix.values().len() && find_row(rows, 2, &leaves).is_none()
}

/// A sparse format in host memory.
///
/// A format stores each entry of its matrix in a slot; slots of padding hold zero. The slots of every
/// [`CHUNK`](krysp_kernels::cpu::run::threads::CHUNK) rows are contiguous, so that threads can fill chunks
/// independently.
///
/// Formats are created by [`Format::new`] with default options, or by [`Format::with`].
///
/// Another crate may implement the trait for its format, with the items of
/// [`extend`](crate::formats::extend): then values can be refreshed and [rounded](crate::formats::Rounded),
/// preconditioners read its entries, and with [`Formats`](crate::choice::Formats) it is chosen, saved, and used
/// by plans. Where only products are needed, [`LinearOperator`] is enough: all methods run on it.
pub trait Format<T: Real>: LinearOperator<Vector = HostVector<T>> + Multiply<T> + Sized {
    /// Name of the format.
    const NAME: &'static str;

    /// Type of the values in slots: `T`, or a type with fewer bits.
    type Value: Storage<T>;

    /// Options of the conversion, the same in host memory and on a GPU; `()` if there are none.
    type Options: Clone + Default + 'static;

    /// Converts a matrix with default options.
    fn new(csr: &Csr<T>) -> Result<Self> {
        Self::with(csr, Self::Options::default())
    }

    /// Converts a matrix with options. Returns an error for options that do not apply in host memory. After
    /// [`Error::Unsuitable`](crate::Error::Unsuitable), [`Operator::auto`](crate::Operator::auto) tries the next format.
    fn with(csr: &Csr<T>, options: Self::Options) -> Result<Self>;

    /// Pattern and spaces of the matrix that was converted to this format.
    fn source(&self) -> &Source<T>;

    /// Values of all slots.
    fn values(&self) -> &Buffer<Self::Value>;

    /// Values of all slots, mutable.
    fn values_mut(&mut self) -> &mut Buffer<Self::Value>;

    /// Index of the first slot of the chunk that begins with `row`; `row` must be the first row of a chunk.
    /// If `row` is the number of rows, returns the number of slots. Must not decrease with `row`, and must not depend
    /// on [`Format::values`], which are empty while slots are filled, and in [`Rounded`](crate::formats::Rounded).
    fn first_slot(&self, row: usize) -> usize;

    /// Calls `visit(entry, slot)` for each stored entry of a row: `entry` is its index in [`Csr::entries`],
    /// `slot` its index in [`Format::values`], which may be empty meanwhile. Slots are those of the row's chunk.
    fn slots(&self, row: usize, visit: impl FnMut(usize, usize));

    /// Number of padding slots per entry.
    fn padding(&self) -> f64 {
        let pattern = &self.source().pattern;
        let entries = pattern.entries();
        if entries == 0 {
            return 0.0;
        }
        (self.first_slot(pattern.rows()) - entries) as f64 / entries as f64
    }

    /// Replaces the values and keeps the pattern. `values` are in the order of [`Csr::entries`] of the matrix
    /// that was converted to this format: one for each entry, row by row with ascending columns. The layout
    /// does not change.
    ///
    /// Values in the order of triplets, of CSC arrays or of one triangle must be passed through
    /// [`Csr::assemble`] first. For a matrix that was assembled again as a whole, use
    /// [`Format::refresh_from`].
    ///
    /// Returns an error for a wrong number of values, and for infinite or NaN values; the old values are kept
    /// then. This check reads the values once, on all threads: 8 of the 20 bytes or more that a refresh reads
    /// and writes per entry (f64).
    ///
    /// ```
    /// use krysp::{Cg, Csr, Format};
    ///
    /// // [[2, -1], [-1, 2]], assembled in arbitrary order
    /// let places = [(1, 1, 2.0_f64), (0, 1, -1.0), (0, 0, 2.0), (1, 0, -1.0)];
    /// let a = Csr::from_triplets(2, 2, &places)?;
    /// let mut solver = Cg::new(a.clone());
    /// solver.operator_mut().refresh(a.entries())?;
    /// // refresh with twice the matrix, given in the order of the triplets
    /// let doubled = places.map(|(_, _, value)| 2.0 * value);
    /// solver.operator_mut().refresh(&a.assemble(&doubled)?)?;
    /// let x = solver.solve(&[6.0, 0.0])?.x;
    /// assert!((x[0] - 2.0).abs() + (x[1] - 1.0).abs() < 1e-12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.source().check_entries(values)?;
        self.fill(values);
        Ok(())
    }

    /// Replaces the values by those of a matrix with the same pattern, in whatever order that matrix was
    /// assembled. Returns an error that names the first differing row if the patterns differ.
    ///
    /// A matrix in another order of unknowns is reordered first, which takes about as long as ten
    /// matrix-vector products.
    fn refresh_from(&mut self, a: &Csr<T>) -> Result<()> {
        let entries = self.source().entries_of(a)?;
        self.refresh(&entries)
    }

    /// Writes the values of the matrix's entries to their slots, and zeros to the padding. The values have been checked. Plans call this
    /// instead of [`Format::refresh`], so data that depend on the values belong here.
    fn fill(&mut self, entries: &[T]) {
        let mut values = std::mem::take(self.values_mut());
        let this = &*self;
        fill_by_rows(
            this.source().pattern.rows(),
            &mut values,
            &|row| this.first_slot(row),
            &|rows, part, first| {
                part.fill(narrow(T::zero()));
                for row in rows {
                    this.slots(row, |entry, slot| part[slot - first] = narrow(entries[entry]));
                }
            },
        );
        *self.values_mut() = values;
    }

    /// Converts back to CSR, with the current values.
    fn to_csr(&self) -> Csr<T> {
        Csr::from_source(self.source().clone(), self.entries_from(self.values()))
    }

    /// Values of the matrix's entries, given the values of all slots.
    fn entries_from<V: Storage<T>>(&self, values: &[V]) -> Buffer<T> {
        let pattern = &self.source().pattern;
        let mut entries = Buffer::zeros(pattern.entries());
        let offset = |row: usize| pattern.offsets.at(row);
        fill_by_rows(pattern.rows(), &mut entries, &offset, &|rows, part, first| {
            for row in rows {
                self.slots(row, |entry, slot| part[entry - first] = values[slot].widen());
            }
        });
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::coo::tests::with_lengths;
    use crate::formats::*;
    use krysp_kernels::cpu::run::threads::CHUNK;
    use krysp_kernels::cpu::simd::{Level, force};
    use krysp_solvers::Space;

    /// Number of bytes, values of all slots, and product with a fixed vector, for comparison.
    fn result<F: Format<f64, Value = f64>>(format: &F) -> (usize, Vec<f64>, Vec<f64>) {
        let x: Vec<f64> = (0..format.domain().len()).map(|i| 1.0 / (1.0 + i as f64)).collect();
        let (mut vector, mut y) = (format.domain().zeros().unwrap(), format.range().zeros().unwrap());
        format.domain().load(&x, &mut vector).unwrap();
        format.apply(&vector, &mut y).unwrap();
        (format.bytes(), format.values().to_vec(), y.as_slice().to_vec())
    }

    /// Results of every format that suits a matrix, and of formats with options other than the default.
    fn results(csr: &Csr<f64>) -> Vec<(usize, Vec<f64>, Vec<f64>)> {
        let sorted = SellOptions { window: Some(CHUNK), ..SellOptions::default() };
        let mut results = vec![
            result(&Bsr::with(csr, BsrOptions { size: Some(3) }).unwrap()),
            result(&Ehyb::with(csr, EhybOptions { rows_per_part: Some(2 * CHUNK) }).unwrap()),
            result(&Sell::with(csr, sorted).unwrap()),
        ];
        macro_rules! every_format {
            ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
                $(results.extend($format::new(csr).ok().map(|format| result(&format)));)*
            };
        }
        crate::formats::each_format!(every_format);
        results
    }

    #[test]
    fn thread_counts_do_not_show_in_conversions() {
        // other tests may force other levels meanwhile
        let _one_level = force(Level::Portable);
        let band = (0..30_000usize).flat_map(|i| {
            [i, (i + 1) % 30_000, (i + 40) % 30_000].into_iter().flat_map(move |j| [(i, j, 2.0), (j, i, 2.0)])
        });
        let band = Csr::from_triplets(30_000, 30_000, &band.collect::<Vec<_>>()).unwrap();
        let scattered = |cols| with_lengths::<f64>(30_000, |row| row % 11, cols);
        for csr in [scattered(30_000), scattered(3_000_000), band] {
            let on = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| results(&csr))
            };
            let one = on(1);
            for many in [2, 5].map(on) {
                for (format, (one, many)) in one.iter().zip(many).enumerate() {
                    assert_eq!(one.0, many.0, "{format}");
                    assert!(one.1 == many.1, "values {format}");
                    assert!(one.2 == many.2, "product {format}");
                }
            }
        }
    }
}
