//! The Chebyshev polynomial preconditioner.

use crate::truth::check;
use krysp::io::read_matrix;
use krysp::solvers::{Error, Identity};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices::{self, edge};
use krysp::testing::needed_matrix;
use krysp::{
    Cg, Chebyshev, Composed, Csr, HostSpace, HostVector, Jacobi, LinearOperator, Minres, MultiVector,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Chebyshev's polynomial `T_k(x)` for any `x`, also outside of [−1, 1].
fn chebyshev(k: usize, x: f64) -> f64 {
    let (mut before, mut now) = (1.0, x);
    for _ in 1..k {
        (before, now) = (now, 2.0 * x * now - before);
    }
    if k == 0 { 1.0 } else { now }
}

#[test]
fn applied_to_a_diagonal_matrix_it_evaluates_the_polynomial() {
    let n = 64;
    let a = edge::diagonal(n).csr::<f64>().unwrap();
    let r = a.domain().vector(&vec![1.0; n]).unwrap();
    for (low, high) in [(1.0, 64.0), (4.0, 70.0), (30.0, 30.0)] {
        for degree in 0..12 {
            let identity = Identity::new(a.domain());
            let m = Chebyshev::with_bounds(&a, identity, degree, [low, high]).unwrap();
            let mut z = a.domain().vector(&vec![f64::NAN; n]).unwrap();
            m.apply(&r, &mut z).unwrap();
            for (i, z) in z.as_slice().iter().enumerate() {
                let lambda = 1.0 + i as f64;
                let (theta, delta) = (0.5 * (high + low), 0.5 * (high - low));
                let expected = match delta {
                    0.0 => (1.0 - lambda / theta).powi(degree as i32 + 1),
                    _ => {
                        let [up, down] = [(theta - lambda) / delta, theta / delta];
                        chebyshev(degree + 1, up) / chebyshev(degree + 1, down)
                    }
                };
                let got = 1.0 - lambda * z;
                assert!((got - expected).abs() <= 1e-10, "{degree} at {lambda}: {got}, not {expected}");
            }
        }
    }
}

#[test]
fn bounds_are_estimated() {
    let eigenvalues: Vec<f64> = (0..400).map(|i| 1.0 + (i % 100) as f64 / 4.0).collect();
    let a = matrices::with_eigenvalues(&eigenvalues).csr::<f64>().unwrap();
    let [low, high] = Chebyshev::new(&a, Identity::new(a.domain()), 3).unwrap().bounds();
    println!("{low} {high}");
    assert!((0.5..2.0).contains(&low) && (25.75..28.4).contains(&high));
    // preconditioned by its own diagonal, the matrix becomes the identity
    let a = edge::diagonal(50).csr::<f64>().unwrap();
    let [low, high] = Chebyshev::new(&a, Jacobi::new(&a).unwrap(), 3).unwrap().bounds();
    assert!((low - 0.5).abs() <= 1e-5 && (high - 1.1).abs() <= 1e-5);
    // after new values the spectrum is estimated again
    let mut own = Chebyshev::new(a.clone(), Identity::new(a.domain()), 3).unwrap();
    let before = own.bounds();
    let twice: Vec<f64> = a.entries().iter().map(|v| 2.0 * v).collect();
    *own.operators_mut().0 = a.with_values(&twice).unwrap();
    own.estimate().unwrap();
    approx::assert_relative_eq!(own.bounds()[1], 2.0 * before[1], max_relative = 1e-5);
}

#[test]
fn unsuitable_matrices_and_bounds_are_refused() {
    let a = edge::diagonal(10).csr::<f64>().unwrap();
    for bounds in [[0.0, 1.0], [2.0, 1.0], [1.0, f64::INFINITY], [f64::NAN, 1.0]] {
        let refused = Chebyshev::with_bounds(&a, Identity::new(a.domain()), 2, bounds);
        assert!(matches!(refused, Err(Error::Bounds { .. })));
    }
    let indefinite = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, -1.0)]).unwrap();
    let refused = Chebyshev::new(&indefinite, Identity::new(indefinite.domain()), 2);
    assert!(matches!(refused, Err(Error::Breakdown { what: "⟨p, Ap⟩", .. })));
}

#[test]
fn the_polynomial_saves_iterations() {
    let saves = |name: &str, a: &Csr<f64>, degrees: &[usize]| {
        let b = matrices::vector(a.rows());
        let jacobi = Jacobi::new(a).unwrap();
        let plain = Cg::new(a).preconditioner(&jacobi).rtol(1e-8).solve(&b).unwrap();
        for &degree in degrees {
            let m = Chebyshev::new(a, &jacobi, degree).unwrap();
            let solution = Cg::new(a).preconditioner(&m).rtol(1e-8).solve(&b).unwrap();
            println!("{name}, degree {degree}: {} instead of {}", solution.report, plain.report.iterations);
            check(a, &b, 1e-8, &solution);
            assert!(solution.report.converged());
            // about `degree + 1` times fewer iterations
            let ratio = plain.report.iterations as f64 / solution.report.iterations as f64;
            assert!(ratio >= 0.75 * (degree + 1) as f64, "{name}, degree {degree}: {ratio}");
        }
    };
    let a = matrices::stencil7(20).csr::<f64>().unwrap();
    saves("stencil7(20)", &a, &[1, 2, 4, 8]);
    let m = Chebyshev::new(&a, Jacobi::new(&a).unwrap(), 3).unwrap();
    let b = matrices::vector(a.rows());
    assert!(Minres::new(&a).preconditioner(&m).rtol(1e-6).solve(&b).unwrap().report.converged());
    if let Some(path) = needed_matrix("heat_sink_p1_27k") {
        saves("heat_sink_p1_27k", &read_matrix(path).unwrap(), &[4]);
    }
    let a = matrices::stencil7(16).csr::<f32>().unwrap();
    let m = Chebyshev::new(&a, Jacobi::new(&a).unwrap(), 4).unwrap();
    let b = laws::numbers::<f32>(a.rows(), 3);
    assert!(Cg::new(&a).preconditioner(m).rtol(1e-5).solve(&b).unwrap().report.converged());
}

/// A matrix that counts its products with several vectors.
struct Counted {
    a: Csr<f64>,
    joint: AtomicUsize,
}

impl LinearOperator for Counted {
    type Vector = HostVector<f64>;

    fn domain(&self) -> &HostSpace<f64> {
        self.a.domain()
    }

    fn apply(&self, x: &HostVector<f64>, y: &mut HostVector<f64>) -> krysp::solvers::Result<()> {
        self.a.apply(x, y)
    }

    fn apply_many(
        &self,
        x: &MultiVector<HostVector<f64>>,
        y: &mut MultiVector<HostVector<f64>>,
    ) -> krysp::solvers::Result<()> {
        self.joint.fetch_add(1, Relaxed);
        self.a.apply_many(x, y)
    }
}

/// Operators composed of others multiply several vectors at once, by joint products of their parts.
#[test]
fn composite_operators_multiply_several_vectors() {
    let counted = || Counted { a: matrices::stencil7(6).csr().unwrap(), joint: AtomicUsize::new(0) };
    let (a, outer, inner) = (counted(), counted(), counted());
    let m = Chebyshev::with_bounds(&a, Identity::new(a.domain()), 4, [0.5, 12.0]).unwrap();
    laws::several_products(&m, &[2, 13], Agreement::Bitwise).unwrap();
    // four joint products for each of two numbers of columns, without and with inner products
    assert_eq!(a.joint.load(Relaxed), 16);
    let composed = Composed::new(&outer, &inner).unwrap();
    laws::several_products(&composed, &[2, 13], Agreement::Bitwise).unwrap();
    assert!(outer.joint.load(Relaxed) >= 4 && inner.joint.load(Relaxed) >= 4);
}
