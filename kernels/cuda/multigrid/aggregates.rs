//! Aggregates of nodes on a device, and modes on them.

use super::graph::{Graph, RawGraph, ends};
use super::products;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::{WARP, config};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::{Array, Device};

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "aggregates.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"aggregates.cu\"\n", include_str!("aggregates.cu")),
    constants: constants![],
    mirrors: &[mirror!("Graph" = RawGraph { offsets, columns, rows })],
};

/// The pattern of `T`, a row of at most one entry for each node: the aggregate that it belongs to. As on the host.
pub(super) fn aggregates(graph: &Graph, left_out: &Array<u8>) -> Result<Graph> {
    let (device, nodes, raw) = (graph.device(), graph.rows(), graph.raw());
    let numbers = || device.uninitialised::<u32>(nodes + 1);
    let (drawn, largest, marks) = (numbers()?, numbers()?, numbers()?);
    let [d, l, m] = [&drawn, &largest, &marks].map(|numbers| numbers.address(0));
    let (out, count) = (left_out.address(0), nodes as u32);
    let (lists, waiting) = ([numbers()?, numbers()?], device.zeros::<u32>(2)?);
    let ([asks, decides], waits) = (lists.each_ref().map(|list| list.address(0)), waiting.address(0));
    let find = device.function::<f64>(&SOURCE, "find_roots")?;
    let mut launch = device.launch(&find);
    launch.arg(&raw).arg(&out).arg(&d).arg(&l).arg(&asks).arg(&decides).arg(&waits).arg(&m);
    // SAFETY: arguments as in aggregates.cu; arrays have a number for each node
    unsafe { launch.together(config(nodes)) }?;
    let roots = ends(&marks)?;
    // what was largest is needed no more
    let (near, of_node) = (l, numbers()?);
    let (of, joined) = (of_node.address(0), numbers()?);
    let j = joined.address(0);
    queue!(device, f64, "join_roots", config(nodes), raw, d, m, out, near);
    queue!(device, f64, "join_most", config(nodes), raw, near, out, of, j);
    let t = Graph::of_lengths(joined, roots)?;
    let (offsets, columns) = (t.offsets(), t.columns.address(0));
    queue!(device, f64, "fill_joined", config(nodes), of, count, offsets, columns);
    Ok(t)
}

/// The pattern of `Tᵀ`; the numbers of `T`, columns that are orthonormal on each aggregate and span the modes there; and the modes
/// of the coarse unknowns.
pub(super) fn orthonormal(
    t: &Graph,
    [size, modes]: [usize; 2],
    values: &Array<f64>,
    dependent: f64,
) -> Result<(Graph, Array<f64>, Array<f64>)> {
    let device: &Device = t.device();
    let (members, entries) = products::transposed_pattern(t)?;
    let numbers = device.uninitialised(t.entries() * size * modes)?;
    let coarse = device.uninitialised(t.cols() * modes * modes)?;
    let (raw, of, from) = (members.raw(), entries.address(0), values.address(0));
    let (to, below) = (numbers.address(0), coarse.address(0));
    let (size, modes, config) = (size as u32, modes as u32, config(t.cols() * WARP));
    queue!(device, f64, "orthonormal", config, raw, of, size, modes, from, dependent, to, below);
    Ok((members, numbers, coarse))
}
