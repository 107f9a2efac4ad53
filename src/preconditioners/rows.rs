//! Rows that are computed independently, each from a small system, on all threads.

use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::numbers::Real;
use krysp_kernels::cpu::run::threads::{ByRow, over_long_rows, over_parts, tasks};
use krysp_kernels::index::Offsets;
use krysp_kernels::interrupt::Phase;
use std::sync::{Mutex, PoisonError};

/// Estimated number of values read per row, for dividing work among threads. Guess; patterns of SPAI and FSAI
/// read 50 to some thousand.
pub(super) const STREAMS: usize = 256;

/// Number of rows that one thread computes between two polls for interruption: a row takes some microseconds, at most
/// about 0.1 ms. The time is estimated, not measured.
const POLLED: u64 = 64;

/// Number of rows whose patterns are collected together. Guess.
const TOGETHER: usize = 64;

/// The error of the first row that failed.
#[derive(Default)]
struct First(Mutex<Option<(usize, Error)>>);

impl First {
    fn note(&self, row: usize, error: Error) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(earlier, _)| row < *earlier) {
            *first = Some((row, error));
        }
    }

    fn into_result(self) -> Result<()> {
        let first = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Computes the values of a pattern row by row by `solve(row, scratch, values)`, and collects what it
/// returns. Every task has its own scratch. If rows fail, the first of them is reported.
pub(super) fn solve_rows<T: Real, W, R: Default + Clone + Send>(
    pattern: &Pattern,
    values: &mut [T],
    scratch: &(impl Fn() -> W + Sync),
    solve: &(impl Fn(usize, &mut W, &mut [T]) -> Result<R> + Sync),
) -> Result<Vec<R>> {
    let mut results = vec![R::default(); pattern.rows()];
    let first = First::default();
    let phase = Phase::new("approximate inverse", pattern.rows() as f64);
    let offset = |row: usize| pattern.offsets.at(row);
    let data = (results.as_mut_slice(), ByRow::new(values, &offset));
    over_long_rows(pattern.rows(), STREAMS, data, &|rows, (results, values): (&mut [R], ByRow<'_, T>)| {
        let (mut values, _) = values.all();
        let (mut scratch, mut pending) = (scratch(), 0);
        for (row, result) in rows.zip(results) {
            pending += 1;
            if pending == POLLED
                && let Err(interrupted) = phase.advance(std::mem::take(&mut pending))
            {
                return first.note(row, interrupted.into());
            }
            let (mine, rest) = values.split_at_mut(pattern.offsets.range(row).len());
            values = rest;
            match solve(row, &mut scratch, mine) {
                Ok(got) => *result = got,
                Err(error) => return first.note(row, error),
            }
        }
    });
    first.into_result()?;
    Ok(results)
}

/// Columns of consecutive rows.
#[derive(Clone, Default)]
struct Collected {
    lengths: Vec<usize>,
    columns: Vec<u32>,
}

/// Computes a pattern row by row: `find(row, scratch, columns)` writes the distinct columns of a row, in any
/// order.
pub(super) fn find_rows<W>(
    rows: usize,
    cols: usize,
    scratch: &(impl Fn() -> W + Sync),
    find: &(impl Fn(usize, &mut W, &mut Vec<u32>) -> Result<()> + Sync),
) -> Result<Pattern> {
    let groups = rows.div_ceil(TOGETHER);
    let count = tasks(rows * STREAMS).min(groups);
    let mut collected = vec![Collected::default(); groups];
    let first = First::default();
    let phase = Phase::new("pattern of an approximate inverse", rows as f64);
    let bound = |part: usize| part * groups / count.max(1);
    over_parts(count, &bound, collected.as_mut_slice(), &|groups, collected: &mut [Collected]| {
        let (mut scratch, mut columns) = (scratch(), vec![]);
        for (group, Collected { lengths, columns: all }) in groups.zip(collected) {
            if let Err(interrupted) = phase.advance(TOGETHER as u64) {
                return first.note(group * TOGETHER, interrupted.into());
            }
            for row in group * TOGETHER..rows.min((group + 1) * TOGETHER) {
                columns.clear();
                if let Err(error) = find(row, &mut scratch, &mut columns) {
                    return first.note(row, error);
                }
                columns.sort_unstable();
                lengths.push(columns.len());
                all.extend_from_slice(&columns);
            }
        }
    });
    first.into_result()?;
    let offsets = Offsets::from_lengths(collected.iter().flat_map(|c| c.lengths.iter().copied()));
    let columns: Vec<Vec<u32>> = collected.into_iter().map(|c| c.columns).collect();
    Pattern::sorted(offsets, columns.concat(), cols)
}

/// Positions of a few indices out of many: a dense array whose users reset the entries that they have set.
pub(super) struct Places {
    /// The position plus one, zero for none.
    of: Vec<u32>,
}

impl Places {
    /// Creates an array for indices below `bound`, none of which has a position.
    pub(super) fn new(bound: usize) -> Places {
        Places { of: vec![0; bound] }
    }

    /// The position of an index.
    pub(super) fn get(&self, index: u32) -> Option<usize> {
        (self.of[index as usize] as usize).checked_sub(1)
    }

    /// Sets the position of an index.
    pub(super) fn set(&mut self, index: u32, place: usize) {
        self.of[index as usize] = place as u32 + 1;
    }

    /// Removes the positions of indices.
    pub(super) fn clear(&mut self, indices: impl IntoIterator<Item = u32>) {
        indices.into_iter().for_each(|index| self.of[index as usize] = 0);
    }
}

/// A sparse accumulator: a vector of which only touched entries are stored.
pub(super) struct Accumulator {
    places: Places,
    entries: Vec<(u32, f64)>,
}

impl Accumulator {
    /// A zero vector of `bound` entries.
    pub(super) fn new(bound: usize) -> Accumulator {
        Accumulator { places: Places::new(bound), entries: vec![] }
    }

    /// Adds to an entry.
    pub(super) fn add(&mut self, index: u32, value: f64) {
        match self.places.get(index) {
            Some(place) => self.entries[place].1 += value,
            None => {
                self.places.set(index, self.entries.len());
                self.entries.push((index, value));
            }
        }
    }

    /// Moves the touched entries into `into` and resets the vector.
    pub(super) fn take(&mut self, into: &mut Vec<(u32, f64)>) {
        self.places.clear(self.entries.iter().map(|&(index, _)| index));
        into.clear();
        into.append(&mut self.entries);
    }
}

/// Keeps the `count` entries of largest weight, in descending order; among equal weights the smaller index
/// comes first. Entries without positive weight are dropped.
pub(super) fn keep_largest(entries: &mut Vec<(u32, f64)>, count: usize) {
    entries.retain(|&(_, weight)| weight > 0.0);
    let order = |a: &(u32, f64), b: &(u32, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if entries.len() > count {
        entries.select_nth_unstable_by(count, order);
        entries.truncate(count);
    }
    entries.sort_unstable_by(order);
}
