//! Clusters of a vertex and those around it, and the graph of the clusters.
//!
//! ```text
//! seeds: vertices that draw more than all their neighbours
//! until all have a cluster: join the cluster that most of the neighbours' entries lead to
//! ```
//!
//! Every vertex decides by what held before its round: the result is the same for every number of threads. A cluster has
//! about as many vertices as one has neighbours.

use super::graph::{Coarse, Graph};
use crate::formats::pattern::{by_rows, cut, fill_by_rows, place_of};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
use krysp_kernels::index::Offsets;
use rayon::prelude::*;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// No cluster, or none yet.
pub(super) const NONE: u32 = u32::MAX;

/// Which vertices make up each cluster.
pub(super) struct Clusters {
    count: usize,
    /// `count` for vertices without neighbours, which have no cluster.
    of_vertex: Vec<u32>,
    starts: Offsets,
    /// Cluster by cluster, and at last the vertices without any.
    members: Buffer<u32>,
}

impl Clusters {
    /// The vertices of a cluster.
    fn members(&self, cluster: usize) -> &[u32] {
        &self.members[self.starts.range(cluster)]
    }

    /// The vertices that have no neighbours, and so no cluster.
    fn alone(&self) -> &[u32] {
        self.members(self.count)
    }

    /// The vertices in the order of their clusters, those without any last.
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

/// Clusters of all vertices that have neighbours, of about `size` vertices, or fewer where there are fewer neighbours.
pub(super) fn clusters<G: Graph>(graph: &G, size: usize) -> Clusters {
    let vertices = graph.vertices();
    // never zero for a vertex with neighbours
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
    let waits = |&v: &u32| draws[v as usize] != 0 && label(v) == NONE;
    let mut waiting: Vec<u32> = (0..vertices as u32).into_par_iter().filter(waits).collect();
    let mut found = vec![0; waiting.len()];
    while !waiting.is_empty() {
        let found = &mut found[..waiting.len()];
        over_rows(waiting.len(), 16, &mut *found, &|range, found: &mut [u32]| {
            let mut tally = Tally::default();
            for (&v, found) in waiting[range].iter().zip(found) {
                *found = strongest(graph, v, label, &mut tally);
            }
        });
        over_rows(waiting.len(), 4, (), &|range, ()| {
            let joined = waiting[range.clone()].iter().zip(&found[range]);
            joined.for_each(|(&v, &cluster)| labels[v as usize].store(cluster, Relaxed));
        });
        waiting = waiting.into_par_iter().filter(waits).collect();
    }
    let of_vertex = map_rows(vertices, 2, &|v| label(v as u32).min(count as u32));
    let (starts, entries) = by_rows(count + 1, vertices, &|v| (of_vertex[v], 0));
    let members = map_rows(vertices, 3, &|at| place_of(entries[at])).into();
    Clusters { count, of_vertex, starts, members }
}

/// The share of its neighbours that a seed beats, in 2⁻¹⁶, to be one in about `size`: the same for both ends of an edge.
pub(super) fn share<G: Graph>(graph: &G, size: usize) -> u32 {
    let others = size.saturating_sub(1).saturating_mul(graph.vertices()) as f64 / graph.ends().max(1) as f64;
    (others * 65536.0) as u32
}

/// The cluster of each vertex, [`NONE`] where it has none, in clusters of clusters until there are at most `most` of them or
/// no fewer can be made; and their number.
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

/// The label that most of a vertex's entries lead to, among equals the least scrambled.
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

/// Sums for a few keys; beyond that, later keys are left out.
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

/// Clusters that one task joins the edges of.
const PIECE: usize = 256;

/// A piece of a graph of clusters: degrees, edges, weights.
type Piece = (Vec<usize>, Vec<(u32, u32)>, Vec<u32>);

/// The graph of the clusters.
pub(super) fn coarse<G: Graph>(graph: &G, clusters: &Clusters) -> Coarse {
    let join = |piece: usize| -> Piece {
        let mut joined = Joined::default();
        let (mut degrees, mut edges, mut weights) = (vec![], vec![], vec![]);
        for cluster in piece * PIECE..clusters.count.min((piece + 1) * PIECE) {
            let members = clusters.members(cluster);
            let before = edges.len();
            for &v in members {
                graph.look_up(
                    v,
                    |other| clusters.of_vertex[other as usize],
                    |to, strength| {
                        if to as usize != cluster && to as usize != clusters.count {
                            joined.add(to, strength);
                        }
                    },
                );
            }
            joined.drain_into(&mut edges);
            degrees.push(edges.len() - before);
            weights.push(members.iter().map(|&v| graph.weight(v)).sum());
        }
        (degrees, edges, weights)
    };
    let pieces: Vec<Piece> = (0..clusters.count.div_ceil(PIECE)).into_par_iter().map(join).collect();
    let offsets = Offsets::from_lengths(pieces.iter().flat_map(|(degrees, ..)| degrees).copied());
    let lengths: Vec<usize> = pieces.iter().map(|(_, edges, _)| edges.len()).collect();
    let (mut neighbours, mut strengths) = (vec![0; offsets.end()], vec![0; offsets.end()]);
    let targets = cut(&mut neighbours, &lengths).into_par_iter().zip(cut(&mut strengths, &lengths));
    targets.zip(&pieces).for_each(|((neighbours, strengths), (_, edges, _))| {
        for ((neighbour, strength), edge) in neighbours.iter_mut().zip(strengths).zip(edges) {
            (*neighbour, *strength) = *edge;
        }
    });
    let weights = pieces.into_iter().flat_map(|(.., weights)| weights).collect();
    Coarse { offsets, neighbours, strengths, weights }
}

/// The edges of one cluster, added up by their ends: a hash table, at most half full, and which of its slots are taken.
#[derive(Default)]
struct Joined {
    slots: Vec<(u32, u32)>,
    taken: Vec<u32>,
}

impl Joined {
    #[inline]
    fn add(&mut self, end: u32, strength: u32) {
        if 2 * self.taken.len() >= self.slots.len() {
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
                self.taken.push(at as u32);
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Clusters have few neighbours: a table as small as they allow stays close.
    #[cold]
    fn grow(&mut self) {
        let mut edges = vec![];
        self.drain_into(&mut edges);
        self.slots = vec![(NONE, 0); (2 * self.slots.len()).max(128)];
        edges.into_iter().for_each(|(end, strength)| self.add(end, strength));
    }

    /// In the order in which ends came first.
    fn drain_into(&mut self, edges: &mut Vec<(u32, u32)>) {
        edges.extend(
            self.taken.drain(..).map(|at| std::mem::replace(&mut self.slots[at as usize], (NONE, 0))),
        );
    }
}

/// Bits that look random (the 32-bit finaliser of Murmur's third hash).
pub(super) fn scrambled(bits: u32) -> u32 {
    let bits = (bits ^ bits >> 16).wrapping_mul(0x85eb_ca6b);
    let bits = (bits ^ bits >> 13).wrapping_mul(0xc2b2_ae35);
    bits ^ bits >> 16
}
