//! Neighbours of the nodes of a matrix, where rows with the same columns are the unknowns of one node.

use crate::formats::Csr;
use crate::numbers::Real;

/// Number of rows that are examined.
const SAMPLE: usize = 250;

/// Fraction of the rows between two that are examined: the golden ratio, times 2³². The lines of a grid are at other distances.
const APART: u64 = 0x9e37_79b9;

/// The neighbours of rows with more entries are taken for different nodes, and rows are compared up to one entry more, which bounds the time.
const LONGEST: usize = 64;

/// Median number of neighbours of a node, with itself, in a sample of the rows of a square matrix.
pub(super) fn neighbours<T: Real>(a: &Csr<T>) -> usize {
    let mut patterns: Vec<&[u32]> = vec![];
    let mut numbers: Vec<(usize, f64)> = (0..SAMPLE.min(a.rows()) as u64)
        .map(|sample| {
            let fraction = (sample * APART) & u64::from(u32::MAX);
            let own = a.row_columns(((fraction * a.rows() as u64) >> 32) as usize);
            if own.len() > LONGEST {
                return (own.len(), 1.0);
            }
            patterns.clear();
            patterns.extend(own.iter().map(|&col| {
                let columns = a.row_columns(col as usize);
                &columns[..columns.len().min(LONGEST + 1)]
            }));
            // a node is as likely in the sample as it has rows
            let alike = patterns.iter().filter(|&&other| other == own).count().max(1);
            // if no diagonal entry is stored, the row itself is not among them
            patterns.push(own);
            patterns.sort_unstable();
            patterns.dedup();
            (patterns.len(), 1.0 / alike as f64)
        })
        .collect();
    numbers.sort_unstable_by_key(|number| number.0);
    let mut left = 0.5 * numbers.iter().map(|number| number.1).sum::<f64>();
    let median = numbers.iter().find(|number| {
        left -= number.1;
        left <= 0.0
    });
    median.map_or(0, |number| number.0)
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
        // a ring without its diagonal, bordered by 30 dense rows and columns
        let border = 30;
        let bordered: Vec<_> = (0..n)
            .flat_map(|i| {
                let dense = (n..n + border).flat_map(move |j| [(i, j, 1.0), (j, i, 1.0)]);
                [(i, (i + 1) % n, 1.0), (i, (i + n - 1) % n, 1.0)].into_iter().chain(dense)
            })
            .collect();
        let bordered = Csr::from_triplets(n + border, n + border, &bordered).unwrap();
        // the border is one node, because its rows are compared up to `LONGEST` entries
        assert_eq!(neighbours(&bordered), 4);
    }
}
