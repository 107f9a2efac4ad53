//! Block sparse matrices on a device, in the form that the multigrid setup uses.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::{Array, Device};
use crate::cuda::matrix::device_csr::RowStarts;
use crate::cuda::matrix::scan::scan;
use cudarc::driver::{DeviceRepr, LaunchConfig};
use std::sync::Arc;

/// Threads of a block in kernels that process one row per thread (short.cu). Guess.
pub(super) const SHORT_THREADS: usize = 128;
/// Maximum number of columns of such a row; more shared memory per row would mean fewer resident threads. Guess.
pub(super) const SHORT: usize = 16;

/// Launch configuration for one thread per short row.
pub(super) fn short_rows(rows: usize) -> LaunchConfig {
    let blocks = rows.div_ceil(SHORT_THREADS).max(1) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (SHORT_THREADS as u32, 1, 1), shared_mem_bytes: 0 }
}

/// Sparsity pattern of blocks: CSR with ascending columns in each row.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(super) rows: Arc<RowStarts>,
    pub(super) columns: Arc<Array<u32>>,
    pub(super) cols: usize,
    /// If the pattern is that of a matrix-matrix product: maximum number of columns per row of the kernels
    /// that computed it. 0 for other patterns.
    pub(super) capacity: usize,
}

/// A pattern as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawGraph {
    pub(super) offsets: u64,
    pub(super) columns: u64,
    pub(super) rows: u32,
}
// SAFETY: has the layout of `Graph` in graph.cu
unsafe impl DeviceRepr for RawGraph {}

/// Rows and columns of a block, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawShape {
    pub(super) rows: u32,
    pub(super) columns: u32,
}
// SAFETY: has the layout of `Shape` in graph.cu
unsafe impl DeviceRepr for RawShape {}

impl From<[usize; 2]> for RawShape {
    fn from([rows, columns]: [usize; 2]) -> RawShape {
        RawShape { rows: rows as u32, columns: columns as u32 }
    }
}

impl Graph {
    /// Uploads a pattern in CSR form; `offsets` has one entry more than there are rows.
    pub fn upload(device: &Device, offsets: &[u32], columns: &[u32], cols: usize) -> Result<Graph> {
        Ok(Graph::new(device.upload(offsets)?, device.upload(columns)?, cols))
    }

    pub(super) fn new(offsets: Array<u32>, columns: Array<u32>, cols: usize) -> Graph {
        Graph { rows: Arc::new(RowStarts::Short(offsets)), columns: Arc::new(columns), cols, capacity: 0 }
    }

    /// A pattern with the given row lengths (one element more, for the end); the caller fills in the columns.
    pub(super) fn of_lengths(lengths: Array<u32>, cols: usize) -> Result<Graph> {
        let entries = ends(&lengths)?;
        let columns = lengths.device().uninitialized(entries)?;
        Ok(Graph::new(lengths, columns, cols))
    }

    /// A pattern with the same row lengths and other columns.
    pub(super) fn with_columns(&self, columns: Array<u32>) -> Graph {
        Graph { rows: self.rows.clone(), columns: Arc::new(columns), cols: self.cols, capacity: 0 }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows.count()
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of blocks.
    pub fn entries(&self) -> usize {
        self.columns.len()
    }

    /// Copies row offsets and columns to the host; waits until they are computed.
    pub fn read(&self) -> Result<(Vec<u32>, Vec<u32>)> {
        let (mut offsets, mut columns) = (vec![0; self.rows() + 1], vec![0; self.entries()]);
        self.short_starts()?.read(&mut offsets)?;
        self.columns.read(&mut columns)?;
        Ok((offsets, columns))
    }

    /// The row offsets.
    pub(super) fn short_starts(&self) -> Result<&Array<u32>> {
        match &*self.rows {
            RowStarts::Short(starts) => Ok(starts),
            RowStarts::Long(_) => Err(too_many(self.entries())),
        }
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

/// Replaces lengths by row offsets (exclusive scan), and returns their sum.
pub(super) fn ends(lengths: &Array<u32>) -> Result<usize> {
    scan(lengths)?;
    let [last] = lengths.read_last()?;
    Ok(last as usize)
}

/// Row lengths that a kernel counts, and a flag that it sets if a row is too long. The host reads both with
/// one transfer, so it waits once.
pub(super) struct Counts {
    lengths: Array<u32>,
    /// Position of the flag: after the lengths and their sum.
    mark: usize,
}

impl Counts {
    pub(super) fn new(device: &Device, rows: usize) -> Result<Counts> {
        let mut lengths = device.uninitialized(rows + 2)?;
        lengths.with_part(rows + 1..rows + 2, Array::clear)?;
        Ok(Counts { lengths, mark: rows + 1 })
    }

    pub(super) fn address(&self) -> u64 {
        self.lengths.address(0)
    }

    pub(super) fn mark(&self) -> u64 {
        self.lengths.address(self.mark)
    }

    /// Returns whether the flag is set.
    pub(super) fn is_marked(&self) -> Result<bool> {
        let [mark] = self.lengths.read_last()?;
        Ok(mark != 0)
    }

    /// A pattern with the counted row lengths, whose columns the caller fills in; `None` if the flag is set.
    pub(super) fn graph(mut self, cols: usize) -> Result<Option<Graph>> {
        let offsets = self.mark;
        self.lengths.with_part(0..offsets, |lengths| scan(lengths))?;
        let [entries, mark] = self.lengths.read_last()?;
        if mark != 0 {
            return Ok(None);
        }
        let columns = self.lengths.device().uninitialized(entries as usize)?;
        self.lengths.shorten(offsets);
        Ok(Some(Graph::new(self.lengths, columns, cols)))
    }
}

/// The error for a level with more entries than 32-bit offsets can address.
pub(super) fn too_many(got: usize) -> Error {
    Error::TooLarge { what: "the number of entries of a level", got, limit: u32::MAX as usize }
}

/// A block sparse matrix (BSR): pattern, shape of a block, and values, block by block and row-major in each.
#[derive(Debug)]
pub struct Blocks {
    /// Sparsity pattern.
    pub graph: Graph,
    /// Rows and columns of a block.
    pub shape: [usize; 2],
    /// Values.
    pub values: Array<f64>,
}

impl Blocks {
    /// Number of scalar rows.
    pub fn rows(&self) -> usize {
        self.graph.rows() * self.shape[0]
    }

    pub(super) fn address(&self) -> u64 {
        self.values.address(0)
    }
}
