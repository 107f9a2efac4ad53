//! Two triangular solves as a preconditioner, with rows reordered by level (level scheduling).

use super::check_square;
use super::several::Pair;
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::formats::derived::Derivation;
use crate::host::{HostSpace, HostVector};
use crate::memory::check_free_memory;
use crate::numbers::Real;
use crate::permutation::Permutation;
use crate::saved::{InconsistentData, saved};
use krysp_kernels::cpu::preconditioners::levels::{Scratch, Sliced, Slices, solve_both};
use krysp_kernels::cpu::preconditioners::triangular::{Triangle, levels};
use krysp_kernels::cpu::run::threads::find_row;
use krysp_kernels::index::Columns;
use krysp_solvers::{Space, with_workspace};
use std::sync::Mutex;

/// Maximum number of right-hand sides solved together. A guess: with this many, reading the triangles takes
/// little of the time for each.
const TOGETHER: usize = 16;

/// A matrix whose rows are reordered by level.
pub(super) struct Scheduled<T: Real> {
    /// First row of each level, then the total number of rows.
    pub(super) levels: Vec<usize>,
    pub(super) permutation: Permutation,
    pub(super) csr: Csr<T>,
    pub(super) from: Derivation,
}

impl<T: Real> Scheduled<T> {
    /// Reorders a matrix by level. Coupled rows keep their relative order, so entries below the diagonal stay
    /// below it.
    pub(super) fn new(what: &'static str, a: &Csr<T>) -> Result<Scheduled<T>> {
        check_square(what, a)?;
        let rows = a.rows();
        if rows >= Columns::LIMIT {
            let why = format!("{rows} rows exceed the limit of 2³¹ for SIMD gathers");
            return Err(Error::Unsuitable { format: what, why });
        }
        let (levels, places) = levels(rows, |row| a.row_columns(row));
        let mut old_of_new = vec![0; rows];
        places.iter().zip(0..).for_each(|(&place, row)| old_of_new[place as usize] = row);
        let permutation = Permutation::from_old_of_new(old_of_new)?;
        let (csr, from) = Derivation::reordered(a, permutation.new_of_old(), &HostSpace::new(rows))?;
        Ok(Scheduled { levels, permutation, csr, from })
    }
}

/// `z = U⁻¹ (L⁻¹ r)`
#[derive(Debug)]
pub(super) struct Solves<T: Real> {
    /// Space of the preconditioner; the triangles have a separate space, in level order.
    pub(super) space: HostSpace<T>,
    pub(super) levels: Vec<usize>,
    permutation: Permutation,
    pub(super) lower: Csr<T>,
    pub(super) upper: Csr<T>,
    slices: Slices,
    /// The arrays that solves read: `lower` and `upper` in slices.
    sliced: [Sliced<T>; 2],
    scratch: Mutex<Scratch<T>>,
}

// slices are not saved; they are recomputed when loading
saved!(impl[T: Real] Solves<T> as |this| {
    space: HostSpace<T> = &this.space,
    levels: Vec<usize> = &this.levels,
    permutation: Permutation = &this.permutation,
    lower: Csr<T> = &this.lower,
    upper: Csr<T> = &this.upper,
} => {
    let n = space.len();
    let ends = [levels.first().copied(), levels.last().copied()];
    let sizes = [permutation.len(), lower.rows(), upper.rows()];
    if ends != [Some(0), Some(n)] || !levels.is_sorted() || sizes != [n; 3] || n >= Columns::LIMIT {
        return Err(InconsistentData);
    }
    let fits = |triangle, csr| has_diagonal(triangle, csr) && depends_on_other_levels(triangle, csr, &levels);
    if !(fits(Triangle::Lower, &lower) && fits(Triangle::Upper, &upper)) {
        return Err(InconsistentData);
    }
    let mut solves = Solves::new(&space, (levels, permutation), (lower, upper));
    solves.fill();
    Ok(solves)
});

/// Returns whether a matrix is a square triangle with a full diagonal and strictly ascending columns.
pub(super) fn has_diagonal<T: Real>(triangle: Triangle, csr: &Csr<T>) -> bool {
    let wrong = |row: usize| {
        let columns = csr.row_columns(row);
        let end = match triangle {
            Triangle::Lower => columns.last(),
            Triangle::Upper => columns.first(),
        };
        end != Some(&(row as u32)) || !columns.is_sorted_by(|one, next| one < next)
    };
    csr.rows() == csr.cols() && find_row(csr.rows(), 2, &wrong).is_none()
}

/// Returns whether each row depends only on rows of other levels. It suffices to check the nearest dependency of each
/// row.
fn depends_on_other_levels<T: Real>(triangle: Triangle, csr: &Csr<T>, levels: &[usize]) -> bool {
    let level = |row: u32| levels.partition_point(|&first| first <= row as usize);
    let nearest = |row: usize| match triangle {
        Triangle::Lower => csr.row_columns(row).iter().nth_back(1),
        Triangle::Upper => csr.row_columns(row).get(1),
    };
    let within = |row: usize| nearest(row).is_some_and(|&other| level(other) == level(row as u32));
    find_row(csr.rows(), 2, &within).is_none()
}

impl<T: Real> Solves<T> {
    pub(super) fn new(
        space: &HostSpace<T>,
        (levels, permutation): (Vec<usize>, Permutation),
        (lower, upper): (Csr<T>, Csr<T>),
    ) -> Solves<T> {
        let slices = Slices::new(&levels, |row| lower.row_columns(row).len(), permutation.new_of_old());
        let (below, above) = rayon::join(
            || Sliced::new(&slices, Triangle::Lower, lower.arrays()),
            || Sliced::new(&slices, Triangle::Upper, upper.arrays()),
        );
        let (sliced, scratch) = ([below, above], Mutex::new(Scratch::new(&slices)));
        Solves { space: space.clone(), levels, permutation, lower, upper, slices, sliced, scratch }
    }

    /// Copies the current values of the triangles into the slices.
    pub(super) fn fill(&mut self) {
        let Solves { lower, upper, slices, sliced: [below, above], .. } = self;
        rayon::join(|| below.fill(slices, lower.arrays()), || above.fill(slices, upper.arrays()));
    }

    pub(super) fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.solve(&mut [(r.as_slice(), z.as_mut_slice())])
    }

    /// Applies the preconditioner to several vectors, [`TOGETHER`] at a time.
    pub(super) fn apply_many(&self, pairs: Vec<Pair<'_, T>>) -> krysp_solvers::Result<()> {
        let mut pairs: Vec<(&[T], &mut [T])> =
            pairs.into_iter().map(|(r, z)| (r.as_slice(), z.as_mut_slice())).collect();
        pairs.chunks_mut(TOGETHER).try_for_each(|pairs| self.solve(pairs))
    }

    fn solve(&self, pairs: &mut [(&[T], &mut [T])]) -> krysp_solvers::Result<()> {
        with_workspace(
            &self.scratch,
            || Ok(Scratch::new(&self.slices)),
            |scratch| {
                let more = scratch.growth(&self.slices, pairs.len());
                check_free_memory("the workspace of triangular solves", (more * size_of::<T>()) as u128)?;
                solve_both(&self.slices, &self.sliced, scratch, pairs);
                Ok(())
            },
        )
    }

    /// A triangle in the order of the preconditioner's space.
    pub(super) fn in_space(&self, triangle: &Csr<T>) -> Result<Csr<T>> {
        Ok(Derivation::reordered(triangle, self.permutation.old_of_new(), &self.space)?.0)
    }

    /// The row of the matrix that corresponds to a row of the triangles.
    pub(super) fn row(&self, place: usize) -> usize {
        self.permutation.old_of_new()[place] as usize
    }

    pub(super) fn bytes(&self) -> usize {
        let triangles = self.sliced.iter().map(Sliced::bytes).sum::<usize>();
        triangles + 2 * size_of_val(self.permutation.old_of_new())
    }
}

/// An incomplete factorization, whose field `solves` applies it.
macro_rules! applied_by_solves {
    ($factorization:ident) => {
        impl<T: Real> $factorization<T> {
            /// Number of levels of the triangular solves; threads synchronize at most twice per level.
            pub fn levels(&self) -> usize {
                self.solves.levels.len() - 1
            }
        }

        impl<T: Real> LinearOperator for $factorization<T> {
            type Vector = $crate::host::HostVector<T>;

            fn domain(&self) -> &$crate::host::HostSpace<T> {
                &self.solves.space
            }

            fn apply(
                &self,
                x: &$crate::host::HostVector<T>,
                y: &mut $crate::host::HostVector<T>,
            ) -> krysp_solvers::Result<()> {
                krysp_solvers::check_spaces(self, x, y)?;
                self.solves.apply(x, y)
            }

            fn apply_many(
                &self,
                x: &krysp_solvers::MultiVector<$crate::host::HostVector<T>>,
                y: &mut krysp_solvers::MultiVector<$crate::host::HostVector<T>>,
            ) -> krysp_solvers::Result<()> {
                self.solves.apply_many($crate::preconditioners::several::checked_pairs(self, x, y)?)
            }

            fn bytes(&self) -> usize {
                self.solves.bytes()
            }
        }
    };
}
pub(super) use applied_by_solves;

#[cfg(test)]
mod tests {
    use super::*;
    use krysp_solvers::LinearOperator;

    #[test]
    fn a_workspace_that_is_large_enough_needs_no_further_memory() {
        let a = Csr::from_triplets(4, 4, &[0, 1, 2, 3].map(|i| (i, i, 2.0))).unwrap();
        let Scheduled { levels, permutation, .. } = Scheduled::new("a test", &a).unwrap();
        let mut solves = Solves::new(a.domain(), (levels, permutation), (a.clone(), a.clone()));
        solves.fill();
        let growth = |vectors| solves.scratch.lock().unwrap().growth(&solves.slices, vectors);
        assert!(growth(3) > 0);
        let r = HostVector::from_slice(&[4.0; 4]);
        let mut z = [(); 3].map(|()| r.clone());
        solves.apply_many(z.iter_mut().map(|z| (&r, z)).collect()).unwrap();
        assert!(z.iter().all(|z| z.as_slice() == [1.0; 4]));
        assert!(growth(3) == 0 && growth(4) > 0);
    }
}
