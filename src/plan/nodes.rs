//! Neighbours of the nodes of a matrix, where rows with the same columns are the unknowns of one node.

use crate::formats::{Csr, sampled_rows};
use crate::numbers::Real;

/// Number of rows in the sample. On more than 200 matrices, the sample classified only `olm1000`, whose nodes have four or six neighbours,
/// differently from all rows.
const SAMPLE: usize = 250;

/// Number of entries in a row above which its neighbours are taken for different nodes; rows are compared up to one entry more. This bounds
/// the time for matrices with dense rows. A guess.
const LONGEST: usize = 64;

/// Median number of neighbours of a node, with itself, over a sample of the rows of a square matrix; zero if it has no rows.
pub(super) fn neighbours<T: Real>(a: &Csr<T>) -> usize {
    let mut patterns: Vec<&[u32]> = vec![];
    let neighbours_of = |row: usize| {
        let own = a.row_columns(row);
        if own.len() > LONGEST {
            return own.len();
        }
        patterns.clear();
        // the row itself, in case that its diagonal entry is not stored
        patterns.push(own);
        patterns.extend(own.iter().map(|&col| {
            let columns = a.row_columns(col as usize);
            &columns[..columns.len().min(LONGEST + 1)]
        }));
        patterns.sort_unstable();
        patterns.dedup();
        patterns.len()
    };
    let mut numbers: Vec<usize> = sampled_rows(a.rows(), SAMPLE).map(neighbours_of).collect();
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery;

    #[test]
    fn rows_with_the_same_columns_are_one_node() {
        for n in [50, 250, 256] {
            assert_eq!(neighbours(&gallery::poisson::<f64>(&[n; 2]).unwrap()), 5, "{n}");
        }
        // two unknowns for each node of a ring, those of a node far apart
        let n = 1000;
        let entries: Vec<_> = (0..2 * n)
            .flat_map(|i| {
                [0, 1, n - 1]
                    .into_iter()
                    .flat_map(move |step| [0, n].map(|other| (i, (i % n + step) % n + other, 1.0)))
            })
            .collect();
        let ring = Csr::from_triplets(2 * n, 2 * n, &entries).unwrap();
        assert_eq!((ring.nnz(), neighbours(&ring)), (12 * n, 3));
        assert_eq!(neighbours(&Csr::<f64>::from_triplets::<u32>(0, 0, &[]).unwrap()), 0);
        assert_eq!(neighbours(&Csr::<f64>::from_triplets::<u32>(3, 3, &[]).unwrap()), 1);
        // a ring without its diagonal, bordered by 30 dense rows and columns; rows of the border differ in their last entry alone
        let border = 30;
        let bordered: Vec<_> = (0..n)
            .flat_map(|i| {
                let dense = (n..n + border).flat_map(move |j| [(i, j, 1.0), (j, i, 1.0), (j, j, 1.0)]);
                [(i, (i + 1) % n, 1.0), (i, (i + n - 1) % n, 1.0)].into_iter().chain(dense)
            })
            .collect();
        let bordered = Csr::from_triplets(n + border, n + border, &bordered).unwrap();
        // the row itself, two neighbours, and the border, whose rows are compared up to `LONGEST + 1` entries
        assert_eq!(neighbours(&bordered), 4);
    }
}
