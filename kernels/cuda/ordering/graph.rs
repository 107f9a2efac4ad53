//! The pattern of a square matrix as a graph on a device, for which an ordering is computed.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::index;
use crate::cuda::device::module::{Mirror, mirror};
use crate::cuda::device::prelude::RawRowStarts;
use crate::cuda::device::{Array, Device};
use crate::cuda::matrix::device_csr::RowStarts;
use crate::cuda::matrix::pattern::Pattern;
use cudarc::driver::DeviceRepr;

/// Vertices and their neighbours (adjacency lists).
#[derive(Debug)]
pub struct Graph {
    pub(crate) rows: RowStarts,
    pub(crate) columns: Array<u32>,
    longest: u32,
}

/// [`Graph`] as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawGraph {
    rows: RawRowStarts,
    columns: u64,
    longest: u32,
}
// SAFETY: has the layout of `Graph` in graph.cu
unsafe impl DeviceRepr for RawGraph {}

/// Layout check of [`RawGraph`] against the kernels.
pub(crate) const MIRROR: Mirror = mirror!("Graph" = RawGraph { rows, columns, longest });

impl Graph {
    /// The graph of a square pattern with distinct columns in each row; rows of more than `longest` entries
    /// count as empty.
    pub fn new(device: &Device, pattern: Pattern<'_>, longest: usize) -> Result<Graph> {
        assert_eq!(pattern.rows(), pattern.cols(), "a square pattern");
        index("the number of rows", pattern.rows())?;
        Ok(Graph {
            rows: RowStarts::new(device, pattern.offsets())?,
            columns: device.upload(pattern.columns())?,
            longest: u32::try_from(longest).unwrap_or(u32::MAX),
        })
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.rows.count()
    }

    /// The device that stores the graph.
    pub fn device(&self) -> &Device {
        self.columns.device()
    }

    pub(crate) fn raw(&self) -> RawGraph {
        RawGraph { rows: self.rows.raw(), columns: self.columns.address(0), longest: self.longest }
    }
}
