//! Both triangular solves of a factorization, `z = U⁻¹ (L⁻¹ r)`, with level scheduling: the independent rows
//! of a level run in SIMD lanes and on threads.
//!
//! Rows are ordered level after level, so that a row depends only on rows of other levels. A slice is up to
//! [`HEIGHT`] rows of one level, stored side by side and padded to the longest row. A stage is one level or
//! several small ones; it is divided into parts, one per thread, and small levels have a single part.
//!
//! ```text
//! x ← r, permuted to level order
//! for each stage, first of L, then of U in reverse order:      each thread does its parts, then waits for others
//!     for each slice, rows i in lanes:    x_i ← (x_i − Σ_k v_k x_{c_k}) w_i         w: 1 / diagonal
//! z ← x, permuted back to the order of r
//! ```
//!
//! Both permutations loop over `r` and `z` in memory order: neighbouring entries belong to neighbouring
//! levels, so that the cache lines of each level of `x` are filled in sequence. A loop in level order would
//! touch, for each level, as many pages of `r` as the level has rows.
//!
//! Results do not depend on which thread computes a part.
//!
//! Memory traffic: `L` and `U` once, with padding, and 8 vectors. With several right-hand sides, each row is
//! solved for all of them before the next row: the triangles are read once, and threads synchronize as often
//! as for one right-hand side.

use super::stages::{self, Stages};
use super::triangular::Triangle;
use crate::buffer::{in_huge_pages, shared};
use crate::cpu::formats::csr::Csr;
use crate::cpu::run::threads::{ByRow, over_long_rows, over_rows};
use crate::cpu::simd::{self, Lanes, Simd, Task, Value};
use crate::cpu::tuning::LEAST_OF_PART;
use crate::index::Columns;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum rows per slice: the lanes of the widest register.
pub const HEIGHT: usize = simd::MOST_LANES;

/// Division of the rows into slices, stages and parts, and the permutation from `r` and `z` to level order.
#[derive(Clone, Debug)]
pub struct Slices {
    /// First row of each level, then the end of the last.
    levels: Vec<usize>,
    /// First row of each slice, then the end of the last.
    rows: Vec<usize>,
    /// Division of the slices, in the order of `L`.
    stages: Stages,
    /// Position in level order of each entry of `r` and `z`.
    places: Vec<u32>,
    /// Identity of this division: triangles stored in these slices hold the same pointer.
    key: Arc<()>,
}

impl Slices {
    /// Divides the rows into slices and stages. `levels` holds the first row of each level and the end,
    /// `entries` returns the number of entries of a row of `L`, and `places` holds the row in level order of
    /// each entry of `r` and `z`.
    ///
    /// # Panics
    /// Panics if `places` is not a permutation of the rows, or there are 2³¹ rows or more.
    pub fn new(levels: &[usize], entries: impl Fn(usize) -> usize, places: &[u32]) -> Slices {
        let count = levels.last().copied().unwrap_or(0);
        assert!(levels.is_sorted() && levels.first().is_none_or(|&first| first == 0), "levels ascend from 0");
        assert!(
            count == places.len() && count < Columns::LIMIT,
            "`places` has an entry for each row, fewer than 2³¹"
        );
        assert!(is_permutation(places), "`places` is a permutation");
        let (mut rows, mut slices_of): (Vec<usize>, Vec<Range<usize>>) = (vec![], vec![]);
        for level in levels.windows(2) {
            let first = rows.len();
            rows.extend((level[0]..level[1]).step_by(HEIGHT));
            slices_of.push(first..rows.len());
        }
        rows.push(count);
        let work = |slice: usize| {
            let rows = rows[slice]..rows[slice + 1];
            rows.len() + rows.map(&entries).sum::<usize>()
        };
        let stages = Stages::new(slices_of.into_iter(), LEAST_OF_PART, work);
        Slices { levels: levels.to_vec(), rows, stages, places: places.to_vec(), key: Arc::new(()) }
    }

    fn count(&self) -> usize {
        self.rows.len() - 1
    }

    fn len(&self) -> usize {
        self.places.len()
    }
}

/// Returns whether every number below the length occurs once.
fn is_permutation(numbers: &[u32]) -> bool {
    let (mut seen, repeated) = (vec![0; numbers.len().div_ceil(32)], AtomicBool::new(false));
    let seen = shared(&mut seen);
    over_rows(numbers.len(), 2, (), &|range, ()| {
        let is_new = |&number: &u32| {
            let bit = 1 << (number % 32);
            (number as usize) < numbers.len()
                && seen[number as usize / 32].fetch_or(bit, Ordering::Relaxed) & bit == 0
        };
        if !numbers[range].iter().all(is_new) {
            repeated.store(true, Ordering::Relaxed);
        }
    });
    !repeated.into_inner()
}

/// Workspace of a solve.
#[derive(Debug)]
pub struct Scratch<T> {
    /// For each vector its unknowns in level order, followed by a zero that padding reads.
    x: Vec<T>,
    /// For each part, true if a thread has taken it: first the parts of `L`, then those of `U`.
    taken: Vec<AtomicBool>,
}

impl<T: Value> Scratch<T> {
    /// Allocates the workspace for these slices.
    pub fn new(slices: &Slices) -> Scratch<T> {
        Scratch { x: vec![T::zero(); slices.len() + 1], taken: slices.stages.marks(2) }
    }

    /// Number of further values that [`solve_both`] allocates for this number of vectors.
    pub fn growth(&self, slices: &Slices, vectors: usize) -> usize {
        (vectors * (slices.len() + 1)).saturating_sub(self.x.capacity())
    }
}

/// A triangular matrix in slices, which are stored in the order in which they are solved (last rows first for
/// `U`).
#[derive(Clone, Debug)]
pub struct Sliced<T> {
    triangle: Triangle,
    /// Identity of the [`Slices`].
    key: Arc<()>,
    /// Offset of the entries of each slice, then the end of the last.
    starts: Vec<usize>,
    columns: Vec<u32>,
    /// Values with the opposite sign.
    values: Vec<T>,
    /// Reciprocals of the diagonal.
    inverse: Vec<T>,
}

impl<T: Value> Sliced<T> {
    /// Stores the pattern of a triangular matrix, with the diagonal in the position that [`Triangle`]
    /// documents. The values are zero until [`Sliced::fill`].
    ///
    /// # Panics
    /// Panics if sizes do not fit each other, or a row depends on a row of the same level or of one that is
    /// solved later.
    pub fn new(slices: &Slices, triangle: Triangle, a: Csr<'_, T>) -> Sliced<T> {
        assert_eq!(a.offsets.ranges(), slices.len(), "the matrix has as many rows as the levels");
        let columns_of = |row: usize| others(triangle, &a.columns[a.offsets.range(row)]);
        let first_wrong = AtomicUsize::new(usize::MAX);
        over_rows(slices.len(), 8, (), &|mut rows, ()| {
            let mut level = slices.levels.partition_point(|&first| first <= rows.start);
            let wrong = rows.find(|&row| {
                while slices.levels[level] <= row {
                    level += 1;
                }
                let [first, end] = [slices.levels[level - 1], slices.levels[level]];
                let waits = |&column: &u32| match triangle {
                    Triangle::Lower => (column as usize) < first,
                    Triangle::Upper => (column as usize) >= end && (column as usize) < slices.len(),
                };
                !columns_of(row).iter().all(waits)
            });
            first_wrong.fetch_min(wrong.unwrap_or(usize::MAX), Ordering::Relaxed);
        });
        let row = first_wrong.into_inner();
        assert!(row == usize::MAX, "row {row} depends on rows of other levels only");
        let width = |place: usize| slices.rows_at(triangle, place).map(|row| columns_of(row).len()).max();
        let mut starts = vec![0; slices.count() + 1];
        over_long_rows(slices.count(), 8 * HEIGHT, &mut starts[1..], &|places, widths: &mut [usize]| {
            places.zip(widths).for_each(|(place, to)| *to = HEIGHT * width(place).unwrap_or(0));
        });
        for place in 0..slices.count() {
            starts[place + 1] += starts[place];
        }
        let slots = starts[slices.count()];
        let mut columns = vec![0; slots];
        in_huge_pages(&mut columns);
        over_slices(&starts, &mut columns, &|places, mut rest: &mut [u32]| {
            for place in places {
                let (own, after) = rest.split_at_mut(starts[place + 1] - starts[place]);
                rest = after;
                // padding beyond the end of a row reads the zero after the last row
                own.fill(slices.len() as u32);
                for (lane, row) in slices.rows_at(triangle, place).enumerate() {
                    let slots = own.iter_mut().skip(lane).step_by(HEIGHT);
                    slots.zip(columns_of(row)).for_each(|(slot, &column)| *slot = column);
                }
            }
        });
        let (mut values, inverse) = (vec![T::zero(); slots], vec![T::zero(); slices.len()]);
        in_huge_pages(&mut values);
        Sliced { triangle, key: slices.key.clone(), starts, columns, values, inverse }
    }

    /// Sets the values to those of `a`, which has the same pattern as the stored matrix.
    ///
    /// # Panics
    /// Panics if the matrix was not stored with these slices.
    pub fn fill(&mut self, slices: &Slices, a: Csr<'_, T>) {
        assert!(Arc::ptr_eq(&self.key, &slices.key), "the triangle is stored in these slices");
        let Sliced { triangle, starts, values, inverse, .. } = self;
        over_slices(starts, values, &|places, mut rest: &mut [T]| {
            for place in places {
                let (own, after) = rest.split_at_mut(starts[place + 1] - starts[place]);
                rest = after;
                for (lane, row) in slices.rows_at(*triangle, place).enumerate() {
                    let slots = own.iter_mut().skip(lane).step_by(HEIGHT);
                    let entries = others(*triangle, &a.values[a.offsets.range(row)]);
                    slots.zip(entries).for_each(|(slot, &value)| *slot = -value);
                }
            }
        });
        over_rows(inverse.len(), 8, inverse.as_mut_slice(), &|rows, inverse: &mut [T]| {
            for (row, to) in rows.zip(inverse) {
                let entries = &a.values[a.offsets.range(row)];
                let diagonal = match triangle {
                    Triangle::Lower => entries.last(),
                    Triangle::Upper => entries.first(),
                };
                *to = diagonal.map_or(T::zero(), |diagonal| diagonal.recip());
            }
        });
    }

    /// Bytes that a solve reads.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.columns) + size_of_val(&*self.values) + size_of_val(&*self.inverse)
    }
}

impl Slices {
    /// Rows of the `place`-th slice in the order in which `triangle` is solved: first slice first for `L`,
    /// last slice first for `U`.
    fn rows_at(&self, triangle: Triangle, place: usize) -> Range<usize> {
        let slice = match triangle {
            Triangle::Lower => place,
            Triangle::Upper => self.count() - 1 - place,
        };
        self.rows[slice]..self.rows[slice + 1]
    }
}

/// Runs `work` on ranges of slices and their slots, on all threads. `starts` has the first slot of each slice, and
/// the end of the last.
fn over_slices<X: Send>(starts: &[usize], slots: &mut [X], work: &(impl Fn(Range<usize>, &mut [X]) + Sync)) {
    let (count, offset) = (starts.len() - 1, |place: usize| starts[place]);
    let width = slots.len() / count.max(1);
    over_long_rows(count, width, ByRow::new(slots, &offset), &|places, slots: ByRow<'_, X>| {
        work(places, slots.all().0);
    });
}

/// Entries of a row without its diagonal.
fn others<X>(triangle: Triangle, row: &[X]) -> &[X] {
    match (triangle, row) {
        (Triangle::Lower, [rest @ .., _]) | (Triangle::Upper, [_, rest @ ..]) => rest,
        _ => &[],
    }
}

/// A vector that threads share. During a solve no two threads write the same entry, and none reads an entry
/// while another writes it.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: all accesses are in `Walk` and `solve_both`, whose safety comments show that they do not conflict
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above
unsafe impl<T: Send> Sync for Shared<T> {}

/// Task that solves for the slices of one part.
#[derive(Clone, Copy)]
struct Walk<'a, T> {
    slices: &'a Slices,
    a: &'a Sliced<T>,
    /// First slice of the part, in the order in which the triangle is solved.
    first: usize,
    end: usize,
    vectors: usize,
    x: Shared<T>,
}

impl<T: Value> Task for Walk<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Walk { slices, a, first, end, vectors, x: Shared(all) } = self;
        let (lanes, apart) = (<T::In<S> as Lanes<T>>::COUNT, slices.len() + 1);
        for place in first..end {
            let rows = slices.rows_at(a.triangle, place);
            let entries = a.starts[place]..a.starts[place + 1];
            for row in rows.clone().step_by(lanes) {
                let count = lanes.min(rows.end - row);
                let whole = count == lanes;
                // SAFETY: `simd::run` ensures the features. Rows and columns are below the length of each
                // vector in `x`, as the constructors checked, and `x` holds `vectors` of them. Entries of a
                // slice have a stride of `HEIGHT`, which is a multiple of every register's lanes. Only this
                // thread writes these rows; the other entries that it reads were written before its level
                // began, or are the zero after the last row.
                unsafe {
                    let inverse = a.inverse.as_ptr().add(row);
                    for v in 0..vectors {
                        let x = all.add(v * apart);
                        let x_row = x.add(row);
                        let mut sum = if whole {
                            T::In::<S>::load(x_row)
                        } else {
                            T::In::<S>::load_first(x_row, count)
                        };
                        for at in (entries.start + row - rows.start..entries.end).step_by(HEIGHT) {
                            let known = T::In::<S>::gather(x, a.columns.as_ptr().add(at));
                            sum = T::In::<S>::load(a.values.as_ptr().add(at)).mul_add(known, sum);
                        }
                        if whole {
                            sum.mul(T::In::<S>::load(inverse)).store(x_row);
                        } else {
                            sum.mul(T::In::<S>::load_first(inverse, count)).store_first(x_row, count);
                        }
                    }
                }
            }
        }
    }
}

/// `z = U⁻¹ (L⁻¹ r)` for pairs of `r` and `z`: both triangles are read once for all of them.
///
/// # Panics
/// Panics if sizes do not fit each other.
pub fn solve_both<T: Value>(
    slices: &Slices,
    [lower, upper]: &[Sliced<T>; 2],
    scratch: &mut Scratch<T>,
    pairs: &mut [(&[T], &mut [T])],
) {
    let (n, vectors, Scratch { x, taken }) = (slices.len(), pairs.len(), scratch);
    assert!(pairs.iter().all(|(r, z)| r.len() == n && z.len() == n), "vectors have an entry for each row");
    assert!(
        lower.triangle == Triangle::Lower && upper.triangle == Triangle::Upper,
        "the first triangle is lower, the second upper"
    );
    let fits = |a: &Sliced<T>| Arc::ptr_eq(&a.key, &slices.key);
    assert!(
        fits(lower) && fits(upper) && taken.len() == 2 * slices.stages.parts(),
        "triangles and workspace belong to these slices"
    );
    x.resize(vectors * (n + 1), T::zero());
    for (x, (r, _)) in x.chunks_exact_mut(n + 1).zip(&*pairs) {
        x[n] = T::zero();
        let shared = Shared(x.as_mut_ptr());
        over_rows(n, 3, (), &|range, ()| {
            // captures the whole struct, which is `Send` and `Sync`, instead of its pointer
            let Shared(x) = { shared };
            for (&r, &place) in r[range.clone()].iter().zip(&slices.places[range]) {
                // SAFETY: `places` is a permutation of the entries of `x` without the last
                unsafe { *x.add(place as usize) = r };
            }
        });
    }
    let shared = Shared(x.as_mut_ptr());
    let forth = slices.stages.iter().map(|stage| (Triangle::Lower, stage));
    let back = slices.stages.iter().rev().map(|stage| (Triangle::Upper, stage));
    stages::run(forth.chain(back), taken, &|_, (triangle, _), range| {
        let (a, first, end) = match triangle {
            Triangle::Lower => (lower, range.start, range.end),
            Triangle::Upper => (upper, slices.count() - range.end, slices.count() - range.start),
        };
        simd::run(Walk { slices, a, first, end, vectors, x: shared });
    });
    for (x, (_, z)) in x.chunks_exact(n + 1).zip(pairs) {
        over_rows(n, 3, &mut **z, &|range, z: &mut [T]| {
            z.iter_mut().zip(&slices.places[range]).for_each(|(z, &place)| *z = x[place as usize]);
        });
    }
}
