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
use krysp_kernels::cpu::threads::{find_row, map_rows};
use krysp_kernels::index::Offsets;
use rayon::prelude::*;

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
    // a seed beats about `size - 1` others: the same share of the neighbours for both ends of an edge
    let others = size.saturating_sub(1).saturating_mul(vertices) as f64 / graph.ends().max(1) as f64;
    let share = (others * 65536.0) as u32;
    let met = |a: u32, b: u32| ((draws[a as usize] ^ draws[b as usize]) & 0xffff) <= share;
    let mut labels = map_rows(vertices, 8, &|v| {
        let v = v as u32;
        let beats = |other: u32| draw(other) < draw(v) || !met(v, other);
        let is_seed = draws[v as usize] != 0 && graph.edges(v).all(|(other, _)| beats(other));
        if is_seed { v } else { NONE }
    });
    let seeds: Vec<u32> = labels.iter().copied().filter(|&label| label != NONE).collect();
    let waits = |labels: &[u32], v: usize| labels[v] == NONE && draws[v] != 0;
    while find_row(vertices, 1, &|v| waits(&labels, v)).is_some() {
        labels = map_rows(vertices, 16, &|v| {
            if waits(&labels, v) { strongest(graph, v as u32, &labels) } else { labels[v] }
        });
    }
    // clusters are numbered as their seeds are
    let count = seeds.len();
    let mut number = vec![count as u32; vertices];
    for (cluster, &seed) in seeds.iter().enumerate() {
        number[seed as usize] = cluster as u32;
    }
    let of_vertex =
        map_rows(vertices, 3, &|v| if labels[v] == NONE { count as u32 } else { number[labels[v] as usize] });
    let (starts, entries) = by_rows(count + 1, vertices, &|v| (of_vertex[v], 0));
    let members = map_rows(vertices, 3, &|at| place_of(entries[at])).into();
    Clusters { count, of_vertex, starts, members }
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
fn strongest<G: Graph>(graph: &G, vertex: u32, labels: &[u32]) -> u32 {
    let mut tally = Tally::default();
    graph.look_up(vertex, labels, |label, strength| {
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
            joined.make_room(members.iter().map(|&v| graph.neighbours(v).len()).sum());
            for &v in members {
                graph.look_up(v, &clusters.of_vertex, |to, strength| {
                    if to as usize != cluster && to as usize != clusters.count {
                        joined.add(to, strength);
                    }
                });
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

/// The edges of one cluster, added up by their ends: a hash table, and which of its slots are taken.
#[derive(Default)]
struct Joined {
    slots: Vec<(u32, u32)>,
    taken: Vec<usize>,
}

impl Joined {
    /// Room for so many ends, in a table that is empty.
    fn make_room(&mut self, ends: usize) {
        let room = (2 * ends).next_power_of_two();
        if self.slots.len() < room {
            self.slots = vec![(NONE, 0); room];
        }
    }

    #[inline]
    fn add(&mut self, end: u32, strength: u32) {
        let mask = self.slots.len() - 1;
        let mut at = end.wrapping_mul(0x9e37_79b9) as usize >> 8 & mask;
        while self.slots[at].0 != end {
            if self.slots[at].0 == NONE {
                self.slots[at].0 = end;
                self.taken.push(at);
                break;
            }
            at = (at + 1) & mask;
        }
        self.slots[at].1 += strength;
    }

    /// In the order in which ends came first.
    fn drain_into(&mut self, edges: &mut Vec<(u32, u32)>) {
        edges.extend(self.taken.drain(..).map(|at| std::mem::replace(&mut self.slots[at], (NONE, 0))));
    }
}

/// Bits that look random (the 32-bit finaliser of Murmur's third hash).
pub(super) fn scrambled(bits: u32) -> u32 {
    let bits = (bits ^ bits >> 16).wrapping_mul(0x85eb_ca6b);
    let bits = (bits ^ bits >> 13).wrapping_mul(0xc2b2_ae35);
    bits ^ bits >> 16
}
