//! Transpose of a matrix by counting entries per column, and a test for mirrored entries. Both run on one
//! thread: that is faster than sorting on all threads, and cheap compared with a factorization.

use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;

/// Returns the transpose, in a separate space.
pub(super) fn transposed<T: Real>(csr: &Csr<T>) -> Result<Csr<T>> {
    let (mut starts, entries) = (vec![0usize; csr.cols() + 1], csr.nnz());
    csr.columns().iter().for_each(|&column| starts[column as usize + 1] += 1);
    (0..csr.cols()).for_each(|column| starts[column + 1] += starts[column]);
    let (mut next, mut rows, mut values) = (starts.clone(), vec![0; entries], vec![T::zero(); entries]);
    for row in 0..csr.rows() {
        for (&column, &value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
            let place = &mut next[column as usize];
            (rows[*place], values[*place]) = (row as u32, value);
            *place += 1;
        }
    }
    Csr::from_sorted(csr.rows(), starts, rows, values)
}

/// Returns whether each entry of a square matrix has a mirrored entry. One pass over the entries: row `i` of
/// the upper triangle must find its mirrored entries next in their rows.
pub(super) fn is_mirrored<T: Real>(csr: &Csr<T>) -> bool {
    let (offsets, columns) = (&csr.pattern().offsets, csr.columns());
    let mut next: Vec<usize> = (0..csr.rows()).map(|row| offsets.at(row)).collect();
    (0..csr.rows()).all(|row| {
        // `next` is past the entries in the lower triangle, which were found from earlier rows
        let left = &columns[next[row]..offsets.range(row).end];
        let from = left.iter().position(|&column| column as usize != row).unwrap_or(left.len());
        left[from..].iter().all(|&column| {
            let (column, at) = (column as usize, next[column as usize]);
            next[column] += 1;
            column > row && at < offsets.range(column).end && columns[at] as usize == row
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preconditioners::direct::testing::Random;

    #[test]
    fn mirrored_entries_are_found() {
        let mut source = Random(0x1029_3847_5665_7483);
        let mut counts = [0; 2];
        for case in 0..3000 {
            let n = 1 + source.below(8);
            let mut entries = vec![];
            for _ in 0..source.below(3 * n) {
                let (i, j) = (source.below(n), source.below(n));
                entries.extend([(i, j, 1.0), (j, i, 1.0)]);
            }
            if !entries.is_empty() && source.below(2) == 0 {
                entries.remove(source.below(entries.len()));
            }
            let a = Csr::from_triplets(n, n, &entries).unwrap();
            let transpose = transposed(&a).unwrap();
            let expected = a.columns() == transpose.columns() && a.offsets() == transpose.offsets();
            assert_eq!(is_mirrored(&a), expected, "case {case}: {entries:?}");
            counts[usize::from(expected)] += 1;
        }
        assert!(counts.iter().all(|&count| count > 500), "{counts:?}");
    }
}
