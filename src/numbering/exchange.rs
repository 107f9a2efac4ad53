//! Refinement of equal runs: vertices of neighbouring runs that would rather be with each other's change places.
//!
//! ```text
//! each vertex: the other run that holds most of its neighbours, and what moving there would save
//! of those that wish to move and whose neighbours wish it less: for each two runs, the best of both sides change places
//! ```
//!
//! No run grows or shrinks, and what a move saves is exact, as no neighbour moves with it.

use super::aggregate::{Tally, scrambled};
use super::graph::Graph;
use super::inverse;
use krysp_kernels::cpu::threads::map_rows;
use rayon::prelude::*;

/// The wish of a vertex: to which run, and what that would save.
#[derive(Clone, Copy, Default)]
struct Wish {
    run: u32,
    saves: i32,
}

/// No wish.
const CONTENT: i32 = i32::MIN;

/// A vertex may lose so many edges if another gains more for it.
const SACRIFICE: i32 = 1;

/// A wish granted unless nobody comes in return: two runs, whether from the first to the second, what it costs, who.
type Move = (u32, u32, bool, i32, u32);

/// Rounds over an order cut into runs that begin at these places, the last ending with the order.
pub(super) fn exchange<G: Graph>(graph: &G, order: &mut [u32], starts: &[usize], rounds: u32) {
    let vertices = order.len();
    let mut place = inverse(order);
    let mut run_at = vec![0; vertices];
    for (run, &start) in starts.iter().enumerate() {
        let end = starts.get(run + 1).copied().unwrap_or(vertices);
        run_at[start..end].fill(run as u32);
    }
    let mut run_of = map_rows(vertices, 3, &|v| run_at[place[v] as usize]);
    let mut wishes = vec![Wish::default(); vertices];
    let mut changed = vec![true; vertices];
    for round in 0..rounds {
        wishes = map_rows(vertices, 8, &|v| {
            if changed[v] { wish(graph, v as u32, &run_of) } else { wishes[v] }
        });
        let granted = granted(graph, &wishes, &run_of, round);
        if granted.is_empty() {
            break;
        }
        changed.fill(false);
        for &(a, b) in &granted {
            let (at_a, at_b) = (place[a as usize], place[b as usize]);
            order.swap(at_a as usize, at_b as usize);
            (place[a as usize], place[b as usize]) = (at_b, at_a);
            run_of.swap(a as usize, b as usize);
            for v in [a, b] {
                changed[v as usize] = true;
                graph.neighbours(v).iter().for_each(|&other| changed[other as usize] = true);
            }
        }
    }
}

/// Who changes places with whom.
fn granted<G: Graph>(graph: &G, wishes: &[Wish], run_of: &[u32], round: u32) -> Vec<(u32, u32)> {
    // among equals another vertex each round
    let rank = |v: u32| (wishes[v as usize].saves, scrambled(v ^ scrambled(round)));
    let wants_most = |&v: &u32| {
        wishes[v as usize].saves != CONTENT && graph.edges(v).all(|(other, _)| rank(other) < rank(v))
    };
    let as_move = |v: u32| -> Move {
        let (from, Wish { run: to, saves }) = (run_of[v as usize], wishes[v as usize]);
        (from.min(to), from.max(to), from > to, -saves, v)
    };
    let mut moves: Vec<Move> =
        (0..wishes.len() as u32).into_par_iter().filter(wants_most).map(as_move).collect();
    moves.par_sort_unstable();
    let mut granted = vec![];
    for between in moves.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (there, back) = between.split_at(between.partition_point(|wanted| !wanted.2));
        let pairs = there.iter().zip(back).take_while(|(a, b)| a.3 + b.3 < 0);
        granted.extend(pairs.map(|(a, b)| (a.4, b.4)));
    }
    granted
}

/// Where a vertex would rather be.
fn wish<G: Graph>(graph: &G, vertex: u32, run_of: &[u32]) -> Wish {
    let own = run_of[vertex as usize];
    let (mut tally, mut stays) = (Tally::default(), 0);
    graph.look_up(vertex, run_of, |run, strength| {
        if run == own {
            stays += strength as i32;
        } else {
            tally.add(run, strength);
        }
    });
    let best = tally.entries().max_by_key(|&(run, sum)| (sum, run));
    let wish = best.map(|(run, sum)| Wish { run, saves: sum as i32 - stays });
    wish.filter(|wish| wish.saves >= -SACRIFICE).unwrap_or(Wish { run: own, saves: CONTENT })
}
