//! Graphs that are dissected.
//!
//! They are built in parts, in parallel. The number of parts depends on the graph alone, and no result depends on it.

use super::super::minimum_degree::Neighbours;
use super::refine::SEPARATOR;
use super::{NONE, SMALLEST, shuffled};
use crate::formats::pattern::cut;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Minimum number of edges that one task visits, and maximum number of tasks. Guesses: this number of edges takes about 0.3 ms, much
/// longer than to start a task.
const EDGES: usize = 1 << 15;
const PARTS: usize = 64;

/// Number of parts for a loop over `edges` edges.
pub(super) fn by_edges(edges: usize) -> usize {
    (edges / EDGES).clamp(1, PARTS)
}

/// Calls `visit` for each of `parts` ranges of the numbers below `n`, in parallel, with an array of `marks` numbers that are
/// [`NONE`] or were written by other calls.
pub(super) fn by_parts<R: Send>(
    n: usize,
    parts: usize,
    marks: usize,
    visit: impl Fn(Range<usize>, &mut [u32]) -> R + Sync,
) -> Vec<R> {
    let idle: Mutex<Vec<Vec<u32>>> = Mutex::default();
    let part = |part: usize| {
        let found = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut marked = found.unwrap_or_else(|| vec![NONE; marks]);
        let result = visit(part * n / parts..(part + 1) * n / parts, &mut marked);
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(marked);
        result
    };
    if parts == 1 { vec![part(0)] } else { (0..parts).into_par_iter().map(part).collect() }
}

/// A symmetric graph with weighted vertices and edges. No vertex is its own neighbour.
#[derive(Default)]
pub(super) struct WeightedGraph {
    /// The first edge of each vertex.
    starts: Vec<usize>,
    /// Neighbours, with the strength of each edge.
    pub(super) edges: Vec<(u32, u32)>,
    pub(super) weights: Vec<u32>,
}

impl Neighbours for WeightedGraph {
    fn of(&self, variable: u32) -> impl Iterator<Item = u32> {
        self.edges(variable as usize).iter().map(|&(other, _)| other)
    }
}

impl WeightedGraph {
    fn with_capacity(vertices: usize) -> WeightedGraph {
        let mut starts = Vec::with_capacity(vertices + 1);
        starts.push(0);
        WeightedGraph { starts, edges: vec![], weights: Vec::with_capacity(vertices) }
    }

    /// Builds a graph with `vertices` vertices. `fill` pushes the edges of each vertex of a range, and closes it; it is called
    /// as in [`by_parts`].
    pub(super) fn build(
        vertices: usize,
        parts: usize,
        marks: usize,
        fill: impl Fn(Range<usize>, &mut WeightedGraph, &mut [u32]) + Sync,
    ) -> WeightedGraph {
        let mut graphs = by_parts(vertices, parts, marks, |range, marks| {
            let mut graph = WeightedGraph::with_capacity(range.len());
            fill(range, &mut graph, marks);
            graph
        });
        if graphs.len() == 1 {
            return graphs.pop().unwrap_or_default();
        }
        let lengths: Vec<usize> = graphs.iter().map(|graph| graph.edges.len()).collect();
        let mut all = WeightedGraph::with_capacity(vertices);
        all.edges = vec![(0, 0); lengths.iter().sum()];
        let mut first = 0;
        for graph in &graphs {
            all.weights.extend_from_slice(&graph.weights);
            all.starts.extend(graph.starts[1..].iter().map(|start| first + start));
            first += graph.edges.len();
        }
        let edges = cut(&mut all.edges, &lengths).into_par_iter();
        edges.zip(&graphs).for_each(|(to, graph)| to.copy_from_slice(&graph.edges));
        all
    }

    /// Adds a vertex whose edges have just been pushed.
    pub(super) fn close(&mut self, weight: u32) {
        self.weights.push(weight);
        self.starts.push(self.edges.len());
    }

    pub(super) fn len(&self) -> usize {
        self.weights.len()
    }

    pub(super) fn edges(&self, vertex: usize) -> &[(u32, u32)] {
        &self.edges[self.starts[vertex]..self.starts[vertex + 1]]
    }

    pub(super) fn weight(&self) -> i64 {
        self.weights.iter().map(|&weight| i64::from(weight)).sum()
    }

    /// The graph whose vertices are groups of vertices: `groups` has the group of each vertex, `members` lists up to
    /// two vertices of each group ([`NONE`]: no second one).
    pub(super) fn coarse(&self, groups: &[u32], members: &[[u32; 2]]) -> WeightedGraph {
        // `at` has the position of each group's edge in `coarse.edges`, if that is an edge of the current group
        WeightedGraph::build(members.len(), by_edges(self.edges.len()), members.len(), |range, coarse, at| {
            for (group, pair) in range.clone().zip(&members[range]) {
                let first = coarse.edges.len();
                let mut weight = 0;
                for &v in pair.iter().filter(|&&v| v != NONE) {
                    weight += self.weights[v as usize];
                    for &(other, strength) in self.edges(v as usize) {
                        let to = groups[other as usize];
                        let known = at[to as usize] as usize;
                        match coarse.edges.get_mut(known) {
                            _ if to as usize == group => {}
                            Some(edge) if known >= first && edge.0 == to => {
                                edge.1 = edge.1.saturating_add(strength)
                            }
                            _ => {
                                at[to as usize] = coarse.edges.len() as u32;
                                coarse.edges.push((to, strength));
                            }
                        }
                    }
                }
                coarse.close(weight);
            }
        })
    }

    /// Merges vertices with neighbours, each with the one to which the strongest edge leads. Vertices with few neighbours choose
    /// first, because they find a free neighbour less often. Returns the group of each vertex and the vertices of each group.
    pub(super) fn pairs(&self) -> (Vec<u32>, Vec<[u32; 2]>) {
        // at most 1.5 times the mean weight of the smallest graph, as in METIS
        let heaviest = 1 + 3 * self.weight() / (2 * SMALLEST as i64);
        let mut groups = vec![NONE; self.len()];
        let mut members = Vec::with_capacity(self.len() / 2 + 1);
        for v in by_key(&shuffled(self.len()), |v| self.edges(v as usize).len()) {
            if groups[v as usize] != NONE {
                continue;
            }
            let most = heaviest - i64::from(self.weights[v as usize]);
            // of several partners with edges of equal strength the lightest, of those the last
            let (mut partner, mut best) = (NONE, (0, 0));
            for &(to, strength) in self.edges(v as usize) {
                if strength < best.0 || groups[to as usize] != NONE {
                    continue;
                }
                let weight = self.weights[to as usize];
                let rank = (strength, u32::MAX - weight);
                if rank >= best && i64::from(weight) <= most {
                    (partner, best) = (to, rank);
                }
            }
            for member in [v, partner].into_iter().filter(|&member| member != NONE) {
                groups[member as usize] = members.len() as u32;
            }
            members.push([v, partner]);
        }
        (groups, members)
    }

    /// The two parts as graphs with their vertices' numbers in the whole graph, and the numbers of the separator's
    /// vertices. `ids` are the numbers of this graph's vertices.
    pub(super) fn split(&self, ids: &[u32], parts: &[u8]) -> ([(WeightedGraph, Vec<u32>); 2], Vec<u32>) {
        let mut numbers = vec![0u32; self.len()];
        let mut all: [Vec<u32>; 3] = Default::default();
        for (v, &part) in parts.iter().enumerate() {
            let own = &mut all[usize::from(part)];
            numbers[v] = own.len() as u32;
            own.push(v as u32);
        }
        let renamed = |vertices: &[u32]| vertices.iter().map(|&v| ids[v as usize]).collect::<Vec<_>>();
        let graph = |part: usize| {
            let (vertices, tasks) = (&all[part], by_edges(self.edges.len() / 2));
            let graph = WeightedGraph::build(vertices.len(), tasks, 0, |range, graph, _| {
                for &v in &vertices[range] {
                    let within = |&&(to, _): &&(u32, u32)| usize::from(parts[to as usize]) == part;
                    let inner = self.edges(v as usize).iter().filter(within);
                    graph.edges.extend(inner.map(|&(to, strength)| (numbers[to as usize], strength)));
                    graph.close(self.weights[v as usize]);
                }
            });
            (graph, renamed(vertices))
        };
        let (first, second) = rayon::join(|| graph(0), || graph(1));
        ([first, second], renamed(&all[usize::from(SEPARATOR)]))
    }
}

/// Sorts vertices by a key, which is at most the length of the list; those with equal keys keep their order.
fn by_key(vertices: &[u32], key: impl Fn(u32) -> usize) -> Vec<u32> {
    let mut starts = vec![0u32; vertices.len() + 2];
    vertices.iter().for_each(|&v| starts[key(v) + 1] += 1);
    (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
    let mut sorted = vec![0; vertices.len()];
    for &v in vertices {
        let place = &mut starts[key(v)];
        sorted[*place as usize] = v;
        *place += 1;
    }
    sorted
}
