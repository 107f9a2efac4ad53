//! Reverse Cuthill and McKee's numbering.

use super::Numbering;
use crate::{Csr, Error, Real, Result};

impl Numbering {
    /// Reverse Cuthill and McKee (1969): levels of a breadth-first search from a vertex far out, vertices of small
    /// degree first, in reverse. Brings the entries of unstructured meshes close to the diagonal, worth a factor of two
    /// in their products. Only the pattern counts, taken as symmetric.
    pub fn rcm<T: Real>(a: &Csr<T>) -> Result<Numbering> {
        let (rows, cols) = (a.rows(), a.cols());
        if rows != cols {
            return Err(Error::NotSquare { what: "renumbering", rows, cols });
        }
        let transposed = Transposed::new(a);
        let degree = |v: u32| a.row_columns(v as usize).len();
        let mut order: Vec<u32> = Vec::with_capacity(rows);
        // the round in which a vertex was last seen
        let mut seen = vec![0u32; rows];
        let mut round = 0;
        let mut search = |start: u32, order: &mut Vec<u32>, done: usize| {
            round += 1;
            order.truncate(done);
            order.push(start);
            seen[start as usize] = round;
            let (mut head, mut level_start, mut depth) = (done, done, 0);
            while head < order.len() {
                let level_end = order.len();
                level_start = head;
                for at in head..level_end {
                    let from = order.len();
                    let vertex = order[at] as usize;
                    for &neighbour in a.row_columns(vertex).iter().chain(transposed.row(vertex)) {
                        if seen[neighbour as usize] != round {
                            seen[neighbour as usize] = round;
                            order.push(neighbour);
                        }
                    }
                    order[from..].sort_unstable_by_key(|&v| (degree(v), v));
                }
                head = level_end;
                depth += 1;
            }
            let farthest = order[level_start..].iter().copied().min_by_key(|&v| degree(v)).unwrap_or(start);
            (depth, farthest)
        };
        let mut placed = vec![false; rows];
        for seed in 0..rows as u32 {
            if placed[seed as usize] {
                continue;
            }
            let done = order.len();
            let (mut depth, mut candidate) = search(seed, &mut order, done);
            // a vertex of the last level is farther out; three rounds are enough in practice
            for _ in 0..3 {
                let (deeper, next) = search(candidate, &mut order, done);
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
        Numbering::from_old_of_new(order)
    }
}

/// Where the entries of each column stand: a search must find its way back, or leave unknowns out.
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
