//! Strength of connection on a device.

use super::graph::{Blocks, Graph, RawGraph};
use crate::cuda::device::Array;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::matrix::ordered::Misfit;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "strength.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"strength.cu\"\n", include_str!("strength.cu")),
    constants: constants![],
    mirrors: &[mirror!("Graph" = RawGraph { offsets, columns, rows })],
};

/// Rows of so many blocks are shared by sixteen lanes, shorter ones by four.
const LONG: usize = 10;

/// Where connections are strong, none where all are; and nodes that are left out. As on the host, bit by bit.
///
/// In place of a weak connection the pattern has the node itself, which is its own neighbour: entries stay where those of the
/// matrix are, and nothing is counted.
pub(super) fn strength(a: &Blocks, theta: f64, dominant: f64) -> Result<(Option<Graph>, Array<u8>)> {
    let (device, nodes) = (a.values.device(), a.graph.rows());
    let (raw, values, size) = (a.graph.raw(), a.address(), (a.shape[0] * a.shape[1]) as u32);
    let (roots, strongest) = (device.uninitialised::<f64>(nodes)?, device.uninitialised::<f64>(nodes)?);
    let (left_out, weak) = (device.uninitialised::<u8>(nodes)?, Misfit::none(device)?);
    let (r, s) = (roots.address(0), strongest.address(0));
    let (lanes, [couple, strong]) = match a.graph.entries() >= LONG * nodes {
        true => (16, ["coupling_rows_16", "strong_16"]),
        false => (4, ["coupling_rows_4", "strong_4"]),
    };
    let shared = config(nodes * lanes);
    queue!(device, f64, "inverse_roots", config(nodes), raw, values, size, r);
    let (out, mark) = (left_out.address(0), weak.address());
    queue!(device, f64, couple, shared, raw, values, size, r, theta, dominant, s, out, mark);
    if !weak.is_set()? {
        return Ok((None, left_out));
    }
    let columns = device.uninitialised(a.graph.entries())?;
    let to = columns.address(0);
    queue!(device, f64, strong, shared, raw, values, size, r, theta, s, to);
    Ok((Some(a.graph.with_columns(columns)), left_out))
}

/// What `strength` returns, of a pattern that has the strong connections alone.
pub fn spread(a: &Graph, strong: &Graph) -> Result<Graph> {
    let columns = a.device().uninitialised(a.entries())?;
    let (raw, from, to) = (a.raw(), strong.raw(), columns.address(0));
    queue!(a.device(), f64, "spread_strong", config(a.rows()), raw, from, to);
    Ok(a.with_columns(columns))
}
