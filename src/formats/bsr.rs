//! BSR: small dense blocks, for nodes with several unknowns.
//!
//! One column index for a block of 2, 3, 4 or 6 squared entries.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::{Csr, Format, Source, row_operator};
use crate::{Error, Real, Result};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::bsr::{AnyBsr, SLACK};
use krysp_kernels::cpu::rows::RowProduct;
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;
use krysp_kernels::index::{Columns, Offsets};

/// A matrix of small dense blocks.
#[derive(Clone, Debug)]
pub struct Bsr<T: Real> {
    source: Source<T>,
    size: usize,
    /// Where block rows begin, counted in blocks.
    offsets: Offsets,
    /// Block columns.
    columns: Columns,
    values: Buffer<T>,
}

/// The block sizes that have a kernel of their own.
pub const BLOCK_SIZES: [usize; 4] = [2, 3, 4, 6];

impl<T: Real> Bsr<T> {
    /// Converts with the block size that takes the fewest bytes; refuses a matrix on which none saves any against CSR.
    pub fn new(csr: &Csr<T>) -> Result<Bsr<T>> {
        let bytes = |size: usize| {
            let (blocks, _) = count_blocks(csr, size)?;
            Some(blocks * (size * size * size_of::<T>() + 4) + csr.rows() / size * 4)
        };
        let best = BLOCK_SIZES.into_iter().filter_map(|size| Some((bytes(size)?, size))).min();
        let csr_bytes = csr.nnz() * (size_of::<T>() + 4) + csr.rows() * 4;
        match best {
            Some((bytes, size)) if bytes < csr_bytes || csr.nnz() == 0 => Bsr::with_blocks(csr, size),
            Some((bytes, size)) => Err(Error::Unsuitable {
                format: Self::NAME,
                why: format!("its best block size {size} takes {bytes} bytes, CSR {csr_bytes}"),
            }),
            None => Err(Error::Unsuitable {
                format: Self::NAME,
                why: format!("no block size divides {} x {}", csr.rows(), csr.cols()),
            }),
        }
    }

    /// Converts with blocks of a size: 2, 3, 4 or 6.
    pub fn with_blocks(csr: &Csr<T>, size: usize) -> Result<Bsr<T>> {
        if !BLOCK_SIZES.contains(&size) {
            return Err(Error::Option {
                what: "the block size",
                got: size.to_string(),
                expected: "2, 3, 4 or 6",
            });
        }
        let unsuitable = |why| Error::Unsuitable { format: Self::NAME, why };
        let Some((_, lengths)) = count_blocks(csr, size) else {
            return Err(unsuitable(format!("{size} does not divide {} x {}", csr.rows(), csr.cols())));
        };
        let offsets = Offsets::from_lengths(lengths);
        let mut columns = Vec::with_capacity(offsets.end());
        let mut blocks = vec![];
        for block_row in 0..csr.rows() / size {
            block_columns(csr, block_row, size, &mut blocks);
            columns.extend_from_slice(&blocks);
        }
        let columns = Columns::new(columns, csr.cols() / size)
            .map_err(|_| unsuitable("a block lies outside the matrix".into()))?;
        let values = Buffer::zeros(offsets.end() * size * size + SLACK);
        let mut bsr = Bsr { source: csr.source().clone(), size, offsets, columns, values };
        bsr.fill(csr.entries());
        Ok(bsr)
    }

    /// The block size.
    pub fn block_size(&self) -> usize {
        self.size
    }

    fn kernel(&self) -> impl RowProduct<T> + '_ {
        AnyBsr::new(self.size, &self.offsets, &self.columns, &self.values)
    }

    fn array_bytes(&self) -> usize {
        self.offsets.bytes() + size_of_val(&*self.columns) + size_of_val(&*self.values)
    }
}

/// The largest block size for which the rows of every block have equal patterns; 1 where there is none.
pub fn row_blocks<T: Real>(csr: &Csr<T>) -> usize {
    let equal = |size: usize| {
        let rows = 0..csr.rows();
        rows.clone()
            .step_by(size)
            .all(|first| (first + 1..first + size).all(|row| csr.row_columns(row) == csr.row_columns(first)))
    };
    let fits = |size: &usize| csr.rows() > 0 && csr.rows().is_multiple_of(*size);
    BLOCK_SIZES.into_iter().rev().filter(fits).find(|&size| equal(size)).unwrap_or(1)
}

/// The block columns of a block row, ascending.
fn block_columns<T: Real>(csr: &Csr<T>, block_row: usize, size: usize, blocks: &mut Vec<u32>) {
    blocks.clear();
    for row in block_row * size..(block_row + 1) * size {
        blocks.extend(csr.row_columns(row).iter().map(|column| column / size as u32));
        // rows of a node share their columns: most repeats go at once
        blocks.dedup();
    }
    blocks.sort_unstable();
    blocks.dedup();
}

/// The number of blocks, in all and of each block row; `None` where the size does not divide the matrix.
fn count_blocks<T: Real>(csr: &Csr<T>, size: usize) -> Option<(usize, Vec<usize>)> {
    if !csr.rows().is_multiple_of(size) || !csr.cols().is_multiple_of(size) {
        return None;
    }
    let mut blocks = vec![];
    let lengths: Vec<usize> = (0..csr.rows() / size)
        .map(|block_row| {
            block_columns(csr, block_row, size, &mut blocks);
            blocks.len()
        })
        .collect();
    Some((lengths.iter().sum(), lengths))
}

row_operator!(Bsr);

impl<T: Real> Format<T> for Bsr<T> {
    const NAME: &'static str = "BSR";

    fn convert(csr: &Csr<T>) -> Result<Self> {
        Bsr::new(csr)
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
        for (entry, &column) in pattern.offsets.range(row).zip(pattern.row(row)) {
            while self.columns[block] < column / self.size as u32 {
                block += 1;
            }
            visit(entry, (block * self.size + column as usize % self.size) * self.size + row % self.size);
        }
    }
}

#[cfg(feature = "cuda")]
impl<T: Real + cuda::Real> OnDevice<T> for Bsr<T> {
    type Arrays = cuda::bsr::Bsr<T>;
    type Options = Option<usize>;

    fn defaults() -> Option<usize> {
        None
    }

    fn chosen(&self) -> Option<usize> {
        Some(self.size)
    }

    /// With blocks of a size, or of the one that takes the fewest bytes.
    fn lay_out(csr: &Csr<T>, size: Option<usize>, device: &cuda::Device) -> Result<Self::Arrays> {
        let size = size.map_or_else(|| best_block_size(csr), Ok)?;
        let (offsets, columns) = block_pattern(csr, size)?;
        let (pattern, blocks) = (csr.source().on_device(), cuda::Pattern::new(&offsets, &columns));
        Ok(Self::Arrays::new(device, size, blocks, pattern, csr.entries())?)
    }
}
