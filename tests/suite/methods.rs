//! Methods on small systems whose behaviour theory predicts.

use krysp::testing::matrices;
use krysp::{BiCgStab, Cg, Gmres, Jacobi, Outcome};

#[test]
fn every_method_solves_a_poisson_problem() {
    let a = matrices::stencil7(12).csr::<f64>().unwrap();
    let b: Vec<f64> = (0..a.rows()).map(|i| (i % 7) as f64 - 2.0).collect();
    let jacobi = Jacobi::new(&a).unwrap();
    let solutions = [
        Cg::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
        BiCgStab::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
        Gmres::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
    ];
    for s in &solutions {
        println!("{}", s.report);
        assert_eq!(s.report.outcome, Outcome::Converged);
        let product = |i: usize| -> f64 {
            a.row_columns(i).iter().zip(a.row_values(i)).map(|(&j, &v)| v * s.x[j as usize]).sum()
        };
        let residual: f64 = (0..a.rows()).map(|i| (b[i] - product(i)).powi(2)).sum::<f64>().sqrt();
        approx::assert_relative_eq!(residual, s.report.true_residual, epsilon = 1e-12);
    }
}
