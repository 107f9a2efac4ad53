//! Products with matrices in device memory, and their launch parameters.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::{MAX_BLOCKS, index};
use crate::cuda::device::module::Source;
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::matrix::columns::Many;
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction, Misfit, RowStarts};
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

/// A matrix in device memory.
///
/// Products are queued, and are bitwise reproducible on one device.
pub trait Product<T: Real>: Send + Sync + Debug {
    /// Numbers of rows, columns and entries.
    fn shape(&self) -> Shape;

    /// `y ← A x`; overwrites every entry of `y`.
    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()>;

    /// `y ← A x; ⟨x, y⟩`, for a square matrix.
    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>>;

    /// `y_j ← A x_j` for several vectors; results are bitwise equal to those of [`Product::product`].
    fn products(&self, x: &[&Array<T>], y: &mut [&mut Array<T>]) -> Result<()> {
        x.iter().zip(y).try_for_each(|(x, y)| self.product(x, y))
    }

    /// `y_j ← A x_j; ⟨x_j, y_j⟩` for several vectors and a square matrix.
    fn products_dot(&self, x: &[&Array<T>], y: &mut [&mut Array<T>]) -> Result<Vec<Scalar<T>>> {
        x.iter().zip(y).map(|(x, y)| self.product_dot(x, y)).collect()
    }

    /// Replaces the values by `values`, one for each entry of the pattern, which must be the one that the
    /// matrix was made from.
    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()>;

    /// Replaces the values by those of `ordered`, a matrix on the device that has this pattern and stores its
    /// columns.
    fn fill_from(&mut self, pattern: Pattern<'_>, ordered: &DeviceCsr<T>) -> Result<()>;

    /// Copies the values to `ordered`, a matrix on the device that has this pattern and stores its columns.
    fn copy_values_to(&self, pattern: Pattern<'_>, ordered: &mut DeviceCsr<T>) -> Result<()>;

    /// The matrix in CSR, in the order of the pattern that it was made from, with values and, if the format
    /// stores enough to recover them on the device, columns.
    fn entries(&self, pattern: Pattern<'_>) -> Result<DeviceCsr<T>>;

    /// The matrix in CSR, if it is stored in CSR.
    fn in_order(&self) -> Option<&DeviceCsr<T>> {
        None
    }

    /// The arrays of values, including padding.
    fn slots(&self) -> Vec<Slots>;

    /// Bytes of the matrix that a product reads.
    fn bytes(&self) -> usize;

    /// Moves the arrays that a product streams to host memory, from which products then read them over the
    /// bus. Returns their size in bytes; 0 if the format does not support this.
    fn spill(&mut self) -> Result<usize> {
        Ok(0)
    }
}

/// An array of values of a matrix, perhaps in a storage type with fewer bits.
#[derive(Debug)]
pub struct Slots {
    pub(crate) address: u64,
    pub(crate) len: usize,
    pub(crate) device: Device,
    /// Every integer of this many bits can be stored in a slot exactly.
    pub(crate) bits: u32,
    /// Loads a kernel for the storage type of the slots.
    pub(crate) function: fn(&Device, &Source, &str) -> Result<CudaFunction>,
}

impl Slots {
    /// Describes an array of values, for vectors of `T`.
    pub(crate) fn of<T: Real, V: Storage<T>>(values: &Array<V>) -> Slots {
        Slots {
            address: values.address(0),
            len: values.len(),
            device: values.device().clone(),
            bits: if size_of::<V>() == 2 { 8 } else { 16 },
            function: Device::function_storing::<T, V>,
        }
    }
}

/// A matrix with one kernel that multiplies and another that fills it.
///
/// # Safety
/// `raw()` is the first argument of `kernel()`: its arrays live as long as the matrix, and fulfil the
/// kernel's requirements for vectors `x` and `y` of the lengths in `shape()`.
pub(crate) unsafe trait Layout: Send + Sync + Debug {
    type Element: Real;
    /// The type in which values are stored.
    type Value: Storage<Self::Element>;
    type Raw: DeviceRepr;

    /// Returns whether the slot of an entry depends on columns, not only on the lengths of rows.
    fn by_column(&self) -> bool;

    fn raw(&self) -> Self::Raw;

    fn kernel(&self) -> &Kernel<Self::Element>;

    /// Number of threads of a product.
    fn threads(&self) -> usize;

    /// Number of threads of a product with several vectors, packed row by row with `width` numbers per row.
    fn threads_of_many(&self, width: usize) -> usize {
        self.threads() * width
    }

    fn shape(&self) -> Shape;

    fn bytes(&self) -> usize;

    /// Implementation of [`Product::spill`].
    fn spill(&mut self) -> Result<usize> {
        Ok(0)
    }

    /// The values, or most of them.
    fn values(&self) -> &Array<Self::Value>;

    fn device(&self) -> &Device {
        self.values().device()
    }

    /// All arrays of values.
    fn slots(&self) -> Vec<Slots> {
        vec![Slots::of::<Self::Element, Self::Value>(self.values())]
    }

    /// Row offsets, if the matrix keeps them.
    fn rows(&self) -> Option<&Arc<RowStarts>> {
        None
    }

    /// The columns of entries in CSR order with offsets `_rows`, if they can be recovered from the slots.
    fn columns(&self, _rows: &RowStarts) -> Result<Option<Array<u32>>> {
        Ok(None)
    }

    /// Queues the copy of values between entries and slots. `ordered` has the shape of this matrix, and has
    /// columns if `by_column()` is true.
    fn copy_values(&self, ordered: &DeviceCsr<Self::Element>, direction: Direction) -> Result<()>;
}

/// Queues `kernel(matrix, rows, columns, entries, slots, number, back, misfit)`, which copies values between the entries of
/// `ordered` and the slots of `layout`. Returns whether each entry has a slot.
///
/// # Safety
/// `kernel` has these arguments, and runs with `config`. `ordered` has the shape of the matrix, and columns.
pub(crate) unsafe fn copy_by_column<L: Layout>(
    layout: &L,
    kernel: &CudaFunction,
    ordered: &DeviceCsr<L::Element>,
    direction: Direction,
    number: usize,
    config: LaunchConfig,
) -> Result<bool> {
    let misfit = Misfit::none(layout.device())?;
    let (matrix, rows, columns) = (layout.raw(), ordered.rows.raw(), ordered.columns.address(0));
    let (entries, slots, mark) = (ordered.values.address(0), layout.values().address(0), misfit.address());
    let (number, back) = (number as u32, u32::from(direction == Direction::FromSlots));
    let mut launch = layout.device().launch(kernel);
    launch.arg(&matrix).arg(&rows).arg(&columns).arg(&entries).arg(&slots);
    launch.arg(&number).arg(&back).arg(&mark);
    // SAFETY: promised by the caller; entries without a slot are not copied
    unsafe { launch.launch(config) }?;
    Ok(!misfit.is_set()?)
}

impl<T: Real, L: Layout<Element = T>> Product<T> for L {
    fn shape(&self) -> Shape {
        Layout::shape(self)
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(Layout::shape(self), self.device(), x, y);
        // SAFETY: guaranteed by the layout, for vectors of these lengths
        unsafe { self.kernel().product(&self.raw(), self.threads(), x, y) }
    }

    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(Layout::shape(self), self.device(), x, y);
        // SAFETY: as in `product`
        unsafe { self.kernel().product_dot(&self.raw(), self.threads(), x, y) }
    }

    fn products(&self, x: &[&Array<T>], y: &mut [&mut Array<T>]) -> Result<()> {
        let mut single = |x: &Array<T>, y: &mut Array<T>| self.product(x, y);
        let Some(many) = self.kernel().many.as_ref().filter(|_| x.len() > 1) else {
            return x.iter().zip(y).try_for_each(|(x, y)| single(x, y));
        };
        x.iter().zip(&*y).for_each(|(x, y)| check(Layout::shape(self), self.device(), x, y));
        // SAFETY: guaranteed by the layout, for vectors of these lengths
        unsafe { many.products(&self.raw(), &|width| self.threads_of_many(width), (x, y), &mut single) }
    }

    fn products_dot(&self, x: &[&Array<T>], y: &mut [&mut Array<T>]) -> Result<Vec<Scalar<T>>> {
        let mut single = |x: &Array<T>, y: &mut Array<T>| self.product_dot(x, y);
        let Some(many) = self.kernel().many.as_ref().filter(|_| x.len() > 1) else {
            return x.iter().zip(y).map(|(x, y)| single(x, y)).collect();
        };
        x.iter().zip(&*y).for_each(|(x, y)| check_square(Layout::shape(self), self.device(), x, y));
        // SAFETY: as in `products`
        unsafe { many.products_dot(&self.raw(), &|width| self.threads_of_many(width), (x, y), &mut single) }
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let (device, shape) = (self.device(), Layout::shape(self));
        let mut ordered = DeviceCsr::on(device, self.rows(), shape, pattern)?;
        ordered.write(values)?;
        if self.by_column() {
            ordered = ordered.with_columns(pattern)?;
        }
        self.copy_values(&ordered, Direction::ToSlots)
    }

    fn fill_from(&mut self, pattern: Pattern<'_>, ordered: &DeviceCsr<T>) -> Result<()> {
        ordered.check(Layout::shape(self), pattern);
        self.copy_values(ordered, Direction::ToSlots)
    }

    fn copy_values_to(&self, pattern: Pattern<'_>, ordered: &mut DeviceCsr<T>) -> Result<()> {
        ordered.check(Layout::shape(self), pattern);
        self.copy_values(ordered, Direction::FromSlots)
    }

    fn entries(&self, pattern: Pattern<'_>) -> Result<DeviceCsr<T>> {
        let mut ordered = DeviceCsr::on(self.device(), self.rows(), Layout::shape(self), pattern)?;
        if let Some(columns) = self.columns(&ordered.rows)? {
            ordered.columns = Arc::new(columns);
        } else if self.by_column() {
            ordered = ordered.with_columns(pattern)?;
        }
        self.copy_values(&ordered, Direction::FromSlots)?;
        Ok(ordered)
    }

    fn slots(&self) -> Vec<Slots> {
        Layout::slots(self)
    }

    fn bytes(&self) -> usize {
        Layout::bytes(self)
    }

    fn spill(&mut self) -> Result<usize> {
        Layout::spill(self)
    }
}

/// The kernels `y ← A x` and `y ← A x; ⟨x, y⟩` of a format, for vectors of `T`: `name(matrix, x, y)` and
/// `name_dot(matrix, x, y, sum)`.
#[derive(Debug)]
pub(crate) struct Kernel<T> {
    product: CudaFunction,
    product_dot: CudaFunction,
    /// Threads per block.
    threads: u32,
    /// Bytes of dynamic shared memory per block.
    shared: u32,
    /// Maximum number of blocks of `product_dot`.
    most_summing: usize,
    /// Kernels for several vectors, if the format has them.
    pub(crate) many: Option<Many<T>>,
    element: PhantomData<fn() -> T>,
}

impl<T: Real> Kernel<T> {
    /// Loads the kernels with this name for a matrix with values of type `V`, to be launched with `threads`
    /// threads per block.
    pub(crate) fn load<V: Storage<T>>(
        device: &Device,
        source: &Source,
        name: &str,
        threads: u32,
    ) -> Result<Self> {
        let product_dot = device.function_storing::<T, V>(source, &format!("{name}_dot"))?;
        let per_multiprocessor =
            product_dot.occupancy_max_active_blocks_per_multiprocessor(threads, 0, None)?;
        Ok(Kernel {
            product: device.function_storing::<T, V>(source, name)?,
            product_dot,
            threads,
            shared: 0,
            // the last block waits for a sum of each block; because blocks loop over the rows, no more of
            // them are launched than are resident
            most_summing: (per_multiprocessor.max(1) as usize * device.multiprocessors()).min(MAX_BLOCKS),
            many: None,
            element: PhantomData,
        })
    }

    /// Adds kernels for several vectors.
    pub(crate) fn with_many(self, many: Many<T>) -> Self {
        Kernel { many: Some(many), ..self }
    }

    /// Loads kernels with dynamic shared memory. They get one block per unit of work, because filling shared
    /// memory is too expensive to repeat in a grid-stride loop.
    pub(crate) fn with_shared_memory<V: Storage<T>>(
        device: &Device,
        source: &Source,
        name: &str,
        threads: u32,
        bytes: usize,
    ) -> Result<Self> {
        let shared = index("the shared memory of a block", bytes)?;
        let kernel = Kernel::load::<V>(device, source, name, threads)?;
        for function in [&kernel.product, &kernel.product_dot] {
            device.lift_shared_limit(function)?;
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

    /// Launch configuration with at least `threads` threads in total, limited for sums over the grid.
    pub(crate) fn summing(&self, threads: usize) -> LaunchConfig {
        self.config(threads, self.most_summing)
    }

    /// `y ← A x` with at least `threads` threads in total.
    ///
    /// # Safety
    /// `matrix` is the kernel's first argument: its arrays are alive and fulfil the kernel's requirements for
    /// vectors `x` and `y` of these lengths.
    pub(crate) unsafe fn product<M: DeviceRepr>(
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
        let mut launch = y.device().launch(&self.product);
        launch.arg(matrix).arg(&x).arg(&to);
        // SAFETY: promised by the caller; the grid-stride loop over rows works with any grid
        unsafe { launch.launch(self.config(threads, i32::MAX as usize)) }?;
        Ok(())
    }

    /// `y ← A x; ⟨x, y⟩`
    ///
    /// # Safety
    /// See [`Kernel::product`].
    pub(crate) unsafe fn product_dot<M: DeviceRepr>(
        &self,
        matrix: &M,
        threads: usize,
        x: &Array<T>,
        y: &mut Array<T>,
    ) -> Result<Scalar<T>> {
        let device = y.device();
        let sums = Sums::<T, 1>::new(device)?;
        let (x, to) = (x.address(0), y.address(0));
        let mut launch = device.launch(&self.product_dot);
        launch.arg(matrix).arg(&x).arg(&to).arg(&sums.raw);
        // SAFETY: promised by the caller; the grid-stride loop over rows works with any grid
        unsafe { launch.launch(self.summing(threads)) }?;
        let [xy] = sums.scalars();
        Ok(xy)
    }
}

/// Checks the vectors of a product against the matrix.
pub(crate) fn check<T: Real>(shape: Shape, device: &Device, x: &Array<T>, y: &Array<T>) {
    assert_eq!(x.len(), shape.cols, "`x` has an entry for each column");
    assert_eq!(y.len(), shape.rows, "`y` has an entry for each row");
    assert!(x.device() == device && y.device() == device, "a matrix and vectors of one device");
}

/// Like [`check`], also for an inner product of `x` and `y`.
pub(crate) fn check_square<T: Real>(shape: Shape, device: &Device, x: &Array<T>, y: &Array<T>) {
    check(shape, device, x, y);
    assert_eq!(shape.rows, shape.cols, "an inner product needs equal lengths");
}
