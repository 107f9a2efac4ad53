//! METIS's bisections (Karypis and Kumar 1998) in place of this crate's own, to compare with.
//!
//! ```text
//! bisect all vertices by METIS, at whole runs; both halves likewise
//! vertices change places between neighbouring runs (`exchange`)
//! ```
//!
//! The parts that METIS finds at once differ a little in size, and runs of equally many rows would cross them: halves are
//! asked for one after the other, and balanced before the next.

use super::Numbering;
use super::bisect::Part;
use super::clustered::refined;
use super::graph::{Coarse, Graph, Pattern};
use crate::{Csr, Real, Result};
use krysp_kernels::index::Offsets;
use metis::option::{Seed, UFactor};
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// METIS draws from one generator, seeded in each call: one call at a time makes results repeatable.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Numbering {
    /// As [`Numbering::clustered`], by METIS (feature `metis`): on one thread, many times slower, and halos of much the
    /// same size. Where METIS gives up, for want of memory, the bisection of this crate takes over.
    pub fn metis<T: Real>(a: &Csr<T>, rows_per_block: usize) -> Result<Numbering> {
        Numbering::in_runs(a, rows_per_block, |offsets, columns, run| {
            Ok(line(&Pattern::new(offsets, columns), run))
        })
    }
}

fn line(graph: &Pattern<'_>, run: usize) -> Vec<u32> {
    let (run, whole) = (run.max(1), symmetric(graph));
    let vertices: Vec<u32> = (0..graph.vertices() as u32).collect();
    let mut order = vertices.clone();
    let bisected = |part: &Part, target: f64| by_metis(part, target).unwrap_or_else(|| part.bisected(target));
    Part::new(&whole, &vertices, 0, &vertices).lay_out_by(&bisected, 0.0, run as f64, &mut order);
    refined(graph, order, run)
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

/// Who is in the second half.
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
    // the first half may have a thousandth too much, and the seed is no clock
    let graph = graph.set_tpwgts(&shares).set_option(UFactor(1)).set_option(Seed(1));
    graph.part_recursive(&mut sides).ok()?;
    let second: Vec<bool> = sides.into_iter().map(|side| side == 1).collect();
    // equal halves may stand in either order
    let turned = (2.0 * share - 1.0).abs() < 1e-3 && !part.belongs_behind(&second);
    Some(second.into_iter().map(|second| second != turned).collect())
}
