//! Sparse formats: one file each, with its conversion and its operator.
//!
//! [`Csr`] is the hub and the only one a user must know. Every other is made from it, keeps its values in slots of its
//! own order, and can be [refreshed](Format::refresh) with values in the order in which the matrix was given.

mod bsr;
mod coo;
mod csr;
mod csr_ref;
pub(crate) mod derived;
mod dia;
mod ehyb;
mod ell;
mod ellpack_r;
mod halo;
mod hyb;
mod input;
mod list;
mod offer;
#[cfg(feature = "cuda")]
mod on_device;
pub(crate) mod pattern;
mod renumbered;
mod rounded;
mod sell;
mod slices;
mod symmetric;
mod symmetric_bsr;
#[cfg(test)]
mod worked_example;

// what is public in the file of each format: its type, its options, and functions that belong to it
macro_rules! reexport {
    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
        $(pub use $file::*;)*
    };
}
crate::each_format!(reexport);

pub use csr_ref::CsrRef;
pub use input::Index;
pub use krysp_kernels::strategy::Strategy;
pub(crate) use offer::{Offer, Offered, Priced, Variant};
#[cfg(feature = "cuda")]
pub use on_device::OnDevice;
pub use rounded::Rounded;
pub(crate) use slices::{check_padding, default_height, has_short_columns};

use crate::{HostSpace, HostVector, Real, Result, Storage, partition};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::formats::residual::Equations;
use krysp_kernels::cpu::run::rows::{self, Parts, RowProduct};
use krysp_kernels::cpu::run::threads::{self, CHUNK};
use krysp_kernels::cpu::simd::storage::narrow;
use krysp_kernels::index::OffsetsRef;
use krysp_solvers::{Error, LinearOperator, Space, Vector};
use pattern::{Pattern, fill_by_rows};
use std::borrow::Cow;
use std::sync::Arc;

/// A sparse format in host memory.
///
/// A format stores each entry of its matrix in a slot, among slots of padding that hold zero. The slots of every
/// [`CHUNK`] rows lie together, so that threads can fill them apart.
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

    /// New values for the same pattern, in the order in which the matrix was given: its triplets, its CSR or CSC arrays,
    /// its triangle. Nothing is analysed again.
    fn refresh(&mut self, values: &[T]) -> Result<()> {
        let pattern = self.source().pattern.clone();
        self.fill(&entries_of(&pattern, values)?);
        Ok(())
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

/// Products of a matrix in whose slots stand other values than its own, as many: those of [`Rounded`].
pub trait Multiply<T: Real> {
    /// `y ← A x`
    fn multiply<V: Storage<T>>(
        &self,
        values: &[V],
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()>;

    /// `y ← A x; ⟨x, y⟩`
    fn multiply_dot<V: Storage<T>>(
        &self,
        values: &[V],
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<T>;
}

/// The values of a pattern's entries, from values in the order given.
pub(crate) fn entries_of<'v, T: Real>(pattern: &Pattern, given: &'v [T]) -> Result<Cow<'v, [T]>> {
    if matches!(*pattern.given, pattern::Given::InOrder { len } if len == given.len()) {
        return Ok(Cow::Borrowed(given));
    }
    let mut entries = vec![T::zero(); pattern.entries()];
    pattern.assemble(given, &mut entries)?;
    Ok(Cow::Owned(entries))
}

/// What every format keeps of the matrix it was made from: the pattern, the spaces, and how threads share the rows.
#[derive(Clone, Debug)]
pub struct Source<T> {
    pub(crate) pattern: Arc<Pattern>,
    layout: Layout<T>,
}

impl<T: Real> Source<T> {
    pub(crate) fn new(pattern: Arc<Pattern>, domain: HostSpace<T>, range: HostSpace<T>) -> Self {
        let layout = Layout::new(&*pattern.offsets, domain, range);
        Source { pattern, layout }
    }

    /// Where `x` lives.
    pub fn domain(&self) -> &HostSpace<T> {
        self.layout.domain()
    }

    /// Where `y` lives.
    pub fn range(&self) -> &HostSpace<T> {
        self.layout.range()
    }

    /// The number of entries.
    pub fn nnz(&self) -> usize {
        self.pattern.entries()
    }

    /// Bytes of the pattern that every format made from one matrix shares; products do not read them.
    pub fn bytes(&self) -> usize {
        self.pattern.bytes()
    }

    /// The pattern as devices take it.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_device(&self) -> krysp_kernels::cuda::Pattern<'_> {
        self.pattern.on_device()
    }

    pub(crate) fn product(
        &self,
        kernel: &impl RowProduct<T>,
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.layout.product(kernel, x, y)
    }

    pub(crate) fn product_dot(
        &self,
        kernel: &impl RowProduct<T>,
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<T> {
        self.layout.product_dot(kernel, x, y)
    }

    /// `r ← b − A x` in twice the precision, where these are the entries of the pattern.
    pub(crate) fn residual(
        &self,
        entries: &[T],
        b: &HostVector<T>,
        x: &HostVector<T>,
        r: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.layout.check_residual(b, x, r)?;
        let pattern = &self.pattern;
        Equations {
            offsets: (&*pattern.offsets).into(),
            columns: (&*pattern.columns).into(),
            values: entries,
            b: b.as_slice(),
            x: x.as_slice(),
        }
        .residual(r.as_mut_slice());
        Ok(())
    }

    pub(crate) fn check_square(&self) -> krysp_solvers::Result<()> {
        self.layout.check_square()
    }

    pub(crate) fn check(&self, x: &HostVector<T>, y: &HostVector<T>) -> krysp_solvers::Result<()> {
        self.layout.check(x, y)
    }
}

/// The spaces of a matrix, and how threads share its rows.
#[derive(Clone, Debug)]
pub(crate) struct Layout<T> {
    domain: HostSpace<T>,
    range: HostSpace<T>,
    /// Boundaries at chunks.
    parts: Arc<[usize]>,
    /// Boundaries at blocks of the vectors, where these balance well enough for a fused inner product.
    block_parts: Option<Arc<[usize]>>,
}

impl<T: Real> Layout<T> {
    pub(crate) fn new<'o>(
        offsets: impl Into<OffsetsRef<'o>>,
        domain: HostSpace<T>,
        range: HostSpace<T>,
    ) -> Self {
        let offsets = offsets.into();
        let (entries, rows) = (offsets.end(), offsets.ranges());
        let count = threads::tasks(entries + rows);
        let parts = partition::even_parts(offsets, count, CHUNK);
        let block_parts = partition::even_parts(offsets, count, threads::block_rows(rows));
        let heaviest = |bounds: &[usize]| {
            bounds.windows(2).map(|b| offsets.at(b[1]) - offsets.at(b[0])).max().unwrap_or(0)
        };
        let balanced = 4 * heaviest(&block_parts) <= 5 * heaviest(&parts) + 4 * CHUNK;
        let block_parts = (domain == range && balanced).then(|| block_parts.into());
        Layout { domain, range, parts: parts.into(), block_parts }
    }

    pub(crate) fn domain(&self) -> &HostSpace<T> {
        &self.domain
    }

    pub(crate) fn range(&self) -> &HostSpace<T> {
        &self.range
    }

    /// `y ← A x`
    pub(crate) fn product(
        &self,
        kernel: &impl RowProduct<T>,
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.check(x, y)?;
        rows::product(kernel, Parts::new(&self.parts), x.as_slice(), y.as_mut_slice());
        Ok(())
    }

    /// `y ← A x; ⟨x, y⟩`
    pub(crate) fn product_dot(
        &self,
        kernel: &impl RowProduct<T>,
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<T> {
        let Some(parts) = &self.block_parts else {
            self.check_square()?;
            self.product(kernel, x, y)?;
            return Ok(x.dot(y));
        };
        self.check(x, y)?;
        Ok(rows::product_dot(kernel, Parts::new(parts), x.as_slice(), y.as_mut_slice()))
    }

    /// Refuses an inner product of vectors in unequal spaces.
    pub(crate) fn check_square(&self) -> krysp_solvers::Result<()> {
        if self.domain == self.range {
            return Ok(());
        }
        Err(Error::NotSquare { rows: self.range.len(), columns: self.domain.len() })
    }

    /// Refuses vectors of other spaces before a kernel sees them.
    pub(crate) fn check(&self, x: &HostVector<T>, y: &HostVector<T>) -> krysp_solvers::Result<()> {
        fits("`x`", x, "`A`'s columns", &self.domain)?;
        fits("`y`", y, "`A`'s rows", &self.range)
    }

    /// Refuses vectors of other spaces before a residual is computed.
    fn check_residual(
        &self,
        b: &HostVector<T>,
        x: &HostVector<T>,
        r: &HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.check(x, r)?;
        fits("`b`", b, "`A`'s rows", &self.range)
    }
}

fn fits<T: Real>(
    what: &'static str,
    vector: &HostVector<T>,
    of: &'static str,
    space: &HostSpace<T>,
) -> krysp_solvers::Result<()> {
    if vector.space().len() != space.len() {
        return Err(Error::Size { what, got: vector.space().len(), of, expected: space.len() });
    }
    if vector.space() != space {
        return Err(Error::Space { what, than: "`A`" });
    }
    Ok(())
}

/// The operator of a format whose `kernel(values)` computes rows by themselves and whose `array_bytes()` a product reads.
macro_rules! row_operator {
    ($format:ident) => {
        $crate::formats::row_operator!($format<>, source, {
            $crate::formats::precise_residual!();
        });
    };
    ($format:ident<$($life:lifetime)?>, $layout:ident, { $($more:tt)* }) => {
        impl<$($life,)? T: crate::Real> $crate::formats::Multiply<T> for $format<$($life,)? T> {
            fn multiply<V: crate::Storage<T>>(
                &self,
                values: &[V],
                x: &crate::HostVector<T>,
                y: &mut crate::HostVector<T>,
            ) -> krysp_solvers::Result<()> {
                self.$layout.product(&self.kernel(values), x, y)
            }

            fn multiply_dot<V: crate::Storage<T>>(
                &self,
                values: &[V],
                x: &crate::HostVector<T>,
                y: &mut crate::HostVector<T>,
            ) -> krysp_solvers::Result<T> {
                self.$layout.product_dot(&self.kernel(values), x, y)
            }
        }

        impl<$($life,)? T: crate::Real> krysp_solvers::LinearOperator for $format<$($life,)? T> {
            type Vector = crate::HostVector<T>;

            fn domain(&self) -> &crate::HostSpace<T> {
                self.$layout.domain()
            }

            fn range(&self) -> &crate::HostSpace<T> {
                self.$layout.range()
            }

            fn apply(&self, x: &Self::Vector, y: &mut Self::Vector) -> krysp_solvers::Result<()> {
                $crate::formats::Multiply::multiply(self, &self.values, x, y)
            }

            fn apply_dot(&self, x: &Self::Vector, y: &mut Self::Vector) -> krysp_solvers::Result<T> {
                $crate::formats::Multiply::multiply_dot(self, &self.values, x, y)
            }

            $($more)*

            fn bytes(&self) -> usize {
                self.array_bytes()
            }
        }
    };
}
pub(crate) use row_operator;

/// The residual of a [`Format`] of elements `T`, from the entries that its slots hold.
macro_rules! precise_residual {
    () => {
        fn residual(
            &self,
            b: &crate::HostVector<T>,
            x: &crate::HostVector<T>,
            r: &mut crate::HostVector<T>,
        ) -> krysp_solvers::Result<()> {
            use crate::formats::Format;
            self.source().residual(&self.entries_from(self.values()), b, x, r)
        }
    };
}
pub(crate) use precise_residual;

#[cfg(test)]
mod tests {
    use super::coo::tests::with_lengths;
    use super::*;
    use crate::simd::{Level, force};

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
