//! Diagonals on a device. The kernel says where slots lie, and what is moved.

use super::device::{Array, Device, Real};
use super::error::Result;
use super::layout::by_slices;
use super::module::Source;
use super::number::Scalar;
use super::product::{Kernel, Pattern, Product, check, check_square};
use super::vector::{THREADS, index};
use crate::buffer::Buffer;
use cudarc::driver::DeviceRepr;

/// The kernels.
pub(super) const SOURCE: Source = Source { file: "dia.cu", text: include_str!("dia.cu") };

/// Lanes of a warp.
const WARP: usize = 32;
/// Rows of a multiprocessor from which on a lane takes four of them.
const MANY: usize = 2048;
/// Diagonals that a kernel reads the offsets of at once, at most.
const BATCH: usize = 8;
/// The offset of no diagonal: no row reaches a column with it.
const NOWHERE: u32 = 1 << 31;

/// Where slots lie.
#[derive(Debug)]
struct Layout {
    rows: usize,
    cols: usize,
    /// Ascending: the entries of a diagonal stand at `(i, i + offset)`.
    diagonals: Vec<i64>,
    /// Rows of a lane.
    of_lane: usize,
    /// Neighbouring values of a lane.
    wide: usize,
}

impl Layout {
    /// `pack` is what a lane may read at once, `multiprocessors` what should be kept busy.
    fn new(pattern: Pattern<'_>, diagonals: &[i64], pack: usize, multiprocessors: usize) -> Result<Layout> {
        let rows = index("the number of rows", pattern.rows())? as usize;
        assert!(diagonals.is_sorted(), "diagonals ascend");
        let of_lane = if rows >= MANY * multiprocessors { 4 } else { 1 };
        let (cols, diagonals) = (pattern.cols(), diagonals.to_vec());
        Ok(Layout { rows, cols, diagonals, of_lane, wide: of_lane.min(pack) })
    }

    /// Rows of a slice.
    fn height(&self) -> usize {
        WARP * self.of_lane
    }

    fn slices(&self) -> usize {
        self.rows.div_ceil(self.height())
    }

    /// The slot of a row of a slice on a diagonal.
    fn slot(&self, row: usize, diagonal: usize) -> usize {
        let (piece, lane) = (row / WARP, row % WARP);
        let load = diagonal * (self.of_lane / self.wide) + piece / self.wide;
        (load * WARP + lane) * self.wide + piece % self.wide
    }

    /// The value of every slot, from those of the pattern's entries.
    fn values<T: Real>(&self, pattern: Pattern<'_>, values: &[T]) -> Buffer<T> {
        let slice_len = self.height() * self.diagonals.len();
        by_slices(self.slices(), &|slice| slice * slice_len, &|slice, part: &mut [T]| {
            let first = slice * self.height();
            for row in first..self.rows.min(first + self.height()) {
                let mut d = 0;
                for entry in pattern.row(row) {
                    // columns and diagonals both ascend
                    let offset = i64::from(pattern.columns()[entry]) - row as i64;
                    d += self.diagonals[d..].iter().take_while(|&&diagonal| diagonal < offset).count();
                    assert_eq!(self.diagonals.get(d), Some(&offset), "every entry stands on a diagonal");
                    part[self.slot(row - first, d)] = values[entry];
                }
            }
        })
    }

    /// Offsets as the kernel adds them: modulo 2³².
    fn offsets(&self) -> Vec<u32> {
        let mut offsets: Vec<u32> = self.diagonals.iter().map(|&offset| offset as u32).collect();
        offsets.resize(offsets.len().next_multiple_of(BATCH), NOWHERE);
        offsets
    }
}

/// A matrix stored by diagonals.
#[derive(Debug)]
pub struct Dia<T: Real> {
    entries: usize,
    layout: Layout,
    offsets: Array<u32>,
    values: Array<T>,
    kernel: Kernel,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Raw {
    offsets: u64,
    values: u64,
    rows: u32,
    cols: u32,
    slices: u32,
    diagonals: u32,
}
// SAFETY: as `Dia` of dia.cu
unsafe impl DeviceRepr for Raw {}

impl<T: Real> Dia<T> {
    /// A matrix with a value for each entry of the pattern. Entries stand on `diagonals`, which ascend: those of a
    /// diagonal at `(i, i + offset)`.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], diagonals: &[i64]) -> Result<Self> {
        assert_eq!(values.len(), pattern.entries(), "a value for each entry");
        index("the number of diagonals", diagonals.len())?;
        let layout = Layout::new(pattern, diagonals, 16 / size_of::<T>(), device.multiprocessors())?;
        let name = if layout.of_lane == 1 { "dia_1" } else { "dia_4" };
        Ok(Dia {
            entries: pattern.entries(),
            offsets: device.upload(&layout.offsets())?,
            values: device.upload(&layout.values(pattern, values))?,
            kernel: Kernel::load::<T>(device, &SOURCE, name, THREADS)?,
            layout,
        })
    }

    /// New values, in the order of the entries of the pattern that the matrix was made from.
    pub fn refill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let made_from = (self.layout.rows, self.layout.cols, self.entries);
        assert_eq!(pattern.shape(), made_from, "the pattern it was made from");
        assert_eq!(values.len(), pattern.entries(), "a value for each entry");
        self.values.write(&self.layout.values(pattern, values))
    }

    fn raw(&self) -> Raw {
        Raw {
            offsets: self.offsets.address(0),
            values: self.values.address(0),
            rows: self.layout.rows as u32,
            cols: self.layout.cols as u32,
            slices: self.layout.slices() as u32,
            diagonals: self.layout.diagonals.len() as u32,
        }
    }

    fn threads(&self) -> usize {
        self.layout.slices() * WARP
    }
}

impl<T: Real> Product<T> for Dia<T> {
    fn rows(&self) -> usize {
        self.layout.rows
    }

    fn cols(&self) -> usize {
        self.layout.cols
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(self, self.values.device(), x, y);
        // SAFETY: the layout made all arrays; the kernel compares columns with the length of `x`
        unsafe { self.kernel.product(&self.raw(), self.threads(), x, y) }
    }

    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(self, self.values.device(), x, y);
        // SAFETY: as in `product`
        unsafe { self.kernel.product_dot(&self.raw(), self.threads(), x, y) }
    }

    fn bytes(&self) -> usize {
        self.offsets.bytes() + self.values.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::tests::{Matrix, matrices};
    use super::*;

    fn diagonals(matrix: &Matrix) -> Vec<i64> {
        let offset = |&(row, column, _): &(usize, usize, f64)| column as i64 - row as i64;
        let mut diagonals: Vec<i64> = matrix.triplets().iter().map(offset).collect();
        diagonals.sort_unstable();
        diagonals.dedup();
        diagonals
    }

    /// What the kernel reads, lane by lane.
    fn walk(layout: &Layout, matrix: &Matrix) -> Vec<(usize, usize, f64)> {
        let (values, offsets) = (layout.values(matrix.pattern(), &matrix.values), layout.offsets());
        let (rows, wide) = (layout.of_lane, layout.wide);
        let loads = rows / wide;
        let mut triplets = vec![];
        for slice in 0..layout.slices() {
            for (d, &offset) in offsets.iter().enumerate() {
                for (lane, p) in (0..WARP).flat_map(|lane| (0..rows).map(move |p| (lane, p))) {
                    let row = (slice * WARP * rows + lane + WARP * p) as u32;
                    let column = row.wrapping_add(offset);
                    if d >= layout.diagonals.len() {
                        assert!(column as usize >= layout.cols, "{row} {offset}");
                        continue;
                    }
                    let first = slice * layout.diagonals.len() * WARP * loads + lane;
                    let value = values[(first + (d * loads + p / wide) * WARP) * wide + p % wide];
                    if value != 0.0 {
                        assert!((row as usize) < layout.rows && (column as usize) < layout.cols);
                        triplets.push((row as usize, column as usize, value));
                    }
                }
            }
        }
        triplets.sort_by_key(|&(row, column, _)| (row, column));
        triplets
    }

    #[test]
    fn diagonals_hold_the_matrix() {
        for matrix in matrices().iter().filter(|matrix| diagonals(matrix).len() < 500) {
            for pack in [2, 4] {
                for multiprocessors in [0, 132] {
                    let diagonals = diagonals(matrix);
                    let layout = Layout::new(matrix.pattern(), &diagonals, pack, multiprocessors).unwrap();
                    assert_eq!(walk(&layout, matrix), matrix.triplets(), "{}", matrix.name);
                }
            }
        }
    }
}
