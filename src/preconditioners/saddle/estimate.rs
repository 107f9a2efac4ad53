//! Choice of an approximation of the Schur complement, and cost estimates.

use super::blocks::Blocks;
use super::fields::Fields;
use super::inner::COMPLETE;
use super::schur::Schur;
use crate::{Csr, Real};
use krysp_solvers::Element;

/// `B D⁻¹ Bᵀ` is not computed if it takes more than `DENSE` multiplications per entry of the matrix and more
/// than `AFFORDABLE` in total (guess: 100 products with the matrix, and 10 ms).
const DENSE: f64 = 100.0;
const AFFORDABLE: f64 = 1e7;

/// `A` is nearly diagonal if in nine tenths of its rows the magnitudes of the off-diagonal entries add up to
/// at most this fraction of the diagonal entry. If all rows do, and `A` is symmetric, the eigenvalues of
/// `D⁻¹ A` are between 0.5 and 1.5, and so is the ratio of `vᵀ B D⁻¹ Bᵀ v` to `vᵀ B A⁻¹ Bᵀ v` for every `v`.
const NEARLY: f64 = 0.5;

/// Cost of multigrid in multiplications: setup per entry and per row of the matrix, and cycle per entry. The
/// same figures as in `plan`: measured on two threads with stencils and finite elements of 1,000 to 2 million
/// unknowns.
const SETUP_OF_ENTRY: f64 = 80.0;
const SETUP_OF_ROW: f64 = 700.0;
const CYCLE: f64 = 4.5;

/// Cost of an incomplete factorization with thresholds, in multiplications per entry: setup takes
/// `ELIMINATION` times the mean number of entries per row, at least `LEAST_ELIMINATION`; an application takes
/// `TRIANGLES`. The same figures as in `plan`.
const ELIMINATION: f64 = 70.0;
const LEAST_ELIMINATION: f64 = 600.0;
const TRIANGLES: f64 = 4.0;

/// Expected iterations of `Idr` or `Fgmres` to a relative residual of 1e-8. Measured: 38 to 96 with
/// [`Schur::Diagonal`] (staggered grids and Taylor-Hood elements of 12,000 to 164,000 unknowns), 36 to 109
/// with [`Schur::LeastSquares`] (Oseen flow, 2,000 to 84,000 unknowns).
const SYMMETRIC: f64 = 60.0;
const UNSYMMETRIC: f64 = 90.0;

/// Expected costs of a [`SaddlePoint`](crate::SaddlePoint). The unit is a multiply-add in a product with the
/// matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SaddleEstimate {
    /// Cost of the setup.
    pub setup: f64,
    /// Cost of one application.
    pub application: f64,
    /// Expected iterations of [`Idr`](crate::Idr) or [`Fgmres`](crate::Fgmres) to a relative residual of
    /// 1e-8.
    pub iterations: f64,
}

crate::saved::saved!(impl[] SaddleEstimate { setup, application, iterations });

impl SaddleEstimate {
    /// Estimates the costs for a matrix with these fields from the number of entries of each block, in one
    /// pass over the pattern.
    pub fn new<T: Real>(csr: &Csr<T>, fields: &Fields, symmetric: bool) -> SaddleEstimate {
        let of = |row: usize| usize::from(fields.of_row[row]);
        let mut entries = [[0.0; 2]; 2];
        let mut fill = 0.0;
        for row in 0..csr.rows() {
            let columns = csr.row_columns(row);
            let second = columns.iter().filter(|&&column| of(column as usize) == 1).count() as f64;
            let counts = &mut entries[of(row)];
            counts[0] += columns.len() as f64 - second;
            counts[1] += second;
            fill += if of(row) == 0 { second * second } else { 0.0 };
        }
        let [rows, second] = [csr.rows() - fields.second, fields.second].map(|rows| rows as f64);
        let [[a, g], [h, k]] = entries;
        let (mut setup, solve) = solver(rows, a, symmetric);
        setup += csr.nnz() as f64;
        if symmetric {
            let application = solve + g + second;
            return SaddleEstimate { setup: setup + solve + g + h, application, iterations: SYMMETRIC };
        }
        // about a third of the products of two entries create a new entry of N = C + B D⁻¹ Bᵀ (measured on
        // tetrahedra: 0.2 to 0.5)
        let n = k + fill / 3.0;
        let (product, twice) = solver(second, n, true);
        let application = solve + 2.0 * twice + a + 2.0 * g + h;
        SaddleEstimate { setup: setup + fill + product, application, iterations: UNSYMMETRIC }
    }
}

/// Setup and application cost of the solver that [`BlockSolver::Automatic`](super::BlockSolver::Automatic)
/// chooses for a block with these numbers of rows and entries.
fn solver(rows: f64, entries: f64, symmetric: bool) -> (f64, f64) {
    if rows <= COMPLETE as f64 {
        // estimated entries of the factor on a three-dimensional mesh, as in `plan`
        let factor = (3.0 * rows.powf(4.0 / 3.0)).min(0.5 * rows * rows);
        return (10.0 * factor + 0.1 * rows * rows, 6.0 * factor);
    }
    if symmetric {
        return (SETUP_OF_ENTRY * entries + SETUP_OF_ROW * rows, CYCLE * entries);
    }
    ((ELIMINATION * entries / rows).max(LEAST_ELIMINATION) * entries, TRIANGLES * entries)
}

/// Symmetry of the blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symmetry {
    /// `A` is symmetric with a positive diagonal.
    pub(super) first: bool,
    /// `σ (H D⁻¹ G − K)` is symmetric.
    pub(super) second: bool,
    /// The whole matrix is symmetric, and `A` has a positive diagonal.
    pub(super) whole: bool,
}

impl<T: Real> Blocks<T> {
    /// Determines the symmetry of the blocks, at the cost of one search per entry.
    pub(super) fn symmetry(&self) -> Symmetry {
        let (a, k) = (&self.a.matrix, &self.k.matrix);
        let positive = a.diagonal_entries().iter().all(|&value| Element::to_f64(value) > 0.0);
        let first = positive && mirrors(a, a, 1.0);
        let second = mirrors(k, k, 1.0);
        let [even, odd] = [1.0, -1.0].map(|sign| mirrors(&self.g.matrix, &self.h.matrix, sign));
        Symmetry { first, second: second && (even || odd), whole: first && second && even }
    }

    /// The approximation that [`Schur::Automatic`] chooses.
    pub(super) fn suitable(&self, symmetric: bool) -> Schur<T> {
        let a = &self.a.matrix;
        let dominant = |row: usize| {
            let (mut own, mut rest) = (0.0, 0.0);
            for (&column, value) in a.row_columns(row).iter().zip(a.row_values(row)) {
                let size = Element::to_f64(*value).abs();
                if column as usize == row { own = size } else { rest += size }
            }
            rest <= NEARLY * own
        };
        let nearly_diagonal = 10 * (0..a.rows()).filter(|&row| dominant(row)).count() >= 9 * a.rows();
        let whole = [&self.a, &self.g, &self.h, &self.k].iter().map(|part| part.matrix.nnz()).sum::<usize>();
        if self.work() > (DENSE * whole as f64).max(AFFORDABLE) {
            return Schur::Diagonal;
        }
        // the least-squares commutator assumes C = 0
        let zero = self.k.matrix.entries().iter().all(|&value| value == T::zero());
        match (nearly_diagonal, symmetric) {
            (false, true) => Schur::Diagonal,
            (false, false) if zero => Schur::LeastSquares,
            _ => Schur::Sparse,
        }
    }
}

/// Whether entry (i, j) of `one` is `sign` times entry (j, i) of `other`, up to rounding relative to the
/// largest entry of the row.
fn mirrors<T: Real>(one: &Csr<T>, other: &Csr<T>, sign: f64) -> bool {
    one.nnz() == other.nnz()
        && (0..one.rows()).all(|row| {
            let values = one.row_values(row);
            let largest = values.iter().fold(0.0_f64, |most, &v| most.max(Element::to_f64(v).abs()));
            one.row_columns(row).iter().zip(values).all(|(&column, value)| {
                let mirrored =
                    other.get(column as usize, row).map_or(f64::NAN, |value| sign * Element::to_f64(value));
                (Element::to_f64(*value) - mirrored).abs() <= 16.0 * T::EPSILON * largest
            })
        })
}
