//! Triangular solves and factorisations without fill, by levels or by blocks.
//!
//! A row of a recurrence waits for the rows that it has entries in. By levels, rows are numbered so that those of a level
//! stand together and wait for earlier levels only: a level is as parallel as a vector, and what is written and what is
//! read lie apart. By blocks, no entry joins rows of two blocks: each is a recurrence of its own, for one thread.
//!
//! ```text
//! for each level:                         backward: the last level first
//!     for each row i of it, in parallel:  x_i ← (x_i − Σ_k v_k x_{c_k}) / v_diagonal
//! ```
//!
//! A solve moves the triangle once, and 2 vectors; it waits for all threads once a level, or once.

use crate::cpu::formats::csr::Csr;
use crate::cpu::run::threads::{ByRow, over_parts};
use crate::cpu::simd::Value;
use crate::cpu::tuning::LEAST_OF_LEVEL;
use crate::index::{ColumnsRef, Offset, OffsetsRef};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// In which order rows may be eliminated: where levels or blocks begin, and the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Level after level, the rows of each in parallel.
    Levels(Vec<usize>),
    /// Row after row, the blocks in parallel.
    Blocks(Vec<usize>),
}

impl Schedule {
    /// The levels of rows that wait for the rows before them that they have entries in, and for those that have entries in
    /// them: what a triangle and its transpose both need. Comes with the place of each row, level by level.
    pub fn levels<'r>(rows: usize, columns_of: impl Fn(usize) -> &'r [u32]) -> (Schedule, Vec<u32>) {
        let mut level = vec![0u32; rows];
        let mut count = 0;
        for row in 0..rows {
            let columns = columns_of(row);
            let (before, after) =
                columns.split_at(columns.partition_point(|&column| (column as usize) < row));
            let waits = before.iter().map(|&column| level[column as usize] + 1).max().unwrap_or(0);
            let mine = level[row].max(waits);
            level[row] = mine;
            count = count.max(mine as usize + 1);
            for &column in after.iter().filter(|&&column| column as usize > row) {
                let other = &mut level[column as usize];
                *other = (*other).max(mine + 1);
            }
        }
        let mut bounds = vec![0; count + 1];
        level.iter().for_each(|&level| bounds[level as usize + 1] += 1);
        for k in 1..bounds.len() {
            bounds[k] += bounds[k - 1];
        }
        let mut next = bounds.clone();
        let place = |&level: &u32| {
            let at = &mut next[level as usize];
            *at += 1;
            (*at - 1) as u32
        };
        let places = level.iter().map(place).collect();
        (Schedule::Levels(bounds), places)
    }

    /// So many blocks of equally many rows.
    pub fn blocks(rows: usize, count: usize) -> Schedule {
        let count = count.clamp(1, rows.max(1));
        Schedule::Blocks((0..=count).map(|k| (rows as u128 * k as u128 / count as u128) as usize).collect())
    }

    /// The number of levels or blocks.
    pub fn count(&self) -> usize {
        self.bounds().len() - 1
    }

    /// Where they begin, and the end.
    pub fn bounds(&self) -> &[usize] {
        let (Schedule::Levels(bounds) | Schedule::Blocks(bounds)) = self;
        bounds
    }

    fn rows(&self) -> usize {
        self.bounds().last().copied().unwrap_or(0)
    }
}

fn ranges(bounds: &[usize]) -> impl DoubleEndedIterator<Item = Range<usize>> + '_ {
    bounds.windows(2).map(|b| b[0]..b[1])
}

/// The boundaries of what threads share of a level.
fn share(level: &Range<usize>, entries: usize) -> (usize, impl Fn(usize) -> usize + Sync + use<>) {
    let (start, len) = (level.start, level.len());
    let most = if rayon::current_num_threads() == 1 { 1 } else { 2 * rayon::current_num_threads() };
    let count = ((entries + len) / LEAST_OF_LEVEL).clamp(1, most);
    (count, move |part| start + part * len / count)
}

/// A solve's direction: which triangle, and where a row's diagonal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triangle {
    /// Lower, the diagonal last.
    Lower,
    /// Upper, the diagonal first.
    Upper,
}

/// `x ← T⁻¹ x`
///
/// # Panics
/// If sizes do not fit each other, or an entry stands outside the triangle or, by blocks, joins two of them.
pub fn solve<T: Value>(triangle: Triangle, schedule: &Schedule, a: Csr<'_, T>, x: &mut [T]) {
    assert!(x.len() == schedule.rows() && a.offsets.ranges() == x.len(), "one row for each unknown");
    match a.offsets {
        OffsetsRef::Short(offsets) => solve_at(triangle, schedule, &offsets, a, x),
        OffsetsRef::Long(offsets) => solve_at(triangle, schedule, &offsets, a, x),
    }
}

fn solve_at<T: Value, O: Offset>(
    triangle: Triangle,
    schedule: &Schedule,
    offsets: &[O],
    a: Csr<'_, T>,
    x: &mut [T],
) {
    let at = |row: usize| offsets[row].get();
    // x_row, from the known unknowns, the first of which is the one numbered `first`
    let solved = |row: usize, b: T, known: &[T], first: usize| {
        let (columns, values) = (&a.columns[at(row)..at(row + 1)], &a.values[at(row)..at(row + 1)]);
        let last = columns.len().saturating_sub(1);
        let add = |sum: T, (&c, &v): (&u32, &T)| sum + v * known[c as usize - first];
        // what was solved last is added last: all else can be done before it is there
        let (sum, diagonal) = match triangle {
            Triangle::Lower => (columns[..last].iter().zip(values).fold(T::zero(), add), values[last]),
            Triangle::Upper => {
                let terms = columns[1..].iter().zip(&values[1..]);
                (terms.rev().fold(T::zero(), add), values[0])
            }
        };
        (b - sum) / diagonal
    };
    let level = |level: Range<usize>| {
        let (count, bound) = share(&level, at(level.end) - at(level.start));
        let (known, first, mine) = match triangle {
            Triangle::Lower => {
                let (known, rest) = x.split_at_mut(level.start);
                (&*known, 0, &mut rest[..level.len()])
            }
            Triangle::Upper => {
                let (head, known) = x.split_at_mut(level.end);
                (&*known, level.end, &mut head[level.start..])
            }
        };
        over_parts(count, &bound, mine, &|rows, x: &mut [T]| {
            rows.zip(x).for_each(|(row, x)| *x = solved(row, *x, known, first));
        });
    };
    match (schedule, triangle) {
        // from within the pool, whose threads stay awake from level to level
        (Schedule::Levels(bounds), Triangle::Lower) => rayon::scope(|_| ranges(bounds).for_each(level)),
        (Schedule::Levels(bounds), Triangle::Upper) => rayon::scope(|_| ranges(bounds).rev().for_each(level)),
        (Schedule::Blocks(bounds), Triangle::Lower) => {
            over_parts(bounds.len() - 1, &|block| bounds[block], x, &|rows, x: &mut [T]| {
                for row in rows.clone() {
                    let (known, rest) = x.split_at_mut(row - rows.start);
                    rest[0] = solved(row, rest[0], known, rows.start);
                }
            });
        }
        (Schedule::Blocks(bounds), Triangle::Upper) => {
            over_parts(bounds.len() - 1, &|block| bounds[block], x, &|rows, x: &mut [T]| {
                for row in rows.clone().rev() {
                    let (head, known) = x.split_at_mut(row - rows.start + 1);
                    head[row - rows.start] = solved(row, head[row - rows.start], known, row + 1);
                }
            });
        }
    }
}

/// A row whose pivot must not be what it is.
pub type Refused<T> = (usize, T);

/// The rows that were eliminated already, as far as a row may need them.
struct Earlier<'a, T> {
    values: &'a [T],
    /// The entry that the first value is.
    first: usize,
}

impl<T> Earlier<'_, T> {
    fn row(&self, range: Range<usize>) -> &[T] {
        &self.values[range.start - self.first..range.end - self.first]
    }
}

/// Eliminates all rows in their turn: `eliminate(row, earlier rows, its own values)` returns a pivot that it refuses. Of
/// rows that are refused, the first of the first level is returned, or the first of all blocks.
fn eliminate_all<T: Value>(
    schedule: &Schedule,
    offsets: OffsetsRef<'_>,
    values: &mut [T],
    eliminate: &(impl Fn(usize, &Earlier<'_, T>, &mut [T]) -> Result<(), T> + Sync),
) -> Result<(), Refused<T>> {
    assert!(offsets.ranges() == schedule.rows() && offsets.end() == values.len(), "one value for each entry");
    let offset = |row: usize| offsets.at(row);
    let refused: Mutex<Option<Refused<T>>> = Mutex::new(None);
    let refuse = |row: usize, pivot: T| {
        let mut first = refused.lock().unwrap_or_else(PoisonError::into_inner);
        *first = first.filter(|&(earlier, _)| earlier < row).or(Some((row, pivot)));
    };
    let level = |level: Range<usize>| {
        let (start, end) = (offset(level.start), offset(level.end));
        let (count, bound) = share(&level, end - start);
        let (earlier, rest) = values.split_at_mut(start);
        let earlier = Earlier { values: earlier, first: 0 };
        let mine = ByRow::starting(level.start, &mut rest[..end - start], &offset);
        over_parts(count, &bound, mine, &|rows, mine: ByRow<'_, T>| {
            let (mut values, _) = mine.all();
            for row in rows {
                let (mine, rest) = values.split_at_mut(offsets.range(row).len());
                values = rest;
                eliminate(row, &earlier, mine).unwrap_or_else(|pivot| refuse(row, pivot));
            }
        });
        let refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.map_or(Ok(()), Err)
    };
    match schedule {
        Schedule::Levels(bounds) => return rayon::scope(|_| ranges(bounds).try_for_each(level)),
        Schedule::Blocks(bounds) => {
            let all = ByRow::new(values, &offset);
            over_parts(bounds.len() - 1, &|block| bounds[block], all, &|rows, mine: ByRow<'_, T>| {
                let (values, first) = mine.all();
                for row in rows {
                    let range = offsets.range(row);
                    let (earlier, rest) = values.split_at_mut(range.start - first);
                    let earlier = Earlier { values: earlier, first };
                    if let Err(pivot) = eliminate(row, &earlier, &mut rest[..range.len()]) {
                        return refuse(row, pivot);
                    }
                }
            });
        }
    }
    let refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
    refused.map_or(Ok(()), Err)
}

/// `A ≈ L Lᵀ` on the pattern of `A`'s lower triangle, diagonals last in their rows. `values` are those of `A`, and become
/// those of `L`. Refuses pivots that are not positive.
///
/// `l_ij = (a_ij − Σ_k l_ik l_jk) / l_jj`, over the `k` that both rows have.
///
/// # Panics
/// If sizes do not fit each other.
pub fn incomplete_cholesky<T: Value>(
    schedule: &Schedule,
    offsets: OffsetsRef<'_>,
    columns: ColumnsRef<'_>,
    values: &mut [T],
) -> Result<(), Refused<T>> {
    let columns_of = |row: usize| &columns[offsets.range(row)];
    eliminate_all(schedule, offsets, values, &|i, earlier, mine| {
        let columns = columns_of(i);
        if columns.last().is_none_or(|&last| last as usize != i) {
            return Err(T::zero());
        }
        let last = columns.len() - 1;
        for at in 0..last {
            let j = columns[at] as usize;
            let (others, row) = (columns_of(j), earlier.row(offsets.range(j)));
            let sum = common(&columns[..at], mine, others, row);
            mine[at] = (mine[at] - sum) / row[row.len() - 1];
        }
        let pivot = mine[..last].iter().fold(mine[last], |pivot, &l| pivot - l * l);
        mine[last] = pivot.sqrt();
        if pivot > T::zero() && pivot.is_finite() { Ok(()) } else { Err(pivot) }
    })
}

/// `Σ x_k y_k` over the columns of both.
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

/// `A ≈ L U` on the pattern of `A`: `values` are those of `A`, and become those of `U` and, below the diagonal, of `L`,
/// whose own diagonal is ones. Refuses pivots that are zero or not finite.
///
/// For each `k < i` of row `i`: `l_ik = a_ik / u_kk`, then `a_ij ← a_ij − l_ik u_kj` for the `j > k` that both rows have.
///
/// # Panics
/// If sizes do not fit each other.
pub fn incomplete_lu<T: Value>(
    schedule: &Schedule,
    offsets: OffsetsRef<'_>,
    columns: ColumnsRef<'_>,
    values: &mut [T],
) -> Result<(), Refused<T>> {
    let columns_of = |row: usize| &columns[offsets.range(row)];
    let diagonal_of = |row: usize| columns_of(row).partition_point(|&column| (column as usize) < row);
    eliminate_all(schedule, offsets, values, &|i, earlier, mine| {
        let (columns, diagonal) = (columns_of(i), diagonal_of(i));
        if columns.get(diagonal).is_none_or(|&column| column as usize != i) {
            return Err(T::zero());
        }
        for at in 0..diagonal {
            let k = columns[at] as usize;
            let (others, row, pivot) = (columns_of(k), earlier.row(offsets.range(k)), diagonal_of(k));
            let factor = mine[at] / row[pivot];
            mine[at] = factor;
            let mut to = at + 1;
            for (&column, &u) in others[pivot + 1..].iter().zip(&row[pivot + 1..]) {
                to += columns[to..].iter().take_while(|&&own| own < column).count();
                if columns.get(to) == Some(&column) {
                    mine[to] -= factor * u;
                }
            }
        }
        let pivot = mine[diagonal];
        if pivot.is_finite() && !pivot.is_zero() { Ok(()) } else { Err(pivot) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Columns, Offsets};

    /// An arrow that points at the last row, with a chain besides.
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
        let (levels, places) = Schedule::levels(5, |row| rows[row]);
        // 0 and 1 wait for nothing, 2 for 1, 3 for 0, 4 for 3
        assert_eq!(levels, Schedule::Levels(vec![0, 2, 4, 5]));
        assert_eq!(places, [0, 1, 2, 3, 4]);
        let (levels, places) = Schedule::levels(3, |row| [&[0, 1][..], &[1], &[2]][row]);
        assert_eq!((levels.bounds(), places), (&[0, 2, 3][..], vec![0, 2, 1]));
        assert_eq!(Schedule::levels(0, |_| &[]).0.count(), 0);
        assert_eq!(Schedule::blocks(10, 3).bounds(), [0, 3, 6, 10]);
        assert_eq!(Schedule::blocks(2, 9).bounds(), [0, 1, 2]);
        assert_eq!(Schedule::blocks(0, 2).bounds(), [0, 0]);
    }

    #[test]
    fn solves_undo_products() {
        let n = 40;
        let (offsets, columns) = arrow(n);
        let (levels, places) = Schedule::levels(n, |row| &columns[offsets.range(row)]);
        assert_eq!(levels.count(), 3);
        // the same triangle with its rows by level
        let mut dense = vec![vec![0.0; n]; n];
        for row in 0..n {
            for &column in &columns[offsets.range(row)] {
                let value = if column as usize == row { 2.0 } else { 1.0 / (1 + column) as f64 };
                dense[places[row] as usize][places[column as usize] as usize] = value;
            }
        }
        let x: Vec<f64> = (0..n).map(|i| (i % 7) as f64 - 3.0).collect();
        for (triangle, transposed) in [(Triangle::Lower, false), (Triangle::Upper, true)] {
            let entry = |i: usize, j: usize| if transposed { dense[j][i] } else { dense[i][j] };
            let stored = |i: usize, j: usize| entry(i, j) != 0.0;
            let rows: Vec<Vec<u32>> =
                (0..n).map(|i| (0..n as u32).filter(|&j| stored(i, j as usize)).collect()).collect();
            let offsets = Offsets::from_lengths(rows.iter().map(Vec::len));
            let values: Vec<f64> =
                (0..n).flat_map(|i| rows[i].iter().map(move |&j| entry(i, j as usize))).collect();
            let columns = Columns::new(rows.concat(), n).unwrap();
            let mut y: Vec<f64> = (0..n).map(|i| (0..n).map(|j| entry(i, j) * x[j]).sum()).collect();
            let a = Csr { offsets: (&offsets).into(), columns: (&columns).into(), values: &values };
            let mut one_block = y.clone();
            solve(triangle, &Schedule::blocks(n, 1), a, &mut one_block);
            solve(triangle, &levels, a, &mut y);
            assert_eq!(one_block, y);
            assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-14), "{triangle:?}");
        }
    }
}
