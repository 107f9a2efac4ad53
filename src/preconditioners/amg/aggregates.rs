//! Aggregates: a root and the nodes around it, roots three steps from each other or more.
//!
//! ```text
//! every node draws a number, a fixed one
//! until all are decided:
//!     m ← the largest number among a node and its neighbours, roots above all, decided others below all
//!     a node becomes a root if its number is the largest m among it and its neighbours,
//!     and decided if a root is the largest
//! neighbours of roots join them; the others join the aggregate that most of their neighbours belong to
//! ```
//!
//! That is a maximal independent set of the square of the graph (Bell, Dalton and Olson 2012), with numbers that depend on
//! nothing but the node: every node decides by what held before its round, so the result is the same for every number of
//! threads.
//!
//! Budget: two passes over the graph of the nodes that are not decided, some six rounds, and two passes to join.

use super::super::rows::Places;
use crate::formats::pattern::Pattern;
use crate::saved::saved;
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
use krysp_kernels::interrupt;
use rayon::prelude::*;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// No aggregate.
pub(super) const NONE: u32 = u32::MAX;

/// A root, in place of its number.
const ROOT: u32 = u32::MAX;

/// Nodes that a thread looks at together.
const GROUP: usize = 8192;

/// The aggregate of each node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Aggregates {
    pub(super) count: usize,
    /// [`NONE`] for nodes that are left out.
    pub(super) of_node: Vec<u32>,
}

saved!(impl[] Aggregates { count, of_node } where |read| {
    read.of_node.iter().all(|&aggregate| aggregate == NONE || (aggregate as usize) < read.count)
});

impl Aggregates {
    /// Of a symmetric graph.
    pub(super) fn new(graph: &Pattern, left_out: &[bool]) -> Aggregates {
        let roots = roots(graph, left_out);
        let is_root = |node: u32| roots[node as usize].load(Relaxed) == ROOT;
        let chosen: Vec<u32> =
            (0..graph.rows() as u32).into_par_iter().filter(|&node| is_root(node)).collect();
        let own: Vec<AtomicU32> = (0..graph.rows()).into_par_iter().map(|_| AtomicU32::new(NONE)).collect();
        over_rows(chosen.len(), 4, (), &|range, ()| {
            range.for_each(|aggregate| own[chosen[aggregate] as usize].store(aggregate as u32, Relaxed));
        });
        let aggregate_of_root = |node: u32| own[node as usize].load(Relaxed);
        let near = map_rows(graph.rows(), 16, &|node| {
            if left_out[node] || is_root(node as u32) {
                return aggregate_of_root(node as u32);
            }
            graph.row(node).iter().copied().find(|&other| is_root(other)).map_or(NONE, aggregate_of_root)
        });
        let mut of_node = near.clone();
        over_rows(of_node.len(), 4, of_node.as_mut_slice(), &|range, part: &mut [u32]| {
            let mut votes = Votes::new(chosen.len());
            for (node, of) in range.zip(part) {
                if *of == NONE && !left_out[node] {
                    *of = votes.most(graph.row(node).iter().map(|&other| near[other as usize]));
                }
            }
        });
        Aggregates { count: chosen.len(), of_node }
    }
}

/// A maximal set of nodes three steps from each other or more: [`ROOT`] for those, zero for all others.
fn roots(graph: &Pattern, left_out: &[bool]) -> Vec<AtomicU32> {
    let nodes = graph.rows();
    let draw = |node: usize| if left_out[node] { 0 } else { scrambled(node as u32 + 1) };
    let drawn: Vec<AtomicU32> = (0..nodes).into_par_iter().map(|node| AtomicU32::new(draw(node))).collect();
    let largest: Vec<AtomicU32> = (0..nodes).into_par_iter().map(|_| AtomicU32::new(0)).collect();
    let group = |at: usize| -> Vec<u32> {
        let all = at * GROUP..nodes.min((at + 1) * GROUP);
        all.filter(|&node| !left_out[node]).map(|node| node as u32).collect()
    };
    let mut asked: Vec<Vec<u32>> = (0..nodes.div_ceil(GROUP)).into_par_iter().map(group).collect();
    let mut open = asked.clone();
    let among = |numbers: &[AtomicU32], node: u32| {
        let own = numbers[node as usize].load(Relaxed);
        graph.row(node as usize).iter().fold(own, |most, &k| most.max(numbers[k as usize].load(Relaxed)))
    };
    // interrupted work leaves nodes without a root; the caller checks
    while open.iter().any(|group| !group.is_empty()) && !interrupt::is_raised() {
        // a largest number that is a root's, or that of nodes all decided, stays
        asked.par_iter_mut().for_each(|group| {
            keep(group, |node| {
                let most = among(&drawn, node);
                largest[node as usize].store(most, Relaxed);
                (most != 0) & (most != ROOT)
            });
        });
        open.par_iter_mut().for_each(|group| {
            keep(group, |node| {
                let number = &drawn[node as usize];
                let (own, most) = (number.load(Relaxed), among(&largest, node));
                let (becomes_root, covered) = (most == own, most == ROOT);
                number.store(if becomes_root { ROOT } else { own * u32::from(!covered) }, Relaxed);
                !becomes_root & !covered
            });
        });
    }
    drawn
}

/// Keeps those of a group of which something is true. No processor foretells which: all are written, and nothing jumps.
fn keep(group: &mut Vec<u32>, mut kept: impl FnMut(u32) -> bool) {
    let mut count = 0;
    for at in 0..group.len() {
        let node = group[at];
        group[count] = node;
        count += usize::from(kept(node));
    }
    group.truncate(count);
}

/// What neighbours vote for.
struct Votes {
    places: Places,
    counts: Vec<(u32, u32)>,
}

impl Votes {
    fn new(aggregates: usize) -> Votes {
        Votes { places: Places::new(aggregates), counts: vec![] }
    }

    /// What occurs most, among equals the first.
    fn most(&mut self, votes: impl Iterator<Item = u32>) -> u32 {
        for vote in votes.filter(|&vote| vote != NONE) {
            match self.places.get(vote) {
                Some(place) => self.counts[place].1 += 1,
                None => {
                    self.places.set(vote, self.counts.len());
                    self.counts.push((vote, 1));
                }
            }
        }
        let most = self.counts.iter().rev().max_by_key(|(_, count)| *count).map_or(NONE, |(vote, _)| *vote);
        self.places.clear(self.counts.drain(..).map(|(vote, _)| vote));
        most
    }
}

/// Bits that look random, different for different bits (the finaliser of Murmur's third hash); zero for zero alone.
fn scrambled(bits: u32) -> u32 {
    let bits = (bits ^ bits >> 16).wrapping_mul(0x85eb_ca6b);
    let bits = (bits ^ bits >> 13).wrapping_mul(0xc2b2_ae35);
    bits ^ bits >> 16
}
