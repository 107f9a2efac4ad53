//! Aggregation of nodes on a device, and the tentative prolongator.

use super::graph::{Graph, RawGraph, ends};
use super::products;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::{WARP, config, config_concurrent};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::{Array, Device};
use crate::cuda::matrix::device_csr::Misfit;
use crate::multigrid::DEPENDENT;
use cudarc::driver::DeviceRepr;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "aggregates.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"aggregates.cu\"\n", include_str!("aggregates.cu")),
    constants: constants![],
    mirrors: &[
        mirror!("Graph" = RawGraph { offsets, columns, rows }),
        mirror!("Nodes" = RawNodes { list, count, all }),
    ],
};

/// Number of rounds that are queued before the host first checks for undecided nodes, and between later
/// checks. Most graphs need about ten rounds, and a round without undecided nodes is short.
const ROUNDS: [usize; 2] = [10, 4];

/// Number of nodes from which rounds work on lists of undecided nodes, rebuilt every [`ROUNDS_OF_LIST`] rounds.
/// For smaller graphs, building the lists takes as long as a round. The threshold itself is a guess.
const LISTED: usize = 1 << 16;
/// See [`LISTED`].
const ROUNDS_OF_LIST: usize = 2;

/// `Nodes` as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawNodes {
    list: u64,
    count: u64,
    all: u32,
}
// SAFETY: has the layout of `Nodes` in aggregates.cu
unsafe impl DeviceRepr for RawNodes {}

/// The nodes that a round visits.
struct Open {
    all: u32,
    /// The list and its length; `None` while all nodes are visited.
    now: Option<[Array<u32>; 2]>,
}

impl Open {
    fn raw(&self) -> RawNodes {
        let [list, count] = self.now.as_ref().map_or([0; 2], |now| now.each_ref().map(|a| a.address(0)));
        RawNodes { list, count, all: self.all }
    }

    /// Removes decided nodes from the list: those whose entry of `numbers` is ROOT or zero (aggregates.cu).
    fn shorten(&mut self, numbers: &Array<u32>) -> Result<()> {
        let (device, nodes) = (numbers.device(), self.all as usize);
        let kept = [device.uninitialized(nodes)?, device.zeros(1)?];
        let grid = config_concurrent(device, nodes, 1);
        queue!(device, f64, "keep_open", grid, self.raw(), numbers, kept[0], kept[1]);
        self.now = Some(kept);
        Ok(())
    }
}

/// The pattern of the tentative prolongator `T`: each node's row has at most one entry, its aggregate. Equal
/// to that of the host.
pub(super) fn aggregates(graph: &Graph, left_out: &Array<u8>) -> Result<Graph> {
    let (device, nodes) = (graph.device(), graph.rows());
    let numbers = || device.uninitialized::<u32>(nodes + 1);
    let (drawn, largest, count) = (numbers()?, numbers()?, nodes as u32);
    queue!(device, f64, "draw", config(nodes), left_out, count, drawn, largest);
    let [mut searches, mut decides] = [(); 2].map(|()| Open { all: count, now: None });
    let (mut first, mut last) = (0, ROUNDS[0]);
    loop {
        let open = Misfit::none(device)?;
        for round in first..last {
            if nodes >= LISTED && round > 0 && round % ROUNDS_OF_LIST == 0 {
                searches.shorten(&largest)?;
                decides.shorten(&drawn)?;
            }
            // the last round reports whether undecided nodes remain
            let mark = if round + 1 == last { open.address() } else { 0 };
            let grid = config_concurrent(device, nodes, 1);
            queue!(device, f64, "find_largest", grid, graph, searches.raw(), drawn, largest);
            queue!(device, f64, "decide", grid, graph, decides.raw(), largest, drawn, mark);
        }
        if !open.is_set()? {
            break;
        }
        (first, last) = (last, last + ROUNDS[1]);
    }
    let marks = numbers()?;
    queue!(device, f64, "mark_roots", config(nodes), drawn, count, marks);
    let roots = ends(&marks)?;
    // `largest` is no longer needed: reuse it
    let (near, of_node, joined) = (largest, numbers()?, numbers()?);
    queue!(device, f64, "join_roots", config(nodes), graph, drawn, marks, left_out, near);
    queue!(device, f64, "join_most", config(nodes), graph, near, left_out, of_node, joined);
    let t = Graph::of_lengths(joined, roots)?;
    queue!(device, f64, "fill_joined", config(nodes), of_node, count, t.offsets(), t.columns);
    Ok(t)
}

/// Orthonormalizes the near-null-space vectors on each aggregate; a vector is set to zero there if at most
/// the fraction [`DEPENDENT`] of its norm remains. Returns the pattern of `Tᵀ`, the values of `T`, and the
/// near-null-space vectors of the coarse level.
pub(super) fn orthonormal(
    t: &Graph,
    [size, modes]: [usize; 2],
    values: &Array<f64>,
) -> Result<(Graph, Array<f64>, Array<f64>)> {
    let device: &Device = t.device();
    let (members, entries) = products::transposed_pattern(t)?;
    let to = device.uninitialized(t.entries() * size * modes)?;
    let below = device.uninitialized(t.cols() * modes * modes)?;
    let (size, modes, cut) = (size as u32, modes as u32, config(t.cols() * WARP));
    queue!(device, f64, "orthonormal", cut, members, entries, size, modes, values, DEPENDENT, to, below);
    Ok((members, to, below))
}
