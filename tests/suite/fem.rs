//! Real finite-element systems: the iteration counts are those of other libraries, and the reported residuals are true.
//!
//! The large systems are outside of the repository. If they are missing, tests report what they skip.

use krysp::io::{read_matrix, read_vector};
use krysp::testing::needed_matrix;
use krysp::{BiCgStab, Cg, Csr, Gmres, Jacobi, Outcome, Solution};

/// A matrix and its right-hand side. Reports missing files.
fn system(name: &str) -> Option<(Csr<f64>, Vec<f64>)> {
    let (matrix, rhs) = (needed_matrix(name)?, needed_matrix(&format!("{name}_b"))?);
    Some((read_matrix(matrix).unwrap(), read_vector(rhs).unwrap()))
}

/// The reported true residual is that of a plain computation.
fn check_residual(a: &Csr<f64>, b: &[f64], solution: &Solution<f64>) {
    println!("{}", solution.report);
    let mut r = b.to_vec();
    for (i, j, v) in a.triplets() {
        r[i] -= v * solution.x[j];
    }
    let norm = r.iter().map(|r| r * r).sum::<f64>().sqrt();
    let scale = b.iter().map(|b| b * b).sum::<f64>().sqrt();
    let reported = solution.report.true_residual;
    assert!((norm - reported).abs() <= 1e-3 * norm + 1e-14 * scale, "{norm:e} {reported:e}");
}

#[track_caller]
fn within(iterations: usize, expected: usize, percent: usize) {
    let off = iterations.abs_diff(expected) * 100;
    assert!(off <= percent * expected, "{iterations} iterations, {expected} expected");
}

/// Conjugate gradients with Jacobi take as many iterations as other libraries need.
#[track_caller]
fn jacobi_cg(name: &str, expected: usize) {
    let Some((a, b)) = system(name) else { return };
    let solution = Cg::new(&a).preconditioner(Jacobi::new(&a).unwrap()).rtol(1e-8).solve(&b).unwrap();
    check_residual(&a, &b, &solution);
    assert_eq!(solution.report.outcome, Outcome::Converged);
    within(solution.report.iterations, expected, 3);
}

fn jacobi_bicgstab(name: &str) {
    let Some((a, b)) = system(name) else { return };
    let solution = BiCgStab::new(&a).preconditioner(Jacobi::new(&a).unwrap()).rtol(1e-8).solve(&b).unwrap();
    check_residual(&a, &b, &solution);
    assert_eq!(solution.report.outcome, Outcome::Converged);
}

#[test]
fn jacobi_cg_on_a_heat_sink() {
    jacobi_cg("heat_sink_p1_27k", 554);
}

#[test]
fn jacobi_cg_on_an_elastic_bracket() {
    jacobi_cg("elast_tiny", 732);
}

#[test]
fn jacobi_bicgstab_on_convection_diffusion() {
    jacobi_bicgstab("convdiff_tiny");
}

#[test]
#[ignore = "half a minute in the test profile"]
fn jacobi_on_large_systems() {
    jacobi_cg("heat_sink_p1_340k", 1329);
    jacobi_cg("elast_bracket_p1_59k", 2155);
    jacobi_bicgstab("convdiff_channel_p1_186k");
}

#[test]
fn gmres_on_an_oseen_system() {
    let Some((a, b)) = system("oseen_tiny") else { return };
    let unrestarted = Gmres::new(&a).restart(a.rows()).rtol(1e-8).solve(&b).unwrap();
    check_residual(&a, &b, &unrestarted);
    assert_eq!(unrestarted.report.outcome, Outcome::Converged);
    within(unrestarted.report.iterations, 740, 5);
    let restarted = Gmres::new(&a).restart(30).rtol(1e-8).solve(&b).unwrap();
    check_residual(&a, &b, &restarted);
    assert!(matches!(restarted.report.outcome, Outcome::Stagnated(_)), "{}", restarted.report);
}
