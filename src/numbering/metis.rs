//! Bisections by METIS (Karypis and Kumar 1998) in place of this crate's own, for comparison.
//!
//! ```text
//! bisect all vertices by METIS, at a multiple of a run's length; bisect both halves in the same way
//! trade vertices between runs (`trades`)
//! ```
//!
//! METIS's partition into many parts at once is of no use here: its parts differ a little in size, so runs of equal
//! length would cross them. Bisections are made one at a time, and each is balanced before the next.

use super::Numbering;
use super::bisect::Part;
use super::clustered::refined;
use super::graph::{Coarse, Graph, Pattern};
use crate::{Csr, Real, Result};
use krysp_kernels::index::Offsets;
use metis::option::{Seed, UFactor};
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// METIS has one global random generator and seeds it in each call. One call at a time keeps results reproducible.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Numbering {
    /// Finds a numbering like [`Numbering::clustered`] by METIS (feature `metis`): on one thread, many times slower,
    /// with halos of about the same size. Where METIS runs out of memory, the bisection of this crate takes over.
    pub fn metis<T: Real>(a: &Csr<T>, rows_per_block: usize) -> Result<Numbering> {
        Numbering::in_runs(a, rows_per_block, |offsets, columns, run_length| {
            Ok(line(&Pattern::new(offsets, columns), run_length))
        })
    }
}

fn line(graph: &Pattern<'_>, run_length: usize) -> Vec<u32> {
    let (run_length, whole) = (run_length.max(1), symmetric(graph));
    let vertices: Vec<u32> = (0..graph.vertices() as u32).collect();
    let mut order = vertices.clone();
    let bisected = |part: &Part, target: f64| by_metis(part, target).unwrap_or_else(|| part.bisected(target));
    Part::new(&whole, &vertices, 0, &vertices).lay_out_by(&bisected, 0.0, run_length as f64, &mut order);
    refined(graph, order, run_length)
}

/// The graph with every edge in both directions, as METIS wants it.
fn symmetric(graph: &Pattern<'_>) -> Coarse {
    let vertices = graph.vertices();
    let both = |v: u32| graph.edges(v).flat_map(move |(other, _)| [(v, other), (other, v)]);
    let mut edges: Vec<(u32, u32)> = (0..vertices as u32).into_par_iter().flat_map_iter(both).collect();
    edges.par_sort_unstable();
    edges.dedup();
    let mut degrees = vec![0; vertices];
    edges.iter().for_each(|&(v, _)| degrees[v as usize] += 1);
    Coarse {
        offsets: Offsets::from_lengths(degrees),
        strengths: vec![1; edges.len()],
        neighbours: edges.into_iter().map(|(_, other)| other).collect(),
        weights: vec![1; vertices],
    }
}

/// Bisects a part so that the first half has about the weight `target`. Returns whether each vertex is in the second
/// half.
fn by_metis(part: &Part, target: f64) -> Option<Vec<bool>> {
    let narrow = |number: usize| i32::try_from(number).ok();
    let (mut starts, mut others) = (vec![0], vec![]);
    for v in 0..part.len() {
        others.extend(part.edges(v).iter().map(|&(other, _)| other as i32));
        starts.push(narrow(others.len())?);
    }
    let weights: Vec<i32> = part.weights().iter().map(|&weight| weight as i32).collect();
    let share = (target / part.weight()) as f32;
    let mut sides = vec![0; part.len()];
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let graph = metis::Graph::new(1, 2, &starts, &others).ok()?.set_vwgt(&weights);
    let shares = [share, 1.0 - share];
    // METIS may exceed the target by a thousandth; a fixed seed keeps the result reproducible
    let graph = graph.set_tpwgts(&shares).set_option(UFactor(1)).set_option(Seed(1));
    graph.part_recursive(&mut sides).ok()?;
    let second: Vec<bool> = sides.into_iter().map(|side| side == 1).collect();
    // halves of equal weight are put in the better order
    let swapped = (2.0 * share - 1.0).abs() < 1e-3 && !part.belongs_after(&second);
    Some(second.into_iter().map(|second| second != swapped).collect())
}
