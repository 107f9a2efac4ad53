//! The reverse Cuthill-McKee ordering.

use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use crate::permutation::Permutation;
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
use krysp_kernels::interrupt::{Counter, Phase};
use rayon::prelude::*;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

impl Permutation {
    /// Computes the reverse Cuthill-McKee ordering (1969): a breadth-first search from a pseudo-peripheral
    /// vertex, neighbours in order of increasing degree, in reverse order. It brings the entries of matrices
    /// of unstructured meshes close to the diagonal, which makes products about twice as fast. Only the
    /// pattern of the matrix matters; it is treated as symmetric.
    pub fn rcm<T: Real>(a: &Csr<T>) -> Result<Permutation> {
        let (rows, cols) = (a.rows(), a.cols());
        if rows != cols {
            return Err(Error::NotSquare { what: "reordering", rows, cols });
        }
        let searches = Searches::new(a);
        // run inside the thread pool: its threads then do not go to sleep between levels
        let mut order = rayon::scope(|_| searches.order())?;
        order.reverse();
        Permutation::from_old_of_new(order)
    }
}

/// Marks of vertices. Any other value is the place, counted from one, of the first vertex of the current level that
/// is a neighbour.
const SEEN: u32 = 0;
const UNSEEN: u32 = u32::MAX;

/// Minimum number of vertices of a level that is extended on all threads, and number of vertices per task. A guess: a
/// task takes some ten microseconds.
const LEAST_OF_LEVEL: usize = 1024;
const TASK: usize = 128;

/// Breadth-first searches in a pattern, which is treated as symmetric.
struct Searches<'a, T: Real> {
    a: &'a Csr<T>,
    transposed: Option<Transposed>,
    marks: Vec<AtomicU32>,
    phase: Phase,
}

impl<'a, T: Real> Searches<'a, T> {
    fn new(a: &'a Csr<T>) -> Self {
        let transposed = if is_mirrored(a) { None } else { Some(Transposed::new(a)) };
        let marks = (0..a.rows()).map(|_| AtomicU32::new(UNSEEN)).collect();
        Searches { a, transposed, marks, phase: Phase::new("reverse Cuthill-McKee ordering", 0.0) }
    }

    /// The Cuthill-McKee ordering.
    fn order(&self) -> Result<Vec<u32>> {
        let rows = self.a.rows();
        let (mut order, mut placed) = (Vec::with_capacity(rows), vec![false; rows]);
        let mut counter = self.phase.counter();
        for seed in 0..rows as u32 {
            if placed[seed as usize] {
                continue;
            }
            let done = order.len();
            // the first search only finds a start vertex
            let (mut depth, mut candidate) = self.search(seed, &mut order, done, false, &mut counter)?;
            // a vertex of the last level has a larger eccentricity; three searches are enough in practice to
            // find a pseudo-peripheral vertex
            for _ in 0..3 {
                let (deeper, next) = self.search(candidate, &mut order, done, true, &mut counter)?;
                if deeper <= depth {
                    break;
                }
                (depth, candidate) = (deeper, next);
            }
            for &v in &order[done..] {
                placed[v as usize] = true;
            }
        }
        Ok(order)
    }

    fn degree(&self, v: u32) -> usize {
        self.a.row_columns(v as usize).len()
    }

    fn neighbours(&self, v: u32) -> impl Iterator<Item = u32> {
        let others = self.transposed.as_ref().map_or(&[][..], |transposed| transposed.row(v as usize));
        self.a.row_columns(v as usize).iter().chain(others).copied()
    }

    /// Replaces `order[done..]`, the vertices of the last search in this component, by those found from `start`:
    /// neighbours by increasing degree if `sorted`. Returns the number of levels, and the vertex of smallest degree
    /// in the last one.
    fn search(
        &self,
        start: u32,
        order: &mut Vec<u32>,
        done: usize,
        sorted: bool,
        counter: &mut Counter<'_>,
    ) -> Result<(usize, u32)> {
        let set = |v: u32, mark: u32| self.marks[v as usize].store(mark, Relaxed);
        over_rows(order.len() - done, 2, (), &|range, ()| {
            order[done..][range].iter().for_each(|&v| set(v, UNSEEN));
        });
        order.truncate(done);
        order.push(start);
        set(start, SEEN);
        let (mut head, mut level_start, mut depth) = (done, done, 0);
        while head < order.len() {
            level_start = head;
            head = order.len();
            depth += 1;
            // the two passes over a level take twice the time of one: no gain on two threads
            if head - level_start >= LEAST_OF_LEVEL && rayon::current_num_threads() > 2 {
                self.extend_on_all_threads(level_start, order, sorted)?;
                continue;
            }
            let mut fresh = vec![];
            for at in level_start..head {
                let vertex = order[at];
                counter.add(self.neighbours(vertex).count())?;
                self.find(vertex, UNSEEN, sorted, &mut fresh);
                order.extend(fresh.drain(..).map(|key| key as u32));
            }
        }
        let farthest = order[level_start..].iter().copied().min_by_key(|&v| (self.degree(v), v));
        Ok((depth, farthest.unwrap_or(start)))
    }

    /// Finds the neighbours of a vertex that have this mark, and marks them as seen. A key has the degree in the upper
    /// bits and the vertex in the lower ones, so that sorting orders them by degree.
    fn find(&self, vertex: u32, wanted: u32, sorted: bool, fresh: &mut Vec<u64>) {
        for neighbour in self.neighbours(vertex) {
            let mark = &self.marks[neighbour as usize];
            if mark.load(Relaxed) == wanted {
                mark.store(SEEN, Relaxed);
                let degree = if sorted { self.degree(neighbour) as u64 } else { 0 };
                fresh.push(degree << 32 | u64::from(neighbour));
            }
        }
        if sorted {
            fresh.sort_unstable();
        }
    }

    /// Appends the vertices behind the level `order[first..]`, in the same order as on one thread: each vertex comes
    /// behind those found by earlier vertices of the level, so it is found by the first of its neighbours.
    fn extend_on_all_threads(&self, first: usize, order: &mut Vec<u32>, sorted: bool) -> Result<()> {
        let place = |task: usize| first + task * TASK + 1..;
        let level = order[first..].par_chunks(TASK).enumerate();
        level.clone().try_for_each(|(task, vertices)| {
            let mut work = 0;
            for (place, &vertex) in place(task).zip(vertices) {
                work += self.neighbours(vertex).count();
                for neighbour in self.neighbours(vertex) {
                    let mark = &self.marks[neighbour as usize];
                    if mark.load(Relaxed) > place as u32 {
                        mark.fetch_min(place as u32, Relaxed);
                    }
                }
            }
            self.phase.advance(work as u64)
        })?;
        let found = level.map(|(task, vertices)| {
            let (mut found, mut fresh) = (vec![], vec![]);
            for (place, &vertex) in place(task).zip(vertices) {
                self.find(vertex, place as u32, sorted, &mut fresh);
                found.extend(fresh.drain(..).map(|key| key as u32));
            }
            found
        });
        let found: Vec<Vec<u32>> = found.collect();
        found.iter().for_each(|found| order.extend_from_slice(found));
        Ok(())
    }
}

/// Returns whether the pattern is symmetric, decided by comparing sums of hashes. If a hash collision makes the
/// answer wrong, the search misses edges, and entries end up farther from the diagonal.
fn is_mirrored<T: Real>(a: &Csr<T>) -> bool {
    // the mixer of SplitMix64 (Steele, Lea and Flood 2014)
    let mixed = |row: u32, column: u32| {
        let mut bits = (u64::from(row) << 32 | u64::from(column)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    };
    let of_row = |row: usize| {
        let of = |&column: &u32| mixed(row as u32, column).wrapping_sub(mixed(column, row as u32));
        a.row_columns(row).iter().map(of).fold(0, u64::wrapping_add)
    };
    map_rows(a.rows(), 8, &of_row).into_iter().fold(0, u64::wrapping_add) == 0
}

/// Pattern of the transpose: the rows of the entries in each column. If the matrix is not symmetric, the
/// search must follow edges in both directions to reach all vertices of a component.
struct Transposed {
    starts: Vec<usize>,
    rows: Vec<u32>,
}

impl Transposed {
    fn new<T: Real>(a: &Csr<T>) -> Transposed {
        let mut starts = vec![0; a.cols() + 1];
        a.columns().iter().for_each(|&column| starts[column as usize + 1] += 1);
        for column in 0..a.cols() {
            starts[column + 1] += starts[column];
        }
        let (mut next, mut rows) = (starts.clone(), vec![0; a.nnz()]);
        for row in 0..a.rows() {
            for &column in a.row_columns(row) {
                let at = &mut next[column as usize];
                rows[*at] = row as u32;
                *at += 1;
            }
        }
        Transposed { starts, rows }
    }

    fn row(&self, row: usize) -> &[u32] {
        &self.rows[self.starts[row]..self.starts[row + 1]]
    }
}
