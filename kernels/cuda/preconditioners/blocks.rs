//! Diagonal blocks on a device, and their inverses (block Jacobi). blocks.cu describes the algorithm and the
//! memory traffic.

use crate::block_diagonal::{
    Limits, Slice, StoredAs, StoredRows, UNIT, capacity, count, cut, largest_block, same_blocks,
};
use crate::buffer::Buffer;
use crate::cpu::preconditioners::block_diagonal;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::index;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::{RawRowStarts, THREADS};
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::matrix::device_csr::DeviceCsr;
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Kernel, check_square};
use crate::cuda::solve::gate;
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig, ValidAsZeroBits};

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "blocks.cu",
    text: include_str!("blocks.cu"),
    constants: constants![BLOCK, UNIT, ELEMENT, SINGLE, HALF],
    mirrors: &[
        mirror!("Slice" = Slice { first, starts, place }),
        mirror!("Diagonal" = RawDiagonal { slices, numbers, count }),
        mirror!(
            "Blocks" = RawBlocks { a, a_columns, a_values, inverse, conditions, bounds, count, singular }
        ),
    ],
};

/// Threads per block of the kernels that invert. Guess.
const BLOCK: usize = 128;

/// [`StoredAs`] as passed to kernels.
const ELEMENT: u32 = StoredAs::Element as u32;
/// See [`ELEMENT`].
const SINGLE: u32 = StoredAs::Single as u32;
/// See [`ELEMENT`].
const HALF: u32 = StoredAs::Half as u32;

// SAFETY: has the layout of `Slice` in blocks.cu on little-endian machines (all that run CUDA are)
unsafe impl DeviceRepr for Slice {}
// SAFETY: consists of integers
unsafe impl ValidAsZeroBits for Slice {}

/// A block-diagonal matrix in device memory.
#[derive(Debug)]
pub struct BlockDiagonal<T: Real> {
    shape: Shape,
    slices: Array<Slice>,
    /// Copy of the slices in host memory.
    known: Vec<Slice>,
    numbers: Array<T>,
    kernel: Kernel<T>,
    axpy_product_dot: CudaFunction,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawDiagonal {
    slices: u64,
    numbers: u64,
    count: u32,
}
// SAFETY: has the layout of `Diagonal` in blocks.cu
unsafe impl DeviceRepr for RawDiagonal {}

impl<T: Real> BlockDiagonal<T> {
    /// Uploads a matrix from host memory.
    pub fn new(device: &Device, host: &block_diagonal::BlockDiagonal<T>) -> Result<Self> {
        let mut matrix = BlockDiagonal::zeros(device, host.slices())?;
        matrix.numbers.write(host.numbers())?;
        Ok(matrix)
    }

    fn zeros(device: &Device, slices: &[Slice]) -> Result<Self> {
        let rows = slices.last().map_or(0, |last| last.rows().end);
        index("the number of rows", rows)?;
        let numbers = capacity(slices);
        Ok(BlockDiagonal {
            shape: Shape { rows, cols: rows, entries: numbers },
            slices: device.upload(slices)?,
            known: slices.to_vec(),
            numbers: device.zeros(numbers)?,
            kernel: Kernel::load::<T>(device, &SOURCE, "blocks_product", THREADS)?,
            axpy_product_dot: device.function::<T>(&SOURCE, "blocks_axpy_product_dot")?,
        })
    }

    /// Returns whether a matrix in host memory has the same partition into blocks.
    pub fn has_blocks_of(&self, host: &block_diagonal::BlockDiagonal<T>) -> bool {
        same_blocks(&self.known, host.slices())
    }

    /// Copies the values of a matrix in host memory, whose blocks have the same rows.
    pub fn write(&mut self, host: &block_diagonal::BlockDiagonal<T>) -> Result<()> {
        assert!(self.has_blocks_of(host), "the same blocks");
        self.known.copy_from_slice(host.slices());
        self.slices.write(&self.known)?;
        self.numbers.write(host.numbers())
    }

    /// Copies the matrix to host memory.
    pub fn to_host(&self) -> Result<block_diagonal::BlockDiagonal<T>> {
        let mut numbers = Buffer::zeros(self.numbers.len());
        self.numbers.read(&mut numbers)?;
        Ok(block_diagonal::BlockDiagonal::from_arrays(self.known.clone(), numbers))
    }

    /// Numbers of rows by storage type.
    pub fn stored_rows(&self) -> StoredRows {
        count::<T>(&self.known).0
    }

    /// Bytes that a product reads in addition to the vectors.
    pub fn bytes(&self) -> usize {
        count::<T>(&self.known).1
    }

    fn raw(&self) -> RawDiagonal {
        let (slices, numbers) = (self.slices.address(0), self.numbers.address(0));
        RawDiagonal { slices, numbers, count: self.slices.len() as u32 }
    }

    fn threads(&self) -> usize {
        self.slices.len() * WARP
    }

    /// `y ← M x`
    pub fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check_square(self.shape, self.numbers.device(), x, y);
        // SAFETY: slices cover the rows of vectors of these lengths, and have space for their values
        unsafe { self.kernel.product(&self.raw(), self.threads(), x, y) }
    }

    /// `y ← M x; ⟨x, y⟩`
    pub fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(self.shape, self.numbers.device(), x, y);
        // SAFETY: as in `product`
        unsafe { self.kernel.product_dot(&self.raw(), self.threads(), x, y) }
    }

    /// `r ← r + a q; z ← M r; ‖r‖², ⟨r, z⟩`
    pub fn axpy_product_dot(
        &self,
        a: &Scalar<T>,
        q: &Array<T>,
        r: &mut Array<T>,
        z: &mut Array<T>,
    ) -> Result<[Scalar<T>; 2]> {
        let device = self.numbers.device();
        check_square(self.shape, device, r, z);
        check_square(self.shape, device, q, z);
        let (a, sums) = (a.number(), Sums::<T, 2>::new(device)?);
        let (gate, a, matrix) = (gate::gate::<T>(device)?, a.raw(), self.raw());
        let (q, r, z) = (q.address(0), r.address(0), z.address(0));
        let mut launch = device.launch(&self.axpy_product_dot);
        launch.arg(&gate).arg(&a).arg(&matrix).arg(&q).arg(&r).arg(&z).arg(&sums.raw);
        // SAFETY: arguments as in blocks.cu, for vectors of these lengths; the kernel works with any grid
        unsafe { launch.launch(self.kernel.summing(self.threads())) }?;
        Ok(sums.scalars())
    }
}

/// Inverts the diagonal blocks of matrices with a fixed pattern.
#[derive(Debug)]
pub struct Blocks<T: Real> {
    a: DeviceCsr<T>,
    /// The inverses, in the element type.
    inverse: BlockDiagonal<T>,
    /// Largest condition number of the blocks of each slice, as bits of an `f32`.
    conditions: Array<u32>,
    /// First row of each block, and the end.
    bounds: Array<u32>,
    /// The first block without an inverse; all bits set if there is none.
    singular: Array<u32>,
    invert: CudaFunction,
    config: LaunchConfig,
    round: CudaFunction,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawBlocks {
    a: RawRowStarts,
    a_columns: u64,
    a_values: u64,
    inverse: RawDiagonal,
    conditions: u64,
    bounds: u64,
    count: u32,
    singular: u64,
}
// SAFETY: has the layout of `Blocks` in blocks.cu
unsafe impl DeviceRepr for RawBlocks {}

impl<T: Real> Blocks<T> {
    /// Prepares the inversion for matrices of pattern `a`; `matrix` has this pattern. Blocks begin at the
    /// rows in `bounds`, whose last element is the number of rows.
    pub fn new((matrix, a): (DeviceCsr<T>, Pattern<'_>), bounds: &[usize]) -> Result<Self> {
        let (n, device) = (a.rows(), matrix.device().clone());
        matrix.check(a.shape(), a);
        assert!(
            a.cols() == n && bounds.first() == Some(&0) && bounds.last() == Some(&n),
            "blocks of all rows"
        );
        let slices = cut(bounds);
        let lanes = largest_block(&slices).next_power_of_two().max(4);
        let starts: Vec<u32> = bounds.iter().map(|&row| row as u32).collect();
        let grid = (bounds.len() - 1).div_ceil(BLOCK / lanes).max(1);
        Ok(Blocks {
            a: matrix,
            conditions: device.zeros(slices.len())?,
            inverse: BlockDiagonal::zeros(&device, &slices)?,
            bounds: device.upload(&starts)?,
            singular: device.zeros(1)?,
            invert: device.function::<T>(&SOURCE, &format!("blocks_{lanes}"))?,
            config: LaunchConfig {
                grid_dim: (grid as u32, 1, 1),
                block_dim: (BLOCK as u32, 1, 1),
                shared_mem_bytes: 0,
            },
            round: device.function::<T>(&SOURCE, "blocks_round")?,
        })
    }

    /// The matrix, to change its values.
    pub fn matrix_mut(&mut self) -> &mut DeviceCsr<T> {
        &mut self.a
    }

    /// Inverts the blocks of the matrix with its current values. Returns the first block without an inverse,
    /// if any.
    pub fn invert(&mut self) -> Result<Option<usize>> {
        self.singular.write(&[u32::MAX])?;
        self.conditions.clear()?;
        let raw = RawBlocks {
            a: self.a.rows.raw(),
            a_columns: self.a.columns.address(0),
            a_values: self.a.values.address(0),
            inverse: self.inverse.raw(),
            conditions: self.conditions.address(0),
            bounds: self.bounds.address(0),
            count: (self.bounds.len() - 1) as u32,
            singular: self.singular.address(0),
        };
        let mut launch = self.singular.device().launch(&self.invert);
        launch.arg(&raw);
        // SAFETY: arguments as in blocks.cu; blocks have at most as many rows as lanes, and slices have space
        // for their inverses
        unsafe { launch.launch(self.config) }?;
        let mut block = [0];
        self.singular.read(&mut block)?;
        Ok((block[0] != u32::MAX).then_some(block[0] as usize))
    }

    /// A zero matrix with the structure of the inverses, for [`Blocks::round`].
    pub fn zeros(&self) -> Result<BlockDiagonal<T>> {
        BlockDiagonal::zeros(self.a.values.device(), &self.inverse.known)
    }

    /// Stores the inverses in the precision that the limits allow.
    pub fn round(&self, limits: Limits, to: &mut BlockDiagonal<T>) -> Result<()> {
        assert!(same_blocks(&self.inverse.known, &to.known), "the same blocks");
        assert!(self.inverse.numbers.device() == to.numbers.device(), "blocks on one device");
        let (from, into) = (self.inverse.raw(), to.raw());
        let conditions = self.conditions.address(0);
        let mut launch = self.singular.device().launch(&self.round);
        launch.arg(&from).arg(&conditions).arg(&limits.single).arg(&limits.half).arg(&into);
        // SAFETY: arguments as in blocks.cu; both have the same slices
        unsafe { launch.launch(crate::cuda::device::launch::config(self.inverse.threads())) }?;
        to.slices.read(&mut to.known)
    }
}
