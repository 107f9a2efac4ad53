//! The matrices of a level in single precision: `A` in the format that suits it, `P` in SELL if its rows are
//! short, `Pᵀ` in CSR.

use super::blocks::{Blocks, LeftFactor, fill_rows};
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::formats::{
    BLOCK_SIZES, Bsr, Csr, Dia, Format, Sell, SellOptions, Source, diagonals_of, keeps_to_chunks,
};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::formats::bsr::SLACK;
use krysp_kernels::cpu::run::followed::{Followed, Then};
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::index::Offsets;
use krysp_solvers::LinearOperator;
use std::sync::Arc;

/// A matrix in one of four formats.
#[derive(Debug)]
pub enum Stored {
    Csr(Csr<f32>),
    Dia(Dia<f32>),
    Bsr(Bsr<f32>),
    Sell(Sell<f32>),
}

macro_rules! each {
    ($stored:expr, $matrix:ident => $does:expr) => {
        match $stored {
            Stored::Csr($matrix) => $does,
            Stored::Dia($matrix) => $does,
            Stored::Bsr($matrix) => $does,
            Stored::Sell($matrix) => $does,
        }
    };
}

saved!(impl[] enum Stored { Csr { 0: matrix }, Dia { 0: matrix }, Bsr { 0: matrix }, Sell { 0: matrix } });

impl Stored {
    /// Stores a level's matrix, times `scale`: as BSR if there is a kernel for its block size, as DIA if at
    /// most a third of the stored values is padding, else as SELL. Comparing the sizes of all formats took
    /// longer than the conversion. `whole` is the scalar pattern.
    pub(crate) fn new(a: Blocks<'_>, whole: &Arc<Pattern>, scale: f64) -> Result<Stored> {
        let space = HostSpace::new(whole.rows());
        let source = Source::new(whole.clone(), space.clone(), space);
        if BLOCK_SIZES.contains(&a.shape[0]) {
            return Ok(Stored::Bsr(Bsr::of_blocks(source, a.pattern, rounded_blocks(a, scale))));
        }
        let csr = Csr::from_source(source, rounded(a, scale));
        let slots = diagonals_of(&csr).map_or(usize::MAX, |diagonals| diagonals.len() * csr.rows());
        let chosen = if slots <= csr.nnz() + csr.nnz() / 2 {
            Dia::new(&csr).map(Stored::Dia)
        } else {
            Sell::new(&csr).map(Stored::Sell)
        };
        match chosen {
            Err(Error::Unsuitable { .. }) => Ok(Stored::Csr(csr)),
            chosen => chosen,
        }
    }

    /// Stores a rectangular matrix as CSR: a conversion would take more time in the setup than it saves in
    /// cycles.
    pub(crate) fn rows(pattern: &Arc<Pattern>, values: Buffer<f32>) -> Stored {
        Stored::Csr(Stored::csr(pattern, values))
    }

    /// Like [`Stored::rows`], but as SELL if rows have at most eight entries on average, half a register of
    /// AVX-512. Rows are not sorted by length, because sorting takes more time than it saves in cycles.
    pub(super) fn short_rows(pattern: &Arc<Pattern>, values: Buffer<f32>) -> Result<Stored> {
        let csr = Stored::csr(pattern, values);
        if csr.nnz() > 8 * csr.rows() {
            return Ok(Stored::Csr(csr));
        }
        match Sell::with(&csr, SellOptions { height: None, window: Some(1) }) {
            Err(Error::Unsuitable { .. }) => Ok(Stored::Csr(csr)),
            sliced => sliced.map(Stored::Sell),
        }
    }

    fn csr(pattern: &Arc<Pattern>, values: Buffer<f32>) -> Csr<f32> {
        let [domain, range] = [pattern.cols(), pattern.rows()].map(HostSpace::new);
        Csr::from_source(Source::new(pattern.clone(), domain, range), values)
    }

    /// Overwrites the values of a matrix made by [`Stored::new`].
    pub(crate) fn renew(&mut self, a: Blocks<'_>, scale: f64) {
        match self {
            Stored::Bsr(matrix) if BLOCK_SIZES.contains(&a.shape[0]) => {
                *matrix.values_mut() = rounded_blocks(a, scale);
            }
            _ => self.fill(&rounded(a, scale)),
        }
    }

    /// Returns whether values can be overwritten without a panic, which is uncertain for a matrix from a file.
    pub(super) fn keeps_to_chunks(&self) -> bool {
        each!(self, matrix => keeps_to_chunks(matrix))
    }

    /// Overwrites the values of the entries.
    pub(super) fn fill(&mut self, values: &[f32]) {
        each!(self, matrix => matrix.fill(values));
    }

    pub(crate) fn name(&self) -> &'static str {
        fn name<F: Format<f32>>(_: &F) -> &'static str {
            F::NAME
        }
        each!(self, matrix => name(matrix))
    }

    /// `Y ← A X` for `W` vectors stored row by row, then the fused operation `then`, if any. `W` is 1 or
    /// `TILE` (the number of vectors that go through a cycle together).
    pub(super) fn product<const W: usize>(&self, then: Option<Then<'_, f32>>, x: &[f32], y: &mut [f32]) {
        each!(self, matrix => {
            let a = matrix.kernel(matrix.values());
            match then {
                Some(then) => matrix.source().product_rows::<W>(&Followed::<_, _, W> { a, then }, x, y),
                None => matrix.source().product_rows::<W>(&a, x, y),
            }
        });
    }

    pub(super) fn entries(&self) -> usize {
        each!(self, matrix => matrix.source().nnz())
    }
}

impl LinearOperator for Stored {
    type Vector = HostVector<f32>;

    fn domain(&self) -> &HostSpace<f32> {
        each!(self, matrix => matrix.domain())
    }

    fn range(&self) -> &HostSpace<f32> {
        each!(self, matrix => matrix.range())
    }

    fn apply(&self, x: &HostVector<f32>, y: &mut HostVector<f32>) -> krysp_solvers::Result<()> {
        each!(self, matrix => matrix.apply(x, y))
    }

    fn bytes(&self) -> usize {
        each!(self, matrix => matrix.bytes())
    }
}

/// The scalar pattern of a pattern of blocks.
pub(crate) fn expanded(pattern: &Arc<Pattern>, [rows, columns]: [usize; 2]) -> Result<Arc<Pattern>> {
    if [rows, columns] == [1, 1] {
        return Ok(pattern.in_order());
    }
    let length = |row: usize| pattern.offsets.range(row / rows).len() * columns;
    let offsets = Offsets::of_rows(pattern.rows() * rows, &length);
    let mut all = Buffer::zeros(offsets.end());
    fill_rows(&offsets, 1, &mut all, &|row, to| {
        for (to, &column) in to.chunks_exact_mut(columns).zip(pattern.row(row / rows)) {
            (0..).zip(to).for_each(|(k, to)| *to = column * columns as u32 + k);
        }
    });
    Ok(Arc::new(Pattern::sorted(offsets, all, pattern.cols() * columns)?))
}

/// The values of blocks, times `scale`, in CSR order of the scalar matrix.
pub(crate) fn rounded<T: Real>(blocks: impl LeftFactor, scale: f64) -> Buffer<T> {
    let ([rows, columns], pattern) = (blocks.shape(), blocks.pattern());
    if [rows, columns] == [1, 1] {
        let number = |entry| blocks.load::<1, 1>(0, entry)[0][0];
        return map_rows(pattern.entries(), 2, &|entry| T::from_f64(number(entry) * scale)).into();
    }
    let mut values = Buffer::zeros(pattern.entries() * rows * columns);
    fill_rows(&pattern.offsets, rows * columns, &mut values, &|node, own| {
        let entries = pattern.offsets.range(node);
        let width = entries.len() * columns;
        for (at, entry) in entries.enumerate() {
            for row in 0..rows {
                let to = &mut own[row * width + at * columns..][..columns];
                let numbers = (0..columns).map(|column| blocks.number(node, entry, row, column));
                to.iter_mut().zip(numbers).for_each(|(to, number)| *to = T::from_f64(number * scale));
            }
        }
    });
    values
}

/// The values of square blocks, times `scale`, in the order of [`Bsr`]: block by block, column-major within a
/// block.
fn rounded_blocks(a: Blocks<'_>, scale: f64) -> Buffer<f32> {
    let (size, entries) = (a.shape[0], a.pattern.entries());
    let square = size * size;
    let mut values = Buffer::zeros(entries * square + SLACK);
    fill_rows(&a.pattern.offsets, square, &mut values[..entries * square], &|node, to| {
        for (entry, to) in a.pattern.offsets.range(node).zip(to.chunks_exact_mut(square)) {
            for (row, numbers) in a.rows_of_block(node, entry).enumerate() {
                (0..size).for_each(|column| to[column * size + row] = (numbers[column] * scale) as f32);
            }
        }
    });
    values
}

/// Gathers the `size` x `size` blocks of a matrix, node by node; zero where it has no entry.
pub(crate) fn gathered(values: &[f64], whole: &Pattern, nodes: &Pattern, size: usize) -> Buffer<f64> {
    let square = size * size;
    let mut blocks = Buffer::zeros(nodes.entries() * square);
    fill_rows(&nodes.offsets, square, &mut blocks, &|node, own| {
        let columns = nodes.row(node);
        for row in 0..size {
            let entries = whole.offsets.range(node * size + row);
            let mut block = 0;
            for (&column, value) in whole.columns[entries.clone()].iter().zip(&values[entries]) {
                while columns[block] < column / size as u32 {
                    block += 1;
                }
                own[block * square + row * size + column as usize % size] = *value;
            }
        }
    });
    blocks
}
