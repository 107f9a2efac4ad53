//! BSR (block compressed sparse rows): small dense blocks, for nodes with several unknowns.
//!
//! One column index is stored for each block of 2, 3, 4 or 6 rows and columns.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::analysis::Model;
use super::pattern::Pattern;
use super::{Analysis, Coefficients, Csr, Format, Offer, Offered, Source, Variant, row_operator};
use crate::error::{Error, Result};
use crate::numbers::{Real, Storage};
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cost::CostModel;
use krysp_kernels::cpu::formats::bsr::{AnyBsr, SLACK};
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::run::threads::{fill_by_rows, find_row, map_rows, over_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::cuda::{self, tuning::BLOCKS_IN_FLIGHT};
use krysp_kernels::index::{Columns, Offsets};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options of the conversion to BSR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BsrOptions {
    /// Rows and columns per block: 2, 3, 4 or 6. `None` selects the size that takes the fewest bytes.
    pub size: Option<usize>,
}

/// A matrix of small dense blocks (BSR).
#[derive(Clone, Debug)]
pub struct Bsr<T: Real> {
    source: Source<T>,
    size: usize,
    /// Block row offsets, counted in blocks.
    offsets: Offsets,
    /// Block column of each block.
    columns: Columns,
    values: Buffer<T>,
}

saved!(impl[T: Real] Bsr<T> { source, size, offsets, columns, values } where |read| {
    BLOCK_SIZES.contains(&read.size) && read.source.fits(&read.kernel(&read.values))
});

/// Block sizes that have a kernel.
pub const BLOCK_SIZES: [usize; 4] = [2, 3, 4, 6];

const LARGEST: usize = BLOCK_SIZES[BLOCK_SIZES.len() - 1];

/// The order in which [`best_block_size`] tries sizes: nodes with three unknowns are the most frequent, and a
/// large block size without padding rules out smaller sizes early.
const MOST_PROMISING_FIRST: [usize; 4] = [3, 6, 4, 2];

impl<T: Real> Bsr<T> {
    /// Converts with the block size that takes the fewest bytes. Returns an error if no block size takes
    /// fewer bytes than CSR.
    pub fn new(csr: &Csr<T>) -> Result<Bsr<T>> {
        Bsr::with(csr, BsrOptions::default())
    }

    /// Converts a matrix. Returns an error if the block size does not divide its rows and columns.
    pub fn with(csr: &Csr<T>, options: BsrOptions) -> Result<Bsr<T>> {
        let size = block_size(csr, options.size)?;
        let (offsets, columns) = block_pattern(csr, size)?;
        let values = Buffer::zeros(offsets.end() * size * size + SLACK);
        let mut bsr = Bsr { source: csr.source().clone(), size, offsets, columns, values };
        bsr.fill(csr.entries());
        Ok(bsr)
    }

    /// Wraps blocks that are already known: their pattern, and their values, column by column within a block,
    /// followed by [`SLACK`] unused values.
    pub(crate) fn of_blocks(source: Source<T>, nodes: &Pattern, values: Buffer<T>) -> Bsr<T> {
        let size = source.pattern.rows() / nodes.rows().max(1);
        Bsr { source, size, offsets: (*nodes.offsets).clone(), columns: nodes.columns.clone(), values }
    }

    /// Block size.
    pub fn block_size(&self) -> usize {
        self.size
    }

    pub(crate) fn kernel<'a, V: Storage<T>>(&'a self, values: &'a [V]) -> impl RowProduct<T> {
        AnyBsr::new(self.size, &self.offsets, &self.columns, values)
    }

    fn array_bytes(&self) -> usize {
        self.offsets.bytes() + size_of_val(&*self.columns) + size_of_val(&*self.values)
    }
}

fn unsuitable<T: Real>(why: String) -> Error {
    Error::Unsuitable { format: Bsr::<T>::NAME, why }
}

/// Block size given by the option, otherwise the one that takes the fewest bytes.
pub(super) fn block_size<T: Real>(csr: &Csr<T>, size: Option<usize>) -> Result<usize> {
    size.map_or_else(|| best_block_size(csr), Ok)
}

/// Block size that takes the fewest bytes. Returns an error if no block size takes fewer bytes than CSR.
pub(crate) fn best_block_size<T: Real>(csr: &Csr<T>) -> Result<usize> {
    best_blocks(csr).map(|(_, size)| size)
}

/// Fewest bytes of any block size, and that size. Returns an error if no block size takes fewer bytes than
/// CSR.
pub(crate) fn best_blocks<T: Real>(csr: &Csr<T>) -> Result<(usize, usize)> {
    let (rows, cols) = (csr.rows(), csr.cols());
    if !BLOCK_SIZES.iter().any(|&size| divides(size, csr)) {
        return Err(unsuitable::<T>(format!("no block size divides {rows} x {cols}")));
    }
    let csr_bytes = csr.nnz() * (size_of::<T>() + 4) + rows * 4;
    let saves_any = if csr.nnz() == 0 { csr_bytes } else { csr_bytes - 1 };
    let mut best: Option<(usize, usize)> = None;
    for size in MOST_PROMISING_FIRST.into_iter().filter(|&size| divides(size, csr)) {
        let (block_bytes, offset_bytes) = (size * size * size_of::<T>() + 4, rows / size * 4);
        let limit = best.map_or(saves_any, |(bytes, _)| bytes);
        let most = limit.saturating_sub(offset_bytes) / block_bytes;
        if let Some(blocks) = count_blocks(csr.pattern(), size, most) {
            let found = (blocks * block_bytes + offset_bytes, size);
            best = Some(best.map_or(found, |best| best.min(found)));
        }
    }
    let none = || unsuitable::<T>(format!("no block size takes fewer bytes than CSR ({csr_bytes})"));
    best.ok_or_else(none)
}

/// Block pattern for a block size: block row offsets, counted in blocks, and block columns.
pub(crate) fn block_pattern<T: Real>(csr: &Csr<T>, size: usize) -> Result<(Offsets, Columns)> {
    if !BLOCK_SIZES.contains(&size) {
        return Err(Error::Option {
            what: "the block size",
            got: size.to_string(),
            expected: "2, 3, 4 or 6",
        });
    }
    if !divides(size, csr) {
        return Err(unsuitable::<T>(format!(
            "block size {size} does not divide {} x {}",
            csr.rows(),
            csr.cols()
        )));
    }
    let (offsets, columns) = blocks_of(csr.pattern(), size);
    let columns = Columns::new(columns, csr.cols() / size)
        .map_err(|_| unsuitable::<T>("a block is outside the matrix".into()))?;
    Ok((offsets, columns))
}

/// Pattern of the nodes, with `size` rows and columns each; `size` must divide the rows and columns of the
/// matrix.
pub(crate) fn node_pattern(pattern: &Pattern, size: usize) -> Result<Pattern> {
    let (offsets, columns) = blocks_of(pattern, size);
    Pattern::sorted(offsets, columns, pattern.cols() / size)
}

/// Offsets and columns of the blocks of all block rows.
fn blocks_of(pattern: &Pattern, size: usize) -> (Offsets, Buffer<u32>) {
    let block_rows = pattern.rows() / size;
    let lengths = map_rows(block_rows, 8 * size, &|block_row| blocks_of_row(pattern, block_row, size));
    let offsets = Offsets::of_rows(block_rows, &|block_row| lengths[block_row]);
    let mut columns = Buffer::zeros(offsets.end());
    fill_by_rows(block_rows, &mut columns, &|block_row| offsets.at(block_row), &|block_rows, part, _| {
        let mut slots = part.iter_mut();
        for block_row in block_rows {
            for_each_block(pattern, block_row, size, |column| {
                if let Some(slot) = slots.next() {
                    *slot = column;
                }
            });
        }
    });
    (offsets, columns)
}

/// Largest block size for which the rows within every block row have equal patterns; 1 if there is none.
pub fn row_blocks<T: Real>(csr: &Csr<T>) -> usize {
    pattern_blocks(&csr.source().pattern)
}

/// [`row_blocks`] for a pattern.
pub(crate) fn pattern_blocks(pattern: &Pattern) -> usize {
    // force the lazy columns before a loop on all threads reads them
    LazyLock::force(&pattern.columns);
    let rows = pattern.rows();
    let equal = |size: usize| {
        let differs = |block_row: usize| !rows_are_equal(pattern, block_row, size);
        find_row(rows / size, 8 * size, &differs).is_none()
    };
    let fits = |size: &usize| rows > 0 && rows.is_multiple_of(*size);
    BLOCK_SIZES.into_iter().rev().filter(fits).find(|&size| equal(size)).unwrap_or(1)
}

/// Number of rows per node, and whether the rows of every node have equal patterns: the result of
/// [`row_blocks`], otherwise the largest block size that needs at most 5 % padding. Thus a few missing
/// entries, such as zeros dropped at assembly or rows of Dirichlet conditions, do not hide the nodes.
pub(crate) fn node_rows(pattern: &Pattern) -> (usize, bool) {
    let size = pattern_blocks(pattern);
    if size > 1 || pattern.rows() != pattern.cols() {
        return (size, true);
    }
    let nearly = |&size: &usize| {
        let filled = pattern.entries() * 21 / 20 / (size * size);
        pattern.rows().is_multiple_of(size)
            && may_be_nodes(pattern, size)
            && count_blocks(pattern, size, filled).is_some()
    };
    match BLOCK_SIZES.into_iter().rev().filter(|_| pattern.entries() > 0).find(nearly) {
        Some(size) => (size, false),
        None => (1, true),
    }
}

/// Returns whether up to 128 of the block rows have at most 15 % padding, three times what [`node_rows`]
/// accepts. This quick test rejects most matrices without nodes.
fn may_be_nodes(pattern: &Pattern, size: usize) -> bool {
    const SAMPLED: usize = 128;
    let block_rows = pattern.rows() / size;
    let (mut slots, mut entries) = (0, 0);
    for k in 0..SAMPLED.min(block_rows) {
        let block_row = k * block_rows / SAMPLED.min(block_rows);
        let first = block_row * size;
        slots += blocks_of_row(pattern, block_row, size) * size * size;
        entries += pattern.offsets.at(first + size) - pattern.offsets.at(first);
    }
    20 * slots <= 23 * entries
}

fn divides<T: Real>(size: usize, csr: &Csr<T>) -> bool {
    csr.rows().is_multiple_of(size) && csr.cols().is_multiple_of(size)
}

/// Returns whether the rows of a block row have equal patterns.
fn rows_are_equal(pattern: &Pattern, block_row: usize, size: usize) -> bool {
    let first = block_row * size;
    (first + 1..first + size).all(|row| pattern.row(row) == pattern.row(first))
}

/// Visits the block columns of a block row in ascending order.
fn for_each_block(pattern: &Pattern, block_row: usize, size: usize, mut visit: impl FnMut(u32)) {
    // if the rows have equal patterns, as those of a node mostly do, visiting one row suffices
    let distinct = if rows_are_equal(pattern, block_row, size) { 1 } else { size };
    let mut rows = [&[][..]; LARGEST];
    for (k, row) in rows[..distinct].iter_mut().enumerate() {
        *row = pattern.row(block_row * size + k);
    }
    let rows = &mut rows[..distinct];
    while let Some(&column) = rows.iter().filter_map(|row| row.first()).min() {
        let block = column / size as u32;
        let end = (block + 1) * size as u32;
        visit(block);
        for row in &mut *rows {
            while let [column, rest @ ..] = *row
                && *column < end
            {
                *row = rest;
            }
        }
    }
}

/// Number of blocks of a block row.
fn blocks_of_row(pattern: &Pattern, block_row: usize, size: usize) -> usize {
    let mut blocks = 0;
    for_each_block(pattern, block_row, size, |_| blocks += 1);
    blocks
}

/// Number of block rows that a thread counts between two tests of the limit in [`count_blocks`]. Once the limit is exceeded, each thread
/// still counts at most this many, so a large value wastes work on many threads. Guess.
const CHECKED: usize = 64;

/// Number of blocks, or `None` if it exceeds `most`. Stops as soon as the padding found so far exceeds what
/// `most` allows.
fn count_blocks(pattern: &Pattern, size: usize, most: usize) -> Option<usize> {
    let allowed = (most * size * size).checked_sub(pattern.entries())?;
    let padding = AtomicUsize::new(0);
    let block_rows = pattern.rows() / size;
    let offsets = &*pattern.offsets;
    over_rows(block_rows, 8 * size, (), &|range, ()| {
        for first in range.clone().step_by(CHECKED) {
            let chunk = first..range.end.min(first + CHECKED);
            // the point at which a thread stops depends on timing, but not whether the sum exceeds the limit
            if padding.load(Ordering::Relaxed) > allowed {
                return;
            }
            let entries = offsets.at(chunk.end * size) - offsets.at(chunk.start * size);
            let blocks: usize = chunk.map(|block_row| blocks_of_row(pattern, block_row, size)).sum();
            padding.fetch_add(blocks * size * size - entries, Ordering::Relaxed);
        }
    });
    let padding = padding.into_inner();
    (padding <= allowed).then_some((pattern.entries() + padding) / (size * size))
}

row_operator!(Bsr);

impl<T: Real> Format<T> for Bsr<T> {
    const NAME: &'static str = "BSR";
    type Value = T;
    type Options = BsrOptions;

    fn with(csr: &Csr<T>, options: BsrOptions) -> Result<Self> {
        Bsr::with(csr, options)
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
        self.offsets.at(row / self.size) * self.size * self.size
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        let pattern = &self.source.pattern;
        let blocks = self.offsets.range(row / self.size);
        let mut block = blocks.start;
        let first_column = |block: usize| self.columns[block] as usize * self.size;
        let mut first = if blocks.is_empty() { 0 } else { first_column(block) };
        for (entry, &column) in pattern.offsets.range(row).zip(pattern.row(row)) {
            while first + self.size <= column as usize {
                block += 1;
                first = first_column(block);
            }
            visit(entry, (block * self.size + column as usize - first) * self.size + row % self.size);
        }
    }
}

impl<T: Real> Offered<T> for Bsr<T> {
    /// Relative to formats with gathers, which are fast with AVX-512, BSR takes more time per byte than at other
    /// levels: geometric mean 1.08 of `elast55` and `elast_bracket_p1_59k` in f64 and f32, 0.92 to 1.18
    /// (last rows of `benches/record/avx512-2t`).
    fn variants() -> Vec<Variant> {
        vec![Variant {
            name: Self::NAME,
            host: Coefficients::BySimdLevel {
                avx512: CostModel { start: 0.0, byte: 1.08, gather: 0.0, row: 0.0, wait: 0.0 },
                other: CostModel { start: 0.0, byte: 0.9, gather: 0.0, row: 0.0, wait: 0.0 },
            },
            gpu: Coefficients::Fixed(CostModel {
                start: 15.5e6,
                byte: 0.888,
                gather: 3.8,
                row: 0.0,
                wait: 0.302e6,
            }),
        }]
    }

    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<BsrOptions>>> {
        let (bytes, size) = best_blocks(matrix.csr)?;
        let (options, slots) = (BsrOptions { size: Some(size) }, slots_of_blocks(matrix.csr, bytes, size));
        let waits = match matrix.machine {
            Model::Host => 0,
            // number of batches of blocks, loaded one batch after the other, that the busiest lane waits for
            #[cfg(feature = "cuda")]
            Model::Gpu { multiprocessors } => {
                let (rows, mean) = (matrix.rows.rows / size, matrix.rows.mean() / size as f64);
                let lanes = cuda::formats::bsr::lanes(rows, mean, multiprocessors);
                matrix.rows.longest.div_ceil(size).div_ceil(BLOCKS_IN_FLIGHT * lanes)
            }
        };
        Ok(vec![Offer {
            detail: format!("blocks of {size} x {size}"),
            waits,
            ..matrix.offer(Self::variants()[0], options, bytes, slots)
        }])
    }
}

/// Number of slots of a block matrix that takes this many bytes.
pub(super) fn slots_of_blocks<T: Real>(csr: &Csr<T>, bytes: usize, size: usize) -> usize {
    let offsets = csr.rows() / size * size_of::<u32>();
    let blocks = (bytes - offsets) / (size * size * size_of::<T>() + size_of::<u32>());
    blocks * size * size
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for Bsr<T> {
    type Arrays<V: Storage<T>> = cuda::formats::bsr::Bsr<T, V>;

    fn chosen(&self) -> BsrOptions {
        BsrOptions { size: Some(self.size) }
    }

    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: BsrOptions,
        device: &cuda::Device,
    ) -> Result<Self::Arrays<V>> {
        let size = block_size(csr, options.size)?;
        let (offsets, columns) = block_pattern(csr, size)?;
        let (pattern, blocks) = (csr.source().on_device(), cuda::Pattern::new(&offsets, &columns));
        Ok(Self::Arrays::<V>::new(device, size, blocks, pattern, csr.entries())?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::coo::tests::{matrices, obeys, with_lengths};
    use super::*;
    use std::collections::BTreeSet;

    /// The block row and block column of every block that contains an entry, by definition.
    fn blocks(csr: &Csr<f64>, size: usize) -> BTreeSet<(usize, usize)> {
        csr.triplets().map(|(row, col, _)| (row / size, col / size)).collect()
    }

    /// A matrix of `count` nodes with `unknowns` unknowns each; a node is coupled to itself and eight others.
    fn nodes(count: usize, unknowns: usize) -> Csr<f64> {
        let mut entries = vec![];
        for node in 0..count {
            for (other, k, l) in (0..9 * unknowns * unknowns)
                .map(|i| (i / 9, i % 9))
                .map(|(kl, other)| ((node + 5 * other) % count, kl / unknowns, kl % unknowns))
            {
                entries.push((node * unknowns + k, other * unknowns + l, 1.0 + (k + other) as f64));
            }
        }
        Csr::from_triplets(count * unknowns, count * unknowns, &entries).unwrap()
    }

    #[test]
    fn blocks_are_those_that_hold_entries() {
        let some =
            [nodes(60, 3), with_lengths(2400, |row| row % 9, 1200), with_lengths(12, |row| row * row, 144)];
        for csr in &some {
            for size in BLOCK_SIZES.into_iter().filter(|&size| divides(size, csr)) {
                let (offsets, columns) = block_pattern(csr, size).unwrap();
                let rows = (0..csr.rows() / size)
                    .flat_map(|row| columns[offsets.range(row)].iter().map(move |&c| (row, c as usize)));
                assert!(rows.eq(blocks(csr, size)), "{size}");
                obeys(csr, |csr| Bsr::with(csr, BsrOptions { size: Some(size) }));
            }
        }
    }

    #[test]
    fn the_best_size_takes_the_fewest_bytes() {
        let mut some: Vec<Csr<f64>> = [1, 2, 3, 4, 6].map(|unknowns| nodes(1200, unknowns)).into();
        some.extend(matrices());
        for csr in &some {
            let bytes = |size: usize| blocks(csr, size).len() * (size * size * 8 + 4) + csr.rows() / size * 4;
            let sizes = BLOCK_SIZES.into_iter().filter(|&size| divides(size, csr));
            let best = sizes.map(|size| (bytes(size), size)).min();
            let csr_bytes = csr.nnz() * 12 + csr.rows() * 4;
            let expected = best.filter(|&(bytes, _)| bytes < csr_bytes || csr.nnz() == 0);
            assert_eq!(best_block_size(csr).ok(), expected.map(|(_, size)| size));
        }
        let found = [2, 3, 4, 6].map(|unknowns| best_block_size(&nodes(1200, unknowns)).unwrap());
        assert_eq!(found, [2, 3, 4, 6]);
    }
}
