//! Clustered ordering whose passes over the whole pattern run on a GPU.
//!
//! ```text
//! copy the pattern to the GPU
//! on the GPU:  gather vertices into small clusters, and build the graph of the clusters
//! on the host: order the clusters by recursive bisection
//! on the GPU:  list the vertices in that order, cut the list into runs, and swap vertices between runs
//! ```
//!
//! On the GPU as on the host, each round uses only the results of the round before, so that both compute the
//! same ordering.

use super::aggregate::share;
use super::clustered::{CLUSTERS_IN_RUN, ROUNDS, clustered, line};
use super::graph::{Coarse, Graph, Pattern};
use crate::device::Cuda;
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use crate::permutation::Permutation;
use krysp_kernels::cuda::{self, Clusters, Device, Edges, ordering::runs};
use krysp_kernels::index::{Columns, Offsets};

impl Permutation {
    /// Computes [`Permutation::clustered`] on a GPU, except for ordering the small graph of clusters. The
    /// ordering is the same; for a large matrix it takes a fraction of the time.
    ///
    /// The host computes the whole ordering if a run has more vertices than fit in shared memory (about
    /// 19,000 on an H100), or if a cluster has more than 256 neighbouring clusters.
    ///
    /// ```no_run
    /// # fn main() -> krysp::Result<()> {
    /// # let csr = krysp::Csr::<f64>::from_triplets(1, 1, &[(0, 0, 1.0)])?;
    /// use krysp::formats::OnDevice;
    /// use krysp::{Cuda, Halo, Permutation};
    ///
    /// let gpu = Cuda::new(0)?;
    /// let permutation = Permutation::clustered_on(&gpu, &csr, Halo::rows_per_block(&gpu, &csr))?;
    /// let a = Halo::on_reordered(&gpu, &csr, &permutation)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn clustered_on<T: Real>(gpu: &Cuda, a: &Csr<T>, rows_per_block: usize) -> Result<Permutation> {
        Permutation::in_runs(a, rows_per_block, |offsets, columns, run_length| {
            match on_device(gpu.device(), offsets, columns, run_length)? {
                Some(order) => Ok(order),
                None => clustered(&Pattern::new(offsets, columns), run_length),
            }
        })
    }
}

/// The vertices in a clustered order, or `None` if the graph exceeds the limits of the kernels.
fn on_device(
    device: &Device,
    offsets: &Offsets,
    columns: &Columns,
    run_length: usize,
) -> Result<Option<Vec<u32>>> {
    let pattern = Pattern::new(offsets, columns);
    let run_length = run_length.max(1);
    let longest_run = run_length.min(pattern.vertices());
    if longest_run == 0 || longest_run > runs::longest(device)? {
        return Ok(None);
    }
    let graph = cuda::Graph::new(device, cuda::Pattern::new(offsets, columns), pattern.longest())?;
    let Some(clusters) = Clusters::new(&graph, share(&pattern, run_length / CLUSTERS_IN_RUN))? else {
        return Ok(None);
    };
    let Some(edges) = clusters.edges(&graph)? else { return Ok(None) };
    let Edges { offsets, ends: neighbours, strengths, weights } = edges;
    let line = line(&Coarse { offsets, neighbours, strengths, weights }, run_length as f64)?;
    let order = clusters.expand(&line)?;
    Ok(Some(runs::refined(&graph, &order, longest_run, ROUNDS)?))
}
