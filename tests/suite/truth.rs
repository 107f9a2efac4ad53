//! Checks solutions with residuals that are computed without the library.

use krysp::testing::matrices::Triplets;
use krysp::{Csr, Outcome, Solution};

/// `‖b − A x‖` in twice the working precision, and the expected rounding error of a computation in working precision.
pub(super) fn residual_and_rounding(a: &Csr<f64>, x: &[f64], b: &[f64]) -> (f64, f64) {
    // A x − b is computed as one product, so that nothing is rounded before it cancels
    let sides = b.iter().enumerate().map(|(i, b)| (i as u32, a.cols() as u32, -b));
    let entries = a.triplets().map(|(i, j, v)| (i as u32, j as u32, v)).chain(sides).collect();
    let (with_one, cols) = ([x, &[1.0]].concat(), a.cols() + 1);
    let (differences, magnitude) = Triplets { rows: a.rows(), cols, entries }.product_reference(&with_one);
    (norm(&differences), 2.0 * f64::EPSILON * norm(&magnitude))
}

pub(super) fn residual(a: &Csr<f64>, x: &[f64], b: &[f64]) -> f64 {
    residual_and_rounding(a, x, b).0
}

pub(super) fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Checks that the reported residual is that of `x`, and that `Converged` is justified.
pub(super) fn check(a: &Csr<f64>, b: &[f64], rtol: f64, Solution { x, report }: &Solution<f64>) {
    let (exact, rounding) = residual_and_rounding(a, x, b);
    if matches!(report.outcome, Outcome::NotFinite { .. }) {
        // only with this outcome may the residual or `x` be infinite or NaN
        return;
    }
    assert!(x.iter().all(|x| x.is_finite()), "{report}");
    assert!((exact - report.true_residual).abs() <= 1e-8 * exact + rounding, "{exact:e}, {report}");
    if report.converged() {
        assert!(exact <= (1.0 + 1e-8) * rtol * norm(b) + rounding, "{exact:e}, {report}");
    }
    assert_eq!(report.history.len(), report.iterations + 1);
}
