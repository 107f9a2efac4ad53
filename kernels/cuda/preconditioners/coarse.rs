//! Coarse-space correction on a device: `z = M⁻¹ r + Z E Zᵀ r` in three launches, with a diagonal `M`, a
//! dense `E`, and the columns of `Z` spanning the coarse space; and the computation of `E` as an inverse.
//!
//! coarse.cu states the memory traffic. The inverse for `n` unknowns takes `n / 16` launches, one after the
//! other.

use crate::cpu::preconditioners::coarse::{Aggregates, Blocks};
use crate::cpu::preconditioners::inverse::row_stride;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config_concurrent;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::gate;
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use std::sync::Arc;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "coarse.cu",
    text: include_str!("coarse.cu"),
    constants: constants![PANEL, DENSE_ROWS],
    mirrors: &[mirror!(
        "Aggregates" = RawAggregates { starts, rows, of_row, weights, n, count, modes, rows_alone }
    )],
};

/// Number of rows per panel of the inversion. Guess, chosen as a warp.
const PANEL: u32 = 32;
/// Rows of the dense matrix per thread block: one per warp.
pub(crate) const DENSE_ROWS: u32 = 4;
/// Maximum number of thread blocks that update rows without an aggregate. [`ROWS_ALONE`] is the minimum number
/// of rows per such block. Guess.
const BLOCKS_ALONE: usize = 1 << 14;
const ROWS_ALONE: usize = 1024;

/// `Aggregates` as passed to kernels.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawAggregates {
    starts: u64,
    rows: u64,
    of_row: u64,
    weights: u64,
    n: i64,
    count: u32,
    modes: u32,
    rows_alone: u32,
}
// SAFETY: has the layout of `Aggregates` in coarse.cu
unsafe impl DeviceRepr for RawAggregates {}

/// Aggregates of rows, the near-null-space vectors on them (`Z`), and the dense matrix `E` of the coarse
/// unknowns.
#[derive(Debug)]
pub struct Coarse<T: Real> {
    device: Device,
    /// Identity token. Code that caches arrays derived from the aggregates compares tokens to detect that the
    /// coarse space is another one.
    pub(crate) identity: Arc<()>,
    starts: Array<u32>,
    rows: Array<u32>,
    pub(crate) of_row: Array<u32>,
    pub(crate) weights: Option<Array<T>>,
    pub(crate) modes: usize,
    /// Number of rows without an aggregate.
    alone: usize,
    pub(crate) dense: Array<T>,
    /// `Zᵀ r` and `E Zᵀ r`, zero beyond the coarse unknowns.
    numbers: [Array<T>; 2],
    kernels: Kernels,
}

#[derive(Debug)]
struct Kernels {
    restrict_rows: CudaFunction,
    update_restrict: CudaFunction,
    dense_product: CudaFunction,
    prolong: CudaFunction,
    prolong_dot: CudaFunction,
    expand: CudaFunction,
}

/// Computes the inverse of `a`, a symmetric positive definite matrix with this diagonal; overwrites `a`. Rows
/// of both are [`row_stride`] elements apart. If a pivot is not larger than the rounding error of its
/// diagonal entry, returns its row and value, and leaves `inverse` unchanged.
pub(crate) fn invert<T: Real>(
    a: &Array<f64>,
    diagonal: &[f64],
    inverse: &mut Array<T>,
) -> Result<Option<(usize, f64)>> {
    let (device, n) = (a.device(), diagonal.len());
    let stride = row_stride(n);
    assert!(a.len() == n * stride && inverse.len() == a.len(), "rows of whole registers");
    if n == 0 {
        return Ok(None);
    }
    let [invert_panel, update_panel, round_inverse] =
        ["invert_panel", "update_panel", "round_inverse"].map(|name| device.function::<T>(&SOURCE, name));
    let (invert_panel, update_panel, round_inverse) = (invert_panel?, update_panel?, round_inverse?);
    let rounding = n as f64 * f64::EPSILON;
    let least: Vec<f64> = diagonal.iter().map(|pivot| rounding * pivot).collect();
    let least = device.upload(&least)?;
    let panel = device.zeros::<f64>(PANEL as usize * stride)?;
    let left = device.zeros::<f64>(n * PANEL as usize)?;
    let failed = device.zeros::<f64>(2)?;
    let [a, least, r, w, report] = [a, &least, &panel, &left, &failed].map(|array| array.address(0));
    let (rows, pitch) = (n as u32, stride as u32);
    let grid = |x: u32, y: u32| LaunchConfig {
        grid_dim: (x, y, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: 0,
    };
    let (across, down) = (pitch.div_ceil(PANEL), rows.div_ceil(PANEL));
    for first in (0..rows).step_by(PANEL as usize) {
        let mut launch = device.launch(&invert_panel);
        launch.arg(&a).arg(&rows).arg(&pitch).arg(&first).arg(&least).arg(&r).arg(&w).arg(&report);
        // SAFETY: arguments as in coarse.cu; `a` has `n` rows, `r` a panel of them, `w` a panel of columns
        unsafe { launch.launch(grid(across, 1)) }?;
        let mut launch = device.launch(&update_panel);
        launch.arg(&a).arg(&rows).arg(&pitch).arg(&first).arg(&r).arg(&w);
        // SAFETY: as above
        unsafe { launch.launch(grid(across, down)) }?;
    }
    let mut found = [0.0; 2];
    failed.read(&mut found)?;
    if found[0] > 0.0 {
        return Ok(Some((found[0] as usize - 1, found[1])));
    }
    let dense = inverse.address(0);
    let mut launch = device.launch(&round_inverse);
    launch.arg(&a).arg(&rows).arg(&pitch).arg(&dense);
    // SAFETY: arguments as in coarse.cu; both matrices have `n` rows
    unsafe { launch.launch(grid(pitch.div_ceil(THREADS), rows)) }?;
    Ok(None)
}

impl<T: Real> Coarse<T> {
    /// Uploads aggregates; the dense matrix is zero until it is written or computed.
    pub fn new(device: &Device, aggregates: &Aggregates<'_, T>) -> Result<Self> {
        let function = |name| device.function::<T>(&SOURCE, name);
        let kernels = Kernels {
            restrict_rows: function("restrict_rows")?,
            update_restrict: function("update_restrict")?,
            dense_product: function("dense_product")?,
            prolong: function("prolong")?,
            prolong_dot: function("prolong_dot")?,
            expand: function("expand")?,
        };
        let (n, covered) = (aggregates.unknowns(), aggregates.starts[aggregates.count()] as usize);
        let stride = row_stride(n);
        Ok(Coarse {
            device: device.clone(),
            identity: Arc::new(()),
            starts: device.upload(aggregates.starts)?,
            rows: device.upload(aggregates.rows)?,
            of_row: device.upload(aggregates.of_row)?,
            weights: aggregates.weights.map(|weights| device.upload(weights)).transpose()?,
            modes: aggregates.modes,
            alone: aggregates.rows.len() - covered,
            dense: device.zeros(n * stride)?,
            numbers: [device.zeros(stride)?, device.zeros(stride)?],
            kernels,
        })
    }

    /// Number of aggregates.
    pub(crate) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of coarse unknowns.
    pub(crate) fn unknowns(&self) -> usize {
        self.count() * self.modes
    }

    /// Elements between the starts of consecutive rows of the dense matrix.
    pub(crate) fn stride(&self) -> usize {
        row_stride(self.unknowns())
    }

    /// Bytes that an application of the correction reads in addition to vectors.
    pub fn bytes(&self) -> usize {
        let weights = 2 * self.weights.as_ref().map_or(0, Array::bytes);
        self.rows.bytes() + self.of_row.bytes() + weights + self.dense.bytes()
    }

    /// Writes the dense matrix; rows are [`row_stride`] elements apart.
    pub fn write(&mut self, dense: &[T]) -> Result<()> {
        self.dense.write(dense)
    }

    /// Sets the dense matrix to the inverse of a symmetric positive definite one. If a pivot is not larger
    /// than the rounding error of its diagonal entry, returns its row and value.
    pub fn invert(&mut self, matrix: &Blocks) -> Result<Option<(usize, f64)>> {
        assert!(
            matrix.unknowns() == self.unknowns() && matrix.modes == self.modes,
            "a matrix of the coarse unknowns"
        );
        let a = self.expanded(matrix)?;
        invert(&a, &matrix.diagonal(), &mut self.dense)
    }

    /// Expands a block matrix to a dense one.
    fn expanded(&self, matrix: &Blocks) -> Result<Array<f64>> {
        let (device, stride) = (&self.device, self.stride() as u32);
        let dense = device.zeros::<f64>(self.unknowns() * self.stride())?;
        let (places, values) = (device.upload(matrix.places.as_flattened())?, device.upload(&matrix.values)?);
        let (modes, entries) = (self.modes as u32, matrix.values.len() as u64);
        let [to, places, values] = [dense.address(0), places.address(0), values.address(0)];
        let mut launch = device.launch(&self.kernels.expand);
        launch.arg(&to).arg(&stride).arg(&places).arg(&values).arg(&modes).arg(&entries);
        // SAFETY: arguments as in coarse.cu; block rows and columns are within the matrix
        unsafe { launch.launch(Self::blocks(matrix.values.len().div_ceil(THREADS as usize))) }?;
        Ok(dense)
    }

    fn raw(&self) -> RawAggregates {
        RawAggregates {
            starts: self.starts.address(0),
            rows: self.rows.address(0),
            of_row: self.of_row.address(0),
            weights: self.weights.as_ref().map_or(0, |weights| weights.address(0)),
            n: self.of_row.len() as i64,
            count: self.count() as u32,
            modes: self.modes as u32,
            rows_alone: self.rows_alone() as u32,
        }
    }

    fn rows_alone(&self) -> usize {
        self.alone.div_ceil(BLOCKS_ALONE).max(ROWS_ALONE)
    }

    fn check(&self, vectors: &[&Array<T>]) {
        for vector in vectors {
            assert_eq!(vector.len(), self.of_row.len(), "an entry for each row");
            assert!(vector.device() == &self.device, "vectors of one device");
        }
    }

    fn blocks(count: usize) -> LaunchConfig {
        LaunchConfig {
            grid_dim: (count.max(1) as u32, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        }
    }

    /// Computes `c = Zᵀ r`, and stores it in the workspace.
    pub fn restrict(&self, r: &Array<T>) -> Result<()> {
        self.check(&[r]);
        let count = self.count();
        if count == 0 {
            return Ok(());
        }
        let (raw, r, c) = (self.raw(), r.address(0), self.numbers[0].address(0));
        let mut launch = self.device.launch(&self.kernels.restrict_rows);
        launch.arg(&raw).arg(&r).arg(&c);
        // SAFETY: arguments as in coarse.cu; `r` has an entry for each row, `c` one for each coarse unknown
        unsafe { launch.launch(Self::blocks(count)) }
    }

    /// Computes `Zᵀ r`, and copies it to the host.
    pub fn restricted(&self, r: &Array<T>) -> Result<Vec<T>> {
        self.restrict(r)?;
        let mut numbers = vec![T::zero(); self.stride()];
        self.numbers[0].read(&mut numbers)?;
        numbers.truncate(self.unknowns());
        Ok(numbers)
    }

    /// `z ← z + Z e`, for `e` in host memory.
    pub fn add(&mut self, e: &[T], z: &mut Array<T>) -> Result<()> {
        self.check(&[z]);
        assert_eq!(e.len(), self.unknowns(), "a number for each coarse unknown");
        self.numbers[1].with_part(0..e.len(), |part| part.write(e))?;
        self.prolong_rows(None, z, z)
    }

    /// `r ← r + a q; ‖r‖²`; also stores `c = Zᵀ r` in the workspace.
    pub fn update_restrict(&self, a: &Scalar<T>, q: &Array<T>, r: &mut Array<T>) -> Result<Scalar<T>> {
        self.check(&[q, r]);
        let sums = Sums::<T, 1>::new(&self.device)?;
        let (gate, raw, a) = (gate::gate::<T>(&self.device)?, self.raw(), a.number().raw());
        let (q, r, c) = (q.address(0), r.address(0), self.numbers[0].address(0));
        let mut launch = self.device.launch(&self.kernels.update_restrict);
        launch.arg(&gate).arg(&raw).arg(&a).arg(&q).arg(&r).arg(&c).arg(&sums.raw);
        let count = self.count() + self.alone.div_ceil(self.rows_alone());
        // SAFETY: arguments as in coarse.cu; vectors have an entry for each row, `c` one for each coarse unknown
        unsafe { launch.launch(Self::blocks(count)) }?;
        let [norm] = sums.scalars();
        Ok(norm)
    }

    /// Computes `E c`, for `c` in the workspace.
    fn multiply(&self) -> Result<()> {
        let n = self.unknowns() as u32;
        if n == 0 {
            return Ok(());
        }
        let (stride, e) = (self.stride() as u32, self.dense.address(0));
        let [c, y] = [0, 1].map(|k| self.numbers[k].address(0));
        let mut launch = self.device.launch(&self.kernels.dense_product);
        launch.arg(&e).arg(&n).arg(&stride).arg(&c).arg(&y);
        let config = LaunchConfig {
            grid_dim: (n.div_ceil(DENSE_ROWS), 1, 1),
            block_dim: (32 * DENSE_ROWS, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: arguments as in coarse.cu; `c` and `y` are as long as a row of the matrix
        unsafe { launch.launch(config) }
    }

    /// `z ← d ∘ r + Z E c` with an inverse diagonal `d`, multiplied entry by entry; `z ← z + Z E c` without
    /// `d`. `c` is the result of the last restriction.
    pub fn prolong(&self, d: Option<&Array<T>>, r: &Array<T>, z: &mut Array<T>) -> Result<()> {
        self.check(&[d.unwrap_or(r), r, z]);
        self.multiply()?;
        self.prolong_rows(d, r, z)
    }

    fn prolong_rows(&self, d: Option<&Array<T>>, r: &Array<T>, z: &Array<T>) -> Result<()> {
        let (gate, raw, e) = (gate::gate::<T>(&self.device)?, self.raw(), self.numbers[1].address(0));
        let (d, config) = (d.map_or(0, |d| d.address(0)), config_concurrent(&self.device, z.len(), 2));
        let (r, z) = (r.address(0), z.address(0));
        let mut launch = self.device.launch(&self.kernels.prolong);
        launch.arg(&gate).arg(&raw).arg(&d).arg(&r).arg(&e).arg(&z);
        // SAFETY: arguments as in coarse.cu; vectors have an entry for each row, `e` one for each coarse unknown
        unsafe { launch.launch(config) }
    }

    /// Like [`Coarse::prolong`]; also returns `⟨r, z⟩`.
    pub fn prolong_dot(&self, d: Option<&Array<T>>, r: &Array<T>, z: &mut Array<T>) -> Result<Scalar<T>> {
        self.check(&[d.unwrap_or(r), r, z]);
        self.multiply()?;
        let sums = Sums::<T, 1>::new(&self.device)?;
        let (gate, raw, e) = (gate::gate::<T>(&self.device)?, self.raw(), self.numbers[1].address(0));
        let (d, config) = (d.map_or(0, |d| d.address(0)), config_concurrent(&self.device, z.len(), 2));
        let (r, z) = (r.address(0), z.address(0));
        let mut launch = self.device.launch(&self.kernels.prolong_dot);
        launch.arg(&gate).arg(&raw).arg(&d).arg(&r).arg(&e).arg(&z).arg(&sums.raw);
        // SAFETY: as above
        unsafe { launch.launch(config) }?;
        let [rz] = sums.scalars();
        Ok(rz)
    }
}
