//! Sparsity patterns, and the order in which values were assembled.

use super::assembly_order::AssemblyOrder;
use crate::error::{Error, Result};
use crate::memory::check_free_memory;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{
    ByRow, fill_by_rows, find_row, map_rows, over_parts, over_rows, tasks,
};
use krysp_kernels::index::{Columns, Offsets};
use krysp_kernels::interrupt::{self, Phase};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// A pattern with sorted rows, and the mapping from assembled values to entries. Shared by the formats of one
/// matrix, and by matrices with the same pattern.
#[derive(Debug)]
// public because a public trait of the module `ranks` has it as an associated type
pub struct Pattern {
    pub(crate) offsets: Arc<Offsets>,
    pub(super) cols: usize,
    pub(crate) columns: Later<Columns>,
    pub(crate) given: Later<AssemblyOrder>,
}

/// A value computed on first use. Force it before a loop on all threads reads it, because the computation is
/// itself a loop on all threads.
pub(crate) type Later<X> = LazyLock<X, Box<dyn FnOnce() -> X + Send>>;

/// Wraps a value that is already known.
pub(crate) fn made<X: Send + 'static>(made: X) -> Later<X> {
    LazyLock::new(Box::new(|| made))
}

/// Sort key of an entry: its column in the upper 32 bits, and the index of its value in the user's arrays in
/// the lower 32 bits. The indices are distinct, so that an unstable sort gives the order of a stable sort by
/// column.
pub(crate) type Entry = u64;

pub(super) fn entry(column: u32, place: usize) -> Entry {
    u64::from(column) << 32 | place as u64
}

pub(super) fn column_of(entry: Entry) -> u32 {
    (entry >> 32) as u32
}

pub(crate) fn place_of(entry: Entry) -> u32 {
    entry as u32
}

impl Pattern {
    pub(super) fn new(offsets: Offsets, columns: Columns, given: AssemblyOrder) -> Pattern {
        let cols = columns.bound();
        Pattern { offsets: Arc::new(offsets), cols, columns: made(columns), given: made(given) }
    }

    pub(crate) fn rows(&self) -> usize {
        self.offsets.ranges()
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    pub(crate) fn entries(&self) -> usize {
        self.offsets.end()
    }

    // without `always`, loops over rows call it as a function, which takes longer than reading a short row
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> &[u32] {
        &self.columns[self.offsets.range(row)]
    }

    /// The pattern in the form that kernels for devices accept.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_device(&self) -> krysp_kernels::cuda::Pattern<'_> {
        krysp_kernels::cuda::Pattern::with_columns_of(&self.offsets, self.cols, &self.columns)
    }

    /// Bytes of the offsets, the columns and the mapping of assembled values.
    pub(crate) fn bytes(&self) -> usize {
        self.offsets.bytes() + self.entries() * size_of::<u32>() + self.given.bytes()
    }

    /// Creates a pattern from rows that are sorted and free of duplicates.
    pub(crate) fn sorted(offsets: Offsets, columns: impl Into<Buffer<u32>>, cols: usize) -> Result<Pattern> {
        let columns = checked(columns, cols)?;
        let len = columns.len();
        Ok(Pattern::new(offsets, columns, AssemblyOrder::InOrder { len }))
    }

    /// Creates a pattern from the rows and columns of its entries, in any order; duplicates are summed.
    pub(crate) fn from_coordinates(rows: usize, cols: usize, row: &[u32], column: &[u32]) -> Result<Pattern> {
        Self::from_places(rows, cols, row.len(), &|k| (row[k], column[k]))
    }

    /// Creates a pattern of `count` entries; entry `k` has the row and column `place(k)`. Duplicates are
    /// summed.
    fn from_places(
        rows: usize,
        cols: usize,
        count: usize,
        place: &(impl Fn(usize) -> (u32, u32) + Sync),
    ) -> Result<Pattern> {
        check_places(count)?;
        check_free_memory("sorting entries by rows", 24 * rows as u128 + 16 * count as u128)?;
        let (starts, entries) = by_rows(rows, count, place);
        interrupt::check("sorting of entries")?;
        Self::from_rows(cols, &starts, entries)
    }

    /// Creates a pattern from rows whose entries may be unsorted and repeated.
    pub(crate) fn from_unsorted_rows(offsets: &Offsets, columns: &[u32], cols: usize) -> Result<Pattern> {
        check_places(columns.len())?;
        let mut entries = Buffer::zeros(columns.len());
        over_rows(columns.len(), 2, &mut *entries, &|places, entries: &mut [Entry]| {
            for (place, to) in places.zip(entries) {
                *to = entry(columns[place], place);
            }
        });
        Self::from_rows(cols, offsets, entries)
    }

    fn from_rows(cols: usize, starts: &Offsets, mut entries: Buffer<Entry>) -> Result<Pattern> {
        let (rows, given) = (starts.ranges(), entries.len());
        let mut lengths = vec![0usize; rows];
        let phase = Phase::new("sorting of entries", given as f64);
        let start = |row| starts.at(row);
        let by_row = ByRow::new(&mut entries, &start);
        over_rows(rows, 8, (lengths.as_mut_slice(), by_row), &|range,
                                                               (lengths, mut entries): (
            &mut [usize],
            ByRow<'_, _>,
        )| {
            let mut counter = phase.counter();
            for (row, length) in range.zip(lengths) {
                // if interrupted, stop early; the check after the loop returns the error
                if counter.add(starts.range(row).len()).is_err() {
                    return;
                }
                let entries = entries.row_mut(row, starts.range(row).len());
                entries.sort_unstable();
                *length = of_one_column(entries).count();
            }
        });
        interrupt::check("sorting of entries")?;
        let offsets = Offsets::from_lengths(lengths);
        let mut columns = Buffer::zeros(offsets.end());
        fill_by_rows(rows, &mut columns, &|row| offsets.at(row), &|rows, part, _| {
            let all = rows.flat_map(|row| of_one_column(&entries[starts.range(row)]));
            part.iter_mut().zip(all).for_each(|(column, same)| *column = column_of(same[0]));
        });
        let columns = checked(columns, cols)?;
        interrupt::check("sorting of entries")?;
        let summed = offsets.end() < given;
        if !summed && find_row(given, 2, &|k| place_of(entries[k]) as usize != k).is_none() {
            return Ok(Pattern::new(offsets, columns, AssemblyOrder::InOrder { len: given }));
        }
        let from = map_rows(given, 3, &|k| place_of(entries[k])).into();
        if !summed {
            return Ok(Pattern::new(offsets, columns, AssemblyOrder::Permuted { len: given, from }));
        }
        interrupt::check("sorting of entries")?;
        let mut sums = vec![0u32; offsets.end() + 1];
        sums[offsets.end()] = given as u32;
        let sums_of_rows = &mut sums[..offsets.end()];
        fill_by_rows(rows, sums_of_rows, &|row| offsets.at(row), &|rows, part, _| {
            let mut start = starts.at(rows.start);
            let all = rows.flat_map(|row| of_one_column(&entries[starts.range(row)]));
            for (sum, same) in part.iter_mut().zip(all) {
                *sum = start as u32;
                start += same.len();
            }
        });
        let starts = Offsets::from_short(sums).map_err(|_| unreachable_order())?;
        Ok(Pattern::new(offsets, columns, AssemblyOrder::Summed { len: given, starts, from }))
    }

    /// Returns the pattern of a square matrix with an additional transposed copy of every off-diagonal entry,
    /// and, for each new entry, the index of the entry of this pattern that it copies.
    pub(crate) fn mirrored(&self) -> Result<(Pattern, Buffer<u32>)> {
        let (row, entries) = (self.rows_of_entries(), self.entries());
        interrupt::check("mirroring of a triangle")?;
        let off_diagonal = |&k: &u32| row[k as usize] != self.columns[k as usize];
        let again: Vec<u32> = (0..entries as u32).filter(off_diagonal).collect();
        interrupt::check("mirroring of a triangle")?;
        let origin = |k: usize| if k < entries { k } else { again[k - entries] as usize };
        self.rearranged(entries + again.len(), &origin, &|k| {
            let (row, column) = (row[origin(k)], self.columns[origin(k)]);
            if k < entries { (row, column) } else { (column, row) }
        })
    }

    /// Pattern of a contiguous part of each row. `offsets` are the row offsets of the result, and
    /// `first(entries of the row, length of the part)` returns the first entry of a part. The columns are
    /// computed on first use, because operators on a device do not need them.
    pub(crate) fn part(
        self: &Arc<Pattern>,
        offsets: Arc<Offsets>,
        first: impl Fn(Range<usize>, usize) -> usize + Send + Sync + 'static,
    ) -> Pattern {
        let (whole, part) = (self.clone(), offsets.clone());
        let columns = move || {
            let (mut columns, all) = (Buffer::zeros(part.end()), &**whole.columns);
            fill_by_rows(part.ranges(), &mut columns, &|row| part.at(row), &|rows, mut rest, _| {
                for row in rows {
                    let (to, after) = rest.split_at_mut(part.range(row).len());
                    let from = first(whole.offsets.range(row), to.len());
                    to.copy_from_slice(&all[from..from + to.len()]);
                    rest = after;
                }
            });
            Columns::new(columns, whole.cols()).unwrap_or_else(|_| unreachable!("columns of the whole"))
        };
        let given = made(AssemblyOrder::InOrder { len: offsets.end() });
        Pattern { offsets, cols: self.cols(), columns: LazyLock::new(Box::new(columns)), given }
    }

    /// This pattern for values that are given in the order of its entries ([`AssemblyOrder::InOrder`]).
    pub(crate) fn in_order(self: &Arc<Pattern>) -> Arc<Pattern> {
        if matches!(*self.given, AssemblyOrder::InOrder { .. }) {
            return self.clone();
        }
        Arc::new(self.part(self.offsets.clone(), |whole, _| whole.start))
    }

    /// Returns the pattern of the transpose of a square matrix, and, for each new entry, the index of the
    /// entry of this pattern that it copies.
    pub(crate) fn transposed(&self) -> Result<(Pattern, Buffer<u32>)> {
        let (row, columns) = (self.rows_of_entries(), &**self.columns);
        self.rearranged(self.entries(), &|k| k, &|k| (columns[k], row[k]))
    }

    fn rows_of_entries(&self) -> Buffer<u32> {
        let mut row = Buffer::zeros(self.entries());
        fill_by_rows(self.rows(), &mut row, &|row| self.offsets.at(row), &|rows, part, first| {
            for row in rows {
                let range = self.offsets.range(row);
                part[range.start - first..range.end - first].fill(row as u32);
            }
        });
        row
    }

    /// Returns the pattern of `entries` entries at new positions: entry `k` is at `place(k)` and copies the
    /// entry `origin(k)` of this pattern. Also returns the index of the copied entry for each entry of the
    /// result, which is sorted.
    fn rearranged(
        &self,
        entries: usize,
        origin: &(impl Fn(usize) -> usize + Sync),
        place: &(impl Fn(usize) -> (u32, u32) + Sync),
    ) -> Result<(Pattern, Buffer<u32>)> {
        let mut pattern = Self::from_places(self.rows(), self.cols(), entries, place)?;
        // the mapping of the new pattern refers to entries of this pattern: compose it with the mapping from
        // entries to the user's values
        let first = |k: usize| pattern.given.sources(k).next().map_or(0, |s| origin(s as usize) as u32);
        let order = Buffer::from(map_rows(pattern.entries(), 3, &first));
        pattern.given = made(self.given.then(order.clone()));
        Ok((pattern, order))
    }
}

/// Groups of sorted entries that have the same column.
fn of_one_column(entries: &[Entry]) -> impl Iterator<Item = &[Entry]> {
    entries.chunk_by(|&a, &b| column_of(a) == column_of(b))
}

/// Maximum number of buckets of a sort by rows.
const BUCKETS: usize = 512;
/// Minimum number of entries per bucket, on average.
const BUCKET: usize = 4096;

/// Sorts entries by row, keeping their order within each row; returns the row offsets too.
///
/// A parallel bucket sort. Each thread has a piece of the entries; it counts the entries that belong to each
/// bucket (a range of rows), and writes them to the bucket after those of earlier pieces. Then each bucket is
/// sorted separately; its few rows stay in cache.
pub(crate) fn by_rows(
    rows: usize,
    count: usize,
    place: &(impl Fn(usize) -> (u32, u32) + Sync),
) -> (Offsets, Buffer<Entry>) {
    let most = (count / BUCKET).clamp(1, BUCKETS);
    let shift = (0..usize::BITS).find(|&shift| rows >> shift < most).unwrap_or(0);
    let (buckets, bucket_of) = ((rows >> shift) + 1, |row: u32| row as usize >> shift);
    // few pieces, because one thread divides each bucket among them
    let piece = count.div_ceil(tasks(count).min(2 * rayon::current_num_threads())).max(1);
    let pieces: Vec<Range<usize>> =
        (0..count).step_by(piece).map(|start| start..count.min(start + piece)).collect();
    let mut counts = vec![vec![0usize; buckets]; pieces.len()];
    over_parts(pieces.len(), &|piece| piece, counts.as_mut_slice(), &|range, counts: &mut [Vec<usize>]| {
        for (piece, counts) in pieces[range].iter().zip(counts) {
            piece.clone().for_each(|k| counts[bucket_of(place(k).0)] += 1);
        }
    });

    let (mut row, mut unsorted) = (Buffer::<u32>::zeros(count), Buffer::<Entry>::zeros(count));
    let in_order = |bucket: usize| counts.iter().map(move |counts| counts[bucket]);
    let lengths: Vec<usize> = (0..buckets).flat_map(in_order).collect();
    // for each bucket and each piece, the part of the bucket to which the piece writes
    let parts = cut(&mut row, &lengths).into_iter().zip(cut(&mut unsorted, &lengths));
    let mut targets: Vec<Vec<_>> = pieces.iter().map(|_| Vec::with_capacity(buckets)).collect();
    for (at, part) in parts.enumerate() {
        targets[at % pieces.len()].push(part);
    }
    over_parts(pieces.len(), &|piece| piece, targets.as_mut_slice(), &|range, targets: &mut [Vec<_>]| {
        for (piece, targets) in pieces[range].iter().zip(targets) {
            let mut filled = vec![0usize; buckets];
            for k in piece.clone() {
                let (to_row, column) = place(k);
                let bucket = bucket_of(to_row);
                let (row, unsorted) = &mut targets[bucket];
                let at = &mut filled[bucket];
                (row[*at], unsorted[*at]) = (to_row, entry(column, k));
                *at += 1;
            }
        }
    });

    let lengths: Vec<usize> = (0..buckets).map(|bucket| in_order(bucket).sum()).collect();
    let bounds = Offsets::from_lengths(lengths);
    let mut row_lengths = vec![0usize; rows];
    let first_row = |bucket: usize| rows.min(bucket << shift);
    let of_bucket = |rows: &Range<usize>| bounds.range(rows.start >> shift);
    over_parts(buckets, &first_row, row_lengths.as_mut_slice(), &|rows, lengths: &mut [usize]| {
        if !rows.is_empty() {
            row[of_bucket(&rows)].iter().for_each(|&row| lengths[row as usize - rows.start] += 1);
        }
    });
    let starts = Offsets::from_lengths(row_lengths);
    let mut sorted = Buffer::zeros(count);
    let start = |row: usize| starts.at(row);
    over_parts(buckets, &first_row, ByRow::new(&mut sorted, &start), &|rows, sorted: ByRow<'_, Entry>| {
        if rows.is_empty() {
            return;
        }
        let range = of_bucket(&rows);
        let (sorted, first) = sorted.all();
        let mut next: Vec<usize> = rows.clone().map(|row| starts.at(row) - first).collect();
        for (&row, &entry) in row[range.clone()].iter().zip(&unsorted[range]) {
            let at = &mut next[row as usize - rows.start];
            sorted[*at] = entry;
            *at += 1;
        }
    });
    (starts, sorted)
}

/// Splits a slice into consecutive pieces of these lengths.
pub(crate) fn cut<'a, X>(mut data: &'a mut [X], lengths: &[usize]) -> Vec<&'a mut [X]> {
    let mut pieces = Vec::with_capacity(lengths.len());
    for &length in lengths {
        let (piece, rest) = data.split_at_mut(length);
        pieces.push(piece);
        data = rest;
    }
    pieces
}

fn unreachable_order() -> Error {
    Error::Offsets { position: 0, offset: 0, entries: 0 }
}

pub(super) fn checked(columns: impl Into<Buffer<u32>>, cols: usize) -> Result<Columns> {
    Columns::new(columns, cols).map_err(|invalid| match invalid {
        krysp_kernels::index::Invalid::Bound { position, index, bound } => {
            Error::Index { position, what: "column", index: i128::from(index), bound: bound as usize }
        }
        krysp_kernels::index::Invalid::Order { position } => {
            Error::Offsets { position, offset: 0, entries: 0 }
        }
    })
}

/// Checks that 32-bit indices can address values that must be permuted or summed.
pub(super) fn check_places(len: usize) -> Result<()> {
    if len as u64 <= u64::from(u32::MAX) {
        return Ok(());
    }
    Err(Error::Unsuitable {
        format: "unsorted input",
        why: format!("{len} values are more than 32-bit indices can address: use CSR with sorted rows"),
    })
}

/// Checks that two patterns are equal; the error names the first row that differs, or that only one of them has.
pub(crate) fn check_pattern(pattern: &Arc<Pattern>, other: &Arc<Pattern>) -> Result<()> {
    if Arc::ptr_eq(pattern, other)
        || (pattern.offsets == other.offsets && **pattern.columns == **other.columns)
    {
        return Ok(());
    }
    let common = pattern.rows().min(other.rows());
    let row = (0..common).find(|&row| pattern.row(row) != other.row(row)).unwrap_or(common);
    Err(Error::PatternMismatch { row })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Pseudo-random positions, some of them repeated.
    fn scattered(rows: usize, cols: usize, count: usize) -> (Vec<u32>, Vec<u32>) {
        let number = |k: usize, factor: usize, bound: usize| ((k * factor) % 1_000_003 % bound) as u32;
        (0..count).map(|k| (number(k, 7919, rows), number(k / 3, 104_729, cols))).unzip()
    }

    #[test]
    fn parts_are_cut_from_rows() {
        let (row, column) = scattered(2000, 300, 9000);
        let whole = Arc::new(Pattern::from_coordinates(2000, 300, &row, &column).unwrap());
        let offsets = Offsets::from_lengths((0..2000).map(|row| whole.row(row).len() / 2));
        let first = whole.part(Arc::new(offsets.clone()), |whole, _| whole.start);
        let last = whole.part(Arc::new(offsets), |whole, length| whole.end - length);
        for row in 0..2000 {
            let (all, half) = (whole.row(row), whole.row(row).len() / 2);
            assert_eq!((first.row(row), last.row(row)), (&all[..half], &all[all.len() - half..]));
        }
        let in_order = whole.in_order();
        assert!(matches!(*in_order.given, AssemblyOrder::InOrder { len } if len == whole.entries()));
        assert!(
            !matches!(*whole.given, AssemblyOrder::InOrder { .. }) && **in_order.columns == **whole.columns
        );
    }

    #[test]
    fn patterns_from_coordinates_are_those_of_a_sorted_map() {
        for (rows, cols, count) in
            [(0, 0, 0), (3, 2, 0), (1, 1, 5), (511, 40, 900), (512, 9, 700), (70_000, 300, 200_000)]
        {
            let (row, column) = scattered(rows.max(1), cols.max(1), count);
            let mut expected = BTreeMap::<(u32, u32), Vec<u32>>::new();
            for (place, at) in row.iter().copied().zip(column.iter().copied()).enumerate() {
                expected.entry(at).or_default().push(place as u32);
            }
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let pattern = pool.install(|| Pattern::from_coordinates(rows, cols, &row, &column)).unwrap();
                assert_eq!((pattern.rows(), pattern.cols()), (rows, cols));
                let places = (0..rows).flat_map(|row| pattern.row(row).iter().map(move |&c| (row as u32, c)));
                let found = places.enumerate().map(|(k, at)| (at, pattern.given.sources(k).collect()));
                assert!(found.eq(expected.clone()), "{rows} x {cols}, {count} entries, {threads} threads");
            }
        }
    }

    #[test]
    fn the_first_row_that_differs_is_named() {
        let pattern = |rows: &[&[u32]]| {
            let offsets = Offsets::from_lengths(rows.iter().map(|row| row.len()));
            Arc::new(Pattern::sorted(offsets, rows.concat(), 3).unwrap())
        };
        let first = pattern(&[&[0], &[1], &[2]]);
        check_pattern(&first, &pattern(&[&[0], &[1], &[2]])).unwrap();
        for (other, expected) in [
            (pattern(&[&[0], &[2], &[2]]), 1),
            // the common rows are equal
            (pattern(&[&[0], &[1], &[2], &[]]), 3),
            (pattern(&[&[0], &[1]]), 2),
        ] {
            let error = check_pattern(&first, &other).unwrap_err();
            assert!(matches!(error, Error::PatternMismatch { row } if row == expected), "{error}");
        }
    }
}
