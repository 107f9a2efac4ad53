//! Reverse Cuthill and McKee's numbering.

use super::Numbering;
use crate::{Csr, Error, Real, Result};

impl Numbering {
    /// Reverse Cuthill and McKee (1969): a breadth-first search from a vertex at the edge of the graph, vertices of
    /// small degree first, in reverse order. Brings the entries of unstructured meshes close to the diagonal, which
    /// makes their products about twice as fast. Only the pattern of the matrix matters; it is treated as symmetric.
    pub fn rcm<T: Real>(a: &Csr<T>) -> Result<Numbering> {
        let (rows, cols) = (a.rows(), a.cols());
        if rows != cols {
            return Err(Error::NotSquare { what: "renumbering", rows, cols });
        }
        let transposed = Transposed::new(a);
        let degree = |v: u32| a.row_columns(v as usize).len();
        let mut order: Vec<u32> = Vec::with_capacity(rows);
        // the search in which a vertex was last seen
        let mut seen = vec![0u32; rows];
        let mut current_search = 0;
        let mut search = |start: u32, order: &mut Vec<u32>, done: usize| {
            current_search += 1;
            order.truncate(done);
            order.push(start);
            seen[start as usize] = current_search;
            let (mut head, mut level_start, mut depth) = (done, done, 0);
            while head < order.len() {
                let level_end = order.len();
                level_start = head;
                for at in head..level_end {
                    let from = order.len();
                    let vertex = order[at] as usize;
                    for &neighbour in a.row_columns(vertex).iter().chain(transposed.row(vertex)) {
                        if seen[neighbour as usize] != current_search {
                            seen[neighbour as usize] = current_search;
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
            // a vertex of the last level lies closer to the edge of the graph; three searches are enough in practice
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

/// The rows of the entries in each column. The search must follow edges in both directions, or it would miss unknowns
/// of an unsymmetric matrix.
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
