//! Clusters of a vertex and its neighbours, and the graph of clusters, found on a device. clusters.cu says how. They are bit for
//! bit those of `numbering/aggregate.rs` on the host, which says what they are.
//!
//! Budget, of a mesh with 15 entries a row: the pattern five times, and about 60 bytes a vertex; a wait for the number of
//! clusters, one for each round in which vertices join them, and one for the number of edges.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::{Array, Device};
use crate::cuda::matrix::ordered::Misfit;
use crate::cuda::matrix::scan::scan;
use crate::cuda::numbering::graph::{self, Graph};
use crate::index::Offsets;
use cudarc::driver::CudaFunction;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "clusters.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"clusters.cu\"\n", include_str!("clusters.cu")),
    constants: constants![],
    mirrors: &[graph::MIRROR],
};

/// Which vertices make up each cluster.
#[derive(Debug)]
pub struct Clusters {
    count: usize,
    /// The cluster of each vertex, all ones where it has none.
    labels: Array<u32>,
    /// Where the members of each cluster begin, and the end.
    starts: Array<u32>,
    /// Cluster by cluster, and at last the vertices without any.
    members: Array<u32>,
}

/// The graph of clusters, on the host.
#[derive(Debug)]
pub struct Edges {
    /// Where the edges of each cluster begin.
    pub offsets: Offsets,
    /// The clusters that they lead to.
    pub ends: Vec<u32>,
    /// The edges of the finer graph that lead there.
    pub strengths: Vec<u32>,
    /// The number of each cluster's members.
    pub weights: Vec<u32>,
}

fn function(device: &Device, name: &str) -> Result<CudaFunction> {
    device.function::<f32>(&SOURCE, name)
}

/// The last of some numbers, when it is known.
fn last(numbers: &Array<u32>) -> Result<usize> {
    let (device, end) = (numbers.device(), numbers.len());
    let mut last = [0];
    device.inner.stream.memcpy_dtoh(&numbers.slice.slice(end - 1..end), &mut last)?;
    device.synchronize()?;
    Ok(last[0] as usize)
}

impl Clusters {
    /// Clusters of all vertices that have neighbours. A seed beats a `share` of its neighbours, in 2⁻¹⁶. None for a graph of
    /// clusters that kernels do not take: no edges, or a cluster of more than 16,384 vertices.
    pub fn new(graph: &Graph, share: u32) -> Result<Option<Clusters>> {
        let (device, vertices) = (graph.device(), graph.vertices());
        let (draws, ranks) = (device.zeros::<u32>(vertices)?, device.zeros::<u32>(vertices + 1)?);
        let (raw, drawn, ranked) = (graph.raw(), draws.address(0), ranks.address(0));
        let [draw, seed] = ["cluster_draws", "cluster_seeds"].map(|name| function(device, name));
        let (draw, seed) = (draw?, seed?);
        let mut launch = device.launch(&draw);
        launch.arg(&raw).arg(&drawn);
        // SAFETY: arguments as in clusters.cu; there is a draw for each vertex
        unsafe { launch.launch(config(vertices)) }?;
        let mut launch = device.launch(&seed);
        launch.arg(&raw).arg(&drawn).arg(&share).arg(&ranked);
        // SAFETY: as above, and a mark for each vertex
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

    /// The graph of the clusters; none where kernels do not take it: more than 256 edges of a cluster, or 2³² in all.
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
            // SAFETY: arguments as in clusters.cu; there is a place for each cluster, and ends and strengths are null or as
            // many as the last place says
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

    /// The vertices in the order of their clusters, of each of which `line` has one; those without any last.
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
        // SAFETY: as above; each cluster is in the line once, so that there is a place for each vertex
        unsafe { launch.launch(config(self.count * WARP)) }?;
        Ok(order)
    }
}

/// Labels of all vertices with neighbours: those of seeds, and what the others join.
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
    // SAFETY: arguments as in clusters.cu; there is a label for each vertex, and a rank and one more
    unsafe { launch.launch(config(vertices)) }?;
    loop {
        let mut launch = device.launch(&join);
        launch.arg(&raw).arg(&drawn).arg(&labelled).arg(&joins);
        // SAFETY: as above; there is a draw and a find for each vertex
        unsafe { launch.launch(config(vertices)) }?;
        let waiting = Misfit::none(device)?;
        let mark = waiting.address();
        let mut launch = device.launch(&take);
        launch.arg(&count).arg(&drawn).arg(&joins).arg(&labelled).arg(&mark);
        // SAFETY: as above
        unsafe { launch.launch(config(vertices)) }?;
        // of those that wait, one that no neighbour beats would be a seed: in each round some join
        if !waiting.is_set()? {
            return Ok(labels);
        }
    }
}

/// Where the members of each cluster begin, these in order, and whether there were too many of one.
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
    // SAFETY: arguments as in clusters.cu; labels lie below the number of clusters, or are none
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
