//! Loops over levels, whose items depend on those of earlier levels: the items of a level run on all threads.
//!
//! A stage is one level or several small ones. It is divided into parts of equal work, at most one per thread; small
//! levels have a single part. Threads spin-wait between stages, because a stage takes only a few microseconds. A
//! thread has the same share of every stage, so that the rows it reads are in its caches. Other threads steal the
//! parts of a late thread, so a loop finishes even if only one thread runs.

use crate::cpu::tuning::{SPINS, SPINS_BEFORE_STEALING};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Division of items into stages and parts.
#[derive(Clone, Debug)]
pub(super) struct Stages {
    /// First item of each part of a stage, then the end of the last part, for each stage.
    bounds: Vec<Vec<usize>>,
}

impl Stages {
    /// Divides the items of `levels`, consecutive ranges, into parts that take at least `least` units of work;
    /// `work` returns those of an item.
    pub(super) fn new(
        levels: impl Iterator<Item = Range<usize>>,
        least: usize,
        work: impl Fn(usize) -> usize,
    ) -> Stages {
        let threads = rayon::current_num_threads();
        let mut stages: Vec<Vec<usize>> = vec![];
        for level in levels.filter(|level| !level.is_empty()) {
            let all: usize = level.clone().map(&work).sum();
            let parts = (all / least).clamp(1, threads);
            if let Some([_, end]) = stages.last_mut().map(Vec::as_mut_slice)
                && parts == 1
            {
                *end = level.end;
                continue;
            }
            // parts of equal work, because items differ
            let (mut bounds, mut done, end) = (vec![level.start], 0, level.end);
            for item in level {
                done += work(item);
                if bounds.len() < parts && done * parts >= all * bounds.len() {
                    bounds.push(item + 1);
                }
            }
            // the last part has all that is left, also items without work
            match bounds.as_mut_slice() {
                [_, .., last] if *last == end => {}
                _ => bounds.push(end),
            }
            stages.push(bounds);
        }
        Stages { bounds: stages }
    }

    /// The stages in order; each has the first item of each of its parts, then the end of the last.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &[usize]> + Clone {
        self.bounds.iter().map(Vec::as_slice)
    }

    /// Number of parts of all stages.
    pub(super) fn parts(&self) -> usize {
        self.bounds.iter().map(|stage| stage.len() - 1).sum()
    }

    /// Marks for [`run`], for a loop that runs all stages `times` times.
    pub(super) fn marks(&self, times: usize) -> Vec<AtomicBool> {
        (0..times * self.parts()).map(|_| AtomicBool::new(false)).collect()
    }
}

/// Calls `work(thread, stage, items of a part)` for every part of the stages, each stage after the one before, on
/// idle threads, at most as many as the largest stage has parts. `thread` is below the number of threads, and differs
/// among those that work at the same time. `taken` has a mark for each part. `work` must not wait for other tasks of
/// the pool.
///
/// # Panics
/// Panics if there are fewer marks than parts, or if `work` panics; then no later stage begins.
pub(super) fn run<'s, S: Copy>(
    stages: impl Iterator<Item = (S, &'s [usize])> + Clone + Sync,
    taken: &mut [AtomicBool],
    work: &(impl Fn(usize, (S, &'s [usize]), Range<usize>) + Sync),
) {
    taken.iter_mut().for_each(|taken| *taken.get_mut() = false);
    // more threads than the largest stage has parts would only wait
    let most = stages.clone().map(|(_, bounds)| bounds.len() - 1).max().unwrap_or(0);
    let (taken, threads) = (&*taken, rayon::current_num_threads().min(most));
    let [come, done] = [(); 2].map(|()| Line(AtomicUsize::new(0)));
    let share = || {
        let mine = come.0.fetch_add(1, Ordering::Relaxed);
        let is_done = |parts| done.0.load(Ordering::Acquire) >= parts;
        // number of parts of all earlier stages; whether another thread was late in the previous stage
        let (mut before, mut late) = (0, false);
        for (kind, bounds) in stages.clone() {
            let parts = bounds.len() - 1;
            wait(|| is_done(before));
            if is_done(PANICKED) {
                return;
            }
            let take = |part: usize| {
                let free = !taken[before + part].swap(true, Ordering::Relaxed);
                if free {
                    let _done = Done(&done.0);
                    work(mine, (kind, bounds), bounds[part]..bounds[part + 1]);
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
    if threads <= 1 {
        return share();
    }
    rayon::scope(|scope| {
        (1..threads).for_each(|_| scope.spawn(|_| share()));
        share();
    });
}

/// Number of parts that are done if one of them has panicked: more than there are.
const PANICKED: usize = usize::MAX / 2;

/// Counts a part as done when dropped, or, on a panic, all parts, so that no thread waits for it.
struct Done<'d>(&'d AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        let parts = if std::thread::panicking() { PANICKED } else { 1 };
        self.0.fetch_add(parts, Ordering::Release);
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
