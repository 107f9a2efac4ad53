//! Maximum-product matching: assigns to each column the row whose entry is to be permuted to the diagonal
//! (Duff and Koster 2001, "job 5" of MC64).
//!
//! Among all choices of one entry of each row and column, it finds one with the maximum product of
//! magnitudes, which is the minimum sum of the costs `c_ij = ln max_k |a_ik| − ln |a_ij|` (linear
//! assignment). The dual variables of that problem, `u_i + v_j ≤ c_ij` with equality for matched entries, are
//! logarithms of scale factors with which matched entries become 1 and all others at most 1 in magnitude.
//!
//! ```text
//! v_j = min_i c_ij,  u_i = min_j (c_ij − v_j)        greedily match entries with c_ij = u_i + v_j
//! for each unmatched row:                            Dijkstra, over lengths c_ij − u_i − v_j ≥ 0
//!     find the shortest alternating path to a free column
//!     change v of settled columns, and u of their rows, by the difference between distance and path length
//!     augment the matching along the path
//! ```
//!
//! Departures from the paper: searches start from rows, not columns, because rows are stored contiguously.
//! Columns reached by a search that found no free column are excluded from later searches: no later change
//! makes a free column reachable from them.

use crate::error::Result;
use crate::formats::Csr;
use crate::formats::matrix_source::check_square;
use crate::numbers::Real;
use krysp_kernels::cpu::run::threads::{fill_by_rows, map_rows};
use krysp_kernels::index::Offsets;
use krysp_kernels::interrupt::{Counter, Interrupted, Phase};
use krysp_solvers::Element;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;

/// A maximum-product matching: one entry of each row and column with the largest product of magnitudes, and
/// factors that scale these entries to 1 and all others to at most 1 in absolute value.
///
/// [`Scaling::matched`](crate::Scaling::matched) puts the entries on the diagonal.
///
/// ```
/// use krysp::{Csr, Matching};
///
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 1e-9), (0, 1, 5.0), (1, 0, 2.0)])?;
/// let matching = Matching::of(&a)?;
/// assert_eq!(matching.rows(), [1, 0]);
/// assert_eq!(matching.unmatched(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Matching {
    rows: Vec<u32>,
    unmatched: usize,
    pub(super) row_logs: Vec<f64>,
    pub(super) column_logs: Vec<f64>,
}

impl Matching {
    /// Computes the matching of a square matrix. Stored zeros are ignored. Returns an error if an entry is
    /// infinite or NaN.
    pub fn of<T: Real>(a: &Csr<T>) -> Result<Matching> {
        check_square("a matching", a)?;
        a.check_finite()?;
        let phase = Phase::new("maximum-product matching", 0.0);
        let mut counter = phase.counter();
        let mut search = Search::new(a);
        phase.check()?;
        search.match_what_is_tight();
        phase.check()?;
        for row in 0..a.rows() as u32 {
            if search.column_of[row as usize] == NONE {
                search.augment(row, &mut counter)?;
            }
        }
        Ok(search.finish(a))
    }

    /// Row matched to each column. Rows and columns are numbered as in the matrix passed to [`Matching::of`];
    /// if that matrix was reordered, in its new ordering.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Number of rows that cannot be matched. If it is not zero, the matrix is structurally singular; these
    /// rows are assigned to the remaining columns, at positions without entries.
    pub fn unmatched(&self) -> usize {
        self.unmatched
    }
}

/// State of the computation.
struct Search<'a> {
    offsets: &'a Offsets,
    columns: &'a [u32],
    /// `c_ij`, infinite for stored zeros.
    costs: Vec<f64>,
    u: Vec<f64>,
    v: Vec<f64>,
    row_of: Vec<u32>,
    column_of: Vec<u32>,
    /// Length of the shortest known path to each column; `−∞` for columns from which no free column can be
    /// reached, so that later searches skip them.
    distance: Vec<f64>,
    /// The last row on the shortest known path to each column.
    parent: Vec<u32>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Columns that a search reached, those whose shortest path is known, and those that need not go through the heap.
    reached: Vec<u32>,
    settled: Vec<u32>,
    ready: Vec<u32>,
}

/// The largest magnitude in a row.
fn largest<T: Real>(a: &Csr<T>, row: usize) -> f64 {
    a.row_values(row).iter().fold(0.0, |most: f64, value| most.max(Element::to_f64(*value).abs()))
}

impl<'a> Search<'a> {
    fn new<T: Real>(a: &'a Csr<T>) -> Search<'a> {
        let n = a.rows();
        let (offsets, columns) = (&a.pattern().offsets, a.columns());
        let mut costs = vec![0.0; a.nnz()];
        fill_by_rows(n, &mut costs, &|row| offsets.at(row), &|rows, mut rest: &mut [f64], _| {
            for row in rows {
                let most = largest(a, row).ln();
                let (own, after) = rest.split_at_mut(offsets.range(row).len());
                rest = after;
                for (cost, value) in own.iter_mut().zip(a.row_values(row)) {
                    *cost = match Element::to_f64(*value).abs() {
                        0.0 => f64::INFINITY,
                        value => most - value.ln(),
                    };
                }
            }
        });
        Search {
            offsets,
            columns,
            costs,
            u: vec![0.0; n],
            v: vec![f64::INFINITY; n],
            row_of: vec![NONE; n],
            column_of: vec![NONE; n],
            distance: vec![f64::INFINITY; n],
            parent: vec![NONE; n],
            heap: BinaryHeap::new(),
            reached: vec![],
            settled: vec![],
            ready: vec![],
        }
    }

    /// `c_ij − v_j − u_i` of an entry.
    fn length(&self, row: usize, entry: usize) -> f64 {
        self.costs[entry] - self.v[self.columns[entry] as usize] - self.u[row]
    }

    /// The minimum `c_ij − v_j` of a row; zero for a row without finite costs.
    fn least_of_row(&self, row: usize) -> f64 {
        let lengths = self.offsets.range(row).map(|entry| {
            let column = self.columns[entry] as usize;
            self.costs[entry] - self.v[column]
        });
        finite(lengths.fold(f64::INFINITY, f64::min))
    }

    /// Computes initial dual variables and matches rows greedily with entries of length zero (*tight*
    /// entries). A row without a free column gets the column of another row if that row has a further tight
    /// entry in a free column.
    fn match_what_is_tight(&mut self) {
        for (&column, &cost) in self.columns.iter().zip(&self.costs) {
            let least = &mut self.v[column as usize];
            *least = least.min(cost);
        }
        self.v.iter_mut().for_each(|v| *v = finite(*v));
        self.u = map_rows(self.u.len(), 16, &|row| self.least_of_row(row));
        for row in 0..self.u.len() {
            if let Some(column) = self.free_and_tight(row) {
                self.join(row as u32, column);
            }
        }
        for row in 0..self.u.len() {
            if self.column_of[row] != NONE {
                continue;
            }
            let change = self.tight(row).find_map(|column| {
                let other = self.row_of[column as usize];
                (other != NONE).then_some((column, other, self.free_and_tight(other as usize)?))
            });
            if let Some((column, other, free)) = change {
                self.join(other, free);
                self.join(row as u32, column);
            }
        }
    }

    /// The columns of a row's entries of length zero.
    fn tight(&self, row: usize) -> impl Iterator<Item = u32> + '_ {
        let entries = self.offsets.range(row).filter(move |&entry| self.length(row, entry) <= 0.0);
        entries.map(|entry| self.columns[entry])
    }

    fn free_and_tight(&self, row: usize) -> Option<u32> {
        self.tight(row).find(|&column| self.row_of[column as usize] == NONE)
    }

    fn join(&mut self, row: u32, column: u32) {
        self.row_of[column as usize] = row;
        self.column_of[row as usize] = column;
    }

    /// Matches row `root` along a shortest augmenting path, if there is one.
    fn augment(&mut self, root: u32, counter: &mut Counter<'_>) -> std::result::Result<(), Interrupted> {
        let (mut row, mut base) = (root as usize, 0.0);
        let (mut shortest, mut end) = (f64::INFINITY, NONE);
        self.reached.clear();
        self.settled.clear();
        self.ready.clear();
        loop {
            counter.add(self.offsets.range(row).len())?;
            for entry in self.offsets.range(row) {
                let column = self.columns[entry];
                let at = column as usize;
                // rounding may leave a length slightly negative
                let distance = base + self.length(row, entry).max(0.0);
                // no path to a settled column gets shorter
                if distance >= shortest || distance >= self.distance[at] {
                    continue;
                }
                if self.row_of[at] == NONE {
                    (shortest, end) = (distance, column);
                    self.parent[at] = row as u32;
                } else {
                    if self.distance[at] == f64::INFINITY {
                        self.reached.push(column);
                    }
                    self.distance[at] = distance;
                    self.parent[at] = row as u32;
                    // no other path is shorter than `base`, so a path of this length need not go through the
                    // heap
                    if distance <= base {
                        self.ready.push(column);
                    } else {
                        self.heap.push(Reverse((distance.to_bits(), column)));
                    }
                }
            }
            if shortest <= base {
                break;
            }
            let Some(column) = self.nearest() else { break };
            if self.distance[column as usize] >= shortest {
                break;
            }
            self.settled.push(column);
            base = self.distance[column as usize];
            row = self.row_of[column as usize] as usize;
        }
        self.heap.clear();
        if end != NONE {
            self.u[root as usize] += shortest;
            for &column in &self.settled {
                let shift = shortest - self.distance[column as usize];
                self.v[column as usize] -= shift;
                self.u[self.row_of[column as usize] as usize] += shift;
            }
            let mut column = end;
            loop {
                let row = self.parent[column as usize];
                let before = self.column_of[row as usize];
                self.join(row, column);
                if row == root {
                    break;
                }
                column = before;
            }
        }
        let reset = if end == NONE { f64::NEG_INFINITY } else { f64::INFINITY };
        self.reached.iter().for_each(|&column| self.distance[column as usize] = reset);
        Ok(())
    }

    /// Removes the column with the shortest path from `ready` and the heap, and returns it. Each column is
    /// returned once, with the length of its final path.
    fn nearest(&mut self) -> Option<u32> {
        if let Some(column) = self.ready.pop() {
            return Some(column);
        }
        while let Some(Reverse((distance, column))) = self.heap.pop() {
            // another path to the column may have become shorter
            if self.distance[column as usize].to_bits() == distance {
                return Some(column);
            }
        }
        None
    }

    fn finish<T: Real>(mut self, a: &Csr<T>) -> Matching {
        let n = self.u.len();
        let without: Vec<u32> = (0..n as u32).filter(|&row| self.column_of[row as usize] == NONE).collect();
        if !without.is_empty() {
            // searches skipped columns from which no free column is reachable: restore `u + v ≤ c` for their
            // entries
            for row in 0..n {
                for entry in self.offsets.range(row) {
                    let column = self.columns[entry] as usize;
                    self.v[column] = self.v[column].min(self.costs[entry] - self.u[row]);
                }
            }
        }
        for row in 0..n {
            self.u[row] = self.least_of_row(row);
        }
        let mut left = without.iter();
        for column in 0..n as u32 {
            if self.row_of[column as usize] == NONE
                && let Some(&row) = left.next()
            {
                self.join(row, column);
            }
        }
        let mut row_logs: Vec<f64> = (0..n).map(|row| self.u[row] - finite(largest(a, row).ln())).collect();
        let mut column_logs = self.v;
        // shift factors from rows to columns, so that both have the same mean
        let shift =
            (row_logs.iter().sum::<f64>() - column_logs.iter().sum::<f64>()) / (2.0 * n.max(1) as f64);
        row_logs.iter_mut().for_each(|log| *log -= shift);
        column_logs.iter_mut().for_each(|log| *log += shift);
        Matching { rows: self.row_of, unmatched: without.len(), row_logs, column_logs }
    }
}

/// The logarithm, or 0 if it is infinite (that of a zero).
fn finite(log: f64) -> f64 {
    if log.is_finite() { log } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::Scaling;

    /// A matrix of pseudo-random entries of very different sizes.
    fn scattered(n: usize, entries_per_row: usize, seed: u64) -> Csr<f64> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as usize % bound
        };
        let mut entries = vec![];
        for row in 0..n {
            for _ in 0..entries_per_row {
                let size = 10f64.powi(next(9) as i32 - 4) * (1.0 + next(100) as f64 / 10.0);
                entries.push((row, next(n), if next(2) == 0 { size } else { -size }));
            }
        }
        Csr::from_triplets(n, n, &entries).unwrap()
    }

    /// Logarithm of the largest product of one entry of each row and column, found by trying all choices.
    fn best(a: &Csr<f64>, row: usize, used: u32) -> f64 {
        if row == a.rows() {
            return 0.0;
        }
        let entries = a.row_columns(row).iter().zip(a.row_values(row));
        let free = entries.filter(|&(&column, &value)| used >> column & 1 == 0 && value != 0.0);
        free.map(|(&column, value)| value.abs().ln() + best(a, row + 1, used | 1 << column))
            .fold(f64::NEG_INFINITY, f64::max)
    }

    #[test]
    fn the_product_is_the_largest_of_all() {
        let mut singular = 0;
        for seed in 0..200 {
            let a = scattered(7, 1 + seed as usize % 4, seed);
            let matching = Matching::of(&a).unwrap();
            let expected = best(&a, 0, 0);
            if matching.unmatched() > 0 {
                assert_eq!(expected, f64::NEG_INFINITY, "seed {seed}");
                singular += 1;
                continue;
            }
            let chosen = matching.rows().iter().zip(0..);
            let product: f64 =
                chosen.map(|(&row, column)| a.get(row as usize, column).unwrap().abs().ln()).sum();
            assert!((product - expected).abs() < 1e-10, "seed {seed}: {product} {expected}");
        }
        assert!((20..180).contains(&singular), "{singular} of 200 are singular");
    }

    #[test]
    fn factors_make_chosen_entries_one_and_others_at_most_one() {
        for seed in 0..20 {
            let a = scattered(300, 5, seed);
            let matching = Matching::of(&a).unwrap();
            let mut rows = matching.rows().to_vec();
            let scaled = Scaling::matched(&a, &matching).unwrap().matrix(&a).unwrap();
            assert!(scaled.entries().iter().all(|value| value.abs() <= 1.0 + 1e-12), "seed {seed}");
            if matching.unmatched() == 0 {
                assert!(scaled.diagonal_entries().iter().all(|value| (value.abs() - 1.0).abs() < 1e-12));
            }
            rows.sort_unstable();
            assert!(rows.iter().zip(0..).all(|(&row, place)| row == place), "each row once");
        }
    }

    #[test]
    fn rows_without_a_column_are_counted() {
        // three rows share two columns; one row and one column are empty, another row holds zeros
        let entries = [(0, 0, 1.0), (1, 0, 2.0), (1, 1, 1.0), (2, 0, 4.0), (2, 1, 8.0), (3, 3, 0.0)];
        let matching = Matching::of(&Csr::from_triplets(5, 5, &entries).unwrap()).unwrap();
        assert_eq!(matching.unmatched(), 3);
        let empty = Csr::<f64>::from_triplets::<usize>(0, 0, &[]).unwrap();
        assert!(Matching::of(&empty).unwrap().rows().is_empty());
        let infinite = Csr::from_triplets(1, 1, &[(0, 0, f64::INFINITY)]).unwrap();
        assert!(Matching::of(&infinite).is_err());
        assert!(Matching::of(&Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap()).is_err());
    }
}
