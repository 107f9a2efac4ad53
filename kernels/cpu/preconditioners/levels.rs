//! Both triangular solves of a factorisation, `z = U⁻¹ (L⁻¹ r)`, level by level, with the rows of a level in SIMD lanes.
//!
//! Rows are numbered level after level, so that a row waits for rows of other levels only. A slice is up to [`HEIGHT`] rows of one
//! level, entries of equal place side by side, padded to the longest. A stage is one level, or several small ones; each of its
//! parts is for one thread, small levels have one part.
//!
//! ```text
//! x ← r, level after level
//! for each stage, first of L, then of U in the opposite order:        each thread does its parts, then waits for the others
//!     for each slice, rows i in lanes:    x_i ← (x_i − Σ_k v_k x_{c_k}) w_i         w: 1 / diagonal
//! z ← x, in the order of r
//! ```
//!
//! What goes from one order to the other does so in the order of `r`: neighbours there belong to neighbouring levels, each of which
//! fills its cache lines one after the other. Level after level, a level would touch as many pages of `r` as it has rows.
//!
//! Threads wait awake, for a stage takes a few microseconds, and a thread has the same parts in all stages, whose rows are in its
//! caches. A part whose thread is late is done by another: one thread alone comes to the end. Who does a part shows in no result.
//!
//! Budget: `L` and `U` once, padded; 8 vectors.

use super::triangular::Triangle;
use crate::cpu::formats::csr::Csr;
use crate::cpu::run::threads::over_rows;
use crate::cpu::simd::{Lanes, Simd, Task, Value, run};
use crate::cpu::tuning::{LEAST_OF_PART, PATIENCE, SPINS};
use crate::index::Columns;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The most rows of a slice: the most lanes of a register.
pub const HEIGHT: usize = crate::cpu::simd::MOST_LANES;

/// How rows are cut into slices, stages and parts, and which row of `r` and `z` each of them is.
#[derive(Clone, Debug)]
pub struct Slices {
    /// Where levels begin, and the end.
    levels: Vec<usize>,
    /// The first row of each slice, and the end.
    rows: Vec<usize>,
    /// The slices where the parts of each stage begin, and the end.
    stages: Vec<Vec<usize>>,
    /// The row that each entry of `r` and `z` is.
    places: Vec<u32>,
    /// What triangles that are cut this way share.
    key: Arc<()>,
}

impl Slices {
    /// For levels that begin at these rows, a row's `entries` in `L`, and the row that each entry of `r` and `z` is.
    ///
    /// # Panics
    /// If `places` is not a permutation of as many rows as the levels have, or there are 2³¹ of them.
    pub fn new(levels: &[usize], entries: impl Fn(usize) -> usize, places: &[u32]) -> Slices {
        let count = levels.last().copied().unwrap_or(0);
        assert!(levels.is_sorted() && levels.first().is_none_or(|&first| first == 0), "levels ascend from 0");
        assert!(count == places.len() && count < Columns::LIMIT, "one place for each row");
        let mut seen = vec![false; count];
        let is_new =
            |&place: &u32| seen.get_mut(place as usize).is_some_and(|seen| !std::mem::replace(seen, true));
        assert!(places.iter().all(is_new), "places are a permutation");
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
            // parts of equal work: rows of a level differ in length
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

    /// Runs every stage of `L`, then every stage of `U` in the opposite order, on all threads that have nothing else to do.
    fn team(&self, taken: &mut [AtomicBool], work: &(impl Fn(Triangle, Range<usize>) + Sync)) {
        taken.iter_mut().for_each(|taken| *taken.get_mut() = false);
        let (taken, threads) = (&*taken, rayon::current_num_threads());
        let [come, done] = [(); 2].map(|()| Line(AtomicUsize::new(0)));
        let share = || {
            let mine = come.0.fetch_add(1, Ordering::Relaxed);
            let stages = self.stages.iter().map(|stage| (Triangle::Lower, stage));
            let back = self.stages.iter().rev().map(|stage| (Triangle::Upper, stage));
            let is_done = |parts| done.0.load(Ordering::Acquire) >= parts;
            // parts of all stages before this one, and whether another thread was late in the last one
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
                let mut looks = if late { 0..0 } else { 0..PATIENCE };
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

/// A number that threads write while others wait for another one: in a cache line by itself.
#[repr(align(128))]
struct Line(AtomicUsize);

fn wait(until: impl Fn() -> bool) {
    let mut spins = 0;
    while !until() {
        spins += 1;
        if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

/// What solves with some slices need beside their vectors.
#[derive(Debug)]
pub struct Scratch<T> {
    /// The unknowns of all rows, and a zero.
    x: Vec<T>,
    /// Which parts a thread has taken, those of `L`, then those of `U`.
    taken: Vec<AtomicBool>,
}

impl<T: Value> Scratch<T> {
    /// For these slices.
    pub fn new(slices: &Slices) -> Scratch<T> {
        let taken = (0..2 * slices.parts()).map(|_| AtomicBool::new(false)).collect();
        Scratch { x: vec![T::zero(); slices.len() + 1], taken }
    }
}

/// A triangle in slices, those of `U` in the order in which they are solved.
#[derive(Clone, Debug)]
pub struct Sliced<T> {
    triangle: Triangle,
    /// Of the slices.
    key: Arc<()>,
    /// Where the entries of each slice begin, and the end.
    starts: Vec<usize>,
    columns: Vec<u32>,
    /// With the opposite sign.
    values: Vec<T>,
    /// One over each row's diagonal.
    inverse: Vec<T>,
}

impl<T: Value> Sliced<T> {
    /// Cuts the pattern of a triangle, the diagonal where [`Triangle`] says. It has no values before [`Sliced::fill`].
    ///
    /// # Panics
    /// If sizes do not fit each other, or a row does not wait for other levels only.
    pub fn new(slices: &Slices, triangle: Triangle, a: Csr<'_, T>) -> Sliced<T> {
        assert_eq!(a.offsets.ranges(), slices.len(), "one row for each of the levels");
        for level in slices.levels.windows(2) {
            for row in level[0]..level[1] {
                let columns = others(triangle, &a.columns[a.offsets.range(row)]);
                let waits = |&column: &u32| match triangle {
                    Triangle::Lower => (column as usize) < level[0],
                    Triangle::Upper => (column as usize) >= level[1] && (column as usize) < slices.len(),
                };
                assert!(columns.iter().all(waits), "row {row} waits for other levels only");
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
                // what is beyond a row's end reads the zero behind all rows
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

    /// Takes new values of the same triangle.
    ///
    /// # Panics
    /// If it is not.
    pub fn fill(&mut self, slices: &Slices, a: Csr<'_, T>) {
        assert!(Arc::ptr_eq(&self.key, &slices.key), "the triangle was cut into these slices");
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

    /// The bytes that a solve reads.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.columns) + size_of_val(&*self.values) + size_of_val(&*self.inverse)
    }
}

impl Slices {
    /// The rows of the slice at a place of a triangle.
    fn rows_at(&self, triangle: Triangle, place: usize) -> Range<usize> {
        let slice = match triangle {
            Triangle::Lower => place,
            Triangle::Upper => self.count() - 1 - place,
        };
        self.rows[slice]..self.rows[slice + 1]
    }
}

/// A row without its diagonal.
fn others<X>(triangle: Triangle, row: &[X]) -> &[X] {
    match (triangle, row) {
        (Triangle::Lower, [rest @ .., _]) | (Triangle::Upper, [_, rest @ ..]) => rest,
        _ => &[],
    }
}

/// Vectors that threads share. Within a solve, no two write one entry, and none reads what another writes at the time.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: see `Walk`, the only one who reads and writes through it
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above
unsafe impl<T: Send> Sync for Shared<T> {}

/// The slices of one part.
#[derive(Clone, Copy)]
struct Walk<'a, T> {
    slices: &'a Slices,
    a: &'a Sliced<T>,
    /// Of the triangle.
    first: usize,
    end: usize,
    x: Shared<T>,
}

impl<T: Value> Task for Walk<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Walk { slices, a, first, end, x: Shared(x) } = self;
        let lanes = <T::In<S> as Lanes<T>>::COUNT;
        for place in first..end {
            let rows = slices.rows_at(a.triangle, place);
            let entries = a.starts[place]..a.starts[place + 1];
            for row in rows.clone().step_by(lanes) {
                let count = lanes.min(rows.end - row);
                // SAFETY: `run` gives the features. Rows and columns are below the length of `x`, as the constructors made sure.
                // Entries of a slice come in steps of `HEIGHT`, which registers divide. This thread alone writes these rows;
                // what it reads of others was written before its level began, or is the zero behind all rows.
                unsafe {
                    let (x_row, inverse) = (x.add(row), a.inverse.as_ptr().add(row));
                    let whole = count == lanes;
                    let mut sum =
                        if whole { T::In::<S>::load(x_row) } else { T::In::<S>::load_first(x_row, count) };
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

/// `z = U⁻¹ (L⁻¹ r)`
///
/// # Panics
/// If sizes do not fit each other.
pub fn solve_both<T: Value>(
    slices: &Slices,
    [lower, upper]: &[Sliced<T>; 2],
    scratch: &mut Scratch<T>,
    r: &[T],
    z: &mut [T],
) {
    let (n, Scratch { x, taken }) = (slices.len(), scratch);
    assert!(r.len() == n && z.len() == n && x.len() == n + 1, "vectors have an entry for each row");
    assert!(lower.triangle == Triangle::Lower && upper.triangle == Triangle::Upper, "L comes first");
    let fits = |a: &Sliced<T>| Arc::ptr_eq(&a.key, &slices.key);
    assert!(fits(lower) && fits(upper) && taken.len() == 2 * slices.parts(), "all have these slices");
    x[n] = T::zero();
    let shared = Shared(x.as_mut_ptr());
    over_rows(n, 3, (), &|range, ()| {
        // as a whole, not its field alone
        let Shared(x) = { shared };
        for (&r, &place) in r[range.clone()].iter().zip(&slices.places[range]) {
            // SAFETY: places are a permutation of the entries of `x` but the last
            unsafe { *x.add(place as usize) = r };
        }
    });
    slices.team(taken, &|triangle, range| {
        let (a, first, end) = match triangle {
            Triangle::Lower => (lower, range.start, range.end),
            Triangle::Upper => (upper, slices.count() - range.end, slices.count() - range.start),
        };
        run(Walk { slices, a, first, end, x: shared });
    });
    over_rows(n, 3, z, &|range, z: &mut [T]| {
        z.iter_mut().zip(&slices.places[range]).for_each(|(z, &place)| *z = x[place as usize]);
    });
}
