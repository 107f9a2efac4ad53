//! Refinement of a vertex separator, by the method of Fiduccia and Mattheyses (1982).

use super::WeightedGraph;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::mem::replace;

/// The part of vertices in the separator.
pub(super) const SEPARATOR: u8 = 2;

/// Maximum weight of a part, as a fraction of the weight of the graph. METIS, too, allows 1.2 times one half.
const HEAVIEST: f64 = 0.6;

/// Maximum number of passes. Twelve change the work of the factorizations of six 3-D meshes by less than 3 %.
const PASSES: usize = 6;

/// Both parts, as bits of [`Refinement::open`].
const BOTH: u8 = 3;

/// Bit of [`Refinement::open`] of a vertex that is listed in [`Refinement::raised`].
const RAISED: u8 = 4;

/// A pass ends after this multiple of the number of vertices of the separator, or the nearest of [`LOOKAHEADS`], of moves without an
/// improvement; as in METIS.
const LOOKAHEAD: usize = 5;
const LOOKAHEADS: [usize; 2] = [50, 400];

/// Weight that an empty separator or part counts as, less than the weight of a vertex. Guess; any positive
/// weight below 1 keeps the quotient of the criterion finite.
const EMPTY: f64 = 0.5;

/// Moves vertices of a separator into a part to reduce the cost of the separator. A vertex that moves into one part
/// pulls its neighbours in the other part into the separator, which they may leave only in the same direction. So the separator
/// moves on across the graph instead of back. In a pass a vertex leaves the separator at most once, the best
/// move first, even if a move makes the separator heavier. Then all moves after the best state of the pass are
/// undone.
pub(super) struct Refinement<'a> {
    graph: &'a WeightedGraph,
    parts: &'a mut [u8],
    /// Weight of each part, and of the separator.
    weights: [i64; 3],
    heaviest: i64,
    /// For each vertex of the separator, the weight of its neighbours in each part.
    beside: Vec<[i32; 2]>,
    /// Parts into which each vertex may still move in this pass, one bit each, and [`RAISED`].
    open: Vec<u8>,
    /// For each part, the moves into it with upper bounds on their gains ([`key`]), largest first. A gain that becomes
    /// smaller is corrected once its entry is the first one; a larger gain gets another entry.
    queues: [BinaryHeap<u64>; 2],
    /// Vertices of the separator whose gains the current move increases.
    raised: Vec<u32>,
    /// Vertices that have changed their part in this pass, with the part before.
    changes: Vec<(u32, u8)>,
}

impl<'a> Refinement<'a> {
    pub(super) fn new(graph: &'a WeightedGraph, parts: &'a mut [u8]) -> Self {
        let mut weights = [0; 3];
        for (&part, &weight) in parts.iter().zip(&graph.weights) {
            weights[usize::from(part)] += i64::from(weight);
        }
        let all = graph.weight();
        let largest = graph.weights.iter().copied().max().map_or(0, i64::from);
        Refinement {
            graph,
            parts,
            weights,
            heaviest: ((HEAVIEST * all as f64) as i64).max(all / 2 + largest),
            beside: vec![[0; 2]; graph.len()],
            open: vec![BOTH; graph.len()],
            queues: [BinaryHeap::new(), BinaryHeap::new()],
            raised: vec![],
            changes: vec![],
        }
    }

    /// Refines the separator. Returns its cost.
    pub(super) fn run(mut self) -> f64 {
        for _ in 0..PASSES {
            if !self.pass() {
                break;
            }
        }
        self.cost()
    }

    /// Objective of a pass: the weight of the separator divided by the geometric mean of the weights of both
    /// parts. A weight of zero counts as [`EMPTY`], so that of several empty separators the most balanced one
    /// is kept, and a graph with an empty part is still improved step by step.
    fn cost(&self) -> f64 {
        let [a, b, separator] = self.weights.map(|weight| weight as f64);
        separator.max(EMPTY) / (a.max(EMPTY) * b.max(EMPTY)).sqrt()
    }

    /// Makes one pass. Returns whether it has reduced the cost.
    fn pass(&mut self) -> bool {
        self.open.fill(BOTH);
        self.queues.iter_mut().for_each(BinaryHeap::clear);
        self.changes.clear();
        let separator: Vec<usize> = (0..self.parts.len()).filter(|&v| self.parts[v] == SEPARATOR).collect();
        for v in separator.iter().copied() {
            self.enter(v);
            [0, 1].into_iter().for_each(|to| self.queue(v, to));
        }
        let [least, most] = LOOKAHEADS;
        let lookahead = (LOOKAHEAD * separator.len()).clamp(least, most);
        let (start, mut best, mut kept, mut since) = (self.cost(), self.cost(), 0, 0);
        while since < lookahead {
            let Some((v, to)) = self.next() else { break };
            self.shift(v, to);
            since += 1;
            let cost = self.cost();
            if cost < best {
                (best, kept, since) = (cost, self.changes.len(), 0);
            }
        }
        while self.changes.len() > kept {
            if let Some((v, part)) = self.changes.pop() {
                self.set(v as usize, part);
            }
        }
        best < start
    }

    /// Gain of moving a vertex of the separator into a part: by how much the separator becomes lighter.
    fn gain(&self, v: usize, to: usize) -> i32 {
        self.graph.weights[v] as i32 - self.beside[v][1 - to]
    }

    /// Adds up the weights of the neighbours of a vertex that has entered the separator.
    fn enter(&mut self, v: usize) {
        let mut beside = [0; 2];
        for &(other, _) in self.graph.edges(v) {
            if let Some(sum) = beside.get_mut(usize::from(self.parts[other as usize])) {
                *sum += self.graph.weights[other as usize] as i32;
            }
        }
        self.beside[v] = beside;
    }

    /// The best move: a vertex of the separator, and the part that it moves into.
    fn next(&mut self) -> Option<(usize, usize)> {
        let lighter = usize::from(self.weights[1] < self.weights[0]);
        let tops = [0, 1].map(|to| self.top(to));
        let fits = |to: usize| {
            tops[to].filter(|&(_, v)| {
                to == lighter || self.weights[to] + i64::from(self.graph.weights[v]) <= self.heaviest
            })
        };
        let [into_lighter, into_heavier] = [lighter, 1 - lighter].map(fits);
        let to = match [into_lighter, into_heavier] {
            [None, None] => return None,
            [Some((a, _)), Some((b, _))] if b > a => 1 - lighter,
            [None, Some(_)] => 1 - lighter,
            _ => lighter,
        };
        self.queues[to].pop().map(|key| (vertex(key), to))
    }

    /// The largest gain of a move into a part, and the vertex.
    fn top(&mut self, to: usize) -> Option<(i32, usize)> {
        let Refinement { graph, parts, beside, open, queues, .. } = self;
        while let Some(mut first) = queues[to].peek_mut() {
            let v = vertex(*first);
            if parts[v] != SEPARATOR || open[v] >> to & 1 == 0 {
                PeekMut::pop(first);
                continue;
            }
            let gain = graph.weights[v] as i32 - beside[v][1 - to];
            match (*first).cmp(&key(gain, v)) {
                Ordering::Equal => return Some((gain, v)),
                Ordering::Greater => *first = key(gain, v),
                // there was another entry for the larger gain
                Ordering::Less => drop(PeekMut::pop(first)),
            }
        }
        None
    }

    /// Moves a vertex of the separator into a part, and its neighbours in the other part into the separator.
    fn shift(&mut self, v: usize, to: usize) {
        self.open[v] = 0;
        self.change(v, to as u8);
        let weight = self.graph.weights[v] as i32;
        let graph = self.graph;
        for &(other, _) in graph.edges(v) {
            let other = other as usize;
            let part = self.parts[other];
            if part == SEPARATOR {
                self.beside[other][to] += weight;
            } else if usize::from(part) == 1 - to {
                self.change(other, SEPARATOR);
                self.open[other] &= 1 << to;
                self.enter(other);
                self.raise(other);
                let weight = graph.weights[other] as i32;
                for &(next, _) in graph.edges(other) {
                    let next = next as usize;
                    if self.parts[next] == SEPARATOR {
                        self.beside[next][1 - to] -= weight;
                        self.raise(next);
                    }
                }
            }
        }
        while let Some(raised) = self.raised.pop() {
            self.open[raised as usize] &= BOTH;
            self.queue(raised as usize, to);
        }
    }

    /// Lists a vertex whose gain increases.
    fn raise(&mut self, v: usize) {
        if self.open[v] & RAISED == 0 {
            self.open[v] |= RAISED;
            self.raised.push(v as u32);
        }
    }

    fn may_move(&self, v: usize, to: usize) -> bool {
        self.open[v] >> to & 1 == 1
    }

    fn queue(&mut self, v: usize, to: usize) {
        if self.may_move(v, to) {
            self.queues[to].push(key(self.gain(v, to), v));
        }
    }

    fn change(&mut self, v: usize, part: u8) {
        let before = self.set(v, part);
        self.changes.push((v as u32, before));
    }

    /// Moves a vertex into a part or the separator. Returns where it was.
    fn set(&mut self, v: usize, part: u8) -> u8 {
        let before = replace(&mut self.parts[v], part);
        let weight = i64::from(self.graph.weights[v]);
        self.weights[usize::from(before)] -= weight;
        self.weights[usize::from(part)] += weight;
        before
    }
}

/// An entry of a queue: a larger gain is a larger number, and of equal gains that of the smaller vertex.
fn key(gain: i32, v: usize) -> u64 {
    u64::from(gain as u32 ^ 1 << 31) << 32 | u64::from(!(v as u32))
}

/// Vertex of an entry of a queue.
fn vertex(key: u64) -> usize {
    !(key as u32) as usize
}
