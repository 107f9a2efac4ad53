//! In which order columns of an unsymmetric matrix are eliminated, and what becomes of those that depend on others.

use crate::numbering::minimum_degree;
use crate::{Csr, Real, Result};
use krysp_solvers::Element;

/// A pattern counts as symmetric if this share of the off-diagonal entries has a partner.
const PARTNERS: f64 = 0.5;

/// A diagonal counts as weak if more than this share of its entries is below `SMALL` times the largest of their rows: guesses.
const WEAK: f64 = 0.02;
const SMALL: f64 = 1e-3;

/// In which order columns are eliminated.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) column_of: Vec<u32>,
    /// The row that is preferred as the pivot of each column; empty if there is none.
    pub(super) preferred: Vec<u32>,
    /// Entries of the factors beyond which the order does not serve.
    pub(super) most_entries: usize,
}

impl Order {
    /// For pivots in any row.
    pub(super) fn of_columns<T: Real>(a: &Csr<T>, columns: &Csr<T>) -> Result<Order> {
        let column_of = minimum_degree::of_columns(a, columns)?;
        Ok(Order { column_of, preferred: vec![], most_entries: usize::MAX })
    }
}

/// The pattern of a matrix whose row `j` is row `rows[j]` of `a`.
pub(super) fn permuted_rows<T: Real>(a: &Csr<T>, rows: &[u32]) -> Result<Csr<T>> {
    let (mut offsets, mut columns) = (vec![0], Vec::with_capacity(a.nnz()));
    for &row in rows {
        columns.extend_from_slice(a.row_columns(row as usize));
        offsets.push(columns.len());
    }
    let values = vec![T::zero(); columns.len()];
    Csr::from_sorted(a.cols(), offsets, columns, values)
}

/// What becomes of a column that depends on those before it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pivoting {
    /// The matrix is refused.
    Regular,
    /// Its unknown is zero.
    Tolerant,
}

impl Pivoting {
    /// The part of the largest magnitude that a column has had during the elimination that counts as rounding.
    pub(super) fn rounding<T: Real>(self) -> T {
        match self {
            Pivoting::Regular => T::from_f64(REGULAR * <T as Element>::EPSILON),
            Pivoting::Tolerant => T::from_f64(<T as Element>::EPSILON.powf(TOLERANT)),
        }
    }
}

/// A pivot counts as zero up to so many machine epsilons times the largest magnitude of its column. Gaussian elimination of Neumann
/// problems with 150 to 200 unknowns, in random orders, leaves last pivots of 4 to 27 epsilons: a guess above that.
const REGULAR: f64 = 64.0;

/// The power of the epsilon, 3e-13 in `f64`, below which a pivot would make a solution so large that its rounding hides what is
/// solved for.
const TOLERANT: f64 = 0.8;

/// How symmetric a pattern is, and how strong a diagonal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The share of off-diagonal entries that have a partner.
    partners: f64,
    /// The share of diagonal entries that are small.
    weak: f64,
}

impl Shape {
    pub(super) fn of<T: Real>(a: &Csr<T>, columns: &Csr<T>) -> Shape {
        let n = a.rows();
        let (mut partners, mut entries, mut weak) = (0, 0, 0);
        for row in 0..n {
            let (mut left, mut right) = (a.row_columns(row), columns.row_columns(row));
            let stored = usize::from(left.binary_search(&(row as u32)).is_ok());
            entries += left.len() - stored;
            while let (Some(x), Some(y)) = (left.first(), right.first()) {
                partners += usize::from(x == y && *x as usize != row);
                let (skip, other) = (usize::from(x <= y), usize::from(y <= x));
                (left, right) = (&left[skip..], &right[other..]);
            }
            let largest = a.row_values(row).iter().fold(T::zero(), |most, value| most.max(value.abs()));
            let diagonal = a.get(row, row).unwrap_or_default().abs();
            weak += usize::from(diagonal.is_zero() || diagonal < largest * T::from_f64(SMALL));
        }
        let share = |count: usize, all: usize| if all == 0 { 1.0 } else { count as f64 / all as f64 };
        Shape { partners: share(partners, entries), weak: if n == 0 { 0.0 } else { share(weak, n) } }
    }

    pub(super) fn is_symmetric(self) -> bool {
        self.partners >= PARTNERS
    }

    pub(super) fn is_weak(self) -> bool {
        self.weak > WEAK
    }
}

/// An order with little fill for the pattern of `A + Aᵀ` in which rows that a matching joins are neighbours: if `rows[j]` is matched
/// to column `j`, a pair `{j, rows[j]}` has a pivot block with large entries off its diagonal (Duff and Pralet 2005).
pub(super) fn paired<T: Real>(a: &Csr<T>, columns: &Csr<T>, rows: &[u32]) -> Result<Vec<u32>> {
    const NONE: u32 = u32::MAX;
    let n = a.rows();
    let mut group_of = vec![NONE; n];
    let mut groups: Vec<[u32; 2]> = vec![];
    for start in 0..n {
        // along a cycle, two by two
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
    let (mut offsets, mut neighbours) = (vec![0], vec![]);
    let mut own: Vec<u32> = vec![];
    for group in &groups {
        own.clear();
        for &member in group.iter().filter(|&&member| member != NONE) {
            for matrix in [a, columns] {
                let others = matrix.row_columns(member as usize).iter();
                own.extend(others.map(|&other| group_of[other as usize]));
            }
        }
        own.sort_unstable();
        own.dedup();
        neighbours.extend_from_slice(&own);
        offsets.push(neighbours.len());
    }
    let values = vec![T::zero(); neighbours.len()];
    let joined = Csr::from_sorted(groups.len(), offsets, neighbours, values)?;
    let order = minimum_degree::of_sum(&joined, &joined)?;
    let members = order.iter().flat_map(|&group| groups[group as usize]);
    Ok(members.filter(|&member| member != NONE).collect())
}
