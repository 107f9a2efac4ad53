//! Refines a partition of the vertices into runs (ranges of the order) by trades: two vertices of different
//! runs are swapped if that increases the number of edges within runs.
//!
//! ```text
//! repeat for a few rounds:
//!     each vertex proposes a move to the other run that holds most of its neighbours
//!     drop a move if its gain plus that of the best move in the opposite direction is not positive
//!     drop the move of a vertex with a neighbour whose own move gains more
//!     for every two runs, best moves first: pair a move with one in the opposite direction, and swap both vertices
//! ```
//!
//! A trade does not change the lengths of runs. The gain of a move, the increase of the number of edges
//! within runs, is exact, because no two neighbours move in one round.

use super::aggregate::{Tally, scrambled};
use super::graph::Graph;
use crate::formats::pattern::cut;
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_kernels::interrupt;
use rayon::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// The move that a vertex proposes: the run that it would move to, and the increase of the number of edges
/// within runs.
#[derive(Clone, Copy)]
struct Proposal {
    run: u32,
    gain: i32,
}

/// Gain of a vertex that proposes no move.
const STAYS: i32 = i32::MIN;

/// A vertex also proposes moves with a gain down to `-MOST_LOSS`, because the vertex with which it is swapped may
/// gain more. Guess.
const MOST_LOSS: i32 = 1;

/// Minimum number of moves for one task. Guess, chosen as some microseconds of work.
const MOVES_PER_TASK: usize = 256;

/// A proposed move of a vertex between two runs; carried out only when paired with a move in the opposite
/// direction. Moves are sorted by their two runs, then by direction, then by cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Move {
    low_run: u32,
    high_run: u32,
    /// True if the move leads from the high run to the low one.
    down: bool,
    /// The negative gain, so that the best moves come first.
    cost: i32,
    vertex: u32,
}

/// Trades vertices between runs for at most `rounds` rounds. Run `k` is `order[starts[k]..starts[k + 1]]`;
/// the last run ends with the order.
///
/// The result does not depend on the number of threads: what threads write in one pass is read in the next
/// pass only.
pub(super) fn trade_vertices<G: Graph>(graph: &G, order: &mut [u32], starts: &[usize], rounds: u32) {
    let vertices = order.len();
    let run_of: Vec<AtomicU32> = (0..vertices).into_par_iter().map(|_| AtomicU32::new(0)).collect();
    each_run(order, starts, |run, members| {
        members.iter().for_each(|&v| run_of[v as usize].store(run, Relaxed));
    });
    // whether the vertex or a neighbour has moved since the vertex made its proposal
    let outdated: Vec<AtomicBool> = (0..vertices).into_par_iter().map(|_| AtomicBool::new(true)).collect();
    let stays = Proposal { run: 0, gain: STAYS };
    let mut proposals: Vec<Proposal> = (0..vertices).into_par_iter().map(|_| stays).collect();
    let candidates: Vec<AtomicBool> = (0..vertices).into_par_iter().map(|_| AtomicBool::new(false)).collect();
    for round in 0..rounds {
        over_rows(vertices, 8, proposals.as_mut_slice(), &|range, proposals: &mut [Proposal]| {
            let mut tally = Tally::default();
            for (v, proposal) in range.zip(proposals) {
                if outdated[v].load(Relaxed) {
                    outdated[v].store(false, Relaxed);
                    *proposal = best_move(graph, v as u32, &run_of, &mut tally);
                }
            }
        });
        let trades = select_trades(graph, &proposals, &run_of, &candidates, round);
        if trades.is_empty() || interrupt::is_raised() {
            break;
        }
        trades.par_iter().with_min_len(MOVES_PER_TASK).for_each(|&(a, b)| {
            let (run_of_a, run_of_b) = (&run_of[a as usize], &run_of[b as usize]);
            let run = run_of_a.load(Relaxed);
            run_of_a.store(run_of_b.load(Relaxed), Relaxed);
            run_of_b.store(run, Relaxed);
            for v in [a, b] {
                outdated[v as usize].store(true, Relaxed);
                graph.neighbours(v).iter().for_each(|&other| outdated[other as usize].store(true, Relaxed));
            }
        });
    }
    reorder(order, starts, &run_of);
}

/// Calls `visit(run, members)` for every run.
fn each_run(order: &mut [u32], starts: &[usize], visit: impl Fn(u32, &mut [u32]) + Sync) {
    let ends = starts.iter().skip(1).copied().chain([order.len()]);
    let lengths: Vec<usize> = starts.iter().zip(ends).map(|(&start, end)| end - start).collect();
    let runs = cut(order, &lengths).into_par_iter().enumerate();
    runs.for_each(|(run, members)| visit(run as u32, members));
}

/// Updates the order: in each run, vertices that moved in take the positions of those that moved out.
fn reorder(order: &mut [u32], starts: &[usize], run_of: &[AtomicU32]) {
    let run_of = |v: u32| run_of[v as usize].load(Relaxed);
    let run_at = |place: usize| starts.partition_point(|&start| start <= place) as u32 - 1;
    let has_moved = |&(place, &v): &(usize, &u32)| run_of(v) != run_at(place);
    let moved = order.par_iter().enumerate().filter(has_moved);
    let mut moved: Vec<(u32, u32)> = moved.map(|(_, &v)| (run_of(v), v)).collect();
    moved.par_sort_unstable();
    each_run(order, starts, |run, members| {
        let moved_in = &moved[moved.partition_point(|&(to, _)| to < run)..];
        let moved_out = members.iter_mut().filter(|v| run_of(**v) != run);
        moved_out.zip(moved_in).for_each(|(place, &(_, v))| *place = v);
    });
}

/// The pairs of vertices that swap their runs in this round. `candidates` is workspace, false before and
/// after.
fn select_trades<G: Graph>(
    graph: &G,
    proposals: &[Proposal],
    run_of: &[AtomicU32],
    candidates: &[AtomicBool],
    round: u32,
) -> Vec<(u32, u32)> {
    let as_move = |(v, proposal): (usize, &Proposal)| -> Move {
        let (from, Proposal { run: to, gain }) = (run_of[v].load(Relaxed), *proposal);
        Move { low_run: from.min(to), high_run: from.max(to), down: from > to, cost: -gain, vertex: v as u32 }
    };
    let proposed = proposals.par_iter().enumerate().filter(|(_, proposal)| proposal.gain != STAYS);
    let mut moves: Vec<Move> = proposed.map(as_move).collect();
    moves.par_sort_unstable();
    // keep a move only if it is profitable together with the best move in the opposite direction
    let moves: Vec<Move> = between_two_runs(&moves)
        .flat_map_iter(|(up, down)| {
            let profitable = |moves: &[Move], opposite: &[Move]| {
                opposite.first().map_or(0, |best| moves.partition_point(|m| m.cost + best.cost < 0))
            };
            let (ups, downs) = (profitable(up, down), profitable(down, up));
            up[..ups].iter().chain(&down[..downs]).copied()
        })
        .collect();
    let mark_candidates = |is: bool| {
        let moves = moves.par_iter().with_min_len(MOVES_PER_TASK);
        moves.for_each(|m| candidates[m.vertex as usize].store(is, Relaxed));
    };
    mark_candidates(true);
    // of two neighbours with equal gains, the one with the larger hash moves; hashes differ from round to
    // round
    let draw = |v: u32| scrambled(v ^ scrambled(round));
    let gains_most_around = |&&Move { cost, vertex: v, .. }: &&Move| {
        let gains_less = |other: u32| {
            let other_cost = -proposals[other as usize].gain;
            other_cost > cost || other_cost == cost && draw(other) < draw(v)
        };
        graph.edges(v).all(|(other, _)| !candidates[other as usize].load(Relaxed) || gains_less(other))
    };
    let independent = moves.par_iter().with_min_len(MOVES_PER_TASK).filter(gains_most_around);
    let independent: Vec<Move> = independent.copied().collect();
    mark_candidates(false);
    let pairs = between_two_runs(&independent).flat_map_iter(|(up, down)| {
        let pairs = up.iter().zip(down).take_while(|(a, b)| a.cost + b.cost < 0);
        pairs.map(|(a, b)| (a.vertex, b.vertex))
    });
    pairs.collect()
}

/// Groups sorted moves by their two runs: for each group, the moves from the low run to the high one, and
/// those in the opposite direction.
fn between_two_runs(moves: &[Move]) -> impl ParallelIterator<Item = (&[Move], &[Move])> {
    let groups = moves.par_chunk_by(|a, b| (a.low_run, a.high_run) == (b.low_run, b.high_run));
    groups.map(|group| group.split_at(group.partition_point(|m| !m.down)))
}

/// The move with the largest gain, if that is at least `-MOST_LOSS`.
fn best_move<G: Graph>(graph: &G, vertex: u32, run_of: &[AtomicU32], tally: &mut Tally) -> Proposal {
    let run_of = |v: u32| run_of[v as usize].load(Relaxed);
    let own = run_of(vertex);
    let mut within_own = 0;
    tally.clear();
    graph.look_up(vertex, run_of, |run, strength| {
        if run == own {
            within_own += strength as i32;
        } else {
            tally.add(run, strength);
        }
    });
    let best = tally.entries().max_by_key(|&(run, sum)| (sum, run));
    let best = best.map(|(run, sum)| Proposal { run, gain: sum as i32 - within_own });
    best.filter(|best| best.gain >= -MOST_LOSS).unwrap_or(Proposal { run: own, gain: STAYS })
}
