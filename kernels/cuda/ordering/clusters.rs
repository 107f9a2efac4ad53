//! Clusters of vertices and the graph of clusters, computed on a device; clusters.cu describes the algorithm.
//! The result is bitwise equal to that of `ordering/aggregate.rs` on the host, which defines it.
//!
//! Memory traffic for a mesh with 15 entries per row: the pattern five times, and about 60 bytes per vertex.
//! The host waits for the device to read the number of clusters, after each round in which vertices join
//! clusters, and to read the number of edges.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::{Array, Device};
use crate::cuda::matrix::device_csr::Misfit;
use crate::cuda::matrix::scan::scan;
use crate::cuda::ordering::graph::{self, Graph};
use crate::index::Offsets;
use cudarc::driver::CudaFunction;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "clusters.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"clusters.cu\"\n", include_str!("clusters.cu")),
    constants: constants![],
    mirrors: &[graph::MIRROR],
};

/// Partition of the vertices into clusters.
#[derive(Debug)]
pub struct Clusters {
    count: usize,
    /// Cluster of each vertex; all bits set if it has none.
    labels: Array<u32>,
    /// Start of each cluster's members, and the end.
    starts: Array<u32>,
    /// Vertices cluster by cluster, followed by those without a cluster.
    members: Array<u32>,
}

/// The graph of clusters, in host memory.
#[derive(Debug)]
pub struct Edges {
    /// Start of each cluster's edges.
    pub offsets: Offsets,
    /// Cluster at the other end of each edge.
    pub ends: Vec<u32>,
    /// Strength of each edge: the number of edges of the finer graph between the two clusters.
    pub strengths: Vec<u32>,
    /// Number of members of each cluster.
    pub weights: Vec<u32>,
}

fn function(device: &Device, name: &str) -> Result<CudaFunction> {
    device.function::<f32>(&SOURCE, name)
}

/// Reads the last element, which waits for all work queued before.
fn last(numbers: &Array<u32>) -> Result<usize> {
    let (device, end) = (numbers.device(), numbers.len());
    let mut last = [0];
    device.inner.stream.memcpy_dtoh(&numbers.slice.slice(end - 1..end), &mut last)?;
    device.synchronize()?;
    Ok(last[0] as usize)
}

impl Clusters {
    /// Computes clusters of all vertices that have neighbours. A seed is a vertex with a larger pseudo-random
    /// number (`draws`) than the neighbours that it is compared with, a pseudo-random `share` (in units of
    /// 2⁻¹⁶) of all its neighbours. `None` if there are no edges, or a cluster has more than 16,384 vertices,
    /// which the kernels do not support.
    pub fn new(graph: &Graph, share: u32) -> Result<Option<Clusters>> {
        let (device, vertices) = (graph.device(), graph.vertices());
        let (draws, ranks) = (device.zeros::<u32>(vertices)?, device.zeros::<u32>(vertices + 1)?);
        let (raw, drawn, ranked) = (graph.raw(), draws.address(0), ranks.address(0));
        let [draw, seed] = ["cluster_draws", "cluster_seeds"].map(|name| function(device, name));
        let (draw, seed) = (draw?, seed?);
        let mut launch = device.launch(&draw);
        launch.arg(&raw).arg(&drawn);
        // SAFETY: arguments as in clusters.cu; there is a pseudo-random number for each vertex
        unsafe { launch.launch(config(vertices)) }?;
        let mut launch = device.launch(&seed);
        launch.arg(&raw).arg(&drawn).arg(&share).arg(&ranked);
        // SAFETY: as above; there is a mark for each vertex
        unsafe { launch.launch(config(vertices)) }?;
        scan(&ranks)?;
        let count = last(&ranks)?;
        if count == 0 {
            return Ok(None);
        }
        let labels = joined(graph, &draws, &ranks)?;
        let (starts, members, fits) = sorted(&labels, count)?;
        Ok(fits.then_some(Clusters { count, labels, starts, members }))
    }

    /// Computes the graph of the clusters. `None` if a cluster has more than 256 neighbouring clusters or the
    /// pattern has 2³² entries or more, which the kernels do not support.
    pub fn edges(&self, graph: &Graph) -> Result<Option<Edges>> {
        let device = graph.device();
        assert_eq!(graph.vertices(), self.labels.len(), "the graph that clusters were made of");
        if u32::try_from(graph.columns.len()).is_err() {
            return Ok(None);
        }
        let (find, misfit) = (function(device, "cluster_edges")?, Misfit::none(device)?);
        let places = device.zeros::<u32>(self.count + 1)?;
        let find_edges = |ends: u64, strengths: u64| {
            let (raw, count, mark) = (graph.raw(), self.count as u32, misfit.address());
            let (labels, starts) = (self.labels.address(0), self.starts.address(0));
            let (members, places) = (self.members.address(0), places.address(0));
            let mut launch = device.launch(&find);
            launch.arg(&raw).arg(&count).arg(&labels).arg(&starts).arg(&members).arg(&places);
            launch.arg(&ends).arg(&strengths).arg(&mark);
            // SAFETY: arguments as in clusters.cu; there is a place for each cluster, and `ends` and
            // `strengths` are null or have as many elements as the last place says
            unsafe { launch.launch(config(self.count * WARP)) }
        };
        find_edges(0, 0)?;
        if misfit.is_set()? {
            return Ok(None);
        }
        scan(&places)?;
        let total = last(&places)?;
        let (ends, strengths) = (device.zeros::<u32>(total)?, device.zeros::<u32>(total)?);
        find_edges(ends.address(0), strengths.address(0))?;
        let [mut offsets, mut starts] = [(); 2].map(|()| vec![0; self.count + 1]);
        let [mut to, mut how_much] = [(); 2].map(|()| vec![0; total]);
        places.read(&mut offsets)?;
        self.starts.read(&mut starts)?;
        ends.read(&mut to)?;
        strengths.read(&mut how_much)?;
        let degree = |cluster: usize| (offsets[cluster + 1] - offsets[cluster]) as usize;
        Ok(Some(Edges {
            offsets: Offsets::of_rows(self.count, &degree),
            ends: to,
            strengths: how_much,
            weights: starts.windows(2).map(|pair| pair[1] - pair[0]).collect(),
        }))
    }

    /// Returns the vertices in the order of their clusters, where `line` is an ordering of the clusters.
    /// Vertices without a cluster come last.
    pub fn expand(&self, line: &[u32]) -> Result<Array<u32>> {
        let mut seen = vec![false; self.count];
        let is_new = |&cluster: &u32| !std::mem::replace(&mut seen[cluster as usize], true);
        assert!(line.len() == self.count && line.iter().all(is_new), "every cluster once");
        let (device, vertices) = (self.labels.device(), self.labels.len() as u32);
        let (line, places) = (device.upload(line)?, device.zeros::<u32>(self.count + 1)?);
        let order = device.zeros::<u32>(self.labels.len())?;
        let (count, clusters, lengths) = (self.count as u32, line.address(0), places.address(0));
        let (starts, members, to) = (self.starts.address(0), self.members.address(0), order.address(0));
        let [measure, expand] = ["cluster_lengths", "cluster_expand"].map(|name| function(device, name));
        let (measure, expand) = (measure?, expand?);
        let mut launch = device.launch(&measure);
        launch.arg(&count).arg(&clusters).arg(&starts).arg(&lengths);
        // SAFETY: arguments as in clusters.cu; there is a length for each cluster of the line
        unsafe { launch.launch(config(self.count)) }?;
        scan(&places)?;
        let mut launch = device.launch(&expand);
        launch.arg(&vertices).arg(&count).arg(&clusters).arg(&lengths).arg(&starts).arg(&members).arg(&to);
        // SAFETY: as above; each cluster is in the line once, so there is a place for each vertex
        unsafe { launch.launch(config(self.count * WARP)) }?;
        Ok(order)
    }
}

/// Labels all vertices with neighbours: first the seeds, then the vertices that join them.
fn joined(graph: &Graph, draws: &Array<u32>, ranks: &Array<u32>) -> Result<Array<u32>> {
    let (device, vertices) = (graph.device(), graph.vertices());
    let (labels, found) = (device.zeros::<u32>(vertices)?, device.zeros::<u32>(vertices)?);
    let (raw, count, drawn, ranked) = (graph.raw(), vertices as u32, draws.address(0), ranks.address(0));
    let (labelled, joins) = (labels.address(0), found.address(0));
    let [label, join, take] =
        ["cluster_labels", "cluster_join", "cluster_take"].map(|name| function(device, name));
    let (label, join, take) = (label?, join?, take?);
    let mut launch = device.launch(&label);
    launch.arg(&ranked).arg(&count).arg(&labelled);
    // SAFETY: arguments as in clusters.cu; there is a label for each vertex, and one rank more than vertices
    unsafe { launch.launch(config(vertices)) }?;
    loop {
        let mut launch = device.launch(&join);
        launch.arg(&raw).arg(&drawn).arg(&labelled).arg(&joins);
        // SAFETY: as above; `draws` and `found` have an element for each vertex
        unsafe { launch.launch(config(vertices)) }?;
        let waiting = Misfit::none(device)?;
        let mark = waiting.address();
        let mut launch = device.launch(&take);
        launch.arg(&count).arg(&drawn).arg(&joins).arg(&labelled).arg(&mark);
        // SAFETY: as above
        unsafe { launch.launch(config(vertices)) }?;
        // the loop terminates: if no vertex joined in a round, all neighbours of the vertices without a label
        // would have none either; the one with the largest pseudo-random number among these vertices would
        // then have been a seed
        if !waiting.is_set()? {
            return Ok(labels);
        }
    }
}

/// Start of each cluster's members, the members in ascending order, and whether all clusters have at most as
/// many members as the kernels support.
fn sorted(labels: &Array<u32>, clusters: usize) -> Result<(Array<u32>, Array<u32>, bool)> {
    let (device, vertices) = (labels.device(), labels.len());
    let (starts, alone) = (device.zeros::<u32>(clusters + 1)?, device.zeros::<u32>(vertices + 1)?);
    let (slots, unsorted) = (device.zeros::<u32>(vertices)?, device.zeros::<u32>(vertices)?);
    let (members, misfit) = (device.zeros::<u32>(vertices)?, Misfit::none(device)?);
    let (count, number, labelled) = (vertices as u32, clusters as u32, labels.address(0));
    let (begins, lonely, taken) = (starts.address(0), alone.address(0), slots.address(0));
    let (mixed, to, mark) = (unsorted.address(0), members.address(0), misfit.address());
    let [measure, gather, sort] =
        ["cluster_sizes", "cluster_members", "cluster_sort"].map(|name| function(device, name));
    let (measure, gather, sort) = (measure?, gather?, sort?);
    let mut launch = device.launch(&measure);
    launch.arg(&count).arg(&labelled).arg(&begins).arg(&taken).arg(&lonely);
    // SAFETY: arguments as in clusters.cu; labels are below the number of clusters, or NONE
    unsafe { launch.launch(config(vertices)) }?;
    scan(&starts)?;
    scan(&alone)?;
    let mut launch = device.launch(&gather);
    launch.arg(&count).arg(&number).arg(&labelled).arg(&begins).arg(&taken).arg(&lonely).arg(&mixed).arg(&to);
    // SAFETY: as above; a cluster has as many places as members took slots
    unsafe { launch.launch(config(vertices)) }?;
    let mut launch = device.launch(&sort);
    launch.arg(&number).arg(&begins).arg(&mixed).arg(&to).arg(&mark);
    // SAFETY: as above
    unsafe { launch.launch(config(clusters * WARP)) }?;
    let fits = !misfit.is_set()?;
    Ok((starts, members, fits))
}
