//! Tests of block products against dense products.

use super::super::blocks::{Transposed, transposed_pattern};
use super::*;
use crate::formats::Csr;
use crate::testing::matrices;

/// A random sparse matrix, its block values, and the same as a dense matrix.
fn random([rows, cols]: [usize; 2], shape: [usize; 2], seed: u64) -> (Csr<f64>, Vec<f64>, Vec<f64>) {
    let pattern = matrices::random(rows, cols, 0.07, seed).csr::<f64>().unwrap();
    let size = shape[0] * shape[1];
    let values: Vec<f64> =
        (0..pattern.nnz() * size).map(|k| ((k * 7919 + 13) % 101) as f64 / 50.0 - 1.0).collect();
    let mut dense = vec![0.0; rows * cols * size];
    let width = cols * shape[1];
    for (entry, (row, column, _)) in pattern.triplets().enumerate() {
        for k in 0..size {
            let at = (row * shape[0] + k / shape[1]) * width + column * shape[1] + k % shape[1];
            dense[at] = values[entry * size + k];
        }
    }
    (pattern, values, dense)
}

fn dense(blocks: Blocks<'_>) -> Vec<f64> {
    let [r, c] = blocks.shape;
    let width = blocks.pattern.cols() * c;
    let mut dense = vec![0.0; blocks.pattern.rows() * r * width];
    for row in 0..blocks.pattern.rows() {
        let (columns, numbers) = blocks.of(row);
        for (&column, block) in columns.iter().zip(numbers.chunks_exact(r * c)) {
            for (k, value) in block.iter().enumerate() {
                dense[(row * r + k / c) * width + column as usize * c + k % c] = *value;
            }
        }
    }
    dense
}

#[test]
fn products_and_transposes_are_those_of_dense_matrices() {
    for [r, k, c] in [[1, 1, 1], [2, 2, 3], [3, 2, 3], [3, 3, 6], [6, 3, 6], [6, 6, 6], [1, 1, 2], [4, 2, 5]]
    {
        let (n, m, l) = (60, 47, 31);
        let (a, a_values, a_dense) = random([n, m], [r, k], 1);
        let (b, b_values, b_dense) = random([m, l], [k, c], 2);
        let a = Blocks::new(a.pattern(), [r, k], &a_values);
        let b = Blocks::new(b.pattern(), [k, c], &b_values);
        let (found, values) = product(a, &b).unwrap();
        assert_eq!(*values, *super::values(a, &b, &found).unwrap());
        let got = dense(Blocks::new(&found, [r, c], &values));
        for row in 0..n * r {
            for column in 0..l * c {
                let terms = (0..m * k).map(|i| a_dense[row * m * k + i] * b_dense[i * l * c + column]);
                let expected: f64 = terms.sum();
                assert!((got[row * l * c + column] - expected).abs() < 1e-13);
            }
        }
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (again, others) = pool.install(|| product(a, &b)).unwrap();
            assert!(**again.columns == **found.columns && *others == *values);
        }
        let found_blocks = Blocks::new(&found, [r, c], &values);
        let mut pieces = Pieces::product(a, &b).unwrap();
        let rows =
            |pieces: &Pieces| -> Vec<f64> { (0..n).flat_map(|row| pieces.of(row).1.to_vec()).collect() };
        let first = rows(&pieces);
        for row in 0..n {
            let (columns, blocks) = pieces.of(row);
            let mut sorted: Vec<_> = columns.iter().copied().zip(blocks.chunks(r * c)).collect();
            sorted.sort_by_key(|(column, _)| *column);
            let (columns, blocks) = found_blocks.of(row);
            assert!(sorted.into_iter().eq(columns.iter().copied().zip(blocks.chunks(r * c))));
        }
        pieces.clear();
        pieces.refill(a, &b).unwrap();
        assert_eq!(rows(&pieces), first);
        let (mirrored, from) = transposed_pattern(a.pattern).unwrap();
        assert_eq!([mirrored.rows(), mirrored.cols()], [m, n]);
        // the transpose times the product, against the product of dense matrices
        let transposed = Transposed { pattern: &mirrored, of: a, from: &from };
        let (squared, numbers) = product(transposed, &pieces).unwrap();
        assert_eq!(*numbers, *super::values(transposed, &pieces, &squared).unwrap());
        let product = Blocks::new(&found, [r, c], &values);
        let (product, whole) = (dense(product), Blocks::new(&squared, [k, c], &numbers));
        let whole = dense(whole);
        for row in 0..m * k {
            for column in 0..l * c {
                let terms = (0..n * r).map(|i| a_dense[i * m * k + row] * product[i * l * c + column]);
                let expected: f64 = terms.sum();
                assert!((whole[row * l * c + column] - expected).abs() < 1e-12);
            }
        }
    }
}
