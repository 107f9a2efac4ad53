//! Orders the vertices of a graph by recursive bisection, so that few edges leave a range of consecutive
//! vertices (a *run*). The vertices in this order are called the *line*.
//!
//! ```text
//! s, t: roughly the most distant two vertices;     x = distance from s - distance from t
//! u, v: a vertex far from both, and one far from u;  y = distance from u - distance from v
//! smooth both a few times: x ← (x + mean of the neighbours' x) / 2
//! cut across x, y, x + y and x - y at the weighted median, rounded to the end of a run; take the cut with fewest edges
//! refine it by the method of Fiduccia and Mattheyses (1982)
//! the half with stronger edges to earlier vertices of the line goes first
//! bisect both halves in the same way
//! ```

use super::graph::Graph;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of times that the coordinates are smoothed. Guess.
const SMOOTHING: usize = 2;

/// The directions, in both coordinates, across which cuts are tried.
const DIRECTIONS: [[f32; 2]; 4] = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]];

/// Maximum number of refinement passes. Guess.
const PASSES: usize = 4;

/// If a half has fewer vertices than this, one thread bisects both halves one after the other. Guess, chosen
/// as some tens of microseconds of work.
const TASK: usize = 256;

/// A part of a graph, with local vertex numbers from 0.
pub(super) struct Part {
    /// Vertex of the whole graph for each local vertex.
    ids: Vec<u32>,
    weights: Vec<u32>,
    /// The first edge of each vertex.
    starts: Vec<u32>,
    /// Neighbours within the part, with the strength of each edge.
    edges: Vec<(u32, u32)>,
    /// For each vertex, the total strength of its edges to vertices after the part in the line, minus that of
    /// its edges to vertices before the part.
    pull: Vec<i32>,
}

impl Part {
    /// The part with the vertices `ids`, which have consecutive positions on the line from `first` on.
    /// `place_of` holds the position of every vertex of the graph.
    pub(super) fn new<G: Graph>(graph: &G, ids: &[u32], first: usize, place_of: &[u32]) -> Part {
        let mut part = Part::with_capacity(ids.len());
        for &id in ids {
            let mut pull = 0;
            for (other, strength) in graph.edges(id) {
                let place = place_of[other as usize] as usize;
                if place < first {
                    pull -= strength as i32;
                } else if place - first < ids.len() {
                    part.edges.push(((place - first) as u32, strength));
                } else if place < place_of.len() {
                    pull += strength as i32;
                }
            }
            part.close(id, graph.weight(id), pull);
        }
        part
    }

    fn with_capacity(vertices: usize) -> Part {
        let mut starts = Vec::with_capacity(vertices + 1);
        starts.push(0);
        Part {
            ids: Vec::with_capacity(vertices),
            weights: Vec::with_capacity(vertices),
            starts,
            edges: vec![],
            pull: Vec::with_capacity(vertices),
        }
    }

    /// Adds a vertex whose edges have just been pushed.
    fn close(&mut self, id: u32, weight: u32, pull: i32) {
        self.ids.push(id);
        self.weights.push(weight);
        self.pull.push(pull);
        self.starts.push(self.edges.len() as u32);
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn edges(&self, vertex: usize) -> &[(u32, u32)] {
        &self.edges[self.starts[vertex] as usize..self.starts[vertex + 1] as usize]
    }

    pub(super) fn weight(&self) -> f64 {
        self.weights.iter().map(|&weight| f64::from(weight)).sum()
    }

    /// Orders the vertices of the part so that few edges leave a run of weight `run`, and writes them to
    /// `order`. `from` is the total weight of the vertices before the part in the line.
    pub(super) fn lay_out(self, from: f64, run: f64, order: &mut [u32]) {
        let Some(target) = target(from, self.weight(), run).filter(|_| self.len() > 1) else {
            order.copy_from_slice(&self.ids);
            return;
        };
        let mut second = self.bisected(target);
        Refinement::new(&self, &mut second, target).run();
        let [a, b] = self.split(&second);
        // a half may be empty if the target is less than the weight of a vertex
        if let Some(all) = [&a, &b].into_iter().find(|half| half.len() == order.len()) {
            order.copy_from_slice(&all.ids);
            return;
        }
        let (to_a, to_b) = order.split_at_mut(a.len());
        let middle = from + a.weight();
        if a.len().min(b.len()) < TASK {
            a.lay_out(from, run, to_a);
            b.lay_out(middle, run, to_b);
        } else {
            rayon::join(|| a.lay_out(from, run, to_a), || b.lay_out(middle, run, to_b));
        }
    }

    /// Cuts the part across each of [`DIRECTIONS`], and chooses the cut with the least total strength of
    /// edges across it. Returns for each vertex whether it is in the second half.
    pub(super) fn bisected(&self, target: f64) -> Vec<bool> {
        let coordinates = self.coordinates();
        let cuts = DIRECTIONS.map(|direction| self.cut(&coordinates, direction, target));
        let across = self.edges_across(&cuts);
        let fewest = cuts.into_iter().zip(across).min_by_key(|(_, across)| *across);
        fewest.map(|(cut, _)| cut).unwrap_or_default()
    }

    /// The total strength of the edges across each cut.
    fn edges_across<const N: usize>(&self, cuts: &[Vec<bool>; N]) -> [u64; N] {
        let sides_of =
            |v: usize| cuts.iter().rev().fold(0u8, |sides, second| sides << 1 | u8::from(second[v]));
        let sides: Vec<u8> = (0..self.len()).map(sides_of).collect();
        let mut across = [0; N];
        for (v, &here) in sides.iter().enumerate() {
            for &(other, strength) in self.edges(v) {
                let differ = here ^ sides[other as usize];
                if differ != 0 {
                    let add = |(cut, sum): (usize, &mut u64)| {
                        *sum += u64::from(strength) * u64::from(differ >> cut & 1)
                    };
                    across.iter_mut().enumerate().for_each(add);
                }
            }
        }
        across
    }

    /// Cuts the part across a direction, so that the first half has about the weight `target`. Returns for
    /// each vertex whether it is in the second half.
    fn cut(&self, at: &[[f32; 2]], [x, y]: [f32; 2], target: f64) -> Vec<bool> {
        // Sort keys: the coordinate along the direction in the upper half, the vertex in the lower half.
        let key = |(v, at): (usize, &[f32; 2])| u64::from(ascending(x * at[0] + y * at[1])) << 32 | v as u64;
        let mut line: Vec<u64> = at.iter().enumerate().map(key).collect();
        let middle = line.len() / 2;
        line.select_nth_unstable(middle);
        let pull =
            |keys: &[u64]| keys.iter().map(|&key| i64::from(self.pull[key as u32 as usize])).sum::<i64>();
        // inverted keys sort in reverse order
        let inverted = if pull(&line[..middle]) > pull(&line[middle..]) { u64::MAX } else { 0 };
        line.iter_mut().for_each(|key| *key ^= inverted);
        let vertex = |key: u64| (key ^ inverted) as u32 as usize;
        let mut second = vec![true; self.len()];
        let weight = |keys: &[u64]| keys.iter().map(|&key| f64::from(self.weights[vertex(key)])).sum::<f64>();
        // bisect the range that contains the target until one vertex is left
        let (mut missing, mut open) = (target, &mut line[..]);
        while open.len() > 1 {
            let middle = open.len() / 2;
            open.select_nth_unstable(middle);
            let (low, high) = open.split_at_mut(middle);
            let weight = weight(low);
            if weight <= missing {
                low.iter().for_each(|&key| second[vertex(key)] = false);
                missing -= weight;
                open = high;
            } else {
                open = low;
            }
        }
        second
    }

    /// Two coordinates for each vertex, differences of distances. Each increases from one end of the part to
    /// the other.
    fn coordinates(&self) -> Vec<[f32; 2]> {
        let (start, _) = self.distances(0);
        let (end, from_start) = self.distances(start);
        let (_, from_end) = self.distances(end);
        // In a box, x runs along one diagonal and y along another, so x + y and x − y run along its sides.
        let nearer = |v: usize| from_start[v].min(from_end[v]);
        let aside = (0..self.len()).max_by_key(|&v| (nearer(v), Reverse(v))).unwrap_or(0);
        let (opposite, from_aside) = self.distances(aside);
        let (_, from_opposite) = self.distances(opposite);
        let difference = |a: &[u32], b: &[u32], v: usize| a[v] as f32 - b[v] as f32;
        let at = |v| [difference(&from_start, &from_end, v), difference(&from_aside, &from_opposite, v)];
        self.smooth((0..self.len()).map(at).collect())
    }

    /// Smooths the coordinates: distances are integers, so that many vertices have equal coordinates.
    fn smooth(&self, mut at: Vec<[f32; 2]>) -> Vec<[f32; 2]> {
        let mut smoother = at.clone();
        for _ in 0..SMOOTHING {
            for (v, to) in smoother.iter_mut().enumerate() {
                let (mut sums, mut strengths) = ([0.0; 2], 0.0);
                for &(other, strength) in self.edges(v) {
                    let ([x, y], strength) = (at[other as usize], strength as f32);
                    sums = [sums[0] + strength * x, sums[1] + strength * y];
                    strengths += strength;
                }
                let share = if strengths > 0.0 { 0.5 / strengths } else { 0.0 };
                let own = if strengths > 0.0 { 0.5 } else { 1.0 };
                *to = [0, 1].map(|k| own * at[v][k] + share * sums[k]);
            }
            std::mem::swap(&mut at, &mut smoother);
        }
        at
    }

    /// The distance of each vertex from `from` in edges, and the last vertex reached. Vertices of another
    /// component get larger distances, component by component.
    fn distances(&self, from: usize) -> (usize, Vec<u32>) {
        let mut distance = vec![u32::MAX; self.len()];
        let mut queue = Vec::with_capacity(self.len());
        distance[from] = 0;
        queue.push(from as u32);
        let (mut head, mut unreached) = (0, 0);
        // stop once all vertices are in the queue
        while queue.len() < self.len() {
            if head == queue.len() {
                while distance[unreached] != u32::MAX {
                    unreached += 1;
                }
                distance[unreached] = distance[queue[head - 1] as usize] + 1;
                queue.push(unreached as u32);
            }
            let vertex = queue[head] as usize;
            head += 1;
            for &(other, _) in self.edges(vertex) {
                if distance[other as usize] == u32::MAX {
                    distance[other as usize] = distance[vertex] + 1;
                    queue.push(other);
                }
            }
        }
        (queue[queue.len() - 1] as usize, distance)
    }

    fn split(self, second: &[bool]) -> [Part; 2] {
        let mut numbers = vec![0u32; self.len()];
        let mut counts = [0u32; 2];
        for (number, &second) in numbers.iter_mut().zip(second) {
            *number = counts[usize::from(second)];
            counts[usize::from(second)] += 1;
        }
        let mut halves = counts.map(|count| Part::with_capacity(count as usize));
        for v in 0..self.len() {
            let half = &mut halves[usize::from(second[v])];
            let mut pull = self.pull[v];
            for &(other, strength) in self.edges(v) {
                if second[other as usize] == second[v] {
                    half.edges.push((numbers[other as usize], strength));
                } else {
                    pull += if second[v] { -(strength as i32) } else { strength as i32 };
                }
            }
            half.close(self.ids[v], self.weights[v], pull);
        }
        halves
    }
}

/// Maps a number to an integer such that the order of the integers is that of the numbers.
fn ascending(number: f32) -> u32 {
    let bits = number.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The weight that the first half of a part should have, so that the cut lies at a multiple of `run` on the
/// line, the one nearest to the middle of the part. The part has the weight `weight`, all vertices before it
/// have the weight `from`. `None` for a part that needs no cut.
fn target(from: f64, weight: f64, run: f64) -> Option<f64> {
    let nearest = ((from + 0.5 * weight) / run).round() * run - from;
    (weight > 1.5 * run && nearest > 0.0 && nearest < weight).then_some(nearest)
}

/// Moves single vertices between two halves to reduce the strength of the edges between them (Fiduccia and
/// Mattheyses). In a pass each vertex moves at most once, the best move first, even if a move makes the cut
/// worse. Then all moves after the best state of the pass are undone.
struct Refinement<'a> {
    part: &'a Part,
    second: &'a mut [bool],
    /// The target weight of the first half minus its weight.
    missing: f64,
    /// The largest magnitude of `missing` that counts as balanced.
    tolerance: f64,
    /// For each vertex, how much moving it would reduce the strength of the edges across the cut.
    gains: Vec<i32>,
    /// For each vertex, the strength of all of its edges.
    strengths: Vec<i32>,
    moved: Vec<bool>,
    /// The gains of the vertices of each half that may move, largest first. Outdated entries are skipped.
    queues: [BinaryHeap<(i32, Reverse<u32>)>; 2],
}

impl<'a> Refinement<'a> {
    /// Prepares to refine halves, the first of which should have the weight `target`.
    fn new(part: &'a Part, second: &'a mut [bool], target: f64) -> Self {
        let first = part.weights.iter().zip(&*second).filter(|(_, second)| !**second);
        let missing = target - first.map(|(&weight, _)| f64::from(weight)).sum::<f64>();
        let tolerance = 0.5 * part.weight() / part.len() as f64;
        let (mut strengths, mut gains) = (Vec::with_capacity(part.len()), Vec::with_capacity(part.len()));
        for (v, &own) in second.iter().enumerate() {
            let (mut all, mut across) = (0, 0);
            for &(other, strength) in part.edges(v) {
                all += strength as i32;
                across += if second[other as usize] == own { 0 } else { strength as i32 };
            }
            strengths.push(all);
            gains.push(2 * across - all);
        }
        let moved = vec![false; part.len()];
        Refinement {
            part,
            second,
            missing,
            tolerance,
            gains,
            strengths,
            moved,
            queues: [BinaryHeap::new(), BinaryHeap::new()],
        }
    }

    fn run(mut self) {
        for _ in 0..PASSES {
            if !self.pass() {
                break;
            }
        }
    }

    /// Makes one pass. Returns whether it reduced the cut.
    fn pass(&mut self) -> bool {
        self.moved.fill(false);
        self.queues.iter_mut().for_each(BinaryHeap::clear);
        for (v, (&gain, &strength)) in self.gains.iter().zip(&self.strengths).enumerate() {
            if gain > -strength {
                self.queues[usize::from(self.second[v])].push((gain, Reverse(v as u32)));
            }
        }
        let lookahead = 20 + self.part.len() / 50;
        let (mut moves, mut kept) = (vec![], 0);
        let (mut saved, mut best) = (0i64, 0i64);
        let mut best_missing = self.missing.abs();
        while moves.len() < kept + lookahead {
            let Some(v) = self.next() else { break };
            saved += i64::from(self.gains[v]);
            self.shift(v);
            self.moved[v] = true;
            moves.push(v);
            let missing = self.missing.abs();
            let balanced = missing <= self.tolerance;
            if missing.max(self.tolerance) < best_missing.max(self.tolerance) || balanced && saved > best {
                (kept, best, best_missing) = (moves.len(), saved, missing);
            }
        }
        for &v in moves[kept..].iter().rev() {
            self.shift(v);
        }
        best > 0
    }

    /// The vertex with the largest gain: of the half that is too heavy, or of both halves if they are
    /// balanced.
    fn next(&mut self) -> Option<usize> {
        let tops = [0, 1].map(|half| self.top(half));
        let from = match tops {
            [None, None] => return None,
            _ if self.missing > self.tolerance => 1,
            _ if self.missing < -self.tolerance => 0,
            [Some(a), Some(b)] => {
                let equal_takes_from_second = a == b && self.missing > 0.0;
                usize::from(b > a || equal_takes_from_second)
            }
            [None, _] => 1,
            [_, None] => 0,
        };
        self.queues[from].pop().map(|(_, Reverse(v))| v as usize)
    }

    /// The largest gain in a half.
    fn top(&mut self, half: usize) -> Option<i32> {
        while let Some(&(gain, Reverse(v))) = self.queues[half].peek() {
            let v = v as usize;
            if !self.moved[v] && self.gains[v] == gain && usize::from(self.second[v]) == half {
                return Some(gain);
            }
            self.queues[half].pop();
        }
        None
    }

    /// Moves a vertex to the other half.
    fn shift(&mut self, v: usize) {
        let to_second = !self.second[v];
        let weight = f64::from(self.part.weights[v]);
        self.missing += if to_second { weight } else { -weight };
        self.second[v] = to_second;
        self.gains[v] = -self.gains[v];
        for &(other, strength) in self.part.edges(v) {
            let o = other as usize;
            let change = 2 * strength as i32;
            self.gains[o] += if self.second[o] == to_second { -change } else { change };
            if !self.moved[o] {
                self.queues[usize::from(self.second[o])].push((self.gains[o], Reverse(other)));
            }
        }
    }
}
