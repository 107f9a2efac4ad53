//! Solves with the factors of fronts, unit by unit. A unit is a task (subtrees of the assembly tree that one thread
//! eliminates) or a single front above the tasks.
//!
//! ```text
//! up, for each unit, children first:    add what its children pass;  x ← L₁₁⁻¹ x for the pivots of its fronts
//!                                       pass −L₂₁ x in the rows that it shares with units above
//! down, for each unit, parents first:   x ← L₁₁⁻ᵀ (x − L₂₁ᵀ x of the rows above);  hand x to its children
//! ```
//!
//! The order of the sums is fixed, so results are bitwise the same for every number of threads and of vectors.

use super::parallel::in_order;
use super::{NONE, Tree};
use crate::numbers::Real;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Work of a solve for each pivot, in addition to 1 for each entry of the factor. A solve on one thread took 80 ns for each pivot and 0.6
/// to 1.4 ns for each entry (twelve matrices of 468 to 82,000 rows on a Xeon).
const OF_PIVOT: usize = 80;

/// Work of a solve from which on all threads share it. With less it takes longer on 2, 4, 8 or 16 threads than on one: 0.06 and 0.1 to
/// 0.16 ms (`nos5`), 0.2 and 0.2 to 0.3 (`bcsstk14`), but 0.7 and 0.4 to 0.6 with more (`wathenSmall`).
const SHARED: usize = 400_000;

/// Units of a tree, and where the rows of their fronts are in the vectors of each unit. These vectors have an entry for each pivot of
/// the unit, then for each of its rows that get no pivot anywhere, then for each row that it shares with units above.
#[derive(Debug)]
pub(in super::super) struct Units {
    /// Fronts of each unit.
    pub(in super::super) fronts: Vec<Range<usize>>,
    parents: Vec<Vec<u32>>,
    children: Vec<Vec<u32>>,
    /// Pivots of each front, as a range of `own`.
    pivots: Vec<Range<usize>>,
    /// Range in `places` of each front.
    below: Vec<Range<usize>>,
    /// Index in the vectors of its unit of each row without a pivot, front by front.
    places: Vec<u32>,
    /// Entries of each unit that it does not share, as a range of `own`.
    inner: Vec<Range<usize>>,
    /// Positions (in the elimination order) of these entries.
    own: Vec<u32>,
    /// Entries of each unit that it shares, as a range of `up`.
    shared: Vec<Range<usize>>,
    /// The index of each shared entry in the vectors of the parent.
    up: Vec<u32>,
    /// Work of a solve with one vector: nanoseconds on one thread, about.
    work: usize,
    is_consistent: bool,
}

impl Units {
    /// Units for fronts whose pivots and other rows have the positions that `rows` returns. `missing` returns those of the rows of a
    /// unit, given by its first front, that get no pivot.
    pub(in super::super) fn new<'r>(
        tree: &Tree,
        rows: impl Fn(usize) -> [&'r [u32]; 2],
        missing: impl Fn(usize) -> &'r [u32],
    ) -> Units {
        let fronts = tree.units();
        let count = fronts.len();
        let mut unit_of = vec![NONE; tree.fronts.len()];
        (0..).zip(&fronts).for_each(|(at, unit)| unit_of[unit.clone()].fill(at));
        let (mut parents, mut children) = (vec![vec![]; count], vec![vec![]; count]);
        for (at, unit) in (0..).zip(&fronts) {
            let above = tree.fronts[unit.clone()].iter().filter_map(|front| front.parent);
            // the fronts of a unit have one parent outside of it, or none
            if let Some(parent) = above.map(|parent| unit_of[parent as usize]).find(|&parent| parent != at) {
                parents[at as usize].push(parent);
                children[parent as usize].push(at);
            }
        }
        let mut units = Units {
            fronts,
            parents,
            children,
            pivots: Vec::with_capacity(tree.fronts.len()),
            below: Vec::with_capacity(tree.fronts.len()),
            places: vec![],
            inner: Vec::with_capacity(count),
            own: Vec::with_capacity(tree.order.len()),
            shared: Vec::with_capacity(count),
            up: vec![],
            work: 0,
            is_consistent: true,
        };
        // index of each position in the vectors of the current unit, and the positions of all shared entries
        let (mut local, mut passed) = (vec![NONE; tree.order.len()], vec![]);
        for unit in 0..count {
            units.add(unit, &rows, &missing, [&mut local, &mut passed]);
        }
        units
    }

    /// Adds the lists of a unit.
    fn add<'r>(
        &mut self,
        unit: usize,
        rows: &impl Fn(usize) -> [&'r [u32]; 2],
        missing: &impl Fn(usize) -> &'r [u32],
        [local, passed]: [&mut Vec<u32>; 2],
    ) {
        let fronts = self.fronts[unit].clone();
        let (own, shared) = (self.own.len(), passed.len());
        for front in fronts.clone() {
            let [pivots, _] = rows(front);
            self.pivots.push(self.own.len()..self.own.len() + pivots.len());
            for &row in pivots {
                local[row as usize] = (self.own.len() - own) as u32;
                self.own.push(row);
            }
        }
        for &row in missing(fronts.start) {
            local[row as usize] = (self.own.len() - own) as u32;
            self.own.push(row);
        }
        self.inner.push(own..self.own.len());
        for front in fronts {
            let below = self.places.len();
            for &row in rows(front)[1] {
                let place = &mut local[row as usize];
                if *place == NONE {
                    *place = (self.own.len() - own + passed.len() - shared) as u32;
                    passed.push(row);
                }
                self.places.push(*place);
            }
            let [pivots, others] = rows(front).map(<[u32]>::len);
            self.work += pivots * (OF_PIVOT + pivots / 2 + others);
            self.below.push(below..self.places.len());
        }
        for &child in &self.children[unit] {
            for entry in self.shared[child as usize].clone() {
                let place = local[passed[entry] as usize];
                self.is_consistent &= place != NONE;
                self.up[entry] = place;
            }
        }
        self.is_consistent &= passed.len() == shared || !self.parents[unit].is_empty();
        self.shared.push(shared..passed.len());
        self.up.resize(passed.len(), NONE);
        for &row in self.own[own..].iter().chain(&passed[shared..]) {
            local[row as usize] = NONE;
        }
    }

    /// Returns whether each parent has the rows that its children share with it.
    pub(in super::super) fn is_consistent(&self) -> bool {
        self.is_consistent
    }

    /// Returns whether vectors for these units are vectors for other units of the same tree.
    pub(in super::super) fn is_like(&self, other: &Units) -> bool {
        self.inner == other.inner && self.shared == other.shared && self.pivots == other.pivots
    }

    /// Number of entries of the vectors of all units.
    pub(in super::super) fn entries(&self) -> usize {
        self.own.len() + self.up.len()
    }

    /// Number of entries of the vectors of a unit.
    fn width(&self, unit: usize) -> usize {
        self.inner[unit].len() + self.shared[unit].len()
    }

    /// Pivots of a front as entries of its unit, which begins at `start` in `own`.
    fn within(&self, front: usize, start: usize) -> Range<usize> {
        self.pivots[front].start - start..self.pivots[front].end - start
    }

    /// Entries of a unit for rows without a pivot.
    fn missing(&self, unit: usize) -> Range<usize> {
        let last = self.fronts[unit].end - 1;
        self.pivots[last].end - self.inner[unit].start..self.inner[unit].len()
    }
}

/// Workspace of solves.
#[derive(Debug, Default)]
pub(in super::super) struct Workspace<T> {
    /// The vectors of each unit, unit by unit.
    numbers: Vec<T>,
    /// Workspaces of threads that are not in use.
    idle: Mutex<Vec<[Vec<T>; 2]>>,
}

/// Several vectors in a solve.
pub(in super::super) struct Solve<'a, T> {
    vectors: usize,
    /// Vectors of each unit, one after the other.
    parts: Vec<Mutex<&'a mut [T]>>,
    idle: &'a Mutex<Vec<[Vec<T>; 2]>>,
}

impl<'a, T: Real> Solve<'a, T> {
    /// Begins a solve with `vectors` vectors.
    pub(in super::super) fn new(units: &Units, vectors: usize, workspace: &'a mut Workspace<T>) -> Self {
        let Workspace { numbers, idle } = workspace;
        numbers.resize(vectors * units.entries(), T::zero());
        let mut rest = &mut numbers[..];
        let part = |unit| rest.split_off_mut(..vectors * units.width(unit)).map(Mutex::new);
        Solve { vectors, parts: (0..units.fronts.len()).filter_map(part).collect(), idle }
    }

    /// Solves with the lower factor. `load` returns the entry of a vector at a position. `forward` computes `x ← L₁₁⁻¹ x` and
    /// `taken ← L₂₁ x` for the pivots of a front.
    pub(in super::super) fn up(
        &self,
        units: &Units,
        load: impl Fn(usize, u32) -> T + Sync,
        forward: impl Fn(usize, &mut [T], &mut Vec<T>) + Sync,
    ) {
        self.in_units(units, &units.parents, 0..units.fronts.len(), |unit| {
            let (mut x, width, inner) =
                (lock(&self.parts[unit]), units.width(unit), units.inner[unit].clone());
            let mut all: Vec<&mut [T]> = x.chunks_exact_mut(width.max(1)).collect();
            for (vector, x) in all.iter_mut().enumerate() {
                let (own, shared) = x.split_at_mut(inner.len());
                own.iter_mut().zip(&units.own[inner.clone()]).for_each(|(x, &row)| *x = load(vector, row));
                shared.fill(T::zero());
            }
            for child in units.children[unit].iter().map(|&child| child as usize) {
                let (passed, own) = (lock(&self.parts[child]), units.inner[child].len());
                let places = &units.up[units.shared[child].clone()];
                for (x, passed) in all.iter_mut().zip(passed.chunks_exact(units.width(child).max(1))) {
                    places
                        .iter()
                        .zip(&passed[own..])
                        .for_each(|(&place, &passed)| x[place as usize] += passed);
                }
            }
            self.in_scratch(|[own, others]| {
                for front in units.fronts[unit].clone() {
                    let pivots = units.within(front, inner.start);
                    let places = &units.places[units.below[front].clone()];
                    own.clear();
                    all.iter().for_each(|x| own.extend_from_slice(&x[pivots.clone()]));
                    others.clear();
                    others.resize(self.vectors * places.len(), T::zero());
                    forward(front, own, others);
                    for (vector, x) in all.iter_mut().enumerate() {
                        x[pivots.clone()].copy_from_slice(&own[vector * pivots.len()..][..pivots.len()]);
                        let taken = &others[vector * places.len()..];
                        places.iter().zip(taken).for_each(|(&place, &taken)| x[place as usize] -= taken);
                    }
                }
            });
        });
    }

    /// Solves with the upper factor, after [`Solve::up`] with the same or [like](Units::is_like) units. `backward` computes
    /// `x ← U₁₁⁻¹ (x − U₁₂ others)` for the pivots of a front.
    pub(in super::super) fn down(
        &self,
        units: &Units,
        backward: impl Fn(usize, &mut [T], &mut Vec<T>) + Sync,
    ) {
        self.in_units(units, &units.children, (0..units.fronts.len()).rev(), |unit| {
            let (mut x, width, inner) =
                (lock(&self.parts[unit]), units.width(unit), units.inner[unit].clone());
            let mut all: Vec<&mut [T]> = x.chunks_exact_mut(width.max(1)).collect();
            self.in_scratch(|[own, others]| {
                for front in units.fronts[unit].clone().rev() {
                    let pivots = units.within(front, inner.start);
                    let places = &units.places[units.below[front].clone()];
                    own.clear();
                    others.clear();
                    for x in &all {
                        own.extend_from_slice(&x[pivots.clone()]);
                        others.extend(places.iter().map(|&place| x[place as usize]));
                    }
                    backward(front, own, others);
                    for (vector, x) in all.iter_mut().enumerate() {
                        x[pivots.clone()].copy_from_slice(&own[vector * pivots.len()..][..pivots.len()]);
                    }
                }
            });
            for child in units.children[unit].iter().map(|&child| child as usize) {
                let (mut to, own) = (lock(&self.parts[child]), units.inner[child].len());
                let places = &units.up[units.shared[child].clone()];
                for (x, to) in all.iter().zip(to.chunks_exact_mut(units.width(child).max(1))) {
                    to[own..].iter_mut().zip(places).for_each(|(to, &place)| *to = x[place as usize]);
                }
            }
        });
    }

    /// Calls `visit(vector, position, entry)` for each entry.
    pub(in super::super) fn each(&self, units: &Units, mut visit: impl FnMut(usize, u32, &mut T)) {
        for (unit, inner) in units.inner.iter().enumerate() {
            let mut x = lock(&self.parts[unit]);
            for (vector, x) in x.chunks_exact_mut(units.width(unit).max(1)).enumerate() {
                units.own[inner.clone()].iter().zip(x).for_each(|(&row, x)| visit(vector, row, x));
            }
        }
    }

    /// Calls `visit` for each entry of a row without a pivot.
    pub(in super::super) fn each_missing(&self, units: &Units, mut visit: impl FnMut(&mut T)) {
        for unit in 0..units.fronts.len() {
            let mut x = lock(&self.parts[unit]);
            let missing = units.missing(unit);
            if !missing.is_empty() {
                x.chunks_exact_mut(units.width(unit))
                    .for_each(|x| x[missing.clone()].iter_mut().for_each(&mut visit));
            }
        }
    }

    /// Calls `work` with each unit, before those that `needed_by` lists for it: on all threads, or, if there is little
    /// work, in the order of `serial`.
    fn in_units(
        &self,
        units: &Units,
        needed_by: &[Vec<u32>],
        serial: impl Iterator<Item = usize>,
        work: impl Fn(usize) + Sync,
    ) {
        if self.vectors * units.work < SHARED {
            return serial.for_each(work);
        }
        // cannot fail, because `work` does not
        let _ = in_order(needed_by, |unit| {
            work(unit);
            Ok(())
        });
    }

    fn in_scratch(&self, work: impl FnOnce(&mut [Vec<T>; 2])) {
        let mut scratch = lock(self.idle).pop().unwrap_or_default();
        work(&mut scratch);
        lock(self.idle).push(scratch);
    }
}

fn lock<X>(of: &Mutex<X>) -> MutexGuard<'_, X> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
