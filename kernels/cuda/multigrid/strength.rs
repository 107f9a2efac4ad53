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
pub(super) fn strength(a: &Blocks, theta: f64, dominant: f64) -> Result<(Option<Graph>, Array<u8>)> {
    let (device, nodes) = (a.values.device(), a.graph.rows());
    let (raw, values, size) = (a.graph.raw(), a.address(), (a.shape[0] * a.shape[1]) as u32);
    let (roots, strongest) = (device.uninitialised::<f64>(nodes)?, device.uninitialised::<f64>(nodes)?);
    let (left_out, weak) = (device.uninitialised::<u8>(nodes)?, Misfit::none(device)?);
    let (r, s) = (roots.address(0), strongest.address(0));
    let (lanes, [couple, count, fill]) = match a.graph.entries() >= LONG * nodes {
        true => (16, ["coupling_rows_16", "count_strong_16", "fill_strong_16"]),
        false => (4, ["coupling_rows_4", "count_strong_4", "fill_strong_4"]),
    };
    let shared = config(nodes * lanes);
    queue!(device, f64, "inverse_roots", config(nodes), raw, values, size, r);
    let (out, mark) = (left_out.address(0), weak.address());
    queue!(device, f64, couple, shared, raw, values, size, r, theta, dominant, s, out, mark);
    if !weak.is_set()? {
        return Ok((None, left_out));
    }
    let counts = device.uninitialised::<u32>(nodes + 1)?;
    let to = counts.address(0);
    queue!(device, f64, count, shared, raw, values, size, r, theta, s, to);
    let strong = Graph::of_lengths(counts, nodes)?;
    let (offsets, columns) = (strong.offsets(), strong.columns.address(0));
    queue!(device, f64, fill, shared, raw, values, size, r, theta, s, offsets, columns);
    Ok((Some(strong), left_out))
}
