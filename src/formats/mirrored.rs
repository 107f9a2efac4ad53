//! Lookup of transposed entries `a_ji` while rows are traversed.

use crate::formats::Csr;
use crate::numbers::Real;
use krysp_kernels::cpu::run::threads::{over_parts, tasks};
use std::ops::Range;

/// Finds `a_ji` for entries `a_ij` of rows that are visited in ascending order. Then the positions within
/// each row `j` are ascending too, so that a cursor per row replaces the search where rows are visited often.
pub(crate) struct Mirrored<'a, T: Real> {
    csr: &'a Csr<T>,
    /// Cursor of each row: the entry to examine next, counted from one; zero before the first visit. Zeroed memory is
    /// usually provided page by page at first use, so that rows far from those visited cost none. Empty without cursors.
    next: Vec<u32>,
}

impl<T: Real> Mirrored<'_, T> {
    /// Value of the entry in row `col` and column `row`, if it is stored.
    pub(crate) fn across(&mut self, row: usize, col: usize) -> Option<T> {
        let columns = self.csr.row_columns(col);
        let before = |&column: &u32| (column as usize) < row;
        let at = match self.next.get(col) {
            None | Some(0) => columns.partition_point(before),
            Some(&next) => {
                let next = next as usize - 1;
                next + columns[next..].iter().take_while(|column| before(column)).count()
            }
        };
        if let Some(next) = self.next.get_mut(col) {
            *next = at as u32 + 1;
        }
        columns.get(at).filter(|&&column| column as usize == row).map(|_| self.csr.row_values(col)[at])
    }
}

/// Runs `work` over all rows of a square matrix, on all threads.
pub(crate) fn over_mirrored_rows<T: Real>(
    csr: &Csr<T>,
    work: &(impl Fn(Range<usize>, Mirrored<'_, T>) + Sync),
) {
    let rows = csr.rows();
    let count = tasks(12 * rows).max(1);
    // a part compares about nnz / (2 count) entries; a cursor for every row pays off (guess) if these are at least two per row
    let has_cursors = count == 1 || csr.nnz() / 4 >= rows * count;
    over_parts(count, &|part| rows * part / count, (), &|part, ()| {
        work(part, Mirrored { csr, next: vec![0; if has_cursors { rows } else { 0 }] });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn what_is_across_is_what_a_search_finds() {
        let skewed: Vec<_> = (0..3000usize).map(|k| (k * 7 % 900, k * k % 900, k as f64 + 1.0)).collect();
        let skewed = Csr::from_triplets(900, 900, &skewed).unwrap();
        // two triangles of one pattern, with other values in each
        let pairs = |(i, j)| [(i, j, (i + j) as f64), (j, i, (2 * i + j) as f64)];
        let grid = (0..1728).flat_map(|i| [1, 12, 144].map(|far| (i, i + far))).filter(|&(_, j)| j < 1728);
        let grid: Vec<_> = grid.flat_map(pairs).chain((0..1728).map(|i| (i, i, 6.0))).collect();
        for a in [Csr::from_triplets(1728, 1728, &grid).unwrap(), skewed] {
            let looked = AtomicUsize::new(0);
            over_mirrored_rows(&a, &|rows, mut mirrored| {
                for row in rows {
                    for &col in a.row_columns(row) {
                        assert_eq!(mirrored.across(row, col as usize), a.get(col as usize, row));
                        looked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            assert_eq!(looked.into_inner(), a.nnz());
        }
    }
}
