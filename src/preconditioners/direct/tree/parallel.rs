//! Work on the units of a tree, on all threads.

use super::{NONE, Tree};
use crate::error::Result;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

impl Tree {
    /// Calls `work` with the index of each of these units, after those of its children. Earlier calls have run the
    /// other units that they need. Returns the first error in the order of the units, for any number of threads;
    /// after an error, later units may be left out.
    pub(in super::super) fn run<R: Send>(
        &self,
        units: &[Range<usize>],
        work: impl Fn(usize) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let first = units.iter().map(|unit| unit.start).min().unwrap_or(0);
        let last = units.iter().map(|unit| unit.end).max().unwrap_or(0);
        let mut unit_of = vec![NONE; last - first];
        for (at, unit) in (0..).zip(units) {
            unit_of[unit.start - first..unit.end - first].fill(at);
        }
        let parent = |unit: &Range<usize>| {
            let parents = self.fronts[unit.clone()].iter().filter_map(|front| front.parent);
            let mut outer = parents.filter(|&parent| parent as usize >= unit.end);
            outer
                .find_map(|parent| unit_of.get(parent as usize - first).copied())
                .filter(|&unit| unit != NONE)
        };
        let parents: Vec<Option<u32>> = units.iter().map(parent).collect();
        in_order(&parents.into_iter().map(Vec::from_iter).collect::<Vec<_>>(), work)
    }
}

/// Units that wait for others.
struct Run<'a, R, W> {
    needed_by: &'a [Vec<u32>],
    /// Number of units that each unit still waits for.
    missing: Vec<AtomicUsize>,
    results: Vec<Mutex<Option<Result<R>>>>,
    /// The first unit that has failed.
    failed: AtomicUsize,
    work: W,
}

/// Calls `work` with each index, on all threads. `needed_by[i]` lists the indices that must run after `i`.
pub(super) fn in_order<R: Send>(
    needed_by: &[Vec<u32>],
    work: impl Fn(usize) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    // without other threads, which take longer to start than a small unit
    if needed_by.len() == 1 {
        return Ok(vec![work(0)?]);
    }
    let missing: Vec<_> = needed_by.iter().map(|_| AtomicUsize::new(0)).collect();
    for &other in needed_by.iter().flatten() {
        missing[other as usize].fetch_add(1, Ordering::Relaxed);
    }
    let ready: Vec<_> = (0..missing.len()).filter(|&at| missing[at].load(Ordering::Relaxed) == 0).collect();
    let results = needed_by.iter().map(|_| Mutex::default()).collect();
    let all = Run { needed_by, missing, results, failed: AtomicUsize::new(usize::MAX), work };
    let run = &all;
    rayon::scope(|scope| {
        ready.into_iter().for_each(|at| scope.spawn(move |scope| run.unit(at, scope)));
    });
    let results = all.results.into_iter();
    results.filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

impl<R: Send, W: Fn(usize) -> Result<R> + Sync> Run<'_, R, W> {
    /// Runs a unit and, one after the other, units that wait for it alone, so that a chain of small units needs no
    /// other thread.
    fn unit<'s>(&'s self, mut at: usize, scope: &rayon::Scope<'s>) {
        // where `work` may fail, a unit waits for units with lower indices only, so none of these is left out
        while at < self.failed.load(Ordering::Relaxed) {
            let result = (self.work)(at);
            if result.is_err() {
                self.failed.fetch_min(at, Ordering::Relaxed);
            }
            let failed = result.is_err();
            *self.results[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            let mut next = None;
            for &other in self.needed_by[at].iter().filter(|_| !failed) {
                let other = other as usize;
                if self.missing[other].fetch_sub(1, Ordering::AcqRel) > 1 {
                    continue;
                }
                match next {
                    None => next = Some(other),
                    Some(_) => scope.spawn(move |scope| self.unit(other, scope)),
                }
            }
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
    }
}
