//! Block triangular form: a permutation of rows and columns after which all entries below the diagonal blocks
//! are zero (Duff and Reid 1978).
//!
//! ```text
//! transversal: match a row to each column by a stored entry, along augmenting paths (Duff 1981)
//! blocks: strongly connected components (Tarjan 1972) of the graph with an edge from j to k
//!         if column j has an entry in the row matched to column k
//! ```
//!
//! Only the diagonal blocks are factorized. The form depends only on the pattern.

use crate::error::Result;
use crate::formats::{Csr, Rows};
use crate::numbers::Real;
use krysp_kernels::interrupt::Phase;
use std::mem::replace;

const NONE: u32 = u32::MAX;

/// Discovery number of columns whose block is complete: larger than all others, so that it changes no low link.
const DONE: u32 = NONE - 1;

/// Diagonal blocks, from the top left on.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Block of each column, and of the row that is matched to it.
    pub(super) of: Vec<u32>,
    /// Index of the first column of each block in the permuted matrix; at the end, the number of columns.
    pub(super) starts: Vec<u32>,
}

impl Blocks {
    /// Finds the blocks, given the column matched to each row. `None` if there is a single block.
    pub(super) fn new<T: Real>(columns: &Csr<T>, column_of: &[u32]) -> Result<Option<Blocks>> {
        let n = column_of.len();
        let phase = Phase::new("block triangular form", n as f64);
        let mut counter = phase.counter();
        let (mut of, mut starts) = (vec![NONE; n], vec![0]);
        // discovery number of each column, `DONE` once its block is complete
        let (mut found, mut count) = (vec![NONE; n], 0u32);
        // `path` has, for each column, the index of its next entry and the smallest discovery number that is reachable
        // from its earlier entries (low link)
        let (mut open, mut path): (Vec<u32>, Vec<(u32, usize, u32)>) = (vec![], vec![]);
        let all = Rows::of(columns);
        for root in 0..n as u32 {
            let mut next = (found[root as usize] == NONE).then_some(root);
            loop {
                if let Some(column) = next.take() {
                    found[column as usize] = count;
                    open.push(column);
                    path.push((column, 0, count));
                    count += 1;
                    counter.add(1 + all.range(column as usize).len())?;
                }
                let Some((column, at, low)) = path.last_mut() else { break };
                let rows = &all.columns(*column as usize)[*at..];
                let unseen = rows.iter().position(|&row| {
                    let number = found[column_of[row as usize] as usize];
                    *low = number.min(*low);
                    number == NONE
                });
                if let Some(unseen) = unseen {
                    *at += unseen + 1;
                    next = Some(column_of[rows[unseen] as usize]);
                    continue;
                }
                let (column, low) = (*column, *low);
                path.pop();
                if let Some((_, _, above)) = path.last_mut() {
                    *above = low.min(*above);
                }
                if low == found[column as usize] {
                    // all columns reachable from this one are in this block or in earlier ones
                    let block = starts.len() as u32 - 1;
                    let size = open.iter().rev().position(|&member| member == column).unwrap_or(0) + 1;
                    for member in open.drain(open.len() - size..) {
                        (of[member as usize], found[member as usize]) = (block, DONE);
                    }
                    starts.push(starts[block as usize] + size as u32);
                }
            }
        }
        Ok((starts.len() > 2).then_some(Blocks { of, starts }))
    }

    /// Sorts columns by block; the order within a block is kept.
    pub(super) fn sort(&self, order: &[u32]) -> Vec<u32> {
        let mut next = self.starts.clone();
        let mut sorted = vec![0; order.len()];
        for &column in order {
            let place = &mut next[self.of[column as usize] as usize];
            sorted[*place as usize] = column;
            *place += 1;
        }
        sorted
    }
}

/// Matches a row to each column by a stored entry whose value is usable, the diagonal entry where possible. `None` if
/// these entries have no transversal.
pub(super) fn transversal<T: Real>(columns: &Csr<T>, usable: impl Fn(T) -> bool) -> Result<Option<Vec<u32>>> {
    let n = columns.rows();
    let all = Rows::of(columns);
    let entries = |column: usize| all.row(column);
    let phase = Phase::new("maximum transversal", n as f64);
    let mut counter = phase.counter();
    let (mut row_of, mut column_of) = (vec![NONE; n], vec![NONE; n]);
    for column in 0..n {
        let (rows, values) = entries(column);
        if rows.binary_search(&(column as u32)).is_ok_and(|at| usable(values[at])) {
            (row_of[column], column_of[column]) = (column as u32, column as u32);
        }
    }
    // first entry of each column whose row may be unmatched; those before it stay matched
    let mut cheap = vec![0; n];
    let (mut visited, mut path): (Vec<u32>, Vec<(u32, usize)>) = (vec![NONE; n], vec![]);
    for root in (0..n as u32).filter(|&column| row_of[column as usize] == NONE).collect::<Vec<_>>() {
        path.clear();
        path.push((root, 0));
        visited[root as usize] = root;
        let free = loop {
            let Some((column, at)) = path.last_mut() else { return Ok(None) };
            let (rows, values) = entries(*column as usize);
            let skipped = &mut cheap[*column as usize];
            counter.add(1 + rows.len() - *skipped)?;
            let is_free = |&at: &usize| column_of[rows[at] as usize] == NONE && usable(values[at]);
            *skipped = (*skipped..rows.len()).find(is_free).unwrap_or(rows.len());
            if let Some(&row) = rows.get(*skipped) {
                break row;
            }
            // follow a row to the column matched to it, which may find another row
            let other = |at: usize| column_of[rows[at] as usize];
            let is_unseen = |&at: &usize| usable(values[at]) && visited[other(at) as usize] != root;
            match (*at..rows.len()).find(is_unseen) {
                Some(unseen) => {
                    *at = unseen + 1;
                    let next = other(unseen);
                    visited[next as usize] = root;
                    path.push((next, 0));
                }
                None => drop(path.pop()),
            }
        };
        let mut row = free;
        while let Some((column, _)) = path.pop() {
            column_of[row as usize] = column;
            row = replace(&mut row_of[column as usize], row);
        }
    }
    Ok(Some(row_of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::derived::Derivation;
    use crate::preconditioners::direct::testing::Random;

    fn inverse(row_of: &[u32]) -> Vec<u32> {
        let mut column_of = vec![NONE; row_of.len()];
        (0..).zip(row_of).for_each(|(column, &row)| column_of[row as usize] = column);
        column_of
    }

    /// Whether column `i` is reachable from column `j`, for each `[j][i]`; `j` is reachable from itself.
    fn reached(columns: &Csr<f64>, column_of: &[u32]) -> Vec<Vec<bool>> {
        let n = column_of.len();
        let mut leads = vec![vec![false; n]; n];
        for (column, leads) in leads.iter_mut().enumerate() {
            leads[column] = true;
            columns
                .row_columns(column)
                .iter()
                .for_each(|&row| leads[column_of[row as usize] as usize] = true);
        }
        for k in 0..n {
            let through = leads[k].clone();
            for leads in leads.iter_mut().filter(|leads| leads[k]) {
                leads.iter_mut().zip(&through).for_each(|(leads, &through)| *leads |= through);
            }
        }
        leads
    }

    #[test]
    fn blocks_are_the_strongly_connected_components_in_triangular_order() {
        let mut source = Random(0x2468_ace0_1357_9bdf);
        let (mut split, mut whole, mut singular) = (0, 0, 0);
        for case in 0..2000 {
            let n = 1 + source.below(25);
            let entries: Vec<_> =
                (0..n * (1 + source.below(3))).map(|_| (source.below(n), source.below(n), 1.0)).collect();
            let a = Csr::from_triplets(n, n, &entries).unwrap();
            let (columns, _) = Derivation::transposed(&a).unwrap();
            let Some(row_of) = transversal(&columns, |_| true).unwrap() else {
                singular += 1;
                continue;
            };
            let column_of = inverse(&row_of);
            assert!(column_of.iter().all(|&column| column != NONE), "case {case}");
            assert!((0..n).all(|j| a.get(row_of[j] as usize, j).is_some()), "case {case}");
            let leads = reached(&columns, &column_of);
            let Some(blocks) = Blocks::new(&columns, &column_of).unwrap() else {
                assert!(leads.iter().flatten().all(|&leads| leads), "case {case}: one block");
                whole += 1;
                continue;
            };
            for (j, leads_of) in leads.iter().enumerate() {
                for (i, &leads_to) in leads_of.iter().enumerate() {
                    let same = leads_to && leads[i][j];
                    assert_eq!(blocks.of[i] == blocks.of[j], same, "case {case}: columns {i} and {j}");
                    assert!(!leads_to || blocks.of[i] <= blocks.of[j], "case {case}: columns {i} and {j}");
                }
            }
            let backwards: Vec<u32> = (0..n as u32).rev().collect();
            let sorted = blocks.sort(&backwards);
            for (block, bounds) in blocks.starts.windows(2).enumerate() {
                let members = &sorted[bounds[0] as usize..bounds[1] as usize];
                assert!(!members.is_empty() && members.is_sorted_by(|one, next| one > next), "case {case}");
                assert!(members.iter().all(|&member| blocks.of[member as usize] as usize == block));
            }
            split += 1;
        }
        assert!(split > 100 && whole > 30 && singular > 100, "{split} {whole} {singular}");
    }

    #[test]
    fn augmenting_paths_find_the_only_transversal() {
        // column j has rows j + 1 and j + 2 (modulo 300), but columns 298 and 299 only j + 2; so column 299
        // needs row 1, column 0 must change to row 2, column 1 to row 3, ...
        let first = |j: usize| if j < 298 { j + 1 } else { j + 2 };
        let entries: Vec<_> =
            (0..300).flat_map(|j| (first(j)..j + 3).map(move |row| (row % 300, j, 1.0))).collect();
        let a = Csr::from_triplets(300, 300, &entries).unwrap();
        let row_of = transversal(&Derivation::transposed(&a).unwrap().0, |_| true).unwrap().unwrap();
        assert!((0..300).all(|j| row_of[j as usize] == (j + 2) % 300), "{row_of:?}");
        let none = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, 1.0)]).unwrap();
        assert!(transversal(&Derivation::transposed(&none).unwrap().0, |_| true).unwrap().is_none());
    }
}
