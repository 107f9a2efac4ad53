//! The two fields of a saddle point system, given or found.

use crate::error::Error;
use crate::formats::Csr;
use crate::host::HostSpace;
use crate::numbers::Real;
use krysp_solvers::{Element, Space};

/// A diagonal entry counts as zero if it is at most this fraction of its row's largest entry: far above the
/// rounding of assembled sums, far below small pivots and penalty terms (guess; in the tested systems the
/// ratio is 0 or above 1e-3).
const ZERO: f64 = 1e-13;

/// Relative rounding error up to which a negative 2 x 2 principal minor of a semidefinite block is accepted. Guess,
/// chosen as the square root of the machine epsilon.
const ROUNDING: f64 = 1e-8;

/// Maximum fraction of the coupling entries without a mirrored entry; rows of boundary conditions lack some
/// (guess).
const UNMATCHED: f64 = 0.2;

/// The fields of a saddle point system `[A Bᵀ; B −C]`, found from the diagonal: see
/// [`SaddlePoint::fields`](crate::SaddlePoint::fields).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    /// The field of each unknown in the order of the matrix: 0 for the unknowns of `A`, 1 for those of `C`.
    pub of_row: Vec<u8>,
    /// Number of unknowns of the second field.
    pub second: usize,
}

impl Fields {
    /// Counts the unknowns of the second field.
    pub(super) fn of(of_row: Vec<u8>) -> Fields {
        let second = of_row.iter().filter(|&&field| field == 1).count();
        Fields { of_row, second }
    }

    /// Fields given in the user's order, permuted to the order of `space`.
    pub(crate) fn given<T: Real>(fields: &[u8], space: &HostSpace<T>) -> crate::error::Result<Fields> {
        if fields.len() != space.len() {
            let (got, expected) = (fields.len(), space.len());
            return Err(Error::Length { what: "`fields`", got, expected, why: "one for each unknown" });
        }
        if let Some(&field) = fields.iter().find(|&&field| field > 1) {
            return Err(Error::Option { what: "a field", got: field.to_string(), expected: "0 or 1" });
        }
        let fields = Fields::of(match space.permutation() {
            None => fields.to_vec(),
            Some(permutation) => permutation.old_of_new().iter().map(|&old| fields[old as usize]).collect(),
        });
        if fields.second == 0 || fields.second == space.len() {
            return Err(super::refused("all unknowns are in one field".into()));
        }
        Ok(fields)
    }

    /// Finds the fields: the second one has the rows with a diagonal that is negative, zero or missing. The
    /// error says why the fields are not those of a saddle point. Costs two passes over the matrix, the
    /// second only if there is such a row, and one search for each entry that couples the fields.
    pub(super) fn find<T: Real>(csr: &Csr<T>) -> Result<Fields, String> {
        if csr.rows() != csr.cols() {
            return Err(format!("the matrix is {} x {}", csr.rows(), csr.cols()));
        }
        let diagonal: Vec<f64> = csr.diagonal_entries().iter().map(|&value| Element::to_f64(value)).collect();
        let is_second = |row: usize| {
            let d = diagonal[row];
            d <= 0.0 || {
                let largest =
                    csr.row_values(row).iter().fold(0.0, |most: f64, &v| most.max(Element::to_f64(v).abs()));
                d <= ZERO * largest
            }
        };
        let fields = Fields::of((0..csr.rows()).map(|row| u8::from(is_second(row))).collect());
        let first = csr.rows() - fields.second;
        if fields.second == 0 {
            return Err("all diagonal entries are positive".into());
        }
        if first == 0 {
            return Err("no diagonal entry is positive".into());
        }
        fields.check(csr, &diagonal).map(|()| fields)
    }

    /// Checks that the second block is zero or negative semidefinite, as far as its 2 x 2 principal minors
    /// show, and is coupled to the first.
    fn check<T: Real>(&self, csr: &Csr<T>, diagonal: &[f64]) -> Result<(), String> {
        let of = |row: usize| self.of_row[row];
        let (mut unmatched, mut couplings, mut zero_diagonals) = (0, 0, 0);
        for row in (0..csr.rows()).filter(|&row| of(row) == 1) {
            let (mut coupled, own) = (false, diagonal[row]);
            for (&column, value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
                let (column, value) = (column as usize, Element::to_f64(*value));
                if value == 0.0 || column == row {
                    continue;
                }
                if of(column) == 0 {
                    coupled = true;
                    couplings += 1;
                    let mirrored = csr.get(column, row).map_or(0.0, Element::to_f64);
                    unmatched += usize::from(mirrored == 0.0);
                } else if value * value > (1.0 + ROUNDING) * own * diagonal[column] {
                    return Err(format!(
                        "the block of rows with a nonpositive diagonal is neither zero nor negative \
                         semidefinite: entry ({row}, {column}) is {value:e}, \
                         and the diagonal entries of these rows are {own:e} and {:e}",
                        diagonal[column]
                    ));
                }
            }
            if !coupled && own == 0.0 {
                return Err(format!(
                    "row {row} has a zero diagonal and is coupled to no row with a positive diagonal"
                ));
            }
            zero_diagonals += usize::from(own == 0.0);
        }
        // each unknown of a zero block needs an unknown of the first field
        let first = csr.rows() - self.second;
        if zero_diagonals > first {
            return Err(format!(
                "{zero_diagonals} rows have a zero diagonal and only {first} a positive one: the matrix is singular"
            ));
        }
        if unmatched as f64 > UNMATCHED * couplings as f64 {
            return Err(format!(
                "{unmatched} of {couplings} entries that couple the fields have no mirrored entry: the pattern is \
                 not that of a saddle point"
            ));
        }
        Ok(())
    }
}
