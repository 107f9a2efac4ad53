//! Reordered patterns, computed immediately or on first use.

#[cfg(feature = "cuda")]
use super::assembly_order::AssemblyOrder;
#[cfg(feature = "cuda")]
use super::pattern::Later;
use super::pattern::{Entry, Pattern, check_places, checked, column_of, entry, place_of};
#[cfg(feature = "cuda")]
use super::user_order::reordering;
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::permutation::Permutation;
use krysp_kernels::buffer::{Buffer, Plain};
use krysp_kernels::cpu::run::threads::{ByRow, fill_by_rows, over_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::index::Columns;
use krysp_kernels::index::Offsets;
#[cfg(feature = "cuda")]
use std::sync::Arc;
use std::sync::LazyLock;

impl Pattern {
    /// Pattern of a square matrix after a symmetric permutation, given the old index of each new row and the
    /// new index of each old column. Also returns `value(k)` for each new entry, where `k` is its index in
    /// this pattern.
    ///
    /// Each new row has the entries of one old row with new column indices, and is sorted separately. Reads
    /// 12 bytes per entry and writes 16 (f64), once.
    pub(crate) fn reordered<X: Plain>(
        &self,
        value: impl Fn(usize) -> X + Sync,
        old_of_new: impl Fn(usize) -> u32 + Sync,
        new_of_old: impl Fn(u32) -> u32 + Sync,
    ) -> Result<(Pattern, Buffer<X>)> {
        check_places(self.entries())?;
        let rows = self.rows();
        let old_range = |row: usize| self.offsets.range(old_of_new(row) as usize);
        let offsets = Offsets::of_rows(rows, &|row| old_range(row).len());
        let (mut columns, mut order) = (Buffer::zeros(offsets.end()), Buffer::zeros(offsets.end()));
        let mut values = Buffer::zeros(offsets.end());
        let offset = |row: usize| offsets.at(row);
        let to = (
            (ByRow::new(&mut columns, &offset), ByRow::new(&mut order, &offset)),
            ByRow::new(&mut values, &offset),
        );
        over_rows(rows, 32, to, &|rows,
                                  ((columns, order), values): (
            (ByRow<'_, u32>, ByRow<'_, u32>),
            ByRow<'_, X>,
        )| {
            let mut to = columns.all().0.iter_mut().zip(order.all().0).zip(values.all().0);
            let mut sorted: Vec<Entry> = vec![];
            for row in rows {
                sorted.clear();
                sorted.extend(old_range(row).map(|k| entry(new_of_old(self.columns[k]), k)));
                sorted.sort_unstable();
                for (&entry, ((column, from), to)) in sorted.iter().zip(&mut to) {
                    (*column, *from) = (column_of(entry), place_of(entry));
                    *to = value(place_of(entry) as usize);
                }
            }
        });
        let given = self.given.then(order);
        Ok((Pattern::new(offsets, checked(columns, self.cols())?, given), values))
    }

    /// Reordered pattern of a matrix whose entries were reordered on a device. The offsets are given; the
    /// columns and the mapping of assembled values are computed on first use, because products on a device
    /// need neither.
    #[cfg(feature = "cuda")]
    pub(crate) fn reordered_lazily(
        self: &Arc<Pattern>,
        permutation: &Arc<Permutation>,
        offsets: Offsets,
    ) -> Result<Pattern> {
        check_places(self.entries())?;
        let offsets = Arc::new(offsets);
        let [columns, given] = [(); 2].map(|()| (self.clone(), permutation.clone(), offsets.clone()));
        let columns: Later<Columns> = LazyLock::new(Box::new(|| {
            let (old, permutation, offsets) = columns;
            let (rows, places) = reordering(None, Some(permutation));
            let columns = old.entries_in(&offsets, rows, places, column_of);
            Columns::new(columns, old.cols()).unwrap_or_else(|_| unreachable!("a permutation of columns"))
        }));
        let given: Later<AssemblyOrder> = LazyLock::new(Box::new(|| {
            let (old, permutation, offsets) = given;
            let (rows, columns) = reordering(None, Some(permutation));
            old.given.then(old.entries_in(&offsets, rows, columns, place_of))
        }));
        Ok(Pattern { offsets, cols: self.cols(), columns, given })
    }

    /// Returns `part(key)` for the sort key of each entry, in the order of a reordered matrix with row
    /// offsets `offsets`.
    pub(super) fn entries_in(
        &self,
        offsets: &Offsets,
        old_of_new: impl Fn(usize) -> u32 + Sync,
        new_of_old: impl Fn(u32) -> u32 + Sync,
        part: impl Fn(Entry) -> u32 + Sync,
    ) -> Buffer<u32> {
        // force the lazy columns before a loop on all threads reads them
        LazyLock::force(&self.columns);
        let mut parts = Buffer::zeros(offsets.end());
        fill_by_rows(offsets.ranges(), &mut parts, &|row| offsets.at(row), &|rows, to: &mut [u32], _| {
            let (mut to, mut sorted) = (to.iter_mut(), vec![]);
            for row in rows {
                let entries = self.offsets.range(old_of_new(row) as usize);
                let column = |k: usize| new_of_old(self.columns[k]);
                sorted.clear();
                sorted.extend(entries.map(|k| entry(column(k), k)));
                sorted.sort_unstable();
                sorted.iter().zip(to.by_ref()).for_each(|(&entry, to)| *to = part(entry));
            }
        });
        parts
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_later_is_the_same() {
        for (rows, count) in [(0, 0), (1, 3), (700, 4_000), (3_000, 2_000)] {
            let (row, column) = scattered(rows.max(1), count);
            let pattern = Arc::new(Pattern::from_coordinates(rows, rows, &row, &column).unwrap());
            let turned: Vec<u32> = (0..rows as u32).rev().collect();
            let permutation = Arc::new(Permutation::from_old_of_new(turned).unwrap());
            let (old, new) = (permutation.old_of_new(), permutation.new_of_old());
            let (eager, _) =
                pattern.reordered(|_| 0u32, |row| old[row], |column| new[column as usize]).unwrap();
            let later = pattern.reordered_lazily(&permutation, Offsets::clone(&eager.offsets)).unwrap();
            assert_eq!((later.rows(), later.cols(), later.entries()), (rows, rows, eager.entries()));
            assert_eq!(**later.columns, **eager.columns);
            let sources = |pattern: &Pattern, k| pattern.given.sources(k).collect::<Vec<_>>();
            assert!((0..later.entries()).all(|k| sources(&later, k) == sources(&eager, k)));
        }
    }

    /// Pseudo-random positions, some of them repeated.
    fn scattered(rows: usize, count: usize) -> (Vec<u32>, Vec<u32>) {
        let number = |k: usize, factor: usize| ((k * factor) % 1_000_003 % rows) as u32;
        (0..count).map(|k| (number(k, 7919), number(k / 3, 104_729))).unzip()
    }
}
