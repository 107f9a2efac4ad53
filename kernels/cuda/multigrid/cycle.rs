//! A cycle of multigrid in single precision on a device. Its operations and their order are those of
//! [`crate::multigrid`]; the kernel that computes `b` of a level also makes the first sweep there.
//!
//! Cost of a level with `k` sweeps: `2 k + 2` kernel launches, of which `2 k` read `A`, one reads `P` and one
//! `Pᵀ`. The dense level takes one launch; conversion of `r` and `z` takes three in all.
//!
//! A cycle on several columns (right-hand sides) takes as many launches as one on a single column, and reads
//! each matrix once: cycles on small systems are bound by launches, on large ones by the bytes of the
//! matrices. Columns are packed row by row: each row stores 1, 2, 4 or 8 numbers (`width`), one for each
//! column, so that a gather reads contiguous memory. Each lane of a cycle becomes one thread per column.

use super::permutation::{Permutation, RawOrder};
use crate::cpu::preconditioners::inverse::row_stride;
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::config_concurrent;
use crate::cuda::device::module::{Constant, Source, mirror};
use crate::cuda::device::prelude::{RawNumber, RawSum};
use crate::cuda::device::{Array, Device, Real, lock};
use crate::cuda::matrix::columns::COLUMNS;
use crate::cuda::preconditioners::coarse::{self, DENSE_ROWS};
use crate::cuda::solve::gate::step;
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use crate::multigrid::{self, LevelBytes, Levels, Shape};
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use std::sync::Mutex;

pub use super::level::{Dense, Hierarchy, Level, Matrix, Transfer};
use super::level::{MANY, RawUpdate};

/// Number of columns of the kernels for a single column.
const ONE: usize = 1;

/// The file `ends.cu` for up to `$columns` columns.
macro_rules! ends {
    ($file:literal, $columns:tt) => {
        Source {
            file: $file,
            text: concat!(include_str!("order.cu"), "#line 1 \"ends.cu\"\n", include_str!("ends.cu")),
            constants: &[Constant::one("VECTORS", $columns as i64)],
            mirrors: &[
                mirror!("Order" = RawOrder { nodes, size }),
                mirror!("Ends" = RawEnds<f32> | RawEnds<f64> { control, known, squared, goes_on }),
                mirror!("Outside" = RawOutside<$columns> { r, z, count, log_width }),
                mirror!("Sums" = RawSums<$columns> { of }),
            ],
        }
    };
}

/// Kernels that convert between the solve's vectors and those of the cycle.
pub(crate) const ENDS: Source = ends!("ends.cu", ONE);
/// [`ENDS`] for several columns.
pub(crate) const ENDS_MANY: Source = ends!("ends_many.cu", COLUMNS);

/// Data that decide whether a cycle can be skipped, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawEnds<T> {
    control: u64,
    known: u32,
    squared: RawNumber<T>,
    goes_on: u64,
}
// SAFETY: has the layout of `Ends` in ends.cu
unsafe impl<T: Real> DeviceRepr for RawEnds<T> {}

/// The solve's vectors, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawOutside<const N: usize> {
    r: [u64; N],
    z: [u64; N],
    count: u32,
    log_width: u32,
}
// SAFETY: has the layout of `Outside` in ends.cu
unsafe impl<const N: usize> DeviceRepr for RawOutside<N> {}

/// A sum for each column, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawSums<const N: usize> {
    of: [RawSum; N],
}
// SAFETY: has the layout of `Sums` in ends.cu
unsafe impl<const N: usize> DeviceRepr for RawSums<N> {}

/// The vectors of a level, as in the algorithm above. Sweeps read one `x` and write the other.
#[derive(Debug)]
struct Workspace {
    b: Array<f32>,
    x: [Array<f32>; 2],
    t: Array<f32>,
}

#[derive(Clone, Debug)]
struct Kernels {
    largest: CudaFunction,
    narrow: CudaFunction,
    widen: CudaFunction,
    widen_dot: CudaFunction,
    dense_product: CudaFunction,
}

impl Kernels {
    /// The kernels for one column, or for several.
    fn new<T: Real>(device: &Device, several: bool) -> Result<Kernels> {
        let (ends, dense_product) = match several {
            false => (&ENDS, device.function::<f32>(&coarse::SOURCE, "dense_product")),
            true => (&ENDS_MANY, device.function::<f32>(&MANY, "dense_product_many")),
        };
        let function = |name| device.function::<T>(ends, name);
        Ok(Kernels {
            largest: function("largest")?,
            narrow: function("narrow")?,
            widen: function("widen")?,
            widen_dot: function("widen_dot")?,
            dense_product: dense_product?,
        })
    }
}

/// The vectors of a cycle, packed row by row: each row stores `width` numbers, one per column.
#[derive(Debug)]
struct Vectors {
    width: usize,
    kernels: Kernels,
    levels: Vec<Workspace>,
    /// `b` and `x` of the dense level, zero beyond its rows.
    dense: [Array<f32>; 2],
    /// For each column: `most` is the output of the kernel `largest`, and `size` the scale that `narrow`
    /// derives from it.
    most: Array<u64>,
    size: Array<f64>,
}

impl Vectors {
    fn new<T: Real>(device: &Device, hierarchy: &Hierarchy, width: usize) -> Result<Vectors> {
        let workspace = |level: &Level| {
            let zeros = || device.zeros(level.inverse.len() * width);
            Ok(Workspace { b: zeros()?, x: [zeros()?, zeros()?], t: zeros()? })
        };
        let places = hierarchy.last.as_ref().map_or(0, |dense| row_stride(dense.rows)) * width;
        Ok(Vectors {
            width,
            kernels: Kernels::new::<T>(device, width > 1)?,
            levels: hierarchy.levels.iter().map(workspace).collect::<Result<_>>()?,
            dense: [device.zeros(places)?, device.zeros(places)?],
            most: device.zeros(width)?,
            size: device.zeros(width)?,
        })
    }
}

/// All levels and the workspace of a cycle. Only one cycle is queued at a time.
#[derive(Debug)]
pub struct Cycle<T: Real> {
    rows: usize,
    /// The levels.
    pub hierarchy: Hierarchy,
    /// Permutation of the finest level's rows, if they are not ordered as the solve's vectors.
    pub permutation: Option<Permutation>,
    single: Vectors,
    /// Vectors of the latest cycle on several columns, kept for the next one.
    several: Mutex<Option<Vectors>>,
    /// Output of the kernel `narrow` in a queued solver iteration: whether the solve still needs this cycle.
    goes_on: Array<u32>,
    element: std::marker::PhantomData<T>,
}

/// The columns of `r` and of `z`.
type Columns<'c, 'r, 'z, T> = (&'c [&'r Array<T>], &'c mut [&'z mut Array<T>]);

/// Levels, vectors and kernels of a cycle on at most `N` columns.
struct Run<'c, T: Real, const N: usize> {
    cycle: &'c Cycle<T>,
    vectors: &'c Vectors,
    outside: RawOutside<N>,
    device: &'c Device,
    /// One bit for each level: which of its two `x` has the latest entries.
    place: u64,
}

impl<T: Real> Cycle<T> {
    /// A cycle over these levels, for vectors of `rows` entries in the order that `permutation` permutes.
    pub fn new(
        device: &Device,
        rows: usize,
        hierarchy: Hierarchy,
        permutation: Option<Permutation>,
    ) -> Result<Self> {
        Ok(Cycle {
            rows,
            single: Vectors::new::<T>(device, &hierarchy, 1)?,
            several: Mutex::default(),
            hierarchy,
            permutation,
            goes_on: device.zeros(1)?,
            element: std::marker::PhantomData,
        })
    }

    /// `z ← scale M⁻¹ r`, where `M⁻¹` is a cycle, and `scale` the factor on the matrices of the levels.
    pub fn apply(&self, r: &Array<T>, z: &mut Array<T>) -> Result<()> {
        self.run::<1>(&self.single, (&[r], &mut [z]), None, false).map(drop)
    }

    /// Like [`Cycle::apply`]; also returns `⟨r, z⟩`. `squared` is `‖r‖²` if `r` is the residual of the solve.
    /// Within a queued solver iteration, the cycle is skipped if this is at most the threshold at which the
    /// solve ends.
    pub fn apply_dot(
        &self,
        r: &Array<T>,
        z: &mut Array<T>,
        squared: Option<&Scalar<T>>,
    ) -> Result<Scalar<T>> {
        let dots = self.run::<1>(&self.single, (&[r], &mut [z]), squared, true)?;
        Ok(dots.into_iter().next().unwrap_or(Scalar::constant(T::zero())))
    }

    /// `z_j ← scale M⁻¹ r_j` for several vectors, bitwise equal to separate applications; returns all `⟨r_j,
    /// z_j⟩` if `dots` is set. Must not be called while an iteration is recorded as a CUDA graph.
    pub fn apply_many(&self, r: &[&Array<T>], z: &mut [&mut Array<T>], dots: bool) -> Result<Vec<Scalar<T>>> {
        let mut scalars = Vec::with_capacity(r.len());
        // chunks of nearly equal size have one width, so that their vectors are allocated once
        let size = r.len().div_ceil(r.len().div_ceil(COLUMNS).max(1)).max(1);
        for (r, z) in r.chunks(size).zip(z.chunks_mut(size)) {
            let device = z[0].device().clone();
            let mut several = lock(&self.several);
            // if the queue belongs to a team (GPUs that share vectors), its counters support one column
            let width = if device.team_address() == 0 { size.next_power_of_two() } else { 1 };
            if several.as_ref().is_none_or(|vectors| vectors.width != width) && width > 1 {
                *several = None;
                match Vectors::new::<T>(&device, &self.hierarchy, width) {
                    Ok(vectors) => *several = Some(vectors),
                    // without memory, apply to one column after the other
                    Err(Error::OutOfMemory { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if let (Some(vectors), true) = (&*several, width > 1) {
                scalars.extend(self.run::<COLUMNS>(vectors, (r, z), None, dots)?);
                continue;
            }
            for (r, z) in r.iter().zip(z) {
                scalars.extend(self.run::<1>(&self.single, (&[*r], &mut [&mut **z]), None, dots)?);
            }
        }
        Ok(scalars)
    }

    /// Bytes that a cycle reads, without vectors.
    pub fn bytes(&self) -> usize {
        let of_level = |level: &Level| LevelBytes {
            sweep: level.a.product().bytes() + level.inverse.bytes(),
            transfer: level.transfer.as_ref().map_or(0, Transfer::bytes),
        };
        self.hierarchy.bytes(of_level, |dense| dense.inverse.bytes())
    }

    /// A permutation of the finest level's rows as passed to kernels; the identity if there is none.
    fn order(&self, which: fn(&Permutation) -> RawOrder) -> RawOrder {
        self.permutation.as_ref().map_or_else(RawOrder::default, which)
    }

    /// Address of the flag `goes_on` within a queued solver iteration; otherwise 0.
    fn active(&self, device: &Device) -> u64 {
        if step::<T>(device).control == 0 { 0 } else { self.goes_on.address(0) }
    }

    /// Runs a cycle on some columns; returns `⟨r, z⟩` of each if `dots` is set.
    fn run<const N: usize>(
        &self,
        vectors: &Vectors,
        (r, z): Columns<'_, '_, '_, T>,
        squared: Option<&Scalar<T>>,
        dots: bool,
    ) -> Result<Vec<Scalar<T>>> {
        let device = r[0].device().clone();
        for (r, z) in r.iter().zip(&*z) {
            assert!(r.len() == self.rows && z.len() == self.rows, "an entry for each row");
            assert!(r.device() == &device && z.device() == &device, "vectors of one device");
        }
        assert!(
            r.len() == z.len() && r.len() <= vectors.width && vectors.width <= N,
            "a place for each column"
        );
        if self.rows == 0 {
            return Ok(vec![Scalar::constant(T::zero()); if dots { r.len() } else { 0 }]);
        }
        // array elements beyond the last column repeat its address; kernels write nothing for them
        let column = |place: usize| place.min(r.len() - 1);
        let outside = RawOutside {
            r: std::array::from_fn(|place| r[column(place)].address(0)),
            z: std::array::from_fn(|place| z[column(place)].address(0)),
            count: r.len() as u32,
            log_width: vectors.width.trailing_zeros(),
        };
        let mut run = Run::<T, N> { cycle: self, vectors, outside, device: &device, place: 0 };
        self.narrow(&run, squared)?;
        multigrid::cycle(&mut run, 0, true)?;
        self.widen(&run, dots)
    }

    /// Writes `b` of the finest level, and `x` after its first sweep.
    fn narrow<const N: usize>(&self, run: &Run<'_, T, N>, squared: Option<&Scalar<T>>) -> Result<()> {
        let (device, n, outside) = (run.device, self.rows as i64, run.outside);
        let (most, size) = (run.vectors.most.address(0), run.vectors.size.address(0));
        let mut config = config_concurrent(device, self.rows, 4);
        config.grid_dim.1 = outside.count;
        let mut launch = device.launch(&run.vectors.kernels.largest);
        let control = step::<T>(device).control;
        launch.arg(&outside).arg(&n).arg(&most).arg(&control);
        // SAFETY: arguments as in ends.cu, each `r` has `n` entries; a solve's state begins with `active`
        unsafe { launch.launch(config) }?;
        let RawUpdate { y, next_d, next, next_weight, .. } = self.entry(run, 0);
        let mut launch = device.launch(&run.vectors.kernels.narrow);
        let order = self.order(Permutation::order);
        launch.arg(&outside).arg(&order).arg(&n).arg(&most).arg(&size);
        let ends = RawEnds {
            control,
            known: squared.is_some().into(),
            squared: squared.map_or(RawNumber::constant(T::zero()), |squared| squared.number().raw()),
            goes_on: self.goes_on.address(0),
        };
        launch.arg(&y).arg(&next_d).arg(&next_weight).arg(&next).arg(&ends);
        // SAFETY: as above; the outputs have `width` numbers for each row of the first level
        unsafe { launch.launch(config_concurrent(device, self.rows * run.vectors.width, 4)) }
    }

    /// Writes `z` from the result of the finest level, and returns `⟨r, z⟩` of each column if `dots` is set.
    fn widen<const N: usize>(&self, run: &Run<'_, T, N>, dots: bool) -> Result<Vec<Scalar<T>>> {
        let (x, n, outside) = (run.solution(0).address(0), self.rows as i64, run.outside);
        let (size, most) = (run.vectors.size.address(0), run.vectors.most.address(0));
        let mut config = config_concurrent(run.device, self.rows, 4);
        config.grid_dim.1 = outside.count;
        let kernel = if dots { &run.vectors.kernels.widen_dot } else { &run.vectors.kernels.widen };
        let mut launch = run.device.launch(kernel);
        let (active, places) = (self.active(run.device), self.order(Permutation::places));
        let scale = self.hierarchy.scale;
        launch.arg(&outside).arg(&x).arg(&places).arg(&n).arg(&size).arg(&scale).arg(&most).arg(&active);
        let count = if dots { outside.count as usize } else { 0 };
        let sums = (0..count).map(|column| Sums::<T, 1>::of_column(run.device, column));
        let sums = sums.collect::<Result<Vec<_>>>()?;
        let of = |column: usize| sums.get(column).map_or(Sums::<T, 1>::nowhere(), |sum| sum.raw);
        let raw = RawSums::<N> { of: std::array::from_fn(of) };
        if dots {
            launch.arg(&raw);
        }
        // SAFETY: arguments as in ends.cu, vectors of `n` entries, and a sum for each row of blocks
        unsafe { launch.launch(config) }?;
        Ok(sums.into_iter().flat_map(Sums::scalars).collect())
    }

    /// The vectors to which a level's right-hand side and first sweep are written.
    fn entry<const N: usize>(&self, run: &Run<'_, T, N>, at: usize) -> RawUpdate {
        let Some(Level { inverse, weights, .. }) = self.hierarchy.levels.get(at) else {
            return RawUpdate { y: run.vectors.dense[0].address(0), weight: 1.0, ..RawUpdate::default() };
        };
        let Workspace { b, x, .. } = &run.vectors.levels[at];
        let (next_d, next) = (inverse.address(0), x[0].address(0));
        RawUpdate {
            y: b.address(0),
            next_d,
            next,
            next_weight: weights[0],
            weight: 1.0,
            ..RawUpdate::default()
        }
    }
}

impl<T: Real, const N: usize> Run<'_, T, N> {
    /// The latest `x` of a level.
    fn solution(&self, level: usize) -> &Array<f32> {
        match self.vectors.levels.get(level) {
            Some(workspace) => &workspace.x[(self.place >> level & 1) as usize],
            None => &self.vectors.dense[1],
        }
    }

    fn queue(&self, matrix: &Matrix, x: &Array<f32>, update: RawUpdate) -> Result<()> {
        let active = self.cycle.active(self.device);
        matrix.queue(x, self.vectors.width, RawUpdate { active, ..update })
    }
}

impl<T: Real, const N: usize> Levels for Run<'_, T, N> {
    type Error = Error;

    fn shape(&self, level: usize) -> Option<Shape> {
        self.cycle.hierarchy.levels.get(level).map(Level::shape)
    }

    fn smooth(&mut self, at: usize, k: usize, from_zero: bool) -> Result<()> {
        if from_zero {
            // the kernel that computed `b` has made this sweep, see `entry`
            self.place &= !(1 << at);
            return Ok(());
        }
        let Level { a, inverse, weights, .. } = &self.cycle.hierarchy.levels[at];
        let (workspace, x) = (&self.vectors.levels[at], self.solution(at));
        let (from, b, d) = (x.address(0), workspace.b.address(0), inverse.address(0));
        let y = workspace.x[(!self.place >> at & 1) as usize].address(0);
        self.queue(a, x, RawUpdate { from, b, d, y, weight: weights[k], ..RawUpdate::default() })?;
        self.place ^= 1 << at;
        Ok(())
    }

    fn restrict(&mut self, at: usize) -> Result<()> {
        let Level { a, transfer: Some(transfer), .. } = &self.cycle.hierarchy.levels[at] else {
            return Ok(());
        };
        let Workspace { b, t, .. } = &self.vectors.levels[at];
        let (b, y) = (b.address(0), t.address(0));
        self.queue(a, self.solution(at), RawUpdate { b, y, weight: 1.0, ..RawUpdate::default() })?;
        self.queue(&transfer.r, t, self.cycle.entry(self, at + 1))
    }

    fn solve(&mut self) -> Result<()> {
        let Some(dense) = &self.cycle.hierarchy.last else { return Ok(()) };
        let (rows, stride) = (dense.rows as u32, row_stride(dense.rows) as u32);
        let [b, x] = [0, 1].map(|k| self.vectors.dense[k].address(0));
        let (e, width) = (dense.inverse.address(0), self.vectors.width as u32);
        let mut launch = self.device.launch(&self.vectors.kernels.dense_product);
        launch.arg(&e).arg(&rows).arg(&stride).arg(&b).arg(&x);
        if width > 1 {
            launch.arg(&width);
        }
        let config = LaunchConfig {
            grid_dim: (rows.div_ceil(DENSE_ROWS).max(1), 1, 1),
            block_dim: (32 * DENSE_ROWS, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: arguments as in coarse.cu and cycle_many.cu; vectors have `width` numbers for each element of a
        // row
        unsafe { launch.launch(config) }
    }

    fn prolong(&mut self, at: usize) -> Result<()> {
        let Some(transfer) = &self.cycle.hierarchy.levels[at].transfer else { return Ok(()) };
        let x = self.solution(at).address(0);
        let update = RawUpdate { from: x, y: x, weight: 1.0, ..RawUpdate::default() };
        self.queue(&transfer.p, self.solution(at + 1), update)
    }
}
