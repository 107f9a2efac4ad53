//! Permutation of the finest level that orders nodes aggregate by aggregate. Neighbours are then close to
//! each other in memory, so products find more of the vector in the cache.

use super::graph::{Blocks, Graph, RawGraph};
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::{Array, Device};
use crate::cuda::matrix::scan::scan;
use cudarc::driver::DeviceRepr;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "permutation.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"permutation.cu\"\n", include_str!("permutation.cu")),
    constants: constants![],
    mirrors: &[mirror!("Graph" = RawGraph { offsets, columns, rows })],
};

/// Lanes per row if rows have more than one entry on average. Guess.
const LANES: usize = 8;

/// A permutation as passed to kernels.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct RawOrder {
    pub(super) nodes: u64,
    pub(super) size: u32,
}
// SAFETY: has the layout of `Order` in order.cu
unsafe impl DeviceRepr for RawOrder {}

/// A permutation of nodes and its inverse.
#[derive(Debug)]
pub struct Permutation {
    /// Scalar rows of a node.
    size: usize,
    /// Old number of each new node, and new number of each old node.
    order: Array<u32>,
    places: Array<u32>,
}

impl Permutation {
    /// Orders nodes of `size` rows by aggregate: `t` has a row for every node, `members` is the pattern of
    /// `Tᵀ`.
    pub(super) fn new(size: usize, t: &Graph, members: &Graph) -> Result<Permutation> {
        let device = t.device();
        let (order, places) = (device.uninitialized(t.rows())?, device.uninitialized(t.rows())?);
        queue!(device, f64, "number_nodes", config(t.rows()), t, members.columns, order, places);
        Ok(Permutation { size, order, places })
    }

    /// The matrix with rows and columns permuted; columns within a row are not sorted.
    pub fn permuted(&self, a: &Blocks) -> Result<Blocks> {
        let (graph, values) = self.rows(&a.graph, Some(a), true)?;
        Ok(Blocks { graph, shape: a.shape, values })
    }

    /// New number of each node.
    pub fn places_of_nodes(&self) -> Result<Vec<u32>> {
        let mut places = vec![0; self.places.len()];
        self.places.read(&mut places)?;
        Ok(places)
    }

    /// The rows of `graph` in the new order, with the values of `blocks`, if it is not `None`. If `of_nodes`,
    /// columns are nodes and are permuted, too.
    pub(super) fn rows(
        &self,
        graph: &Graph,
        blocks: Option<&Blocks>,
        of_nodes: bool,
    ) -> Result<(Graph, Array<f64>)> {
        let device: &Device = graph.device();
        let (rows, of) = (graph.rows(), &self.order);
        let lengths = device.uninitialized::<u32>(rows + 1)?;
        queue!(device, f64, "numbered_lengths", config(rows), graph, of, lengths);
        scan(&lengths)?;
        let columns = device.uninitialized::<u32>(graph.entries())?;
        let values = device.uninitialized::<f64>(blocks.map_or(0, |blocks| blocks.values.len()))?;
        let (from, size) = blocks.map_or((0, 0), |a| (a.address(), (a.shape[0] * a.shape[1]) as u32));
        let names = if of_nodes { self.places.address(0) } else { 0 };
        let to = if blocks.is_some() { values.address(0) } else { 0 };
        let lanes = if graph.entries() > rows { LANES } else { 1 };
        let (cut, lanes) = (config(rows * lanes), lanes as u32);
        queue!(device, f64, "numbered_rows", cut, graph, from, size, of, names, lengths, columns, to, lanes);
        Ok((Graph::new(lengths, columns, graph.cols), values))
    }

    /// The old row of each new row.
    pub(super) fn order(&self) -> RawOrder {
        RawOrder { nodes: self.order.address(0), size: self.size as u32 }
    }

    /// The new row of each old row.
    pub(super) fn places(&self) -> RawOrder {
        RawOrder { nodes: self.places.address(0), size: self.size as u32 }
    }
}
