//! Orderings by recursive bisection with METIS (Karypis and Kumar 1998), for comparison with `Permutation::clustered` (feature
//! `metis`).
//!
//! ```text
//! bisect   the nodes by METIS, so that the first half has about a whole number of runs (`run` consecutive nodes each)
//! move     nodes, first those whose move leaves the fewest cut edges, until that number is exact; recurse on both halves
//! sort     each run by row length, longest first
//! ```
//!
//! The parts of METIS's k-way partitioning differ slightly in size, so that runs of equally many rows would
//! cross them. Therefore each bisection is balanced before the next one. This ordering is computed on one
//! thread, many times slower than `Permutation::clustered`.

use super::Result;
use krysp::Csr;
use metis::option::{Seed, UFactor};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An ordering of the nodes whose runs of `run` nodes are compact.
pub fn line(graph: &Csr<f64>, run: usize) -> Result<Vec<u32>> {
    let (whole, run) = (Graph::of(graph), run.max(1));
    let (mut order, mut left) = (vec![], vec![(0..whole.len() as u32).collect::<Vec<u32>>()]);
    let mut place = vec![u32::MAX; whole.len()];
    while let Some(members) = left.pop() {
        if members.len() <= run {
            order.extend(members);
            continue;
        }
        let target = members.len().div_ceil(run) / 2 * run;
        let part = whole.part(&members, &mut place);
        let mut second = part.bisected(target)?;
        part.balance(&mut second, target);
        let side = |which: bool| {
            let of_side = members.iter().zip(&second).filter(|&(_, &second)| second == which);
            of_side.map(|(&member, _)| member).collect::<Vec<u32>>()
        };
        left.push(side(true));
        left.push(side(false));
    }
    order
        .chunks_mut(run)
        .for_each(|run| run.sort_by_key(|&node| Reverse(graph.row_columns(node as usize).len())));
    Ok(order)
}

/// A graph in METIS's format, with every edge in both directions.
struct Graph {
    starts: Vec<i32>,
    others: Vec<i32>,
}

impl Graph {
    fn of(matrix: &Csr<f64>) -> Graph {
        let mut edges: Vec<(u32, u32)> = vec![];
        for i in 0..matrix.rows() as u32 {
            let others = matrix.row_columns(i as usize).iter().filter(|&&j| j != i);
            edges.extend(others.flat_map(|&j| [(i, j), (j, i)]));
        }
        edges.sort_unstable();
        edges.dedup();
        let mut starts = vec![0; matrix.rows() + 1];
        edges.iter().for_each(|&(i, _)| starts[i as usize + 1] += 1);
        (0..matrix.rows()).for_each(|i| starts[i + 1] += starts[i]);
        Graph { starts, others: edges.into_iter().map(|(_, j)| j as i32).collect() }
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn neighbours(&self, node: usize) -> &[i32] {
        &self.others[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// The subgraph of some nodes, in their order. `place` must contain `u32::MAX` everywhere; it does so
    /// again afterwards.
    fn part(&self, members: &[u32], place: &mut [u32]) -> Graph {
        members.iter().zip(0..).for_each(|(&member, at)| place[member as usize] = at);
        let mut part = Graph { starts: vec![0], others: vec![] };
        for &member in members {
            let inside = self.neighbours(member as usize).iter().map(|&other| place[other as usize]);
            part.others.extend(inside.filter(|&at| at != u32::MAX).map(|at| at as i32));
            part.starts.push(part.others.len() as i32);
        }
        members.iter().for_each(|&member| place[member as usize] = u32::MAX);
        part
    }

    /// Bisects the graph, with about `target` nodes in the first half. Returns for each node whether it is in the second half.
    fn bisected(&self, target: usize) -> Result<Vec<bool>> {
        let share = target as f32 / self.len() as f32;
        let mut sides = vec![0; self.len()];
        let shares = [share, 1.0 - share];
        // a half may exceed its share by 0.1 %, and the seed is fixed
        let graph = metis::Graph::new(1, 2, &self.starts, &self.others)?;
        let graph = graph.set_tpwgts(&shares).set_option(UFactor(1)).set_option(Seed(1));
        graph.part_recursive(&mut sides)?;
        Ok(sides.into_iter().map(|side| side == 1).collect())
    }

    /// Moves nodes from the side that has too many, first those whose move leaves the fewest cut edges.
    fn balance(&self, second: &mut [bool], target: usize) {
        let first = second.iter().filter(|&&second| !second).count();
        let (from, mut surplus) = (first < target, first.abs_diff(target));
        let gain = |node: usize, second: &[bool]| -> i32 {
            let tie = |&other: &i32| if second[other as usize] == from { -1 } else { 1 };
            self.neighbours(node).iter().map(tie).sum()
        };
        let of_side = (0..self.len()).filter(|&node| second[node] == from && surplus > 0);
        let mut heap: BinaryHeap<(i32, usize)> = of_side.map(|node| (gain(node, second), node)).collect();
        while let Some((found, node)) = heap.pop().filter(|_| surplus > 0) {
            // skip outdated entries: the gain of a node grows when a neighbour moves, and the node is then pushed again
            if second[node] != from || found != gain(node, second) {
                continue;
            }
            second[node] = !from;
            surplus -= 1;
            for &other in self.neighbours(node).iter().filter(|&&other| second[other as usize] == from) {
                heap.push((gain(other as usize, second), other as usize));
            }
        }
    }
}
