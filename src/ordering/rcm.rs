//! The reverse Cuthill-McKee ordering.

use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use crate::permutation::Permutation;
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::interrupt::{Interrupted, Phase};

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
        let transposed = if is_mirrored(a) { None } else { Some(Transposed::new(a)) };
        let degree = |v: u32| a.row_columns(v as usize).len();
        let mut order: Vec<u32> = Vec::with_capacity(rows);
        // the search in which a vertex was last seen
        let mut seen = vec![0u32; rows];
        let mut current_search = 0;
        // neighbours of the current vertex that were not seen before: degree in the upper bits, vertex in the
        // lower ones, so that sorting orders them by degree
        let mut fresh: Vec<u64> = vec![];
        let phase = Phase::new("reverse Cuthill-McKee ordering", 0.0);
        let mut counter = phase.counter();
        let mut search = |start: u32, order: &mut Vec<u32>, done: usize, sorted: bool| {
            current_search += 1;
            order.truncate(done);
            order.push(start);
            seen[start as usize] = current_search;
            let (mut head, mut level_start, mut depth) = (done, done, 0);
            while head < order.len() {
                let level_end = order.len();
                level_start = head;
                for at in head..level_end {
                    let vertex = order[at] as usize;
                    let others = transposed.as_ref().map_or(&[][..], |transposed| transposed.row(vertex));
                    counter.add(degree(order[at]) + others.len())?;
                    for &neighbour in a.row_columns(vertex).iter().chain(others) {
                        if seen[neighbour as usize] != current_search {
                            seen[neighbour as usize] = current_search;
                            if sorted {
                                fresh.push((degree(neighbour) as u64) << 32 | u64::from(neighbour));
                            } else {
                                order.push(neighbour);
                            }
                        }
                    }
                    fresh.sort_unstable();
                    order.extend(fresh.drain(..).map(|key| key as u32));
                }
                head = level_end;
                depth += 1;
            }
            let farthest = order[level_start..].iter().copied().min_by_key(|&v| (degree(v), v));
            Ok::<_, Interrupted>((depth, farthest.unwrap_or(start)))
        };
        let mut placed = vec![false; rows];
        for seed in 0..rows as u32 {
            if placed[seed as usize] {
                continue;
            }
            let done = order.len();
            // the first search only finds a start vertex
            let (mut depth, mut candidate) = search(seed, &mut order, done, false)?;
            // a vertex of the last level has a larger eccentricity; three searches are enough in practice to
            // find a pseudo-peripheral vertex
            for _ in 0..3 {
                let (deeper, next) = search(candidate, &mut order, done, true)?;
                if deeper <= depth {
                    break;
                }
                (depth, candidate) = (deeper, next);
            }
            for &v in &order[done..] {
                placed[v as usize] = true;
            }
        }
        order.reverse();
        Permutation::from_old_of_new(order)
    }
}

/// Whether the pattern is symmetric, decided by comparing sums of hashes. If a hash collision makes the
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
