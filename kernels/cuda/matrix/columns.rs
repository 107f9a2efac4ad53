//! Products of a matrix with several vectors, which read the matrix once for up to [`COLUMNS`] of them.

use crate::cuda::device::error::Result;
use crate::cuda::device::kept::at_first_use;
use crate::cuda::device::launch::{MAX_BLOCKS, WARP, config_concurrent};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Maximum number of vectors that one launch multiplies. With eight, a gather of f64 reads two whole sectors,
/// and a matrix with 12 B per entry costs 1.5 B per entry and vector. Sixteen, not tried, would halve that
/// and need twice the registers or shared memory.
pub(crate) const COLUMNS: usize = 8;

/// The kernel that packs the columns of `X` row by row.
pub(crate) const PACK: Source = Source {
    file: "pack.cu",
    text: concat!(include_str!("columns.cu"), "#line 1 \"pack.cu\"\n", include_str!("pack.cu")),
    constants: constants![COLUMNS],
    mirrors: &[mirror!("Columns" = RawColumns { x, y, count, width })],
};

/// Vectors, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawColumns {
    pub(crate) x: [u64; COLUMNS],
    pub(crate) y: [u64; COLUMNS],
    pub(crate) count: u32,
    pub(crate) width: u32,
}
// SAFETY: has the layout of `Columns` in columns.cu
unsafe impl DeviceRepr for RawColumns {}

impl RawColumns {
    fn new<T: Real>(x: &[&Array<T>], y: &[&mut Array<T>]) -> RawColumns {
        // array elements beyond the last column repeat its address; kernels do not write to them
        let column = |place: usize| place.min(x.len() - 1);
        RawColumns {
            x: std::array::from_fn(|place| x[column(place)].address(0)),
            y: std::array::from_fn(|place| y[column(place)].address(0)),
            count: x.len() as u32,
            width: x.len().next_power_of_two() as u32,
        }
    }
}

/// Form in which kernels read the columns of `X`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reads {
    /// Packed row by row: `name(matrix, columns, packed)`. Each lane of the product with one vector becomes
    /// one thread per column.
    Packed {
        /// Number of lanes that share a row, where the columns of a launch times these lanes must fit one
        /// warp. 1 if the kernel splits a row otherwise, so that there is no such limit.
        lanes: usize,
    },
    /// From the array of each column: `name(matrix, columns)`.
    Stored,
    /// From the array of each column, through windows in shared memory: `name(matrix, columns, stride)`.
    Windows {
        /// Number of elements of a column's window.
        stride: usize,
    },
}

/// The product with one vector.
type Single<'s, T, R> = &'s mut dyn FnMut(&Array<T>, &mut Array<T>) -> Result<R>;

/// The kernels of a format for several vectors, `name` and `name_dot`, loaded at first use.
#[derive(Debug)]
pub(crate) struct Many<T> {
    source: &'static Source,
    name: String,
    reads: Reads,
    /// Threads per block.
    threads: u32,
    load: fn(&Device, &Source, &str) -> Result<CudaFunction>,
    loaded: [OnceLock<Loaded>; 2],
    element: PhantomData<fn() -> T>,
}

#[derive(Clone, Debug)]
struct Loaded {
    function: CudaFunction,
    /// Maximum number of blocks; for kernels with sums, the number of blocks that are resident.
    most: usize,
}

impl<T: Real> Many<T> {
    /// The kernels `name` and `name_dot` of a file, for a matrix with values of type `V`.
    pub(crate) fn new<V: Storage<T>>(
        source: &'static Source,
        name: String,
        reads: Reads,
        threads: u32,
    ) -> Self {
        let (load, loaded) = (Device::function_storing::<T, V>, [const { OnceLock::new() }; 2]);
        Many { source, name, reads, threads, load, loaded, element: PhantomData }
    }

    /// Number of columns per launch, if there are `count` columns.
    fn tile(&self, device: &Device, count: usize) -> Result<usize> {
        match self.reads {
            Reads::Packed { lanes } => Ok(COLUMNS.min(WARP / lanes).max(1)),
            Reads::Stored => Ok(COLUMNS),
            Reads::Windows { stride } => {
                let windows = device.shared_memory()?.saturating_sub(RESERVED);
                let most = (windows / (stride.max(1) * size_of::<T>())).clamp(1, COLUMNS);
                // launches with about equal numbers of columns
                Ok(count.div_ceil(count.div_ceil(most)))
            }
        }
    }

    fn loaded(&self, device: &Device, sums: bool) -> Result<&Loaded> {
        let load = || {
            let name = format!("{}{}", self.name, if sums { "_dot" } else { "" });
            let function = (self.load)(device, self.source, &name)?;
            let most = match self.reads {
                Reads::Windows { .. } => {
                    device.lift_shared_limit(&function)?;
                    MAX_BLOCKS
                }
                _ if !sums => i32::MAX as usize,
                _ => {
                    let resident =
                        function.occupancy_max_active_blocks_per_multiprocessor(self.threads, 0, None)?;
                    (resident.max(1) as usize * device.multiprocessors()).min(MAX_BLOCKS)
                }
            };
            Ok(Loaded { function, most })
        };
        at_first_use(&self.loaded[usize::from(sums)], load)
    }

    /// `Y ← A X`, in several launches if there are more columns than a launch multiplies; each has
    /// `threads(width)` threads for packed rows of `width` numbers. Calls `single` for a remaining single
    /// column.
    ///
    /// # Safety
    /// `matrix` is the first argument of the kernels: its arrays are alive and fulfil the kernels'
    /// requirements for vectors of these lengths.
    pub(crate) unsafe fn products<M: DeviceRepr>(
        &self,
        matrix: &M,
        threads: &dyn Fn(usize) -> usize,
        (x, y): (&[&Array<T>], &mut [&mut Array<T>]),
        single: Single<'_, T, ()>,
    ) -> Result<()> {
        let Some(device) = y.first().map(|y| y.device().clone()) else { return Ok(()) };
        let tile = self.tile(&device, x.len())?;
        for (x, y) in x.chunks(tile).zip(y.chunks_mut(tile)) {
            match (x, &mut *y) {
                ([x], [y]) => single(x, y)?,
                // SAFETY: promised by the caller
                _ => unsafe { self.launch(&device, matrix, threads, (x, y), None) }?,
            }
        }
        Ok(())
    }

    /// Like [`Many::products`]; also returns the inner product of each column of `X` with that of `Y`.
    ///
    /// # Safety
    /// See [`Many::products`].
    pub(crate) unsafe fn products_dot<M: DeviceRepr>(
        &self,
        matrix: &M,
        threads: &dyn Fn(usize) -> usize,
        (x, y): (&[&Array<T>], &mut [&mut Array<T>]),
        single: Single<'_, T, Scalar<T>>,
    ) -> Result<Vec<Scalar<T>>> {
        let mut scalars = Vec::with_capacity(y.len());
        let Some(device) = y.first().map(|y| y.device().clone()) else { return Ok(scalars) };
        let tile = self.tile(&device, x.len())?;
        for (x, y) in x.chunks(tile).zip(y.chunks_mut(tile)) {
            if let ([x], [y]) = (x, &mut *y) {
                scalars.push(single(x, y)?);
                continue;
            }
            let sums = Sums::<T, COLUMNS>::new(&device)?;
            // SAFETY: promised by the caller
            unsafe { self.launch(&device, matrix, threads, (x, y), Some(&sums)) }?;
            scalars.extend(sums.scalars().into_iter().take(x.len()));
        }
        Ok(scalars)
    }

    /// Launches one kernel for up to [`COLUMNS`] columns.
    ///
    /// # Safety
    /// See [`Many::products`].
    unsafe fn launch<M: DeviceRepr>(
        &self,
        device: &Device,
        matrix: &M,
        threads: &dyn Fn(usize) -> usize,
        (x, y): (&[&Array<T>], &[&mut Array<T>]),
        sums: Option<&Sums<T, COLUMNS>>,
    ) -> Result<()> {
        if y[0].is_empty() && sums.is_none() {
            return Ok(());
        }
        let columns = RawColumns::new(x, y);
        let Loaded { function, most } = self.loaded(device, sums.is_some())?;
        let blocks = threads(columns.width as usize).div_ceil(self.threads as usize).clamp(1, *most);
        let (packed, stride, shared) = match self.reads {
            Reads::Packed { .. } => (Some(pack::<T>(device, &columns, x[0].len())?), 0, 0),
            Reads::Stored => (None, 0, 0),
            Reads::Windows { stride } => (None, stride as u32, x.len() * stride * size_of::<T>()),
        };
        let address = packed.as_ref().map_or(0, |packed| packed.address(0));
        let mut launch = device.launch(function);
        launch.arg(matrix).arg(&columns);
        match self.reads {
            Reads::Packed { .. } => drop(launch.arg(&address)),
            Reads::Stored => {}
            Reads::Windows { .. } => drop(launch.arg(&stride)),
        }
        if let Some(sums) = sums {
            launch.arg(&sums.raw);
        }
        let (grid_dim, block_dim) = ((blocks as u32, 1, 1), (self.threads, 1, 1));
        // SAFETY: promised by the caller; the loops over rows work with any grid
        unsafe { launch.launch(LaunchConfig { grid_dim, block_dim, shared_mem_bytes: shared as u32 }) }
    }
}

/// Bytes of shared memory reserved for sums and for the driver, in kernels with windows.
const RESERVED: usize = 6 << 10;

/// Queues packing the columns of `X` with `rows` rows.
fn pack<T: Real>(device: &Device, columns: &RawColumns, rows: usize) -> Result<Array<T>> {
    let places = rows * columns.width as usize;
    let packed = device.uninitialized::<T>(places)?;
    let function = device.function::<T>(&PACK, "pack")?;
    let (rows, to) = (rows as u64, packed.address(0));
    let mut launch = device.launch(&function);
    launch.arg(columns).arg(&rows).arg(&to);
    // SAFETY: arguments as in pack.cu; every column of `X` has `rows` entries
    unsafe { launch.launch(config_concurrent(device, places, 4)) }?;
    Ok(packed)
}
