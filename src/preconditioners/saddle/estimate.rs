//! Choice of an approximation of the Schur complement, and cost estimates.

use super::blocks::Blocks;
use super::fields::Fields;
use super::inner::COMPLETE;
use super::schur::Schur;
use crate::formats::Csr;
use crate::numbers::Real;
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

/// Cost of a complete factorization in multiplications: setup per entry of the factor and per squared number of rows, and an
/// application per entry of the factor. Guesses.
const FACTORIZATION: f64 = 10.0;
const DENSE_FRONT: f64 = 0.1;
const SOLVE: f64 = 6.0;

/// Difference of an entry and its mirror image that counts as rounding, in machine epsilons times the largest entry of the row.
/// A guess.
const ROUNDING: f64 = 16.0;

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
    /// pass over the pattern; if it is not symmetric, also in up to two searches for each entry outside `A`.
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
        let (product, twice) = solver(second, n, g == h && complement_is_symmetric(csr, fields));
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
        return (FACTORIZATION * factor + DENSE_FRONT * rows * rows, SOLVE * factor);
    }
    if symmetric {
        return (SETUP_OF_ENTRY * entries + SETUP_OF_ROW * rows, CYCLE * entries);
    }
    ((ELIMINATION * entries / rows).max(LEAST_ELIMINATION) * entries, TRIANGLES * entries)
}

/// Returns whether `N = C + B D⁻¹ Bᵀ` of an unsymmetric matrix `[A G; H K]` is symmetric, as
/// [`Blocks::symmetry`] finds for its blocks. `G` and `H` must have equal numbers of entries.
fn complement_is_symmetric<T: Real>(csr: &Csr<T>, fields: &Fields) -> bool {
    let is_second = |row: usize| fields.of_row[row] == 1;
    // entries in rows of one field, and in columns of the second
    let mirrors = |second: bool, sign: f64| {
        (0..csr.rows()).filter(|&row| is_second(row) == second).all(|row| {
            let entries = csr.row_columns(row).iter().zip(csr.row_values(row));
            let entries = entries.map(|(&column, &value)| (column as usize, value));
            row_mirrors(entries.filter(|&(column, _)| is_second(column)), |column| csr.get(column, row), sign)
        })
    };
    mirrors(true, 1.0) && (mirrors(false, 1.0) || mirrors(false, -1.0))
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

/// Returns whether entry (i, j) of `one` is `sign` times entry (j, i) of `other`, up to rounding.
fn mirrors<T: Real>(one: &Csr<T>, other: &Csr<T>, sign: f64) -> bool {
    one.nnz() == other.nnz()
        && (0..one.rows()).all(|row| {
            let entries = one.row_columns(row).iter().zip(one.row_values(row));
            let entries = entries.map(|(&column, &value)| (column as usize, value));
            row_mirrors(entries, |column| other.get(column, row), sign)
        })
}

/// Returns whether each entry of a row, given by its column and value, is `sign` times its mirror image, up to
/// rounding relative to the largest entry of the row.
fn row_mirrors<T: Real>(
    mut row: impl Iterator<Item = (usize, T)> + Clone,
    mirror_image: impl Fn(usize) -> Option<T>,
    sign: f64,
) -> bool {
    let largest = row.clone().fold(0.0_f64, |most, (_, value)| most.max(Element::to_f64(value).abs()));
    row.all(|(column, value)| {
        let mirrored = mirror_image(column).map_or(f64::NAN, |value| sign * Element::to_f64(value));
        (Element::to_f64(value) - mirrored).abs() <= ROUNDING * T::EPSILON * largest
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `A` and `G` given, the estimate for `H = h Gᵀ`, with more rows than a complete factorization takes.
    fn estimate(h: f64) -> SaddleEstimate {
        let (first, second) = (COMPLETE + 1000, COMPLETE + 1);
        let diagonal = (0..first).map(|row| (row, row, 2.0));
        let coupling = (0..second).flat_map(|row| [(row, first + row, 1.0), (first + row, row, h)]);
        let triplets: Vec<_> = diagonal.chain(coupling).collect();
        let csr = Csr::from_triplets(first + second, first + second, &triplets).unwrap();
        let fields = Fields::of((0..first + second).map(|row| u8::from(row >= first)).collect());
        SaddleEstimate::new(&csr, &fields, false)
    }

    /// `N` has a third of `fill` as entries, one for each row of `G` here. Its solver is multigrid if it is
    /// symmetric and an incomplete factorization otherwise, as in `Complement::new`.
    #[test]
    fn the_solver_of_an_unsymmetric_complement_is_an_incomplete_factorization() {
        let [mirrored, opposite, other] = [1.0, -1.0, 2.0].map(estimate);
        assert_eq!(mirrored, opposite);
        let rows = (COMPLETE + 1) as f64;
        let [multigrid, incomplete] = [true, false].map(|symmetric| solver(rows, rows / 3.0, symmetric));
        let setup = incomplete.0 - multigrid.0;
        let application = 2.0 * (incomplete.1 - multigrid.1);
        assert!((other.setup - mirrored.setup - setup).abs() < 1e-6 * setup.abs());
        assert!((other.application - mirrored.application - application).abs() < 1e-6 * application.abs());
    }
}
