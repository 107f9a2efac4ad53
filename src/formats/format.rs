//! What every format of the library can do.

use super::pattern::fill_by_rows;
use super::{Csr, Multiply, Source};
use crate::{HostVector, Real, Result, Storage};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::simd::storage::narrow;
use krysp_solvers::LinearOperator;

/// A sparse format in host memory.
///
/// A format stores each entry of its matrix in a slot, among slots of padding that hold zero. The slots of every
/// [`CHUNK`](krysp_kernels::cpu::run::threads::CHUNK) rows lie together, so that threads can fill them apart.
///
/// Every format is made by [`Format::new`] with default options, or by [`Format::with`]. The trait is sealed: the formats of
/// this library implement it. A format of one's own implements [`LinearOperator`], and all methods run on it.
pub trait Format<T: Real>: LinearOperator<Vector = HostVector<T>> + Multiply<T> + Sized {
    /// Its name.
    const NAME: &'static str;

    /// What its slots hold: `T`, or what has fewer bits.
    type Value: Storage<T>;

    /// What may be chosen of it, in host memory and on a GPU alike; `()` where there is nothing to choose.
    type Options: Clone + Default + 'static;

    /// Converts a matrix, with default options.
    fn new(csr: &Csr<T>) -> Result<Self> {
        Self::with(csr, Self::Options::default())
    }

    /// Converts a matrix; refuses an option that has no meaning in host memory.
    fn with(csr: &Csr<T>, options: Self::Options) -> Result<Self>;

    /// The matrix it was made from.
    fn source(&self) -> &Source<T>;

    /// The values of all slots.
    fn values(&self) -> &Buffer<Self::Value>;

    /// The values of all slots.
    fn values_mut(&mut self) -> &mut Buffer<Self::Value>;

    /// The first slot of a row that begins a chunk; the number of slots for the row past the last.
    fn first_slot(&self, row: usize) -> usize;

    /// Visits the entries that a row stores: `(entry of the matrix, slot)`.
    fn slots(&self, row: usize, visit: impl FnMut(usize, usize));

    /// Slots of padding for each entry.
    fn padding(&self) -> f64 {
        let pattern = &self.source().pattern;
        let entries = pattern.entries();
        if entries == 0 {
            return 0.0;
        }
        (self.first_slot(pattern.rows()) - entries) as f64 / entries as f64
    }

    /// Takes new values for the same pattern, in the order of [`Csr::entries`] of the matrix that this was made from: one for
    /// each entry, row by row with ascending columns. Nothing is analysed again.
    ///
    /// Values in the order of triplets, of CSC arrays or of one triangle pass through [`Csr::assemble`] first. A matrix that is
    /// made again brings its order with it: [`Format::refresh_from`].
    ///
    /// Refuses another number of values, and values that are infinite or NaN; then the old ones stay. That check reads the values
    /// once, on all threads, which is 8 of the 20 bytes or more that a refresh moves for an entry (f64).
    ///
    /// ```
    /// use krysp::{Cg, Csr, Format};
    ///
    /// // [[2, -1], [-1, 2]], assembled in an order of its own
    /// let places = [(1, 1, 2.0_f64), (0, 1, -1.0), (0, 0, 2.0), (1, 0, -1.0)];
    /// let a = Csr::from_triplets(2, 2, &places)?;
    /// let mut solver = Cg::new(a.clone());
    /// solver.operator_mut().refresh(a.entries())?;
    /// // twice the matrix, by the values of the triplets
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

    /// Takes the values of a matrix of the same pattern, in whatever order that one was assembled. Refuses another pattern and
    /// names the first row that differs.
    ///
    /// A matrix in another numbering is renumbered first, which takes as long as some ten products.
    fn refresh_from(&mut self, a: &Csr<T>) -> Result<()> {
        let entries = self.source().entries_of(a)?;
        self.refresh(&entries)
    }

    /// Puts the values of the matrix's entries into their slots, and zeros into the padding.
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

    /// The matrix, with the values it has now.
    fn to_csr(&self) -> Csr<T> {
        Csr::from_source(self.source().clone(), self.entries_from(self.values()))
    }

    /// The values of the matrix's entries, where slots hold these.
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
    use crate::simd::{Level, force};
    use krysp_kernels::cpu::run::threads::CHUNK;
    use krysp_solvers::Space;

    /// What a conversion stores, and what it computes.
    fn result<F: Format<f64, Value = f64>>(format: &F) -> (usize, Vec<f64>, Vec<f64>) {
        let x: Vec<f64> = (0..format.domain().len()).map(|i| 1.0 / (1.0 + i as f64)).collect();
        let (mut vector, mut y) = (format.domain().zeros().unwrap(), format.range().zeros().unwrap());
        format.domain().load(&x, &mut vector).unwrap();
        format.apply(&vector, &mut y).unwrap();
        (format.bytes(), format.values().to_vec(), y.as_slice().to_vec())
    }

    /// In every format that suits it, and with options that default ones do not lead to.
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
        crate::each_format!(every_format);
        results
    }

    #[test]
    fn thread_counts_do_not_show_in_conversions() {
        // other tests force others meanwhile
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
