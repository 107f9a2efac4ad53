//! Block matrices in host memory: this rank's rows of a level, and rows on their way to other ranks.

use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::preconditioners::amg::blocks::Blocks;
use krysp_kernels::buffer::{Buffer, Plain};
use krysp_kernels::cpu::run::threads::{ByRow, map_rows, over_long_rows};
use krysp_kernels::index::Offsets;
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

    /// Rows of blocks of the identity: `columns` has the columns of each row.
    pub(super) fn ones(columns: &[Vec<u32>], cols: usize, size: usize) -> Result<HostBlocks> {
        let offsets = Offsets::from_lengths(columns.iter().map(Vec::len));
        let entry = |at: usize| f64::from(u8::from(at / size % size == at % size));
        let values = map_rows(offsets.end() * size * size, 1, &entry).into();
        let pattern = Arc::new(Pattern::sorted(offsets, columns.concat(), cols)?);
        Ok(HostBlocks { pattern, shape: [size; 2], values })
    }

    /// The rows with these numbers.
    pub(super) fn rows_at(&self, rows: &[u32]) -> Result<HostBlocks> {
        let entries = |row: usize| self.pattern.offsets.range(rows[row] as usize);
        self.picked(rows.len(), self.pattern.cols(), &entries, 0)
    }

    /// The entries in columns of own nodes, as many as there are rows, or those in columns of ghosts, which are then
    /// counted from zero.
    pub(super) fn part(&self, ghosts: bool) -> Result<HostBlocks> {
        let rows = self.pattern.rows();
        let entries = |row: usize| {
            let range = self.pattern.offsets.range(row);
            let own = self.pattern.row(row).partition_point(|&column| (column as usize) < rows);
            let middle = range.start + own;
            if ghosts { middle..range.end } else { range.start..middle }
        };
        let (cols, shift) = if ghosts { (self.pattern.cols() - rows, rows as u32) } else { (rows, 0) };
        self.picked(rows, cols, &entries, shift)
    }

    /// Rows that consist of ranges of the entries, with columns reduced by `shift`.
    fn picked(
        &self,
        rows: usize,
        cols: usize,
        entries: &(dyn Fn(usize) -> std::ops::Range<usize> + Sync),
        shift: u32,
    ) -> Result<HostBlocks> {
        let (offsets, width) = (Offsets::of_rows(rows, &|row| entries(row).len()), self.width());
        let mut columns = Buffer::<u32>::zeros(offsets.end());
        let mut values = Buffer::<f64>::zeros(offsets.end() * width);
        copy_rows(&offsets, 1, &mut columns, &|row, to| {
            to.iter_mut().zip(&self.pattern.columns[entries(row)]).for_each(|(to, from)| *to = from - shift);
        });
        copy_rows(&offsets, width, &mut values, &|row, to| {
            let range = entries(row);
            to.copy_from_slice(&self.values[range.start * width..range.end * width]);
        });
        let pattern = Arc::new(Pattern::sorted(offsets, columns, cols)?);
        Ok(HostBlocks { pattern, shape: self.shape, values })
    }

    /// The first `rows` rows, with `places` as columns from `own` on, followed by the rows `below`. The result has `cols`
    /// columns.
    pub(super) fn stacked(
        &self,
        rows: usize,
        (own, places): (usize, &[u32]),
        below: &HostBlocks,
        cols: usize,
    ) -> Result<HostBlocks> {
        let (above, width) = (&*self.pattern, self.width());
        let (entries, more) = (above.offsets.at(rows), below.pattern.entries());
        let column = |at: usize| match at.checked_sub(entries) {
            Some(at) => below.pattern.columns[at],
            None => match (above.columns[at] as usize).checked_sub(own) {
                Some(ghost) => places[ghost],
                None => above.columns[at],
            },
        };
        let value = |at: usize| match at.checked_sub(entries * width) {
            Some(at) => below.values[at],
            None => self.values[at],
        };
        let length = |row: usize| match row.checked_sub(rows) {
            Some(row) => below.pattern.offsets.range(row).len(),
            None => above.offsets.range(row).len(),
        };
        let offsets = Offsets::of_rows(rows + below.pattern.rows(), &length);
        let pattern = Pattern::sorted(offsets, map_rows(entries + more, 2, &column), cols)?;
        let values = map_rows((entries + more) * width, 2, &value).into();
        Ok(HostBlocks { pattern: Arc::new(pattern), shape: self.shape, values })
    }
}

/// Calls `fill` for each row with its part of `to`, in which rows have the given offsets times `width`.
pub(super) fn copy_rows<X: Plain + Send>(
    offsets: &Offsets,
    width: usize,
    to: &mut [X],
    fill: &(dyn Fn(usize, &mut [X]) + Sync),
) {
    let offset = |row: usize| offsets.at(row) * width;
    over_long_rows(offsets.ranges(), 16 * width, ByRow::new(to, &offset), &|rows, mut part: ByRow<'_, X>| {
        for row in rows {
            fill(row, part.row_mut(row, offsets.range(row).len() * width));
        }
    });
}
