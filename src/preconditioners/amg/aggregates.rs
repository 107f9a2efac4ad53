//! Aggregation: each aggregate is a root node and the nodes around it; roots are at least three edges apart.
//!
//! ```text
//! each node has a fixed pseudo-random priority
//! until all nodes are decided:
//!     m ← maximum priority over a node and its neighbours (root = highest, decided non-root = lowest)
//!     a node becomes a root if its priority equals the maximum of m over itself and its neighbours;
//!     it is decided as a non-root if that maximum is a root's
//! neighbours of a root join its aggregate; each remaining node joins the aggregate of most of its neighbours
//! ```
//!
//! This computes a maximal independent set of the squared graph (MIS-2; Bell, Dalton and Olson 2012).
//! Priorities depend on the node's index only, and every node decides from the state before the round, so the
//! result does not depend on the number of threads. Each rank of MPI counts the indices of its nodes from
//! 0, so the result depends on the number of ranks.
//!
//! Cost: about six rounds, each with two passes over the graph of the undecided nodes, and two passes to
//! join.

use super::super::rows::Places;
use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::ordering::scrambled;
use crate::saved::saved;
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
use krysp_kernels::index::Offsets;
use krysp_kernels::interrupt;
use rayon::prelude::*;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Marks a node without an aggregate.
pub(crate) const NONE: u32 = u32::MAX;

/// Priority of a root.
const ROOT: u32 = u32::MAX;

/// Number of nodes in a unit of parallel work.
const GROUP: usize = 8192;

/// The aggregate of each node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Aggregates {
    pub(crate) count: usize,
    /// Index of the node's aggregate, or [`NONE`] for nodes that are left out.
    pub(crate) of_node: Vec<u32>,
}

saved!(impl[] Aggregates { count, of_node } where |read| {
    read.of_node.iter().all(|&aggregate| aggregate == NONE || (aggregate as usize) < read.count)
});

impl Aggregates {
    /// Computes the aggregates of a symmetric graph.
    pub(crate) fn new(graph: &Pattern, left_out: &[bool]) -> Aggregates {
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

    /// The tentative prolongator, given `width` values for each node: a row for each node, with at most one block, in the
    /// column of its aggregate.
    pub(crate) fn tentative(&self, dense: &[f64], width: usize) -> Result<(Pattern, Vec<f64>)> {
        let Aggregates { count, of_node } = self;
        let belongs = |node: &usize| of_node[*node] != NONE;
        let offsets = Offsets::of_rows(of_node.len(), &|node| usize::from(belongs(&node)));
        let columns: Vec<u32> = of_node.iter().copied().filter(|&aggregate| aggregate != NONE).collect();
        let blocks = (0..of_node.len()).filter(belongs).flat_map(|node| &dense[node * width..][..width]);
        Ok((Pattern::sorted(offsets, columns, *count)?, blocks.copied().collect()))
    }
}

/// Computes a maximal set of nodes that are at least three edges apart: [`ROOT`] for its members, zero for
/// all others.
fn roots(graph: &Pattern, left_out: &[bool]) -> Vec<AtomicU32> {
    let nodes = graph.rows();
    let draw = |node: usize| if left_out[node] { 0 } else { scrambled(node as u32 + 1) };
    // the priority of each node; zero for nodes that are left out
    let drawn: Vec<AtomicU32> = (0..nodes).into_par_iter().map(|node| AtomicU32::new(draw(node))).collect();
    let largest: Vec<AtomicU32> = (0..nodes).into_par_iter().map(|_| AtomicU32::new(0)).collect();
    let group = |at: usize| -> Vec<u32> {
        let all = at * GROUP..nodes.min((at + 1) * GROUP);
        all.filter(|&node| !left_out[node]).map(|node| node as u32).collect()
    };
    let mut searches: Vec<Vec<u32>> = (0..nodes.div_ceil(GROUP)).into_par_iter().map(group).collect();
    let mut open = searches.clone();
    let among = |numbers: &[AtomicU32], node: u32| {
        let own = numbers[node as usize].load(Relaxed);
        graph.row(node as usize).iter().fold(own, |most, &k| most.max(numbers[k as usize].load(Relaxed)))
    };
    // an interrupt leaves nodes undecided; the caller checks for it
    while open.iter().any(|group| !group.is_empty()) && !interrupt::is_raised() {
        // once the maximum of a node is a root's or zero (all decided), it no longer changes
        searches.par_iter_mut().for_each(|group| {
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

/// `retain` without branches: the predicate is unpredictable, so every node is written and only the count
/// depends on it.
fn keep(group: &mut Vec<u32>, mut kept: impl FnMut(u32) -> bool) {
    let mut count = 0;
    for at in 0..group.len() {
        let node = group[at];
        group[count] = node;
        count += usize::from(kept(node));
    }
    group.truncate(count);
}

/// Counts how many neighbours belong to each aggregate.
struct Votes {
    places: Places,
    counts: Vec<(u32, u32)>,
}

impl Votes {
    fn new(aggregates: usize) -> Votes {
        Votes { places: Places::new(aggregates), counts: vec![] }
    }

    /// Returns the most frequent aggregate; of equally frequent ones, the first.
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
