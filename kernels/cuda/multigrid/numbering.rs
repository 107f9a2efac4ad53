//! Nodes of the finest level numbered aggregate by aggregate: neighbours then lie near together, and products find in the cache
//! what they read.

use super::graph::{Blocks, Graph, RawGraph};
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::{Array, Device};
use crate::cuda::matrix::ordered::RowStarts;
use crate::cuda::matrix::scan::scan;
use cudarc::driver::DeviceRepr;
use std::sync::Arc;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "numbering.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"numbering.cu\"\n", include_str!("numbering.cu")),
    constants: constants![],
    mirrors: &[mirror!("Graph" = RawGraph { offsets, columns, rows })],
};

/// Lanes of a row.
const LANES: usize = 8;

/// What kernels are told of an order.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct RawOrder {
    pub(super) nodes: u64,
    pub(super) size: u32,
}
// SAFETY: as `Order` of order.cu
unsafe impl DeviceRepr for RawOrder {}

/// Another order of nodes.
#[derive(Debug)]
pub struct Numbering {
    /// Rows of a node.
    size: usize,
    /// The node at each place, and the place of each node.
    order: Array<u32>,
    places: Array<u32>,
}

impl Numbering {
    /// Of nodes of `size` rows, by aggregates of some levels, the finest first: each has a row of `T` for every node, and `Tᵀ`.
    pub fn new(size: usize, levels: &[[&Graph; 2]]) -> Result<Option<Numbering>> {
        let mut found: Option<Numbering> = None;
        for &[t, members] in levels.iter().rev() {
            let device = t.device();
            let listed = match &found {
                Some(above) => Some(numbered_rows(members, None, Some(&above.order), None)?.0),
                None => None,
            };
            let (order, places) = (device.uninitialised(t.rows())?, device.uninitialised(t.rows())?);
            let (raw, from) = (t.raw(), listed.as_ref().unwrap_or(members).columns.address(0));
            let (to, of_node) = (order.address(0), places.address(0));
            queue!(device, f64, "number_nodes", config(t.rows()), raw, from, to, of_node);
            found = Some(Numbering { size, order, places });
        }
        Ok(found)
    }

    /// A matrix, its restriction or its prolongation in this order: of rows, of columns, or both.
    pub fn numbered(&self, a: &Blocks, rows: bool, columns: bool) -> Result<Blocks> {
        let (order, places) = (rows.then_some(&self.order), columns.then_some(&self.places));
        let (graph, values) = numbered_rows(&a.graph, Some(a), order, places)?;
        Ok(Blocks { graph, shape: a.shape, values })
    }

    /// Where a vector in this order takes its rows from.
    pub(super) fn order(&self) -> RawOrder {
        RawOrder { nodes: self.order.address(0), size: self.size as u32 }
    }

    /// Where a vector in this order has the rows of others.
    pub(super) fn places(&self) -> RawOrder {
        RawOrder { nodes: self.places.address(0), size: self.size as u32 }
    }
}

/// Rows in an order, their columns by other names, with the numbers of blocks if there are such.
fn numbered_rows(
    graph: &Graph,
    blocks: Option<&Blocks>,
    order: Option<&Array<u32>>,
    names: Option<&Array<u32>>,
) -> Result<(Graph, Array<f64>)> {
    let device: &Device = graph.device();
    let (rows, raw) = (graph.rows(), graph.raw());
    let starts = match order {
        Some(order) => {
            let lengths = device.uninitialised::<u32>(rows + 1)?;
            let (of, to) = (order.address(0), lengths.address(0));
            queue!(device, f64, "numbered_lengths", config(rows), raw, of, to);
            scan(&lengths)?;
            Arc::new(RowStarts::Short(lengths))
        }
        None => graph.rows.clone(),
    };
    let columns = device.uninitialised::<u32>(graph.entries())?;
    let values = device.uninitialised::<f64>(blocks.map_or(0, |blocks| blocks.values.len()))?;
    let [of, by] = [order, names].map(|numbers| numbers.map_or(0, |numbers| numbers.address(0)));
    let (from, size) = blocks.map_or((0, 0), |a| (a.address(), (a.shape[0] * a.shape[1]) as u32));
    let (offsets, to) = (starts.address(), columns.address(0));
    let numbers = if blocks.is_some() { values.address(0) } else { 0 };
    let config = config(rows * LANES);
    queue!(device, f64, "numbered_rows", config, raw, from, size, of, by, offsets, to, numbers);
    Ok((Graph { rows: starts, columns: Arc::new(columns), cols: graph.cols, room: 0 }, values))
}
