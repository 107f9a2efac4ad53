//! EHYB (Chen 2022): rows are divided into parts. Each part first copies the entries of `x` that have the
//! indices of its rows to a cache (explicit caching), because most matrix entries of the part multiply these.
//!
//! ```text
//! K ← the smallest integer with rows τ / (K P) < cache            τ bytes per value, P processors   (1)
//! rows of a part ← rows / (K P)                                                                     (2)
//! for each part:                                                  consecutive rows
//!     cached ← entries of x with the indices of the part's rows
//!     for each slice of the part, rows sorted by length:
//!         y[row] ← Σ value · cached[column]                       16-bit columns
//! for each slice of extra lines:                                  rows with entries in columns of other parts
//!     row ← yIdxER[line]                                          the row of an extra line
//!     y[row] ← y[row] + Σ value · x[column]                       32-bit columns
//! ```
//!
//! For an entry whose column has the index of a row of the same part, a product reads 10 bytes instead of 12
//! (f64), or 6 instead of 8 (f32). The number of such entries depends on the order of the unknowns: use
//! [`Permutation::clustered`](crate::Permutation::clustered) with [`Ehyb::rows_per_part`].
//! [`Halo`](super::Halo) develops the idea further: it has no extra lines, and reads fewer bytes.
//!
//! Differs from the paper:
//! 1. Parts are consecutive rows, of equal height except for the last. The paper's listing assumes equal
//!    heights too, which the parts of METIS do not have. Reordering is a separate step, and rows sorted by
//!    length keep their indices.
//! 2. Extra lines are added after all parts are written. In the listing, thread blocks store the sums of
//!    parts while others may already have added extra lines, which is a race.
//! 3. The values of extra lines are filled by their own index; line 14 of algorithm 2 uses the index of the
//!    ELL part instead.
//! 4. Work counters start at zero in every product. The published counter of extra lines is reset only once,
//!    so that from the second product on extra lines are skipped. Here the hardware schedules thread blocks,
//!    and each part has its own counter.
//! 5. In host memory `P` is 1, so that no sum depends on the number of threads, and the cache is the L2
//!    cache. Rows are sorted within chunks of 768 rows, and extra lines follow their chunk, so that threads
//!    share chunks and `y` is in cache when extra lines are added. Columns of extra lines take 16 bits if
//!    they fit.
//! 6. On a GPU `P` is twice the number of multiprocessors, and the cache is half of the shared memory: of two
//!    thread blocks on one multiprocessor, one multiplies while the other loads its `x`. Unless a number of
//!    rows is given, parts have a multiple of 96 rows, except for the last.
//! 7. In a product without inner product, slices are assigned to warps dynamically. In a product fused with
//!    `⟨x, y⟩` they are assigned round-robin, because the inner product would otherwise depend on timing.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::pattern::Pattern;
use super::slices::{SliceWidths, Slices, Stored, check_padding, default_height};
use super::{Analysis, Coefficients, Csr, Format, Offer, Offered, Source, Variant, row_operator};
use crate::error::{Error, Result};
use crate::numbers::{Real, Storage};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::formats::ehyb;
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::run::threads::{CHUNK, map_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;
use krysp_kernels::index::Offsets;
use krysp_kernels::parts::{Parts, rows_per_part};
use std::cmp::Reverse;
use std::ops::Range;

/// Maximum bytes of `x` per part: a fraction of a core's L2 cache that leaves space for the streamed matrix
/// (guess).
const CACHE: usize = 256 << 10;

/// Marks a row without an extra line, and a line without a row.
const NONE: u16 = u16::MAX;

/// Options of the conversion to EHYB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EhybOptions {
    /// Rows per part. In host memory a multiple of 768 below 65535; on a GPU any number whose part of `x`
    /// fits the shared memory, rounded up to a multiple of 32. `None` computes it from equations 1 and 2.
    pub rows_per_part: Option<usize>,
}

/// A matrix in EHYB format.
#[derive(Clone, Debug)]
pub struct Ehyb<T: Real> {
    source: Source<T>,
    parts: Parts,
    inside: Slices,
    extra: Slices,
    lines: Lines,
    /// Values: for each chunk, the slots of its rows, then those of its extra lines.
    values: Buffer<T>,
}

impl<T: Real> Ehyb<T> {
    /// Converts a matrix with parts that fit the cache of a core.
    pub fn new(csr: &Csr<T>) -> Result<Ehyb<T>> {
        Ehyb::with(csr, EhybOptions::default())
    }

    /// Converts a matrix. Returns an error if it would be mostly padding.
    pub fn with(csr: &Csr<T>, options: EhybOptions) -> Result<Ehyb<T>> {
        let fitting = || rows_per_part(csr.rows(), 1, CACHE / size_of::<T>() - 1, CHUNK);
        let rows = options.rows_per_part.unwrap_or_else(fitting);
        if rows == 0 || !rows.is_multiple_of(CHUNK) || rows >= usize::from(u16::MAX) {
            return Err(Error::Option {
                what: "`rows_per_part`",
                got: rows.to_string(),
                expected: "a multiple of 768 below 65535",
            });
        }
        let (pattern, height) = (csr.pattern(), default_height::<T>());
        let parts = Parts::new(csr.rows(), csr.cols(), rows);
        let lengths = map_rows(csr.rows(), 8, &|row| inside(parts, pattern, row).len() as u32);
        let chunks = csr.rows().div_ceil(CHUNK);
        let sorted = map_rows(chunks, CHUNK, &|chunk| Sorted::new(pattern, &lengths, chunk, height));

        let order = sorted.iter().flat_map(|chunk| &chunk.order).copied().collect();
        let widths = SliceWidths::Each(Offsets::from_lengths(sorted.iter().flat_map(|c| c.widths.clone())));
        let columns_inside = |row: usize| &pattern.row(row)[inside(parts, pattern, row)];
        let stored = Stored { rows: csr.rows(), cols: csr.cols(), of: &columns_inside };
        let inside = Slices::of(Self::NAME, stored, height, widths, Some(order))?;

        let lines = Lines::new(csr.rows(), &sorted);
        let outside = Outside::new(parts, pattern, &lines);
        let widths = Offsets::from_lengths(sorted.iter().flat_map(|chunk| chunk.extra_widths.clone()));
        let columns_outside = |line: usize| outside.row(line);
        let stored = Stored { rows: lines.count(), cols: csr.cols(), of: &columns_outside };
        let extra = Slices::of(Self::NAME, stored, height, SliceWidths::Each(widths), None)?;

        let slots = inside.slots() + extra.slots();
        check_padding(Self::NAME, slots, csr.nnz(), "CSR stores rows of any length")?;
        let values = Buffer::zeros(slots);
        let mut ehyb = Ehyb { source: csr.source().clone(), parts, inside, extra, lines, values };
        ehyb.fill(csr.entries());
        Ok(ehyb)
    }

    /// Number of parts.
    pub fn parts(&self) -> usize {
        self.parts.count()
    }

    fn kernel<'a, V: Storage<T>>(&'a self, values: &'a [V]) -> impl RowProduct<T> {
        let (inside, extra) = (self.inside.kernel(values, None), self.extra.kernel(values, None));
        ehyb::Ehyb { inside, extra, lines: &self.lines.of_chunks, rows: &self.lines.rows }
    }

    fn array_bytes(&self) -> usize {
        let lines = self.lines.of_chunks.bytes() + size_of_val(&*self.lines.rows);
        self.inside.bytes() + self.extra.bytes() + lines + size_of_val(&*self.values)
    }
}

/// Range of the entries of a row in columns whose indices are those of rows of the same part.
fn inside(parts: Parts, pattern: &Pattern, row: usize) -> Range<usize> {
    parts.inside(row, pattern.row(row))
}

/// Order of the rows of a chunk in slices, and of its extra lines.
#[derive(Clone, Debug, Default)]
struct Sorted {
    /// Row at each position, in descending order of the number of entries in columns of the same part.
    order: Vec<u16>,
    /// Length of the longest row of each slice.
    widths: Vec<usize>,
    /// Rows with extra lines, in descending order of the number of entries in columns of other parts.
    extra: Vec<u16>,
    /// Length of the longest line of each slice.
    extra_widths: Vec<usize>,
}

impl Sorted {
    /// Sorts the rows of a chunk. `lengths` holds, for each row of the matrix, the number of its entries in
    /// columns of the same part.
    fn new(pattern: &Pattern, lengths: &[u32], chunk: usize, height: usize) -> Sorted {
        let first = chunk * CHUNK;
        let lengths = &lengths[first..lengths.len().min(first + CHUNK)];
        let inside = |row: u16| lengths[row as usize] as usize;
        let outside = |row: u16| pattern.row(first + row as usize).len() - inside(row);
        let mut order: Vec<u16> = (0..lengths.len() as u16).collect();
        let mut extra: Vec<u16> = order.iter().copied().filter(|&row| outside(row) > 0).collect();
        order.sort_by_key(|&row| Reverse(inside(row)));
        extra.sort_by_key(|&row| Reverse(outside(row)));
        // rows are in descending order: the first of a slice is its longest
        let widths = order.iter().step_by(height).map(|&row| inside(row)).collect();
        let extra_widths: Vec<usize> = extra.iter().step_by(height).map(|&row| outside(row)).collect();
        extra.resize(extra_widths.len() * height, NONE);
        Sorted { order, widths, extra, extra_widths }
    }
}

/// Extra lines: one per row that has entries in columns of other parts. The lines of a chunk are padded to
/// whole slices.
#[derive(Clone, Debug)]
struct Lines {
    /// Range of lines of each chunk.
    of_chunks: Offsets,
    /// `yIdxER`: row of each line, relative to its chunk.
    rows: Vec<u16>,
    /// Line of each row, relative to its chunk.
    line_of: Vec<u16>,
}

impl Lines {
    fn new(rows: usize, sorted: &[Sorted]) -> Lines {
        let mut line_of = vec![NONE; rows];
        for (chunk, sorted) in line_of.chunks_mut(CHUNK).zip(sorted) {
            for (line, &row) in sorted.extra.iter().enumerate().filter(|(_, row)| **row != NONE) {
                chunk[row as usize] = line as u16;
            }
        }
        let rows = sorted.iter().flat_map(|chunk| &chunk.extra).copied().collect();
        Lines {
            of_chunks: Offsets::from_lengths(sorted.iter().map(|chunk| chunk.extra.len())),
            rows,
            line_of,
        }
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    /// Line of a row that has one.
    fn of(&self, row: usize) -> usize {
        self.of_chunks.at(row / CHUNK) + self.line_of[row] as usize
    }

    /// Row of each line of a chunk; `None` for padding lines.
    fn rows(&self, chunk: usize) -> impl Iterator<Item = Option<usize>> {
        let row = move |&row: &u16| (row != NONE).then_some(chunk * CHUNK + row as usize);
        self.rows[self.of_chunks.range(chunk)].iter().map(row)
    }
}

/// Columns of the entries of the extra lines, line by line.
struct Outside {
    offsets: Offsets,
    columns: Vec<u32>,
}

impl Outside {
    fn new(parts: Parts, pattern: &Pattern, lines: &Lines) -> Outside {
        let (mut lengths, mut columns) = (Vec::with_capacity(lines.count()), vec![]);
        for row in (0..lines.of_chunks.ranges()).flat_map(|chunk| lines.rows(chunk)) {
            let before = columns.len();
            if let Some(row) = row {
                let (all, inside) = (pattern.row(row), inside(parts, pattern, row));
                columns.extend_from_slice(&all[..inside.start]);
                columns.extend_from_slice(&all[inside.end..]);
            }
            lengths.push(columns.len() - before);
        }
        Outside { offsets: Offsets::from_lengths(lengths), columns }
    }

    fn row(&self, line: usize) -> &[u32] {
        &self.columns[self.offsets.range(line)]
    }
}

row_operator!(Ehyb);

impl<T: Real> Format<T> for Ehyb<T> {
    const NAME: &'static str = "EHYB";
    type Value = T;
    type Options = EhybOptions;

    fn with(csr: &Csr<T>, options: EhybOptions) -> Result<Self> {
        Ehyb::with(csr, options)
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
        let lines = self.lines.of_chunks.at(row.div_ceil(CHUNK));
        self.inside.first_slot(row) + self.extra.first_slot(lines)
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        let pattern = &self.source.pattern;
        let (entries, chunk) = (pattern.offsets.range(row), row / CHUNK);
        let inside = inside(self.parts, pattern, row);
        let (first, end) = (entries.start + inside.start, entries.start + inside.end);
        let before = self.extra.first_slot(self.lines.of_chunks.at(chunk));
        let slots = self.inside.row_slots(row);
        (first..end).zip(slots).for_each(|(entry, slot)| visit(entry, before + slot));
        if inside.len() < entries.len() {
            let before = self.inside.first_slot(pattern.rows().min((chunk + 1) * CHUNK));
            let slots = self.extra.row_slots(self.lines.of(row));
            let outside = (entries.start..first).chain(end..entries.end);
            outside.zip(slots).for_each(|(entry, slot)| visit(entry, before + slot));
        }
    }
}

impl<T: Real> Offered<T> for Ehyb<T> {
    /// EHYB is not offered to the automatic choice: SELL-P may have 16-bit columns, too, and
    /// [`Halo`](super::Halo) has them for all entries.
    fn variants() -> Vec<Variant> {
        let why = "never chosen automatically: its extra lines move more bytes than SELL-P or Halo";
        vec![Variant {
            name: Self::NAME,
            host: Coefficients::NotOffered(why),
            gpu: Coefficients::NotOffered(why),
        }]
    }

    fn offers(_: &Analysis<'_, T>) -> Result<Vec<Offer<EhybOptions>>> {
        Ok(vec![])
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> Ehyb<T> {
    /// Rows per part on a GPU. Pass the number to [`Permutation::clustered`](crate::Permutation::clustered),
    /// so that the runs of that ordering are the parts.
    ///
    /// ```no_run
    /// # fn main() -> krysp::Result<()> {
    /// # let csr = krysp::Csr::<f64>::from_triplets(1, 1, &[(0, 0, 1.0)])?;
    /// use krysp::formats::OnDevice;
    /// use krysp::{Cuda, Ehyb, Permutation};
    ///
    /// let gpu = Cuda::new(0)?;
    /// let permutation = Permutation::clustered(&csr, Ehyb::<f64>::rows_per_part(&gpu, csr.rows())?)?;
    /// let a = Ehyb::on(&gpu, &csr.reordered(&permutation)?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rows_per_part(gpu: &crate::device::Cuda, rows: usize) -> Result<usize> {
        Ok(cuda::formats::ehyb::rows_per_part::<T>(gpu.device(), rows)?)
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for Ehyb<T> {
    type Arrays<V: Storage<T>> = cuda::formats::ehyb::Ehyb<T, V>;

    /// Returns the default options, because the parts depend on the cache size, which differs on a device.
    fn chosen(&self) -> EhybOptions {
        EhybOptions::default()
    }

    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: EhybOptions,
        device: &cuda::Device,
    ) -> Result<Self::Arrays<V>> {
        Ok(Self::Arrays::<V>::new(device, csr.source().on_device(), csr.entries(), options.rows_per_part)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::coo::tests::{matrices, obeys};
    use super::*;

    #[test]
    fn any_parts_obey() {
        for csr in &matrices::<f64>() {
            for chunks in [1, 2, 85] {
                obeys(csr, |csr| Ehyb::with(csr, EhybOptions { rows_per_part: Some(chunks * CHUNK) }));
            }
        }
        matrices::<f32>().iter().for_each(|csr| obeys(csr, Ehyb::new));
    }

    fn tridiagonal(rows: usize) -> Csr<f64> {
        let row = |i: usize| (i.saturating_sub(1)..rows.min(i + 2)).map(move |j| (i, j, 1.0 + j as f64));
        Csr::from_triplets(rows, rows, &(0..rows).flat_map(row).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn only_rows_at_the_borders_of_parts_have_extra_lines() {
        let rows = 3 * 2 * CHUNK;
        let ehyb = Ehyb::with(&tridiagonal(rows), EhybOptions { rows_per_part: Some(2 * CHUNK) }).unwrap();
        assert_eq!(ehyb.parts(), 3);
        let lines: Vec<usize> =
            (0..rows / CHUNK).flat_map(|chunk| ehyb.lines.rows(chunk)).flatten().collect();
        assert_eq!(lines, [2, 4].map(|chunk| [chunk * CHUNK - 1, chunk * CHUNK]).concat());
        // extra lines have one entry each, so that a chunk with lines has one slice of them, of width 1
        assert_eq!(ehyb.extra.slots(), 4 * default_height::<f64>());
        assert!(ehyb.inside.short() && ehyb.inside.slots() < 3 * rows + 8 * default_height::<f64>());
        let one = Ehyb::new(&tridiagonal(rows)).unwrap();
        assert_eq!((one.parts(), one.extra.slots()), (1, 0));
    }

    #[test]
    fn parts_of_other_heights_are_refused() {
        for rows in [0, 1, 767, 769, 86 * CHUNK] {
            let refused = Ehyb::with(&tridiagonal(5), EhybOptions { rows_per_part: Some(rows) }).unwrap_err();
            assert!(matches!(&refused, Error::Option { got, .. } if *got == rows.to_string()), "{refused}");
        }
    }
}
