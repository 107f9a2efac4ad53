//! Partitions a graph into small clusters, each a vertex and its neighbourhood, and builds the graph of the
//! clusters.
//!
//! ```text
//! draw a pseudo-random number for each vertex
//! a vertex whose number is larger than those of all neighbours becomes the seed of a cluster
//! repeat until all vertices have a cluster:
//!     each vertex without one joins the cluster to which most matrix entries connect it
//! ```
//!
//! In each round, all vertices use the clusters of the round before, so that the result does not depend on
//! the number of threads. A cluster has about as many vertices as a vertex has neighbours, or fewer if
//! requested.

use super::graph::{Coarse, Graph};
use crate::formats::pattern::{by_rows, cut, place_of};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{fill_by_rows, map_rows, over_rows};
use krysp_kernels::index::Offsets;
use rayon::prelude::*;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The label of a vertex without a cluster.
pub(super) const NONE: u32 = u32::MAX;

/// The vertices of each cluster.
pub(super) struct Clusters {
    count: usize,
    /// The cluster of each vertex; `count` for a vertex without neighbours, which has no cluster.
    of_vertex: Vec<u32>,
    starts: Offsets,
    /// The vertices cluster by cluster, then those without a cluster.
    members: Buffer<u32>,
}

impl Clusters {
    /// The vertices of a cluster.
    fn members(&self, cluster: usize) -> &[u32] {
        &self.members[self.starts.range(cluster)]
    }

    /// The vertices without neighbours, which have no cluster.
    fn alone(&self) -> &[u32] {
        self.members(self.count)
    }

    /// Returns the vertices of `clusters`, cluster by cluster, followed by the vertices without a cluster.
    pub(super) fn expand(&self, clusters: &[u32]) -> Vec<u32> {
        let lengths = clusters.iter().map(|&cluster| self.starts.range(cluster as usize).len());
        let starts = Offsets::from_lengths(lengths);
        let mut order = vec![0; self.of_vertex.len()];
        let (clustered, alone) = order.split_at_mut(starts.end());
        fill_by_rows(clusters.len(), clustered, &|at| starts.at(at), &|places, part: &mut [u32], first| {
            for place in places {
                let range = starts.range(place);
                part[range.start - first..range.end - first]
                    .copy_from_slice(self.members(clusters[place] as usize));
            }
        });
        alone.copy_from_slice(self.alone());
        order
    }
}

/// Clusters all vertices that have neighbours. A cluster has about `size` vertices, or fewer if its seed has
/// fewer neighbours.
pub(super) fn clusters<G: Graph>(graph: &G, size: usize) -> Clusters {
    let vertices = graph.vertices();
    // zero only for a vertex without neighbours
    let draws = map_rows(vertices, 4, &|v| {
        let v = v as u32;
        if graph.edges(v).next().is_some() { scrambled(v) | 1 } else { 0 }
    });
    let draw = |v: u32| (draws[v as usize], v);
    let share = share(graph, size);
    let met = |a: u32, b: u32| ((draws[a as usize] ^ draws[b as usize]) & 0xffff) <= share;
    let is_seed = |&v: &u32| {
        let beats = |other: u32| draw(other) < draw(v) || !met(v, other);
        draws[v as usize] != 0 && graph.edges(v).all(|(other, _)| beats(other))
    };
    let seeds: Vec<u32> = (0..vertices as u32).into_par_iter().filter(is_seed).collect();
    let labels: Vec<AtomicU32> = (0..vertices).into_par_iter().map(|_| AtomicU32::new(NONE)).collect();
    let (count, label) = (seeds.len(), |v: u32| labels[v as usize].load(Relaxed));
    over_rows(count, 4, (), &|clusters, ()| {
        clusters.for_each(|cluster| labels[seeds[cluster] as usize].store(cluster as u32, Relaxed));
    });
    let is_unassigned = |&v: &u32| draws[v as usize] != 0 && label(v) == NONE;
    let mut unassigned: Vec<u32> = (0..vertices as u32).into_par_iter().filter(is_unassigned).collect();
    let mut found = vec![0; unassigned.len()];
    while !unassigned.is_empty() {
        let found = &mut found[..unassigned.len()];
        over_rows(unassigned.len(), 16, &mut *found, &|range, found: &mut [u32]| {
            let mut tally = Tally::default();
            for (&v, found) in unassigned[range].iter().zip(found) {
                *found = strongest(graph, v, label, &mut tally);
            }
        });
        over_rows(unassigned.len(), 4, (), &|range, ()| {
            let joined = unassigned[range.clone()].iter().zip(&found[range]);
            joined.for_each(|(&v, &cluster)| labels[v as usize].store(cluster, Relaxed));
        });
        unassigned = unassigned.into_par_iter().filter(is_unassigned).collect();
    }
    let of_vertex = map_rows(vertices, 2, &|v| label(v as u32).min(count as u32));
    let (starts, entries) = by_rows(count + 1, vertices, &|v| (of_vertex[v], 0));
    let members = map_rows(vertices, 3, &|at| place_of(entries[at])).into();
    Clusters { count, of_vertex, starts, members }
}

/// Fraction of its neighbours with which a vertex is compared, in units of 2⁻¹⁶. With a fraction below one,
/// clusters are smaller than neighbourhoods; it is chosen so that about one in `size` vertices becomes a
/// seed. Whether two vertices are compared is decided from both of their pseudo-random numbers, and is
/// therefore the same for both ends of an edge.
pub(super) fn share<G: Graph>(graph: &G, size: usize) -> u32 {
    let others = size.saturating_sub(1).saturating_mul(graph.vertices()) as f64 / graph.ends().max(1) as f64;
    (others * 65536.0) as u32
}

/// Clusters the graph, then the graph of the clusters, and so on, until there are at most `most` clusters,
/// their number does not decrease, or no two of them are connected. Returns the number of clusters and the
/// cluster of each vertex, [`NONE`] for a vertex without one.
pub(super) fn aggregates<G: Graph>(graph: &G, most: usize) -> (usize, Vec<u32>) {
    let share = |count: usize| count.div_ceil(most.max(1));
    let first = clusters(graph, share(graph.vertices()));
    let none = |count: usize| move |of: u32| if of as usize == count { NONE } else { of };
    let (mut count, mut labels) =
        (first.count, map_rows(graph.vertices(), 2, &|v| none(first.count)(first.of_vertex[v])));
    let mut coarser = coarse(graph, &first);
    while count > most {
        let next = clusters(&coarser, share(count));
        if next.count == 0 || next.count == count {
            break;
        }
        let next_label =
            |label: u32| next.of_vertex.get(label as usize).map_or(NONE, |&of| none(next.count)(of));
        labels = map_rows(labels.len(), 2, &|v| next_label(labels[v]));
        (count, coarser) = (next.count, coarse(&coarser, &next));
    }
    (count, labels)
}

/// The label to whose vertices most matrix entries connect `vertex`; of several with equally many, the one
/// with the largest hash.
fn strongest<G: Graph>(graph: &G, vertex: u32, label: impl Fn(u32) -> u32, tally: &mut Tally) -> u32 {
    tally.clear();
    graph.look_up(vertex, label, |label, strength| {
        if label != NONE {
            tally.add(label, strength);
        }
    });
    let best = tally.entries().max_by_key(|&(label, sum)| (sum, scrambled(label)));
    best.map_or(NONE, |(label, _)| label)
}

/// Adds up values for each of up to 32 keys. Further keys are ignored.
#[derive(Default)]
pub(super) struct Tally {
    len: usize,
    entries: [(u32, u32); 32],
}

impl Tally {
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(super) fn add(&mut self, key: u32, amount: u32) {
        if let Some(entry) = self.entries[..self.len].iter_mut().find(|entry| entry.0 == key) {
            entry.1 += amount;
        } else if let Some(entry) = self.entries.get_mut(self.len) {
            *entry = (key, amount);
            self.len += 1;
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, u32)> {
        self.entries[..self.len].iter().copied()
    }
}

/// Number of clusters in a batch, whose edges are built by one task. Guess.
const CLUSTERS_IN_BATCH: usize = 256;

/// The part of the graph of clusters whose vertices are those of one batch.
struct Batch {
    degrees: Vec<usize>,
    /// Neighbouring clusters and strengths of the edges to them, cluster by cluster.
    edges: Vec<(u32, u32)>,
    weights: Vec<u32>,
}

/// The graph of the clusters.
pub(super) fn coarse<G: Graph>(graph: &G, clusters: &Clusters) -> Coarse {
    let build = |batch: usize| -> Batch {
        let mut sums = EdgeSums::default();
        let (mut degrees, mut edges, mut weights) = (vec![], vec![], vec![]);
        for cluster in batch * CLUSTERS_IN_BATCH..clusters.count.min((batch + 1) * CLUSTERS_IN_BATCH) {
            let members = clusters.members(cluster);
            let before = edges.len();
            for &v in members {
                graph.look_up(
                    v,
                    |other| clusters.of_vertex[other as usize],
                    |to, strength| {
                        if to as usize != cluster && to as usize != clusters.count {
                            sums.add(to, strength);
                        }
                    },
                );
            }
            sums.drain_into(&mut edges);
            degrees.push(edges.len() - before);
            weights.push(members.iter().map(|&v| graph.weight(v)).sum());
        }
        Batch { degrees, edges, weights }
    };
    let batches: Vec<Batch> =
        (0..clusters.count.div_ceil(CLUSTERS_IN_BATCH)).into_par_iter().map(build).collect();
    let offsets = Offsets::from_lengths(batches.iter().flat_map(|batch| &batch.degrees).copied());
    let lengths: Vec<usize> = batches.iter().map(|batch| batch.edges.len()).collect();
    let (mut neighbours, mut strengths) = (vec![0; offsets.end()], vec![0; offsets.end()]);
    let targets = cut(&mut neighbours, &lengths).into_par_iter().zip(cut(&mut strengths, &lengths));
    targets.zip(&batches).for_each(|((neighbours, strengths), batch)| {
        for ((neighbour, strength), edge) in neighbours.iter_mut().zip(strengths).zip(&batch.edges) {
            (*neighbour, *strength) = *edge;
        }
    });
    let weights = batches.into_iter().flat_map(|batch| batch.weights).collect();
    Coarse { offsets, neighbours, strengths, weights }
}

/// Sums of the strengths of the edges from one cluster to each neighbouring cluster, in a hash table that is
/// at most half full. `used` lists the occupied slots.
#[derive(Default)]
struct EdgeSums {
    slots: Vec<(u32, u32)>,
    used: Vec<u32>,
}

impl EdgeSums {
    #[inline]
    fn add(&mut self, end: u32, strength: u32) {
        if 2 * self.used.len() >= self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut at = end.wrapping_mul(0x9e37_79b9) as usize >> 8 & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.0 == end {
                slot.1 += strength;
                return;
            }
            if slot.0 == NONE {
                *slot = (end, strength);
                self.used.push(at as u32);
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Doubles the table. It starts small, because most clusters have few neighbours and a small table stays
    /// in the cache.
    #[cold]
    fn grow(&mut self) {
        let mut edges = vec![];
        self.drain_into(&mut edges);
        self.slots = vec![(NONE, 0); (2 * self.slots.len()).max(128)];
        edges.into_iter().for_each(|(end, strength)| self.add(end, strength));
    }

    /// Moves the edges out, in the order in which their neighbouring clusters were first added.
    fn drain_into(&mut self, edges: &mut Vec<(u32, u32)>) {
        edges
            .extend(self.used.drain(..).map(|at| std::mem::replace(&mut self.slots[at as usize], (NONE, 0))));
    }
}

/// A bijective hash of 32 bits (the finalizer of MurmurHash3); maps only zero to zero.
pub(crate) fn scrambled(bits: u32) -> u32 {
    let bits = (bits ^ bits >> 16).wrapping_mul(0x85eb_ca6b);
    let bits = (bits ^ bits >> 13).wrapping_mul(0xc2b2_ae35);
    bits ^ bits >> 16
}
