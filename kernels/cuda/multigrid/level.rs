//! Levels of a multigrid hierarchy on a device: their matrices, in the formats of the cycle.

use super::coarsening::Coarsening;
use super::graph::Blocks;
use super::numbers;
use crate::cuda::device::error::Result;
use crate::cuda::device::kept::at_first_use;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::{Array, Device};
use crate::cuda::formats::dia::{BATCH, Dia, NOWHERE};
use crate::cuda::formats::sliced::Sliced;
use crate::cuda::matrix::columns::{COLUMNS, RawColumns};
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction};
use crate::cuda::matrix::pattern::Shape;
use crate::cuda::matrix::product::{Layout, Product};
use crate::cuda::preconditioners::coarse::DENSE_ROWS;
use crate::cuda::tuning::SLOTS_IN_FLIGHT;
use crate::multigrid;
use cudarc::driver::{CudaFunction, DeviceRepr};
use std::sync::OnceLock;

/// Kernels of the levels.
pub(crate) const SOURCE: Source = Source {
    file: "cycle.cu",
    text: concat!(
        include_str!("../formats/sliced_rows.cu"),
        include_str!("../formats/dia_rows.cu"),
        include_str!("update.cu"),
        "#line 1 \"cycle.cu\"\n",
        include_str!("cycle.cu")
    ),
    constants: constants![SLOTS_IN_FLIGHT, BATCH, NOWHERE],
    mirrors: &[mirror!("Update" = RawUpdate { from, b, d, y, next_d, next, active, weight, next_weight })],
};

/// Kernels of the levels for cycles on several right-hand sides, whose vectors are packed row by row.
pub(crate) const MANY: Source = Source {
    file: "cycle_many.cu",
    text: concat!(
        include_str!("../formats/sliced_rows.cu"),
        include_str!("../formats/dia_rows.cu"),
        include_str!("../matrix/columns.cu"),
        include_str!("../matrix/packed.cu"),
        include_str!("../formats/sliced_packed.cu"),
        include_str!("update.cu"),
        "#line 1 \"cycle_many.cu\"\n",
        include_str!("cycle_many.cu")
    ),
    constants: constants![SLOTS_IN_FLIGHT, BATCH, NOWHERE, COLUMNS, DENSE_ROWS],
    mirrors: &[
        mirror!("Update" = RawUpdate { from, b, d, y, next_d, next, active, weight, next_weight }),
        mirror!("Columns" = RawColumns { x, y, count, width }),
    ],
};

/// Minimum average number of entries per row for sorting rows by length. Guess.
const SORTED_FROM: usize = 8;

/// Update of vectors by the result of a product, as passed to kernels.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct RawUpdate {
    pub(super) from: u64,
    pub(super) b: u64,
    pub(super) d: u64,
    pub(super) y: u64,
    pub(super) next_d: u64,
    pub(super) next: u64,
    pub(super) active: u64,
    pub(super) weight: f32,
    pub(super) next_weight: f32,
}
// SAFETY: has the layout of `Update` in update.cu
unsafe impl DeviceRepr for RawUpdate {}

/// A matrix of a level.
#[derive(Debug)]
pub struct Matrix {
    stored: Stored,
    update: CudaFunction,
    /// Name of the kernel `update`.
    name: &'static str,
    /// The kernel for several right-hand sides, loaded at first use.
    update_many: OnceLock<CudaFunction>,
}

#[derive(Debug)]
enum Stored {
    Sliced(Box<Sliced<f32>>),
    Dia(Box<Dia<f32>>),
}

impl Matrix {
    /// Stores a matrix with `cols` columns in slices (SELL-P).
    pub fn sliced(ordered: &DeviceCsr<f32>, cols: usize) -> Result<Matrix> {
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
        Matrix::of(sliced.device().clone(), Stored::Sliced(Box::new(sliced)), name)
    }

    /// Stores a matrix by diagonals; `None` if an entry is on none of `diagonals`.
    pub fn by_diagonals(ordered: &DeviceCsr<f32>, cols: usize, diagonals: &[i64]) -> Result<Option<Matrix>> {
        Dia::of(ordered, cols, diagonals)?.map(Matrix::of_diagonals).transpose()
    }

    fn of_diagonals(dia: Dia<f32>) -> Result<Matrix> {
        let name = if dia.rows_of_lane() == 1 { "update_dia_1" } else { "update_dia_4" };
        Matrix::of(dia.device().clone(), Stored::Dia(Box::new(dia)), name)
    }

    fn of(device: Device, stored: Stored, name: &'static str) -> Result<Matrix> {
        let update = device.function::<f32>(&SOURCE, name)?;
        Ok(Matrix { stored, update, name, update_many: OnceLock::new() })
    }

    /// Stores a block matrix times a factor: by `diagonals` if they contain all its entries, otherwise in
    /// slices.
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
            // the pattern was checked in `of_blocks`
            Stored::Dia(matrix) => {
                matrix.take_scaled((&graph.rows, &graph.columns), &blocks.values, factor).map(drop)
            }
        }
    }

    /// Replaces the values, for a matrix with the same pattern.
    fn fill(&mut self, ordered: &DeviceCsr<f32>) -> Result<()> {
        assert_eq!(ordered.nnz(), self.product().shape().entries, "a number for each entry");
        match &self.stored {
            Stored::Sliced(matrix) => matrix.copy_values(ordered, Direction::ToSlots),
            Stored::Dia(matrix) => matrix.copy_values(ordered, Direction::ToSlots),
        }
    }

    /// The product of the matrix with a vector, without an update.
    pub fn product(&self) -> &dyn Product<f32> {
        match &self.stored {
            Stored::Sliced(matrix) => &**matrix,
            Stored::Dia(matrix) => &**matrix,
        }
    }

    /// Name of the storage format.
    pub fn name(&self) -> &'static str {
        match &self.stored {
            Stored::Sliced(_) => "SELL-P",
            Stored::Dia(_) => "DIA",
        }
    }

    /// Queues the product with packed vectors, `width` values per row, and the update of vectors by its
    /// result.
    pub(super) fn queue(&self, x: &Array<f32>, width: usize, update: RawUpdate) -> Result<()> {
        assert!(x.len() >= self.product().shape().cols * width, "places for each column");
        match &self.stored {
            Stored::Sliced(matrix) => self.queue_of(&**matrix, x, width, update),
            Stored::Dia(matrix) => self.queue_of(&**matrix, x, width, update),
        }
    }

    fn queue_of(&self, matrix: &impl Layout, x: &Array<f32>, width: usize, update: RawUpdate) -> Result<()> {
        let (raw, from, places) = (matrix.raw(), x.address(0), width as u32);
        let function = match width {
            1 => &self.update,
            _ => self.many(x.device())?,
        };
        let mut launch = x.device().launch(function);
        launch.arg(&raw).arg(&from).arg(&update);
        if width > 1 {
            launch.arg(&places);
        }
        // SAFETY: arguments as in cycle.cu and cycle_many.cu; vectors have `width` numbers for each column and row of the
        // matrix
        unsafe { launch.launch(config(matrix.threads() * width)) }
    }

    fn many(&self, device: &Device) -> Result<&CudaFunction> {
        at_first_use(&self.update_many, || device.function::<f32>(&MANY, &format!("{}_many", self.name)))
    }
}

/// A level that is smoothed.
pub type Level = multigrid::Level<Matrix, Array<f32>, Transfer>;

/// The levels of a hierarchy on a device.
pub type Hierarchy = multigrid::Hierarchy<Matrix, Array<f32>, Transfer, Dense>;

/// Transfer to the next level and back.
#[derive(Debug)]
pub struct Transfer {
    /// Prolongation `P`, times the overcorrection factor.
    pub p: Matrix,
    /// Restriction, the transpose of the prolongator.
    pub r: Matrix,
    /// Patterns and aggregates, for a refresh.
    pub coarsening: Coarsening,
}

impl Transfer {
    /// Bytes that a cycle reads.
    pub fn bytes(&self) -> usize {
        self.p.product().bytes() + self.r.product().bytes()
    }
}

/// The last level, inverted: rows are [`row_stride`](crate::cpu::preconditioners::inverse::row_stride) elements apart.
#[derive(Debug)]
pub struct Dense {
    /// Number of rows.
    pub rows: usize,
    /// Elements of the inverse.
    pub inverse: Array<f32>,
}
