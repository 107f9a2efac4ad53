//! A level's matrices in the format that suits each, in single precision.

use super::blocks::Blocks;
use crate::choice::Model;
use crate::formats::pattern::Pattern;
use crate::formats::{BLOCK_SIZES, BsrOptions, Source};
use crate::saved::{Broken, Loaded, Reader, Saved, Writer};
use crate::{Bsr, Choice, Csr, Dia, Error, Format, HostSpace, HostVector, Result, Sell};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::followed::{Followed, Then};
use krysp_kernels::cpu::run::threads::{ByRow, over_rows};
use krysp_kernels::index::Offsets;
use krysp_solvers::LinearOperator;
use std::sync::Arc;

/// A matrix in a format.
#[derive(Debug)]
pub(super) enum Stored {
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

impl Saved for Stored {
    fn save(&self, to: &mut Writer<'_>) {
        self.name().to_owned().save(to);
        each!(self, matrix => matrix.save(to));
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Stored> {
        Ok(match from.load::<String>()?.as_str() {
            Csr::<f32>::NAME => Stored::Csr(from.load()?),
            Dia::<f32>::NAME => Stored::Dia(from.load()?),
            Bsr::<f32>::NAME => Stored::Bsr(from.load()?),
            Sell::<f32>::NAME => Stored::Sell(from.load()?),
            _ => return Err(Broken),
        })
    }
}

impl Stored {
    /// Of blocks of `size` rows and columns: in blocks where there is a kernel for them, or else what the library chooses among these.
    /// What is not square stays as it is: setup would take longer to convert it than cycles gain.
    pub(super) fn new(pattern: &Arc<Pattern>, size: usize, values: Buffer<f32>) -> Result<Stored> {
        let [domain, range] = [pattern.cols(), pattern.rows()].map(HostSpace::new);
        let square = domain == range;
        let csr = Csr::from_source(Source::new(pattern.clone(), domain, range), values);
        if !square {
            return Ok(Stored::Csr(csr));
        }
        if BLOCK_SIZES.contains(&size) {
            return Ok(Stored::Bsr(Bsr::with(&csr, BsrOptions { size: Some(size) })?));
        }
        let chosen = match Choice::of(&csr, Model::Host).stored().format() {
            Dia::<f32>::NAME => Dia::new(&csr).map(Stored::Dia),
            Bsr::<f32>::NAME => Bsr::new(&csr).map(Stored::Bsr),
            _ => Sell::new(&csr).map(Stored::Sell),
        };
        match chosen {
            Err(Error::Unsuitable { .. }) => Ok(Stored::Csr(csr)),
            chosen => chosen,
        }
    }

    /// New numbers of the entries.
    pub(super) fn fill(&mut self, values: &[f32]) {
        each!(self, matrix => matrix.fill(values));
    }

    pub(super) fn name(&self) -> &'static str {
        fn name<F: Format<f32>>(_: &F) -> &'static str {
            F::NAME
        }
        each!(self, matrix => name(matrix))
    }

    /// `y ←` what becomes of `A x`.
    pub(super) fn product(
        &self,
        then: Then<'_, f32>,
        x: &HostVector<f32>,
        y: &mut HostVector<f32>,
    ) -> krysp_solvers::Result<()> {
        each!(self, matrix => {
            let a = matrix.kernel(&**matrix.values());
            matrix.source().product(&Followed { a, then }, x, y)
        })
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

/// The pattern of the numbers of blocks.
pub(super) fn expanded(pattern: &Arc<Pattern>, [rows, columns]: [usize; 2]) -> Result<Arc<Pattern>> {
    if [rows, columns] == [1, 1] {
        return Ok(pattern.in_order());
    }
    let length = |row: usize| pattern.offsets.range(row / rows).len() * columns;
    let offsets = Offsets::of_rows(pattern.rows() * rows, &length);
    let mut all = Buffer::zeros(offsets.end());
    let offset = |row: usize| offsets.at(row);
    over_rows(offsets.ranges(), 32, ByRow::new(&mut all, &offset), &|range, part: ByRow<'_, u32>| {
        let (part, _) = part.all();
        let blocks = range.flat_map(|row| pattern.row(row / rows));
        for (to, &column) in part.chunks_exact_mut(columns).zip(blocks) {
            (0..).zip(to).for_each(|(k, to)| *to = column * columns as u32 + k);
        }
    });
    Ok(Arc::new(Pattern::sorted(offsets, all, pattern.cols() * columns)?))
}

/// The numbers of blocks, times `scale`, row by row.
pub(super) fn rounded(blocks: Blocks<'_>, scale: f64) -> Buffer<f32> {
    let [rows, columns] = blocks.shape;
    let mut values = Buffer::zeros(blocks.values.len());
    if rows == 1 {
        over_rows(values.len(), 3, &mut *values, &|range, part: &mut [f32]| {
            part.iter_mut().zip(&blocks.values[range]).for_each(|(to, &from)| *to = (from * scale) as f32);
        });
        return values;
    }
    let offset = |node: usize| blocks.pattern.offsets.at(node) * rows * columns;
    let data = ByRow::new(&mut values, &offset);
    over_rows(blocks.pattern.rows(), 256, data, &|nodes, part: ByRow<'_, f32>| {
        let (mut part, _) = part.all();
        for node in nodes {
            let width = blocks.pattern.offsets.range(node).len() * columns;
            let (own, rest) = part.split_at_mut(width * rows);
            part = rest;
            for (at, (_, block)) in blocks.row(node).enumerate() {
                for (row, from) in block.chunks_exact(columns).enumerate() {
                    let to = &mut own[row * width + at * columns..][..columns];
                    to.iter_mut().zip(from).for_each(|(to, &from)| *to = (from * scale) as f32);
                }
            }
        }
    });
    values
}

/// The blocks of `size` rows and columns of a matrix, node by node; zero where it has no entry.
pub(super) fn gathered(values: &[f64], whole: &Pattern, nodes: &Pattern, size: usize) -> Buffer<f64> {
    let square = size * size;
    let mut blocks = Buffer::zeros(nodes.entries() * square);
    let offset = |node: usize| nodes.offsets.at(node) * square;
    over_rows(nodes.rows(), 256, ByRow::new(&mut blocks, &offset), &|range, part: ByRow<'_, f64>| {
        let (mut part, _) = part.all();
        for node in range {
            let columns = nodes.row(node);
            let (own, rest) = part.split_at_mut(columns.len() * square);
            part = rest;
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
        }
    });
    blocks
}
