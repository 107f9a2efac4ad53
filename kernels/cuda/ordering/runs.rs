//! Refinement of a partition into equally long runs by exchanging vertices, on a device; runs.cu describes
//! the algorithm. The runs are bitwise equal to those of `src/ordering/trades.rs` on the host, which defines
//! which vertices are exchanged.
//!
//! Cost of a round: five launches, for which the host does not wait; memory traffic of the adjacency lists of
//! the vertices with changed neighbours (in the first round, of all vertices), 12 bytes per vertex, and some
//! passes over the proposed moves.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::device::{Array, Device};
use crate::cuda::ordering::graph::{self, Graph};
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "runs.cu",
    text: concat!(
        include_str!("../matrix/sums.cu"),
        include_str!("graph.cu"),
        "#line 1 \"runs.cu\"\n",
        include_str!("runs.cu")
    ),
    constants: constants![],
    mirrors: &[
        graph::MIRROR,
        mirror!("Runs" = RawRuns { members, place, run_of, vertices, length }),
        mirror!("Moves" = RawMoves { counts, to, costs, who }),
        mirror!("Proposal" = u64 {}),
    ],
};

/// Bytes of shared memory per vertex of a run.
const SHARED: usize = 12;

/// Maximum length of a run.
pub fn longest(device: &Device) -> Result<usize> {
    // the kernels also use static shared memory
    Ok(device.shared_memory()?.saturating_sub(1024) / SHARED)
}

/// The partition: the members of each run, and the run and the position of each vertex.
#[derive(Debug)]
struct Runs {
    length: usize,
    members: Array<u32>,
    place: Array<u32>,
    run_of: Array<u32>,
}

/// Proposed moves, run by run.
#[derive(Debug)]
struct Moves {
    counts: Array<u32>,
    to: Array<u32>,
    costs: Array<u32>,
    who: Array<u32>,
}

/// [`Runs`] as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawRuns {
    members: u64,
    place: u64,
    run_of: u64,
    vertices: u32,
    length: u32,
}
// SAFETY: has the layout of `Runs` in runs.cu
unsafe impl DeviceRepr for RawRuns {}

/// [`Moves`] as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawMoves {
    counts: u64,
    to: u64,
    costs: u64,
    who: u64,
}
// SAFETY: has the layout of `Moves` in runs.cu
unsafe impl DeviceRepr for RawMoves {}

impl Runs {
    fn raw(&self) -> RawRuns {
        RawRuns {
            members: self.members.address(0),
            place: self.place.address(0),
            run_of: self.run_of.address(0),
            vertices: self.members.len() as u32,
            length: self.length as u32,
        }
    }

    /// Launch configuration with one block per run, and shared memory for its vertices.
    fn blocks(&self, shared: usize) -> LaunchConfig {
        let blocks = self.members.len().div_ceil(self.length).max(1) as u32;
        LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (THREADS, 1, 1),
            // rounded up, because the kernels declare the memory as an array of `u64`
            shared_mem_bytes: (self.length * shared).next_multiple_of(16) as u32,
        }
    }
}

/// Refines an ordering of the vertices of a graph: cuts `order` into runs of `length` vertices, exchanges
/// vertices between runs for at most `rounds` rounds, and sorts the vertices of each run by descending row
/// length. `length` is at most [`longest`].
pub fn refined(graph: &Graph, order: &Array<u32>, length: usize, rounds: u32) -> Result<Vec<u32>> {
    let (device, vertices) = (graph.device(), graph.vertices());
    assert_eq!(order.len(), vertices, "every vertex once");
    assert!((1..=longest(device)?).contains(&length), "runs that fit shared memory");
    if vertices == 0 {
        return Ok(vec![]);
    }
    let array = || device.zeros::<u32>(vertices);
    let runs = Runs { length: length.min(vertices), members: array()?, place: array()?, run_of: array()? };
    let home = array()?;
    let changed = device.zeros::<u16>(vertices)?;
    let start = device.function::<f32>(&SOURCE, "runs_start")?;
    let (raw, from, was, marks) = (runs.raw(), order.address(0), home.address(0), changed.address(0));
    let mut launch = device.launch(&start);
    launch.arg(&raw).arg(&from).arg(&was).arg(&marks);
    // SAFETY: arguments as in runs.cu; all arrays have an element for each vertex, and the order has each
    // vertex once
    unsafe { launch.launch(config(vertices)) }?;
    trade_vertices(graph, &runs, &changed, rounds)?;
    let result = array()?;
    let (finish, to) = (with_shared_memory(device, "runs_finish")?, result.address(0));
    let raw_graph = graph.raw();
    let mut launch = device.launch(&finish);
    launch.arg(&raw_graph).arg(&raw).arg(&from).arg(&was).arg(&to);
    // SAFETY: as above; there is shared memory for each vertex of a run
    unsafe { launch.launch(runs.blocks(SHARED)) }?;
    let mut line = vec![0; vertices];
    result.read(&mut line)?;
    Ok(line)
}

/// Queues the rounds of exchanges.
fn trade_vertices(graph: &Graph, runs: &Runs, changed: &Array<u16>, rounds: u32) -> Result<()> {
    let (device, vertices) = (graph.device(), graph.vertices());
    let array = || device.zeros::<u32>(vertices);
    let counts = device.zeros(vertices.div_ceil(runs.length))?;
    let moves = Moves { counts, to: array()?, costs: array()?, who: array()? };
    let (proposals, promising) = (device.zeros::<u64>(vertices)?, device.zeros::<u16>(vertices)?);
    let granted = device.zeros::<u32>(rounds as usize + 1)?;
    let [propose, mark, apart, grant] = ["runs_propose", "runs_mark_promising", "runs_apart", "runs_grant"]
        .map(|name| device.function::<f32>(&SOURCE, name));
    let (propose, mark, apart, grant) = (propose?, mark?, apart?, grant?);
    let sort = with_shared_memory(device, "runs_moves")?;
    let (raw_graph, raw, marks) = (graph.raw(), runs.raw(), changed.address(0));
    let (proposed, promising_at, done) = (proposals.address(0), promising.address(0), granted.address(0));
    let list = RawMoves {
        counts: moves.counts.address(0),
        to: moves.to.address(0),
        costs: moves.costs.address(0),
        who: moves.who.address(0),
    };
    for round in 1..=rounds {
        let mut launch = device.launch(&propose);
        launch.arg(&raw_graph).arg(&raw).arg(&marks).arg(&proposed);
        // SAFETY: arguments as in runs.cu; all arrays have an element for each vertex, and `counts` one for
        // each run
        unsafe { launch.launch(config(vertices)) }?;
        let mut launch = device.launch(&sort);
        launch.arg(&raw).arg(&proposed).arg(&list);
        // SAFETY: as above; there is shared memory for each vertex of a run
        unsafe { launch.launch(runs.blocks(SHARED)) }?;
        let mut launch = device.launch(&mark);
        launch.arg(&raw).arg(&list).arg(&promising_at).arg(&round);
        // SAFETY: as above
        unsafe { launch.launch(runs.blocks(0)) }?;
        let mut launch = device.launch(&apart);
        launch.arg(&raw_graph).arg(&raw).arg(&proposed).arg(&promising_at).arg(&round).arg(&list);
        // SAFETY: as above
        unsafe { launch.launch(runs.blocks(0)) }?;
        let mut launch = device.launch(&grant);
        launch.arg(&raw_graph).arg(&raw).arg(&list).arg(&marks).arg(&done).arg(&round);
        // SAFETY: as above; `granted` has an element for each round, counted from 1
        unsafe { launch.launch(runs.blocks(0)) }?;
    }
    Ok(())
}

/// Loads a kernel with dynamic shared memory for the vertices of a run.
fn with_shared_memory(device: &Device, name: &str) -> Result<CudaFunction> {
    let function = device.function::<f32>(&SOURCE, name)?;
    device.lift_shared_limit(&function)?;
    Ok(function)
}
