//! Work on the units of a tree, on all threads.

use super::Tree;
use crate::Result;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Work on some units of a tree.
struct Run<R, W> {
    /// For each unit, the units that need its results, once for each front whose parent they have.
    needed_by: Vec<Vec<u32>>,
    /// Number of results that each unit still waits for.
    missing: Vec<AtomicUsize>,
    results: Vec<Mutex<Option<Result<R>>>>,
    work: W,
}

impl Tree {
    /// Calls `work` with the index of each unit, after the units of its children, on all threads. All earlier units that they
    /// need have been run. Returns the first error in the order of the units, for any number of threads; the units
    /// above one that has failed are not run.
    pub(in super::super) fn run<R: Send>(
        &self,
        units: &[Range<usize>],
        work: impl Fn(usize) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        // without threads, which take longer to start than a small task
        if units.len() == 1 {
            return Ok(vec![work(0)?]);
        }
        let first = units.iter().map(|unit| unit.start).min().unwrap_or(0);
        let last = units.iter().map(|unit| unit.end).max().unwrap_or(0);
        let mut unit_of = vec![u32::MAX; last - first];
        for (at, unit) in (0..).zip(units) {
            unit_of[unit.start - first..unit.end - first].fill(at);
        }
        let missing: Vec<_> = units.iter().map(|_| AtomicUsize::new(0)).collect();
        let needed_by = (0..).zip(units).map(|(at, unit)| {
            let parents = self.fronts[unit.clone()].iter().filter_map(|front| front.parent);
            let parents = parents.filter_map(|parent| unit_of.get(parent as usize - first).copied());
            let others: Vec<u32> = parents.filter(|&other| other != at && other != u32::MAX).collect();
            for &other in &others {
                missing[other as usize].fetch_add(1, Ordering::Relaxed);
            }
            others
        });
        let needed_by = needed_by.collect();
        let results = units.iter().map(|_| Mutex::default()).collect();
        let ready: Vec<_> = (0..units.len()).filter(|&at| missing[at].load(Ordering::Relaxed) == 0).collect();
        let all = Run { needed_by, missing, results, work };
        let run = &all;
        rayon::scope(|scope| {
            ready.into_iter().for_each(|at| scope.spawn(move |scope| run.unit(at, scope)));
        });
        let results = all.results.into_iter();
        results.filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
    }
}

impl<R: Send, W: Fn(usize) -> Result<R> + Sync> Run<R, W> {
    fn unit<'s>(&'s self, at: usize, scope: &rayon::Scope<'s>) {
        let result = (self.work)(at);
        let failed = result.is_err();
        *self.results[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        if failed {
            return;
        }
        for &other in &self.needed_by[at] {
            if self.missing[other as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                scope.spawn(move |scope| self.unit(other as usize, scope));
            }
        }
    }
}
