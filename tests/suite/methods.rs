//! Methods on small systems for which theory predicts the result.

use crate::truth::residual;
use krysp::testing::matrices;
use krysp::{BiCgStab, Cg, Chebyshev, Fcg, Fgmres, Gmres, Idr, Jacobi, Minres, Outcome, PipelinedCg};

#[test]
fn every_method_solves_a_poisson_problem() {
    let a = matrices::stencil7(12).csr::<f64>().unwrap();
    let b: Vec<f64> = (0..a.rows()).map(|i| (i % 7) as f64 - 2.0).collect();
    let jacobi = Jacobi::new(&a).unwrap();
    let polynomial = Chebyshev::new(&a, &jacobi, 3).unwrap();
    let solutions = [
        Cg::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
        Cg::new(&a).preconditioner(&polynomial).rtol(1e-10).solve(&b).unwrap(),
        PipelinedCg::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
        Fcg::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
        Minres::new(&a).rtol(1e-10).solve(&b).unwrap(),
        Minres::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
        BiCgStab::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
        Gmres::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
        Fgmres::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
        Idr::new(&a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap(),
    ];
    for s in &solutions {
        println!("{}", s.report);
        assert_eq!(s.report.outcome, Outcome::Converged);
        approx::assert_relative_eq!(residual(&a, &s.x, &b), s.report.true_residual, epsilon = 1e-12);
    }
}
