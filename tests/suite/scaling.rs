//! Scaled systems: as fast as with `Jacobi`.

use krysp::testing::matrices;
use krysp::{Cg, Csr, Jacobi, Permutation, Scaling};

#[test]
fn scaled_cg_takes_the_iterations_of_jacobi_cg() {
    let poisson = matrices::stencil7(9).csr::<f64>().unwrap();
    // diagonal entries of very different sizes
    let size = |i: usize| 10f64.powi(i as i32 % 5);
    let entries: Vec<_> = poisson.triplets().map(|(i, j, v)| (i, j, v * size(i) * size(j))).collect();
    let a = Csr::from_triplets(poisson.rows(), poisson.rows(), &entries).unwrap();
    let backwards = Permutation::from_old_of_new((0..a.rows() as u32).rev().collect()).unwrap();
    let b: Vec<f64> = (0..a.rows()).map(|i| size(i) * (1.0 + (i % 3) as f64)).collect();
    for a in [a.reordered(&backwards).unwrap(), a] {
        let jacobi = Jacobi::new(&a).unwrap();
        let expected = Cg::new(&a).preconditioner(jacobi).rtol(1e-13).solve(&b).unwrap();
        let scaling = Scaling::symmetric(&a).unwrap();
        let scaled = scaling.matrix(&a).unwrap();
        assert!(scaled.diagonal_entries().iter().all(|d| (d - 1.0).abs() < 1e-14));
        let mut solution = Cg::new(scaled).rtol(1e-13).solve(&scaling.rhs(&b).unwrap()).unwrap();
        scaling.unscale(&mut solution.x).unwrap();
        let largest = expected.x.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        for (x, y) in solution.x.iter().zip(&expected.x) {
            assert!((x - y).abs() <= 1e-9 * largest, "{x} {y}");
        }
        let (one, other) = (solution.report.iterations, expected.report.iterations);
        assert!(one.abs_diff(other) <= 5, "{one} {other}");
    }
}
