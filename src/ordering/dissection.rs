//! Fill-reducing ordering by nested dissection (George 1973), with multilevel vertex separators (Karypis and
//! Kumar 1998).
//!
//! ```text
//! merge adjacent vertices that have the same other neighbours
//! dissect(graph):
//!     up to LEAF vertices: order them by minimum degree
//!     else: merge pairs of neighbours, strongest edges first, again and again until the graph is small
//!           separate the smallest graph: two parts, and between them a separator; no edge joins the parts
//!           for each finer graph: project the separator, and move its vertices into a part while that makes it lighter
//!           dissect(first part), dissect(second part), then eliminate the separator
//! ```
//!
//! On three-dimensional meshes, factors have fewer entries in this order than in the order of minimum degree.

mod refine;
#[cfg(test)]
mod tests;

use super::aggregate::scrambled;
use super::minimum_degree::{self, Neighbours};
use crate::error::Result;
use krysp_kernels::interrupt::Phase;
use refine::{Refinement, SEPARATOR};
use std::mem::replace;

/// Graphs with up to this many vertices are ordered by minimum degree. Measured on 21 matrices (2-D and 3-D meshes with 2,000 to
/// 64,000 unknowns, `cage10`, `bayer10`): the geometric mean of the sums of squared column lengths is 2 % lower with 60, which takes 1.1 times
/// as long, and 2 % higher with 200.
const LEAF: usize = 100;

/// Graphs with at most this many vertices are separated without merging. On the matrices named at [`LEAF`], the mean is 5 % higher
/// with 60, and 1 % higher with 120.
const SMALLEST: usize = 80;

/// Number of vertices from which parts of the smallest graph are grown; the best separator is kept. On the matrices named at
/// [`LEAF`], the ordering takes 1.2 times as long with 8, and the mean is not lower.
const STARTS: usize = 4;

/// Number of averages over neighbours that smooth the coordinate along which a part grows. On the matrices named at [`LEAF`], the mean is
/// 3 % higher without any; it changes by less than 2 % from 10 to 40.
const SMOOTHING: usize = 20;

/// If both parts have at least this many vertices, two threads dissect them. Guess.
const TASK: usize = 1000;

const NONE: u32 = u32::MAX;

/// Computes an elimination order for `n` variables: the variables, those eliminated first in front. The order
/// does not depend on the number of threads.
pub(crate) fn of_symmetric(n: usize, neighbours: &impl Neighbours) -> Result<Vec<u32>> {
    let phase = Phase::new("nested dissection", n as f64);
    let Merged { graph, starts, members } = Merged::new(n, neighbours);
    let mut order = vec![0; graph.len()];
    dissect(graph, (0..).take(order.len()).collect(), &mut order, &phase)?;
    let all = |&v: &u32| &members[starts[v as usize]..starts[v as usize + 1]];
    Ok(order.iter().flat_map(all).copied().collect())
}

/// A symmetric graph with weighted vertices and edges. No vertex is its own neighbour.
#[derive(Default)]
struct Net {
    /// The first edge of each vertex.
    starts: Vec<usize>,
    /// Neighbours, with the strength of each edge.
    edges: Vec<(u32, u32)>,
    weights: Vec<u32>,
}

impl Neighbours for Net {
    fn of(&self, variable: u32) -> impl Iterator<Item = u32> {
        self.edges(variable as usize).iter().map(|&(other, _)| other)
    }
}

impl Net {
    fn with_capacity(vertices: usize) -> Net {
        let mut starts = Vec::with_capacity(vertices + 1);
        starts.push(0);
        Net { starts, edges: vec![], weights: Vec::with_capacity(vertices) }
    }

    /// Adds a vertex whose edges have just been pushed.
    fn close(&mut self, weight: u32) {
        self.weights.push(weight);
        self.starts.push(self.edges.len());
    }

    fn len(&self) -> usize {
        self.weights.len()
    }

    fn edges(&self, vertex: usize) -> &[(u32, u32)] {
        &self.edges[self.starts[vertex]..self.starts[vertex + 1]]
    }

    fn weight(&self) -> i64 {
        self.weights.iter().map(|&weight| i64::from(weight)).sum()
    }

    /// The graph whose vertices are groups of vertices: `groups` has the group of each vertex, `members` lists up to
    /// two vertices of each group ([`NONE`]: no second one).
    fn coarse(&self, groups: &[u32], members: &[[u32; 2]]) -> Net {
        let mut coarse = Net::with_capacity(members.len());
        // position of each group's edge in `coarse.edges`, if that is an edge of the current group
        let mut at = vec![usize::MAX; members.len()];
        for (group, pair) in (0..).zip(members) {
            let first = coarse.edges.len();
            let mut weight = 0;
            for &v in pair.iter().filter(|&&v| v != NONE) {
                weight += self.weights[v as usize];
                for &(other, strength) in self.edges(v as usize) {
                    let to = groups[other as usize];
                    match at[to as usize] {
                        _ if to == group => {}
                        known if known >= first && known < coarse.edges.len() => {
                            coarse.edges[known].1 = coarse.edges[known].1.saturating_add(strength);
                        }
                        _ => {
                            at[to as usize] = coarse.edges.len();
                            coarse.edges.push((to, strength));
                        }
                    }
                }
            }
            coarse.close(weight);
        }
        coarse
    }

    /// Merges vertices with neighbours, each with the one to which the strongest edge leads. Vertices with few neighbours choose
    /// first, because they find a free neighbour less often. Returns the group of each vertex and the vertices of each group.
    fn pairs(&self) -> (Vec<u32>, Vec<[u32; 2]>) {
        // at most 1.5 times the mean weight of the smallest graph, as in METIS
        let heaviest = 1 + 3 * self.weight() / (2 * SMALLEST as i64);
        let mut groups = vec![NONE; self.len()];
        let mut members = Vec::with_capacity(self.len() / 2 + 1);
        let mut visits = shuffled(self.len());
        visits.sort_by_key(|&v| self.edges(v as usize).len());
        for v in visits {
            if groups[v as usize] != NONE {
                continue;
            }
            let own = i64::from(self.weights[v as usize]);
            let fits = |other: u32| own + i64::from(self.weights[other as usize]) <= heaviest;
            let free =
                self.edges(v as usize).iter().filter(|(to, _)| groups[*to as usize] == NONE && fits(*to));
            let strongest = |&&(to, strength): &&(u32, u32)| (strength, u32::MAX - self.weights[to as usize]);
            let partner = free.max_by_key(strongest).map_or(NONE, |&(to, _)| to);
            for member in [v, partner].into_iter().filter(|&member| member != NONE) {
                groups[member as usize] = members.len() as u32;
            }
            members.push([v, partner]);
        }
        (groups, members)
    }

    /// Part of each vertex: 0, 1, or [`SEPARATOR`] for the vertices of a separator between the parts.
    fn separated(&self, phase: &Phase) -> Result<Vec<u8>> {
        let mut coarser: Vec<(Net, Vec<u32>)> = vec![];
        loop {
            phase.check()?;
            let finer = coarser.last().map_or(self, |(net, _)| net);
            let (groups, members) = finer.pairs();
            // merging has ended if it leaves more than nine tenths of the vertices, a guess
            if finer.len() <= SMALLEST || 10 * members.len() > 9 * finer.len() {
                break;
            }
            let net = finer.coarse(&groups, &members);
            coarser.push((net, groups));
        }
        let smallest = coarser.last().map_or(self, |(net, _)| net);
        let mut parts = smallest.grown(phase)?;
        while let Some((_, groups)) = coarser.pop() {
            phase.check()?;
            let finer = coarser.last().map_or(self, |(net, _)| net);
            parts = groups.iter().map(|&group| parts[group as usize]).collect();
            Refinement::new(finer, &mut parts).run();
        }
        Ok(parts)
    }

    /// Separates the graph by growing a part from several vertices; keeps the separator of least cost ([`Refinement::run`]).
    fn grown(&self, phase: &Phase) -> Result<Vec<u8>> {
        let half = self.weight() / 2;
        let mut best: Option<(f64, Vec<u8>)> = None;
        // a graph that could not be merged further may be large; both numbers are guesses
        let starts = if self.len() > 10 * SMALLEST { 2 } else { STARTS };
        for start in shuffled(self.len()).into_iter().take(starts) {
            phase.check()?;
            let mut parts = vec![1; self.len()];
            let mut weight = 0;
            for v in self.along(start) {
                if weight >= half {
                    break;
                }
                parts[v as usize] = 0;
                weight += i64::from(self.weights[v as usize]);
            }
            let borders =
                |v: usize| parts[v] == 1 && self.edges(v).iter().any(|&(to, _)| parts[to as usize] == 0);
            let border: Vec<usize> = (0..self.len()).filter(|&v| borders(v)).collect();
            border.into_iter().for_each(|v| parts[v] = SEPARATOR);
            let cost = Refinement::new(self, &mut parts).run();
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, parts));
            }
        }
        Ok(best.map(|(_, parts)| parts).unwrap_or_default())
    }

    /// All vertices along a smooth coordinate. Its initial values are places in a breadth-first order from the vertex farthest
    /// from `start`; averages over neighbours bring it closer to the Fiedler vector, whose level sets are small.
    fn along(&self, start: u32) -> Vec<u32> {
        let farthest = self.breadth_first(start).last().copied().unwrap_or(start);
        let mut order = self.breadth_first(farthest);
        let mut at = vec![0.0; self.len()];
        order.iter().enumerate().for_each(|(place, &v)| at[v as usize] = place as f32);
        let mut smoother = at.clone();
        for _ in 0..SMOOTHING {
            for (v, to) in smoother.iter_mut().enumerate() {
                let add = |[sum, all]: [f32; 2], &(other, strength): &(u32, u32)| {
                    [sum + strength as f32 * at[other as usize], all + strength as f32]
                };
                let [sum, all] = self.edges(v).iter().fold([0.0; 2], add);
                *to = if all > 0.0 { 0.5 * (at[v] + sum / all) } else { at[v] };
            }
            std::mem::swap(&mut at, &mut smoother);
        }
        order.sort_by(|&a, &b| at[a as usize].total_cmp(&at[b as usize]));
        order
    }

    /// All vertices, by their distance from a vertex; other components follow.
    fn breadth_first(&self, start: u32) -> Vec<u32> {
        let mut reached = vec![false; self.len()];
        let mut queue = Vec::with_capacity(self.len());
        for from in std::iter::once(start).chain(0..self.len() as u32) {
            let mut head = queue.len();
            if !replace(&mut reached[from as usize], true) {
                queue.push(from);
            }
            while head < queue.len() {
                for &(to, _) in self.edges(queue[head] as usize) {
                    if !replace(&mut reached[to as usize], true) {
                        queue.push(to);
                    }
                }
                head += 1;
            }
        }
        queue
    }

    /// The two parts as graphs with their vertices' numbers in the whole graph, and the numbers of the separator's
    /// vertices. `ids` are the numbers of this graph's vertices.
    fn split(&self, ids: &[u32], parts: &[u8]) -> ([(Net, Vec<u32>); 2], Vec<u32>) {
        let mut numbers = vec![0u32; self.len()];
        let mut all: [Vec<u32>; 3] = Default::default();
        for (v, &part) in parts.iter().enumerate() {
            let own = &mut all[usize::from(part)];
            numbers[v] = own.len() as u32;
            own.push(v as u32);
        }
        let renamed = |vertices: &[u32]| vertices.iter().map(|&v| ids[v as usize]).collect::<Vec<_>>();
        let net = |part: usize| {
            let mut net = Net::with_capacity(all[part].len());
            for &v in &all[part] {
                let within = |&&(to, _): &&(u32, u32)| usize::from(parts[to as usize]) == part;
                let inner = self.edges(v as usize).iter().filter(within);
                net.edges.extend(inner.map(|&(to, strength)| (numbers[to as usize], strength)));
                net.close(self.weights[v as usize]);
            }
            (net, renamed(&all[part]))
        };
        ([net(0), net(1)], renamed(&all[usize::from(SEPARATOR)]))
    }
}

/// Writes the vertices of a graph, which have the numbers `ids`, to `order`.
fn dissect(graph: Net, ids: Vec<u32>, order: &mut [u32], phase: &Phase) -> Result<()> {
    phase.check()?;
    let by_degree = |graph: &Net, ids: &[u32], order: &mut [u32]| -> Result<()> {
        let found = minimum_degree::of_symmetric(graph.len(), graph.edges.len(), graph)?.order;
        order.iter_mut().zip(found).for_each(|(to, v)| *to = ids[v as usize]);
        Ok(phase.advance(graph.weight() as u64)?)
    };
    if graph.len() <= LEAF {
        return by_degree(&graph, &ids, order);
    }
    let parts = graph.separated(phase)?;
    if [0, 1].iter().any(|part| !parts.contains(part)) {
        return by_degree(&graph, &ids, order);
    }
    let ([(a, of_a), (b, of_b)], separator) = graph.split(&ids, &parts);
    let weight = |v: usize| if parts[v] == SEPARATOR { u64::from(graph.weights[v]) } else { 0 };
    phase.advance((0..graph.len()).map(weight).sum())?;
    drop((graph, ids, parts));
    let (to_a, rest) = order.split_at_mut(a.len());
    let (to_b, last) = rest.split_at_mut(b.len());
    last.copy_from_slice(&separator);
    if a.len().min(b.len()) < TASK {
        dissect(a, of_a, to_a, phase)?;
        return dissect(b, of_b, to_b, phase);
    }
    let (first, second) = rayon::join(|| dissect(a, of_a, to_a, phase), || dissect(b, of_b, to_b, phase));
    first.and(second)
}

/// The numbers below `n` in a pseudo-random order, always the same.
fn shuffled(n: usize) -> Vec<u32> {
    let mut all: Vec<u32> = (0..n as u32).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for last in (1..n).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.swap(last, (state % (last as u64 + 1)) as usize);
    }
    all
}

/// A graph whose vertices represent adjacent variables with the same other neighbours, such as the unknowns of a node.
struct Merged {
    graph: Net,
    /// The first member of each vertex.
    starts: Vec<usize>,
    members: Vec<u32>,
}

impl Merged {
    fn new(n: usize, neighbours: &impl Neighbours) -> Merged {
        let mut net = Net::with_capacity(n);
        let mut seen = vec![NONE; n];
        let mut keys = Vec::with_capacity(n);
        for v in 0..n as u32 {
            seen[v as usize] = v;
            let mut hash = u64::from(scrambled(v));
            for other in neighbours.of(v) {
                if replace(&mut seen[other as usize], v) != v {
                    net.edges.push((other, 1));
                    hash = hash.wrapping_add(u64::from(scrambled(other)));
                }
            }
            net.close(1);
            keys.push((hash, v));
        }
        keys.sort_unstable();
        seen.fill(NONE);
        let mut first_of: Vec<u32> = (0..n as u32).collect();
        for group in keys.chunk_by(|a, b| a.0 == b.0).filter(|group| group.len() > 1) {
            let first = group[0].1;
            seen[first as usize] = first;
            net.of(first).for_each(|other| seen[other as usize] = first);
            let length = net.edges(first as usize).len();
            for &(_, v) in &group[1..] {
                let own = net.edges(v as usize);
                let same = own.len() == length
                    && seen[v as usize] == first
                    && own.iter().all(|&(other, _)| seen[other as usize] == first);
                if same {
                    first_of[v as usize] = first;
                }
            }
        }
        Merged::by_first(&net, &first_of)
    }

    /// Merges each variable into the one that `first_of` names.
    fn by_first(net: &Net, first_of: &[u32]) -> Merged {
        let n = first_of.len();
        let firsts: Vec<u32> = (0..n as u32).filter(|&v| first_of[v as usize] == v).collect();
        let mut number = vec![0; n];
        (0..).zip(&firsts).for_each(|(at, &v)| number[v as usize] = at);
        let group = |v: usize| number[first_of[v] as usize] as usize;
        let mut starts = vec![0; firsts.len() + 1];
        (0..n).for_each(|v| starts[group(v) + 1] += 1);
        (0..firsts.len()).for_each(|at| starts[at + 1] += starts[at]);
        let (mut next, mut members) = (starts.clone(), vec![0; n]);
        for v in 0..n {
            members[next[group(v)]] = v as u32;
            next[group(v)] += 1;
        }
        let mut graph = Net::with_capacity(firsts.len());
        for (at, &v) in firsts.iter().enumerate() {
            let others = net.of(v).filter(|&other| first_of[other as usize] == other && other != v);
            graph.edges.extend(others.map(|other| (number[other as usize], 1)));
            graph.close((starts[at + 1] - starts[at]) as u32);
        }
        Merged { graph, starts, members }
    }
}
