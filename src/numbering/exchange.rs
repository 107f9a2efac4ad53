//! Refinement of equal runs: vertices of neighbouring runs that would rather be with each other's change places.
//!
//! ```text
//! each vertex: the other run that holds most of its neighbours, and what moving there would save
//! of those whose moves the best in return pays for, and whose neighbours wish less to move:
//!     for each two runs, the best of both sides change places
//! ```
//!
//! No run grows or shrinks, and what a move saves is exact, as no neighbour moves with it.

use super::aggregate::{Tally, scrambled};
use super::graph::Graph;
use crate::formats::pattern::cut;
use krysp_kernels::cpu::run::threads::over_rows;
use rayon::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// The wish of a vertex: to which run, and what that would save.
#[derive(Clone, Copy)]
struct Wish {
    run: u32,
    saves: i32,
}

/// No wish.
const CONTENT: i32 = i32::MIN;

/// A vertex may lose so many edges if another gains more for it.
const SACRIFICE: i32 = 1;

/// Moves that are worth a task.
const MOVES: usize = 256;

/// A proposed move of a vertex between two runs; done only when paired with one in the opposite direction. Moves are sorted by
/// their runs, then by direction, then by what they cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Move {
    low_run: u32,
    high_run: u32,
    /// Whether it leads from the high run to the low one.
    down: bool,
    cost: i32,
    vertex: u32,
}

/// Rounds over an order cut into runs that begin at these places, the last ending with the order.
///
/// What threads write in one step of a round they read in the next: nothing depends on which of them is first.
pub(super) fn exchange<G: Graph>(graph: &G, order: &mut [u32], starts: &[usize], rounds: u32) {
    let vertices = order.len();
    let run_of: Vec<AtomicU32> = (0..vertices).into_par_iter().map(|_| AtomicU32::new(0)).collect();
    each_run(order, starts, |run, members| {
        members.iter().for_each(|&v| run_of[v as usize].store(run, Relaxed));
    });
    let changed: Vec<AtomicBool> = (0..vertices).into_par_iter().map(|_| AtomicBool::new(true)).collect();
    let content = Wish { run: 0, saves: CONTENT };
    let mut wishes: Vec<Wish> = (0..vertices).into_par_iter().map(|_| content).collect();
    let hopes: Vec<AtomicBool> = (0..vertices).into_par_iter().map(|_| AtomicBool::new(false)).collect();
    for round in 0..rounds {
        over_rows(vertices, 8, wishes.as_mut_slice(), &|range, wishes: &mut [Wish]| {
            let mut tally = Tally::default();
            for (v, to) in range.zip(wishes) {
                if changed[v].load(Relaxed) {
                    changed[v].store(false, Relaxed);
                    *to = wish(graph, v as u32, &run_of, &mut tally);
                }
            }
        });
        let granted = granted(graph, &wishes, &run_of, &hopes, round);
        if granted.is_empty() {
            break;
        }
        granted.par_iter().with_min_len(MOVES).for_each(|&(a, b)| {
            let (of_a, of_b) = (&run_of[a as usize], &run_of[b as usize]);
            let run = of_a.load(Relaxed);
            of_a.store(of_b.load(Relaxed), Relaxed);
            of_b.store(run, Relaxed);
            for v in [a, b] {
                changed[v as usize].store(true, Relaxed);
                graph.neighbours(v).iter().for_each(|&other| changed[other as usize].store(true, Relaxed));
            }
        });
    }
    settle(order, starts, &run_of);
}

/// Visits the members of every run.
fn each_run(order: &mut [u32], starts: &[usize], visit: impl Fn(u32, &mut [u32]) + Sync) {
    let ends = starts.iter().skip(1).copied().chain([order.len()]);
    let lengths: Vec<usize> = starts.iter().zip(ends).map(|(&start, end)| end - start).collect();
    let runs = cut(order, &lengths).into_par_iter().enumerate();
    runs.for_each(|(run, members)| visit(run as u32, members));
}

/// Puts the vertices that came into a run in the places of those that left it.
fn settle(order: &mut [u32], starts: &[usize], run_of: &[AtomicU32]) {
    let run_of = |v: u32| run_of[v as usize].load(Relaxed);
    let run_at = |place: usize| starts.partition_point(|&start| start <= place) as u32 - 1;
    let moved = |&(place, &v): &(usize, &u32)| run_of(v) != run_at(place);
    let moves = order.par_iter().enumerate().filter(moved);
    let mut moves: Vec<(u32, u32)> = moves.map(|(_, &v)| (run_of(v), v)).collect();
    moves.par_sort_unstable();
    each_run(order, starts, |run, members| {
        let came = &moves[moves.partition_point(|&(to, _)| to < run)..];
        let left = members.iter_mut().filter(|v| run_of(**v) != run);
        left.zip(came).for_each(|(place, &(_, v))| *place = v);
    });
}

/// Who changes places with whom. `hopes` are false, before and after.
fn granted<G: Graph>(
    graph: &G,
    wishes: &[Wish],
    run_of: &[AtomicU32],
    hopes: &[AtomicBool],
    round: u32,
) -> Vec<(u32, u32)> {
    let as_move = |(v, wish): (usize, &Wish)| -> Move {
        let (from, Wish { run: to, saves }) = (run_of[v].load(Relaxed), *wish);
        Move {
            low_run: from.min(to),
            high_run: from.max(to),
            down: from > to,
            cost: -saves,
            vertex: v as u32,
        }
    };
    let wanted = wishes.par_iter().enumerate().filter(|(_, wish)| wish.saves != CONTENT);
    let mut moves: Vec<Move> = wanted.map(as_move).collect();
    moves.par_sort_unstable();
    // a move that the best in return does not pay for has no hope
    let moves: Vec<Move> = between_two_runs(&moves)
        .flat_map_iter(|(there, back)| {
            let paid = |moves: &[Move], in_return: &[Move]| {
                in_return
                    .first()
                    .map_or(0, |best| moves.partition_point(|wanted| wanted.cost + best.cost < 0))
            };
            let (some, others) = (paid(there, back), paid(back, there));
            there[..some].iter().chain(&back[..others]).copied()
        })
        .collect();
    let hope = |is: bool| {
        moves.par_iter().with_min_len(MOVES).for_each(|m| hopes[m.vertex as usize].store(is, Relaxed))
    };
    hope(true);
    // among equals another vertex each round
    let draw = |v: u32| scrambled(v ^ scrambled(round));
    let wants_most = |&&Move { cost, vertex: v, .. }: &&Move| {
        let yields = |other: u32| {
            let others = -wishes[other as usize].saves;
            others > cost || others == cost && draw(other) < draw(v)
        };
        graph.edges(v).all(|(other, _)| !hopes[other as usize].load(Relaxed) || yields(other))
    };
    let apart: Vec<Move> = moves.par_iter().with_min_len(MOVES).filter(wants_most).copied().collect();
    hope(false);
    let pairs = between_two_runs(&apart).flat_map_iter(|(there, back)| {
        let pairs = there.iter().zip(back).take_while(|(a, b)| a.cost + b.cost < 0);
        pairs.map(|(a, b)| (a.vertex, b.vertex))
    });
    pairs.collect()
}

/// Sorted moves between each two runs, there and back.
fn between_two_runs(moves: &[Move]) -> impl ParallelIterator<Item = (&[Move], &[Move])> {
    let between = moves.par_chunk_by(|a, b| (a.low_run, a.high_run) == (b.low_run, b.high_run));
    between.map(|between| between.split_at(between.partition_point(|wanted| !wanted.down)))
}

/// Where a vertex would rather be.
fn wish<G: Graph>(graph: &G, vertex: u32, run_of: &[AtomicU32], tally: &mut Tally) -> Wish {
    let run_of = |v: u32| run_of[v as usize].load(Relaxed);
    let own = run_of(vertex);
    let mut stays = 0;
    tally.clear();
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
