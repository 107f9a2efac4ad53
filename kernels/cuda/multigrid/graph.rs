//! Sparse matrices of blocks on a device, which the setup computes with.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::{Array, Device};
use crate::cuda::matrix::ordered::RowStarts;
use crate::cuda::matrix::scan::scan;
use cudarc::driver::{DeviceRepr, LaunchConfig};
use std::sync::Arc;

/// Threads of a block whose threads have a row each, see short.cu.
pub(super) const SHORT_THREADS: usize = 128;
/// Columns of such a row, at most: more would leave room for fewer threads.
pub(super) const SHORT: usize = 16;

/// A launch of a thread for each of so many short rows.
pub(super) fn short_rows(rows: usize) -> LaunchConfig {
    let blocks = rows.div_ceil(SHORT_THREADS).max(1) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (SHORT_THREADS as u32, 1, 1), shared_mem_bytes: 0 }
}

/// Where blocks stand: rows of ascending columns.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(super) rows: Arc<RowStarts>,
    pub(super) columns: Arc<Array<u32>>,
    pub(super) cols: usize,
    /// Columns that kernels have room for in its rows, if it is a product.
    pub(super) room: usize,
}

/// A pattern as kernels see it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawGraph {
    pub(super) offsets: u64,
    pub(super) columns: u64,
    pub(super) rows: u32,
}
// SAFETY: as `Graph` of graph.cu
unsafe impl DeviceRepr for RawGraph {}

/// Rows and columns of a block as kernels see them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawShape {
    pub(super) rows: u32,
    pub(super) columns: u32,
}
// SAFETY: as `Shape` of graph.cu
unsafe impl DeviceRepr for RawShape {}

impl From<[usize; 2]> for RawShape {
    fn from([rows, columns]: [usize; 2]) -> RawShape {
        RawShape { rows: rows as u32, columns: columns as u32 }
    }
}

impl Graph {
    /// A copy of a pattern: rows begin at `offsets`.
    pub fn upload(device: &Device, offsets: &[u32], columns: &[u32], cols: usize) -> Result<Graph> {
        Ok(Graph::new(device.upload(offsets)?, device.upload(columns)?, cols))
    }

    pub(super) fn new(offsets: Array<u32>, columns: Array<u32>, cols: usize) -> Graph {
        Graph { rows: Arc::new(RowStarts::Short(offsets)), columns: Arc::new(columns), cols, room: 0 }
    }

    /// Rows as long as `lengths` says, with a number more for the end; columns are to be filled in.
    pub(super) fn of_lengths(lengths: Array<u32>, cols: usize) -> Result<Graph> {
        let entries = ends(&lengths)?;
        let columns = lengths.device().uninitialised(entries)?;
        Ok(Graph::new(lengths, columns, cols))
    }

    /// Rows as long as these, with other columns.
    pub(super) fn with_columns(&self, columns: Array<u32>) -> Graph {
        Graph { rows: self.rows.clone(), columns: Arc::new(columns), cols: self.cols, room: 0 }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows.count()
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The number of blocks.
    pub fn entries(&self) -> usize {
        self.columns.len()
    }

    /// Where rows begin and which columns they have, when they are known.
    pub fn read(&self) -> Result<(Vec<u32>, Vec<u32>)> {
        let (mut offsets, mut columns) = (vec![0; self.rows() + 1], vec![0; self.entries()]);
        match &*self.rows {
            RowStarts::Short(starts) => starts.read(&mut offsets)?,
            RowStarts::Long(_) => return Err(too_many(self.entries())),
        }
        self.columns.read(&mut columns)?;
        Ok((offsets, columns))
    }

    pub(super) fn device(&self) -> &Device {
        self.columns.device()
    }

    pub(super) fn offsets(&self) -> u64 {
        self.rows.address()
    }

    pub(super) fn raw(&self) -> RawGraph {
        RawGraph { offsets: self.offsets(), columns: self.columns.address(0), rows: self.rows() as u32 }
    }
}

/// Makes lengths starts, and returns their sum.
pub(super) fn ends(lengths: &Array<u32>) -> Result<usize> {
    scan(lengths)?;
    let [last] = lengths.read_last()?;
    Ok(last as usize)
}

/// Lengths of rows that are counted, and a mark that one is too long. Both are read at once: the host waits a single time.
pub(super) struct Counts {
    lengths: Array<u32>,
    /// Behind the lengths, and the place of their sum.
    mark: usize,
}

impl Counts {
    pub(super) fn new(device: &Device, rows: usize) -> Result<Counts> {
        let mut lengths = device.uninitialised(rows + 2)?;
        lengths.with_part(rows + 1..rows + 2, Array::clear)?;
        Ok(Counts { lengths, mark: rows + 1 })
    }

    pub(super) fn address(&self) -> u64 {
        self.lengths.address(0)
    }

    pub(super) fn mark(&self) -> u64 {
        self.lengths.address(self.mark)
    }

    /// Whether the mark was set.
    pub(super) fn is_marked(&self) -> Result<bool> {
        let [mark] = self.lengths.read_last()?;
        Ok(mark != 0)
    }

    /// Rows as long as was counted, with columns to be filled in; none if the mark was set.
    pub(super) fn graph(mut self, cols: usize) -> Result<Option<Graph>> {
        let offsets = self.mark;
        self.lengths.with_part(0..offsets, |lengths| scan(lengths))?;
        let [entries, mark] = self.lengths.read_last()?;
        if mark != 0 {
            return Ok(None);
        }
        let columns = self.lengths.device().uninitialised(entries as usize)?;
        self.lengths.shorten(offsets);
        Ok(Some(Graph::new(self.lengths, columns, cols)))
    }
}

/// What is said of matrices that 32-bit offsets do not reach the end of.
pub(super) fn too_many(got: usize) -> Error {
    Error::TooLarge { what: "the number of entries of a level", got, limit: u32::MAX as usize }
}

/// A sparse matrix of blocks: where they stand, rows and columns of each, and their numbers, block by block and row by row.
#[derive(Debug)]
pub struct Blocks {
    /// Where they stand.
    pub graph: Graph,
    /// Rows and columns of a block.
    pub shape: [usize; 2],
    /// Their numbers.
    pub values: Array<f64>,
}

impl Blocks {
    /// The rows of its blocks.
    pub fn rows(&self) -> usize {
        self.graph.rows() * self.shape[0]
    }

    pub(super) fn address(&self) -> u64 {
        self.values.address(0)
    }
}
