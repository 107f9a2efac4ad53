//! Elimination order of the columns of an unsymmetric matrix, and treatment of linearly dependent columns.

use super::fill;
#[cfg(feature = "cuda")]
use super::scale::largest;
use super::tree::NONE;
use crate::error::Result;
use crate::formats::{Csr, Rows};
use crate::numbers::Real;
use crate::ordering::minimum_degree::{Neighbours, is_symmetric};
use krysp_solvers::Element;

/// A pattern counts as symmetric if at least this fraction of its off-diagonal entries have a mirrored entry
/// (guess).
const MIRRORED: f64 = 0.5;

/// A diagonal counts as weak if more than the fraction `WEAK` of its entries are smaller than `SMALL` times
/// the largest magnitude of their rows (guesses).
const WEAK: f64 = 0.02;
const SMALL: f64 = 1e-3;

/// Elimination order of the columns.
#[derive(Debug)]
pub(super) struct Order {
    /// Column that is eliminated in each step.
    pub(super) column_of: Vec<u32>,
    /// Preferred pivot row of each column; empty if there are no preferences.
    pub(super) preferred: Vec<u32>,
    /// Number of entries of the factors beyond which the factorization by columns stops.
    pub(super) most_entries: usize,
}

/// The pattern of `B + Bᵀ`, where row `j` of `B` is the row of `A` that is matched to column `j`. With
/// `blocks`, only entries in diagonal blocks.
pub(super) struct Matched<'a, T: Real> {
    pub(super) matrices: [Rows<'a, T>; 2],
    pub(super) row_of: &'a [u32],
    pub(super) column_of: &'a [u32],
    /// Diagonal block of each column.
    pub(super) blocks: Option<&'a [u32]>,
}

impl<T: Real> Neighbours for Matched<'_, T> {
    fn of(&self, variable: u32) -> impl Iterator<Item = u32> {
        let [matrix, columns] = self.matrices;
        let left = matrix.columns(self.row_of[variable as usize] as usize).iter().copied();
        let above = columns.columns(variable as usize).iter().map(|&row| self.column_of[row as usize]);
        let same = move |&other: &u32| {
            self.blocks.is_none_or(|block| block[other as usize] == block[variable as usize])
        };
        left.chain(above).filter(same)
    }
}

/// Treatment of a column that is linearly dependent on earlier columns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pivoting {
    /// The factorization returns an error.
    Regular,
    /// The unknown of the column is set to zero.
    Tolerant,
}

impl Pivoting {
    /// A pivot counts as zero if its magnitude is at most this fraction of the largest magnitude that its
    /// column has had during the elimination.
    pub(super) fn rounding<T: Real>(self) -> T {
        match self {
            Pivoting::Regular => T::from_f64(REGULAR * <T as Element>::EPSILON),
            Pivoting::Tolerant => T::from_f64(<T as Element>::EPSILON.powf(TOLERANT)),
        }
    }
}

/// `Pivoting::rounding` of `Regular`, in machine epsilons. Singular Neumann problems with 150 to 200 unknowns,
/// eliminated in random orders, end with pivots of 4 to 27 epsilons instead of zero. A guess above that.
const REGULAR: f64 = 64.0;

/// `Pivoting::rounding` of `Tolerant` is `EPSILON^TOLERANT`, 3e-13 in `f64`. Smaller pivots would make the solution
/// so large that rounding errors dominate it. Guess.
const TOLERANT: f64 = 0.8;

/// Symmetry of a pattern, and strength of a diagonal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Fraction of off-diagonal entries that have a mirrored entry.
    mirrored: f64,
    /// Fraction of diagonal entries that are small.
    weak: f64,
}

impl Shape {
    /// Analyses a square matrix, given its transpose and the largest magnitude of each row.
    pub(super) fn of<T: Real>(a: &Csr<T>, columns: &Csr<T>, largest: &[T]) -> Shape {
        let mirrored = if is_symmetric([a, columns]) { 1.0 } else { mirrored(a, columns) };
        Shape { mirrored, weak: weak(a, largest) }
    }

    /// Returns whether every off-diagonal entry has a mirrored entry.
    pub(super) fn is_mirrored(self) -> bool {
        self.mirrored == 1.0
    }

    pub(super) fn is_symmetric(self) -> bool {
        self.mirrored >= MIRRORED
    }

    pub(super) fn is_weak(self) -> bool {
        self.weak > WEAK
    }
}

/// Fraction of diagonal entries that are small or zero.
fn weak<T: Real>(a: &Csr<T>, largest: &[T]) -> f64 {
    let is_small = |(row, (columns, values)): (usize, (&[u32], &[T]))| {
        let at = columns.iter().position(|&column| column as usize == row);
        let diagonal = at.map_or(T::zero(), |at| values[at].abs());
        diagonal.is_zero() || diagonal < largest[row] * T::from_f64(SMALL)
    };
    let weak = Rows::of(a).iter().enumerate().filter(|&row| is_small(row)).count();
    weak as f64 / a.rows().max(1) as f64
}

/// Returns whether so many diagonal entries are small or zero that a matching is worth its time.
#[cfg(feature = "cuda")]
pub(super) fn has_weak_diagonal<T: Real>(a: &Csr<T>) -> bool {
    weak(a, &largest(a)) > WEAK
}

/// Fraction of off-diagonal entries that have a mirrored entry.
fn mirrored<T: Real>(a: &Csr<T>, columns: &Csr<T>) -> f64 {
    let (mut mirrored, mut diagonal) = (0, 0);
    // last row with an entry in each column
    let mut marked = vec![NONE; a.cols()];
    for (row, ((left, _), (right, _))) in (0u32..).zip(Rows::of(a).iter().zip(Rows::of(columns).iter())) {
        left.iter().for_each(|&column| marked[column as usize] = row);
        mirrored += right.iter().filter(|&&column| marked[column as usize] == row).count();
        diagonal += usize::from(marked[row as usize] == row);
    }
    let (mirrored, entries) = (mirrored - diagonal, a.nnz() - diagonal);
    if entries == 0 { 1.0 } else { mirrored as f64 / entries as f64 }
}

/// Computes a fill-reducing ordering for the pattern of `A + Aᵀ` that keeps matched rows adjacent. If row
/// `rows[j]` is matched to column `j`, the pair `{j, rows[j]}` has a pivot block with large off-diagonal
/// entries (Duff and Pralet 2005).
pub(super) fn paired<T: Real>(matrices: [&Csr<T>; 2], rows: &[u32]) -> Result<Vec<u32>> {
    let n = rows.len();
    let mut group_of = vec![NONE; n];
    let mut groups: Vec<[u32; 2]> = vec![];
    for start in 0..n {
        // split each cycle of the matching into pairs
        let mut at = start;
        while group_of[at] == NONE {
            let partner = rows[at] as usize;
            group_of[at] = groups.len() as u32;
            let free = group_of[partner] == NONE;
            groups.push([at as u32, if free { partner as u32 } else { NONE }]);
            if !free {
                break;
            }
            group_of[partner] = group_of[at];
            at = rows[partner] as usize;
        }
    }
    let joined = Groups { matrices: matrices.map(Rows::of), groups: &groups, group_of: &group_of };
    let order = fill::reducing(groups.len(), matrices[0].nnz(), &joined)?.order();
    let members = order.iter().flat_map(|&group| groups[group as usize]);
    Ok(members.filter(|&member| member != NONE).collect())
}

/// The pattern of `A + Aᵀ`, compressed so that groups of one or two rows are its variables.
struct Groups<'a, T: Real> {
    matrices: [Rows<'a, T>; 2],
    groups: &'a [[u32; 2]],
    group_of: &'a [u32],
}

impl<T: Real> Neighbours for Groups<'_, T> {
    fn of(&self, group: u32) -> impl Iterator<Item = u32> {
        let members = self.groups[group as usize].into_iter().filter(|&member| member != NONE);
        let others = move |member: u32| {
            self.matrices.into_iter().flat_map(move |matrix| matrix.columns(member as usize))
        };
        members.flat_map(others).map(|&other| self.group_of[other as usize])
    }
}
