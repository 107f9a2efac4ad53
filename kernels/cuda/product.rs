//! Products of matrices in device memory, and what all of them are launched with.

use super::device::{Array, Device, Real};
use super::error::Result;
use super::module::Source;
use super::number::Scalar;
use super::ordered::{Ordered, Way};
use super::vector::{MAX_BLOCKS, Sums, THREADS, index};
use crate::index::{Columns, Offsets};
use cudarc::driver::sys::CUfunction_attribute_enum;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig, PushKernelArg};
use std::fmt::Debug;
use std::ops::Range;

/// A matrix in device memory.
///
/// Products are queued, and bitwise the same from run to run on one device, unless the matrix says otherwise.
pub trait Product<T: Real>: Send + Sync + Debug {
    /// The numbers of rows, of columns and of entries.
    fn shape(&self) -> Shape;

    /// `y ← A x`, every entry of `y` written.
    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()>;

    /// `y ← A x; ⟨x, y⟩`, of a square matrix.
    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>>;

    /// New values for the entries of the pattern that the matrix was made from.
    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()>;

    /// The values of the entries of the pattern that the matrix was made from.
    fn entries(&self, pattern: Pattern<'_>, values: &mut [T]) -> Result<()>;

    /// The arrays that values lie in, padding among them.
    fn slots(&mut self) -> Vec<&mut Array<T>>;

    /// Takes the values of its pattern's entries from a matrix on the same device, with columns.
    fn take(&mut self, ordered: &Ordered<T>) -> Result<()>;

    /// Bytes of the matrix that a product reads.
    fn bytes(&self) -> usize;

    /// Whether two products of one `x` are bitwise the same.
    fn reproducible(&self) -> bool {
        true
    }
}

/// How large a matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub cols: usize,
    /// The number of entries.
    pub entries: usize,
}

/// A matrix that one kernel multiplies, filled by another.
///
/// # Safety
/// `raw()` is the first argument of `kernel()`: its arrays live as long as the matrix, and are as the kernel expects for an
/// `x` and a `y` as long as `shape()` says.
pub(super) unsafe trait Layout: Send + Sync + Debug {
    type Element: Real;
    type Raw: DeviceRepr;

    /// Whether slots follow from columns, beside the lengths of rows.
    fn by_column(&self) -> bool;

    fn raw(&self) -> Self::Raw;

    fn kernel(&self) -> &Kernel;

    /// Threads of a product.
    fn threads(&self) -> usize;

    fn shape(&self) -> Shape;

    fn bytes(&self) -> usize;

    fn values(&self) -> &Array<Self::Element>;

    /// All arrays that values lie in.
    fn slots(&mut self) -> Vec<&mut Array<Self::Element>>;

    /// Queues the copy of values between entries and slots. `ordered` is of the shape of this, and has columns where
    /// `by_column` says so.
    fn exchange(&self, ordered: &Ordered<Self::Element>, way: Way) -> Result<()>;
}

impl<T: Real, L: Layout<Element = T>> Product<T> for L {
    fn shape(&self) -> Shape {
        Layout::shape(self)
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(Layout::shape(self), self.values().device(), x, y);
        // SAFETY: as the layout promises, for vectors of these lengths
        unsafe { self.kernel().product(&self.raw(), self.threads(), x, y) }
    }

    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(Layout::shape(self), self.values().device(), x, y);
        // SAFETY: as in `product`
        unsafe { self.kernel().product_dot(&self.raw(), self.threads(), x, y) }
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let (device, shape) = (self.values().device(), Layout::shape(self));
        let mut ordered = Ordered::with_values(device, shape, pattern, values)?;
        if self.by_column() {
            ordered = ordered.with_columns(pattern)?;
        }
        self.exchange(&ordered, Way::IntoSlots)
    }

    fn entries(&self, pattern: Pattern<'_>, values: &mut [T]) -> Result<()> {
        let mut ordered = Ordered::zeros(self.values().device(), Layout::shape(self), pattern)?;
        if self.by_column() {
            ordered = ordered.with_columns(pattern)?;
        }
        self.exchange(&ordered, Way::Back)?;
        ordered.values.read(values)
    }

    fn slots(&mut self) -> Vec<&mut Array<T>> {
        Layout::slots(self)
    }

    fn take(&mut self, ordered: &Ordered<T>) -> Result<()> {
        self.exchange(ordered, Way::IntoSlots)
    }

    fn bytes(&self) -> usize {
        Layout::bytes(self)
    }
}

/// Where the entries of a matrix stand: rows of ascending columns.
#[derive(Clone, Copy, Debug)]
pub struct Pattern<'a> {
    offsets: &'a Offsets,
    columns: &'a Columns,
}

impl<'a> Pattern<'a> {
    /// Rows begin at `offsets`, and `columns` has a column for each entry.
    pub fn new(offsets: &'a Offsets, columns: &'a Columns) -> Self {
        assert_eq!(offsets.end(), columns.len(), "offsets end at the number of entries");
        Pattern { offsets, columns }
    }

    /// The number of rows.
    pub fn rows(self) -> usize {
        self.offsets.ranges()
    }

    /// The number of columns.
    pub fn cols(self) -> usize {
        self.columns.bound()
    }

    /// The number of entries.
    pub fn entries(self) -> usize {
        self.columns.len()
    }

    pub(super) fn shape(self) -> Shape {
        Shape { rows: self.rows(), cols: self.cols(), entries: self.entries() }
    }

    /// The places of a row's entries among all entries.
    pub(super) fn row(self, row: usize) -> Range<usize> {
        self.offsets.range(row)
    }

    pub(super) fn offsets(self) -> &'a Offsets {
        self.offsets
    }

    pub(super) fn columns(self) -> &'a Columns {
        self.columns
    }

    pub(super) fn mean_length(self) -> f64 {
        self.entries() as f64 / self.rows().max(1) as f64
    }
}

/// The kernels `y ← A x` and `y ← A x; ⟨x, y⟩` of a format: `name(matrix, x, y)` and `name_dot(matrix, x, y, sum)`.
#[derive(Debug)]
pub(super) struct Kernel {
    product: CudaFunction,
    product_dot: CudaFunction,
    /// Threads of a block.
    threads: u32,
    /// Bytes of shared memory of a block, beside what the kernel declares.
    shared: u32,
    /// Blocks of `product_dot`, at most.
    most_summing: usize,
}

impl Kernel {
    /// The kernels of a name, launched with so many threads a block.
    pub(super) fn load<T: Real>(device: &Device, source: &Source, name: &str, threads: u32) -> Result<Self> {
        let product_dot = device.function::<T>(source, &format!("{name}_dot"))?;
        let per_multiprocessor =
            product_dot.occupancy_max_active_blocks_per_multiprocessor(threads, 0, None)?;
        Ok(Kernel {
            product: device.function::<T>(source, name)?,
            product_dot,
            threads,
            shared: 0,
            // the last block sums one number of each: no more than run at once
            most_summing: (per_multiprocessor.max(1) as usize * device.multiprocessors()).min(MAX_BLOCKS),
        })
    }

    /// The same with shared memory for each block, of which there are as many as there is work for: what a block begins
    /// with is too much to be begun with twice.
    pub(super) fn with_shared_memory<T: Real>(
        device: &Device,
        source: &Source,
        name: &str,
        threads: u32,
        bytes: usize,
    ) -> Result<Self> {
        let shared = index("the shared memory of a block", bytes)?;
        let kernel = Kernel::load::<T>(device, source, name, threads)?;
        for function in [&kernel.product, &kernel.product_dot] {
            let largest = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(largest, shared)?;
        }
        Ok(Kernel { shared: shared as u32, most_summing: MAX_BLOCKS, ..kernel })
    }

    fn config(&self, threads: usize, most_blocks: usize) -> LaunchConfig {
        let blocks = threads.div_ceil(self.threads as usize).clamp(1, most_blocks);
        LaunchConfig {
            grid_dim: (blocks as u32, 1, 1),
            block_dim: (self.threads, 1, 1),
            shared_mem_bytes: self.shared,
        }
    }

    /// `y ← A x` on at least so many threads.
    ///
    /// # Safety
    /// `matrix` is the kernel's first argument: its arrays live and are as the kernel expects, for an `x` and a `y` of
    /// these lengths.
    pub(super) unsafe fn product<T: Real, M: DeviceRepr>(
        &self,
        matrix: &M,
        threads: usize,
        x: &Array<T>,
        y: &mut Array<T>,
    ) -> Result<()> {
        if y.is_empty() {
            return Ok(());
        }
        let (x, to) = (x.address(0), y.address(0));
        let mut launch = y.device().inner.stream.launch_builder(&self.product);
        launch.arg(matrix).arg(&x).arg(&to);
        // SAFETY: as the caller promised; the loop over rows takes any grid
        unsafe { launch.launch(self.config(threads, i32::MAX as usize)) }?;
        Ok(())
    }

    /// `y ← A x; ⟨x, y⟩`
    ///
    /// # Safety
    /// As [`Kernel::product`].
    pub(super) unsafe fn product_dot<T: Real, M: DeviceRepr>(
        &self,
        matrix: &M,
        threads: usize,
        x: &Array<T>,
        y: &mut Array<T>,
    ) -> Result<Scalar<T>> {
        let device = y.device();
        let sums = Sums::<T, 1>::new(device)?;
        let (x, to) = (x.address(0), y.address(0));
        let mut launch = device.inner.stream.launch_builder(&self.product_dot);
        launch.arg(matrix).arg(&x).arg(&to).arg(&sums.raw);
        // SAFETY: as the caller promised; the loop over rows takes any grid
        unsafe { launch.launch(self.config(threads, self.most_summing)) }?;
        let [xy] = sums.scalars();
        Ok(xy)
    }
}

/// A launch of at least so many threads, for kernels that take any grid.
pub(super) fn config(threads: usize) -> LaunchConfig {
    let blocks = threads.div_ceil(THREADS as usize).clamp(1, i32::MAX as usize) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
}

/// Compares the vectors of a product with the matrix.
pub(super) fn check<T: Real>(shape: Shape, device: &Device, x: &Array<T>, y: &Array<T>) {
    assert_eq!(x.len(), shape.cols, "`x` has an entry for each column");
    assert_eq!(y.len(), shape.rows, "`y` has an entry for each row");
    assert!(x.device() == device && y.device() == device, "a matrix and vectors of one device");
}

/// As [`check`], for an inner product of `x` and `y`.
pub(super) fn check_square<T: Real>(shape: Shape, device: &Device, x: &Array<T>, y: &Array<T>) {
    check(shape, device, x, y);
    assert_eq!(shape.rows, shape.cols, "an inner product needs equal lengths");
}
