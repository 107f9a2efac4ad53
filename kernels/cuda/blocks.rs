//! Diagonal blocks and their inverses on a device. The kernels say how a block is inverted, and what is moved.

use super::device::{Array, Device, Real};
use super::error::Result;
use super::module::Source;
use super::ordered::{Ordered, RawRows};
use super::product::Pattern;
use super::vector::index;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};

/// The kernels.
pub(super) const SOURCE: Source = Source { file: "blocks.cu", text: include_str!("blocks.cu") };

/// `BLOCK` of blocks.cu.
const BLOCK: usize = 128;

/// The most rows of a block.
const LARGEST: usize = 32;

/// Inverts the diagonal blocks of a matrix, on patterns that stay.
#[derive(Debug)]
pub struct Blocks<T: Real> {
    a: Ordered<T>,
    inverse: Ordered<T>,
    bounds: Array<u32>,
    /// The least block without an inverse, all bits set for none.
    singular: Array<u32>,
    kernel: CudaFunction,
    config: LaunchConfig,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Raw {
    a: RawRows,
    a_columns: u64,
    a_values: u64,
    inverse: RawRows,
    values: u64,
    bounds: u64,
    count: u32,
    singular: u64,
}
// SAFETY: as `Blocks` of blocks.cu
unsafe impl DeviceRepr for Raw {}

impl<T: Real> Blocks<T> {
    /// Inverses of zeros, on the pattern `inverse` of full blocks that begin at these rows (and end at the last of these
    /// numbers), for matrices of the pattern `a`.
    pub fn new(device: &Device, a: Pattern<'_>, bounds: &[usize], inverse: Pattern<'_>) -> Result<Self> {
        let n = a.rows();
        index("the number of rows", n)?;
        assert!(a.cols() == n && inverse.rows() == n && inverse.cols() == n, "square matrices of one size");
        assert!(bounds.first() == Some(&0) && bounds.last() == Some(&n), "blocks of all rows");
        let mut largest = 1;
        for block in bounds.windows(2) {
            let size = block[1].checked_sub(block[0]).unwrap_or(LARGEST + 1);
            assert!(size <= LARGEST, "bounds ascend by 32 rows at most");
            let full = |row: usize| inverse.row(row).len() == size;
            assert!((block[0]..block[1]).all(full), "rows of full blocks");
            largest = largest.max(size);
        }
        let lanes = largest.next_power_of_two().max(4);
        let starts: Vec<u32> = bounds.iter().map(|&row| row as u32).collect();
        let grid = (bounds.len() - 1).div_ceil(BLOCK / lanes).max(1);
        Ok(Blocks {
            a: Ordered::zeros_of(device, a)?,
            inverse: Ordered::zeros_of(device, inverse)?,
            bounds: device.upload(&starts)?,
            singular: device.zeros(1)?,
            kernel: device.function::<T>(&SOURCE, &format!("blocks_{lanes}"))?,
            config: LaunchConfig {
                grid_dim: (grid as u32, 1, 1),
                block_dim: (BLOCK as u32, 1, 1),
                shared_mem_bytes: 0,
            },
        })
    }

    /// Inverts the blocks of the matrix with these values, and returns the first without an inverse, if any.
    pub fn invert(&mut self, values: &[T]) -> Result<Option<usize>> {
        self.a.write(values)?;
        self.singular.write(&[u32::MAX])?;
        let raw = Raw {
            a: self.a.rows.raw(),
            a_columns: self.a.columns.address(0),
            a_values: self.a.values.address(0),
            inverse: self.inverse.rows.raw(),
            values: self.inverse.values.address(0),
            bounds: self.bounds.address(0),
            count: (self.bounds.len() - 1) as u32,
            singular: self.singular.address(0),
        };
        let mut launch = self.singular.device().launch(&self.kernel);
        launch.arg(&raw);
        // SAFETY: arguments as in blocks.cu; blocks have no more rows than lanes, and their inverses are of full rows
        unsafe { launch.launch(self.config) }?;
        let mut block = [0];
        self.singular.read(&mut block)?;
        Ok((block[0] != u32::MAX).then_some(block[0] as usize))
    }

    /// The inverses, row by row.
    pub fn inverse(&self) -> &Ordered<T> {
        &self.inverse
    }
}
