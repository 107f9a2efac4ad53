//! A graph laid out in a line by recursive bisection, so that runs of the line are compact.
//!
//! ```text
//! s, t: ends of a longest shortest path, roughly;  x = distance from s - distance from t
//! u, v: a vertex far from both, and one far from that;  y = distance from u - distance from v
//! smooth both a few times: x ← (x + mean of the neighbours' x) / 2
//! cut across x, y, x + y and x - y at the weighted median, moved to where a run ends; take the cut with fewest edges
//! refine it after Fiduccia and Mattheyses (1982)
//! the half that is tied more to what comes before goes first; both halves likewise
//! ```

use super::graph::Graph;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Rounds of smoothing.
const SMOOTHING: usize = 2;

/// Passes of refinement at most.
const PASSES: usize = 4;

/// Vertices from which halves are worth a task each.
const TASK: usize = 256;

/// Where to cut: weights along the whole line.
#[derive(Clone, Copy)]
pub(super) struct Cuts {
    /// Runs of this weight should be compact in the first place.
    pub(super) run: f64,
    /// No smaller pieces than this are cut.
    pub(super) least: f64,
}

/// A part of a graph with numbers of its own.
pub(super) struct Part {
    /// The numbers in the whole graph.
    ids: Vec<u32>,
    weights: Vec<u32>,
    starts: Vec<u32>,
    edges: Vec<(u32, u32)>,
    /// How much more each vertex is tied to what comes after the part than to what comes before.
    pull: Vec<i32>,
}

impl Part {
    /// The vertices at these places of a line, `place_of` all vertices.
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

    /// Ends the edges of the next vertex.
    fn close(&mut self, id: u32, weight: u32, pull: i32) {
        self.ids.push(id);
        self.weights.push(weight);
        self.pull.push(pull);
        self.starts.push(self.edges.len() as u32);
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn edges(&self, vertex: usize) -> &[(u32, u32)] {
        &self.edges[self.starts[vertex] as usize..self.starts[vertex + 1] as usize]
    }

    fn weight(&self) -> f64 {
        self.weights.iter().map(|&weight| f64::from(weight)).sum()
    }

    /// Lays the part out from a weight on: its vertices in order.
    pub(super) fn lay_out(self, from: f64, cuts: Cuts, order: &mut [u32]) {
        let Some(target) = cuts.target(from, self.weight()).filter(|_| self.len() > 1) else {
            order.copy_from_slice(&self.ids);
            return;
        };
        let [a, b] = self.halves(target);
        // the target may be less than a vertex
        if let Some(all) = [&a, &b].into_iter().find(|half| half.len() == order.len()) {
            order.copy_from_slice(&all.ids);
            return;
        }
        let (to_a, to_b) = order.split_at_mut(a.len());
        let middle = from + a.weight();
        if a.len().min(b.len()) < TASK {
            a.lay_out(from, cuts, to_a);
            b.lay_out(middle, cuts, to_b);
        } else {
            rayon::join(|| a.lay_out(from, cuts, to_a), || b.lay_out(middle, cuts, to_b));
        }
    }

    /// Two parts, the first of about the `target` weight.
    fn halves(self, target: f64) -> [Part; 2] {
        let cuts = self.coordinates().map(|x| self.cut(&x, target));
        let fewest = cuts.into_iter().min_by_key(|(second, _)| self.edges_across(second));
        let (mut second, missing) = fewest.unwrap_or_default();
        Refinement::new(&self, &mut second, missing).run();
        self.split(&second)
    }

    fn edges_across(&self, second: &[bool]) -> u64 {
        let of_vertex = |v: usize| -> u64 {
            let across = self.edges(v).iter().filter(|&&(other, _)| second[other as usize] != second[v]);
            across.map(|&(_, strength)| u64::from(strength)).sum()
        };
        (0..self.len()).map(of_vertex).sum()
    }

    /// Who comes after a cut across a coordinate, and by what weight the first half falls short of its target.
    fn cut(&self, x: &[f32], target: f64) -> (Vec<bool>, f64) {
        let mut line: Vec<u32> = (0..self.len() as u32).collect();
        let by_x = |&a: &u32, &b: &u32| x[a as usize].total_cmp(&x[b as usize]).then(a.cmp(&b));
        let middle = line.len() / 2;
        line.select_nth_unstable_by(middle, by_x);
        let pull = |vertices: &[u32]| vertices.iter().map(|&v| i64::from(self.pull[v as usize])).sum::<i64>();
        let reversed = pull(&line[..middle]) > pull(&line[middle..]);
        let mut second = vec![true; self.len()];
        let weight =
            |vertices: &[u32]| vertices.iter().map(|&v| f64::from(self.weights[v as usize])).sum::<f64>();
        // halve what the target lies in until one vertex is left
        let (mut missing, mut open) = (target, &mut line[..]);
        while open.len() > 1 {
            let middle = open.len() / 2;
            open.select_nth_unstable_by(middle, |a, b| if reversed { by_x(b, a) } else { by_x(a, b) });
            let (low, high) = open.split_at_mut(middle);
            let weight = weight(low);
            if weight <= missing {
                low.iter().for_each(|&v| second[v as usize] = false);
                missing -= weight;
                open = high;
            } else {
                open = low;
            }
        }
        (second, missing)
    }

    /// Numbers for each vertex that grow from one end of the part to the other, in four directions.
    fn coordinates(&self) -> [Vec<f32>; 4] {
        let (start, _) = self.distances(0);
        let (end, from_start) = self.distances(start);
        let (_, from_end) = self.distances(end);
        // in a box, the diagonal through two corners and that through two others: their sum is along a side
        let nearer = |v: usize| from_start[v].min(from_end[v]);
        let aside = (0..self.len()).max_by_key(|&v| (nearer(v), Reverse(v))).unwrap_or(0);
        let (opposite, from_aside) = self.distances(aside);
        let (_, from_opposite) = self.distances(opposite);
        let x = self.smooth(difference(&from_start, &from_end));
        let y = self.smooth(difference(&from_aside, &from_opposite));
        let sum = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        let difference = x.iter().zip(&y).map(|(x, y)| x - y).collect();
        [x, y, sum, difference]
    }

    /// Levels out what a distance in whole edges is rough in.
    fn smooth(&self, mut x: Vec<f32>) -> Vec<f32> {
        let mut smoother = x.clone();
        for _ in 0..SMOOTHING {
            for (v, to) in smoother.iter_mut().enumerate() {
                let (mut sum, mut strengths) = (0.0, 0.0);
                for &(other, strength) in self.edges(v) {
                    sum += strength as f32 * x[other as usize];
                    strengths += strength as f32;
                }
                *to = if strengths > 0.0 { 0.5 * (x[v] + sum / strengths) } else { x[v] };
            }
            std::mem::swap(&mut x, &mut smoother);
        }
        x
    }

    /// The number of edges on the way from a vertex to each, and the vertex last reached. What cannot be reached is behind
    /// what can, component by component.
    fn distances(&self, from: usize) -> (usize, Vec<u32>) {
        let mut distance = vec![u32::MAX; self.len()];
        let mut queue = Vec::with_capacity(self.len());
        distance[from] = 0;
        queue.push(from as u32);
        let (mut head, mut unreached) = (0, 0);
        while queue.len() < self.len() || head < queue.len() {
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

fn difference(a: &[u32], b: &[u32]) -> Vec<f32> {
    a.iter().zip(b).map(|(&a, &b)| a as f32 - b as f32).collect()
}

impl Cuts {
    /// How much of a piece of the line comes before its cut; `None` where it is small enough.
    fn target(self, from: f64, weight: f64) -> Option<f64> {
        let grain = if weight > 1.5 * self.run { self.run } else { self.least };
        let nearest = ((from + 0.5 * weight) / grain).round() * grain - from;
        (weight > 1.5 * grain && nearest > 0.0 && nearest < weight).then_some(nearest)
    }
}

/// Moves of single vertices between two halves that leave fewer edges between them: the best first, each once in a pass,
/// worse ones too; what was best in the pass stays.
struct Refinement<'a> {
    part: &'a Part,
    second: &'a mut [bool],
    /// What the first half lacks of its weight.
    missing: f64,
    /// How much it may lack, or have too much.
    tolerance: f64,
    /// What moving a vertex saves.
    gains: Vec<i32>,
    moved: Vec<bool>,
    /// The vertices of each half that may move, the most saving first; entries out of date are skipped.
    queues: [BinaryHeap<(i32, Reverse<u32>)>; 2],
}

impl<'a> Refinement<'a> {
    fn new(part: &'a Part, second: &'a mut [bool], missing: f64) -> Self {
        let tolerance = 0.5 * part.weight() / part.len() as f64;
        let gains = vec![0; part.len()];
        let moved = vec![false; part.len()];
        Refinement {
            part,
            second,
            missing,
            tolerance,
            gains,
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

    /// Whether the pass saved edges.
    fn pass(&mut self) -> bool {
        self.moved.fill(false);
        self.queues.iter_mut().for_each(BinaryHeap::clear);
        for v in 0..self.part.len() {
            let mut gain = 0;
            let mut on_boundary = false;
            for &(other, strength) in self.part.edges(v) {
                let across = self.second[other as usize] != self.second[v];
                gain += if across { strength as i32 } else { -(strength as i32) };
                on_boundary |= across;
            }
            self.gains[v] = gain;
            if on_boundary {
                self.queues[usize::from(self.second[v])].push((gain, Reverse(v as u32)));
            }
        }
        let patience = 20 + self.part.len() / 50;
        let (mut moves, mut kept) = (vec![], 0);
        let (mut saved, mut best) = (0i64, 0i64);
        let mut best_missing = self.missing.abs();
        while moves.len() < kept + patience {
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

    /// The most saving vertex that may move: of the half that has too much, else of both.
    fn next(&mut self) -> Option<usize> {
        let tops = [0, 1].map(|half| self.top(half));
        let from = match tops {
            [None, None] => return None,
            _ if self.missing > self.tolerance => 1,
            _ if self.missing < -self.tolerance => 0,
            [Some(a), Some(b)] => {
                let equal_takes_from_the_larger = a == b && self.missing > 0.0;
                usize::from(b > a || equal_takes_from_the_larger)
            }
            [None, _] => 1,
            [_, None] => 0,
        };
        self.queues[from].pop().map(|(_, Reverse(v))| v as usize)
    }

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

    /// Puts a vertex into the other half.
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
