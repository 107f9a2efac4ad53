//! Solves with the factor, unit by unit. A unit (`tree::Units`) is a task (subtrees of the assembly tree that one
//! thread eliminates) or a single front above the tasks.
//!
//! ```text
//! for each unit, children first:  b ← b − (what its children pass);  y = L⁻¹ b in its rows
//!                                 pass (L y + what its children pass) in the rows that it shares with units above
//! for each unit, parents first:   x = L⁻ᵀ (y − Lᵀ x of the rows above);  hand x to its children
//! ```
//!
//! The order of the sums is fixed, so results are bitwise the same for every number of threads and of vectors.

use super::super::super::several::Pair;
use super::super::tree::{Front, NONE, Units};
use super::Cholesky;
use crate::numbers::Real;
use krysp_kernels::cpu::preconditioners::frontal;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Workspace of a solve.
#[derive(Debug, Default)]
pub(super) struct Workspace<T> {
    /// For each unit, the entries of all vectors in its columns, one vector after the other.
    x: Vec<T>,
    /// For each unit, the entries of all vectors in the rows that it shares with units above, one vector after the
    /// other.
    outer: Vec<T>,
    /// Workspaces of threads that are not in use.
    idle: Mutex<Vec<Scratch<T>>>,
}

/// Workspace of one thread.
#[derive(Debug, Default)]
struct Scratch<T> {
    /// Index of a row among those that the current unit shares with units above.
    local: Vec<u32>,
    own: Vec<T>,
    others: Vec<T>,
}

/// A unit in a solve.
struct Part<'a, T> {
    columns: Range<usize>,
    /// Positions of the rows that it shares with units above.
    rows: &'a [u32],
    x: &'a Mutex<&'a mut [T]>,
    outer: &'a Mutex<&'a mut [T]>,
}

impl<T: Real> Cholesky<T> {
    pub(super) fn units(&self) -> &Units {
        self.units.get_or_init(|| Units::new(&self.tree))
    }

    /// Solves for several right-hand sides, reading each front once for all of them.
    pub(super) fn solve(&self, pairs: &mut [Pair<'_, T>], workspace: &mut Workspace<T>) {
        let (tree, vectors) = (&self.tree, pairs.len());
        let units = self.units();
        let Workspace { x, outer, idle } = workspace;
        x.resize(vectors * tree.order.len(), T::zero());
        outer.resize(vectors * units.rows.len(), T::zero());
        let columns = |unit: &Range<usize>| {
            tree.fronts[unit.start].columns.start..tree.fronts[unit.end - 1].columns.end
        };
        let xs = split(x, units.fronts.iter().map(|unit| vectors * columns(unit).len()));
        let outers = split(outer, units.outer.iter().map(|rows| vectors * rows.len()));
        let part = |unit: usize| Part {
            columns: columns(&units.fronts[unit]),
            rows: units.rows(unit),
            x: &xs[unit],
            outer: &outers[unit],
        };
        let part = &part;
        let in_scratch = |unit: usize, work: &dyn Fn(&mut Scratch<T>)| {
            let mut scratch = lock(idle).pop().unwrap_or_default();
            scratch.local.resize(tree.order.len(), NONE);
            for (&row, at) in units.rows(unit).iter().zip(0..) {
                scratch.local[row as usize] = at;
            }
            work(&mut scratch);
            lock(idle).push(scratch);
        };
        let rhs: Vec<&[T]> = pairs.iter().map(|(r, _)| r.as_slice()).collect();
        units.upwards(|unit| {
            in_scratch(unit, &|scratch| {
                let to = part(unit);
                let mut x = lock(to.x);
                for (x, r) in x.chunks_exact_mut(to.columns.len()).zip(&rhs) {
                    let variables = &tree.order[to.columns.clone()];
                    x.iter_mut().zip(variables).for_each(|(x, &variable)| *x = r[variable as usize]);
                }
                lock(to.outer).fill(T::zero());
                drop(x);
                for &child in units.children(unit) {
                    to.take(&part(child as usize), vectors, &scratch.local);
                }
                let fronts = &tree.fronts[units.fronts[unit].clone()];
                fronts.iter().for_each(|front| self.forward(front, &to, vectors, scratch));
            });
        });
        units.downwards(|unit| {
            in_scratch(unit, &|scratch| {
                let from = part(unit);
                let fronts = &tree.fronts[units.fronts[unit].clone()];
                fronts.iter().rev().for_each(|front| self.backward(front, &from, vectors, scratch));
                for &child in units.children(unit) {
                    from.hand(&part(child as usize), vectors, &scratch.local);
                }
            });
        });
        for (at, unit) in units.fronts.iter().enumerate() {
            let (columns, x) = (columns(unit), lock(&xs[at]));
            for ((_, z), x) in pairs.iter_mut().zip(x.chunks_exact(columns.len())) {
                let (z, variables) = (z.as_mut_slice(), &tree.order[columns.clone()]);
                variables.iter().zip(x).for_each(|(&variable, &x)| z[variable as usize] = x);
            }
        }
    }

    fn forward(&self, front: &Front, unit: &Part<'_, T>, vectors: usize, scratch: &mut Scratch<T>) {
        let Scratch { local, own, others } = scratch;
        let (mut x, mut outer) = (lock(unit.x), lock(unit.outer));
        let (len, columns) = (unit.columns.len(), unit.within(front));
        own.clear();
        x.chunks_exact(len).for_each(|x| own.extend_from_slice(&x[columns.clone()]));
        others.clear();
        others.resize(vectors * front.below(), T::zero());
        frontal::forward(&self.numbers[front.numbers.clone()], front.height(), vectors, own, others);
        let (inner, shared) = unit.divide(self.tree.rows(front));
        for v in 0..vectors {
            let x = &mut x[v * len..][..len];
            x[columns.clone()].copy_from_slice(&own[v * columns.len()..][..columns.len()]);
            let (others, outer) = (&others[v * front.below()..], &mut outer[v * unit.rows.len()..]);
            for (&row, &taken) in inner.iter().zip(others) {
                x[row as usize - unit.columns.start] -= taken;
            }
            for (&row, &taken) in shared.iter().zip(&others[inner.len()..]) {
                outer[local[row as usize] as usize] += taken;
            }
        }
    }

    fn backward(&self, front: &Front, unit: &Part<'_, T>, vectors: usize, scratch: &mut Scratch<T>) {
        let Scratch { local, own, others } = scratch;
        let (mut x, outer) = (lock(unit.x), lock(unit.outer));
        let (len, columns) = (unit.columns.len(), unit.within(front));
        let (inner, shared) = unit.divide(self.tree.rows(front));
        own.clear();
        others.clear();
        for v in 0..vectors {
            let (x, outer) = (&x[v * len..][..len], &outer[v * unit.rows.len()..]);
            own.extend_from_slice(&x[columns.clone()]);
            others.extend(inner.iter().map(|&row| x[row as usize - unit.columns.start]));
            others.extend(shared.iter().map(|&row| outer[local[row as usize] as usize]));
        }
        frontal::backward(&self.numbers[front.numbers.clone()], front.height(), vectors, own, others);
        for (x, own) in x.chunks_exact_mut(len).zip(own.chunks_exact(columns.len())) {
            x[columns.clone()].copy_from_slice(own);
        }
    }
}

impl<T: Real> Part<'_, T> {
    /// Columns of a front, counted from the first one of the unit.
    fn within(&self, front: &Front) -> Range<usize> {
        front.columns.start - self.columns.start..front.columns.end - self.columns.start
    }

    /// Divides sorted rows into those of this unit and those of units above.
    fn divide<'r>(&self, rows: &'r [u32]) -> (&'r [u32], &'r [u32]) {
        rows.split_at(rows.partition_point(|&row| (row as usize) < self.columns.end))
    }

    /// Subtracts what a child passes from the right-hand sides, and passes the rest on.
    fn take(&self, child: &Part<'_, T>, vectors: usize, local: &[u32]) {
        let (mut x, mut outer, passed) = (lock(self.x), lock(self.outer), lock(child.outer));
        let (inner, shared) = self.divide(child.rows);
        for v in 0..vectors {
            let (x, outer) = (&mut x[v * self.columns.len()..], &mut outer[v * self.rows.len()..]);
            let passed = &passed[v * child.rows.len()..];
            for (&row, &taken) in inner.iter().zip(passed) {
                x[row as usize - self.columns.start] -= taken;
            }
            for (&row, &taken) in shared.iter().zip(&passed[inner.len()..]) {
                outer[local[row as usize] as usize] += taken;
            }
        }
    }

    /// Hands the solution in its rows to a child.
    fn hand(&self, child: &Part<'_, T>, vectors: usize, local: &[u32]) {
        let (x, outer, mut to) = (lock(self.x), lock(self.outer), lock(child.outer));
        let (inner, shared) = self.divide(child.rows);
        for v in 0..vectors {
            let (x, outer) = (&x[v * self.columns.len()..], &outer[v * self.rows.len()..]);
            let (own, others) = to[v * child.rows.len()..].split_at_mut(inner.len());
            own.iter_mut().zip(inner).for_each(|(to, &row)| *to = x[row as usize - self.columns.start]);
            others.iter_mut().zip(shared).for_each(|(to, &row)| *to = outer[local[row as usize] as usize]);
        }
    }
}

/// Splits an array into parts of these sizes, each for one thread at a time.
fn split<T>(mut all: &mut [T], sizes: impl Iterator<Item = usize>) -> Vec<Mutex<&mut [T]>> {
    let part = |size| all.split_off_mut(..size).map(Mutex::new);
    sizes.filter_map(part).collect()
}

fn lock<X>(of: &Mutex<X>) -> std::sync::MutexGuard<'_, X> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostVector;
    use crate::preconditioners::direct::testing::backward_error;
    use crate::testing::matrices;
    use krysp_solvers::{LinearOperator, MultiVector, Space};

    /// Factors and solves have the same bits for every number of threads and of vectors. The tree has units
    /// above its tasks.
    #[test]
    fn numbers_of_threads_and_vectors_change_no_bits() {
        let a = matrices::elasticity(7).csr::<f64>().unwrap();
        let rhs = |j: usize| (0..a.rows()).map(|i| ((i * (j + 3)) % 17) as f64 - 8.0).collect::<Vec<f64>>();
        let solve = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let cholesky = Cholesky::new(&a).unwrap();
                let space = cholesky.domain().clone();
                let mut r = MultiVector::<HostVector<f64>>::zeros(&space, 3).unwrap();
                r.columns_mut().iter_mut().enumerate().for_each(|(j, r)| space.load(&rhs(j), r).unwrap());
                let mut z = MultiVector::zeros(&space, 3).unwrap();
                cholesky.apply_many(&r, &mut z).unwrap();
                let units = cholesky.units.get().unwrap();
                assert!(units.fronts.iter().any(|unit| unit.len() == 1) && units.fronts.len() > 8);
                let mut alone = space.zeros().unwrap();
                cholesky.apply(&r.columns()[1], &mut alone).unwrap();
                assert_eq!(alone.as_slice(), z.columns()[1].as_slice());
                z.columns().iter().map(|z| z.as_slice().to_vec()).collect::<Vec<_>>()
            })
        };
        let alone = solve(1);
        assert!(backward_error(&a, &Cholesky::new(&a).unwrap(), &rhs(0)) < 1e-15);
        for threads in [2, 3, 7] {
            assert_eq!(solve(threads), alone, "{threads} threads");
        }
    }
}
