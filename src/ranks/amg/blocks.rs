//! Block matrices in host memory: this rank's rows of a level, and rows on their way to other ranks.

use super::local::Border;
use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::preconditioners::amg::blocks::{Blocks, fill_rows};
use crate::preconditioners::amg::modes::constants;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::index::Offsets;
use rayon::prelude::*;
use std::sync::Arc;

/// A matrix of dense blocks.
#[derive(Clone)]
pub struct HostBlocks {
    pub(super) pattern: Arc<Pattern>,
    /// Rows and columns of a block.
    pub(super) shape: [usize; 2],
    /// Values, block by block.
    pub(super) values: Buffer<f64>,
}

impl HostBlocks {
    pub(super) fn view(&self) -> Blocks<'_> {
        Blocks::new(&self.pattern, self.shape, &self.values)
    }

    /// Number of values of a block.
    pub(super) fn width(&self) -> usize {
        self.shape[0] * self.shape[1]
    }

    /// The identity at each block.
    pub(super) fn identities(pattern: Arc<Pattern>, size: usize) -> HostBlocks {
        let values = constants(pattern.entries() * size, size).values.into();
        HostBlocks { pattern, shape: [size; 2], values }
    }

    /// The entries in columns of own nodes, as many as there are rows.
    pub(super) fn own_part(&self) -> Result<HostBlocks> {
        let rows = self.pattern.rows();
        self.picked(rows, rows, &|row| self.pattern.offsets.at(row)..self.first_ghost(row), 0)
    }

    /// The rows with entries in columns of ghosts, and these entries, in columns counted from zero.
    pub(super) fn border(&self) -> Result<Border> {
        let (all, cols) = (self.pattern.rows(), self.pattern.cols());
        let ghosts = |row: u32| self.first_ghost(row as usize)..self.pattern.offsets.at(row as usize + 1);
        let rows: Vec<u32> = (0..all as u32).into_par_iter().filter(|&row| !ghosts(row).is_empty()).collect();
        let blocks = self.picked(rows.len(), cols - all, &|at| ghosts(rows[at]), all as u32)?;
        Ok((rows, blocks))
    }

    /// Position of the first entry of a row in a column of a ghost.
    fn first_ghost(&self, row: usize) -> usize {
        let own = self.pattern.row(row).partition_point(|&column| (column as usize) < self.pattern.rows());
        self.pattern.offsets.at(row) + own
    }

    /// Rows that consist of ranges of the entries, with columns reduced by `shift`.
    pub(super) fn picked(
        &self,
        rows: usize,
        cols: usize,
        entries: &(dyn Fn(usize) -> std::ops::Range<usize> + Sync),
        shift: u32,
    ) -> Result<HostBlocks> {
        let (offsets, width) = (Offsets::of_rows(rows, &|row| entries(row).len()), self.width());
        let mut columns = Buffer::<u32>::zeros(offsets.end());
        let mut values = Buffer::<f64>::zeros(offsets.end() * width);
        fill_rows(&offsets, 1, &mut columns, &|row, to| {
            to.iter_mut().zip(&self.pattern.columns[entries(row)]).for_each(|(to, from)| *to = from - shift);
        });
        fill_rows(&offsets, width, &mut values, &|row, to| {
            let range = entries(row);
            to.copy_from_slice(&self.values[range.start * width..range.end * width]);
        });
        let pattern = Arc::new(Pattern::sorted(offsets, columns, cols)?);
        Ok(HostBlocks { pattern, shape: self.shape, values })
    }
}
