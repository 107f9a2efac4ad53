//! Small dense blocks on a device, in slices of block rows. The kernel says where entries lie, and what is moved.

use super::device::{Array, Device, Real};
use super::error::Result;
use super::layout::by_slices;
use super::module::Source;
use super::number::Scalar;
use super::product::{Kernel, Pattern, Product, check, check_square};
use super::slices::{Lane, RawSlices, SliceArrays, Slices, WARP, Widths};
use super::vector::{THREADS, index};
use crate::buffer::Buffer;
use cudarc::driver::DeviceRepr;

/// The kernels.
pub(super) const SOURCE: Source = Source { file: "bsr.cu", text: include_str!("bsr.cu") };

/// Blocks that a lane should have where lanes share a block row.
const IN_FLIGHT: usize = 3;

/// Where the entries of blocks lie.
#[derive(Debug)]
struct Blocks {
    /// Block rows.
    slices: Slices,
    /// Rows of a block.
    size: usize,
    /// Neighbouring numbers of a lane.
    wide: usize,
}

impl Blocks {
    /// `pack` is how many numbers one load may hold.
    fn new(blocks: Pattern<'_>, size: usize, pack: usize, multiprocessors: usize) -> Result<Blocks> {
        let lane = Lane { pack: 1, in_flight: IN_FLIGHT };
        let slices = Slices::new(blocks, Widths::Each { sort: true }, lane, multiprocessors)?;
        let wide = if (size * size).is_multiple_of(pack) { pack } else { 1 };
        Ok(Blocks { slices, size, wide })
    }

    /// Where an entry of the block in a slot stands.
    fn place(&self, slot: usize, row: usize, column: usize) -> usize {
        let (group, lane) = (slot / WARP, slot % WARP);
        let (of_block, entry) = (self.size * self.size, column * self.size + row);
        let load = group * (of_block / self.wide) + entry / self.wide;
        (load * WARP + lane) * self.wide + entry % self.wide
    }

    /// The entries of all blocks, zero where the pattern has none.
    fn values<T: Real>(&self, blocks: Pattern<'_>, pattern: Pattern<'_>, values: &[T]) -> Buffer<T> {
        let size = self.size;
        let start = |slice: usize| self.slices.first_slot(slice) * size * size;
        by_slices(self.slices.slices(), &start, &|slice, part: &mut [T]| {
            self.slices.visit_rows(slice, |block_row, slot| {
                let columns = &blocks.columns()[blocks.row(block_row)];
                for i in 0..size {
                    let mut k = 0;
                    for entry in pattern.row(block_row * size + i) {
                        let column = pattern.columns()[entry] as usize;
                        // both ascend
                        k += columns[k..]
                            .iter()
                            .take_while(|&&block| (block as usize) < column / size)
                            .count();
                        assert_eq!(columns.get(k), Some(&((column / size) as u32)), "a block for each entry");
                        part[self.place(slot(k), i, column % size)] = values[entry];
                    }
                }
            });
        })
    }
}

/// A matrix of small dense blocks.
#[derive(Debug)]
pub struct Bsr<T: Real> {
    cols: usize,
    entries: usize,
    blocks: Blocks,
    arrays: SliceArrays,
    values: Array<T>,
    kernel: Kernel,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Raw {
    slices: RawSlices,
    values: u64,
    rows: u32,
    count: u32,
    lanes: u32,
}
// SAFETY: as `Bsr` of bsr.cu
unsafe impl DeviceRepr for Raw {}

impl<T: Real> Bsr<T> {
    /// A matrix with a value for each entry of the pattern, in blocks of `size`: 2, 3, 4 or 6. Every entry stands in one of
    /// the `blocks`.
    pub fn new(
        device: &Device,
        size: usize,
        blocks: Pattern<'_>,
        pattern: Pattern<'_>,
        values: &[T],
    ) -> Result<Self> {
        assert_eq!(values.len(), pattern.entries(), "a value for each entry");
        let scalar = (blocks.rows() * size, blocks.cols() * size);
        assert_eq!((pattern.rows(), pattern.cols()), scalar, "blocks of the size make up the matrix");
        index("the number of rows", pattern.rows())?;
        let layout = Blocks::new(blocks, size, 16 / size_of::<T>(), device.multiprocessors())?;
        let arrays = SliceArrays::new(device, &layout.slices, blocks)?;
        let columns = if arrays.has_short_columns() { "short" } else { "wide" };
        Ok(Bsr {
            cols: pattern.cols(),
            entries: pattern.entries(),
            arrays,
            values: device.upload(&layout.values(blocks, pattern, values))?,
            kernel: Kernel::load::<T>(device, &SOURCE, &format!("bsr_{size}_{columns}"), THREADS)?,
            blocks: layout,
        })
    }

    /// Whether block columns take 16 bits.
    pub fn has_short_columns(&self) -> bool {
        self.arrays.has_short_columns()
    }

    /// Whether block rows were sorted.
    pub fn is_sorted(&self) -> bool {
        self.arrays.is_sorted()
    }

    /// Lanes that share a block row.
    pub fn lanes(&self) -> usize {
        self.blocks.slices.lanes
    }

    /// New values, in the order of the pattern's entries, for the blocks and the pattern that the matrix was made from.
    pub fn refill(&mut self, blocks: Pattern<'_>, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let made_from = (self.rows(), self.cols, self.entries);
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        assert_eq!(values.len(), pattern.entries(), "a value for each entry");
        self.values.write(&self.blocks.values(blocks, pattern, values))
    }

    fn raw(&self) -> Raw {
        let slices = &self.blocks.slices;
        Raw {
            slices: self.arrays.raw(),
            values: self.values.address(0),
            rows: slices.rows as u32,
            count: slices.slices() as u32,
            lanes: slices.lanes as u32,
        }
    }

    fn threads(&self) -> usize {
        self.blocks.slices.slices() * WARP
    }
}

impl<T: Real> Product<T> for Bsr<T> {
    fn rows(&self) -> usize {
        self.blocks.slices.rows * self.blocks.size
    }

    fn cols(&self) -> usize {
        self.cols
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(self, self.values.device(), x, y);
        // SAFETY: the layout made all arrays, for block rows of `y` and block columns of `x`
        unsafe { self.kernel.product(&self.raw(), self.threads(), x, y) }
    }

    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(self, self.values.device(), x, y);
        // SAFETY: as in `product`
        unsafe { self.kernel.product_dot(&self.raw(), self.threads(), x, y) }
    }

    fn bytes(&self) -> usize {
        self.arrays.bytes() + self.values.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::{Matrix, blocks};
    use super::*;

    /// What the kernel multiplies, lane by lane.
    fn walk(layout: &Blocks, nodes: &Matrix, matrix: &Matrix) -> Vec<(usize, usize, f64)> {
        let (size, wide, lanes) = (layout.size, layout.wide, layout.slices.lanes);
        let columns = layout.slices.column_of_slots(nodes.pattern());
        let values = layout.values(nodes.pattern(), matrix.pattern(), &matrix.values);
        assert_eq!(values.len(), columns.len() * size * size);
        let loads = size * size / wide;
        let mut triplets = vec![];
        for slice in 0..layout.slices.slices() {
            let (first, end) =
                (layout.slices.first_slot(slice) / WARP, layout.slices.first_slot(slice + 1) / WARP);
            for (group, lane) in (first..end).flat_map(|group| (0..WARP).map(move |lane| (group, lane))) {
                let block_row = layout.slices.row_at(slice * (WARP / lanes) + lane / lanes);
                let column = columns[group * WARP + lane];
                for e in 0..size * size {
                    let (i, j) = (e % size, e / size);
                    let value = values[((group * loads + e / wide) * WARP + lane) * wide + e % wide];
                    match (block_row, column) {
                        (Some(block_row), Some(column)) if value != 0.0 => {
                            triplets.push((block_row * size + i, column as usize * size + j, value));
                        }
                        _ => assert_eq!(value, 0.0),
                    }
                }
            }
        }
        triplets.sort_by_key(|&(row, column, _)| (row, column));
        triplets
    }

    #[test]
    fn blocks_hold_the_matrix() {
        for size in [2, 3, 4, 6] {
            for block_rows in [0, 1, 31, 32, 33, 65, 300] {
                for most in [1, 5, 40] {
                    let (nodes, matrix) = blocks(size, block_rows, |i| if i == 17 { 90 } else { i % most });
                    for pack in [2, 4] {
                        for multiprocessors in [0, 132] {
                            let layout = Blocks::new(nodes.pattern(), size, pack, multiprocessors).unwrap();
                            assert_eq!(walk(&layout, &nodes, &matrix), matrix.triplets(), "{}", matrix.name);
                        }
                    }
                }
            }
        }
    }
}
