//! Partitions a graph in a clustered ordering. A *run*, a range of consecutive vertices with many edges among
//! each other, is partitioned into connected pieces of about `size` vertices.
//!
//! ```text
//! for every run, and every connected component of it:
//!     order the vertices by their distance from a pseudo-peripheral vertex
//!     repeat: start a piece at the first vertex without one, and add vertices without one, nearest first,
//!             until the piece has about `size` vertices
//!     a piece that cannot grow to size / 4 joins the piece to which most matrix entries connect it
//! a component that is a small piece by itself joins a piece of another run
//! ```
//!
//! Runs are partitioned independently of each other. One thread processes a run, in two passes over its
//! entries, and its data fits in the first-level caches.

use super::aggregate::{NONE, Tally};
use super::graph::Graph;
use krysp_kernels::cpu::run::threads::map_rows;
use rayon::prelude::*;
use std::ops::Range;

/// A piece of fewer than `size / SMALL` vertices joins another. Guess.
const SMALL: usize = 4;

/// Partitions a graph, ordered in runs of `run_length` vertices, into about `count` pieces of equal sizes.
/// Returns the number of pieces and the piece of each vertex.
pub(super) fn pieces<G: Graph>(graph: &G, run_length: usize, count: usize) -> (usize, Vec<u32>) {
    let vertices = graph.vertices();
    let size = vertices.div_ceil(count.max(1)).max(1);
    // For pieces larger than a run, several consecutive runs are taken as one; their union is compact too.
    let length = run_length.max(1) * ((size + run_length / 2) / run_length.max(1)).max(1);
    let runs = (0..vertices.div_ceil(length)).into_par_iter();
    let cut: Vec<Run<'_, G>> =
        runs.map(|k| Run::cut(graph, k * length..vertices.min((k + 1) * length), size)).collect();
    let mut firsts = vec![0u32];
    firsts.extend(cut.iter().scan(0, |sum, run| {
        *sum += run.sizes.len() as u32;
        Some(*sum)
    }));
    let labels = map_rows(vertices, 2, &|v| firsts[v / length] + cut[v / length].labels[v % length]);
    let sizes: Vec<usize> = cut.iter().flat_map(|run| &run.sizes).copied().collect();
    let joined = joined(graph, &labels, &sizes, size);
    // assign consecutive numbers to the pieces that did not join another
    let mut number = vec![NONE; sizes.len()];
    let mut remaining = 0;
    for (piece, number) in number.iter_mut().enumerate() {
        if joined[piece] as usize == piece {
            *number = remaining;
            remaining += 1;
        }
    }
    (remaining as usize, map_rows(vertices, 3, &|v| number[joined[labels[v] as usize] as usize]))
}

/// For each piece, the piece that it becomes part of: itself or, for a small piece, the larger piece to which
/// most matrix entries connect it.
fn joined<G: Graph>(graph: &G, labels: &[u32], sizes: &[usize], size: usize) -> Vec<u32> {
    let is_small = |piece: u32| sizes[piece as usize] * SMALL < size;
    let mut tallies: Vec<Option<Box<Tally>>> = sizes.iter().map(|_| None).collect();
    let small = labels.par_iter().enumerate().filter(|&(_, &piece)| is_small(piece));
    for (v, piece) in small.map(|(v, &piece)| (v, piece)).collect::<Vec<_>>() {
        for (other, strength) in graph.edges(v as u32) {
            let to = labels[other as usize];
            if !is_small(to) {
                tallies[piece as usize].get_or_insert_default().add(to, strength);
            }
        }
    }
    let strongest = |piece: usize| {
        let entries = tallies[piece].as_ref()?.entries();
        entries.max_by_key(|&(to, sum)| (sum, std::cmp::Reverse(to))).map(|(to, _)| to)
    };
    (0..sizes.len()).map(|piece| strongest(piece).unwrap_or(piece as u32)).collect()
}

/// A run of vertices and its partition into pieces.
struct Run<'a, G> {
    graph: &'a G,
    vertices: Range<usize>,
    /// The piece of each vertex, counted within the run.
    labels: Vec<u32>,
    /// Number of vertices of each piece.
    sizes: Vec<usize>,
}

impl<'a, G: Graph> Run<'a, G> {
    fn cut(graph: &'a G, vertices: Range<usize>, size: usize) -> Self {
        let mut run = Run { graph, labels: vec![NONE; vertices.len()], vertices, sizes: vec![] };
        // 0: not visited; 1: in a known component; 2: also reached by the search from the component's last
        // vertex
        let mut seen = vec![0u8; run.labels.len()];
        let (mut component, mut order) = (vec![], vec![]);
        for start in 0..seen.len() {
            if seen[start] == 0 {
                run.around(start, usize::MAX, &mut component, |v| std::mem::replace(&mut seen[v], 1) == 0);
                if 2 * component.len() < 3 * size {
                    // the whole component is one piece
                    component.iter().for_each(|&v| run.labels[v as usize] = run.sizes.len() as u32);
                    run.sizes.push(component.len());
                    continue;
                }
                let far = component.last().map_or(start, |&last| last as usize);
                run.around(far, usize::MAX, &mut order, |v| std::mem::replace(&mut seen[v], 2) == 1);
                // if the pattern is unsymmetric, the search from `start` may have found vertices that the
                // search from `far` does not reach
                order.extend(component.iter().filter(|&&v| seen[v as usize] == 1));
                let even_size = order.len().div_ceil((order.len() + size / 2).div_euclid(size).max(1));
                run.grow(&order, even_size, &mut component);
            }
        }
        run
    }

    /// A breadth-first search within the run: collects up to `most` vertices from `start` on, nearest first.
    /// Only vertices for which `enters` returns true are collected; `enters` marks them, so that each is
    /// collected once.
    fn around(&self, start: usize, most: usize, found: &mut Vec<u32>, mut enters: impl FnMut(usize) -> bool) {
        found.clear();
        if enters(start) {
            found.push(start as u32);
        }
        let mut at = 0;
        while let Some(&v) = found.get(at) {
            for &other in self.graph.neighbours((self.vertices.start + v as usize) as u32) {
                let other = other as usize;
                if found.len() < most && self.vertices.contains(&other) && enters(other - self.vertices.start)
                {
                    found.push((other - self.vertices.start) as u32);
                }
            }
            at += 1;
        }
    }

    /// Partitions a component into pieces of about `size` vertices. Each piece starts at the first vertex of
    /// `order` that has no piece yet. `piece` is workspace.
    fn grow(&mut self, order: &[u32], size: usize, piece: &mut Vec<u32>) {
        for &start in order {
            if self.labels[start as usize] != NONE {
                continue;
            }
            let mut labels = std::mem::take(&mut self.labels);
            let label = self.sizes.len() as u32;
            self.around(start as usize, size, piece, |v| {
                let free = labels[v] == NONE;
                if free {
                    labels[v] = label;
                }
                free
            });
            self.labels = labels;
            let into = if piece.len() * SMALL < size { self.strongest(piece, label) } else { None };
            match into {
                Some(into) => {
                    piece.iter().for_each(|&v| self.labels[v as usize] = into);
                    self.sizes[into as usize] += piece.len();
                }
                None => self.sizes.push(piece.len()),
            }
        }
    }

    /// The other piece of this run to which most matrix entries connect the piece `label`; the first of
    /// several with equally many.
    fn strongest(&self, piece: &[u32], label: u32) -> Option<u32> {
        let mut tally = Tally::default();
        for &v in piece {
            for (other, strength) in self.graph.edges((self.vertices.start + v as usize) as u32) {
                if self.vertices.contains(&(other as usize)) {
                    let to = self.labels[other as usize - self.vertices.start];
                    if to != label && to != NONE {
                        tally.add(to, strength);
                    }
                }
            }
        }
        tally.entries().max_by_key(|&(to, sum)| (sum, std::cmp::Reverse(to))).map(|(to, _)| to)
    }
}
