//! Operations on several vectors at once: the basis of an Arnoldi process.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::prelude::{PACK_BYTES, THREADS};
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::gate;
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::step::Steps;
use crate::cuda::solve::sums::Sums;
use crate::cuda::solve::vector;
use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{CudaFunction, LaunchConfig};

/// The kernels.
pub(crate) const SOURCE: Source =
    Source { file: "basis.cu", text: include_str!("basis.cu"), constants: constants![PACKS], mirrors: &[] };

/// Columns begin at multiples of this many entries.
const ALIGN: usize = 64;

/// Number of packs (16 bytes) per thread.
const PACKS: usize = 1;

/// Rows per block.
fn rows_of_block<T>() -> usize {
    THREADS as usize * PACKS * PACK_BYTES / size_of::<T>()
}

/// Vectors of one length, stored as columns of a matrix, and their inner products with another vector.
#[derive(Debug)]
pub struct Basis<T: Real> {
    device: Device,
    n: usize,
    /// Number of entries between the starts of consecutive columns.
    ld: usize,
    columns: Array<T>,
    /// Coefficients of the last `project`, and those of the `subtract_project` after it.
    coefficients: [Array<T>; 2],
    /// Index in `coefficients` of the array that was computed last.
    last: usize,
    /// Partial sums: one per block and column.
    partials: Array<T>,
    project: CudaFunction,
    subtract_project: CudaFunction,
    finish_projection: CudaFunction,
    subtract_norm: CudaFunction,
    combine: CudaFunction,
    push: CudaFunction,
    chip: Chip,
}

/// Device properties for limiting the number of resident blocks, so that rows read twice stay in the L2
/// cache.
#[derive(Clone, Copy, Debug)]
struct Chip {
    multiprocessors: usize,
    cache: usize,
    /// Bytes of shared memory of a multiprocessor.
    shared: usize,
    /// Maximum bytes of shared memory of a block.
    most_shared: usize,
}

impl Chip {
    fn of(device: &Device) -> Result<Chip> {
        let attribute = |which| Ok::<_, Error>(device.inner.context.attribute(which)?.max(0) as usize);
        Ok(Chip {
            multiprocessors: device.multiprocessors(),
            cache: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            shared: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            most_shared: attribute(
                CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
        })
    }

    /// Unused shared memory to request per block, so that the rows of all resident blocks fit in the L2
    /// cache.
    fn reserve(self, bytes_of_block: usize) -> usize {
        // use 70 % of the cache, because other arrays pass through it as well
        let fit = 7 * self.cache / 10 / (self.multiprocessors * bytes_of_block).max(1);
        if fit >= 8 {
            0
        } else {
            (self.shared / fit.max(1)).saturating_sub(4096).min(self.most_shared - 4096)
        }
    }
}

impl<T: Real> Basis<T> {
    /// A basis of up to `count` vectors of `n` entries.
    pub fn new(device: &Device, n: usize, count: usize) -> Result<Self> {
        let function = |name| device.function::<T>(&SOURCE, name);
        let (chip, subtract_project) = (Chip::of(device)?, function("subtract_project")?);
        device.lift_shared_limit(&subtract_project)?;
        let ld = n.next_multiple_of(ALIGN);
        Ok(Basis {
            device: device.clone(),
            n,
            ld,
            columns: device.zeros(ld * count)?,
            coefficients: [device.zeros(count)?, device.zeros(count)?],
            last: 0,
            partials: device.zeros(n.div_ceil(rows_of_block::<T>()).max(1) * count.max(1))?,
            project: function("project")?,
            subtract_project,
            chip,
            finish_projection: function("finish_projection")?,
            subtract_norm: function("subtract_norm")?,
            combine: function("combine")?,
            push: function("push")?,
        })
    }

    fn config(&self) -> LaunchConfig {
        let blocks = self.n.div_ceil(rows_of_block::<T>()).max(1) as u32;
        LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
    }

    fn check(&self, k: usize, w: &Array<T>) {
        assert_eq!(w.len(), self.n, "a vector as long as the basis's");
        assert!(w.device() == &self.device, "a vector on the basis's device");
        assert!(k * self.ld <= self.columns.len(), "no more columns than there are");
    }

    /// `v_j ← w / √norm²`
    pub fn push(&mut self, j: usize, w: &Array<T>, norm_squared: &Scalar<T>) -> Result<()> {
        self.check(j + 1, w);
        let (n, norm, w, v) =
            (self.n as i64, norm_squared.number(), w.address(0), self.columns.address(j * self.ld));
        let (gate, norm) = (gate::gate::<T>(&self.device)?, norm.raw());
        let mut launch = self.device.launch(&self.push);
        launch.arg(&gate).arg(&n).arg(&norm).arg(&w).arg(&v);
        // SAFETY: arguments as in basis.cu; `w` and column `j` hold `n` entries
        unsafe { launch.launch(self.config()) }?;
        Ok(())
    }

    /// `w ← v_j`
    pub fn load(&self, j: usize, w: &mut Array<T>) {
        self.check(j + 1, w);
        self.device.store_error(vector::copy_from(&self.columns, j * self.ld, w));
    }

    /// `c ← V_kᵀ w`
    pub fn project(&mut self, k: usize, w: &Array<T>) {
        self.check(k, w);
        self.last = 0;
        let queue = || {
            let (n, ld, count) = (self.n as i64, self.ld as i64, k as i32);
            let (v, w, partials) = (self.columns.address(0), w.address(0), self.partials.address(0));
            let mut launch = self.device.launch(&self.project);
            launch.arg(&n).arg(&ld).arg(&count).arg(&v).arg(&w).arg(&partials);
            // SAFETY: arguments as in basis.cu; checked above
            unsafe { launch.launch(self.config()) }?;
            self.finish_projection(k)
        };
        self.device.store_error(queue());
    }

    /// `w ← w − V_k c; c ← V_kᵀ w`
    pub fn subtract_project(&mut self, k: usize, w: &mut Array<T>) {
        self.check(k, w);
        let before = std::mem::replace(&mut self.last, 1);
        // in a third pass, the coefficients of the second take the place of those of the first, which are
        // overwritten
        if before == 1 {
            self.coefficients.swap(0, 1);
        }
        let queue = || {
            let (n, ld, count) = (self.n as i64, self.ld as i64, k as i32);
            let (v, c) = (self.columns.address(0), self.coefficients[0].address(0));
            let (w, partials) = (w.address(0), self.partials.address(0));
            let gate = gate::gate::<T>(&self.device)?;
            let mut launch = self.device.launch(&self.subtract_project);
            launch.arg(&gate).arg(&n).arg(&ld).arg(&count).arg(&v).arg(&c).arg(&w).arg(&partials);
            let reserve = self.chip.reserve(rows_of_block::<T>() * k * size_of::<T>());
            // SAFETY: arguments as in basis.cu; checked above
            unsafe { launch.launch(LaunchConfig { shared_mem_bytes: reserve as u32, ..self.config() }) }?;
            self.finish_projection(k)
        };
        self.device.store_error(queue());
    }

    fn finish_projection(&self, k: usize) -> Result<()> {
        if k == 0 {
            return Ok(());
        }
        let blocks = self.config().grid_dim.0 as i32;
        let (partials, c) = (self.partials.address(0), self.coefficients[self.last].address(0));
        let mut launch = self.device.launch(&self.finish_projection);
        launch.arg(&blocks).arg(&partials).arg(&c);
        // SAFETY: arguments as in basis.cu; `partials` holds a sum for each block and column
        unsafe { launch.launch(LaunchConfig { grid_dim: (k as u32, 1, 1), ..self.config() }) }?;
        self.device.sum_over_team::<T>(c, k)
    }

    /// `w ← w − V_k c; ‖w‖²`
    pub fn subtract_norm(&mut self, k: usize, w: &mut Array<T>) -> Scalar<T> {
        self.check(k, w);
        let queue = || {
            let sums = Sums::<T, 1>::new(&self.device)?;
            let (n, ld, count) = (self.n as i64, self.ld as i64, k as i32);
            let (v, c) = (self.columns.address(0), self.coefficients[self.last].address(0));
            let (w, partials) = (w.address(0), self.partials.address(0));
            let gate = gate::gate::<T>(&self.device)?;
            let mut launch = self.device.launch(&self.subtract_norm);
            launch.arg(&gate).arg(&n).arg(&ld).arg(&count).arg(&v).arg(&c).arg(&w).arg(&partials);
            // SAFETY: arguments as in basis.cu; checked above
            unsafe { launch.launch(self.config()) }?;
            let blocks = self.config().grid_dim.0 as i32;
            let result = sums.first();
            let mut launch = self.device.launch(&self.finish_projection);
            launch.arg(&blocks).arg(&partials).arg(&result);
            // SAFETY: arguments as in basis.cu; there is one column, whose sum is written to a cell
            unsafe { launch.launch(LaunchConfig { grid_dim: (1, 1, 1), ..self.config() }) }?;
            self.device.sum_over_team::<T>(result, 1)?;
            let [norm] = sums.scalars();
            Ok(norm)
        };
        queue().unwrap_or_else(|error| {
            self.device.store_error(Err(error));
            Scalar::constant(T::nan())
        })
    }

    /// Copies the coefficients of the last projection to the host.
    pub fn coefficients(&self, c: &mut [T]) -> Result<()> {
        let mut all = vec![T::zero(); self.coefficients[self.last].len()];
        self.coefficients[self.last].read(&mut all)?;
        c.copy_from_slice(&all[..c.len()]);
        Ok(())
    }

    /// Replaces the coefficients of the last projection by `c`, for example by those of distributed vectors
    /// whose parts this basis holds.
    pub fn replace_coefficients(&mut self, c: &[T]) -> Result<()> {
        self.coefficients[self.last].with_part(0..c.len(), |part| part.write(c))
    }

    /// Reports the coefficients of the last `project` to the host, plus those of the `subtract_project` after
    /// it.
    pub fn record(&self, k: usize, steps: &mut Steps<T>) {
        let [first, second] = &self.coefficients;
        steps.record_sums(first, (self.last == 1).then_some(second), k);
    }

    /// `x ← V_k y`, with `k` the length of `y`.
    pub fn combine(&mut self, y: &[T], x: &mut Array<T>) -> Result<()> {
        self.check(y.len(), x);
        let mut minus = vec![T::zero(); self.coefficients[0].len()];
        minus.iter_mut().zip(y).for_each(|(minus, &y)| *minus = -y);
        self.coefficients[0].write(&minus)?;
        self.last = 0;
        let (n, ld, count) = (self.n as i64, self.ld as i64, y.len() as i32);
        let (v, c, x) = (self.columns.address(0), self.coefficients[0].address(0), x.address(0));
        let mut launch = self.device.launch(&self.combine);
        launch.arg(&n).arg(&ld).arg(&count).arg(&v).arg(&c).arg(&x);
        // SAFETY: arguments as in basis.cu; checked above
        unsafe { launch.launch(self.config()) }?;
        Ok(())
    }
}
