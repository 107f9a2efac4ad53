//! Merging of variables that have the same neighbours.

use super::super::aggregate::scrambled;
use super::super::minimum_degree::Neighbours;
use super::weighted_graph::{WeightedGraph, by_edges, by_parts};
use rayon::prelude::*;
use std::mem::replace;

/// A graph whose vertices represent adjacent variables with the same other neighbours, such as the unknowns of a node.
pub(super) struct Merged {
    pub(super) graph: WeightedGraph,
    /// The first member of each vertex.
    pub(super) starts: Vec<usize>,
    pub(super) members: Vec<u32>,
}

impl Merged {
    /// Merges `n` variables with about `pairs` pairs of neighbours.
    pub(super) fn new(n: usize, pairs: usize, neighbours: &(impl Neighbours + Sync)) -> Merged {
        let parts = by_edges(pairs);
        // number of neighbours of each variable, and a hash of the set of these neighbours and the variable
        let keys = by_parts(n, parts, n, |range, seen| {
            let mut keys = Vec::with_capacity(range.len());
            for v in range.start as u32..range.end as u32 {
                seen[v as usize] = v;
                let (mut hash, mut count) = (u64::from(scrambled(v)), 0u32);
                for other in neighbours.of(v) {
                    if replace(&mut seen[other as usize], v) != v {
                        hash = hash.wrapping_add(u64::from(scrambled(other)));
                        count += 1;
                    }
                }
                keys.push((hash, count, v));
            }
            keys
        });
        let mut keys = keys.concat();
        keys.par_sort_unstable();
        let alike = |a: &(u64, u32, u32), b: &(u64, u32, u32)| (a.0, a.1) == (b.0, b.1);
        let groups: Vec<_> = keys.chunk_by(alike).filter(|group| group.len() > 1).collect();
        let merged = by_parts(groups.len(), parts.min(groups.len().max(1)), n, |range, seen| {
            let mut merged = vec![];
            for group in &groups[range] {
                let first = group[0].2;
                seen[first as usize] = first;
                neighbours.of(first).for_each(|other| seen[other as usize] = first);
                let same = |v: u32| {
                    seen[v as usize] == first && neighbours.of(v).all(|other| seen[other as usize] == first)
                };
                merged.extend(group[1..].iter().filter(|&&(_, _, v)| same(v)).map(|&(_, _, v)| (v, first)));
            }
            merged
        });
        let mut first_of: Vec<u32> = (0..n as u32).collect();
        merged.into_iter().flatten().for_each(|(v, first)| first_of[v as usize] = first);
        Merged::by_first(&first_of, parts, neighbours)
    }

    /// Merges each variable into the one that `first_of` names.
    fn by_first(first_of: &[u32], parts: usize, neighbours: &(impl Neighbours + Sync)) -> Merged {
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
        let graph = WeightedGraph::build(firsts.len(), parts, n, |range, graph, seen| {
            for at in range {
                let v = firsts[at];
                seen[v as usize] = v;
                for other in neighbours.of(v) {
                    if first_of[other as usize] == other && replace(&mut seen[other as usize], v) != v {
                        graph.edges.push((number[other as usize], 1));
                    }
                }
                graph.close((starts[at + 1] - starts[at]) as u32);
            }
        });
        Merged { graph, starts, members }
    }
}
