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
//! Threads spin-wait between stages, because a stage takes only a few microseconds. A thread has the same
//! share of every stage, so that the rows it reads are in its caches. Other threads steal the parts of a late
//! thread, so a solve finishes even if only one thread runs. Results do not depend on which thread computes a
//! part.
//!
//! Memory traffic: `L` and `U` once, with padding, and 8 vectors. With several right-hand sides, each row is
//! solved for all of them before the next row: the triangles are read once, and threads synchronize as often
//! as for one right-hand side.

use super::triangular::Triangle;
use crate::cpu::formats::csr::Csr;
use crate::cpu::run::threads::over_rows;
use crate::cpu::simd::{Lanes, Simd, Task, Value, run};
use crate::cpu::tuning::{LEAST_OF_PART, SPINS, SPINS_BEFORE_STEALING};
use crate::index::Columns;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum rows per slice: the lanes of the widest register.
pub const HEIGHT: usize = crate::cpu::simd::MOST_LANES;

/// Division of the rows into slices, stages and parts, and the permutation from `r` and `z` to level order.
#[derive(Clone, Debug)]
pub struct Slices {
    /// First row of each level, then the end of the last.
    levels: Vec<usize>,
    /// First row of each slice, then the end of the last.
    rows: Vec<usize>,
    /// For each stage, the first slice of each of its parts, then the end of the last.
    stages: Vec<Vec<usize>>,
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
        let mut seen = vec![false; count];
        let is_new =
            |&place: &u32| seen.get_mut(place as usize).is_some_and(|seen| !std::mem::replace(seen, true));
        assert!(places.iter().all(is_new), "`places` is a permutation");
        let threads = rayon::current_num_threads();
        let (mut rows, mut stages): (Vec<usize>, Vec<Vec<usize>>) = (vec![], vec![]);
        for level in levels.windows(2).map(|w| w[0]..w[1]).filter(|level| !level.is_empty()) {
            let first = rows.len();
            rows.extend(level.clone().step_by(HEIGHT));
            let work = |rows: Range<usize>| rows.len() + rows.map(&entries).sum::<usize>();
            let all = work(level.clone());
            let parts = (all / LEAST_OF_PART).clamp(1, threads);
            if let Some([_, end]) = stages.last_mut().map(Vec::as_mut_slice)
                && parts == 1
            {
                *end = rows.len();
                continue;
            }
            // parts of equal work, because the rows of a level differ in length
            let (mut bounds, mut done) = (vec![first], 0);
            for slice in first..rows.len() {
                done += work(rows[slice]..rows.get(slice + 1).copied().unwrap_or(level.end));
                if done * parts >= all * bounds.len() {
                    bounds.push(slice + 1);
                }
            }
            stages.push(bounds);
        }
        rows.push(count);
        Slices { levels: levels.to_vec(), rows, stages, places: places.to_vec(), key: Arc::new(()) }
    }

    fn count(&self) -> usize {
        self.rows.len() - 1
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    fn parts(&self) -> usize {
        self.stages.iter().map(|stage| stage.len() - 1).sum()
    }

    /// Runs every stage of `L`, then every stage of `U` in reverse order, on all idle threads.
    fn team(&self, taken: &mut [AtomicBool], work: &(impl Fn(Triangle, Range<usize>) + Sync)) {
        taken.iter_mut().for_each(|taken| *taken.get_mut() = false);
        let (taken, threads) = (&*taken, rayon::current_num_threads());
        let [come, done] = [(); 2].map(|()| Line(AtomicUsize::new(0)));
        let share = || {
            let mine = come.0.fetch_add(1, Ordering::Relaxed);
            let stages = self.stages.iter().map(|stage| (Triangle::Lower, stage));
            let back = self.stages.iter().rev().map(|stage| (Triangle::Upper, stage));
            let is_done = |parts| done.0.load(Ordering::Acquire) >= parts;
            // number of parts of all earlier stages; whether another thread was late in the previous stage
            let (mut before, mut late) = (0, false);
            for (triangle, bounds) in stages.chain(back) {
                let parts = bounds.len() - 1;
                wait(|| is_done(before));
                let take = |part: usize| {
                    let free = !taken[before + part].swap(true, Ordering::Relaxed);
                    if free {
                        work(triangle, bounds[part]..bounds[part + 1]);
                        done.0.fetch_add(1, Ordering::Release);
                    }
                    free
                };
                let [first, end] = [mine, mine + 1].map(|at| (at * parts).div_ceil(threads).min(parts));
                for part in first..end {
                    take(part);
                }
                let mut looks = if late { 0..0 } else { 0..SPINS_BEFORE_STEALING };
                while !is_done(before + parts) && looks.next().is_some() {
                    std::hint::spin_loop();
                }
                late = !is_done(before + parts) && (0..parts).filter(|&part| take(part)).count() > 0;
                before += parts;
            }
        };
        if threads == 1 || self.stages.iter().all(|stage| stage.len() == 2) {
            return share();
        }
        rayon::scope(|scope| {
            (1..threads).for_each(|_| scope.spawn(|_| share()));
            share();
        });
    }
}

/// A counter alone in its cache line, so that writes to another counter do not slow down threads that poll
/// this one (false sharing).
#[repr(align(128))]
struct Line(AtomicUsize);

fn wait(until: impl Fn() -> bool) {
    let mut spins = 0;
    while !until() {
        spins += 1;
        if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

/// Workspace of a solve.
#[derive(Debug)]
pub struct Scratch<T> {
    /// For each vector its unknowns in level order, followed by a zero that padding reads.
    x: Vec<T>,
    /// Whether a thread has taken each part: first those of `L`, then those of `U`.
    taken: Vec<AtomicBool>,
}

impl<T: Value> Scratch<T> {
    /// Allocates the workspace for these slices.
    pub fn new(slices: &Slices) -> Scratch<T> {
        let taken = (0..2 * slices.parts()).map(|_| AtomicBool::new(false)).collect();
        Scratch { x: vec![T::zero(); slices.len() + 1], taken }
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
        for level in slices.levels.windows(2) {
            for row in level[0]..level[1] {
                let columns = others(triangle, &a.columns[a.offsets.range(row)]);
                let waits = |&column: &u32| match triangle {
                    Triangle::Lower => (column as usize) < level[0],
                    Triangle::Upper => (column as usize) >= level[1] && (column as usize) < slices.len(),
                };
                assert!(columns.iter().all(waits), "row {row} depends on rows of other levels only");
            }
        }
        let key = slices.key.clone();
        let mut sliced =
            Sliced { triangle, key, starts: vec![0], columns: vec![], values: vec![], inverse: vec![] };
        for place in 0..slices.count() {
            let rows = slices.rows_at(triangle, place);
            let columns = |row: usize| others(triangle, &a.columns[a.offsets.range(row)]);
            let width = rows.clone().map(|row| columns(row).len()).max().unwrap_or(0);
            for at in 0..width {
                // padding beyond the end of a row reads the zero after the last row
                let column = |row: usize| columns(row).get(at).copied().unwrap_or(slices.len() as u32);
                sliced.columns.extend(rows.clone().map(column));
                sliced.columns.extend((rows.len()..HEIGHT).map(|_| slices.len() as u32));
            }
            sliced.starts.push(sliced.columns.len());
        }
        sliced.values = vec![T::zero(); sliced.columns.len()];
        sliced.inverse = vec![T::zero(); slices.len()];
        sliced
    }

    /// Sets the values to those of `a`, which has the same pattern as the stored matrix.
    ///
    /// # Panics
    /// Panics if the matrix was not stored with these slices.
    pub fn fill(&mut self, slices: &Slices, a: Csr<'_, T>) {
        assert!(Arc::ptr_eq(&self.key, &slices.key), "the triangle is stored in these slices");
        for place in 0..slices.count() {
            let rows = slices.rows_at(self.triangle, place);
            let values = &mut self.values[self.starts[place]..self.starts[place + 1]];
            for (lane, row) in rows.enumerate() {
                let entries = &a.values[a.offsets.range(row)];
                let slots = values.iter_mut().skip(lane).step_by(HEIGHT);
                slots.zip(others(self.triangle, entries)).for_each(|(slot, &value)| *slot = -value);
                let diagonal = match self.triangle {
                    Triangle::Lower => entries.last(),
                    Triangle::Upper => entries.first(),
                };
                self.inverse[row] = diagonal.map_or(T::zero(), |diagonal| diagonal.recip());
            }
        }
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
        fits(lower) && fits(upper) && taken.len() == 2 * slices.parts(),
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
    slices.team(taken, &|triangle, range| {
        let (a, first, end) = match triangle {
            Triangle::Lower => (lower, range.start, range.end),
            Triangle::Upper => (upper, slices.count() - range.end, slices.count() - range.start),
        };
        run(Walk { slices, a, first, end, vectors, x: shared });
    });
    for (x, (_, z)) in x.chunks_exact(n + 1).zip(pairs) {
        over_rows(n, 3, &mut **z, &|range, z: &mut [T]| {
            z.iter_mut().zip(&slices.places[range]).for_each(|(z, &place)| *z = x[place as usize]);
        });
    }
}
