//! Matrices whose eigenvalues are known exactly, not only up to rounding.

use super::Matrix;

/// A symmetric matrix with exactly these eigenvalues, coupled into one chain with up to 12 entries a row:
///
/// `A = H₂ H₁ diag(λ) H₁ H₂`, where `H₁` and `H₂` are block diagonal with the reflector `I - ½ v vᵀ`,
/// `v = (1, 1, 1, 1)`; the blocks of `H₂` start two rows later. Every entry of `A` is a sum of integer multiples of
/// eigenvalues, divided by 16. Nothing is rounded for integer (or dyadic) eigenvalues of moderate size, so the spectrum
/// is exact. Rows outside of full blocks are not reflected.
pub fn with_eigenvalues(eigenvalues: &[f64]) -> Matrix {
    let rows = eigenvalues.len();
    // Two reflectors connect rows at most 9 apart. The window starts where a block of H₁ begins.
    let window = |row: usize| ((row / 4 * 4).saturating_sub(12), (row / 4 * 4 + 16).min(rows));
    let dense_row = |row: usize| {
        let (start, end) = window(row);
        let mut x = vec![0.0; end - start];
        x[row - start] = 1.0;
        reflect(&mut x, 2);
        reflect(&mut x, 0);
        for (x, eigenvalue) in x.iter_mut().zip(&eigenvalues[start..end]) {
            *x *= eigenvalue;
        }
        reflect(&mut x, 0);
        reflect(&mut x, 2);
        (start, x)
    };
    Matrix::by_rows(
        rows,
        |row, columns| {
            let (start, x) = dense_row(row);
            columns.extend((start..).zip(x).filter(|(_, x)| *x != 0.0).map(|(column, _)| column as u32));
        },
        |row, columns, values| {
            let (start, x) = dense_row(row);
            for (value, &column) in values.iter_mut().zip(columns) {
                *value = x[column as usize - start];
            }
        },
    )
}

/// A positive definite matrix of `n` rows with exactly the eigenvalues 1, 2, …, k, each about `n / k` times, so that CG
/// converges in k steps. If `k` exceeds `n`, there are `n` eigenvalues.
pub fn distinct_eigenvalues(n: usize, k: usize) -> Matrix {
    let eigenvalues: Vec<f64> = (0..n).map(|i| (1 + i % k.max(1)) as f64).collect();
    with_eigenvalues(&eigenvalues)
}

/// `x ← x - ½ v (vᵀ x)` in every full block of four; the first block starts at `first`.
fn reflect(x: &mut [f64], first: usize) {
    for block in x.get_mut(first..).unwrap_or_default().chunks_exact_mut(4) {
        let half_sum = 0.5 * block.iter().sum::<f64>();
        for x in block {
            *x -= half_sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(matrix: &Matrix, x: &[f64]) -> Vec<f64> {
        matrix.to_triplets().product_reference(x).0
    }

    #[test]
    fn the_minimal_polynomial_vanishes_exactly() {
        for (n, k) in [(1, 1), (3, 2), (4, 2), (5, 3), (24, 4), (37, 3), (100, 5), (6, 9)] {
            let matrix = distinct_eigenvalues(n, k);
            for axis in 0..n {
                let mut x = vec![0.0; n];
                x[axis] = 256.0;
                for eigenvalue in 1..=k.min(n) {
                    let image = apply(&matrix, &x);
                    x = image.iter().zip(&x).map(|(image, x)| image - eigenvalue as f64 * x).collect();
                }
                assert!(x.iter().all(|&x| x == 0.0), "n = {n}, k = {k}, axis {axis}: {x:?}");
            }
        }
    }

    #[test]
    fn fewer_factors_do_not_vanish() {
        let (n, k) = (37, 4);
        let matrix = distinct_eigenvalues(n, k);
        for left_out in 1..=k {
            let mut x: Vec<f64> = (0..n).map(|i| (i * i % 7) as f64).collect();
            for eigenvalue in (1..=k).filter(|&eigenvalue| eigenvalue != left_out) {
                let image = apply(&matrix, &x);
                x = image.iter().zip(&x).map(|(image, x)| image - eigenvalue as f64 * x).collect();
            }
            assert!(x.iter().any(|&x| x != 0.0), "{left_out} is no eigenvalue");
        }
    }

    #[test]
    fn the_trace_is_the_sum_and_rows_stay_short() {
        let eigenvalues: Vec<f64> = (0..50).map(|i| f64::from(i * 3 + 1)).collect();
        let matrix = with_eigenvalues(&eigenvalues);
        let trace: f64 = matrix.to_triplets().entries.iter().filter(|e| e.0 == e.1).map(|e| e.2).sum();
        assert_eq!(trace, eigenvalues.iter().sum::<f64>());
        assert!((0..50).all(|row| matrix.row(row).0.len() <= 12));
        assert_eq!(with_eigenvalues(&[]).rows, 0);
        assert_eq!(
            with_eigenvalues(&[7.0; 9]).to_triplets().entries,
            (0..9).map(|i| (i, i, 7.0)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn all_rows_are_coupled() {
        for k in 2..8 {
            let matrix = distinct_eigenvalues(50, k);
            let mut reached = vec![false; 50];
            let mut front = vec![0];
            while let Some(row) = front.pop() {
                if !std::mem::replace(&mut reached[row], true) {
                    front.extend(matrix.row(row).0.iter().map(|&column| column as usize));
                }
            }
            assert!(reached.iter().all(|&reached| reached), "k = {k}: {reached:?}");
        }
    }
}
