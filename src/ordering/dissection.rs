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

mod merged;
mod refine;
#[cfg(test)]
mod tests;
mod weighted_graph;

use super::minimum_degree::{self, Neighbours};
use crate::error::Result;
use krysp_kernels::interrupt::Phase;
use merged::Merged;
use refine::{Refinement, SEPARATOR};
use std::mem::replace;
use weighted_graph::WeightedGraph;

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

/// If both parts have at least this many vertices, two threads dissect them. Guess: that takes about 5 ms.
const TASK: usize = 300;

const NONE: u32 = u32::MAX;

/// Computes an elimination order for `n` variables with about `pairs` pairs of neighbours: the variables, those eliminated
/// first in front. The order does not depend on the number of threads.
pub(crate) fn of_symmetric(
    n: usize,
    pairs: usize,
    neighbours: &(impl Neighbours + Sync),
) -> Result<Vec<u32>> {
    let phase = Phase::new("nested dissection", n as f64);
    phase.check()?;
    let Merged { graph, starts, members } = Merged::new(n, pairs, neighbours);
    let mut order = vec![0; graph.len()];
    dissect(graph, (0..).take(order.len()).collect(), &mut order, &phase)?;
    let all = |&v: &u32| &members[starts[v as usize]..starts[v as usize + 1]];
    Ok(order.iter().flat_map(all).copied().collect())
}

impl WeightedGraph {
    /// Part of each vertex: 0, 1, or [`SEPARATOR`] for the vertices of a separator between the parts.
    fn separated(&self, phase: &Phase) -> Result<Vec<u8>> {
        let mut coarser: Vec<(WeightedGraph, Vec<u32>)> = vec![];
        loop {
            phase.check()?;
            let finer = coarser.last().map_or(self, |(graph, _)| graph);
            let (groups, members) = finer.pairs();
            // merging has ended if it leaves more than nine tenths of the vertices, a guess
            if finer.len() <= SMALLEST || 10 * members.len() > 9 * finer.len() {
                break;
            }
            let graph = finer.coarse(&groups, &members);
            coarser.push((graph, groups));
        }
        let smallest = coarser.last().map_or(self, |(graph, _)| graph);
        let mut parts = smallest.grown(phase)?;
        while let Some((_, groups)) = coarser.pop() {
            phase.check()?;
            let finer = coarser.last().map_or(self, |(graph, _)| graph);
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
}

/// Writes the vertices of a graph, which have the numbers `ids`, to `order`.
fn dissect(graph: WeightedGraph, ids: Vec<u32>, order: &mut [u32], phase: &Phase) -> Result<()> {
    phase.check()?;
    let by_degree = |graph: &WeightedGraph, ids: &[u32], order: &mut [u32]| -> Result<()> {
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
