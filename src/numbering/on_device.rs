//! A clustered numbering whose passes over the whole pattern run on a GPU.
//!
//! ```text
//! the pattern crosses the bus
//! on the GPU: clusters of vertices and those around them, and their graph
//! on the host: the clusters laid out in a line
//! on the GPU: their vertices in that order, cut into runs; vertices change places between neighbouring runs
//! ```
//!
//! Every vertex decides by what held before its round, there as here: the numbering is that of the host.

use super::Numbering;
use super::aggregate::share;
use super::clustered::{CLUSTERS_IN_RUN, ROUNDS, clustered, line};
use super::graph::{Coarse, Graph, Pattern};
use crate::{Csr, Cuda, Real, Result};
use krysp_kernels::cuda::{self, Clusters, Device, Edges, numbering::runs};
use krysp_kernels::index::{Columns, Offsets};

impl Numbering {
    /// [`Numbering::clustered`], and the very same numbering, found on a GPU but for the coarse graph's part: in a
    /// fraction of the time where the matrix is large.
    ///
    /// Graphs that a GPU does not take are numbered on the host: runs of more vertices than shared memory has room
    /// for (some 19,000 on an H100), clusters that lead to more than 256 others.
    ///
    /// ```no_run
    /// # fn main() -> krysp::Result<()> {
    /// # let csr = krysp::Csr::<f64>::from_triplets(1, 1, &[(0, 0, 1.0)])?;
    /// use krysp::formats::OnDevice;
    /// use krysp::{Cuda, Halo, Numbering};
    ///
    /// let gpu = Cuda::new(0)?;
    /// let numbering = Numbering::clustered_on(&gpu, &csr, Halo::rows_per_block(&gpu, &csr))?;
    /// let a = Halo::on_renumbered(&gpu, &csr, &numbering)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn clustered_on<T: Real>(gpu: &Cuda, a: &Csr<T>, rows_per_block: usize) -> Result<Numbering> {
        Numbering::in_runs(a, rows_per_block, |offsets, columns, run| {
            match on_device(gpu.device(), offsets, columns, run)? {
                Some(order) => Ok(order),
                None => Ok(clustered(&Pattern::new(offsets, columns), run)),
            }
        })
    }
}

/// The vertices in an order whose runs are compact; none for a graph that kernels do not take.
fn on_device(device: &Device, offsets: &Offsets, columns: &Columns, run: usize) -> Result<Option<Vec<u32>>> {
    let pattern = Pattern::new(offsets, columns);
    let run = run.max(1);
    let length = run.min(pattern.vertices());
    if length == 0 || length > runs::longest(device)? {
        return Ok(None);
    }
    let graph = cuda::Graph::new(device, cuda::Pattern::new(offsets, columns), pattern.longest())?;
    let Some(clusters) = Clusters::new(&graph, share(&pattern, run / CLUSTERS_IN_RUN))? else {
        return Ok(None);
    };
    let Some(edges) = clusters.edges(&graph)? else { return Ok(None) };
    let Edges { offsets, ends: neighbours, strengths, weights } = edges;
    let line = line(&Coarse { offsets, neighbours, strengths, weights }, run as f64);
    let order = clusters.expand(&line)?;
    Ok(Some(runs::refined(&graph, &order, length, ROUNDS)?))
}
