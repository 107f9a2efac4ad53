//! `Converged` means `‖b − A x‖ ≤ max(rtol ‖b‖, atol)`, even if rounding makes the residual of the recurrence deviate from it.

use crate::truth::norm;
use krysp::solvers::Report;
use krysp::testing::matrices;
use krysp::{BiCgStab, Cg, Csr, Fcg, Gmres, Idr, Jacobi, Minres, Outcome, PipelinedCg, Stopping};

/// A stencil whose rows and columns are scaled by up to 10³, in single precision: the deviation of the residual of the recurrence
/// is as large as the tolerances below.
fn scaled() -> Csr<f32> {
    let stencil = matrices::stencil7(12).csr::<f64>().unwrap();
    let scale = |i: usize| 10f64.powf(3.0 * (i as f64 * 0.61).fract());
    let entries: Vec<_> =
        stencil.triplets().map(|(i, j, v)| (i, j, (v * scale(i) * scale(j)) as f32)).collect();
    Csr::from_triplets(stencil.rows(), stencil.rows(), &entries).unwrap()
}

/// `‖b − A x‖` in double precision.
fn residual(a: &Csr<f32>, x: &[f32], b: &[f32]) -> f64 {
    let mut r: Vec<f64> = b.iter().map(|&b| b.into()).collect();
    a.triplets().for_each(|(i, j, v)| r[i] -= f64::from(v) * f64::from(x[j]));
    norm(&r)
}

/// Tolerances from `10^-4` to `10^-5.5`.
fn tolerances() -> impl Iterator<Item = f64> {
    (0..60).map(|k| 10f64.powf(-4.0 - 0.025 * f64::from(k)))
}

/// Iterations after the recurrence first met the tolerance.
fn after_claim(report: &Report, rtol: f64) -> Option<usize> {
    let claim = report.history.iter().position(|&residual| residual <= rtol * report.rhs_norm)?;
    Some(report.iterations - claim)
}

macro_rules! checked {
    ($method:ident, $most:expr) => {{
        let a = scaled();
        let jacobi = Jacobi::new(&a).unwrap();
        let b: Vec<f32> = (0..a.rows()).map(|i| (i as f32 * 0.37).sin()).collect();
        let (mut converged, mut contradicted, mut iterations, mut more) = (0, 0, 0, 0);
        for rtol in tolerances() {
            let solution = $method::new(&a).preconditioner(&jacobi).rtol(rtol).solve(&b).unwrap();
            let (x, report) = (solution.x, solution.report);
            if report.outcome != Outcome::Converged {
                continue;
            }
            converged += 1;
            let truth = residual(&a, &x, &b) / report.rhs_norm;
            // 5 % more are allowed: residuals that are far from the rounding limit are computed in the precision of the elements
            assert!(truth <= (1.0 + 0.05) * rtol, "{}, {rtol:e}: {truth:e}, {report}", stringify!($method));
            let after = after_claim(&report, rtol).unwrap_or(0);
            contradicted += usize::from(after > 0);
            (iterations, more) = (iterations + report.iterations, more + after);
        }
        let name = stringify!($method);
        println!("{name}: {converged} converged, {contradicted} of them after a claim that did not hold");
        println!("{more} of {iterations} iterations came after such claims");
        assert!(converged >= 10, "{converged}");
        assert!(more as f64 <= $most * iterations as f64, "{more} of {iterations}");
        contradicted
    }};
}

#[test]
fn converged_residuals_meet_the_tolerance() {
    let contradicted = checked!(Cg, 0.5) + checked!(Minres, 0.5) + checked!(Fcg, 0.5);
    // the test is significant only if the recomputed residual contradicts that of the recurrence in some cases
    assert!(contradicted >= 5, "{contradicted}");
}

#[test]
fn converged_residuals_of_general_methods_meet_the_tolerance() {
    checked!(BiCgStab, 0.5);
    checked!(Idr, 0.5);
    checked!(Gmres, 0.5);
    checked!(PipelinedCg, 0.5);
}

#[test]
fn plans_and_solvers_have_the_same_default_tolerance() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let b = vec![1.0; a.rows()];
    let by_plan = krysp::solve(&a, &b).unwrap();
    let by_solver = Cg::new(&a).preconditioner(Jacobi::new(&a).unwrap()).solve(&b).unwrap();
    let last = |report: &Report| report.relative_residual();
    assert!(by_plan.report.iterations.abs_diff(by_solver.report.iterations) <= 1, "{by_plan}");
    assert!(last(&by_plan.report) <= 1e-8 && last(&by_solver.report) <= 1e-8);
    let defaults = [f64::EPSILON, f32::EPSILON.into()].map(|epsilon| Stopping::new(epsilon).rtol);
    assert_eq!(defaults, [1e-8, 3.5e-4]);
}
