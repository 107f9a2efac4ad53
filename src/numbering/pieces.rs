//! Runs of a clustered numbering, cut into connected pieces.
//!
//! ```text
//! for every run and every connected part of it:
//!     the vertices in the order of their distances from one that is far off
//!     from the first that has no piece yet: those around it without one, nearest first, until there are enough
//!     what got stuck much too early joins the piece that most of its entries lead to
//! small pieces left, parts of a run by themselves: join one of another run
//! ```
//!
//! Runs are compact and look at their own vertices: each is cut by one thread within its first caches, in two passes over
//! its entries.

use super::aggregate::{NONE, Tally};
use super::graph::Graph;
use krysp_kernels::cpu::run::threads::map_rows;
use rayon::prelude::*;
use std::ops::Range;

/// Pieces smaller than this share of the usual size join another.
const SMALL: usize = 4;

/// The piece of each vertex, and how many there are: about `count`, of equal sizes.
pub(super) fn pieces<G: Graph>(graph: &G, run: usize, count: usize) -> (usize, Vec<u32>) {
    let vertices = graph.vertices();
    let size = vertices.div_ceil(count.max(1)).max(1);
    // larger pieces are cut from some runs at once: these are compact too
    let run = run.max(1) * ((size + run / 2) / run.max(1)).max(1);
    let runs = (0..vertices.div_ceil(run)).into_par_iter();
    let cut: Vec<Run<'_, G>> =
        runs.map(|k| Run::cut(graph, k * run..vertices.min((k + 1) * run), size)).collect();
    let mut firsts = vec![0u32];
    firsts.extend(cut.iter().scan(0, |sum, run| {
        *sum += run.sizes.len() as u32;
        Some(*sum)
    }));
    let labels = map_rows(vertices, 2, &|v| firsts[v / run] + cut[v / run].labels[v % run]);
    let sizes: Vec<usize> = cut.iter().flat_map(|run| &run.sizes).copied().collect();
    let joined = joined(graph, &labels, &sizes, size);
    // those that stay are numbered anew
    let mut number = vec![NONE; sizes.len()];
    let mut stay = 0;
    for (piece, number) in number.iter_mut().enumerate() {
        if joined[piece] as usize == piece {
            *number = stay;
            stay += 1;
        }
    }
    (stay as usize, map_rows(vertices, 3, &|v| number[joined[labels[v] as usize] as usize]))
}

/// The piece that each becomes part of: itself, or for a small one that which most of its entries lead to.
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

/// A run of vertices, and the pieces it is cut into.
struct Run<'a, G> {
    graph: &'a G,
    vertices: Range<usize>,
    labels: Vec<u32>,
    sizes: Vec<usize>,
}

impl<'a, G: Graph> Run<'a, G> {
    fn cut(graph: &'a G, vertices: Range<usize>, size: usize) -> Self {
        let mut run = Run { graph, labels: vec![NONE; vertices.len()], vertices, sizes: vec![] };
        let mut seen = vec![0u8; run.labels.len()];
        let (mut part, mut order) = (vec![], vec![]);
        for start in 0..seen.len() {
            if seen[start] == 0 {
                run.around(start, usize::MAX, &mut part, |v| std::mem::replace(&mut seen[v], 1) == 0);
                if 2 * part.len() < 3 * size {
                    // one piece: where it begins does not matter
                    part.iter().for_each(|&v| run.labels[v as usize] = run.sizes.len() as u32);
                    run.sizes.push(part.len());
                    continue;
                }
                let far = part.last().map_or(start, |&last| last as usize);
                run.around(far, usize::MAX, &mut order, |v| std::mem::replace(&mut seen[v], 2) == 1);
                let even = order.len().div_ceil((order.len() + size / 2).div_euclid(size).max(1));
                run.grow(&order, even, &mut part);
            }
        }
        run
    }

    /// A vertex and others that are connected to it, nearest first, at most so many: those for which `enters` is true, which
    /// is asked until it has been.
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

    /// Cuts a connected part into pieces of about a size.
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

    /// The other piece of this run that most of a piece's entries lead to, the first of equals.
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
