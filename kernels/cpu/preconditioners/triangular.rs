//! Factorizations without fill (ILU(0), IC(0)) with level scheduling, and sequential triangular solves.
//!
//! In a factorization as in a solve, row `i` depends on every earlier row `j` for which there is an entry
//! `(i, j)`. Rows are ordered so that the rows of a level are contiguous and depend on earlier levels only.
//! All rows of a level can then be processed in parallel, and the memory that is written is separate from the
//! memory that is read.
//!
//! ```text
//! for each level:
//!     for each row of it, in parallel:    eliminate the row's entries in columns of earlier levels
//! ```
//!
//! A sequential solve, [`solve`], reads the triangular matrix once, and reads or writes 2 vectors.
//! [`levels`](super::levels) has solves on all threads.

use super::Refused;
use super::gathered::Gathered;
use super::stages::{self, Stages};
use crate::buffer::shared;
use crate::cpu::formats::csr::Csr;
use crate::cpu::run::threads::{map_rows, over_rows};
use crate::cpu::simd::{MOST_LANES, Value, prefetch};
use crate::cpu::tuning::{GROUPS, LEAST_OF_GROUP, LEAST_OF_LEVEL};
use crate::index::{ColumnsRef, Offset, OffsetsRef};
use crate::interrupt::Phase;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Prefetch distance, in rows that are subtracted from a row. These rows are scattered over the matrix: without prefetches,
/// reading them took most of the factorization of `elast_bracket_p1_59k`.
const AHEAD: usize = 2;

/// Entries processed between two polls for interruption. Guess, chosen as some tenths of a millisecond.
const POLLED: usize = 1 << 16;

/// Minimum number of rows of a level that are sorted on all threads. A guess: about 0.1 ms of work.
const LEAST_TO_SORT: usize = 1024;

/// Computes level sets for level scheduling. A row depends on every earlier row to which it is connected by
/// an entry of either row (the pattern of `A + Aᵀ`), so that the levels suit a triangular matrix as well as
/// its transpose. Returns the first row of each level and the end of the last, and the position of each row
/// in level order.
///
/// Within a level, rows are sorted by the mean position of the rows they depend on and divided into groups: a
/// thread that has the same share of every level then finds most of its data in its own caches. Within a
/// group, shorter rows come first, to reduce padding of slices, and rows of equal length keep their order.
pub fn levels<'r>(rows: usize, columns_of: impl Fn(usize) -> &'r [u32] + Sync) -> (Vec<usize>, Vec<u32>) {
    let (level, bounds) = level_of_rows(rows, &columns_of);
    let mut next = bounds.clone();
    let mut order = vec![0; rows];
    for (row, &level) in (0..).zip(&level) {
        let at = &mut next[level as usize];
        order[*at] = row;
        *at += 1;
    }
    // run inside the thread pool: its threads then do not go to sleep between levels
    rayon::scope(|_| sort_levels(&bounds, &mut order, &level, &columns_of));
    let mut places = vec![0; rows];
    let to = shared(&mut places);
    over_rows(rows, 2, (), &|range, ()| {
        range.for_each(|place| to[order[place] as usize].store(place as u32, Ordering::Relaxed));
    });
    (bounds, places)
}

/// Sorts the rows of each level, see [`levels`]; they are given in ascending order.
fn sort_levels<'r>(
    bounds: &[usize],
    order: &mut [u32],
    level: &[u32],
    columns_of: &(impl Fn(usize) -> &'r [u32] + Sync),
) {
    let rows = order.len();
    // relative position of each row in its level, from 0 to 1, as bits: within a level, rows are sorted by the mean of
    // this position over the rows that they depend on
    let mut along = vec![0; rows];
    let along = shared(&mut along);
    let by_mean = |&row: &u32| {
        let columns = columns_of(row as usize).iter().map(|&column| column as usize);
        let earlier = columns.filter(|&column| level[column] < level[row as usize]);
        let (sum, count) = earlier.fold((0.0, 0.0), |(sum, count), at| {
            (sum + f32::from_bits(along[at].load(Ordering::Relaxed)), count + 1.0)
        });
        let mean: f32 = if count > 0.0 { sum / count } else { row as f32 / rows as f32 };
        // the mean is neither negative nor NaN, so its bits sort like the number
        u64::from(mean.to_bits()) << 32 | u64::from(row)
    };
    let by_lengths = |row: u32| {
        let columns = columns_of(row as usize);
        let [below, all] = [columns.partition_point(|&column| column < row), columns.len()]
            .map(|length| length.min(usize::from(u16::MAX)) as u64);
        below << 48 | all << 32 | u64::from(row)
    };
    let mut keys: Vec<u64> = vec![];
    for range in ranges(bounds) {
        let mine = &mut order[range];
        let (step, group) = (1.0 / mine.len() as f32, mine.len().div_ceil(GROUPS));
        let group = group.next_multiple_of(MOST_LANES).max(LEAST_OF_GROUP);
        let finish = |(at, (keys, rows)): (usize, (&mut [u64], &mut [u32]))| {
            for (place, key) in (at * group..).zip(&mut *keys) {
                let row = *key as u32;
                along[row as usize].store((step * place as f32).to_bits(), Ordering::Relaxed);
                *key = by_lengths(row);
            }
            keys.sort_unstable();
            rows.iter_mut().zip(keys).for_each(|(row, key)| *row = *key as u32);
        };
        if mine.len() >= LEAST_TO_SORT && rayon::current_num_threads() > 1 {
            mine.par_iter().map(by_mean).collect_into_vec(&mut keys);
            keys.par_sort_unstable();
            keys.par_chunks_mut(group).zip(mine.par_chunks_mut(group)).enumerate().for_each(finish);
        } else {
            keys.clear();
            keys.extend(mine.iter().map(by_mean));
            keys.sort_unstable();
            keys.chunks_mut(group).zip(mine.chunks_mut(group)).enumerate().for_each(finish);
        }
    }
}

/// Computes the level of each row, the first row of each level in level order, and the end of the last. On one
/// thread, because a row's level follows from those of earlier rows; without branches, because whether a column
/// is below the diagonal is unpredictable in short rows.
fn level_of_rows<'r>(rows: usize, columns_of: &impl Fn(usize) -> &'r [u32]) -> (Vec<u32>, Vec<usize>) {
    // the level plus one of each row done; for a row to come, the largest such number of the rows that list it
    let mut level = vec![0u32; rows];
    let mut count = 0;
    for row in 0..rows {
        let columns = columns_of(row);
        let waits = columns.iter().fold(level[row], |most, &column| {
            let other = level[column as usize];
            most.max(if (column as usize) < row { other } else { 0 })
        });
        let mine = waits + 1;
        for &column in columns {
            let other = &mut level[column as usize];
            *other = (*other).max(if column as usize > row { mine } else { 0 });
        }
        level[row] = mine;
        count = count.max(mine as usize);
    }
    level.iter_mut().for_each(|level| *level -= 1);
    let mut bounds = vec![0; count + 1];
    level.iter().for_each(|&level| bounds[level as usize + 1] += 1);
    for k in 1..bounds.len() {
        bounds[k] += bounds[k - 1];
    }
    (level, bounds)
}

fn ranges(bounds: &[usize]) -> impl Iterator<Item = Range<usize>> + '_ {
    bounds.windows(2).map(|b| b[0]..b[1])
}

/// Triangle of a matrix, and the position of the diagonal in its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triangle {
    /// Lower triangle, with the diagonal entry last.
    Lower,
    /// Upper triangle, with the diagonal entry first.
    Upper,
}

/// `x ← T⁻¹ x`, on one thread.
///
/// # Panics
/// Panics if sizes do not fit each other, or an entry is outside the triangle.
pub fn solve<T: Value>(triangle: Triangle, a: Csr<'_, T>, x: &mut [T]) {
    assert!(a.offsets.ranges() == x.len(), "the matrix has a row for each unknown");
    match a.offsets {
        OffsetsRef::Short(offsets) => solve_at(triangle, &offsets, a, x),
        OffsetsRef::Long(offsets) => solve_at(triangle, &offsets, a, x),
    }
}

fn solve_at<T: Value, O: Offset>(triangle: Triangle, offsets: &[O], a: Csr<'_, T>, x: &mut [T]) {
    let row = |row: usize| {
        let range = offsets[row].get()..offsets[row + 1].get();
        (&a.columns[range.clone()], &a.values[range])
    };
    // the unknown solved last is added last, so that all other terms can be computed before it is known
    match triangle {
        Triangle::Lower => {
            for i in 0..x.len() {
                let (columns, values) = row(i);
                let (known, rest) = x.split_at_mut(i);
                let last = columns.len().saturating_sub(1);
                let terms = columns[..last].iter().zip(values);
                let sum = terms.fold(T::zero(), |sum, (&c, &v)| sum + v * known[c as usize]);
                rest[0] = (rest[0] - sum) / values[last];
            }
        }
        Triangle::Upper => {
            for i in (0..x.len()).rev() {
                let (columns, values) = row(i);
                let (head, known) = x.split_at_mut(i + 1);
                let terms = columns[1..].iter().zip(&values[1..]).rev();
                let sum = terms.fold(T::zero(), |sum, (&c, &v)| sum + v * known[c as usize - i - 1]);
                head[i] = (head[i] - sum) / values[0];
            }
        }
    }
}

/// The values of a factorization, which threads share.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: all accesses are in `eliminate_all`, whose safety comment shows that they do not conflict
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above
unsafe impl<T: Send> Sync for Shared<T> {}

/// Eliminates all rows, level by level. `eliminate(row, values of earlier rows, own values, workspace of the thread)` returns the
/// pivot as an error if it is unusable. Fails with the first unusable pivot of the first stage that has one.
fn eliminate_all<T: Value>(
    levels: &[usize],
    offsets: OffsetsRef<'_>,
    values: &mut [T],
    eliminate: &(impl Fn(usize, &[T], &mut [T], &mut Gathered<T>) -> Result<(), T> + Sync),
) -> Result<(), Refused<T>> {
    let rows = levels.last().copied().unwrap_or(0);
    assert!(offsets.ranges() == rows && offsets.end() == values.len(), "there is one value for each entry");
    assert!(levels.is_sorted(), "levels ascend");
    let length = |row: usize| offsets.range(row).len();
    // for each entry left of the diagonal, the entries of another row are looked up
    let stages = Stages::new(ranges(levels), LEAST_OF_LEVEL, |row| 1 + length(row) * (4 + length(row) / 4));
    let refused: Mutex<Option<(usize, T)>> = Mutex::new(None);
    // the first row that need not be eliminated
    let (stop, phase) = (AtomicUsize::new(rows), Phase::new("incomplete factorization", values.len() as f64));
    // for each thread its workspace, and the number of entries since it polled for interruption
    let own: Vec<_> =
        (0..rayon::current_num_threads()).map(|_| Mutex::<(Gathered<T>, usize)>::default()).collect();
    let all = Shared(values.as_mut_ptr());
    let work = |thread: usize, (_, stage): ((), &[usize]), rows: Range<usize>| {
        if rows.start >= stop.load(Ordering::Relaxed) {
            return;
        }
        let Shared(all) = { all };
        let (gathered, pending) = &mut *own[thread].lock().unwrap_or_else(PoisonError::into_inner);
        let is_shared = stage.len() > 2;
        for row in rows {
            let (known, mine) = (if is_shared { stage[0] } else { row }, offsets.range(row));
            *pending += mine.len();
            if *pending >= POLLED && phase.advance(std::mem::take(pending) as u64).is_err() {
                return stop.store(0, Ordering::Relaxed);
            }
            // SAFETY: the offsets ascend up to the number of values. Only this thread works on this part, so that no
            // other one accesses the values of `row`. Earlier values are those of earlier stages, or of earlier rows
            // of this part if it is the only one of its stage: no thread writes to them any more.
            let (earlier, mine) = unsafe {
                let earlier = std::slice::from_raw_parts(all, offsets.at(known));
                (earlier, std::slice::from_raw_parts_mut(all.add(mine.start), mine.len()))
            };
            if let Err(pivot) = eliminate(row, earlier, mine, gathered) {
                let mut first = refused.lock().unwrap_or_else(PoisonError::into_inner);
                *first = first.filter(|&(before, _)| before < row).or(Some((row, pivot)));
                // an earlier row may be refused in another part of this stage
                stop.fetch_min(stage[stage.len() - 1], Ordering::Relaxed);
                return;
            }
        }
    };
    let stages_with = stages.iter().map(|stage| ((), stage));
    stages::run(stages_with, &mut stages.marks(1), &work);
    let refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
    refused.map_or(Ok(()), |(at, value)| Err(Refused::Pivot { at, value }))?;
    Ok(phase.check()?)
}

/// Incomplete Cholesky factorization without fill, IC(0): `A ≈ L Lᵀ` on the pattern of the lower triangle of
/// `A`, with the diagonal last in each row. On entry `values` are those of `A`, on return those of `L`. Fails
/// at pivots that are not positive.
///
/// `l_ij = (a_ij − Σ_k l_ik l_jk) / l_jj`, summed over the columns `k` in both rows.
///
/// # Panics
/// Panics if sizes do not fit each other.
pub fn incomplete_cholesky<T: Value>(
    levels: &[usize],
    offsets: OffsetsRef<'_>,
    columns: ColumnsRef<'_>,
    values: &mut [T],
) -> Result<(), Refused<T>> {
    let columns_of = |row: usize| &columns[offsets.range(row)];
    eliminate_all(levels, offsets, values, &|i, earlier, mine, _| {
        let columns = columns_of(i);
        if columns.last().is_none_or(|&last| last as usize != i) {
            return Err(T::zero());
        }
        let last = columns.len() - 1;
        for at in 0..last {
            let j = columns[at] as usize;
            let (others, row) = (columns_of(j), &earlier[offsets.range(j)]);
            let sum = common(&columns[..at], mine, others, row);
            mine[at] = (mine[at] - sum) / row[row.len() - 1];
        }
        let pivot = mine[..last].iter().fold(mine[last], |pivot, &l| pivot - l * l);
        mine[last] = pivot.sqrt();
        if pivot > T::zero() && pivot.is_finite() { Ok(()) } else { Err(pivot) }
    })
}

/// `Σ x_k y_k` over the columns in both rows.
fn common<T: Value>(columns: &[u32], x: &[T], others: &[u32], y: &[T]) -> T {
    let (mut a, mut b, mut sum) = (0, 0, T::zero());
    while a < columns.len() && b < others.len() {
        if columns[a] == others[b] {
            sum += x[a] * y[b];
        }
        let (left, right) = (columns[a], others[b]);
        a += usize::from(left <= right);
        b += usize::from(right <= left);
    }
    sum
}

/// Incomplete LU factorization without fill, ILU(0): `A ≈ L U` on the pattern of `A`. On entry `values` are
/// those of `A`; on return those of `U` and, below the diagonal, of `L`, whose unit diagonal is not stored.
/// Fails at pivots that are zero or not finite.
///
/// For each `k < i` in row `i`: `l_ik = a_ik / u_kk`, then `a_ij ← a_ij − l_ik u_kj` for the `j > k` in both
/// rows.
///
/// # Panics
/// Panics if sizes do not fit each other.
pub fn incomplete_lu<T: Value>(
    levels: &[usize],
    offsets: OffsetsRef<'_>,
    columns: ColumnsRef<'_>,
    values: &mut [T],
) -> Result<(), Refused<T>> {
    let columns_of = |row: usize| &columns[offsets.range(row)];
    let diagonals = map_rows(offsets.ranges(), 8, &|row| {
        columns_of(row).partition_point(|&column| (column as usize) < row) as u32
    });
    eliminate_all(levels, offsets, values, &|i, earlier, mine, own| {
        let (columns, diagonal) = (columns_of(i), diagonals[i] as usize);
        if columns.get(diagonal).is_none_or(|&column| column as usize != i) {
            return Err(T::zero());
        }
        own.load(columns, mine);
        let beyond_diagonal =
            |k: usize| (diagonals[k] as usize + 1).min(offsets.range(k).len())..offsets.range(k).len();
        for (at, &k) in columns[..diagonal].iter().enumerate() {
            if let Some(&later) = columns[..diagonal].get(at + AHEAD) {
                let (row, range) = (offsets.range(later as usize), beyond_diagonal(later as usize));
                prefetch(&columns_of(later as usize)[range.clone()]);
                prefetch(&earlier[row][range]);
            }
            let k = k as usize;
            let (others, row, pivot) = (columns_of(k), &earlier[offsets.range(k)], diagonals[k] as usize);
            let factor = own.values[at] / row[pivot];
            own.values[at] = factor;
            own.subtract(factor, &others[pivot + 1..], &row[pivot + 1..]);
        }
        own.store(columns, mine);
        let pivot = mine[diagonal];
        if pivot.is_finite() && !pivot.is_zero() { Ok(()) } else { Err(pivot) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::preconditioners::levels::{Scratch, Sliced, Slices, solve_both};
    use crate::index::{Columns, Offsets};

    /// An arrow matrix with a full last row, plus entries `(i, i − 1)` in every third row.
    fn arrow(n: usize) -> (Offsets, Vec<u32>) {
        let row = |i: usize| -> Vec<u32> {
            let ends = if i + 1 == n { 0..i } else { i.saturating_sub(usize::from(i % 3 == 2))..i };
            ends.chain([i]).map(|j| j as u32).collect()
        };
        (Offsets::from_lengths((0..n).map(|i| row(i).len())), (0..n).flat_map(row).collect())
    }

    #[test]
    fn levels_wait_for_earlier_ones_only() {
        let rows: [&[u32]; 5] = [&[0, 3], &[1], &[1, 2], &[3], &[3, 4]];
        // rows 0 and 1 depend on nothing, 2 on 1, 3 on 0, 4 on 3; within each level the shorter row comes
        // first
        assert_eq!(levels(5, |row| rows[row]), (vec![0, 2, 4, 5], vec![1, 0, 3, 2, 4]));
        assert_eq!(levels(3, |row| [&[0, 1][..], &[1], &[2]][row]), (vec![0, 2, 3], vec![1, 2, 0]));
        assert_eq!(levels(0, |_| &[]), (vec![0], vec![]));
    }

    /// Compares the sequential solve with the level-scheduled one, on any number of threads.
    #[test]
    fn solves_undo_products() {
        for n in [1, 40, 3000] {
            let (offsets, columns) = arrow(n);
            let (bounds, places) = levels(n, |row| &columns[offsets.range(row)]);
            assert!(n < 40 || bounds.len() == 4);
            // the matrix and its transpose with rows in level order; rounding makes their sums depend on the
            // order of the entries
            let mut entries: Vec<(u32, u32, f64)> = vec![];
            for row in 0..n {
                for &column in &columns[offsets.range(row)] {
                    let value =
                        if column as usize == row { 2.0 } else { 1.0 / (n as f64 + f64::from(column)) };
                    entries.push((places[row], places[column as usize], value));
                }
            }
            let triangle = |transposed: bool| {
                let mut entries: Vec<_> =
                    entries.iter().map(|&(i, j, v)| if transposed { (j, i, v) } else { (i, j, v) }).collect();
                entries.sort_by_key(|&(i, j, _)| (i, j));
                let mut lengths = vec![0; n];
                entries.iter().for_each(|&(i, ..)| lengths[i as usize] += 1);
                let columns = Columns::new(entries.iter().map(|e| e.1).collect::<Vec<_>>(), n).unwrap();
                let values: Vec<f64> = entries.iter().map(|e| e.2).collect();
                (Offsets::from_lengths(lengths), columns, values)
            };
            let [lower, upper] = [triangle(false), triangle(true)];
            let csr = |(offsets, columns, values)| Csr {
                offsets: OffsetsRef::from(offsets),
                columns: ColumnsRef::from(columns),
                values,
            };
            let (lower, upper) = ((&lower.0, &lower.1, &*lower.2), (&upper.0, &upper.1, &*upper.2));
            let product = |(offsets, columns, values): (&Offsets, &Columns, &[f64]), x: &[f64]| -> Vec<f64> {
                let term = |k: usize| values[k] * x[columns[k] as usize];
                (0..n).map(|i| offsets.range(i).map(term).sum()).collect()
            };
            let x: Vec<f64> = (0..n).map(|i| (i % 7) as f64 - 3.0).collect();
            let r = product(lower, &product(upper, &x));
            let mut y = r.clone();
            solve(Triangle::Lower, csr(lower), &mut y);
            solve(Triangle::Upper, csr(upper), &mut y);
            assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-12));
            // `r` and `z` in reverse order
            let from: Vec<u32> = (0..n as u32).rev().collect();
            let reversed: Vec<f64> = r.iter().rev().copied().collect();
            let mut first: Option<Vec<f64>> = None;
            for threads in [1, 2, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let z = pool.install(|| {
                    let slices = Slices::new(&bounds, |row| lower.0.range(row).len(), &from);
                    let sliced = [(Triangle::Lower, lower), (Triangle::Upper, upper)].map(|(triangle, a)| {
                        let mut sliced = Sliced::new(&slices, triangle, csr(a));
                        sliced.fill(&slices, csr(a));
                        sliced
                    });
                    // what an earlier solve left in the workspace must not matter
                    let (mut scratch, mut z) = (Scratch::new(&slices), vec![f64::NAN; n]);
                    let (nan, mut other) = (vec![f64::NAN; n], vec![0.0; n]);
                    let mut both = [(&nan[..], &mut other[..]), (&reversed[..], &mut z[..])];
                    solve_both(&slices, &sliced, &mut scratch, &mut both);
                    let together = z.clone();
                    solve_both(&slices, &sliced, &mut scratch, &mut [(&reversed, &mut z)]);
                    assert_eq!(together, z, "{n} {threads}");
                    z
                });
                assert!(y.iter().rev().zip(&z).all(|(y, z)| (y - z).abs() < 1e-12), "{n} {threads}");
                assert_eq!(*first.get_or_insert(z.clone()), z, "{n} {threads}");
            }
        }
    }
}
