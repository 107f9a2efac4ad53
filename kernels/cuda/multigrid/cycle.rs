//! A V-cycle of multigrid in single precision on a device.
//!
//! ```text
//! cycle(b):                               on the last level, where it is dense: x = A⁻¹ b
//!     x ← w₁ D⁻¹ b                        with the kernel that makes b
//!     x ← x + w_i D⁻¹ (b − A x)           i = 2 … k
//!     t ← b − A x
//!     x ← x + P cycle(Pᵀ t)
//!     x ← x + w_i D⁻¹ (b − A x)           i = k … 1
//! ```
//!
//! Budget of a level with `k` sweeps: `2 k + 2` launches, `2 k` of them over `A`, one over `P` and one over
//! `Pᵀ`. The dense level takes one launch; conversion at both ends takes three in all.

use super::graph::Blocks;
use super::numbering::{Numbering, RawOrder};
use super::numbers;
use crate::cpu::preconditioners::inverse::row_stride;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::{config, config_at_once};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::RawNumber;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::formats::dia::{BATCH, Dia, NOWHERE};
use crate::cuda::formats::sliced::Sliced;
use crate::cuda::matrix::ordered::{Ordered, Way};
use crate::cuda::matrix::pattern::Shape;
use crate::cuda::matrix::product::{Layout, Product};
use crate::cuda::preconditioners::coarse::{self, DENSE_ROWS};
use crate::cuda::solve::gate::step;
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use crate::cuda::tuning::SLOTS_IN_FLIGHT;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};

/// Kernels of the levels.
pub(crate) const SOURCE: Source = Source {
    file: "cycle.cu",
    text: concat!(
        include_str!("../formats/sliced_rows.cu"),
        include_str!("../formats/dia_rows.cu"),
        "#line 1 \"cycle.cu\"\n",
        include_str!("cycle.cu")
    ),
    constants: constants![SLOTS_IN_FLIGHT, BATCH, NOWHERE],
    mirrors: &[mirror!("Update" = RawUpdate { from, b, d, y, next_d, next, active, weight, next_weight })],
};

/// Kernels that convert between the solve's vectors and those of the cycle.
pub(crate) const ENDS: Source = Source {
    file: "ends.cu",
    text: concat!(include_str!("order.cu"), "#line 1 \"ends.cu\"\n", include_str!("ends.cu")),
    constants: constants![],
    mirrors: &[
        mirror!("Order" = RawOrder { nodes, size }),
        mirror!("Ends" = RawEnds<f32> | RawEnds<f64> { control, known, squared, goes_on }),
    ],
};

/// Average entries per row from which rows may be sorted by length.
const SORTED_FROM: usize = 8;

/// How the sums of a product update vectors, as passed to kernels.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct RawUpdate {
    from: u64,
    b: u64,
    d: u64,
    y: u64,
    next_d: u64,
    next: u64,
    active: u64,
    weight: f32,
    next_weight: f32,
}
// SAFETY: as `Update` of cycle.cu
unsafe impl DeviceRepr for RawUpdate {}

/// Whether a cycle can be skipped, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawEnds<T> {
    control: u64,
    known: u32,
    squared: RawNumber<T>,
    goes_on: u64,
}
// SAFETY: as `Ends` of ends.cu
unsafe impl<T: Real> DeviceRepr for RawEnds<T> {}

/// A matrix of a level.
#[derive(Debug)]
pub struct Matrix {
    stored: Stored,
    update: CudaFunction,
}

#[derive(Debug)]
enum Stored {
    Sliced(Box<Sliced<f32>>),
    Dia(Box<Dia<f32>>),
}

impl Matrix {
    /// Stores a matrix with `cols` columns in slices (SELL-P).
    pub fn sliced(ordered: &Ordered<f32>, cols: usize) -> Result<Matrix> {
        // sorted rows lose coalesced access to the vectors, which costs short rows more than padding does
        let sort = ordered.nnz() >= SORTED_FROM * ordered.rows.count();
        Matrix::of_slices(Sliced::of_rows(ordered, cols, sort)?)
    }

    fn of_slices(sliced: Sliced<f32>) -> Result<Matrix> {
        let name = match (sliced.has_short_columns(), sliced.pack()) {
            (false, 1) => "update_wide",
            (false, _) => "update_wide_packed",
            (true, 1) => "update_short",
            (true, _) => "update_short_packed",
        };
        let update = sliced.device().function::<f32>(&SOURCE, name)?;
        Ok(Matrix { stored: Stored::Sliced(Box::new(sliced)), update })
    }

    /// Stores a matrix by diagonals; `None` if an entry is on none of these.
    pub fn by_diagonals(ordered: &Ordered<f32>, cols: usize, diagonals: &[i64]) -> Result<Option<Matrix>> {
        Dia::of(ordered, cols, diagonals)?.map(Matrix::of_diagonals).transpose()
    }

    fn of_diagonals(dia: Dia<f32>) -> Result<Matrix> {
        let name = if dia.rows_of_lane() == 1 { "update_dia_1" } else { "update_dia_4" };
        let update = dia.device().function::<f32>(&SOURCE, name)?;
        Ok(Matrix { stored: Stored::Dia(Box::new(dia)), update })
    }

    /// Stores blocks times a factor: by diagonals if they cover all entries, otherwise in slices.
    pub fn of_blocks(blocks: &Blocks, factor: f64, diagonals: &[i64]) -> Result<Matrix> {
        let (graph, cols) = (&blocks.graph, blocks.graph.cols() * blocks.shape[1]);
        if blocks.shape != [1, 1] {
            return Matrix::sliced(&numbers::expanded(blocks, factor)?, cols);
        }
        if !diagonals.is_empty() {
            let shape = Shape { rows: graph.rows(), cols, entries: graph.entries() };
            let dia = Dia::<f32>::empty(graph.device(), shape, diagonals)?;
            if !dia.take_scaled((&graph.rows, &graph.columns), &blocks.values, factor)?.is_set()? {
                return Matrix::of_diagonals(dia);
            }
        }
        let sort = graph.entries() >= SORTED_FROM * graph.rows();
        let sliced = Sliced::<f32>::without_values(&graph.rows, &graph.columns, cols, sort)?;
        sliced.take_scaled(&graph.rows, &blocks.values, factor)?;
        Matrix::of_slices(sliced)
    }

    /// Replaces the values of a matrix from [`Matrix::of_blocks`] or a copy of it.
    pub fn refill(&mut self, blocks: &Blocks, factor: f64) -> Result<()> {
        let graph = &blocks.graph;
        match &self.stored {
            _ if blocks.shape != [1, 1] => self.fill(&numbers::expanded(blocks, factor)?),
            Stored::Sliced(matrix) => matrix.take_scaled(&graph.rows, &blocks.values, factor),
            // the pattern is known to fit
            Stored::Dia(matrix) => {
                matrix.take_scaled((&graph.rows, &graph.columns), &blocks.values, factor).map(drop)
            }
        }
    }

    /// Replaces the values, for a matrix with the same pattern.
    fn fill(&mut self, ordered: &Ordered<f32>) -> Result<()> {
        assert_eq!(ordered.nnz(), self.product().shape().entries, "a number for each entry");
        match &self.stored {
            Stored::Sliced(matrix) => matrix.copy_values(ordered, Way::IntoSlots),
            Stored::Dia(matrix) => matrix.copy_values(ordered, Way::IntoSlots),
        }
    }

    /// Its product with a vector, without the update.
    pub fn product(&self) -> &dyn Product<f32> {
        match &self.stored {
            Stored::Sliced(matrix) => &**matrix,
            Stored::Dia(matrix) => &**matrix,
        }
    }

    /// Name of its storage format.
    pub fn name(&self) -> &'static str {
        match &self.stored {
            Stored::Sliced(_) => "SELL-P",
            Stored::Dia(_) => "DIA",
        }
    }

    fn queue(&self, x: &Array<f32>, active: u64, update: RawUpdate) -> Result<()> {
        let update = RawUpdate { active, ..update };
        assert!(x.len() >= self.product().shape().cols, "an entry for each column");
        match &self.stored {
            Stored::Sliced(matrix) => self.queue_of(&**matrix, x, update),
            Stored::Dia(matrix) => self.queue_of(&**matrix, x, update),
        }
    }

    fn queue_of(&self, matrix: &impl Layout, x: &Array<f32>, update: RawUpdate) -> Result<()> {
        let (raw, from) = (matrix.raw(), x.address(0));
        let mut launch = x.device().launch(&self.update);
        launch.arg(&raw).arg(&from).arg(&update);
        // SAFETY: arguments as in cycle.cu; vectors are as long as the matrix has columns and rows
        unsafe { launch.launch(config(matrix.threads())) }
    }
}

/// A level with smoothing.
#[derive(Debug)]
pub struct Level {
    /// The matrix.
    pub a: Matrix,
    /// `D⁻¹`
    pub inverse: Array<f32>,
    /// Weights of the sweeps, one or more.
    pub weights: Vec<f32>,
    /// Ratio of a full to a short estimate of the largest eigenvalue; `None` before the first.
    pub gain: Option<f64>,
    /// `P` and `Pᵀ`; `None` on the last level if that is smoothed alone.
    pub transfer: Option<[Matrix; 2]>,
}

/// The last level, inverted: rows are [`row_stride`] elements apart.
#[derive(Debug)]
pub struct Dense {
    /// Number of rows.
    pub rows: usize,
    /// Elements of the inverse.
    pub inverse: Array<f32>,
}

/// The vectors of a level. Sweeps read one `x` and write the other.
#[derive(Debug)]
struct Workspace {
    b: Array<f32>,
    x: [Array<f32>; 2],
    t: Array<f32>,
}

/// All levels and the workspace of a cycle. Only one cycle is queued at a time.
#[derive(Debug)]
pub struct Cycle<T: Real> {
    rows: usize,
    /// The levels, the finest first.
    pub levels: Vec<Level>,
    /// The last level, if it is dense.
    pub dense: Option<Dense>,
    /// Permutation of the finest level's rows, if they are not ordered as the solve's vectors.
    pub numbering: Option<Numbering>,
    /// Number of visits per cycle to the levels below the finest; each starts from the previous result.
    pub passes: usize,
    work: Vec<Workspace>,
    /// `b` and `x` of the dense level, zero beyond its rows.
    dense_work: [Array<f32>; 2],
    /// Output of the kernel `largest`, and the scale that `narrow` derives from it.
    most: Array<u64>,
    size: Array<f64>,
    /// Within a step: output of `narrow`, whether the solve still needs this cycle.
    goes_on: Array<u32>,
    kernels: Kernels,
    element: std::marker::PhantomData<T>,
}

#[derive(Debug)]
struct Kernels {
    largest: CudaFunction,
    narrow: CudaFunction,
    widen: CudaFunction,
    widen_dot: CudaFunction,
    dense_product: CudaFunction,
}

impl<T: Real> Cycle<T> {
    /// A cycle over these levels, for vectors of `rows` entries.
    pub fn new(device: &Device, rows: usize, levels: Vec<Level>, dense: Option<Dense>) -> Result<Self> {
        let function = |name| device.function::<T>(&ENDS, name);
        let kernels = Kernels {
            largest: function("largest")?,
            narrow: function("narrow")?,
            widen: function("widen")?,
            widen_dot: function("widen_dot")?,
            dense_product: device.function::<f32>(&coarse::SOURCE, "dense_product")?,
        };
        let workspace = |level: &Level| {
            let zeros = || device.zeros(level.inverse.len());
            Ok(Workspace { b: zeros()?, x: [zeros()?, zeros()?], t: zeros()? })
        };
        let stride = dense.as_ref().map_or(0, |dense| row_stride(dense.rows));
        Ok(Cycle {
            rows,
            work: levels.iter().map(workspace).collect::<Result<_>>()?,
            levels,
            dense,
            numbering: None,
            passes: 1,
            dense_work: [device.zeros(stride)?, device.zeros(stride)?],
            most: device.zeros(1)?,
            size: device.zeros(1)?,
            goes_on: device.zeros(1)?,
            kernels,
            element: std::marker::PhantomData,
        })
    }

    /// `z ← scale M⁻¹ r`
    pub fn apply(&self, scale: f64, r: &Array<T>, z: &mut Array<T>) -> Result<()> {
        let Some(x) = self.run(r, z, None)? else { return Ok(()) };
        let (x, n, size, most) = (x.address(0), z.len() as i64, self.size.address(0), self.most.address(0));
        let (r, to, config) = (r.address(0), z.address(0), config_at_once(z.device(), z.len(), 4));
        let mut launch = z.device().launch(&self.kernels.widen);
        let (active, places) = (self.active(z.device()), self.order(Numbering::places));
        launch.arg(&x).arg(&places).arg(&n).arg(&size).arg(&scale).arg(&r).arg(&to).arg(&most).arg(&active);
        // SAFETY: arguments as in ends.cu, vectors of `n` entries
        unsafe { launch.launch(config) }
    }

    /// As [`Cycle::apply`], and returns `⟨r, z⟩`. `squared` is `‖r‖²` if known; within a step, the cycle is
    /// skipped if `r` is the residual and meets the threshold.
    pub fn apply_dot(
        &self,
        scale: f64,
        r: &Array<T>,
        z: &mut Array<T>,
        squared: Option<&Scalar<T>>,
    ) -> Result<Scalar<T>> {
        let Some(x) = self.run(r, z, squared)? else { return Ok(Scalar::constant(T::zero())) };
        let sums = Sums::<T, 1>::new(z.device())?;
        let (x, n, size, most) = (x.address(0), z.len() as i64, self.size.address(0), self.most.address(0));
        let (r, to, config) = (r.address(0), z.address(0), config_at_once(z.device(), z.len(), 4));
        let mut launch = z.device().launch(&self.kernels.widen_dot);
        let (active, places) = (self.active(z.device()), self.order(Numbering::places));
        launch.arg(&x).arg(&places).arg(&n).arg(&size).arg(&scale).arg(&r).arg(&to).arg(&most).arg(&active);
        launch.arg(&sums.raw);
        // SAFETY: arguments as in ends.cu, vectors of `n` entries
        unsafe { launch.launch(config) }?;
        let [rz] = sums.scalars();
        Ok(rz)
    }

    /// Bytes that a cycle reads, vectors not counted.
    pub fn bytes(&self) -> usize {
        let sweep = |level: &Level| level.a.product().bytes() + level.inverse.bytes();
        let level = |level: &Level| {
            let transfers = level.transfer.iter().flatten().map(|matrix| matrix.product().bytes());
            2 * level.weights.len() * sweep(level) + transfers.sum::<usize>()
        };
        let dense = self.dense.as_ref().map_or(0, |dense| dense.inverse.bytes());
        let Some((finest, below)) = self.levels.split_first() else { return dense };
        // each pass but the first begins with one more sweep
        let (passes, more) = below.first().map_or((1, 0), |next| (self.passes, sweep(next)));
        level(finest) + passes * (below.iter().map(level).sum::<usize>() + dense) + (passes - 1) * more
    }

    /// A permutation of the finest level's rows as passed to kernels; the identity if there is none.
    fn order(&self, which: fn(&Numbering) -> RawOrder) -> RawOrder {
        self.numbering.as_ref().map_or_else(RawOrder::default, which)
    }

    /// Address of the flag `goes_on`, if a step is being recorded; 0 otherwise.
    fn active(&self, device: &Device) -> u64 {
        if step::<T>(device).control == 0 { 0 } else { self.goes_on.address(0) }
    }

    /// Runs a cycle on `r` and returns its result; `None` if there are no rows.
    fn run(&self, r: &Array<T>, z: &Array<T>, squared: Option<&Scalar<T>>) -> Result<Option<&Array<f32>>> {
        assert!(r.len() == self.rows && z.len() == self.rows, "an entry for each row");
        if self.rows == 0 {
            return Ok(None);
        }
        self.narrow(r, squared)?;
        if self.passes == 1 || self.levels.len() < 2 {
            self.down_and_up(0)?;
            return Ok(Some(self.result(0)));
        }
        self.down(0)?;
        for pass in 0..self.passes {
            if pass > 0 {
                self.sweep(1, self.levels[1].weights[0], 1)?;
            }
            self.down_and_up(1)?;
        }
        self.up(0)?;
        Ok(Some(self.result(0)))
    }

    /// From a level down to the last and back up, without the level's first sweep.
    fn down_and_up(&self, first: usize) -> Result<()> {
        for at in first..self.levels.len() {
            self.down(at)?;
        }
        if let Some(dense) = &self.dense {
            self.multiply(dense)?;
        }
        for at in (first..self.levels.len()).rev() {
            self.up(at)?;
        }
        Ok(())
    }

    /// Writes `b` of the first level.
    fn narrow(&self, r: &Array<T>, squared: Option<&Scalar<T>>) -> Result<()> {
        let (device, n) = (r.device(), r.len() as i64);
        let (from, most, size) = (r.address(0), self.most.address(0), self.size.address(0));
        let config = config_at_once(device, r.len(), 4);
        let mut launch = device.launch(&self.kernels.largest);
        let control = step::<T>(device).control;
        launch.arg(&from).arg(&n).arg(&most).arg(&control);
        // SAFETY: arguments as in ends.cu, `r` has `n` entries; a solve's state begins with `active`
        unsafe { launch.launch(config) }?;
        let RawUpdate { y, next_d, next, next_weight, .. } = self.entry(0);
        let mut launch = device.launch(&self.kernels.narrow);
        let order = self.order(Numbering::order);
        launch.arg(&from).arg(&order).arg(&n).arg(&most).arg(&size);
        let ends = RawEnds {
            control,
            known: squared.is_some().into(),
            squared: squared.map_or(RawNumber::constant(T::zero()), |squared| squared.number().raw()),
            goes_on: self.goes_on.address(0),
        };
        launch.arg(&y).arg(&next_d).arg(&next_weight).arg(&next).arg(&ends);
        // SAFETY: as above; the outputs are as long as the first level has rows
        unsafe { launch.launch(config) }
    }

    /// Outputs for a level's right-hand side and first sweep.
    fn entry(&self, at: usize) -> RawUpdate {
        let Some(Level { inverse, weights, .. }) = self.levels.get(at) else {
            return RawUpdate { y: self.dense_work[0].address(0), weight: 1.0, ..RawUpdate::default() };
        };
        let Workspace { b, x, .. } = &self.work[at];
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

    /// The result of a level: of the `2 k − 1` sweeps that read a matrix, the last writes the second `x`.
    fn result(&self, at: usize) -> &Array<f32> {
        self.work.get(at).map_or(&self.dense_work[1], |work| &work.x[1])
    }

    /// `x[1 − of] ← x[of] + weight D⁻¹ (b − A x[of])`
    fn sweep(&self, at: usize, weight: f32, of: usize) -> Result<()> {
        let (Level { a, inverse, .. }, Workspace { b, x, .. }) = (&self.levels[at], &self.work[at]);
        let (from, y) = (x[of].address(0), x[1 - of].address(0));
        let (b, d) = (b.address(0), inverse.address(0));
        let active = self.active(x[of].device());
        a.queue(&x[of], active, RawUpdate { from, b, d, y, weight, ..RawUpdate::default() })
    }

    fn down(&self, at: usize) -> Result<()> {
        let (Level { a, weights, transfer, .. }, Workspace { b, x, t }) = (&self.levels[at], &self.work[at]);
        for (k, &weight) in weights[1..].iter().enumerate() {
            self.sweep(at, weight, k % 2)?;
        }
        let Some([_, restriction]) = transfer else { return Ok(()) };
        let x = &x[(weights.len() - 1) % 2];
        let (b, y) = (b.address(0), t.address(0));
        let active = self.active(t.device());
        a.queue(x, active, RawUpdate { b, y, weight: 1.0, ..RawUpdate::default() })?;
        restriction.queue(t, active, self.entry(at + 1))
    }

    fn multiply(&self, dense: &Dense) -> Result<()> {
        let (rows, stride) = (dense.rows as u32, row_stride(dense.rows) as u32);
        let [b, x] = [0, 1].map(|k| self.dense_work[k].address(0));
        let e = dense.inverse.address(0);
        let mut launch = dense.inverse.device().launch(&self.kernels.dense_product);
        launch.arg(&e).arg(&rows).arg(&stride).arg(&b).arg(&x);
        let config = LaunchConfig {
            grid_dim: (rows.div_ceil(DENSE_ROWS).max(1), 1, 1),
            block_dim: (32 * DENSE_ROWS, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: arguments as in coarse.cu; vectors are as long as a row of the matrix
        unsafe { launch.launch(config) }
    }

    fn up(&self, at: usize) -> Result<()> {
        let (Level { weights, transfer, .. }, Workspace { x, .. }) = (&self.levels[at], &self.work[at]);
        let first = weights.len() - 1;
        if let Some([prolongation, _]) = transfer {
            let x = x[first % 2].address(0);
            let update = RawUpdate { from: x, y: x, weight: 1.0, ..RawUpdate::default() };
            let below = self.result(at + 1);
            prolongation.queue(below, self.active(below.device()), update)?;
        }
        for (k, &weight) in weights.iter().rev().enumerate() {
            self.sweep(at, weight, (first + k) % 2)?;
        }
        Ok(())
    }
}
